//! Requests that wait for an answer of the world about users of other servers.
//!
//! A parked request has its server transaction already, which absorbs retransmissions and sends what is answered again,
//! and holds a response context. It goes through routing once more when it is answered, with what has been found out
//! until then ([`Progress`]). The world need not answer: a request waits for [`MAX_WAIT`] in all.
//!
//! The table is shared among the sources as the [budget](super::budget) is: each may hold a part of what is free.

use super::ids::{AskId, ContextId};
use super::request::{IncomingRequest, Progress};
use super::turn::Turn;
use crate::backoff::MAX_FAILURES_PER_USER;
use crate::question::{CredentialsQuestion, Reply};
use hashbrown::HashMap;
use ringway_sansio::{Duration, Flow, Time, TimerId, TimerWheel};
use ringway_sip::message;
use ringway_sip::transaction::{ServerId, ServerKey};
use slab::Slab;
use std::net::SocketAddr;

/// The number of requests that may wait. More are answered with 503.
pub const MAX_PARKED: usize = 10_000;

/// Of [`MAX_PARKED`], the requests of senders who have proved nothing.
pub const MAX_UNAUTHENTICATED_PARKED: usize = MAX_PARKED / 2;

/// The divisor of the free entries that one source may hold.
const PART: usize = 4;

/// The number of requests of one source whose credentials other servers check at the same time. More are answered with
/// 503. With those that the [back-off](crate::backoff) counts, it limits the guesses before a source is blocked.
pub const MAX_CHECKS_PER_SOURCE: usize = 64;

/// The number of requests with credentials of one user that other servers check at the same time, from sources that have
/// not proved to be the user before.
pub const MAX_CHECKS_PER_USER: usize = MAX_FAILURES_PER_USER as usize;

/// The time for which a request waits, for all its questions together. What is not answered then is unavailable.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// A table larger than this is replaced by a small one when it becomes empty.
const KEEP_ENTRIES: usize = 1024;

/// A request that waits.
pub(super) struct ParkedRequest {
    id: AskId,
    request: Vec<u8>,
    flow: Flow,
    key: ServerKey,
    pub progress: Progress,
    timer: TimerId,
    holder: u64,
    check: Option<Check>,
}

/// The source, and the user, for whom other servers check credentials.
#[derive(Clone, Copy)]
pub(super) struct Check {
    source: u64,
    /// `None` if the source has proved to be this user before.
    user: Option<u64>,
}

/// The number of requests of each source or user.
#[derive(Default)]
struct Counts(HashMap<u64, usize>);

impl Counts {
    fn get(&self, holder: u64) -> usize {
        self.0.get(&holder).copied().unwrap_or(0)
    }

    fn add(&mut self, holder: u64) {
        *self.0.entry(holder).or_insert(0) += 1;
    }

    fn remove(&mut self, holder: u64) {
        if let Some(count) = self.0.get_mut(&holder) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&holder);
            }
        }
    }
}

/// The requests that wait.
pub(super) struct Parked {
    slab: Slab<ParkedRequest>,
    /// The index of each, by the context that it holds.
    contexts: HashMap<ContextId, u32>,
    /// The number of requests of each source.
    held: Counts,
    /// The number of requests of each source and user whose credentials are checked.
    checks: Counts,
    wheel: TimerWheel<AskId>,
    serial: u32,
}

impl Parked {
    /// Returns who has sent the requests that wait.
    pub(super) fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        self.slab.iter().map(|(_, request)| request.flow.remote)
    }

    pub(super) fn new(now: Time) -> Parked {
        Parked {
            slab: Slab::new(),
            contexts: HashMap::new(),
            held: Counts::default(),
            checks: Counts::default(),
            wheel: TimerWheel::new(now),
            serial: 0,
        }
    }

    /// Returns when the first of the requests that wait came.
    pub(super) fn since(&self) -> Option<Time> {
        self.slab.iter().map(|(_, request)| request.progress.came).min()
    }

    /// Returns the requests that wait.
    pub(super) fn ids(&self) -> Vec<AskId> {
        self.slab.iter().map(|(_, request)| request.id).collect()
    }

    /// Returns the number of requests that wait.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns the time at which [`Parked::expire`] should be called next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.wheel.next()
    }

    /// Returns the next question whose answer is overdue.
    pub(super) fn expire(&mut self, now: Time) -> Option<AskId> {
        self.wheel.expire(now)
    }

    /// Returns whether there is room for a request of this source. `known` is whether its sender has proved to be a user.
    pub(super) fn has_room(&self, t: &Turn<'_>, flow: &Flow, known: bool) -> bool {
        let room = if known { MAX_PARKED } else { MAX_UNAUTHENTICATED_PARKED };
        let free = room.saturating_sub(self.slab.len());
        let [holder, _] = t.budget.holders(flow, None);
        free > 0 && self.held.get(holder) < free.div_ceil(PART)
    }

    /// Returns the holders of a question about credentials, if there is room for one more. `known` is whether the source
    /// has proved to be this user before.
    pub(super) fn check(
        &self,
        t: &Turn<'_>,
        flow: &Flow,
        question: &CredentialsQuestion,
        known: bool,
    ) -> Option<Check> {
        let user = String::from_utf8_lossy(&question.user);
        let realm = String::from_utf8_lossy(&question.realm);
        let [source, user] = t.budget.holders(flow, Some(&format!("{user}@{realm}")));
        let user = Some(user).filter(|_| !known);
        let fits = self.checks.get(source) < MAX_CHECKS_PER_SOURCE
            && user.is_none_or(|user| self.checks.get(user) < MAX_CHECKS_PER_USER);
        fits.then_some(Check { source, user })
    }

    /// Stores a request, for which [`Turn::reserve_budget`] has reserved room, until its question is answered.
    pub(super) fn insert(
        &mut self,
        t: &Turn<'_>,
        incoming: &IncomingRequest<'_>,
        progress: Progress,
        check: Option<Check>,
    ) -> AskId {
        self.serial = self.serial.wrapping_add(1);
        let id = AskId { index: self.slab.vacant_key() as u32, serial: self.serial };
        let [holder, _] = t.budget.holders(incoming.flow, None);
        let timer = self.wheel.set(progress.deadline, id);
        self.contexts.insert(progress.context, id.index);
        self.held.add(holder);
        if let Some(Check { source, user }) = check {
            self.checks.add(source);
            user.into_iter().for_each(|user| self.checks.add(user));
        }
        self.slab.insert(ParkedRequest {
            id,
            request: incoming.msg.whole().to_vec(),
            flow: *incoming.flow,
            key: incoming.key,
            progress,
            timer,
            holder,
            check,
        });
        id
    }

    /// Takes the request that waits for this answer, and releases its room.
    pub(super) fn take(&mut self, t: &mut Turn<'_>, id: AskId) -> Option<ParkedRequest> {
        self.slab.get(id.index as usize).filter(|parked| parked.id == id)?;
        let parked = self.slab.try_remove(id.index as usize)?;
        self.wheel.cancel(parked.timer);
        self.contexts.remove(&parked.progress.context);
        self.held.remove(parked.holder);
        if let Some(Check { source, user }) = parked.check {
            self.checks.remove(source);
            user.into_iter().for_each(|user| self.checks.remove(user));
        }
        t.release_budget(parked.request.len(), &parked.flow, None);
        self.shrink();
        Some(parked)
    }

    /// Takes the request that holds this context.
    pub(super) fn take_by_context(
        &mut self,
        t: &mut Turn<'_>,
        context: ContextId,
    ) -> Option<ParkedRequest> {
        let index = *self.contexts.get(&context)?;
        let id = self.slab.get(index as usize)?.id;
        self.take(t, id)
    }

    /// Returns whether a request waits that holds this context.
    pub(super) fn holds(&self, context: ContextId) -> bool {
        self.contexts.contains_key(&context)
    }

    fn shrink(&mut self) {
        if self.slab.is_empty() && self.slab.capacity() > KEEP_ENTRIES {
            self.slab = Slab::new();
            self.contexts = HashMap::new();
            self.held = Counts::default();
            self.checks = Counts::default();
        }
    }
}

impl ParkedRequest {
    /// Records the reply to its question. A verdict counts only if it was asked for.
    pub(super) fn note_reply(&mut self, reply: Reply) {
        if let (Reply::Credentials(verdict), Some(_)) = (reply, self.check) {
            self.progress.note_verdict(verdict);
        }
    }

    /// Runs `f` with the request, parsed again. Returns its transaction if it cannot be parsed.
    pub(super) fn read(
        &self,
        t: &mut Turn<'_>,
        f: impl FnOnce(&mut Turn<'_>, &IncomingRequest<'_>),
    ) -> Option<ServerId> {
        let Ok(msg) = message::parse(&self.request) else { return Some(self.progress.server) };
        let Ok(via) = msg.top_via() else { return Some(self.progress.server) };
        let (flow, progress) = (&self.flow, Some(&self.progress));
        f(t, &IncomingRequest { flow, msg: &msg, via: &via, key: self.key, progress });
        None
    }
}
