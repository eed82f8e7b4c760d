//! Connections open (RFC 4340 section 8.1).

use crate::support::*;
use ringway_dccp::wire::{Carrier, Header, Kind};
use ringway_dccp::{
    Close, ConnectError, Event, INVALID_SERVICE, Limits, ListenError, PROTOCOL, ResetCode,
    SendOptions, Seq, Settings, State,
};
use ringway_sansio::{Addressing, Endpoint, Icmp};
use std::net::SocketAddr;

/// RFC 4340 section 8.1: Request, Response, Ack, and then Data.
#[test]
fn three_packets_open_a_connection() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    let (a, b) = pair.open();
    assert_eq!(pair.snapshot(0, a).state, State::PartOpen);
    assert_eq!(pair.snapshot(1, b).state, State::Open);
    let rtts = [pair.snapshot(0, a).handshake_rtt, pair.snapshot(1, b).handshake_rtt];
    assert!(rtts.iter().flatten().all(|rtt| (ms(20)..ms(21)).contains(rtt)), "{rtts:?}");
    // The server's Ack ends PARTOPEN where it has no data.
    pair.run(ms(100));
    assert_eq!(pair.snapshot(0, a).state, State::Open);
    assert_eq!((pair.count("Request"), pair.count("Response"), pair.count("Ack")), (1, 1, 2));
    pair.b.send(pair.now, b, &b"data"[..], SendOptions::default()).unwrap();
    pair.run(ms(15));
    assert_eq!(pair.a.recv(a).unwrap().as_deref(), Some(&b"data"[..]));
    let addresses = pair.a.addresses(a).unwrap();
    assert_eq!((addresses.1, pair.b.addresses(b).unwrap().1), (server(), addresses.0));
}

/// RFC 4340 sections 8.1.1, 8.1.3 and 8.1.5: each packet of the handshake may be lost, several times.
#[test]
fn every_packet_of_the_handshake_may_be_lost() {
    for (link, kind) in [(0, "Request"), (1, "Response"), (0, "Ack")] {
        for count in [1, 3] {
            let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
            pair.links[link].filter = drop_kind(kind, 0..count);
            let (a, b) = pair.open();
            pair.run(secs(3));
            assert_eq!(pair.snapshot(1, b).state, State::Open, "{kind}");
            assert!(pair.count(kind) > count, "{kind}");
            let mut flows = [Flow::new(0, (a, b), 500).paced(ms(20))];
            drive(&mut pair, &mut flows, secs(2));
            assert!(flows[0].got.len() > 90, "{kind} {count}: {}", flows[0].got.len());
            assert_eq!(pair.snapshot(0, a).state, State::Open, "{kind}");
        }
    }
}

/// RFC 4340 section 8.1.5: a connection without data stays open, also where the server's Acks are lost.
#[test]
fn an_idle_connection_stays_open() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    pair.links[1].filter = drop_kind("Ack", 0..3);
    let (a, b) = pair.open();
    pair.run(secs(3600));
    assert_eq!((pair.snapshot(0, a).state, pair.snapshot(1, b).state), (State::Open, State::Open));
    assert_eq!((pair.count("Ack"), pair.next()), (8, None), "{:#?}", pair.log);
}

/// RFC 4340 section 8.1.5: the client's first data may be the end of the handshake, and in PARTOPEN all
/// of its packets acknowledge.
#[test]
fn data_in_part_open_acknowledge() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.a.send(pair.now, a, &b"first"[..], SendOptions::default()).unwrap();
    pair.links[0].filter = drop_kind("Ack", 0..9);
    pair.run(ms(100));
    assert_eq!((pair.count("DataAck"), pair.count("Data")), (1, 0), "{:#?}", pair.log);
    let b = pair.opened(1)[0];
    assert_eq!(pair.b.recv(b).unwrap().as_deref(), Some(&b"first"[..]));
}

/// RFC 4340 section 8.1.2: a service that the port does not have.
#[test]
fn a_wrong_service_is_refused() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    pair.b.listen(server(), &[1, 2], None).unwrap();
    pair.a.connect(pair.now, client(), server(), 3, None).unwrap();
    pair.run(ms(100));
    let Some(Close::Reset(reset)) = pair.closed(0) else { panic!("{:?}", pair.events) };
    assert_eq!(reset.code, ResetCode::BadServiceCode);
    assert_eq!((pair.b.counters().wrong_service, pair.b.len()), (1, 0));
    let second = pair.a.connect(pair.now, client(), server(), 2, None).unwrap();
    pair.run(ms(100));
    assert!(pair.opened(0).contains(&second));
}

/// RFC 4340 section 8.5, step 2: nobody listens.
#[test]
fn a_port_without_listener_resets() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.run(ms(100));
    let Some(Close::Reset(reset)) = pair.closed(0) else { panic!("{:?}", pair.events) };
    assert_eq!(reset.code, ResetCode::NoConnection);
    assert_eq!((pair.b.counters().stray, pair.a.len()), (1, 0));
}

/// RFC 4340 section 8.1.1: a Request is sent again, ever less often, and in the end nobody is there.
#[test]
fn a_handshake_ends_without_an_answer() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    pair.links[0].filter = Box::new(|_| false);
    pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.run(secs(200));
    assert_eq!(pair.closed(0), Some(Close::HandshakeTimeout));
    // At 0, 1, 3, 7, 15, 31, 63 and 127 seconds.
    assert_eq!(pair.count("Request"), 8);
    assert!(pair.log.last().unwrap().ends_with(" ack 0 Aborted"), "{:?}", pair.log.last());
    assert_eq!((pair.a.len(), pair.next()), (0, None));
}

/// RFC 4340 section 8.1.1: a client that gives up its Request cleans up at the server, which asks by a Sync whether that is
/// true.
#[test]
fn a_request_that_is_given_up_leaves_nothing() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    pair.links[1].filter = drop_kind("Response", 0..9);
    let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.run(ms(100));
    assert_eq!((pair.a.len(), pair.b.len()), (1, 1));
    pair.a.close(pair.now, a).unwrap();
    pair.run(ms(100));
    assert_eq!((pair.a.len(), pair.b.len()), (0, 0), "{:#?}", pair.log);
    assert_eq!((pair.count("Reset"), pair.count("Sync")), (2, 1));
    // Before the first Request there is nothing to clean up.
    let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.a.abort(pair.now, a).unwrap();
    pair.run(ms(100));
    assert_eq!(pair.count("Reset"), 2);
}

/// RFC 4340 section 8.1.2: a code that no service has is used by nobody.
#[test]
fn the_invalid_service_code_is_refused() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    let refused = pair.b.listen(server(), &[1, INVALID_SERVICE], None);
    assert_eq!(refused, Err(ListenError::InvalidService));
    let refused = pair.a.connect(pair.now, client(), server(), INVALID_SERVICE, None);
    assert_eq!(refused, Err(ConnectError::InvalidService));
}

/// RFC 4340 section 8.1.4: beyond the limit of half-open connections nothing is kept, and the handshake
/// works nevertheless, with loss of each packet.
#[test]
fn an_init_cookie_replaces_the_state() {
    let limits = Limits { half_open: 0, ..Limits::default() };
    for (link, kind) in [(0, "none"), (0, "Request"), (1, "Response"), (0, "Ack")] {
        let tfrc = Settings {
            ccid: ringway_dccp::Ccid::Tfrc,
            sequence_window: 500,
            ..Settings::default()
        };
        let mut pair = Pair::with(limits, tfrc, tfrc, ms(10), 5);
        pair.links[link].filter = drop_kind(kind, 0..2);
        pair.b.listen(server(), &[SERVICE], None).unwrap();
        let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
        pair.run(ms(15));
        assert!(pair.b.is_empty(), "nothing is kept");
        pair.run(secs(5));
        assert!(pair.b.counters().cookies >= 1);
        assert_eq!((pair.b.counters().cookies_refused, pair.closed(0)), (0, None), "{kind}");
        let b = pair.opened(1)[0];
        assert_eq!(pair.opened(1).len(), 1);
        let snapshot = pair.snapshot(1, b);
        assert_eq!(snapshot.sender_ccid, ringway_dccp::Ccid::Tfrc);
        assert_eq!(snapshot.remote_window, 500);
        let mut flows =
            [Flow::new(0, (a, b), 500).paced(ms(50)), Flow::new(1, (b, a), 500).paced(ms(50))];
        drive(&mut pair, &mut flows, secs(5));
        assert!(flows.iter().all(|flow| flow.got.len() > 70), "{kind}: {:?}", flows[0].got.len());
        assert_eq!(pair.snapshot(0, a).state, State::Open);
    }
}

/// RFC 1122 section 3.2.2.1: an ICMP message ends a handshake only if it quotes our Request.
#[test]
fn unreachable_ends_a_handshake() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    let mut bytes = Vec::new();
    let way = pair.a.poll_transmit(pair.now, &mut bytes).unwrap();
    let mut forged = bytes.clone();
    forged[12] ^= 1;
    pair.a.handle_icmp(pair.now, &way, Icmp::Unreachable, &forged);
    pair.a.handle_icmp(pair.now, &way, Icmp::Unreachable, &bytes[..8]);
    assert_eq!((pair.a.counters().icmp_refused, pair.a.poll_event()), (2, None));
    pair.a.handle_icmp(pair.now, &way, Icmp::Unreachable, &bytes);
    assert_eq!(pair.a.poll_event(), Some(Event::Closed(a, Close::Unreachable)));
}

/// RFC 4340 section 14: the maximum message length falls with the path's MTU.
#[test]
fn too_big_lowers_the_maximum_message() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    pair.capture = Some(Vec::new());
    let (a, _) = pair.open();
    let before = pair.snapshot(0, a).max_message;
    let last = pair.capture.as_ref().unwrap().iter().rev().find(|(_, f)| f.to_b).unwrap().1.clone();
    pair.a.handle_icmp(pair.now, &last.addressing, Icmp::TooBig(1280), &last.bytes);
    assert_eq!(pair.snapshot(0, a).max_message, before - 220);
    let long = pair.a.send(pair.now, a, vec![0; before], SendOptions::default());
    assert!(long.is_err());
}

/// RFC 4340 section 9.1: addresses of IPv6, which the checksum covers.
#[test]
fn a_connection_over_ipv6_carries_data() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    let address = |last| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], PORT));
    let any = SocketAddr::from(([0u16; 8], PORT));
    pair.b.listen(any, &[SERVICE], None).unwrap();
    let a = pair.a.connect(pair.now, address(1), address(2), SERVICE, None).unwrap();
    pair.a.send(pair.now, a, &b"six"[..], SendOptions::default()).unwrap();
    pair.run(secs(1));
    let b = pair.opened(1)[0];
    assert_eq!(pair.b.recv(b).unwrap().as_deref(), Some(&b"six"[..]));
    assert_eq!(pair.snapshot(0, a).max_message, 1500 - 40 - 24 - 32);
    assert_eq!(pair.b.counters().checksum, 0);
}

/// RFC 4340 section 8.5, step 4: what is neither Response nor Reset is answered with Packet Error, and the
/// handshake goes on.
#[test]
fn an_unexpected_packet_is_answered_with_packet_error() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.flush();
    let (local, _) = pair.a.addresses(a).unwrap();
    let header = Header {
        source: PORT,
        destination: local.port(),
        ccval: 0,
        coverage: 0,
        kind: Kind::DataAck,
        long: true,
        seq: Seq::new(5),
        ack: pair.snapshot(0, a).gss,
    };
    let mut bytes = Vec::new();
    header.emit(Carrier::Ip(B, A), &[], b"early", &mut bytes);
    pair.log.clear();
    pair.a.handle_packet(pair.now, Addressing::new(B, A, PROTOCOL), &bytes);
    pair.flush();
    assert!(
        pair.log[0].contains("Reset") && pair.log[0].ends_with("PacketError"),
        "{:?}",
        pair.log
    );
    let state = pair.snapshot(0, a);
    assert_eq!((state.state, state.totals.unexpected), (State::Request, 1));
}

/// RFC 4340 sections 8.1.3 and 11.7: data on a Request are not delivered, which the Response says.
#[test]
fn data_on_a_request_are_reported_as_dropped() {
    for half_open in [0, 8] {
        let limits = Limits { half_open, ..Limits::default() };
        let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 1);
        pair.b.listen(server(), &[SERVICE], None).unwrap();
        let bytes = request(&[], b"early");
        pair.b.handle_packet(pair.now, Addressing::new(A, B, PROTOCOL), &bytes);
        pair.flush();
        let response = &pair.log[0];
        assert!(response.contains("Response") && response.contains("DataDropped([128])"));
    }
}

/// RFC 4340 section 8.1.3: a server that can keep no more connections is too busy.
#[test]
fn a_full_server_is_too_busy() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 1);
    pair.a = host(1, Limits::default(), Settings::default());
    pair.open();
    pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.run(ms(100));
    let Some(Close::Reset(reset)) = pair.closed(0) else { panic!("{:?}", pair.events) };
    assert_eq!(reset.code, ResetCode::TooBusy);
    assert_eq!(pair.b.counters().connections_full, 1);
}
