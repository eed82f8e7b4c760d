//! Loss detection by time (RACK) and tail loss probes (TLP): RFC 8985 for SCTP, where each chunk has
//! its send time and gap reports show what arrived.

use super::sack::SackOutcome;
use super::{Fate, Outgoing};
use crate::numbers::Tsn;
use crate::path::Path;
use crate::timers::PathTimer;
use ringway_sansio::Time;

impl Outgoing {
    /// Handles a SACK's report of duplicates: what was sent again was not lost.
    pub(crate) fn came_twice(&self, paths: &mut [Path], twice: impl Iterator<Item = Tsn> + Clone) {
        if twice.clone().next().is_none() {
            return;
        }
        for rack in paths.iter_mut().filter_map(Path::rack_mut) {
            let is_twice = |position| {
                let probe = self.sent.tsn(position);
                twice.clone().any(|tsn| tsn == probe)
            };
            rack.came_twice(is_twice, self.sent.first(), self.sent.next());
        }
    }

    /// Settles probes after a SACK: a probe that arrived and was not reported as duplicate repaired a
    /// loss if something later has arrived (RFC 8985 section 7.4.2).
    pub(crate) fn settle_probes(&self, now: Time, paths: &mut [Path]) {
        for path in paths {
            let later = path.tally.highest().map(|highest| highest.0);
            let Some(rack) = path.rack_mut() else { continue };
            let repaired = rack.probe_repaired(later);
            if repaired && !path.in_recovery() && self.recovery.is_none() {
                path.lost(now);
            }
        }
    }

    /// Marks chunks that count as lost by time (RFC 8985 section 6.2, step 5). Returns the paths with
    /// losses, a bit each. The loss of a retransmission that was sent since the window of its path fell
    /// shows that it did not fall enough (section 9.3): it ends the recovery, and another begins.
    pub(super) fn find_late(
        &mut self,
        now: Time,
        paths: &mut [Path],
        outcome: &mut SackOutcome,
    ) -> u32 {
        let mut hit = 0;
        let mut floor = None;
        let mut newest = Time::ZERO;
        for rack in paths.iter_mut().filter_map(Path::rack_mut) {
            newest = newest.max(rack.begin_search());
        }
        let (mut position, mut block) = (self.uncounted.max(self.sent.first()), 0);
        while position < self.sent.next() {
            if let Some(last) = self.gaps.end_of_range(&mut block, position) {
                position = last + 1;
                continue;
            }
            let Some(chunk) = self.sent.at(position) else { break };
            // Retransmitted chunks may be below chunks that were sent earlier. Chunks that were sent
            // once are in the order of time.
            if chunk.at > newest && chunk.again == 0 {
                break;
            }
            if chunk.fate == Fate::Outstanding {
                let index = usize::from(chunk.path);
                let rack = paths[index].rack_mut();
                let at = rack.as_ref().and_then(|rack| rack.lost_at(position, chunk.at));
                if at.is_some_and(|at| at <= now) {
                    hit |= 1 << index;
                    if chunk.again > 0 && rack.is_some_and(|rack| rack.fell_before(chunk.at)) {
                        paths[index].end_recovery();
                        self.recovery = None;
                    }
                    self.mark_lost(position, paths);
                    outcome.marked += 1;
                } else {
                    floor.get_or_insert(position);
                    if let (Some(at), Some(rack)) = (at, rack) {
                        rack.search_again(at);
                    }
                }
            }
            position += 1;
        }
        self.uncounted = floor.unwrap_or(position).max(self.sent.first());
        hit
    }

    /// Handles the timer of a path: marks losses found by time, or sends the last chunk in flight again
    /// as a tail loss probe (RFC 8985 section 7.3).
    pub(crate) fn rack_timeout(
        &mut self,
        now: Time,
        index: usize,
        paths: &mut [Path],
        settings: &crate::Settings,
    ) -> SackOutcome {
        let mut outcome = SackOutcome::default();
        let Some(rack) = paths[index].rack_mut() else { return outcome };
        let tail = rack.take_probe(now);
        if rack.search_due(now) {
            let hit = self.find_late(now, paths, &mut outcome);
            self.begin_recovery(now, hit, paths, settings, &mut outcome);
        }
        if !tail || outcome.marked > 0 || self.has_marked() {
            return outcome;
        }
        let last = (self.sent.first()..self.sent.next()).rev().find(|position| {
            self.sent.at(*position).is_some_and(|chunk| {
                chunk.fate == Fate::Outstanding && usize::from(chunk.path) == index
            })
        });
        let Some(last) = last else { return outcome };
        self.mark_lost(last, paths);
        outcome.fast = true;
        let is_other = |(other, path): (usize, &Path)| other != index && path.active();
        if settings.probe_elsewhere && paths.iter().enumerate().any(is_other) {
            // No probe is under way on this path: what follows it there is probed too.
            if let Some(chunk) = self.sent.at_mut(last) {
                chunk.timed_out = true;
            }
            paths[index].ask_now();
            if paths[index].flight.is_empty() {
                paths[index].timers.cancel(PathTimer::T3Rtx);
            }
            return outcome;
        }
        if let Some(rack) = paths[index].rack_mut() {
            rack.probes(last);
        }
        // RFC 8985 section 7.3: T3-rtx waits for the result of the probe.
        paths[index].start_t3(now);
        outcome
    }
}
