//! The events of users when messages are lost because the peer accepts fewer streams, or restarted.

use super::support::*;
use ringway_sctp::{AssocId, CallError, Event, SendError, SendOptions, Settings};

/// Sends messages on a stream until one is refused.
fn fill(host: &mut ringway_sctp::Sctp, now: ringway_sansio::Time, id: AssocId, stream: u16) {
    let options = SendOptions { stream, ..SendOptions::default() };
    while !matches!(
        host.send(now, id, &options, vec![1; 500]),
        Err(CallError::Refused(SendError::NoRoom { .. }))
    ) {}
}

/// RFC 9260 section 5.1.1: messages for streams that the peer does not accept are dropped and make
/// room, and a writer that was refused is notified.
#[test]
fn room_of_rejected_streams_is_reported() {
    let small = Settings { send_buffer: 3000, ..super::quick() };
    let one = Settings { inbound_streams: 1, ..super::quick() };
    let mut pair = Pair::new(small, one, ms(10));
    pair.listen(&[B1]);
    let a = pair.connect(&[A1], &[B1]);
    fill(&mut pair.a, pair.now, a, 5);
    pair.run(secs(1));
    assert!(pair.events[0].contains(&Event::SendFailed { id: a, messages: 6 }));
    assert!(pair.events[0].contains(&Event::Writable(a)));
}

/// RFC 9260 section 5.2.4 A: so do messages lost by a restart of the peer; and the reader of a message
/// in parts is notified that it has no end.
#[test]
fn a_restart_ends_what_was_under_way() {
    for interleaving in [false, true] {
        let settings =
            Settings { send_buffer: 30_000, receive_buffer: 6000, interleaving, ..super::quick() };
        let mut pair = Pair::new(settings, settings, ms(10));
        pair.listen(&[B1]);
        let first = pair.a.connect(pair.now, &[A1], 7000, &[B1], PORT, None).unwrap();
        pair.send(first, 0, &pattern(0, 20_000));
        pair.run(secs(1));
        let b = pair.up(1).unwrap();
        let mut out = Vec::new();
        let part = pair.b.recv(b, &mut out).unwrap().unwrap();
        assert!(part.begin && !part.end);
        pair.a = host(99, settings);
        pair.flying.clear();
        fill(&mut pair.b, pair.now, b, 0);
        pair.flush();
        pair.flying.clear();
        let second = pair.a.connect(pair.now, &[A1], 7000, &[B1], PORT, None).unwrap();
        pair.run(secs(2));
        assert!(pair.events[1].contains(&Event::Restarted(b)));
        assert!(pair.events[1].contains(&Event::Writable(b)));
        let read: Vec<_> = core::iter::from_fn(|| pair.b.recv(b, &mut out).unwrap()).collect();
        let [.., last] = &read[..] else { panic!("the message has no end") };
        assert!(last.cut && last.end && !last.begin, "{read:?}");
        pair.send(second, 0, b"anew");
        pair.run(secs(1));
        assert_eq!(pair.received(b), [(0, b"anew".to_vec())]);
    }
}
