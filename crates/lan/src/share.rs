//! What each source may ask for.
//!
//! Every source has a budget of its own, so that one that asks for much is refused without a loss for others. The table
//! is bounded: when it is full, the source that was silent for longest loses its entry, which gives it a full budget
//! again.

use std::collections::BTreeMap;

use ringway_sansio::Time;

/// Sources that are remembered.
pub const MAX_SOURCES: usize = 512;

/// A message in the unit of budgets: what is earned in a nanosecond at a rate of one a second.
const ONE: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Budget {
    /// What is left, in billionths of a message.
    left: u64,
    at: Time,
}

/// The budgets of all sources.
#[derive(Clone, Debug)]
pub struct Shares<K> {
    /// Messages a second of one source.
    rate: u32,
    /// Messages of one source at once.
    burst: u32,
    budgets: BTreeMap<K, Budget>,
}

impl<K: Ord + Copy> Shares<K> {
    /// Budgets of `rate` messages a second, and `burst` at once.
    pub fn new(rate: u32, burst: u32) -> Self {
        Shares { rate, burst, budgets: BTreeMap::new() }
    }

    /// Takes one message from the budget of a source. Returns whether it was there.
    pub fn allows(&mut self, now: Time, source: K) -> bool {
        let burst = u64::from(self.burst) * ONE;
        if self.budgets.len() >= MAX_SOURCES && !self.budgets.contains_key(&source) {
            let oldest = self.budgets.iter().min_by_key(|(_, budget)| budget.at);
            if let Some(oldest) = oldest.map(|(&source, _)| source) {
                self.budgets.remove(&oldest);
            }
        }
        let budget = self.budgets.entry(source).or_insert(Budget { left: burst, at: now });
        let earned = u64::try_from(now.since(budget.at).as_nanos()).unwrap_or(u64::MAX);
        let earned = earned.saturating_mul(u64::from(self.rate));
        budget.left = budget.left.saturating_add(earned).min(burst);
        budget.at = now.max(budget.at);
        let allowed = budget.left >= ONE;
        if allowed {
            budget.left -= ONE;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::time::Duration;

    #[test]
    fn a_source_that_asks_too_much_is_refused_and_others_are_not() {
        let mut shares = Shares::new(2, 3);
        let now = Time::from_secs(5);
        let taken = |shares: &mut Shares<u32>, now, source| {
            (0..100).filter(|_| shares.allows(now, source)).count()
        };
        assert_eq!(taken(&mut shares, now, 1), 3);
        assert_eq!(taken(&mut shares, now, 2), 3);
        assert_eq!(taken(&mut shares, now + Duration::from_millis(1_000), 1), 2);
        assert_eq!(taken(&mut shares, now + Duration::from_secs(100), 1), 3);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut shares = Shares::new(1, 1);
        for source in 0..10_000_u32 {
            assert!(shares.allows(Time::from_millis(source.into()), source));
        }
        assert_eq!(shares.budgets.len(), MAX_SOURCES);
        assert!(!shares.allows(Time::from_millis(10_000), 9_999), "the latest is remembered");
    }
}
