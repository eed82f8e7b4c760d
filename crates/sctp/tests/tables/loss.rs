//! Loss: RFC 9260 sections 6.2.1, 6.3, 6.4 and 7.2.

use super::support::*;
use super::{plain, snapshot};
use ringway_sctp::{Event, PathSnapshot, PathState, SendOptions, Settings};
use std::net::IpAddr;

/// A host that has sent `count` full chunks, all of them in flight.
fn in_flight(count: usize, settings: Settings) -> Script {
    let settings = Settings { initial_cwnd: Some(50_000), max_burst: 0, ..settings };
    let mut s = Script::accepted(settings);
    for _ in 0..count {
        s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1; 1452]).unwrap();
    }
    for n in 0..count {
        s.expect(&format!("DATA {} BE 0:{n} 1452", n + 1));
    }
    s
}

/// RFC 9260 section 7.2.4: the third miss sends again at once, halves the window, and begins a
/// recovery in which it is not halved again.
#[test]
fn three_misses_send_again() {
    let mut s = in_flight(20, plain());
    s.give("SACK 1 3-3");
    s.give("SACK 1 3-4");
    s.expect_nothing();
    s.give("SACK 1 3-5");
    s.expect("DATA 2 BE 0:1 1452");
    s.expect_nothing();
    let now = snapshot(&s);
    assert!(now.recovering);
    // Section 7.2.3; nothing was added before, since the window was not full.
    assert_eq!((now.paths[0].cwnd, now.paths[0].ssthresh), (25_000, 25_000));
    assert_eq!((now.totals.fast_retransmits, now.totals.recoveries), (1, 1));
    for end in [9, 10, 11] {
        s.give(&format!("SACK 1 3-7 9-{end}"));
    }
    s.expect("DATA 8 BE 0:7 1452");
    let now = snapshot(&s);
    assert_eq!((now.paths[0].cwnd, now.totals.recoveries), (25_000, 1));
    // Rule 5: not a second time by fast retransmit.
    for end in [12, 13, 14, 15, 16] {
        s.give(&format!("SACK 1 3-7 9-{end}"));
        s.expect_nothing();
    }
    s.give("SACK 20");
    assert!(!snapshot(&s).recovering);
    assert_eq!(snapshot(&s).paths[0].flight, 0);
}

/// RFC 9260 section 7.2.4, the HTNA rule: a miss is counted only below what is newly acknowledged.
#[test]
fn misses_are_below_the_highest_newly_acknowledged() {
    let mut s = in_flight(12, plain());
    s.give("SACK 0 2-2 6-6");
    // These acknowledge 3, 4 and 5, which is no evidence about chunks above.
    for end in [3, 4] {
        s.give(&format!("SACK 0 2-{end} 6-6"));
    }
    // 1 was missed three times.
    s.expect("DATA 1 BE 0:0 1452");
    assert_eq!(snapshot(&s).totals.fast_retransmits, 1);
    s.give("SACK 0 2-6 8-8");
    s.give("SACK 0 2-6 8-8");
    s.give("SACK 0 2-6 8-8");
    // The same again is no new miss of 7.
    s.expect_nothing();
    s.give("SACK 0 2-6 8-9");
    s.expect_nothing();
    s.give("SACK 0 2-6 8-10");
    s.expect("DATA 7 BE 0:6 1452");
}

/// RFC 9260 section 6.3.3: the timer sends the earliest again in one packet, doubles, and leaves a
/// window of one chunk; section 7.2.3: one packet in flight until something is acknowledged.
#[test]
fn the_timer_starts_over() {
    let mut s = in_flight(6, plain());
    s.wait(ms(1000));
    s.expect("DATA 1 BE 0:0 1452");
    s.expect_nothing();
    let now = snapshot(&s);
    assert_eq!((now.paths[0].cwnd, now.paths[0].ssthresh), (1468, 25_000));
    assert_eq!((now.paths[0].rto, now.errors), (secs(2), 1));
    s.wait(ms(1999));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("DATA 1 BE 0:0 1452");
    s.give("SACK 1");
    s.expect("DATA 2 BE 0:1 1452");
    s.expect("DATA 3 BE 0:2 1452");
    s.expect_nothing();
    assert_eq!(snapshot(&s).errors, 0);
    // Section 6.3.1, rule C5: no round trip is measured by what was sent again.
    assert_eq!(snapshot(&s).paths[0].srtt, None);
    s.give("SACK 6");
    s.expect_nothing();
    s.wait(secs(100));
    s.expect_nothing();
}

/// RFC 9260 section 6.3.2, rule R3: the timer begins anew when the earliest is acknowledged, and
/// not when a later one is.
#[test]
fn the_timer_follows_the_earliest() {
    let mut s = in_flight(4, plain());
    s.wait(ms(600));
    s.give("SACK 0 2-2");
    s.wait(ms(399));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("DATA 1 BE 0:0 1452");

    // A round trip of 600 ms was measured: RTO is 600 + 4 * 300.
    let mut s = in_flight(4, plain());
    s.wait(ms(600));
    s.give("SACK 1");
    assert_eq!(snapshot(&s).paths[0].rto, ms(1800));
    s.wait(ms(1799));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("DATA 2 BE 0:1 1452");
}

/// RFC 9260 section 6.2.1 D: an older SACK changes nothing.
#[test]
fn an_old_sack_is_dropped() {
    let mut s = in_flight(4, plain());
    s.give("SACK 3 w 50000");
    let before = snapshot(&s);
    s.give("SACK 1 w 10");
    s.give("SACK 2 4-4 w 10");
    let after = snapshot(&s);
    assert_eq!((after.peer_rwnd, after.outstanding), (before.peer_rwnd, before.outstanding));
}

/// RFC 9260 section 6.2.1 D iii: what was acknowledged in a gap block and is not any more counts as
/// in flight again, and missed once.
#[test]
fn a_reneged_chunk_is_sent_again() {
    let mut s = in_flight(8, plain());
    s.give("SACK 1 3-5");
    assert_eq!(snapshot(&s).paths[0].flight, 4 * 1468);
    s.give("SACK 2");
    let now = snapshot(&s);
    assert_eq!((now.paths[0].flight, now.totals.reneged), (6 * 1468, 3));
    s.give("SACK 2 6-6");
    s.give("SACK 2 6-7");
    // Three misses with the one counted above.
    s.expect("DATA 3 BE 0:2 1452");
    s.expect("DATA 4 BE 0:3 1452");
    s.expect("DATA 5 BE 0:4 1452");
}

/// Gap blocks that make no sense are not believed.
#[test]
fn nonsense_gap_blocks_are_not_believed() {
    for line in ["SACK 1 9-9", "SACK 1 4-3", "SACK 1 1-1", "SACK 1 70000-70001"] {
        let mut s = in_flight(4, plain());
        s.give(line);
        let now = snapshot(&s);
        assert_eq!((now.unacknowledged, now.paths[0].flight), (3, 3 * 1468), "{line}");
    }
    let mut s = in_flight(4, plain());
    s.give("SACK 0 2-2 2-3");
    assert_eq!(snapshot(&s).paths[0].flight, 3 * 1468);
}

/// RFC 9260 section 7.2.1: a window that was not used for long closes, by half for each RTO.
#[test]
fn idleness_closes_the_window() {
    let mut s = in_flight(2, plain());
    s.wait(ms(50));
    s.give("SACK 2");
    assert_eq!(snapshot(&s).paths[0].cwnd, 50_000);
    // RTO is 50 + 4 * 25 ms, so the least, 200 ms.
    s.wait(ms(600));
    s.send(0, 10);
    s.take().unwrap();
    assert_eq!(snapshot(&s).paths[0].cwnd, 50_000 / 8);
    assert_eq!(snapshot(&s).paths[0].ssthresh, 50_000);
}

/// RFC 9260 section 6.4: a chunk marked by a timer is sent on another path; section 8.2 and RFC 7829:
/// that path is used while the first is potentially failed, and the user is notified.
#[test]
fn a_timeout_moves_to_another_path() {
    let mut s = Script::two_paths(plain());
    s.send(0, 100);
    s.expect_to(B1, "DATA 1 BE 0:0 100");
    s.wait(secs(1));
    let sent: Vec<_> = core::iter::from_fn(|| s.line()).collect();
    assert!(sent.contains(&(B2, "DATA 1 BE 0:0 100".into())), "{sent:?}");
    let told = Event::Path { id: s.id(), remote: B1, state: PathState::PotentiallyFailed };
    assert!(s.events().contains(&told));
    s.give_from(B2, A2, "SACK 1");
    s.send(0, 50);
    s.expect_to(B2, "DATA 2 BE 0:1 50");
    assert_eq!(snapshot(&s).errors, 0);
}

/// RFC 9260 section 8.2 without RFC 7829: six errors make a path inactive; until then retransmissions
/// use the other path, new data the primary.
#[test]
fn six_errors_make_a_path_inactive() {
    let mut s = Script::two_paths(Settings { potentially_failed: None, ..plain() });
    for error in 1..=6u32 {
        let n = error - 1;
        s.send(0, 100);
        s.expect_to(B1, &format!("DATA {error} BE 0:{n} 100"));
        s.wait(snapshot(&s).paths[0].rto);
        s.expect_to(B2, &format!("DATA {error} BE 0:{n} 100"));
        let expected = if error < 6 { PathState::Active } else { PathState::Inactive };
        assert_eq!(snapshot(&s).paths[0].state, expected, "{error}");
        s.give_from(B2, A2, &format!("SACK {error}"));
    }
    s.send(0, 100);
    s.expect_to(B2, "DATA 7 BE 0:6 100");
}

/// RFC 9260 section 6.4: a SACK goes where the data came from.
#[test]
fn a_sack_goes_where_data_came_from() {
    let mut s = Script::two_paths(plain());
    s.give_from(B2, A2, "DATA 1 BE 0:0 10");
    s.expect_to(B2, "SACK 1");
    s.give_from(B1, A1, "DATA 2 IBE 0:1 10");
    s.expect_to(B1, "SACK 2");
}

/// RFC 9260 section 11.1.6: the user may choose another primary path.
#[test]
fn the_primary_can_be_changed() {
    let mut s = Script::two_paths(plain());
    s.sctp.set_primary(s.id(), B2).unwrap();
    s.send(0, 100);
    s.expect_to(B2, "DATA 1 BE 0:0 100");
    assert!(s.sctp.set_primary(s.id(), [10, 3, 3, 3].into()).is_err());
}

/// RFC 7829 section 3.2, rules 5 and 6: a path that T3-rtx made potentially failed is asked an RTO
/// later, whatever the interval of heartbeats is, and not at all where there are none.
#[test]
fn a_potentially_failed_path_is_probed() {
    for heartbeat_interval in [Some(secs(30)), None] {
        let settings = Settings { rto_min: ms(200), heartbeat_interval, ..Settings::default() };
        let mut s = Script::two_paths(settings);
        s.send(0, 10);
        let (first, line) = s.line().unwrap();
        assert_eq!(line, "DATA 1 BE 0:0 10");
        s.wait(secs(1));
        let (other, line) = s.line().unwrap();
        assert_eq!((line.as_str(), other != first), ("DATA 1 BE 0:0 10", true));
        s.give_from(other, if other == B2 { A2 } else { A1 }, "SACK 1");
        s.wait(ms(1900));
        s.expect_nothing();
        s.wait(ms(200));
        let asked = s.line();
        assert_eq!(asked, heartbeat_interval.map(|_| (first, "HEARTBEAT".to_owned())));
    }
}

/// RFC 9260 section 6.4.1: of paths whose state is active a retransmission goes to one that lost nothing,
/// so that two bad paths do not take turns while others work.
#[test]
fn two_bad_paths_do_not_take_turns() {
    let settings = Settings {
        rto_min: ms(200),
        heartbeat_interval: None,
        potentially_failed: None,
        ..Settings::default()
    };
    let others = [3, 4].map(|net| IpAddr::from([10, 0, net, 2]));
    let mut s = Script::over(settings, &[A1, A2], &[B1, B2, others[0], others[1]]);
    // One path after another is verified.
    for _ in &s.addresses.clone() {
        s.wait(secs(1));
        while let Some((addressing, bytes)) = s.take() {
            s.answer_beats(addressing, &bytes);
        }
    }
    s.send(0, 10);
    let mut tried = Vec::new();
    for _ in 0..4 {
        let (path, line) = s.line().unwrap();
        assert_eq!(line, "DATA 1 BE 0:0 10");
        tried.push(path);
        s.wait(secs(1));
    }
    tried.sort();
    assert_eq!(tried, s.addresses);
}

/// RFC 7829 section 3.2, rule 9: a chunk that went to both paths was acknowledged: it is not known over
/// which it came, so neither becomes active.
#[test]
fn an_ambiguous_answer_restores_no_path() {
    let mut s = Script::two_paths(Settings { heartbeat_interval: None, ..Settings::default() });
    s.send(0, 10);
    let (first, _) = s.line().unwrap();
    s.wait(secs(1));
    let (second, line) = s.line().unwrap();
    assert_eq!((line.as_str(), first != second), ("DATA 1 BE 0:0 10", true));
    // Lost there too.
    s.wait(secs(1));
    s.expect_to(first, "DATA 1 BE 0:0 10");
    s.give("SACK 1");
    let failed = |path: &PathSnapshot| path.state == PathState::PotentiallyFailed;
    assert!(snapshot(&s).paths.iter().all(failed), "{:?}", snapshot(&s).paths);
}

/// RFC 9260 section 6.2: a packet has one SACK. Of many only two are worked on, since each may take back
/// and acknowledge anew all that is in flight.
#[test]
fn many_sacks_of_a_packet_are_not_worked_on() {
    let mut s = Script::accepted(plain());
    for _ in 0..3 {
        s.send(0, 10);
        s.take().unwrap();
    }
    s.give("SACK 1 + SACK 2 + SACK 3");
    assert_eq!((snapshot(&s).totals.sacks_received, snapshot(&s).outstanding), (2, 10));
    s.give("SACK 3");
    assert_eq!(snapshot(&s).outstanding, 0);
}
