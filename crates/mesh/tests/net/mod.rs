//! A network of overlays without links, keys and loss: what is sent travels by labels, hop by hop, through the code that
//! forwards, and arrives after one unit of time a hop. It counts what the overlay costs.

// The test and the example each use a part of it.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringway_mesh::config::Limits;
use ringway_mesh::forward::message::{Here, Verdict, forward};
use ringway_mesh::link::{PATH_COST, UNIT};
use ringway_mesh::metric::{Ring, Space};
use ringway_mesh::ring::Towards;
use ringway_mesh::routes::{Contact, Detours};
use ringway_mesh::wire::bodies::Connect;
use ringway_mesh::wire::{Hint, Hints, Message, MessageId, Neighbour, Route, Routed, Slot};
use ringway_mesh::{Action, Instance, NodeId, Overlay, Proof, Sequence};
use ringway_sansio::{Random, SplitMix, Time};

/// Units of time in a hop; messages are spread within one, so that their order is not that of sending.
const HOP: u64 = 1_000;
const NOW: Time = Time::ZERO;

/// The body of a CONNECT with these hints; overlays look at nothing else of it.
fn connect(hints: Hints) -> Connect {
    Connect {
        proof: Proof { key: [0; 32], modifier: [0; 16] },
        sequence: Sequence::default(),
        instance: Instance(0),
        settled: false,
        wrap: false,
        hints,
    }
}

struct Node<S> {
    id: NodeId,
    overlay: Overlay<S>,
    /// By slot.
    neighbours: Vec<Neighbour>,
    /// Indexes of the neighbours by slot.
    peers: Vec<usize>,
}

/// What arrives at a node.
enum Event {
    Connect { from: NodeId, back: Route, hints: Hints },
    ConnectAck { from: NodeId, route: Route, hints: Hints },
    Introduce { back: Route, hint: Hint },
    Unreachable { id: NodeId, route: Route },
}

/// What a network has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cost {
    /// Messages, answers among them.
    pub(crate) messages: u64,
    /// Links that they took.
    pub(crate) hops: u64,
}

/// How messages between random pairs went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    pub(crate) pairs: u32,
    pub(crate) delivered: u32,
    /// Mean of hops over shortest paths.
    pub(crate) greedy: f64,
    /// The same for the recorded way back.
    pub(crate) recorded: f64,
}

pub(crate) struct Net<S: Space = Ring> {
    nodes: Vec<Node<S>>,
    events: BTreeMap<(u64, u64), (usize, Event)>,
    now: u64,
    random: SplitMix,
    pub(crate) cost: Cost,
}

impl<S: Space> Net<S> {
    /// A network with random ids.
    pub(crate) fn new(links: &[BTreeSet<usize>], limits: Limits, seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let ids = links.iter().map(|_| NodeId::new(random.next_u64())).collect();
        Net::with_ids(links, ids, limits, seed)
    }

    pub(crate) fn with_ids(
        links: &[BTreeSet<usize>],
        ids: Vec<NodeId>,
        limits: Limits,
        seed: u64,
    ) -> Self {
        let slot = |of: usize, peer: usize| Slot(links[of].range(..peer).count() as u16);
        let node = |at: usize| Node {
            id: ids[at],
            overlay: Overlay::new(ids[at], limits),
            neighbours: links[at]
                .iter()
                .map(|&peer| Neighbour {
                    id: ids[peer],
                    slot: slot(at, peer),
                    back: Some(slot(peer, at)),
                })
                .collect(),
            peers: links[at].iter().copied().collect(),
        };
        let nodes = (0..links.len()).map(node).collect();
        let random = SplitMix::new(seed.wrapping_add(1));
        Net { nodes, events: BTreeMap::new(), now: 0, random, cost: Cost::default() }
    }

    /// All links come up, in random order.
    pub(crate) fn start(&mut self) {
        let mut order: Vec<(u64, usize, usize)> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            order.extend((0..node.neighbours.len()).map(|slot| (self.random.next_u64(), at, slot)));
        }
        order.sort_unstable();
        let mut out = Vec::new();
        for (_, at, slot) in order {
            let node = &mut self.nodes[at];
            let neighbour = node.neighbours[slot];
            let route = Route::direct(neighbour.slot);
            let contact = contact(neighbour.id, route);
            node.overlay.neighbour_up(contact, &mut out);
            self.act(at, &mut out);
        }
    }

    /// Delivers messages until none are under way. Returns how many hop times that took.
    pub(crate) fn run(&mut self) -> u64 {
        let start = self.now;
        let mut out = Vec::new();
        while let Some(((at, _), (to, event))) = self.events.pop_first() {
            self.now = at;
            self.receive(to, event, &mut out);
            self.act(to, &mut out);
        }
        (self.now - start) / HOP
    }

    /// Every router asks the routers beside it.
    pub(crate) fn refresh(&mut self) -> u64 {
        let mut out = Vec::new();
        for at in 0..self.nodes.len() {
            self.nodes[at].overlay.refresh(&mut out);
            self.act(at, &mut out);
        }
        self.run()
    }

    fn receive(&mut self, to: usize, event: Event, out: &mut Vec<Action>) {
        let overlay = &mut self.nodes[to].overlay;
        match event {
            Event::Connect { from, back, hints } => {
                let ours = overlay.hints(from, Towards::Route(&back));
                let contact = contact(from, back.clone());
                overlay.connected(NOW, contact, &connect(hints), out);
                self.answer(to, from, &back, ours);
            }
            Event::ConnectAck { from, route, hints } => {
                overlay.connected(NOW, contact(from, route), &connect(hints), out);
            }
            Event::Introduce { back, hint } => overlay.hear(&back, cost(&back), &hint, out),
            Event::Unreachable { id, route } => overlay.unreachable(NOW, id, &route, out),
        }
    }

    fn act(&mut self, at: usize, out: &mut Vec<Action>) {
        for action in core::mem::take(out) {
            let node = &self.nodes[at];
            let own = node.id;
            let (to, route, message) = match &action {
                Action::Connect { to, route } => (*to, route.clone(), Message::Connect),
                Action::Introduce { to, route, .. } => (*to, route.clone(), Message::Introduce),
                Action::Spread { .. } => continue, // Nobody has settled.
                // The first needs time, which does not pass for overlays here; the second is a repair that finds nobody.
                Action::Close { .. } => continue,
                Action::Find { to } => {
                    self.nodes[at].overlay.abandon(*to);
                    continue;
                }
            };
            let hints = node.overlay.hints(to, Towards::Route(&route));
            let id = MessageId(self.random.next_u64());
            let mut routed = Routed::new(message, id, own, to, &route, &[]);
            let (end, _, verdict, hops) = self.walk(&mut routed, at, route.first);
            self.cost.messages += 1;
            let event = match (verdict, action) {
                (Verdict::Arrived { back: Some(back) }, action) if self.nodes[end].id == to => {
                    match action {
                        Action::Connect { .. } => Event::Connect { from: own, back, hints },
                        Action::Introduce { hint, .. } => Event::Introduce { back, hint },
                        Action::Close { .. } | Action::Find { .. } | Action::Spread { .. } => {
                            continue;
                        }
                    }
                }
                _ => {
                    self.schedule(at, hops, Event::Unreachable { id: to, route });
                    continue;
                }
            };
            self.schedule(end, hops, event);
        }
    }

    /// The answer goes by the record in reverse.
    fn answer(&mut self, at: usize, to: NodeId, back: &Route, hints: Hints) {
        let own = self.nodes[at].id;
        let id = MessageId(0);
        let mut routed = Routed::new(Message::ConnectAck, id, own, to, back, &[]);
        routed.labels = back.labels.reversed();
        (routed.at, routed.flags.reverse, routed.record) = (routed.labels.nibbles(), true, None);
        let (end, entered, verdict, hops) = self.walk(&mut routed, at, back.first);
        self.cost.messages += 1;
        if let (Verdict::Arrived { .. }, Some(route)) = (verdict, routed.route_there(entered)) {
            assert_eq!(self.nodes[end].id, to);
            self.schedule(end, hops, Event::ConnectAck { from: own, route, hints });
        }
    }

    fn schedule(&mut self, to: usize, hops: u64, event: Event) {
        let at = self.now + HOP * hops + self.random.next_u64() % HOP;
        let mut order = self.random.next_u64();
        while self.events.contains_key(&(at, order)) {
            order = order.wrapping_add(1);
        }
        self.events.insert((at, order), (to, event));
    }

    /// Forwards a message from `at` by `slot` until it ends. Returns where, by which slot it came, and the hops.
    fn walk(
        &mut self,
        message: &mut Routed<'_>,
        at: usize,
        slot: Slot,
    ) -> (usize, Slot, Verdict, u64) {
        let (mut at, mut slot, mut hops) = (at, slot, 0);
        loop {
            let Some(neighbour) = self.nodes[at].neighbours.iter().find(|other| other.slot == slot)
            else {
                return (
                    at,
                    slot,
                    Verdict::Error(ringway_mesh::wire::control::Code::LinkDown),
                    hops,
                );
            };
            let (entered, next) =
                (neighbour.back.unwrap_or_default(), self.nodes[at].peers[usize::from(slot.0)]);
            hops += 1;
            let node = &self.nodes[next];
            let here = Here {
                id: node.id,
                neighbours: &node.neighbours,
                detours: &Detours::default(),
                closes: false,
                distance: S::distance,
            };
            let verdict = forward(message, here, entered, |message| {
                node.overlay.next(message.target, message.best)
            });
            match verdict {
                Verdict::Out(out) => (at, slot) = (next, out),
                verdict => {
                    self.cost.hops += hops;
                    return (next, entered, verdict, hops);
                }
            }
        }
    }

    /// Returns how many of the routers beside another on the ring it does not know.
    pub(crate) fn wrong(&self) -> usize {
        let mut living: Vec<usize> =
            (0..self.nodes.len()).filter(|&at| self.is_alive(at)).collect();
        living.sort_unstable_by_key(|&at| self.nodes[at].id);
        let knows = |one: usize, other: usize| {
            self.nodes[one].overlay.contacts().get(self.nodes[other].id).is_some()
        };
        let pairs = living.windows(2);
        pairs
            .map(|pair| {
                usize::from(!knows(pair[0], pair[1])) + usize::from(!knows(pair[1], pair[0]))
            })
            .sum()
    }

    fn is_alive(&self, at: usize) -> bool {
        !self.nodes[at].neighbours.is_empty()
    }

    /// Contacts of all routers: mean and maximum.
    pub(crate) fn contacts(&self) -> (f64, usize) {
        let counts = self.nodes.iter().map(|node| node.overlay.contacts().ids().len());
        (counts.clone().sum::<usize>() as f64 / self.nodes.len() as f64, counts.max().unwrap_or(0))
    }

    /// Sends messages between `pairs` random living pairs, by the overlay alone.
    pub(crate) fn deliver(&mut self, pairs: u32) -> Delivery {
        let living: Vec<usize> = (0..self.nodes.len()).filter(|&at| self.is_alive(at)).collect();
        let (cost, mut result) = (self.cost, Delivery { pairs, ..Delivery::default() });
        for _ in 0..pairs {
            let mut draw = || living[(self.random.next_u64() % living.len() as u64) as usize];
            let (from, mut to) = (draw(), draw());
            while from == to {
                to = draw();
            }
            let Some((hops, recorded)) = self.send(from, to) else { continue };
            let shortest = f64::from(self.shortest(from, to));
            result.delivered += 1;
            result.greedy += hops as f64 / shortest;
            result.recorded += f64::from(recorded) / shortest;
        }
        self.cost = cost;
        result.greedy /= f64::from(result.delivered);
        result.recorded /= f64::from(result.delivered);
        result
    }

    /// Sends a message by the overlay. Returns the hops it took and the hops of the recorded way back.
    pub(crate) fn send(&mut self, from: usize, to: usize) -> Option<(u64, u16)> {
        let (own, target) = (self.nodes[from].id, self.nodes[to].id);
        let (route, distance) = self.nodes[from].overlay.next(target, u64::MAX)?;
        let id = MessageId(self.random.next_u64());
        let mut message = Routed::new(Message::LookUp, id, own, target, &route, &[]);
        (message.flags.greedy, message.best) = (true, distance);
        match self.walk(&mut message, from, route.first) {
            (end, _, Verdict::Arrived { back: Some(back) }, hops) if end == to => {
                Some((hops, back.hops()))
            }
            _ => None,
        }
    }

    fn shortest(&self, from: usize, to: usize) -> u32 {
        let mut hops = vec![u32::MAX; self.nodes.len()];
        hops[from] = 0;
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for neighbour in &self.nodes[at].neighbours {
                let next = self.nodes[at].peers[usize::from(neighbour.slot.0)];
                if hops[next] == u32::MAX {
                    hops[next] = hops[at] + 1;
                    queue.push_back(next);
                }
            }
        }
        hops[to]
    }

    /// Routers die. Their neighbours notice; the others find out when they probe the routers beside them.
    pub(crate) fn kill(&mut self, dead: &BTreeSet<usize>) {
        let ids: BTreeSet<NodeId> = dead.iter().map(|&at| self.nodes[at].id).collect();
        let mut gone: Vec<(usize, Slot)> = Vec::new();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let is_gone = |other: &Neighbour| dead.contains(&at) || ids.contains(&other.id);
            gone.extend(
                node.neighbours
                    .iter()
                    .filter(|&other| is_gone(other))
                    .map(|other| (at, other.slot)),
            );
            node.neighbours.retain(|other| !is_gone(other));
        }
        let mut out = Vec::new();
        for (at, slot) in gone.into_iter().filter(|(at, _)| !dead.contains(at)) {
            self.nodes[at].overlay.neighbour_down(slot, &mut out);
            self.act(at, &mut out);
        }
    }
}

impl<S: Space> Net<S> {
    /// Every router tests the way to each of its contacts, as its upkeep does in time.
    pub(crate) fn probe(&mut self) {
        let mut out = Vec::new();
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let contacts: Vec<Contact> = node.overlay.contacts().iter().cloned().collect();
            let own = node.id;
            for Contact { id, route, .. } in contacts {
                let mut message = Routed::new(Message::LookUp, MessageId(1), own, id, &route, &[]);
                let (end, _, verdict, _) = self.walk(&mut message, at, route.first);
                let arrived =
                    matches!(verdict, Verdict::Arrived { .. }) && self.nodes[end].id == id;
                if !arrived {
                    self.nodes[at].overlay.unreachable(NOW, id, &route, &mut out);
                }
            }
            self.act(at, &mut out);
        }
        self.run();
    }
}

/// Topologies as the links of each node. All but [`line`] and [`grid`] are the largest part of a random graph.
pub(crate) mod topology {
    use super::*;

    pub(crate) type Links = Vec<BTreeSet<usize>>;

    fn uniform(random: &mut SplitMix) -> f64 {
        (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(random: &mut SplitMix, end: usize) -> usize {
        (random.next_u64() % end as u64) as usize
    }

    fn link(links: &mut Links, one: usize, other: usize) {
        if one != other {
            links[one].insert(other);
            links[other].insert(one);
        }
    }

    pub(crate) fn line(nodes: usize) -> Links {
        let mut links = vec![BTreeSet::new(); nodes];
        (1..nodes).for_each(|at| link(&mut links, at - 1, at));
        links
    }

    pub(crate) fn grid(side: usize) -> Links {
        let mut links = vec![BTreeSet::new(); side * side];
        for at in 0..side * side {
            if at % side + 1 < side {
                link(&mut links, at, at + 1);
            }
            if at + side < side * side {
                link(&mut links, at, at + side);
            }
        }
        links
    }

    /// Points in a square that hear each other within the range that gives `degree` neighbours away from the border.
    pub(crate) fn disk(nodes: usize, degree: f64, seed: u64) -> Links {
        let mut random = SplitMix::new(seed);
        let range = (degree / (core::f64::consts::PI * nodes as f64)).sqrt();
        let points: Vec<(f64, f64)> =
            (0..nodes).map(|_| (uniform(&mut random), uniform(&mut random))).collect();
        let cell = |at: usize| ((points[at].0 / range) as i64, (points[at].1 / range) as i64);
        let mut cells: BTreeMap<(i64, i64), Vec<usize>> = BTreeMap::new();
        (0..nodes).for_each(|at| cells.entry(cell(at)).or_default().push(at));
        let mut links = vec![BTreeSet::new(); nodes];
        for at in 0..nodes {
            let (x, y) = cell(at);
            let around = (x - 1..=x + 1).flat_map(|x| (y - 1..=y + 1).map(move |y| (x, y)));
            for other in around.filter_map(|cell| cells.get(&cell)).flatten().copied() {
                let (dx, dy) = (points[at].0 - points[other].0, points[at].1 - points[other].1);
                if dx * dx + dy * dy <= range * range {
                    link(&mut links, at, other);
                }
            }
        }
        largest(&links)
    }

    /// A circle in which each node has `degree` neighbours, of which one in five is moved anywhere.
    pub(crate) fn small_world(nodes: usize, degree: usize, seed: u64) -> Links {
        let mut random = SplitMix::new(seed);
        let mut links = vec![BTreeSet::new(); nodes];
        for at in 0..nodes {
            for step in 1..=degree / 2 {
                let moved = uniform(&mut random) < 0.2;
                let other = if moved { below(&mut random, nodes) } else { (at + step) % nodes };
                link(&mut links, at, other);
            }
        }
        largest(&links)
    }

    /// A random tree with `more` further links.
    pub(crate) fn connected(nodes: usize, more: usize, seed: u64) -> Links {
        let mut random = SplitMix::new(seed);
        let mut links = vec![BTreeSet::new(); nodes];
        for at in 1..nodes {
            let other = below(&mut random, at);
            link(&mut links, at, other);
        }
        for _ in 0..more {
            let (one, other) = (below(&mut random, nodes), below(&mut random, nodes));
            link(&mut links, one, other);
        }
        links
    }

    fn largest(links: &Links) -> Links {
        let mut part = vec![usize::MAX; links.len()];
        let mut best: Vec<usize> = Vec::new();
        for start in 0..links.len() {
            if part[start] != usize::MAX {
                continue;
            }
            let (mut nodes, mut next) = (vec![start], 0);
            part[start] = start;
            while let Some(&at) = nodes.get(next) {
                next += 1;
                for &other in &links[at] {
                    if part[other] == usize::MAX {
                        part[other] = start;
                        nodes.push(other);
                    }
                }
            }
            if nodes.len() > best.len() {
                best = nodes;
            }
        }
        let index: BTreeMap<usize, usize> =
            best.iter().enumerate().map(|(at, &node)| (node, at)).collect();
        best.iter().map(|node| links[*node].iter().map(|other| index[other]).collect()).collect()
    }
}

/// Returns the cost of a route over links without loss.
fn cost(route: &Route) -> u16 {
    route.hops() * (UNIT / PATH_COST)
}

fn contact(id: NodeId, route: Route) -> Contact {
    Contact { id, cost: cost(&route), route, mark: 0, said: Sequence::default() }
}
