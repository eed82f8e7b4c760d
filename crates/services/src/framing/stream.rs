//! One stream of a framed connection: its two windows, what was received and what is to be sent.

use super::wire::{FRAME_COST, FramingError, HEADER_LEN, Header, Kind, MAX_FRAME, StreamId};
use std::collections::VecDeque;

/// What reading a stream returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// A message, or the last part of one that was read in parts.
    Message(Vec<u8>),
    /// A part of a message that the window does not hold at once; more follows.
    Part(Vec<u8>),
    /// The peer sends nothing more.
    End,
    /// Nothing is complete yet.
    Pending,
}

/// A message, or what there is of it.
#[derive(Clone, Debug, Default)]
struct Incoming {
    bytes: Vec<u8>,
    cost: u32,
    complete: bool,
}

#[derive(Clone, Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    last: bool,
}

/// What is to be sent besides data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendSide {
    Open,
    /// CLOSE is to be sent behind what is queued.
    Closing,
    Ended,
}

/// Octets of a message below which a frame waits for more credit or room, unless it is the rest.
const MIN_CHUNK: usize = 512;

#[derive(Clone, Debug)]
pub(super) struct Stream {
    window: u32,
    /// What the peer may still send.
    receive_credit: u32,
    /// What has been read and not yet been granted again.
    to_grant: u32,
    /// What was received and not read, with the cost of its frames.
    buffered: u32,
    inbox: VecDeque<Incoming>,
    remote_ended: bool,
    /// Whether nobody reads any more.
    discards: bool,
    /// Whether a `Readable` event is out.
    is_notified: bool,
    send_credit: u32,
    outgoing: Option<Outgoing>,
    send_side: SendSide,
    must_open: bool,
    /// Whether it is in the queue of streams that have something to send.
    is_queued: bool,
}

impl Stream {
    pub(super) fn new(window: u32, send_credit: u32, must_open: bool) -> Self {
        Stream {
            window,
            receive_credit: window,
            to_grant: 0,
            buffered: 0,
            inbox: VecDeque::new(),
            remote_ended: false,
            discards: false,
            is_notified: false,
            send_credit,
            outgoing: None,
            send_side: SendSide::Open,
            must_open,
            is_queued: false,
        }
    }

    /// Begins a DATA frame: its cost is checked and its message begun.
    pub(super) fn begin(&mut self, id: StreamId, length: u16) -> Result<(), FramingError> {
        if self.remote_ended {
            return Err(FramingError::AfterClose(id));
        }
        let used = u32::from(length) + FRAME_COST;
        let credit = self.receive_credit;
        self.receive_credit = credit.checked_sub(used).ok_or(FramingError::WindowExceeded {
            stream: id,
            credit,
            used,
        })?;
        if self.discards {
            self.to_grant += used;
            return Ok(());
        }
        if self.inbox.back().is_none_or(|message| message.complete) {
            self.inbox.push_back(Incoming::default());
        }
        if let Some(message) = self.inbox.back_mut() {
            message.cost += used;
            self.buffered += used;
        }
        Ok(())
    }

    /// Takes in octets of the frame that has begun.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        if let Some(message) = self.inbox.back_mut().filter(|message| !message.complete) {
            message.bytes.extend_from_slice(bytes);
        }
    }

    /// Ends a DATA frame.
    pub(super) fn end(&mut self, end: bool, last: bool) {
        if let Some(message) = self.inbox.back_mut().filter(|_| end) {
            message.complete = true;
        }
        self.remote_ended |= last;
    }

    /// Takes in a CLOSE.
    pub(super) fn close_remote(&mut self, id: StreamId) -> Result<(), FramingError> {
        if self.remote_ended {
            return Err(FramingError::AfterClose(id));
        }
        if self.inbox.back().is_some_and(|message| !message.complete) {
            return Err(FramingError::CutOff(id));
        }
        self.remote_ended = true;
        Ok(())
    }

    /// Returns whether `read` would return something other than `Pending`.
    fn is_readable(&self) -> bool {
        match self.inbox.front() {
            _ if self.discards => false,
            Some(message) => message.complete || self.is_stalled(),
            None => self.remote_ended,
        }
    }

    /// Returns whether a `Readable` event is due: once until the stream has been read empty.
    pub(super) fn notify(&mut self) -> bool {
        let due = self.is_readable() && !self.is_notified;
        self.is_notified |= due;
        due
    }

    /// Enters the queue of streams that have something to send. Returns whether it was not there and has.
    pub(super) fn enter_queue(&mut self) -> bool {
        let enters = !self.is_queued && self.has_output();
        self.is_queued |= enters;
        enters
    }

    /// Leaves that queue.
    pub(super) fn leave_queue(&mut self) {
        self.is_queued = false;
    }

    /// Returns whether the message that is being received fills so much of the window that its end may not come before some of it
    /// is read.
    fn is_stalled(&self) -> bool {
        self.buffered >= self.window / 2
    }

    pub(super) fn read(&mut self) -> Read {
        let stalled = self.is_stalled();
        let Some(message) = self.inbox.front_mut().filter(|message| message.complete || stalled)
        else {
            self.is_notified = false;
            let ended = self.remote_ended && self.inbox.is_empty();
            return if ended { Read::End } else { Read::Pending };
        };
        let (complete, cost) = (message.complete, core::mem::take(&mut message.cost));
        let bytes = core::mem::take(&mut message.bytes);
        self.buffered -= cost;
        self.to_grant += cost;
        if !complete {
            return Read::Part(bytes);
        }
        self.inbox.pop_front();
        Read::Message(bytes)
    }

    /// Drops what was received, and will be.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        self.to_grant += core::mem::take(&mut self.buffered);
        self.inbox.clear();
    }

    /// Returns whether nothing of it has been written.
    pub(super) fn is_unknown_to_peer(&self) -> bool {
        self.must_open
    }

    /// Returns whether a new message can be queued.
    pub(super) fn is_writable(&self) -> bool {
        self.outgoing.is_none() && self.send_side == SendSide::Open
    }

    /// Returns whether no message waits to be written.
    pub(super) fn is_flushed(&self) -> bool {
        self.outgoing.is_none()
    }

    pub(super) fn is_send_ended(&self) -> bool {
        self.send_side != SendSide::Open
            || self.outgoing.as_ref().is_some_and(|outgoing| outgoing.last)
    }

    pub(super) fn send(&mut self, bytes: Vec<u8>, last: bool) {
        self.outgoing = Some(Outgoing { bytes, sent: 0, last });
    }

    pub(super) fn finish(&mut self) {
        if !self.is_send_ended() {
            self.send_side = SendSide::Closing;
        }
    }

    /// Returns what may still be sent.
    pub(super) fn send_credit(&self) -> u32 {
        self.send_credit
    }

    pub(super) fn add_credit(&mut self, id: StreamId, more: u32) -> Result<(), FramingError> {
        let sum = self.send_credit.checked_add(more);
        self.send_credit = sum.ok_or(FramingError::CreditOverflow(id))?;
        Ok(())
    }

    /// Returns whether both directions have ended and all has been read.
    pub(super) fn is_over(&self) -> bool {
        self.remote_ended && self.inbox.is_empty() && self.send_side == SendSide::Ended
    }

    fn must_grant(&self) -> bool {
        !self.remote_ended && self.to_grant >= self.window / 4
    }

    /// Returns the octets that the next DATA frame may carry; `None` if it must wait.
    fn chunk(&self, room: usize) -> Option<usize> {
        let outgoing = self.outgoing.as_ref()?;
        let rest = outgoing.bytes.len() - outgoing.sent;
        let credit = self.send_credit.checked_sub(FRAME_COST)? as usize;
        let chunk = rest.min(MAX_FRAME).min(credit).min(room.checked_sub(HEADER_LEN)?);
        (chunk == rest || chunk >= MIN_CHUNK).then_some(chunk)
    }

    /// Returns whether there is something to send that the window allows.
    fn has_output(&self) -> bool {
        self.must_open
            || self.must_grant()
            || self.chunk(usize::MAX).is_some()
            || self.send_side == SendSide::Closing && self.outgoing.is_none()
    }

    /// Appends frames to `out`: the control frames that are due and one DATA frame. Returns whether a message has been sent
    /// whole, or `None` if there was no room for what is due.
    pub(super) fn write(&mut self, id: StreamId, out: &mut Vec<u8>, room: usize) -> Option<bool> {
        let end = out.len() + room;
        let header = |kind, length: usize, out: &mut Vec<u8>| {
            let room = end - out.len();
            if room < HEADER_LEN + length {
                return None;
            }
            Header { kind, length: length as u16, stream: id }.write(out);
            Some(())
        };
        if self.must_grant() {
            header(Kind::Credit, 4, out)?;
            out.extend_from_slice(&self.to_grant.to_be_bytes());
            self.receive_credit += core::mem::take(&mut self.to_grant);
        }
        if self.outgoing.is_none() && self.must_open {
            header(Kind::Open, 0, out)?;
            self.must_open = false;
        }
        let mut whole = false;
        if self.chunk(usize::MAX).is_some() {
            let chunk = self.chunk(end - out.len())?;
            let outgoing = self.outgoing.as_mut()?;
            let is_end = outgoing.sent + chunk == outgoing.bytes.len();
            let last = is_end && outgoing.last;
            header(Kind::Data { end: is_end, last }, chunk, out)?;
            out.extend_from_slice(&outgoing.bytes[outgoing.sent..outgoing.sent + chunk]);
            outgoing.sent += chunk;
            self.send_credit -= chunk as u32 + FRAME_COST;
            self.must_open = false;
            if is_end {
                self.outgoing = None;
                whole = true;
            }
            if last {
                self.send_side = SendSide::Ended;
            }
        }
        if self.outgoing.is_none() && self.send_side == SendSide::Closing {
            // What has been written before is not lost when there is no room: the caller comes again.
            if header(Kind::Close, 0, out).is_some() {
                self.send_side = SendSide::Ended;
            }
        }
        Some(whole)
    }
}
