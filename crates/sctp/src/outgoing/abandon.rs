//! Abandoned messages (RFC 3758 section 3.5, RFC 7496).

use super::{Fate, NONE, Outgoing, SentChunk};
use crate::numbers::{Mid, Ssn};
use crate::path::Path;
use crate::wire::chunk::{Chunk, ForwardTsn};
use crate::wire::{DataFlags, TLV_HEADER, Writer};
use ringway_sansio::Time;
use std::collections::BTreeMap;

/// Length in bytes of a FORWARD TSN without entries, and of an entry.
const FORWARD: usize = TLV_HEADER + 4;
const ENTRY: usize = 4;
/// Length in bytes of an entry of an I-FORWARD-TSN.
const I_ENTRY: usize = 8;

impl Outgoing {
    /// Drops messages that expired before anything of them was sent. No TSN was used, so the peer need
    /// not be notified.
    pub(crate) fn drop_expired(&mut self, now: Time) {
        while self.partial.is_used()
            && self.current.is_none()
            && let Some(stream) = self.next_stream()
        {
            let key = self.queues[usize::from(stream)].head as usize;
            let message = &self.messages[key];
            let late = message.is_late(now);
            // A message evicted for another one was already counted.
            let gone = message.data.is_empty();
            if message.cut > 0 || !(late || gone) {
                return;
            }
            self.return_message(key as u32);
            self.drop_head(stream);
            self.partial.count(late && !gone);
        }
    }

    /// Abandons the rest of messages that were begun and have expired: no more TSNs are assigned to
    /// them (RFC 3758 section 4.1, TR3 and TR4). Returns `true` when the peer must be notified.
    pub(crate) fn abandon_begun(&mut self, now: Time, paths: &mut [Path]) -> bool {
        if !self.partial.is_active() {
            return false;
        }
        let mut any = false;
        while let Some(key) = self.upcoming() {
            let message = &self.messages[key as usize];
            if message.cut == 0 || !message.is_late(now) {
                break;
            }
            self.abandon_message(now, key, paths);
            any = true;
        }
        any && self.advance()
    }

    /// Abandons the messages of the first marked chunks that have expired or reached their limit of
    /// retransmissions. Returns `true` when the peer must be notified.
    pub(crate) fn abandon_first(&mut self, now: Time, paths: &mut [Path]) -> bool {
        if !self.partial.is_active() {
            return false;
        }
        let mut any = false;
        while let Some(chunk) = self.again.first().and_then(|position| self.sent.at(position)) {
            let key = chunk.message;
            if !self.messages[key as usize].is_over(now, chunk) {
                break;
            }
            self.abandon_message(now, key, paths);
            any = true;
        }
        any && self.advance()
    }

    /// Abandons the messages of marked chunks that have expired or reached their limit of
    /// retransmissions. Returns `true` when the peer must be notified.
    pub(crate) fn abandon(&mut self, now: Time, paths: &mut [Path]) -> bool {
        if !self.partial.is_active() {
            return false;
        }
        let mut from = self.sent.first();
        while let Some(position) = self.again.first_from(from) {
            from = position + 1;
            let Some(chunk) = self.sent.at(position) else { continue };
            if self.messages[chunk.message as usize].is_over(now, chunk) {
                let key = chunk.message;
                self.abandon_message(now, key, paths);
            }
        }
        self.advance()
    }

    /// Abandons the first messages that the peer waits for, if they have expired and their
    /// retransmissions seem lost too, so that only T3-rtx would act. Returns `true` when the peer must
    /// be notified.
    pub(crate) fn abandon_overdue(&mut self, now: Time, paths: &mut [Path]) -> bool {
        if !self.partial.is_active() {
            return false;
        }
        let mut any = false;
        self.advance();
        while let Some(chunk) = self.sent.at(self.partial.ack_point() + 1)
            && chunk.fate == Fate::Outstanding
            && chunk.fast
            && paths[usize::from(chunk.path)].is_overdue(now, chunk.at)
            && self.messages[chunk.message as usize].is_late(now)
        {
            let key = chunk.message;
            self.abandon_message(now, key, paths);
            self.advance();
            any = true;
        }
        any
    }

    /// Abandons a message of which at least one chunk is in the ring.
    fn abandon_message(&mut self, now: Time, key: u32, paths: &mut [Path]) {
        if !core::mem::replace(&mut self.messages[key as usize].abandoned, true) {
            self.return_message(key);
        }
        let message = &self.messages[key as usize];
        let (stream, begun) = (message.stream, message.cut > 0);
        let (mut at, mut left) = (message.start.max(self.sent.first()), message.chunks);
        while left > 0
            && let Some(chunk) = self.sent.at_mut(at)
        {
            // Chunks of other messages may be in between where messages are interleaved.
            if chunk.message != key {
                at += 1;
                continue;
            }
            left -= 1;
            let fate = core::mem::replace(&mut chunk.fate, Fate::Abandoned);
            let chunk = *chunk;
            if fate == Fate::Outstanding {
                let path = &mut paths[usize::from(chunk.path)];
                path.flight.remove(chunk.size());
                path.flight.take_timed(at);
                self.peer_window.unsend(u32::from(chunk.len));
            }
            self.again.remove(at);
            at += 1;
        }
        // The rest of the message is never cut.
        let message = &mut self.messages[key as usize];
        let left = message.data.len() - message.cut as usize;
        message.cut = message.data.len() as u32;
        self.buffer.drop_waiting(left);
        let waits =
            self.format.is_interleaved() && self.queues[usize::from(stream)].head == key && begun;
        if waits {
            // The queue drops the message, which is released with its chunks.
            let queue = &mut self.queues[usize::from(stream)];
            let next = self.messages[key as usize].next;
            queue.take_head(next);
            self.scheduler.removed(stream, next != NONE);
        }
        if self.current == Some(key) || waits {
            self.current = None;
            // Its end gets a TSN that is never sent. Otherwise a peer that has every fragment so far
            // would wait for the rest, and there would be no TSN to notify it with.
            let path = self.sent.back().map_or(0, |last| last.path);
            self.messages[key as usize].chunks += 1;
            self.sent.push(SentChunk {
                at: now,
                message: key,
                offset: 0,
                fragment: 0,
                len: 0,
                size: 0,
                flags: DataFlags::END,
                fate: Fate::Abandoned,
                path,
                misses: 0,
                again: 0,
                fast: true,
                several: false,
                for_good: false,
                timed_out: false,
            });
        }
        self.partial.count(true);
    }

    /// Advances Advanced.Peer.Ack.Point (rules C1 and C2). Returns `true` when it is ahead of what the
    /// peer has acknowledged.
    pub(crate) fn advance(&mut self) -> bool {
        let mut point = self.partial.ack_point().max(self.sent.first() - 1);
        while self.sent.at(point + 1).is_some_and(|chunk| chunk.fate == Fate::Abandoned) {
            point += 1;
        }
        self.partial.advance_to(point);
        self.is_ahead()
    }

    /// Returns whether the peer must be notified of something abandoned.
    pub(crate) fn is_ahead(&self) -> bool {
        self.partial.ack_point() >= self.sent.first()
    }

    /// Writes a FORWARD TSN with as many entries as fit (rule C3). Returns its position, or `None` when
    /// none fits.
    pub(crate) fn put_forward(&self, packet: &mut Writer<'_>) -> Option<u64> {
        let room = packet.space().checked_sub(FORWARD)?;
        let entry = if self.format.is_interleaved() { I_ENTRY } else { ENTRY };
        let mut streams: BTreeMap<(u16, bool), Mid> = BTreeMap::new();
        let mut reached = self.sent.first() - 1;
        while reached < self.partial.ack_point()
            && let Some(chunk) = self.sent.at(reached + 1)
        {
            let message = &self.messages[chunk.message as usize];
            if self.format.is_interleaved() || !message.unordered {
                let name = (message.stream, message.unordered);
                if !streams.contains_key(&name) && (streams.len() + 1) * entry > room {
                    break;
                }
                let last = streams.entry(name).or_insert(message.number);
                if message.number.after(*last) {
                    *last = message.number;
                }
            }
            reached += 1;
        }
        if reached < self.sent.first() {
            return None;
        }
        let mut entries = Vec::with_capacity(streams.len() * entry);
        for ((stream, unordered), number) in streams {
            if self.format.is_interleaved() {
                ForwardTsn::put_message(&mut entries, stream, unordered, number);
            } else {
                ForwardTsn::put_stream(&mut entries, stream, Ssn::new(number.raw() as u16));
            }
        }
        let forward = ForwardTsn::new(self.sent.tsn(reached), &entries);
        if self.format.is_interleaved() {
            Chunk::IForwardTsn(forward).emit(packet.chunks());
        } else {
            Chunk::ForwardTsn(forward).emit(packet.chunks());
        }
        Some(reached)
    }

    /// Returns whether everything up to a position is acknowledged.
    pub(crate) fn has_passed(&self, position: u64) -> bool {
        self.sent.first() > position
    }

    /// Returns the number of messages abandoned since the last call.
    pub(crate) fn take_abandoned(&mut self) -> u32 {
        self.partial.take_abandoned()
    }
}
