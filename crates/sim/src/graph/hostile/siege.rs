//! What honest routers deliver to each other while a share of all routers is hostile.

use super::{Attack, Member};
use crate::error::Error;
use crate::graph::adjacency::Adjacency;
use crate::graph::data::DataNode;
use crate::graph::mesh::{HEADERS, Identities, MeshNode};
use crate::graph::oracle::{Oracle, Pair};
use crate::graph::random::below;
use crate::graph::world::Graph;
use ringway_mesh::config::Config;
use ringway_mesh::identity::Search;
use ringway_mesh::{Identity, NodeId};
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};
use std::sync::Arc;

/// Octets of contents of a packet.
const CONTENTS: u16 = 64;
/// Identities that a hostile router tries to be near a victim.
const TRIES: u32 = 20_000;
/// Time for packets that are on their way at the end.
const REST: Duration = Duration::from_secs(1);

/// A trial: flows of a packet a second between honest routers.
#[derive(Clone, Copy, Debug)]
pub struct Siege {
    /// What hostile routers do; `None` if each draws its attack.
    pub attack: Option<Attack>,
    /// Hostile routers of 1,000.
    pub permille: u32,
    /// The time from when they are hostile; until then they follow the protocol.
    pub from: Time,
    /// The time when flows begin.
    pub flows_from: Time,
    /// The seconds that flows last; the last half counts as late.
    pub seconds: u32,
    /// Sources of flows, and flows of each.
    pub sources: u32,
    /// See `sources`.
    pub each: u32,
    /// If this is set, hostile routers have ids next to that of this node, and all flows lead to it.
    pub victim: Option<u32>,
    /// Links between honest routers, of 1,000, that are cut when half of the time is over.
    pub cuts: u32,
    /// The seed of everything.
    pub seed: u64,
}

impl Siege {
    /// A trial of 200 flows for 20 s, in which 10 % of all routers are hostile from their start.
    pub fn new(attack: Option<Attack>, seed: u64) -> Siege {
        Siege {
            attack,
            permille: 100,
            from: Time::ZERO,
            flows_from: Time::from_secs(20),
            seconds: 20,
            sources: 20,
            each: 10,
            victim: None,
            cuts: 0,
            seed,
        }
    }

    /// Returns whether a node is hostile.
    fn is_hostile(&self, node: u32) -> bool {
        let mut random = SplitMix::new(self.seed ^ u64::from(node) << 20);
        Some(node) != self.victim && below(&mut random, 1_000) < self.permille.into()
    }

    /// Returns the attack of a node.
    fn attack_of(&self, node: u32) -> Option<Attack> {
        let drawn = SplitMix::new(self.seed ^ 0xa77 ^ u64::from(node) << 24);
        let drawn = Attack::ALL[below(&mut drawn.clone(), Attack::ALL.len() as u64) as usize];
        self.is_hostile(node).then(|| self.attack.unwrap_or(drawn))
    }

    fn identities(&self, nodes: u32) -> Arc<Identities> {
        let drawn = Identities::draw(nodes, self.seed);
        let Some(victim) = self.victim else { return drawn };
        let id = drawn.id(victim);
        let identity = |node: u32| match self.is_hostile(node) {
            true => near(id, node, self.seed),
            false => drawn.get(node).cloned(),
        };
        Identities::of((0..nodes).filter_map(identity).collect())
    }

    /// Starts the routers.
    pub fn start(&self, adjacency: Adjacency, config: &Config) -> Result<Graph<Member>, Error> {
        let nodes = adjacency.nodes();
        let identities = self.identities(nodes);
        let mut graph = Graph::<Member>::idle(adjacency, self.seed);
        for number in 0..nodes {
            let node = MeshNode::new(config, &identities, number, 0, self.seed, Time::ZERO);
            let Some((node, identity)) = node.zip(identities.get(number)) else { continue };
            let member = match self.attack_of(number) {
                Some(attack) => Member::hostile(node, attack, identity, self.from, self.seed),
                None => Member::honest(node),
            };
            graph.start(number, member)?;
        }
        Ok(graph)
    }

    /// Returns pairs of honest routers that are connected by honest routers alone.
    fn pairs(&self, graph: &Graph<Member>) -> Vec<Pair> {
        let oracle = Oracle::of(graph).without(|node| self.is_hostile(node));
        let mut random = SplitMix::new(self.seed ^ 0x5e7);
        let Some(victim) = self.victim else {
            return oracle.pairs(self.sources, self.each, 2, &mut random);
        };
        let hops = oracle.hops(victim);
        let far: Vec<Pair> = (0..)
            .zip(hops)
            .filter_map(|(from, hops)| Some(Pair { from, to: victim, hops: hops? }))
            .filter(|pair| pair.hops >= 2)
            .collect();
        let count = if far.is_empty() { 0 } else { self.sources * self.each };
        (0..count).map(|_| far[below(&mut random, far.len() as u64) as usize]).collect()
    }

    /// Runs the trial.
    pub fn run(&self, adjacency: Adjacency, config: &Config) -> Result<Toll, Error> {
        self.watch(adjacency, config).map(|(toll, _)| toll)
    }

    /// Runs the trial. Returns the routers, too.
    pub fn watch(
        &self,
        adjacency: Adjacency,
        config: &Config,
    ) -> Result<(Toll, Graph<Member>), Error> {
        let mut graph = self.start(adjacency, config)?;
        graph.run_until(self.flows_from)?;
        let pairs = self.pairs(&graph);
        let sent_before = self.honest_octets(&graph);
        let count = pairs.len() as u32;
        let mut is_delivered = vec![false; (count * self.seconds) as usize];
        let mut toll = Toll { routers: graph.len(), ..Toll::default() };
        for second in 0..self.seconds {
            if second == self.seconds / 2 {
                self.cut(&mut graph)?;
            }
            for (at, pair) in (0..).zip(&pairs) {
                let number = second * count + at;
                graph.with_node(pair.from, |node, now| {
                    node.send_data(now, pair.to, number, CONTENTS);
                })?;
                let part = Duration::from_secs(1).mul_f64(f64::from(at + 1) / f64::from(count));
                graph.run_until(self.flows_from + Duration::from_secs(second.into()) + part)?;
            }
            toll.heap = toll.heap.max(self.largest(&graph));
        }
        graph.run_until(graph.now() + REST)?;
        let octets = self.honest_octets(&graph) - sent_before;
        for node in 0..graph.len() {
            while let Some(Some(delivery)) =
                graph.with_node(node, |node, _| node.poll_delivery())?
            {
                if let Some(seen) = is_delivered.get_mut(delivery.number as usize) {
                    toll.duplicates += u32::from(core::mem::replace(seen, true));
                }
            }
        }
        let delivered = |part: &[bool]| part.iter().filter(|seen| **seen).count() as u32;
        let late = is_delivered.len() / 2;
        (toll.sent, toll.delivered) = (is_delivered.len() as u32, delivered(&is_delivered));
        toll.late_sent = (is_delivered.len() - late) as u32;
        toll.late_delivered = delivered(&is_delivered[late..]);
        toll.hostile = (0..graph.len()).filter(|node| self.is_hostile(*node)).count() as u32;
        toll.deeds = graph.nodes().map(Member::deeds).sum();
        let seconds = u64::from(self.seconds) + REST.as_secs();
        toll.octets = octets / seconds / u64::from(toll.routers - toll.hostile).max(1);
        toll.wrong = wrong(&graph);
        Ok((toll, graph))
    }

    /// Cuts links between honest routers.
    fn cut(&self, graph: &mut Graph<Member>) -> Result<(), Error> {
        let mut random = SplitMix::new(self.seed ^ 0xc07);
        for node in 0..graph.len() {
            let peers: Vec<u32> = graph.adjacency().neighbours(node).collect();
            for peer in peers.into_iter().filter(|&peer| peer > node) {
                let is_drawn = below(&mut random, 1_000) < self.cuts.into();
                if is_drawn && !self.is_hostile(node) && !self.is_hostile(peer) {
                    graph.cut(node, peer)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the octets that honest routers have sent, with all headers.
    fn honest_octets(&self, graph: &Graph<Member>) -> u64 {
        let honest = (0..graph.len()).filter(|node| !self.is_hostile(*node));
        let counters = honest.filter_map(|node| graph.counters(node));
        counters.map(|sent| sent.sent_bytes + u64::from(sent.sent) * HEADERS as u64).sum()
    }

    fn largest(&self, graph: &Graph<Member>) -> usize {
        let honest = graph.nodes().filter(|node| !node.is_hostile());
        honest.map(|node| node.router().heap_bytes()).max().unwrap_or_default()
    }
}

/// What honest routers have delivered and paid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toll {
    /// Routers.
    pub routers: u32,
    /// Those that are hostile.
    pub hostile: u32,
    /// Packets sent.
    pub sent: u32,
    /// Those that arrived.
    pub delivered: u32,
    /// Packets sent in the last half of the time.
    pub late_sent: u32,
    /// Those that arrived.
    pub late_delivered: u32,
    /// Packets that arrived again.
    pub duplicates: u32,
    /// Octets a second that an honest router has sent in the mean, with headers.
    pub octets: u64,
    /// Largest heap of an honest router, in octets.
    pub heap: usize,
    /// Honest routers next to each other on the line that do not know each other, in each direction.
    pub wrong: usize,
    /// Packets that hostile routers have forged, dropped or changed.
    pub deeds: u64,
}

impl Toll {
    /// Returns the share of packets that arrived.
    pub fn delivery(&self) -> f64 {
        f64::from(self.delivered) / f64::from(self.sent.max(1))
    }

    /// Returns the share of packets of the last half of the time that arrived.
    pub fn late_delivery(&self) -> f64 {
        f64::from(self.late_delivered) / f64::from(self.late_sent.max(1))
    }
}

/// Returns the number of honest routers that do not know the honest one next to them on the line, in each direction.
fn wrong(graph: &Graph<Member>) -> usize {
    let mut members: Vec<&Member> = graph.nodes().collect();
    members.sort_unstable_by_key(|member| member.id());
    let misses = |one: &Member, other: &Member| {
        usize::from(one.router().overlay().contacts().get(other.id()).is_none())
    };
    let pairs = members.windows(2).filter(|pair| !pair.iter().any(|member| member.is_hostile()));
    pairs.map(|pair| misses(pair[0], pair[1]) + misses(pair[1], pair[0])).sum()
}

/// Searches an identity near an id, as an attacker does who wants to be beside it on the ring.
fn near(id: NodeId, node: u32, seed: u64) -> Option<Identity> {
    let mut search = Search::new(0, &mut SplitMix::new(seed ^ 0x51b ^ u64::from(node) << 32));
    let found = (0..TRIES).filter_map(|_| search.step(1));
    // Odd nodes want to be just before it, where look-ups come from.
    let found = found.filter(|identity| node.is_multiple_of(2) || identity.id() < id);
    found.min_by_key(|identity| identity.id().raw().abs_diff(id.raw()))
}
