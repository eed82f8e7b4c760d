//! Attempts that race: Happy Eyeballs (RFC 8305) across protocols, paths and addresses (RFC 9623 section 4.3).
//!
//! The order is that of the candidates, crossed with that of their addresses: the second address of the best protocol
//! and the first of the second one come next to each other, so that neither a protocol that the peer lacks nor an
//! address family that does not work delays the rest by much. An attempt starts when the one before has failed or its
//! delay has passed. A protocol without a handshake always succeeds, whether or not there is a peer; so it starts only when
//! all that is ranked above it has failed, and what is ranked below it only when it has failed. Last resorts come at the
//! end, when all others have failed.

mod names;
mod report;

use crate::endpoint::Family;
use crate::explain::Explanation;
use crate::gather::{Candidate, Ranked};
use core::fmt;
use core::time::Duration;
use names::{Lookup, Template};
use ringway_sansio::{Time, time::sooner};
use std::collections::VecDeque;

pub use report::{AttemptError, Cause, RaceError};

/// Attempts of one race; addresses that a name resolves to beyond them are not tried.
pub const MAX_ATTEMPTS: usize = 512;

/// Times and bounds of a race.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Delay between attempts, unless the peer's round trip is known (RFC 8305 section 8: 250 ms).
    pub attempt_delay: Duration,
    /// Minimum delay that follows from a round trip (RFC 8305 section 8: 100 ms).
    pub min_delay: Duration,
    /// Maximum delay that follows from a round trip (RFC 8305 section 8: 2 s).
    pub max_delay: Duration,
    /// Time that IPv4 addresses wait for those of IPv6 (RFC 8305 section 8: 50 ms).
    pub resolution_delay: Duration,
    /// Time after which an attempt has failed.
    pub attempt_timeout: Duration,
    /// Time after which the race has failed.
    pub timeout: Duration,
    /// Maximum number of attempts at once.
    pub max_running: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            attempt_delay: Duration::from_millis(250),
            min_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(2),
            resolution_delay: Duration::from_millis(50),
            attempt_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            max_running: 6,
        }
    }
}

/// An attempt of a race.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptId(usize);

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name to resolve.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Question {
    /// The host.
    pub host: String,
    /// AAAA or A records.
    pub family: Family,
    /// The interface to ask at; `None` for the system's choice.
    pub interface: Option<String>,
}

/// What the caller must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Resolve a name and report by [`Race::resolved`].
    Resolve(Question),
    /// Connect and report by [`Race::succeeded`] or [`Race::failed`].
    Start(AttemptId, Candidate),
    /// Abandon an attempt, or close it if it has connected.
    Cancel(AttemptId),
    /// Use this attempt's connection. The race is over.
    Won(AttemptId),
    /// Report the error. The race is over.
    Lost(RaceError),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    Running { since: Time },
    Failed(String),
    Cancelled,
    Won { took: Duration },
}

#[derive(Clone, Debug)]
struct Attempt {
    candidate: Candidate,
    /// Attempts of one segment start only when all of the earlier ones have failed.
    segment: usize,
    state: State,
}

impl Attempt {
    /// Returns what attempts are sorted by: their sum of steps down the tree, where another path counts as two.
    fn key(&self) -> (usize, usize, usize, usize, usize) {
        let order = self.candidate.order;
        let steps = order.address + order.protocol + 2 * order.path;
        (self.segment, steps, order.path, order.protocol, order.address)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Racing,
    Won,
    Lost,
}

/// A race of attempts, which one connection wins.
///
/// ```
/// use core::time::Duration;
/// use ringway_sansio::Time;
/// use ringway_services::race::{Action, Race, Settings};
/// use ringway_services::{
///     Availability, Memory, Preconnection, RemoteEndpoint, SecurityParameters, TransportProperties,
/// };
///
/// let now = Time::from_secs(1);
/// let peer = RemoteEndpoint::address("192.0.2.1:80".parse()?);
/// let preconnection =
///     Preconnection::new(TransportProperties::new(), SecurityParameters::disabled()).to(peer);
/// let ranked = preconnection.candidates(now, &Availability::all(), &Memory::new())?;
/// let mut race = Race::new(now, ranked, Settings::default());
/// let Some(Action::Start(first, candidate)) = race.poll_action() else { panic!("an attempt") };
/// race.failed(now, first, "connection refused");
/// let Some(Action::Start(second, candidate)) = race.poll_action() else { panic!("another") };
/// race.succeeded(now + Duration::from_millis(30), second);
/// assert_eq!(race.poll_action(), Some(Action::Won(second)));
/// println!("{}", race.explanation());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Race {
    settings: Settings,
    deadline: Time,
    attempts: Vec<Attempt>,
    templates: Vec<Template>,
    lookups: Vec<Lookup>,
    /// When the next attempt may start.
    next_start: Time,
    actions: VecDeque<Action>,
    phase: Phase,
    explanation: Explanation,
    isolated: bool,
}

impl Race {
    /// Begins a race.
    pub fn new(now: Time, ranked: Ranked, settings: Settings) -> Self {
        let mut race = Race {
            settings,
            deadline: now + settings.timeout,
            attempts: Vec::new(),
            templates: Vec::new(),
            lookups: Vec::new(),
            next_start: now,
            actions: VecDeque::new(),
            phase: Phase::Racing,
            explanation: ranked.explanation,
            isolated: ranked.isolated,
        };
        let segments = segments(&ranked.candidates);
        for (candidate, segment) in ranked.candidates.into_iter().zip(segments) {
            race.enter(candidate, segment);
        }
        race.ask();
        race.advance(now);
        race
    }

    /// Reports that an attempt has connected.
    pub fn succeeded(&mut self, now: Time, id: AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id.0) else { return };
        let State::Running { since } = attempt.state else {
            // It was cancelled while its success was on the way.
            if attempt.state == State::Cancelled {
                self.actions.push_back(Action::Cancel(id));
            }
            return;
        };
        attempt.state = State::Won { took: now.since(since) };
        self.phase = Phase::Won;
        self.cancel_running();
        self.actions.push_back(Action::Won(id));
    }

    /// Reports that an attempt has failed. The next one starts at once (RFC 8305 section 5).
    pub fn failed(&mut self, now: Time, id: AttemptId, error: &str) {
        let Some(attempt) = self.attempts.get_mut(id.0) else { return };
        if !matches!(attempt.state, State::Running { .. }) {
            return;
        }
        attempt.state = State::Failed(error.to_string());
        self.next_start = self.next_start.min(now);
        self.advance(now);
    }

    /// Handles the time of [`poll_timeout`](Race::poll_timeout).
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// Ends the race without a winner, because the program no longer wants it.
    pub fn cancel(&mut self) {
        if self.phase == Phase::Racing {
            self.phase = Phase::Lost;
            self.cancel_running();
        }
    }

    /// Returns the next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns when [`handle_timeout`](Race::handle_timeout) is due; `None` when the race is over.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.phase != Phase::Racing {
            return None;
        }
        let startable = self.next().filter(|_| self.running() < self.settings.max_running);
        let next = startable.map(|_| self.next_start);
        let running = self.attempts.iter().filter_map(|attempt| match attempt.state {
            State::Running { since } => Some(since + self.settings.attempt_timeout),
            _ => None,
        });
        let soonest = sooner(running.min(), self.held_until());
        sooner(sooner(next, soonest), Some(self.deadline))
    }

    /// Returns the winner.
    pub fn winner(&self) -> Option<(AttemptId, &Candidate)> {
        let won = |attempt: &&Attempt| matches!(attempt.state, State::Won { .. });
        let index = self.attempts.iter().position(|attempt| won(&attempt))?;
        Some((AttemptId(index), &self.attempts[index].candidate))
    }

    /// Returns whether the race is over.
    pub fn is_over(&self) -> bool {
        self.phase != Phase::Racing
    }

    /// Adds a candidate: an attempt, or a name whose addresses become attempts.
    fn enter(&mut self, candidate: Candidate, segment: usize) {
        match Template::of(&candidate, segment) {
            Some(template) => self.templates.push(template),
            None => self.add(candidate, segment),
        }
    }

    fn add(&mut self, candidate: Candidate, segment: usize) {
        if self.attempts.len() < MAX_ATTEMPTS {
            self.attempts.push(Attempt { candidate, segment, state: State::Waiting });
        }
    }

    fn running(&self) -> usize {
        let running = |attempt: &&Attempt| matches!(attempt.state, State::Running { .. });
        self.attempts.iter().filter(running).count()
    }

    fn cancel_running(&mut self) {
        for (index, attempt) in self.attempts.iter_mut().enumerate() {
            if matches!(attempt.state, State::Running { .. }) {
                attempt.state = State::Cancelled;
                self.actions.push_back(Action::Cancel(AttemptId(index)));
            }
        }
    }

    /// Returns the next attempt, if nothing of an earlier segment is left to wait for.
    fn next(&self) -> Option<usize> {
        let waiting = self.attempts.iter().enumerate();
        let waiting = waiting.filter(|(_, attempt)| attempt.state == State::Waiting);
        let (index, next) = waiting.min_by_key(|(_, attempt)| attempt.key())?;
        let running = |attempt: &Attempt| matches!(attempt.state, State::Running { .. });
        let mut before = self.attempts.iter().filter(|attempt| attempt.segment < next.segment);
        (!before.any(running) && !self.is_resolving(next.segment)).then_some(index)
    }

    fn advance(&mut self, now: Time) {
        if self.phase != Phase::Racing {
            return;
        }
        self.expire(now);
        self.derive(now);
        if now >= self.deadline {
            return self.lose(Cause::TimedOut);
        }
        while now >= self.next_start && self.running() < self.settings.max_running {
            let Some(index) = self.next() else { break };
            let attempt = &mut self.attempts[index];
            attempt.state = State::Running { since: now };
            let candidate = attempt.candidate.clone();
            self.next_start = now + self.settings.delay(&candidate);
            self.actions.push_back(Action::Start(AttemptId(index), candidate));
        }
        let waiting = self.attempts.iter().any(|attempt| attempt.state == State::Waiting);
        if !waiting && self.running() == 0 && !self.is_resolving(usize::MAX) {
            self.lose(Cause::AllFailed);
        }
    }

    /// Ends attempts that have taken too long.
    fn expire(&mut self, now: Time) {
        for (index, attempt) in self.attempts.iter_mut().enumerate() {
            let State::Running { since } = attempt.state else { continue };
            if now >= since + self.settings.attempt_timeout {
                attempt.state = State::Failed("it timed out".to_string());
                self.next_start = self.next_start.min(now);
                self.actions.push_back(Action::Cancel(AttemptId(index)));
            }
        }
    }

    fn lose(&mut self, cause: Cause) {
        self.phase = Phase::Lost;
        self.cancel_running();
        let error = self.error(cause);
        self.actions.push_back(Action::Lost(error));
    }
}

impl Settings {
    /// Returns the delay after the start of an attempt: twice the time that it is expected to take.
    fn delay(&self, candidate: &Candidate) -> Duration {
        let expected = candidate.rtt.map(|rtt| candidate.protocol.setup_time(rtt));
        let Some(expected) = expected else { return self.attempt_delay };
        expected.saturating_mul(2).min(self.max_delay).max(self.min_delay)
    }
}

/// Returns the segment of each candidate, in their order.
fn segments(candidates: &[Candidate]) -> Vec<usize> {
    let (mut segment, mut previous) = (0, None);
    let mut segments = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let branch = (&candidate.interface, candidate.protocol);
        let kind = (candidate.last_resort, candidate.protocol.has_handshake());
        if let Some((before, kind_before)) = previous
            && before != branch
            && (kind != kind_before || !candidate.protocol.has_handshake())
        {
            segment += 1;
        }
        segments.push(segment);
        previous = Some((branch, kind));
    }
    segments
}
