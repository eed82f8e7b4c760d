//! A connection as the worker sees it, and the table of all of them. The socket itself belongs to
//! the connection's task; here is what others need to give it messages, watch its time, or end it.

use super::queue::WriteQueue;
use crate::handler::CloseReason;
use crate::limits::{CLOSE_LINGER, Limits, MALFORMED_PERIOD, MAX_MALFORMED};
use ringway_sansio::{Flow, FlowId, Time, TimerId, Transport};
use slab::Slab;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Waker};

/// Bits of a flow's serial that index the table; the bits above count connections, so that an
/// identity never comes back.
const INDEX_BITS: u32 = 20;

/// Most connections of one worker.
pub(crate) const MAX_CONNECTIONS: usize = 1 << INDEX_BITS;

/// Identities below this are the datagram listeners'.
const FIRST_SERIAL: u64 = 1;

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Being connected to, or in a handshake.
    Opening,
    /// Carries messages; the handler knows of it.
    Open,
}

/// That a connection is to end, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) reason: CloseReason,
    /// Until when it may still write what is queued; `None` ends it at once.
    pub(crate) flush_until: Option<Time>,
}

pub(crate) struct Conn {
    pub(crate) flow: Flow,
    /// Whose share of connections it counts against; `None` when we opened it.
    pub(crate) source: Option<IpAddr>,
    pub(crate) phase: Phase,
    pub(crate) ending: Option<Ending>,
    /// That the message which is only partly here took too long: its task deals with it.
    pub(crate) overdue: bool,
    pub(crate) queue: WriteQueue,
    /// Octets that had come and were not read when its turn was over.
    pub(crate) unread: usize,
    /// Of the connection's task.
    pub(crate) waker: Option<Waker>,
    /// When it was accepted, or connecting began.
    pub(crate) since: Time,
    /// When something was heard last.
    pub(crate) heard: Time,
    /// Since when part of a message is here.
    pub(crate) partial: Option<Time>,
    /// Since when the peer takes nothing of what waits for it.
    pub(crate) stalled: Option<Time>,
    /// Whether a whole message has come.
    pub(crate) proven: bool,
    /// Malformed messages since a time.
    pub(crate) malformed: (Time, u32),
    pub(crate) timer: TimerId,
    /// When the timer fires.
    pub(crate) due: Time,
    /// Under which it is found again, if it is.
    pub(crate) key: Option<Key>,
}

impl Conn {
    /// The first deadline that applies, and what happens then.
    pub(crate) fn deadline(&self, limits: &Limits) -> (Time, CloseReason) {
        if let Some(ending) = &self.ending {
            return (ending.flush_until.unwrap_or(self.since), ending.reason);
        }
        let inbound = self.source.is_some();
        if self.phase == Phase::Opening {
            return if inbound {
                (self.since + limits.handshake, CloseReason::HalfOpen)
            } else {
                (self.since + limits.connect, CloseReason::Broken)
            };
        }
        let mut first = (self.heard + limits.idle, CloseReason::Idle);
        let mut consider = |at: Time, reason| {
            if at < first.0 {
                first = (at, reason);
            }
        };
        if inbound && !self.proven {
            consider(self.since + limits.first_message, CloseReason::HalfOpen);
        }
        if let Some(since) = self.partial {
            consider(since + limits.partial, CloseReason::Slow);
        }
        if let Some(since) = self.stalled {
            consider(since + limits.write_stall, CloseReason::SlowReader);
        }
        first
    }

    /// Tells the task to end. A reason given earlier stays; less patience replaces more.
    pub(crate) fn end(&mut self, reason: CloseReason, flush_until: Option<Time>) {
        match &mut self.ending {
            None => self.ending = Some(Ending { reason, flush_until }),
            Some(ending) => {
                ending.flush_until = match (ending.flush_until, flush_until) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    _ => None,
                }
            }
        }
        self.wake();
    }

    /// Tells the task to end once what is queued is written, which may take
    /// [`CLOSE_LINGER`].
    pub(crate) fn end_flushed(&mut self, now: Time, reason: CloseReason) {
        self.end(reason, Some(now + CLOSE_LINGER));
    }

    /// Counts a malformed message. Returns whether the connection may bring more.
    pub(crate) fn note_malformed(&mut self, now: Time) -> bool {
        let (since, count) = &mut self.malformed;
        if *since + MALFORMED_PERIOD <= now {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= MAX_MALFORMED
    }

    /// Has the task woken when someone calls [`Conn::wake`].
    pub(crate) fn listen(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Whether it has brought no whole message yet, and is not ending.
    pub(crate) fn is_half_open(&self) -> bool {
        !self.proven && self.ending.is_none()
    }

    /// Whether new messages may use it.
    pub(crate) fn takes_messages(&self) -> bool {
        self.ending.is_none()
    }
}

/// What a connection is found by when a message names a peer. A secure connection was verified for
/// one name and serves no other (RFC 5922 section 4).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    transport: Transport,
    remote: SocketAddr,
    name: Option<Arc<str>>,
}

impl Key {
    pub(crate) fn new(transport: Transport, remote: SocketAddr, name: Option<&Arc<str>>) -> Self {
        let name = name.filter(|_| transport.is_secure()).cloned();
        Key { transport, remote, name }
    }
}

/// One worker's connections.
pub(crate) struct Conns {
    worker: u8,
    slab: Slab<Conn>,
    /// Connections we opened.
    keys: HashMap<Key, FlowId>,
    serial: u64,
}

impl Conns {
    /// An empty table. `start` sets off the serial numbers, so that an identity kept on disk by an
    /// earlier process names no connection of this one.
    pub(crate) fn new(worker: u8, start: Time) -> Self {
        let serial = FIRST_SERIAL + (start.as_millis() >> 6);
        Conns { worker, slab: Slab::new(), keys: HashMap::new(), serial }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Enters a connection; `flow.id` is given here. `None` when the table is full.
    pub(crate) fn insert(&mut self, make: impl FnOnce(FlowId) -> Conn) -> Option<FlowId> {
        if self.slab.len() >= MAX_CONNECTIONS {
            return None;
        }
        let entry = self.slab.vacant_entry();
        let id = FlowId::new(self.worker, self.serial << INDEX_BITS | entry.key() as u64);
        self.serial += 1;
        let conn = make(id);
        if let Some(key) = &conn.key {
            self.keys.insert(key.clone(), id);
        }
        entry.insert(conn);
        Some(id)
    }

    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut Conn> {
        self.slab.get_mut(index(id)).filter(|c| c.flow.id == id)
    }

    /// The connection we opened under this key, if it still takes messages.
    pub(crate) fn find(&mut self, key: &Key) -> Option<FlowId> {
        let id = *self.keys.get(key)?;
        self.get_mut(id).filter(|c| c.takes_messages()).map(|c| c.flow.id)
    }

    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Conn> {
        self.get_mut(id)?;
        let conn = self.slab.remove(index(id));
        if let Some(key) = &conn.key
            && self.keys.get(key) == Some(&id)
        {
            self.keys.remove(key);
        }
        Some(conn)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.slab.iter_mut().map(|(_, conn)| conn)
    }
}

fn index(id: FlowId) -> usize {
    (id.to_u64() & ((1 << INDEX_BITS) - 1)) as usize
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Duration;

    pub(crate) fn conn(id: FlowId, source: Option<IpAddr>, key: Option<Key>) -> Conn {
        let now = Time::from_secs(1_000);
        Conn {
            flow: Flow {
                id,
                transport: Transport::Tcp,
                local: "127.0.0.1:5060".parse().unwrap(),
                remote: "127.0.0.1:40000".parse().unwrap(),
            },
            source,
            phase: Phase::Open,
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

    #[test]
    fn an_identity_never_comes_back() {
        let mut t = Conns::new(3, Time::from_secs(1_700_000_000));
        let a = t.insert(|id| conn(id, None, None)).unwrap();
        assert_eq!(a.worker(), 3);
        assert!(t.remove(a).is_some());
        let b = t.insert(|id| conn(id, None, None)).unwrap();
        assert_eq!(index(a), index(b));
        assert_ne!(a, b);
        assert!(t.get_mut(a).is_none() && t.remove(a).is_none());
        assert!(t.get_mut(b).is_some());
    }

    #[test]
    fn a_connection_may_bring_so_many_malformed_messages_a_minute() {
        let mut c = conn(FlowId::new(0, 1), None, None);
        let begun = c.since;
        assert!((0..MAX_MALFORMED).all(|_| c.note_malformed(begun)));
        assert!(!c.note_malformed(begun + MALFORMED_PERIOD / 2));
        assert!((0..MAX_MALFORMED).all(|_| c.note_malformed(begun + MALFORMED_PERIOD)));
        assert!(!c.note_malformed(begun + MALFORMED_PERIOD));
    }

    #[test]
    fn a_later_connection_takes_the_key_and_keeps_it() {
        let mut t = Conns::new(0, Time::ZERO);
        let key = Key::new(Transport::Tcp, "192.0.2.1:5060".parse().unwrap(), None);
        let a = t.insert(|id| conn(id, None, Some(key.clone()))).unwrap();
        t.get_mut(a).unwrap().end(CloseReason::Peer, None);
        assert_eq!(t.find(&key), None);
        let b = t.insert(|id| conn(id, None, Some(key.clone()))).unwrap();
        t.remove(a);
        assert_eq!(t.find(&key), Some(b));
    }

    /// RFC 5922 section 4: a certificate proves one domain.
    #[test]
    fn a_secure_key_is_of_one_name() {
        let remote = "192.0.2.1:5061".parse().unwrap();
        let (a, b): (Arc<str>, Arc<str>) = ("a.example".into(), "b.example".into());
        let key = |t, n| Key::new(t, remote, Some(n));
        assert_ne!(key(Transport::Tls, &a), key(Transport::Tls, &b));
        assert_eq!(key(Transport::Tcp, &a), key(Transport::Tcp, &b));
    }

    #[test]
    fn the_first_deadline_decides() {
        let limits = Limits {
            idle: Duration::from_secs(100),
            first_message: Duration::from_secs(30),
            partial: Duration::from_secs(10),
            ..Limits::default()
        };
        let at = |s: u64| Time::from_secs(1_000 + s);
        let mut c = conn(FlowId::new(0, 1), Some([127, 0, 0, 1].into()), None);
        assert_eq!(c.deadline(&limits), (at(30), CloseReason::HalfOpen));
        c.partial = Some(at(5));
        assert_eq!(c.deadline(&limits), (at(15), CloseReason::Slow));
        (c.partial, c.proven, c.heard) = (None, true, at(50));
        assert_eq!(c.deadline(&limits), (at(150), CloseReason::Idle));
        c.end_flushed(at(60), CloseReason::Malformed);
        assert_eq!(c.deadline(&limits).1, CloseReason::Malformed);
    }
}
