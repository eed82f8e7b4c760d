//! Two ends of a framed byte stream, and hostile octets.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_services::framing::wire::{FRAME_COST, Header, Hello, Kind, MAX_FRAME, MIN_WINDOW};
use ringway_services::framing::{
    Event, FramingError, Limits, Mux, Read, SendError, Side, StreamId,
};
use std::collections::BTreeMap;

fn pair(limits: Limits) -> [Mux; 2] {
    [Mux::new(Side::Initiator, limits), Mux::new(Side::Responder, limits)]
}

/// Carries what both ends write until there is nothing more, in pieces of these sizes.
fn carry(ends: &mut [Mux; 2], sizes: &mut impl Iterator<Item = usize>) {
    let mut idle = 0;
    while idle < 2 {
        idle += 1;
        for from in 0..2 {
            let mut bytes = Vec::new();
            if ends[from].write(&mut bytes, 4_000) > 0 {
                idle = 0;
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let size = sizes.next().unwrap_or(rest.len()).clamp(1, rest.len());
                ends[1 - from].receive(&rest[..size]).unwrap();
                rest = &rest[size..];
            }
        }
    }
}

fn carry_whole(ends: &mut [Mux; 2]) {
    carry(ends, &mut core::iter::empty());
}

fn events(mux: &mut Mux) -> Vec<Event> {
    core::iter::from_fn(|| mux.poll_event()).collect()
}

fn small() -> Limits {
    Limits { streams: 4, window: MIN_WINDOW }
}

#[test]
fn messages_keep_their_boundaries() {
    let mut ends = pair(small());
    let id = ends[0].open().unwrap();
    for message in ["one", "", "three"] {
        ends[0].send(id, message.as_bytes().to_vec(), message == "three").unwrap();
        carry_whole(&mut ends);
    }
    assert_eq!(events(&mut ends[1]), [Event::Opened(id), Event::Readable(id)]);
    for message in ["one", "", "three"] {
        assert_eq!(ends[1].read(id), Read::Message(message.as_bytes().to_vec()));
    }
    assert_eq!(ends[1].read(id), Read::End);
    assert_eq!(ends[0].send(id, Vec::new(), false), Err(SendError::Ended(id)));
}

#[test]
fn a_stream_that_nobody_reads_blocks_no_other() {
    let mut ends = pair(small());
    ends[1].receive(&[]).unwrap();
    carry_whole(&mut ends);
    let (stuck, free) = (ends[0].open().unwrap(), ends[0].open().unwrap());
    ends[0].send(stuck, vec![1; 100_000], false).unwrap();
    carry_whole(&mut ends);
    assert!(!ends[0].is_writable(stuck));
    for _ in 0..100 {
        ends[0].send(free, vec![2; 1_000], false).unwrap();
        carry_whole(&mut ends);
        assert_eq!(ends[1].read(free), Read::Message(vec![2; 1_000]));
    }
    // A message larger than the window is read in parts.
    let mut whole = Vec::new();
    loop {
        match ends[1].read(stuck) {
            Read::Part(part) => whole.extend(part),
            Read::Message(rest) => {
                whole.extend(rest);
                break;
            }
            Read::Pending => carry_whole(&mut ends),
            Read::End => panic!("the end before the message"),
        }
    }
    assert_eq!(whole, vec![1; 100_000]);
    assert!(ends[0].is_writable(stuck));
}

#[test]
fn closing_or_resetting_one_stream_leaves_the_others() {
    let mut ends = pair(small());
    carry_whole(&mut ends);
    let ids: Vec<StreamId> = (0..3).map(|_| ends[0].open().unwrap()).collect();
    carry_whole(&mut ends);
    assert_eq!(events(&mut ends[1]), ids.iter().map(|id| Event::Opened(*id)).collect::<Vec<_>>());
    ends[0].close(ids[0]);
    ends[0].reset(ids[1], 7);
    carry_whole(&mut ends);
    assert_eq!(events(&mut ends[1]), [Event::Reset(ids[1], 7), Event::Readable(ids[0])]);
    assert_eq!(ends[1].read(ids[0]), Read::End);
    ends[1].close(ids[0]);
    carry_whole(&mut ends);
    assert_eq!(events(&mut ends[0]).last(), Some(&Event::Closed(ids[0])));
    assert_eq!(events(&mut ends[1]), [Event::Closed(ids[0])]);
    ends[0].send(ids[2], b"still here".to_vec(), false).unwrap();
    carry_whole(&mut ends);
    assert_eq!(ends[1].read(ids[2]), Read::Message(b"still here".to_vec()));
    assert_eq!((ends[0].len(), ends[1].len()), (1, 1));
}

#[test]
fn both_ends_open_streams() {
    let mut ends = pair(small());
    let (one, other) = (ends[0].open().unwrap(), ends[1].open().unwrap());
    assert_eq!((one, other), (StreamId(0), StreamId(1)));
    // Without the peer's hello there is one stream.
    assert_eq!(ends[0].open(), Err(SendError::NoStreams));
    ends[1].send(other, b"from the responder".to_vec(), false).unwrap();
    carry_whole(&mut ends);
    assert_eq!(ends[0].read(other), Read::Message(b"from the responder".to_vec()));
    assert_eq!(ends[0].open(), Ok(StreamId(2)));
}

#[test]
fn streams_are_permitted_again_when_others_have_ended() {
    let mut ends = pair(small());
    carry_whole(&mut ends);
    for round in 0..100 {
        let mut opened = Vec::new();
        while ends[0].can_open() {
            opened.push(ends[0].open().unwrap());
        }
        assert!(!opened.is_empty() && ends[0].len() <= 4, "round {round}");
        carry_whole(&mut ends);
        for (index, id) in opened.into_iter().enumerate() {
            if (index + round) % 2 == 0 {
                ends[0].reset(id, 0);
            } else {
                ends[0].close(id);
                ends[1].close(id);
            }
        }
        carry_whole(&mut ends);
        events(&mut ends[0]);
        events(&mut ends[1]);
        carry_whole(&mut ends);
    }
    assert!(ends[0].is_empty() && ends[1].is_empty());
}

#[test]
fn a_stream_that_is_reset_before_it_was_written_is_never_seen() {
    let mut ends = pair(small());
    carry_whole(&mut ends);
    let (first, second) = (ends[0].open().unwrap(), ends[0].open().unwrap());
    ends[0].reset(second, 1);
    carry_whole(&mut ends);
    assert_eq!(events(&mut ends[1]), [Event::Opened(first)]);
    let third = ends[0].open().unwrap();
    carry_whole(&mut ends);
    assert_eq!(events(&mut ends[1]), [Event::Opened(third)]);
}

/// A frame, with a payload of this length.
fn frame(kind: Kind, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { kind, length: payload.len() as u16, stream: StreamId(stream) }.write(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// What a responder says to these frames.
fn refusal(frames: &[Vec<u8>]) -> FramingError {
    let mut mux = Mux::new(Side::Responder, small());
    let mut bytes = Vec::new();
    Hello { streams: 1, window: MIN_WINDOW }.write(&mut bytes);
    let error = mux.receive(&[bytes, frames.concat()].concat()).unwrap_err();
    assert_eq!(mux.receive(b"x"), Err(error), "it stays broken");
    assert!(!mux.has_output() && mux.write(&mut Vec::new(), 4_000) == 0);
    error
}

#[test]
fn a_peer_that_breaks_the_rules_is_refused() {
    let data =
        |stream, length| frame(Kind::Data { end: true, last: false }, stream, &vec![0; length]);
    let last = |stream| frame(Kind::Data { end: true, last: true }, stream, &[]);
    let credit = |stream, more: u32| frame(Kind::Credit, stream, &more.to_be_bytes());
    let opens: Vec<Vec<u8>> = (0..5).map(|n| frame(Kind::Open, 2 * n, &[])).collect();
    assert_eq!(refusal(&opens), FramingError::TooManyStreams(StreamId(8)));
    assert_eq!(refusal(&[frame(Kind::Open, 1, &[])]), FramingError::NoStream(StreamId(1)));
    assert_eq!(refusal(&[credit(4, 1)]), FramingError::NoStream(StreamId(4)));
    assert_eq!(refusal(&[last(0), data(0, 1)]), FramingError::AfterClose(StreamId(0)));
    let cut = [frame(Kind::Data { end: false, last: false }, 0, b"a"), frame(Kind::Close, 0, &[])];
    assert_eq!(refusal(&cut), FramingError::CutOff(StreamId(0)));
    assert!(matches!(
        refusal(&[data(0, 10_000), data(0, 10_000)]),
        FramingError::WindowExceeded { credit: 6_352, used: 10_032, .. }
    ));
    let much = [frame(Kind::Open, 0, &[]), credit(0, u32::MAX)];
    assert_eq!(refusal(&much), FramingError::CreditOverflow(StreamId(0)));
    let mut mux = Mux::new(Side::Initiator, small());
    let error = mux.receive(b"HTTP/1.1 400 Bad Request").unwrap_err();
    assert!(error.to_string().starts_with("expected the hello of the framing"));
}

#[test]
fn empty_messages_use_the_window_too() {
    let count = MIN_WINDOW / FRAME_COST;
    let empty = frame(Kind::Data { end: true, last: false }, 0, &[]);
    let frames = vec![empty; count as usize + 1];
    assert!(matches!(refusal(&frames), FramingError::WindowExceeded { credit: 0, .. }));
}

#[test]
fn unknown_kinds_with_the_highest_bit_are_ignored() {
    let mut ends = pair(small());
    let id = ends[0].open().unwrap();
    ends[0].send(id, b"before".to_vec(), false).unwrap();
    carry_whole(&mut ends);
    ends[1].receive(&frame(Kind::Ignored(0x99), 77, &[5; MAX_FRAME])).unwrap();
    ends[0].send(id, b"after".to_vec(), false).unwrap();
    carry_whole(&mut ends);
    assert_eq!(ends[1].read(id), Read::Message(b"before".to_vec()));
    assert_eq!(ends[1].read(id), Read::Message(b"after".to_vec()));
    assert_eq!(ends[1].counters().ignored_frames, 1);
}

/// What a receiver makes of octets.
#[derive(PartialEq, Debug)]
struct Outcome {
    events: Vec<Event>,
    reads: BTreeMap<StreamId, Vec<Read>>,
    result: Result<(), FramingError>,
}

/// Returns what a receiver makes of octets in pieces of these sizes.
fn outcome(bytes: &[u8], sizes: &mut impl Iterator<Item = usize>) -> Outcome {
    let mut mux = Mux::new(Side::Responder, small());
    let mut rest = bytes;
    let mut result = Ok(());
    while !rest.is_empty() && result.is_ok() {
        let size = sizes.next().unwrap_or(rest.len()).clamp(1, rest.len());
        result = mux.receive(&rest[..size]);
        rest = &rest[size..];
    }
    let events = events(&mut mux);
    let mut reads: BTreeMap<StreamId, Vec<Read>> = BTreeMap::new();
    for event in &events {
        let Event::Opened(id) = event else { continue };
        loop {
            let read = mux.read(*id);
            let is_over = matches!(read, Read::End | Read::Pending);
            reads.entry(*id).or_default().push(read);
            if is_over {
                break;
            }
        }
    }
    // What is kept is bounded by the streams and their windows, whatever came.
    let kept: usize = reads
        .values()
        .flatten()
        .map(|read| match read {
            Read::Message(bytes) | Read::Part(bytes) => bytes.len(),
            _ => 0,
        })
        .sum();
    assert!(kept <= 4 * MIN_WINDOW as usize);
    Outcome { events, reads, result }
}

/// Octets that are almost frames.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let frame = (0u8..7, any::<u8>(), 0u16..40, 0u32..9, any::<bool>()).prop_map(
        |(kind, flags, length, stream, good)| {
            let length = match kind {
                1 | 2 if good => 0,
                3..=5 if good => 4,
                _ => length,
            };
            let mut bytes = vec![kind, flags];
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&stream.to_be_bytes());
            bytes.extend((0..length).map(|n| if good && n < 2 { 0 } else { n as u8 }));
            bytes
        },
    );
    proptest::collection::vec(frame, 0..40).prop_map(|frames| {
        let mut bytes = Vec::new();
        Hello { streams: 2, window: MIN_WINDOW }.write(&mut bytes);
        bytes.extend(frames.concat());
        bytes
    })
}

proptest! {
    #[test]
    fn the_division_of_the_octets_does_not_matter(
        bytes in almost(),
        sizes in proptest::collection::vec(1usize..30, 0..200),
    ) {
        let whole = outcome(&bytes, &mut core::iter::empty());
        prop_assert_eq!(&outcome(&bytes, &mut core::iter::repeat(1)), &whole);
        prop_assert_eq!(&outcome(&bytes, &mut sizes.into_iter()), &whole);
    }

    #[test]
    fn any_octets_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let _ = outcome(&bytes, &mut core::iter::empty());
        let mut hello = Vec::new();
        Hello { streams: 2, window: MIN_WINDOW }.write(&mut hello);
        hello.extend(bytes);
        let _ = outcome(&hello, &mut core::iter::empty());
    }

    /// Whatever both ends do, what arrives is what was sent, and in the end nothing waits.
    #[test]
    fn what_is_sent_arrives(
        steps in proptest::collection::vec((0usize..2, 0u8..8, 0usize..6, 0usize..40_000), 1..120),
        sizes in proptest::collection::vec(1usize..5_000, 1..20),
    ) {
        let mut ends = pair(small());
        let mut sizes = sizes.into_iter().cycle();
        let mut sent: BTreeMap<(usize, StreamId), Vec<u8>> = BTreeMap::new();
        let mut got: BTreeMap<(usize, StreamId), Vec<u8>> = BTreeMap::new();
        let mut ids: Vec<StreamId> = Vec::new();
        let mut resets: Vec<StreamId> = Vec::new();
        for (end, step, which, length) in steps {
            let id = ids.get(which % ids.len().max(1)).copied();
            match (step, id) {
                (0, _) => ids.extend(ends[end].open()),
                (1..=3, Some(id)) => {
                    let message: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
                    if ends[end].send(id, message.clone(), step == 3 && length % 5 == 0).is_ok() {
                        let all = sent.entry((end, id)).or_default();
                        all.extend(message);
                        all.push(b'|');
                    }
                }
                (4, Some(id)) => ends[end].finish(id),
                (5, Some(id)) if length % 7 == 0 => {
                    ends[end].reset(id, 1);
                    resets.push(id);
                }
                (6, Some(id)) => take(&mut ends, end, id, &mut got),
                _ => carry(&mut ends, &mut sizes),
            }
        }
        for _ in 0..12 {
            carry(&mut ends, &mut sizes);
            for end in 0..2 {
                for id in &ids {
                    take(&mut ends, end, *id, &mut got);
                }
            }
        }
        for ((end, id), bytes) in &sent {
            if !resets.contains(id) {
                prop_assert_eq!(got.get(&(1 - end, *id)), Some(bytes), "stream {}", id);
            }
        }
        for end in &mut ends {
            events(end);
        }
        carry(&mut ends, &mut sizes);
        prop_assert!(!ends[0].has_output() && !ends[1].has_output());
    }
}

fn take(
    ends: &mut [Mux; 2],
    end: usize,
    id: StreamId,
    got: &mut BTreeMap<(usize, StreamId), Vec<u8>>,
) {
    loop {
        match ends[end].read(id) {
            Read::Message(bytes) => {
                let all = got.entry((end, id)).or_default();
                all.extend(bytes);
                all.push(b'|');
            }
            Read::Part(bytes) => got.entry((end, id)).or_default().extend(bytes),
            Read::End | Read::Pending => return,
        }
    }
}
