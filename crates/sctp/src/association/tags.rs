//! The tags of an association (RFC 9260 sections 3.1 and 5.2.2).

use core::num::NonZeroU32;
use ringway_sansio::Random;

/// The verification tags of both endpoints, and what stands for them in cookies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    /// The tag of packets to the local endpoint.
    pub(crate) local: u32,
    /// The peer's tag, once it is known.
    peer: Option<NonZeroU32>,
    /// The tie-tags that stand for both tags in cookies.
    pub(crate) ties: (u32, u32),
}

impl Tags {
    /// Returns the tags of an association whose peer is unknown.
    pub(super) fn new(local: u32, random: &mut dyn Random) -> Tags {
        let ties = (random.next_u64() as u32 | 1, random.next_u64() as u32 | 1);
        Tags { local, peer: None, ties }
    }

    /// Returns the tag of packets to the peer: 0 while its own is unknown, as an INIT has (section 8.5.1 A).
    #[inline]
    pub(crate) fn outbound(&self) -> u32 {
        self.peer.map_or(0, NonZeroU32::get)
    }

    /// Returns whether the peer's tag is known.
    pub(crate) fn knows_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Returns whether a tag is the peer's.
    pub(crate) fn is_of_peer(&self, tag: u32) -> bool {
        self.peer.is_some_and(|peer| peer.get() == tag)
    }

    /// Sets the peer's tag; 0 is none.
    pub(super) fn set_peer(&mut self, tag: u32) {
        self.peer = NonZeroU32::new(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    /// RFC 9260 section 8.5.1 A.
    #[test]
    fn packets_have_no_tag_until_the_peer_has_one() {
        let mut tags = Tags::new(7, &mut SplitMix::new(1));
        assert_eq!((tags.outbound(), tags.knows_peer()), (0, false));
        assert!(!tags.is_of_peer(0) && tags.ties.0 != 0 && tags.ties.1 != 0);
        tags.set_peer(9);
        assert_eq!((tags.outbound(), tags.knows_peer()), (9, true));
        assert!(tags.is_of_peer(9) && !tags.is_of_peer(7));
    }
}
