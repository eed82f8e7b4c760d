//! Sending: messages by stream, the chunks cut from them, and the state of each chunk (RFC 9260
//! sections 6.1, 6.2.1, 6.3.3 and 7.2.4).
//!
//! A message's bytes are shared with the user's buffer. A chunk is a slice of a message, and its bytes
//! are copied once, into the packet. Chunks in flight are in a ring by TSN. A SACK is compared with the
//! previous one, so its cost is in what changed and in what is missing.
//!
//! `send_buffer` counts what messages take, `sent_ring` holds chunks, `retransmissions` those to be sent again, `gaps` what
//! a SACK acknowledges out of order, `peer_window` the peer's room, and `partial` what is abandoned.

mod abandon;
mod closed_streams;
mod gaps;
mod message;
mod partial;
mod peer_window;
mod rack;
mod retransmissions;
mod returned;
mod sack;
mod send_buffer;
mod sent_ring;
mod streams;
mod values;

use closed_streams::ClosedStreams;
use gaps::Gaps;
use message::{Fate, Format, Message, NONE, Queue, SentChunk};
pub use message::{Reliability, SendOptions};
use partial::PartialReliability;
pub(crate) use peer_window::PeerWindow;
use retransmissions::Retransmissions;
use returned::Returned;
pub use returned::UndeliveredMessage;
pub(crate) use sack::{Acknowledgement, SackError};
pub use send_buffer::MESSAGE_COST;
use send_buffer::SendBuffer;
pub use sent_ring::MAX_IN_FLIGHT;
use sent_ring::SentRing;

use crate::error::SendError;
use crate::numbers::{Line, Mid, Ssn, Tsn};
use crate::path::Path;
use crate::scheduler::Scheduler;
use crate::settings::Settings;
use crate::timers::PathTimer;
use crate::wire::data::IData;
use crate::wire::padded;
use crate::wire::{Data, DataFlags};
use bytes::Bytes;
use ringway_sansio::Time;
use slab::Slab;
use std::collections::BTreeMap;

/// Maximum number of chunks that a debug build counts after each packet.
const MAX_COUNTED: usize = 256;

#[derive(Debug)]
pub(crate) struct Outgoing {
    messages: Slab<Message>,
    queues: Vec<Queue>,
    scheduler: Box<dyn Scheduler>,
    /// The message of which some chunks were cut and others not.
    current: Option<u32>,
    buffer: SendBuffer,
    sent: SentRing,
    again: Retransmissions,
    gaps: Gaps,
    /// The position below which no misses are counted.
    uncounted: u64,
    pub(crate) peer_window: PeerWindow,
    /// The position at which the fast recovery ends.
    recovery: Option<u64>,
    partial: PartialReliability,
    /// Undelivered messages that wait to be returned to the user.
    returned: Returned,
    format: Format,
    /// The user's values of streams, ascending by stream.
    values: Vec<(u16, u16)>,
    /// Messages that can be evicted, by priority. Nothing of them was sent.
    priorities: BTreeMap<(u16, u32), ()>,
    /// Streams that accept no messages now (RFC 6525).
    closed: ClosedStreams,
}

impl Outgoing {
    pub(crate) fn new(initial_tsn: Tsn, settings: &Settings) -> Outgoing {
        Outgoing {
            messages: Slab::new(),
            queues: Vec::new(),
            scheduler: settings.scheduling.make(),
            current: None,
            buffer: SendBuffer::default(),
            sent: SentRing::new(initial_tsn),
            again: Retransmissions::default(),
            gaps: Gaps::default(),
            uncounted: Line::ORIGIN,
            peer_window: PeerWindow::default(),
            recovery: None,
            partial: PartialReliability::default(),
            returned: Returned::new(settings.return_undelivered),
            format: Format::Data,
            values: Vec::new(),
            priorities: BTreeMap::new(),
            closed: ClosedStreams::default(),
        }
    }

    /// Drops messages of streams that the peer does not accept (RFC 9260 section 5.1.1). Returns their
    /// number. Keys grow with the order of arrival while nothing was acknowledged, so that the order
    /// among streams stays.
    pub(crate) fn limit_streams(&mut self, streams: u16, settings: &Settings) -> u32 {
        let before = self.messages.len();
        for stream in usize::from(streams)..self.queues.len() {
            self.return_queue(stream);
        }
        for queue in self.queues.drain(usize::from(streams).min(self.queues.len())..) {
            let mut at = queue.head;
            while let Some(message) = self.messages.try_remove(at as usize) {
                self.buffer.drop_waiting(message.data.len());
                self.buffer.entry_removed(message.is_emptied());
                if let Some(priority) = message.priority {
                    self.priorities.remove(&(priority, at));
                }
                at = message.next;
            }
        }
        let dropped = before - self.messages.len();
        if dropped > 0 {
            self.schedule_anew(settings);
        }
        dropped as u32
    }

    /// Sets whether the peer supports FORWARD TSN (RFC 3758).
    pub(crate) fn set_forwards(&mut self, on: bool) {
        self.partial.set_supported(on);
    }

    /// Returns whether the peer supports FORWARD TSN.
    pub(crate) fn forwards(&self) -> bool {
        self.partial.is_supported()
    }

    /// Turns interleaving on or off (RFC 8260 section 2.2.1).
    pub(crate) fn interleave(&mut self, on: bool) {
        self.format = if on { Format::IData } else { Format::Data };
    }

    /// Returns the number of bytes of a chunk before its user data.
    pub(crate) fn header(&self) -> usize {
        self.format.header()
    }

    /// Returns the length of a chunk in a packet.
    pub(crate) fn chunk_size(&self, user: usize) -> usize {
        self.format.header() + padded(user)
    }

    /// Returns the position of the last chunk sent.
    pub(crate) fn last_position(&self) -> u64 {
        self.sent.next() - 1
    }

    /// Returns the position of a TSN that was sent, and its path while that is known.
    pub(crate) fn whereabouts(&self, tsn: Tsn) -> Option<(u64, Option<usize>)> {
        let position = self.sent.position(tsn);
        let path = self.sent.at(position).map(|chunk| usize::from(chunk.path));
        (position < self.sent.next() && position >= Line::ORIGIN).then_some((position, path))
    }

    /// Notes that a chunk is acknowledged for good. A message of which all chunks are needs no room any
    /// more.
    fn arrived_for_good(&mut self, position: u64) {
        let Some(chunk) = self.sent.at_mut(position) else { return };
        chunk.for_good = true;
        let (key, len) = (chunk.message as usize, u32::from(chunk.len));
        let message = &mut self.messages[key];
        message.arrived += len;
        if message.cut as usize == message.data.len() && message.arrived == message.held {
            self.buffer.release(message.held as usize);
            message.data = Bytes::new();
        }
    }

    /// Notes that a new packet begins.
    pub(crate) fn begin_packet(&mut self) {
        self.scheduler.packet();
    }

    /// Returns the bytes of user data in flight.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.peer_window.outstanding()
    }

    /// Returns whether the next packet of retransmissions is sent regardless of the window.
    #[inline]
    pub(crate) fn is_forced(&self) -> bool {
        self.again.is_forced()
    }

    /// Sets whether the next packet of retransmissions is sent regardless of the window.
    #[inline]
    pub(crate) fn set_forced(&mut self, forced: bool) {
        self.again.set_forced(forced);
    }

    /// Notes whether the limit of chunks in flight holds new data back. Returns whether that begins now.
    #[inline]
    pub(crate) fn note_holding(&mut self, holds_back: bool) -> bool {
        self.sent.note_holding(holds_back)
    }

    /// Returns whether the user waits for room and a quarter of the buffer is free again, of which it is then notified.
    #[inline]
    pub(crate) fn take_writable(&mut self, limit: usize) -> bool {
        let writable = self.buffer.has_refused() && self.buffered() <= limit / 4 * 3;
        if writable {
            self.buffer.clear_refused();
        }
        writable
    }

    /// Returns the bytes that are queued or not acknowledged.
    pub(crate) fn buffered(&self) -> usize {
        self.returned.bytes() + self.buffer.total(self.messages.len())
    }

    /// Returns whether nothing is left to send or to be acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.sent.is_empty() && !self.has_new()
    }

    /// Returns whether there is data that was never sent.
    pub(crate) fn has_new(&self) -> bool {
        self.buffer.waiting() > 0
    }

    pub(crate) fn has_marked(&self) -> bool {
        !self.again.is_empty()
    }

    pub(crate) fn in_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    /// Ends the recovery after a timer has expired, which sends everything again.
    pub(crate) fn end_recovery(&mut self) {
        self.recovery = None;
    }

    /// Returns the number of messages that are not fully acknowledged.
    pub(crate) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Queues a message.
    pub(crate) fn push(
        &mut self,
        now: Time,
        options: &SendOptions,
        data: Bytes,
        streams: u16,
        limit: usize,
    ) -> Result<(), SendError> {
        let size = data.len();
        if size == 0 || size > limit {
            return Err(SendError::Size { limit, got: size });
        }
        if options.stream >= streams {
            return Err(SendError::Stream { streams, got: options.stream });
        }
        if self.is_closed(options.stream) {
            return Err(SendError::Resetting);
        }
        let buffered = self.buffered();
        let cost = size.max(MESSAGE_COST);
        let priority = match options.reliability {
            Reliability::Priority(priority) => Some(priority),
            _ => None,
        };
        let full = buffered > 0 && buffered + cost > limit;
        if full
            && !priority.is_some_and(|priority| self.evict_lower_priorities(priority, cost, limit))
        {
            return Err(self.buffer.refuse(buffered, limit, size));
        }
        let index = usize::from(options.stream);
        if index >= self.queues.len() {
            let (next, next_unordered) = (Mid::default(), Mid::default());
            let empty = Queue { head: NONE, tail: NONE, next, next_unordered };
            self.queues.reserve_exact(index + 1 - self.queues.len());
            self.queues.resize(index + 1, empty);
        }
        let (expires, retransmits) = match options.reliability {
            Reliability::Full | Reliability::Priority(_) => (None, None),
            Reliability::Lifetime(lifetime) => (Some(now + lifetime), None),
            Reliability::Retransmits(count) => (None, Some(count)),
        };
        self.partial.queued(options.reliability != Reliability::Full);
        let key = self.messages.insert(Message {
            data,
            ppid: options.ppid,
            stream: options.stream,
            number: Mid::default(),
            unordered: options.unordered,
            immediate: options.immediate,
            expires,
            retransmits,
            cut: 0,
            chunks: 0,
            start: 0,
            fragments: 0,
            held: 0,
            arrived: 0,
            abandoned: false,
            priority,
            next: NONE,
        }) as u32;
        if let Some(priority) = priority {
            self.priorities.insert((priority, key), ());
        }
        let queue = &mut self.queues[index];
        if queue.tail == NONE {
            queue.head = key;
        } else {
            self.messages[queue.tail as usize].next = key;
        }
        queue.tail = key;
        self.scheduler.queued(options.stream, size);
        self.buffer.add(size);
        Ok(())
    }

    /// Returns the message whose chunk is cut next.
    fn upcoming(&self) -> Option<u32> {
        if self.current.is_some() {
            return self.current;
        }
        let stream = self.next_stream()?;
        let key = self.queues[usize::from(stream)].head;
        // Interleaved messages that were begun are completed in any order.
        if self.closed.holds() && self.messages[key as usize].cut == 0 {
            self.begun()
        } else {
            Some(key)
        }
    }

    /// Returns the stream whose turn it is. A caller's scheduler that names one without a message sends nothing.
    fn next_stream(&self) -> Option<u16> {
        let has_message = |stream: &u16| {
            let queue = self.queues.get(usize::from(*stream));
            queue.is_some_and(|queue| queue.head != NONE)
        };
        self.scheduler.next().filter(has_message)
    }

    /// Returns whether the peer holds data after a gap.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Sets the peer's first window.
    pub(crate) fn offered(&mut self, rwnd: u32) {
        self.peer_window.offer(rwnd);
    }

    /// Returns whether the peer has some room and nothing is in flight, so that one larger chunk may be
    /// sent.
    pub(crate) fn takes_one(&self) -> bool {
        self.outstanding() == 0 && self.peer_window.reported() > 0
    }

    /// Returns whether the peer has no room for the first chunk that it refused, or for the next one.
    pub(crate) fn is_shut(&self, max: usize) -> bool {
        let first = self.sent.front().map(|chunk| usize::from(chunk.len));
        // Abandoned data needs no room.
        !self.is_ahead()
            && first
                .or_else(|| self.next_len(max))
                .is_some_and(|len| (self.peer_window.reported() as usize) < len)
    }

    /// Returns the user bytes of the chunk cut next, with at most `max` in one.
    pub(crate) fn next_len(&self, max: usize) -> Option<usize> {
        if self.sent.is_full() { None } else { self.upcoming_len(max) }
    }

    /// Returns the maximum of user bytes in the chunk cut next for a packet that has `space` bytes left, with at most
    /// `max` in one. A message that needs several chunks fills the packet: full packets are fewer, and equal ones leave
    /// in one train. A rest below a quarter of `max` is not worth a chunk.
    pub(crate) fn max_in(&self, space: usize, max: usize) -> usize {
        let room = space.saturating_sub(self.format.header()) & !3;
        let fills = (max / 4..max).contains(&room)
            && self.upcoming().is_some_and(|key| {
                let message = &self.messages[key as usize];
                message.data.len() - message.cut as usize > max
            });
        if fills { room } else { max }
    }

    /// Returns the same for a chunk that is not cut because too many are in flight.
    pub(crate) fn len_held_by_limit(&self, max: usize) -> Option<usize> {
        if self.sent.is_full() { self.upcoming_len(max) } else { None }
    }

    fn upcoming_len(&self, max: usize) -> Option<usize> {
        let message = &self.messages[self.upcoming()? as usize];
        Some((message.data.len() - message.cut as usize).min(max))
    }

    /// Cuts the next chunk, of at most `max` user bytes, sends it on a path and writes it. `ask` sets
    /// the I bit if it is the last chunk.
    pub(crate) fn cut(
        &mut self,
        now: Time,
        max: usize,
        path_index: usize,
        path: &mut Path,
        ask: bool,
        out: &mut Vec<u8>,
    ) {
        let Some(key) = self.upcoming() else { return };
        let position = self.sent.next();
        let message = &mut self.messages[key as usize];
        let total = message.data.len();
        let offset = message.cut as usize;
        let len = (total - offset).min(max);
        let mut flags = DataFlags::default();
        if offset == 0 {
            flags = flags.with(DataFlags::BEGIN);
        }
        let ended = offset + len == total;
        if ended {
            flags = flags.with(DataFlags::END);
        }
        if message.unordered {
            flags = flags.with(DataFlags::UNORDERED);
        }
        self.buffer.cut(len);
        // RFC 9260 section 6.1: the I bit where the user requested it or a shutdown waits.
        if ended && (message.immediate || (ask && self.buffer.waiting() == 0)) {
            flags = flags.with(DataFlags::IMMEDIATE);
        }
        let fragment = message.fragments;
        message.cut += len as u32;
        message.held += len as u32;
        message.chunks += 1;
        message.fragments += 1;
        let sent = SentChunk {
            at: now,
            message: key,
            offset: offset as u32,
            fragment,
            len: len as u16,
            size: (self.format.header() + padded(len)) as u16,
            flags,
            fate: Fate::Outstanding,
            path: path_index as u8,
            misses: 0,
            again: 0,
            fast: false,
            several: false,
            for_good: false,
            timed_out: false,
        };
        let queue = &mut self.queues[usize::from(message.stream)];
        if offset == 0 {
            message.start = position;
            // A message gets its number with its first chunk.
            let next = match (self.format.is_interleaved(), message.unordered) {
                (true, true) => &mut queue.next_unordered,
                _ => &mut queue.next,
            };
            message.number = *next;
            if self.format.is_interleaved() || !message.unordered {
                *next = next.plus(1);
            }
            if let Some(priority) = message.priority {
                self.priorities.remove(&(priority, key));
            }
        }
        let turn = self.scheduler.next() == Some(message.stream);
        // With interleaving a message leaves its queue with its last chunk, and otherwise with its
        // first.
        if if self.format.is_interleaved() { ended } else { offset == 0 } {
            let next = message.next;
            queue.take_head(next);
            if turn {
                self.scheduler.taken(len, next != NONE);
            } else {
                self.scheduler.removed(message.stream, next != NONE);
            }
        } else if self.format.is_interleaved() && turn {
            self.scheduler.cut(len);
        } else {
            self.scheduler.spent(message.stream, len);
        }
        self.current = (!ended && !self.format.is_interleaved()).then_some(key);
        self.write(&sent, position, out);
        self.sent.push(sent);
        self.put_in_flight(now, &sent, position, path);
        path.flight.time(position);
        path.heartbeat.note_use(now);
        if self.partial.is_used() {
            self.drop_expired(now);
        }
    }

    fn write(&self, sent: &SentChunk, position: u64, out: &mut Vec<u8>) {
        let message = &self.messages[sent.message as usize];
        let start = sent.offset as usize;
        let (flags, tsn, stream, ppid) =
            (sent.flags, self.sent.tsn(position), message.stream, message.ppid);
        let user = &message.data[start..start + usize::from(sent.len)];
        if self.format.is_interleaved() {
            let ppid_or_fsn = if start == 0 { ppid } else { sent.fragment };
            IData { flags, tsn, stream, mid: message.number, ppid_or_fsn, user }.emit(out);
        } else {
            let ssn = Ssn::new(message.number.raw() as u16);
            Data { flags, tsn, stream, ssn, ppid, user }.emit(out);
        }
    }

    fn put_in_flight(&mut self, now: Time, sent: &SentChunk, position: u64, path: &mut Path) {
        // RFC 9260 section 6.3.2, rule R1, and section 6.1: T3-rtx is restarted only with the earliest
        // chunk. While nothing is in flight it may wait to probe a closed window.
        let start = path.flight.is_empty() || !path.timers.is_running(PathTimer::T3Rtx);
        path.flight.add(position, sent.size());
        self.peer_window.send(u32::from(sent.len));
        if start || (sent.again > 0 && position == path.flight.earliest()) {
            path.start_t3(now);
        }
        path.plan_probe(now);
    }

    /// Returns the user bytes of the first chunk to be sent again, its last path, and whether a timer
    /// marked it.
    pub(crate) fn first_marked(&self) -> Option<(usize, usize, bool)> {
        let chunk = self.sent.at(self.again.first()?)?;
        Some((usize::from(chunk.len), usize::from(chunk.path), chunk.timed_out))
    }

    /// Sends the first marked chunk again on a path and writes it.
    pub(crate) fn send_again(
        &mut self,
        now: Time,
        path_index: usize,
        paths: &mut [Path],
        out: &mut Vec<u8>,
    ) {
        let Some(position) = self.again.pop_first() else { return };
        // RFC 9260 section 6.3.1, rule C5.
        for path in paths.iter_mut() {
            path.flight.stop_timing_from(position);
        }
        let Some(chunk) = self.sent.at_mut(position) else { return };
        chunk.at = now;
        chunk.fate = Fate::Outstanding;
        chunk.several |= usize::from(chunk.path) != path_index;
        chunk.path = path_index as u8;
        chunk.misses = 0;
        chunk.again = chunk.again.saturating_add(1);
        let sent = *chunk;
        if !sent.fast || paths[path_index].rack().is_some() {
            self.uncounted = self.uncounted.min(position);
        }
        self.write(&sent, position, out);
        self.put_in_flight(now, &sent, position, &mut paths[path_index]);
    }

    /// Marks everything in flight on a path to be sent again (RFC 9260 section 6.3.3), because its
    /// timer expired or its handshake packet was lost.
    pub(crate) fn mark_all(&mut self, path_index: usize, path: &mut Path, timed_out: bool) -> u32 {
        let sent_before: Vec<u64> = self.again.iter().collect();
        for position in sent_before {
            if let Some(chunk) = self.sent.at_mut(position)
                && usize::from(chunk.path) == path_index
            {
                chunk.timed_out |= timed_out;
            }
        }
        let (mut count, mut position) = (0, path.flight.earliest().max(self.sent.first()));
        let end = self.sent.next();
        while !path.flight.is_empty() && position < end {
            if let Some(chunk) = self.sent.at_mut(position)
                && chunk.fate == Fate::Outstanding
                && usize::from(chunk.path) == path_index
            {
                chunk.fate = Fate::Marked;
                chunk.timed_out = timed_out;
                let (size, len) = (chunk.size(), u32::from(chunk.len));
                path.flight.remove(size);
                self.peer_window.unsend(len);
                self.again.insert(position);
                count += 1;
            }
            position += 1;
        }
        path.flight.stop_timing();
        count
    }

    /// Marks chunks in flight on a path that are larger than its packets, to be sent again at once.
    pub(crate) fn mark_larger(&mut self, path_index: usize, path: &mut Path) {
        let (end, max) = (self.sent.next(), path.packet() - crate::wire::COMMON_HEADER);
        for position in path.flight.earliest().max(self.sent.first())..end {
            if let Some(chunk) = self.sent.at_mut(position)
                && chunk.fate == Fate::Outstanding
                && usize::from(chunk.path) == path_index
                && usize::from(chunk.size) > max
            {
                chunk.fate = Fate::Marked;
                let (size, len) = (chunk.size(), u32::from(chunk.len));
                path.flight.remove(size);
                self.peer_window.unsend(len);
                self.again.insert(position);
            }
        }
        path.flight.stop_timing();
    }

    /// Asserts in a debug build that the bytes in flight are those of the outstanding chunks. Long queues are skipped,
    /// whose count would cost more than all else.
    pub(crate) fn check_accounting(&self, paths: &[Path]) {
        if !cfg!(debug_assertions) || self.sent.len() > MAX_COUNTED {
            return;
        }
        let outstanding = || self.sent.iter().filter(|chunk| chunk.fate == Fate::Outstanding);
        let len = outstanding().map(|chunk| u32::from(chunk.len)).sum();
        assert_eq!(self.outstanding(), len, "outstanding");
        for (index, path) in paths.iter().enumerate() {
            let on_path = outstanding().filter(|chunk| usize::from(chunk.path) == index);
            assert_eq!(
                path.flight.bytes(),
                on_path.map(SentChunk::size).sum(),
                "flight of path {index}"
            );
        }
        let marked = |chunk: &&SentChunk| chunk.fate == Fate::Marked;
        assert_eq!(self.again.len(), self.sent.iter().filter(marked).count(), "marked");
    }

    /// Releases a chunk that left the ring.
    fn release(&mut self, chunk: &SentChunk) {
        let key = chunk.message as usize;
        let message = &mut self.messages[key];
        message.chunks -= 1;
        let gone = message.data.is_empty();
        if !gone {
            self.buffer.release(usize::from(chunk.len));
            message.held -= u32::from(chunk.len);
            if chunk.for_good {
                message.arrived -= u32::from(chunk.len);
            }
        }
        if message.chunks == 0 && (gone || message.cut as usize == message.data.len()) {
            self.messages.remove(key);
        }
    }

    /// Releases memory that is not needed.
    pub(crate) fn trim(&mut self) {
        if self.is_done() {
            self.sent.trim();
            self.messages = Slab::new();
            self.gaps.trim();
        }
    }
}
