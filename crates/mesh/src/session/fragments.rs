//! Fragmentation below IPv6 (RFC 8200 section 5): a packet of a host that is longer than the route of its session carries
//! travels in pieces, which only the two ends of the session know of.
//!
//! The pieces of a packet have consecutive numbers in the session, and each says which piece it is. So the number of the
//! first one identifies the packet, and as a number is accepted once, no piece comes twice and none overlaps another
//! (the attacks of RFC 5722): a piece has an index and no offset. What the owner stores for packets of which pieces are
//! missing is bounded for a session, for a neighbour and for all, and in time.

use core::ops::Range;

use ringway_sansio::Time;
use ringway_sansio::time::Duration;

use crate::config::{LEAST_MTU, MAX_DATA_NIBBLES, MAX_ORDINARY_NIBBLES};
use crate::icmp::MIN_MTU;
use crate::wire::{DataView, Slot};

/// Maximum number of pieces of a packet.
pub(super) const MAX_PIECES: usize = 4;
/// Octets before the octets of a packet: the type of the contents, the piece's index and the number of pieces.
pub(super) const PIECE_HEADER: usize = 2;
/// Maximum number of packets of which pieces are missing: of one session, by one neighbour, and of all.
const MAX_OF_SESSION: usize = 8;
const MAX_BY_NEIGHBOUR: usize = 32;
const MAX_PARTIAL: usize = 64;
/// Time after which a packet of which pieces are missing is dropped.
const EXPIRY: Duration = Duration::from_secs(2);

/// Least length in octets of the contents of a packet on a route with which a session can be: four pieces carry the least
/// packet of IPv6.
pub(super) const LEAST_ROOM: usize = MIN_MTU as usize / MAX_PIECES + PIECE_HEADER;

// So has every ordinary route over links of the least MTU, and every route at all over links of Ethernet.
const _: () = {
    let ordinary = DataView::overhead(MAX_ORDINARY_NIBBLES as u16) + LEAST_ROOM;
    let any = DataView::overhead(MAX_DATA_NIBBLES as u16) + LEAST_ROOM;
    assert!(LEAST_MTU as usize >= ordinary && any <= MIN_MTU as usize);
};

/// A piece of a packet of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// Its index, from 0.
    pub index: u8,
    /// Number of pieces of the packet.
    pub count: u8,
    /// Its octets of the packet.
    pub octets: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Parses what follows the type of the contents.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Piece<'a>> {
        let (&numbers, octets) = bytes.split_first()?;
        let (index, count) = (numbers >> 4, numbers & 15);
        let is_good = index < count
            && (2..=MAX_PIECES).contains(&count.into())
            && (1..=MIN_MTU.into()).contains(&octets.len());
        is_good.then_some(Piece { index, count, octets })
    }

    /// Returns the octet that contains the index and the number of pieces.
    pub(super) fn numbers(&self) -> u8 {
        self.index << 4 | self.count
    }

    /// Splits a packet into pieces of at most `longest` octets, about equally long. Returns none if there would be more than
    /// [`MAX_PIECES`].
    pub(crate) fn split(packet: &'a [u8], longest: usize) -> impl Iterator<Item = Piece<'a>> {
        let count = packet.len().div_ceil(longest.max(1));
        let size = packet.len().div_ceil(count.max(1)).max(1);
        let count = if count <= MAX_PIECES { count } else { 0 };
        let piece = move |(index, octets)| Piece { index, count: count as u8, octets };
        (0..).zip(packet.chunks(size)).take(count).map(piece)
    }
}

/// A packet of which pieces are missing.
#[derive(Debug)]
struct Partial {
    /// Our number for the session, and the number of the first piece in it.
    session: u32,
    first: u64,
    /// The neighbour by which the first piece that came has come.
    entered: Slot,
    since: Time,
    /// The pieces; those that are missing are empty.
    pieces: Vec<Vec<u8>>,
}

/// Packets of which pieces are missing, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    partial: Vec<Partial>,
    /// Packets that were dropped with pieces missing, or with pieces that do not belong together.
    pub(super) dropped: u64,
}

impl Fragments {
    /// Takes a piece with the number `nonce` of a session. Returns the packet if it is the last one that was missing.
    pub(super) fn join(
        &mut self,
        now: Time,
        (session, nonce): (u32, u64),
        entered: Slot,
        piece: &Piece<'_>,
    ) -> Option<Vec<u8>> {
        self.expire(now);
        let Some(first) = nonce.checked_sub(piece.index.into()) else {
            self.dropped += 1;
            return None;
        };
        let is_it = |partial: &Partial| (partial.session, partial.first) == (session, first);
        let known = self.partial.iter().position(is_it);
        let at = known.unwrap_or_else(|| {
            self.make_room(session, entered);
            let pieces = vec![Vec::new(); piece.count.into()];
            self.partial.push(Partial { session, first, entered, since: now, pieces });
            self.partial.len() - 1
        });
        let partial = &mut self.partial[at];
        let length: usize = partial.pieces.iter().map(Vec::len).sum();
        let slot = partial.pieces.get_mut(usize::from(piece.index)).filter(|slot| slot.is_empty());
        let is_too_long = length + piece.octets.len() > MIN_MTU.into();
        match slot {
            Some(slot) if !is_too_long => slot.extend_from_slice(piece.octets),
            _ => {
                self.drop(at..at + 1);
                return None;
            }
        }
        if partial.pieces.len() != usize::from(piece.count) {
            self.drop(at..at + 1);
            return None;
        }
        let is_whole = partial.pieces.iter().all(|piece| !piece.is_empty());
        is_whole.then(|| self.partial.remove(at).pieces.concat())
    }

    /// Drops packets that have waited too long.
    pub(super) fn expire(&mut self, now: Time) {
        let late = self.partial.iter().take_while(|partial| now.since(partial.since) >= EXPIRY);
        let late = late.count();
        self.drop(0..late);
    }

    /// Returns when the oldest packet is dropped.
    pub(super) fn due(&self) -> Option<Time> {
        self.partial.first().map(|partial| partial.since + EXPIRY)
    }

    /// Returns the octets that are allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        let pieces = |partial: &Partial| partial.pieces.capacity() * size_of::<Vec<u8>>();
        let octets = |partial: &Partial| partial.pieces.iter().map(Vec::capacity).sum::<usize>();
        self.partial.capacity() * size_of::<Partial>()
            + self.partial.iter().map(|partial| pieces(partial) + octets(partial)).sum::<usize>()
    }

    /// Makes room for another packet: the oldest of the session makes way if that has its share; if the neighbour has its own,
    /// or if there is no room, the oldest of the session that has most there. So whoever sends pieces without the rest
    /// displaces its own.
    fn make_room(&mut self, session: u32, entered: Slot) {
        let largest = |max: usize, is_of: &dyn Fn(&Partial) -> bool| {
            let all = || self.partial.iter().enumerate().filter(|(_, partial)| is_of(partial));
            let count = |session| all().filter(|(_, other)| other.session == session).count();
            let is_full = all().count() >= max;
            // Of equals the one that has the oldest.
            let (at, _) = all()
                .filter(|_| is_full)
                .min_by_key(|(at, partial)| (usize::MAX - count(partial.session), *at))?;
            Some(at)
        };
        let at = largest(MAX_OF_SESSION, &|partial| partial.session == session)
            .or_else(|| largest(MAX_BY_NEIGHBOUR, &|partial| partial.entered == entered))
            .or_else(|| largest(MAX_PARTIAL, &|_| true));
        if let Some(at) = at {
            self.drop(at..at + 1);
        }
    }

    fn drop(&mut self, range: Range<usize>) {
        self.dropped += range.len() as u64;
        self.partial.drain(range);
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_secs(100);
    const SLOT: Slot = Slot(3);

    fn octets(length: usize) -> Vec<u8> {
        (0..length).map(|at| at as u8).collect()
    }

    #[test]
    fn pieces_are_joined_in_any_order() {
        let (mut fragments, packet) = (Fragments::default(), octets(1_280));
        let pieces: Vec<Piece<'_>> = Piece::split(&packet, 500).collect();
        assert_eq!(
            pieces.iter().map(|piece| piece.octets.len()).collect::<Vec<_>>(),
            [427, 427, 426]
        );
        for (at, order) in [[0, 1, 2], [2, 1, 0], [1, 2, 0]].into_iter().enumerate() {
            let joined = order.map(|index| {
                let nonce = (10 * at + index) as u64;
                fragments.join(NOW, (7, nonce), SLOT, &pieces[index])
            });
            assert_eq!(joined, [None, None, Some(packet.clone())]);
        }
        assert_eq!((fragments.partial.len(), fragments.dropped), (0, 0));
    }

    #[test]
    fn pieces_that_do_not_belong_together_are_dropped() {
        let mut fragments = Fragments::default();
        let bytes = [0x5a; 1_280];
        let piece = |index, count, length: usize| Piece { index, count, octets: &bytes[..length] };
        let mut join = |nonce, piece: Piece<'_>| {
            let joined = fragments.join(NOW, (7, nonce), SLOT, &piece);
            (joined.map(|packet| packet.len()), fragments.partial.len())
        };
        // Another number of pieces.
        assert_eq!(join(10, piece(0, 2, 9)), (None, 1));
        assert_eq!(join(11, piece(1, 3, 9)), (None, 0));
        // More than a packet may have.
        assert_eq!(join(20, piece(0, 2, 1_280)), (None, 1));
        assert_eq!(join(21, piece(1, 2, 1)), (None, 0));
        // The same piece again; the session does not pass it on.
        assert_eq!(join(30, piece(0, 2, 9)), (None, 1));
        assert_eq!(join(30, piece(0, 2, 9)), (None, 0));
        // Before the first packet of the session.
        assert_eq!(join(1, piece(2, 3, 9)), (None, 0));
        assert_eq!(fragments.dropped, 4);
        for bad in [&[][..], &[0x02], &[0x01, 9], &[0x22, 9], &[0x05, 9], &[0x00, 9]] {
            assert_eq!(Piece::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Piece::parse(&[0x02; 1_282]), None);
    }

    #[test]
    fn what_misses_pieces_is_bounded_and_expires() {
        let mut fragments = Fragments::default();
        let piece = Piece { index: 0, count: 4, octets: &[1; 1_280] };
        for nonce in 0..100 {
            for session in 0..30 {
                let entered = Slot(session as u16 % 2);
                fragments.join(NOW, (session, 4 * nonce), entered, &piece);
                let of_it = fragments.partial.iter().filter(|one| one.session == session);
                assert!(of_it.count() <= MAX_OF_SESSION);
            }
        }
        assert_eq!(fragments.partial.len(), MAX_PARTIAL);
        assert!(fragments.heap_bytes() <= MAX_PARTIAL * 1_500, "{}", fragments.heap_bytes());
        // A neighbour does not use up what another needs.
        fragments.expire(NOW + EXPIRY);
        assert_eq!((fragments.partial.len(), fragments.heap_bytes()), (0, 0));
        fragments.join(NOW, (99, 0), Slot(8), &piece);
        (0..100).for_each(|session| {
            fragments.join(NOW, (session + 100, 0), Slot(9), &piece);
        });
        assert!(fragments.partial.iter().any(|partial| partial.session == 99));
        assert_eq!(fragments.due(), Some(NOW + EXPIRY));
    }

    /// Sessions that send first pieces and nothing else, over the neighbour of an honest one and over others, displace what
    /// they have sent themselves.
    #[test]
    fn a_flood_of_first_pieces_displaces_no_other_sessions() {
        let piece = Piece { index: 0, count: 2, octets: &[1; 9] };
        let last = Piece { index: 1, ..piece };
        for (sessions, neighbours) in [(1, 1), (8, 1), (8, 2), (20, 3)] {
            let mut fragments = Fragments::default();
            fragments.join(NOW, (99, 0), SLOT, &piece);
            for nonce in 0..500 {
                for session in 0..sessions {
                    let entered = Slot(SLOT.0 + session as u16 % neighbours);
                    fragments.join(NOW, (session, 4 * nonce), entered, &piece);
                }
            }
            let joined = fragments.join(NOW, (99, 1), SLOT, &last);
            assert!(joined.is_some(), "{sessions} sessions by {neighbours} neighbours");
        }
    }

    proptest! {
        /// Packets whose pieces are lost and reordered come whole and unchanged or not at all, and each once.
        #[test]
        fn lost_and_reordered_pieces_make_no_other_packet(
            lengths in proptest::collection::vec((2usize..=1_280, 340usize..700), 1..12),
            order in proptest::collection::vec((any::<bool>(), any::<u16>()), 48),
        ) {
            let packets: Vec<Vec<u8>> =
                lengths.iter().enumerate().map(|(at, &(length, _))| vec![at as u8; length]).collect();
            let mut sent = Vec::new();
            for (packet, &(_, longest)) in packets.iter().zip(&lengths) {
                let pieces: Vec<Piece<'_>> = Piece::split(packet, longest).collect();
                prop_assert_eq!(pieces.iter().flat_map(|piece| piece.octets).count(), packet.len());
                if pieces.len() > 1 {
                    let from = sent.len() as u64;
                    sent.extend((from..).zip(pieces));
                }
            }
            let mut arrived: Vec<_> = sent.iter().zip(&order).filter(|(_, (lost, _))| !lost).collect();
            arrived.sort_by_key(|((nonce, _), (_, late))| nonce + u64::from(late % 8));
            let (mut fragments, mut joined) = (Fragments::default(), Vec::new());
            for ((nonce, piece), _) in arrived {
                let numbers = [&[piece.numbers()], piece.octets].concat();
                let parsed = Piece::parse(&numbers).unwrap();
                prop_assert_eq!(&parsed, piece);
                joined.extend(fragments.join(NOW, (1, *nonce), SLOT, &parsed));
            }
            let whole = |packet: &Vec<u8>| packets.contains(packet);
            prop_assert!(joined.iter().all(whole));
            joined.sort();
            prop_assert!(joined.windows(2).all(|pair| pair[0] != pair[1]));
        }

        #[test]
        fn hostile_pieces_are_bounded(
            pieces in proptest::collection::vec((0u32..3, 0u64..20, any::<u8>(), 0usize..1_400, 0u64..3), 0..200),
        ) {
            let (mut fragments, mut now) = (Fragments::default(), NOW);
            let octets = octets(1_400);
            for (session, nonce, numbers, length, seconds) in pieces {
                now += Duration::from_millis(seconds * 300);
                let bytes = [&[numbers], &octets[..length]].concat();
                let Some(piece) = Piece::parse(&bytes) else { continue };
                if let Some(packet) = fragments.join(now, (session, nonce), SLOT, &piece) {
                    prop_assert!(packet.len() <= MIN_MTU.into());
                }
                prop_assert!(fragments.partial.len() <= 3 * MAX_OF_SESSION);
            }
        }
    }
}
