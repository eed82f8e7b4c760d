//! What arrives: which TSNs, what of them is reported, and the way of data from chunks to messages
//! (RFC 9260 sections 6.2, 6.5, 6.6, 6.7 and 6.9).
//!
//! Chunks in order go straight into a byte ring from which messages are read. What comes after a
//! gap waits in runs of fragments, or whole until its turn in its stream. Nothing that was
//! acknowledged is ever dropped.

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

/// What a chunk or message that waits counts in the receive buffer at least, so that small ones
/// cannot take many times the memory that the buffer is large. Where it is kept by itself it takes up to
/// 200 bytes beside its own, but counts no more: what waits for a gap to be filled must not keep out
/// what fills it.
pub const CHUNK_COST: usize = 64;

/// Places in the queue of what can be read that there are at least.
const MIN_READY: usize = 4;
/// More than these are given back as soon as the queue is empty.
const RETAINED_READY: usize = 16 * 1024;

/// A message, or a part of one, that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The stream it came on.
    pub stream: u16,
    /// Its place in the stream; without meaning when unordered.
    pub ssn: Ssn,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// Delivered without regard to the order of the stream.
    pub unordered: bool,
    /// Begins the message. Not so for what follows a part (RFC 9260 section 11.2.1).
    pub begin: bool,
    /// Ends the message. Not so for a part of one that is larger than half the receive buffer.
    pub end: bool,
    /// What is missing of the message was given up by its sender (RFC 3758): it began with the parts
    /// read before and has no end.
    pub cut: bool,
    /// Bytes.
    pub len: usize,
}

/// What became of a DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It was taken, and is the next in order, or not.
    Taken {
        in_order: bool,
    },
    Duplicate,
    /// There is no room for it.
    Dropped,
    /// The peer breaks the rules; in words.
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
    /// The message whose first chunks have arrived in order and stand at the end of the ring.
    partial: Option<Partial>,
    /// Runs of fragments after a gap, by the place of their first.
    runs: BTreeMap<u64, Run>,
    /// Messages whose turn in their stream has not come.
    held: BTreeMap<(u16, u16), Whole>,
    /// Where messages are interleaved (RFC 8260).
    interleaved: Option<Box<Interleaved>>,
    /// What comes next did not fit, so that parts of messages are delivered, however small.
    pressed: bool,
    /// Bytes of user data that are here, and pieces that they are in.
    bytes: usize,
    pieces: usize,
    capacity: usize,
    /// What the peer was told last, less what came since.
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

    /// Begins anew after a restart of the peer. Whole messages that were not read stay.
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
                one.body = Body::Own(Fragments::One(data.into_boxed_slice()));
            }
            self.pieces += one.pieces();
            self.ready.push_back(one);
        }
    }

    /// The peer's first TSN.
    pub(crate) fn initial_tsn(&self) -> Tsn {
        self.line.tsn(Line::ORIGIN)
    }

    /// The peer begins streams anew (RFC 6525 section 5.2.2), all if none is named.
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

    /// All streams and the TSNs begin anew (RFC 6525 section 5.2.4): what is whole is delivered,
    /// what is not is dropped.
    pub(crate) fn reset_everything(&mut self, next: Tsn) {
        for (_, whole) in core::mem::take(&mut self.held) {
            self.deliver(whole);
        }
        self.finish_interleaved(true);
        self.finish();
        self.restart(next);
    }

    /// The Cumulative TSN Ack.
    pub(crate) fn cumulative(&self) -> Tsn {
        self.line.tsn(self.tracker.cumulative())
    }

    /// The TSN at a place.
    pub(crate) fn tsn(&self, position: u64) -> Tsn {
        self.line.tsn(position)
    }

    fn used(&self) -> usize {
        self.bytes.max(self.pieces * CHUNK_COST)
    }

    /// The a_rwnd that may be told: what is free, or nothing when that is not worth telling
    /// (RFC 1122 section 4.2.3.3).
    pub(crate) fn window(&self, mtu: usize) -> usize {
        let free = self.capacity.saturating_sub(self.used());
        if free < mtu.min(self.capacity / 4) { 0 } else { free }
    }

    /// Notes what the peer is told.
    pub(crate) fn advertise(&mut self, window: usize) {
        self.advertised = window;
    }

    /// Whether reading has opened the window so far that the peer should hear of it (RFC 9260
    /// section 6.2): by a quarter of the buffer, from below half of it or below a packet.
    pub(crate) fn window_opened(&self, mtu: usize) -> bool {
        let window = self.window(mtu);
        self.advertised < mtu.max(self.capacity / 2)
            && window >= self.advertised + self.capacity / 4
    }

    /// Whether something can be read.
    pub(crate) fn is_readable(&self) -> bool {
        match &self.partial {
            Some(partial) if partial.delivering => partial.len >= self.part(),
            Some(partial) if self.ready.is_empty() => partial.len >= self.part(),
            _ => !self.ready.is_empty(),
        }
    }

    /// How much of a message makes a part worth delivering.
    fn part(&self) -> usize {
        if self.pressed { 1 } else { (self.capacity / 2).max(1) }
    }

    /// Bytes here that were not read.
    pub(crate) fn buffered(&self) -> usize {
        self.bytes
    }

    /// Whether a chunk of data that is new may go by numbers from after a reset: it is not next in the
    /// order of TSNs, where a gap would say that the peer has not begun anew, or it begins an ordered
    /// message that is not next in its stream.
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

    /// Takes a DATA chunk of a stream that exists, with at least a byte of data.
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

    /// Takes note of a TSN whose data is not wanted (RFC 9260 section 6.5).
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

    /// What fills a gap was within a window that was told, so it is taken even when the buffer is
    /// full, up to twice its size; what goes beyond is not (RFC 9260 section 6.2).
    fn has_room(&self, position: u64, len: usize) -> bool {
        let used = (self.bytes + len).max((self.pieces + 1) * CHUNK_COST);
        if self.bytes == 0 && position == self.tracker.cumulative() + 1 {
            // One chunk may always be under way, however large (section 6.1 A).
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

    /// The message at the end of the ring is whole.
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
            // Everything before it has arrived, so its turn must have come.
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

    /// Delivers what waited for its turn in a stream.
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
            body: Body::Own(whole.data),
        };
        self.queue(ready);
    }

    /// The last that can be read. The queue grows by a quarter, so that it is not half empty.
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
        // All numbers of a stream may be under way, so that none can be told to be too old.
        if self.held.insert((stream, ssn.raw()), whole).is_some() {
            return Err("a stream sequence number is used twice");
        }
        Ok(())
    }

    /// The peer has given up what is missing up to a TSN (RFC 3758 section 3.6).
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
        // Further ahead than anything can be: it is from before a reset (RFC 6525 section 5.2.4).
        if position > self.tracker.cumulative() + MAX_AHEAD {
            return Ok(());
        }
        // The TSN is always one that was given up, so a message that it lies in was.
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
        // What follows of the last message that was given up gets no beginning any more.
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

    /// The last TSN that came was given up: so was the message that it does not end, and nothing else
    /// is new.
    fn forward_to_here(&mut self) -> Result<(), &'static str> {
        let Some(partial) = self.partial.take() else { return Ok(()) };
        self.drop_partial(&partial);
        let Shape { stream, ssn, unordered, .. } = partial.shape;
        if !unordered {
            self.skip_to(stream, ssn);
        }
        self.join()
    }

    /// Nothing more comes: what is not whole, or waits for what is missing, is dropped.
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

    /// A message in the ring gets no end.
    fn drop_partial(&mut self, partial: &Partial) {
        self.ring.drop_last(partial.len);
        self.bytes -= partial.len;
        if partial.delivering {
            let (shape, len, body) = (partial.shape, 0, Body::Own(Fragments::default()));
            self.ready.push_front(Ready { shape, len, begin: false, end: true, cut: true, body });
        }
    }

    /// Messages of a stream up to a number are here or given up: those that are here are delivered.
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

    /// Moves runs that now are in order to the ring.
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
            Body::Own(pieces) => pieces.iter().for_each(|piece| out.extend_from_slice(piece)),
        }
        self.pieces -= ready.pieces();
        if self.ready.is_empty() && self.ready.capacity() > RETAINED_READY {
            self.ready = VecDeque::new();
        }
        self.bytes -= ready.len;
        let cut = ready.cut;
        Some(Received { cut, ..ready.shape.received(ready.begin, ready.end, ready.len) })
    }

    /// Whether nothing waits to be read or to become whole.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.ready.is_empty()
    }

    /// Gives memory back that nothing needs.
    pub(crate) fn trim(&mut self) {
        self.ring.trim();
        if self.is_empty() {
            self.ready = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests;
