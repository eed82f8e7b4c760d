//! The table of calls in progress, built from the steps that workers report.

use super::record::{Call, CallRecord, End, Entry};
use ringway_proxy::{CallEvent, CallStep};
use ringway_sansio::Time;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Maximum number of calls that are tracked at one time. For further calls no state is shown, and
/// their records have no duration.
pub const MAX_CALLS: usize = 100_000;
/// Maximum age of a tracked call. The end of a call may never be seen: without Record-Route no BYE
/// passes here, and a phone may lose its network.
pub const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of callees of one call whose BYE is tracked.
const MAX_CALLEES: usize = 8;

/// Result of a step.
pub(super) enum Outcome<'a> {
    /// The call began or continues.
    Active(&'a Entry),
    /// The call ended. [`Entry::record`] makes a record of it with the callee's tag.
    Ended(Box<Entry>, Box<str>, End),
    /// The step is a repetition, or its call is unknown.
    Ignored,
}

/// The table of calls in progress.
pub(super) struct Table {
    /// Whether BYE requests are expected to pass through this proxy.
    pub(super) ends_seen: bool,
    /// Calls by number, in the order in which they began.
    calls: BTreeMap<u64, Entry>,
    /// Numbers of calls by a hash of Call-ID and the caller's tag.
    by_key: HashMap<u64, u64>,
    hash: RandomState,
    next: u64,
    /// Number of calls that could not be tracked.
    pub(super) untracked: u64,
}

impl Default for Table {
    fn default() -> Self {
        Table {
            ends_seen: true,
            calls: BTreeMap::new(),
            by_key: HashMap::new(),
            hash: RandomState::new(),
            next: 0,
            untracked: 0,
        }
    }
}

impl Table {
    fn key(&self, event: &CallEvent) -> u64 {
        self.hash.hash_one((event.call.call_id(), event.call.from_tag()))
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Applies a step. `logged` decides whether a call that begins is logged.
    pub(super) fn step(&mut self, event: &CallEvent, logged: impl FnOnce() -> bool) -> Outcome<'_> {
        let key = self.key(event);
        let known = self.by_key.get(&key).copied();
        match event.step {
            CallStep::Began if known.is_some() => Outcome::Ignored,
            CallStep::Began => self.begin(key, event, logged()),
            CallStep::Answered { status } => self.answer(known, key, event, status, logged),
            CallStep::Failed { status } => {
                let end = End::Failed { at: event.at, status };
                // A late response of another branch does not end an answered call.
                if known.and_then(|id| self.calls.get(&id)).is_some_and(|c| c.answered.is_some()) {
                    return Outcome::Ignored;
                }
                self.end(known, key, event, end)
            }
            CallStep::Ended { by_caller } => {
                let end = End::HungUp { at: event.at, by_caller };
                if let Some(call) = known.and_then(|id| self.calls.get_mut(&id)) {
                    let before = call.to_tags.len();
                    call.to_tags.retain(|tag| *tag != event.to_tag);
                    // Another callee of the same call has not hung up, or this tag is unknown.
                    let other = call.to_tags.len() == before && before > 1;
                    if other || !call.to_tags.is_empty() && call.to_tags.len() < before {
                        return Outcome::Ignored;
                    }
                }
                self.end(known, key, event, end)
            }
            // `CallStep` may gain variants in a later version.
            #[allow(unreachable_patterns)]
            _ => Outcome::Ignored,
        }
    }

    fn begin(&mut self, key: u64, event: &CallEvent, logged: bool) -> Outcome<'_> {
        if self.calls.len() >= MAX_CALLS {
            self.untracked += 1;
            return Outcome::Ignored;
        }
        let id = self.next;
        self.next += 1;
        self.by_key.insert(key, id);
        Outcome::Active(self.calls.entry(id).or_insert(Entry { logged, ..Entry::new(event) }))
    }

    fn answer(
        &mut self,
        known: Option<u64>,
        key: u64,
        event: &CallEvent,
        status: u16,
        logged: impl FnOnce() -> bool,
    ) -> Outcome<'_> {
        let id = match known {
            Some(id) => id,
            // The step that began the call was dropped: the queue was full.
            None => match self.begin(key, event, logged()) {
                Outcome::Active(_) => self.next - 1,
                _ => return Outcome::Ignored,
            },
        };
        let Some(call) = self.calls.get_mut(&id) else { return Outcome::Ignored };
        if call.to_tags.len() < MAX_CALLEES && !call.to_tags.contains(&event.to_tag) {
            call.to_tags.push(event.to_tag.clone());
        }
        if known.is_some() && call.answered.is_some() {
            return Outcome::Ignored;
        }
        call.answered = Some((event.at, status));
        call.destination = event.destination.or(call.destination);
        if let Some(gateway) = &event.gateway {
            call.gateway = Some(gateway.clone());
        }
        if !self.ends_seen {
            return self.end(Some(id), key, event, End::Unseen);
        }
        self.calls.get(&id).map_or(Outcome::Ignored, Outcome::Active)
    }

    fn end(&mut self, known: Option<u64>, key: u64, event: &CallEvent, end: End) -> Outcome<'_> {
        let call = known.and_then(|id| self.calls.remove(&id));
        self.by_key.remove(&key);
        let mut call = match call {
            Some(call) => call,
            None => Entry::new(event),
        };
        call.destination = call.destination.or(event.destination);
        if call.gateway.is_none() {
            call.gateway.clone_from(&event.gateway);
        }
        Outcome::Ended(Box::new(call), event.to_tag.clone(), end)
    }

    /// Removes the calls that began longer ago than [`MAX_AGE`], or every call if `all` is set, and
    /// returns their records.
    pub(super) fn expire(&mut self, now: Time, all: bool) -> Vec<CallRecord> {
        let mut out = Vec::new();
        while let Some(first) = self.calls.first_entry() {
            if !all && now.since(first.get().info.began) < MAX_AGE {
                break;
            }
            let call = first.remove();
            let tag = call.to_tags.first().cloned().unwrap_or_default();
            out.push(call.record(&tag, End::Unseen));
        }
        if !out.is_empty() {
            let calls = &self.calls;
            self.by_key.retain(|_, id| calls.contains_key(id));
        }
        out
    }

    /// Returns at most `limit` calls after the one numbered `after`, and the number of the last;
    /// `None` on the last page.
    pub(super) fn page(
        &self,
        after: Option<u64>,
        limit: usize,
        now: Time,
    ) -> (Vec<Call>, Option<u64>) {
        let from = after.map_or(0, |after| after.saturating_add(1));
        let mut calls = Vec::new();
        let mut last = None;
        for (id, call) in self.calls.range(from..).take(limit) {
            calls.push(call.call(now));
            last = Some(*id);
        }
        let more = last.is_some_and(|last| self.calls.range(last + 1..).next().is_some());
        (calls, last.filter(|_| more))
    }
}
