//! What a race reports: its error, its reasons, and what is remembered of it.

use super::{Attempt, Question, Race, State};
use crate::endpoint::Remote;
use crate::explain::{Explanation, Line, Verdict};
use crate::memory::{Memory, Outcome};
use crate::protocol::Protocol;
use core::fmt;
use ringway_sansio::Time;

/// Why a race has no winner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// All attempts failed.
    AllFailed,
    /// The time was over.
    TimedOut,
}

/// What became of one attempt that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptError {
    /// The protocol.
    pub protocol: Protocol,
    /// The interface; `None` for the system's choice.
    pub interface: Option<String>,
    /// The peer.
    pub remote: Remote,
    /// The error.
    pub error: String,
}

/// All errors of a race without a winner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RaceError {
    /// Why there is no winner.
    pub cause: Cause,
    /// The attempts in the order of the candidates.
    pub attempts: Vec<AttemptError>,
    /// Names that did not resolve, with the error.
    pub names: Vec<(Question, String)>,
}

impl fmt::Display for RaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.cause {
            Cause::AllFailed => "no attempt connected",
            Cause::TimedOut => "no attempt connected in time",
        })?;
        for attempt in &self.attempts {
            write!(f, "; {} to {}", attempt.protocol.title(), attempt.remote)?;
            if let Some(interface) = &attempt.interface {
                write!(f, " on {interface}")?;
            }
            write!(f, ": {}", attempt.error)?;
        }
        for (question, error) in &self.names {
            write!(f, "; {} addresses of {}: {error}", question.family, question.host)?;
        }
        Ok(())
    }
}

impl core::error::Error for RaceError {}

impl Race {
    pub(super) fn error(&self, cause: Cause) -> RaceError {
        let attempts = self.attempts.iter().filter_map(|attempt| {
            let error = match &attempt.state {
                State::Failed(error) => error.clone(),
                State::Cancelled => "it was not answered in time".to_string(),
                _ => return None,
            };
            let candidate = &attempt.candidate;
            Some(AttemptError {
                protocol: candidate.protocol,
                interface: candidate.interface.clone(),
                remote: candidate.remote.clone(),
                error,
            })
        });
        let names = self
            .lookups
            .iter()
            .filter_map(|lookup| Some((lookup.question.clone(), lookup.error.clone()?)));
        RaceError { cause, attempts: attempts.collect(), names: names.collect() }
    }

    /// Returns why the winner won and what became of each other candidate. Before there is a winner, the reasons are those
    /// of the ranking.
    pub fn explanation(&self) -> Explanation {
        if self.winner().is_none() {
            return self.explanation.clone();
        }
        let mut lines: Vec<Line> = self.explanation.lines.clone();
        for line in &mut lines {
            let of = |attempt: &&Attempt| {
                attempt.candidate.protocol == line.protocol
                    && attempt.candidate.interface == line.interface
            };
            let states = || self.attempts.iter().filter(of).map(|attempt| &attempt.state);
            let mut failed = states().filter_map(|state| match state {
                State::Failed(error) => Some(error.clone()),
                _ => None,
            });
            if states().any(|state| matches!(state, State::Won { .. })) {
                if !line.verdict.is_chosen() {
                    line.verdict = Verdict::Connected;
                }
            } else if states().any(|state| *state == State::Cancelled) || line.verdict.is_chosen() {
                line.verdict = failed.next_back().map_or(Verdict::Slower, Verdict::Failed);
            } else if let Some(error) = failed.next_back() {
                line.verdict = Verdict::Failed(error);
            }
        }
        lines.sort_by_key(|line| !line.verdict.is_chosen());
        Explanation { lines }
    }

    /// Writes into `memory` which protocols worked and which failed with all addresses. A protocol without a handshake has
    /// shown nothing, and an isolated session leaves nothing (RFC 9622 section 8.1.10).
    pub fn remember(&self, now: Time, memory: &mut Memory) {
        if self.isolated {
            return;
        }
        for attempt in &self.attempts {
            let candidate = &attempt.candidate;
            match (&attempt.state, &candidate.remote) {
                (State::Won { took }, Remote::Address(address))
                    if candidate.protocol.has_handshake() =>
                {
                    let rtt = *took / candidate.protocol.round_trips().max(1);
                    let outcome = Outcome::Worked { rtt, address: address.ip() };
                    memory.record(now, candidate.key.clone(), outcome);
                }
                (State::Failed(_), _) => {
                    let mut same =
                        self.attempts.iter().filter(|one| one.candidate.key == candidate.key);
                    if same.all(|one| matches!(one.state, State::Failed(_))) {
                        memory.record(now, candidate.key.clone(), Outcome::Failed);
                    }
                }
                _ => {}
            }
        }
    }
}
