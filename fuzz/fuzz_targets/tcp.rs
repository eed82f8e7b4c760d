//! Segments, time and calls, step by step, for the TCP of a host: nothing a peer sends may panic,
//! what is read came in order, and an aborted host holds nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_sansio::{Addressing, Duration, Ecn, Endpoint, SplitMix, Time};
use ringway_tcp::{
    ConnId, Event, Flags, Header, Limits, Options, PROTOCOL, Segment, Seq, Settings, Tcp,
    Timestamps,
};
use std::net::{IpAddr, SocketAddr};

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

/// Takes numbers from the input; 0 when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }
}

/// What the peer would know: the numbers that the host said last.
#[derive(Default)]
struct Known {
    seq: Seq,
    ack: Seq,
    port: u16,
    stamp: u32,
}

fn drain(host: &mut Tcp, now: Time, known: &mut Known) {
    let mut out = Vec::new();
    let mut count = 0;
    while let Some(addressing) = host.poll_transmit(now, &mut out) {
        let segment = Segment::parse(addressing.source, addressing.destination, &out)
            .expect("what is emitted can be parsed");
        let header = segment.header;
        known.seq = header.seq + segment.len();
        if header.flags.has(Flags::ACK) {
            known.ack = header.ack;
        }
        known.port = header.source;
        known.stamp = header.options.timestamps.map_or(0, |stamps| stamps.value);
        out.clear();
        count += 1;
        assert!(count < 100_000, "sends for ever");
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = Segment::parse(A, B, data);
    let _ = Options::parse(data.get(..40).unwrap_or(data));
    let mut input = Input(data);
    let choice = input.byte();
    let settings = Settings {
        sack: choice & 1 == 0,
        timestamps: choice & 2 != 0,
        ecn: choice & 4 != 0,
        nagle: choice & 8 == 0,
        receive_buffer: if choice & 16 == 0 { 4000 } else { 1 << 18 },
        mtu: if choice & 32 == 0 { 1500 } else { 200 },
        ..Settings::default()
    };
    let limits = Limits { connections: 8, half_open: 4, time_wait: 2, ..Limits::default() };
    let mut host = Tcp::new(limits, settings, &mut SplitMix::new(1)).expect("settings are right");
    let listener = host.listen(SocketAddr::new(A, 80), 2, None).expect("a free port");
    let mut now = Time::from_secs(1000);
    let mut conns: Vec<ConnId> = Vec::new();
    let mut known = Known { port: 80, ..Known::default() };
    let mut buffer = [0u8; 3000];
    for _ in 0..200 {
        if input.0.is_empty() {
            break;
        }
        let conn = conns.get(usize::from(input.byte()) % conns.len().max(1)).copied();
        match input.byte() % 10 {
            0 => {
                let remote = SocketAddr::new(B, 1 + u16::from(input.byte() % 2));
                if let Ok(conn) = host.connect(now, SocketAddr::new(A, 0), remote, None) {
                    conns.push(conn);
                }
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
            2 => {
                if let Some(conn) = conn {
                    let count = usize::from(input.byte()) * 10;
                    let _ = host.write(now, conn, &buffer[..count]);
                }
            }
            3 => {
                if let Some(conn) = conn {
                    let count = usize::from(input.byte()) * 10;
                    let _ = host.read(now, conn, &mut buffer[..count]);
                }
            }
            4 => {
                if let Some(conn) = conn {
                    let _ = host.shutdown(now, conn);
                }
            }
            5 if input.byte() < 40 => {
                if let Some(conn) = conn {
                    let _ = host.abort(now, conn);
                }
            }
            _ => {
                // Mostly near the numbers that count.
                let near = |input: &mut Input<'_>, base: Seq| match input.byte() {
                    byte @ 0..200 => base + u32::from(byte % 8) * 500,
                    200..240 => base.back(input.word() % 5000),
                    _ => Seq::new(input.word()),
                };
                let mut options = Options::default();
                let what = input.byte();
                if what & 1 != 0 {
                    options.timestamps =
                        Some(Timestamps { value: input.word() % 1000, echo: known.stamp });
                }
                options.sack_permitted = what & 2 != 0;
                options.mss = (what & 4 != 0).then(|| input.word() as u16);
                options.window_scale = (what & 8 != 0).then(|| input.byte() % 16);
                for _ in 0..what >> 6 {
                    let left = near(&mut input, known.seq);
                    let right = near(&mut input, left);
                    options.sack.push(left, right);
                }
                let header = Header {
                    source: 1 + u16::from(input.byte() % 2),
                    destination: known.port,
                    seq: near(&mut input, known.ack),
                    ack: near(&mut input, known.seq),
                    flags: Flags::from_bits(input.byte()),
                    window: input.word() as u16,
                    options,
                };
                let length = usize::from(input.byte()) * 6;
                let mut out = Vec::new();
                header.emit(B, A, &mut out, (&buffer[..length], &[]));
                let ecn = Ecn::from_bits(what >> 4);
                let addressing = Addressing { ecn, ..Addressing::new(B, A, PROTOCOL) };
                host.handle_packet(now, addressing, &out);
            }
        }
        drain(&mut host, now, &mut known);
        while let Some(event) = host.poll_event() {
            if let Event::Incoming(listener) = event {
                conns.extend(host.accept(listener));
            }
        }
        assert!(host.len().0 <= 8 && host.len().1 <= 2);
        if input.byte() == 255 {
            known.port = 80;
        }
    }
    for conn in conns {
        let _ = host.abort(now, conn);
    }
    host.unlisten(now, listener).expect("it listens");
    drain(&mut host, now, &mut known);
    now = now + Duration::from_secs(1_000_000);
    while host.poll_timeout().is_some() {
        host.handle_timeout(now);
        drain(&mut host, now, &mut known);
        now = now + Duration::from_secs(1000);
    }
    assert_eq!(host.len(), (0, 0), "everything ends");
});
