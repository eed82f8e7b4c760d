//! What is in flight on a path, and what a SACK says of it.

use ringway_sansio::Time;

/// Subtracts from an amount in flight what was added to it before.
pub(crate) fn subtract(amount: &mut u32, part: u32) {
    debug_assert!(*amount >= part, "expected {part} or more in flight, got {amount}");
    *amount = amount.saturating_sub(part);
}

/// The chunks in flight on a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flight {
    /// Bytes of DATA chunks, with header and padding.
    bytes: u32,
    /// The lowest position that may be in flight here.
    earliest: u64,
    /// The position of the chunk whose round trip is being measured.
    timed: Option<u64>,
}

impl Flight {
    /// Returns the bytes of DATA chunks, with header and padding.
    #[inline]
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns whether nothing is in flight.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the lowest position that may be in flight here.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Notes that nothing below a position is in flight here.
    pub(crate) fn set_earliest(&mut self, position: u64) {
        self.earliest = position;
    }

    /// Adds a chunk.
    #[inline]
    pub(crate) fn add(&mut self, position: u64, size: u32) {
        if self.bytes == 0 || position < self.earliest {
            self.earliest = position;
        }
        self.bytes += size;
    }

    /// Removes a chunk.
    #[inline]
    pub(crate) fn remove(&mut self, size: u32) {
        subtract(&mut self.bytes, size);
    }

    /// Measures the round trip of a chunk, unless one is being measured.
    #[inline]
    pub(crate) fn time(&mut self, position: u64) {
        self.timed.get_or_insert(position);
    }

    /// Ends the measurement of a chunk. Returns whether it was being measured.
    #[inline]
    pub(crate) fn take_timed(&mut self, position: u64) -> bool {
        self.timed.take_if(|timed| *timed == position).is_some()
    }

    /// Ends the measurement of a chunk at a position or above it, because that one is sent again, so that what arrives
    /// next is ambiguous (RFC 9260 section 6.3.1, rule C5).
    pub(crate) fn stop_timing_from(&mut self, position: u64) {
        self.timed.take_if(|timed| *timed >= position);
    }

    /// Ends the measurement.
    pub(crate) fn stop_timing(&mut self) {
        self.timed = None;
    }
}

/// What the SACK that is being processed newly acknowledges on a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Bytes in flight before it.
    before: u32,
    /// Bytes newly acknowledged.
    acked: u32,
    /// Whether the earliest chunk was among them.
    earliest: bool,
    /// The highest chunk that it newly acknowledges, and its send time.
    highest: Option<(u64, Time)>,
}

impl Tally {
    /// Begins a SACK.
    pub(crate) fn begin(flight: &Flight) -> Tally {
        Tally { before: flight.bytes, ..Tally::default() }
    }

    /// Adds a chunk. `earliest` states whether it was the earliest one in flight.
    #[inline]
    pub(crate) fn add(&mut self, position: u64, size: u32, at: Time, earliest: bool) {
        self.acked = self.acked.saturating_add(size);
        self.earliest |= earliest;
        if self.highest.is_none_or(|highest| highest.0 <= position) {
            self.highest = Some((position, at));
        }
    }

    /// Returns the bytes in flight before the SACK.
    pub(crate) fn before(&self) -> u32 {
        self.before
    }

    /// Returns the bytes newly acknowledged.
    pub(crate) fn acked(&self) -> u32 {
        self.acked
    }

    /// Returns whether the earliest chunk was newly acknowledged.
    pub(crate) fn has_earliest(&self) -> bool {
        self.earliest
    }

    /// Returns the highest chunk newly acknowledged, and its send time.
    pub(crate) fn highest(&self) -> Option<(u64, Time)> {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_chunk_is_known() {
        let mut flight = Flight::default();
        flight.add(5, 100);
        flight.add(7, 50);
        assert_eq!((flight.bytes(), flight.earliest()), (150, 5));
        flight.add(3, 10);
        assert_eq!(flight.earliest(), 3);
        flight.remove(160);
        assert!(flight.is_empty());
        flight.add(9, 1);
        assert_eq!(flight.earliest(), 9);
    }

    /// RFC 9260 section 6.3.1, rules C4 and C5.
    #[test]
    fn one_round_trip_is_measured_and_no_retransmission() {
        let mut flight = Flight::default();
        flight.time(5);
        flight.time(6);
        assert!(!flight.take_timed(6) && flight.take_timed(5) && !flight.take_timed(5));
        flight.time(8);
        flight.stop_timing_from(9);
        assert!(flight.take_timed(8));
        flight.time(8);
        flight.stop_timing_from(8);
        assert!(!flight.take_timed(8));
    }

    #[test]
    fn a_tally_keeps_the_highest_chunk() {
        let mut flight = Flight::default();
        flight.add(1, 300);
        let mut tally = Tally::begin(&flight);
        tally.add(4, 100, Time::from_secs(4), false);
        tally.add(2, 100, Time::from_secs(2), true);
        assert_eq!((tally.before(), tally.acked(), tally.has_earliest()), (300, 200, true));
        assert_eq!(tally.highest(), Some((4, Time::from_secs(4))));
    }
}
