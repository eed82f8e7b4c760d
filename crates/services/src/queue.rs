//! The order in which messages go to a transport: priorities, lifetimes and bounds (RFC 9622 section 9.2.6).
//!
//! Among connections, the scheduler of the group decides (`connScheduler`). Within a connection, ordered messages go in the
//! order in which they came; an unordered one may pass them by its priority (`msgPriority`); the last message of the
//! connection goes behind all. An expired message is dropped with an event. When the queue is full, an unreliable message
//! of lower priority makes room (RFC 7496 section 3.3), or else the new one is refused.

use crate::properties::{DEFAULT_PRIORITY, Scheduler};
use crate::sending::Sending;
use core::cmp::Reverse;
use core::time::Duration;
use ringway_sansio::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thiserror::Error;

/// A connection of the group, by the caller's number.
pub type ConnectionId = u64;

/// A message in the queue. Numbers grow with time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(u64);

/// What a queue holds at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Messages of all connections.
    pub messages: usize,
    /// Octets of all messages.
    pub octets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { messages: 4_096, octets: 4 * 1024 * 1024 }
    }
}

/// What became of a message that was not handed to the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Its lifetime was over (RFC 9622 section 9.2.2.2).
    Expired(ConnectionId, MessageId),
    /// It made room for one of higher priority.
    Discarded(ConnectionId, MessageId),
}

/// Why a message is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PushError {
    /// The queue is full of messages that are not less important.
    #[error("the queue of {messages} messages and {octets} octets is full")]
    Full {
        /// Messages in the queue.
        messages: usize,
        /// Octets in the queue.
        octets: usize,
    },
    /// The last message of the connection came before (RFC 9622 section 9.1.3.5).
    #[error("the last message of the connection has been sent")]
    Ended,
}

/// A message whose turn it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Next<M> {
    /// Its number.
    pub id: MessageId,
    /// Its connection.
    pub connection: ConnectionId,
    /// The message.
    pub message: M,
    /// Its properties.
    pub sending: Sending,
    /// What is left of its lifetime, for transports that can abandon it later.
    pub lifetime_left: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Item<M> {
    connection: ConnectionId,
    message: M,
    length: usize,
    sending: Sending,
    expires: Option<Time>,
}

/// The messages of one connection.
#[derive(Clone, Debug)]
struct Lane {
    priority: u32,
    /// By age, with the priority of each.
    ordered: BTreeMap<u64, u32>,
    /// By priority, then by age.
    unordered: BTreeSet<(u32, u64)>,
    last: Option<u64>,
    ended: bool,
    /// Virtual time at which what was sent is paid for.
    paid: u128,
    /// Its entry in the order of turns.
    turn: Option<Turn>,
}

/// What connections are sorted by: virtual time or priority, then priority, then age.
type Turn = (u128, u32, u64);

/// Messages of the connections of one group.
#[derive(Clone, Debug)]
pub struct SendQueue<M> {
    limits: Limits,
    scheduler: Scheduler,
    items: BTreeMap<u64, Item<M>>,
    lanes: BTreeMap<ConnectionId, Lane>,
    turns: BTreeSet<(Turn, ConnectionId)>,
    expiries: BTreeSet<(Time, u64)>,
    /// Unreliable messages, the least important first: by descending priorities of connection and message, then by age.
    expendable: BTreeSet<(Reverse<(u32, u32)>, u64)>,
    octets: usize,
    next_id: u64,
    /// Virtual time: the turn of the message that was taken last.
    clock: u128,
    events: VecDeque<Event>,
    refused: u64,
}

impl<M> SendQueue<M> {
    /// Returns an empty queue.
    pub fn new(limits: Limits, scheduler: Scheduler) -> Self {
        SendQueue {
            limits,
            scheduler,
            items: BTreeMap::new(),
            lanes: BTreeMap::new(),
            turns: BTreeSet::new(),
            expiries: BTreeSet::new(),
            expendable: BTreeSet::new(),
            octets: 0,
            next_id: 0,
            clock: 0,
            events: VecDeque::new(),
            refused: 0,
        }
    }

    /// Sets the priority of a connection, also for messages in the queue (`connPriority`).
    pub fn set_priority(&mut self, connection: ConnectionId, priority: u32) {
        let before = core::mem::replace(&mut self.lane(connection).priority, priority);
        for id in self.ids(connection) {
            if let Some(key) = self.expendable_key(id, before) {
                self.expendable.remove(&key);
            }
            self.expendable.extend(self.expendable_key(id, priority));
        }
        self.sort(connection);
    }

    /// Adds a message of `length` octets.
    ///
    /// # Errors
    /// The queue is full, or the last message of the connection came before. The message is returned.
    pub fn push(
        &mut self,
        now: Time,
        connection: ConnectionId,
        message: M,
        length: usize,
        sending: Sending,
    ) -> Result<MessageId, (PushError, M)> {
        let lane = self.lane(connection);
        if lane.ended {
            return Err((PushError::Ended, message));
        }
        let priority = lane.priority;
        if !self.make_room(now, length, (priority, sending.priority)) {
            self.refused += 1;
            let (messages, octets) = (self.items.len(), self.octets);
            return Err((PushError::Full { messages, octets }, message));
        }
        let id = self.next_id;
        self.next_id += 1;
        let expires = sending.lifetime.map(|lifetime| now + lifetime);
        self.items.insert(id, Item { connection, message, length, sending, expires });
        self.octets += length;
        self.expiries.extend(expires.map(|expires| (expires, id)));
        self.expendable.extend(self.expendable_key(id, priority));
        let clock = self.clock;
        let lane = self.lane(connection);
        if lane.turn.is_none() {
            // A connection that was idle has saved nothing up.
            lane.paid = lane.paid.max(clock);
        }
        if sending.last {
            lane.ended = true;
            lane.last = Some(id);
        } else if sending.ordered {
            lane.ordered.insert(id, sending.priority);
        } else {
            lane.unordered.insert((sending.priority, id));
        }
        self.sort(connection);
        Ok(MessageId(id))
    }

    /// Returns the next message of a connection that can take one, and removes it.
    pub fn next(
        &mut self,
        now: Time,
        mut can_take: impl FnMut(ConnectionId) -> bool,
    ) -> Option<Next<M>> {
        self.expire(now);
        let turn = self.turns.iter().find(|(_, connection)| can_take(*connection));
        let ((virtual_time, _, _), connection) = *turn?;
        let id = self.lanes.get(&connection)?.head()?;
        let item = self.take(id)?;
        let fair = matches!(
            self.scheduler,
            Scheduler::FairBandwidth | Scheduler::WeightedFairQueueing | Scheduler::RoundRobin
        );
        if fair {
            self.clock = self.clock.max(virtual_time);
        }
        let cost = self.cost(connection, item.length);
        let lane = self.lane(connection);
        lane.paid += cost;
        self.sort(connection);
        let lifetime_left = item.expires.map(|expires| expires.since(now));
        let Item { message, sending, .. } = item;
        Some(Next { id: MessageId(id), connection, message, sending, lifetime_left })
    }

    /// Drops what has expired.
    pub fn expire(&mut self, now: Time) {
        while let Some(&(at, id)) = self.expiries.first()
            && at <= now
        {
            if let Some(item) = self.take(id) {
                self.events.push_back(Event::Expired(item.connection, MessageId(id)));
            } else {
                self.expiries.remove(&(at, id));
            }
        }
    }

    /// Removes a connection with its messages, whose numbers are returned.
    pub fn remove(&mut self, connection: ConnectionId) -> Vec<MessageId> {
        let ids = self.ids(connection);
        for id in &ids {
            self.take(*id);
        }
        if let Some(turn) = self.lanes.remove(&connection).and_then(|lane| lane.turn) {
            self.turns.remove(&(turn, connection));
        }
        ids.into_iter().map(MessageId).collect()
    }

    /// Returns when the next message expires.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Returns what became of messages that were not handed over.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the number of octets of all messages.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the number of messages that were refused because the queue was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn lane(&mut self, connection: ConnectionId) -> &mut Lane {
        self.lanes.entry(connection).or_insert_with(|| Lane {
            priority: DEFAULT_PRIORITY,
            ordered: BTreeMap::new(),
            unordered: BTreeSet::new(),
            last: None,
            ended: false,
            paid: 0,
            turn: None,
        })
    }

    fn ids(&self, connection: ConnectionId) -> Vec<u64> {
        let Some(lane) = self.lanes.get(&connection) else { return Vec::new() };
        let unordered = lane.unordered.iter().map(|(_, id)| *id);
        lane.ordered.keys().copied().chain(unordered).chain(lane.last).collect()
    }

    /// Returns what an unreliable message of a connection of this priority is sorted by.
    fn expendable_key(&self, id: u64, priority: u32) -> Option<(Reverse<(u32, u32)>, u64)> {
        let item = self.items.get(&id).filter(|item| !item.sending.reliable)?;
        Some((Reverse((priority, item.sending.priority)), id))
    }

    /// Removes a message from all lists.
    fn take(&mut self, id: u64) -> Option<Item<M>> {
        let item = self.items.remove(&id)?;
        self.octets -= item.length;
        if let Some(expires) = item.expires {
            self.expiries.remove(&(expires, id));
        }
        let connection = item.connection;
        if let Some(lane) = self.lanes.get_mut(&connection) {
            lane.ordered.remove(&id);
            lane.unordered.remove(&(item.sending.priority, id));
            lane.last = lane.last.filter(|last| *last != id);
            let key = Reverse((lane.priority, item.sending.priority));
            self.expendable.remove(&(key, id));
        }
        self.sort(connection);
        Some(item)
    }

    /// Makes room for a message, if need be by dropping unreliable ones of lower priority.
    fn make_room(&mut self, now: Time, length: usize, priority: (u32, u32)) -> bool {
        self.expire(now);
        if length > self.limits.octets || self.limits.messages == 0 {
            return false;
        }
        let has_room = |messages: usize, octets: usize, limits: &Limits| {
            messages < limits.messages && octets + length <= limits.octets
        };
        // What would have to go is counted first, so that nothing is dropped for a message that is refused anyway.
        let (mut messages, mut octets) = (self.items.len(), self.octets);
        let mut victims = Vec::new();
        for (key, id) in &self.expendable {
            if has_room(messages, octets, &self.limits) || key.0 <= priority {
                break;
            }
            messages -= 1;
            octets -= self.items.get(id).map_or(0, |item| item.length);
            victims.push(*id);
        }
        if !has_room(messages, octets, &self.limits) {
            return false;
        }
        for id in victims {
            if let Some(item) = self.take(id) {
                self.events.push_back(Event::Discarded(item.connection, MessageId(id)));
            }
        }
        true
    }

    /// Returns what a message costs its connection in virtual time.
    fn cost(&self, connection: ConnectionId, length: usize) -> u128 {
        let length = length as u128 + 1;
        match self.scheduler {
            Scheduler::FirstComeFirstServed | Scheduler::Priority => 0,
            Scheduler::RoundRobin => 1,
            Scheduler::FairBandwidth => length,
            // RFC 8260 section 3.6; a lower number is a higher priority and a larger share.
            Scheduler::WeightedFairQueueing => {
                let priority = self.lanes.get(&connection).map_or(0, |lane| lane.priority);
                length * (u128::from(priority) + 1)
            }
        }
    }

    /// Sorts a connection into the order of turns.
    fn sort(&mut self, connection: ConnectionId) {
        let Some(lane) = self.lanes.get(&connection) else { return };
        let turn = lane.head().and_then(|id| {
            let length = self.items.get(&id)?.length;
            let at = match self.scheduler {
                Scheduler::FirstComeFirstServed => 0,
                Scheduler::Priority => u128::from(lane.priority),
                // The turn is when the message would be paid for, so that a small share waits longer.
                _ => lane.paid + self.cost(connection, length),
            };
            let priority = match self.scheduler {
                Scheduler::FirstComeFirstServed => 0,
                _ => lane.priority,
            };
            Some((at, priority, id))
        });
        let Some(lane) = self.lanes.get_mut(&connection) else { return };
        let before = core::mem::replace(&mut lane.turn, turn);
        if before == turn {
            return;
        }
        if let Some(before) = before {
            self.turns.remove(&(before, connection));
        }
        self.turns.extend(turn.map(|turn| (turn, connection)));
    }
}

impl Lane {
    /// Returns the message that goes next.
    fn head(&self) -> Option<u64> {
        let ordered = self.ordered.first_key_value().map(|(id, priority)| (*priority, *id));
        let unordered = self.unordered.first().copied();
        match (ordered, unordered) {
            (None, None) => self.last,
            (Some(one), Some(other)) => Some(one.min(other).1),
            (one, other) => one.or(other).map(|(_, id)| id),
        }
    }
}

#[cfg(test)]
mod tests;
