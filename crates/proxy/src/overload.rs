//! Who is turned away, and when: rates by source and in all, and overload.
//!
//! Overload is told by how long messages have waited to be taken in, and by how many have come
//! without a pause. While both are high, what would begin something new is answered with 503 at
//! once; what belongs to something begun is always let through, because work already done would be
//! lost with it (RFC 7339 section 5.10.1 orders requests likewise). Turning away is so cheap that
//! the queue falls again, and the server goes on at the rate it can bear.

use crate::config::{Config, Network};
use hashbrown::HashMap;
use ringway_sansio::{Duration, Flow, Random, Time};
use ringway_sip::message::{Message, Method};
use siphasher::sip::SipHasher13;
use std::hash::BuildHasher;
use std::net::IpAddr;

/// Wait above which new work is turned away, if [`BEHIND`] messages have come without a pause: less
/// than a tenth of T1, after which peers would begin to repeat.
pub const HIGH: Duration = Duration::from_millis(40);

/// Messages without a pause that make a wait overload. A machine that was busy elsewhere for a
/// moment catches up sooner.
pub const BEHIND: usize = 6_000;

/// Wait that is overload in any case.
pub const TOO_LONG: Duration = Duration::from_millis(300);

/// Wait below which new work is taken on again.
pub const LOW: Duration = Duration::from_millis(15);

/// Source addresses whose rate is watched at one time. When there are more, new ones share one
/// allowance, so that forged sources cannot fill the memory.
pub const MAX_SOURCES: usize = 65_536;

/// Seconds in the Retry-After of a 503 lie between 2 and 9, so that not all come back at once.
const RETRY_AFTER: (u32, u32) = (2, 8);

/// A token bucket: so many a second, and a second's worth in store.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In thousandths of a token; below zero when more was asked for than there was.
    tokens: i64,
    filled: Time,
}

impl Bucket {
    fn new(rate: u32, now: Time) -> Bucket {
        Bucket { tokens: i64::from(rate) * 1000, filled: now }
    }

    /// Takes one token; what is left, in thousandths.
    fn take(&mut self, rate: u32, now: Time) -> i64 {
        let full = i64::from(rate) * 1000;
        let micros = (now - self.filled).as_micros().min(10_000_000) as i64;
        let gained = micros * i64::from(rate) / 1000;
        if gained > 0 {
            self.tokens = (self.tokens + gained).min(full);
            self.filled = now;
        }
        // A debt of more than a second's worth is not remembered.
        self.tokens = (self.tokens - 1000).max(-full);
        self.tokens
    }
}

#[derive(Clone)]
struct Keyed([u8; 16]);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

/// The guard at the door of one worker.
pub struct Guard {
    per_source: u32,
    total: u32,
    trusted: Vec<Network>,
    sources: HashMap<IpAddr, Bucket, Keyed>,
    /// Shared by the sources that found no place.
    rest: Bucket,
    all: Bucket,
    overloaded: bool,
    turn: u32,
}

impl Guard {
    /// A guard with the limits of `config`.
    pub fn new(config: &Config, random: &mut dyn Random, now: Time) -> Guard {
        let mut key = [0; 16];
        random.fill(&mut key);
        let mut guard = Guard {
            per_source: 0,
            total: 0,
            trusted: Vec::new(),
            sources: HashMap::with_hasher(Keyed(key)),
            rest: Bucket::new(0, now),
            all: Bucket::new(0, now),
            overloaded: false,
            turn: 0,
        };
        guard.reconfigure(config);
        guard
    }

    /// New limits.
    pub fn reconfigure(&mut self, config: &Config) {
        self.per_source = config.limits.requests_per_source;
        self.total = config.limits.requests;
        self.trusted.clone_from(&config.trusted);
    }

    /// Told before each batch how long its oldest message has waited, and how many messages have
    /// come in full batches without a pause.
    pub fn backlog(&mut self, waited: Duration, behind: usize) {
        self.overloaded = match self.overloaded {
            true => waited > LOW,
            false => waited > TOO_LONG || waited > HIGH && behind > BEHIND,
        };
    }

    /// Whether new work is being turned away now.
    pub fn is_overloaded(&self) -> bool {
        self.overloaded
    }

    /// Number of sources that are watched.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Whether a request that belongs to no transaction is to be turned away: the seconds after
    /// which to come back, or 0 to drop it without an answer.
    pub fn refuses(&mut self, now: Time, flow: &Flow, msg: &Message<'_>) -> Option<u32> {
        if self.per_source > 0
            && let Some(left) = self.source(now, flow.remote.ip())
            && left < 0
        {
            // Somewhat too many are answered; from twice the rate on, answering would only help
            // whoever floods.
            let drop = left <= -i64::from(self.per_source) * 1000;
            return Some(if drop { 0 } else { self.retry_after() });
        }
        if !self.overloaded && self.total == 0 {
            return None;
        }
        if !begins_something(msg) {
            return None;
        }
        let over = self.total > 0 && self.all.take(self.total, now) < 0;
        (over || self.overloaded).then(|| self.retry_after())
    }

    fn source(&mut self, now: Time, ip: IpAddr) -> Option<i64> {
        let rate = self.per_source;
        if let Some(bucket) = self.sources.get_mut(&ip) {
            return Some(bucket.take(rate, now));
        }
        if self.trusted.iter().any(|n| n.contains(ip)) {
            return None;
        }
        if self.sources.len() >= MAX_SOURCES {
            return Some(self.rest.take(rate, now));
        }
        self.sources.entry(ip).or_insert(Bucket::new(rate, now)).take(rate, now).into()
    }

    fn retry_after(&mut self) -> u32 {
        self.turn = self.turn.wrapping_add(1);
        RETRY_AFTER.0 + self.turn % RETRY_AFTER.1
    }

    /// Forgets sources whose allowance is full again.
    pub fn sweep(&mut self, now: Time) {
        const IDLE: Duration = Duration::from_secs(2);
        if self.sources.is_empty() {
            return;
        }
        self.sources.retain(|_, b| now - b.filled < IDLE);
        if self.sources.is_empty() {
            self.sources.shrink_to_fit();
        }
    }
}

/// Whether a request would begin something, rather than go on with or end it.
fn begins_something(msg: &Message<'_>) -> bool {
    !matches!(msg.method(), Method::Ack | Method::Cancel | Method::Bye | Method::Prack)
        && msg.to().is_ok_and(|to| to.tag().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use ringway_sansio::SplitMix;

    fn guard(per_source: u32, total: u32) -> Guard {
        let mut config = testing::config();
        config.limits.requests_per_source = per_source;
        config.limits.requests = total;
        Guard::new(&config, &mut SplitMix::new(1), Time::from_secs(1))
    }

    fn asks(guard: &mut Guard, at: u64, text: &str) -> Option<u32> {
        let text = testing::request(text);
        let msg = ringway_sip::message::parse(text.as_bytes()).unwrap();
        guard.refuses(Time::from_millis(at), &testing::flow(), &msg)
    }

    #[test]
    fn a_source_has_its_rate_then_503_then_silence() {
        let mut g = guard(10, 0);
        let mut answers = [0; 3];
        for _ in 0..40 {
            answers[match asks(&mut g, 1_000, "OPTIONS") {
                None => 0,
                Some(0) => 2,
                Some(_) => 1,
            }] += 1;
        }
        assert_eq!(answers, [10, 9, 21]);
        assert!(asks(&mut g, 3_000, "OPTIONS").is_none());
        g.sweep(Time::from_secs(60));
        assert_eq!(g.sources(), 0);
    }

    #[test]
    fn overload_turns_new_calls_away_and_lets_the_old_go_on() {
        let mut g = guard(0, 0);
        g.backlog(TOO_LONG, BEHIND);
        assert!(asks(&mut g, 0, "INVITE").is_none());
        g.backlog(HIGH + Duration::from_millis(1), BEHIND + 1);
        assert!(asks(&mut g, 0, "INVITE").is_some_and(|s| (2..10).contains(&s)));
        assert!(asks(&mut g, 0, "BYE").is_none());
        g.backlog(LOW + Duration::from_millis(1), 0);
        assert!(asks(&mut g, 0, "INVITE").is_some());
        g.backlog(LOW, 0);
        assert!(asks(&mut g, 0, "INVITE").is_none());
    }
}
