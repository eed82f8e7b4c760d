//! What both ends agree on (RFC 4340 section 6).

use crate::support::*;
use ringway_dccp::wire::DccpOption;
use ringway_dccp::{Ccid, Close, PROTOCOL, ResetCode, Settings};
use ringway_sansio::{Addressing, Endpoint};

/// RFC 4340 section 6.3.1: the server's preference decides, also with lost packets.
#[test]
fn the_congestion_control_is_negotiated() {
    let with = |ccid| Settings { ccid, ..Settings::default() };
    for (client, server, expected) in [
        (Ccid::TcpLike, Ccid::TcpLike, Ccid::TcpLike),
        (Ccid::TcpLike, Ccid::Tfrc, Ccid::Tfrc),
        (Ccid::Tfrc, Ccid::TcpLike, Ccid::TcpLike),
        (Ccid::Tfrc, Ccid::Tfrc, Ccid::Tfrc),
    ] {
        for (link, kind) in [(0, "none"), (0, "Request"), (1, "Response"), (0, "Ack")] {
            let mut pair = Pair::new(with(client), with(server), ms(10));
            pair.links[link].filter = drop_kind(kind, 0..1);
            let (a, b) = pair.open();
            let mut flows = [Flow::new(0, (a, b), 500), Flow::new(1, (b, a), 500)];
            drive(&mut pair, &mut flows, secs(2));
            for (end, id) in [(0, a), (1, b)] {
                let snapshot = pair.snapshot(end, id);
                assert_eq!((snapshot.sender_ccid, snapshot.receiver_ccid), (expected, expected));
                assert_eq!(snapshot.totals.changes_abandoned, 0);
            }
            assert!(flows.iter().all(|flow| flow.got.len() > 100), "{client:?} {server:?} {kind}");
        }
    }
}

/// RFC 4341 section 4: a receiver of CCID 2 offers Ack Vectors to a client that did not ask, as Linux where it preferred
/// CCID 3.
#[test]
fn ack_vectors_are_offered_with_ccid_2() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    let mut options = Vec::new();
    DccpOption::ChangeL(1, &[3, 2]).emit(&mut options);
    DccpOption::ChangeR(1, &[3, 2]).emit(&mut options);
    let bytes = request(&options, &[]);
    pair.b.handle_packet(pair.now, Addressing::new(A, B, PROTOCOL), &bytes);
    pair.flush();
    let response = &pair.log[0];
    assert!(response.contains("ConfirmR(1: 2 2 3)"), "{response}");
    assert!(response.contains("ChangeL(6: 1 0) ChangeR(6: 1 0)"), "{response}");
}

/// RFC 4340 section 6.6.9: without agreement on a mandatory feature there is no connection.
#[test]
fn a_mandatory_congestion_control_may_end_the_handshake() {
    let only = |ccid| Settings { ccid, ccid_mandatory: true, ..Settings::default() };
    let mut pair = Pair::new(only(Ccid::Tfrc), only(Ccid::TcpLike), ms(10));
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.run(secs(1));
    let Some(Close::Reset(reset)) = pair.closed(0) else { panic!("{:?}", pair.events) };
    assert_eq!((reset.code, reset.data), (ResetCode::MandatoryError, [32, 1, 3]));
    assert!(pair.a.is_empty() && pair.b.is_empty());
    assert_eq!(pair.closed(1), None, "the server's user never knew of it");
}

/// RFC 4340 sections 7.6, 7.7, 9.2, 9.3 and 12: every feature at once, in both directions.
#[test]
fn all_features_work_together() {
    for ccid in [Ccid::TcpLike, Ccid::Tfrc] {
        let all = Settings {
            ccid,
            short_seqnos: true,
            ndp_count: true,
            coverage: 3,
            min_coverage: 2,
            data_checksum: true,
            loss_event_rate: true,
            sequence_window: 400,
            ..Settings::default()
        };
        let mut pair = Pair::new(all, all, ms(10));
        pair.links[0].lose = 10;
        pair.links[1].lose = 10;
        let (a, b) = pair.open();
        let mut flows = [Flow::new(0, (a, b), 700), Flow::new(1, (b, a), 300)];
        drive(&mut pair, &mut flows, secs(20));
        for flow in &flows {
            assert!(flow.got.len() as u64 > flow.sent * 9 / 10, "{} {}", flow.got.len(), flow.sent);
            assert!(flow.got.len() > 500, "{ccid:?} {}", flow.got.len());
        }
        let line = pair.log.iter().rev().find(|line| line.contains(": Data")).unwrap();
        assert!(line.contains("cscov 3") && line.contains("DataChecksum"), "{line}");
        assert!(pair.log.iter().any(|line| line.contains("NdpCount")));
        let snapshot = pair.snapshot(0, a);
        assert!(snapshot.local_window >= 400 && snapshot.remote_window >= 400);
        assert_eq!((pair.closed(0), pair.closed(1)), (None, None));
    }
}

/// RFC 4340 section 9.3: corrupt data that the checksum does not cover are found by the CRC, and not
/// delivered.
#[test]
fn corrupt_data_are_not_delivered() {
    let all = Settings { coverage: 1, min_coverage: 1, data_checksum: true, ..Settings::default() };
    let mut pair = Pair::new(all, all, ms(10));
    let (a, b) = pair.open();
    pair.run(ms(100));
    pair.links[0].corrupt = 100;
    let mut flows = [Flow::new(0, (a, b), 1000).paced(ms(5))];
    drive(&mut pair, &mut flows, secs(20));
    let totals = pair.snapshot(1, b).totals;
    assert!(totals.corrupt > 100, "{totals:?}");
    assert!(flows[0].got.len() > 2000, "{}", flows[0].got.len());
    // RFC 4340 section 9.3: the corrupt packets were acknowledged, so they are no congestion.
    let lost = pair.snapshot(0, a).sender.lost;
    assert!(lost < 60, "{lost}");
}

/// RFC 4340 section 9.2.1: data with less coverage than agreed are dropped.
#[test]
fn partial_coverage_needs_the_receivers_consent() {
    let partial = Settings { coverage: 1, ..Settings::default() };
    let mut pair = Pair::new(partial, Settings::default(), ms(10));
    let (a, b) = pair.open();
    let mut flows = [Flow::new(0, (a, b), 100).paced(ms(10))];
    drive(&mut pair, &mut flows, secs(2));
    assert_eq!(pair.snapshot(1, b).totals.coverage, 0);
    assert!(!pair.log.iter().any(|line| line.contains("cscov")));
    assert!(flows[0].got.len() > 190);
}

/// RFC 4340 section 12.1: an endpoint that cannot read marks says so, and is sent none.
#[test]
fn ecn_incapable_endpoints_are_respected() {
    let blind = Settings { ecn: false, ..Settings::default() };
    for (a, b, ect) in [
        (Settings::default(), Settings::default(), [true, true]),
        (Settings::default(), blind, [false, false]),
    ] {
        let mut pair = Pair::new(a, b, ms(10));
        pair.capture = Some(Vec::new());
        let (a, b) = pair.open();
        pair.run(ms(100));
        pair.capture = Some(Vec::new());
        let mut flows =
            [Flow::new(0, (a, b), 100).paced(ms(10)), Flow::new(1, (b, a), 100).paced(ms(10))];
        drive(&mut pair, &mut flows, secs(1));
        for (_, flying) in pair.capture.as_ref().unwrap() {
            assert_eq!(flying.addressing.ecn.is_capable(), ect[usize::from(!flying.to_b)]);
        }
    }
}
