//! Congestion that routers mark (RFC 4960 appendix A), and checksums of zero (RFC 9653).

use super::support::*;
use super::{plain, snapshot};
use ringway_sansio::Ecn;
use ringway_sctp::{Settings, State};

fn script() -> Script {
    let settings = Settings { ecn: true, initial_cwnd: Some(50_000), max_burst: 0, ..plain() };
    let mut s = Script::new(settings);
    s.ecn_capable = true;
    s.listen(&[A1]);
    s.give_init();
    assert!(s.take_init_ack().ecn);
    s.echo("");
    s.expect("COOKIE_ACK");
    s
}

/// RFC 4960 appendix A: packets with DATA may be marked and no others; ECNE halves the window once
/// a round trip, and is answered by CWR each time.
#[test]
fn a_mark_halves_the_window() {
    let mut s = script();
    for _ in 0..10 {
        s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
    }
    for _ in 0..10 {
        assert_eq!(s.take().unwrap().0.ecn, Ecn::Ect0);
    }
    s.give("ECNE 3 + SACK 4");
    s.expect("CWR 10");
    assert_eq!((snapshot(&s).paths[0].cwnd, snapshot(&s).totals.marks), (25_000, 1));
    s.give("ECNE 5 + SACK 6");
    s.expect("CWR 10");
    assert_eq!((snapshot(&s).paths[0].cwnd, snapshot(&s).totals.marks), (25_000, 1));
    s.send(0, 10);
    s.take().unwrap();
    s.give("ECNE 11 + SACK 11");
    s.expect("CWR 11");
    assert_eq!(snapshot(&s).totals.marks, 2);
    // Of what was never sent.
    s.give("ECNE 50");
    s.expect_nothing();
    s.give("HEARTBEAT");
    assert_eq!(s.take().unwrap().0.ecn, Ecn::NotEct);
}

/// RFC 4960 appendix A: a mark is reported with each SACK until CWR arrives.
#[test]
fn a_mark_is_echoed() {
    let mut s = script();
    s.ecn = Ecn::Ce;
    s.give("DATA 1 BE 0:0 10");
    s.expect("ECNE 1 + SACK 1");
    s.ecn = Ecn::Ect0;
    s.give("DATA 2 BE 0:1 10 + DATA 3 IBE 0:2 10");
    s.expect("ECNE 1 + SACK 3");
    s.ecn = Ecn::Ce;
    s.give("DATA 4 BE 0:3 10");
    s.expect("ECNE 4 + SACK 4");
    s.ecn = Ecn::Ect0;
    s.give("CWR 3 + DATA 5 IBE 0:4 10");
    s.expect("ECNE 4 + SACK 5");
    s.give("CWR 5 + DATA 6 IBE 0:5 10");
    s.expect("SACK 6");
}

/// Without an agreement nothing is marked and marks mean nothing.
#[test]
fn without_negotiation_marks_are_ignored() {
    let mut s = Script::accepted(plain());
    s.ecn = Ecn::Ce;
    s.send(0, 10);
    assert_eq!(s.take().unwrap().0.ecn, Ecn::NotEct);
    s.give("ECNE 1 + DATA 1 IBE 0:0 10");
    s.expect("SACK 1");
    assert_eq!(snapshot(&s).totals.marks, 0);
}

/// RFC 9653 sections 5.2 and 5.3: where both are carried in DTLS, checksums are zero but for INIT
/// and COOKIE ECHO; elsewhere such packets are wrong.
#[test]
fn checksums_may_be_zero() {
    for (ours, theirs) in [(true, Some(1)), (true, Some(9)), (true, None), (false, Some(1))] {
        let mut s = Script::new(Settings { over_dtls: ours, ..plain() });
        s.zero_checksum = theirs;
        s.listen(&[A1]);
        s.give_init();
        assert_ne!(s.sent[0].1[8..12], [0; 4], "INIT ACK");
        assert_eq!(s.take_init_ack().zero_checksum, ours.then_some(1));
        s.echo("");
        s.take().unwrap();
        s.send(0, 10);
        let (_, bytes) = s.take().unwrap();
        assert_eq!(bytes[8..12] == [0; 4], ours && theirs == Some(1), "{theirs:?}");
        let mut sack = Vec::new();
        let ports = s.ports;
        let mut writer = ringway_sctp::wire::Writer::new(&mut sack, 2000, ports.1, ports.0, s.tag);
        ringway_sctp::wire::sack::emit(
            writer.chunks(),
            s.tsn,
            10_000,
            core::iter::empty(),
            core::iter::empty(),
        );
        writer.finish();
        let mut wrong = sack.clone();
        wrong[8] ^= 1;
        s.give_bytes(B1, A1, &wrong);
        assert_eq!((snapshot(&s).unacknowledged, s.sctp.counters().checksum), (1, 1));
        sack[8..12].fill(0);
        s.give_bytes(B1, A1, &sack);
        assert_eq!(snapshot(&s).unacknowledged, usize::from(!ours), "{ours} {theirs:?}");
        assert_eq!(snapshot(&s).state, State::Established);
        // Never so for an INIT.
        let mut init = Vec::new();
        let mut writer = ringway_sctp::wire::Writer::new(&mut init, 2000, 7, ports.0, 0);
        let (fixed, parameters) = s.init();
        parameters.emit(writer.chunks(), ringway_sctp::wire::chunk::kind::INIT, &fixed);
        writer.finish();
        init[8..12].fill(0);
        s.sent.clear();
        s.give_bytes(B1, A1, &init);
        s.expect_nothing();
    }
}

/// RFC 4960 appendix A: an ECNE goes along with a SACK; while that waits and data fills the packets, the
/// ECNE waits too.
#[test]
fn an_ecne_goes_with_a_sack() {
    let mut s = script();
    s.ecn = Ecn::Ce;
    s.give("DATA 1 BE 0:0 10");
    s.expect("ECNE 1 + SACK 1");
    s.ecn = Ecn::NotEct;
    s.give("DATA 2 BE 0:1 10");
    s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
    let (way, bytes) = s.take().unwrap();
    assert_eq!((way.ecn, bytes.len()), (Ecn::Ect0, 1480));
    s.expect_nothing();
    s.wait(ms(200));
    s.expect("ECNE 1 + SACK 2");
}
