//! The state of a framed byte stream: its streams, what arrives and what is to be written.

use super::stream::{Read, Stream};
use super::wire::{
    FramingError, HEADER_LEN, HELLO_LEN, Header, Hello, Kind, MIN_STREAMS, MIN_WINDOW, NUMBER_LEN,
    StreamId, number,
};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

/// Which end opened the byte stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// This one. It opens streams of even numbers.
    Initiator,
    /// The peer. This end opens streams of odd numbers.
    Responder,
}

/// What the peer may use here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Streams of the peer that are open at once; at least [`MIN_STREAMS`].
    pub streams: u32,
    /// Octets of each stream that wait to be read; at least [`MIN_WINDOW`]. A larger message is read in parts.
    pub window: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { streams: 256, window: 256 * 1024 }
    }
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer has opened a stream.
    Opened(StreamId),
    /// [`Mux::read`] returns something.
    Readable(StreamId),
    /// The message has been written whole; another may be sent.
    Writable(StreamId),
    /// The peer has reset a stream, with this code. What was not read is lost.
    Reset(StreamId, u32),
    /// Both ends have closed a stream, and all was read.
    Closed(StreamId),
    /// The peer permits more streams, after there was none left.
    MoreStreams,
}

/// Why a message cannot be sent, or a stream not be opened: the caller's fault, or for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The stream is not open.
    #[error("stream {0} is not open")]
    NotOpen(StreamId),
    /// The last message was sent before.
    #[error("the last message of stream {0} has been sent")]
    Ended(StreamId),
    /// The message before has not been written.
    #[error("stream {0} still has a message to write")]
    Busy(StreamId),
    /// The peer permits no more streams, or their numbers are used up.
    #[error("no stream is left")]
    NoStreams,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames for streams that had ended here, which are ignored.
    pub late_frames: u64,
    /// Frames of kinds to ignore.
    pub ignored_frames: u64,
    /// Octets of DATA frames that were written, with what a frame costs of the window.
    pub data_octets: u64,
}

/// What the next octets are.
#[derive(Clone, Debug)]
enum Expect {
    Hello,
    Header,
    /// The payload of a DATA frame that is kept, or of a frame that is not.
    Payload {
        header: Header,
        left: usize,
        kept: bool,
    },
    Number(Header),
}

/// A framed byte stream.
///
/// ```
/// use ringway_services::framing::{Event, Limits, Mux, Read, Side};
///
/// let mut client = Mux::new(Side::Initiator, Limits::default());
/// let mut server = Mux::new(Side::Responder, Limits::default());
/// let stream = client.open()?;
/// client.send(stream, b"hello".to_vec(), false)?;
///
/// let mut bytes = Vec::new();
/// client.write(&mut bytes, 1_000);
/// server.receive(&bytes)?;
/// assert_eq!(server.poll_event(), Some(Event::Opened(stream)));
/// assert_eq!(server.read(stream), Read::Message(b"hello".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mux {
    limits: Limits,
    expect: Expect,
    /// Octets of a hello, header or number that is not complete.
    partial: Vec<u8>,
    broken: Option<FramingError>,
    streams: BTreeMap<StreamId, Stream>,
    /// The number of the next stream that is opened here; `None` when they are used up.
    next_local: Option<u32>,
    /// The lowest number that the peer may open next.
    next_remote: u64,
    /// Streams that may still be opened here.
    may_open: u32,
    /// Streams that the peer may still open.
    peer_may_open: u32,
    /// The initial window at the peer.
    peer_window: u32,
    hello_sent: bool,
    /// Streams that have something to send, in turns.
    ready: VecDeque<StreamId>,
    resets: VecDeque<(StreamId, u32)>,
    /// Streams of the peer that have ended and can be permitted again.
    to_permit: u32,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Mux {
    /// Returns a framed byte stream at its beginning.
    pub fn new(side: Side, limits: Limits) -> Self {
        let limits = Limits {
            streams: limits.streams.max(MIN_STREAMS),
            window: limits.window.max(MIN_WINDOW),
        };
        let (local, remote) = match side {
            Side::Initiator => (0, 1),
            Side::Responder => (1, 0),
        };
        Mux {
            limits,
            expect: Expect::Hello,
            partial: Vec::new(),
            broken: None,
            streams: BTreeMap::new(),
            next_local: Some(local),
            next_remote: remote,
            may_open: MIN_STREAMS,
            peer_may_open: limits.streams,
            peer_window: MIN_WINDOW,
            hello_sent: false,
            ready: VecDeque::new(),
            resets: VecDeque::new(),
            to_permit: 0,
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Opens a stream. The peer learns of it with the next octets, even if no message is sent.
    ///
    /// # Errors
    /// The peer permits no more streams now ([`Event::MoreStreams`] tells when it does), or 2^31 have been opened.
    pub fn open(&mut self) -> Result<StreamId, SendError> {
        let number = self.next_local.filter(|_| self.may_open > 0).ok_or(SendError::NoStreams)?;
        let id = StreamId(number);
        self.may_open -= 1;
        self.next_local = number.checked_add(2);
        self.streams.insert(id, Stream::new(self.limits.window, self.peer_window, true));
        self.enqueue(id);
        Ok(id)
    }

    /// Returns whether [`open`](Mux::open) would succeed.
    pub fn can_open(&self) -> bool {
        self.may_open > 0 && self.next_local.is_some()
    }

    /// Returns whether [`send`](Mux::send) would take a message.
    pub fn is_writable(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(Stream::is_writable)
    }

    /// Returns whether nothing that was sent on a stream waits to be written.
    pub fn is_flushed(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(Stream::is_flushed)
    }

    /// Returns whether nothing that was sent waits to be written, on any stream.
    pub fn is_written(&self) -> bool {
        self.streams.values().all(Stream::is_flushed)
    }

    /// Sends a message, the last one of the stream if `last` is set. The message is kept until the windows let it through;
    /// then [`Event::Writable`] comes.
    ///
    /// # Errors
    /// The stream is not open, its last message has been sent, or the message before has not been written.
    pub fn send(&mut self, id: StreamId, message: Vec<u8>, last: bool) -> Result<(), SendError> {
        let stream = self.streams.get_mut(&id).ok_or(SendError::NotOpen(id))?;
        if stream.is_send_ended() {
            return Err(SendError::Ended(id));
        }
        if !stream.is_writable() {
            return Err(SendError::Busy(id));
        }
        stream.send(message, last);
        self.enqueue(id);
        Ok(())
    }

    /// Returns what was received on a stream. Of a stream that is not open, that is the end.
    pub fn read(&mut self, id: StreamId) -> Read {
        let Some(stream) = self.streams.get_mut(&id) else { return Read::End };
        let read = stream.read();
        self.enqueue(id);
        self.settle(id);
        read
    }

    /// Sends nothing more on a stream, behind what is queued. Reading goes on.
    pub fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.finish();
            self.enqueue(id);
        }
    }

    /// Closes a stream, behind what is queued. What the peer still sends is dropped. Other streams are not touched.
    pub fn close(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.finish();
            stream.discard();
            self.enqueue(id);
            self.settle(id);
        }
    }

    /// Ends a stream at once in both directions, without what is queued. Other streams are not touched.
    pub fn reset(&mut self, id: StreamId, code: u32) {
        let Some(stream) = self.streams.remove(&id) else { return };
        if stream.is_unknown_to_peer() {
            // Its number is left out, and the peer has not counted it.
            self.may_open = self.may_open.saturating_add(1);
            return;
        }
        self.resets.push_back((id, code));
        self.permit(id);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        // The peer may open another stream only when the caller knows that this one has ended.
        if let Event::Reset(id, _) | Event::Closed(id) = event {
            self.permit(id);
        }
        Some(event)
    }

    /// Returns the number of streams that are open.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns what is counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes in octets of the byte stream, in pieces of any size.
    ///
    /// # Errors
    /// The peer has broken the format. Every later call returns the same error, and nothing more is written.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), FramingError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        while !bytes.is_empty() {
            match self.step(bytes) {
                Ok(used) => bytes = &bytes[used..],
                Err(error) => {
                    self.broken = Some(error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes in some octets and returns how many; at least one.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, FramingError> {
        let wanted = match self.expect {
            Expect::Hello => HELLO_LEN,
            Expect::Header => HEADER_LEN,
            Expect::Number(_) => NUMBER_LEN,
            Expect::Payload { header, left, kept } => {
                let used = left.min(bytes.len());
                self.payload(header, &bytes[..used], left - used, kept);
                return Ok(used);
            }
        };
        let used = bytes.len().min(wanted - self.partial.len());
        self.partial.extend_from_slice(&bytes[..used]);
        if self.partial.len() == wanted {
            let complete = core::mem::take(&mut self.partial);
            self.complete(&complete)?;
            // Its memory is used again.
            self.partial = complete;
            self.partial.clear();
        }
        Ok(used)
    }

    /// Handles a hello, a header or a number.
    fn complete(&mut self, bytes: &[u8]) -> Result<(), FramingError> {
        match self.expect {
            Expect::Hello => {
                if let Ok(bytes) = bytes.try_into() {
                    self.hello(Hello::parse(bytes)?)?;
                }
                self.expect = Expect::Header;
            }
            Expect::Header => {
                if let Ok(bytes) = bytes.try_into() {
                    self.header(Header::parse(bytes)?)?;
                }
            }
            Expect::Number(header) => {
                self.expect = Expect::Header;
                if let Ok(number) = number(bytes) {
                    self.number(header, number)?;
                }
            }
            Expect::Payload { .. } => {}
        }
        Ok(())
    }

    fn hello(&mut self, hello: Hello) -> Result<(), FramingError> {
        self.peer_window = hello.window;
        self.more_streams(hello.streams - MIN_STREAMS);
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.credit(id, hello.window - MIN_WINDOW)?;
        }
        Ok(())
    }

    fn more_streams(&mut self, more: u32) {
        if self.may_open == 0 && more > 0 {
            self.events.push_back(Event::MoreStreams);
        }
        self.may_open = self.may_open.saturating_add(more);
    }

    fn credit(&mut self, id: StreamId, more: u32) -> Result<(), FramingError> {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.add_credit(id, more)?;
            self.enqueue(id);
        }
        Ok(())
    }

    fn header(&mut self, header: Header) -> Result<(), FramingError> {
        self.expect = Expect::Header;
        let id = header.stream;
        let kept = match header.kind {
            Kind::Streams => {
                self.expect = Expect::Number(header);
                return Ok(());
            }
            Kind::Ignored(_) => {
                self.counters.ignored_frames += 1;
                false
            }
            kind => self.find(id, kind)?,
        };
        match header.kind {
            Kind::Reset | Kind::Credit => self.expect = Expect::Number(header),
            Kind::Close if kept => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.close_remote(id)?;
                    self.notify(id);
                    self.settle(id);
                }
            }
            Kind::Data { .. } | Kind::Ignored(_) => {
                if let Some(stream) = self.streams.get_mut(&id).filter(|_| kept) {
                    stream.begin(id, header.length)?;
                }
                let left = usize::from(header.length);
                if left == 0 {
                    self.payload(header, &[], 0, kept);
                } else {
                    self.expect = Expect::Payload { header, left, kept };
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the stream of a frame is open, after it was opened if the frame does that. A frame for a stream that
    /// has ended here crossed its end and is ignored.
    fn find(&mut self, id: StreamId, kind: Kind) -> Result<bool, FramingError> {
        if self.streams.contains_key(&id) {
            return Ok(true);
        }
        let is_remote = u64::from(id.0) % 2 == self.next_remote % 2;
        let was_open = if is_remote {
            u64::from(id.0) < self.next_remote
        } else {
            self.next_local.is_none_or(|next| id.0 < next)
        };
        if was_open {
            self.counters.late_frames += 1;
            return Ok(false);
        }
        if !is_remote || !matches!(kind, Kind::Data { .. } | Kind::Open) {
            return Err(FramingError::NoStream(id));
        }
        let left = self.peer_may_open.checked_sub(1).ok_or(FramingError::TooManyStreams(id))?;
        self.peer_may_open = left;
        self.next_remote = u64::from(id.0) + 2;
        self.streams.insert(id, Stream::new(self.limits.window, self.peer_window, false));
        self.events.push_back(Event::Opened(id));
        Ok(true)
    }

    /// Handles octets of a payload, after which `left` are missing.
    fn payload(&mut self, header: Header, bytes: &[u8], left: usize, kept: bool) {
        let id = header.stream;
        self.expect = match left {
            0 => Expect::Header,
            left => Expect::Payload { header, left, kept },
        };
        let Kind::Data { end, last } = header.kind else { return };
        if !kept {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.append(bytes);
            if left == 0 {
                stream.end(end, last);
            }
        }
        if left == 0 {
            self.notify(id);
            self.enqueue(id);
            self.settle(id);
        }
    }

    fn number(&mut self, header: Header, number: u32) -> Result<(), FramingError> {
        let id = header.stream;
        match header.kind {
            Kind::Streams => self.more_streams(number),
            Kind::Credit => self.credit(id, number)?,
            Kind::Reset if self.streams.remove(&id).is_some() => {
                self.events.push_back(Event::Reset(id, number));
            }
            _ => {}
        }
        Ok(())
    }

    /// Notifies that a stream has become readable, once until it has been read empty.
    fn notify(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.notify()
        {
            self.events.push_back(Event::Readable(id));
        }
    }

    /// Removes a stream that is over.
    fn settle(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(Stream::is_over) {
            self.streams.remove(&id);
            self.events.push_back(Event::Closed(id));
        }
    }

    /// Permits the peer another stream instead of one that has ended, if it was the peer's.
    fn permit(&mut self, id: StreamId) {
        if u64::from(id.0) % 2 == self.next_remote % 2 {
            self.to_permit += 1;
        }
    }

    fn enqueue(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.enter_queue()
        {
            self.ready.push_back(id);
        }
    }

    /// Returns whether there is something to write.
    pub fn has_output(&self) -> bool {
        self.broken.is_none()
            && (!self.hello_sent
                || !self.resets.is_empty()
                || self.must_permit()
                || self.ready.iter().any(|id| self.streams.contains_key(id)))
    }

    fn must_permit(&self) -> bool {
        let quarter = self.limits.streams.div_ceil(4);
        self.to_permit > 0 && (self.to_permit >= quarter || self.peer_may_open < quarter)
    }

    /// Appends at most `room` octets of the byte stream to `out` and returns how many. Streams take turns, a frame each.
    /// At least 1,024 octets of room are enough to make progress.
    pub fn write(&mut self, out: &mut Vec<u8>, room: usize) -> usize {
        let (start, end) = (out.len(), out.len().saturating_add(room));
        if self.broken.is_some() || !self.write_control(out, end) {
            return out.len() - start;
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let credit = stream.send_credit();
            let written = stream.write(id, out, end - out.len());
            self.counters.data_octets += u64::from(credit - stream.send_credit());
            if written.is_none() {
                self.ready.push_front(id);
                break;
            }
            stream.leave_queue();
            if written == Some(true) && stream.is_writable() {
                self.events.push_back(Event::Writable(id));
            }
            self.enqueue(id);
            self.settle(id);
            if end - out.len() < HEADER_LEN {
                break;
            }
        }
        out.len() - start
    }

    /// Writes what goes before all data. Returns whether there was room for all of it.
    fn write_control(&mut self, out: &mut Vec<u8>, end: usize) -> bool {
        if !self.hello_sent {
            if end - out.len() < HELLO_LEN {
                return false;
            }
            Hello { streams: self.limits.streams, window: self.limits.window }.write(out);
            self.hello_sent = true;
        }
        let length = NUMBER_LEN as u16;
        let has_room = |out: &Vec<u8>| end - out.len() >= HEADER_LEN + NUMBER_LEN;
        while let Some((stream, code)) = self.resets.front().copied() {
            if !has_room(out) {
                return false;
            }
            Header { kind: Kind::Reset, length, stream }.write(out);
            out.extend_from_slice(&code.to_be_bytes());
            self.resets.pop_front();
        }
        if self.must_permit() {
            if !has_room(out) {
                return false;
            }
            Header { kind: Kind::Streams, length, stream: StreamId(0) }.write(out);
            out.extend_from_slice(&self.to_permit.to_be_bytes());
            self.peer_may_open += core::mem::take(&mut self.to_permit);
        }
        true
    }
}
