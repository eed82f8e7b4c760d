//! Loss events and loss intervals at a receiver (RFC 5348 section 5, RFC 4342 sections 6.1 and 10.2).

use crate::congestion::NDUPACK;
use crate::seq::Seq;
use crate::wire::LossInterval;
use std::collections::VecDeque;

/// Maximum number of intervals that are kept: the open one and those that have a weight.
const MAX_KEPT: usize = 9;
/// Losses in packets whose window counters differ by more than this belong to different loss events.
const ROUND_TRIP: u64 = 4;

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) seq: Seq,
    /// The window counter without its wrap.
    pub(super) counter: u64,
    pub(super) data: bool,
    pub(super) marked: bool,
    /// NDP Count: number of packets right before this one that carried no data.
    pub(super) ndp: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    start: Seq,
    /// The last lost or marked packet of its loss event; `None` in the first interval.
    last_loss: Option<Seq>,
    /// The window counter right before the loss event.
    counter: u64,
    data: u32,
}

/// The history of losses.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// What became of all packets up to this one is decided.
    frontier: Option<(Seq, u64)>,
    /// Packets beyond a hole, in order, fewer than [`NDUPACK`].
    waiting: Vec<Held>,
    /// The newest first.
    open: Option<Interval>,
    closed: VecDeque<LossInterval>,
}

impl History {
    /// Adds a packet. Returns whether a loss event began.
    pub(super) fn add(&mut self, held: Held) -> bool {
        let Some((frontier, _)) = self.frontier else {
            self.frontier = Some((held.seq, held.counter));
            self.open = Some(Interval {
                start: held.seq,
                last_loss: None,
                counter: held.counter,
                data: u32::from(held.data),
            });
            return false;
        };
        if !held.seq.after(frontier) || self.waiting.iter().any(|other| other.seq == held.seq) {
            return false;
        }
        let at = self.waiting.iter().take_while(|other| other.seq.before(held.seq)).count();
        self.waiting.insert(at, held);
        let mut begun = false;
        while let Some(&first) = self.waiting.first()
            && let Some((frontier, counter)) = self.frontier
        {
            let hole = first.seq.distance(frontier).unsigned_abs() - 1;
            if hole > 0 {
                // RFC 5348 section 5.1: lost once NDUPACK packets beyond have arrived.
                if self.waiting.len() < NDUPACK {
                    break;
                }
                let without_data = first.ndp.unwrap_or(0).min(hole);
                let data = u32::try_from(hole - without_data).unwrap_or(u32::MAX);
                begun |= self.lose(frontier.next(), first.seq.minus(1), counter, data);
            }
            self.waiting.remove(0);
            self.take(first, &mut begun);
        }
        begun
    }

    /// Moves the frontier to a packet that arrived.
    fn take(&mut self, held: Held, begun: &mut bool) {
        if held.marked {
            // RFC 4342 section 6.1: a mark is as a loss.
            *begun |= self.lose(held.seq, held.seq, held.counter, 0);
        }
        self.frontier = Some((held.seq, held.counter));
        if let Some(open) = &mut self.open {
            open.data = open.data.saturating_add(u32::from(held.data));
        }
    }

    /// Handles lost or marked packets. Returns whether they begin a loss event.
    fn lose(&mut self, start: Seq, end: Seq, counter: u64, data: u32) -> bool {
        let Some(open) = &mut self.open else { return false };
        let same_event =
            open.last_loss.is_some() && counter.saturating_sub(open.counter) <= ROUND_TRIP;
        if same_event {
            open.last_loss = Some(end);
            open.data = open.data.saturating_add(data);
            return false;
        }
        let closed = interval(open, start.minus(1));
        self.closed.push_front(closed);
        self.closed.truncate(MAX_KEPT - 1);
        self.open = Some(Interval { start, last_loss: Some(end), counter, data });
        true
    }

    /// Returns the number of packets up to the newest whose fate is not decided.
    pub(super) fn skip(&self) -> u8 {
        self.waiting.len() as u8
    }

    /// Returns the intervals, the newest first.
    pub(super) fn intervals(&self) -> impl Iterator<Item = LossInterval> + '_ {
        let open = self
            .open
            .as_ref()
            .zip(self.frontier)
            .map(|(open, (frontier, _))| interval(open, frontier));
        open.into_iter().chain(self.closed.iter().copied())
    }
}

/// Returns an interval whose last packet is `end`.
fn interval(from: &Interval, end: Seq) -> LossInterval {
    let count =
        |last: Seq, first: Seq| u32::try_from(last.distance(first).max(0)).unwrap_or(u32::MAX);
    let total = count(end, from.start).saturating_add(1);
    let loss = from.last_loss.map_or(0, |last| count(last, from.start).saturating_add(1));
    LossInterval { lossless: total.saturating_sub(loss), loss, data: from.data }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(seq: u64, counter: u64) -> Held {
        Held { seq: Seq::new(seq), counter, data: true, marked: false, ndp: None }
    }

    fn list(history: &History) -> Vec<(u32, u32, u32)> {
        history.intervals().map(|i| (i.lossless, i.loss, i.data)).collect()
    }

    /// RFC 5348 section 5.1: reordering by less than three packets is no loss.
    #[test]
    fn reordering_is_no_loss() {
        let mut history = History::default();
        for seq in [1, 2, 4, 5, 3, 6] {
            assert!(!history.add(held(seq, 0)));
        }
        assert_eq!(list(&history), [(6, 0, 6)]);
    }

    /// RFC 4342 section 10.2: losses within four window counters are one loss event.
    #[test]
    fn losses_of_one_round_trip_are_one_event() {
        let mut history = History::default();
        let mut events = Vec::new();
        for seq in 1..60u64 {
            // One counter for each five packets.
            if ![10, 11, 21, 22, 45].contains(&seq) && history.add(held(seq, seq / 5)) {
                events.push(seq);
            }
        }
        assert_eq!(events, [14, 48]);
        // Lost packets count as data without NDP Count.
        assert_eq!(list(&history), [(14, 1, 15), (22, 13, 35), (9, 0, 9)]);
    }

    /// RFC 4342 section 6.1: marks begin loss events too.
    #[test]
    fn a_mark_begins_an_event() {
        let mut history = History::default();
        for seq in 1..10 {
            let marked = seq == 5;
            assert_eq!(history.add(Held { marked, ..held(seq, 0) }), marked);
        }
        assert_eq!(list(&history), [(4, 1, 5), (4, 0, 4)]);
    }

    /// RFC 4342 section 6.1.1: lost packets without data do not count.
    #[test]
    fn an_ndp_count_tells_lost_acknowledgements() {
        let mut history = History::default();
        history.add(held(1, 0));
        for seq in 5..9 {
            history.add(Held { ndp: (seq == 5).then_some(2), ..held(seq, 0) });
        }
        assert_eq!(list(&history), [(4, 3, 5), (1, 0, 1)]);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = History::default();
        for seq in 1..10_000u64 {
            if seq % 10 != 0 {
                history.add(held(seq, seq));
            }
        }
        assert_eq!(list(&history).len(), MAX_KEPT);
        assert_eq!(list(&history)[1], (9, 1, 10));
    }
}
