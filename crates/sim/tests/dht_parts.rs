//! Records of whole routers of the mesh whose network falls apart and meets again: what was acknowledged in one part is soon
//! at its keepers in all of it, though it lasts for a day and is not renewed meanwhile.

#![allow(clippy::unwrap_used)]

use ringway_dht::config::QUORUM;
use ringway_dht::neighbours::keepers;
use ringway_dht::record::key;
use ringway_dht::{Answer, Draft, Event};
use ringway_mesh::NodeId;
use ringway_mesh::config::Config;
use ringway_sansio::{Duration, Random, SplitMix, Time};
use ringway_sim::graph::{Adjacency, DhtNode, Graph, Identities, LinkModel, MeshNode, Topology};

const KIND: u8 = 1;
/// A day, as of accounts.
const LIFETIME: u32 = 86_400;
/// Records of each router.
const RECORDS: u32 = 3;

struct World {
    graph: Graph<DhtNode>,
    /// Links of the first part to the other.
    between: Vec<[u32; 2]>,
}

fn name(router: u32, record: u32) -> Vec<u8> {
    format!("user{record}@router{router}").into_bytes()
}

impl World {
    /// A small world, of which the first `first` routers can be cut off.
    fn new(routers: u32, first: u32, seed: u64) -> World {
        let mut random = SplitMix::new(seed);
        let topology = Topology::small_world(routers, 8, 0.1, &mut random);
        World::of(topology, first, seed)
    }

    /// A random tree, which can be cut in two at the link in the middle; and the size of the first part.
    fn tree(routers: u32, seed: u64) -> (World, u32) {
        let mut random = SplitMix::new(seed);
        let mut parent = |node: u32| (random.next_u64() % u64::from(node)) as u32;
        let edges: Vec<[u32; 2]> = (1..routers).map(|node| [parent(node), node]).collect();
        let mut below: Vec<Vec<u32>> = (0..routers).map(|node| vec![node]).collect();
        for &[parent, node] in edges.iter().rev() {
            let all = below[node as usize].clone();
            below[parent as usize].extend(all);
        }
        let part = below.iter().min_by_key(|part| part.len().abs_diff(routers as usize / 2));
        let part = part.unwrap().clone();
        let rest = (0..routers).filter(|node| !part.contains(node));
        let order: Vec<u32> = part.iter().copied().chain(rest).collect();
        let number = |node: u32| order.iter().position(|&other| other == node).unwrap() as u32;
        let edges = edges.into_iter().map(|edge| edge.map(number));
        let first = part.len() as u32;
        (World::of(Topology::new(routers, edges), first, seed), first)
    }

    fn of(topology: Topology, first: u32, seed: u64) -> World {
        let routers = topology.nodes();
        let link = LinkModel::new(Duration::from_millis(2));
        let adjacency = Adjacency::new(&topology, |_, _| link).unwrap();
        let identities = Identities::draw(adjacency.nodes(), seed);
        let mut graph = Graph::idle(adjacency, seed);
        for number in 0..routers {
            let config = Config { extension_bits: 0, ..Config::default() };
            let mesh = MeshNode::new(&config, &identities, number, 0, seed, Time::ZERO).unwrap();
            let config =
                ringway_dht::Config { extension_bits: 0, ..ringway_dht::Config::default() };
            let identity = identities.get(number).unwrap();
            graph.start(number, DhtNode::new(mesh, identity, config, Time::ZERO)).unwrap();
        }
        let is_between = |&&[a, b]: &&[u32; 2]| (a < first) != (b < first);
        let between = topology.edges().iter().filter(is_between).copied().collect();
        World { graph, between }
    }

    fn run(&mut self, seconds: u64) {
        let end = self.graph.now() + Duration::from_secs(seconds);
        self.graph.run_until(end).unwrap();
    }

    /// Has all routers publish records, and returns which were acknowledged within a time.
    fn publish(&mut self, first: u32, seconds: u64) -> Vec<Vec<u8>> {
        for router in 0..self.graph.len() {
            for record in first..first + RECORDS {
                let name = name(router, record);
                let draft = Draft { kind: KIND, name: &name, value: b"here", lifetime: LIFETIME };
                self.graph
                    .with_node(router, |node, now| node.publish(now, &draft).unwrap())
                    .unwrap();
            }
        }
        self.run(seconds);
        let mut stored = Vec::new();
        for router in 0..self.graph.len() {
            while let Some(event) =
                self.graph.with_node(router, |node, _| node.poll_dht()).unwrap().flatten()
            {
                if let Event::Stored((_, name), _) = event {
                    stored.push(name.into_vec());
                }
            }
        }
        stored
    }

    /// Returns whether the mesh and the DHT of each router know who is beside it.
    fn is_whole(&self) -> bool {
        let mut ids: Vec<NodeId> = self.graph.nodes().map(|node| node.dht().id()).collect();
        ids.sort();
        let count = ids.len();
        self.graph.nodes().all(|node| {
            let at = ids.binary_search(&node.dht().id()).unwrap();
            let leaves = node.dht().neighbours().leaves();
            leaves.before[..] == [ids[(at + count - 1) % count], ids[(at + count - 2) % count]]
                && leaves.behind[..] == [ids[(at + 1) % count], ids[(at + 2) % count]]
        })
    }

    /// Returns how many names are not at a quorum of their keepers.
    fn missing(&self, names: &[Vec<u8>]) -> usize {
        let mut ids: Vec<NodeId> = self.graph.nodes().map(|node| node.dht().id()).collect();
        let has = |id: NodeId, name: &[u8]| {
            let node = self.graph.nodes().find(|node| node.dht().id() == id).unwrap();
            !node.dht().table().of_name(key(KIND, name), KIND, name).is_empty()
        };
        let is_missing = |name: &&Vec<u8>| {
            let keepers = keepers(&mut ids, key(KIND, name));
            keepers.into_iter().filter(|&id| has(id, name)).count() < QUORUM
        };
        names.iter().filter(is_missing).count()
    }

    /// Returns how many of the names a router does not find.
    fn not_found(&mut self, router: u32, names: &[Vec<u8>]) -> usize {
        let mut found = 0;
        for names in names.chunks(100) {
            for name in names {
                self.graph.with_node(router, |node, now| node.look_up(now, KIND, name)).unwrap();
            }
            self.run(12);
            while let Some(event) =
                self.graph.with_node(router, |node, _| node.poll_dht()).unwrap().flatten()
            {
                found += usize::from(matches!(event, Event::Answer(_, Answer::Found(_))));
            }
        }
        names.len() - found
    }
}

#[test]
fn what_was_acknowledged_in_one_part_is_soon_found_in_all() {
    for (routers, first, seed) in [(80, 40, 1), (80, 12, 2)] {
        let mut world = World::new(routers, first, seed);
        world.run(60);
        let mut names = world.publish(0, 20);
        for [a, b] in world.between.clone() {
            world.graph.cut(a, b).unwrap();
        }
        world.run(60);
        names.extend(world.publish(RECORDS, 30));
        // Some were stored twice: keepers were in the other part.
        names.sort();
        names.dedup();
        assert_eq!(names.len() as u32, 2 * RECORDS * routers);
        for [a, b] in world.between.clone() {
            world.graph.mend(a, b).unwrap();
        }
        let (mut whole, mut seconds) = (None, 0);
        let mut missing = world.missing(&names);
        let at_first = missing;
        while missing > 0 || whole.is_none() {
            assert!(seconds < 300, "{missing} of {} are missing", names.len());
            world.run(1);
            seconds += 1;
            missing = world.missing(&names);
            if whole.is_none() && world.is_whole() {
                whole = Some(seconds);
            }
        }
        let whole = whole.unwrap();
        assert!(at_first > 0);
        assert!(
            seconds < whole + 40,
            "{routers} routers: one ring after {whole} s, all there after {seconds} s"
        );
        for router in [0, first, routers - 1] {
            assert_eq!(world.not_found(router, &names), 0);
        }
    }
}

/// All keepers of one record in 32 are in the other half: nobody in this one has it but its signer, which finds that out.
#[test]
fn what_a_part_has_written_is_soon_found_in_it() {
    for (routers, first, seed) in [(80, 40, 1), (80, 40, 3), (80, 20, 2)] {
        let mut world = World::new(routers, first, seed);
        world.run(60);
        let names = world.publish(0, 20);
        assert_eq!(names.len() as u32, RECORDS * routers);
        for [a, b] in world.between.clone() {
            world.graph.cut(a, b).unwrap();
        }
        world.run(45);
        for part in [0..first, first..routers] {
            let missing = world.not_found(part.start, &names_of(part.clone()));
            assert_eq!(missing, 0, "{routers} {first} {seed}: {part:?}");
        }
    }
}

/// The routers beside a signer may all be in its part, while all keepers of its record are in the other one: it finds that out
/// by trying a renewal, soon after the routers beside it have missed others.
#[test]
fn a_signer_beside_which_nothing_has_changed_finds_out_as_well() {
    let mut soon = 0;
    for seed in [73, 83, 141, 225] {
        let (mut world, first) = World::tree(60, seed);
        world.run(60);
        assert_eq!(world.publish(0, 20).len() as u32, 60 * RECORDS);
        for [a, b] in world.between.clone() {
            world.graph.cut(a, b).unwrap();
        }
        let parts = [0..first, first..60];
        let missing = |world: &mut World| {
            let parts = parts.iter().cloned();
            parts.map(|part| world.not_found(part.start, &names_of(part))).sum::<usize>()
        };
        world.run(45);
        soon += missing(&mut world);
        world.run(36);
        assert_eq!(missing(&mut world), 0, "{seed}: 105 s after the cut");
    }
    assert!(soon > 0, "none of these networks has such a record any more");
}

/// Returns the first names of some routers.
fn names_of(routers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    routers.flat_map(|router| (0..RECORDS).map(move |record| name(router, record))).collect()
}
