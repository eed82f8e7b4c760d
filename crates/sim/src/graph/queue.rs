//! The queues of links with a rate.

use ringway_link::Rate;
use ringway_sansio::{Duration, Time};

/// The queue of one direction of a link. Packets leave in the order in which they came.
#[derive(Clone, Copy, Debug)]
struct Queue {
    rate: Rate,
    max_wait: Duration,
    /// The time when the last bit of the last packet is sent.
    free_at: Time,
}

/// Queues by the position of the link; none if no link has a rate.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(Vec<Queue>);

impl Queues {
    /// Creates empty queues from the rate and the maximum waiting time of each link.
    pub(super) fn new(links: impl Iterator<Item = (Rate, Duration)> + Clone) -> Self {
        let limited = links.clone().any(|(rate, _)| !rate.is_unlimited());
        let links = links.filter(|_| limited);
        let queue = |(rate, max_wait)| Queue { rate, max_wait, free_at: Time::ZERO };
        Queues(links.map(queue).collect())
    }

    /// Returns whether no link has a rate.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Splits them into those of links whose positions begin where `starts` says.
    pub(super) fn split(&mut self, starts: &[u32]) -> Vec<QueuesOf<'_>> {
        let mut rest = &mut self.0[..];
        let mut parts = Vec::with_capacity(starts.len());
        for &first in starts.iter().rev() {
            let begin = rest.len().min(first as usize);
            let (before, queues) = rest.split_at_mut(begin);
            parts.push(QueuesOf { first, queues });
            rest = before;
        }
        parts.reverse();
        parts
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Queue>()
    }
}

/// The queues of links whose positions follow each other.
#[derive(Debug)]
pub(super) struct QueuesOf<'a> {
    /// The position of the first link.
    first: u32,
    queues: &'a mut [Queue],
}

impl QueuesOf<'_> {
    /// Returns whether no link has a rate.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Adds a packet to the queue of a link. Returns the time when its last bit is sent; `None` if it would
    /// wait too long.
    pub(super) fn add(&mut self, link: u32, now: Time, bytes: usize) -> Option<Time> {
        let queue = &mut self.queues[(link - self.first) as usize];
        let start = queue.free_at.max(now);
        let sent = start + Duration::from_nanos(queue.rate.nanos(bytes as u64));
        let fits = start.since(now) <= queue.max_wait;
        fits.then(|| {
            queue.free_at = sent;
            sent
        })
    }
}
