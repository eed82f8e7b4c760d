//! How far a worker is behind its connections: what has come and is not read yet, and an estimate of
//! how long that will take. Peers that are read from slowly can only send slowly, so nothing is lost;
//! but what waits in a thousand receive buffers may wait for seconds.

use crate::handler::Backlog;
use crate::sys::unread;
use ringway_sansio::Time;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

/// Octets read between two looks at the clock, at least.
const STRETCH: u64 = 64 * 1024;

/// Of how many stretches the time an octet takes is roughly the average.
const MEMORY: u64 = 8;

/// A connection that can tell what has come and is not read yet.
pub(super) trait Unread {
    /// Octets, still encrypted if they are.
    fn unread(&self) -> usize;
}

impl Unread for TcpStream {
    fn unread(&self) -> usize {
        unread(self.as_fd())
    }
}

impl Unread for server::TlsStream<TcpStream> {
    fn unread(&self) -> usize {
        self.get_ref().0.unread()
    }
}

impl Unread for client::TlsStream<TcpStream> {
    fn unread(&self) -> usize {
        self.get_ref().0.unread()
    }
}

/// All connections of a worker.
#[derive(Default, Debug)]
pub(crate) struct Gauge {
    /// Octets that were found unread, all connections together.
    unread: usize,
    /// Octets and messages read since there was nothing unread.
    octets: u64,
    messages: usize,
    /// The beginning of the stretch, and how many octets had been read by then.
    since: Option<(Time, u64)>,
    /// What an octet takes: nanoseconds times 1024.
    pace: u64,
}

impl Gauge {
    /// A portion was read.
    pub(crate) fn took(&mut self, octets: usize, messages: usize) {
        if self.unread > 0 {
            self.octets += octets as u64;
            self.messages += messages;
        }
    }

    /// What is unread at one connection went from `before` to `after`.
    pub(crate) fn note(&mut self, now: Time, before: usize, after: usize) {
        self.unread = self.unread.saturating_sub(before).saturating_add(after);
        if self.unread == 0 {
            (self.octets, self.messages, self.since) = (0, 0, None);
            return;
        }
        let Some((then, had)) = self.since else {
            self.since = Some((now, self.octets));
            return;
        };
        let read = self.octets - had;
        if read < STRETCH {
            return;
        }
        let nanos = u64::try_from(now.since(then).as_nanos()).unwrap_or(u64::MAX >> 10);
        let each = nanos.saturating_mul(1024) / read;
        self.pace = match self.pace {
            0 => each,
            pace => pace - pace / MEMORY + each / MEMORY,
        };
        self.since = Some((now, self.octets));
    }

    /// How far behind the worker is.
    pub(crate) fn backlog(&self) -> Backlog {
        let nanos = u128::from(self.pace) * self.unread as u128 / 1024;
        let delay = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Backlog { datagrams: self.messages, delay, ..Backlog::default() }
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
        let told = gauge.backlog();
        assert_eq!((told.datagrams, told.delay.as_millis()), (200, 10));
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
