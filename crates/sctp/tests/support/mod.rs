//! Two hosts and the wires between them in virtual time, and a host that talks to a script.
#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod script;
mod text;

pub use script::{PEER_TAG, Script};
pub use text::describe;

use ringway_sansio::{Addressing, Duration, Endpoint, Random, SplitMix, Time};
use ringway_sctp::{AssocId, Close, Event, Limits, ListenerId, Sctp, SendOptions, Settings};
use std::net::{IpAddr, Ipv4Addr};

pub const A1: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
pub const A2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
pub const B1: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
pub const B2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
pub const PORT: u16 = 5060;

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub fn at(n: u64) -> Time {
    Time::from_millis(n)
}

pub fn host(seed: u64, settings: Settings) -> Sctp {
    host_with(seed, settings, Limits::default())
}

pub fn host_with(seed: u64, settings: Settings, limits: Limits) -> Sctp {
    Sctp::new(limits, settings, Box::new(SplitMix::new(seed))).unwrap()
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Flying {
    pub at: Time,
    pub serial: u64,
    pub to_b: bool,
    pub addressing: Addressing,
    pub bytes: Vec<u8>,
}

/// What a wire does to one packet: when each copy arrives.
pub type Wire = Box<dyn FnMut(Time, &Flying) -> Vec<Duration>>;

/// Two hosts, a wire, and the events at each end.
pub struct Pair {
    pub now: Time,
    pub a: Sctp,
    pub b: Sctp,
    pub wire: Wire,
    pub flying: Vec<Flying>,
    /// Time, whether from a, the first address of the way, and the chunks.
    pub log: Vec<(Time, bool, IpAddr, String)>,
    pub keep_log: bool,
    pub events: [Vec<Event>; 2],
    pub listener: Option<ListenerId>,
    serial: u64,
    buffer: Vec<u8>,
}

impl Pair {
    /// A wire that delays by `latency` and does nothing else.
    pub fn new(a: Settings, b: Settings, latency: Duration) -> Pair {
        Pair::over(a, b, Box::new(move |_, _| vec![latency]))
    }

    pub fn over(a: Settings, b: Settings, wire: Wire) -> Pair {
        Pair {
            now: at(1_000_000),
            a: host(1, a),
            b: host(2, b),
            wire,
            flying: Vec::new(),
            log: Vec::new(),
            keep_log: true,
            events: [Vec::new(), Vec::new()],
            listener: None,
            serial: 0,
            buffer: Vec::new(),
        }
    }

    pub fn listen(&mut self, addresses: &[IpAddr]) {
        self.listener = Some(self.b.listen(addresses, PORT, None).unwrap());
    }

    pub fn connect(&mut self, locals: &[IpAddr], remotes: &[IpAddr]) -> AssocId {
        self.a.connect(self.now, locals, 0, remotes, PORT, None).unwrap()
    }

    /// An association over one path.
    pub fn open(&mut self) -> (AssocId, AssocId) {
        self.open_over(&[A1], &[B1])
    }

    /// Returns an association between these addresses, once both ends have reported it.
    pub fn open_over(&mut self, a: &[IpAddr], b: &[IpAddr]) -> (AssocId, AssocId) {
        self.listen(b);
        let id = self.connect(a, &b[..1]);
        // Where several packets in a row are lost, T1 has grown to RTO.Max, as long as a cookie lives:
        // each COOKIE ECHO sent again is then stale, and only an attempt without a loss gets through.
        let until = self.now + secs(20_000);
        while self.up(0).is_none() || self.up(1).is_none() {
            assert!(self.step(until), "no association: {:?}", self.log);
        }
        assert_eq!(self.up(0), Some(id));
        (id, self.up(1).unwrap())
    }

    /// The first association that came up.
    pub fn up(&self, end: usize) -> Option<AssocId> {
        self.events[end].iter().find_map(|event| match event {
            Event::Up { id, .. } => Some(*id),
            _ => None,
        })
    }

    /// Moves what both want to send onto the wire, and takes their events.
    pub fn flush(&mut self) {
        for to_b in [true, false] {
            let host = if to_b { &mut self.a } else { &mut self.b };
            self.buffer.clear();
            while let Some(addressing) = host.poll_transmit(self.now, &mut self.buffer) {
                let bytes = core::mem::take(&mut self.buffer);
                let packet = Flying { at: self.now, serial: self.serial, to_b, addressing, bytes };
                if self.keep_log {
                    let text = describe(&packet.bytes, None, None);
                    self.log.push((self.now, to_b, addressing.source, text));
                }
                for delay in (self.wire)(self.now, &packet) {
                    self.serial += 1;
                    let copy = packet.clone();
                    let at = self.now + delay;
                    self.flying.push(Flying { at, serial: self.serial, ..copy });
                }
            }
            let host = if to_b { &mut self.a } else { &mut self.b };
            while let Some(event) = host.poll_event() {
                self.events[usize::from(!to_b)].push(event);
            }
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Time> {
        let flying = self.flying.iter().map(|p| p.at).min();
        [flying, self.a.poll_timeout(), self.b.poll_timeout()].into_iter().flatten().min()
    }

    /// Goes on to the next thing that happens, if that is by `until`.
    pub fn step(&mut self, until: Time) -> bool {
        self.flush();
        let Some(next) = self.next().filter(|next| *next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        let now = self.now;
        while let Some(index) = (0..self.flying.len())
            .filter(|&i| self.flying[i].at <= now)
            .min_by_key(|&i| (self.flying[i].at, self.flying[i].serial))
        {
            let packet = self.flying.swap_remove(index);
            let host = if packet.to_b { &mut self.b } else { &mut self.a };
            host.handle_packet(now, packet.addressing, &packet.bytes);
            self.flush();
        }
        for host in [&mut self.a, &mut self.b] {
            if host.poll_timeout().is_some_and(|at| at <= now) {
                host.handle_timeout(now);
            }
        }
        self.flush();
        true
    }

    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    pub fn closed(&self, end: usize) -> Option<Close> {
        self.events[end].iter().find_map(|event| match event {
            Event::Closed(_, why) => Some(why.clone()),
            _ => None,
        })
    }

    pub fn send(&mut self, id: AssocId, stream: u16, bytes: &[u8]) {
        let options = SendOptions { stream, ..SendOptions::default() };
        self.a.send(self.now, id, &options, bytes.to_vec()).unwrap();
    }

    /// Whole messages that wait at b.
    pub fn received(&mut self, id: AssocId) -> Vec<(u16, Vec<u8>)> {
        whole(&mut self.b, id)
    }

    /// Whole messages that wait at a.
    pub fn returned(&mut self, id: AssocId) -> Vec<(u16, Vec<u8>)> {
        whole(&mut self.a, id)
    }
}

fn whole(host: &mut Sctp, id: AssocId) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Ok(Some(received)) = host.recv(id, &mut out) {
        assert!(received.begin && received.end);
        all.push((received.stream, core::mem::take(&mut out)));
    }
    all
}

/// Bytes that show their message and their position in it.
pub fn pattern(message: usize, count: usize) -> Vec<u8> {
    (0..count).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ message.wrapping_mul(7)) as u8).collect()
}

/// A generator of random decisions.
pub struct Dice(SplitMix);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(SplitMix::new(seed))
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
