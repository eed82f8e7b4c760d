//! A rate limit: a number of actions per second, and as many at once.

use ringway_sansio::Time;

const ONE: u64 = 1_000_000_000;

/// A token bucket that holds the tokens of one second.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    per_second: u64,
    /// Tokens left, in billionths.
    left: u64,
    at: Time,
}

impl Budget {
    /// Returns a full bucket of so many tokens a second; 0 for none.
    pub fn new(per_second: u32) -> Budget {
        let per_second = u64::from(per_second);
        Budget { per_second, left: per_second * ONE, at: Time::ZERO }
    }

    /// Takes a token. Returns whether there was one.
    pub fn take(&mut self, now: Time) -> bool {
        let passed = now.since(self.at).as_nanos().min(u128::from(ONE)) as u64;
        self.at = now;
        self.left = (self.left + passed * self.per_second).min(self.per_second * ONE);
        match self.left.checked_sub(ONE) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_adds_the_rate() {
        let mut budget = Budget::new(3);
        let count = |budget: &mut Budget, ms| {
            (0..10).filter(|_| budget.take(Time::from_millis(ms))).count()
        };
        assert_eq!(count(&mut budget, 5000), 3);
        assert_eq!(count(&mut budget, 5300), 0);
        assert_eq!(count(&mut budget, 5400), 1);
        assert_eq!(count(&mut budget, 99_000), 3);
        assert!(!Budget::new(0).take(Time::from_secs(1)));
    }
}
