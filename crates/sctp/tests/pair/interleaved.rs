//! Interleaved messages over bad wires, with every scheduler.

use super::support::*;
use super::{exchange, messages, settings};
use proptest::prelude::*;
use ringway_sctp::{Reliability, Scheduling, SendOptions, Settings};
use std::collections::BTreeMap;

fn scheduling() -> impl Strategy<Value = Scheduling> {
    prop_oneof![
        Just(Scheduling::Fcfs),
        Just(Scheduling::RoundRobin),
        Just(Scheduling::PacketRoundRobin),
        Just(Scheduling::Priority),
        Just(Scheduling::FairCapacity),
        Just(Scheduling::WeightedFair),
    ]
}

fn bad_wire(seed: u64, loss: u64) -> Wire {
    let mut dice = Dice::new(seed);
    Box::new(move |_, _| if dice.chance(loss) { Vec::new() } else { vec![ms(10 + dice.below(30))] })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// RFC 8260: whatever the wires do and whose turn it is, every message comes once, whole, and in
    /// its stream's order.
    #[test]
    fn every_message_arrives_once(
        one in settings(), two in settings(), kinds in (scheduling(), scheduling()),
        interleaving in any::<bool>(), seed in any::<u64>(), loss in 0u64..20,
        up in messages(), down in messages(),
    ) {
        // Messages fit the buffers: partial ones would have to be distinguished by stream.
        let one = Settings { interleaving, scheduling: kinds.0, receive_buffer: 200_000, ..one };
        let two = Settings { interleaving, scheduling: kinds.1, receive_buffer: 200_000, ..two };
        let mut pair = Pair::over(one, two, bad_wire(seed, loss));
        pair.keep_log = false;
        let (a, b) = pair.open();
        for stream in 0..5 {
            pair.a.set_stream_value(a, stream, stream * 3).unwrap();
        }
        exchange(&mut pair, (a, b), [&up, &down]);
        pair.a.shutdown(pair.now, a).unwrap();
        pair.run(secs(100_000));
        prop_assert!(pair.closed(0).is_some() && pair.closed(1).is_some());
        prop_assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
    }

    /// RFC 8260 section 2.3.1: whatever is abandoned, the rest arrives once and in order.
    #[test]
    fn an_abandoned_message_delays_no_other(
        one in settings(), kind in scheduling(), seed in any::<u64>(), loss in 0u64..30,
        list in proptest::collection::vec((0u16..3, any::<bool>(), 1usize..6000, 0u8..6), 1..40),
    ) {
        let one = Settings {
            interleaving: true,
            scheduling: kind,
            send_buffer: 1 << 20,
            shutdown_guard: Some(secs(100_000)),
            ..one
        };
        let two = Settings { interleaving: true, ..super::quick() };
        let mut pair = Pair::over(one, two, bad_wire(seed, loss));
        pair.keep_log = false;
        let (a, b) = pair.open();
        for (number, &(stream, unordered, size, policy)) in list.iter().enumerate() {
            let reliability = match policy {
                0 | 1 => Reliability::Full,
                2 => Reliability::Lifetime(ms(300)),
                5 => Reliability::Priority(3),
                other => Reliability::Retransmits(other - 3),
            };
            let ppid = number as u32;
            let options = SendOptions { stream, ppid, unordered, reliability, immediate: false };
            pair.a.send(pair.now, a, &options, pattern(number, size)).unwrap();
        }
        pair.a.shutdown(pair.now, a).unwrap();
        let (mut seen, mut out) = (vec![false; list.len()], Vec::new());
        let mut last: BTreeMap<u16, usize> = BTreeMap::new();
        let until = pair.now + secs(1_000_000);
        loop {
            while let Ok(Some(received)) = pair.b.recv(b, &mut out) {
                prop_assert!(received.begin && received.end && !received.cut);
                let number = received.ppid as usize;
                let (stream, unordered, size, _) = list[number];
                prop_assert_eq!(&out, &pattern(number, size));
                out.clear();
                prop_assert!(!core::mem::replace(&mut seen[number], true), "twice");
                if !unordered {
                    let before = last.insert(stream, number);
                    prop_assert!(before.is_none_or(|before| before < number), "out of order");
                }
            }
            if !pair.step(until) {
                break;
            }
        }
        prop_assert!(pair.closed(0).is_some() && pair.closed(1).is_some(), "{:?}", pair.events);
        prop_assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
        for (number, message) in list.iter().enumerate() {
            prop_assert!(seen[number] || (2..5).contains(&message.3), "message {number} is lost");
        }
    }
}

/// RFC 8260 section 2.2.2: with interleaving a large message of one stream does not delay a small
/// one of another; without it does.
#[test]
fn a_large_message_delays_no_other() {
    let delay = |interleaving| {
        let scheduling = Scheduling::RoundRobin;
        let one = Settings { interleaving, scheduling, send_buffer: 1 << 22, ..super::quick() };
        let mut pair = Pair::new(one, one, ms(10));
        let (a, b) = pair.open();
        pair.send(a, 0, &pattern(0, 300_000));
        pair.run(ms(5));
        let from = pair.now;
        pair.send(a, 1, b"small");
        while pair.b.snapshot(b).is_ok() {
            pair.run(ms(1));
            let mut out = Vec::new();
            while let Ok(Some(received)) = pair.b.recv(b, &mut out) {
                if received.stream == 1 {
                    return pair.now - from;
                }
            }
        }
        panic!("it is over");
    };
    let (with, without) = (delay(true), delay(false));
    assert!(with < ms(60) && without > ms(100), "{with:?} {without:?}");
}

/// RFC 8260 sections 3.5 and 3.6: bytes are shared by weight.
#[test]
fn bytes_are_shared_by_weight() {
    for (scheduling, ratio) in [(Scheduling::FairCapacity, 1.0), (Scheduling::WeightedFair, 4.0)] {
        let one = Settings { scheduling, send_buffer: 1 << 22, ..super::quick() };
        let mut pair = Pair::new(one, one, ms(10));
        pair.keep_log = false;
        let (a, b) = pair.open();
        if scheduling == Scheduling::WeightedFair {
            pair.a.set_stream_value(a, 1, 4).unwrap();
        }
        for n in 0..600 {
            pair.send(a, 1, &pattern(n, 1400));
            pair.send(a, 2, &pattern(n, 300));
            pair.send(a, 2, &pattern(n, 300));
            pair.send(a, 2, &pattern(n, 300));
        }
        let mut sums = [0.0; 3];
        while sums[1] + sums[2] < 400_000.0 {
            pair.run(ms(1));
            for (stream, bytes) in pair.received(b) {
                sums[usize::from(stream)] += bytes.len() as f64;
            }
        }
        let found = sums[1] / sums[2];
        assert!((found / ratio - 1.0).abs() < 0.1, "{scheduling:?}: {found}");
    }
}
