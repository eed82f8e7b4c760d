//! Chunks in any order make the same messages.

use super::*;
use crate::numbers::{Ssn, Tsn};
use proptest::prelude::*;

struct Piece {
    flags: DataFlags,
    tsn: u32,
    stream: u16,
    ssn: u16,
    user: Vec<u8>,
}

impl Piece {
    fn data(&self) -> Data<'_> {
        Data {
            flags: self.flags,
            tsn: Tsn::new(self.tsn),
            stream: self.stream,
            ssn: Ssn::new(self.ssn),
            ppid: 9,
            user: &self.user,
        }
    }
}

/// Chunks of messages of (stream, unordered, fragments), the first TSN just before the wrap.
fn pieces(messages: &[(u16, bool, usize)]) -> Vec<Piece> {
    let (mut list, mut tsn, mut ssns) = (Vec::new(), u32::MAX - 2, [0u16; 8]);
    for (number, &(stream, unordered, count)) in messages.iter().enumerate() {
        for part in 0..count {
            let mut flags = DataFlags::default();
            for (set, flag) in [
                (part == 0, DataFlags::BEGIN),
                (part + 1 == count, DataFlags::END),
                (unordered, DataFlags::UNORDERED),
            ] {
                flags = if set { flags.with(flag) } else { flags };
            }
            let ssn = ssns[usize::from(stream)];
            let user = vec![number as u8, part as u8];
            list.push(Piece { flags, tsn, stream, ssn, user });
            tsn = tsn.wrapping_add(1);
        }
        ssns[usize::from(stream)] += u16::from(!unordered);
    }
    list
}

fn incoming() -> Incoming {
    Incoming::new(Tsn::new(u32::MAX - 2), 100_000)
}

fn read_all(incoming: &mut Incoming) -> Vec<(Received, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let mut out = Vec::new();
        match incoming.read(&mut out) {
            Some(received) => all.push((received, out)),
            None => return all,
        }
    }
}

/// RFC 9260 section 6.6: one stream does not hold up another, and unordered data is held by none.
#[test]
fn streams_do_not_wait_for_each_other() {
    let list = pieces(&[(1, false, 1), (1, false, 1), (2, false, 1), (1, true, 1)]);
    let mut it = incoming();
    for position in [3, 2, 1] {
        assert_eq!(it.take(&list[position].data()), Arrival::Taken { in_order: false });
    }
    let order: Vec<u8> = read_all(&mut it).iter().map(|m| m.1[0]).collect();
    assert_eq!(order, [3, 2]);
    assert_eq!(it.take(&list[0].data()), Arrival::Taken { in_order: true });
    let order: Vec<u8> = read_all(&mut it).iter().map(|m| m.1[0]).collect();
    assert_eq!(order, [0, 1]);
    assert!(it.is_empty() && !it.is_readable());
    assert_eq!(it.take(&list[0].data()), Arrival::Duplicate);
}

/// RFC 9260 section 6.9: a message larger than the buffer is delivered in parts.
#[test]
fn a_large_message_comes_in_parts() {
    let list = pieces(&[(0, false, 100), (0, false, 1)]);
    let mut it = Incoming::new(Tsn::new(u32::MAX - 2), 100);
    let (mut bytes, mut parts, mut ends) = (Vec::new(), 0, Vec::new());
    for piece in &list {
        assert_eq!(it.take(&piece.data()), Arrival::Taken { in_order: true });
        while let Some(received) = it.read(&mut bytes) {
            assert_eq!(received.begin, parts == 0 || ends.last() == Some(&true));
            parts += 1;
            ends.push(received.end);
        }
    }
    assert_eq!(bytes, list.iter().flat_map(|p| p.user.clone()).collect::<Vec<_>>());
    assert_eq!(ends.iter().filter(|end| **end).count(), 2);
    assert!(parts > 3);
}

/// Invalid fragments are distinguished from late ones.
#[test]
fn nonsense_is_a_violation() {
    let list = pieces(&[(1, false, 3), (1, false, 3)]);
    let mut it = incoming();
    assert!(matches!(it.take(&list[1].data()), Arrival::Taken { in_order: false }));
    assert!(matches!(it.take(&list[3].data()), Arrival::Taken { .. }));
    assert!(matches!(it.take(&list[0].data()), Arrival::Taken { in_order: true }));
    let cut = Piece { flags: DataFlags::default(), ..pieces(&[(1, false, 3)]).remove(2) };
    assert_eq!(it.take(&cut.data()), Arrival::Violation("a message has no end"));
    let mut it = incoming();
    let stray = Piece { flags: DataFlags::END, ..pieces(&[(1, false, 1)]).remove(0) };
    assert_eq!(it.take(&stray.data()), Arrival::Violation("a fragment continues no message"));
}

/// RFC 9260 section 6.2: a full buffer accepts what fills a gap and drops what is beyond.
#[test]
fn a_full_buffer_still_fills_gaps() {
    let list = pieces(&[(0, false, 1); 40]);
    let mut it = Incoming::new(Tsn::new(u32::MAX - 2), 20 * CHUNK_COST);
    for piece in &list[1..21] {
        assert_eq!(it.take(&piece.data()), Arrival::Taken { in_order: false });
    }
    assert_eq!(it.window(1000), 0);
    it.advertise(0);
    assert_eq!(it.take(&list[21].data()), Arrival::Dropped);
    assert_eq!(it.take(&list[0].data()), Arrival::Taken { in_order: true });
    assert_eq!(read_all(&mut it).len(), 21);
    assert!(it.window_opened(1000));
}

proptest! {
    #[test]
    fn any_order_makes_the_same_messages(
        messages in proptest::collection::vec((0u16..3, any::<bool>(), 1usize..5), 1..12),
        keys in proptest::collection::vec(any::<u16>(), 60),
        again in any::<bool>(),
    ) {
        let list = pieces(&messages);
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let mut it = incoming();
        let mut got = Vec::new();
        for index in order {
            let taken = it.take(&list[index].data());
            prop_assert!(matches!(taken, Arrival::Taken { .. }), "{taken:?}");
            if again {
                prop_assert_eq!(it.take(&list[index].data()), Arrival::Duplicate);
            }
            got.extend(read_all(&mut it));
        }
        prop_assert_eq!(it.tracker.cumulative(), Line::ORIGIN + list.len() as u64 - 1);
        prop_assert!(it.is_empty() && it.runs.is_empty() && it.held.is_empty() && it.pieces == 0);
        prop_assert_eq!(got.len(), messages.len());
        let mut last = [None; 3];
        for (received, bytes) in got {
            let number = usize::from(bytes[0]);
            let (stream, unordered, count) = messages[number];
            prop_assert_eq!((received.stream, received.unordered), (stream, unordered));
            prop_assert!(received.begin && received.end);
            let expected: Vec<u8> = (0..count).flat_map(|part| [number as u8, part as u8]).collect();
            prop_assert_eq!(bytes, expected);
            if !unordered {
                let before = last[usize::from(stream)].replace(number);
                prop_assert!(before.is_none_or(|before| before < number));
            }
        }
    }
}
