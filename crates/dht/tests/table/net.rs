//! A network of DHT parts over a mesh that is reduced to what they see of one: messages reach whoever is responsible for
//! a position, late or never, and a router that is gone is noticed after some time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ringway_dht::{Answer, Config, Dht, Draft, Event, LookUpId, Record, ScanEnd, ScanId};
use ringway_mesh::NodeId;
use ringway_mesh::config::{APPLICATION_BURST, APPLICATION_RATE};
use ringway_mesh::crypto::StandIn;
use ringway_mesh::identity::{Identity, Search};
use ringway_mesh::metric::{Ring, responsible};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix, Time};

/// Time until the mesh notices that a router is gone.
pub(crate) const NOTICED: Duration = Duration::from_secs(3);

/// A router.
pub(crate) struct Node {
    pub(crate) dht: Dht<StandIn>,
    identity: Identity,
    /// When it has gone.
    gone: Option<Time>,
    /// Nothing reaches it.
    deaf: bool,
    /// What it may still send, in octet hops, as the mesh counts for its applications.
    budget: u64,
    /// The least that it had left.
    pub(crate) least: u64,
    earned: Time,
    /// The part of a divided network that it is in.
    pub(crate) part: u32,
    pub(crate) events: Vec<Event>,
}

/// Octets between routers.
pub(crate) struct Packet {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) octets: Vec<u8>,
}

/// Octets of the headers of a PAYLOAD.
const HEADERS: u64 = 170;

pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) random: SplitMix,
    pub(crate) config: Config,
    /// Messages of 100 that are lost.
    pub(crate) loss: u64,
    /// Links of each way.
    hops: u64,
    packets: BinaryHeap<Reverse<(Time, u64)>>,
    contents: BTreeMap<u64, Packet>,
    number: u64,
    /// Octets and messages that were sent between routers.
    pub(crate) octets: u64,
    pub(crate) messages: u64,
    /// Messages that the mesh has refused, as a budget was used up.
    pub(crate) refused: u64,
}

impl Net {
    /// A network of `count` routers that have started, and have settled.
    pub(crate) fn new(count: usize, seed: u64) -> Net {
        Net::with(count, seed, Config::default())
    }

    /// The same with other limits.
    pub(crate) fn with(count: usize, seed: u64, config: Config) -> Net {
        let mut net = Net {
            now: Time::from_secs(1_000_000),
            nodes: BTreeMap::new(),
            random: SplitMix::new(seed),
            config: Config { extension_bits: 0, ..config },
            loss: 0,
            hops: 4,
            packets: BinaryHeap::new(),
            contents: BTreeMap::new(),
            number: 0,
            octets: 0,
            messages: 0,
            refused: 0,
        };
        for _ in 0..count {
            net.join();
        }
        net.run(15_000);
        net
    }

    /// Adds a router, and returns its id.
    pub(crate) fn join(&mut self) -> NodeId {
        let identity = Search::new(0, &mut self.random).step(1).unwrap();
        self.start(identity, self.now)
    }

    /// Starts a router of which the clock shows `clock`.
    fn start(&mut self, identity: Identity, clock: Time) -> NodeId {
        let dht = Dht::new(self.config, identity.clone(), clock);
        let id = dht.id();
        let (budget, earned) = (u64::from(APPLICATION_BURST), self.now);
        let (part, events, deaf) = (0, Vec::new(), false);
        let least = budget;
        let node = Node { dht, identity, gone: None, deaf, budget, least, earned, part, events };
        self.nodes.insert(id, node);
        self.notice();
        id
    }

    /// Ends a router and starts it anew at once, without anything that it knew.
    pub(crate) fn restart(&mut self, id: NodeId) {
        let identity = self.nodes.remove(&id).unwrap().identity;
        self.start(identity, self.now);
    }

    /// The same with its clock put back.
    pub(crate) fn restart_in_the_past(&mut self, id: NodeId) {
        let identity = self.nodes.remove(&id).unwrap().identity;
        self.start(identity, Time::from_secs(1_000));
    }

    /// Ends a router without notice.
    pub(crate) fn crash(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).unwrap().gone = Some(self.now);
    }

    /// Has a router leave as it should.
    pub(crate) fn leave(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).unwrap().dht.leave();
        self.collect(id);
        // Its links are closed, so that the mesh need not wait.
        self.nodes.get_mut(&id).unwrap().gone = Some(Time::ZERO);
        self.notice();
    }

    /// Has all ways have so many links.
    pub(crate) fn set_hops(&mut self, hops: u16) {
        self.hops = hops.into();
        self.nodes.values_mut().for_each(|node| node.dht.set_mean_hops(hops));
    }

    /// Cuts one router off.
    pub(crate) fn isolate(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).unwrap().part = 7;
        self.notice();
    }

    /// Has nothing reach a router, or again.
    pub(crate) fn ignore(&mut self, id: NodeId, deaf: bool) {
        self.nodes.get_mut(&id).unwrap().deaf = deaf;
    }

    /// Divides the network: routers with an odd id are one part.
    pub(crate) fn divide(&mut self) {
        self.divide_by(|id| (id.raw() % 2) as u32);
    }

    /// Divides the network into numbered parts.
    pub(crate) fn divide_by(&mut self, part: impl Fn(NodeId) -> u32) {
        self.nodes.iter_mut().for_each(|(&id, node)| node.part = part(id));
        self.notice();
    }

    pub(crate) fn unite(&mut self) {
        self.nodes.values_mut().for_each(|node| node.part = 0);
        self.notice();
    }

    /// Returns the routers that are up, in order.
    pub(crate) fn up(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, node)| node.gone.is_none()).map(|(&id, _)| id).collect()
    }

    pub(crate) fn some(&mut self) -> NodeId {
        let up = self.up();
        up[(self.random.next_u64() % up.len() as u64) as usize]
    }

    /// Returns the routers that the mesh takes for being up, in a part of it.
    fn visible(&self, part: u32) -> Vec<NodeId> {
        let is_seen = |node: &Node| node.gone.is_none_or(|at| self.now < at + NOTICED);
        let of_part = self.nodes.iter().filter(|(_, node)| node.part == part && is_seen(node));
        of_part.map(|(&id, _)| id).collect()
    }

    /// Tells all routers who is beside them.
    fn notice(&mut self) {
        for id in self.up() {
            let visible = self.visible(self.nodes[&id].part);
            let at = visible.binary_search(&id).unwrap();
            let near = &visible[at.saturating_sub(2)..visible.len().min(at + 3)];
            let others = || near.iter().copied().filter(|&other| other != id);
            let last = visible.len() - 1;
            let partner = if at == 0 { visible.last() } else { visible.first() };
            let partner = partner.filter(|&&other| other != id && (at == 0 || at == last));
            let node = self.nodes.get_mut(&id).unwrap();
            node.dht.update_neighbours(self.now, others(), partner.copied(), &mut self.random);
        }
    }

    pub(crate) fn publish(&mut self, by: NodeId, name: &[u8], value: &[u8], lifetime: u32) {
        let draft = Draft { kind: 1, name, value, lifetime };
        let node = self.nodes.get_mut(&by).unwrap();
        node.dht.publish(self.now, &draft, &mut self.random).unwrap();
        self.collect(by);
    }

    /// Publishes a record of another kind.
    pub(crate) fn publish_kind(&mut self, by: NodeId, kind: u8, name: &[u8]) {
        let draft = Draft { kind, name, value: b"x", lifetime: 600 };
        let node = self.nodes.get_mut(&by).unwrap();
        node.dht.publish(self.now, &draft, &mut self.random).unwrap();
        self.collect(by);
    }

    /// Publishes records `user0`, `user1`... by routers in turn.
    pub(crate) fn publish_everywhere(&mut self, count: usize) {
        let up = self.up();
        for number in 0..count {
            let name = format!("user{number}");
            self.publish(up[number % up.len()], name.as_bytes(), b"here", 600);
        }
    }

    /// Returns the routers of a part of a divided network.
    pub(crate) fn of_part(&self, part: u32) -> Vec<NodeId> {
        self.up().into_iter().filter(|id| self.nodes[id].part == part).collect()
    }

    pub(crate) fn withdraw(&mut self, by: NodeId, name: &[u8]) {
        let node = self.nodes.get_mut(&by).unwrap();
        assert!(node.dht.withdraw(self.now, 1, name, &mut self.random));
        self.collect(by);
    }

    /// Returns whether a record of a router has been stored.
    pub(crate) fn is_stored(&self, by: NodeId, name: &[u8]) -> bool {
        self.nodes[&by]
            .events
            .iter()
            .any(|event| matches!(event, Event::Stored((1, stored), _) if stored[..] == *name))
    }

    /// Begins a look-up.
    pub(crate) fn begin(&mut self, by: NodeId, name: &[u8]) -> LookUpId {
        let node = self.nodes.get_mut(&by).unwrap();
        let id = node.dht.look_up(self.now, 1, name, &mut self.random).unwrap();
        self.collect(by);
        id
    }

    /// Begins a thorough look-up.
    pub(crate) fn begin_all(&mut self, by: NodeId, name: &[u8]) -> LookUpId {
        let node = self.nodes.get_mut(&by).unwrap();
        let id = node.dht.look_up_all(self.now, 1, name, &mut self.random).unwrap();
        self.collect(by);
        id
    }

    /// Begins a scan.
    pub(crate) fn scan(&mut self, by: NodeId, kind: u8) -> Option<ScanId> {
        let node = self.nodes.get_mut(&by).unwrap();
        let id = node.dht.scan(self.now, kind, &mut self.random);
        self.collect(by);
        id
    }

    /// Waits for the end of a scan. Returns the names that it has found, sorted, how it has ended and the time it took.
    pub(crate) fn await_scan(
        &mut self,
        by: NodeId,
        id: ScanId,
        max: Duration,
    ) -> (Vec<Vec<u8>>, ScanEnd, Duration) {
        let begun = self.now;
        while self.now - begun < max {
            let events = &self.nodes[&by].events;
            let end = events.iter().find_map(|event| match event {
                Event::Scanned(other, end) if *other == id => Some(*end),
                _ => None,
            });
            if let Some(end) = end {
                let listed = events.iter().flat_map(|event| match event {
                    Event::Listed(other, records) if *other == id => &records[..],
                    _ => &[],
                });
                let mut names: Vec<_> = listed.map(|record| record.name().to_vec()).collect();
                names.sort();
                return (names, end, self.now - begun);
            }
            self.run(10);
        }
        panic!("a scan did not end");
    }

    /// Returns the answer to a look-up, if it has ended.
    pub(crate) fn answer(&self, by: NodeId, id: LookUpId) -> Option<Answer> {
        self.nodes[&by].events.iter().find_map(|event| match event {
            Event::Answer(other, answer) if *other == id => Some(answer.clone()),
            _ => None,
        })
    }

    /// Looks a name up, and returns the answer and the time it took.
    pub(crate) fn look_up(&mut self, by: NodeId, name: &[u8]) -> (Answer, Duration) {
        let id = self.begin(by, name);
        self.await_answer(by, id)
    }

    /// Looks for all records of a name.
    pub(crate) fn look_up_all(&mut self, by: NodeId, name: &[u8]) -> Answer {
        let id = self.begin_all(by, name);
        self.await_answer(by, id).0
    }

    fn await_answer(&mut self, by: NodeId, id: LookUpId) -> (Answer, Duration) {
        let begun = self.now;
        while self.now < begun + Duration::from_secs(30) {
            if let Some(answer) = self.answer(by, id) {
                return (answer, self.now - begun);
            }
            self.run(10);
        }
        panic!("a look-up did not end");
    }

    /// Returns the values of a name that a router finds, sorted.
    pub(crate) fn values(&mut self, by: NodeId, name: &[u8]) -> Vec<Vec<u8>> {
        match self.look_up(by, name).0 {
            Answer::Found(records) | Answer::Partial(records) => values(&records),
            Answer::Absent => Vec::new(),
            Answer::Unknown => vec![b"?".to_vec()],
        }
    }

    /// Returns who keeps a record with this name.
    pub(crate) fn holders(&self, name: &[u8]) -> Vec<NodeId> {
        let key = ringway_dht::record::key(1, name);
        let holds = |node: &Node| !node.dht.table().of_name(key, 1, name).is_empty();
        self.up().into_iter().filter(|id| holds(&self.nodes[id])).collect()
    }

    /// Sends octets from a router that does not keep to the protocol.
    pub(crate) fn send(&mut self, from: NodeId, to: NodeId, octets: Vec<u8>) {
        let delay = Duration::from_millis(5 + self.random.next_u64() % 45);
        if from != to {
            self.octets += octets.len() as u64;
            self.messages += 1;
            if self.random.next_u64() % 100 < self.loss {
                return;
            }
        }
        let delay = if from == to { Duration::ZERO } else { delay };
        self.packets.push(Reverse((self.now + delay, self.number)));
        self.contents.insert(self.number, Packet { from, to, octets });
        self.number += 1;
    }

    /// Has a router pay for a message, as the mesh does.
    fn pays(&mut self, from: NodeId, octets: u64) -> bool {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&from) else { return true };
        let cost = (octets + HEADERS) * 2 * self.hops;
        let earned =
            now.since(node.earned).as_millis() as u64 * u64::from(APPLICATION_RATE) / 1_000;
        node.budget = (node.budget + earned).min(APPLICATION_BURST.into());
        node.earned = now;
        let is_there = node.budget >= cost;
        node.budget -= if is_there { cost } else { 0 };
        node.least = node.least.min(node.budget);
        is_there
    }

    /// Takes what is under way from a router, as one on its way can.
    pub(crate) fn intercept(&mut self, from: NodeId) -> Vec<Packet> {
        let is_from = |packet: &Packet| packet.from == from && packet.to != from;
        let numbers: Vec<u64> =
            self.contents.iter().filter(|(_, packet)| is_from(packet)).map(|(&at, _)| at).collect();
        numbers.iter().filter_map(|number| self.contents.remove(number)).collect()
    }

    fn collect(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.events.extend(core::iter::from_fn(|| node.dht.poll_event()));
        let (part, messages) = (node.part, node.dht.take_messages());
        if messages.is_empty() {
            return;
        }
        let visible = self.visible(part);
        for message in messages {
            let to = responsible::<Ring>(visible.iter().copied(), message.to).unwrap_or(id);
            if to == id || self.pays(id, message.octets.len() as u64) {
                self.send(id, to, message.octets);
            } else {
                self.refused += 1;
            }
        }
    }

    fn deliver(&mut self, packet: &Packet) {
        let part = self.nodes.get(&packet.from).map(|node| node.part);
        let Some(node) = self.nodes.get_mut(&packet.to) else { return };
        let is_far =
            packet.from != packet.to && (node.deaf || part.is_some_and(|at| at != node.part));
        if node.gone.is_none() && !is_far {
            node.dht.handle(self.now, packet.from, &packet.octets, &mut self.random);
            self.collect(packet.to);
        }
    }

    /// Lets milliseconds pass.
    pub(crate) fn run(&mut self, milliseconds: u64) {
        let end = self.now + Duration::from_millis(milliseconds);
        let step = Duration::from_millis(10);
        while self.now < end {
            let before = self.now;
            self.now = (self.now + step).min(end);
            while let Some(&Reverse((at, number))) = self.packets.peek()
                && at <= self.now
            {
                self.packets.pop();
                if let Some(packet) = self.contents.remove(&number) {
                    self.deliver(&packet);
                }
            }
            let noticed = |at: Time| (before..self.now).contains(&(at + NOTICED));
            if self.nodes.values().any(|node| node.gone.is_some_and(noticed)) {
                self.notice();
            }
            for id in self.up() {
                let node = self.nodes.get_mut(&id).unwrap();
                if node.dht.poll_timeout().is_some_and(|due| due <= self.now) {
                    node.dht.handle_timeout(self.now, &mut self.random);
                    self.collect(id);
                }
            }
        }
    }
}

/// Returns the values of records, sorted.
pub(crate) fn values(records: &[Record]) -> Vec<Vec<u8>> {
    let mut values: Vec<_> = records.iter().map(|record| record.value().to_vec()).collect();
    values.sort();
    values
}
