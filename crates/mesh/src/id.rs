//! Ids of routers, and the addresses that follow from them.
//!
//! An id is a position on a ring of 2^64. Its first 56 bits are also the router's /64: octet `fd`, the locally assigned
//! half of the unique local addresses (RFC 4193 section 3.1), and then the 56 bits. So the router of an address is known
//! from the address, without a directory.

use core::fmt;
use core::net::Ipv6Addr;

/// First octet of every address of the mesh (RFC 4193 section 3.1, with the L bit set).
const ULA: u8 = 0xfd;
/// Bits of an id that are not part of the prefix.
const BELOW_PREFIX: u32 = 8;

/// The id of a router, or a key of the key space, which is the same: a position on the ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(u64);

impl NodeId {
    /// Length in octets on the wire.
    pub const LENGTH: usize = 8;

    /// The id at this position.
    pub const fn new(position: u64) -> Self {
        NodeId(position)
    }

    /// Returns the position.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the octets on the wire.
    pub const fn to_bytes(self) -> [u8; NodeId::LENGTH] {
        self.0.to_be_bytes()
    }

    /// Returns the id in these octets.
    pub const fn from_bytes(bytes: [u8; NodeId::LENGTH]) -> Self {
        NodeId(u64::from_be_bytes(bytes))
    }

    /// Returns the prefix of the addresses behind this router.
    pub const fn prefix(self) -> Prefix {
        Prefix(self.0 >> BELOW_PREFIX)
    }

    /// Returns the short name of this router in the record of one message.
    ///
    /// Names in different messages have nothing in common, so that a name seen in one cannot be prepared for another.
    /// It keeps no secret: who knows the id and the message can compute it.
    pub const fn tag(self, message: u64) -> Tag {
        // The finaliser of SplitMix64: every bit of both reaches every bit of the tag.
        let mut z = self.0 ^ message.rotate_left(32);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Tag((z >> 32) as u32)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A router's name in the record of one message ([`NodeId::tag`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(pub u32);

/// The /64 of a router: `fd` and the first 56 bits of its id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix(u64);

impl Prefix {
    /// Length in octets on the wire, without `fd`.
    pub const LENGTH: usize = 7;

    /// Returns the prefix of an address, or `None` if it is not an address of the mesh.
    pub fn of(address: &Ipv6Addr) -> Option<Prefix> {
        let head = (address.to_bits() >> 64) as u64;
        (head >> 56 == u64::from(ULA)).then_some(Prefix(head & (u64::MAX >> 8)))
    }

    /// Returns the octets on the wire.
    pub fn to_bytes(self) -> [u8; Prefix::LENGTH] {
        let [_, bytes @ ..] = self.0.to_be_bytes();
        bytes
    }

    /// Returns the prefix in these octets.
    pub fn from_bytes(bytes: [u8; Prefix::LENGTH]) -> Self {
        let mut all = [0; 8];
        all[1..].copy_from_slice(&bytes);
        Prefix(u64::from_be_bytes(all))
    }

    /// Returns the first address of the /64.
    pub fn network(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from((u64::from(ULA) << 56) | self.0) << 64)
    }

    /// Returns the address of the router itself: the first after the anycast address of the subnet (RFC 4291 section
    /// 2.6.1).
    pub fn router(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.network().to_bits() | 1)
    }

    /// Returns the second address of the router, for what has two addresses so that it can have two ways.
    pub fn second(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.network().to_bits() | 2)
    }

    /// Returns whether the router `id` owns this prefix.
    pub fn contains(self, id: NodeId) -> bool {
        id.prefix() == self
    }

    /// Returns the key to look the owner up by: the last id with this prefix, for which the owner is responsible.
    pub fn key(self) -> NodeId {
        NodeId((self.0 << BELOW_PREFIX) | ((1 << BELOW_PREFIX) - 1))
    }
}

/// The order of what one router has said about itself: the later wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Sequence {
    /// Seconds since the epoch when the router started.
    pub epoch: u32,
    /// Number of statements since then.
    pub count: u32,
}

/// A random number drawn at every start. It tells a router that restarted, or a second holder of its key, from itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Instance(pub u32);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_names_its_router() {
        let id = NodeId::new(0x0123_4567_89ab_cdef);
        assert_eq!(id.prefix().network().to_string(), "fd01:2345:6789:abcd::");
        assert_eq!(id.prefix().router().to_string(), "fd01:2345:6789:abcd::1");
        assert_eq!(Prefix::of(&id.prefix().router()), Some(id.prefix()));
        assert_eq!(Prefix::of(&"fc01:2345:6789:abcd::1".parse().unwrap()), None);
        assert_eq!(Prefix::of(&"2001:db8::1".parse().unwrap()), None);
    }

    #[test]
    fn a_later_epoch_wins_over_a_higher_count() {
        assert!(Sequence { epoch: 2, count: 0 } > Sequence { epoch: 1, count: 9 });
    }

    proptest! {
        #[test]
        fn ids_and_prefixes_come_back(raw: u64, host: u64) {
            let id = NodeId::new(raw);
            prop_assert_eq!(NodeId::from_bytes(id.to_bytes()), id);
            let prefix = id.prefix();
            prop_assert_eq!(Prefix::from_bytes(prefix.to_bytes()), prefix);
            let address = Ipv6Addr::from_bits(prefix.network().to_bits() | u128::from(host));
            prop_assert_eq!(Prefix::of(&address), Some(prefix));
            prop_assert!(prefix.contains(id) && prefix.contains(prefix.key()) && prefix.key() >= id);
        }

        #[test]
        fn tags_of_different_messages_differ(raw: u64, one: u64, other: u64) {
            prop_assume!(one != other);
            // 2^-32 of all pairs are equal by chance; not these.
            prop_assert_ne!(NodeId::new(raw).tag(one), NodeId::new(raw).tag(other));
        }
    }
}
