//! What each other router may ask for.
//!
//! Every router has a budget of its own, so that one that asks for much is refused without a loss for others. An identity
//! costs 2^20 hashes; whoever makes many of them to displace the budgets of others has to make more than a table has.

use std::collections::BTreeMap;

use ringway_mesh::NodeId;
use ringway_sansio::time::Time;

use crate::config::Config;

#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Messages left, in thousandths.
    left: u64,
    at: Time,
}

/// The budgets of other routers.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    budgets: BTreeMap<NodeId, Budget>,
}

impl Origins {
    /// Takes one message from the budget of a router, eight times as large if it is `beside` this one. Returns whether it
    /// was there.
    pub fn allows(&mut self, now: Time, config: &Config, origin: NodeId, beside: bool) -> bool {
        let factor = if beside { 8 } else { 1 };
        let burst = u64::from(config.origin_burst) * factor * 1_000;
        let rate = u64::from(config.origin_rate) * factor;
        if self.budgets.len() >= config.origins && !self.budgets.contains_key(&origin) {
            self.make_room();
        }
        let budget = self.budgets.entry(origin).or_insert(Budget { left: burst, at: now });
        let earned = u64::try_from(now.since(budget.at).as_millis()).unwrap_or(u64::MAX);
        budget.left = budget.left.saturating_add(earned.saturating_mul(rate)).min(burst);
        budget.at = now;
        let allowed = budget.left >= 1_000;
        if allowed {
            budget.left -= 1_000;
        }
        allowed
    }

    /// Removes the budget that was used least recently.
    fn make_room(&mut self) {
        let oldest = self.budgets.iter().min_by_key(|(_, budget)| budget.at).map(|(&id, _)| id);
        if let Some(id) = oldest {
            self.budgets.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::time::Duration;

    #[test]
    fn a_router_that_asks_too_much_is_refused_and_others_are_not() {
        let config = Config { origin_rate: 2, origin_burst: 3, origins: 2, ..Config::default() };
        let mut origins = Origins::default();
        let (now, [one, two, three]) = (Time::from_secs(5), [1, 2, 3].map(NodeId::new));
        let taken = |origins: &mut Origins, now, id, beside| {
            (0..100).filter(|_| origins.allows(now, &config, id, beside)).count()
        };
        assert_eq!(taken(&mut origins, now, one, false), 3);
        assert_eq!(taken(&mut origins, now, two, true), 24);
        let later = now + Duration::from_millis(1_500);
        assert_eq!(taken(&mut origins, later, one, false), 3);
        // The table has room for two: the one that was silent for longest is forgotten.
        assert_eq!(taken(&mut origins, later, three, false), 3);
        assert_eq!(origins.budgets.keys().copied().collect::<Vec<_>>(), [one, three]);
    }
}
