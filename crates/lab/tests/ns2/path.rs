//! ns-2's default links: two hops in a row.

use ringway_sansio::{Duration, Time};
use std::collections::VecDeque;

/// The rate of a hop in bit/s.
const RATE: u64 = 200_000;
const DELAY: Duration = Duration::from_millis(10);
/// Maximum number of packets that wait or are on the wire of a hop.
const LIMIT: usize = 50;

/// One direction of two hops in a row. Each sends at `RATE`, delays by `DELAY`, and queues up to `LIMIT`.
#[derive(Default)]
pub(super) struct Path {
    hops: [Hop; 2],
}

#[derive(Default)]
struct Hop {
    busy_until: Time,
    waiting: VecDeque<Time>,
    dropped: u64,
}

impl Path {
    /// Returns the arrival time of a packet of a length that includes the IP header; `None` when it is
    /// dropped. The second hop is as fast as the first, so that nothing waits there and order is
    /// preserved.
    pub(super) fn carry(&mut self, now: Time, bytes: usize) -> Option<Time> {
        let on_wire = Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / RATE);
        let mut at = now;
        for hop in &mut self.hops {
            while hop.waiting.front().is_some_and(|begins| *begins <= at) {
                hop.waiting.pop_front();
            }
            // ns-2's drop-tail refuses the packet that would make the queue as long as its limit.
            if hop.waiting.len() + 1 >= LIMIT {
                hop.dropped += 1;
                return None;
            }
            let begins = hop.busy_until.max(at);
            hop.waiting.push_back(begins);
            hop.busy_until = begins + on_wire;
            at = hop.busy_until + DELAY;
        }
        Some(at)
    }

    /// Returns the number of packets that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.hops.iter().map(|hop| hop.dropped).sum()
    }
}
