//! Octets of a peer for the framing of messages, whole and in pieces whose sizes are in the first two octets: the events,
//! the messages and the error are the same, and no more is kept than the windows allow. Then the two ends of a connection,
//! which the octets tell what to do: whatever one end writes, the other takes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_services::framing::wire::{Hello, MIN_WINDOW};
use ringway_services::framing::{Event, Limits, Mux, Read, Side, StreamId};

const LIMITS: Limits = Limits { streams: 4, window: MIN_WINDOW };

fn outcome(stream: &[u8], size: usize) -> (Vec<Event>, Vec<Read>, String) {
    let mut mux = Mux::new(Side::Responder, LIMITS);
    let mut result = Ok(());
    for piece in stream.chunks(size) {
        result = mux.receive(piece);
        if result.is_err() {
            break;
        }
    }
    let events: Vec<Event> = core::iter::from_fn(|| mux.poll_event()).collect();
    let (mut reads, mut kept) = (Vec::new(), 0);
    for event in &events {
        let Event::Opened(id) = event else { continue };
        loop {
            let read = mux.read(*id);
            match &read {
                Read::Message(bytes) | Read::Part(bytes) => kept += bytes.len(),
                Read::End | Read::Pending => break,
            }
            reads.push(read);
        }
    }
    assert!(kept <= 4 * MIN_WINDOW as usize);
    (events, reads, format!("{result:?}"))
}

fn carry(ends: &mut [Mux; 2], from: usize, room: usize) {
    let mut bytes = Vec::new();
    let written = ends[from].write(&mut bytes, room);
    assert!(written == bytes.len() && written <= room);
    ends[1 - from].receive(&bytes).expect("what one end writes, the other takes");
}

fn converse(steps: &[u8]) {
    let mut ends = [Mux::new(Side::Initiator, LIMITS), Mux::new(Side::Responder, LIMITS)];
    for step in steps.chunks_exact(3) {
        let (end, id) = (usize::from(step[0] & 1), StreamId(u32::from(step[1] % 12)));
        let size = usize::from(step[2]) * 200;
        match step[0] >> 1 & 7 {
            0 => drop(ends[end].open()),
            1 => drop(ends[end].send(id, vec![step[2]; size], step[1] & 0x80 != 0)),
            2 => ends[end].finish(id),
            3 => ends[end].close(id),
            4 => ends[end].reset(id, 1),
            5 => drop(ends[end].read(id)),
            6 => while ends[end].poll_event().is_some() {},
            _ => carry(&mut ends, end, size),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [one, other, rest @ ..] = data else { return };
    let mut stream = Vec::new();
    Hello { streams: 4, window: MIN_WINDOW }.write(&mut stream);
    stream.extend_from_slice(rest);
    for stream in [rest, &stream] {
        let whole = outcome(stream, stream.len().max(1));
        for size in [*one, *other] {
            assert_eq!(outcome(stream, usize::from(size) + 1), whole);
        }
    }
    converse(rest);
});
