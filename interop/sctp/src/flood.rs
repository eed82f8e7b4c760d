//! A flood of forged packets against one host, in virtual time.
//!
//! One association is established. Then COUNT INITs come from forged sources, each answered and none
//! stored; COUNT forged cookies; and COUNT packets with the peer's addresses, with DATA, SACK,
//! SHUTDOWN, ABORT, ASCONF and RE-CONFIG but without its tag. After each kind it prints the growth of
//! the process's memory, and shows that the association still works. It fails when anything was stored
//! or accepted.

#![allow(clippy::expect_used)]

use crate::say;
use ringway_sansio::{Addressing, Endpoint, Random, SplitMix, Time};
use ringway_sctp::wire::chunk::{self, Chunk, kind};
use ringway_sctp::wire::{Init, InitParameters, Writer};
use ringway_sctp::{AssocId, Event, Limits, PROTOCOL, Sctp, SendOptions, Settings, Tsn};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 5060;
const PEER_PORT: u16 = 40_000;
/// Growth of the process's memory that is not state of the protocol: page tables, the allocator's slack.
const SLACK: u64 = 256 << 10;

/// Bytes of memory that the process uses.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.as_deref().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.expect("Linux has statm") * 4096
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Packets of each kind
    #[arg(default_value_t = 1_000_000)]
    count: u64,
}

struct World {
    now: Time,
    random: SplitMix,
    a: Sctp,
    b: Sctp,
    from: AssocId,
    to: AssocId,
    buffer: Vec<u8>,
    messages: u32,
}

impl World {
    fn new() -> World {
        // No limit on INITs: each is answered, which costs more than anything else that strangers can send.
        let limits = Limits { inits_per_second: u32::MAX, ..Limits::default() };
        let settings = Settings { heartbeat_interval: None, ..Settings::default() };
        let host = |seed| Sctp::new(limits, settings, Box::new(SplitMix::new(seed))).expect("good");
        let (mut a, mut b, now) = (host(1), host(2), Time::from_secs(1000));
        b.listen(&[B], PORT, None).expect("free");
        let from = a.connect(now, &[A], PEER_PORT, &[B], PORT, None).expect("room");
        let mut world = World {
            now,
            random: SplitMix::new(3),
            a,
            b,
            from,
            to: from,
            buffer: Vec::with_capacity(2048),
            messages: 0,
        };
        world.settle();
        let up = core::iter::from_fn(|| world.b.poll_event()).find_map(|event| match event {
            Event::Up { id, .. } => Some(id),
            _ => None,
        });
        world.to = up.expect("an association");
        world
    }

    fn settle(&mut self) {
        let World { now, a, b, buffer, .. } = self;
        loop {
            let mut quiet = true;
            while let Some(way) = a.poll_transmit(*now, buffer) {
                b.handle_packet(*now, way, buffer);
                buffer.clear();
                quiet = false;
            }
            while let Some(way) = b.poll_transmit(*now, buffer) {
                a.handle_packet(*now, way, buffer);
                buffer.clear();
                quiet = false;
            }
            if quiet {
                return;
            }
        }
    }

    /// Sends a message each way. Returns whether both arrived and there is one association.
    fn works(&mut self) -> bool {
        let (options, text) = (SendOptions::default(), vec![1, 2, 3]);
        let sent = self.a.send(self.now, self.from, &options, text.clone()).is_ok()
            && self.b.send(self.now, self.to, &options, text.clone()).is_ok();
        self.settle();
        self.messages += 2;
        let mut out = Vec::new();
        let there = self.b.recv(self.to, &mut out).is_ok_and(|r| r.is_some()) && out == text;
        out.clear();
        let back = self.a.recv(self.from, &mut out).is_ok_and(|r| r.is_some()) && out == text;
        sent && there && back && self.b.len() == 1
    }

    /// Delivers a packet with these chunks to B. Returns the number of answers.
    fn deliver(&mut self, source: IpAddr, port: u16, tag: u32, chunks: &[u8]) -> u64 {
        self.buffer.clear();
        let mut writer = Writer::new(&mut self.buffer, 65_535, port, PORT, tag);
        writer.chunks().extend_from_slice(chunks);
        writer.finish();
        self.b.handle_packet(self.now, Addressing::new(source, B, PROTOCOL), &self.buffer);
        self.buffer.clear();
        let mut answers = 0;
        while self.b.poll_transmit(self.now, &mut self.buffer).is_some() {
            self.buffer.clear();
            answers += 1;
        }
        answers
    }

    /// Returns an address without an association.
    fn stranger(&mut self) -> IpAddr {
        let random = self.random.next_u64() as u32;
        // Unicast, and not a local address.
        IpAddr::V4(Ipv4Addr::from(0x1000_0000 | random & 0x0fff_ffff))
    }
}

/// Returns chunks that would do harm if they were accepted.
fn forged(n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    match n % 6 {
        0 => Chunk::Abort { reflected: false, causes: &[] }.emit(&mut out),
        1 => Chunk::Shutdown(Tsn::new(n as u32)).emit(&mut out),
        2 => chunk::put(&mut out, kind::SACK, 0, &[&[0xff; 12]]),
        3 => chunk::put(&mut out, kind::DATA, 3, &[&[1; 16]]),
        // ASCONF: delete the peer's address (RFC 5061 section 4.2.2); without AUTH at that.
        4 => chunk::put(&mut out, 0xc1, 0, &[&[0, 0, 0, 1, 0xc0, 2, 0, 16, 0, 0, 0, 1]]),
        // RE-CONFIG: reset all TSNs (RFC 6525 section 4.3).
        _ => chunk::put(&mut out, 130, 0, &[&[0, 15, 0, 8, 0, 0, 0, 1]]),
    }
    out
}

/// Sends the flood. Returns whether nothing was stored or accepted, and the association still works.
pub(crate) fn run(Options { count }: &Options) -> bool {
    let count = *count;
    let mut world = World::new();
    let mut init = Vec::new();
    let fixed = Init::fixed(0x5c1f7, 100_000, (10, 10), Tsn::new(5000));
    InitParameters::default().emit(&mut init, kind::INIT, &fixed);
    let mut good = world.works();
    for what in ["INITs", "cookies", "packets of the peer's"] {
        // A first round allocates the buffers that are then reused.
        for warm in [true, false] {
            let before = resident();
            let (clock, mut answers) = (Instant::now(), 0);
            let rounds = if warm { count / 100 } else { count };
            for n in 0..rounds {
                let stranger = world.stranger();
                let port = 1024 + (n % 60_000) as u16;
                let tag = world.random.next_u64() as u32 | 1;
                answers += match what {
                    "INITs" => world.deliver(stranger, port, 0, &init),
                    "cookies" => {
                        let mut echo = Vec::new();
                        let cookie: Vec<u8> =
                            (0..16).flat_map(|_| world.random.next_u64().to_be_bytes()).collect();
                        Chunk::CookieEcho(&cookie).emit(&mut echo);
                        world.deliver(stranger, port, tag, &echo)
                    }
                    _ => world.deliver(A, PEER_PORT, tag, &forged(n)),
                };
            }
            if warm {
                continue;
            }
            let gained = resident().saturating_sub(before);
            let micros = clock.elapsed().as_secs_f64() * 1e6 / rounds.max(1) as f64;
            let expected = if what == "INITs" { rounds } else { 0 };
            let works = world.works();
            say(&format!(
                "{rounds} {what}: {answers} answered, {} associations, {} KiB more memory, \
                 {micros:.2} us each, the association {}",
                world.b.len(),
                gained >> 10,
                if works { "works" } else { "is broken" },
            ));
            good &= works && answers == expected && gained <= SLACK;
        }
    }
    say(&format!("{} messages were delivered", world.messages));
    good
}
