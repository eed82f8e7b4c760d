//! Streams.

use crate::mutated;
use proptest::prelude::*;
use ringway_sip::framing::{Frame, Framer};
use ringway_sip::limits::{MAX_HEAD, MAX_MESSAGE};

/// What comes out of a stream that arrives in these pieces: messages, pings, and whether it broke.
fn frames<'s>(pieces: impl Iterator<Item = &'s [u8]>) -> (Vec<Vec<u8>>, usize, Option<u16>) {
    let mut framer = Framer::new();
    let (mut messages, mut pings) = (Vec::new(), 0);
    for piece in pieces {
        framer.extend(piece);
        while let Some(frame) = framer.next() {
            match frame {
                Ok(Frame::Message(m)) => {
                    assert!(m.len() <= MAX_MESSAGE);
                    messages.push(m.to_vec());
                }
                Ok(Frame::Malformed(head, fault)) => {
                    assert!(head.len() <= MAX_HEAD && fault.status >= 400);
                    messages.push(head.to_vec());
                }
                Ok(Frame::Ping) => pings += 1,
                Ok(Frame::Pong) => {}
                Err(fault) => {
                    assert!(framer.broken_head().len() <= MAX_HEAD);
                    return (messages, pings, Some(fault.status));
                }
            }
        }
    }
    (messages, pings, None)
}

fn split<'s>(stream: &'s [u8], cuts: &[prop::sample::Index]) -> Vec<&'s [u8]> {
    let mut places: Vec<_> = cuts.iter().map(|c| c.index(stream.len() + 1)).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    places.windows(2).map(|w| &stream[w[0]..w[1]]).collect()
}

/// A message that can stand on a stream, and its octets.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..60);
    (body, prop::collection::vec("[A-Z]{2,9}: [ -~]{0,30}(\r\n [ -~]{0,9})?\r\n", 0..5), 0usize..6)
        .prop_map(|(body, fields, place)| {
            let mut text = b"MESSAGE sip:a@b SIP/2.0\r\n".to_vec();
            let length = format!("Content-Length: {}\r\n", body.len());
            let place = place.min(fields.len());
            for (i, field) in fields.iter().enumerate() {
                if i == place {
                    text.extend(length.as_bytes());
                }
                text.extend(field.as_bytes());
            }
            if place == fields.len() {
                text.extend(length.as_bytes());
            }
            text.extend(b"\r\n");
            text.extend(body);
            text
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// RFC 3261 section 18.3: what was sent is what is found, however the stream is cut.
    #[test]
    fn messages_survive_any_cut(
        messages in prop::collection::vec((message(), 0usize..4), 1..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut stream = Vec::new();
        for (message, ends) in &messages {
            stream.extend(b"\r\n".repeat(*ends));
            stream.extend(message);
        }
        let (found, pings, fault) = frames(split(&stream, &cuts).into_iter());
        let sent: Vec<_> = messages.iter().map(|(m, _)| m.clone()).collect();
        prop_assert_eq!(found, sent);
        prop_assert_eq!(pings, messages.iter().map(|(_, ends)| ends / 2).sum::<usize>());
        prop_assert_eq!(fault, None);
    }

    /// Whatever comes: the same messages, pings and end, however it is cut.
    #[test]
    fn anything_is_cut_the_same_way(
        parts in prop::collection::vec(prop_oneof![mutated(), message()], 1..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let stream = parts.concat();
        let whole = frames([&stream[..]].into_iter());
        prop_assert_eq!(frames(split(&stream, &cuts).into_iter()), whole.clone());
        prop_assert_eq!(frames(stream.chunks(1)), whole);
    }
}
