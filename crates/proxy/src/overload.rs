//! Limits of new work: rates by source and in total, and overload.
//!
//! Overload is measured by how long messages have waited to be received, how many have come without a pause, and how
//! full the receive buffer is. Under overload a share of new requests is answered with 503 at once, larger the longer
//! messages wait. So the queue settles at what the server can process. Refusing all or nothing would let the queue
//! alternate between empty and overflowing, and what overflows is mostly unfinished work. For the same reason a message
//! that belongs to something begun is never refused (RFC 7339 section 5.10.1 orders requests likewise).
//!
//! A refusal costs about a seventh of a call. If more than twice the capacity is offered, refusing would use up the
//! time for serving. Then a part of the requests is not received at all ([`Guard::shed`]): as few as needed that no
//! more are refused than are served. A client without a response tries again half a second later.

use crate::config::{ClusterNodes, Config, MeshNetwork, Network};
use crate::keys::Keyed;
use hashbrown::HashMap;
use ringway_sansio::{Backlog, Duration, Flow, Random, SHED_ALL, Time};
use ringway_sip::message::{Message, Method};
use std::hash::BuildHasher;
use std::net::IpAddr;

/// The wait above which overload begins, if [`MIN_BACKLOG`] messages have come without a pause. It is less than a
/// tenth of T1, after which peers would begin to retransmit.
pub const HIGH_WAIT: Duration = Duration::from_millis(40);

/// The number of messages without a pause from which a wait counts as overload. A machine that was busy with other work
/// for a moment catches up sooner.
pub const MIN_BACKLOG: usize = 6_000;

/// The wait that is overload in any case.
pub const MAX_WAIT: Duration = Duration::from_millis(300);

/// The wait below which nothing is refused under overload.
pub const LOW_WAIT: Duration = Duration::from_millis(3);

/// The wait from which everything new is refused under overload.
pub const FULL_WAIT: Duration = Duration::from_millis(18);

/// The time for which the wait must have stayed below [`LOW_WAIT`] before overload ends.
pub const CALM_PERIOD: Duration = Duration::from_secs(1);

/// The interval at which the share of messages not to be received is adjusted under overload.
pub const SHED_PERIOD: Duration = Duration::from_millis(50);

/// Of [`SHED_ALL`], the minimum share that is received.
const MIN_INLET: u32 = SHED_ALL / 32;

/// The number of source addresses whose rate is limited separately. Beyond it new ones share [`SHARED_ALLOWANCES`], so
/// that forged sources cannot fill the memory.
pub const MAX_SOURCES: usize = 65_536;

/// Allowances in each of two rows for the sources above [`MAX_SOURCES`]. A source has one in each row and is refused
/// when both are exhausted. So it suffers only from sources that share both with it, and 80,000 forged ones a second
/// are ten for each allowance.
pub const SHARED_ALLOWANCES: usize = 8_192;

/// The number of sources that a router of the mesh counts as: the phones of many users are behind it.
pub const ROUTER_SOURCES: u32 = 20;

/// The minimum and the range of the seconds in the Retry-After of a 503: 2 to 9, so that clients do not all return at
/// once.
const RETRY_AFTER: (u32, u32) = (2, 8);

/// A token bucket: a rate per second, and a capacity of one second.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Thousandths of a token.
    tokens: u64,
    filled: Time,
}

impl Bucket {
    fn new(rate: u32, now: Time) -> Bucket {
        Bucket { tokens: u64::from(rate) * 1000, filled: now }
    }

    /// Takes one token, if there is one. A refused request costs no token, so that a source that sends too much still
    /// has its rate.
    fn take(&mut self, rate: u32, now: Time) -> bool {
        let micros = (now - self.filled).as_micros().min(10_000_000) as u64;
        let gained = micros * u64::from(rate) / 1000;
        if gained > 0 {
            self.tokens = (self.tokens + gained).min(u64::from(rate) * 1000);
            self.filled = now;
        }
        let left = self.tokens.checked_sub(1000);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

/// The allowance of one source: requests, and then refusals. Beyond those, responses would only amplify a flood.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    requests: Bucket,
    refusals: Bucket,
}

/// The decision about a request from a limited source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Allowed {
    Yes,
    Refused,
    Dropped,
}

impl Allowance {
    fn new(rate: u32, now: Time) -> Allowance {
        Allowance { requests: Bucket::new(rate, now), refusals: Bucket::new(rate, now) }
    }

    fn take(&mut self, rate: u32, now: Time) -> Allowed {
        if self.requests.take(rate, now) {
            Allowed::Yes
        } else if self.refusals.take(rate, now) {
            Allowed::Refused
        } else {
            Allowed::Dropped
        }
    }
}

/// Returns whether most of the receive buffer is in use: messages in a short buffer never wait long, but overflow.
fn is_nearly_full(backlog: &Backlog) -> bool {
    backlog.queued > backlog.capacity / 4 * 3 && backlog.capacity > 0
}

/// Returns the share of new work to refuse, of [`SHED_ALL`].
fn excess(backlog: &Backlog) -> u32 {
    let over = |part: u128, from: u128, to: u128| {
        let share = u128::from(SHED_ALL) * part.saturating_sub(from) / (to - from).max(1);
        share.min(SHED_ALL.into())
    };
    let by_wait = over(backlog.delay.as_nanos(), LOW_WAIT.as_nanos(), FULL_WAIT.as_nanos());
    let (queued, capacity) = (backlog.queued as u128, backlog.capacity as u128);
    let by_room = if capacity == 0 { 0 } else { over(queued, capacity / 2, capacity / 4 * 3) };
    by_wait.max(by_room) as u32
}

/// The share of new messages that is received, to be served or refused.
#[derive(Clone, Copy, Debug)]
struct Inlet {
    /// The share, of [`SHED_ALL`].
    open: u32,
    since: Time,
    served: u32,
    refused: u32,
}

impl Inlet {
    fn open(now: Time) -> Inlet {
        Inlet { open: SHED_ALL, since: now, served: 0, refused: 0 }
    }

    /// Adjusts the share such that as many requests are refused as are served. It grows slowly and shrinks fast: too
    /// much costs calls, too little only refusals.
    fn settle(&mut self, now: Time) {
        if now - self.since < SHED_PERIOD {
            return;
        }
        let right = match self.served.saturating_add(self.refused) {
            0 => SHED_ALL,
            all => (u64::from(self.open) * 2 * u64::from(self.served) / u64::from(all)) as u32,
        };
        let open = right.clamp(self.open / 2, self.open / 4 * 5).clamp(MIN_INLET, SHED_ALL);
        *self = Inlet { open, ..Inlet::open(now) };
    }
}

/// The overload control of one worker.
pub struct Guard {
    per_source: u32,
    total: u32,
    trusted: Vec<Network>,
    mesh: Option<MeshNetwork>,
    nodes: ClusterNodes,
    sources: HashMap<IpAddr, Allowance, Keyed>,
    /// Shared by the sources for which there is no room, two rows; empty until it is needed.
    rest: Vec<Allowance>,
    all: Bucket,
    /// The time at which the wait was last above [`LOW_WAIT`], under overload.
    overload: Option<Time>,
    /// The share of new work that is refused now, of [`SHED_ALL`].
    share: u32,
    /// The sum of the shares: each time it passes [`SHED_ALL`] one request is refused.
    sum: u32,
    inlet: Inlet,
    turn: u32,
}

impl Guard {
    /// Returns a guard with the limits of `config`.
    pub fn new(config: &Config, random: &mut dyn Random, now: Time) -> Guard {
        let mut key = [0; 16];
        random.fill(&mut key);
        let mut guard = Guard {
            per_source: 0,
            total: 0,
            trusted: Vec::new(),
            mesh: None,
            nodes: ClusterNodes::default(),
            sources: HashMap::with_hasher(Keyed::new(&key)),
            rest: Vec::new(),
            all: Bucket::new(config.limits.requests, now),
            overload: None,
            share: 0,
            sum: 0,
            inlet: Inlet::open(now),
            turn: 0,
        };
        guard.reconfigure(config);
        guard
    }

    /// Replaces the limits.
    pub fn reconfigure(&mut self, config: &Config) {
        self.per_source = config.limits.requests_per_source;
        self.total = config.limits.requests;
        self.trusted.clone_from(&config.trusted);
        self.mesh = config.mesh;
        self.nodes.clone_from(&config.nodes);
    }

    /// Reports, before each batch, how many messages wait.
    pub fn backlog(&mut self, now: Time, backlog: &Backlog) {
        let Backlog { delay: wait, messages: behind, .. } = *backlog;
        let begins = wait > MAX_WAIT
            || behind > MIN_BACKLOG && (wait > HIGH_WAIT || is_nearly_full(backlog));
        if self.overload.is_none() && !begins {
            return;
        }
        self.share = excess(backlog);
        match self.overload {
            Some(last) if self.share == 0 && now - last > CALM_PERIOD => self.overload = None,
            Some(_) if self.share == 0 => {}
            _ => self.overload = Some(now),
        }
        if self.overload.is_some() {
            self.inlet.settle(now);
        } else {
            self.inlet = Inlet::open(now);
        }
    }

    /// Returns the share of new requests that should not be received at all, of [`SHED_ALL`].
    pub fn shed(&self) -> u32 {
        SHED_ALL - self.inlet.open
    }

    /// Returns whether new work is being refused now.
    pub fn is_overloaded(&self) -> bool {
        self.overload.is_some()
    }

    /// Returns the number of sources that are limited separately.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Decides about a request that belongs to no transaction. Returns the seconds of Retry-After if it is refused, 0
    /// to drop it without a response, or `None` to accept it.
    pub fn refuses(&mut self, now: Time, flow: &Flow, msg: &Message<'_>) -> Option<u32> {
        if self.per_source > 0 {
            let of_mesh = self.mesh.and_then(|mesh| mesh.router(flow));
            let router = of_mesh.or_else(|| self.nodes.node(flow));
            let allowed = match router {
                Some(ip) => self.take(now, ip, self.per_source.saturating_mul(ROUTER_SOURCES)),
                None => self.source(now, flow.remote.ip()),
            };
            match allowed {
                Allowed::Yes => {}
                Allowed::Refused => return Some(self.retry_after()),
                Allowed::Dropped => return Some(0),
            }
        }
        if self.overload.is_none() && self.total == 0 || !begins_something(msg) {
            return None;
        }
        self.sum += self.share;
        if self.sum >= SHED_ALL {
            self.sum -= SHED_ALL;
            self.inlet.refused = self.inlet.refused.saturating_add(1);
            return Some(self.retry_after());
        }
        self.inlet.served = self.inlet.served.saturating_add(1);
        (self.total > 0 && !self.all.take(self.total, now)).then(|| self.retry_after())
    }

    fn source(&mut self, now: Time, ip: IpAddr) -> Allowed {
        if !self.sources.contains_key(&ip)
            && (ip.is_loopback() || self.trusted.iter().any(|n| n.contains(ip)))
        {
            return Allowed::Yes;
        }
        self.take(now, ip, self.per_source)
    }

    /// Takes from the allowance of a source with this rate.
    fn take(&mut self, now: Time, ip: IpAddr, rate: u32) -> Allowed {
        if let Some(allowance) = self.sources.get_mut(&ip) {
            return allowance.take(rate, now);
        }
        if self.sources.len() >= MAX_SOURCES {
            return self.take_shared(rate, now, ip);
        }
        self.sources.entry(ip).or_insert(Allowance::new(rate, now)).take(rate, now)
    }

    /// Takes from the shared allowances of a source for which there is no room: the better of its two decides.
    fn take_shared(&mut self, rate: u32, now: Time, ip: IpAddr) -> Allowed {
        if self.rest.is_empty() {
            self.rest = vec![Allowance::new(rate, now); 2 * SHARED_ALLOWANCES];
        }
        let hash = self.sources.hasher().hash_one(ip);
        let rows = [hash as usize, (hash >> 32) as usize];
        let mut best = Allowed::Dropped;
        for (row, hash) in rows.into_iter().enumerate() {
            let index = row * SHARED_ALLOWANCES + hash % SHARED_ALLOWANCES;
            best = best.min(self.rest[index].take(rate, now));
        }
        best
    }

    fn retry_after(&mut self) -> u32 {
        self.turn = self.turn.wrapping_add(1);
        RETRY_AFTER.0 + self.turn % RETRY_AFTER.1
    }

    /// Drops sources whose allowance is full again.
    pub fn sweep(&mut self, now: Time) {
        const IDLE: Duration = Duration::from_secs(2);
        if self.sources.is_empty() {
            return;
        }
        self.sources.retain(|_, a| now - a.requests.filled < IDLE);
        if self.sources.is_empty() {
            self.sources.shrink_to_fit();
            self.rest = Vec::new();
        }
    }
}

/// Returns whether a request begins something new, rather than continuing or ending it.
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
        assert_eq!(answers, [10, 10, 20]);
        assert!(asks(&mut g, 3_000, "OPTIONS").is_none());
        g.sweep(Time::from_secs(60));
        assert_eq!(g.sources(), 0);
    }

    /// Forged sources fill the table. New sources are served as before, and one that sends too much is still limited to
    /// its rate.
    #[test]
    fn forged_sources_do_not_shut_out_new_ones() {
        let mut g = guard(1000, 0);
        let now = Time::from_secs(1);
        let forged = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        for n in 0..MAX_SOURCES as u32 + 80_000 {
            g.source(now, forged(n));
        }
        assert_eq!(g.sources(), MAX_SOURCES);
        let honest = |n: u8| IpAddr::from([203, 0, 113, n]);
        let served = (0..60).filter(|&n| (0..10).all(|_| g.source(now, honest(n)) == Allowed::Yes));
        assert_eq!(served.count(), 60);
        let eager = IpAddr::from([198, 51, 100, 1]);
        let served = (0..5_000).filter(|_| g.source(now, eager) == Allowed::Yes).count();
        assert!((900..=2_000).contains(&served), "{served}");
    }

    #[test]
    fn a_source_above_its_rate_still_gets_its_rate() {
        let of_source = guard(10, 0);
        let of_all = guard(0, 10);
        for mut g in [of_source, of_all] {
            let passed = (0..10_000).filter(|i| asks(&mut g, 1_000 + i, "INVITE").is_none());
            // Ten seconds' worth, and the initial tokens.
            assert_eq!(passed.count(), 109);
        }
    }

    fn backlog(wait: Duration, behind: usize) -> Backlog {
        Backlog { delay: wait, messages: behind, ..Backlog::default() }
    }

    fn refused_of_100(g: &mut Guard, text: &str) -> usize {
        (0..100).filter(|_| asks(g, 0, text).is_some()).count()
    }

    #[test]
    fn overload_turns_new_calls_away_and_lets_the_old_go_on() {
        let mut g = guard(0, 0);
        let second = Time::from_secs;
        g.backlog(second(1), &backlog(MAX_WAIT, MIN_BACKLOG));
        assert!(!g.is_overloaded());
        assert_eq!(refused_of_100(&mut g, "INVITE"), 0);
        g.backlog(second(1), &backlog(HIGH_WAIT + Duration::from_millis(1), MIN_BACKLOG + 1));
        assert!(asks(&mut g, 0, "INVITE").is_some_and(|s| (2..10).contains(&s)));
        assert_eq!(refused_of_100(&mut g, "INVITE"), 100);
        assert_eq!(refused_of_100(&mut g, "BYE"), 0);
    }

    #[test]
    fn the_longer_the_wait_the_more_is_turned_away() {
        let mut g = guard(0, 0);
        let second = Time::from_secs;
        g.backlog(second(1), &backlog(MAX_WAIT * 2, 0));
        g.backlog(second(1), &backlog((LOW_WAIT + FULL_WAIT) / 2, 0));
        assert_eq!(refused_of_100(&mut g, "INVITE"), 50);
        g.backlog(second(1), &backlog(LOW_WAIT, 0));
        assert_eq!(refused_of_100(&mut g, "INVITE"), 0);
        assert!(g.is_overloaded(), "it may come back at once");
        g.backlog(second(3), &backlog(LOW_WAIT, 0));
        assert!(!g.is_overloaded());
        g.backlog(second(3), &backlog(FULL_WAIT, 0));
        assert_eq!(refused_of_100(&mut g, "INVITE"), 0);
    }

    #[test]
    fn a_short_receive_buffer_is_guarded_by_how_full_it_is() {
        let mut g = guard(0, 0);
        let room =
            |queued, messages| Backlog { queued, messages, capacity: 1000, ..Backlog::default() };
        g.backlog(Time::from_secs(1), &room(900, MIN_BACKLOG));
        assert!(!g.is_overloaded());
        g.backlog(Time::from_secs(1), &room(751, MIN_BACKLOG + 1));
        assert_eq!(refused_of_100(&mut g, "INVITE"), 100);
        g.backlog(Time::from_secs(1), &room(500, MIN_BACKLOG + 1));
        assert_eq!(refused_of_100(&mut g, "INVITE"), 0);
    }

    /// Returns how many requests are refused and shed in the end, with `offered` new requests a period of which
    /// `bearable` can be served.
    fn settles(offered: u32, bearable: u32) -> (u32, u32) {
        let mut g = guard(0, 0);
        let mut now = Time::from_secs(1);
        g.backlog(now, &backlog(MAX_WAIT * 2, 0));
        let mut last = (0, 0);
        for _ in 0..100 {
            let shed = u64::from(offered) * u64::from(g.shed()) / u64::from(SHED_ALL);
            let taken_in = offered - shed as u32;
            g.inlet.served = taken_in.min(bearable);
            g.inlet.refused = taken_in - g.inlet.served;
            last = (g.inlet.refused, shed as u32);
            now += SHED_PERIOD;
            g.backlog(now, &backlog(FULL_WAIT, 0));
        }
        last
    }

    #[test]
    fn no_more_are_refused_than_are_served() {
        for (offered, bearable, shed) in
            [(1_500, 1_000, 0), (2_000, 1_000, 0), (4_000, 1_000, 2_000)]
        {
            let (refused, turned) = settles(offered, bearable);
            assert!(turned.abs_diff(shed) < 30, "{offered}: {refused} refused, {turned} shed");
            assert!(refused.abs_diff(offered - bearable - shed) < 30, "{offered}: {refused}");
        }
        // Whatever the load, some are received.
        let (refused, shed) = settles(1_000_000, 1_000);
        assert!(refused > 10_000 && shed < 1_000_000, "{refused} {shed}");
    }

    #[test]
    fn what_comes_after_overload_is_taken_in() {
        let mut g = guard(0, 0);
        let second = Time::from_secs;
        g.backlog(second(1), &backlog(MAX_WAIT * 2, 0));
        assert_eq!(refused_of_100(&mut g, "INVITE"), 100);
        g.backlog(second(1) + SHED_PERIOD, &backlog(FULL_WAIT, 0));
        assert_eq!(g.shed(), SHED_ALL / 2);
        g.backlog(second(1) + SHED_PERIOD * 2, &backlog(LOW_WAIT, 0));
        assert!(g.shed() < SHED_ALL / 2);
        g.backlog(second(3), &backlog(LOW_WAIT, 0));
        assert_eq!(g.shed(), 0);
    }
}
