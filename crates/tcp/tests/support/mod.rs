//! Two hosts and the wire between them in virtual time, and a host with a scripted peer.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use ringway_sansio::{Addressing, Duration, Ecn, Endpoint, Random, SplitMix, Time};
use ringway_tcp::{
    Close, ConnId, Event, Flags, Header, Limits, ListenerId, Options, PROTOCOL, Sack, Segment, Seq,
    Settings, Tcp, Timestamps,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub const PORT: u16 = 5060;

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn at(n: u64) -> Time {
    Time::from_millis(n)
}

pub fn host(seed: u64, settings: Settings) -> Tcp {
    Tcp::new(Limits::default(), settings, &mut SplitMix::new(seed)).unwrap()
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    pub at: Time,
    pub serial: u64,
    pub to_b: bool,
    pub addressing: Addressing,
    pub bytes: Vec<u8>,
}

impl Packet {
    pub fn segment(&self) -> Segment<'_> {
        Segment::parse(self.addressing.source, self.addressing.destination, &self.bytes).unwrap()
    }
}

/// The fate of one packet on a wire: the arrival time of each copy, and its ECN mark.
pub type Wire = Box<dyn FnMut(&Packet) -> Vec<(Duration, Ecn)>>;

/// Two hosts, a wire, and the events at each end.
pub struct Pair {
    pub now: Time,
    pub a: Tcp,
    pub b: Tcp,
    pub wire: Wire,
    pub flying: Vec<Packet>,
    pub log: Vec<(Time, bool, Header, usize, Ecn)>,
    pub keep_log: bool,
    pub events: [Vec<Event>; 2],
    serial: u64,
    buffer: Vec<u8>,
}

impl Pair {
    /// Creates a wire that delays by `latency` and does nothing else.
    pub fn new(a: Settings, b: Settings, latency: Duration) -> Pair {
        Pair::over(a, b, Box::new(move |packet| vec![(latency, packet.addressing.ecn)]))
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
            serial: 0,
            buffer: Vec::new(),
        }
    }

    /// Moves packets of both hosts onto the wire, and collects their events.
    pub fn flush(&mut self) {
        for to_b in [true, false] {
            let host = if to_b { &mut self.a } else { &mut self.b };
            loop {
                self.buffer.clear();
                let Some(addressing) = host.poll_transmit(self.now, &mut self.buffer) else {
                    break;
                };
                let bytes = self.buffer.clone();
                self.serial += 1;
                let packet = Packet { at: self.now, serial: self.serial, to_b, addressing, bytes };
                if self.keep_log {
                    let segment = packet.segment();
                    let entry =
                        (self.now, to_b, segment.header, segment.data.len(), addressing.ecn);
                    self.log.push(entry);
                }
                for (delay, ecn) in (self.wire)(&packet) {
                    let mut copy = packet.clone();
                    copy.at = self.now + delay;
                    copy.addressing.ecn = ecn;
                    self.flying.push(copy);
                }
            }
            while let Some(event) = host.poll_event() {
                self.events[usize::from(!to_b)].push(event);
            }
        }
    }

    /// Returns the time of the next event.
    pub fn next(&self) -> Option<Time> {
        let arrival = self.flying.iter().map(|p| p.at).min();
        [arrival, self.a.poll_timeout(), self.b.poll_timeout()].into_iter().flatten().min()
    }

    /// Processes the next event. Returns `false` when there is none until `until`.
    pub fn step(&mut self, until: Time) -> bool {
        self.flush();
        let Some(next) = self.next().filter(|next| *next <= until) else { return false };
        self.now = self.now.max(next);
        let due = (0..self.flying.len())
            .filter(|&i| self.flying[i].at <= self.now)
            .min_by_key(|&i| (self.flying[i].at, self.flying[i].serial));
        if let Some(index) = due {
            let packet = self.flying.remove(index);
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
        while self.step(until) {}
        self.now = until;
    }

    /// Opens a connection from `a` to `b` and returns both endpoints.
    pub fn open(&mut self) -> (ConnId, ConnId) {
        let listener = self.b.listen(SocketAddr::new(B, PORT), 8, None).unwrap();
        self.open_to(listener)
    }

    pub fn open_to(&mut self, listener: ListenerId) -> (ConnId, ConnId) {
        let local = SocketAddr::new(A, 0);
        let a = self.a.connect(self.now, local, SocketAddr::new(B, PORT), None).unwrap();
        // With bad luck SYNs are lost again and again, and the wait doubles each time.
        let until = self.now + Duration::from_secs(20_000);
        loop {
            if let Some(b) = self.b.accept(listener) {
                while !self.saw(0, Event::Connected(a)) {
                    assert!(self.step(until), "no answer");
                }
                return (a, b);
            }
            assert!(self.step(until), "no connection");
        }
    }

    pub fn saw(&self, end: usize, event: Event) -> bool {
        self.events[end].contains(&event)
    }

    pub fn closed(&self, end: usize) -> Option<Close> {
        self.events[end].iter().find_map(|e| match e {
            Event::Closed(_, why) => Some(*why),
            _ => None,
        })
    }
}

/// Bytes that show their position in the stream.
pub fn pattern(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|i| (i.wrapping_mul(31) ^ (i >> 8)) as u8).collect()
}

/// One direction of a stream that is checked byte by byte.
pub struct Flow {
    pub total: usize,
    pub written: usize,
    pub read: usize,
    pub ended: bool,
}

impl Flow {
    pub fn new(total: usize) -> Flow {
        Flow { total, written: 0, read: 0, ended: false }
    }

    /// Writes as much as fits, and shuts down at the end.
    pub fn write(&mut self, host: &mut Tcp, now: Time, conn: ConnId) {
        while self.written < self.total {
            let count = (self.total - self.written).min(10_000);
            let Ok(took) = host.write(now, conn, &pattern(self.written, count)) else { return };
            self.written += took;
            if took < count {
                return;
            }
        }
        if !self.ended {
            self.ended = true;
            let _ = host.shutdown(now, conn);
        }
    }

    /// Reads what there is and compares.
    pub fn read(&mut self, host: &mut Tcp, now: Time, conn: ConnId) {
        let mut out = [0; 4096];
        while let Ok(count) = host.read(now, conn, &mut out) {
            if count == 0 {
                break;
            }
            assert_eq!(out[..count], pattern(self.read, count)[..], "at byte {}", self.read);
            self.read += count;
        }
    }
}

/// Moves `up` bytes from a to b and `down` bytes back at the same time, until both are read and both
/// endpoints are closed, or `limit` has passed.
pub fn transfer(pair: &mut Pair, up: usize, down: usize, limit: Duration) -> (ConnId, ConnId) {
    let (a, b) = pair.open();
    let (mut up, mut down) = (Flow::new(up), Flow::new(down));
    let until = pair.now + limit;
    loop {
        up.write(&mut pair.a, pair.now, a);
        down.write(&mut pair.b, pair.now, b);
        up.read(&mut pair.b, pair.now, b);
        down.read(&mut pair.a, pair.now, a);
        let closed = pair.closed(0).is_some() && pair.closed(1).is_some();
        if closed && up.read == up.total && down.read == down.total {
            return (a, b);
        }
        if !pair.step(until) {
            panic!(
                "stuck at {:?}: {} of {} up, {} of {} down, {:?} {:?} {:?} {:?}",
                pair.now,
                up.read,
                up.total,
                down.read,
                down.total,
                pair.closed(0),
                pair.closed(1),
                pair.a.snapshot(a),
                pair.b.snapshot(b),
            );
        }
    }
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
}

/// A host with a scripted peer: packets are delivered to it and expected from it one by one, with
/// sequence numbers relative to the two initial ones.
pub struct Script {
    pub now: Time,
    pub tcp: Tcp,
    pub conn: Option<ConnId>,
    pub listener: Option<ListenerId>,
    /// The host's and the script's initial sequence numbers.
    pub iss: Seq,
    pub irs: Seq,
    pub ports: (u16, u16),
    pub stamps: Option<(u32, u32)>,
    sent: VecDeque<(Header, Vec<u8>, Ecn)>,
}

/// A segment that a script delivers or expects: flags by letter, numbers relative to the initial ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    pub flags: &'static str,
    pub seq: u32,
    pub ack: u32,
    pub len: usize,
    pub window: u16,
    pub sack: Vec<(u32, u32)>,
}

/// A line of a packet table: flags, sequence, length, acknowledgment.
pub fn seg(flags: &'static str, seq: u32, len: usize, ack: u32) -> Line {
    Line { flags, seq, ack, len, window: 60_000, sack: Vec::new() }
}

impl Line {
    pub fn window(mut self, window: u16) -> Line {
        self.window = window;
        self
    }

    pub fn sack(mut self, blocks: &[(u32, u32)]) -> Line {
        self.sack = blocks.to_vec();
        self
    }
}

fn flags(letters: &str) -> Flags {
    letters.chars().fold(Flags::NONE, |flags, letter| {
        let at = "FSRPAUEW".find(letter).unwrap();
        flags | Flags::from_bits(1 << at)
    })
}

impl Script {
    pub fn new(settings: Settings) -> Script {
        Script {
            now: at(5_000_000),
            tcp: host(3, settings),
            conn: None,
            listener: None,
            iss: Seq::new(0),
            irs: Seq::new(1_000_000),
            ports: (PORT, 40_000),
            stamps: None,
            sent: VecDeque::new(),
        }
    }

    /// A listening host after a handshake without timestamps, window scale or ECN. The script's
    /// MSS is 1000.
    pub fn accepted(settings: Settings) -> Script {
        let mut script = Script::new(settings);
        script.listen();
        script.give_options(seg("S", 0, 0, 0), Script::syn_options());
        let (header, ..) = script.take().unwrap();
        assert_eq!(header.flags, flags("SA"));
        script.iss = header.seq;
        script.give(seg("A", 1, 0, 1));
        script.conn = script.tcp.accept(script.listener.unwrap());
        assert!(script.conn.is_some());
        script
    }

    pub fn syn_options() -> Options {
        Options { mss: Some(1000), sack_permitted: true, ..Options::default() }
    }

    pub fn listen(&mut self) {
        let listener = self.tcp.listen(SocketAddr::new(A, PORT), 4, None).unwrap();
        self.listener = Some(listener);
    }

    /// Performs an active open; the host's initial number is taken from its SYN.
    pub fn connect(&mut self) -> Header {
        let local = SocketAddr::new(A, 0);
        let remote = SocketAddr::new(B, 40_000);
        self.conn = Some(self.tcp.connect(self.now, local, remote, None).unwrap());
        let (header, ..) = self.take().unwrap();
        self.iss = header.seq;
        self.ports = (header.source, 40_000);
        header
    }

    pub fn conn(&self) -> ConnId {
        self.conn.unwrap()
    }

    pub fn give(&mut self, line: Line) {
        let mut options = Options::default();
        for (left, right) in &line.sack {
            options.sack.push(self.iss + *left, self.iss + *right);
        }
        options.timestamps = self.stamps.map(|(value, echo)| Timestamps { value, echo });
        self.give_options(line, options);
    }

    pub fn give_options(&mut self, line: Line, options: Options) {
        self.give_ecn(line, options, Ecn::NotEct);
    }

    pub fn give_ecn(&mut self, line: Line, options: Options, ecn: Ecn) {
        let header = Header {
            source: self.ports.1,
            destination: self.ports.0,
            seq: self.irs + line.seq,
            ack: self.iss + line.ack,
            flags: flags(line.flags),
            window: line.window,
            options,
        };
        let mut bytes = Vec::new();
        let data = pattern(line.seq.wrapping_sub(1) as usize, line.len);
        header.emit(B, A, &mut bytes, (&data, &[]));
        let addressing = Addressing { ecn, ..Addressing::new(B, A, PROTOCOL) };
        self.tcp.handle_packet(self.now, addressing, &bytes);
        self.collect();
    }

    pub fn collect(&mut self) {
        let mut buffer = Vec::new();
        while let Some(addressing) = self.tcp.poll_transmit(self.now, &mut buffer) {
            let segment = Segment::parse(A, B, &buffer).unwrap();
            self.sent.push_back((segment.header, segment.data.to_vec(), addressing.ecn));
            buffer.clear();
        }
    }

    pub fn take(&mut self) -> Option<(Header, Vec<u8>, Ecn)> {
        self.collect();
        self.sent.pop_front()
    }

    /// Returns the next segment as a line. The window is not compared unless `expect_window` is used.
    pub fn taken(&mut self) -> Line {
        let (header, data, _) = self.take().expect("a segment");
        let blocks: &Sack = &header.options.sack;
        Line {
            flags: letters(header.flags),
            seq: header.seq - self.iss,
            ack: if header.flags.has(Flags::ACK) { header.ack - self.irs } else { 0 },
            len: data.len(),
            window: header.window,
            sack: blocks.blocks().iter().map(|b| (b.0 - self.irs, b.1 - self.irs)).collect(),
        }
    }

    #[track_caller]
    pub fn expect(&mut self, line: Line) {
        let mut got = self.taken();
        got.window = line.window;
        assert_eq!(got, line);
    }

    #[track_caller]
    pub fn expect_nothing(&mut self) {
        assert_eq!(self.take().map(|(header, data, _)| (header, data.len())), None);
    }

    /// Lets time pass. Timers fire at their time.
    pub fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        self.collect();
        while let Some(next) = self.tcp.poll_timeout().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.tcp.handle_timeout(self.now);
            self.collect();
        }
        self.now = until;
    }

    pub fn write(&mut self, count: usize) {
        let took = self.tcp.write(self.now, self.conn(), &pattern(0, count)).unwrap();
        assert_eq!(took, count);
    }

    pub fn read(&mut self) -> usize {
        let mut out = vec![0; 1 << 20];
        let count = self.tcp.read(self.now, self.conn(), &mut out).unwrap();
        self.collect();
        count
    }

    pub fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.tcp.poll_event()).collect()
    }
}

fn letters(flags: Flags) -> &'static str {
    const ALL: [&str; 20] = [
        "A", "PA", "FA", "FPA", "RA", "R", "SA", "S", "AE", "PAE", "AW", "PAW", "SAE", "SEW", "-",
        "FAE", "FPAE", "AEW", "PAEW", "FPAW",
    ];
    let got = format!("{flags:?}");
    ALL.into_iter().find(|known| *known == got).unwrap_or_else(|| panic!("flags {got}"))
}
