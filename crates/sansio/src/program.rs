//! What a program above flows must be able to do, in either world.

use crate::flow::Flow;
use crate::malformed::Malformed;
use crate::outbox::Outbox;
use crate::time::{Duration, Time};
use core::fmt;

/// How far a worker is behind its sockets, as seen when a batch is received, or when a connection has had
/// its turn and there is more. Waits of several sockets are added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Datagrams received without a pause: this batch and the full batches in a row before it; and
    /// messages over connections since one could not be read to its end.
    pub messages: usize,
    /// Bytes of memory that datagrams not yet received take, the kernel's own records of them included. An
    /// estimate: of what was received the kernel frees the memory late, in one lot. Zero after a batch that
    /// was not full, which leaves nothing.
    pub queued: usize,
    /// Bytes of memory that they may take; from then on the kernel drops datagrams. Set when batches come
    /// full, zero otherwise.
    pub capacity: usize,
    /// An estimate of the time that the worker needs for what is queued: the number of datagrams, derived
    /// from the memory and the size of those of this batch, times the time that each took of late while
    /// batches came full. It may be wrong by a factor of two or three: the memory of a datagram depends on
    /// the network card. Zero after a batch that was not full, and until two full ones have come in a row
    /// for the first time.
    pub delay: Duration,
}

/// The peer of a connection, as far as a certificate proved it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// SIP domains that the peer's verified certificate stands for (RFC 5922 section 7.1), in lower case.
    /// Empty without TLS, and for a peer that showed no certificate.
    pub domains: Vec<Box<str>>,
    /// Whether the peer opened the connection, not the local endpoint.
    pub inbound: bool,
}

/// The reason why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed it.
    Peer,
    /// The connection broke.
    Broken,
    /// Over SCTP: the peer restarted the association (RFC 9260 section 5.2.4.1). Messages under way are lost,
    /// and the association continues as another connection.
    Restarted,
    /// Nothing was received for longer than the idle limit.
    Idle,
    /// No complete first message came in time, or it was closed to make room for other connections.
    HalfOpen,
    /// A message took too long from its first byte to its last.
    Slow,
    /// The peer does not read what is sent to it.
    SlowReader,
    /// The peer sent what cannot be framed as SIP, or too many malformed messages.
    Malformed,
    /// The endpoint stops.
    Stopped,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CloseReason::Peer => "closed by the peer",
            CloseReason::Broken => "connection broken",
            CloseReason::Restarted => "restarted by the peer",
            CloseReason::Idle => "idle for too long",
            CloseReason::HalfOpen => "no message came",
            CloseReason::Slow => "message came too slowly",
            CloseReason::SlowReader => "peer does not read",
            CloseReason::Malformed => "not SIP",
            CloseReason::Stopped => "stopping",
        })
    }
}

/// The unit of the share that [`Program::backlog`] returns: all of it.
pub const SHED_ALL: u32 = 1024;

/// A program above flows: the logic of one worker. It exchanges whole messages with peers, whatever carries
/// them, and learns what became of each.
///
/// Messages in `out` leave after the call, in order. `now` never goes backwards.
pub trait Program {
    /// Handles a message: a datagram, or a message framed from a connection. A datagram is not checked at
    /// all: it has any length from one byte up, and any bytes.
    fn message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox);

    /// Handles a message on a connection that cannot be used: its start line cannot be parsed, it is too
    /// large, it came too slowly (status 408), or it cannot be framed. `head` is what has come of its header
    /// section, with a placeholder for a start line that cannot be parsed, so that a response can be made
    /// from it. Responses on this flow are sent. The flow closes only where no next message can be found
    /// behind this one, or after too many of them.
    fn malformed(
        &mut self,
        now: Time,
        flow: &Flow,
        head: &[u8],
        error: &Malformed,
        out: &mut Outbox,
    ) {
        let _ = (now, flow, head, error, out);
    }

    /// Handles a new connection that is ready to carry messages.
    fn opened(&mut self, now: Time, flow: &Flow, peer: &Peer, out: &mut Outbox) {
        let _ = (now, flow, peer, out);
    }

    /// Handles the end of a connection that was opened.
    fn closed(&mut self, now: Time, flow: &Flow, reason: CloseReason, out: &mut Outbox);

    /// Handles the failure to send the message with a report number, or its refusal by the peer's host.
    /// Called at most once for a message; silence is no proof of delivery.
    fn not_sent(&mut self, now: Time, report: u64, out: &mut Outbox);

    /// Handles the end of the connection by which the request with a report number left, or was to leave.
    /// Whether the request arrived is not known, and neither is here whether it was answered. Called after
    /// [`Program::closed`], at most once for a request, and not for those of [`Program::not_sent`].
    fn cut_off(&mut self, now: Time, report: u64, out: &mut Outbox) {
        let _ = (now, report, out);
    }

    /// Handles the time that [`Program::poll_timeout`] returned.
    fn timeout(&mut self, now: Time, out: &mut Outbox);

    /// Returns the time at which [`Program::timeout`] is to be called.
    fn poll_timeout(&self) -> Option<Time>;

    /// Learns how far the worker is behind: before the messages of each batch of datagrams, and when a
    /// connection cannot be read to its end in one turn. Returns the share, of [`SHED_ALL`], of datagrams
    /// that would begin something new which the system is to discard unseen from now on. It discards none
    /// once the socket is empty.
    fn backlog(&mut self, now: Time, backlog: Backlog) -> u32 {
        let _ = (now, backlog);
        0
    }
}
