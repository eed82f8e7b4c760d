//! Packets, time and calls, step by step, for the SCTP of a host: nothing a peer sends may panic,
//! nothing is sent or woken for ever, what is held stays bounded, and an aborted host holds nothing.
#![no_main]

use hmac::{Hmac, KeyInit, Mac};
use libfuzzer_sys::fuzz_target;
use ringway_sansio::{Addressing, Duration, Ecn, Endpoint, Icmp, SplitMix, Time};
use ringway_sctp::wire::asconf::AddressChange;
use ringway_sctp::wire::chunk::{self, Chunk, kind};
use ringway_sctp::wire::reconfig::{Reconfig, Streams};
use ringway_sctp::wire::{AuthParameters, Init, InitParameters, Packet, Parameter, Writer};
use ringway_sctp::{
    Algorithm, AssocId, Event, Limits, Multipath, PROTOCOL, Reliability, Reset, Scheduling, Sctp,
    SendOptions, Settings, Tsn,
};
use sha2::Sha256;
use std::net::IpAddr;

const HERE: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1)),
];
const THERE: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 2)),
];
const PORT: u16 = 5060;
const EXTENSIONS: [u8; 7] = [
    kind::FORWARD_TSN,
    kind::RE_CONFIG,
    kind::AUTH,
    kind::ASCONF,
    kind::ASCONF_ACK,
    kind::I_DATA,
    kind::I_FORWARD_TSN,
];
const BUFFER: usize = 5000;

/// Takes numbers from the input; 0 when it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        first
    }
}

/// What the peer would know: what the host said last.
struct Known {
    tag: u32,
    port: u16,
    tsn: Tsn,
    acked: Tsn,
    cookie: Vec<u8>,
    beat: Vec<u8>,
    /// Our key vector and the host's.
    keys: [Vec<u8>; 2],
    /// The last number of a request that the host made.
    asked: u32,
}

fn drain(host: &mut Sctp, now: Time, known: &mut Known) {
    let mut out = Vec::new();
    let mut count = 0;
    while host.poll_transmit(now, &mut out).is_some() {
        let packet = Packet::parse(&out).expect("what is sent can be parsed");
        known.port = packet.source;
        for raw in packet.chunks() {
            match raw.expect("whole chunks").parse().expect("right chunks") {
                Chunk::Init(init) | Chunk::InitAck(init) => {
                    known.tag = init.initiate_tag;
                    known.tsn = init.initial_tsn;
                    let parameters = InitParameters::read(&init, true).expect("parameters");
                    known.cookie = parameters.cookie.unwrap_or_default();
                    if let Some(auth) = parameters.auth {
                        known.keys[1] = auth.key_vector();
                    }
                }
                Chunk::Data(data) => known.tsn = data.tsn,
                Chunk::IData(data) => known.tsn = data.tsn,
                Chunk::Asconf(serial, _) => known.asked = serial,
                Chunk::Sack(sack) => known.acked = sack.cumulative_tsn_ack,
                Chunk::Heartbeat(value) => known.beat = value.to_vec(),
                _ => {}
            }
        }
        out.clear();
        count += 1;
        assert!(count < 100_000, "sends for ever");
    }
}

fn auth() -> AuthParameters {
    let chunks = Some(vec![kind::ASCONF, kind::ASCONF_ACK]);
    AuthParameters { random: vec![9; 32], chunks, hmacs: vec![3, 1] }
}

/// An AUTH chunk for what follows it (RFC 4895 section 6).
fn sealed(known: &Known, chunks: &[u8]) -> Vec<u8> {
    let mut keys = known.keys.clone();
    keys.sort_by_key(|key| (key.len(), key.clone()));
    let mut out = Vec::new();
    chunk::put(&mut out, kind::AUTH, 0, &[&[0, 0, 0, 3], &[0; 32]]);
    out.extend_from_slice(chunks);
    let mut mac = Hmac::<Sha256>::new_from_slice(&keys.concat()).expect("any key");
    mac.update(&out);
    let made = mac.finalize().into_bytes();
    out[8..40].copy_from_slice(&made);
    out
}

fn give(host: &mut Sctp, now: Time, input: &mut Input<'_>, known: &Known, chunks: &[u8]) {
    let what = input.byte();
    let tag = match what % 8 {
        0 => 0,
        1 => 77,
        _ => known.tag,
    };
    let mut out = Vec::new();
    let mut packet = Writer::new(&mut out, 65_535, PORT, known.port, tag);
    packet.chunks().extend_from_slice(chunks);
    packet.finish();
    let (source, destination) =
        (THERE[usize::from(what >> 3 & 1)], HERE[usize::from(what >> 4 & 1)]);
    let addressing = Addressing {
        ecn: Ecn::from_bits(what >> 5),
        udp_port: if what & 0x80 == 0 { 0 } else { 9899 },
        ..Addressing::new(source, destination, PROTOCOL)
    };
    host.handle_packet(now, addressing, &out);
}

fuzz_target!(|data: &[u8]| {
    if let Ok(packet) = Packet::parse_unchecked(data) {
        for raw in packet.chunks().flatten() {
            if let Ok(chunk) = raw.parse() {
                chunk.probe();
            }
        }
    }
    let mut input = Input(data);
    let choice = input.byte();
    let more = input.byte();
    let settings = Settings {
        receive_buffer: BUFFER,
        send_buffer: 20_000,
        mtu: if choice & 1 == 0 { 1500 } else { 512 },
        scheduling: match choice >> 5 {
            0 => Scheduling::RoundRobin,
            1 => Scheduling::PacketRoundRobin,
            2 => Scheduling::Priority,
            3 => Scheduling::WeightedFair,
            _ => Scheduling::Fcfs,
        },
        algorithm: if choice & 2 == 0 { Algorithm::Rfc9260 } else { Algorithm::Cubic },
        interleaving: more & 1 != 0,
        dynamic_addresses: more & 2 != 0,
        ecn: more & 4 != 0,
        rack: more & 8 != 0,
        largest_mtu: (more & 16 != 0).then_some(9000),
        multipath: match more >> 5 & 3 {
            0 => Multipath::Independent,
            1 => Multipath::Pooled,
            _ => Multipath::Off,
        },
        return_undelivered: more & 128 != 0,
        potentially_failed: (choice & 4 == 0).then_some(0),
        ..Settings::default()
    };
    let limits = Limits { associations: 4, inits_per_second: 1000, ..Limits::default() };
    let random = Box::new(SplitMix::new(1));
    let mut host = Sctp::new(limits, settings, random).expect("settings are right");
    let count = 1 + usize::from(choice >> 3 & 1);
    host.listen(&HERE[..count], PORT, None).expect("a free port");
    let mut now = Time::from_secs(1000);
    let mut ids: Vec<AssocId> = Vec::new();
    let mut known = Known {
        tag: 0,
        port: PORT,
        tsn: Tsn::new(0),
        acked: Tsn::new(0),
        cookie: Vec::new(),
        beat: Vec::new(),
        keys: [auth().key_vector(), Vec::new()],
        asked: 0,
    };
    let mut buffer = Vec::new();
    for _ in 0..200 {
        if input.0.is_empty() {
            break;
        }
        let id = ids.get(usize::from(input.byte()) % ids.len().max(1)).copied();
        match (input.byte() % 18, id) {
            (0, _) => {
                let port = 7000 + u16::from(input.byte() % 2);
                if let Ok(id) = host.connect(now, &HERE[..count], port, &THERE[..1], PORT, None) {
                    ids.push(id);
                }
            }
            (1, _) => {
                now = now + Duration::from_millis(u64::from(input.word() % 100_000));
                let mut rounds = 0;
                while host.poll_timeout().is_some_and(|at| at <= now) {
                    host.handle_timeout(now);
                    drain(&mut host, now, &mut known);
                    rounds += 1;
                    assert!(rounds < 100_000, "wakes for ever");
                }
            }
            (2, Some(id)) => {
                let what = input.byte();
                let options = SendOptions {
                    stream: u16::from(what % 4),
                    unordered: what & 8 != 0,
                    reliability: match what >> 4 & 3 {
                        0 => Reliability::Lifetime(Duration::from_millis(500)),
                        1 => Reliability::Retransmits(what >> 6),
                        _ => Reliability::Full,
                    },
                    ..SendOptions::default()
                };
                let _ = host.send(now, id, &options, vec![1; usize::from(input.byte()) * 30]);
            }
            (3, Some(id)) => {
                buffer.clear();
                let _ = host.recv(id, &mut buffer);
            }
            (4, Some(id)) => {
                let _ = host.shutdown(now, id);
            }
            (5, Some(id)) if input.byte() < 20 => {
                let _ = host.abort(id, b"over");
            }
            (14, Some(id)) => {
                let list = [u16::from(input.byte() % 5)];
                let _ = match input.byte() % 7 {
                    0 => host.reset_streams(id, Reset::Outgoing(&list)).is_ok(),
                    1 => host.reset_streams(id, Reset::Incoming(&[])).is_ok(),
                    2 => host.reset_streams(id, Reset::Everything).is_ok(),
                    3 => host.add_streams(id, 1, 2).is_ok(),
                    4 => host.add_address(now, id, HERE[1]).is_ok(),
                    5 => host.delete_address(now, id, HERE[0]).is_ok(),
                    _ => host.set_stream_value(id, list[0], 3).is_ok(),
                };
            }
            (15, _) => {
                let mut value = Vec::new();
                for _ in 0..1 + input.byte() % 2 {
                    let near = |base: Tsn, by: u8| base.plus(u32::from(by % 8)).minus(3);
                    let request = near(known.acked, input.byte()).raw();
                    let response = near(known.tsn, input.byte()).raw();
                    let bytes = input.bytes(usize::from(known.tsn.raw() as u8 & 6)).to_vec();
                    let streams = Streams::new(&bytes);
                    match input.byte() % 6 {
                        0 => Reconfig::OutgoingReset {
                            request,
                            response,
                            last_tsn: near(known.acked, input.byte()),
                            streams,
                        },
                        1 => Reconfig::IncomingReset { request, streams },
                        2 => Reconfig::TsnReset { request },
                        3 => Reconfig::Response {
                            response,
                            result: u32::from(input.byte() % 8),
                            next: (input.byte() & 1 != 0).then_some((known.acked, known.tsn)),
                        },
                        4 => Reconfig::AddOutgoing { request, count: u16::from(input.byte()) },
                        _ => Reconfig::AddIncoming { request, count: u16::from(input.byte()) },
                    }
                    .emit(&mut value);
                }
                let mut chunks = Vec::new();
                Chunk::ReConfig(&value).emit(&mut chunks);
                give(&mut host, now, &mut input, &known, &chunks);
            }
            (16, _) => {
                let mut value = Vec::new();
                Parameter::Address(THERE[usize::from(input.byte() & 1)]).emit(&mut value);
                for n in 0..u32::from(input.byte() % 4) {
                    let address = match input.byte() % 4 {
                        0 => IpAddr::from([0, 0, 0, 0]),
                        1 => THERE[0],
                        2 => THERE[1],
                        _ => IpAddr::from([10, 0, 2, input.byte()]),
                    };
                    match input.byte() % 3 {
                        0 => AddressChange::Add(address),
                        1 => AddressChange::Delete(address),
                        _ => AddressChange::Primary(address),
                    }
                    .emit(n, &mut value);
                }
                let mut chunks = Vec::new();
                if input.byte() & 1 == 0 {
                    let serial = known.acked.plus(u32::from(input.byte() % 4)).minus(1);
                    Chunk::Asconf(serial.raw(), &value).emit(&mut chunks);
                } else {
                    Chunk::AsconfAck(known.asked, &value).emit(&mut chunks);
                }
                let chunks = sealed(&known, &chunks);
                give(&mut host, now, &mut input, &known, &chunks);
            }
            (17, _) => {
                let way = Addressing::new(HERE[0], THERE[0], PROTOCOL);
                let icmp = match input.byte() % 3 {
                    0 => Icmp::ProtocolUnreachable,
                    1 => Icmp::Unreachable,
                    _ => Icmp::TooBig(input.word() % 10_000),
                };
                let mut quoted = known.port.to_be_bytes().to_vec();
                quoted.extend_from_slice(&PORT.to_be_bytes());
                quoted.extend_from_slice(&(input.word() % 4).to_be_bytes());
                host.handle_icmp(now, &way, icmp, &quoted);
            }
            (6, _) => {
                let fixed = Init::fixed(input.word() % 3 + 1, 9000, (4, 4), known.acked.plus(1));
                let several = input.byte() & 1 != 0;
                let addresses = if several { THERE.to_vec() } else { Vec::new() };
                let parameters = InitParameters {
                    addresses,
                    forward_tsn: choice & 16 == 0,
                    extensions: EXTENSIONS.to_vec(),
                    ecn: true,
                    auth: Some(auth()),
                    cookie: (input.byte() & 1 != 0).then(|| known.cookie.clone()),
                    ..InitParameters::default()
                };
                let mut chunks = Vec::new();
                let which = if input.byte() & 1 == 0 { kind::INIT } else { kind::INIT_ACK };
                parameters.emit(&mut chunks, which, &fixed);
                give(&mut host, now, &mut input, &known, &chunks);
            }
            (7, _) => {
                let mut chunks = Vec::new();
                Chunk::CookieEcho(&known.cookie).emit(&mut chunks);
                give(&mut host, now, &mut input, &known, &chunks);
            }
            (8, _) => {
                let mut chunks = Vec::new();
                Chunk::HeartbeatAck(&known.beat).emit(&mut chunks);
                give(&mut host, now, &mut input, &known, &chunks);
            }
            _ => {
                let mut chunks = Vec::new();
                for _ in 0..1 + input.byte() % 3 {
                    let which = match input.byte() {
                        byte @ 0..180 => byte % 16,
                        180..210 => kind::I_DATA,
                        210..225 => kind::I_FORWARD_TSN,
                        225..240 => kind::FORWARD_TSN,
                        byte => byte.wrapping_mul(17),
                    };
                    let flags = input.byte();
                    let length = usize::from(input.byte() % 40);
                    let mut value = input.bytes(length).to_vec();
                    // Mostly near the numbers that count.
                    let near = input.byte();
                    if near < 220 && value.len() >= 4 {
                        let data =
                            [kind::DATA, kind::I_DATA, kind::FORWARD_TSN, kind::I_FORWARD_TSN]
                                .contains(&which);
                        let base = if data { known.acked } else { known.tsn };
                        let tsn = base.plus(u32::from(near % 16)).minus(3);
                        value[..4].copy_from_slice(&tsn.raw().to_be_bytes());
                    }
                    chunk::put(&mut chunks, which, flags, &[&value]);
                }
                give(&mut host, now, &mut input, &known, &chunks);
            }
        }
        drain(&mut host, now, &mut known);
        while let Some(event) = host.poll_event() {
            if let Event::Up { id, .. } = event
                && !ids.contains(&id)
            {
                ids.push(id);
            }
        }
        for &id in &ids {
            if let Ok(snapshot) = host.snapshot(id) {
                assert!(snapshot.unread <= 2 * BUFFER, "holds too much");
                let flight: u32 = snapshot.paths.iter().map(|path| path.flight).sum();
                assert!(flight < 100_000 && snapshot.outstanding <= flight, "counts wrong");
            }
        }
    }
    for id in ids {
        let _ = host.abort(id, b"");
    }
    drain(&mut host, now, &mut known);
    while host.poll_event().is_some() {}
    assert!(host.is_empty(), "holds what is over");
    assert_eq!(host.poll_timeout(), None);
});
