//! Requests of RFC 6525 and their answers, in both directions.

use crate::Tsn;
use crate::numbers::Mid;
use crate::wire::DataFlags;
use ringway_sansio::Time;
use std::collections::VecDeque;

/// Maximum number of streams named in one request. To reset more, reset all.
pub const MAX_RESET_STREAMS: usize = 200;
/// Maximum number of requests that wait for their turn.
pub const MAX_REQUESTS: usize = 8;
/// Maximum number of answers that wait to be sent. The peer repeats its request for the others.
const MAX_ANSWERS: usize = 4;

/// The streams that are reset (RFC 6525). An empty list stands for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset<'a> {
    /// Streams of the local endpoint.
    Outgoing(&'a [u16]),
    /// Streams of the peer, which is asked to reset them.
    Incoming(&'a [u16]),
    /// All streams in both directions, and the TSNs (section 5.1.4).
    Everything,
}

/// A request that waits for its turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum QueuedRequest {
    /// The streams, and the peer's request that it answers.
    Outgoing(Box<[u16]>, Option<u32>),
    Incoming(Box<[u16]>),
    Everything,
    AddOutgoing(u16),
    AddIncoming(u16),
}

/// An outstanding request.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(super) request: u32,
    pub(super) kind: QueuedRequest,
    pub(super) value: Vec<u8>,
    pub(super) send: bool,
    pub(super) path: usize,
    /// Whether the peer has answered that the request is in progress.
    pub(super) in_progress: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) request: u32,
    pub(super) result: u32,
    pub(super) next: Option<(Tsn, Tsn)>,
}

/// An outgoing reset of the peer that waits for data sent before it (section 5.2.2, E2).
#[derive(Debug)]
pub(super) struct DeferredReset {
    pub(super) request: u32,
    pub(super) last_tsn: Tsn,
    pub(super) streams: Box<[u16]>,
    /// Chunks that arrived too early.
    pub(super) held: Vec<HeldChunk>,
}

/// A chunk of data of a stream whose reset waits. Its TSN is after the last one assigned before the
/// reset.
#[derive(Debug)]
pub(super) struct HeldChunk {
    pub(super) flags: DataFlags,
    pub(super) tsn: Tsn,
    pub(super) stream: u16,
    /// SSN or MID.
    pub(super) number: Mid,
    pub(super) ppid_or_fsn: u32,
    pub(super) user: Box<[u8]>,
}

/// State of the requests in both directions. It is created with the first request.
#[derive(Debug)]
pub(crate) struct Reconfig {
    pub(super) next_request: u32,
    /// The number of the peer's next request.
    pub(super) expected: u32,
    pub(super) queued: VecDeque<QueuedRequest>,
    pub(super) pending: Option<PendingRequest>,
    pub(super) answers: VecDeque<Answer>,
    pub(super) unsent: VecDeque<Answer>,
    pub(super) deferred: Option<DeferredReset>,
    /// The time until which nothing new is sent, and whether that protects an answer that new data
    /// would overtake.
    pub(crate) quiet: Option<Time>,
    pub(super) answering: bool,
    /// Number of times that a reset of everything was postponed.
    pub(super) delays: u16,
    pub(crate) timer: Option<Time>,
}

impl Reconfig {
    pub(super) fn new(next_request: u32, expected: u32) -> Reconfig {
        Reconfig {
            next_request,
            expected,
            queued: VecDeque::new(),
            pending: None,
            answers: VecDeque::new(),
            unsent: VecDeque::new(),
            deferred: None,
            quiet: None,
            answering: false,
            delays: 0,
            timer: None,
        }
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        if self.unsent.len() < MAX_ANSWERS {
            self.unsent.push_back(answer);
        }
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        !self.unsent.is_empty() || self.pending.as_ref().is_some_and(|pending| pending.send)
    }
}
