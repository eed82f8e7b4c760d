//! Packets in flight, for a world without an event queue.

use crate::packet::Departure;
use ringway_sansio::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Departures in the order of their arrival; those of the same time in the order of insertion.
///
/// A simulator has an event queue and does not need it. A world with a real clock stores a link's
/// departures here, and sleeps until [`InFlight::next`].
#[derive(Debug, Default)]
pub struct InFlight {
    heap: BinaryHeap<Reverse<(Time, u64, Entry)>>,
    serial: u64,
}

/// An entry that is equal to any other, so that it does not affect the order.
#[derive(Debug)]
struct Entry(Departure);

impl PartialEq for Entry {
    fn eq(&self, _: &Entry) -> bool {
        true
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, _: &Entry) -> core::cmp::Ordering {
        core::cmp::Ordering::Equal
    }
}

impl InFlight {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a departure.
    pub fn push(&mut self, departure: Departure) {
        self.heap.push(Reverse((departure.arrives, self.serial, Entry(departure))));
        self.serial += 1;
    }

    /// Returns the time of the next arrival.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Removes the next packet that has arrived at `now`.
    pub fn pop(&mut self, now: Time) -> Option<Departure> {
        (self.next()? <= now).then(|| self.heap.pop())?.map(|Reverse((_, _, entry))| entry.0)
    }

    /// Returns the number of packets in flight.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether no packet is in flight.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
