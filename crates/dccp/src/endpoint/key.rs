//! The key of a connection in the tables, and the tables' hash.

use core::hash::{BuildHasher, Hash, Hasher};
use ringway_sansio::Addressing;
use siphasher::sip::SipHasher13;
use std::net::{IpAddr, SocketAddr};

/// A pair of addresses with the ports of DCCP, and the peer's port of UDP (RFC 6773 section 3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    local: u128,
    remote: u128,
    ports: u64,
}

/// Returns an address as a number. IPv4 is mapped by RFC 4291 section 2.5.5.2, which does not occur on
/// the wire.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => 0xffff_0000_0000 | u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
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

/// SipHash with a secret, so that a peer cannot cause collisions.
#[derive(Clone, Copy)]
pub(super) struct Keyed(pub(super) u64, pub(super) u64);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}
