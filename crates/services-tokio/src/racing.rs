//! Carries out a race: names, attempts and times, as `ringway_services::race` decides.

use crate::dial;
use crate::error::Error;
use crate::resolve;
use crate::transport::{Established, Request, Resources};
use ringway_services::Ranked;
use ringway_services::race::{Action, AttemptId, Question, Race, RaceError};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep_until;

/// What a task of a race has found out.
enum Found {
    Attempt(AttemptId, Box<Result<Established, Error>>),
    Name(Question, Result<Vec<IpAddr>, String>),
}

/// A race that has ended.
pub(crate) struct Raced {
    pub(crate) race: Race,
    pub(crate) result: Result<Established, RaceError>,
    /// Whether an attempt failed because no descriptors are left, so that the outcome is not that of the peer.
    pub(crate) is_exhausted: bool,
}

/// Runs a race. The losers are closed, also when the future is dropped.
pub(crate) async fn run(resources: &Arc<Resources>, request: &Request, ranked: Ranked) -> Raced {
    let mut race = Race::new(resources.clock.now(), ranked, resources.limits.race);
    let mut tasks = JoinSet::new();
    let mut attempts: HashMap<AttemptId, AbortHandle> = HashMap::new();
    let mut connected: HashMap<AttemptId, Established> = HashMap::new();
    let mut is_exhausted = false;
    loop {
        while let Some(action) = race.poll_action() {
            match action {
                Action::Resolve(question) => {
                    tasks.spawn(async move {
                        let answer = resolve::addresses(&question).await;
                        Found::Name(question, answer)
                    });
                }
                Action::Start(id, candidate) => {
                    let (resources, request) = (resources.clone(), request.clone());
                    let attempt = tasks.spawn(async move {
                        let result = dial::dial(&resources, &request, candidate).await;
                        Found::Attempt(id, Box::new(result))
                    });
                    attempts.insert(id, attempt);
                }
                Action::Cancel(id) => {
                    connected.remove(&id);
                    if let Some(attempt) = attempts.remove(&id) {
                        attempt.abort();
                    }
                }
                Action::Won(id) => {
                    if let Some(established) = connected.remove(&id) {
                        return Raced { race, result: Ok(established), is_exhausted };
                    }
                }
                Action::Lost(error) => {
                    return Raced { race, result: Err(error), is_exhausted };
                }
            }
        }
        let wakes = race.poll_timeout().map(|at| resources.clock.instant(at));
        tokio::select! {
            Some(found) = tasks.join_next() => match found {
                Ok(Found::Name(question, answer)) => race.resolved(resources.clock.now(), &question, answer),
                Ok(Found::Attempt(id, result)) => match *result {
                    Ok(established) => {
                        connected.insert(id, established);
                        race.succeeded(resources.clock.now(), id);
                    }
                    Err(error) => {
                        is_exhausted |= error.is_exhaustion();
                        race.failed(resources.clock.now(), id, &error.to_string());
                    }
                },
                // It was cancelled, and the race knows.
                Err(_) => {}
            },
            () = sleep_until(wakes.unwrap_or_else(far).into()), if wakes.is_some() => {
                race.handle_timeout(resources.clock.now());
            }
        }
    }
}

/// Returns an instant that is never waited for.
fn far() -> std::time::Instant {
    std::time::Instant::now() + std::time::Duration::from_secs(3_600)
}
