//! The two ways to another router, each of which has a session.

use core::fmt;

use crate::id::Prefix;

/// Times that LOOKUP_APART is sent in a search: first those that avoid routers, then those that avoid links alone.
pub(super) const TRIES_APART: u32 = 4;
pub(super) const STRICT_TRIES: u32 = 2;

/// One of the two ways to the owner of a prefix, each of which has a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Track(u64);

impl Track {
    /// A bit that no prefix has: its octets are seven.
    const APART: u64 = 1 << 63;

    /// The way of ordinary packets.
    pub fn ordinary(prefix: Prefix) -> Track {
        let mut all = [0; 8];
        all[1..].copy_from_slice(&prefix.to_bytes());
        Track(u64::from_be_bytes(all))
    }

    /// The way of packets between the second addresses of two routers.
    pub fn apart(prefix: Prefix) -> Track {
        Track(Track::ordinary(prefix).0 | Track::APART)
    }

    /// Returns the prefix.
    pub fn prefix(self) -> Prefix {
        let [_, octets @ ..] = self.0.to_be_bytes();
        Prefix::from_bytes(octets)
    }

    /// Returns whether it is that of second addresses.
    pub fn is_apart(self) -> bool {
        self.0 & Track::APART != 0
    }
}

impl fmt::Debug for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_apart() { "apart" } else { "ordinary" };
        write!(f, "{} {kind}", self.prefix().network())
    }
}
