//! Schedulers: whose turn it is to send (RFC 8260 section 3).
//!
//! A scheduler knows streams and sizes, not messages. Where messages may be interleaved (I-DATA) it
//! is asked for each chunk; where not, only when a message may begin: the fragments of one message
//! in DATA chunks follow each other (RFC 9260 section 3.3.1).

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

    /// Puts a stream in or takes it out. `true` if that changes the set.
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

/// Takes a stream out of the turns, where it most often is the first.
fn take_turn(turns: &mut VecDeque<u16>, stream: u16) {
    if turns.front() == Some(&stream) {
        turns.pop_front();
    } else {
        turns.retain(|other| *other != stream);
    }
}

/// Chooses among the streams that have messages to send.
pub trait Scheduler: fmt::Debug + Send {
    /// Its name, for traces.
    fn name(&self) -> &'static str;

    /// A message of `bytes` was put at the end of the queue of `stream`.
    fn queued(&mut self, stream: u16, bytes: usize);

    /// The stream whose first message is next; the same until [`Scheduler::taken`] or
    /// [`Scheduler::cut`].
    fn next(&self) -> Option<u16>;

    /// The first message of that stream has left its queue, `bytes` of it sent, and `more` says
    /// whether others wait behind it.
    fn taken(&mut self, bytes: usize, more: bool);

    /// `bytes` of the first message of that stream were sent and the rest still waits in its queue;
    /// only where messages are interleaved.
    fn cut(&mut self, _bytes: usize) {}

    /// `bytes` more were sent of a message of `stream` that has left its queue before.
    fn spent(&mut self, _stream: u16, _bytes: usize) {}

    /// The first message of any stream has left its queue without being sent, and `more` says
    /// whether others wait behind it.
    fn removed(&mut self, stream: u16, more: bool);

    /// A new packet begins.
    fn packet(&mut self) {}

    /// Sets what the scheduler goes by: a weight, or a priority, of which 0 is the highest.
    fn set_value(&mut self, _stream: u16, _value: u16) {}
}
