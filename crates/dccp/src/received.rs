//! What has arrived: the state behind Ack Vectors and Data Dropped (RFC 4340 sections 11.4, 11.7 and
//! appendix A), and the record of duplicates.

use crate::seq::Seq;
use crate::wire::vector::{self, Arrival, DropCode};
use std::collections::VecDeque;

/// Maximum number of packets that an Ack Vector reports. Older ones are no longer reported.
pub const MAX_REPORTED: usize = 4096;
/// Number of packets before the newest of which duplicates are recognized. Data of older ones are not
/// delivered.
pub const MAX_REORDERING: u64 = 4096;

const MISSING: u8 = 3;
const MARKED: u8 = 1;
const RECEIVED: u8 = 0;
/// Set where the data were dropped; the drop code is above the state.
const DROPPED: u8 = 0x80;

/// Whether a packet came before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Novelty {
    /// It did not.
    New,
    /// It did, or it is too old to know.
    Duplicate,
}

/// The packets that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    newest: Seq,
    /// States from the newest packet back, as far as the peer may not know them.
    states: VecDeque<u8>,
    /// A bit for each of the last packets, by sequence number.
    seen: Vec<u64>,
    /// Whether a state has a drop code.
    has_drops: bool,
    /// Number of states evicted because of [`MAX_REPORTED`].
    pub(crate) evicted: u64,
}

impl Received {
    /// Begins with the peer's first packet, which has arrived.
    pub(crate) fn new(first: Seq) -> Received {
        let mut received = Received {
            newest: first,
            states: VecDeque::from([RECEIVED]),
            seen: vec![0; (MAX_REORDERING / 64) as usize],
            has_drops: false,
            evicted: 0,
        };
        received.set_seen(first, true);
        received
    }

    fn bit(seq: Seq) -> (usize, u64) {
        let at = seq.raw() % MAX_REORDERING;
        ((at / 64) as usize, 1 << (at % 64))
    }

    fn set_seen(&mut self, seq: Seq, seen: bool) {
        let (word, bit) = Received::bit(seq);
        if seen {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
    }

    /// Records a packet.
    pub(crate) fn record(&mut self, seq: Seq, marked: bool) -> Novelty {
        let state = if marked { MARKED } else { RECEIVED };
        let ahead = seq.distance(self.newest);
        if ahead > 0 {
            let ahead = ahead as u64;
            if ahead >= MAX_REORDERING {
                self.seen.fill(0);
            } else {
                for back in 0..ahead {
                    self.set_seen(seq.minus(back), false);
                }
            }
            self.set_seen(seq, true);
            if ahead as usize >= MAX_REPORTED {
                self.evicted += self.states.len() as u64;
                self.states.clear();
                // The packets between are reported as missing, as far as there is room.
            }
            for _ in 1..ahead.min(MAX_REPORTED as u64) {
                self.states.push_front(MISSING);
            }
            self.states.push_front(state);
            let excess = self.states.len().saturating_sub(MAX_REPORTED);
            self.evicted += excess as u64;
            self.states.truncate(MAX_REPORTED);
            self.newest = seq;
            return Novelty::New;
        }
        let back = ahead.unsigned_abs();
        let (word, bit) = Received::bit(seq);
        if back >= MAX_REORDERING || self.seen[word] & bit != 0 {
            // RFC 4340 section 11.4.1: a mark on any copy is reported.
            if marked
                && let Some(old) = self.states.get_mut(back as usize)
                && *old == RECEIVED
            {
                *old = MARKED;
            }
            return Novelty::Duplicate;
        }
        self.seen[word] |= bit;
        if let Some(old) = self.states.get_mut(back as usize) {
            *old = state;
        }
        Novelty::New
    }

    /// Notes that the data of a packet were not delivered, or not as they were sent.
    pub(crate) fn dropped(&mut self, seq: Seq, code: DropCode) {
        let back = self.newest.distance(seq);
        if let Ok(back) = usize::try_from(back)
            && let Some(state) = self.states.get_mut(back)
        {
            *state = *state & 3 | DROPPED | code.to_u8() << 4;
            self.has_drops = true;
        }
    }

    /// Removes what the peer knows: it has an acknowledgement of ours whose Acknowledgement Number was
    /// `ack` (RFC 4340 appendix A.3).
    pub(crate) fn forget(&mut self, ack: Seq) {
        if let Ok(keep) = usize::try_from(self.newest.distance(ack)) {
            // The newest packet is always reported.
            self.states.truncate(keep.max(1));
            self.has_drops = self.has_drops && self.states.iter().any(|s| s & DROPPED != 0);
        }
    }

    /// Returns the number of packets that are reported.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Appends the runs of an Ack Vector from the newest packet back.
    pub(crate) fn vector(&self, out: &mut Vec<u8>) {
        let arrivals = self.states.iter().map(|state| match state & 3 {
            RECEIVED => Arrival::Received,
            MARKED => Arrival::Marked,
            _ => Arrival::Missing,
        });
        vector::emit(arrivals, out);
    }

    /// Appends the blocks of Data Dropped from the newest packet back; nothing where nothing was dropped.
    pub(crate) fn drops(&self, out: &mut Vec<u8>) {
        if self.has_drops {
            let codes = self
                .states
                .iter()
                .map(|state| (state & DROPPED != 0).then(|| DropCode::from_u8(state >> 4 & 7)));
            vector::emit_dropped(codes, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Runs;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn runs(received: &Received) -> Vec<(Arrival, u64)> {
        let mut out = Vec::new();
        received.vector(&mut out);
        Runs::new(&[&out]).collect()
    }

    /// RFC 4340 section 11.4: gaps, late packets and marks.
    #[test]
    fn a_vector_shows_gaps_late_packets_and_marks() {
        let mut received = Received::new(Seq::new(10));
        assert_eq!(received.record(Seq::new(13), false), Novelty::New);
        assert_eq!(received.record(Seq::new(12), true), Novelty::New);
        assert_eq!(received.record(Seq::new(12), false), Novelty::Duplicate);
        assert_eq!(received.record(Seq::new(13), true), Novelty::Duplicate);
        assert_eq!(
            runs(&received),
            [(Arrival::Marked, 2), (Arrival::Missing, 1), (Arrival::Received, 1)]
        );
        received.forget(Seq::new(11));
        assert_eq!(runs(&received), [(Arrival::Marked, 2)]);
        received.forget(Seq::new(13));
        assert_eq!(received.len(), 1);
        assert_eq!(
            received.record(Seq::new(11), false),
            Novelty::New,
            "delivered, no longer reported"
        );
        assert_eq!(received.len(), 1);
    }

    /// RFC 4340 section 11.7.
    #[test]
    fn dropped_data_are_reported_until_the_peer_knows() {
        let mut received = Received::new(Seq::new(1));
        for seq in 2..6 {
            received.record(Seq::new(seq), false);
        }
        received.dropped(Seq::new(4), DropCode::ReceiveBuffer);
        let mut out = Vec::new();
        received.drops(&mut out);
        assert_eq!(out, [0, 0xa0]);
        received.forget(Seq::new(4));
        out.clear();
        received.drops(&mut out);
        assert_eq!(out, []);
    }

    /// A jump of any length costs a bounded amount of memory and time.
    #[test]
    fn a_long_jump_is_bounded() {
        let mut received = Received::new(Seq::new(1));
        received.record(Seq::new(1 << 40), false);
        assert_eq!(received.len(), MAX_REPORTED);
        assert_eq!(received.record(Seq::new(5), false), Novelty::Duplicate, "too old to know");
        assert!(received.evicted > 0);
    }

    proptest! {
        #[test]
        fn nothing_is_new_twice(steps in proptest::collection::vec(-40i64..60, 1..400)) {
            let mut received = Received::new(Seq::new(1000));
            let mut model = BTreeSet::from([1000u64]);
            let mut newest = 1000u64;
            for step in steps {
                let seq = newest.saturating_add_signed(step);
                let novelty = received.record(Seq::new(seq), false);
                prop_assert_eq!(novelty == Novelty::New, model.insert(seq));
                newest = newest.max(seq);
            }
            let mut reported = newest;
            for (arrival, count) in runs(&received) {
                for _ in 0..count {
                    prop_assert_eq!(arrival == Arrival::Received, model.contains(&reported));
                    reported -= 1;
                }
            }
        }
    }
}
