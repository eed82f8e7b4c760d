//! Builds a world from a scenario.

use super::ledger::{CountedPackets, FlowLedger, Ledger};
use super::statistics::BoundedSamples;
use super::trace::{MAX_HOPS, Trace};
use super::transport::{self, Ends, RunningFlow};
use crate::scenario::{MAX_FLOWS, ProbeKind, Scenario, Transport};
use ringway_link::{LinkConfig, Streams};
use ringway_sim::{Budget, Error, InterfaceId, NodeId, World};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Ports of the two ends of flow 0; those of flow n are n higher.
const PORTS: [u16; 2] = [10_000, 20_000];
const _: () = assert!(PORTS[1] as usize + MAX_FLOWS == 1 << 16);

/// A world that is ready to run.
pub(super) struct BuiltWorld {
    pub(super) world: World,
    /// The interfaces at both ends of each link.
    pub(super) interfaces: Vec<[InterfaceId; 2]>,
    pub(super) flows: Vec<Box<dyn RunningFlow>>,
    /// Number of the ledger among the world's recorders.
    pub(super) ledger: usize,
}

impl BuiltWorld {
    /// Adds a recorder of the ways of packets; returns its number.
    pub(super) fn add_trace(&mut self, scenario: &Scenario) -> usize {
        let mut trace = Trace::new(MAX_HOPS);
        for (link, interfaces) in scenario.links.iter().zip(&self.interfaces) {
            trace.add_link(interfaces.map(|i| i.index()), [&link.there, &link.back]);
        }
        for number in 0..scenario.flows.len() {
            trace.add_flow(PORTS.map(|port| port + number as u16));
        }
        self.world.add_recorder(trace)
    }
}

/// Returns the link of each address that a path of a flow begins at.
pub(super) fn paths(scenario: &Scenario) -> BTreeMap<IpAddr, String> {
    let ends = scenario.links.iter().enumerate();
    ends.flat_map(|(n, link)| [0, 1].map(|end| (address(n, end), link.name.clone()))).collect()
}

/// Returns the address of one end of a link.
fn address(link: usize, end: usize) -> IpAddr {
    let number = (link as u32) << 2 | (end as u32 + 1);
    Ipv4Addr::from_bits(10 << 24 | number).into()
}

/// Builds the world of one replication.
pub(super) fn build(scenario: &Scenario, streams: Streams) -> Result<BuiltWorld, Error> {
    let mut world = World::new(streams);
    world.set_budget(Budget { events: scenario.events, ..Budget::default() });
    let nodes: Vec<NodeId> =
        scenario.nodes.iter().map(|name| world.add_node(name)).collect::<Result<_, _>>()?;
    let mut ledger = Ledger::default();
    let mut interfaces = Vec::new();
    for (number, link) in scenario.links.iter().enumerate() {
        let [a, b] = link.between;
        let (out, back) =
            world.connect(nodes[a], nodes[b], link.there.clone(), link.back.clone())?;
        for (end, (interface, config)) in
            [(out, &link.there), (back, &link.back)].into_iter().enumerate()
        {
            world.add_address(interface, address(number, end))?;
            world.set_cost(interface, link.cost)?;
            if is_flushed(config) {
                ledger.track_waiting(interface.index());
            }
            let steady = config.rate_trace.is_empty()
                && config.deliveries.is_none()
                && config.schedule.is_empty();
            if steady && !config.rate.is_unlimited() {
                ledger.count_bytes(interface.index(), config);
            }
        }
        interfaces.push([out, back]);
    }
    let beside = beside(scenario);
    for route in &scenario.routes {
        let way = usize::from(scenario.links[route.link].between[0] != route.at);
        for &(number, end) in &beside[route.to] {
            let way = interfaces[route.link][way];
            world.add_route(nodes[route.at], address(number, end), 32, way)?;
        }
    }
    let mut flows = Vec::new();
    for (number, flow) in scenario.flows.iter().enumerate() {
        let ports = PORTS.map(|port| port + number as u16);
        let paths: Vec<[IpAddr; 2]> = match &flow.sctp.paths[..] {
            [] => vec![path(scenario, &beside, flow.from, flow.to)],
            links => {
                let by = |&link: &usize| path_by(scenario, &beside, flow.from, flow.to, link);
                links.iter().map(by).collect()
            }
        }
        .into_iter()
        .map(|ends| ends.map(|(link, end)| address(link, end)))
        .collect();
        let primary = paths.first().copied().unwrap_or([Ipv4Addr::UNSPECIFIED.into(); 2]);
        let ends = Ends {
            nodes: [nodes[flow.from], nodes[flow.to]],
            addresses: [0, 1].map(|end| SocketAddr::new(primary[end], ports[end])),
            paths: &paths,
        };
        let counted = match flow.transport {
            Transport::SctpNs2 if !flow.every_packet => CountedPackets::Data,
            _ => CountedPackets::Packets,
        };
        let mut account = FlowLedger::new(ports, counted);
        for probe in scenario.probes.iter().filter(|p| p.flow == Some(number)) {
            match probe.what {
                ProbeKind::Delay => account.delays = Some(BoundedSamples::default()),
                ProbeKind::Sequence => account.sequence = Some(BoundedSamples::default()),
                ProbeKind::Throughput => account.bins = Some((probe.every.as_nanos(), Vec::new())),
                _ => {}
            }
        }
        ledger.add(account, [flow.from as u32, flow.to as u32]);
        flows.push(transport::attach(&mut world, flow, ends, &streams)?);
    }
    let ledger = world.add_recorder(ledger);
    Ok(BuiltWorld { world, interfaces, flows, ledger })
}

/// By node: the links at it, each with the end that is there.
type Beside = Vec<Vec<(usize, usize)>>;

fn beside(scenario: &Scenario) -> Beside {
    let mut beside = vec![Vec::new(); scenario.nodes.len()];
    for (number, link) in scenario.links.iter().enumerate() {
        for end in [0, 1] {
            beside[link.between[end]].push((number, end));
        }
    }
    beside
}

/// Returns whether a link ever goes down and drops the packets that wait for it.
fn is_flushed(config: &LinkConfig) -> bool {
    let mut keeps = config.down_keeps_queue;
    config.schedule.iter().any(|change| {
        keeps = change.down_keeps_queue.unwrap_or(keeps);
        change.up == Some(false) && !keeps
    })
}

/// Returns the links, each with its end, by which the cheapest path leaves one node and enters
/// another. The scenario was checked, so there is a path.
fn path(scenario: &Scenario, beside: &Beside, from: usize, to: usize) -> [(usize, usize); 2] {
    let ends = cheapest(scenario, beside, from, to, None);
    // A static route at the first node determines the link; routes are in this order (`canonical`).
    let index = scenario.routes.partition_point(|r| (r.at, r.to) < (from, to));
    let fixed = scenario.routes.get(index).filter(|r| (r.at, r.to) == (from, to));
    let first = fixed.map_or(ends[0], |route| (route.link, end_at(scenario, route.link, from)));
    [first, ends[1]]
}

/// Returns the ends of a path that leaves the first node by a given link.
fn path_by(
    scenario: &Scenario,
    beside: &Beside,
    from: usize,
    to: usize,
    link: usize,
) -> [(usize, usize); 2] {
    let end = end_at(scenario, link, from);
    let next = scenario.links[link].between[1 - end];
    let last = match next == to {
        true => (link, 1 - end),
        // The rest of the path does not return through the first node.
        false => cheapest(scenario, beside, next, to, Some(from))[1],
    };
    [(link, end), last]
}

/// Returns the end of a link that is at a node.
fn end_at(scenario: &Scenario, link: usize, node: usize) -> usize {
    usize::from(scenario.links[link].between[0] != node)
}

/// Returns the ends of the cheapest path that does not pass through `avoid`.
fn cheapest(
    scenario: &Scenario,
    beside: &Beside,
    from: usize,
    to: usize,
    avoid: Option<usize>,
) -> [(usize, usize); 2] {
    let mut best = vec![(u64::MAX, None, None); scenario.nodes.len()];
    let mut heap = BinaryHeap::from([Reverse((0u64, from))]);
    best[from].0 = 0;
    while let Some(Reverse((cost, node))) = heap.pop() {
        if node == to {
            break;
        }
        if cost > best[node].0 {
            continue;
        }
        let (_, first, _) = best[node];
        for &(number, end) in &beside[node] {
            let link = &scenario.links[number];
            let (next, cost) = (link.between[1 - end], cost + u64::from(link.cost));
            if cost < best[next].0 && Some(next) != avoid {
                best[next] = (cost, first.or(Some((number, end))), Some((number, 1 - end)));
                heap.push(Reverse((cost, next)));
            }
        }
    }
    let (_, first, last) = best[to];
    [first.unwrap_or_default(), last.unwrap_or_default()]
}
