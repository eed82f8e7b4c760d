//! What one worker hands to another, as data.

use ringway_sansio::Target;
use std::ops::Range;

/// The worker that learns when a message could not be sent, and its number for the message. The numbers of
/// two workers may be equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The worker whose program sent the message.
    pub worker: u8,
    /// Zero where the program does not want to know.
    pub number: u64,
}

/// Messages handed over to the worker that owns their connections, in one buffer.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Carry {
    bytes: Vec<u8>,
    items: Vec<(Target, Range<usize>, Report)>,
}

impl Carry {
    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn push(&mut self, target: Target, bytes: &[u8], report: Report) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.items.push((target, start..self.bytes.len(), report));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Target, &[u8], Report)> {
        self.items
            .iter()
            .map(|(target, range, report)| (target, &self.bytes[range.clone()], *report))
    }
}

/// An item for another worker.
#[derive(PartialEq, Eq, Debug)]
pub enum Mail {
    /// Messages for connections that the worker owns.
    Carry(Box<Carry>),
    /// Report numbers of messages of the worker that could not be sent.
    NotSent(Vec<u64>),
    /// Report numbers of requests of the worker whose connection has ended.
    CutOff(Vec<u64>),
}
