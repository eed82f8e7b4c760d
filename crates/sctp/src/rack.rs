//! State of loss detection by time (RACK) and of tail loss probes (TLP) on a path (RFC 8985). The chunks
//! themselves are in [`outgoing`](crate::outgoing), which asks here when they count as lost.

use ringway_sansio::{Duration, Time};
use ringway_transport::ReorderingWindow;

/// Minimum time until a tail is probed.
const MIN_PROBE_TIME: Duration = Duration::from_millis(10);
/// Maximum delay of a peer's acknowledgement of a single packet (RFC 8985 section 7.2:
/// TLP.max_ack_delay; RFC 9260 section 6.2).
const ACK_DELAY: Duration = Duration::from_millis(200);

/// Maximum growth of the reordering window, in quarters of the shortest round trip (RFC 8985 section 6.2, step 4).
const MAX_GROWN: u8 = 64;

/// State of RACK and TLP on a path.
///
/// It stands beside TCP's because chunks are sent again whole and by position, on one of several paths, and without echoed
/// timestamps; tail loss probes are part of it here. What both share is [`ReorderingWindow`].
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
    /// The growth of the reordering window, and the position from which it may grow again (RACK.dsack_round).
    window: ReorderingWindow,
    round: u64,
    /// The time when the window last fell for a loss.
    fell: Time,
    /// The time when unacknowledged chunks count as lost, and the time when the tail is probed.
    reorder: Option<Time>,
    tail: Option<Time>,
}

impl Rack {
    /// Notes that a chunk arrived.
    pub(crate) fn acked(&mut self, now: Time, position: u64, sent: Time, again: bool) {
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

    /// Handles a report of duplicates. A probe that `twice` selects by its position was not needed (RFC
    /// 8985 section 7.4.2), and the reordering window grows, once a round trip (section 6.2, step 4).
    /// `first` and `next` are the positions of the first chunk in flight and of the next new one.
    pub(crate) fn came_twice(&mut self, twice: impl Fn(u64) -> bool, first: u64, next: u64) {
        self.doubt.take_if(|probe| twice(*probe));
        if first > self.round {
            self.window.widen(MAX_GROWN);
            self.round = next;
        }
    }

    /// Settles a probe that arrived. Returns `true` if it repaired a loss, which something that was sent
    /// later and has arrived shows; `later` is the highest position of these.
    pub(crate) fn probe_repaired(&mut self, later: Option<u64>) -> bool {
        self.doubt.take_if(|probe| later.is_some_and(|later| later > *probe)).is_some()
    }

    /// Begins a search for losses. Returns the send time of the most recently sent chunk that arrived.
    pub(crate) fn begin_search(&mut self) -> Time {
        self.reorder = None;
        self.sent
    }

    /// Returns the time when a chunk counts as lost, if one sent later has arrived.
    pub(crate) fn lost_at(&self, position: u64, sent: Time) -> Option<Time> {
        let later = (sent, position) < (self.sent, self.position);
        // RFC 8985 section 6.2, step 4: a quarter of the shortest round trip for reordering, and more
        // where that was too little.
        let shortest = self.shortest.unwrap_or_default();
        let window = self.window.width(shortest).min(self.round_trip.max(shortest / 4));
        later.then(|| sent + self.round_trip + window)
    }

    /// Notes when a chunk in flight counts as lost.
    pub(crate) fn search_again(&mut self, at: Time) {
        self.reorder = Some(self.reorder.map_or(at, |other| other.min(at)));
    }

    /// Notes that the window fell for a loss.
    pub(crate) fn window_fell(&mut self, now: Time) {
        self.fell = now;
    }

    /// Returns whether the window has not fallen since a time.
    pub(crate) fn fell_before(&self, sent: Time) -> bool {
        sent >= self.fell
    }

    /// Shrinks the reordering window at a recovery, if it was not too small recently.
    pub(crate) fn shrink(&mut self) {
        self.window.recovered();
    }

    /// Schedules a probe of the tail after two round trips of silence (RFC 8985 section 7.2), unless
    /// T3-rtx expires before. `srtt` is unset if nothing is in flight; `single` is whether at most one
    /// packet is.
    pub(crate) fn plan_probe(
        &mut self,
        now: Time,
        srtt: Option<Duration>,
        single: bool,
        t3: Option<Time>,
    ) {
        self.tail = None;
        if self.probe.is_some() {
            return;
        }
        let Some(srtt) = srtt else { return };
        let delay = if single { ACK_DELAY } else { Duration::ZERO };
        let at = now + (srtt * 2 + delay).max(MIN_PROBE_TIME);
        self.tail = Some(at).filter(|at| t3.is_none_or(|t3| *at < t3));
    }

    /// Returns whether a search for losses is due.
    pub(crate) fn search_due(&self, now: Time) -> bool {
        self.reorder.is_some_and(|at| at <= now)
    }

    /// Returns whether a probe of the tail is due, which is then no longer scheduled.
    pub(crate) fn take_probe(&mut self, now: Time) -> bool {
        self.tail.take_if(|at| *at <= now).is_some()
    }

    /// Notes which chunk probes the tail.
    pub(crate) fn probes(&mut self, position: u64) {
        self.probe = Some(position);
    }

    /// Returns the time of the next action.
    pub(crate) fn timer(&self) -> Option<Time> {
        match (self.reorder, self.tail) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Resets everything, because a timer has sent all chunks again or numbers were reset.
    pub(crate) fn reset(&mut self) {
        let Rack { shortest, window, .. } = *self;
        *self = Rack { shortest, window, ..Rack::default() };
    }
}
