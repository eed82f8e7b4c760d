//! Sent and unacknowledged segments: a record for each, by sequence and by time.
//!
//! Records are in order of sequence. Those in flight are also in a list in order of their last
//! transmission, so that RACK examines only segments that may be lost. The work is proportional to what
//! an acknowledgment newly reports.

use crate::rack::{AckTime, Rack, sent_after};
use crate::ranges::Ranges;
use crate::seq::Seq;
use ringway_sansio::{Duration, Time};
use std::collections::VecDeque;

/// Maximum number of segments in flight: above the 172,664 of 1448 bytes at 10 Gbit/s and a round trip
/// of 200 ms. At the limit nothing new is sent; `Totals::in_flight_full` counts it. A record takes 56
/// bytes, allocated as needed.
pub(crate) const MAX_IN_FLIGHT: usize = 1 << 18;

const NIL: u64 = u64::MAX;

/// The state of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Sent, and assumed to be in flight.
    Flying,
    /// Selectively acknowledged.
    Sacked,
    /// Assumed lost and not yet sent again.
    Lost,
}

/// A segment that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentSegment {
    pub(crate) seq: Seq,
    pub(crate) end: Seq,
    /// The time when it was last sent.
    pub(crate) at: Time,
    earlier: u64,
    later: u64,
    pub(crate) fate: Fate,
    pub(crate) retransmitted: bool,
}

impl SentSegment {
    pub(crate) fn len(&self) -> u32 {
        self.end - self.seq
    }
}

/// The news of an acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// Bytes acknowledged, selectively or not, for the first time.
    pub(crate) bytes: u32,
    /// The send time of the oldest segment acknowledged cumulatively, and its end.
    pub(crate) oldest: Option<(Time, Seq)>,
    /// Whether a retransmitted segment is among those acknowledged cumulatively.
    pub(crate) retransmitted: bool,
}

/// The records, numbered from the first one ever sent.
#[derive(Debug)]
pub(crate) struct Board {
    sent: VecDeque<SentSegment>,
    /// Number of the first record.
    base: u64,
    /// The ends of the list by time.
    oldest: u64,
    newest: u64,
    sacked: Ranges,
    outstanding: u32,
    sacked_bytes: u32,
    lost_bytes: u32,
    /// No record before this one is `Lost`.
    lost_from: u64,
    /// Records before this one were examined by `lose_before`.
    judged: u64,
}

impl Board {
    pub(crate) fn new() -> Self {
        Board {
            sent: VecDeque::new(),
            base: 0,
            oldest: NIL,
            newest: NIL,
            sacked: Ranges::default(),
            outstanding: 0,
            sacked_bytes: 0,
            lost_bytes: 0,
            lost_from: 0,
            judged: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(crate) fn sacked_bytes(&self) -> u32 {
        self.sacked_bytes
    }

    pub(crate) fn lost_bytes(&self) -> u32 {
        self.lost_bytes
    }

    /// Returns the number of bytes sent and not acknowledged cumulatively.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns `pipe` of RFC 6675 section 4, maintained incrementally: a segment lost and sent again
    /// counts once.
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        self.outstanding().saturating_sub(self.sacked_bytes + self.lost_bytes)
    }

    fn index(&self, id: u64) -> usize {
        (id - self.base) as usize
    }

    /// Returns the record with a number, which must exist.
    pub(crate) fn get(&self, id: u64) -> Option<&SentSegment> {
        self.sent.get(id.checked_sub(self.base)? as usize)
    }

    fn link(&mut self, id: u64) {
        let newest = self.newest;
        let index = self.index(id);
        self.sent[index].earlier = newest;
        self.sent[index].later = NIL;
        if newest == NIL {
            self.oldest = id;
        } else {
            let index = self.index(newest);
            self.sent[index].later = id;
        }
        self.newest = id;
    }

    fn unlink(&mut self, earlier: u64, later: u64) {
        if earlier == NIL {
            self.oldest = later;
        } else {
            let index = self.index(earlier);
            self.sent[index].later = later;
        }
        if later == NIL {
            self.newest = earlier;
        } else {
            let index = self.index(later);
            self.sent[index].earlier = earlier;
        }
    }

    /// Adds new data `[seq, end)`. `seq` is the end of the last record.
    pub(crate) fn push(&mut self, seq: Seq, end: Seq, now: Time) {
        let id = self.base + self.sent.len() as u64;
        self.outstanding += end - seq;
        self.sent.push_back(SentSegment {
            seq,
            end,
            at: now,
            earlier: NIL,
            later: NIL,
            fate: Fate::Flying,
            retransmitted: false,
        });
        self.link(id);
    }

    /// Handles the acknowledgment of everything before `upto`.
    pub(crate) fn acknowledge(&mut self, upto: Seq, rack: &mut Rack, ack: AckTime) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some(&record) = self.sent.front() {
            if record.end.after(upto) {
                self.trim_front(upto, &mut delivered);
                break;
            }
            match record.fate {
                Fate::Sacked => self.sacked_bytes -= record.len(),
                fate => {
                    delivered.bytes += record.len();
                    if fate == Fate::Lost {
                        self.lost_bytes -= record.len();
                    } else {
                        self.unlink(record.earlier, record.later);
                    }
                    rack.delivered(record.at, record.end, record.retransmitted, ack);
                    delivered.oldest.get_or_insert((record.at, record.end));
                }
            }
            delivered.retransmitted |= record.retransmitted;
            self.outstanding -= record.len();
            self.sent.pop_front();
            self.base += 1;
        }
        if !self.sacked.is_empty() {
            self.sacked.drop_before(upto);
        }
        delivered
    }

    fn trim_front(&mut self, upto: Seq, delivered: &mut Delivered) {
        let Some(record) = self.sent.front_mut() else { return };
        if !upto.after(record.seq) {
            return;
        }
        let cut = upto - record.seq;
        record.seq = upto;
        self.outstanding -= cut;
        match record.fate {
            Fate::Sacked => self.sacked_bytes -= cut,
            Fate::Lost => {
                self.lost_bytes -= cut;
                delivered.bytes += cut;
            }
            Fate::Flying => delivered.bytes += cut,
        }
    }

    /// Handles a selective acknowledgment of `[left, right)`, which is within the outstanding data.
    /// Returns the number of newly acknowledged bytes.
    pub(crate) fn sack(&mut self, left: Seq, right: Seq, rack: &mut Rack, ack: AckTime) -> u32 {
        let mut news = 0;
        let mut from = left;
        while let Some((low, high)) = self.sacked.gap(from, right) {
            let Some((begin, end)) = self.sacked.insert(low, high) else { break };
            let mut index = self.sent.partition_point(|record| record.end.upto(low));
            while let Some(record) = self.sent.get_mut(index)
                && record.seq.before(high)
            {
                // RFC 6675 section 4: only fully covered segments count as delivered.
                if record.seq.from(begin) && record.end.upto(end) && record.fate != Fate::Sacked {
                    let SentSegment { earlier, later, fate, at, end, retransmitted, .. } = *record;
                    record.fate = Fate::Sacked;
                    let bytes = record.len();
                    news += bytes;
                    self.sacked_bytes += bytes;
                    if fate == Fate::Lost {
                        self.lost_bytes -= bytes;
                    } else {
                        self.unlink(earlier, later);
                    }
                    rack.delivered(at, end, retransmitted, ack);
                }
                index += 1;
            }
            from = high;
        }
        news
    }

    fn lose(&mut self, id: u64) {
        let index = self.index(id);
        let SentSegment { earlier, later, fate, .. } = self.sent[index];
        if fate != Fate::Flying {
            return;
        }
        self.unlink(earlier, later);
        self.sent[index].fate = Fate::Lost;
        self.lost_bytes += self.sent[index].len();
        self.lost_from = self.lost_from.min(id);
    }

    /// Marks segments as lost that were sent long enough before a delivered one (RFC 8985 section 6.2
    /// step 5). Returns the time of the next check, if segments may be lost by then.
    pub(crate) fn lose_by_time(
        &mut self,
        rack: &Rack,
        reo_wnd: Duration,
        now: Time,
    ) -> Option<Time> {
        let mut id = self.oldest;
        while id != NIL {
            let record = self.sent[self.index(id)];
            if !sent_after(rack.xmit, rack.end, record.at, record.end) {
                return None;
            }
            let deadline = record.at + rack.rtt + reo_wnd;
            if deadline > now {
                return Some(deadline);
            }
            self.lose(id);
            id = record.later;
        }
        None
    }

    /// Marks all segments as lost that `IsLost` of RFC 6675 section 4 selects: below three separate
    /// ranges that were selectively acknowledged, or below more than two segments' worth.
    pub(crate) fn lose_by_count(&mut self, mss: u32) {
        const DUP_THRESH: u32 = 3;
        let (mut ranges, mut bytes, mut below) = (0, 0, None);
        for (left, right) in self.sacked.iter().rev() {
            ranges += 1;
            bytes += right - left;
            if ranges >= DUP_THRESH || bytes > (DUP_THRESH - 1) * mss {
                below = Some(left);
                break;
            }
        }
        let Some(below) = below else { return };
        let mut id = self.judged.max(self.base);
        while let Some(record) = self.get(id)
            && record.end.upto(below)
        {
            self.lose(id);
            id += 1;
        }
        self.judged = id;
    }

    /// Marks the first record as lost (RFC 6582 section 3.2, RFC 6298 section 5.4).
    pub(crate) fn lose_first(&mut self) {
        if !self.sent.is_empty() {
            self.lose(self.base);
        }
    }

    /// Marks everything in flight as lost (RFC 5681 section 3.1).
    pub(crate) fn lose_all(&mut self) {
        while self.oldest != NIL {
            self.lose(self.oldest);
        }
    }

    /// Performs `RACK_mark_losses_on_RTO` of RFC 8985 section 6.3: marks the first record and overdue
    /// ones.
    pub(crate) fn lose_overdue(&mut self, rack: &Rack, reo_wnd: Duration, now: Time) {
        self.lose_first();
        let mut id = self.oldest;
        while id != NIL {
            let record = self.sent[self.index(id)];
            if record.at + rack.rtt + reo_wnd > now {
                break;
            }
            self.lose(id);
            id = record.later;
        }
    }

    /// Returns the first record to be sent again.
    pub(crate) fn next_lost(&mut self) -> Option<u64> {
        if self.lost_bytes == 0 {
            return None;
        }
        self.lost_from = self.lost_from.max(self.base);
        while let Some(record) = self.get(self.lost_from) {
            if record.fate == Fate::Lost {
                return Some(self.lost_from);
            }
            self.lost_from += 1;
        }
        None
    }

    /// Returns whether the peer has reneged: the first record is selectively acknowledged, which a
    /// cumulative acknowledgment would cover.
    pub(crate) fn reneged(&self) -> bool {
        self.sent.front().is_some_and(|first| first.fate == Fate::Sacked)
    }

    /// Marks everything that was selectively acknowledged as lost (RFC 2018 section 8).
    pub(crate) fn distrust(&mut self) {
        for record in self.sent.iter_mut().filter(|record| record.fate == Fate::Sacked) {
            record.fate = Fate::Lost;
            self.lost_bytes += record.len();
        }
        self.sacked.clear();
        self.sacked_bytes = 0;
        self.lost_from = self.base;
        self.judged = self.base;
    }

    /// Returns the record with the highest sequence, unless it is selectively acknowledged.
    pub(crate) fn last(&self) -> Option<u64> {
        let last = self.sent.back()?;
        (last.fate != Fate::Sacked).then(|| self.base + self.sent.len() as u64 - 1)
    }

    /// Notes that a record was sent again.
    pub(crate) fn resent(&mut self, id: u64, now: Time) {
        let index = self.index(id);
        let SentSegment { earlier, later, fate, .. } = self.sent[index];
        match fate {
            Fate::Flying => self.unlink(earlier, later),
            Fate::Lost => self.lost_bytes -= self.sent[index].len(),
            Fate::Sacked => return,
        }
        let record = &mut self.sent[index];
        record.fate = Fate::Flying;
        record.retransmitted = true;
        record.at = now;
        self.link(id);
    }

    /// Removes all records and releases the memory.
    pub(crate) fn clear(&mut self) {
        *self = Board::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 100;

    fn board(count: u32) -> (Board, Rack) {
        let mut board = Board::new();
        for n in 0..count {
            let seq = Seq::new(u32::MAX - 250) + n * MSS;
            board.push(seq, seq + MSS, Time::from_millis(u64::from(n)));
        }
        (board, Rack::new(Seq::new(u32::MAX - 250)))
    }

    fn at(n: u32) -> Seq {
        Seq::new(u32::MAX - 250) + n * MSS
    }

    fn ack(now: u64) -> AckTime {
        AckTime { now: Time::from_millis(now), echoed: None }
    }

    /// RFC 6675 section 4 `IsLost`: three ranges, or more than two segments' worth, above.
    #[test]
    fn three_ranges_or_two_segments_make_a_loss() {
        let (mut b, mut rack) = board(10);
        b.sack(at(2), at(3), &mut rack, ack(50));
        b.sack(at(4), at(5), &mut rack, ack(50));
        b.lose_by_count(MSS);
        assert_eq!(b.lost_bytes(), 0);
        b.sack(at(6), at(7), &mut rack, ack(50));
        b.lose_by_count(MSS);
        assert_eq!((b.lost_bytes(), b.pipe()), (200, 500));
        let (mut b, mut rack) = board(10);
        b.sack(at(5), at(7), &mut rack, ack(50));
        b.lose_by_count(MSS);
        assert_eq!(b.lost_bytes(), 0);
        b.sack(at(5), at(8), &mut rack, ack(50));
        b.lose_by_count(MSS);
        assert_eq!(b.lost_bytes(), 500);
        assert_eq!(b.next_lost().and_then(|id| b.get(id)).map(|r| r.seq), Some(at(0)));
    }

    /// RFC 8985 section 6.2 step 5: lost once a later segment is delivered and the window passed.
    #[test]
    fn time_makes_a_loss() {
        let (mut b, mut rack) = board(4);
        b.sack(at(2), at(3), &mut rack, ack(22));
        let wnd = Duration::from_millis(5);
        let next = b.lose_by_time(&rack, wnd, Time::from_millis(22));
        assert_eq!(next, Some(Time::from_millis(25)));
        assert_eq!(b.lose_by_time(&rack, wnd, Time::from_millis(25)), Some(Time::from_millis(26)));
        assert_eq!(b.lost_bytes(), 100);
        // Segments sent after the delivered one are not marked.
        assert_eq!(b.lose_by_time(&rack, wnd, Time::from_millis(99)), None);
        assert_eq!(b.lost_bytes(), 200);
    }

    proptest! {
        /// The counters always agree with the records, and lists with fates.
        #[test]
        fn counters_agree(steps in proptest::collection::vec((0u8..7, 0u32..40, 1u32..8), 1..80)) {
            let (mut b, mut rack) = board(40);
            let mut una = 0;
            for (n, (what, from, length)) in steps.into_iter().enumerate() {
                let now = 100 + n as u64;
                let left = at(0) + (una.max(from * MSS + u32::from(what) * 9)).min(40 * MSS);
                let right = (left + length * MSS).min(at(40));
                match what {
                    0 | 1 => { b.sack(left, right, &mut rack, ack(now)); }
                    2 => {
                        una = una.max(from * 30);
                        b.acknowledge(at(0) + una, &mut rack, ack(now));
                    }
                    3 => b.lose_by_count(MSS),
                    4 => { b.lose_by_time(&rack, Duration::from_millis(1), Time::from_millis(now)); }
                    5 => if let Some(id) = b.next_lost() { b.resent(id, Time::from_millis(now)) },
                    _ => b.lose_first(),
                }
                let count = |fate| b.sent.iter().filter(|r| r.fate == fate).map(SentSegment::len).sum::<u32>();
                prop_assert_eq!(b.sacked_bytes(), count(Fate::Sacked));
                prop_assert_eq!(b.lost_bytes(), count(Fate::Lost));
                prop_assert_eq!(b.pipe(), count(Fate::Flying));
                let mut listed = 0;
                let (mut id, mut last) = (b.oldest, Time::ZERO);
                while id != NIL {
                    let record = b.get(id).unwrap();
                    prop_assert!(record.fate == Fate::Flying && record.at >= last);
                    last = record.at;
                    listed += record.len();
                    id = record.later;
                }
                prop_assert_eq!(listed, b.pipe());
            }
        }
    }
}
