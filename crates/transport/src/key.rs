//! The key of a connection in an endpoint's tables, and the tables' hash.

use core::fmt;
use core::hash::{BuildHasher, Hash, Hasher};
use siphasher::sip::SipHasher13;
use std::net::{IpAddr, SocketAddr};

/// The addresses and ports of a connection, or of one of its paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    local: u128,
    remote: u128,
    ports: u32,
}

/// Returns an address as a number. IPv4 is mapped by RFC 4291 section 2.5.5.2, which does not occur on the wire.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => 0xffff_0000_0000 | u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

impl Key {
    /// Returns the key of two addresses and their ports.
    pub fn new(local: IpAddr, local_port: u16, remote: IpAddr, remote_port: u16) -> Key {
        Key {
            local: number(local),
            remote: number(remote),
            ports: u32::from(local_port) << 16 | u32::from(remote_port),
        }
    }

    /// Returns the key of two addresses with ports.
    pub fn between(local: SocketAddr, remote: SocketAddr) -> Key {
        Key::new(local.ip(), local.port(), remote.ip(), remote.port())
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

/// SipHash with a secret of two random numbers, so that a peer cannot cause collisions.
#[derive(Clone, Copy)]
pub struct Keyed(pub u64, pub u64);

impl fmt::Debug for Keyed {
    /// Writes the name alone, as the numbers are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyed")
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

impl Keyed {
    /// Returns F of RFC 9293 section 3.4.1, also for other numbers that must differ by connection.
    pub fn number(&self, what: impl Hash) -> u64 {
        self.hash_one(what)
    }
}
