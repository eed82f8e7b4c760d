//! Requests that wait for an answer of the world about users of other servers.
//!
//! A parked request has its server transaction already, which absorbs retransmissions and sends what is answered again,
//! and holds a response context. It goes through routing once more when it is answered, with what has been found out
//! until then ([`Progress`]). The world need not answer: a request waits for [`MAX_WAIT`] in all.
//!
//! The table is shared among the sources as the [budget](super::budget) is: each may hold a part of what is free.

use super::ids::ContextId;
use super::question::{AskId, Question};
use super::request::{IncomingRequest, Progress};
use super::turn::Turn;
use hashbrown::HashMap;
use ringway_sansio::{Duration, Flow, Time, TimerId, TimerWheel};
use ringway_sip::message;
use ringway_sip::transaction::{ServerId, ServerKey};
use slab::Slab;

/// The number of requests that may wait. More are answered with 503.
pub const MAX_PARKED: usize = 10_000;

/// Of [`MAX_PARKED`], the requests of senders who have proved nothing.
pub const MAX_UNAUTHENTICATED_PARKED: usize = MAX_PARKED / 2;

/// The divisor of the free entries that one source may hold.
const PART: usize = 4;

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
}

/// The requests that wait.
pub(super) struct Parked {
    slab: Slab<ParkedRequest>,
    /// The index of each, by the context that it holds.
    contexts: HashMap<ContextId, u32>,
    /// The number of requests of each source.
    held: HashMap<u64, usize>,
    wheel: TimerWheel<AskId>,
    serial: u32,
}

impl Parked {
    pub(super) fn new(now: Time) -> Parked {
        Parked {
            slab: Slab::new(),
            contexts: HashMap::new(),
            held: HashMap::new(),
            wheel: TimerWheel::new(now),
            serial: 0,
        }
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
        free > 0 && self.held.get(&holder).copied().unwrap_or(0) < free.div_ceil(PART)
    }

    /// Stores a request, for which [`Turn::reserve_budget`] has reserved room, until its question is answered.
    pub(super) fn insert(
        &mut self,
        t: &Turn<'_>,
        incoming: &IncomingRequest<'_>,
        progress: Progress,
    ) -> AskId {
        self.serial = self.serial.wrapping_add(1);
        let id = AskId { index: self.slab.vacant_key() as u32, serial: self.serial };
        let [holder, _] = t.budget.holders(incoming.flow, None);
        let timer = self.wheel.set(progress.deadline, id);
        self.contexts.insert(progress.context, id.index);
        *self.held.entry(holder).or_insert(0) += 1;
        self.slab.insert(ParkedRequest {
            id,
            request: incoming.msg.whole().to_vec(),
            flow: *incoming.flow,
            key: incoming.key,
            progress,
            timer,
            holder,
        });
        id
    }

    /// Takes the request that waits for this answer, and releases its room.
    pub(super) fn take(&mut self, t: &mut Turn<'_>, id: AskId) -> Option<ParkedRequest> {
        self.slab.get(id.index as usize).filter(|parked| parked.id == id)?;
        let parked = self.slab.try_remove(id.index as usize)?;
        self.wheel.cancel(parked.timer);
        self.contexts.remove(&parked.progress.context);
        if let Some(held) = self.held.get_mut(&parked.holder) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&parked.holder);
            }
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
            self.held = HashMap::new();
        }
    }
}

impl ParkedRequest {
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

impl Progress {
    /// Records that a question is asked.
    pub(super) fn note_question(&mut self, question: &Question) {
        if let Question::Location { aor } = question {
            self.asked.push(aor.clone());
        }
    }
}
