//! Interleaved messages (RFC 8260 section 2.2.3): fragments are assembled by stream, message and
//! fragment number, independently of their TSNs.

use super::delivery::{Body, Fragments, Ready, Shape};
use super::{Arrival, Incoming, MAX_AHEAD};
use crate::numbers::{Mid, Ssn, Tsn};
use crate::wire::DataFlags;
use crate::wire::data::IData;
use core::ops::Bound;
use std::collections::BTreeMap;

/// Identifies a message: stream, whether unordered, and MID.
type Name = (u16, bool, u32);

/// A message that is incomplete, or that must wait for earlier ones of its stream.
#[derive(Debug, Default)]
struct Assembly {
    ppid: u32,
    /// Number of the first fragment that was not delivered.
    next: u32,
    /// Number of the last fragment, once known.
    last: Option<u32>,
    /// Number of fragments that wait.
    count: u32,
}

impl Assembly {
    fn is_whole(&self) -> bool {
        let count = u64::from(self.count);
        self.last.is_some_and(|last| u64::from(self.next) + count == u64::from(last) + 1)
    }
}

/// State of interleaved messages.
#[derive(Debug, Default)]
pub(super) struct Interleaved {
    /// The next MID of each stream, up to the highest used.
    next: Vec<Mid>,
    parts: BTreeMap<Name, Assembly>,
    /// The fragments of all of them, in one tree so that few cost no more than many.
    pieces: BTreeMap<(Name, u32), Box<[u8]>>,
    /// Bytes in `pieces`.
    len: usize,
    /// The name at which the last sweep ended.
    swept: Name,
    /// By stream, the MID up to which unordered messages were last abandoned, and the position up to
    /// which fragments of them may still arrive.
    skipped: BTreeMap<u16, (Mid, u64)>,
}

/// Maximum number of messages examined to make room.
const MAX_SWEPT: usize = 64;

impl Interleaved {
    fn next_of(&mut self, stream: u16) -> &mut Mid {
        let index = usize::from(stream);
        if index >= self.next.len() {
            self.next.resize(index + 1, Mid::default());
        }
        &mut self.next[index]
    }

    /// The next MID of a stream.
    pub(super) fn next(&self, stream: u16) -> Mid {
        self.next.get(usize::from(stream)).copied().unwrap_or_default()
    }

    /// Returns whether a fragment belongs to an abandoned message.
    fn is_late(&mut self, data: &IData<'_>, position: u64) -> bool {
        if data.flags.has(DataFlags::UNORDERED) {
            let skipped = self.skipped.get(&data.stream);
            return skipped
                .is_some_and(|(last, until)| position <= *until && !data.mid.after(*last));
        }
        data.mid.before(*self.next_of(data.stream))
    }

    /// Resets streams, or all if none is named (RFC 8260 section 2.3.2).
    pub(super) fn reset_streams(&mut self, streams: &[u16]) {
        if streams.is_empty() {
            self.next.clear();
            self.skipped.clear();
        }
        for &stream in streams {
            self.skipped.remove(&stream);
            if let Some(next) = self.next.get_mut(usize::from(stream)) {
                *next = Mid::default();
            }
        }
    }
}

const TWICE: &str = "a message identifier or fragment number is used twice";

impl Incoming {
    /// Turns interleaving on or off.
    pub(crate) fn interleave(&mut self, on: bool) {
        self.interleaved = on.then(Box::default);
    }

    pub(crate) fn is_interleaved(&self) -> bool {
        self.interleaved.is_some()
    }

    /// Handles an I-DATA chunk of an existing stream, with at least one byte of data.
    pub(crate) fn take_interleaved(&mut self, data: &IData<'_>) -> Arrival {
        let position = self.line.position(data.tsn, self.tracker.cumulative());
        if self.tracker.has(position) {
            self.tracker.note_duplicate(position);
            return Arrival::Duplicate;
        }
        if !self.has_room(position, data.user.len()) || !self.tracker.can_take(position) {
            if position == self.tracker.cumulative() + 1 {
                self.make_room();
            }
            return Arrival::Dropped;
        }
        let in_order = position == self.tracker.cumulative() + 1;
        self.bytes += data.user.len();
        self.advertised = self.advertised.saturating_sub(data.user.len());
        self.tracker.take(position);
        match self.assemble(data, position) {
            Ok(()) => Arrival::Taken { in_order },
            Err(what) => Arrival::Violation(what),
        }
    }

    fn assemble(&mut self, data: &IData<'_>, position: u64) -> Result<(), &'static str> {
        let part = self.part();
        let Some(all) = &mut self.interleaved else { return Ok(()) };
        let unordered = data.flags.has(DataFlags::UNORDERED);
        let (begins, ends) = (data.flags.has(DataFlags::BEGIN), data.flags.has(DataFlags::END));
        let next = *all.next_of(data.stream);
        if all.is_late(data, position) {
            self.bytes -= data.user.len();
            return Ok(());
        }
        let turn = unordered || data.mid == next;
        let name = (data.stream, unordered, data.mid.raw());
        if begins && ends && turn && !all.parts.contains_key(&name) {
            // A complete message that is next is delivered at once.
            self.ring.push(data.user);
            let shape = shape(name, data.ppid_or_fsn);
            let (len, body) = (data.user.len(), Body::Ring);
            let ready = Ready { shape, len, begin: true, end: true, cut: false, body };
            self.pieces += ready.pieces();
            self.queue(ready);
            if !unordered {
                self.pass_on(data.stream);
            }
            return Ok(());
        }
        let fragment = if begins { 0 } else { data.ppid_or_fsn };
        let one = all.parts.entry(name).or_default();
        let mut after = all.pieces.range((name, fragment.saturating_add(1))..=(name, u32::MAX));
        let wrong = (!begins && fragment == 0)
            || fragment < one.next
            || (ends && one.last.is_some())
            || one.last.is_some_and(|last| fragment > last)
            || (ends && fragment < u32::MAX && after.next().is_some());
        if wrong || all.pieces.insert((name, fragment), data.user.into()).is_some() {
            return Err(TWICE);
        }
        self.pieces += 1;
        if begins {
            one.ppid = data.ppid_or_fsn;
        }
        if ends {
            one.last = Some(fragment);
        }
        one.count += 1;
        all.len += data.user.len();
        if one.is_whole() && turn {
            self.deliver_part(name);
            if !unordered {
                self.pass_on(data.stream);
            }
        } else if turn && (all.len >= part || one.next > 0) {
            // A message that is larger than the buffer is delivered in parts.
            self.deliver_part(name);
        }
        Ok(())
    }

    /// Makes room for the next chunk by delivering parts of messages, however small.
    fn make_room(&mut self) {
        let Some(all) = &mut self.interleaved else { return };
        let after = (Bound::Excluded(all.swept), Bound::Unbounded);
        let names: Vec<Name> =
            all.parts.range(after).take(MAX_SWEPT).map(|(name, _)| *name).collect();
        // The sweep starts over when the end is reached.
        all.swept = if names.len() < MAX_SWEPT { Name::default() } else { names[MAX_SWEPT - 1] };
        // The smallest name is never after another.
        let min = all.parts.contains_key(&Name::default()).then(Name::default);
        for name in min.into_iter().chain(names) {
            let Some(all) = &mut self.interleaved else { return };
            let (stream, unordered, mid) = name;
            if unordered || all.next_of(stream).raw() == mid {
                self.deliver_part(name);
            }
        }
    }

    /// Delivers the consecutive first fragments of a message.
    fn deliver_part(&mut self, name: Name) {
        let Some(all) = &mut self.interleaved else { return };
        let Some(one) = all.parts.get_mut(&name) else { return };
        let (shape, begin) = (shape(name, one.ppid), one.next == 0);
        let Some(first) = all.pieces.remove(&(name, one.next)) else { return };
        let mut len = first.len();
        let (mut data, mut count) = (Fragments::One(first), 1);
        while let Some(piece) = all.pieces.remove(&(name, one.next + count)) {
            len += piece.len();
            count += 1;
            data.push(piece);
        }
        one.next += count;
        one.count -= count;
        all.len -= len;
        let end = one.last.is_some_and(|last| one.next > last);
        if end {
            all.parts.remove(&name);
        }
        let body = Body::Separate(data);
        self.queue(Ready { shape, len, begin, end, cut: false, body });
    }

    /// Delivers the next messages of a stream after one is complete.
    fn pass_on(&mut self, stream: u16) {
        let part = self.part();
        loop {
            let Some(all) = &mut self.interleaved else { return };
            let next = all.next_of(stream);
            *next = next.plus(1);
            let name = (stream, false, next.raw());
            let large = all.len >= part;
            let Some(one) = all.parts.get(&name) else { return };
            let whole = one.is_whole();
            if whole || large {
                self.deliver_part(name);
            }
            if !whole {
                return;
            }
        }
    }

    /// Handles an I-FORWARD-TSN: the peer abandons what is missing up to a TSN, and on each listed
    /// stream all messages up to a MID (RFC 8260 section 2.3.1).
    pub(crate) fn forward_messages(
        &mut self,
        tsn: Tsn,
        messages: impl Iterator<Item = (u16, bool, Mid)>,
    ) -> Result<(), &'static str> {
        let position = self.line.position(tsn, self.tracker.cumulative());
        if position <= self.tracker.cumulative() || position > self.tracker.cumulative() + MAX_AHEAD
        {
            return Ok(());
        }
        self.tracker.forward(position);
        for (stream, unordered, mid) in messages {
            self.skip_messages(stream, unordered, mid);
        }
        Ok(())
    }

    fn skip_messages(&mut self, stream: u16, unordered: bool, mid: Mid) {
        let Some(all) = &mut self.interleaved else { return };
        let next = *all.next_of(stream);
        if !unordered && mid.before(next) {
            return;
        }
        // Unordered messages in the preceding half of the number space are before it.
        let from = if unordered { mid.raw().wrapping_sub(u32::MAX / 2) } else { next.raw() };
        let span = |low, high| (stream, unordered, low)..=(stream, unordered, high);
        let (first, second) = match (from, mid.raw()) {
            (from, to) if from <= to => (span(from, to), None),
            (from, to) => (span(from, u32::MAX), Some(span(0, to))),
        };
        let mut names: Vec<Name> = all.parts.range(first).map(|(name, _)| *name).collect();
        if let Some(second) = second {
            names.extend(all.parts.range(second).map(|(name, _)| *name));
        }
        for name in names {
            self.deliver_or_drop(name);
        }
        let Some(all) = &mut self.interleaved else { return };
        if unordered {
            all.skipped.insert(stream, (mid, self.tracker.cumulative() + MAX_AHEAD));
        } else {
            // `pass_on` advances by one.
            *all.next_of(stream) = mid;
            self.pass_on(stream);
        }
    }

    /// Ends a message that gets no more fragments: it is delivered if complete, and otherwise dropped.
    fn deliver_or_drop(&mut self, name: Name) {
        let Some(all) = &mut self.interleaved else { return };
        if all.parts.get(&name).is_some_and(Assembly::is_whole) {
            return self.deliver_part(name);
        }
        let Some(one) = all.parts.remove(&name) else { return };
        let span = (name, 0)..=(name, u32::MAX);
        while let Some((&key, _)) = all.pieces.range(span.clone()).next()
            && let Some(piece) = all.pieces.remove(&key)
        {
            all.len -= piece.len();
            self.bytes -= piece.len();
            self.pieces -= 1;
        }
        if one.next > 0 {
            let (shape, body) = (shape(name, one.ppid), Body::Separate(Fragments::default()));
            let ready = Ready { shape, len: 0, begin: false, end: true, cut: true, body };
            self.queue(ready);
        }
    }

    /// Ends all messages. With `whole`, complete ones are still delivered.
    pub(super) fn finish_interleaved(&mut self, whole: bool) {
        let Some(all) = &mut self.interleaved else { return };
        let mut names: Vec<Name> = all.parts.keys().copied().collect();
        if !whole {
            // A message of which parts were read gets an end all the same.
            names.retain(|name| all.parts.get(name).is_some_and(|one| one.next > 0));
        }
        for name in names {
            self.deliver_or_drop(name);
        }
        if let Some(all) = &mut self.interleaved {
            all.parts.clear();
            all.pieces.clear();
            all.len = 0;
        }
    }
}

fn shape(name: Name, ppid: u32) -> Shape {
    let (stream, unordered, mid) = name;
    let ssn = Ssn::new(mid as u16);
    Shape { stream, ssn, ppid, unordered }
}
