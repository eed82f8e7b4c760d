//! A world of one link: it holds packets, records their outcomes, and counts.

// Each test file uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use ringway_link::{
    Departure, DropReason, InFlight, Link, LinkConfig, Logged, Outlet, Packet, Streams,
};
use ringway_sansio::{Ecn, Time};

/// The outcomes of packets.
#[derive(Default)]
pub(crate) struct Sink {
    pub(crate) flight: InFlight,
    pub(crate) dropped: Vec<(Time, u32, DropReason)>,
    pub(crate) copies: u32,
    pub(crate) next_id: u32,
}

impl Outlet for Sink {
    fn departs(&mut self, departure: Departure) {
        self.flight.push(departure);
    }
    fn dropped(&mut self, at: Time, packet: Packet, reason: DropReason) {
        self.dropped.push((at, packet.id, reason));
    }
    fn copy(&mut self, _: Packet) -> Option<u32> {
        self.copies += 1;
        Some(1_000_000 + self.copies)
    }
    fn bytes(&mut self, packet: &Packet) -> &[u8] {
        // A packet's bytes are its number modulo four, eight times.
        const BYTES: [[u8; 8]; 4] = [[0; 8], [1; 8], [2; 8], [3; 8]];
        &BYTES[packet.id as usize % 4]
    }
}

pub(crate) struct Bench {
    pub(crate) link: Link,
    pub(crate) sink: Sink,
    pub(crate) log: String,
    pub(crate) delivered: Vec<Departure>,
}

impl Bench {
    pub(crate) fn new(config: LinkConfig, seed: u64) -> Self {
        let link = Link::new(config, "a->b", &Streams::new(seed, 0), Time::ZERO).unwrap();
        Bench { link, sink: Sink::default(), log: String::new(), delivered: Vec::new() }
    }

    pub(crate) fn from_toml(text: &str) -> Self {
        Self::new(toml::from_str(text).unwrap(), 1)
    }

    pub(crate) fn poll(&mut self, now: Time) {
        let mut outlet = Logged::new(&mut self.sink, &mut self.log, Time::ZERO);
        self.link.poll(now, &mut outlet);
    }

    pub(crate) fn offer(&mut self, now: Time, size: u32) {
        self.offer_as(now, size, Ecn::NotEct);
    }

    pub(crate) fn offer_as(&mut self, now: Time, size: u32, ecn: Ecn) {
        let id = self.sink.next_id;
        self.sink.next_id += 1;
        let mut outlet = Logged::new(&mut self.sink, &mut self.log, Time::ZERO);
        self.link.offer(now, Packet::new(id, size, id % 5, ecn), &mut outlet);
    }

    /// Lets time pass up to `until`: polls the link when due and collects arrivals.
    pub(crate) fn run(&mut self, until: Time) {
        loop {
            let (link, arrival) = (self.link.poll_timeout(), self.sink.flight.next());
            let next = [link, arrival].into_iter().flatten().min();
            let Some(at) = next.filter(|&at| at <= until) else { break };
            self.poll(at);
            while let Some(d) = self.sink.flight.pop(at) {
                let mut outlet = Logged::new(&mut self.sink, &mut self.log, Time::ZERO);
                if self.link.is_cut(at, d.started, &mut outlet) {
                    outlet.dropped(at, d.packet, DropReason::Cut);
                } else {
                    self.delivered.push(d);
                }
            }
        }
        self.poll(until);
    }

    /// Returns the ids of arrived packets, in order.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.delivered.iter().map(|d| d.packet.id).collect()
    }

    /// Returns the arrival times in milliseconds.
    pub(crate) fn arrivals(&self) -> Vec<f64> {
        self.delivered.iter().map(|d| d.arrives.as_nanos() as f64 / 1e6).collect()
    }

    /// Returns the number of packets dropped for a reason.
    pub(crate) fn count(&self, reason: DropReason) -> usize {
        self.sink.dropped.iter().filter(|d| d.2 == reason).count()
    }
}
