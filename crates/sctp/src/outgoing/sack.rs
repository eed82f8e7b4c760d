//! Processing of SACKs (RFC 9260 sections 6.2.1, 6.7 and 7.2.4).

use super::{Fate, Outgoing, SentChunk};
use crate::numbers::Tsn;
use crate::path::{ArrivedChunk, Path};
use crate::settings::{Multipath, Settings};
use crate::timers::PathTimer;
use crate::wire::Gap;
use ringway_sansio::Time;

/// The result of a SACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SackOutcome {
    /// Whether something was newly acknowledged.
    pub(crate) acked: bool,
    /// Whether the Cumulative TSN Ack Point advanced.
    pub(crate) advanced: bool,
    /// Whether a fast retransmit begins, whose first packet is sent regardless of the window.
    pub(crate) fast: bool,
    /// Chunks marked by fast retransmit.
    pub(crate) marked: u32,
    /// Chunks that were acknowledged earlier and that the peer has dropped.
    pub(crate) reneged: u32,
}

/// The acknowledgement in a SACK, or in a SHUTDOWN.
pub(crate) struct Acknowledgement<I> {
    pub(crate) cumulative: Tsn,
    /// The peer's window; a SHUTDOWN has none.
    pub(crate) a_rwnd: Option<u32>,
    pub(crate) gaps: I,
    /// Number of packets with data that it covers, where the peer reports it.
    pub(crate) packets: u8,
    /// Whether the gap blocks acknowledge for good.
    pub(crate) for_good: bool,
}

impl Acknowledgement<core::iter::Empty<Gap>> {
    /// Returns the acknowledgement of everything up to a TSN.
    pub(crate) fn up_to(cumulative: Tsn) -> Self {
        let gaps = core::iter::empty();
        Acknowledgement { cumulative, a_rwnd: None, gaps, packets: 0, for_good: false }
    }
}

/// What a SACK newly acknowledges.
#[derive(Clone, Copy, Debug, Default)]
struct NewlyAcked {
    /// The position above which chunks are acknowledged for good, out of order.
    for_good_above: Option<u64>,
    /// The highest position, and its send time.
    highest: Option<(u64, Time)>,
    lowest: u64,
    /// The paths it was sent over, a bit each.
    paths: u32,
}

/// Returns the number of bytes to be acknowledged until a window grows, so that all windows together
/// grow as one (RFC 6356 section 3: the sum of windows divided by alpha).
fn pooled_step(paths: &[Path]) -> u32 {
    let (mut sum, mut best) = (0.0f64, 0.0f64);
    for path in paths.iter().filter(|path| path.active()) {
        let srtt = path.rto.srtt().unwrap_or(path.rto.get()).as_secs_f64().max(1e-6);
        let cwnd = f64::from(path.window().cwnd);
        sum += cwnd / srtt;
        best = best.max(cwnd / (srtt * srtt));
    }
    if best > 0.0 { (sum * sum / best).min(f64::from(u32::MAX / 2)) as u32 } else { 0 }
}

/// The reason why a SACK is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SackError {
    /// It is older than one that arrived before.
    Old,
    /// It acknowledges a TSN that was never sent.
    NeverSent,
}

impl Outgoing {
    /// Processes a SACK, or the acknowledgement of a SHUTDOWN, which has no window.
    pub(crate) fn sack(
        &mut self,
        now: Time,
        acknowledgement: Acknowledgement<impl Iterator<Item = Gap>>,
        paths: &mut [Path],
        settings: &Settings,
    ) -> Result<SackOutcome, SackError> {
        let Acknowledgement { cumulative, a_rwnd, gaps, packets, for_good } = acknowledgement;
        let cumulative = self.sent.position(cumulative);
        let end = self.sent.next();
        if cumulative + 1 < self.sent.first() {
            return Err(SackError::Old);
        }
        if cumulative >= end {
            // It is too far ahead to be in flight: it is from before a reset (RFC 6525 section 5.2.4).
            let reset = cumulative > end + u64::from(u16::MAX);
            return Err(if reset { SackError::Old } else { SackError::NeverSent });
        }
        for (index, path) in paths.iter_mut().enumerate() {
            path.begin_sack();
            self.find_earliest(index, path);
        }
        let mut outcome =
            SackOutcome { advanced: cumulative >= self.sent.first(), ..Default::default() };
        let for_good_above = for_good.then_some(cumulative);
        let mut news = NewlyAcked { for_good_above, ..NewlyAcked::default() };
        while self.sent.first() <= cumulative {
            let position = self.sent.first();
            self.acknowledge(now, position, paths, &mut news);
            let Some(chunk) = self.sent.pop() else { break };
            self.release(&chunk);
        }
        self.uncounted = self.uncounted.max(self.sent.first());
        if a_rwnd.is_some() {
            self.gaps.read(cumulative, end, gaps);
            self.compare(now, paths, &mut news, &mut outcome);
        }
        outcome.acked = news.highest.is_some() || outcome.advanced;
        if self.recovery.is_some_and(|exit| cumulative >= exit) {
            self.recovery = None;
        }
        let recovering = self.recovery.is_some();
        let several = settings.multipath != Multipath::Off;
        let pooled = settings.multipath == Multipath::Pooled;
        let step = if pooled { pooled_step(paths) } else { 0 };
        for (index, path) in paths.iter_mut().enumerate() {
            if several {
                path.leave_recovery();
            }
            // With several paths, a window grows when the earliest chunk of its path arrives, wherever
            // the Cumulative TSN Ack is (CUC).
            let recovering =
                if several { path.in_recovery() || !path.tally.has_earliest() } else { recovering };
            path.settle_acked(now, recovering, step);
            if path.flight.is_empty() {
                // Rule R2.
                if path.tally.acked() > 0 {
                    path.timers.cancel(PathTimer::T3Rtx);
                }
            } else if path.tally.has_earliest() {
                // Rule R3.
                path.start_t3(now);
            }
            if path.tally.acked() > 0 {
                self.find_earliest(index, path);
            }
        }
        self.count_misses(now, &news, packets, paths, settings, &mut outcome);
        if let Some(a_rwnd) = a_rwnd {
            self.peer_window.report(a_rwnd);
        }
        Ok(outcome)
    }

    /// Advances a path's earliest position to a chunk in flight there.
    fn find_earliest(&self, index: usize, path: &mut Path) {
        let end = self.sent.next();
        let mut position = path.flight.earliest().max(self.sent.first());
        while !path.flight.is_empty() && position < end {
            let there = self.sent.at(position).is_some_and(|chunk| {
                chunk.fate == Fate::Outstanding && usize::from(chunk.path) == index
            });
            if there {
                break;
            }
            position += 1;
        }
        path.flight.set_earliest(position);
    }

    /// Handles a chunk that is acknowledged, for the first time or after reneging.
    fn acknowledge(&mut self, now: Time, position: u64, paths: &mut [Path], news: &mut NewlyAcked) {
        let Some(chunk) = self.sent.at_mut(position) else { return };
        let fate = core::mem::replace(&mut chunk.fate, Fate::Acked);
        let chunk = *chunk;
        if news.for_good_above.is_some_and(|cumulative| position > cumulative)
            && matches!(fate, Fate::Outstanding | Fate::Marked)
        {
            self.arrived_for_good(position);
        }
        let path = &mut paths[usize::from(chunk.path)];
        match fate {
            Fate::Acked => return,
            Fate::Abandoned => {
                // The chunk stays abandoned.
                if let Some(chunk) = self.sent.at_mut(position) {
                    chunk.fate = Fate::Abandoned;
                }
                return;
            }
            Fate::Outstanding => {
                self.peer_window.acknowledge(u32::from(chunk.len));
            }
            Fate::Marked => {
                self.again.remove(position);
            }
        }
        let (again, several, in_flight) =
            (chunk.again > 0, chunk.several, fate == Fate::Outstanding);
        let (size, sent) = (chunk.size(), chunk.at);
        path.chunk_arrived(now, ArrivedChunk { position, size, sent, again, several, in_flight });
        let at = if again { Time::ZERO } else { sent };
        let higher = |highest: Option<(u64, Time)>| {
            highest.map_or((position, at), |h| if h.0 > position { h } else { (position, at) })
        };
        news.lowest = if news.highest.is_some() { news.lowest.min(position) } else { position };
        news.highest = Some(higher(news.highest));
        news.paths |= 1 << chunk.path;
    }

    /// Compares the new gap blocks with those of the last SACK.
    fn compare(
        &mut self,
        now: Time,
        paths: &mut [Path],
        news: &mut NewlyAcked,
        outcome: &mut SackOutcome,
    ) {
        let (new, old) = self.gaps.take();
        difference(&new, &old, |start, last| {
            for position in start..=last {
                self.acknowledge(now, position, paths, news);
            }
        });
        let first = self.sent.first();
        difference(&old, &new, |start, last| {
            for position in start.max(first)..=last {
                outcome.reneged += u32::from(self.renege(now, position, paths));
            }
        });
        self.gaps.replace(new, old);
    }

    /// Handles a chunk that the peer has dropped (RFC 9260 section 6.2.1 D iii and section 6.3.2, rule
    /// R4).
    fn renege(&mut self, now: Time, position: u64, paths: &mut [Path]) -> bool {
        // What is acknowledged for good stays acknowledged, whatever a later SACK reports.
        let taken = |chunk: &&mut SentChunk| chunk.fate == Fate::Acked && !chunk.for_good;
        let Some(chunk) = self.sent.at_mut(position).filter(taken) else { return false };
        chunk.fate = Fate::Outstanding;
        chunk.misses = 1;
        let chunk = *chunk;
        let path = &mut paths[usize::from(chunk.path)];
        path.flight.add(position, chunk.size());
        self.peer_window.renege(u32::from(chunk.len));
        if !path.timers.is_running(PathTimer::T3Rtx) {
            path.start_t3(now);
        }
        path.flight.stop_timing_from(position);
        self.uncounted = self.uncounted.min(position);
        true
    }

    /// Counts miss indications (RFC 9260 section 7.2.4): the HTNA rule, the third miss, and the fast
    /// recovery.
    fn count_misses(
        &mut self,
        now: Time,
        news: &NewlyAcked,
        packets: u8,
        paths: &mut [Path],
        settings: &Settings,
        outcome: &mut SackOutcome,
    ) {
        let Some((highest, sent_at)) = news.highest else { return };
        if settings.rack {
            let hit = self.find_late(now, paths, outcome);
            paths.iter_mut().for_each(|path| path.plan_probe(now));
            return self.begin_recovery(now, hit, paths, settings, outcome);
        }
        let several = settings.multipath != Multipath::Off;
        let recovering = self.recovery.is_some();
        let top = self.gaps.highest().unwrap_or(0);
        let below = if recovering && outcome.advanced && !several { top } else { highest };
        // The delayed SACK covers several packets, all of one path (DAC).
        let alone = news.paths.is_power_of_two() && packets > 1;
        let mut hit = 0u32;
        let mut floor = None;
        let (mut position, mut block) = (self.uncounted, 0);
        while position < below {
            // Acknowledged ranges are skipped in one step.
            if let Some(last) = self.gaps.end_of_range(&mut block, position) {
                position = last + 1;
                continue;
            }
            let misses = settings.misses;
            let Some(chunk) = self.sent.at_mut(position) else { break };
            if chunk.fate == Fate::Outstanding && !chunk.fast {
                // A retransmitted chunk is missed only by chunks that were sent after it. With several
                // paths, any chunk is missed only by chunks of its path (SFR).
                let after = if several {
                    let path_highest = paths[usize::from(chunk.path)].tally.highest();
                    path_highest.is_some_and(|path_highest| {
                        path_highest.0 > position && (chunk.again == 0 || path_highest.1 > chunk.at)
                    })
                } else {
                    chunk.again == 0 || sent_at > chunk.at
                };
                if after {
                    let count =
                        if several && alone && position < news.lowest { packets } else { 1 };
                    chunk.misses = chunk.misses.saturating_add(count);
                }
                if chunk.misses >= misses {
                    hit |= 1 << chunk.path;
                    self.mark_lost(position, paths);
                    outcome.marked += 1;
                } else {
                    floor.get_or_insert(position);
                }
            }
            position += 1;
        }
        self.uncounted = floor.unwrap_or(position).max(self.sent.first());
        self.begin_recovery(now, hit, paths, settings, outcome);
    }

    /// Marks a chunk in flight as lost, to be sent again.
    pub(super) fn mark_lost(&mut self, position: u64, paths: &mut [Path]) {
        let Some(chunk) = self.sent.at_mut(position) else { return };
        chunk.fate = Fate::Marked;
        chunk.fast = true;
        chunk.timed_out = false;
        let chunk = *chunk;
        let path = &mut paths[usize::from(chunk.path)];
        path.flight.remove(chunk.size());
        self.peer_window.unsend(u32::from(chunk.len));
        self.again.insert(position);
    }

    /// Handles losses on paths, a bit each: their windows fall and a fast recovery begins, unless one
    /// is in progress (RFC 9260 section 7.2.4).
    pub(super) fn begin_recovery(
        &mut self,
        now: Time,
        hit: u32,
        paths: &mut [Path],
        settings: &Settings,
        outcome: &mut SackOutcome,
    ) {
        let several = settings.multipath != Multipath::Off;
        if hit == 0 || (self.recovery.is_some() && !several) {
            return;
        }
        let exit = self.sent.next() - 1;
        for (index, path) in paths.iter_mut().enumerate() {
            if hit & (1 << index) != 0 && !(several && path.in_recovery()) {
                path.begin_recovery(now, several.then_some(exit));
                outcome.fast = true;
            }
        }
        self.recovery = (!several).then_some(exit);
    }
}

/// Calls `each` for every range of `all` that is not in `without`; both ascend.
fn difference(all: &[(u64, u64)], without: &[(u64, u64)], mut each: impl FnMut(u64, u64)) {
    let mut others = without.iter().copied().peekable();
    for &(start, last) in all {
        let mut from = start;
        while let Some(&(other, end)) = others.peek() {
            if end < from {
                others.next();
                continue;
            }
            if other > last {
                break;
            }
            if other > from {
                each(from, other - 1);
            }
            from = from.max(end + 1);
            if end >= last {
                break;
            }
            others.next();
        }
        if from <= last {
            each(from, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges(members: &BTreeSet<u64>) -> Vec<(u64, u64)> {
        let mut list: Vec<(u64, u64)> = Vec::new();
        for &member in members {
            match list.last_mut() {
                Some(last) if last.1 + 1 == member => last.1 = member,
                _ => list.push((member, member)),
            }
        }
        list
    }

    proptest! {
        #[test]
        fn a_difference_is_that_of_sets(
            all in proptest::collection::btree_set(0u64..60, 0..40),
            without in proptest::collection::btree_set(0u64..60, 0..40),
        ) {
            let mut found = BTreeSet::new();
            difference(&ranges(&all), &ranges(&without), |start, last| found.extend(start..=last));
            prop_assert_eq!(found, all.difference(&without).copied().collect());
        }
    }
}
