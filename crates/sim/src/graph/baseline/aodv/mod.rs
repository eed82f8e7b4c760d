//! Ad hoc On-Demand Distance Vector routing: RFC 3561.
//!
//! Routes are found by flooding requests in growing rings, lost by hellos that fail to come, and lost routes are
//! reported to those who use them. It leaves out what the RFC leaves to choice or that nothing here needs: local
//! repair, gratuitous replies, acknowledged replies, multicast, and networks behind a node.

pub mod routes;
pub mod wire;

use crate::graph::data::{DataNode, Delivery, write_contents};
use crate::graph::node::{Destination, GraphNode};
use crate::graph::random::below;
use ringway_sansio::{Duration, SplitMix, Time};
use routes::{Hop, Routes, is_newer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use wire::{Ip, MAX_UNREACHABLE, Message, Reply, Request, address};

// RFC 3561 section 10.
const ACTIVE_ROUTE_TIMEOUT: Duration = Duration::from_millis(3_000);
const ALLOWED_HELLO_LOSS: u32 = 2;
const HELLO_INTERVAL: Duration = Duration::from_millis(1_000);
/// K times the longer of the two, with K = 5.
const DELETE_PERIOD: Duration = Duration::from_millis(5 * 3_000);
const MY_ROUTE_TIMEOUT: Duration = Duration::from_millis(2 * 3_000);
const NET_DIAMETER: u8 = 35;
const NODE_TRAVERSAL_TIME: Duration = Duration::from_millis(40);
const NET_TRAVERSAL_TIME: Duration = Duration::from_millis(2 * 40 * 35);
const PATH_DISCOVERY_TIME: Duration = Duration::from_millis(2 * 2 * 40 * 35);
const RERR_RATELIMIT: u32 = 10;
const RREQ_RATELIMIT: u32 = 10;
const RREQ_RETRIES: u32 = 2;
const TIMEOUT_BUFFER: u32 = 2;
const TTL_START: u8 = 1;
const TTL_INCREMENT: u8 = 2;
const TTL_THRESHOLD: u8 = 7;

/// Maximum random time before a request is sent on, so that neighbours do not all send at once.
const MAX_JITTER: Duration = Duration::from_millis(10);
/// Time to live of data.
const DATA_TTL: u8 = 64;
/// Maximum number of data packets that wait for routes.
const MAX_QUEUED: usize = 64;
const ALL: Ipv4Addr = Ipv4Addr::BROADCAST;

/// The number of messages in the present second.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    second: u64,
    sent: u32,
}

impl Limit {
    /// Counts a message; returns whether it may be sent.
    fn admits(&mut self, now: Time, max: u32) -> bool {
        if self.second != now.as_secs() {
            *self = Limit { second: now.as_secs(), sent: 0 };
        }
        self.sent += 1;
        self.sent <= max
    }
}

/// A search for a route.
#[derive(Clone, Debug)]
struct Discovery {
    ttl: u8,
    /// Requests sent with the largest TTL.
    full: u32,
    deadline: Time,
    /// Contents of the data packets that wait.
    queue: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    node: u32,
    heard: Time,
    /// Whether it has sent a hello, so that its silence says something.
    says_hello: bool,
}

/// A node with AODV.
#[derive(Debug)]
pub struct Aodv {
    number: u32,
    random: SplitMix,
    sequence: u32,
    request_id: u32,
    routes: Routes,
    neighbours: BTreeMap<u16, Neighbour>,
    /// Requests by originator and id, and until when they are remembered.
    seen: BTreeMap<(Ipv4Addr, u32), Time>,
    discoveries: BTreeMap<u32, Discovery>,
    /// Packets by the time when they are to be sent and their order.
    pending: BTreeMap<(Time, u64), (Destination, Vec<u8>)>,
    queued: u64,
    hello_at: Time,
    last_broadcast: Time,
    requests: Limit,
    errors: Limit,
    delivered: VecDeque<Delivery>,
    /// Contents of data packets with the nodes that sent them, if they are wanted instead of deliveries.
    contents: Option<VecDeque<(u32, Vec<u8>)>>,
}

impl Aodv {
    /// Creates the node `number`, at the time of its start.
    pub fn new(number: u32, now: Time, mut random: SplitMix) -> Self {
        let phase = below(&mut random, HELLO_INTERVAL.as_nanos() as u64);
        Aodv {
            number,
            random,
            sequence: 0,
            request_id: 0,
            routes: Routes::default(),
            neighbours: BTreeMap::new(),
            seen: BTreeMap::new(),
            discoveries: BTreeMap::new(),
            pending: BTreeMap::new(),
            queued: 0,
            hello_at: now + Duration::from_nanos(phase),
            last_broadcast: Time::ZERO,
            requests: Limit::default(),
            errors: Limit::default(),
            delivered: VecDeque::new(),
            contents: None,
        }
    }

    /// Has the contents of data packets that arrive returned by [`Aodv::poll_contents`] instead of being counted.
    pub fn with_contents(self) -> Self {
        Aodv { contents: Some(VecDeque::new()), ..self }
    }

    /// Returns the contents of the next data packet that arrived and the node that sent it, of a node
    /// [with contents](Aodv::with_contents).
    pub fn poll_contents(&mut self) -> Option<(u32, Vec<u8>)> {
        self.contents.as_mut()?.pop_front()
    }

    /// Sends a data packet with these contents to the node `to`.
    pub fn send_contents(&mut self, now: Time, to: u32, contents: Vec<u8>) {
        if to == self.number {
            return self.deliver(now, self.number, 0, &contents);
        }
        if self.forward(now, self.number, to, DATA_TTL, &contents) {
            return;
        }
        if let Some(discovery) = self.discoveries.get_mut(&to) {
            if discovery.queue.len() < MAX_QUEUED {
                discovery.queue.push(contents);
            }
            return;
        }
        // The first ring is as wide as the last route was long (section 6.4).
        let ttl = self.routes.get(to).map_or(TTL_START, |r| r.hops.saturating_add(TTL_INCREMENT));
        let ttl = if ttl > TTL_THRESHOLD { NET_DIAMETER } else { ttl };
        let discovery = Discovery { ttl, full: 0, deadline: now, queue: vec![contents] };
        self.discoveries.insert(to, discovery);
        self.request(now, to);
    }

    /// Returns the routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    fn queue(&mut self, at: Time, to: Destination, packet: Vec<u8>) {
        self.queued += 1;
        self.pending.insert((at, self.queued), (to, packet));
    }

    fn unicast(&mut self, now: Time, message: &Message, to: Hop) {
        let packet = wire::packet(message, address(self.number), address(to.node), 1);
        self.queue(now, Destination::Neighbour(to.index), packet);
    }

    fn broadcast(&mut self, at: Time, message: &Message, ttl: u8) {
        self.last_broadcast = at;
        let packet = wire::packet(message, address(self.number), ALL, ttl);
        self.queue(at, Destination::Neighbours, packet);
    }

    /// Sends a request for a route (sections 6.3 and 6.4), or drops what waits for it when there were enough.
    fn request(&mut self, now: Time, to: u32) {
        let Some(discovery) = self.discoveries.get_mut(&to) else { return };
        if discovery.full > RREQ_RETRIES {
            self.discoveries.remove(&to);
            return;
        }
        if !self.requests.admits(now, RREQ_RATELIMIT) {
            discovery.deadline = Time::from_secs(now.as_secs() + 1);
            return;
        }
        let ttl = discovery.ttl;
        if ttl < NET_DIAMETER {
            let wait = 2 * NODE_TRAVERSAL_TIME * (u32::from(ttl) + TIMEOUT_BUFFER);
            discovery.deadline = now + wait;
            let wider = ttl + TTL_INCREMENT;
            discovery.ttl = if wider > TTL_THRESHOLD { NET_DIAMETER } else { wider };
        } else {
            discovery.deadline = now + NET_TRAVERSAL_TIME * (1 << discovery.full);
            discovery.full += 1;
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.request_id = self.request_id.wrapping_add(1);
        let request = Request {
            destination_only: false,
            hop_count: 0,
            id: self.request_id,
            destination: address(to),
            destination_sequence: self.routes.get(to).and_then(|route| route.sequence),
            originator: address(self.number),
            originator_sequence: self.sequence,
        };
        self.seen.insert((request.originator, request.id), now + PATH_DISCOVERY_TIME);
        self.broadcast(now, &Message::Request(request), ttl);
    }

    /// Handles a request from a neighbour (sections 6.5 and 6.6).
    fn handle_request(&mut self, now: Time, from: Hop, ttl: u8, mut request: Request) {
        let key = (request.originator, request.id);
        let ends = [request.originator, request.destination].map(wire::node);
        let [Some(originator), Some(destination)] = ends else { return };
        let is_new = self.seen.get(&key).is_none_or(|until| *until <= now);
        if originator == self.number || !is_new {
            return;
        }
        self.seen.insert(key, now + PATH_DISCOVERY_TIME);
        let hops = request.hop_count.saturating_add(1);
        let lifetime = 2 * NET_TRAVERSAL_TIME;
        let lifetime = lifetime.saturating_sub(2 * u32::from(hops) * NODE_TRAVERSAL_TIME);
        let sequence = request.originator_sequence;
        self.routes.offer(now, originator, sequence, hops, from, now + lifetime);
        if let Some(back) = self.routes.active(originator, now) {
            back.extend(now + lifetime);
        }
        if destination == self.number {
            if let Some(asked) = request.destination_sequence
                && is_newer(asked, self.sequence)
            {
                self.sequence = asked;
            }
            let reply = Reply {
                hop_count: 0,
                destination: request.destination,
                destination_sequence: self.sequence,
                originator: request.originator,
                lifetime_ms: MY_ROUTE_TIMEOUT.as_millis() as u32,
            };
            return self.unicast(now, &Message::Reply(reply), from);
        }
        if !request.destination_only && self.reply_for(now, originator, destination, from, &request)
        {
            return;
        }
        if ttl > 1 {
            let known = self.routes.get(destination).and_then(|route| route.sequence);
            let asked = request.destination_sequence;
            let newest = match (known, asked) {
                (Some(known), Some(asked)) if is_newer(asked, known) => Some(asked),
                (known, asked) => known.or(asked),
            };
            request.destination_sequence = newest;
            request.hop_count = hops;
            let jitter = below(&mut self.random, MAX_JITTER.as_nanos() as u64);
            let at = now + Duration::from_nanos(jitter);
            self.broadcast(at, &Message::Request(request), ttl - 1);
        }
    }

    /// Replies for another node, if a route to it is known that is new enough (section 6.6.2).
    fn reply_for(
        &mut self,
        now: Time,
        originator: u32,
        destination: u32,
        from: Hop,
        request: &Request,
    ) -> bool {
        let Some(route) = self.routes.active(destination, now) else { return false };
        let Some(sequence) = route.sequence else { return false };
        if request.destination_sequence.is_some_and(|asked| is_newer(asked, sequence)) {
            return false;
        }
        let reply = Reply {
            hop_count: route.hops,
            destination: request.destination,
            destination_sequence: sequence,
            originator: request.originator,
            lifetime_ms: route.expires.since(now).as_millis() as u32,
        };
        route.precursors.insert(from.node);
        let next = route.next.node;
        if let Some(back) = self.routes.active(originator, now) {
            back.precursors.insert(next);
        }
        self.unicast(now, &Message::Reply(reply), from);
        true
    }

    /// Handles a reply from a neighbour (section 6.7).
    fn handle_reply(&mut self, now: Time, from: Hop, mut reply: Reply) {
        let ends = [reply.originator, reply.destination].map(wire::node);
        let [Some(originator), Some(destination)] = ends else { return };
        let hops = reply.hop_count.saturating_add(1);
        let expires = now + Duration::from_millis(reply.lifetime_ms.into());
        let sequence = reply.destination_sequence;
        if destination == self.number
            || !self.routes.offer(now, destination, sequence, hops, from, expires)
        {
            return;
        }
        if originator == self.number {
            return self.found(now, destination);
        }
        let Some(back) = self.routes.active(originator, now) else { return };
        let back_next = back.next;
        back.extend(now + ACTIVE_ROUTE_TIMEOUT);
        for to in [destination, from.node] {
            if let Some(route) = self.routes.active(to, now) {
                route.precursors.insert(back_next.node);
            }
        }
        reply.hop_count = hops;
        self.unicast(now, &Message::Reply(reply), back_next);
    }

    /// Sends the data that waited for a route.
    fn found(&mut self, now: Time, to: u32) {
        let queue = self.discoveries.remove(&to).map(|discovery| discovery.queue);
        for contents in queue.into_iter().flatten() {
            self.forward(now, self.number, to, DATA_TTL, &contents);
        }
    }

    /// Handles a hello of a neighbour (section 6.9).
    fn handle_hello(&mut self, now: Time, from: Hop, reply: Reply) {
        let expires = now + ALLOWED_HELLO_LOSS * HELLO_INTERVAL;
        self.routes.hello(now, from, reply.destination_sequence, expires);
        if let Some(neighbour) = self.neighbours.get_mut(&from.index) {
            neighbour.says_hello = true;
        }
    }

    /// Sends data on an active route; returns whether there is one. All routes it passes live longer
    /// (section 6.2).
    fn forward(&mut self, now: Time, source: u32, to: u32, ttl: u8, contents: &[u8]) -> bool {
        let expires = now + ACTIVE_ROUTE_TIMEOUT;
        let Some(route) = self.routes.active(to, now) else { return false };
        route.extend(expires);
        let next = route.next;
        let back = self.routes.active(source, now).map(|route| route.next.node);
        for node in [Some(next.node), Some(source), back].into_iter().flatten() {
            if let Some(route) = self.routes.active(node, now) {
                route.extend(expires);
            }
        }
        let [source, destination] = [source, to].map(address);
        let mut packet = Vec::new();
        Ip { source, destination, protocol: wire::DATA, ttl, payload: contents }.write(&mut packet);
        self.queue(now, Destination::Neighbour(next.index), packet);
        true
    }

    fn handle_data(&mut self, now: Time, from: Option<Hop>, ip: &Ip<'_>) {
        let ends = [ip.source, ip.destination].map(wire::node);
        let [Some(source), Some(to)] = ends else { return };
        if to == self.number {
            let hops = u32::from(DATA_TTL.saturating_sub(ip.ttl)) + 1;
            if let Some(route) = self.routes.active(source, now) {
                route.extend(now + ACTIVE_ROUTE_TIMEOUT);
            }
            return self.deliver(now, source, hops, ip.payload);
        }
        if ip.ttl <= 1 || self.forward(now, source, to, ip.ttl - 1, ip.payload) {
            return;
        }
        // Section 6.11 (ii): data for which there is no route.
        let sequence = self.routes.get(to).and_then(|route| route.sequence).unwrap_or_default();
        if let Some(from) = from
            && self.errors.admits(now, RERR_RATELIMIT)
        {
            self.unicast(now, &Message::Error(vec![(ip.destination, sequence)]), from);
        }
    }

    fn deliver(&mut self, at: Time, source: u32, hops: u32, contents: &[u8]) {
        if let Some(kept) = &mut self.contents {
            kept.push_back((source, contents.to_vec()));
        } else if let Some(number) = contents.first_chunk() {
            let number = u32::from_be_bytes(*number);
            self.delivered.push_back(Delivery { number, at, hops });
        }
    }

    /// Makes routes over a neighbour invalid, with their new sequence numbers if those are known, and reports
    /// them to the neighbours that use them (section 6.11).
    fn lose(&mut self, now: Time, via: u32, lost: impl IntoIterator<Item = (u32, Option<u32>)>) {
        let (mut unreachable, mut users) = (Vec::new(), BTreeSet::new());
        for (to, sequence) in lost {
            if let Some((sequence, precursors)) = self.routes.invalidate(now, to, via, sequence)
                && !precursors.is_empty()
            {
                unreachable.push((address(to), sequence));
                users.extend(precursors);
            }
        }
        for part in unreachable.chunks(MAX_UNREACHABLE) {
            if !self.errors.admits(now, RERR_RATELIMIT) {
                return;
            }
            let message = Message::Error(part.to_vec());
            let user = users.first().filter(|_| users.len() == 1);
            let only = user.and_then(|user| self.routes.active(*user, now));
            match only.map(|route| route.next) {
                Some(hop) => self.unicast(now, &message, hop),
                None => self.broadcast(now, &message, 1),
            }
        }
    }

    /// Sends a hello if it is due, and forgets what is old.
    fn tick(&mut self, now: Time) {
        self.hello_at = now + HELLO_INTERVAL;
        let silence = ALLOWED_HELLO_LOSS * HELLO_INTERVAL;
        let is_silent = |neighbour: &Neighbour| neighbour.heard + silence < now;
        let silent: Vec<Neighbour> =
            self.neighbours.values().filter(|neighbour| is_silent(neighbour)).copied().collect();
        self.neighbours.retain(|_, neighbour| !is_silent(neighbour));
        for Neighbour { node, .. } in silent.into_iter().filter(|neighbour| neighbour.says_hello) {
            let lost = self.routes.over(node, now).into_iter().map(|to| (to, None));
            self.lose(now, node, lost.collect::<Vec<_>>());
        }
        self.routes.purge(now);
        self.seen.retain(|_, until| *until > now);
        if self.routes.any_used(now) && self.last_broadcast + HELLO_INTERVAL <= now {
            let hello = Reply {
                hop_count: 0,
                destination: address(self.number),
                destination_sequence: self.sequence,
                originator: address(self.number),
                lifetime_ms: silence.as_millis() as u32,
            };
            self.broadcast(now, &Message::Reply(hello), 1);
        }
    }
}

impl GraphNode for Aodv {
    fn handle_packet(&mut self, now: Time, index: u16, bytes: &mut [u8]) {
        let Some(ip) = Ip::parse(bytes) else { return };
        if let Some(neighbour) = self.neighbours.get_mut(&index) {
            neighbour.heard = now;
        }
        if ip.protocol == wire::DATA {
            let from = self.neighbours.get(&index).map(|n| Hop { node: n.node, index });
            return self.handle_data(now, from, &ip);
        }
        let (Some(message), Some(node)) = (ip.message(), wire::node(ip.source)) else { return };
        let from = Hop { node, index };
        let new = Neighbour { node, heard: now, says_hello: false };
        self.neighbours.entry(index).or_insert(new).node = node;
        if let Message::Reply(reply) = message
            && ip.destination == ALL
        {
            return self.handle_hello(now, from, reply);
        }
        self.routes.neighbour(now, from, now + ACTIVE_ROUTE_TIMEOUT);
        match message {
            Message::Request(request) => self.handle_request(now, from, ip.ttl, request),
            Message::Reply(reply) => self.handle_reply(now, from, reply),
            Message::Error(unreachable) => {
                let lost = unreachable.into_iter();
                let lost =
                    lost.filter_map(|(to, sequence)| Some((wire::node(to)?, Some(sequence))));
                self.lose(now, node, lost);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.hello_at <= now {
            self.tick(now);
        }
        let due = |discovery: &Discovery| discovery.deadline <= now;
        let due: Vec<u32> =
            self.discoveries.iter().filter(|(_, d)| due(d)).map(|(to, _)| *to).collect();
        due.into_iter().for_each(|to| self.request(now, to));
    }

    fn poll_timeout(&self) -> Option<Time> {
        let pending = self.pending.first_key_value().map(|((at, _), _)| *at);
        let discoveries = self.discoveries.values().map(|discovery| discovery.deadline);
        discoveries.chain(pending).chain([self.hello_at]).min()
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        let entry = self.pending.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (to, packet) = entry.remove();
        bytes.extend_from_slice(&packet);
        Some(to)
    }

    fn heap_bytes(&self) -> usize {
        let queued = self
            .discoveries
            .values()
            .flat_map(|d| &d.queue)
            .chain(self.pending.values().map(|(_, packet)| packet));
        self.routes.heap_bytes()
            + self.neighbours.len() * size_of::<(u16, Neighbour)>()
            + self.seen.len() * size_of::<((Ipv4Addr, u32), Time)>()
            + self.discoveries.len() * size_of::<(u32, Discovery)>()
            + queued.map(|packet| packet.capacity() + size_of::<Vec<u8>>()).sum::<usize>()
            + self.delivered.capacity() * size_of::<Delivery>()
    }
}

impl DataNode for Aodv {
    fn send_data(&mut self, now: Time, to: u32, number: u32, len: u16) {
        let mut contents = Vec::new();
        write_contents(&mut contents, number, len);
        self.send_contents(now, to, contents);
    }

    fn poll_delivery(&mut self) -> Option<Delivery> {
        self.delivered.pop_front()
    }
}

#[cfg(test)]
mod tests;
