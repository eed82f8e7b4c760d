//! Opening the sockets of all workers at once, before any of them runs.
//!
//! The first worker's socket is bound without `SO_REUSEPORT`, so that an address already in use is
//! an error even when another process of ours uses it; the option is set right after, and the other
//! workers join. A port the system chose for the first is thereby the port of all.

use crate::error::BindError;
use crate::sys::set_option;
use ringway_sansio::{Listener, Transport};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// Connections the kernel completes and keeps for us until they are accepted; the system may cut it
/// to `net.core.somaxconn`.
const ACCEPT_BACKLOG: i32 = 4096;

/// What is to be listened on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bind {
    /// What is carried.
    pub transport: Transport,
    /// Where; port 0 lets the system choose one, the same for all workers.
    pub addr: SocketAddr,
    /// SCTP only: further addresses of every association (RFC 4168). None beside a wildcard.
    pub more: Vec<IpAddr>,
    /// SCTP only: our UDP port that carries it (RFC 6951); `None` for straight over IP.
    pub encapsulation: Option<u16>,
}

impl Bind {
    /// At one address.
    pub const fn at(transport: Transport, addr: SocketAddr) -> Bind {
        Bind { transport, addr, more: Vec::new(), encapsulation: None }
    }
}

/// As a URI: `sctp+udp://192.0.2.1,198.51.100.1:5060?encap=9899`.
impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = |f: &mut fmt::Formatter<'_>, ip: IpAddr| match ip {
            IpAddr::V4(ip) => write!(f, "{ip}"),
            IpAddr::V6(ip) => write!(f, "[{ip}]"),
        };
        let udp = if self.encapsulation.is_some() { "+udp" } else { "" };
        write!(f, "{}{udp}://", self.transport.uri())?;
        bracketed(f, self.addr.ip())?;
        for ip in &self.more {
            f.write_str(",")?;
            bracketed(f, *ip)?;
        }
        write!(f, ":{}", self.addr.port())?;
        match self.encapsulation {
            Some(port) => write!(f, "?encap={port}"),
            None => Ok(()),
        }
    }
}

impl From<(Transport, SocketAddr)> for Bind {
    fn from((transport, addr): (Transport, SocketAddr)) -> Bind {
        Bind::at(transport, addr)
    }
}

/// One listener with a socket for every worker.
pub(crate) struct Bound {
    pub(crate) listener: Listener,
    /// By worker.
    pub(crate) sockets: Vec<Socket>,
}

/// Opens `workers` sockets for one listener.
pub(crate) fn bind(
    transport: Transport,
    addr: SocketAddr,
    workers: usize,
) -> Result<Bound, BindError> {
    let failed = |error| BindError::Address { transport, addr, error };
    let first = open(transport, addr, false).map_err(failed)?;
    let mut actual = addr;
    let chosen = first.local_addr().map_err(failed)?.as_socket().map_or(0, |a| a.port());
    actual.set_port(chosen);
    if workers > 1 {
        first.set_reuse_port(true).map_err(failed)?;
    }
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(open(transport, actual, true).map_err(failed)?);
    }
    if !transport.is_datagram() {
        for socket in &sockets {
            socket.listen(ACCEPT_BACKLOG).map_err(failed)?;
        }
    }
    Ok(Bound { listener: Listener { transport, addr: actual }, sockets })
}

fn open(transport: Transport, addr: SocketAddr, shared: bool) -> io::Result<Socket> {
    let (kind, protocol) = if transport.is_datagram() {
        (Type::DGRAM, Protocol::UDP)
    } else {
        (Type::STREAM, Protocol::TCP)
    };
    let socket = Socket::new(Domain::for_address(addr), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if addr.is_ipv6() {
        // IPv4 has listeners of its own; a mapped address never appears as a peer's.
        socket.set_only_v6(true)?;
    }
    if !transport.is_datagram() {
        // Connections of an earlier process may still be in TIME-WAIT.
        socket.set_reuse_address(true)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// Asks for socket buffers of `bytes` each way, past the system's limit where the process may. Gives
/// the size of the receive buffer that was granted.
pub(crate) fn enlarge_buffers(socket: &Socket, bytes: usize) -> io::Result<usize> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX / 2);
    if set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value).is_err() {
        socket.set_recv_buffer_size(bytes)?;
    }
    if set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, value).is_err() {
        socket.set_send_buffer_size(bytes)?;
    }
    // Linux tells twice what may be used for data (socket(7)).
    Ok(socket.recv_buffer_size()? / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_one_port_and_others_may_not() {
        for transport in [Transport::Udp, Transport::Tcp] {
            for addr in ["127.0.0.1:0", "[::1]:0"] {
                let bound = bind(transport, addr.parse().unwrap(), 3).unwrap();
                let port = bound.listener.addr.port();
                assert_ne!(port, 0);
                for socket in &bound.sockets {
                    let addr = socket.local_addr().unwrap().as_socket().unwrap();
                    assert_eq!(addr, bound.listener.addr);
                }
                let error = bind(transport, bound.listener.addr, 2).err().unwrap();
                assert!(error.to_string().ends_with(": address in use"), "{error}");
            }
        }
    }

    #[test]
    fn an_address_that_is_not_ours_is_told() {
        let error = bind(Transport::Udp, "192.0.2.77:5060".parse().unwrap(), 1).err().unwrap();
        assert_eq!(error.to_string(), "udp://192.0.2.77:5060: no such address on this host");
    }

    #[test]
    fn buffers_are_granted_or_cut_never_refused() {
        let bound = bind(Transport::Udp, "127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let got = enlarge_buffers(&bound.sockets[0], 8 << 20).unwrap();
        assert!(got >= 100_000, "{got}");
    }
}
