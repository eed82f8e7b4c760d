//! Routes: computed shortest paths, and static routes before them.

use crate::node::{Interface, NONE};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::IpAddr;

/// Cost added to a path that enters its destination by another interface than the one with the address.
/// It is used only where there is no other path, so that the paths of a host with several addresses
/// stay separate.
const BACK_DOOR: u64 = 1 << 40;

/// Returns whether `ip` is in the network.
fn matches(ip: &IpAddr, network: &IpAddr, prefix: u8) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        let keep = u32::from(prefix).min(width);
        keep == 0 || (a ^ b) >> (width - keep) == 0
    };
    match (ip, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

/// A static route: network, prefix length and outgoing interface.
type Fixed = (IpAddr, u8, u32);

/// Maximum number of next hops in all tables: 256 MiB. Beyond it the oldest table is dropped, and
/// computed again if it is still needed.
const MAX_NEXT_HOPS: usize = 1 << 26;

/// The next hops of all nodes.
///
/// The longest static route is first, then a neighbour, then the shortest path. A shortest path is
/// looked up in the table of its destination, which is computed for all nodes when the first packet
/// needs it: a world of many nodes in which few destinations are distant has few tables.
pub(crate) struct Routes {
    /// Whether shortest paths are computed.
    computed: bool,
    /// Static routes by node.
    fixed: BTreeMap<u32, Vec<Fixed>>,
    /// Whether the rest is that of the present nodes, links and addresses.
    valid: bool,
    incoming: Incoming,
    /// By number of the destination's address: the outgoing interface at each node, or [`NONE`]. Empty
    /// if it is not computed.
    tables: Vec<Box<[u32]>>,
    /// Numbers of the computed tables, the oldest first.
    ages: VecDeque<u32>,
    max_next_hops: usize,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Routes {
            computed: true,
            fixed: BTreeMap::new(),
            valid: false,
            incoming: Incoming::default(),
            tables: Vec::new(),
            ages: VecDeque::new(),
            max_next_hops: MAX_NEXT_HOPS,
        }
    }

    /// Sets whether shortest paths are computed.
    pub(crate) fn set_computed(&mut self, computed: bool) {
        self.computed = computed;
        self.valid = false;
    }

    /// Adds a static route at a node.
    pub(crate) fn add(&mut self, node: u32, route: Fixed) {
        self.fixed.entry(node).or_default().push(route);
        self.valid = false;
    }

    /// Notes that nodes, links, costs or addresses have changed.
    pub(crate) fn invalidate(&mut self) {
        self.valid = false;
    }

    /// Drops outdated tables. Returns whether routes may have changed since the last call.
    pub(crate) fn update(
        &mut self,
        nodes: usize,
        interfaces: &[Interface],
        addresses: usize,
    ) -> bool {
        if self.valid {
            return false;
        }
        self.incoming = Incoming::new(nodes, interfaces);
        self.tables.clear();
        self.tables.resize_with(addresses, Box::default);
        self.ages.clear();
        self.valid = true;
        true
    }

    /// Returns the outgoing interface at `node` to an address by its number, or [`NONE`].
    #[inline]
    pub(crate) fn next_hop(
        &mut self,
        node: u32,
        number: u32,
        interfaces: &[Interface],
        addresses: &[(IpAddr, u32)],
    ) -> u32 {
        match self.tables[number as usize].get(node as usize) {
            Some(way) => *way,
            None => self.find(node, number, interfaces, addresses),
        }
    }

    /// Finds a next hop for which there is no table, which a neighbour does not need.
    #[inline(never)]
    fn find(
        &mut self,
        node: u32,
        number: u32,
        interfaces: &[Interface],
        addresses: &[(IpAddr, u32)],
    ) -> u32 {
        let (ip, at) = addresses[number as usize];
        let fixed = self.fixed.get(&node).and_then(|routes| longest(routes, &ip));
        let last = &interfaces[at as usize];
        let neighbour = (last.peer_node == node).then_some(last.peer);
        match fixed.or(neighbour) {
            Some(way) => way,
            None if !self.computed => NONE,
            None => {
                let table = self.table(ip, at, interfaces);
                let way = table[node as usize];
                self.insert(number, table);
                way
            }
        }
    }

    /// Returns the next hop of every node to an address.
    fn table(&self, ip: IpAddr, at: u32, interfaces: &[Interface]) -> Box<[u32]> {
        let mut table = self.incoming.ways_to(at, interfaces);
        let last = &interfaces[at as usize];
        table[last.peer_node as usize] = last.peer;
        for (&node, routes) in &self.fixed {
            if let Some(way) = longest(routes, &ip) {
                table[node as usize] = way;
            }
        }
        table.into_boxed_slice()
    }

    fn insert(&mut self, number: u32, table: Box<[u32]>) {
        let max = (self.max_next_hops / table.len().max(1)).max(1);
        if self.ages.len() >= max
            && let Some(oldest) = self.ages.pop_front()
        {
            self.tables[oldest as usize] = Box::default();
        }
        self.tables[number as usize] = table;
        self.ages.push_back(number);
    }
}

/// Returns the interface of the static route with the longest prefix; of equal ones, the last added.
fn longest(routes: &[Fixed], ip: &IpAddr) -> Option<u32> {
    let matching = routes.iter().filter(|r| matches(ip, &r.0, r.1));
    matching.max_by_key(|r| r.1).map(|r| r.2)
}

/// A link that leads to a node: its interface, the node at which it starts, and its cost.
#[derive(Clone, Copy)]
struct Edge {
    interface: u32,
    from: u32,
    cost: u32,
}

/// The links that lead to each node, in one array.
#[derive(Default)]
struct Incoming {
    /// By node: its first link in `links`; and the end of the last.
    starts: Vec<u32>,
    links: Vec<Edge>,
}

impl Incoming {
    fn new(nodes: usize, interfaces: &[Interface]) -> Self {
        let mut starts = vec![0; nodes + 1];
        for interface in interfaces {
            starts[interface.peer_node as usize + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let mut links = vec![Edge { interface: NONE, from: NONE, cost: 0 }; interfaces.len()];
        for (index, interface) in interfaces.iter().enumerate() {
            let position = &mut next[interface.peer_node as usize];
            let Interface { node, cost, .. } = *interface;
            links[*position as usize] = Edge { interface: index as u32, from: node, cost };
            *position += 1;
        }
        Incoming { starts, links }
    }

    fn of(&self, node: u32) -> &[Edge] {
        let [start, end] = [node, node + 1].map(|n| self.starts[n as usize] as usize);
        &self.links[start..end]
    }

    /// Returns for each node the interface that starts the shortest path to the interface `at` (Dijkstra
    /// 1959, from the destination). Of equal paths, the one with the lowest interface is used.
    fn ways_to(&self, at: u32, interfaces: &[Interface]) -> Vec<u32> {
        let Interface { node: target, peer: front_door, .. } = interfaces[at as usize];
        let nodes = self.starts.len() - 1;
        let mut distance = vec![u64::MAX; nodes];
        let mut way = vec![NONE; nodes];
        let mut heap = BinaryHeap::from([Reverse((0u64, target))]);
        distance[target as usize] = 0;
        while let Some(Reverse((so_far, node))) = heap.pop() {
            if so_far > distance[node as usize] {
                continue;
            }
            for &Edge { interface, from: source, cost } in self.of(node) {
                let from = source as usize;
                let back_door = node == target && interface != front_door;
                let length = so_far + u64::from(cost) + if back_door { BACK_DOOR } else { 0 };
                if (length, interface) < (distance[from], way[from]) && source != target {
                    if length < distance[from] {
                        heap.push(Reverse((length, source)));
                    }
                    distance[from] = length;
                    way[from] = interface;
                }
            }
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Counters, NEVER};
    use proptest::prelude::*;
    use ringway_link::{Link, LinkConfig, Streams};
    use ringway_sansio::{Random, RingQueue, SplitMix, Time};

    #[test]
    fn prefixes_match() {
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(matches(&ip("10.1.2.3"), &ip("10.1.0.0"), 16));
        assert!(!matches(&ip("10.2.2.3"), &ip("10.1.0.0"), 16));
        assert!(matches(&ip("10.2.2.3"), &ip("0.0.0.0"), 0));
        assert!(!matches(&ip("fd00::1"), &ip("0.0.0.0"), 0));
        assert!(matches(&ip("fd00::1"), &ip("fd00::"), 64));
        assert!(!matches(&ip("fd00::1"), &ip("fd00::2"), 200));
    }
    /// Links between random nodes, with an address on each interface.
    fn network(nodes: u32, links: u32, r: &mut SplitMix) -> (Vec<Interface>, Vec<(IpAddr, u32)>) {
        let streams = Streams::new(1, 0);
        let mut interfaces = Vec::new();
        for first in (0..2 * links).step_by(2) {
            let a = (r.next_u64() % u64::from(nodes)) as u32;
            let b = (a + 1 + (r.next_u64() % u64::from(nodes - 1)) as u32) % nodes;
            for (node, peer_node, peer) in [(a, b, first + 1), (b, a, first)] {
                let link = Link::new(LinkConfig::default(), "", &streams, Time::ZERO).unwrap();
                interfaces.push(Interface {
                    node,
                    name: String::new(),
                    addresses: Vec::new(),
                    link,
                    peer,
                    peer_node,
                    cost: 1 + (r.next_u64() % 3) as u32,
                    wake: NEVER,
                    counters: Counters::default(),
                    flight: RingQueue::default(),
                });
            }
        }
        let address = |i: u32| (std::net::Ipv4Addr::from_bits(10 << 24 | i).into(), i);
        (interfaces, (0..2 * links).map(address).collect())
    }

    /// The next hops of all nodes to one address by the definition: distances by Bellman and Ford, then
    /// the lowest interface that begins a shortest path.
    fn dense(
        nodes: u32,
        interfaces: &[Interface],
        fixed: &[(u32, Fixed)],
        to: (IpAddr, u32),
    ) -> Vec<u32> {
        let last = &interfaces[to.1 as usize];
        let through = |index: usize, distance: &[u64]| {
            let i = &interfaces[index];
            let wrong_door = i.peer_node == last.node && i.peer != to.1;
            let door = if wrong_door { BACK_DOOR } else { 0 };
            distance[i.peer_node as usize].saturating_add(u64::from(i.cost) + door)
        };
        let mut distance = vec![u64::MAX; nodes as usize];
        distance[last.node as usize] = 0;
        for _ in 0..nodes {
            for (index, interface) in interfaces.iter().enumerate() {
                let (node, length) = (interface.node as usize, through(index, &distance));
                distance[node] = distance[node].min(length);
            }
        }
        let next = |node: u32| {
            let own = |index: &usize| interfaces[*index].node == node;
            let routes = fixed.iter().filter(|f| f.0 == node && matches(&to.0, &f.1.0, f.1.1));
            let fixed = routes.max_by_key(|f| f.1.1).map(|f| f.1.2 as usize);
            let neighbour = (0..interfaces.len()).filter(own).find(|i| interfaces[*i].peer == to.1);
            let shortest = (0..interfaces.len()).filter(own).filter(|_| node != last.node);
            let shortest = shortest
                .map(|index| (through(index, &distance), index))
                .filter(|s| s.0 != u64::MAX)
                .min();
            fixed.or(neighbour).or(shortest.map(|s| s.1)).map_or(NONE, |way| way as u32)
        };
        (0..nodes).map(next).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Asked in any order, and with room for a few tables only.
        #[test]
        fn behaves_like_dense_routes(
            seed in any::<u64>(), nodes in 2u32..12, links in 1u32..20, room in 1usize..100,
        ) {
            let mut r = SplitMix::new(seed);
            let (interfaces, addresses) = network(nodes, links, &mut r);
            let mut routes = Routes { max_next_hops: room, ..Routes::new() };
            let mut fixed = Vec::new();
            for _ in 0..r.next_u64() % 4 {
                let way = (r.next_u64() % interfaces.len() as u64) as u32;
                let to = addresses[(r.next_u64() % addresses.len() as u64) as usize].0;
                let prefix = [8, 30, 32][(r.next_u64() % 3) as usize];
                fixed.push((interfaces[way as usize].node, (to, prefix, way)));
            }
            fixed.iter().for_each(|(node, route)| routes.add(*node, *route));
            let expected: Vec<Vec<u32>> =
                addresses.iter().map(|to| dense(nodes, &interfaces, &fixed, *to)).collect();
            prop_assert!(routes.update(nodes as usize, &interfaces, addresses.len()));
            for _ in 0..200 {
                let node = (r.next_u64() % u64::from(nodes)) as u32;
                let number = (r.next_u64() % addresses.len() as u64) as u32;
                let way = routes.next_hop(node, number, &interfaces, &addresses);
                prop_assert_eq!(way, expected[number as usize][node as usize]);
            }
            let held: usize = routes.tables.iter().map(|table| table.len()).sum();
            prop_assert!(held <= room.max(nodes as usize));
        }
    }

    #[test]
    fn neighbours_need_no_table() {
        let (interfaces, addresses) = network(30, 60, &mut SplitMix::new(1));
        let mut routes = Routes::new();
        routes.update(30, &interfaces, addresses.len());
        for (index, interface) in interfaces.iter().enumerate() {
            let way = routes.next_hop(interface.node, interface.peer, &interfaces, &addresses);
            assert_eq!(way, index as u32);
        }
        assert!(routes.ages.is_empty());
    }
}
