//! Packets on their way, for a world that has no event queue of its own.

use crate::packet::Departure;
use ringway_sansio::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Departures in the order of their arrival; those of the same time in the order they were put in.
///
/// A simulator has an event queue and does not need this; a world with a real clock keeps what a
/// link lets depart in one of these, and sleeps until [`InFlight::next`].
#[derive(Debug, Default)]
pub struct InFlight {
    heap: BinaryHeap<Reverse<(Time, u64, Entry)>>,
    serial: u64,
}

/// Equal to any other, so that it takes no part in the order.
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
    /// Nothing on its way.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a departure in.
    pub fn push(&mut self, departure: Departure) {
        self.heap.push(Reverse((departure.arrives, self.serial, Entry(departure))));
        self.serial += 1;
    }

    /// When the next one arrives.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next one that has arrived at `now`.
    pub fn pop(&mut self, now: Time) -> Option<Departure> {
        (self.next()? <= now).then(|| self.heap.pop())?.map(|Reverse((_, _, entry))| entry.0)
    }

    /// Packets on their way.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
