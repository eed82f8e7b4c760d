//! The backlog of a worker at one socket: the octets that the kernel still holds, and an estimate of the
//! time they will take.
//!
//! A batch that is not full has emptied the socket, so the kernel is queried only after full ones. It
//! reports memory, not datagrams, and goes on counting what was read until it releases that all at once.
//! The handler's time for a datagram varies. So the numbers serve to detect overload and nothing more.

use crate::Memory;
use ringway_sansio::{Backlog, Time};
use std::time::Duration;

/// Memory that the kernel needs for a datagram besides its bytes, in octets: its metadata, and on average
/// half the bytes again because allocations are powers of two. Network cards that use a page for each
/// datagram need more; then fewer are queued than estimated.
const OVERHEAD: usize = 768;

/// The number of batches over which the time of a datagram is averaged, roughly.
const MEMORY: u32 = 8;

/// The divisor of the share of its receive buffer that a UDP socket may retain after reads.
const RETAINED: usize = 4;

/// The backlog of one socket.
#[derive(Default, Debug)]
pub struct Gauge {
    /// The number of datagrams in the consecutive full batches before the present one.
    behind: usize,
    /// The time of the last batch and the number of its datagrams, if it was full.
    last: Option<(Time, usize)>,
    /// The time of a datagram, in nanoseconds times [`MEMORY`].
    pace: u64,
    /// The memory that the kernel last reported, in octets.
    reported: usize,
    /// The memory of what was read since, which the kernel may still count.
    read: usize,
    /// Datagrams that the kernel had dropped by then. The number wraps.
    dropped: u32,
}

impl Gauge {
    /// Returns the backlog after a batch that has emptied the socket.
    pub fn emptied(&mut self, datagrams: usize) -> Backlog {
        let backlog = Backlog { messages: self.behind + datagrams, ..Backlog::default() };
        (self.behind, self.last, self.reported, self.read) = (0, None, 0, 0);
        backlog
    }

    /// Returns the backlog after a full batch of `datagrams` with `octets` in total, at `now`, when the kernel
    /// reported `memory`. Returns also the number of datagrams that the kernel has dropped since its last
    /// report.
    pub fn full(
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
        self.read += each * datagrams;
        if memory.allocated < self.reported || self.read > memory.capacity / RETAINED {
            self.read = 0;
        }
        self.reported = memory.allocated;
        let queued = memory.allocated.saturating_sub(self.read);
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
        // The pace is not known yet. The kernel still counts what was read.
        let (first, _) = gauge.full(at(0), 32, 32 * 500, memory(132));
        assert_eq!((first.messages, first.queued, first.delay), (32, 100 * EACH, Duration::ZERO));
        // 10 us a datagram, and as many arrive as are read.
        let (second, _) = gauge.full(at(320), 32, 32 * 500, memory(164));
        assert_eq!((second.messages, second.queued), (64, 100 * EACH));
        assert_eq!((second.delay, second.capacity), (Duration::from_millis(1), 16 << 20));
        // Now it has released everything that was read.
        let (third, _) = gauge.full(at(640), 32, 32 * 500, memory(100));
        assert_eq!((third.queued, third.delay), (100 * EACH, Duration::from_millis(1)));
        // One slow batch counts for an eighth: (7 * 10 + 90) / 8 = 20 us.
        let (fourth, _) = gauge.full(at(640 + 32 * 90), 32, 32 * 500, memory(132));
        assert_eq!(fourth.delay, Duration::from_millis(2));
        let last = gauge.emptied(5);
        assert_eq!(last, Backlog { messages: 133, ..Backlog::default() });
        // The pace is kept; idle time is not part of it.
        let (next, _) = gauge.full(at(9_000_000), 32, 32 * 500, memory(132));
        assert_eq!((next.messages, next.delay), (32, Duration::from_millis(2)));
    }

    #[test]
    fn retained_memory_is_bounded() {
        let mut gauge = Gauge::default();
        for n in 1..1_000 {
            let memory = Memory { allocated: 400_000, capacity: 400_000, dropped: 0 };
            let (backlog, _) = gauge.full(at(n), 32, 32 * 500, memory);
            assert!(backlog.queued >= 300_000, "{backlog:?}");
        }
    }

    #[test]
    fn drops_are_reported_once_and_their_count_may_wrap() {
        let mut gauge = Gauge::default();
        for (dropped, more) in [(0, 0), (7, 7), (7, 0), (u32::MAX, u32::MAX - 7), (2, 3)] {
            let memory = Memory { dropped, ..memory(1) };
            assert_eq!(gauge.full(at(0), 32, 0, memory).1, more);
        }
    }

    #[test]
    fn extreme_numbers_do_no_harm() {
        let mut gauge = Gauge::default();
        let memory = Memory { allocated: usize::MAX, capacity: 0, dropped: 0 };
        gauge.full(at(0), 0, 0, memory);
        gauge.full(Time::from_nanos(u64::MAX), 1, usize::MAX / 4, memory);
        let (backlog, _) = gauge.full(Time::from_nanos(u64::MAX), 1, 0, memory);
        assert!(backlog.delay > Duration::from_secs(1));
    }
}
