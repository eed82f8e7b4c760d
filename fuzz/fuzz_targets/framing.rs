//! A stream, whole and in pieces: the same messages must come out. The first two octets say how
//! long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_sip::framing::{self, Frame, Framer};
use ringway_sip::message;

fn frames<'s>(
    pieces: impl Iterator<Item = &'s [u8]>,
) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, usize, Option<u16>) {
    let mut framer = Framer::new();
    let (mut messages, mut malformed, mut pings) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        framer.extend(piece);
        while let Some(frame) = framer.next() {
            match frame {
                Ok(Frame::Message(m)) => messages.push(m.to_vec()),
                Ok(Frame::Malformed(head, fault)) => {
                    assert!(fault.status >= 400);
                    if let Some(head) = framing::answerable(head) {
                        message::parse(&head).expect("what can be answered can be parsed");
                    }
                    malformed.push(head.to_vec());
                }
                Ok(Frame::Ping) => pings += 1,
                Ok(Frame::Pong) => {}
                Err(fault) => {
                    let _ = message::parse(framer.broken_head());
                    return (messages, malformed, pings, Some(fault.status));
                }
            }
        }
    }
    (messages, malformed, pings, None)
}

fuzz_target!(|data: &[u8]| {
    let [a, b, stream @ ..] = data else { return };
    let whole = frames([stream].into_iter());
    for m in &whole.0 {
        // What was framed is one message, to its last octet.
        let m = message::parse(m).expect("a framed message can be parsed");
        assert_eq!(m.whole().len(), m.bytes().len());
    }
    for size in [*a, *b] {
        assert_eq!(frames(stream.chunks(size as usize + 1)), whole);
    }
});
