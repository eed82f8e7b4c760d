//! How far a worker is behind: what was received and is not read yet, and an estimate of how long that will
//! take. A peer that is read from slowly can only send slowly, so nothing is lost; but what waits in a
//! thousand receive buffers may wait for seconds.

use ringway_sansio::{Backlog, Time};
use std::time::Duration;

/// Minimum number of bytes read between two measurements of the pace.
const STRETCH: u64 = 64 * 1024;

/// Number of stretches over which the pace is roughly averaged.
const MEMORY: u64 = 8;

/// What waits for a worker at all its sockets.
#[derive(Default, Debug)]
pub(crate) struct Waiting {
    /// At each datagram listener, by its index, when it was last read.
    datagrams: Vec<Backlog>,
    pub(crate) connections: Gauge,
}

impl Waiting {
    /// Notes what waits at the datagram listener with this index.
    pub(crate) fn note(&mut self, listener: usize, backlog: Backlog) {
        if self.datagrams.len() <= listener {
            self.datagrams.resize(listener + 1, Backlog::default());
        }
        self.datagrams[listener] = backlog;
    }

    /// Returns the sum: one worker takes care of all, so waits add up.
    pub(crate) fn all(&self) -> Backlog {
        self.datagrams.iter().fold(self.connections.backlog(), |sum, one| {
            let fuller = one.queued * sum.capacity.max(1) > sum.queued * one.capacity.max(1);
            let (queued, capacity) =
                if fuller { (one.queued, one.capacity) } else { (sum.queued, sum.capacity) };
            let messages = sum.messages + one.messages;
            Backlog { messages, queued, capacity, delay: sum.delay.saturating_add(one.delay) }
        })
    }
}

/// What waits in the receive buffers of all connections.
#[derive(Default, Debug)]
pub(crate) struct Gauge {
    /// Bytes that were found unread, all connections together.
    unread: usize,
    /// Bytes and messages read since nothing was unread.
    bytes: u64,
    messages: usize,
    /// The beginning of the stretch, and the number of bytes read by then.
    since: Option<(Time, u64)>,
    /// The time for a byte, in nanoseconds times 1024.
    pace: u64,
}

impl Gauge {
    /// Notes that a portion was read.
    pub(crate) fn took(&mut self, bytes: usize, messages: usize) {
        if self.unread > 0 {
            self.bytes += bytes as u64;
            self.messages += messages;
        }
    }

    /// Notes that the unread bytes of one connection went from `before` to `after`.
    pub(crate) fn note(&mut self, now: Time, before: usize, after: usize) {
        self.unread = self.unread.saturating_sub(before).saturating_add(after);
        if self.unread == 0 {
            (self.bytes, self.messages, self.since) = (0, 0, None);
            return;
        }
        let Some((then, had)) = self.since else {
            self.since = Some((now, self.bytes));
            return;
        };
        let read = self.bytes - had;
        if read < STRETCH {
            return;
        }
        let nanos = u64::try_from(now.since(then).as_nanos()).unwrap_or(u64::MAX >> 10);
        let each = nanos.saturating_mul(1024) / read;
        self.pace = match self.pace {
            0 => each,
            pace => pace - pace / MEMORY + each / MEMORY,
        };
        self.since = Some((now, self.bytes));
    }

    /// Returns how far behind the worker is.
    pub(crate) fn backlog(&self) -> Backlog {
        let nanos = u128::from(self.pace) * self.unread as u128 / 1024;
        let delay = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Backlog { messages: self.messages, delay, ..Backlog::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_secs(100) + Duration::from_millis(millis)
    }

    #[test]
    fn the_wait_is_what_is_unread_times_the_pace() {
        let mut gauge = Gauge::default();
        gauge.took(50_000, 100);
        assert_eq!(gauge.backlog(), Backlog::default(), "nothing was left unread");
        gauge.note(at(0), 0, 200_000);
        assert_eq!(gauge.backlog().delay, Duration::ZERO, "nothing is known of the pace");
        gauge.took(100_000, 200);
        gauge.note(at(10), 200_000, 100_000);
        let all = gauge.backlog();
        assert_eq!((all.messages, all.delay.as_millis()), (200, 10));
        // Another connection has as much again.
        gauge.note(at(10), 0, 100_000);
        assert_eq!(gauge.backlog().delay.as_millis(), 20);
        gauge.note(at(11), 100_000, 0);
        gauge.note(at(12), 100_000, 0);
        assert_eq!(gauge.backlog(), Backlog::default());
    }

    #[test]
    fn absurd_numbers_do_no_harm() {
        let mut gauge = Gauge::default();
        gauge.note(at(0), 5, usize::MAX);
        gauge.took(1 << 20, 1);
        gauge.note(Time::from_nanos(u64::MAX), 0, usize::MAX);
        assert!(gauge.backlog().delay > Duration::from_secs(1));
        gauge.note(at(0), usize::MAX, 0);
        assert_eq!(gauge.backlog(), Backlog::default());
    }
}
