//! Two hosts over a wire in virtual time.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod homing;
mod interleaved;
mod mtu;
mod multipath;
mod partial;
mod plugins;
mod restarts;
mod streams;

use proptest::prelude::*;
use ringway_sansio::{Duration, Time};
use ringway_sctp::{
    Algorithm, AssocId, CallError, Close, ConnectError, Event, Multipath, NoAssociation, PathState,
    Reliability, Scheduling, SendError, SendOptions, Settings, State,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use support::*;

fn quick() -> Settings {
    Settings { rto_min: ms(200), ..Settings::default() }
}

/// RFC 9260 sections 5.1 and 9.2: a handshake, messages, and the end in order at both ends.
#[test]
fn messages_go_over_and_it_ends() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = pair.open();
    let size = |n: u16| 100 * usize::from(n) + 1;
    for n in 0..20 {
        pair.send(a, n % 3, &pattern(usize::from(n), size(n)));
    }
    pair.a.shutdown(pair.now, a).unwrap();
    pair.run(secs(2));
    let expected: Vec<_> = (0..20u16).map(|n| (n % 3, pattern(usize::from(n), size(n)))).collect();
    assert_eq!(pair.received(b), expected);
    assert_eq!((pair.closed(0), pair.closed(1)), (Some(Close::Finished), Some(Close::Finished)));
    assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
    assert_eq!(pair.next(), None, "nothing waits for ever");
    let malformed = pair.a.counters().malformed + pair.b.counters().malformed;
    assert_eq!((malformed, pair.a.counters().stray, pair.b.counters().stray), (0, 0, 0));
    let lines: Vec<&str> = pair.log.iter().map(|l| l.3.as_str()).collect();
    assert_eq!(lines[..4], ["INIT", "INIT_ACK", "COOKIE_ECHO", "COOKIE_ACK"]);
    assert_eq!(lines[lines.len() - 2..], ["SHUTDOWN_ACK", "SHUTDOWN_COMPLETE"]);
}

/// RFC 9260 section 5.1 C: data goes out with the cookie, and comes over in the second round trip.
#[test]
fn data_goes_with_the_cookie() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    pair.listen(&[B1]);
    let a = pair.connect(&[A1], &[B1]);
    pair.send(a, 0, b"early");
    pair.send(a, 1, &pattern(1, 5000));
    pair.run(ms(30));
    let b = pair.up(1).unwrap();
    assert_eq!(pair.received(b), [(0, b"early".to_vec())]);
    assert!(pair.log[2].3.starts_with("COOKIE_ECHO + DATA"), "{:?}", pair.log);
    assert!(pair.log[3].3.starts_with("COOKIE_ACK + SACK"), "{:?}", pair.log);
    pair.run(ms(100));
    assert_eq!(pair.received(b), [(1, pattern(1, 5000))]);
    assert_eq!(pair.a.snapshot(a).unwrap().totals.retransmits, 0);
}

/// RFC 9260 section 5.1.4: a lost COOKIE ECHO takes its data along again; a lost COOKIE ACK is
/// answered again (section 5.2.4 D), and nothing comes twice.
#[test]
fn a_lost_cookie_is_sent_again() {
    for lost in ["COOKIE_ECHO", "COOKIE_ACK", "INIT_ACK", "INIT"] {
        let mut left = 2;
        let wire: Wire = Box::new(move |_, packet| {
            let text = describe(&packet.bytes, None, None);
            if left > 0 && text.split(" + ").next() == Some(lost) {
                left -= 1;
                return Vec::new();
            }
            vec![ms(10)]
        });
        let mut pair = Pair::over(quick(), quick(), wire);
        pair.listen(&[B1]);
        let a = pair.connect(&[A1], &[B1]);
        pair.send(a, 3, b"with the cookie");
        pair.run(secs(10));
        let b = pair.up(1).unwrap();
        assert_eq!(pair.received(b), [(3, b"with the cookie".to_vec())], "{lost}");
        assert_eq!(pair.up(0), Some(a), "{lost}");
        assert_eq!((pair.a.len(), pair.b.len()), (1, 1), "{lost}");
        assert_eq!(pair.a.snapshot(a).unwrap().unacknowledged, 0, "{lost}");
    }
}

/// RFC 9260 section 5.2.1: both open at once, and there is one association.
#[test]
fn both_may_open_at_once() {
    for late in [0, 3, 8, 15, 25] {
        let mut pair = Pair::new(quick(), quick(), ms(10));
        let a = pair.a.connect(pair.now, &[A1], PORT, &[B1], PORT, None).unwrap();
        pair.send(a, 0, b"ping");
        pair.run(ms(late));
        // After the peer's INIT there is no listener, so it is refused.
        let Ok(b) = pair.b.connect(pair.now, &[B1], PORT, &[A1], PORT, None) else { panic!() };
        pair.b.send(pair.now, b, &SendOptions::default(), &b"pong"[..]).unwrap();
        pair.run(secs(3));
        if late >= 15 {
            assert!(pair.closed(0).is_some(), "{late}");
            continue;
        }
        let states = (pair.a.snapshot(a).unwrap().state, pair.b.snapshot(b).unwrap().state);
        assert_eq!(states, (State::Established, State::Established), "{late} {:?}", pair.log);
        assert_eq!(pair.received(b), [(0, b"ping".to_vec())], "{late}");
        let mut out = Vec::new();
        assert!(pair.a.recv(a, &mut out).unwrap().is_some() && out == b"pong", "{late}");
        assert_eq!((pair.a.len(), pair.b.len()), (1, 1), "{late}");
    }
}

/// RFC 9260 section 9.2: shutdowns that cross end in order at both ends.
#[test]
fn both_may_shut_down_at_once() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = pair.open();
    pair.run(ms(100));
    pair.a.shutdown(pair.now, a).unwrap();
    pair.b.shutdown(pair.now, b).unwrap();
    pair.run(secs(1));
    assert_eq!((pair.closed(0), pair.closed(1)), (Some(Close::Finished), Some(Close::Finished)));
    assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
}

/// RFC 9260 section 9.2: the end comes in order whichever of its packets is lost.
#[test]
fn a_shutdown_survives_losses() {
    for lost in ["SHUTDOWN", "SHUTDOWN_ACK", "SHUTDOWN_COMPLETE"] {
        let mut left = 1;
        let wire: Wire = Box::new(move |_, packet| {
            let text = describe(&packet.bytes, None, None);
            if left > 0 && text.split(' ').next() == Some(lost) {
                left -= 1;
                return Vec::new();
            }
            vec![ms(10)]
        });
        let mut pair = Pair::over(quick(), quick(), wire);
        let (a, b) = pair.open();
        pair.send(a, 0, b"last");
        pair.a.shutdown(pair.now, a).unwrap();
        pair.run(secs(5));
        assert_eq!(pair.received(b), [(0, b"last".to_vec())]);
        let closed = (pair.closed(0), pair.closed(1));
        assert_eq!(closed, (Some(Close::Finished), Some(Close::Finished)), "{lost}");
    }
}

/// RFC 9260 section 5.2.4 A: a restarted peer opens again, and its user is notified.
#[test]
fn a_restarted_peer_comes_back() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    pair.listen(&[B1]);
    let first = pair.a.connect(pair.now, &[A1], 7000, &[B1], PORT, None).unwrap();
    pair.send(first, 0, b"one");
    pair.run(ms(300));
    let b = pair.up(1).unwrap();
    pair.b.send(pair.now, b, &SendOptions::default(), &b"unread"[..]).unwrap();
    pair.flush();
    pair.a = host(99, quick());
    pair.flying.clear();
    let second = pair.a.connect(pair.now, &[A1], 7000, &[B1], PORT, None).unwrap();
    pair.send(second, 0, b"two");
    pair.run(secs(5));
    assert!(pair.events[1].contains(&Event::Restarted(b)));
    assert!(pair.events[1].contains(&Event::SendFailed { id: b, messages: 1 }));
    let expected = [(0, b"one".to_vec()), (0, b"two".to_vec())];
    assert_eq!(pair.received(b), expected);
    assert_eq!(pair.b.len(), 1);
    pair.b.send(pair.now, b, &SendOptions::default(), &b"again"[..]).unwrap();
    pair.run(secs(1));
    let mut out = Vec::new();
    while pair.a.recv(second, &mut out).unwrap().is_some() {}
    assert!(out.ends_with(b"again"), "{out:?}");
}

/// RFC 9260 section 6.2: a reader that rests closes the window; the sender probes, and goes on when
/// it opens, although the update was lost.
#[test]
fn a_closed_window_is_probed() {
    let small = Settings { receive_buffer: 8000, ..quick() };
    let lose = Rc::new(Cell::new(false));
    let losing = lose.clone();
    let wire: Wire = Box::new(
        move |_, packet| {
            if losing.get() && !packet.to_b { Vec::new() } else { vec![ms(10)] }
        },
    );
    let mut pair = Pair::over(quick(), small, wire);
    let (a, b) = pair.open();
    for n in 0..30 {
        pair.send(a, 0, &pattern(n, 1000));
    }
    pair.run(secs(900));
    let snapshot = pair.a.snapshot(a).unwrap();
    assert_eq!((snapshot.state, snapshot.errors), (State::Established, 0));
    assert!(snapshot.totals.window_probes > 0 && snapshot.totals.timeouts > 3, "{snapshot:?}");
    assert!(snapshot.totals.timeouts < 40, "backs off: {snapshot:?}");
    assert_eq!(snapshot.paths[0].state, PathState::Active);
    lose.set(true);
    let mut got = pair.received(b);
    pair.run(ms(100));
    lose.set(false);
    for _ in 0..2000 {
        pair.run(ms(100));
        got.extend(pair.received(b));
    }
    let expected: Vec<_> = (0..30).map(|n| (0, pattern(n, 1000))).collect();
    assert_eq!(got, expected);
}

/// RFC 9260 section 6.9: a message larger than any window, and one larger than the peer's buffer.
#[test]
fn large_messages_go_over() {
    let buffers = Settings { send_buffer: 4 << 20, ..quick() };
    let mut pair = Pair::new(buffers, Settings { receive_buffer: 100_000, ..quick() }, ms(10));
    let (a, b) = pair.open();
    pair.send(a, 0, &pattern(0, 80_000));
    pair.send(a, 0, &pattern(1, 1_000_000));
    pair.send(a, 0, b"end");
    let mut messages: Vec<Vec<u8>> = Vec::new();
    let mut out = Vec::new();
    for _ in 0..3000 {
        pair.run(ms(10));
        while let Some(received) = pair.b.recv(b, &mut out).unwrap() {
            if received.end {
                messages.push(core::mem::take(&mut out));
            }
        }
    }
    assert_eq!(messages, [pattern(0, 80_000), pattern(1, 1_000_000), b"end".to_vec()]);
}

/// The send buffer is a bound, and its user hears when there is room.
#[test]
fn a_full_send_buffer_says_so() {
    let small = Settings { send_buffer: 10_000, ..quick() };
    let mut pair = Pair::new(small, quick(), ms(10));
    let (a, b) = pair.open();
    let mut count = 0;
    let options = SendOptions::default();
    let refused = loop {
        match pair.a.send(pair.now, a, &options, pattern(count, 1000)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(
        (count, refused),
        (10, CallError::Refused(SendError::NoRoom { room: 0, got: 1000 }))
    );
    let too_large = pair.a.send(pair.now, a, &options, vec![0; 10_001]);
    assert_eq!(too_large, Err(CallError::Refused(SendError::Size { limit: 10_000, got: 10_001 })));
    let no_stream = SendOptions { stream: 1024, ..options };
    let wrong = pair.a.send(pair.now, a, &no_stream, vec![0]);
    assert_eq!(wrong, Err(CallError::Refused(SendError::Stream { streams: 1024, got: 1024 })));
    pair.run(secs(1));
    assert!(pair.events[0].contains(&Event::Writable(a)));
    assert_eq!(pair.received(b).len(), 10);
}

/// RFC 9260 section 9.1: the reason of an ABORT comes to its user.
#[test]
fn an_abort_carries_its_reason() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = pair.open();
    pair.a.abort(a, b"enough").unwrap();
    pair.run(secs(1));
    let reason = bytes::Bytes::from_static(b"enough");
    assert_eq!(pair.closed(1), Some(Close::Aborted { code: 12, reason }));
    assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
    assert_eq!(pair.b.shutdown(pair.now, b), Err(NoAssociation));
}

/// RFC 9260 sections 5.1.4 and 8.1: a peer that does not answer becomes unreachable.
#[test]
fn a_silent_peer_becomes_unreachable() {
    let mut pair = Pair::over(quick(), quick(), Box::new(|_, _| Vec::new()));
    pair.listen(&[B1]);
    let a = pair.connect(&[A1], &[B1]);
    pair.run(secs(1000));
    assert_eq!(pair.closed(0), Some(Close::Unreachable));
    // Max.Init.Retransmits is 8.
    assert_eq!(pair.log.len(), 9);
    assert!(pair.a.snapshot(a).is_err());

    let cut = Rc::new(Cell::new(false));
    let dead = cut.clone();
    let wire: Wire = Box::new(move |_, _| if dead.get() { Vec::new() } else { vec![ms(10)] });
    let mut pair = Pair::over(quick(), quick(), wire);
    let (a, _) = pair.open();
    pair.run(secs(1));
    cut.set(true);
    pair.send(a, 0, b"lost");
    pair.run(secs(1000));
    assert_eq!(pair.closed(0), Some(Close::Unreachable));
    assert_eq!(pair.closed(1), Some(Close::Unreachable), "heartbeats find it out");
    assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
}

/// One path over each of two links; `cut` is the time from which the first carries nothing.
fn two_links(settings: Settings, cut: Rc<Cell<bool>>) -> (Pair, AssocId, AssocId) {
    let wire: Wire = Box::new(move |_, packet| {
        let (from, to) = (packet.addressing.source, packet.addressing.destination);
        let first = [A1, B1].contains(&from) && [A1, B1].contains(&to);
        let second = [A2, B2].contains(&from) && [A2, B2].contains(&to);
        // There is no way across.
        if second || (first && !cut.get()) { vec![ms(10)] } else { Vec::new() }
    });
    let mut pair = Pair::over(settings, settings, wire);
    let (a, b) = pair.open_over(&[A1, A2], &[B1, B2]);
    (pair, a, b)
}

/// RFC 9260 section 5.4: all paths are verified soon after the handshake, and none across.
#[test]
fn paths_are_verified() {
    let (mut pair, a, b) = two_links(quick(), Rc::default());
    pair.run(secs(3));
    for (host, id) in [(&pair.a, a), (&pair.b, b)] {
        let paths = host.snapshot(id).unwrap().paths;
        assert_eq!(paths.len(), 2);
        assert!(paths.iter().all(|path| path.state == PathState::Active), "{paths:?}");
        assert!(paths[1].srtt.is_some());
    }
    let told = Event::Path { id: a, remote: B2, state: PathState::Active };
    assert!(pair.events[0].contains(&told));
}

/// RFC 9260 sections 6.4.1 and 8.2, RFC 7829: the primary path dies during a transfer, which goes
/// on over the second, and comes back to the first when it lives again.
#[test]
fn a_transfer_moves_to_the_second_path() {
    for (settings, most) in [(quick(), 1300), (Settings::ss7(), 800)] {
        let cut: Rc<Cell<bool>> = Rc::default();
        let (mut pair, a, b) = two_links(settings, cut.clone());
        pair.keep_log = false;
        pair.run(secs(3));
        let (mut sent, mut got, mut last, mut gap) = (0, Vec::new(), pair.now, ms(0));
        for step in 0..6000u64 {
            cut.set((1000..4000).contains(&step));
            if step % 10 == 0 {
                pair.send(a, 0, &pattern(sent, 500));
                sent += 1;
            }
            pair.run(ms(5));
            let more = pair.received(b);
            if !more.is_empty() {
                gap = gap.max(pair.now - last);
                last = pair.now;
            }
            got.extend(more);
            if step == 3900 {
                let paths = pair.a.snapshot(a).unwrap().paths;
                assert_ne!(paths[0].state, PathState::Active);
                assert_eq!(paths[0].flight, 0);
            }
        }
        pair.run(secs(2));
        got.extend(pair.received(b));
        let expected: Vec<_> = (0..sent).map(|n| (0, pattern(n, 500))).collect();
        assert_eq!(got, expected, "every message once and in order");
        assert!(gap < ms(most), "{gap:?}");
        assert!(pair.closed(0).is_none() && pair.closed(1).is_none());
        // Heartbeats find the path alive again, in time.
        pair.run(secs(120));
        let paths = pair.a.snapshot(a).unwrap().paths;
        assert!(paths.iter().all(|path| path.state == PathState::Active), "{paths:?}");
    }
}

/// RFC 8260 section 3.2: with turns, a short message is not behind another stream's queue.
#[test]
fn streams_take_turns() {
    let order = |scheduling| {
        let settings = Settings { scheduling, ..quick() };
        let mut pair = Pair::new(settings, quick(), ms(10));
        let (a, b) = pair.open();
        for n in 0..20 {
            pair.send(a, 1, &pattern(n, 1400));
        }
        pair.send(a, 2, b"short");
        pair.run(secs(5));
        pair.received(b).iter().position(|m| m.0 == 2).unwrap()
    };
    assert_eq!(order(Scheduling::Fcfs), 20);
    assert_eq!(order(Scheduling::RoundRobin), 1);
}

/// A connection from IPv6 addresses, and a mixed list.
#[test]
fn families_may_be_mixed() {
    let six = |n: u16| std::net::IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = pair.open_over(&[six(1), A1], &[six(2), B1]);
    pair.run(secs(3));
    let paths = pair.a.snapshot(a).unwrap().paths;
    assert_eq!((paths[0].remote, paths[1].remote), (six(2), B1));
    assert_eq!((paths[0].local, paths[1].local), (six(1), A1));
    assert!(paths.iter().all(|path| path.state == PathState::Active));
    pair.send(a, 0, &pattern(0, 5000));
    pair.run(secs(1));
    assert_eq!(pair.received(b), [(0, pattern(0, 5000))]);
    let wrong = pair.a.connect(pair.now, &[A1], 0, &[six(2)], PORT, None);
    assert!(matches!(wrong, Err(ConnectError::Address { .. })));
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        prop_oneof![Just(3000usize), Just(20_000), Just(200_000)],
        prop_oneof![Just(512u16), Just(576), Just(1500)],
        any::<(bool, bool)>(),
        0u32..6,
        prop_oneof![Just(0u64), Just(40), Just(200)],
    )
        .prop_map(|(buffer, mtu, (turns, pf), max_burst, delay)| Settings {
            mtu,
            send_buffer: 30_000,
            receive_buffer: buffer,
            scheduling: if turns { Scheduling::RoundRobin } else { Scheduling::Fcfs },
            potentially_failed: pf.then_some(0),
            algorithm: if pf { Algorithm::Rfc9260 } else { Algorithm::Cubic },
            ecn: pf,
            final_acks: turns ^ pf,
            rack: turns,
            multipath: match max_burst % 3 {
                0 => Multipath::Off,
                1 => Multipath::Independent,
                _ => Multipath::Pooled,
            },
            largest_mtu: (delay == 40).then_some(3000),
            max_burst,
            sack_delay: ms(delay),
            rto_min: ms(200),
            association_max_retrans: 1000,
            max_init_retransmits: 1000,
            ..Settings::default()
        })
}

/// Sends messages both ways as room allows until all are read.
fn exchange(pair: &mut Pair, ids: (AssocId, AssocId), lists: [&[(u16, bool, usize)]; 2]) {
    let ids = [ids.0, ids.1];
    let (mut given, mut read) = ([0, 0], [0, 0]);
    let mut next: [BTreeMap<u16, usize>; 2] = Default::default();
    let mut parts = [Vec::new(), Vec::new()];
    let mut seen = [vec![false; lists[0].len()], vec![false; lists[1].len()]];
    let until = pair.now + secs(2_000_000);
    while read[0] < lists[0].len() || read[1] < lists[1].len() {
        for from in 0..2 {
            let now = pair.now;
            let host = if from == 0 { &mut pair.a } else { &mut pair.b };
            while let Some(&(stream, unordered, size)) = lists[from].get(given[from]) {
                let ppid = given[from] as u32;
                let options = SendOptions { stream, unordered, ppid, ..SendOptions::default() };
                match host.send(now, ids[from], &options, pattern(given[from], size)) {
                    Ok(()) => given[from] += 1,
                    Err(CallError::Refused(SendError::NoRoom { .. })) => break,
                    Err(other) => panic!("{other:?}"),
                }
            }
            let to = 1 - from;
            let host = if to == 0 { &mut pair.a } else { &mut pair.b };
            while let Ok(Some(received)) = host.recv(ids[to], &mut parts[to]) {
                if !received.end {
                    continue;
                }
                let number = received.ppid as usize;
                let (stream, unordered, size) = lists[from][number];
                assert_eq!((received.stream, received.unordered), (stream, unordered));
                assert_eq!(parts[to], pattern(number, size));
                parts[to].clear();
                assert!(!core::mem::replace(&mut seen[from][number], true), "twice: {number}");
                if !unordered {
                    let before = next[from].insert(stream, number);
                    assert!(before.is_none_or(|before| before < number), "out of order");
                }
                read[from] += 1;
            }
        }
        assert!(
            pair.step(until) || (read[0] == lists[0].len() && read[1] == lists[1].len()),
            "stuck: {read:?} of {given:?} {:?} {:?} {:?} {:?}",
            pair.closed(0),
            pair.closed(1),
            pair.a.snapshot(ids[0]),
            pair.b.snapshot(ids[1]),
        );
    }
}

fn messages() -> impl Strategy<Value = Vec<(u16, bool, usize)>> {
    let size = prop_oneof![1usize..200, 1usize..3000, 1usize..12_000];
    proptest::collection::vec((0u16..5, any::<bool>(), size), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// Whatever the wires do, every message comes once, whole, and in its stream's order; then both
    /// ends close.
    #[test]
    fn every_message_arrives_once(
        one in settings(), two in settings(), seed in any::<u64>(), homes in any::<bool>(),
        loss in 0u64..25, swap in 0u64..30, twice in 0u64..10,
        up in messages(), down in messages(),
    ) {
        let mut dice = Dice::new(seed);
        let wire: Wire = Box::new(move |_, _| {
            let mut copies = Vec::new();
            if dice.chance(loss) {
                return copies;
            }
            let late = if dice.chance(swap) { dice.below(60) } else { 0 };
            copies.push(ms(10 + late));
            if dice.chance(twice) {
                copies.push(ms(10 + dice.below(200)));
            }
            copies
        });
        let mut pair = Pair::over(one, two, wire);
        pair.keep_log = false;
        let (a, b) = if homes {
            pair.open_over(&[A1, A2], &[B1, B2])
        } else {
            pair.open()
        };
        exchange(&mut pair, (a, b), [&up, &down]);
        pair.a.shutdown(pair.now, a).unwrap();
        pair.run(secs(100_000));
        prop_assert!(pair.closed(0).is_some() && pair.closed(1).is_some());
        prop_assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// RFC 3758: whatever is abandoned, the rest arrives once and in order, no state is left, and both
    /// ends close.
    #[test]
    fn an_abandoned_message_delays_no_other(
        one in settings(), two in settings(), seed in any::<u64>(), loss in 0u64..30,
        list in proptest::collection::vec((0u16..3, any::<bool>(), 1usize..6000, 0u8..5), 1..40),
    ) {
        let mut dice = Dice::new(seed);
        let wire: Wire = Box::new(move |_, _| {
            if dice.chance(loss) { Vec::new() } else { vec![ms(10 + dice.below(8))] }
        });
        let two = Settings { receive_buffer: 200_000, ..two };
        let guard = Some(secs(100_000));
        let one = Settings { send_buffer: 1 << 20, shutdown_guard: guard, ..one };
        let mut pair = Pair::over(one, two, wire);
        pair.keep_log = false;

        let (a, b) = pair.open();
        for (number, &(stream, unordered, size, policy)) in list.iter().enumerate() {
            let reliability = match policy {
                0 | 1 => Reliability::Full,
                2 => Reliability::Lifetime(ms(300)),
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
        prop_assert!(pair.closed(0).is_some() && pair.closed(1).is_some());
        prop_assert_eq!((pair.a.len(), pair.b.len()), (0, 0));
        for (number, message) in list.iter().enumerate() {
            prop_assert!(seen[number] || message.3 > 1, "message {number} is lost");
        }
    }
}

/// RFC 9260 sections 6.1 A and 6.2: a reader that pauses for twenty minutes while small messages come
/// finds the association alive and loses nothing.
#[test]
fn a_reader_may_pause() {
    let settings = Settings { receive_buffer: 20_000, ..Settings::default() };
    let mut pair = Pair::new(settings, settings, ms(20));
    pair.keep_log = false;
    let (a, b) = pair.open();
    for n in 0..1000 {
        pair.send(a, 0, &pattern(n, 10));
    }
    pair.run(secs(1200));
    assert_eq!(pair.a.snapshot(a).unwrap().state, State::Established, "{:?}", pair.events[0]);
    let mut got = Vec::new();
    for _ in 0..300 {
        got.extend(pair.received(b));
        pair.run(secs(1));
    }
    let expected: Vec<_> = (0..1000).map(|n| (0, pattern(n, 10))).collect();
    assert_eq!(got, expected);
}

/// A link of so many bytes a second, with a queue of so many, and 50 ms each way.
fn link(rate: u64, queue: u64) -> Wire {
    let mut free = Time::ZERO;
    Box::new(move |now, packet| {
        if !packet.to_b {
            return vec![ms(50)];
        }
        let waits = free.since(now);
        if waits.as_nanos() as u64 * rate / 1_000_000_000 > queue {
            return Vec::new();
        }
        let takes = Duration::from_nanos((packet.bytes.len() as u64 + 20) * 1_000_000_000 / rate);
        free = free.max(now) + takes;
        vec![waits + takes + ms(50)]
    })
}

/// RFC 9260 sections 6.3.3 and 7.2.4: slow start overruns a queue of one bandwidth-delay product and
/// loses every second packet, more than the gap blocks of a SACK can report. Losses that are found late
/// are no new losses: within twelve seconds most of the link is used.
#[test]
fn an_overrun_is_recovered_from() {
    for (algorithm, rack) in [
        (Algorithm::Rfc9260, false),
        (Algorithm::Cubic, false),
        (Algorithm::Rfc9260, true),
        (Algorithm::Cubic, true),
    ] {
        let settings = Settings {
            algorithm,
            rack,
            mtu: 576,
            send_buffer: 4 << 20,
            receive_buffer: 4 << 20,
            ..Settings::default()
        };
        let rate = 1_500_000;
        let mut pair = Pair::over(settings, settings, link(rate, rate / 10));
        pair.keep_log = false;
        let (a, b) = pair.open();
        let until = pair.now + secs(12);
        let (mut got, mut out, mut full) = (0u64, Vec::new(), false);
        while pair.now < until {
            full &= !pair.events[0].drain(..).any(|e| matches!(e, Event::Writable(_)));
            while !full {
                let options = SendOptions::default();
                full = pair.a.send(pair.now, a, &options, vec![7; 500]).is_err();
            }
            while let Ok(Some(received)) = pair.b.recv(b, &mut out) {
                got += received.len as u64;
                out.clear();
            }
            if !pair.step(until) {
                break;
            }
        }
        let used = got as f64 / (12 * rate) as f64;
        let totals = pair.a.snapshot(a).unwrap().totals;
        let what = format!("{algorithm:?}, rack {rack}");
        assert!(used > 0.55, "{what}: {used:.2} of the link, {totals:?}");
    }
}

/// RFC 9260 section 6.2: a window between half the buffer and a chunk holds the sender back, so its
/// opening is advertised.
#[test]
fn a_window_below_a_chunk_is_advertised_when_it_opens() {
    let settings = Settings { mtu: 9000, receive_buffer: 16_384, ..Settings::default() };
    let mut pair = Pair::new(settings, settings, ms(1));
    let (a, b) = pair.open();
    let from = pair.now;
    for n in 0..100 {
        pair.send(a, 0, &pattern(n, if n % 2 == 0 { 7500 } else { 8900 }));
    }
    let mut got = 0;
    while got < 100 && pair.now.since(from) < secs(300) {
        pair.run(ms(10));
        got += pair.received(b).len();
    }
    assert!(pair.now.since(from) < secs(5), "{:?}", pair.now.since(from));
}

/// RFC 9260 section 6.1 A: one chunk may always be under way, so one larger than the receive buffer is
/// taken while that is empty.
#[test]
fn a_small_buffer_takes_a_large_chunk() {
    let big = Settings { mtu: 9000, ..Settings::default() };
    let small = Settings { receive_buffer: 5000, ..big };
    let mut pair = Pair::new(big, small, ms(1));
    let (a, b) = pair.open();
    pair.send(a, 0, &pattern(0, 8000));
    let (mut out, mut end) = (Vec::new(), false);
    for _ in 0..100 {
        pair.run(secs(1));
        while let Ok(Some(received)) = pair.b.recv(b, &mut out) {
            end |= received.end;
        }
    }
    assert!(end && out == pattern(0, 8000), "{:?}", pair.a.snapshot(a));
}

/// RFC 9653, RFC 9260 section 8.4, rule 5: SHUTDOWN COMPLETE is lost where checksums are zero; the end
/// comes in order all the same.
#[test]
fn a_lost_shutdown_complete_with_zero_checksums() {
    let mut left = 1;
    let wire: Wire = Box::new(move |_, packet| {
        if left > 0 && describe(&packet.bytes, None, None) == "SHUTDOWN_COMPLETE" {
            left -= 1;
            return Vec::new();
        }
        vec![ms(10)]
    });
    let settings = Settings { over_dtls: true, ..quick() };
    let mut pair = Pair::over(settings, settings, wire);
    let (a, _) = pair.open();
    pair.a.shutdown(pair.now, a).unwrap();
    pair.run(secs(1000));
    assert_eq!((pair.closed(0), pair.closed(1)), (Some(Close::Finished), Some(Close::Finished)));
}

/// RFC 9260 sections 6.1 A and 9.2: in SHUTDOWN-SENT the sender of data hears of the window with each
/// SHUTDOWN, so that one update that is lost does not end a transfer before all has arrived.
#[test]
fn the_window_is_advertised_during_shutdown() {
    let lose = Rc::new(Cell::new(false));
    let losing = lose.clone();
    let wire: Wire = Box::new(
        move |_, packet| {
            if packet.to_b && losing.get() { Vec::new() } else { vec![ms(10)] }
        },
    );
    let large = Settings { send_buffer: 4 << 20, ..Settings::default() };
    let mut pair = Pair::over(Settings::default(), large, wire);
    pair.keep_log = false;
    let (a, b) = pair.open();
    pair.run(ms(500));
    for n in 0..3000 {
        let data = pattern(n, 1000);
        pair.b.send(pair.now, b, &SendOptions::default(), data).unwrap();
    }
    pair.a.shutdown(pair.now, a).unwrap();
    pair.run(secs(10));
    // The reader reads, and the window update is lost.
    lose.set(true);
    let mut got = pair.returned(a).len();
    pair.flush();
    lose.set(false);
    for _ in 0..600 {
        pair.run(secs(1));
        got += pair.returned(a).len();
    }
    assert_eq!((got, pair.closed(0)), (3000, Some(Close::Finished)));
}
