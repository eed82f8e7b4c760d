//! What is in a message, and whether what came is what was sent: as `../peer.h` has it.

use bytes::Bytes;
use std::collections::HashSet;

/// The pattern repeats after so many bytes.
const PERIOD: usize = 1 << 16;
/// Set in every payload protocol id; without it, a small number is that of a protocol.
const NUMBERED: u32 = 1 << 31;
/// Largest message.
pub(crate) const LARGEST: usize = 1 << 21;

/// The pattern, long enough for a message that begins anywhere in it.
pub(crate) struct Pattern(Bytes);

impl Pattern {
    pub(crate) fn new() -> Pattern {
        let byte = |place: usize| ((place * 31) ^ (place >> 8)) as u8;
        Pattern((0..PERIOD + LARGEST).map(|i| byte(i % PERIOD)).collect())
    }

    /// What must be in the `number`-th message on a stream.
    pub(crate) fn message(&self, stream: u16, number: u32, size: usize) -> Bytes {
        let place = u32::from(stream).wrapping_mul(31).wrapping_add(number.wrapping_mul(7));
        let start = place as usize % PERIOD;
        self.0.slice(start..start + size)
    }
}

/// The payload protocol id of the `number`-th message on a stream.
pub(crate) fn ppid(number: u32) -> u32 {
    number | NUMBERED
}

/// The number that a payload protocol id says.
pub(crate) fn number(ppid: u32) -> u32 {
    ppid & !NUMBERED
}

fn reset<T: Copy + Default>(of: &mut [T], streams: &[u16]) -> usize {
    if streams.is_empty() {
        of.fill(T::default());
        return of.len();
    }
    for &stream in streams {
        if let Some(one) = of.get_mut(usize::from(stream)) {
            *one = T::default();
        }
    }
    streams.len()
}

/// What was sent.
pub(crate) struct Sent {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// By stream, the number of the next.
    next: Vec<u32>,
}

impl Sent {
    pub(crate) fn new(streams: u16) -> Sent {
        Sent { messages: 0, bytes: 0, next: vec![0; usize::from(streams)] }
    }

    /// The next message's stream, number and size; `sizes` of them from one byte up to `size`.
    pub(crate) fn next(&self, size: usize, sizes: u64) -> (u16, u32, usize) {
        let stream = (self.messages % self.next.len() as u64) as u16;
        let size = match sizes {
            0 | 1 => size,
            n => 1 + ((size as u64 - 1) * (self.messages % n) / (n - 1)) as usize,
        };
        (stream, self.next[usize::from(stream)], size)
    }

    /// It went.
    pub(crate) fn count(&mut self, stream: u16, size: usize) {
        self.next[usize::from(stream)] += 1;
        self.messages += 1;
        self.bytes += size as u64;
    }

    /// Our streams begin anew, all if none is named, and so do their numbers. Gives how many.
    pub(crate) fn reset(&mut self, streams: &[u16]) -> usize {
        reset(&mut self.next, streams)
    }
}

/// What came.
pub(crate) struct Got {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Not as sent, out of order, missing or doubled.
    pub(crate) wrong: u64,
    /// By stream, the number that is next.
    next: Vec<u32>,
    /// By stream, whether a message came since it was last reset.
    since_reset: Vec<bool>,
    seen: HashSet<(u16, u32)>,
    /// Order does not matter.
    pub(crate) unordered: bool,
    /// Some may be missing.
    pub(crate) partial: bool,
}

impl Got {
    pub(crate) fn new(unordered: bool, partial: bool) -> Got {
        let streams = usize::from(u16::MAX) + 1;
        Got {
            messages: 0,
            bytes: 0,
            wrong: 0,
            next: vec![0; streams],
            since_reset: vec![true; streams],
            seen: HashSet::new(),
            unordered,
            partial,
        }
    }

    /// A message came.
    pub(crate) fn take(&mut self, pattern: &Pattern, stream: u16, number: u32, message: &[u8]) {
        let mut right = message.len() <= LARGEST
            && pattern.message(stream, number, message.len())[..] == *message;
        if self.unordered {
            right &= self.seen.insert((stream, number));
        } else {
            let (next, since) = {
                let stream = usize::from(stream);
                (&mut self.next[stream], &mut self.since_reset[stream])
            };
            if number == 0 && !*since {
                (*next, *since) = (0, true);
            }
            right &= if self.partial { number >= *next } else { number == *next };
            *next = number.wrapping_add(1);
        }
        if !right {
            if self.wrong == 0 {
                crate::say(&format!(
                    "wrong: message {number} of {} bytes on stream {stream}",
                    message.len()
                ));
            }
            self.wrong += 1;
        }
        self.messages += 1;
        self.bytes += message.len() as u64;
    }

    /// The peer's streams begin anew, all if none is named. What came before may still be unread, so
    /// numbers begin anew with the next that says so.
    pub(crate) fn reset(&mut self, streams: &[u16]) {
        reset(&mut self.since_reset, streams);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_found() {
        let pattern = Pattern::new();
        let message = |stream, number| pattern.message(stream, number, 50);
        let take = |got: &mut Got, stream, number, bytes: &Bytes| {
            got.take(&pattern, stream, number, bytes);
            got.wrong
        };
        let mut got = Got::new(false, false);
        assert_eq!(take(&mut got, 3, 0, &message(3, 0)), 0);
        assert_eq!(take(&mut got, 3, 1, &message(3, 1)), 0);
        assert_eq!(take(&mut got, 4, 0, &message(4, 1)), 1, "another's content");
        assert_eq!(take(&mut got, 3, 3, &message(3, 3)), 2, "one is missing");
        assert_eq!(take(&mut got, 3, 3, &message(3, 3)), 3, "twice");
        let mut partial = Got::new(false, true);
        assert_eq!(take(&mut partial, 0, 5, &message(0, 5)), 0);
        assert_eq!(take(&mut partial, 0, 4, &message(0, 4)), 1, "out of order");
        let mut unordered = Got::new(true, false);
        assert_eq!(take(&mut unordered, 0, 5, &message(0, 5)), 0);
        assert_eq!(take(&mut unordered, 0, 4, &message(0, 4)), 0);
        assert_eq!(take(&mut unordered, 0, 5, &message(0, 5)), 1, "twice");
    }

    #[test]
    fn numbers_begin_anew() {
        let pattern = Pattern::new();
        let take = |got: &mut Got, stream, number| {
            got.take(&pattern, stream, number, &pattern.message(stream, number, 10));
            got.wrong
        };
        let mut got = Got::new(false, false);
        assert_eq!(take(&mut got, 1, 0), 0);
        got.reset(&[1]);
        assert_eq!(take(&mut got, 1, 1), 0, "from before");
        assert_eq!(take(&mut got, 1, 0), 0, "from after");
        assert_eq!(take(&mut got, 1, 0), 1, "once only");
        got.reset(&[]);
        assert_eq!(take(&mut got, 1, 0), 1);
        let mut sent = Sent::new(2);
        sent.count(1, 5);
        assert_eq!((sent.reset(&[1]), sent.reset(&[])), (1, 2));
        assert_eq!(sent.next(5, 1), (1, 0, 5));
    }

    #[test]
    fn sizes_go_from_one_to_the_largest() {
        let mut sent = Sent::new(2);
        let mut sizes = Vec::new();
        for _ in 0..6 {
            let (stream, _, size) = sent.next(1000, 4);
            sizes.push((stream, size));
            sent.count(stream, size);
        }
        assert_eq!(sizes, [(0, 1), (1, 334), (0, 667), (1, 1000), (0, 1), (1, 334)]);
        assert_eq!(sent.next(7, 1), (0, 3, 7));
    }
}
