//! Two hosts over a wire in virtual time.

mod support;

use proptest::prelude::*;
use ringway_sansio::{Addressing, Duration, Ecn, Endpoint as _};
use ringway_tcp::{
    Algorithm, Close, Detection, Event, Flags, Segment, Settings, State, fill_checksum,
};
use std::net::SocketAddr;
use support::*;

fn quick() -> Settings {
    Settings { min_rto: ms(200), ..Settings::default() }
}

/// RFC 9293 section 3.5: a handshake, data both ways, both ends closed, TIME-WAIT at one of them.
#[test]
fn a_stream_goes_both_ways_and_ends() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    transfer(&mut pair, 300_000, 200_000, Duration::from_secs(30));
    assert_eq!((pair.closed(0), pair.closed(1)), (Some(Close::Finished), Some(Close::Finished)));
    pair.run(Duration::from_secs(1));
    let waiting = pair.a.len().1 + pair.b.len().1;
    assert!((1..=2).contains(&waiting));
    assert_eq!((pair.a.len().0, pair.b.len().0), (0, 0));
    pair.run(Duration::from_secs(241));
    assert_eq!((pair.a.len(), pair.b.len()), ((0, 0), (0, 0)));
    assert_eq!(pair.next(), None, "nothing waits for ever");
    assert_eq!(pair.a.counters().malformed + pair.b.counters().malformed, 0);
}

/// RFC 9293 section 3.5, figure 7: both open at once.
#[test]
fn both_may_open_at_once() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = (SocketAddr::new(A, 700), SocketAddr::new(B, 800));
    let one = pair.a.connect(pair.now, a, b, None).unwrap();
    let two = pair.b.connect(pair.now, b, a, None).unwrap();
    pair.run(ms(100));
    assert!(pair.saw(0, Event::Connected(one)) && pair.saw(1, Event::Connected(two)));
    for (host, conn) in [(&pair.a, one), (&pair.b, two)] {
        assert_eq!(host.snapshot(conn).unwrap().state, State::Established);
    }
    pair.a.write(pair.now, one, b"ping").unwrap();
    pair.b.write(pair.now, two, b"pong").unwrap();
    pair.run(ms(100));
    assert_eq!(pair.b.peek(two).unwrap().0, b"ping");
    assert_eq!(pair.a.peek(one).unwrap().0, b"pong");
    assert_eq!(pair.a.counters().resets + pair.b.counters().resets, 0);
}

/// RFC 9293 section 3.6, figure 13: FINs that cross leave both in TIME-WAIT.
#[test]
fn both_may_close_at_once() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = pair.open();
    pair.run(ms(100));
    pair.a.shutdown(pair.now, a).unwrap();
    pair.b.shutdown(pair.now, b).unwrap();
    pair.run(ms(15));
    assert_eq!(pair.a.snapshot(a).unwrap().state, State::Closing);
    pair.run(ms(100));
    assert_eq!((pair.closed(0), pair.closed(1)), (Some(Close::Finished), Some(Close::Finished)));
    assert_eq!((pair.a.len().1, pair.b.len().1), (1, 1));
}

/// RFC 9293 section 3.6: one direction ends, the other goes on.
#[test]
fn a_half_closed_connection_still_carries_data() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = pair.open();
    pair.a.shutdown(pair.now, a).unwrap();
    pair.run(ms(100));
    assert!(pair.saw(1, Event::PeerClosed(b)));
    assert_eq!(pair.a.snapshot(a).unwrap().state, State::FinWait2);
    assert!(pair.a.write(pair.now, a, b"x").is_err());
    let mut flow = Flow::new(100_000);
    for _ in 0..100 {
        flow.write(&mut pair.b, pair.now, b);
        pair.run(ms(20));
        flow.read(&mut pair.a, pair.now, a);
    }
    assert_eq!(flow.read, 100_000);
    assert!(pair.saw(0, Event::PeerClosed(a)));
    assert_eq!(pair.closed(1), Some(Close::Finished));
}

/// RFC 9293 section 3.8.6.1: a window that stays closed for minutes is probed, and the transfer
/// goes on once it opens, although the update was lost.
#[test]
fn a_closed_window_is_probed() {
    let small = Settings { receive_buffer: 4000, ..quick() };
    let lost = std::rc::Rc::new(std::cell::Cell::new(false));
    let lose = lost.clone();
    let wire: Wire =
        Box::new(
            move |packet| {
                if lose.get() && !packet.to_b { Vec::new() } else { vec![(ms(10), Ecn::NotEct)] }
            },
        );
    let mut pair = Pair::over(quick(), small, wire);
    let (a, b) = pair.open();
    let mut flow = Flow::new(20_000);
    flow.write(&mut pair.a, pair.now, a);
    pair.run(Duration::from_secs(900));
    let snapshot = pair.a.snapshot(a).unwrap();
    assert_eq!(snapshot.state, State::Established);
    assert_eq!(snapshot.send_window, 0);
    assert!(snapshot.totals.window_probes > 5);
    assert_eq!(snapshot.totals.timeouts, 0);
    let cwnd = snapshot.cwnd;
    lost.set(true);
    flow.read(&mut pair.b, pair.now, b);
    pair.run(ms(100));
    lost.set(false);
    for _ in 0..2000 {
        pair.run(ms(100));
        flow.read(&mut pair.b, pair.now, b);
    }
    assert_eq!(flow.read, 20_000);
    assert!(pair.a.snapshot(a).is_err() || pair.a.snapshot(a).unwrap().cwnd >= cwnd);
}

/// RFC 9293 sections 3.10.5 and 3.10.7.4: an abort resets the peer.
#[test]
fn an_abort_resets() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = pair.open();
    pair.b.write(pair.now, b, b"lost").unwrap();
    pair.a.abort(pair.now, a).unwrap();
    pair.run(ms(100));
    assert_eq!(pair.closed(1), Some(Close::Reset));
    assert!(pair.a.snapshot(a).is_err());
    assert!(pair.b.snapshot(b).is_err());
    assert_eq!((pair.a.len(), pair.b.len()), ((0, 0), (0, 0)));
}

/// RFC 9293 section 3.10.7.1: there is no listener.
#[test]
fn a_closed_port_refuses() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let remote = SocketAddr::new(B, 9);
    pair.a.connect(pair.now, SocketAddr::new(A, 0), remote, None).unwrap();
    pair.run(ms(100));
    assert_eq!(pair.closed(0), Some(Close::Refused));
    assert_eq!(pair.b.counters().resets, 1);
}

/// RFC 9293 section 3.8.3: a connection to a dead peer ends after the user timeout, and a handshake
/// after its timeout.
#[test]
fn a_silent_peer_times_out() {
    let gone = std::rc::Rc::new(std::cell::Cell::new(false));
    let is_gone = gone.clone();
    let wire: Wire =
        Box::new(move |_| if is_gone.get() { Vec::new() } else { vec![(ms(10), Ecn::NotEct)] });
    let mut pair = Pair::over(quick(), quick(), wire);
    let (a, _) = pair.open();
    gone.set(true);
    pair.a.write(pair.now, a, b"anyone?").unwrap();
    let start = pair.now;
    pair.a.connect(pair.now, SocketAddr::new(A, 0), SocketAddr::new(B, 7), None).unwrap();
    pair.run(Duration::from_secs(179));
    assert_eq!(pair.closed(0), None);
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.closed(0), Some(Close::TimedOut));
    pair.events[0].clear();
    while pair.closed(0).is_none() && pair.step(start + Duration::from_secs(400)) {}
    assert_eq!(pair.closed(0), Some(Close::TimedOut));
    let took = pair.now.since(start);
    assert!((ms(300_000)..ms(300_100)).contains(&took), "{took:?}");
}

/// RFC 9293 section 3.8.4: a keep-alive detects a dead peer, and keeps a connection to a silent one.
#[test]
fn keep_alive_distinguishes_a_silent_peer_from_a_dead_one() {
    let keep_alive = ringway_tcp::KeepAlive {
        idle: Duration::from_secs(100),
        interval: Duration::from_secs(10),
        probes: 3,
    };
    let gone = std::rc::Rc::new(std::cell::Cell::new(false));
    let is_gone = gone.clone();
    let wire: Wire =
        Box::new(move |_| if is_gone.get() { Vec::new() } else { vec![(ms(10), Ecn::NotEct)] });
    let mut pair = Pair::over(Settings { keep_alive: Some(keep_alive), ..quick() }, quick(), wire);
    pair.open();
    pair.run(Duration::from_secs(3600));
    assert_eq!(pair.closed(0), None);
    gone.set(true);
    pair.run(Duration::from_secs(20));
    assert_eq!(pair.closed(0), None);
    pair.run(Duration::from_secs(120));
    assert_eq!(pair.closed(0), Some(Close::TimedOut));
}

/// RFC 3168 section 6.1: a mark halves the window once, without a retransmission.
#[test]
fn a_mark_is_answered_without_a_loss() {
    let ecn = Settings { ecn: true, algorithm: Algorithm::NewReno, ..quick() };
    let mut count = 0;
    let wire: Wire = Box::new(move |packet| {
        let capable = packet.addressing.ecn.is_capable();
        count += u32::from(capable);
        let mark = capable && count == 60;
        vec![(ms(10), if mark { Ecn::Ce } else { packet.addressing.ecn })]
    });
    let mut pair = Pair::over(ecn, ecn, wire);
    let (a, b) = pair.open();
    let mut flow = Flow::new(400_000);
    for _ in 0..100 {
        flow.write(&mut pair.a, pair.now, a);
        pair.run(ms(10));
        flow.read(&mut pair.b, pair.now, b);
        if flow.read == flow.total {
            break;
        }
    }
    assert_eq!(flow.read, flow.total);
    let echoes = pair.log.iter().filter(|l| !l.1 && l.2.flags == Flags::ACK | Flags::ECE).count();
    let confirmed =
        pair.log.iter().filter(|l| l.1 && l.2.flags.has(Flags::CWR | Flags::ACK)).count();
    assert!(echoes > 0);
    assert_eq!(confirmed, 1);
    assert!(pair.log.iter().filter(|l| l.3 == 0).all(|l| l.4 == Ecn::NotEct), "only data is ECT");
    assert!(pair.log.iter().filter(|l| l.1 && l.3 > 0).all(|l| l.4 == Ecn::Ect0));
}

/// RFC 6298, RFC 8985, RFC 6675, RFC 6582: one lost segment in a long transfer is repaired without a
/// timeout, by each detection.
#[test]
fn one_loss_costs_no_timeout() {
    for (sack, detection) in
        [(true, Detection::RackTlp), (true, Detection::Sack), (false, Detection::Sack)]
    {
        for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
            for lost in [12u64, 100, 101] {
                let mut data = 0;
                let wire: Wire = Box::new(move |packet| {
                    let long = packet.bytes.len() > 500;
                    data += u64::from(long);
                    if long && data == lost { Vec::new() } else { vec![(ms(20), Ecn::NotEct)] }
                });
                let settings = Settings { sack, detection, algorithm, ..quick() };
                let mut pair = Pair::over(settings, settings, wire);
                let (a, b) = pair.open();
                let mut flow = Flow::new(300_000);
                let mut last = None;
                for _ in 0..200 {
                    flow.write(&mut pair.a, pair.now, a);
                    pair.run(ms(10));
                    flow.read(&mut pair.b, pair.now, b);
                    last = pair.a.snapshot(a).ok().or(last);
                    if flow.read == flow.total {
                        break;
                    }
                }
                assert_eq!(flow.read, flow.total);
                let totals = last.unwrap().totals;
                let what = format!("{detection:?} {sack} {algorithm:?} {lost}");
                assert_eq!((totals.timeouts, totals.recoveries), (0, 1), "{what}");
                assert_eq!(totals.retransmits, 1, "{what}");
            }
        }
    }
}

/// RFC 8985 section 7: the loss of the last segment is repaired by a probe, long before the
/// retransmission timer.
#[test]
fn a_lost_tail_is_probed() {
    let mut data = 0;
    let wire: Wire = Box::new(move |packet| {
        data += u64::from(packet.bytes.len() > 500);
        if data == 5 && packet.bytes.len() > 500 { Vec::new() } else { vec![(ms(20), Ecn::NotEct)] }
    });
    let settings = Settings { nagle: false, ..Settings::default() };
    let mut pair = Pair::over(settings, settings, wire);
    let (a, b) = pair.open();
    pair.a.write(pair.now, a, &pattern(0, 5 * 1448)).unwrap();
    // Two round trips and the longest delay of a lone segment's acknowledgment.
    pair.run(ms(360));
    assert_eq!(pair.b.peek(b).unwrap().0.len(), 5 * 1448);
    let totals = pair.a.snapshot(a).unwrap().totals;
    assert_eq!((totals.tail_probes, totals.timeouts), (1, 0));
}

/// RFC 8985 section 6.2 step 4: reordering within a quarter of the round trip has no cost after it was
/// seen once.
#[test]
fn slight_reordering_costs_nothing() {
    let mut dice = Dice::new(7);
    let wire: Wire = Box::new(move |packet| {
        let late = if dice.chance(10) { 4 } else { 0 };
        vec![(ms(20 + late), packet.addressing.ecn)]
    });
    let mut pair = Pair::over(quick(), quick(), wire);
    let (a, b) = pair.open();
    let mut flow = Flow::new(1_000_000);
    let mut last = None;
    for _ in 0..500 {
        flow.write(&mut pair.a, pair.now, a);
        pair.run(ms(10));
        flow.read(&mut pair.b, pair.now, b);
        last = pair.a.snapshot(a).ok().or(last);
        if flow.read == flow.total {
            break;
        }
    }
    assert_eq!(flow.read, flow.total);
    let last = last.unwrap();
    assert!(last.reordering);
    assert!(last.totals.recoveries == 1 && last.totals.retransmits < 10, "{:?}", last.totals);
}

/// RFC 5681 section 4.1: a window that was idle for long is reduced.
#[test]
fn idleness_closes_the_window() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let (a, b) = pair.open();
    let mut flow = Flow::new(400_000);
    flow.ended = true;
    for _ in 0..100 {
        flow.write(&mut pair.a, pair.now, a);
        pair.run(ms(10));
        flow.read(&mut pair.b, pair.now, b);
    }
    assert!(pair.a.snapshot(a).unwrap().cwnd > 100_000);
    pair.run(Duration::from_secs(60));
    pair.a.write(pair.now, a, b"again").unwrap();
    pair.run(ms(1));
    assert_eq!(pair.a.snapshot(a).unwrap().cwnd, 14_480);
}

/// RFC 9293 section 3.10.7.4 (MAY-2): TIME-WAIT yields to a SYN with later numbers, and answers a
/// repeated FIN.
#[test]
fn time_wait_yields_to_a_new_connection() {
    let mut pair = Pair::new(quick(), quick(), ms(10));
    let listener = pair.b.listen(SocketAddr::new(B, PORT), 8, None).unwrap();
    let (from, to) = (SocketAddr::new(A, 4444), SocketAddr::new(B, PORT));
    let mut first = None;
    for round in 0..3 {
        let a = pair.a.connect(pair.now, from, to, None).unwrap();
        pair.run(ms(50));
        let b = pair.b.accept(listener).unwrap();
        // The listener's side closes first, so that it is the one to wait.
        pair.b.shutdown(pair.now, b).unwrap();
        pair.run(ms(30));
        pair.a.shutdown(pair.now, a).unwrap();
        pair.run(ms(100));
        assert_eq!((pair.a.len(), pair.b.len()), ((0, 0), (0, 1)), "round {round}");
        first.get_or_insert(a);
    }
    assert!(pair.a.snapshot(first.unwrap()).is_err(), "an id is never used again");
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<(bool, bool, bool)>(),
        prop_oneof![Just(3000usize), Just(20_000), Just(200_000)],
        prop_oneof![Just(200u16), Just(576), Just(1500)],
    )
        .prop_map(|(sack, timestamps, scaling, ecn, (rack, cubic, nagle), buffer, mtu)| {
            Settings {
                mtu,
                sack,
                timestamps,
                window_scaling: scaling,
                ecn,
                nagle,
                detection: if rack { Detection::RackTlp } else { Detection::Sack },
                algorithm: if cubic { Algorithm::Cubic } else { Algorithm::NewReno },
                send_buffer: buffer,
                receive_buffer: buffer,
                min_rto: ms(200),
                user_timeout: Duration::from_secs(100_000),
                handshake_timeout: Duration::from_secs(10_000),
                ..Settings::default()
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whatever the wire does, the stream arrives exactly, both ways, and both endpoints close.
    #[test]
    fn the_stream_arrives_exactly(
        one in settings(), two in settings(), seed in any::<u64>(),
        loss in 0u64..25, swap in 0u64..30, twice in 0u64..10, spoil in 0u64..10,
        up in 0usize..80_000, down in 0usize..80_000,
    ) {
        let mut dice = Dice::new(seed);
        let wire: Wire = Box::new(move |packet| {
            let mut copies = Vec::new();
            let ecn = packet.addressing.ecn;
            let ecn = if ecn.is_capable() && dice.chance(5) { Ecn::Ce } else { ecn };
            // A corrupted packet fails its checksum, as the parser's tests show.
            if dice.chance(loss) || dice.chance(spoil) {
                return copies;
            }
            let late = if dice.chance(swap) { dice.below(60) } else { 0 };
            copies.push((ms(10 + late), ecn));
            if dice.chance(twice) {
                copies.push((ms(10 + dice.below(200)), ecn));
            }
            copies
        });
        let mut pair = Pair::over(one, two, wire);
        pair.keep_log = false;
        transfer(&mut pair, up, down, Duration::from_secs(200_000));
    }
}

/// A host whose world takes care of checksums leaves them out, and the world can fill them in.
#[test]
fn checksums_are_left_to_a_world_that_takes_care_of_them() {
    let (mut a, mut b) = (host(1, Settings::default()), host(2, Settings::default()));
    b.listen(SocketAddr::new(B, PORT), 1, None).unwrap();
    a.connect(at(0), SocketAddr::new(A, 0), SocketAddr::new(B, PORT), None).unwrap();
    let mut syn = Vec::new();
    let addressing = a.poll_transmit(at(0), &mut syn).unwrap();
    assert!(!addressing.offload && Segment::parse(A, B, &syn).is_ok());
    b.handle_packet(at(1), Addressing { offload: true, ..addressing }, &syn);
    let mut answer = Vec::new();
    let addressing = b.poll_transmit(at(1), &mut answer).unwrap();
    assert!(addressing.offload && Segment::parse(B, A, &answer).is_err());
    assert_eq!(answer[16..18], [0, 0]);
    fill_checksum(B, A, &mut answer);
    assert!(Segment::parse(B, A, &answer).is_ok());
    // A packet that the world does not vouch for is checked.
    answer[4] ^= 1;
    a.handle_packet(at(2), Addressing { offload: false, ..addressing }, &answer);
    assert_eq!(a.counters().malformed, 1);
}
