//! The pairs of ports of a relay.
//!
//! A port is written into a description before anything is asked of the world, so it must be bound by then. The world
//! binds pairs ahead of use, as many as [`Pool::wanted`] asks for, and reports each. They are chosen at random: who does
//! not see a call cannot tell its ports.

use crate::config::{REST, SPARE_PAIRS};
use ringway_sansio::{Random, Time};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// The state of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Unbound,
    /// The world is to bind it.
    Wanted,
    Ready,
    Used,
    /// Not used again yet. `bool`: whether it is bound.
    Resting(bool),
}

/// The pairs of one family.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The first even port.
    first: u16,
    states: Vec<State>,
    unbound: usize,
    wanted: usize,
    ready: VecDeque<u16>,
    resting: VecDeque<(Time, u16)>,
}

impl Pool {
    pub(crate) fn new(ports: &RangeInclusive<u16>) -> Pool {
        let first = ports.start().div_ceil(2);
        // The last pair must be in the range as a whole.
        let end = u32::from(*ports.end()).div_ceil(2);
        let pairs = end.saturating_sub(u32::from(first)) as usize;
        Pool {
            first: first.saturating_mul(2),
            states: vec![State::Unbound; pairs],
            unbound: pairs,
            wanted: 0,
            ready: VecDeque::new(),
            resting: VecDeque::new(),
        }
    }

    fn index(&self, port: u16) -> Option<usize> {
        let index = usize::from(port.checked_sub(self.first)?) / 2;
        (index < self.states.len()).then_some(index)
    }

    /// Returns the even port of a pair that the world is to bind now.
    pub(crate) fn wanted(&mut self, random: &mut dyn Random) -> Option<u16> {
        if self.unbound == 0 || self.ready.len() + self.wanted >= SPARE_PAIRS {
            return None;
        }
        let pairs = self.states.len();
        let start = (random.next_u64() % pairs as u64) as usize;
        let mut around = (0..pairs).map(|n| (start + n) % pairs);
        let index = around.find(|&index| self.states[index] == State::Unbound)?;
        self.states[index] = State::Wanted;
        self.unbound -= 1;
        self.wanted += 1;
        Some(self.first + 2 * index as u16)
    }

    /// Records that a pair has been bound, or could not be.
    pub(crate) fn bound(&mut self, now: Time, port: u16, ok: bool) {
        let Some(index) = self.index(port).filter(|&index| self.states[index] == State::Wanted)
        else {
            return;
        };
        self.wanted -= 1;
        if ok {
            self.states[index] = State::Ready;
            self.ready.push_back(port & !1);
        } else {
            // Another program has it. It is tried again later.
            self.rest(now, index, false);
        }
    }

    /// Takes a pair that is bound. Returns its even port.
    pub(crate) fn take(&mut self) -> Option<u16> {
        let port = self.ready.pop_front()?;
        let index = self.index(port)?;
        self.states[index] = State::Used;
        Some(port)
    }

    /// Returns the number of pairs that can be taken.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Releases a pair that was taken.
    pub(crate) fn release(&mut self, now: Time, port: u16) {
        if let Some(index) = self.index(port).filter(|&index| self.states[index] == State::Used) {
            self.rest(now, index, true);
        }
    }

    fn rest(&mut self, now: Time, index: usize, bound: bool) {
        self.states[index] = State::Resting(bound);
        self.resting.push_back((now + REST, self.first + 2 * index as u16));
    }

    /// Ends the rest of pairs that have rested. Calls `unbind` with each that is to be closed because enough are bound.
    pub(crate) fn handle_timeout(&mut self, now: Time, mut unbind: impl FnMut(u16)) {
        while let Some(&(until, port)) = self.resting.front() {
            if until > now {
                break;
            }
            self.resting.pop_front();
            let Some(index) = self.index(port) else { continue };
            if self.states[index] == State::Resting(true) {
                if self.ready.len() < SPARE_PAIRS {
                    self.states[index] = State::Ready;
                    self.ready.push_back(port);
                    continue;
                }
                unbind(port);
            }
            self.states[index] = State::Unbound;
            self.unbound += 1;
        }
    }

    /// Returns the time of the next end of a rest.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.resting.front().map(|&(until, _)| until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;
    use std::collections::BTreeSet;

    const NOW: Time = Time::from_secs(1_000);

    fn fill(pool: &mut Pool, random: &mut SplitMix) -> Vec<u16> {
        std::iter::from_fn(|| {
            let port = pool.wanted(random)?;
            pool.bound(NOW, port, true);
            Some(port)
        })
        .collect()
    }

    #[test]
    fn pairs_are_whole_and_in_the_range() {
        let count = |ports| Pool::new(&ports).states.len();
        assert_eq!(count(20_000..=29_999), 5_000);
        assert_eq!(count(20_001..=20_004), 1);
        assert_eq!(count(20_001..=20_002), 0);
        assert_eq!(count(65_534..=65_535), 1);
        assert_eq!(count(65_535..=65_535), 0);
        assert_eq!(count(0..=65_535), 32_768);
        let ports = fill(&mut Pool::new(&(20_001..=20_010)), &mut SplitMix::new(1));
        assert_eq!(
            ports.into_iter().collect::<BTreeSet<_>>(),
            [20_002, 20_004, 20_006, 20_008].into()
        );
    }

    #[test]
    fn a_pair_rests_before_it_is_used_again() {
        let mut pool = Pool::new(&(20_000..=20_001));
        fill(&mut pool, &mut SplitMix::new(1));
        assert_eq!(pool.take(), Some(20_000));
        pool.release(NOW, 20_000);
        pool.release(NOW, 20_000);
        pool.handle_timeout(NOW + REST / 2, |_| panic!("not yet"));
        assert_eq!(pool.take(), None);
        assert_eq!(pool.next_timeout(), Some(NOW + REST));
        pool.handle_timeout(NOW + REST, |_| panic!("it is needed"));
        assert_eq!((pool.take(), pool.take()), (Some(20_000), None));
    }

    #[test]
    fn a_pair_that_cannot_be_bound_is_tried_later() {
        let (mut pool, random) = (Pool::new(&(20_000..=20_001)), &mut SplitMix::new(1));
        assert_eq!(pool.wanted(random), Some(20_000));
        assert_eq!(pool.wanted(random), None);
        pool.bound(NOW, 20_000, false);
        assert_eq!((pool.take(), pool.wanted(random)), (None, None));
        pool.handle_timeout(NOW + REST, |_| panic!("it is not bound"));
        assert_eq!(pool.wanted(random), Some(20_000));
    }

    proptest! {
        /// No pair is used twice, and the counts agree with the states.
        #[test]
        fn pairs_are_never_shared(seed: u64, steps in prop::collection::vec(0u8..6, 1..200)) {
            let mut pool = Pool::new(&(20_000..=20_099));
            let (mut random, mut now) = (SplitMix::new(seed), NOW);
            let (mut used, mut open, mut unbound) = (BTreeSet::new(), BTreeSet::new(), 0usize);
            for step in steps {
                match step {
                    0 | 1 => if let Some(port) = pool.wanted(&mut random) {
                        let ok = random.next_u64() % 4 != 0;
                        prop_assert!(!used.contains(&port) && !open.contains(&port));
                        if ok { open.insert(port); }
                        pool.bound(now, port, ok);
                    },
                    2 | 3 => if let Some(port) = pool.take() {
                        prop_assert!(open.contains(&port) && used.insert(port));
                    },
                    4 => if let Some(&port) = used.iter().next() {
                        used.remove(&port);
                        pool.release(now, port);
                    },
                    _ => {
                        now += REST / 3;
                        pool.handle_timeout(now, |port| { unbound += usize::from(open.remove(&port)); });
                    }
                }
                let count = |state| pool.states.iter().filter(|&&s| s == state).count();
                prop_assert_eq!(count(State::Used), used.len());
                prop_assert_eq!(count(State::Unbound), pool.unbound);
                prop_assert_eq!(count(State::Ready), pool.ready.len());
                prop_assert!(open.len() <= SPARE_PAIRS + used.len() + count(State::Resting(true)));
            }
        }
    }
}
