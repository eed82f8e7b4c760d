//! A bounded number of units, of which each source has a share.
//!
//! A source may hold at most a fixed number of units; a 64th of all once half are in use; and one once only a
//! quarter are free. So a few sources cannot shut out others, however much each of them takes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// Counts the units that each source holds.
#[derive(Debug)]
pub(crate) struct Shares {
    max: usize,
    max_of_source: usize,
    used: usize,
    sources: HashMap<IpAddr, usize>,
}

impl Shares {
    /// Creates `max` units, of which one source has at most `max_of_source`.
    pub(crate) fn new(max: usize, max_of_source: usize) -> Self {
        Shares { max, max_of_source, used: 0, sources: HashMap::new() }
    }

    /// Returns the number of free units.
    pub(crate) fn left(&self) -> usize {
        self.max.saturating_sub(self.used)
    }

    /// Returns the number of units in use.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Returns the number of units that a source holds.
    pub(crate) fn of(&self, source: IpAddr) -> usize {
        self.sources.get(&source).copied().unwrap_or(0)
    }

    /// Takes a unit for a source. Returns `false` when its share is used up.
    pub(crate) fn take(&mut self, source: IpAddr) -> bool {
        let held = self.of(source);
        let share = if self.used < self.max / 2 {
            self.max_of_source
        } else if self.left() > self.max / 4 {
            (self.max / 64).max(1)
        } else {
            1
        };
        if self.left() == 0 || held >= share.min(self.max_of_source) {
            return false;
        }
        self.used += 1;
        self.sources.insert(source, held + 1);
        true
    }

    /// Releases a unit of a source.
    pub(crate) fn release(&mut self, source: IpAddr) {
        if let Entry::Occupied(mut held) = self.sources.entry(source) {
            self.used = self.used.saturating_sub(1);
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    fn takes_all(shares: &mut Shares, source: IpAddr) -> usize {
        (0..).take_while(|_| shares.take(source)).count()
    }

    #[test]
    fn a_source_has_at_most_its_share_and_half_of_all() {
        assert_eq!(takes_all(&mut Shares::new(100, 10), ip(1)), 10);
        assert_eq!(takes_all(&mut Shares::new(100, 1_000), ip(1)), 50);
        assert_eq!(takes_all(&mut Shares::new(1, 10), ip(1)), 1);
        assert_eq!(takes_all(&mut Shares::new(0, 10), ip(1)), 0);
    }

    #[test]
    fn shares_shrink_as_units_are_taken() {
        let mut shares = Shares::new(640, 100);
        let held: Vec<usize> = (0..4).map(|n| takes_all(&mut shares, ip(n))).collect();
        assert_eq!(held, [100, 100, 100, 20]);
        assert!((4..20).all(|n| takes_all(&mut shares, ip(n)) == 10));
        assert_eq!(shares.left(), 160);
        assert!((20..180).all(|n| takes_all(&mut shares, ip(n)) == 1));
        assert_eq!((shares.left(), takes_all(&mut shares, ip(180))), (0, 0));
    }

    #[test]
    fn sources_without_units_find_free_ones_for_long() {
        let mut shares = Shares::new(100, 20);
        let held: Vec<usize> = (0..4).map(|n| takes_all(&mut shares, ip(n))).collect();
        assert_eq!(held, [20, 20, 10, 1]);
        for n in 4..53 {
            assert!(shares.take(ip(n)) && !shares.take(ip(n)), "{n}");
        }
        assert_eq!((shares.left(), shares.take(ip(53))), (0, false));
        shares.release(ip(0));
        assert!(!shares.take(ip(0)) && shares.take(ip(53)));
        assert_eq!((shares.of(ip(0)), shares.of(ip(53)), shares.used()), (19, 1, 100));
        for _ in 0..60 {
            shares.release(ip(0));
        }
        assert_eq!((shares.of(ip(0)), shares.used()), (0, 81));
    }
}
