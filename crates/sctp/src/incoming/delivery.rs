//! Data structures on the way from chunk to message.

use super::Received;
use crate::numbers::Ssn;
use crate::wire::{Data, DataFlags};
use std::collections::VecDeque;

/// Fragments of user data in order, often just one.
#[derive(Debug)]
pub(super) enum Fragments {
    One(Box<[u8]>),
    Many(VecDeque<Box<[u8]>>),
}

impl Default for Fragments {
    fn default() -> Self {
        Fragments::Many(VecDeque::new())
    }
}

impl Fragments {
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (one, many) = match self {
            Fragments::One(piece) => (Some(piece), None),
            Fragments::Many(pieces) => (None, Some(pieces)),
        };
        one.into_iter().chain(many.into_iter().flatten()).map(|piece| &**piece)
    }

    pub(super) fn push(&mut self, piece: Box<[u8]>) {
        let mut all = core::mem::take(self).many();
        all.push_back(piece);
        *self = Fragments::Many(all);
    }

    fn many(self) -> VecDeque<Box<[u8]>> {
        match self {
            Fragments::One(piece) => VecDeque::from([piece]),
            Fragments::Many(pieces) => pieces,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Fragments::One(_) => 1,
            Fragments::Many(pieces) => pieces.len(),
        }
    }

    /// Appends the fragments that follow. The shorter list is moved, so that growth from either end
    /// costs one step per fragment.
    fn append(&mut self, after: Fragments) {
        let mut before = core::mem::take(self).many();
        let mut after = after.many();
        if before.len() >= after.len() {
            before.append(&mut after);
            *self = Fragments::Many(before);
        } else {
            while let Some(piece) = before.pop_back() {
                after.push_front(piece);
            }
            *self = Fragments::Many(after);
        }
    }
}

/// The common properties of all fragments of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) stream: u16,
    pub(super) ssn: Ssn,
    pub(super) ppid: u32,
    pub(super) unordered: bool,
}

impl Shape {
    pub(super) fn of(data: &Data<'_>) -> Shape {
        Shape {
            stream: data.stream,
            ssn: data.ssn,
            ppid: data.ppid,
            unordered: data.flags.has(DataFlags::UNORDERED),
        }
    }

    /// Returns whether a fragment belongs to the same message. The SSN of unordered data has no meaning
    /// (RFC 9260 section 6.6).
    pub(super) fn same_message(&self, other: &Shape) -> bool {
        self.stream == other.stream
            && self.unordered == other.unordered
            && (self.unordered || self.ssn == other.ssn)
    }

    pub(super) fn received(&self, begin: bool, end: bool, len: usize) -> Received {
        let Shape { stream, ssn, ppid, unordered } = *self;
        Received { stream, ssn, ppid, unordered, begin, end, cut: false, len }
    }
}

/// An incomplete message at the end of the ring.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) shape: Shape,
    /// The position of its first fragment.
    pub(super) start: u64,
    /// The position of its next fragment.
    pub(super) next: u64,
    /// Bytes in the ring.
    pub(super) len: usize,
    /// Whether a part of it was read, so that nothing else is read until it ends.
    pub(super) delivering: bool,
    pub(super) began: bool,
}

/// Consecutive fragments of one message, after a gap.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) shape: Shape,
    pub(super) start: u64,
    /// The position after its last fragment.
    pub(super) next: u64,
    pub(super) begins: bool,
    pub(super) ends: bool,
    pub(super) len: usize,
    pub(super) data: Fragments,
}

impl Run {
    pub(super) fn of(position: u64, data: &Data<'_>) -> Run {
        Run {
            shape: Shape::of(data),
            start: position,
            next: position + 1,
            begins: data.flags.has(DataFlags::BEGIN),
            ends: data.flags.has(DataFlags::END),
            len: data.user.len(),
            data: Fragments::One(Box::from(data.user)),
        }
    }

    /// Appends the run that follows this one.
    pub(super) fn append(&mut self, after: Run) -> Result<(), &'static str> {
        if !self.shape.same_message(&after.shape) {
            return Err("fragments of a message differ in stream or number");
        }
        self.data.append(after.data);
        self.len += after.len;
        self.next = after.next;
        self.ends = after.ends;
        Ok(())
    }
}

/// A complete message.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) shape: Shape,
    pub(super) len: usize,
    pub(super) data: Fragments,
}

/// The location of a message's bytes.
#[derive(Debug)]
pub(super) enum Body {
    /// At the front of the ring when the message is the next one to be read.
    Ring,
    Separate(Fragments),
}

/// A message, or the last part of one, that can be read.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) shape: Shape,
    pub(super) len: usize,
    pub(super) begin: bool,
    pub(super) end: bool,
    pub(super) cut: bool,
    pub(super) body: Body,
}

impl Ready {
    /// Returns the number of fragments that it counts as in the receive buffer.
    pub(super) fn pieces(&self) -> usize {
        match &self.body {
            Body::Ring => 1,
            Body::Separate(pieces) => pieces.len(),
        }
    }
}
