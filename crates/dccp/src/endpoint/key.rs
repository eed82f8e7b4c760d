//! The key of a connection in the tables.

use core::hash::{Hash, Hasher};
use ringway_sansio::Addressing;
use ringway_transport::number;
use std::net::SocketAddr;

/// A pair of addresses with the ports of DCCP, and the peer's port of UDP (RFC 6773 section 3.8). The host's own is always
/// the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    local: u128,
    remote: u128,
    ports: u64,
}

impl Key {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr, udp_port: u16) -> Key {
        Key {
            local: number(local.ip()),
            remote: number(remote.ip()),
            ports: u64::from(udp_port) << 32
                | u64::from(local.port()) << 16
                | u64::from(remote.port()),
        }
    }

    /// Returns the key of a packet that was received with these ports.
    pub(super) fn of(addressing: &Addressing, source: u16, destination: u16) -> Key {
        let local = SocketAddr::new(addressing.destination, destination);
        let remote = SocketAddr::new(addressing.source, source);
        Key::new(local, remote, addressing.udp_port)
    }

    /// Returns the bytes that stand for the key.
    pub(super) fn bytes(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.local.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.remote.to_be_bytes());
        bytes[32..].copy_from_slice(&self.ports.to_be_bytes());
        bytes
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.bytes());
    }
}
