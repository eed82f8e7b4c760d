//! Address pairs in TIMEWAIT: they are not used again for a while (RFC 4340 section 8.3).

use super::key::Key;
use hashbrown::HashSet;
use ringway_sansio::{Duration, Time};
use ringway_transport::Keyed;
use std::collections::VecDeque;

/// The pairs that rest.
pub(super) struct TimeWait {
    keys: HashSet<Key, Keyed>,
    /// In the order of their ends.
    queue: VecDeque<(Time, Key)>,
    limit: usize,
    duration: Duration,
}

impl TimeWait {
    pub(super) fn new(hash: Keyed, limit: usize, duration: Duration) -> TimeWait {
        TimeWait { keys: HashSet::with_hasher(hash), queue: VecDeque::new(), limit, duration }
    }

    /// Adds a pair. Returns whether another was evicted for it.
    pub(super) fn add(&mut self, now: Time, key: Key) -> bool {
        if self.limit == 0 || !self.keys.insert(key) {
            return self.limit == 0;
        }
        self.queue.push_back((now + self.duration, key));
        let full = self.queue.len() > self.limit;
        if full && let Some((_, oldest)) = self.queue.pop_front() {
            self.keys.remove(&oldest);
        }
        full
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Removes the pairs whose time is over.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some((at, key)) = self.queue.front()
            && *at <= now
        {
            self.keys.remove(key);
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn pairs_rest_for_a_while_and_the_oldest_is_evicted() {
        let key = |port| {
            let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
            Key::new(at(1), at(port), 0)
        };
        let mut waiting = TimeWait::new(Keyed(1, 2), 2, Duration::from_secs(240));
        assert!(!waiting.add(Time::from_secs(1), key(1)));
        assert!(!waiting.add(Time::from_secs(2), key(2)));
        assert!(!waiting.add(Time::from_secs(2), key(2)));
        assert!(waiting.add(Time::from_secs(3), key(3)));
        assert!(!waiting.contains(&key(1)) && waiting.contains(&key(2)));
        assert_eq!(waiting.deadline(), Some(Time::from_secs(242)));
        waiting.expire(Time::from_secs(242));
        assert_eq!((waiting.len(), waiting.contains(&key(3))), (1, true));
    }
}
