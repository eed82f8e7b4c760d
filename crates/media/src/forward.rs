//! The half that forwards: what happens to a packet that comes to a port of the relay.
//!
//! A packet is forwarded only from a party of an agreed stream to the other party. Its source must be the address in the
//! party's description, or that of its signalling where that is allowed; the first one that is heard is the only one from
//! then on, until it has been silent for [`SILENCE`] or something else is agreed (RFC 7362 calls it latching). All else is
//! dropped and counted, and nothing is ever answered.

use crate::command::{Command, Party, Port, Side, StreamId};
use crate::config::{MIN_PORT, Rate, SILENCE};
use crate::counters::PacketCounters;
use ringway_sansio::Time;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The part of the rate of a stream that RTCP may use (RFC 3550 section 6.2 recommends 5 % of the bandwidth).
const RTCP_SHARE: u32 = 8;

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The port that it is sent from.
    pub port: Port,
    /// The address that it is sent from.
    pub from: IpAddr,
    /// The destination.
    pub to: SocketAddr,
}

/// The reason why a packet is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// Nothing is relayed at this port.
    NoStream,
    /// It came to an address other than that of the port.
    WrongAddress,
    /// Its source is not the party.
    Stranger,
    /// It is above the rate.
    Rate,
    /// The other party receives nothing at present.
    NoDestination,
}

/// A token bucket of packets and octets, in millionths, with a capacity of one second.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    packets: u64,
    octets: u64,
    filled: Time,
}

const SCALE: u64 = 1_000_000;

impl Bucket {
    fn new(now: Time, rate: Rate) -> Bucket {
        let [packets, octets] = [rate.packets, rate.octets].map(|rate| u64::from(rate) * SCALE);
        Bucket { packets, octets, filled: now }
    }

    fn take(&mut self, now: Time, rate: Rate, len: usize) -> bool {
        let micros = now.since(self.filled).as_micros().min(1_000_000) as u64;
        if micros > 0 {
            let fill = |level: u64, rate: u32| {
                (level + micros * u64::from(rate)).min(u64::from(rate) * SCALE)
            };
            self.packets = fill(self.packets, rate.packets);
            self.octets = fill(self.octets, rate.octets);
            self.filled = now;
        }
        let left = (self.packets.checked_sub(SCALE), self.octets.checked_sub(len as u64 * SCALE));
        let (Some(packets), Some(octets)) = left else { return false };
        (self.packets, self.octets) = (packets, octets);
        true
    }
}

/// One port of an agreed stream.
#[derive(Clone, Copy, Debug)]
struct Gate {
    stream: StreamId,
    /// The port of the other party.
    peer: Port,
    local: IpAddr,
    party: Party,
    /// Where the description says that this port's kind of packets goes.
    described: Option<SocketAddr>,
    /// The source that was heard first, and when it was heard last.
    source: Option<(SocketAddr, Time)>,
    bucket: Bucket,
    /// Whether packets came since that was last asked for.
    is_active: bool,
}

impl Gate {
    /// Returns whether a packet is of the party, and latches to its source.
    fn admits(&mut self, now: Time, source: SocketAddr) -> bool {
        let admitted = match self.source {
            Some((known, _)) if known == source => true,
            Some((_, heard)) if now.since(heard) < SILENCE => false,
            _ => self.may_come_from(source.ip()) && source.port() >= MIN_PORT,
        };
        if admitted {
            self.source = Some((source, now));
        }
        admitted
    }

    fn may_come_from(&self, ip: IpAddr) -> bool {
        self.party.may_send_from(ip) || self.described.is_some_and(|to| to.ip() == ip)
    }

    /// Returns where packets for the party go: where its description says, or to where it sends from if that is another
    /// address, as behind a NAT.
    fn destination(&self) -> Option<SocketAddr> {
        if self.party.held {
            return None;
        }
        match (self.described, self.source) {
            (Some(to), Some((source, _))) if source.ip() != to.ip() => Some(source),
            (Some(to), _) => Some(to),
            (None, Some((source, _))) => Some(source),
            (None, None) => None,
        }
    }
}

/// The ports of all agreed streams.
#[derive(Debug)]
pub struct Forwarder {
    gates: BTreeMap<Port, Gate>,
    rate: Rate,
    counters: PacketCounters,
}

impl Forwarder {
    /// Returns a forwarder without streams. `rate` is that of each direction of a stream.
    pub fn new(rate: Rate) -> Forwarder {
        Forwarder { gates: BTreeMap::new(), rate, counters: PacketCounters::default() }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &PacketCounters {
        &self.counters
    }

    /// Returns whether no stream is agreed.
    pub fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    /// Carries out a command. [`Command::Unbind`] is for the owner of the sockets and has no effect here.
    pub fn handle(&mut self, now: Time, command: &Command) {
        match command {
            Command::Set(id, sides) => self.set(now, *id, sides),
            Command::Clear(id, ports) => {
                for port in ports.iter().flat_map(|&port| [port, port.companion()]) {
                    if self.gates.get(&port).is_some_and(|gate| gate.stream == *id) {
                        self.gates.remove(&port);
                    }
                }
            }
            Command::Unbind(_) => {}
        }
    }

    fn set(&mut self, now: Time, id: StreamId, sides: &[Side; 2]) {
        for (side, peer) in [(0, 1), (1, 0)] {
            let (side, peer) = (&sides[side], &sides[peer]);
            // Both parties must have the stream.
            let party = side.party.filter(|_| peer.party.is_some());
            let rtcp = |port: Port| port.companion();
            self.set_gate(now, id, side, party, side.port, peer.port);
            self.set_gate(now, id, side, party, rtcp(side.port), rtcp(peer.port));
        }
    }

    fn set_gate(
        &mut self,
        now: Time,
        id: StreamId,
        side: &Side,
        party: Option<Party>,
        port: Port,
        peer: Port,
    ) {
        let Some(party) = party else {
            self.gates.remove(&port);
            return;
        };
        let described = if port.is_rtcp() { party.rtcp } else { party.rtp };
        let before = self.gates.get(&port).filter(|gate| gate.stream == id);
        // A party that has not moved keeps its source, also one that goes on hold.
        let is_same =
            |gate: &&Gate| (gate.described, gate.local) == (described, side.local) || party.held;
        let source = before.filter(is_same).and_then(|gate| gate.source);
        let rate = self.rate_of(port);
        let gate = Gate {
            stream: id,
            peer,
            local: side.local,
            party,
            described,
            source: None,
            bucket: before.map_or_else(|| Bucket::new(now, rate), |gate| gate.bucket),
            is_active: before.is_some_and(|gate| gate.is_active),
        };
        let source = source.filter(|(source, _)| gate.may_come_from(source.ip()));
        self.gates.insert(port, Gate { source, ..gate });
    }

    fn rate_of(&self, port: Port) -> Rate {
        match port.is_rtcp() {
            true => Rate {
                packets: (self.rate.packets / RTCP_SHARE).max(1),
                octets: (self.rate.octets / RTCP_SHARE).max(1),
            },
            false => self.rate,
        }
    }

    /// Returns where a packet of `len` octets goes that came to `port` from `source`. `local` is the address that it was
    /// sent to, where the world knows it.
    ///
    /// # Errors
    /// The reason why it is dropped.
    pub fn receive(
        &mut self,
        now: Time,
        port: Port,
        local: Option<IpAddr>,
        source: SocketAddr,
        len: usize,
    ) -> Result<Route, Dropped> {
        let result = self.route(now, port, local, source, len);
        let counters = &mut self.counters;
        match result {
            Ok(_) => {
                counters.forwarded += 1;
                counters.octets += len as u64;
            }
            Err(Dropped::NoStream) => counters.no_stream += 1,
            Err(Dropped::WrongAddress) => counters.wrong_address += 1,
            Err(Dropped::Stranger) => counters.stranger += 1,
            Err(Dropped::Rate) => counters.rate += 1,
            Err(Dropped::NoDestination) => counters.no_destination += 1,
        }
        result
    }

    fn route(
        &mut self,
        now: Time,
        port: Port,
        local: Option<IpAddr>,
        source: SocketAddr,
        len: usize,
    ) -> Result<Route, Dropped> {
        let rate = self.rate_of(port);
        let gate = self.gates.get_mut(&port).ok_or(Dropped::NoStream)?;
        if local.is_some_and(|local| local.to_canonical() != gate.local) {
            return Err(Dropped::WrongAddress);
        }
        // A scope has no meaning for whose packet it is.
        if !gate.admits(now, SocketAddr::new(source.ip().to_canonical(), source.port())) {
            return Err(Dropped::Stranger);
        }
        if !gate.bucket.take(now, rate, len) {
            return Err(Dropped::Rate);
        }
        gate.is_active = true;
        let port = gate.peer;
        let peer = self.gates.get(&port).ok_or(Dropped::NoDestination)?;
        let to = peer.destination().ok_or(Dropped::NoDestination)?;
        Ok(Route { port, from: peer.local, to })
    }

    /// Returns the streams of which packets came since the last call.
    pub fn take_active(&mut self) -> Vec<StreamId> {
        let mut active = Vec::new();
        for gate in self.gates.values_mut() {
            if std::mem::take(&mut gate.is_active) {
                active.push(gate.stream);
            }
        }
        active.sort_unstable();
        active.dedup();
        active
    }
}
