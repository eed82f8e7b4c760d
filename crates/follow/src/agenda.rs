//! What is due when, and how much may be done at a time.

use std::collections::{BTreeMap, BTreeSet};

use ringway_sansio::{Duration, Time};

use super::limits::Rate;

/// Keys, each with the time at which it is due.
#[derive(Debug)]
pub(super) struct Agenda<K> {
    by_time: BTreeSet<(Time, K)>,
    times: BTreeMap<K, Time>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Agenda { by_time: BTreeSet::new(), times: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Agenda<K> {
    /// Sets or moves the time of a key; `None` removes it.
    pub(super) fn set(&mut self, key: &K, at: Option<Time>) {
        if let Some(before) = self.times.remove(key) {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.times.insert(key.clone(), at);
            self.by_time.insert((at, key.clone()));
        }
    }

    /// Has a key be due at a time, unless it is due before.
    pub(super) fn sooner(&mut self, key: &K, at: Time) {
        if self.times.get(key).is_none_or(|before| at < *before) {
            self.set(key, Some(at));
        }
    }

    /// Returns whether a key is due at some time.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.times.contains_key(key)
    }

    /// Returns the earliest time.
    pub(super) fn first(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes the first key that is due, and returns it.
    pub(super) fn pop(&mut self, now: Time) -> Option<K> {
        let (at, _) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.times.remove(&key);
        Some(key)
    }
}

/// A rate with a burst.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    interval: Duration,
    burst: u32,
    /// When the whole burst is free again.
    full: Time,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        Pace { interval: rate.interval, burst: rate.burst, full: Time::ZERO }
    }

    /// Returns how many may be taken now.
    pub(super) fn available(&self, now: Time) -> u32 {
        let used = self.full.since(now).as_nanos().div_ceil(self.interval.as_nanos());
        self.burst.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// Takes one.
    pub(super) fn take(&mut self, now: Time) {
        self.full = self.full.max(now) + self.interval;
    }

    /// Returns when one may be taken, which may be before now.
    pub(super) fn next(&self) -> Time {
        let used = self.interval * self.burst.saturating_sub(1);
        Time::ZERO + self.full.since(Time::ZERO + used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_the_order_of_their_times() {
        let mut agenda = Agenda::default();
        agenda.set(&"a", Some(Time::from_secs(3)));
        agenda.set(&"b", Some(Time::from_secs(2)));
        agenda.sooner(&"a", Time::from_secs(1));
        agenda.sooner(&"b", Time::from_secs(5));
        assert_eq!(agenda.first(), Some(Time::from_secs(1)));
        assert_eq!(agenda.pop(Time::from_secs(1)), Some("a"));
        assert_eq!(agenda.pop(Time::from_secs(1)), None);
        agenda.set(&"b", None);
        assert!(agenda.first().is_none() && !agenda.contains(&"a"));
    }

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        let mut pace = Pace::new(Rate { interval: Duration::from_millis(100), burst: 3 });
        let now = Time::from_secs(10);
        let take = |pace: &mut Pace, now| {
            let free = pace.available(now);
            (0..free).for_each(|_| pace.take(now));
            free
        };
        assert_eq!(take(&mut pace, now), 3);
        assert_eq!(pace.next(), now + Duration::from_millis(100));
        assert_eq!(take(&mut pace, now + Duration::from_millis(99)), 0);
        assert_eq!(take(&mut pace, now + Duration::from_millis(100)), 1);
        assert_eq!(take(&mut pace, now + Duration::from_secs(5)), 3);
    }
}
