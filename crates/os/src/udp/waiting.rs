//! Datagrams that wait because the socket's send buffer is full.

use crate::{Datagram, SEND_BATCH};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// Maximum number of bytes that wait for one socket. Further datagrams are reported as not sent.
pub const WAITING_BYTES: usize = 1 << 20;

struct Item {
    to: SocketAddr,
    from: Option<IpAddr>,
    range: Range<usize>,
    report: u64,
}

/// A queue of datagrams in one buffer, which is freed when the queue is empty.
#[derive(Default)]
pub struct Waiting {
    bytes: Vec<u8>,
    items: VecDeque<Item>,
}

impl Waiting {
    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Appends a copy of a single datagram and its report number. Returns `false` when there is no room.
    /// The copy is sent with the socket's own ECN bits.
    pub fn push(&mut self, datagram: &Datagram<'_>, report: u64) -> bool {
        if self.bytes.len() + datagram.bytes.len() > WAITING_BYTES {
            return false;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(datagram.bytes);
        self.items.push_back(Item {
            to: datagram.to,
            from: datagram.from,
            range: start..self.bytes.len(),
            report,
        });
        true
    }

    /// Calls `f` with the first batch, at most [`SEND_BATCH`] datagrams, and their report numbers.
    pub fn with_front<R>(&self, f: impl FnOnce(&[Datagram<'_>], &[u64]) -> R) -> R {
        let front = || self.items.iter().take(SEND_BATCH);
        let batch: SmallVec<[Datagram<'_>; SEND_BATCH]> =
            front().map(|i| Datagram::new(&self.bytes[i.range.clone()], i.to, i.from)).collect();
        let reports: SmallVec<[u64; SEND_BATCH]> = front().map(|i| i.report).collect();
        f(&batch, &reports)
    }

    /// Removes the first `n`.
    pub fn pop(&mut self, n: usize) {
        self.items.drain(..n.min(self.items.len()));
        if self.items.is_empty() {
            *self = Waiting::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_bound_are_kept() {
        let mut w = Waiting::default();
        let to = "127.0.0.1:1".parse().unwrap();
        let bytes = vec![1u8; WAITING_BYTES / 2];
        assert!(w.push(&Datagram::new(b"first", to, None), 1));
        assert!(w.push(&Datagram::new(&bytes, to, None), 2));
        assert!(!w.push(&Datagram::new(&bytes, to, None), 3));
        w.with_front(|batch, reports| {
            assert_eq!(batch[0].bytes, b"first");
            assert_eq!(reports, [1, 2]);
        });
        w.pop(1);
        w.with_front(|batch, reports| assert_eq!((batch.len(), reports), (1, &[2][..])));
        w.pop(1);
        assert!(w.is_empty());
    }
}
