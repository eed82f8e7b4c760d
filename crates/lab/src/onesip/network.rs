//! Routers in a graph, and their users.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_dht::record;
use ringway_directory::config::{KIND_ACCOUNT, KIND_LOCATION};
use ringway_mesh::Identity;
use ringway_proxy::routes::Share;
use ringway_sansio::{Duration, Random, Time};
use ringway_sim::Error;
use ringway_sim::graph::{Adjacency, Faults, Graph, Identities, node_random};

use super::hostile::{Attack, besiege};
use super::node::{Makings, SipLog, SipRouter};
use super::outcomes::{Call, Sent};
use super::phones::PhoneTimes;
use super::users::{DOMAIN, Roster, name};

/// Routers that are hostile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Siege {
    /// What they do.
    pub attack: Attack,
    /// One router in so many is hostile; an eclipse has its own number.
    pub one_in: u32,
    /// Since when.
    pub from: Time,
}

/// What a network is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The phones.
    pub phones: PhoneTimes,
    /// The router at which each user is at home.
    pub homes: Vec<u32>,
    /// The directory, and the DHT below.
    pub directory: ringway_directory::Config,
    /// Who is hostile, if anybody is.
    pub siege: Option<Siege>,
    /// Routers that share a way to the other domain, and on what terms.
    pub gateways: BTreeMap<u32, Share>,
    /// Where SIP messages are logged, if they are.
    pub log: Option<SipLog>,
    /// Of everything drawn.
    pub seed: u64,
    /// Shards of the graph.
    pub shards: usize,
}

impl Settings {
    /// One shard, and everything as it is in a server, with users at home at these routers.
    pub fn new(homes: Vec<u32>, seed: u64) -> Settings {
        let (phones, directory) = (PhoneTimes::default(), ringway_directory::Config::default());
        let gateways = BTreeMap::new();
        Settings { phones, homes, directory, siege: None, gateways, log: None, seed, shards: 1 }
    }
}

/// Time within which the phones at a router that has started again register, in milliseconds.
const SPREAD_MS: u64 = 2_000;

/// Routers in a graph, all of which start at time zero, without phones.
pub struct Network {
    /// The routers.
    pub graph: Graph<SipRouter>,
    makings: Makings,
    /// The router at which each user is.
    locations: Vec<Option<u32>>,
}

impl Network {
    /// Starts all routers of a graph.
    ///
    /// # Errors
    /// As [`Graph::start`].
    pub fn new(adjacency: Adjacency, settings: Settings) -> Result<Network, Error> {
        let Settings { phones, homes, mut directory, siege, gateways, log, seed, shards } =
            settings;
        let (identities, attacks) = besieged(adjacency.nodes(), siege, seed);
        let mesh = ringway_mesh::config::Config {
            extension_bits: 0,
            ..ringway_mesh::config::Config::default()
        };
        // Without proof of work, whose price is not that of a message.
        directory.dht.extension_bits = 0;
        let locations = vec![None; homes.len()];
        let roster = Roster::new(homes);
        let attacks = Arc::new((attacks, siege.map_or(Time::ZERO, |siege| siege.from)));
        let gateways = Arc::new(gateways);
        let makings =
            Makings { mesh, directory, phones, identities, roster, attacks, gateways, log, seed };
        let graph = Graph::idle_in_shards(adjacency, seed, shards);
        let mut network = Network { graph, makings, locations };
        for number in 0..network.graph.len() {
            if let Some(router) = SipRouter::new(&network.makings, number, 0, Time::ZERO) {
                network.graph.start(number, router)?;
            }
        }
        Ok(network)
    }

    /// Returns the users.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.makings.roster
    }

    /// Returns whether a router is hostile.
    pub fn is_hostile(&self, router: u32) -> bool {
        self.makings.attacks.0.contains_key(&router)
    }

    /// Returns what all routers have in common.
    pub fn makings(&self) -> &Makings {
        &self.makings
    }

    /// Returns the router at which a user is.
    pub fn location(&self, user: u32) -> Option<u32> {
        self.locations.get(user as usize).copied().flatten()
    }

    /// Advances to `end`, with the faults that are due by then. The phones at a router that starts again register there.
    ///
    /// # Errors
    /// As [`Faults::run_until`].
    pub fn run_until(&mut self, faults: &mut Faults, end: Time) -> Result<(), Error> {
        let Network { graph, makings, locations } = self;
        faults.run_until(graph, end, |number, life, now| {
            let Some(mut router) = SipRouter::new(makings, number, life, now) else {
                unreachable!("every node has an identity")
            };
            let here =
                (0..).zip(locations.iter()).filter(|(_, location)| **location == Some(number));
            let mut random = node_random(makings.seed ^ 0x9109e, number, life);
            router.with_phones(now, |phones| {
                for (user, _) in here {
                    let after = Duration::from_millis(random.next_u64() % SPREAD_MS);
                    phones.come(user, now + after);
                }
            });
            router
        })
    }

    /// Advances by a time, without faults.
    ///
    /// # Errors
    /// As [`Graph::run_until`].
    pub fn run(&mut self, time: Duration) -> Result<(), Error> {
        self.graph.run_until(self.graph.now() + time)
    }

    /// Has a user come to a router and register at once. Returns whether the router runs.
    pub fn come(&mut self, router: u32, user: u32) -> bool {
        self.come_after(router, user, Duration::ZERO)
    }

    /// Has a user come to a router and register after a while. Returns whether the router runs.
    pub fn come_after(&mut self, router: u32, user: u32, after: Duration) -> bool {
        if let Some(location) = self.locations.get_mut(user as usize) {
            *location = Some(router);
        }
        self.act(router, |node, now| node.with_phones(now, |phones| phones.come(user, now + after)))
    }

    /// Has a user go from a router, and withdraw the registration there if `politely`. Returns whether the router runs.
    pub fn go(&mut self, router: u32, user: u32, politely: bool) -> bool {
        if let Some(location) =
            self.locations.get_mut(user as usize).filter(|at| **at == Some(router))
        {
            *location = None;
        }
        let go = |node: &mut SipRouter, now| {
            node.with_phones(now, |phones| phones.go(now, user, politely));
        };
        self.act(router, go)
    }

    /// Has a user at a router call another.
    pub fn call(&mut self, router: u32, caller: u32, callee: u32) -> bool {
        let call = |node: &mut SipRouter, now| {
            node.with_phones(now, |phones| phones.call(now, caller, callee));
        };
        self.act(router, call)
    }

    /// Has a user at a router send another a message.
    pub fn message(&mut self, router: u32, from: u32, to: u32) -> bool {
        let message = |node: &mut SipRouter, now| {
            node.with_phones(now, |phones| phones.message(now, from, to));
        };
        self.act(router, message)
    }

    /// Removes and returns the messages that were answered.
    pub fn take_messages(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        for number in 0..self.graph.len() {
            self.act(number, |node, now| {
                all.extend(node.with_phones(now, |phones| phones.take_messages()));
            });
        }
        all
    }

    /// Removes and returns the messages that have arrived: at which router, for which user, and what.
    pub fn take_received(&mut self) -> Vec<(u32, u32, Box<[u8]>)> {
        let mut all = Vec::new();
        for number in 0..self.graph.len() {
            self.act(number, |node, now| {
                let received = node.with_phones(now, |phones| phones.take_received());
                all.extend(received.into_iter().map(|(user, octets)| (number, user, octets)));
            });
        }
        all
    }

    /// Removes and returns the calls that have ended, by the router of the caller.
    pub fn take_calls(&mut self) -> Vec<(u32, Call)> {
        let mut all = Vec::new();
        for number in 0..self.graph.len() {
            self.act(number, |node, now| {
                let calls = node.with_phones(now, |phones| phones.take_calls());
                all.extend(calls.into_iter().map(|call| (number, call)));
            });
        }
        all
    }

    /// Returns how many look-ups of users have found their home since it was asked last, and how many have not. Those of
    /// hostile routers, and of routers that have ended since, are not counted.
    pub fn take_look_ups(&mut self) -> [u64; 2] {
        let mut all = [0; 2];
        for number in 0..self.graph.len() {
            let is_honest = !self.is_hostile(number);
            self.act(number, |node, _| {
                let counts = node.take_counts();
                if is_honest {
                    all = [all[0] + counts.found, all[1] + counts.not_found];
                }
            });
        }
        all
    }

    /// Has a router do something, in the time of its clock. Returns whether it runs.
    pub fn act(&mut self, router: u32, act: impl FnOnce(&mut SipRouter, Time)) -> bool {
        self.graph.with_node(router, act).is_ok_and(|done| done.is_some())
    }
}

/// Draws who routers are, and which of them are hostile.
fn besieged(
    routers: u32,
    siege: Option<Siege>,
    seed: u64,
) -> (Arc<Identities>, BTreeMap<u32, Attack>) {
    let drawn = Identities::draw(routers, seed);
    let Some(Siege { attack, one_in, .. }) = siege else { return (drawn, BTreeMap::new()) };
    if attack != Attack::Eclipse {
        let hostile = (1..routers).step_by(one_in.max(1) as usize);
        return (drawn, hostile.map(|router| (router, attack)).collect());
    }
    let mut identities: Vec<Identity> =
        (0..routers).filter_map(|router| drawn.get(router).cloned()).collect();
    let victim = format!("{}@{DOMAIN}", name(0));
    let keys = [KIND_ACCOUNT, KIND_LOCATION].map(|kind| record::key(kind, victim.as_bytes()));
    let attacks = besiege(&mut identities, &keys, seed);
    (Identities::of(identities), attacks)
}
