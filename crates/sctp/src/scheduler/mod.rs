//! Schedulers: whose turn it is to send (RFC 8260 section 3).
//!
//! A scheduler knows streams and sizes, not messages. It is asked only when a message may begin:
//! the fragments of one message in DATA chunks follow each other (RFC 9260 section 3.3.1).

mod fcfs;
mod round_robin;

pub use fcfs::Fcfs;
pub use round_robin::RoundRobin;

use core::fmt;

/// Chooses among the streams that have messages to send.
pub trait Scheduler: fmt::Debug + Send {
    /// Its name, for traces.
    fn name(&self) -> &'static str;

    /// A message of `bytes` was put at the end of the queue of `stream`.
    fn queued(&mut self, stream: u16, bytes: usize);

    /// The stream whose first message is next; the same until [`Scheduler::taken`].
    fn next(&self) -> Option<u16>;

    /// The first message of that stream has left its queue, `bytes` of it sent, and `more` says
    /// whether others wait behind it.
    fn taken(&mut self, bytes: usize, more: bool);
}
