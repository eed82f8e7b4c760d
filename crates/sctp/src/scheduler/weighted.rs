//! Fair capacity and weighted fair queueing (RFC 8260 sections 3.5 and 3.6).

use super::Scheduler;
use std::collections::{BTreeMap, BTreeSet};

/// Virtual time of a byte at weight 1.
const BYTE: u64 = 1 << 16;

/// State of a stream.
#[derive(Clone, Copy, Debug)]
struct Share {
    weight: u16,
    /// The virtual time up to which its sent bytes are paid.
    paid: u64,
    waits: bool,
}

/// Shares the bytes in proportion to the streams' weights, 1 unless set: the stream with the fewest
/// bytes for its weight is next. A stream that had nothing to send gets no credit for that.
#[derive(Debug, Default)]
pub struct Weighted {
    shares: BTreeMap<u16, Share>,
    /// Streams that have messages, by virtual time.
    waiting: BTreeSet<(u64, u16)>,
    now: u64,
}

impl Weighted {
    fn share(&mut self, stream: u16) -> &mut Share {
        self.shares.entry(stream).or_insert(Share { weight: 1, paid: 0, waits: false })
    }

    fn pay(&mut self, stream: u16, bytes: usize, more: bool) {
        let now = self.now;
        let share = self.share(stream);
        let before = (share.paid, stream);
        share.paid = share.paid.max(now) + bytes as u64 * BYTE / u64::from(share.weight);
        let after = (share.paid, stream);
        let waited = core::mem::replace(&mut share.waits, more);
        if waited {
            self.waiting.remove(&before);
        }
        if more {
            self.waiting.insert(after);
        }
    }
}

impl Scheduler for Weighted {
    fn name(&self) -> &'static str {
        "weighted fair queueing"
    }

    fn queued(&mut self, stream: u16, _bytes: usize) {
        let now = self.now;
        let share = self.share(stream);
        if !core::mem::replace(&mut share.waits, true) {
            share.paid = share.paid.max(now);
            let paid = share.paid;
            self.waiting.insert((paid, stream));
        }
    }

    fn next(&self) -> Option<u16> {
        self.waiting.first().map(|(_, stream)| *stream)
    }

    fn taken(&mut self, bytes: usize, more: bool) {
        let Some(&(paid, stream)) = self.waiting.first() else { return };
        self.now = self.now.max(paid);
        self.pay(stream, bytes, more);
    }

    fn cut(&mut self, bytes: usize) {
        self.taken(bytes, true);
    }

    fn spent(&mut self, stream: u16, bytes: usize) {
        let waits = self.share(stream).waits;
        self.pay(stream, bytes, waits);
    }

    fn removed(&mut self, stream: u16, more: bool) {
        if !more {
            self.pay(stream, 0, false);
        }
    }

    fn set_value(&mut self, stream: u16, value: u16) {
        self.share(stream).weight = value.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes of streams 0 and 1 in 1000 turns, with messages of these sizes.
    fn shares(weights: [u16; 2], sizes: [usize; 2]) -> [usize; 2] {
        let mut s = Weighted::default();
        for stream in 0..2 {
            s.set_value(stream, weights[usize::from(stream)]);
            s.queued(stream, 0);
        }
        let mut sent = [0; 2];
        for _ in 0..1000 {
            let stream = s.next().unwrap();
            let size = sizes[usize::from(stream)];
            sent[usize::from(stream)] += size;
            // Half of it at once, and half later.
            s.taken(size / 2, true);
            s.spent(stream, size - size / 2);
        }
        sent
    }

    /// RFC 8260 section 3.5: equal bytes whatever the sizes; section 3.6: by weight.
    #[test]
    fn bytes_are_shared() {
        for (weights, sizes, ratio) in
            [([1, 1], [100, 1000], 1.0), ([3, 1], [500, 500], 3.0), ([1, 4], [900, 200], 0.25)]
        {
            let [one, two] = shares(weights, sizes);
            let found = one as f64 / two as f64;
            assert!((found / ratio - 1.0).abs() < 0.1, "{weights:?} {sizes:?}: {found}");
        }
    }

    /// A stream that was idle does not catch up.
    #[test]
    fn rest_is_not_saved() {
        let mut s = Weighted::default();
        s.queued(1, 10);
        for _ in 0..50 {
            s.taken(1000, true);
        }
        s.queued(2, 10);
        let mut order = Vec::new();
        for _ in 0..6 {
            order.push(s.next().unwrap());
            s.taken(1000, true);
        }
        assert_eq!(order.iter().filter(|s| **s == 1).count(), 3, "{order:?}");
        s.removed(1, false);
        s.removed(2, false);
        assert_eq!(s.next(), None);
    }
}
