//! The key of an association in the tables, and the tables' hash.

use core::hash::{BuildHasher, Hash, Hasher};
use siphasher::sip::SipHasher13;
use std::net::IpAddr;

/// A pair of addresses and the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    local: u128,
    remote: u128,
    ports: u32,
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
    pub(super) fn new(local: IpAddr, local_port: u16, remote: IpAddr, remote_port: u16) -> Key {
        Key {
            local: number(local),
            remote: number(remote),
            ports: u32::from(local_port) << 16 | u32::from(remote_port),
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.local.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.remote.to_le_bytes());
        bytes[32..].copy_from_slice(&self.ports.to_le_bytes());
        state.write(&bytes);
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
