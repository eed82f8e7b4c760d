//! Connections to one peer as streams of one association (RFC 9622 section 7.4, RFC 9623 sections 4.5 and 10.6).
//!
//! Connections share an association if all that was asked for them is equal, but for their priorities and the properties
//! of their messages. The end that opened the association uses streams of even numbers, the peer those of odd ones; the
//! connection that the association was opened for has stream 0. When no stream is left, another association is opened.
//! Closing a connection ends its stream and leaves the others; an association that has none is closed after a while.

use crate::preconnection::Preconnection;
use crate::properties::{DEFAULT_PRIORITY, MessageProperties, Preference, Role, Service};
use crate::queue::ConnectionId;
use core::time::Duration;
use ringway_sansio::Time;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// A transport connection that carries one connection or more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AssociationId(pub u64);

/// Bounds of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Associations in total.
    pub associations: usize,
    /// Associations for connections of which all that was asked for is equal.
    pub of_key: usize,
    /// Connections in total.
    pub connections: usize,
    /// Time for which an association without connections is kept.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            associations: 4_096,
            of_key: 64,
            connections: 65_536,
            idle: Duration::from_secs(10),
        }
    }
}

/// Where a connection goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// To stream 0 of an association that the caller must open.
    Open(AssociationId),
    /// To a stream of an association that is open.
    Stream(AssociationId, u32),
    /// To an association that is being opened; [`Pool::opened`] returns its stream.
    Wait(AssociationId),
}

/// What the caller must close for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// The stream alone; [`Pool::released`] when the peer has closed it, too.
    Stream(AssociationId, u32),
    /// The association, or the attempts to open it.
    Association(AssociationId),
}

/// What an open association can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Numbers of streams, of both ends together; what is not used by one end is not by the other.
    pub streams: u32,
    /// Whether it has streams ([`Service::Multistreaming`]).
    pub multistreaming: bool,
    /// Whether the peer learns of a stream before there is data, as with framing.
    pub announces_streams: bool,
}

/// Why a connection is not assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There are as many associations as there may be.
    #[error("{0} associations are open, which is the limit")]
    Associations(usize),
    /// There are as many connections as there may be.
    #[error("{0} connections are open, which is the limit")]
    Connections(usize),
    /// The peer opens more streams than `groupConnLimit` allows.
    #[error("the peer has {0} connections in the group, which is groupConnLimit")]
    GroupLimit(u32),
    /// The connection, or the peer's stream, is there already.
    #[error("connection or stream {0} is in use")]
    InUse(u64),
    /// The association is not open.
    #[error("the association is not open")]
    NotOpen,
    /// The association has no streams, or all of them are in use.
    #[error("the association has no stream left")]
    NoStream,
}

#[derive(Clone, Debug)]
struct Association {
    /// What its connections have in common; `None` for one that the peer opened.
    key: Option<Preconnection>,
    opened: Option<Opened>,
    streams: BTreeMap<u32, ConnectionId>,
    /// Streams that have ended here and not yet at the peer.
    closing: BTreeSet<u32>,
    waiting: Vec<ConnectionId>,
    /// Connections that the peer may add.
    group_limit: Option<u32>,
    idle_since: Option<Time>,
}

/// Which stream of which association each connection has.
#[derive(Clone, Debug)]
pub struct Pool {
    limits: Limits,
    associations: BTreeMap<AssociationId, Association>,
    by_key: BTreeMap<Preconnection, BTreeSet<AssociationId>>,
    connections: BTreeMap<ConnectionId, AssociationId>,
    next_id: u64,
}

/// Returns what the connections of an association have in common.
fn key(preconnection: &Preconnection) -> Preconnection {
    let mut key = preconnection.clone();
    // RFC 9622 section 7.4: priorities differ within a group, and so do messages.
    key.properties.connection.conn_priority = DEFAULT_PRIORITY;
    let safely_replayable = key.properties.message.safely_replayable;
    key.properties.message = MessageProperties { safely_replayable, ..Default::default() };
    key
}

/// Returns whether a program lets its connection be a stream among others.
fn may_share(preconnection: &Preconnection) -> bool {
    let multistreaming = preconnection.preference(Service::Multistreaming, Role::Initiate);
    !matches!(multistreaming, Preference::Avoid | Preference::Prohibit)
        && !preconnection.properties.connection.isolate_session
}

impl Association {
    fn new(key: Option<Preconnection>, group_limit: Option<u32>) -> Self {
        Association {
            key,
            opened: None,
            streams: BTreeMap::new(),
            closing: BTreeSet::new(),
            waiting: Vec::new(),
            group_limit,
            idle_since: None,
        }
    }

    /// Returns whether connections that this end opens may be its streams.
    fn takes(&self) -> bool {
        let Some((key, opened)) = self.key.as_ref().zip(self.opened) else { return false };
        // RFC 9622 section 6.2.18: a stream that the peer does not see yet cannot be read first.
        let reads_first = matches!(
            key.preference(Service::ActiveReadBeforeSend, Role::Initiate),
            Preference::Require | Preference::Prefer
        );
        opened.multistreaming && may_share(key) && (opened.announces_streams || !reads_first)
    }

    /// Returns the lowest stream that is free (RFC 9623 section 10.6).
    fn free_stream(&self) -> Option<u32> {
        let streams = self.opened.filter(|_| self.takes())?.streams;
        self.unused(0, streams)
    }

    /// Returns the lowest stream below `streams` that is free, of those with the parity of `first`.
    fn unused(&self, first: u32, streams: u32) -> Option<u32> {
        let used =
            |stream: &u32| self.streams.contains_key(stream) || self.closing.contains(stream);
        (first..streams).step_by(2).find(|stream| !used(stream))
    }

    fn is_idle(&self) -> bool {
        self.opened.is_some() && self.streams.is_empty()
    }
}

impl Pool {
    /// Returns an empty pool.
    pub fn new(limits: Limits) -> Self {
        Pool {
            limits,
            associations: BTreeMap::new(),
            by_key: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_id: 0,
        }
    }

    /// Returns where a new connection goes.
    ///
    /// # Errors
    /// A limit is reached, or the number of the connection is in use.
    pub fn connect(
        &mut self,
        connection: ConnectionId,
        preconnection: &Preconnection,
    ) -> Result<Assignment, PoolError> {
        self.admit(connection)?;
        self.assign(connection, &key(preconnection))
    }

    fn admit(&self, connection: ConnectionId) -> Result<(), PoolError> {
        if self.connections.contains_key(&connection) {
            return Err(PoolError::InUse(connection));
        }
        if self.connections.len() >= self.limits.connections {
            return Err(PoolError::Connections(self.limits.connections));
        }
        Ok(())
    }

    fn assign(
        &mut self,
        connection: ConnectionId,
        key: &Preconnection,
    ) -> Result<Assignment, PoolError> {
        let known = self.by_key.get(key).cloned().unwrap_or_default();
        for &id in &known {
            let Some(association) = self.associations.get_mut(&id) else { continue };
            if let Some(stream) = association.free_stream() {
                association.streams.insert(stream, connection);
                association.idle_since = None;
                self.connections.insert(connection, id);
                return Ok(Assignment::Stream(id, stream));
            }
        }
        let is_opening = |id: &&AssociationId| {
            self.associations.get(id).is_some_and(|association| association.opened.is_none())
        };
        if let Some(&id) = known.iter().find(is_opening).filter(|_| may_share(key))
            && let Some(association) = self.associations.get_mut(&id)
        {
            association.waiting.push(connection);
            self.connections.insert(connection, id);
            return Ok(Assignment::Wait(id));
        }
        if self.associations.len() >= self.limits.associations {
            return Err(PoolError::Associations(self.limits.associations));
        }
        if known.len() >= self.limits.of_key {
            return Err(PoolError::Associations(self.limits.of_key));
        }
        let id = self.insert(Association::new(Some(key.clone()), group_limit(key)));
        self.by_key.entry(key.clone()).or_default().insert(id);
        if let Some(association) = self.associations.get_mut(&id) {
            association.streams.insert(0, connection);
        }
        self.connections.insert(connection, id);
        Ok(Assignment::Open(id))
    }

    /// Returns where a connection goes that is added to the group of one that is open (RFC 9622 section 7.4). The end that
    /// did not open the association adds streams of odd numbers.
    ///
    /// # Errors
    /// A limit is reached, the number of the connection is in use, the association is not open, or it has no stream left.
    pub fn join(&mut self, id: AssociationId, connection: ConnectionId) -> Result<u32, PoolError> {
        self.admit(connection)?;
        let association = self.associations.get_mut(&id).ok_or(PoolError::NotOpen)?;
        let opened = association.opened.ok_or(PoolError::NotOpen)?;
        let first = u32::from(association.key.is_none());
        let shares = opened.multistreaming && association.key.as_ref().is_none_or(may_share);
        let stream = association.unused(first, opened.streams).filter(|_| shares);
        let stream = stream.ok_or(PoolError::NoStream)?;
        association.streams.insert(stream, connection);
        association.idle_since = None;
        self.connections.insert(connection, id);
        Ok(stream)
    }

    fn insert(&mut self, association: Association) -> AssociationId {
        let id = AssociationId(self.next_id);
        self.next_id += 1;
        self.associations.insert(id, association);
        id
    }

    /// Reports that an association is open, and returns where the connections that have waited for it go.
    pub fn opened(
        &mut self,
        now: Time,
        id: AssociationId,
        opened: Opened,
    ) -> Vec<(ConnectionId, Result<Assignment, PoolError>)> {
        let Some(association) = self.associations.get_mut(&id) else { return Vec::new() };
        association.opened = Some(opened);
        association.idle_since = association.is_idle().then_some(now);
        let waiting = core::mem::take(&mut association.waiting);
        let Some(key) = association.key.clone() else { return Vec::new() };
        for connection in &waiting {
            self.connections.remove(connection);
        }
        let assignments = waiting.into_iter().map(|one| (one, self.assign(one, &key)));
        assignments.collect()
    }

    /// Adds an association that the peer has opened, whose properties are those of the listener.
    ///
    /// # Errors
    /// There are as many associations as there may be.
    pub fn accept(
        &mut self,
        now: Time,
        listener: &Preconnection,
        opened: Opened,
    ) -> Result<AssociationId, PoolError> {
        if self.associations.len() >= self.limits.associations {
            return Err(PoolError::Associations(self.limits.associations));
        }
        let mut association = Association::new(None, group_limit(listener));
        (association.opened, association.idle_since) = (Some(opened), Some(now));
        Ok(self.insert(association))
    }

    /// Adds a connection that the peer has opened as a stream.
    ///
    /// # Errors
    /// A limit is reached, the association is not open, or the stream or the number of the connection is in use.
    pub fn peer_opened(
        &mut self,
        id: AssociationId,
        stream: u32,
        connection: ConnectionId,
    ) -> Result<(), PoolError> {
        self.admit(connection)?;
        let association = self.associations.get_mut(&id).ok_or(PoolError::NotOpen)?;
        let is_ours = |stream: u32| stream.is_multiple_of(2) == association.key.is_some();
        let of_peer = association.streams.keys().filter(|stream| !is_ours(**stream)).count();
        // RFC 9622 section 8.1.9.
        if let Some(limit) = association.group_limit.filter(|limit| of_peer >= *limit as usize) {
            return Err(PoolError::GroupLimit(limit));
        }
        if association.opened.is_none() {
            return Err(PoolError::NotOpen);
        }
        let used =
            association.streams.contains_key(&stream) || association.closing.contains(&stream);
        if used || is_ours(stream) {
            return Err(PoolError::InUse(stream.into()));
        }
        association.streams.insert(stream, connection);
        association.idle_since = None;
        self.connections.insert(connection, id);
        Ok(())
    }

    /// Closes a connection and returns what the caller must close; `None` if that is nothing. Other connections stay.
    pub fn close(&mut self, now: Time, connection: ConnectionId) -> Option<Close> {
        let id = self.connections.remove(&connection)?;
        let association = self.associations.get_mut(&id)?;
        association.waiting.retain(|waiting| *waiting != connection);
        let stream = association.streams.iter().find(|(_, other)| **other == connection);
        let stream = *stream?.0;
        association.streams.remove(&stream);
        let Some(opened) = association.opened else {
            // Another connection waits for the same association: it is opened for that one now.
            if association.waiting.is_empty() {
                self.remove(id);
                return Some(Close::Association(id));
            }
            let next = association.waiting.remove(0);
            association.streams.insert(stream, next);
            return None;
        };
        let shares = opened.multistreaming && association.key.as_ref().is_none_or(may_share);
        if !shares {
            self.remove(id);
            return Some(Close::Association(id));
        }
        association.closing.insert(stream);
        association.idle_since = association.is_idle().then_some(now);
        Some(Close::Stream(id, stream))
    }

    /// Reports that a stream that was closed here has ended at the peer as well, so that its number can be used again.
    pub fn released(&mut self, id: AssociationId, stream: u32) {
        if let Some(association) = self.associations.get_mut(&id) {
            association.closing.remove(&stream);
        }
    }

    /// Reports that an association has ended or could not be opened, and returns the connections that it carried.
    pub fn ended(&mut self, id: AssociationId) -> Vec<ConnectionId> {
        let Some(association) = self.remove(id) else { return Vec::new() };
        let carried: Vec<ConnectionId> =
            association.streams.into_values().chain(association.waiting).collect();
        for connection in &carried {
            self.connections.remove(connection);
        }
        carried
    }

    fn remove(&mut self, id: AssociationId) -> Option<Association> {
        let association = self.associations.remove(&id)?;
        if let Some(key) = &association.key
            && let Some(ids) = self.by_key.get_mut(key)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_key.remove(key);
            }
        }
        Some(association)
    }

    /// Removes associations that have been idle for long, and returns them for the caller to close.
    pub fn handle_timeout(&mut self, now: Time) -> Vec<AssociationId> {
        let idle = self.limits.idle;
        let is_over = |association: &Association| {
            association.idle_since.is_some_and(|since| now >= since + idle)
        };
        let over = self.associations.iter().filter(|(_, association)| is_over(association));
        let over: Vec<AssociationId> = over.map(|(id, _)| *id).collect();
        for id in &over {
            self.remove(*id);
        }
        over
    }

    /// Returns when [`handle_timeout`](Pool::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let since = self.associations.values().filter_map(|association| association.idle_since);
        since.min().map(|since| since + self.limits.idle)
    }

    /// Returns the association and the stream of a connection; the stream is `None` while it waits.
    pub fn location(&self, connection: ConnectionId) -> Option<(AssociationId, Option<u32>)> {
        let id = *self.connections.get(&connection)?;
        let streams = &self.associations.get(&id)?.streams;
        let stream = streams.iter().find(|(_, other)| **other == connection);
        Some((id, stream.map(|(stream, _)| *stream)))
    }

    /// Returns the connections of an association that have a stream.
    pub fn connections(&self, id: AssociationId) -> impl Iterator<Item = ConnectionId> {
        self.associations.get(&id).into_iter().flat_map(|one| one.streams.values().copied())
    }

    /// Returns the number of associations.
    pub fn len(&self) -> usize {
        self.associations.len()
    }

    /// Returns whether there is no association.
    pub fn is_empty(&self) -> bool {
        self.associations.is_empty()
    }
}

fn group_limit(preconnection: &Preconnection) -> Option<u32> {
    preconnection.properties.connection.group_conn_limit.0
}

#[cfg(test)]
mod tests;
