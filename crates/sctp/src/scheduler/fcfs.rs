//! First come, first served (RFC 8260 section 3.1).

use super::Scheduler;
use std::collections::VecDeque;

/// Sends messages in the order in which they were queued. A run of messages of one stream is one entry.
#[derive(Debug, Default)]
pub struct Fcfs {
    runs: VecDeque<(u16, u32)>,
}

impl Scheduler for Fcfs {
    fn name(&self) -> &'static str {
        "fcfs"
    }

    fn queued(&mut self, stream: u16, _bytes: usize) {
        match self.runs.back_mut() {
            Some((last, count)) if *last == stream => *count += 1,
            _ => self.runs.push_back((stream, 1)),
        }
    }

    fn next(&self) -> Option<u16> {
        self.runs.front().map(|run| run.0)
    }

    fn taken(&mut self, _bytes: usize, _more: bool) {
        if let Some((_, count)) = self.runs.front_mut() {
            *count -= 1;
            if *count == 0 {
                self.runs.pop_front();
            }
        }
    }

    fn removed(&mut self, stream: u16, _more: bool) {
        let Some(at) = self.runs.iter().position(|run| run.0 == stream) else { return };
        self.runs[at].1 -= 1;
        if self.runs[at].1 == 0 {
            self.runs.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8260 section 3.1.
    #[test]
    fn goes_by_arrival() {
        let mut s = Fcfs::default();
        for stream in [3, 3, 1, 3, 2] {
            s.queued(stream, 10);
        }
        let mut order = Vec::new();
        while let Some(stream) = s.next() {
            order.push(stream);
            s.taken(10, true);
        }
        assert_eq!(order, [3, 3, 1, 3, 2]);
        s.queued(1, 10);
        s.queued(2, 10);
        s.removed(2, false);
        s.cut(5);
        assert_eq!(s.next(), Some(1));
        s.taken(5, false);
        assert_eq!(s.next(), None);
    }
}
