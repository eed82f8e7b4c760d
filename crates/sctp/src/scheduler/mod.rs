//! Schedulers: the order among streams (RFC 8260 section 3).
//!
//! A scheduler knows streams and sizes, not messages. With interleaving (I-DATA) it is called for each
//! chunk. Without, it is called only when a message may begin, since the fragments of one message in
//! DATA chunks are consecutive (RFC 9260 section 3.3.1).

mod fcfs;
mod packets;
mod priority;
mod round_robin;
mod weighted;

pub use fcfs::Fcfs;
pub use packets::PacketRoundRobin;
pub use priority::Priority;
pub use round_robin::RoundRobin;
pub use weighted::Weighted;

use core::fmt;
use std::collections::VecDeque;

/// A set of streams: a bit each, up to the highest used.
#[derive(Debug, Default)]
struct Streams(Vec<u64>);

impl Streams {
    fn has(&self, stream: u16) -> bool {
        let word = self.0.get(usize::from(stream / 64));
        word.is_some_and(|word| word & (1 << (stream % 64)) != 0)
    }

    /// Adds or removes a stream. Returns `true` if that changes the set.
    fn set(&mut self, stream: u16, on: bool) -> bool {
        let (word, bit) = (usize::from(stream / 64), 1u64 << (stream % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let changes = (self.0[word] & bit != 0) != on;
        self.0[word] ^= if changes { bit } else { 0 };
        changes
    }
}

/// Removes a stream from the turns, where it most often is the first.
fn take_turn(turns: &mut VecDeque<u16>, stream: u16) {
    if turns.front() == Some(&stream) {
        turns.pop_front();
    } else {
        turns.retain(|other| *other != stream);
    }
}

/// A scheduler of the streams that have messages to send.
pub trait Scheduler: fmt::Debug + Send {
    /// Returns the scheduler's name, for traces.
    fn name(&self) -> &'static str;

    /// Notes that a message of `bytes` was queued on `stream`.
    fn queued(&mut self, stream: u16, bytes: usize);

    /// Returns the stream whose first message is next. It stays the same until [`Scheduler::taken`] or
    /// [`Scheduler::cut`].
    fn next(&self) -> Option<u16>;

    /// Notes that the first message of that stream has left its queue with `bytes` of it sent. `more`
    /// states whether others wait behind it.
    fn taken(&mut self, bytes: usize, more: bool);

    /// Notes that `bytes` of the first message of that stream were sent and the rest waits in its
    /// queue. Called only with interleaving.
    fn cut(&mut self, _bytes: usize) {}

    /// Notes that `bytes` more were sent of a message of `stream` that left its queue before.
    fn spent(&mut self, _stream: u16, _bytes: usize) {}

    /// Notes that the first message of a stream has left its queue unsent. `more` states whether others
    /// wait behind it.
    fn removed(&mut self, stream: u16, more: bool);

    /// Notes that a new packet begins.
    fn packet(&mut self) {}

    /// Sets the value of a stream: a weight, or a priority, of which 0 is the highest.
    fn set_value(&mut self, _stream: u16, _value: u16) {}
}
