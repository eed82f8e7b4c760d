//! What a hostile peer or network can do.

use crate::support::*;
use proptest::prelude::*;
use ringway_dccp::seq::Seq;
use ringway_dccp::wire::{Carrier, DccpOption, Header, Kind, Reset};
use ringway_dccp::{Ccid, ConnId, Limits, ResetCode, SendOptions, Settings, State};
use ringway_sansio::{Addressing, Ecn, Endpoint};
use std::net::{IpAddr, SocketAddr};

fn opened(settings: Settings) -> (Pair, ConnId, ConnId) {
    let mut pair = Pair::new(settings, settings, ms(10));
    let (a, b) = pair.open();
    pair.b.send(pair.now, b, &b"up"[..], SendOptions::default()).unwrap();
    pair.run(secs(1));
    pair.a.recv(a).unwrap();
    (pair, a, b)
}

/// Passes a forged packet of `a` to `b`.
fn forge(pair: &mut Pair, a: ConnId, kind: Kind, numbers: (i64, i64), options: &[u8], data: &[u8]) {
    let (local, remote) = pair.a.addresses(a).unwrap();
    let snapshot = pair.snapshot(0, a);
    let step = |seq: Seq, by: i64| Seq::new(seq.raw().wrapping_add_signed(by));
    let header = Header {
        source: local.port(),
        destination: remote.port(),
        ccval: 0,
        coverage: 0,
        kind,
        long: true,
        seq: step(snapshot.gss, numbers.0),
        ack: step(snapshot.gsr, numbers.1),
    };
    let mut bytes = Vec::new();
    header.emit(Carrier::Ip(A, B), options, data, &mut bytes);
    pair.b.handle_packet(pair.now, Addressing::new(A, B, ringway_dccp::PROTOCOL), &bytes);
}

/// RFC 4340 section 7.5.5: an attacker who does not see the numbers changes nothing.
#[test]
fn packets_outside_the_windows_change_nothing() {
    let (mut pair, a, b) = opened(Settings::default());
    let before = pair.snapshot(1, b);
    let reset = Kind::Reset(Reset::new(ResetCode::Closed));
    for kind in
        [Kind::Data, Kind::Ack, Kind::DataAck, Kind::Close, reset, Kind::Sync, Kind::SyncAck]
    {
        // A Sync is protected by its Acknowledgement Number alone.
        let sync = matches!(kind, Kind::Sync | Kind::SyncAck);
        for numbers in [(1 << 30, 0), (-(1 << 30), 0), (1 << 46, 1 << 46)] {
            let numbers = if sync { (numbers.0, 1 << 20) } else { numbers };
            forge(&mut pair, a, kind, numbers, &[], b"evil");
        }
        if kind.has_ack() {
            forge(&mut pair, a, kind, (1, 1 << 20), &[], b"evil");
        }
    }
    pair.run(secs(2));
    let after = pair.snapshot(1, b);
    assert_eq!((after.state, after.receive_queue, after.sender), (State::Open, 0, before.sender));
    assert!(after.totals.out_of_window >= 20);
    assert!(after.totals.syncs <= 8, "{:?}", after.totals);
    pair.a.send(pair.now, a, &b"still"[..], SendOptions::default()).unwrap();
    pair.run(ms(100));
    assert_eq!(pair.b.recv(b).unwrap().as_deref(), Some(&b"still"[..]));
}

/// RFC 4340 section 8.5, step 7: packets that the state does not allow are answered by a Sync, and change
/// nothing.
#[test]
fn packets_of_another_state_change_nothing() {
    let (mut pair, a, b) = opened(Settings::default());
    let kinds = [Kind::Request(SERVICE), Kind::Response(SERVICE), Kind::CloseReq];
    for (ahead, kind) in (5..).zip(kinds) {
        forge(&mut pair, a, kind, (ahead, 0), &[], &[]);
    }
    let after = pair.snapshot(1, b);
    assert_eq!((after.state, after.totals.unexpected), (State::Open, 3));
}

/// RFC 4340 sections 5.8 and 5.8.2: malformed and mandatory unknown options reset, with their data.
#[test]
fn malformed_options_reset() {
    for (options, code, data) in [
        (vec![41, 3, 1, 0], ResetCode::OptionError, [41, 0, 0]),
        (vec![36, 90], ResetCode::OptionError, [36, 0, 0]),
        (vec![1, 99, 4, 7, 8], ResetCode::MandatoryError, [99, 7, 8]),
        (vec![1, 1, 2], ResetCode::OptionError, [1, 0, 0]),
        (vec![0, 0, 2, 1], ResetCode::OptionError, [1, 0, 0]),
        (vec![1, 32, 4, 60, 1], ResetCode::MandatoryError, [32, 60, 1]),
    ] {
        let (mut pair, a, _) = opened(Settings::default());
        forge(&mut pair, a, Kind::Ack, (1, 0), &options, &[]);
        pair.flush();
        let closed = pair.closed(1);
        let Some(ringway_dccp::Close::Violation(reset)) = closed else { panic!("{closed:?}") };
        assert_eq!((reset.code, reset.data), (code, data));
        assert_eq!(pair.count("Reset"), 1);
    }
    // Unknown options that are not mandatory are ignored, and on Data even mandatory ones.
    let (mut pair, a, _) = opened(Settings::default());
    forge(&mut pair, a, Kind::Ack, (1, 0), &[99, 4, 7, 8, 20], &[]);
    forge(&mut pair, a, Kind::Data, (2, 0), &[1, 99, 4, 7, 8, 0, 0, 0], b"data");
    pair.flush();
    assert_eq!(pair.closed(1), None);
}

/// Passes a packet without a connection to `b`.
fn pass(pair: &mut Pair, source: IpAddr, port: u16, kind: Kind) {
    let header = Header {
        source: port,
        destination: PORT,
        ccval: 0,
        coverage: 0,
        kind,
        long: true,
        seq: Seq::new(77),
        ack: Seq::new(88),
    };
    let mut bytes = Vec::new();
    header.emit(Carrier::Ip(source, B), &[], &[], &mut bytes);
    pair.b.handle_packet(pair.now, Addressing::new(source, B, ringway_dccp::PROTOCOL), &bytes);
}

/// Does the same, and returns the number of answers.
fn answers(pair: &mut Pair, source: IpAddr, port: u16, kind: Kind) -> usize {
    pass(pair, source, port, kind);
    let mut out = Vec::new();
    std::iter::from_fn(|| pair.b.poll_transmit(pair.now, &mut out)).count()
}

/// Returns the `n`th source of a flood.
fn flooder(n: u32) -> IpAddr {
    IpAddr::from((0x0b00_0000 + n).to_be_bytes())
}

/// RFC 4340 section 8.1.4: a flood of Requests keeps a bounded number of connections, and a client gets
/// through.
#[test]
fn a_flood_of_requests_keeps_nothing() {
    let limits = Limits { half_open: 16, cookies_per_second: 5000, ..Limits::default() };
    let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 3);
    pair.keep_log = false;
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    for n in 0..20_000 {
        answers(&mut pair, flooder(n), 9, Kind::Request(SERVICE));
    }
    let counters = pair.b.counters();
    assert_eq!((pair.b.len(), counters.cookies, counters.cookies_limited), (16, 5000, 14_984));
    pair.run(secs(1));
    let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.run(ms(100));
    assert!(pair.opened(0).contains(&a) && pair.opened(1).len() == 1);
    pair.run(secs(400));
    assert_eq!(pair.b.len(), 1, "half-open connections end");
}

/// RFC 4340 sections 8.1.3 and 8.1.4: while one source, or a few, flood with Requests and with packets of no
/// connection, the first packet of everybody else is answered.
#[test]
fn a_flood_of_one_source_delays_nobody_else() {
    for sources in [1, 5] {
        let limits = Limits { half_open: 0, ..Limits::default() };
        let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 3);
        pair.keep_log = false;
        pair.b.listen(server(), &[SERVICE], None).unwrap();
        let mut answered = [0; 2];
        for n in 0..60_000 {
            let (source, port) = (flooder(n % sources), (n / sources) as u16);
            answered[0] += answers(&mut pair, source, port, Kind::Request(SERVICE));
            answered[1] += answers(&mut pair, source, port, Kind::Sync);
        }
        let limits = [limits.cookies_per_second, limits.strays_per_second];
        for (answered, limit) in answered.into_iter().zip(limits) {
            assert!(answered * 5 <= limit as usize * 3, "{sources}: {answered} of {limit}");
        }
        for n in 0..100 {
            let source = IpAddr::from([12, 0, 0, n]);
            assert_eq!(answers(&mut pair, source, 9, Kind::Request(SERVICE)), 1, "{sources} {n}");
            assert_eq!(answers(&mut pair, source, 9, Kind::Sync), 1, "{sources} {n}");
        }
        let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
        pair.run(ms(100));
        assert!(pair.opened(0).contains(&a) && pair.opened(1).len() == 1);
        assert_eq!(pair.snapshot(0, a).totals.packets_sent, 2, "its first Request, and an Ack");
    }
}

/// One source cannot hold all half-open handshakes, whose peers need not know Init Cookies, nor all connections.
#[test]
fn one_source_holds_a_share_of_the_connections() {
    let limits = Limits { half_open: 100, connections: 500, ..Limits::default() };
    let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 3);
    pair.keep_log = false;
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    for port in 1..1000 {
        answers(&mut pair, flooder(0), port, Kind::Request(SERVICE));
    }
    assert_eq!((pair.b.len(), pair.b.counters().cookies), (20, 979));
    answers(&mut pair, flooder(1), 1, Kind::Request(SERVICE));
    assert_eq!((pair.b.len(), pair.b.counters().cookies), (21, 979));
    pair.links.iter_mut().for_each(|link| link.rate = None);
    let connect = |pair: &mut Pair| pair.a.connect(pair.now, client(), server(), SERVICE, None);
    let clients: Vec<ConnId> = (0..300).map(|_| connect(&mut pair).unwrap()).collect();
    pair.run(ms(100));
    // Those of the others are among the 500.
    assert_eq!(pair.opened(1).len(), 96);
    assert_eq!(pair.b.counters().connections_full, 204);
    assert_eq!(answers(&mut pair, flooder(2), 1, Kind::Request(SERVICE)), 1);
    assert_eq!(pair.b.len(), 21 + 96 + 1);
    for id in clients {
        let _ = pair.a.abort(pair.now, id);
    }
    pair.run(secs(400));
    assert!(pair.b.is_empty());
    for port in 1..10 {
        answers(&mut pair, flooder(0), port, Kind::Request(SERVICE));
    }
    assert_eq!(pair.b.len(), 9);
}

/// A flood of many sources is answered up to the limits, and keeps nothing.
#[test]
fn a_flood_of_many_sources_is_answered_up_to_the_limits() {
    let limits = Limits { half_open: 0, ..Limits::default() };
    let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 3);
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    for second in 1..=2 {
        for n in 0..30_000 {
            answers(&mut pair, flooder(n), 9, Kind::Request(SERVICE));
            answers(&mut pair, flooder(n), 9, Kind::Sync);
        }
        let counters = pair.b.counters();
        assert_eq!(
            (counters.cookies, counters.cookies_limited),
            (10_000 * second, 20_000 * second)
        );
        assert_eq!((counters.resets, counters.strays_limited), (1000 * second, 29_000 * second));
        assert!(pair.b.is_empty());
        pair.now += secs(1);
    }
    pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    pair.run(ms(100));
    assert_eq!(pair.opened(1).len(), 1);
}

/// RFC 4340 section 8.1.4: a cookie of other addresses, or none, opens nothing.
#[test]
fn a_stolen_cookie_is_refused() {
    let limits = Limits { half_open: 0, ..Limits::default() };
    let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 4);
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
    let mut stolen = None;
    pair.links[0].filter = Box::new(|flying| !is(flying, Kind::Ack));
    pair.capture = Some(Vec::new());
    pair.run(ms(50));
    for (_, flying) in pair.capture.take().unwrap() {
        if is(&flying, Kind::Ack) {
            stolen = Some(flying);
        }
    }
    let stolen = stolen.unwrap();
    let thief = IpAddr::from([10, 0, 0, 66]);
    let packet = stolen.packet();
    let mut options = Vec::new();
    packet.options().map_while(Result::ok).for_each(|option| option.emit(&mut options));
    let mut bytes = Vec::new();
    packet.header.emit(Carrier::Ip(thief, B), &options, &[], &mut bytes);
    pair.b.handle_packet(pair.now, Addressing::new(thief, B, ringway_dccp::PROTOCOL), &bytes);
    assert_eq!((pair.b.len(), pair.b.counters().cookies_refused), (0, 1));
    let mut out = Vec::new();
    pair.b.poll_transmit(pair.now, &mut out).unwrap();
    let answer = ringway_dccp::wire::Packet::parse(Carrier::Ip(B, thief), &out).unwrap();
    assert_eq!(answer.header.kind, Kind::Reset(Reset::new(ResetCode::BadInitCookie)));
    // The right one opens, at any later time within its life.
    pair.b.handle_packet(pair.now, stolen.addressing, &stolen.bytes);
    assert_eq!(pair.b.len(), 1);
}

/// RFC 4340 section 8.3.1: answers to strays are limited, and a Reset is never answered.
#[test]
fn strays_are_answered_within_a_limit() {
    let limits = Limits { strays_per_second: 10, ..Limits::default() };
    let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 4);
    for n in 0..100 {
        pass(&mut pair, flooder(n), 1, Kind::Reset(Reset::new(ResetCode::Closed)));
        pass(&mut pair, flooder(n), 1, Kind::Sync);
    }
    let counters = pair.b.counters();
    assert_eq!((counters.stray, counters.strays_limited, counters.resets), (200, 90, 10));
    let mut out = Vec::new();
    pair.b.poll_transmit(pair.now, &mut out).unwrap();
    let carrier = Carrier::Ip(B, flooder(0));
    let answer = ringway_dccp::wire::Packet::parse(carrier, &out).unwrap();
    assert_eq!(answer.to_string(), "5001 > 1: Reset 89 ack 77 NoConnection");
}

/// RFC 4340 section 8.3.1: the Reset for a packet with short numbers has zeros above their 24 bits.
#[test]
fn a_stray_with_short_numbers_is_answered_by_short_ones() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    let header = Header {
        source: 1,
        destination: 2,
        ccval: 0,
        coverage: 0,
        kind: Kind::Ack,
        long: false,
        seq: Seq::new(77),
        ack: Seq::new(0xff_ffff),
    };
    let mut bytes = Vec::new();
    header.emit(Carrier::Ip(A, B), &[], &[], &mut bytes);
    pair.b.handle_packet(pair.now, Addressing::new(A, B, ringway_dccp::PROTOCOL), &bytes);
    let mut out = Vec::new();
    pair.b.poll_transmit(pair.now, &mut out).unwrap();
    let answer = ringway_dccp::wire::Packet::parse(Carrier::Ip(B, A), &out).unwrap();
    assert_eq!(answer.to_string(), "2 > 1: Reset 0 ack 77 NoConnection");
}

/// Acknowledgements of packets that were never sent, or lies about marks and drops, keep the counts
/// right.
#[test]
fn false_acknowledgements_are_survived() {
    for ccid in [Ccid::TcpLike, Ccid::Tfrc] {
        let (mut pair, a, b) = opened(Settings { ccid, ..Settings::default() });
        for round in 0..200u8 {
            while pair.b.send(pair.now, b, vec![0; 100], SendOptions::default()).is_ok() {}
            let mut options = Vec::new();
            DccpOption::AckVector(&[round | 63, 0x7f, 0xff, round]).emit(&mut options);
            DccpOption::DataDropped(&[0xaf, 0xaf, round]).emit(&mut options);
            DccpOption::ReceiveRate(u32::MAX - u32::from(round)).emit(&mut options);
            DccpOption::LossIntervals(&[3, 0, 0, 0, 0, 0, 1, 0, 0, 0]).emit(&mut options);
            DccpOption::ElapsedTime(u32::MAX).emit(&mut options);
            forge(&mut pair, a, Kind::Ack, (i64::from(round) + 1, 0), &options, &[]);
            pair.run(ms(20));
        }
        let snapshot = pair.snapshot(1, b);
        assert_eq!(snapshot.state, State::Open, "{ccid:?}");
        assert!(snapshot.sender.pipe <= 8192 && snapshot.send_queue <= 64);
        assert!(snapshot.sender.rate.is_finite());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No bytes of the network make a host panic, stand still or grow.
    #[test]
    fn any_bytes_are_survived(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 1..20),
        ce in any::<bool>(), udp in any::<bool>(),
    ) {
        let (mut pair, _, b) = opened(Settings::default());
        for bytes in packets {
            let ecn = if ce { Ecn::Ce } else { Ecn::Ect0 };
            let udp_port = if udp { 5 } else { 0 };
            let way = Addressing { ecn, udp_port, ..Addressing::new(A, B, ringway_dccp::PROTOCOL) };
            pair.b.handle_packet(pair.now, way, &bytes);
            pair.run(ms(1));
        }
        prop_assert_eq!(pair.snapshot(1, b).state, State::Open);
    }

    /// Packets of a real exchange, altered and with a right checksum, at any time: no panic, no standing
    /// still, and within the limits.
    #[test]
    fn altered_packets_are_survived(
        seed in any::<u64>(), tfrc in any::<bool>(),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u8>()), 1..60),
    ) {
        let ccid = if tfrc { Ccid::Tfrc } else { Ccid::TcpLike };
        let all = Settings {
            ccid, short_seqnos: true, ndp_count: true, loss_event_rate: true, ..Settings::default()
        };
        let mut pair = Pair::with(Limits::default(), all, all, ms(5), seed % 1000);
        pair.keep_log = false;
        pair.capture = Some(Vec::new());
        pair.b.listen(server(), &[SERVICE], None).unwrap();
        let a = pair.a.connect(pair.now, client(), server(), SERVICE, None).unwrap();
        for (at, value, what) in changes {
            let _ = pair.a.send(pair.now, a, vec![value; 200], SendOptions::default());
            pair.run(ms(u64::from(what % 40)));
            let sent = pair.capture.as_ref().unwrap();
            let mut flying = sent[usize::from(at) % sent.len()].1.clone();
            let index = usize::from(at ^ u16::from(value)) % flying.bytes.len();
            flying.bytes[index] ^= value;
            // A right checksum over the altered bytes.
            if let Ok(packet) = ringway_dccp::wire::Packet::parse_unchecked(&flying.bytes) {
                let mut again = Vec::new();
                packet.header.emit(flying.carrier(), packet.option_bytes(), packet.data, &mut again);
                flying.bytes = again;
            }
            pair.launch(pair.now, flying);
            for id in pair.opened(1) {
                while pair.b.recv(id).is_ok_and(|message| message.is_some()) {}
            }
            prop_assert!(pair.a.len() <= 1 && pair.b.len() <= 2);
        }
        pair.run(secs(1000));
    }
}

/// A listener keeps to its address family and its limits.
#[test]
fn calls_are_checked() {
    let limits = Limits { connections: 1, listeners: 1, services: 2, ..Limits::default() };
    let mut pair = Pair::with(limits, Settings::default(), Settings::default(), ms(10), 4);
    let any = SocketAddr::from(([0, 0, 0, 0], PORT));
    assert!(pair.b.listen(any, &[], None).is_err());
    assert!(pair.b.listen(any, &[1, 2, 3], None).is_err());
    assert!(pair.b.listen(SocketAddr::from(([224, 0, 0, 1], 1)), &[1], None).is_err());
    let id = pair.b.listen(any, &[SERVICE], None).unwrap();
    assert!(pair.b.listen(any, &[SERVICE], None).is_err());
    assert!(pair.b.listen(server(), &[SERVICE], None).is_err());
    let v6 = SocketAddr::from(([1u16; 8], 5));
    assert!(pair.a.connect(pair.now, client(), v6, SERVICE, None).is_err());
    let (a, _) = pair.open();
    assert!(pair.a.connect(pair.now, client(), server(), SERVICE, None).is_err());
    pair.a.abort(pair.now, a).unwrap();
    assert!(pair.a.connect(pair.now, client(), server(), SERVICE, None).is_ok());
    pair.run(ms(100));
    assert_eq!(pair.opened(1).len(), 2);
    pair.b.unlisten(id).unwrap();
    assert!(pair.b.unlisten(id).is_err());
    assert!(pair.b.listen(server(), &[SERVICE], None).is_ok());
}
