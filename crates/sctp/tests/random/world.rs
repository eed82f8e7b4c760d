//! The two hosts, their clocks, and the time that goes on for both.

use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::support::{Dice, PORT, at, describe, host};
use crate::wires::{ADDRESSES, Wires};
use ringway_sansio::{Addressing, Duration, Endpoint, Time};
use ringway_sctp::{AssocId, Close, Event, Sctp, Settings};
use std::net::IpAddr;

/// The opener's SCTP port; it has the same after a crash.
pub const OPENER_PORT: u16 = 7000;
/// Packets that a host may send at one go, and steps within one pause: beyond, it goes on for ever.
const MAX_PACKETS: usize = 20_000;
const MAX_STEPS: usize = 200_000;
/// Bytes of a packet that an ICMP message quotes.
const QUOTED: usize = 40;

/// A host and its user.
pub struct End {
    pub host: Sctp,
    /// Nanoseconds that its clock is ahead.
    pub clock: i64,
    /// The association its user has to do with.
    pub id: Option<AssocId>,
    pub closed: Option<Close>,
    /// A message was refused for want of room, and the user waits to hear that there is some.
    pub refused: bool,
}

pub struct World {
    pub plan: Plan,
    pub dice: Dice,
    pub now: Time,
    /// The opener, and the one that listens.
    pub ends: [End; 2],
    pub wires: Wires,
    /// The messages that each end has sent.
    pub ledgers: [Ledger; 2],
    /// Whether the opener has restarted at least once.
    pub crashed: bool,
    /// Streams and TSNs were all reset at least once.
    pub everything: bool,
    log: bool,
    buffer: Vec<u8>,
}

impl World {
    pub fn new(seed: u64, log: bool) -> World {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice);
        let wires = Wires::draw(&plan, &mut dice);
        World::of(dice, plan, wires, log, Plan::settings)
    }

    /// A world of hosts with settings drawn by the plan.
    pub fn of(
        mut dice: Dice,
        plan: Plan,
        wires: Wires,
        log: bool,
        draw: impl Fn(&Plan, &mut Dice, bool) -> Settings,
    ) -> World {
        let ends = [true, false].map(|opener| {
            let settings = draw(&plan, &mut dice, opener);
            if log {
                println!("{settings:#?}");
            }
            let host = host(dice.below(1 << 60), settings);
            let clock = if dice.chance(15) { 77_000_000_000 } else { 0 };
            End { host, clock, id: None, closed: None, refused: false }
        });
        World {
            plan,
            dice,
            now: at(1_000_000),
            ends,
            wires,
            ledgers: [Ledger::new(0), Ledger::new(1)],
            crashed: false,
            everything: false,
            log,
            buffer: Vec::new(),
        }
    }

    /// The log of a seed.
    pub fn tell(&self, text: impl FnOnce() -> String) {
        if self.log {
            println!("{:?} {}", self.now, text());
        }
    }

    /// The time as a host has it.
    pub fn clock(&self, end: usize) -> Time {
        Time::from_nanos((self.now.as_nanos() as i64 + self.ends[end].clock) as u64)
    }

    /// The addresses that a host begins with.
    pub fn locals(&self, end: usize) -> Vec<IpAddr> {
        ADDRESSES[end][..self.plan.homes].to_vec()
    }

    /// One listens and the other opens, or now and then both open.
    pub fn open(&mut self) {
        let locals = [self.locals(0), self.locals(1)];
        let clocks = [self.clock(0), self.clock(1)];
        let [a, b] = &mut self.ends;
        b.host.listen(&locals[1], PORT, None).unwrap();
        let remotes = &ADDRESSES[1][..1];
        let id = a.host.connect(clocks[0], &locals[0], OPENER_PORT, remotes, PORT, None).unwrap();
        a.id = Some(id);
        if self.dice.chance(8) {
            let remotes = &ADDRESSES[0][..1];
            let id = b.host.connect(clocks[1], &locals[1], PORT, remotes, OPENER_PORT, None);
            b.id = Some(id.unwrap());
        }
    }

    /// Puts what the hosts want to send onto the wires, and takes their events.
    pub fn flush(&mut self) {
        for end in 0..2 {
            let now = self.clock(end);
            let mut packets = 0;
            while let Some(addressing) = self.ends[end].host.poll_transmit(now, &mut self.buffer) {
                packets += 1;
                assert!(packets < MAX_PACKETS, "a host sends for ever");
                let bytes = core::mem::take(&mut self.buffer);
                self.put(end, addressing, &bytes);
            }
            while let Some(event) = self.ends[end].host.poll_event() {
                self.tell(|| format!("{end} hears {event:?}"));
                self.hear(end, event);
            }
        }
    }

    fn put(&mut self, end: usize, addressing: Addressing, bytes: &[u8]) {
        let Addressing { source, destination, .. } = addressing;
        self.tell(|| format!("{source} > {destination} {}", describe(bytes, None, None)));
        let said = self.wires.carry(&mut self.dice, self.now, end, addressing, bytes);
        if let Some(icmp) = said {
            let (now, quoted) = (self.clock(end), &bytes[..bytes.len().min(QUOTED)]);
            self.ends[end].host.handle_icmp(now, &addressing, icmp, quoted);
        }
    }

    fn hear(&mut self, end: usize, event: Event) {
        match event {
            Event::Up { id, .. } => self.up(end, id),
            Event::Writable(_) => self.ends[end].refused = false,
            Event::SendFailed { messages, .. } => self.ledgers[end].fail(messages),
            Event::Returned { message, .. } => self.ledgers[end].take_back(&message),
            Event::Closed(id, why) if Some(id) == self.ends[end].id => {
                assert!(!matches!(why, Close::Violation(_)), "{end}: {why:?}");
                let told = matches!(why, Close::Aborted { code: 13, .. });
                assert!(!told, "{end} is told of a violation: {why:?}");
                self.ends[end].closed = Some(why);
            }
            // One that another has followed on.
            Event::Closed(id, _) => self.drain(end, id),
            _ => {}
        }
    }

    /// There is an association. Only after a crash may it be another than before, for example where it
    /// was shutting down when the peer came back.
    fn up(&mut self, end: usize, id: AssocId) {
        let before = self.ends[end].id.replace(id);
        let Some(before) = before.filter(|before| *before != id) else { return };
        assert!(self.crashed, "{end} has a second association");
        self.ends[end].closed = None;
        self.ends[end].refused = false;
        // It may still be there, if the crashed one had deleted the address that it comes back from.
        let _ = self.ends[end].host.abort(before, b"another has followed");
        self.drain(end, before);
        self.ledgers[1 - end].forget_reader();
    }

    /// Reads up to so many messages or parts of them.
    pub fn read(&mut self, end: usize, most: usize) {
        let Some(id) = self.ends[end].id else { return };
        for _ in 0..most {
            let mut bytes = Vec::new();
            let Ok(Some(received)) = self.ends[end].host.recv(id, &mut bytes) else { return };
            self.tell(|| format!("{end} reads {received:?}"));
            self.ledgers[1 - end].receive(&received, bytes);
        }
    }

    /// Reads all that an association has left, so that it can go.
    fn drain(&mut self, end: usize, id: AssocId) {
        let current = self.ends[end].id.replace(id);
        self.read(end, usize::MAX);
        self.ends[end].id = current;
    }

    fn next(&self) -> Option<Time> {
        let timer = |end: &End| {
            let at = end.host.poll_timeout()?.as_nanos() as i64 - end.clock;
            Some(Time::from_nanos(at.max(0) as u64))
        };
        let [a, b] = &self.ends;
        [self.wires.next(), timer(a), timer(b)].into_iter().flatten().min()
    }

    /// Lets time go on.
    pub fn run(&mut self, time: Duration) {
        let until = self.now + time;
        for step in 0.. {
            assert!(step < MAX_STEPS, "time stands still");
            self.flush();
            let Some(next) = self.next().filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Delivers packets that have arrived, and wakes hosts that are due.
    fn step(&mut self) {
        while let Some(packet) = self.wires.arrived(self.now) {
            let now = self.clock(packet.to);
            let host = &mut self.ends[packet.to].host;
            host.handle_packet(now, packet.addressing, &packet.bytes);
            self.flush();
        }
        for end in 0..2 {
            let now = self.clock(end);
            let host = &mut self.ends[end].host;
            if host.poll_timeout().is_some_and(|at| at <= now) {
                host.handle_timeout(now);
            }
        }
    }
}
