//! Ports for programs that a test starts.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a free port of loopback, for UDP and TCP. It is below the ephemeral ports and different
/// for each call and process, so that no other program takes it before it is used.
pub(crate) fn port() -> u16 {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 10_000;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 61 + CALLS.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + number % PORTS) as u16;
        let at = (Ipv4Addr::LOCALHOST, port);
        if UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok() {
            return port;
        }
    }
}
