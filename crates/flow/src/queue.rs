//! The messages that wait to be written to one connection.

use crate::awaited::Awaited;
use crate::mail::Report;
use ringway_sansio::Time;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Bytes of the message not yet written.
    left: usize,
    report: Report,
    /// Of a request: when it was queued.
    asked: Option<Time>,
}

/// A queue of messages in one buffer, bounded in bytes. It has no memory while it is empty.
#[derive(Default, Debug)]
pub struct WriteQueue {
    bytes: Vec<u8>,
    head: usize,
    marks: VecDeque<Mark>,
    /// Requests that were written and may be answered.
    pub(crate) awaited: Awaited,
    /// Of a connection that is being opened: other messages that were written.
    early: Option<Vec<Report>>,
}

impl WriteQueue {
    /// Returns the queue of a connection that is being opened. Until [`WriteQueue::opened`], what was written
    /// counts as not written.
    pub(crate) fn opening() -> Self {
        WriteQueue { early: Some(Vec::new()), ..WriteQueue::default() }
    }

    /// Notes that the connection is open.
    pub(crate) fn opened(&mut self) {
        self.early = None;
    }

    /// Returns the number of bytes not yet written.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Returns the number of messages not wholly written.
    pub fn messages(&self) -> usize {
        self.marks.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Appends a message. Returns `false` if the queue would have more than `limit` bytes. `asked` is the
    /// time, for a request.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        report: Report,
        asked: Option<Time>,
        limit: usize,
    ) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if self.len() + bytes.len() > limit {
            return false;
        }
        if self.head > 0 && self.head >= self.len() {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
        self.bytes.extend_from_slice(bytes);
        self.marks.push_back(Mark { left: bytes.len(), report, asked });
        true
    }

    /// Returns all bytes that wait.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    /// Returns the first message. Only for a writer that takes whole messages.
    pub fn message(&self) -> Option<&[u8]> {
        self.marks.front().map(|m| &self.bytes[self.head..self.head + m.left])
    }

    /// Returns the messages in order. Only for a writer that takes whole messages.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.marks.iter().scan(self.head, |at, mark| {
            let start = std::mem::replace(at, *at + mark.left);
            Some(&self.bytes[start..*at])
        })
    }

    /// Removes the message at `index`, which is written, while others before it are not. Only for a writer
    /// that takes whole messages.
    pub fn written_at(&mut self, index: usize) {
        let start = self.head + self.marks.iter().take(index).map(|m| m.left).sum::<usize>();
        match self.marks.get(index) {
            Some(mark) if index == 0 => {
                self.written(mark.left);
            }
            Some(mark) => {
                self.bytes.drain(start..start + mark.left);
                if let Some(mark) = self.marks.remove(index) {
                    self.left(mark);
                }
            }
            None => {}
        }
    }

    fn left(&mut self, mark: Mark) {
        if let Some(at) = mark.asked {
            self.awaited.push(at, mark.report);
        } else if let Some(early) = &mut self.early {
            early.push(mark.report);
        }
    }

    /// Removes the first `n` bytes, which are written. Returns how many messages ended with them.
    pub fn written(&mut self, mut n: usize) -> u64 {
        self.head += n;
        let mut ended = 0;
        while let Some(mark) = self.marks.front_mut() {
            if mark.left > n {
                mark.left -= n;
                break;
            }
            n -= mark.left;
            let mark = *mark;
            self.marks.pop_front();
            self.left(mark);
            ended += 1;
        }
        if self.marks.is_empty() {
            // An idle connection costs no memory for what it once wrote.
            self.bytes = Vec::new();
            self.marks = VecDeque::new();
            self.head = 0;
        }
        ended
    }

    /// Empties the queue. Returns the reports of the messages not wholly written; if the connection was never
    /// open, of all messages.
    pub(crate) fn fail(&mut self) -> impl Iterator<Item = Report> {
        self.bytes = Vec::new();
        self.head = 0;
        let early = self.early.take();
        let asked = if early.is_some() { self.awaited.take() } else { Vec::new() };
        let waiting = std::mem::take(&mut self.marks).into_iter().map(|m| m.report);
        asked.into_iter().chain(early.unwrap_or_default()).chain(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(number: u64) -> Report {
        Report { worker: 0, number }
    }

    #[test]
    fn bytes_leave_in_order_across_messages() {
        let mut q = WriteQueue::default();
        assert!(
            q.push(b"abc", report(1), None, 100)
                && q.push(b"defg", report(2), None, 100)
                && q.push(b"h", report(3), None, 100)
        );
        assert_eq!(q.message(), Some(&b"abc"[..]));
        assert_eq!(q.written(4), 1);
        assert_eq!(q.bytes(), b"efgh");
        assert!(q.push(b"ij", report(4), None, 100));
        assert_eq!(q.bytes(), b"efghij");
        assert_eq!(q.written(4), 2);
        assert_eq!(q.message(), Some(&b"ij"[..]));
        assert_eq!(q.fail().collect::<Vec<_>>(), [report(4)]);
        assert_eq!((q.is_empty(), q.len()), (true, 0));
    }

    #[test]
    fn messages_may_leave_past_others() {
        let mut q = WriteQueue::default();
        for (n, bytes) in [&b"ab"[..], b"cde", b"f", b"gh"].into_iter().enumerate() {
            assert!(q.push(bytes, report(n as u64), None, 100));
        }
        q.written_at(0);
        assert_eq!(q.iter().collect::<Vec<_>>(), [&b"cde"[..], b"f", b"gh"]);
        q.written_at(1);
        assert_eq!((q.iter().collect::<Vec<_>>(), q.len()), (vec![&b"cde"[..], b"gh"], 5));
        q.written_at(9);
        assert_eq!(q.fail().collect::<Vec<_>>(), [report(1), report(3)]);
    }

    #[test]
    fn the_limit_holds_for_what_waits_only() {
        let mut q = WriteQueue::default();
        assert!(q.push(&[0; 10], report(0), None, 10));
        assert!(!q.push(&[0; 1], report(0), None, 10));
        q.written(9);
        assert!(q.push(&[0; 9], report(0), None, 10));
        assert!(!q.push(&[0; 1], report(0), None, 10));
        assert_eq!(q.written(10), 2);
    }

    proptest! {
        /// Against a plain list of bytes: whatever is pushed and written, the same bytes in the same
        /// order, each message counted once, the limit never passed.
        #[test]
        fn behaves_like_a_list_of_bytes(steps in prop::collection::vec((any::<bool>(), 0usize..300), 1..100)) {
            const LIMIT: usize = 1_000;
            let mut queue = WriteQueue::default();
            let mut model: VecDeque<u8> = VecDeque::new();
            let (mut pushed, mut ended) = (0, 0);
            for (n, (push, size)) in steps.into_iter().enumerate() {
                if push && size > 0 {
                    let bytes = vec![n as u8; size];
                    let taken = queue.push(&bytes, report(n as u64 + 1), None, LIMIT);
                    prop_assert_eq!(taken, model.len() + size <= LIMIT);
                    if taken {
                        model.extend(bytes);
                        pushed += 1;
                    }
                } else {
                    let n = size.min(queue.len());
                    ended += queue.written(n);
                    model.drain(..n);
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert!(queue.bytes().iter().eq(model.iter()));
                prop_assert_eq!(queue.messages() as u64, pushed - ended);
            }
            prop_assert_eq!(queue.fail().count() as u64, pushed - ended);
        }
    }
}
