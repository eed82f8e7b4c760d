//! The baseline of section 4.5.1: routers with AODV (RFC 3561) and their phones, and at one of them a host with the only SIP
//! server, which is this project's proxy with a table in memory.
//!
//! The server's host and the phones share the node's address and are told apart by their ports. A cable between them and
//! their router takes no time, as in the mesh; between routers a message may be lost, so that phones retransmit
//! (RFC 3261 section 17), which phones at a proxy in their own router need not.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use ringway_onesip::SIP_PORT;
use ringway_proxy::location::MemoryStore;
use ringway_proxy::routes::RouteTable;
use ringway_proxy::{Core, Event};
use ringway_sansio::time::sooner;
use ringway_sansio::{Duration, Flow, FlowId, Outbox, Random, SplitMix, Target, Time, Transport};
use ringway_sim::graph::baseline::Aodv;
use ringway_sim::graph::{Destination, GraphNode, node_random};
use ringway_sip::message::{self, Message, Method};

use crate::onesip::node::core;
use crate::onesip::users::{HomeUsers, Roster};
use crate::onesip::{PhoneTimes, Phones};

/// T1 and T2 of RFC 3261, and timers B and F.
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(32);
/// Octets of a UDP header.
const UDP: usize = 8;
/// The network of all hosts, and the beginning of the last 64 bits of the server's address.
const NETWORK: u128 = 0xfd00 << 112;
const SERVER: u128 = 1;
/// The port of what nobody reads.
const NOBODY: u16 = u16::MAX;

/// Returns the address of the server at a router, which is also the part that all hosts there have in common.
fn server_at(router: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(NETWORK | u128::from(router) << 64 | SERVER)
}

/// Returns the router of a host.
fn router_of(host: &Ipv6Addr) -> u32 {
    (host.to_bits() >> 64) as u32 & 0xffff
}

/// A request that a phone retransmits.
struct Repeat {
    from: Ipv6Addr,
    octets: Vec<u8>,
    is_invite: bool,
    begun: Time,
    at: Time,
    interval: Duration,
}

/// The transactions of phones: requests that wait for a response, and what requests were answered with.
#[derive(Default)]
struct Transactions {
    requests: BTreeMap<Vec<u8>, Repeat>,
    responses: BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>,
}

/// Returns the branch and method of a message.
fn key(message: &Message<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let method = message.cseq().ok()?.method.as_bytes().to_vec();
    Some((message.top_via().ok()?.branch.to_vec(), method))
}

impl Transactions {
    /// Notes what a phone sends.
    fn sent(&mut self, now: Time, from: Ipv6Addr, octets: &[u8]) {
        let Ok(message) = message::parse(octets) else { return };
        let Some((branch, method)) = key(&message) else { return };
        if !message.is_request() {
            self.responses.insert((branch, method), octets.to_vec());
        } else if message.method() != Method::Ack {
            let is_invite = message.method() == Method::Invite;
            let (octets, at) = (octets.to_vec(), now + T1);
            let repeat = Repeat { from, octets, is_invite, begun: now, at, interval: T1 };
            self.requests.insert(branch, repeat);
        }
    }

    /// Takes what has come for a phone. Returns the response to send again if it is a retransmission, which the phone need
    /// not see (RFC 3261 section 17.2).
    fn received(&mut self, octets: &[u8]) -> Option<Vec<u8>> {
        let message = message::parse(octets).ok()?;
        let key = key(&message)?;
        if message.is_request() {
            return self.responses.get(&key).filter(|_| message.method() != Method::Ack).cloned();
        }
        let is_answered = |repeat: &Repeat| repeat.is_invite || message.status() >= 200;
        if self.requests.get(&key.0).is_some_and(is_answered) {
            self.requests.remove(&key.0);
        }
        None
    }

    /// Returns the requests that are due again.
    fn due(&mut self, now: Time) -> Vec<(Ipv6Addr, Vec<u8>)> {
        self.requests.retain(|_, repeat| now.since(repeat.begun) < PATIENCE);
        let mut due = Vec::new();
        for repeat in self.requests.values_mut().filter(|repeat| repeat.at <= now) {
            repeat.interval *= 2;
            if !repeat.is_invite {
                repeat.interval = repeat.interval.min(T2);
            }
            repeat.at = now + repeat.interval;
            due.push((repeat.from, repeat.octets.clone()));
        }
        due
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.requests.values().map(|repeat| repeat.at).min()
    }
}

/// A router with AODV, its phones, and the server if it is here.
pub(super) struct CentralRouter {
    number: u32,
    aodv: Aodv,
    /// The router with the server.
    server: u32,
    core: Option<Box<Core>>,
    phones: Phones,
    transactions: Transactions,
    out: Outbox,
}

impl CentralRouter {
    /// Starts a router. All users are at home at the router `server`.
    pub(super) fn new(
        number: u32,
        server: u32,
        roster: &Arc<Roster>,
        phones: PhoneTimes,
        seed: u64,
    ) -> Self {
        let mut random = node_random(seed ^ 0xce, number, 0);
        let address = SocketAddrV6::new(server_at(number), SIP_PORT, 0, 0);
        let users = Arc::new(HomeUsers { roster: roster.clone(), router: server });
        let store = Arc::new(MemoryStore::new([0; 16]));
        let has_server = number == server;
        let core = has_server.then(|| {
            let routes = RouteTable::default();
            let (core, _) = core(address, None, (store, users), routes, &mut random, Time::ZERO);
            Box::new(core)
        });
        let drawn = SplitMix::new(random.next_u64());
        CentralRouter {
            number,
            aodv: Aodv::new(number, Time::ZERO, node_random(seed, number, 0)).with_contents(),
            server,
            core,
            phones: Phones::new(server_at(number), phones, drawn),
            transactions: Transactions::default(),
            out: Outbox::new(),
        }
    }

    /// Has the phones do something, and carries what they send.
    pub(super) fn with_phones<T>(&mut self, now: Time, act: impl FnOnce(&mut Phones) -> T) -> T {
        let result = act(&mut self.phones);
        self.settle(now);
        result
    }

    /// Sends octets to another router that nobody reads.
    pub(super) fn send_load(&mut self, now: Time, to: u32, octets: usize) {
        let mut contents = datagram(NOBODY, NOBODY, octets);
        contents.resize(UDP + octets, 0);
        self.aodv.send_contents(now, to, contents);
    }

    /// Carries what machines have for each other, until none has anything.
    fn settle(&mut self, now: Time) {
        loop {
            let mut is_done = true;
            while let Some((from, contents)) = self.aodv.poll_contents() {
                is_done = false;
                self.arrived(now, from, &contents);
            }
            for (from, octets) in self.phones.take_sent() {
                is_done = false;
                self.transactions.sent(now, from, &octets);
                self.send_to_server(now, from, &octets);
            }
            is_done &= !self.carry_core(now);
            if is_done {
                return;
            }
        }
    }

    fn arrived(&mut self, now: Time, router: u32, contents: &[u8]) {
        let Some((&[a, b, c, d, ..], octets)) = contents.split_first_chunk::<UDP>() else { return };
        let [from, to] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        match to {
            NOBODY => {}
            0 => self.serve(now, phone_at(router, from), octets),
            to => self.ring(now, phone_at(self.number, to), octets),
        }
    }

    /// Carries a message of a phone to the server.
    fn send_to_server(&mut self, now: Time, from: Ipv6Addr, octets: &[u8]) {
        if self.server == self.number {
            return self.serve(now, from, octets);
        }
        let mut contents = datagram(port_of(&from), 0, octets.len());
        contents.extend_from_slice(octets);
        self.aodv.send_contents(now, self.server, contents);
    }

    fn serve(&mut self, now: Time, from: Ipv6Addr, octets: &[u8]) {
        let Some(core) = &mut self.core else { return };
        let local = SocketAddrV6::new(server_at(self.number), SIP_PORT, 0, 0).into();
        let remote = SocketAddrV6::new(from, SIP_PORT, 0, 0).into();
        let flow = Flow { id: FlowId::new(0, 0), transport: Transport::Udp, local, remote };
        core.handle_message(now, &flow, octets, &mut self.out);
    }

    /// Hands a message to a phone here, unless it is answered already.
    fn ring(&mut self, now: Time, to: Ipv6Addr, octets: &[u8]) {
        match self.transactions.received(octets) {
            Some(again) => self.send_to_server(now, to, &again),
            None => self.phones.receive(now, to, octets),
        }
    }

    /// Hands what the server has to phones. Returns whether there was anything.
    fn carry_core(&mut self, now: Time) -> bool {
        let Some(core) = &mut self.core else { return false };
        while let Some(event) = core.poll_event() {
            // All addresses are literal.
            if let Event::Resolve { id, .. } = event {
                core.handle_resolved(now, id, &[], &mut self.out);
            }
        }
        if self.out.is_empty() {
            return false;
        }
        let out = core::mem::take(&mut self.out);
        for (send, octets) in out.iter() {
            let (Target::Flow(Flow { remote, .. }) | Target::Peer { remote, .. }) = send.to;
            let SocketAddr::V6(remote) = remote else { continue };
            match router_of(remote.ip()) {
                router if router == self.number => self.ring(now, *remote.ip(), octets),
                router => {
                    let mut contents = datagram(0, port_of(remote.ip()), octets.len());
                    contents.extend_from_slice(octets);
                    self.aodv.send_contents(now, router, contents);
                }
            }
        }
        true
    }
}

/// Returns the UDP header of a datagram.
fn datagram(from: u16, to: u16, octets: usize) -> Vec<u8> {
    let length = u16::try_from(UDP + octets).unwrap_or(u16::MAX);
    [from, to, length, 0].into_iter().flat_map(u16::to_be_bytes).collect()
}

/// Returns the port of a phone: its user's number and one.
fn port_of(phone: &Ipv6Addr) -> u16 {
    phone.to_bits() as u16 + 1
}

/// Returns the address of the phone with a port.
fn phone_at(router: u32, port: u16) -> Ipv6Addr {
    crate::onesip::phones::address(&server_at(router), u32::from(port) - 1)
}

impl GraphNode for CentralRouter {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        self.aodv.handle_packet(now, from, bytes);
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        self.aodv.handle_timeout(now);
        for (from, octets) in self.transactions.due(now) {
            self.send_to_server(now, from, &octets);
        }
        if let Some(core) = &mut self.core
            && is_due(core.poll_timeout())
        {
            core.handle_timeout(now, &mut self.out);
        }
        if is_due(self.phones.poll_timeout()) {
            self.phones.handle_timeout(now);
        }
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let core = self.core.as_ref().and_then(|core| core.poll_timeout());
        let phones = sooner(self.phones.poll_timeout(), self.transactions.poll_timeout());
        sooner(sooner(self.aodv.poll_timeout(), core), phones)
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        self.aodv.poll_transmit(now, bytes)
    }

    fn heap_bytes(&self) -> usize {
        self.aodv.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: &[u8] = b"INVITE sip:a@mesh SIP/2.0\r\nVia: SIP/2.0/UDP h:5060;branch=z9hG4bK1\r\nFrom: <sip:b@mesh>;tag=1\r\n\
        To: <sip:a@mesh>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n";
    const RINGING: &[u8] = b"SIP/2.0 180 Ringing\r\nVia: SIP/2.0/UDP h:5060;branch=z9hG4bK1\r\nFrom: <sip:b@mesh>;tag=1\r\n\
        To: <sip:a@mesh>;tag=2\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n";

    /// RFC 3261 section 17.1.1.2: an INVITE is sent again until a response comes. Section 17.2.1: one that comes again is
    /// answered as before.
    #[test]
    fn phones_retransmit_requests_and_responses() {
        let phone = server_at(1);
        let mut caller = Transactions::default();
        caller.sent(Time::ZERO, phone, INVITE);
        assert!(caller.due(Time::from_millis(499)).is_empty());
        assert_eq!(caller.due(Time::from_millis(500)), [(phone, INVITE.to_vec())]);
        assert_eq!(caller.poll_timeout(), Some(Time::from_millis(1_500)));
        assert_eq!(caller.received(RINGING), None);
        assert_eq!(caller.poll_timeout(), None);
        let mut callee = Transactions::default();
        assert_eq!(callee.received(INVITE), None);
        callee.sent(Time::ZERO, phone, RINGING);
        assert_eq!(callee.received(INVITE), Some(RINGING.to_vec()));
    }
}
