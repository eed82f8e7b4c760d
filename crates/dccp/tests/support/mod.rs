//! Two hosts and the links between them in virtual time.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use ringway_dccp::wire::{Carrier, Header, Kind, Packet};
use ringway_dccp::{Close, ConnId, Dccp, Event, Limits, SendOptions, Seq, Settings, Snapshot};
use ringway_sansio::{Addressing, Duration, Ecn, Endpoint, Random, SplitMix, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub const PORT: u16 = 5001;
pub const SERVICE: u32 = u32::from_be_bytes(*b"test");

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub fn server() -> SocketAddr {
    SocketAddr::new(B, PORT)
}

pub fn client() -> SocketAddr {
    SocketAddr::new(A, 0)
}

pub fn host(seed: u64, limits: Limits, settings: Settings) -> Dccp {
    Dccp::new(limits, settings, Box::new(SplitMix::new(seed))).unwrap()
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

    pub fn per_mille(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Flying {
    pub to_b: bool,
    pub addressing: Addressing,
    pub bytes: Vec<u8>,
}

impl Flying {
    pub fn carrier(&self) -> Carrier {
        match self.addressing.udp_port {
            0 => Carrier::Ip(self.addressing.source, self.addressing.destination),
            _ => Carrier::Udp,
        }
    }

    pub fn packet(&self) -> Packet<'_> {
        Packet::parse(self.carrier(), &self.bytes).expect("what is sent can be read")
    }
}

/// One direction: what a link does to packets.
pub struct Link {
    pub delay: Duration,
    /// Bytes per second; `None` needs no time.
    pub rate: Option<u64>,
    /// Maximum number of packets that wait.
    pub queue: usize,
    /// Number of waiting packets from which ECN-capable ones are marked.
    pub mark_from: Option<usize>,
    pub lose: u64,
    pub repeat: u64,
    pub reorder: u64,
    pub corrupt: u64,
    /// Whether the packet passes.
    pub filter: Box<dyn FnMut(&Flying) -> bool>,
    pub dropped: u64,
    pub marked: u64,
    departures: VecDeque<Time>,
    dice: Dice,
}

impl Link {
    pub fn new(delay: Duration, seed: u64) -> Link {
        Link {
            delay,
            rate: Some(1_250_000),
            queue: 50,
            mark_from: None,
            lose: 0,
            repeat: 0,
            reorder: 0,
            corrupt: 0,
            filter: Box::new(|_| true),
            dropped: 0,
            marked: 0,
            departures: VecDeque::new(),
            dice: Dice::new(seed),
        }
    }

    /// Returns when each copy arrives, and how.
    fn carry(&mut self, now: Time, packet: &Flying) -> Vec<(Time, Flying)> {
        let mut packet = packet.clone();
        if !(self.filter)(&packet) || self.dice.per_mille(self.lose) {
            self.dropped += 1;
            return Vec::new();
        }
        let mut leaves = now;
        if let Some(rate) = self.rate {
            while self.departures.front().is_some_and(|at| *at <= now) {
                self.departures.pop_front();
            }
            if self.departures.len() >= self.queue {
                self.dropped += 1;
                return Vec::new();
            }
            if self.mark_from.is_some_and(|from| self.departures.len() >= from)
                && packet.addressing.ecn.is_capable()
            {
                packet.addressing.ecn = Ecn::Ce;
                self.marked += 1;
            }
            let begins = self.departures.back().copied().unwrap_or(now).max(now);
            let length = packet.bytes.len() as u64 + 20;
            leaves = begins + Duration::from_nanos(length * 1_000_000_000 / rate);
            self.departures.push_back(leaves);
        }
        let mut copies = Vec::new();
        for _ in 0..if self.dice.per_mille(self.repeat) { 2 } else { 1 } {
            let mut at = leaves + self.delay;
            if self.dice.per_mille(self.reorder) {
                at += Duration::from_micros(self.dice.below(30_000));
            }
            let mut copy = packet.clone();
            if self.dice.per_mille(self.corrupt) {
                let index = self.dice.below(copy.bytes.len() as u64) as usize;
                copy.bytes[index] ^= 1 << self.dice.below(8);
            }
            copies.push((at, copy));
        }
        copies
    }
}

/// Two hosts, a link each way, and the events at each end.
pub struct Pair {
    pub now: Time,
    pub a: Dccp,
    pub b: Dccp,
    /// From a to b, and back.
    pub links: [Link; 2],
    pub flying: BTreeMap<(Time, u64), Flying>,
    /// Each packet that was sent, in a line.
    pub log: Vec<String>,
    pub keep_log: bool,
    /// Each packet that was sent.
    pub capture: Option<Vec<(Time, Flying)>>,
    pub events: [Vec<Event>; 2],
    serial: u64,
}

impl Pair {
    pub fn new(a: Settings, b: Settings, delay: Duration) -> Pair {
        Pair::with(Limits::default(), a, b, delay, 1)
    }

    pub fn with(limits: Limits, a: Settings, b: Settings, delay: Duration, seed: u64) -> Pair {
        Pair {
            now: Time::from_secs(1000),
            a: host(seed * 2 + 1, limits, a),
            b: host(seed * 2 + 2, limits, b),
            links: [Link::new(delay, seed * 7 + 3), Link::new(delay, seed * 7 + 4)],
            flying: BTreeMap::new(),
            log: Vec::new(),
            keep_log: true,
            capture: None,
            events: [Vec::new(), Vec::new()],
            serial: 0,
        }
    }

    pub fn launch(&mut self, at: Time, packet: Flying) {
        self.serial += 1;
        self.flying.insert((at, self.serial), packet);
    }

    /// Moves packets of both hosts onto the links, and collects their events.
    pub fn flush(&mut self) {
        for to_b in [true, false] {
            let mut count = 0;
            loop {
                let host = if to_b { &mut self.a } else { &mut self.b };
                let mut bytes = Vec::new();
                let Some(addressing) = host.poll_transmit(self.now, &mut bytes) else { break };
                count += 1;
                assert!(count < 20_000, "a host sends for ever");
                let packet = Flying { to_b, addressing, bytes };
                if self.keep_log {
                    self.log.push(packet.packet().to_string());
                }
                if let Some(capture) = &mut self.capture {
                    capture.push((self.now, packet.clone()));
                }
                for (at, copy) in self.links[usize::from(!to_b)].carry(self.now, &packet) {
                    self.launch(at, copy);
                }
            }
            let host = if to_b { &mut self.a } else { &mut self.b };
            while let Some(event) = host.poll_event() {
                self.events[usize::from(!to_b)].push(event);
            }
        }
    }

    /// Returns the time of the next event.
    pub fn next(&self) -> Option<Time> {
        let arrival = self.flying.keys().next().map(|(at, _)| *at);
        [arrival, self.a.poll_timeout(), self.b.poll_timeout()].into_iter().flatten().min()
    }

    /// Processes the next event. Returns `false` when there is none until `until`.
    pub fn step(&mut self, until: Time) -> bool {
        self.flush();
        let Some(next) = self.next().filter(|next| *next <= until) else { return false };
        self.now = self.now.max(next);
        if let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let packet = entry.remove();
            let host = if packet.to_b { &mut self.b } else { &mut self.a };
            host.handle_packet(self.now, packet.addressing, &packet.bytes);
        }
        for host in [&mut self.a, &mut self.b] {
            if host.poll_timeout().is_some_and(|at| at <= self.now) {
                host.handle_timeout(self.now);
            }
        }
        self.flush();
        true
    }

    /// Runs for a while.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        let (mut steps, mut at) = (0, self.now);
        while self.step(until) {
            steps = if self.now > at { 0 } else { steps + 1 };
            at = self.now;
            assert!(steps < 100_000, "time stands still at {at:?}");
        }
        self.now = until;
    }

    /// Opens a connection from `a` to `b` and returns both ends.
    pub fn open(&mut self) -> (ConnId, ConnId) {
        let _ = self.b.listen(server(), &[SERVICE], None);
        let a = self.a.connect(self.now, client(), server(), SERVICE, None).unwrap();
        let until = self.now + secs(400);
        let known = self.opened(1).len();
        while self.opened(1).len() == known || !self.opened(0).contains(&a) {
            assert!(self.step(until), "no connection: {:#?}", self.log);
        }
        (a, *self.opened(1).last().unwrap())
    }

    /// Returns the connections that were reported open at an end.
    pub fn opened(&self, end: usize) -> Vec<ConnId> {
        let open = self.events[end].iter().filter_map(|event| match event {
            Event::Open { id, .. } => Some(*id),
            _ => None,
        });
        open.collect()
    }

    pub fn closed(&self, end: usize) -> Option<Close> {
        self.events[end].iter().find_map(|event| match event {
            Event::Closed(_, why) => Some(*why),
            _ => None,
        })
    }

    pub fn host(&mut self, end: usize) -> &mut Dccp {
        if end == 0 { &mut self.a } else { &mut self.b }
    }

    pub fn snapshot(&mut self, end: usize, id: ConnId) -> Snapshot {
        self.host(end).snapshot(id).unwrap()
    }

    /// Returns the number of packets of a type in the log.
    pub fn count(&self, name: &str) -> usize {
        let name = format!(": {name} ");
        self.log.iter().filter(|line| line.contains(&name)).count()
    }
}

/// A stream of numbered messages that are checked when they arrive.
pub struct Flow {
    /// 0 from a to b, 1 back.
    pub from: usize,
    pub tx: ConnId,
    pub rx: ConnId,
    pub size: usize,
    /// Interval between messages; `None` keeps the queue full.
    pub every: Option<Duration>,
    pub due: Time,
    pub until: Time,
    pub sent: u64,
    /// The next message, which may have been refused.
    next: Option<Bytes>,
    pub got: BTreeSet<u64>,
    /// Arrival of each message.
    pub arrivals: Vec<Time>,
}

pub fn message(number: u64, size: usize) -> Vec<u8> {
    let mut data = number.to_be_bytes().to_vec();
    data.resize(size.max(8), number as u8);
    data
}

impl Flow {
    pub fn new(from: usize, (tx, rx): (ConnId, ConnId), size: usize) -> Flow {
        let (due, until) = (Time::ZERO, Time::from_secs(u64::MAX / 2_000_000_000));
        let (sent, next, got, arrivals) = (0, None, BTreeSet::new(), Vec::new());
        Flow { from, tx, rx, size, every: None, due, until, sent, next, got, arrivals }
    }

    pub fn paced(mut self, every: Duration) -> Flow {
        self.every = Some(every);
        self
    }

    /// Queues what is due and reads what has arrived.
    pub fn turn(&mut self, pair: &mut Pair) {
        let now = pair.now;
        while now < self.until && self.every.is_none_or(|_| self.due <= now) {
            let data = self.next.take().unwrap_or_else(|| message(self.sent, self.size).into());
            let options = SendOptions::default();
            if pair.host(self.from).send(now, self.tx, data.clone(), options).is_err() {
                self.next = Some(data);
                break;
            }
            self.sent += 1;
            if let Some(every) = self.every {
                self.due = self.due.max(now) + every;
            }
        }
        if let Some(every) = self.every
            && now < self.until
            && self.due <= now
        {
            // A refused message is tried again later.
            self.due = now + every;
        }
        while let Ok(Some(data)) = pair.host(1 - self.from).recv(self.rx) {
            let number = u64::from_be_bytes(data[..8].try_into().unwrap());
            assert_eq!(data, message(number, self.size), "data were corrupted");
            assert!(number < self.sent && self.got.insert(number), "{number} was delivered twice");
            self.arrivals.push(now);
        }
    }

    /// Returns the received bytes per second in a period.
    pub fn rate(&self, from: Time, to: Time) -> f64 {
        let count = self.arrivals.iter().filter(|at| **at >= from && **at < to).count();
        (count * self.size) as f64 / (to - from).as_secs_f64()
    }
}

/// Runs flows for a while.
pub fn drive(pair: &mut Pair, flows: &mut [Flow], time: Duration) {
    let until = pair.now + time;
    loop {
        for flow in flows.iter_mut() {
            flow.turn(pair);
        }
        let due =
            flows.iter().filter(|f| f.every.is_some() && f.due > pair.now).map(|f| f.due).min();
        let end = due.map_or(until, |due| due.min(until));
        if !pair.step(end) {
            if end >= until {
                break;
            }
            pair.now = end;
        }
    }
    pair.now = until;
    pair.flush();
    for flow in flows {
        flow.turn(pair);
    }
}

/// Drops the packets of a type whose turn, from 0, is in `which`.
pub fn drop_kind(
    kind: &'static str,
    which: std::ops::Range<usize>,
) -> Box<dyn FnMut(&Flying) -> bool> {
    let mut seen = 0;
    Box::new(move |flying| {
        if flying.packet().header.kind.name() != kind {
            return true;
        }
        seen += 1;
        !which.contains(&(seen - 1))
    })
}

/// Returns a Request of `a` to `b` that another implementation might have sent.
pub fn request(options: &[u8], data: &[u8]) -> Vec<u8> {
    let header = Header {
        source: 9,
        destination: PORT,
        ccval: 0,
        coverage: 0,
        kind: Kind::Request(SERVICE),
        long: true,
        seq: Seq::new(5),
        ack: Seq::default(),
    };
    let mut bytes = Vec::new();
    header.emit(Carrier::Ip(A, B), options, data, &mut bytes);
    bytes
}

/// Returns whether a packet is of this type.
pub fn is(flying: &Flying, kind: Kind) -> bool {
    flying.packet().header.kind.name() == kind.name()
}
