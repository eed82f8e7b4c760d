//! Receiving: which TSNs have arrived, what is reported of them, and the way of data from chunks to
//! messages (RFC 9260 sections 6.2, 6.5, 6.6, 6.7 and 6.9).
//!
//! Chunks in order go straight into a byte ring from which messages are read. Data after a gap waits in
//! runs of fragments, or as a complete message until the earlier ones of its stream are read.
//! Acknowledged data is never dropped.

mod delivery;
mod interleaved;
mod tracker;

use tracker::MAX_AHEAD;
pub(crate) use tracker::Tracker;

use crate::numbers::{Line, Mid, Ssn, Tsn};
use crate::ring::Ring;
use crate::wire::{Data, DataFlags};
use delivery::{Body, Fragments, Partial, Ready, Run, Shape, Whole};
use interleaved::Interleaved;
use std::collections::{BTreeMap, VecDeque};

/// Minimum number of bytes that a waiting chunk or message counts in the receive buffer, so that small
/// ones cannot use a multiple of the buffer's memory. One that is stored separately uses up to 200
/// bytes more than its data, but counts no more: data that waits for a gap to be filled must not keep
/// out the data that fills it.
pub const CHUNK_COST: usize = 64;

/// Minimum capacity of the queue of readable messages.
const MIN_READY: usize = 4;
/// A larger capacity than this is released as soon as the queue is empty.
const RETAINED_READY: usize = 16 * 1024;

/// A message, or a part of one, that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The stream.
    pub stream: u16,
    /// The stream sequence number; without meaning when unordered.
    pub ssn: Ssn,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// Whether it was delivered without regard to the order of the stream.
    pub unordered: bool,
    /// Whether it begins the message. False for what follows a part (RFC 9260 section 11.2.1).
    pub begin: bool,
    /// Whether it ends the message. False for a part of one that is larger than half the receive
    /// buffer.
    pub end: bool,
    /// Whether the sender abandoned the rest of the message (RFC 3758). The message began with the
    /// parts read before and has no end.
    pub cut: bool,
    /// Number of bytes.
    pub len: usize,
}

/// The outcome of a DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It was accepted, in order or not.
    Taken {
        in_order: bool,
    },
    Duplicate,
    /// The buffer has no room for it.
    Dropped,
    /// The peer violates the protocol; the text names the rule.
    Violation(&'static str),
}

#[derive(Debug)]
pub(crate) struct Incoming {
    line: Line,
    pub(crate) tracker: Tracker,
    /// The next SSN of each stream, up to the highest stream used.
    next_ssn: Vec<Ssn>,
    ring: Ring,
    ready: VecDeque<Ready>,
    /// The message whose first chunks have arrived in order and are at the end of the ring.
    partial: Option<Partial>,
    /// Runs of fragments after a gap, by the position of their first fragment.
    runs: BTreeMap<u64, Run>,
    /// Complete messages that wait for earlier ones of their stream.
    held: BTreeMap<(u16, u16), Whole>,
    /// State of interleaved messages, where negotiated (RFC 8260).
    interleaved: Option<Box<Interleaved>>,
    /// Whether the next chunk did not fit, so that parts of messages are delivered, however small.
    pressed: bool,
    /// Bytes of user data in the buffer, and the number of fragments.
    bytes: usize,
    pieces: usize,
    capacity: usize,
    /// The window last advertised, less the data received since.
    advertised: usize,
}

impl Incoming {
    pub(crate) fn new(initial_tsn: Tsn, capacity: usize) -> Incoming {
        Incoming {
            line: Line::new(initial_tsn),
            tracker: Tracker::new(),
            next_ssn: Vec::new(),
            ring: Ring::default(),
            ready: VecDeque::new(),
            partial: None,
            runs: BTreeMap::new(),
            held: BTreeMap::new(),
            interleaved: None,
            pressed: false,
            bytes: 0,
            pieces: 0,
            capacity,
            advertised: capacity,
        }
    }

    /// Starts over after a restart of the peer. Complete unread messages stay.
    pub(crate) fn restart(&mut self, initial_tsn: Tsn) {
        let ready = core::mem::take(&mut self.ready);
        let mut ring = core::mem::take(&mut self.ring);
        let interleaved = self.is_interleaved();
        *self = Incoming::new(initial_tsn, self.capacity);
        self.interleave(interleaved);
        for mut one in ready {
            let mut data = Vec::new();
            self.bytes += one.len;
            if matches!(one.body, Body::Ring) {
                ring.pop(one.len, &mut data);
                one.body = Body::Separate(Fragments::One(data.into_boxed_slice()));
            }
            self.pieces += one.pieces();
            self.ready.push_back(one);
        }
    }

    /// Returns the peer's first TSN.
    pub(crate) fn initial_tsn(&self) -> Tsn {
        self.line.tsn(Line::ORIGIN)
    }

    /// Resets the peer's streams, or all if none is named (RFC 6525 section 5.2.2).
    pub(crate) fn reset_streams(&mut self, streams: &[u16]) {
        if streams.is_empty() {
            self.next_ssn.clear();
        }
        if let Some(interleaved) = &mut self.interleaved {
            interleaved.reset_streams(streams);
        }
        for &stream in streams {
            if let Some(next) = self.next_ssn.get_mut(usize::from(stream)) {
                *next = Ssn::default();
            }
        }
    }

    /// Resets all streams and the TSNs (RFC 6525 section 5.2.4). Complete messages are delivered,
    /// incomplete ones dropped.
    pub(crate) fn reset_everything(&mut self, next: Tsn) {
        for (_, whole) in core::mem::take(&mut self.held) {
            self.deliver(whole);
        }
        self.finish_interleaved(true);
        self.finish();
        self.restart(next);
    }

    /// Returns the Cumulative TSN Ack.
    pub(crate) fn cumulative(&self) -> Tsn {
        self.line.tsn(self.tracker.cumulative())
    }

    /// Returns the TSN at a position.
    pub(crate) fn tsn(&self, position: u64) -> Tsn {
        self.line.tsn(position)
    }

    fn used(&self) -> usize {
        self.bytes.max(self.pieces * CHUNK_COST)
    }

    /// Returns the a_rwnd to advertise: the free bytes, or zero when they are too few to be useful (RFC
    /// 1122 section 4.2.3.3).
    pub(crate) fn window(&self, mtu: usize) -> usize {
        let free = self.capacity.saturating_sub(self.used());
        if free < mtu.min(self.capacity / 4) { 0 } else { free }
    }

    /// Notes the window that was advertised.
    pub(crate) fn advertise(&mut self, window: usize) {
        self.advertised = window;
    }

    /// Returns whether reading has opened the window enough for a window update (RFC 9260 section 6.2):
    /// by a quarter of the buffer, from below half of it or below a packet.
    pub(crate) fn window_opened(&self, mtu: usize) -> bool {
        let window = self.window(mtu);
        self.advertised < mtu.max(self.capacity / 2)
            && window >= self.advertised + self.capacity / 4
    }

    /// Returns whether a message can be read.
    pub(crate) fn is_readable(&self) -> bool {
        match &self.partial {
            Some(partial) if partial.delivering => partial.len >= self.part(),
            Some(partial) if self.ready.is_empty() => partial.len >= self.part(),
            _ => !self.ready.is_empty(),
        }
    }

    /// Returns the minimum size of a part that is delivered alone.
    fn part(&self) -> usize {
        if self.pressed { 1 } else { (self.capacity / 2).max(1) }
    }

    /// Returns the number of unread bytes.
    pub(crate) fn buffered(&self) -> usize {
        self.bytes
    }

    /// Returns whether a new chunk of data may have numbers of after a reset. It is not the next TSN,
    /// where a gap would show that the peer has not reset, or it begins an ordered message that is not
    /// the next in its stream.
    pub(crate) fn may_be_anew(&self, tsn: Tsn, flags: DataFlags, stream: u16, number: Mid) -> bool {
        let cumulative = self.tracker.cumulative();
        let position = self.line.position(tsn, cumulative);
        if self.tracker.has(position) || position < self.tracker.highest() {
            return false;
        }
        let next = match &self.interleaved {
            Some(interleaved) => interleaved.next(stream),
            None => {
                let next = self.next_ssn.get(usize::from(stream)).copied();
                Mid::new(u32::from(next.unwrap_or_default().raw()))
            }
        };
        let first = flags.has(DataFlags::BEGIN) && !flags.has(DataFlags::UNORDERED);
        position != cumulative + 1 || (first && number != next)
    }

    /// Handles a DATA chunk of an existing stream, with at least one byte of data.
    pub(crate) fn take(&mut self, data: &Data<'_>) -> Arrival {
        let position = self.line.position(data.tsn, self.tracker.cumulative());
        if self.tracker.has(position) {
            self.tracker.note_duplicate(position);
            return Arrival::Duplicate;
        }
        if !self.has_room(position, data.user.len()) || !self.tracker.can_take(position) {
            self.pressed |= position == self.tracker.cumulative() + 1;
            return Arrival::Dropped;
        }
        let in_order = position == self.tracker.cumulative() + 1;
        self.bytes += data.user.len();
        self.advertised = self.advertised.saturating_sub(data.user.len());
        let result =
            if in_order { self.take_next(position, data) } else { self.take_later(position, data) };
        self.tracker.take(position);
        let result = result.and_then(|()| self.join());
        match result {
            Ok(()) => Arrival::Taken { in_order },
            Err(what) => Arrival::Violation(what),
        }
    }

    /// Notes the arrival of a TSN whose data is discarded (RFC 9260 section 6.5).
    pub(crate) fn discard(&mut self, tsn: Tsn) -> Arrival {
        let position = self.line.position(tsn, self.tracker.cumulative());
        if self.tracker.has(position) {
            self.tracker.note_duplicate(position);
            return Arrival::Duplicate;
        }
        if !self.tracker.can_take(position) {
            return Arrival::Dropped;
        }
        let in_order = position == self.tracker.cumulative() + 1;
        self.tracker.take(position);
        match self.join() {
            Ok(()) => Arrival::Taken { in_order },
            Err(what) => Arrival::Violation(what),
        }
    }

    /// Returns whether a chunk fits. A chunk that fills a gap was within an advertised window, so it is
    /// accepted even when the buffer is full, up to twice its size (RFC 9260 section 6.2).
    fn has_room(&self, position: u64, len: usize) -> bool {
        let used = (self.bytes + len).max((self.pieces + 1) * CHUNK_COST);
        if self.bytes == 0 && position == self.tracker.cumulative() + 1 {
            // One chunk of any length is always allowed (section 6.1 A).
            true
        } else if position < self.tracker.highest() {
            used <= 2 * self.capacity
        } else {
            used <= self.capacity
        }
    }

    fn take_next(&mut self, position: u64, data: &Data<'_>) -> Result<(), &'static str> {
        let shape = Shape::of(data);
        if data.flags.has(DataFlags::BEGIN) {
            if self.partial.is_some() {
                return Err("a message begins within another");
            }
            self.partial = Some(Partial {
                shape,
                start: position,
                next: position,
                len: 0,
                delivering: false,
                began: false,
            });
        }
        let Some(partial) = &mut self.partial else {
            return Err("a fragment continues no message");
        };
        if !partial.shape.same_message(&shape) {
            return Err("fragments of a message differ in stream or number");
        }
        self.ring.push(data.user);
        partial.len += data.user.len();
        partial.next = position + 1;
        if data.flags.has(DataFlags::END) { self.commit() } else { Ok(()) }
    }

    /// Completes the message at the end of the ring.
    fn commit(&mut self) -> Result<(), &'static str> {
        let Some(partial) = self.partial.take() else { return Ok(()) };
        let shape = partial.shape;
        let ready = Ready {
            shape,
            len: partial.len,
            begin: !partial.began,
            end: true,
            cut: false,
            body: Body::Ring,
        };
        self.pieces += 1;
        if partial.delivering {
            self.ready.push_front(ready);
        } else {
            self.queue(ready);
        }
        if shape.unordered {
            return Ok(());
        }
        let next = self.next_of(shape.stream);
        if shape.ssn != *next {
            // Everything before it has arrived, so it must be the next.
            return Err("a stream sequence number is not the next");
        }
        *next = next.plus(1);
        self.release_held(shape.stream);
        Ok(())
    }

    fn next_of(&mut self, stream: u16) -> &mut Ssn {
        let index = usize::from(stream);
        if index >= self.next_ssn.len() {
            self.next_ssn.reserve_exact(index + 1 - self.next_ssn.len());
            self.next_ssn.resize(index + 1, Ssn::default());
        }
        &mut self.next_ssn[index]
    }

    /// Delivers the messages that waited for earlier ones of a stream.
    fn release_held(&mut self, stream: u16) {
        if self.held.is_empty() {
            return;
        }
        loop {
            let next = *self.next_of(stream);
            let Some(whole) = self.held.remove(&(stream, next.raw())) else { return };
            *self.next_of(stream) = next.plus(1);
            self.deliver(whole);
        }
    }

    fn deliver(&mut self, whole: Whole) {
        let ready = Ready {
            shape: whole.shape,
            len: whole.len,
            begin: true,
            end: true,
            cut: false,
            body: Body::Separate(whole.data),
        };
        self.queue(ready);
    }

    /// Appends to the queue of readable messages. Its capacity grows by a quarter, so that it is not
    /// half empty.
    fn queue(&mut self, ready: Ready) {
        if self.ready.len() == self.ready.capacity() {
            self.ready.reserve_exact((self.ready.len() / 4).max(MIN_READY));
        }
        self.ready.push_back(ready);
    }

    fn take_later(&mut self, position: u64, data: &Data<'_>) -> Result<(), &'static str> {
        self.pieces += 1;
        let mut run = Run::of(position, data);
        if !run.begins
            && let Some((&start, before)) = self.runs.range(..position).next_back()
            && before.next == position
            && !before.ends
        {
            let Some(mut before) = self.runs.remove(&start) else { return Ok(()) };
            before.append(run)?;
            run = before;
        }
        if !run.ends
            && let Some(after) = self.runs.get(&run.next)
            && !after.begins
            && let Some(after) = self.runs.remove(&run.next)
        {
            run.append(after)?;
        }
        if !(run.begins && run.ends) {
            self.runs.insert(run.start, run);
            return Ok(());
        }
        let whole = Whole { shape: run.shape, len: run.len, data: run.data };
        let Shape { stream, ssn, unordered, .. } = whole.shape;
        if unordered {
            self.deliver(whole);
            return Ok(());
        }
        let next = *self.next_of(stream);
        if ssn == next {
            *self.next_of(stream) = next.plus(1);
            self.deliver(whole);
            self.release_held(stream);
            return Ok(());
        }
        // All numbers of a stream may be in flight, so none can be recognised as too old.
        if self.held.insert((stream, ssn.raw()), whole).is_some() {
            return Err("a stream sequence number is used twice");
        }
        Ok(())
    }

    /// Handles a FORWARD TSN: the peer abandons what is missing up to a TSN (RFC 3758 section 3.6).
    pub(crate) fn forward(
        &mut self,
        tsn: Tsn,
        streams: impl Iterator<Item = (u16, Ssn)>,
    ) -> Result<(), &'static str> {
        let position = self.line.position(tsn, self.tracker.cumulative());
        if position < self.tracker.cumulative() {
            return Ok(());
        }
        if position == self.tracker.cumulative() {
            return self.forward_to_here();
        }
        // It is too far ahead to be in flight: it is from before a reset (RFC 6525 section 5.2.4).
        if position > self.tracker.cumulative() + MAX_AHEAD {
            return Ok(());
        }
        // The TSN is always an abandoned one, so a message that contains it was abandoned.
        if let Some(partial) = self.partial.take_if(|partial| partial.start <= position) {
            self.drop_partial(&partial);
        }
        while let Some(entry) = self.runs.first_entry()
            && *entry.key() <= position
        {
            let run = entry.remove();
            self.bytes -= run.len;
            self.pieces -= run.data.len();
        }
        // The rest of the last abandoned message gets no beginning any more.
        if let Some(run) = self.runs.get(&(position + 1))
            && !run.begins
            && let Some(run) = self.runs.remove(&(position + 1))
        {
            self.bytes -= run.len;
            self.pieces -= run.data.len();
        }
        self.tracker.forward(position);
        for (stream, ssn) in streams {
            self.skip_to(stream, ssn);
        }
        self.join()
    }

    /// Handles a FORWARD TSN to the last TSN that arrived. The message that this TSN does not end was
    /// abandoned, and nothing else is new.
    fn forward_to_here(&mut self) -> Result<(), &'static str> {
        let Some(partial) = self.partial.take() else { return Ok(()) };
        self.drop_partial(&partial);
        let Shape { stream, ssn, unordered, .. } = partial.shape;
        if !unordered {
            self.skip_to(stream, ssn);
        }
        self.join()
    }

    /// Ends reception: incomplete messages, and those that wait for missing ones, are dropped.
    pub(crate) fn finish(&mut self) {
        if let Some(partial) = self.partial.take() {
            self.drop_partial(&partial);
        }
        self.finish_interleaved(false);
        self.runs.clear();
        self.held.clear();
        self.bytes = self.ready.iter().map(|ready| ready.len).sum();
        self.pieces = self.ready.iter().map(Ready::pieces).sum();
    }

    /// Ends a message in the ring that will not be completed.
    fn drop_partial(&mut self, partial: &Partial) {
        self.ring.drop_last(partial.len);
        self.bytes -= partial.len;
        if partial.delivering {
            let (shape, len, body) = (partial.shape, 0, Body::Separate(Fragments::default()));
            self.ready.push_front(Ready { shape, len, begin: false, end: true, cut: true, body });
        }
    }

    /// Skips a stream's missing messages up to a number and delivers those that arrived.
    fn skip_to(&mut self, stream: u16, ssn: Ssn) {
        let next = *self.next_of(stream);
        if ssn.before(next) {
            return;
        }
        let (from, to) = (next.raw(), ssn.raw());
        let wraps = from > to;
        let first = (stream, from)..=(stream, if wraps { u16::MAX } else { to });
        let mut keys: Vec<_> = self.held.range(first).map(|(key, _)| *key).collect();
        if wraps {
            keys.extend(self.held.range((stream, 0)..=(stream, to)).map(|(key, _)| *key));
        }
        for key in keys {
            if let Some(whole) = self.held.remove(&key) {
                self.deliver(whole);
            }
        }
        *self.next_of(stream) = ssn.plus(1);
        self.release_held(stream);
    }

    /// Moves runs that are now in order to the ring.
    fn join(&mut self) -> Result<(), &'static str> {
        while let Some(entry) = self.runs.first_entry()
            && *entry.key() <= self.tracker.cumulative()
        {
            let run = entry.remove();
            match &mut self.partial {
                Some(partial) => {
                    if run.begins || run.start != partial.next {
                        return Err("a message has no end");
                    }
                    if !partial.shape.same_message(&run.shape) {
                        return Err("fragments of a message differ in stream or number");
                    }
                }
                None if !run.begins => return Err("a fragment continues no message"),
                None => {
                    self.partial = Some(Partial {
                        shape: run.shape,
                        start: run.start,
                        next: run.start,
                        len: 0,
                        delivering: false,
                        began: false,
                    });
                }
            }
            if let Some(partial) = &mut self.partial {
                for piece in run.data.iter() {
                    self.ring.push(piece);
                }
                self.pieces -= run.data.len();
                partial.len += run.len;
                partial.next = run.next;
            }
            if run.ends {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Reads the next message, or the next part of one, to the end of `out`.
    pub(crate) fn read(&mut self, out: &mut Vec<u8>) -> Option<Received> {
        let part = self.part();
        if let Some(partial) = &mut self.partial
            && (partial.delivering || self.ready.is_empty())
        {
            if partial.len < part {
                return None;
            }
            self.pressed = false;
            let len = core::mem::take(&mut partial.len);
            let received = partial.shape.received(!partial.began, false, len);
            partial.began = true;
            partial.delivering = true;
            self.bytes -= len;
            self.ring.pop(len, out);
            return Some(received);
        }
        let ready = self.ready.pop_front()?;
        match &ready.body {
            Body::Ring => self.ring.pop(ready.len, out),
            Body::Separate(pieces) => pieces.iter().for_each(|piece| out.extend_from_slice(piece)),
        }
        self.pieces -= ready.pieces();
        if self.ready.is_empty() && self.ready.capacity() > RETAINED_READY {
            self.ready = VecDeque::new();
        }
        self.bytes -= ready.len;
        let cut = ready.cut;
        Some(Received { cut, ..ready.shape.received(ready.begin, ready.end, ready.len) })
    }

    /// Returns whether no message waits to be read or completed.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.ready.is_empty()
    }

    /// Releases memory that is not needed.
    pub(crate) fn trim(&mut self) {
        self.ring.trim();
        if self.is_empty() {
            self.ready = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests;
