//! Loss found by time and probes of a silent tail: RFC 8985.

use super::support::*;
use super::{plain, snapshot};
use ringway_sctp::Settings;

/// An association whose first message went and was acknowledged in a round trip of 100 ms.
fn measured(settings: Settings) -> Script {
    let mut s = Script::accepted(settings);
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.wait(ms(100));
    s.give("SACK 1");
    s
}

/// A host that has sent so many full chunks, 10 ms apart, after a round trip of 100 ms was measured.
fn in_flight(count: usize) -> Script {
    let settings = Settings { rack: true, initial_cwnd: Some(50_000), max_burst: 0, ..plain() };
    let mut s = measured(settings);
    for n in 0..count {
        s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
        s.expect(&format!("DATA {} BE 0:{} 1452", n + 2, n + 1));
        s.wait(ms(10));
    }
    s
}

/// RFC 8985 section 6.2: what was sent before something that arrived is lost once a round trip and a
/// quarter has passed, however few gap reports came; what was sent later is not.
#[test]
fn loss_is_found_by_time() {
    let mut s = in_flight(4);
    s.wait(ms(70));
    // The third, sent 10 ms after the second, took 100 ms.
    s.give("SACK 1 3-3");
    s.wait(ms(14));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("DATA 2 BE 0:1 1452");
    s.expect_nothing();
    assert_eq!(snapshot(&s).totals.recoveries, 1);
    assert_eq!(snapshot(&s).paths[0].cwnd, 25_000);
    // The fourth was not lost, only late: nothing is sent again when it arrives.
    s.give("SACK 1 3-4");
    s.give("SACK 5");
    s.expect_nothing();
    let totals = snapshot(&s).totals;
    assert_eq!((totals.retransmits, totals.fast_retransmits), (1, 1));
}

/// RFC 8985 section 6.2, step 5: a little reordering is no loss; the timer finds out (section 6.3).
#[test]
fn reordering_is_waited_for() {
    let settings = Settings { rack: true, initial_cwnd: Some(50_000), max_burst: 0, ..plain() };
    let mut s = Script::accepted(settings);
    for n in 0..3 {
        s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
        s.expect(&format!("DATA {} BE 0:{n} 1452", n + 1));
    }
    s.wait(ms(100));
    s.give("SACK 0 2-3");
    s.expect_nothing();
    s.wait(ms(24));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("DATA 1 BE 0:0 1452");
    // Lost again: found again by what is sent later.
    s.send(0, 10);
    s.expect("DATA 4 BE 0:3 10");
    s.wait(ms(140));
    s.sent.clear();
    s.give("SACK 0 2-4");
    s.wait(ms(25));
    s.expect("DATA 1 BE 0:0 1452");
    assert_eq!(snapshot(&s).totals.timeouts, 0);
}

/// RFC 8985 section 7: after two round trips of silence the last chunk goes out again, and shows
/// what of the tail was lost; long before T3-rtx, and without an error of the path.
#[test]
fn a_silent_tail_is_probed() {
    let mut s = in_flight(3);
    // RTO is 300 ms; the probe comes 200 ms after the last was sent.
    s.wait(ms(189));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("DATA 4 BE 0:3 1452");
    assert_eq!((snapshot(&s).totals.tail_probes, snapshot(&s).errors), (1, 0));
    assert_eq!(snapshot(&s).paths[0].cwnd, 50_000);
    s.wait(ms(110));
    s.give("SACK 1 4-4");
    s.expect("DATA 2 BE 0:1 1452");
    s.expect("DATA 3 BE 0:2 1452");
    s.give("SACK 4");
    s.expect_nothing();
    let totals = snapshot(&s).totals;
    assert_eq!((totals.timeouts, totals.recoveries), (0, 1));
    s.wait(secs(100));
    s.expect_nothing();
}

/// RFC 8985 section 7.4: a probe that makes good the loss of the last chunk itself counts as a loss
/// for the window, once something later has arrived; one whose first sending had arrived does not.
#[test]
fn a_probe_may_repair() {
    for (wait, cwnd) in [(150, 25_000), (10, 50_000)] {
        let mut s = in_flight(3);
        s.wait(ms(190));
        s.expect("DATA 4 BE 0:3 1452");
        s.wait(ms(wait));
        s.give("SACK 4");
        assert_eq!(snapshot(&s).paths[0].cwnd, 50_000, "{wait}");
        s.send(0, 10);
        s.expect("DATA 5 BE 0:4 10");
        s.wait(ms(100));
        s.give("SACK 5");
        assert_eq!(snapshot(&s).paths[0].cwnd, cwnd, "{wait}");
    }
}

/// RFC 8985 section 7.4.2: a probe that was not needed, since the peer reports the chunk as come twice, is
/// no loss.
#[test]
fn a_needless_probe_is_no_loss() {
    let mut s = in_flight(3);
    s.wait(ms(190));
    s.expect("DATA 4 BE 0:3 1452");
    // The way has become slow: all three arrive now, and 4 a second time a little later.
    s.wait(ms(105));
    s.give("SACK 4");
    s.wait(ms(10));
    s.give("SACK 4 dup 4");
    s.send(0, 10);
    s.expect("DATA 5 BE 0:4 10");
    s.wait(ms(100));
    s.give("SACK 5");
    assert_eq!((snapshot(&s).paths[0].cwnd, snapshot(&s).totals.recoveries), (50_000, 0));
}

/// RFC 8985 section 6.2, step 4: where the peer reports what was sent again as come twice, the window for
/// reordering grows by a quarter of the shortest round trip.
#[test]
fn the_window_for_reordering_grows() {
    for (twice, waits) in [("", 25), (" dup 2", 50)] {
        let mut s = in_flight(2);
        s.wait(ms(100));
        s.give(&format!("SACK 3{twice}"));
        for n in 4..=5 {
            s.send(0, 10);
            s.expect(&format!("DATA {n} BE 0:{} 10", n - 1));
        }
        s.wait(ms(100));
        s.give("SACK 3 5-5");
        s.wait(ms(waits - 1));
        s.expect_nothing();
        s.wait(ms(1));
        s.expect("DATA 4 BE 0:3 10");
    }
}

/// RFC 8985 section 6.2, step 5: what was sent before a retransmission that arrived is lost, also where
/// it stands above it.
#[test]
fn a_loss_above_a_retransmission_is_found() {
    let settings = Settings { rack: true, initial_cwnd: Some(50_000), max_burst: 0, ..plain() };
    let mut s = measured(settings);
    for n in 0..9 {
        s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
        s.expect(&format!("DATA {} BE 0:{} 1452", n + 2, n + 1));
    }
    s.wait(ms(100));
    // 2 and 7 to 10 are lost.
    s.give("SACK 1 3-6");
    s.wait(ms(25));
    s.expect("DATA 2 BE 0:1 1452");
    s.expect_nothing();
    s.wait(ms(100));
    s.give("SACK 6");
    for n in 7..=10 {
        s.expect(&format!("DATA {n} BE 0:{} 1452", n - 1));
    }
}

/// RFC 9260 section 6.1 D, RFC 8985 section 9.3: of a window that was half lost, and is found lost at one time,
/// no more goes out at one time than Max.Burst; acknowledgements bring the rest.
#[test]
fn a_window_is_not_sent_again_at_one_time() {
    let settings = Settings { rack: true, initial_cwnd: Some(600_000), ..plain() };
    let mut s = Script::accepted(settings);
    s.give("SACK 0 w 1000000");
    s.window = 1_000_000;
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.wait(ms(100));
    s.give("SACK 1");
    for _ in 0..300 {
        s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
        s.collect();
    }
    assert_eq!(s.sent.len(), 300);
    s.sent.clear();
    s.wait(ms(100));
    s.give("SACK 1 152-301");
    s.wait(ms(30));
    assert_eq!(s.sent.len(), 4);
    // Each acknowledgement is leave for a burst.
    for (n, sent) in [(2, 8), (4, 12), (6, 16)] {
        s.wait(ms(1));
        s.give(&format!("SACK {} 152-301", n + 1));
        assert_eq!(s.sent.len(), sent);
    }
    while snapshot(&s).totals.retransmits < 150 {
        s.wait(ms(1));
        let cumulative = 1 + snapshot(&s).totals.retransmits;
        s.give(&format!("SACK {cumulative} 152-301"));
    }
    s.give("SACK 301");
    s.wait(secs(100));
    assert_eq!((snapshot(&s).totals.retransmits, snapshot(&s).totals.timeouts), (150, 0));
}

/// RFC 8985 section 9.3: a retransmission that is lost makes the window fall a second time; more of them that
/// went out before that do not.
#[test]
fn a_lost_retransmission_makes_the_window_fall_again() {
    let settings = Settings { rack: true, initial_cwnd: Some(100_000), max_burst: 0, ..plain() };
    let mut s = measured(settings);
    for n in 2..=11 {
        s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
        s.expect(&format!("DATA {n} BE 0:{} 1452", n - 1));
    }
    s.wait(ms(100));
    s.give("SACK 1 4-11");
    s.wait(ms(25));
    for n in 2..=3 {
        s.expect(&format!("DATA {n} BE 0:{} 1452", n - 1));
    }
    assert_eq!(snapshot(&s).paths[0].cwnd, 50_000);
    for n in 12..=13 {
        s.wait(ms(5));
        s.send(0, 10);
        s.expect(&format!("DATA {n} BE 0:{} 10", n - 1));
    }
    s.wait(ms(100));
    s.give("SACK 1 4-12");
    s.wait(ms(25));
    for n in 2..=3 {
        s.expect(&format!("DATA {n} BE 0:{} 1452", n - 1));
    }
    s.give("SACK 2 4-13");
    s.give("SACK 13");
    s.expect_nothing();
    assert_eq!((snapshot(&s).paths[0].cwnd, snapshot(&s).totals.recoveries), (25_000, 2));
}

/// A tail that stays silent is probed on another path, where it arrives, and the silent path by a HEARTBEAT, which shows
/// that it carries nothing: then data goes by the other one at once.
#[test]
fn a_silent_path_is_left() {
    let rack = Settings { rack: true, potentially_failed: Some(0), ..Settings::default() };
    let mut s = Script::two_paths(Settings { probe_elsewhere: true, ..rack });
    s.send(0, 10);
    let (first, line) = s.line().unwrap();
    assert_eq!(line, "DATA 1 BE 0:0 10");
    let (source, other, destination) = if first == B1 { (A1, B2, A2) } else { (A2, B1, A1) };
    s.wait(ms(100));
    s.give_from(first, source, "SACK 1");
    s.send(0, 20);
    s.expect_to(first, "DATA 2 BE 0:1 20");
    s.wait(ms(410));
    let sent: Vec<_> = core::iter::from_fn(|| s.line()).collect();
    assert!(sent.contains(&(other, "DATA 2 BE 0:1 20".into())), "{sent:?}");
    assert!(sent.contains(&(first, "HEARTBEAT".into())), "{sent:?}");
    s.give_from(other, destination, "SACK 2");
    let totals = snapshot(&s).totals;
    assert_eq!((totals.timeouts, totals.tail_probes), (0, 1));
    // So is what follows.
    s.send(0, 25);
    s.expect_to(first, "DATA 3 BE 0:2 25");
    s.wait(ms(410));
    s.expect_to(other, "DATA 3 BE 0:2 25");
    s.give_from(other, destination, "SACK 3");
    // The HEARTBEAT is not answered.
    s.wait(secs(2));
    let _ = core::iter::from_fn(|| s.line()).count();
    s.send(0, 30);
    s.expect_to(other, "DATA 4 BE 0:3 30");
    assert_eq!(snapshot(&s).totals.timeouts, 0);
}
