//! Loss detection by time (RACK) and tail loss probes (TLP): RFC 8985 for SCTP, where each chunk has
//! its send time and gap reports show what arrived.

use super::sack::SackOutcome;
use super::{Fate, Outgoing};
use crate::numbers::Tsn;
use crate::path::Path;
use ringway_sansio::{Duration, Time};

/// Minimum time until a tail is probed.
const MIN_PROBE_TIME: Duration = Duration::from_millis(10);
/// Maximum delay of a peer's acknowledgement of a single packet (RFC 8985 section 7.2:
/// TLP.max_ack_delay; RFC 9260 section 6.2).
const ACK_DELAY: Duration = Duration::from_millis(200);

/// Maximum growth of the reordering window, in quarters of the shortest round trip, and the number of
/// recoveries for which the growth stays (RFC 8985 section 6.2, step 4).
const MAX_GROWN: u32 = 64;
const PERSIST: u8 = 16;

/// State of RACK and TLP on a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rack {
    /// Send time of the most recently sent chunk that arrived, its position, and its round trip
    /// (RACK.xmit_ts, RACK.end_seq and RACK.rtt).
    sent: Time,
    position: u64,
    round_trip: Duration,
    /// The shortest round trip.
    shortest: Option<Duration>,
    /// The position of the chunk that probes the tail.
    probe: Option<u64>,
    /// A probe that arrived. Whether it repaired a loss is decided by what arrives after it.
    doubt: Option<u64>,
    /// Quarters of the shortest round trip by which the reordering window has grown beyond one
    /// (RACK.reo_wnd_mult), the position from which it may grow again (RACK.dsack_round), and the
    /// number of recoveries for which it stays (RACK.reo_wnd_persist).
    grown: u32,
    round: u64,
    persist: u8,
    /// The time when the window last fell for a loss.
    fell: Time,
    /// The time when unacknowledged chunks count as lost, and the time when the tail is probed.
    reorder: Option<Time>,
    tail: Option<Time>,
}

impl Rack {
    /// Notes that a chunk arrived.
    pub(super) fn acked(&mut self, now: Time, position: u64, sent: Time, again: bool) {
        let round_trip = now.since(sent);
        let probe = self.probe.take_if(|probe| *probe == position).is_some();
        // RFC 8985 section 6.2, step 2: the acknowledgement is of the first transmission.
        if again && self.shortest.is_some_and(|shortest| round_trip < shortest) {
            return;
        }
        self.shortest = Some(self.shortest.map_or(round_trip, |old| old.min(round_trip)));
        if (sent, position) >= (self.sent, self.position) {
            (self.sent, self.position, self.round_trip) = (sent, position, round_trip);
        }
        if probe && again {
            self.doubt = Some(position);
        }
    }

    /// Returns the time when a chunk counts as lost, if one sent later has arrived.
    fn lost_at(&self, position: u64, sent: Time) -> Option<Time> {
        let later = (sent, position) < (self.sent, self.position);
        // RFC 8985 section 6.2, step 4: a quarter of the shortest round trip for reordering, and more
        // where that was too little.
        let quarter = self.shortest.unwrap_or_default() / 4;
        let window = (quarter * (self.grown + 1)).min(self.round_trip.max(quarter));
        later.then(|| sent + self.round_trip + window)
    }

    /// Returns the time of the next action.
    pub(crate) fn timer(&self) -> Option<Time> {
        match (self.reorder, self.tail) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Path {
    /// Schedules a probe of the tail after two round trips of silence (RFC 8985 section 7.2), unless
    /// T3-rtx expires before.
    pub(super) fn plan_probe(&mut self, now: Time) {
        let Some(rack) = &mut self.rack else { return };
        rack.tail = None;
        if self.flight == 0 || rack.probe.is_some() {
            return;
        }
        let Some(srtt) = self.rto.srtt() else { return };
        let alone = if self.flight <= self.window.pmdcs { ACK_DELAY } else { Duration::ZERO };
        let at = now + (srtt * 2 + alone).max(MIN_PROBE_TIME);
        rack.tail = Some(at).filter(|at| self.t3.is_none_or(|t3| *at < t3));
    }

    /// Notes that the window fell for a loss.
    pub(super) fn fall(&mut self, now: Time) {
        self.lost(now);
        if let Some(rack) = &mut self.rack {
            rack.fell = now;
        }
    }

    /// Shrinks the reordering window at a recovery, if it was not too small recently.
    pub(super) fn reordered_less(&mut self) {
        if let Some(rack) = &mut self.rack
            && rack.grown > 0
        {
            rack.persist = rack.persist.saturating_sub(1);
            if rack.persist == 0 {
                rack.grown = 0;
            }
        }
    }

    /// Resets everything, because a timer has sent all chunks again or numbers were reset.
    pub(crate) fn reset_rack(&mut self) {
        if let Some(rack) = &mut self.rack {
            let Rack { shortest, grown, persist, .. } = **rack;
            **rack = Rack { shortest, grown, persist, ..Rack::default() };
        }
    }
}

impl Outgoing {
    /// Handles a SACK's report of duplicates: what was sent again was not lost. A probe among them was
    /// not needed (RFC 8985 section 7.4.2), and the reordering window grows, once a round trip (section
    /// 6.2, step 4).
    pub(crate) fn came_twice(&self, paths: &mut [Path], twice: impl Iterator<Item = Tsn> + Clone) {
        if twice.clone().next().is_none() {
            return;
        }
        for rack in paths.iter_mut().filter_map(|path| path.rack.as_mut()) {
            let probe = rack.doubt.map(|position| self.line.tsn(position));
            if probe.is_some_and(|probe| twice.clone().any(|tsn| tsn == probe)) {
                rack.doubt = None;
            }
            if self.first > rack.round {
                rack.grown = (rack.grown + 1).min(MAX_GROWN);
                rack.round = self.next_position();
                rack.persist = PERSIST;
            }
        }
    }

    /// Settles probes after a SACK: a probe that arrived and was not reported as duplicate repaired a
    /// loss if something later has arrived (RFC 8985 section 7.4.2).
    pub(crate) fn settle_probes(&self, now: Time, paths: &mut [Path]) {
        for path in paths {
            let later = path.highest.map(|highest| highest.0);
            let Some(rack) = &mut path.rack else { continue };
            let lost = rack.doubt.take_if(|probe| later.is_some_and(|later| later > *probe));
            if lost.is_some() && path.recovery.is_none() && self.recovery.is_none() {
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
        for rack in paths.iter_mut().filter_map(|path| path.rack.as_mut()) {
            rack.reorder = None;
            newest = newest.max(rack.sent);
        }
        let (mut position, mut block) = (self.uncounted.max(self.first), 0);
        while position < self.next_position() {
            while self.acked.get(block).is_some_and(|b| b.1 < position) {
                block += 1;
            }
            if let Some(&(start, last)) = self.acked.get(block)
                && start <= position
            {
                position = last + 1;
                continue;
            }
            let Some(chunk) = self.chunk(position) else { break };
            // Retransmitted chunks may be below chunks that were sent earlier. Chunks that were sent
            // once are in the order of time.
            if chunk.at > newest && chunk.again == 0 {
                break;
            }
            if chunk.fate == Fate::Outstanding {
                let index = usize::from(chunk.path);
                let rack = paths[index].rack.as_mut();
                let at = rack.as_ref().and_then(|rack| rack.lost_at(position, chunk.at));
                if at.is_some_and(|at| at <= now) {
                    hit |= 1 << index;
                    if chunk.again > 0 && rack.is_some_and(|rack| chunk.at >= rack.fell) {
                        paths[index].recovery = None;
                        self.recovery = None;
                    }
                    self.mark_lost(position, paths);
                    outcome.marked += 1;
                } else {
                    floor.get_or_insert(position);
                    if let (Some(at), Some(rack)) = (at, rack) {
                        rack.reorder = Some(rack.reorder.map_or(at, |other| other.min(at)));
                    }
                }
            }
            position += 1;
        }
        self.uncounted = floor.unwrap_or(position).max(self.first);
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
        let Some(rack) = &mut paths[index].rack else { return outcome };
        let tail = rack.tail.take_if(|at| *at <= now).is_some();
        if rack.reorder.is_some_and(|at| at <= now) {
            let hit = self.find_late(now, paths, &mut outcome);
            self.begin_recovery(now, hit, paths, settings, &mut outcome);
        }
        if !tail || outcome.marked > 0 || self.has_marked() {
            return outcome;
        }
        let last = (self.first..self.next_position()).rev().find(|position| {
            self.chunk(*position).is_some_and(|chunk| {
                chunk.fate == Fate::Outstanding && usize::from(chunk.path) == index
            })
        });
        let Some(last) = last else { return outcome };
        self.mark_lost(last, paths);
        if let Some(rack) = &mut paths[index].rack {
            rack.probe = Some(last);
        }
        // RFC 8985 section 7.3: T3-rtx waits for the result of the probe.
        paths[index].start_t3(now);
        outcome.fast = true;
        outcome
    }
}
