//! The life of a connection: accepted or opened, watched, closed.

use super::Flows;
use crate::admission::Refusal;
use crate::connection::{Connection, Phase};
use crate::key::Key;
use crate::limits::CLOSE_LINGER;
use crate::pipes::{Open, Pipes};
use ringway_sansio::{CloseReason, Flow, FlowId, Peer, Program, Time, Transport};
use std::net::SocketAddr;
use std::sync::Arc;

/// Whether other workers may use a connection that we opened, because they cannot open one themselves.
fn is_shared(flow: &Flow) -> bool {
    matches!(flow.transport, Transport::Sctp | Transport::TlsSctp)
}

impl<P: Program, W: Pipes> Flows<P, W> {
    /// Accepts a connection. It carries messages once [`Flows::opened`] is called. Returns `None` if there is
    /// no room for it: it is to be closed.
    pub fn accept(
        &mut self,
        now: Time,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<FlowId> {
        self.now = now;
        let source = Some(remote.ip());
        match self.common.admit(transport, source) {
            Err(Refusal::Total) => self.counters.refused_full.add(1),
            Err(Refusal::Source) => self.counters.refused_source.add(1),
            Ok(()) => {
                let flow = |id| Flow { id, transport, local, remote };
                let Some(id) = self.table.insert(|id| Connection::new(flow(id), source, None, now))
                else {
                    self.common.release(transport, source);
                    return None;
                };
                self.counters.accepted.add(1);
                self.counters.connections.set(self.table.len() as u64);
                self.watch(id);
                self.bound_half_open(id);
                return Some(id);
            }
        }
        None
    }

    /// Begins to open a connection. Returns `None` if the transport cannot be opened from here or there are
    /// too many connections.
    pub(super) fn open(
        &mut self,
        key: Key,
        transport: Transport,
        remote: SocketAddr,
        name: Option<&Arc<str>>,
    ) -> Option<Flow> {
        let now = self.now;
        if self.common.admit(transport, None).is_err() {
            self.counters.refused_full.add(1);
            return None;
        }
        let local = SocketAddr::new(remote.ip(), 0);
        let flow = |id| Flow { id, transport, local, remote };
        let id = self.table.insert(|id| Connection::new(flow(id), None, Some(key), now));
        let Some(id) = id else {
            self.common.release(transport, None);
            return None;
        };
        let open = Open { transport, remote, name: name.cloned() };
        let Some(local) = self.pipes.open(now, id, open) else {
            self.table.remove(id);
            self.common.release(transport, None);
            return None;
        };
        self.counters.connections.set(self.table.len() as u64);
        self.watch(id);
        let connection = self.table.get_mut(id)?;
        connection.flow.local = local;
        Some(connection.flow)
    }

    /// Notes that a connection carries messages from now on, from this local address where it was not known.
    pub fn opened(&mut self, now: Time, id: FlowId, local: Option<SocketAddr>, peer: &Peer) {
        self.now = now;
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.opened(now);
        if let Some(local) = local {
            connection.flow.local = local;
        }
        let flow = connection.flow;
        if peer.inbound || is_shared(&flow) {
            self.common.directory().insert(flow, peer.domains.clone());
        }
        if !peer.inbound {
            self.counters.connected.add(1);
        }
        self.watch(id);
        self.program.opened(now, &flow, peer, &mut self.outbox);
        self.flush(now);
    }

    /// Notes that the peer of an association has a further address, at which messages find it.
    pub fn reaches(&mut self, id: FlowId, addr: SocketAddr) {
        if let Some(flow) = self.flow(id) {
            self.common.directory().reaches(&flow, addr);
        }
    }

    /// Notes that a connection is closed, for `reason` unless it was to end for another. What waited is
    /// reported as not sent, what left and may be answered as cut off.
    pub fn closed(&mut self, now: Time, id: FlowId, reason: CloseReason) {
        self.now = now;
        let Some(mut connection) = self.table.remove(id) else { return };
        self.wheel.cancel(connection.timer);
        self.waiting.connections.note(now, connection.unread, 0);
        self.common.release(connection.flow.transport, connection.source);
        self.counters.connections.set(self.table.len() as u64);
        if connection.source.is_some() && !connection.proven {
            self.half_open.count = self.half_open.count.saturating_sub(1);
        }
        let reason = connection.ending.map_or(reason, |e| e.reason);
        for report in connection.queue.fail() {
            self.not_sent(report);
        }
        self.count_closed(&connection, reason);
        if connection.phase == Phase::Open {
            if connection.source.is_some() || is_shared(&connection.flow) {
                self.common.directory().remove(&connection.flow);
            }
            self.program.closed(now, &connection.flow, reason, &mut self.outbox);
        }
        self.counters.stream_unwatched.add(connection.queue.awaited.dropped());
        // An endpoint that stops begins nothing anew.
        if reason != CloseReason::Stopped {
            self.cut_off(&connection.queue.awaited.take());
        }
        self.flush(now);
    }

    fn count_closed(&self, connection: &Connection<W::Handle>, reason: CloseReason) {
        let counters = &self.counters;
        match reason {
            CloseReason::Idle => counters.closed_idle.add(1),
            CloseReason::HalfOpen => counters.closed_half_open.add(1),
            CloseReason::Slow => counters.closed_slow.add(1),
            CloseReason::SlowReader => counters.closed_slow_reader.add(1),
            CloseReason::Malformed => counters.closed_malformed.add(1),
            _ => {}
        }
        match (connection.phase, connection.source) {
            (Phase::Open, _) => {}
            (Phase::Opening, Some(_)) => counters.handshake_failed.add(1),
            (Phase::Opening, None) => counters.connect_failed.add(1),
        }
    }

    /// Has a connection end. An earlier reason stays; the earlier of two deadlines applies.
    pub(super) fn end(&mut self, id: FlowId, reason: CloseReason, flush_until: Option<Time>) {
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.end(reason, flush_until);
        self.pipes.wake(id, &connection.handle);
        if flush_until.is_some() {
            self.watch(id);
        }
    }

    /// Has a connection end once what is queued is written, within [`CLOSE_LINGER`].
    pub(super) fn end_flushed(&mut self, id: FlowId, reason: CloseReason) {
        self.end(id, reason, Some(self.now + CLOSE_LINGER));
    }

    /// Notes that all is written and our side is closed: the peer has a last moment to close its own.
    pub fn linger(&mut self, now: Time, id: FlowId) {
        self.now = now;
        if let Some(connection) = self.table.get_mut(id) {
            connection.end_flushed(now, CloseReason::Stopped);
        }
        self.watch(id);
    }

    /// Returns whether a message that is partly here took too long, which its owner now deals with.
    pub fn take_overdue(&mut self, id: FlowId) -> bool {
        self.table.get_mut(id).is_some_and(Connection::take_overdue)
    }

    /// Has a connection end whose message was too slow.
    pub fn end_slow(&mut self, now: Time, id: FlowId) {
        self.now = now;
        self.end_flushed(id, CloseReason::Slow);
    }

    /// Notes that bytes of a message came that is not whole.
    pub fn note_partial(&mut self, now: Time, id: FlowId) {
        self.now = now;
        if let Some(connection) = self.table.get_mut(id)
            && connection.begin_partial(now)
        {
            self.watch(id);
        }
    }

    /// Notes the result of writing to a connection: so many messages left, there was any progress, something
    /// still waits for the peer.
    pub fn note_written(
        &mut self,
        now: Time,
        id: FlowId,
        messages: u64,
        progress: bool,
        blocked: bool,
    ) {
        self.now = now;
        self.counters.stream_sent.add(messages);
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.note_written(now, progress, blocked) {
            self.watch(id);
        }
    }

    /// Keeps the number of connections without a message within its limit: the oldest is closed first, so
    /// that a flood of empty connections does not shut out those that speak.
    fn bound_half_open(&mut self, newest: FlowId) {
        let limit = self.limits().half_open.max(1);
        self.half_open.queue.push_back(newest);
        self.half_open.count += 1;
        if self.half_open.queue.len() > 2 * limit {
            let table = &self.table;
            self.half_open.queue.retain(|id| table.get(*id).is_some_and(Connection::is_half_open));
        }
        if self.half_open.count > limit {
            self.end_oldest_half_open();
        }
    }

    /// Closes the oldest connection without a message, to make room for one to come.
    pub fn end_oldest_half_open(&mut self) {
        while let Some(oldest) = self.half_open.queue.pop_front() {
            if self.table.get(oldest).is_some_and(Connection::is_half_open) {
                self.end(oldest, CloseReason::HalfOpen, None);
                break;
            }
        }
    }

    /// Sets a connection's timer, if its first deadline has become earlier.
    pub(super) fn watch(&mut self, id: FlowId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.set_timer(&mut self.wheel, self.common.limits()) {
            self.rearm();
        }
    }

    /// Ends the connections whose deadline has passed.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some(id) = self.wheel.expire(now) {
            let Some(connection) = self.table.get_mut(id) else { continue };
            connection.timer_fired();
            let (at, reason) = connection.deadline(self.common.limits());
            let is_ending = connection.ending.is_some();
            if at > now {
                self.watch(id);
                continue;
            }
            match reason {
                // Its last moment to write has passed.
                _ if is_ending => self.end(id, reason, None),
                CloseReason::SlowReader | CloseReason::HalfOpen | CloseReason::Broken => {
                    self.end(id, reason, None);
                }
                CloseReason::Slow => {
                    connection.set_overdue();
                    self.pipes.wake(id, &connection.handle);
                    self.watch(id);
                }
                _ => self.end_flushed(id, reason),
            }
        }
    }
}
