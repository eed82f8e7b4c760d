//! What a worker must be able to do so that an [`Endpoint`](crate::Endpoint) can run it.

use ringway_sansio::{Flow, Outbox, Time};
use ringway_sip::Malformed;
use std::fmt;
use std::time::Duration;

/// How far a worker is behind its sockets, as seen when a batch is received, or when a connection has had
/// its turn and there is more. Waits of several sockets are added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Datagrams received without a pause: this batch and the full batches in a row before it; and
    /// messages over connections since one could not be read to its end.
    pub datagrams: usize,
    /// Octets of memory the kernel holds for datagrams not yet received, its own records of them
    /// included. Reckoned: of what was received the kernel gives the memory back late, in one lot. Zero
    /// after a batch that was not full, which leaves nothing.
    pub queued: usize,
    /// Octets of memory there may be; when so much is queued the kernel drops what comes. Told when
    /// batches come full, zero otherwise.
    pub capacity: usize,
    /// An estimate of how long the worker will take for what is queued: the number of datagrams,
    /// guessed from the memory and the size of those of this batch, times what each took of late
    /// while batches came full. It may be wrong by a factor of two or three: memory for a datagram
    /// depends on the network card. Zero after a batch that was not full, and until two full ones
    /// have come in a row for the first time.
    pub delay: Duration,
}

/// Who is at the other end of a flow, as far as a certificate proved it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// SIP domains the peer's verified certificate stands for (RFC 5922 section 7.1), lower case.
    /// Empty without TLS, and for a peer that showed no certificate.
    pub domains: Vec<Box<str>>,
    /// Whether the peer opened the connection (we did otherwise).
    pub inbound: bool,
}

/// Why a flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed it.
    Peer,
    /// The connection broke.
    Broken,
    /// Over SCTP: the peer began anew in the midst of the association (RFC 9260 section 5.2.4.1). What
    /// was under way is lost, and the association goes on as another connection.
    Restarted,
    /// Nothing was heard for longer than [`Limits::idle`](crate::Limits::idle).
    Idle,
    /// No complete first message came within
    /// [`Limits::first_message`](crate::Limits::first_message), or it made room for others.
    HalfOpen,
    /// A message took longer than [`Limits::partial`](crate::Limits::partial) to arrive.
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
            CloseReason::Restarted => "the peer began anew",
            CloseReason::Idle => "idle for too long",
            CloseReason::HalfOpen => "no message came",
            CloseReason::Slow => "message came too slowly",
            CloseReason::SlowReader => "peer does not read",
            CloseReason::Malformed => "not SIP",
            CloseReason::Stopped => "stopping",
        })
    }
}

/// What the share that [`Handler::batch`] gives is counted in.
pub const SHED_ALL: u32 = 1024;

/// One worker's logic. All calls come from the one thread that runs the endpoint; what is put into
/// the outbox leaves once the batch is done. `now` never goes backwards.
pub trait Handler: Sized + 'static {
    /// What other threads may post to this worker.
    type Post: Send + 'static;

    /// A datagram, or a whole message framed from a stream or WebSocket. Datagrams are not checked
    /// at all: they may be of any length from one byte up, and any bytes.
    fn message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox);

    /// A message came over a connection that cannot be used: its start line cannot be parsed, it is too
    /// large, it came too slowly (status 408), or it cannot be framed. `head` is what has come of its
    /// header section, with a placeholder for a start line that cannot be parsed, so that an answer can
    /// be made of it. Answers put into `out` for this flow are sent. The flow closes only where no next
    /// message can be found behind this one, or too many were malformed.
    fn malformed(
        &mut self,
        now: Time,
        flow: &Flow,
        head: &[u8],
        error: &Malformed,
        out: &mut Outbox,
    );

    /// A connection is ready to carry messages.
    fn opened(&mut self, now: Time, flow: &Flow, peer: &Peer, out: &mut Outbox) {
        let _ = (now, flow, peer, out);
    }

    /// A connection that was opened has ended.
    fn closed(&mut self, now: Time, flow: &Flow, reason: CloseReason, out: &mut Outbox);

    /// The message pushed with this report number could not be sent, or was refused by the peer's
    /// host. Told at most once for each message pushed; silence is no proof of delivery.
    fn not_sent(&mut self, now: Time, report: u64, out: &mut Outbox);

    /// The connection has ended by which the request pushed with this report number left, or was to
    /// leave: whether it arrived is not known, and neither is here whether it was answered. Told after
    /// [`Handler::closed`], at most once for each request, and not of those that
    /// [`Handler::not_sent`] tells.
    fn cut_off(&mut self, now: Time, report: u64, out: &mut Outbox) {
        let _ = (now, report, out);
    }

    /// Something another thread posted.
    fn posted(&mut self, now: Time, item: Self::Post, out: &mut Outbox);

    /// The time told by [`Handler::next_timeout`] has come.
    fn timeout(&mut self, now: Time, out: &mut Outbox);

    /// When [`Handler::timeout`] wants to be called next.
    fn next_timeout(&self) -> Option<Time>;

    /// Told before the messages of each batch of datagrams, and when a connection cannot be read
    /// to its end in one turn, for overload decisions. Gives the share
    /// of datagrams that would begin something new which the system is to discard unseen from now
    /// on, of [`SHED_ALL`]; it discards none once the socket has been found empty.
    fn batch(&mut self, now: Time, backlog: Backlog) -> u32 {
        let _ = (now, backlog);
        0
    }
}
