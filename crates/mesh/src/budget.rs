//! What control messages may cost.
//!
//! The sender pays for the whole way: a message of b octets over h hops costs b x h *octet hops* from its bucket. So the
//! mean of what all routers send is bounded although no router counts what it forwards for others. The rate is divided
//! into [`Share`]s, so that one purpose cannot use up what another needs.

use ringway_sansio::Time;

const NANOS: i64 = 1_000_000_000;

/// A bucket of tokens that fills at a constant rate.
///
/// A cost above the whole capacity is allowed when the bucket is full and leaves a debt: it waits, but it is not refused
/// for ever.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Tokens a second; at least 1.
    rate: i64,
    /// Capacity in tokens.
    burst: i64,
    /// Billionths of a token; below zero after a cost above the capacity.
    level: i64,
    at: Time,
}

impl TokenBucket {
    /// A full bucket. A rate of zero counts as one token a second.
    pub fn new(rate: u32, burst: u32, now: Time) -> TokenBucket {
        let (rate, burst) = (i64::from(rate.max(1)), i64::from(burst));
        TokenBucket { rate, burst, level: burst * NANOS, at: now }
    }

    /// Takes `cost` tokens if they are there.
    pub fn spend(&mut self, now: Time, cost: u32) -> bool {
        self.refill(now);
        let cost = i64::from(cost);
        let allowed = self.level >= cost.min(self.burst) * NANOS;
        if allowed {
            self.level -= cost * NANOS;
        }
        allowed
    }

    /// Returns when `cost` tokens will be there if none are spent until then; a time in the past if they are there.
    pub fn ready_at(&self, cost: u32) -> Time {
        let missing = i64::from(cost).min(self.burst) * NANOS - self.level;
        let wait = missing.max(0).unsigned_abs().div_ceil(self.rate.unsigned_abs());
        self.at + core::time::Duration::from_nanos(wait)
    }

    fn refill(&mut self, now: Time) {
        let elapsed = now.since(self.at).as_nanos();
        self.at = self.at.max(now);
        let full = self.burst * NANOS;
        let missing = full.saturating_sub(self.level).unsigned_abs();
        let added = (elapsed * u128::from(self.rate.unsigned_abs())).min(u128::from(missing));
        self.level += added as i64;
    }
}

/// What a control message is sent for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Probes of the contacts beside us on the ring.
    Edges,
    /// Probes of the other contacts, and look-ups of our own id.
    Fingers,
    /// What an event caused. When its own share is used up, it takes from [`Share::Fingers`].
    Triggered,
}

/// The budget of a router's control messages, in octet hops.
#[derive(Clone, Debug)]
pub struct ByteHops {
    edges: TokenBucket,
    fingers: TokenBucket,
    triggered: TokenBucket,
    /// Times that a message had to wait, by share.
    pub refused: [u64; 3],
}

/// Shares of the rate in hundredths: edges and fingers; the rest is for what events cause.
const EDGES: u32 = 36;
const FINGERS: u32 = 36;
/// Shares of the burst in hundredths: upkeep is spread over time, so events may have nearly all of it.
const UPKEEP_BURST: u32 = 8;

impl ByteHops {
    /// A full budget of `rate` octet hops a second and `burst` at once.
    pub fn new(rate: u32, burst: u32, now: Time) -> ByteHops {
        let part = |whole: u32, share: u32| (u64::from(whole) * u64::from(share) / 100) as u32;
        let (edges, fingers) = (part(rate, EDGES), part(rate, FINGERS));
        let upkeep = part(burst, UPKEEP_BURST);
        ByteHops {
            edges: TokenBucket::new(edges, upkeep, now),
            fingers: TokenBucket::new(fingers, upkeep, now),
            triggered: TokenBucket::new(rate - edges - fingers, burst - 2 * upkeep, now),
            refused: [0; 3],
        }
    }

    /// Pays for a message of `octets` over `hops`, if the share allows it.
    pub fn spend(&mut self, now: Time, share: Share, octets: u32, hops: u16) -> bool {
        let cost = octets.saturating_mul(hops.into());
        let allowed = match share {
            Share::Edges => self.edges.spend(now, cost),
            Share::Fingers => self.fingers.spend(now, cost),
            Share::Triggered => self.triggered.spend(now, cost) || self.fingers.spend(now, cost),
        };
        self.refused[share as usize] += u64::from(!allowed);
        allowed
    }

    /// Returns when a message of this cost is allowed.
    pub fn ready_at(&self, share: Share, octets: u32, hops: u16) -> Time {
        let cost = octets.saturating_mul(hops.into());
        match share {
            Share::Edges => self.edges.ready_at(cost),
            Share::Fingers => self.fingers.ready_at(cost),
            Share::Triggered => self.triggered.ready_at(cost).min(self.fingers.ready_at(cost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CONTROL_BURST, CONTROL_RATE};
    use proptest::prelude::*;

    const START: Time = Time::from_secs(1_000);

    #[test]
    fn a_cost_above_the_capacity_is_paid_off_before_the_next() {
        let mut bucket = TokenBucket::new(10, 100, START);
        assert!(bucket.spend(START, 300));
        assert_eq!(bucket.ready_at(1), START + core::time::Duration::from_millis(20_100));
        assert!(!bucket.spend(Time::from_secs(1_020), 1));
        assert!(bucket.spend(Time::from_millis(1_020_100), 1));
    }

    #[test]
    fn events_take_from_the_fingers_and_nobody_from_the_edges() {
        let mut budget = ByteHops::new(100, 1_000, START);
        let spent = |budget: &mut ByteHops, share| {
            (0..2_000).filter(|_| budget.spend(START, share, 1, 1)).count()
        };
        assert_eq!(spent(&mut budget, Share::Triggered), 920);
        assert_eq!(spent(&mut budget, Share::Fingers), 0);
        assert_eq!(spent(&mut budget, Share::Edges), 80);
        assert_eq!(budget.refused, [1_920, 2_000, 1_080]);
        let ready = budget.ready_at(Share::Triggered, 6, 6);
        assert!(ready > START && budget.spend(ready, Share::Triggered, 6, 6));
    }

    proptest! {
        #[test]
        fn the_mean_is_held(
            messages in proptest::collection::vec((0u64..20_000, 0u32..3, 20u32..400, 1u16..100), 1..200),
        ) {
            let mut budget = ByteHops::new(CONTROL_RATE, CONTROL_BURST, START);
            let (mut now, mut sum, mut largest) = (START, 0, 0);
            for (wait, share, octets, hops) in messages {
                now += core::time::Duration::from_millis(wait);
                let share = [Share::Edges, Share::Fingers, Share::Triggered][share as usize];
                let ready = budget.ready_at(share, octets, hops);
                let allowed = budget.spend(now, share, octets, hops);
                prop_assert_eq!(allowed, ready <= now);
                if allowed {
                    let cost = u64::from(octets) * u64::from(hops);
                    sum += cost;
                    largest = cost.max(largest);
                }
            }
            let seconds = now.since(START).as_secs() + 1;
            // Each of the three buckets may be in debt by one message.
            let bound = u64::from(CONTROL_BURST) + u64::from(CONTROL_RATE) * seconds + 3 * largest;
            prop_assert!(sum <= bound, "{} > {}", sum, bound);
        }
    }
}
