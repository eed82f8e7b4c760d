//! The life of a worker's connections: begun, opened, watched, closed.

use super::conn::{Conn, Key, Phase};
use super::queue::WriteQueue;
use super::{Dial, dial};
use crate::handler::{CloseReason, Handler, Peer};
use crate::hub::Hub;
use crate::shared::Refused;
use ringway_sansio::{Flow, FlowId, Time, TimerId, Transport};
use ringway_sip::{Malformed, framing};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl<H: Handler> Hub<H> {
    /// Counts a connection in, if there is room for it.
    pub(crate) fn admit(
        &self,
        transport: Transport,
        source: Option<IpAddr>,
    ) -> Result<(), Refused> {
        let shared = &self.shared;
        shared.admission().admit(&shared.limits, &shared.files, transport, source)
    }

    /// File descriptors are short: the oldest connection without a message makes room for one to come.
    pub(crate) fn spare_files(&mut self) {
        self.counters.refused_files.add(1);
        self.end_oldest_half_open();
    }

    /// Begins to open a connection. `None` when the transport cannot be opened from here or there
    /// are too many connections.
    pub(crate) fn dial(
        &mut self,
        key: Key,
        transport: Transport,
        remote: SocketAddr,
        name: Option<&Arc<str>>,
    ) -> Option<Flow> {
        let secure = match transport {
            Transport::Tcp => None,
            Transport::Tls => Some(self.shared.tls_client.clone()?),
            Transport::Sctp | Transport::TlsSctp => {
                return self.associate(key, transport, remote, name);
            }
            _ => return None,
        };
        let hub = self.me.upgrade()?;
        if self.admit(transport, None).is_err() {
            self.counters.refused_full.add(1);
            return None;
        }
        let listener = self.local.choose(self.now, transport, remote.ip());
        let from = listener
            .map(|i| self.shared.listeners[i].addr.ip())
            .filter(|ip| !ip.is_unspecified() && ip.is_loopback() == remote.ip().is_loopback());
        let now = self.now;
        let unknown = SocketAddr::new(from.unwrap_or(remote.ip()), 0);
        let id = self.conns.insert(|id| {
            let flow = Flow { id, transport, local: unknown, remote };
            new_conn(flow, None, Some(key), now)
        });
        let Some(id) = id else {
            self.shared.admission().release(transport, None);
            return None;
        };
        self.watch(id);
        self.counters.connections.set(self.conns.len() as u64);
        let name = name.cloned();
        tokio::task::spawn_local(dial(
            hub,
            id,
            Dial { remote, from, name, secure, files: self.shared.files },
        ));
        self.conns.get_mut(id).map(|c| c.flow)
    }

    /// Enters an accepted connection, or says by `None` that it is to be dropped.
    pub(crate) fn accept(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<FlowId> {
        let source = Some(remote.ip());
        let admitted = self.admit(transport, source);
        if let Err(refused) = admitted {
            match refused {
                Refused::Total => self.counters.refused_full.add(1),
                Refused::Source => self.counters.refused_source.add(1),
            }
            return None;
        }
        let now = self.now;
        let id = self
            .conns
            .insert(|id| new_conn(Flow { id, transport, local, remote }, source, None, now));
        let Some(id) = id else {
            self.shared.admission().release(transport, source);
            return None;
        };
        self.counters.accepted.add(1);
        self.counters.connections.set(self.conns.len() as u64);
        self.watch(id);
        self.bound_half_open(id);
        Some(id)
    }

    /// Keeps the number of connections without a message within its limit: the oldest goes first,
    /// so that a flood of empty connections does not shut out those that speak.
    fn bound_half_open(&mut self, newest: FlowId) {
        let limit = self.limits().half_open.max(1);
        self.half_open.push_back(newest);
        self.half_open_count += 1;
        if self.half_open.len() > 2 * limit {
            let conns = &mut self.conns;
            self.half_open.retain(|id| conns.get_mut(*id).is_some_and(|c| c.is_half_open()));
        }
        if self.half_open_count > limit {
            self.end_oldest_half_open();
        }
    }

    fn end_oldest_half_open(&mut self) {
        while let Some(oldest) = self.half_open.pop_front() {
            if let Some(conn) = self.conns.get_mut(oldest).filter(|c| c.is_half_open()) {
                conn.end(CloseReason::HalfOpen, None);
                break;
            }
        }
    }

    /// Hands up a message that its transport framed. Returns whether more may come: not when the
    /// connection ends for the number of its malformed messages.
    pub(crate) fn take_message(&mut self, id: FlowId, flow: &Flow, bytes: &[u8]) -> bool {
        if let Some(fault) = framing::unparsable(bytes) {
            return self.take_malformed(id, flow, bytes, &fault);
        }
        self.counters.stream_received.add(1);
        self.proven(id);
        self.handler.message(self.now, flow, bytes, &mut self.outbox);
        true
    }

    /// The same of a message that cannot be used, though its end is known.
    pub(crate) fn take_malformed(
        &mut self,
        id: FlowId,
        flow: &Flow,
        message: &[u8],
        fault: &Malformed,
    ) -> bool {
        let now = self.now;
        self.counters.stream_received.add(1);
        self.counters.stream_malformed.add(1);
        let answerable = framing::answerable(message);
        let head = answerable.as_deref().unwrap_or(message);
        self.handler.malformed(now, flow, head, fault, &mut self.outbox);
        if self.conns.get_mut(id).is_some_and(|conn| conn.note_malformed(now)) {
            return true;
        }
        // The answers first: a connection that ends takes none.
        self.flush();
        let Some(conn) = self.conns.get_mut(id) else { return false };
        conn.end_flushed(now, CloseReason::Malformed);
        conn.partial = None;
        self.watch(id);
        false
    }

    /// A whole message came over the connection.
    pub(crate) fn proven(&mut self, id: FlowId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.proven {
            conn.proven = true;
            if conn.source.is_some() {
                self.half_open_count = self.half_open_count.saturating_sub(1);
            }
        }
    }

    /// A connection is ready: the handler hears of it.
    pub(crate) fn opened(&mut self, id: FlowId, local: Option<SocketAddr>, peer: Peer) {
        let now = self.tick();
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.phase = Phase::Open;
        conn.heard = now;
        if let Some(local) = local {
            conn.flow.local = local;
        }
        let flow = conn.flow;
        if peer.inbound || is_shared(&flow) {
            self.shared.directory().insert(flow, peer.domains.clone());
        }
        if !peer.inbound {
            self.counters.connected.add(1);
        }
        self.watch(id);
        self.handler.opened(now, &flow, &peer, &mut self.outbox);
        self.flush();
    }

    /// A connection has ended, for `reason` unless it was told to end for another.
    pub(crate) fn closed(&mut self, id: FlowId, reason: CloseReason) {
        let now = self.tick();
        let Some(mut conn) = self.conns.remove(id) else { return };
        self.wheel.cancel(conn.timer);
        self.waiting.streams.note(now, conn.unread, 0);
        self.shared.admission().release(conn.flow.transport, conn.source);
        self.counters.connections.set(self.conns.len() as u64);
        if conn.source.is_some() && !conn.proven {
            self.half_open_count = self.half_open_count.saturating_sub(1);
        }
        let reason = conn.ending.map_or(reason, |e| e.reason);
        self.counters.stream_not_sent.add(conn.queue.messages() as u64);
        for report in conn.queue.fail() {
            self.not_sent(report);
        }
        match reason {
            CloseReason::Idle => self.counters.closed_idle.add(1),
            CloseReason::HalfOpen => self.counters.closed_half_open.add(1),
            CloseReason::Slow => self.counters.closed_slow.add(1),
            CloseReason::SlowReader => self.counters.closed_slow_reader.add(1),
            CloseReason::Malformed => self.counters.closed_malformed.add(1),
            CloseReason::Peer
            | CloseReason::Broken
            | CloseReason::Restarted
            | CloseReason::Stopped => {}
        }
        if conn.phase == Phase::Open {
            if conn.source.is_some() || is_shared(&conn.flow) {
                self.shared.directory().remove(&conn.flow);
            }
            self.handler.closed(now, &conn.flow, reason, &mut self.outbox);
        } else if conn.source.is_some() {
            self.counters.handshake_failed.add(1);
        } else {
            self.counters.connect_failed.add(1);
        }
        self.counters.stream_unwatched.add(conn.queue.awaited.forgotten());
        // Who stops begins nothing anew.
        if reason != CloseReason::Stopped {
            self.cut_off(&conn.queue.awaited.take());
        }
        self.flush();
        self.wake_main();
    }

    /// Everything is written and our side is closed: the peer has a last moment to close its own.
    pub(crate) fn linger(&mut self, id: FlowId) {
        let now = self.now;
        if let Some(conn) = self.conns.get_mut(id) {
            conn.end_flushed(now, CloseReason::Stopped);
        }
        self.watch(id);
    }

    /// Sets the connection's timer, if its first deadline has come closer.
    pub(crate) fn watch(&mut self, id: FlowId) {
        let Hub { shared, conns, wheel, .. } = self;
        let Some(conn) = conns.get_mut(id) else { return };
        let (at, _) = conn.deadline(&shared.limits);
        if conn.timer != TimerId::NONE {
            if at >= conn.due {
                // It is looked at again when the timer fires: cheaper than moving it each time.
                return;
            }
            wheel.cancel(conn.timer);
        }
        conn.timer = wheel.set(at, id);
        conn.due = at;
        self.rearm();
    }

    /// Ends the connections whose time is up.
    pub(crate) fn expire_connections(&mut self) {
        while let Some(id) = self.wheel.expire(self.now) {
            let now = self.now;
            let Hub { shared, conns, .. } = self;
            let Some(conn) = conns.get_mut(id) else { continue };
            conn.timer = TimerId::NONE;
            let (at, reason) = conn.deadline(&shared.limits);
            if at <= now {
                if conn.ending.is_some() {
                    // Its last moment to write has passed.
                    conn.end(reason, None);
                    continue;
                }
                match reason {
                    CloseReason::SlowReader | CloseReason::HalfOpen | CloseReason::Broken => {
                        conn.end(reason, None);
                        continue;
                    }
                    CloseReason::Slow => {
                        conn.partial = None;
                        conn.overdue = true;
                        conn.wake();
                    }
                    _ => conn.end_flushed(now, reason),
                }
            }
            self.watch(id);
        }
    }
}

/// Whether other workers may use a connection that we opened: they cannot open one themselves.
fn is_shared(flow: &Flow) -> bool {
    matches!(flow.transport, Transport::Sctp | Transport::TlsSctp)
}

/// A connection that has just begun.
pub(super) fn new_conn(flow: Flow, source: Option<IpAddr>, key: Option<Key>, now: Time) -> Conn {
    Conn {
        flow,
        source,
        phase: Phase::Opening,
        ending: None,
        overdue: false,
        queue: WriteQueue::default(),
        unread: 0,
        waker: None,
        since: now,
        heard: now,
        partial: None,
        stalled: None,
        proven: false,
        malformed: (now, 0),
        timer: TimerId::NONE,
        due: now,
        key,
    }
}
