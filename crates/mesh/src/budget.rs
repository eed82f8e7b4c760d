//! What control messages may cost.
//!
//! The sender pays for the whole way: a message of b octets over h hops costs b x h *octet hops* from its bucket. So the
//! mean of what all routers send is bounded although no router counts what it forwards for others. What is sent when
//! nothing changes is far less: that follows from how rarely it is sent.

use ringway_sansio::Time;

const NANOS: i64 = 1_000_000_000;

/// A bucket of tokens that fills at a constant rate.
///
/// A cost above the whole capacity is allowed when the bucket is full and leaves a debt: it waits, but it is not refused
/// for ever.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Tokens a second; at least 1.
    rate: u32,
    /// Capacity in tokens.
    burst: u32,
    /// Billionths of a token; below zero after a cost above the capacity.
    level: i64,
    at: Time,
}

impl TokenBucket {
    /// A full bucket. A rate of zero counts as one token a second.
    pub fn new(rate: u32, burst: u32, now: Time) -> TokenBucket {
        TokenBucket { rate: rate.max(1), burst, level: i64::from(burst) * NANOS, at: now }
    }

    /// Takes `cost` tokens if they are there.
    pub fn spend(&mut self, now: Time, cost: u32) -> bool {
        self.refill(now);
        let allowed = self.level >= i64::from(cost.min(self.burst)) * NANOS;
        if allowed {
            self.level -= i64::from(cost) * NANOS;
        }
        allowed
    }

    /// Returns when `cost` tokens will be there if none are spent until then; a time in the past if they are there.
    pub fn ready_at(&self, cost: u32) -> Time {
        let missing = i64::from(cost.min(self.burst)) * NANOS - self.level;
        let wait = missing.max(0).unsigned_abs().div_ceil(self.rate.into());
        self.at + core::time::Duration::from_nanos(wait)
    }

    /// Takes `cost` tokens, also if they are not there. The debt is at most the capacity.
    pub fn charge(&mut self, now: Time, cost: u32) {
        self.refill(now);
        self.level = (self.level - i64::from(cost) * NANOS).max(-i64::from(self.burst) * NANOS);
    }

    /// Changes the capacity. What it has more than `max`, the largest so far, is there at once.
    fn set_burst(&mut self, burst: u32, max: u32) {
        let more = i64::from(burst.saturating_sub(max)) * NANOS;
        self.level = (self.level + more).min(i64::from(burst) * NANOS);
        self.burst = burst;
    }

    fn refill(&mut self, now: Time) {
        let elapsed = now.since(self.at).as_nanos();
        self.at = self.at.max(now);
        let full = i64::from(self.burst) * NANOS;
        let missing = full.saturating_sub(self.level).unsigned_abs();
        let added = (elapsed * u128::from(self.rate)).min(u128::from(missing));
        self.level += added as i64;
    }
}

/// A [`TokenBucket`] whose rate and capacity its owner knows, in eight octets: very many neighbours are simulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallBucket {
    /// When it is full again.
    full_at: Time,
}

impl SmallBucket {
    /// A full bucket.
    pub(crate) const FULL: SmallBucket = SmallBucket { full_at: Time::ZERO };

    /// Takes `cost` tokens if they are there. The bucket fills with `rate` tokens a second, of which zero counts as one, and
    /// holds `burst`.
    pub(crate) fn spend(&mut self, now: Time, (rate, burst): (u32, u32), cost: u32) -> bool {
        let rate = u64::from(rate.max(1));
        let nanos = |tokens: u32| (u64::from(tokens) * NANOS as u64).div_ceil(rate);
        let missing = self.full_at.as_nanos().saturating_sub(now.as_nanos());
        let allowed = missing.saturating_add(nanos(cost.min(burst))) <= nanos(burst);
        if allowed {
            self.full_at = self.full_at.max(now) + core::time::Duration::from_nanos(nanos(cost));
        }
        allowed
    }
}

/// The budget of a router's control messages, in octet hops.
#[derive(Clone, Debug)]
pub struct ByteHops {
    bucket: TokenBucket,
    /// Capacity for each hop of the mean route.
    per_hop: u32,
    /// The largest capacity so far.
    max_burst: u32,
    /// Times that a message had to wait.
    pub refused: u64,
}

/// Mean hops between which the capacity grows with the mean route.
const MIN_HOPS: u32 = 4;
const MAX_HOPS: u32 = 256;

impl ByteHops {
    /// A full budget of `rate` octet hops a second. When a network forms or changes, `per_hop` octet hops can be spent at
    /// once for each hop of the mean route: a fixed number of messages, however far they go.
    pub fn new(rate: u32, per_hop: u32, now: Time) -> ByteHops {
        let max_burst = per_hop.saturating_mul(MIN_HOPS);
        let bucket = TokenBucket::new(rate, max_burst, now);
        ByteHops { bucket, per_hop, max_burst, refused: 0 }
    }

    /// Takes note of the length of the mean route.
    pub fn set_mean_hops(&mut self, hops: u32) {
        let burst = self.per_hop.saturating_mul(hops.clamp(MIN_HOPS, MAX_HOPS));
        self.bucket.set_burst(burst, self.max_burst);
        self.max_burst = self.max_burst.max(burst);
    }

    /// Pays for a message of `octets` over `hops` that cannot wait.
    pub fn charge(&mut self, now: Time, octets: u32, hops: u16) {
        self.bucket.charge(now, octets.saturating_mul(hops.into()));
    }

    /// Pays for a message of `octets` over `hops`, if that is allowed.
    pub fn spend(&mut self, now: Time, octets: u32, hops: u16) -> bool {
        let allowed = self.bucket.spend(now, octets.saturating_mul(hops.into()));
        self.refused += u64::from(!allowed);
        allowed
    }

    /// Returns whether a message of `octets` over `hops` would leave a quarter of what the budget can hold.
    pub fn is_spare(&self, now: Time, octets: u32, hops: u16) -> bool {
        let cost = octets.saturating_mul(hops.into());
        cost <= self.bucket.burst / 4 * 3
            && self.bucket.ready_at(cost + self.bucket.burst / 4) <= now
    }

    /// Returns when a message of this cost is allowed.
    pub fn ready_at(&self, octets: u32, hops: u16) -> Time {
        self.bucket.ready_at(octets.saturating_mul(hops.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CONTROL_BURST, CONTROL_RATE};
    use proptest::prelude::*;

    const START: Time = Time::from_secs(1_000);

    proptest! {
        /// It allows what the larger one allows, but for what rounding to nanoseconds makes of a whole token.
        #[test]
        fn the_small_bucket_is_one(
            (rate, burst) in (1u32..1_000_000, 1u32..1_000_000),
            costs in proptest::collection::vec((0u64..2_000_000_000, 0u32..2_000), 1..100),
        ) {
            let (mut small, mut large) = (SmallBucket::FULL, TokenBucket::new(rate, burst, START));
            let mut now = START;
            for (wait, cost) in costs {
                now += core::time::Duration::from_nanos(wait);
                let there = large.ready_at(cost.saturating_add(1)) <= now;
                let almost = large.ready_at(cost.saturating_sub(1)) <= now;
                let allowed = small.spend(now, (rate, burst), cost);
                prop_assert!(allowed || !there, "{cost} of {burst} at {rate} a second");
                prop_assert!(!allowed || almost, "{cost} of {burst} at {rate} a second");
                if allowed {
                    large.charge(now, cost);
                }
            }
        }
    }

    #[test]
    fn a_cost_above_the_capacity_is_paid_off_before_the_next() {
        let mut bucket = TokenBucket::new(10, 100, START);
        assert!(bucket.spend(START, 300));
        assert_eq!(bucket.ready_at(1), START + core::time::Duration::from_millis(20_100));
        assert!(!bucket.spend(Time::from_secs(1_020), 1));
        assert!(bucket.spend(Time::from_millis(1_020_100), 1));
    }

    #[test]
    fn longer_routes_make_the_capacity_larger_at_once() {
        let mut budget = ByteHops::new(1, 100, START);
        let spent =
            |budget: &mut ByteHops| (0..29_999).filter(|_| budget.spend(START, 1, 1)).count();
        assert_eq!(spent(&mut budget), 400);
        budget.set_mean_hops(10);
        assert_eq!(spent(&mut budget), 600);
        // Shorter ones do not, no length without end does, and what was there once is not there again.
        budget.set_mean_hops(5);
        budget.set_mean_hops(500);
        assert_eq!((spent(&mut budget), budget.refused), (24_600, 29_999 * 3 - 25_600));
    }

    #[test]
    fn a_quarter_of_the_capacity_is_not_spare() {
        let mut budget = ByteHops::new(100, 100, START);
        assert!(budget.is_spare(START, 300, 1) && !budget.is_spare(START, 301, 1));
        budget.charge(START, 300, 1);
        assert!(!budget.is_spare(START + core::time::Duration::from_millis(999), 100, 1));
        assert!(budget.is_spare(START + core::time::Duration::from_secs(1), 100, 1));
    }

    proptest! {
        #[test]
        fn the_mean_is_held(
            messages in proptest::collection::vec((0u64..20_000, 20u32..400, 1u16..100), 1..200),
        ) {
            let mut budget = ByteHops::new(CONTROL_RATE, CONTROL_BURST, START);
            let (mut now, mut sum, mut largest) = (START, 0, 0);
            for (wait, octets, hops) in messages {
                now += core::time::Duration::from_millis(wait);
                let ready = budget.ready_at(octets, hops);
                let allowed = budget.spend(now, octets, hops);
                prop_assert_eq!(allowed, ready <= now);
                if allowed {
                    let cost = u64::from(octets) * u64::from(hops);
                    sum += cost;
                    largest = cost.max(largest);
                }
            }
            let seconds = now.since(START).as_secs() + 1;
            let burst = u64::from(CONTROL_BURST * MIN_HOPS);
            prop_assert!(sum <= burst + u64::from(CONTROL_RATE) * seconds + largest);
        }
    }
}
