//! Packets, time and calls, step by step, for the DCCP of a host: nothing a peer sends may panic, have it
//! send or wake for ever, or pass its limits, and in the end nothing is left.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_dccp::wire::{Carrier, Header, Kind, Packet, Reset, ResetCode};
use ringway_dccp::{
    Ccid, ConnId, Dccp, Event, Limits, PROTOCOL, SendOptions, Seq, Settings, WhenFull,
};
use ringway_sansio::{Addressing, Duration, Ecn, Endpoint, Icmp, SplitMix, Time};
use std::net::{IpAddr, SocketAddr};

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 80;

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

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (part, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        part
    }
}

/// What the peer would know: the numbers that the host used last.
struct Known {
    seq: Seq,
    ack: Seq,
    port: u16,
    cookie: Vec<u8>,
}

fn drain(host: &mut Dccp, now: Time, known: &mut Known) {
    let (mut out, mut count) = (Vec::new(), 0);
    while let Some(way) = host.poll_transmit(now, &mut out) {
        let carrier = match way.udp_port {
            0 => Carrier::Ip(way.source, way.destination),
            _ => Carrier::Udp,
        };
        let packet = Packet::parse(carrier, &out).expect("what is sent can be read");
        if packet.header.long {
            known.seq = packet.header.seq;
            known.ack = packet.ack().unwrap_or(known.ack);
        }
        known.port = packet.header.source;
        for option in packet.options() {
            let option = option.expect("options that are sent are well formed");
            if let ringway_dccp::wire::DccpOption::InitCookie(_) = option {
                known.cookie.clear();
                option.emit(&mut known.cookie);
            }
        }
        out.clear();
        count += 1;
        assert!(count < 100_000, "sends for ever");
    }
}

fn kind(input: &mut Input<'_>) -> Kind {
    match input.byte() % 10 {
        0 => Kind::Request(u32::from(input.byte() % 2)),
        1 => Kind::Response(u32::from(input.byte() % 2)),
        2 => Kind::Data,
        3 => Kind::Ack,
        4 => Kind::DataAck,
        5 => Kind::CloseReq,
        6 => Kind::Close,
        7 => Kind::Reset(Reset::new(ResetCode::from_u8(input.byte()))),
        8 => Kind::Sync,
        _ => Kind::SyncAck,
    }
}

fn forge(input: &mut Input<'_>, known: &Known) -> (Vec<u8>, u16) {
    // Mostly near the numbers that count.
    let near = |input: &mut Input<'_>, base: Seq| match input.byte() {
        byte @ 0..220 => base.plus(u64::from(byte % 8)),
        220..240 => base.minus(u64::from(input.word() % 5000)),
        _ => Seq::new(u64::from(input.word()) << 16),
    };
    let what = input.byte();
    let header = Header {
        source: 1 + u16::from(input.byte() % 2),
        destination: known.port,
        ccval: what & 15,
        coverage: if what & 16 != 0 { input.byte() & 3 } else { 0 },
        kind: kind(input),
        long: what & 32 == 0,
        seq: near(input, known.ack),
        ack: near(input, known.seq).minus(3),
    };
    let mut options = if what & 64 != 0 { known.cookie.clone() } else { Vec::new() };
    let length = usize::from(input.byte() % 80);
    options.extend_from_slice(input.take(length));
    let length = usize::from(input.byte());
    let data = input.take(length);
    let udp_port = if what & 128 != 0 { 6511 } else { 0 };
    let carrier = if udp_port == 0 { Carrier::Ip(B, A) } else { Carrier::Udp };
    let mut out = Vec::new();
    header.emit(carrier, &options, data, &mut out);
    (out, udp_port)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let choice = input.byte();
    let settings = Settings {
        ccid: if choice & 1 == 0 { Ccid::TcpLike } else { Ccid::Tfrc },
        short_seqnos: choice & 2 != 0,
        ndp_count: choice & 4 != 0,
        min_coverage: choice >> 3 & 1,
        loss_event_rate: choice & 16 != 0,
        data_checksum: choice & 32 != 0,
        send_queue: 8,
        receive_queue: 8,
        ..Settings::default()
    };
    let limits = Limits {
        connections: 16,
        half_open: usize::from(choice >> 6),
        time_wait: 2,
        ..Limits::default()
    };
    let random = Box::new(SplitMix::new(1));
    let mut host = Dccp::new(limits, settings, random).expect("settings are right");
    let listener = host.listen(SocketAddr::new(A, PORT), &[1], None).expect("a free port");
    let mut now = Time::from_secs(1000);
    let mut conns: Vec<ConnId> = Vec::new();
    let (seq, ack) = (Seq::default(), Seq::default());
    let mut known = Known { seq, ack, port: PORT, cookie: Vec::new() };
    for _ in 0..200 {
        if input.0.is_empty() {
            break;
        }
        let conn = conns.get(usize::from(input.byte()) % conns.len().max(1)).copied();
        match input.byte() % 12 {
            0 => {
                let remote = SocketAddr::new(B, 1 + u16::from(input.byte() % 2));
                conns.extend(host.connect(now, SocketAddr::new(A, 0), remote, 1, None));
            }
            1 => {
                now = now + Duration::from_millis(u64::from(input.word() % 400_000));
                let mut rounds = 0;
                while host.poll_timeout().is_some_and(|at| at <= now) {
                    host.handle_timeout(now);
                    drain(&mut host, now, &mut known);
                    rounds += 1;
                    assert!(rounds < 10_000, "wakes for ever");
                }
            }
            2 | 3 => {
                if let Some(conn) = conn {
                    let options = SendOptions {
                        when_full: WhenFull::DropOldest,
                        lifetime: (input.byte() & 1 == 0).then_some(Duration::from_secs(1)),
                    };
                    let data = vec![7; usize::from(input.byte()) * 5];
                    let _ = host.send(now, conn, data, options);
                }
            }
            4 => {
                if let Some(conn) = conn {
                    let _ = host.recv(conn);
                }
            }
            5 if input.byte() < 60 => {
                if let Some(conn) = conn {
                    let _ = host.close(now, conn);
                }
            }
            6 => {
                let (bytes, _) = forge(&mut input, &known);
                let icmp = match input.byte() % 3 {
                    0 => Icmp::TooBig(input.word()),
                    1 => Icmp::Unreachable,
                    _ => Icmp::ProtocolUnreachable,
                };
                host.handle_icmp(now, &Addressing::new(A, B, PROTOCOL), icmp, &bytes);
            }
            _ => {
                let (bytes, udp_port) = forge(&mut input, &known);
                let ecn = Ecn::from_bits(input.byte());
                let way = Addressing { ecn, udp_port, ..Addressing::new(B, A, PROTOCOL) };
                host.handle_packet(now, way, &bytes);
            }
        }
        drain(&mut host, now, &mut known);
        while let Some(event) = host.poll_event() {
            if let Event::Open { id, listener: Some(_) } = event {
                conns.push(id);
            }
        }
        assert!(host.len() <= 16 && host.time_wait() <= 2);
        for conn in &conns {
            if let Ok(snapshot) = host.snapshot(*conn) {
                assert!(snapshot.send_queue <= 8 && snapshot.receive_queue <= 8);
                assert!(snapshot.reported <= 4096);
                assert!(u64::from(snapshot.sender.pipe) <= snapshot.totals.messages_sent);
            }
        }
        if input.byte() == 255 {
            known.port = PORT;
        }
    }
    for conn in conns {
        let _ = host.abort(now, conn);
    }
    host.unlisten(listener).expect("it listens");
    drain(&mut host, now, &mut known);
    let mut rounds = 0;
    while host.poll_timeout().is_some() {
        now = now + Duration::from_secs(1000);
        host.handle_timeout(now);
        drain(&mut host, now, &mut known);
        while host.poll_event().is_some() {}
        rounds += 1;
        assert!(rounds < 100, "never ends");
    }
    assert_eq!((host.len(), host.time_wait()), (0, 0), "everything ends");
});
