//! How far behind a worker is with one socket: what the kernel still keeps for it, and an estimate of
//! how long that will take.
//!
//! A batch that is not full has emptied the socket, so there is something to ask only after full ones.
//! What the kernel tells is memory, not datagrams, and it counts what was taken until it gives it
//! back in one lot; how long the handler will take nobody can know. So the numbers are good for
//! deciding that there is too much to do, not for more.

use crate::sys::Memory;
use ringway_sansio::{Backlog, Time};
use std::time::Duration;

/// Memory the kernel needs for a datagram on top of its bytes, in octets: its own records of it, and
/// on average a half of the bytes again because room comes in powers of two. Network cards that lend
/// a page a datagram take more; then fewer are queued than reckoned.
const OVERHEAD: usize = 768;

/// Of how many batches the time a datagram takes is roughly the average.
const MEMORY: u32 = 8;

/// The share of its receive buffer that a UDP socket may keep without giving it back.
const LOT: usize = 4;

/// One socket's.
#[derive(Default, Debug)]
pub(crate) struct Gauge {
    /// Datagrams of the full batches in a row before the present one.
    behind: usize,
    /// When the last batch came and how many datagrams were in it, if it was full.
    last: Option<(Time, usize)>,
    /// What a datagram takes: nanoseconds times [`MEMORY`].
    pace: u64,
    /// What the kernel told last, in octets.
    told: usize,
    /// What was taken of that and perhaps not yet given back.
    taken: usize,
    /// Datagrams the kernel had dropped by then, a number that comes round.
    dropped: u32,
}

impl Gauge {
    /// After a batch that has emptied the socket.
    pub(crate) fn emptied(&mut self, datagrams: usize) -> Backlog {
        let backlog = Backlog { messages: self.behind + datagrams, ..Backlog::default() };
        (self.behind, self.last, self.told, self.taken) = (0, None, 0, 0);
        backlog
    }

    /// After a full batch of `datagrams` with so many `octets` in all, at `now`, when the kernel told
    /// `memory`. Gives also how many more datagrams the kernel dropped than it had told before.
    pub(crate) fn full(
        &mut self,
        now: Time,
        datagrams: usize,
        octets: usize,
        memory: Memory,
    ) -> (Backlog, u32) {
        if let Some((then, handled)) = self.last {
            let nanos = now.since(then).as_nanos() / handled.max(1) as u128;
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX / 2);
            self.pace = match self.pace {
                0 => nanos.saturating_mul(u64::from(MEMORY)),
                pace => (pace - pace / u64::from(MEMORY)).saturating_add(nanos),
            };
        }
        self.last = Some((now, datagrams));
        self.behind += datagrams;
        let each = octets / datagrams.max(1) + OVERHEAD;
        self.taken += each * datagrams;
        if memory.allocated < self.told || self.taken > memory.capacity / LOT {
            self.taken = 0;
        }
        self.told = memory.allocated;
        let queued = memory.allocated.saturating_sub(self.taken);
        let pace = self.pace / u64::from(MEMORY);
        let delay = Duration::from_nanos(pace.saturating_mul((queued / each) as u64));
        let dropped = memory.dropped.wrapping_sub(self.dropped);
        self.dropped = memory.dropped;
        let capacity = memory.capacity;
        (Backlog { messages: self.behind, queued, capacity, delay }, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: usize = 500 + OVERHEAD;

    fn memory(datagrams: usize) -> Memory {
        Memory { allocated: datagrams * EACH, capacity: 16 << 20, dropped: 0 }
    }

    fn at(micros: u64) -> Time {
        Time::from_secs(100) + Duration::from_micros(micros)
    }

    #[test]
    fn the_estimate_is_what_is_queued_times_the_pace() {
        let mut gauge = Gauge::default();
        // Nothing is known of the pace yet. The kernel still counts what was taken.
        let (first, _) = gauge.full(at(0), 32, 32 * 500, memory(132));
        assert_eq!((first.messages, first.queued, first.delay), (32, 100 * EACH, Duration::ZERO));
        // 10 us a datagram, and as many come as are taken.
        let (second, _) = gauge.full(at(320), 32, 32 * 500, memory(164));
        assert_eq!((second.messages, second.queued), (64, 100 * EACH));
        assert_eq!((second.delay, second.capacity), (Duration::from_millis(1), 16 << 20));
        // Now it has given all back.
        let (third, _) = gauge.full(at(640), 32, 32 * 500, memory(100));
        assert_eq!((third.queued, third.delay), (100 * EACH, Duration::from_millis(1)));
        // One slow batch counts for an eighth: (7 * 10 + 90) / 8 = 20 us.
        let (fourth, _) = gauge.full(at(640 + 32 * 90), 32, 32 * 500, memory(132));
        assert_eq!(fourth.delay, Duration::from_millis(2));
        let last = gauge.emptied(5);
        assert_eq!(last, Backlog { messages: 133, ..Backlog::default() });
        // The pace is remembered; the time in which nothing came is no part of it.
        let (next, _) = gauge.full(at(9_000_000), 32, 32 * 500, memory(132));
        assert_eq!((next.messages, next.delay), (32, Duration::from_millis(2)));
    }

    #[test]
    fn what_is_kept_back_is_bounded() {
        let mut gauge = Gauge::default();
        for n in 1..1_000 {
            let memory = Memory { allocated: 400_000, capacity: 400_000, dropped: 0 };
            let (backlog, _) = gauge.full(at(n), 32, 32 * 500, memory);
            assert!(backlog.queued >= 300_000, "{backlog:?}");
        }
    }

    #[test]
    fn drops_are_told_once_and_their_count_may_come_round() {
        let mut gauge = Gauge::default();
        for (dropped, more) in [(0, 0), (7, 7), (7, 0), (u32::MAX, u32::MAX - 7), (2, 3)] {
            let memory = Memory { dropped, ..memory(1) };
            assert_eq!(gauge.full(at(0), 32, 0, memory).1, more);
        }
    }

    #[test]
    fn absurd_numbers_do_no_harm() {
        let mut gauge = Gauge::default();
        let memory = Memory { allocated: usize::MAX, capacity: 0, dropped: 0 };
        gauge.full(at(0), 0, 0, memory);
        gauge.full(Time::from_nanos(u64::MAX), 1, usize::MAX / 4, memory);
        let (backlog, _) = gauge.full(Time::from_nanos(u64::MAX), 1, 0, memory);
        assert!(backlog.delay > Duration::from_secs(1));
    }
}
