//! Data go through, under loss, reordering and repetition.

use crate::support::*;
use ringway_dccp::{Ccid, Event, SendError, SendOptions, Settings, WhenFull};

fn with(ccid: Ccid) -> Settings {
    Settings { ccid, ..Settings::default() }
}

/// Both congestion controls, without loss, with 1 % and with 5 %: nothing is delivered twice, and what
/// is not lost arrives.
#[test]
fn data_go_both_ways_under_loss() {
    for ccid in [Ccid::TcpLike, Ccid::Tfrc] {
        let mut rates = Vec::new();
        for lose in [0, 10, 50] {
            let mut pair = Pair::new(with(ccid), with(ccid), ms(20));
            pair.keep_log = false;
            for link in &mut pair.links {
                link.lose = lose;
                link.rate = Some(1_250_000);
                link.queue = 60;
            }
            let (a, b) = pair.open();
            let mut flows = [Flow::new(0, (a, b), 1000), Flow::new(1, (b, a), 200).paced(ms(20))];
            drive(&mut pair, &mut flows, secs(10));
            let begin = pair.now;
            drive(&mut pair, &mut flows, secs(20));
            let rate = flows[0].rate(begin, pair.now);
            rates.push(rate);
            let back = &flows[1];
            let most = back.sent * (990 - lose) / 1000;
            assert!(
                back.got.len() as u64 >= most - most / 50,
                "{ccid:?} {lose} {}",
                back.got.len()
            );
            let totals = pair.snapshot(1, b).totals;
            assert_eq!((totals.corrupt, totals.unexpected, totals.receive_queue_full), (0, 0, 0));
        }
        assert!(rates[0] > 900_000.0, "{ccid:?} {rates:?}");
        assert!(
            rates[0] > rates[1] && rates[1] > rates[2] && rates[2] > 50_000.0,
            "{ccid:?} {rates:?}"
        );
    }
}

/// RFC 4340 section 7.5: reordering and repetition harm nothing.
#[test]
fn reordered_and_repeated_packets_are_delivered_once() {
    for ccid in [Ccid::TcpLike, Ccid::Tfrc] {
        let mut pair = Pair::new(with(ccid), with(ccid), ms(20));
        for link in &mut pair.links {
            link.reorder = 100;
            link.repeat = 100;
        }
        let (a, b) = pair.open();
        let mut flows =
            [Flow::new(0, (a, b), 600).paced(ms(5)), Flow::new(1, (b, a), 600).paced(ms(5))];
        drive(&mut pair, &mut flows, secs(20));
        for flow in &flows {
            let waiting = 64;
            assert!(
                flow.got.len() as u64 + waiting + 20 >= flow.sent,
                "{ccid:?} {} {}",
                flow.got.len(),
                flow.sent
            );
            assert!(flow.got.len() > 1000, "{ccid:?} {}", flow.got.len());
        }
        assert!(pair.snapshot(1, b).totals.duplicates > 100);
        assert_eq!((pair.closed(0), pair.closed(1)), (None, None));
    }
}

/// A full queue refuses, or drops the oldest; an event reports room.
#[test]
fn the_send_queue_is_bounded() {
    let small = Settings { send_queue: 4, ..Settings::default() };
    let mut pair = Pair::new(small, small, ms(10));
    let (a, b) = pair.open();
    pair.run(ms(100));
    let now = pair.now;
    let send = |pair: &mut Pair, n: u8, options| pair.a.send(now, a, vec![n], options);
    for n in 0..4 {
        send(&mut pair, n, SendOptions::default()).unwrap();
    }
    assert_eq!(send(&mut pair, 4, SendOptions::default()), Err(SendError::Full { limit: 4 }));
    let oldest = SendOptions { when_full: WhenFull::DropOldest, lifetime: None };
    send(&mut pair, 5, oldest).unwrap();
    pair.run(ms(100));
    let got: Vec<u8> = std::iter::from_fn(|| pair.b.recv(b).unwrap()).map(|m| m[0]).collect();
    assert_eq!(got, [1, 2, 3, 5]);
    assert!(pair.events[0].contains(&Event::Writable(a)));
    assert_eq!(pair.snapshot(0, a).totals.evicted, 1);
    let long = pair.a.send(pair.now, a, vec![0; 2000], SendOptions::default());
    assert!(matches!(long, Err(SendError::TooLong { got: 2000, .. })));
}

/// A message whose lifetime ends before it may be sent is dropped.
#[test]
fn a_lifetime_ends_while_the_window_is_closed() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(500));
    let (a, b) = pair.open();
    pair.run(secs(2));
    for n in 0..20u8 {
        let options = SendOptions { lifetime: Some(ms(300)), ..SendOptions::default() };
        pair.a.send(pair.now, a, vec![n], options).unwrap();
    }
    pair.run(secs(5));
    let got = std::iter::from_fn(|| pair.b.recv(b).unwrap()).count() as u64;
    let totals = pair.snapshot(0, a).totals;
    assert_eq!((got, totals.expired), (totals.messages_sent, 20 - got));
    assert!((2..10).contains(&got), "{got}");
}

/// RFC 4340 sections 11.6 and 11.7: a receiver that does not read has the sender slow down.
#[test]
fn a_full_receive_queue_is_reported() {
    for ccid in [Ccid::TcpLike, Ccid::Tfrc] {
        let small = Settings { receive_queue: 16, ..with(ccid) };
        let mut pair = Pair::new(with(ccid), small, ms(10));
        pair.links[0].rate = Some(2_000_000);
        let (a, b) = pair.open();
        pair.run(ms(100));
        for _ in 0..200 {
            while pair.a.send(pair.now, a, vec![0; 500], SendOptions::default()).is_ok() {}
            pair.run(ms(20));
        }
        let (tx, rx) = (pair.snapshot(0, a), pair.snapshot(1, b));
        assert_eq!((rx.receive_queue, rx.totals.messages_received), (16, 16));
        assert!(rx.totals.receive_queue_full > 0);
        assert!(pair.log.iter().any(|line| line.contains("DataDropped")), "{ccid:?}");
        assert!(pair.log.iter().any(|line| line.contains("SlowReceiver")), "{ccid:?}");
        if ccid == Ccid::TcpLike {
            assert!(tx.sender.cwnd <= 2, "{:?}", tx.sender);
        }
        assert_eq!((pair.closed(0), pair.closed(1)), (None, None));
    }
}
