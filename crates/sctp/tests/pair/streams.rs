//! Streams that begin anew and streams that are added, over bad wires.

use super::support::*;
use ringway_sctp::{CallError, Change, Event, Reset, Scheduling, SendError, SendOptions, Settings};
use std::cell::Cell;
use std::rc::Rc;

/// RFC 6525: resets of either side, streams and everything, while messages go both ways over a wire
/// that loses some; every message comes once and in order, with numbers from 0 after each reset.
#[test]
fn resets_lose_nothing() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let wire: Wire =
            Box::new(
                move |_, _| {
                    if dice.chance(10) { Vec::new() } else { vec![ms(10 + dice.below(5))] }
                },
            );
        let settings = Settings { association_max_retrans: 1000, ..super::quick() };
        let mut pair = Pair::over(settings, settings, wire);
        pair.keep_log = false;
        let (a, b) = pair.open();
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        let (mut back, mut backed) = (Vec::new(), Vec::new());
        for step in 0..200usize {
            let stream = (step % 4) as u16;
            let options = SendOptions { stream, ..SendOptions::default() };
            let bytes = pattern(step, 1 + step * 13 % 2500);
            match pair.a.send(pair.now, a, &options, bytes.clone()) {
                Ok(()) => sent.push((stream, bytes.clone())),
                Err(CallError::Refused(SendError::Resetting)) => {}
                Err(other) => panic!("{other}"),
            }
            match pair.b.send(pair.now, b, &options, bytes.clone()) {
                Ok(()) => back.push((stream, bytes)),
                Err(CallError::Refused(SendError::Resetting)) => {}
                Err(other) => panic!("{other}"),
            }
            match step {
                20 | 90 => pair.a.reset_streams(a, Reset::Outgoing(&[1, 2])).unwrap(),
                40 => pair.b.reset_streams(b, Reset::Incoming(&[])).unwrap(),
                60 => pair.a.reset_streams(a, Reset::Everything).unwrap(),
                120 => pair.a.add_streams(a, 3, 4).unwrap(),
                150 => pair.b.reset_streams(b, Reset::Outgoing(&[0])).unwrap(),
                _ => {}
            }
            pair.run(ms(37));
            got.extend(pair.received(b));
            backed.extend(pair.returned(a));
        }
        pair.run(secs(300));
        got.extend(pair.received(b));
        backed.extend(pair.returned(a));
        for stream in 0..4 {
            let of = |list: &[(u16, Vec<u8>)]| -> Vec<Vec<u8>> {
                list.iter().filter(|m| m.0 == stream).map(|m| m.1.clone()).collect()
            };
            assert_eq!(of(&got), of(&sent), "{seed} {stream}");
            assert_eq!(of(&backed), of(&back), "{seed} {stream}");
        }
        let told = |end: usize, wanted: fn(&Change) -> bool| {
            let change = |e: &&Event| matches!(e, Event::Changed { change, .. } if wanted(change));
            pair.events[end].iter().filter(change).count()
        };
        let incoming = |c: &Change| matches!(c, Change::StreamsReset { incoming: true, .. });
        let outgoing = |c: &Change| matches!(c, Change::StreamsReset { incoming: false, .. });
        let everything = |c: &Change| matches!(c, Change::EverythingReset);
        assert_eq!((told(0, outgoing), told(1, incoming)), (3, 3), "{seed}");
        assert_eq!((told(0, everything), told(1, everything)), (1, 1), "{seed}");
        assert_eq!((told(1, outgoing), told(0, incoming)), (1, 1), "{seed}");
        assert_eq!(pair.a.snapshot(a).unwrap().streams, (1027, 1028), "{seed}");
        assert_eq!(pair.b.snapshot(b).unwrap().streams, (1028, 1027), "{seed}");
        assert_eq!((pair.closed(0), pair.closed(1)), (None, None));
    }
}

/// RFC 6525 sections 4.4 and 5.2.4: both ends ask for a reset of everything within a round trip; data
/// goes on both ways after it.
#[test]
fn both_may_reset_everything() {
    for skew in [0u64, 1, 5, 9, 10, 11, 15, 19, 20, 21] {
        let mut pair = Pair::new(super::quick(), super::quick(), ms(10));
        let (a, b) = pair.open();
        pair.run(ms(500));
        pair.a.reset_streams(a, Reset::Everything).unwrap();
        pair.run(ms(skew));
        let _ = pair.b.reset_streams(b, Reset::Everything);
        pair.run(secs(20));
        for n in 0..5 {
            pair.a.send(pair.now, a, &SendOptions::default(), vec![n; 100]).unwrap();
            pair.b.send(pair.now, b, &SendOptions::default(), vec![n; 100]).unwrap();
        }
        pair.run(secs(60));
        let mut out = Vec::new();
        let back = core::iter::from_fn(|| pair.a.recv(a, &mut out).ok().flatten()).count();
        assert_eq!((pair.received(b).len(), back), (5, 5), "{skew} {:?}", pair.closed(0));
    }
}

/// RFC 6525 section 5.2.4: an endpoint that waits for a reset of everything ignores data between its
/// request and the answer. Data retransmitted at the pace of the requests does not always arrive then.
#[test]
fn data_meets_a_gap_between_askings() {
    let cut = Rc::new(Cell::new(true));
    let cutting = cut.clone();
    let wire: Wire = Box::new(move |_, packet| {
        let data = describe(&packet.bytes, None, None).starts_with("DATA");
        if data && cutting.get() { Vec::new() } else { vec![ms(10)] }
    });
    let steady = Settings { rto_max: secs(1), rto_min: secs(1), ..Settings::default() };
    let mut pair = Pair::over(steady, steady, wire);
    let (a, b) = pair.open();
    pair.run(ms(500));
    pair.send(a, 0, b"again and again");
    pair.b.reset_streams(b, Reset::Everything).unwrap();
    pair.run(ms(100));
    cut.set(false);
    pair.run(secs(6));
    assert_eq!(pair.received(b), [(0, b"again and again".to_vec())], "{:?}", pair.log);
}

/// RFC 6525 section 5.2.4 and RFC 8260 section 3: while a reset of everything waits no message is begun,
/// and one that was is ended, although it may be another stream's turn.
#[test]
fn a_message_is_ended_before_everything_is_reset() {
    for scheduling in [
        Scheduling::Fcfs,
        Scheduling::RoundRobin,
        Scheduling::PacketRoundRobin,
        Scheduling::Priority,
        Scheduling::FairCapacity,
    ] {
        let settings = Settings { interleaving: true, scheduling, ..super::quick() };
        let mut pair = Pair::new(settings, settings, ms(10));
        let (a, b) = pair.open();
        pair.a.set_stream_value(a, 0, 5).unwrap();
        pair.send(a, 0, &pattern(0, 100_000));
        pair.run(ms(15));
        pair.b.reset_streams(b, Reset::Everything).unwrap();
        pair.run(ms(11));
        for stream in 1..4 {
            pair.send(a, stream, b"short");
        }
        pair.run(secs(10));
        let mut got = pair.received(b);
        got.sort();
        let short = |stream| (stream, b"short".to_vec());
        assert_eq!(got, [(0, pattern(0, 100_000)), short(1), short(2), short(3)], "{scheduling:?}");
        let reset = Event::Changed { id: a, change: Change::EverythingReset };
        assert!(pair.events[0].contains(&reset), "{scheduling:?}");
    }
}
