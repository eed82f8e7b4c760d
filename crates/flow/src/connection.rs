//! What a worker keeps of one connection. The pipe itself belongs to the world.

use crate::key::Key;
use crate::limits::{CLOSE_LINGER, Limits, MALFORMED_PERIOD, MAX_MALFORMED};
use crate::queue::WriteQueue;
use ringway_sansio::{CloseReason, Flow, FlowId, Time, TimerId, TimerWheel};
use std::net::IpAddr;

/// The state of a connection that is not ending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Being connected to, or in a handshake.
    Opening,
    /// Carries messages; the program knows of it.
    Open,
}

/// The end of a connection that its owner is to bring about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// The reason that the program learns.
    pub reason: CloseReason,
    /// Until when what is queued may still be written; `None` to end at once.
    pub flush_until: Option<Time>,
}

/// A connection; `T` is what the world keeps with it.
pub(crate) struct Connection<T> {
    pub(crate) flow: Flow,
    /// The source whose share of connections it counts against; `None` for one that we opened.
    pub(crate) source: Option<IpAddr>,
    pub(crate) phase: Phase,
    pub(crate) ending: Option<Ending>,
    /// Whether a message that is only partly received took too long, which its owner has yet to deal with.
    overdue: bool,
    pub(crate) queue: WriteQueue,
    /// Bytes received and not read at the end of its turn.
    pub(crate) unread: usize,
    pub(crate) handle: T,
    /// When it was accepted, or connecting began.
    since: Time,
    /// When something was last received.
    heard: Time,
    /// Since when part of a message is here.
    partial: Option<Time>,
    /// Since when the peer takes nothing of what waits for it.
    stalled: Option<Time>,
    /// Whether a whole message has come.
    pub(crate) proven: bool,
    /// Number of malformed messages since a time.
    malformed: (Time, u32),
    pub(crate) timer: TimerId,
    /// When the timer fires.
    due: Time,
    /// The key under which messages find it, where we opened it.
    pub(crate) key: Option<Key>,
}

impl<T: Default> Connection<T> {
    /// Returns a connection that has just begun.
    pub(crate) fn new(flow: Flow, source: Option<IpAddr>, key: Option<Key>, now: Time) -> Self {
        Connection {
            flow,
            source,
            phase: Phase::Opening,
            ending: None,
            overdue: false,
            queue: WriteQueue::opening(),
            unread: 0,
            handle: T::default(),
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
}

impl<T> Connection<T> {
    /// Notes that it carries messages from now on.
    pub(crate) fn opened(&mut self, now: Time) {
        self.phase = Phase::Open;
        self.queue.opened();
        self.heard = now;
    }

    /// Notes that something was received.
    pub(crate) fn note_received(&mut self, now: Time) {
        self.heard = now;
    }

    /// Notes since when part of a message is here; `None` when none is.
    pub(crate) fn set_partial(&mut self, since: Option<Time>) {
        self.partial = since;
    }

    /// Notes that part of a message is here. Returns whether it is the first part.
    pub(crate) fn begin_partial(&mut self, now: Time) -> bool {
        let first = self.partial.is_none();
        self.partial.get_or_insert(now);
        first
    }

    /// Notes that a message that is only partly here took too long.
    pub(crate) fn set_overdue(&mut self) {
        self.partial = None;
        self.overdue = true;
    }

    /// Returns whether a message that is only partly here took too long, once for each.
    pub(crate) fn take_overdue(&mut self) -> bool {
        std::mem::take(&mut self.overdue)
    }

    /// Notes the result of a write: whether there was any progress, and whether something still waits for the
    /// peer. Returns whether a new deadline begins.
    pub(crate) fn note_written(&mut self, now: Time, progress: bool, blocked: bool) -> bool {
        let begins = blocked && (progress || self.stalled.is_none());
        if begins {
            self.stalled = Some(now);
        } else if !blocked {
            self.stalled = None;
        }
        begins
    }

    /// Notes the number of bytes received and not read. Returns the number before.
    pub(crate) fn set_unread(&mut self, unread: usize) -> usize {
        std::mem::replace(&mut self.unread, unread)
    }

    /// Notes that a whole message has come. Returns whether it is the first.
    pub(crate) fn prove(&mut self) -> bool {
        !std::mem::replace(&mut self.proven, true)
    }

    /// Returns what the world keeps with it.
    pub(crate) fn handle_mut(&mut self) -> &mut T {
        &mut self.handle
    }

    /// Sets the timer, if the first deadline has become earlier. Returns whether it did.
    pub(crate) fn set_timer(&mut self, wheel: &mut TimerWheel<FlowId>, limits: &Limits) -> bool {
        let (at, _) = self.deadline(limits);
        if self.timer != TimerId::NONE {
            if at >= self.due {
                // The deadline is looked at again when the timer fires: cheaper than moving it each time.
                return false;
            }
            wheel.cancel(self.timer);
        }
        self.timer = wheel.set(at, self.flow.id);
        self.due = at;
        true
    }

    /// Notes that the timer fired.
    pub(crate) fn timer_fired(&mut self) {
        self.timer = TimerId::NONE;
    }

    /// Returns the first deadline that applies, and the reason for which the connection ends then.
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

    /// Has the owner end the connection. An earlier reason stays; the earlier of two deadlines applies.
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
    }

    /// Has the owner end the connection once what is queued is written, within [`CLOSE_LINGER`].
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

    /// Whether it has brought no whole message yet, and is not ending.
    pub(crate) fn is_half_open(&self) -> bool {
        !self.proven && self.ending.is_none()
    }

    /// Whether new messages may use it.
    pub(crate) fn takes_messages(&self) -> bool {
        self.ending.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::{FlowId, Transport};
    use std::time::Duration;

    fn connection() -> Connection<()> {
        let flow = Flow {
            id: FlowId::new(0, 1),
            transport: Transport::Tcp,
            local: "127.0.0.1:5060".parse().unwrap(),
            remote: "127.0.0.1:40000".parse().unwrap(),
        };
        let source = Some([127, 0, 0, 1].into());
        let mut c = Connection::new(flow, source, None, Time::from_secs(1_000));
        c.phase = Phase::Open;
        c
    }

    #[test]
    fn a_connection_may_bring_so_many_malformed_messages_a_minute() {
        let mut c = connection();
        let begun = c.since;
        assert!((0..MAX_MALFORMED).all(|_| c.note_malformed(begun)));
        assert!(!c.note_malformed(begun + MALFORMED_PERIOD / 2));
        assert!((0..MAX_MALFORMED).all(|_| c.note_malformed(begun + MALFORMED_PERIOD)));
        assert!(!c.note_malformed(begun + MALFORMED_PERIOD));
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
        let mut c = connection();
        assert_eq!(c.deadline(&limits), (at(30), CloseReason::HalfOpen));
        c.partial = Some(at(5));
        assert_eq!(c.deadline(&limits), (at(15), CloseReason::Slow));
        (c.partial, c.proven, c.heard) = (None, true, at(50));
        assert_eq!(c.deadline(&limits), (at(150), CloseReason::Idle));
        c.end_flushed(at(60), CloseReason::Malformed);
        assert_eq!(c.deadline(&limits).1, CloseReason::Malformed);
    }
}
