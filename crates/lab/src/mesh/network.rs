//! Routers, hosts and cables as a graph.

use super::log::Log;
use super::router::{LabRouter, Processor, Wiring};
use super::{Host, LabNode};
use crate::run::RunError;
use ringway_link::Rate;
use ringway_mesh::{Identity, Limits, NodeId};
use ringway_sansio::{Duration, Time};
use ringway_sim::graph::{Adjacency, Graph, LinkModel, Topology};
use ringway_tcp::Settings;
use std::net::Ipv6Addr;

/// Octets of Ethernet around a packet: preamble, header, check sequence and gap.
const ETHERNET: usize = 38;
/// Octets of IPv6 and UDP below the packets of routers.
const UDP: usize = 48;
/// Time that a packet waits for a cable at most.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A cable, in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cable {
    /// Its rate.
    pub rate: Rate,
    /// Its delay.
    pub delay: Duration,
}

/// A host of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// The position of its router.
    pub router: usize,
    /// Settings of its TCP.
    pub tcp: Settings,
}

/// A description of a network. Its routers are the first nodes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Identities of the routers.
    pub routers: Vec<Identity>,
    /// Sizes of their tables.
    pub limits: Limits,
    /// Which of them are joined by cables.
    pub links: Vec<[u32; 2]>,
    /// The hosts, each with a cable to its router.
    pub hosts: Vec<HostPlan>,
    /// All cables.
    pub cable: Cable,
    /// The processor of each router; `None` if packets take no time there.
    pub processor: Option<Processor>,
    /// Seed.
    pub seed: u64,
}

/// A network that runs.
pub struct Network {
    /// The nodes.
    pub graph: Graph<LabNode>,
    routers: Vec<NodeId>,
    hosts: Vec<Ipv6Addr>,
}

impl Network {
    /// Starts all nodes at time zero.
    pub fn start(plan: &Plan, log: Option<&Log>) -> Result<Self, RunError> {
        let first_host = plan.routers.len() as u32;
        let address = |(i, host): (usize, &HostPlan)| {
            let id = plan.routers.get(host.router).map_or(NodeId::default(), Identity::id);
            // An interface identifier that no router has.
            Ipv6Addr::from_bits(id.prefix().network().to_bits() | (0x100 + i as u128))
        };
        let hosts: Vec<Ipv6Addr> = plan.hosts.iter().enumerate().map(address).collect();
        let cables = (first_host..).zip(&plan.hosts).map(|(node, host)| [host.router as u32, node]);
        let nodes = first_host + hosts.len() as u32;
        let topology = Topology::new(nodes, plan.links.iter().copied().chain(cables));
        let Cable { rate, delay } = plan.cable;
        let model = LinkModel { rate, max_wait: MAX_WAIT, ..LinkModel::new(delay) };
        let adjacency = Adjacency::new(&topology, |_, _| model)?;
        let host_of = |node: u32| node.checked_sub(first_host).map(|host| hosts[host as usize]);
        let wiring = |number: u32| Wiring {
            number,
            ports: adjacency.neighbours(number).map(|node| (node, host_of(node))).collect(),
            host_head: ETHERNET,
            mesh_head: ETHERNET + UDP,
        };
        let wirings: Vec<Wiring> = (0..first_host).map(wiring).collect();
        let mut graph = Graph::idle(adjacency, plan.seed);
        for (identity, wiring) in plan.routers.iter().zip(wirings) {
            let (number, identity) = (wiring.number, identity.clone());
            let (processor, seed) = (plan.processor, plan.seed);
            let log = log.cloned();
            let router =
                LabRouter::new(identity, plan.limits, wiring, processor, seed, Time::ZERO, log);
            graph.start(number, LabNode::Router(Box::new(router)))?;
        }
        for (number, (host, address)) in (first_host..).zip(plan.hosts.iter().zip(&hosts)) {
            let numbers = [number, host.router as u32];
            let host = Host::new(numbers, *address, ETHERNET, host.tcp, plan.seed, log.cloned());
            let host = host.map_err(|error| ringway_sim::Error::Settings {
                what: format!("host {number}: {error}"),
            })?;
            graph.start(number, LabNode::Host(Box::new(host)))?;
        }
        let routers = plan.routers.iter().map(Identity::id).collect();
        Ok(Network { graph, routers, hosts })
    }

    /// Returns the ids of the routers.
    pub fn routers(&self) -> &[NodeId] {
        &self.routers
    }

    /// Returns the address of a host by its position among the hosts.
    pub fn address(&self, host: usize) -> Ipv6Addr {
        self.hosts.get(host).copied().unwrap_or(Ipv6Addr::UNSPECIFIED)
    }

    /// Returns the number of a host by its position among the hosts.
    pub fn number(&self, host: usize) -> u32 {
        (self.routers.len() + host) as u32
    }

    /// Calls a host by its position among the hosts.
    pub fn host<R>(
        &mut self,
        host: usize,
        call: impl FnOnce(&mut Host, Time) -> R,
    ) -> Result<Option<R>, RunError> {
        let number = self.number(host);
        let called = self.graph.with_node(number, |node, now| Some(call(node.host()?, now)))?;
        Ok(called.flatten())
    }

    /// Calls a router by its number.
    pub fn router<R>(
        &mut self,
        router: u32,
        call: impl FnOnce(&mut LabRouter, Time) -> R,
    ) -> Result<Option<R>, RunError> {
        let called = self.graph.with_node(router, |node, now| Some(call(node.router()?, now)))?;
        Ok(called.flatten())
    }

    /// Advances time to `end`.
    pub fn run_until(&mut self, end: Time) -> Result<(), RunError> {
        Ok(self.graph.run_until(end)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity_at;
    use super::*;

    fn line(routers: usize) -> Plan {
        let ids = (0..routers).map(|i| identity_at(NodeId::new((i as u64) << 60), 4, 1));
        let host = |router| HostPlan { router, tcp: Settings { mtu: 1368, ..Settings::default() } };
        Plan {
            routers: ids.collect(),
            limits: Limits::default(),
            links: (1..routers as u32).map(|i| [i - 1, i]).collect(),
            hosts: vec![host(0), host(routers - 1)],
            cable: Cable { rate: Rate(100_000_000), delay: Duration::from_micros(1) },
            processor: None,
            seed: 1,
        }
    }

    /// Echo requests and a file pass from host to host, over one router and over three.
    #[test]
    fn hosts_reach_each_other_over_routers() {
        for routers in [1, 3] {
            let mut network = Network::start(&line(routers), None).unwrap();
            network.run_until(Time::from_secs(10)).unwrap();
            let to = network.address(1);
            for number in 0..3 {
                network.host(0, |host, now| host.ping(now, to, number)).unwrap();
                network.run_until(network.graph.now() + Duration::from_secs(1)).unwrap();
            }
            let trips = network.host(0, |host, _| host.round_trips().to_vec()).unwrap().unwrap();
            assert_eq!(trips.len(), 3, "{routers}");
            // The first one begins the session; the others are equal.
            assert!(trips[1] == trips[2] && (routers == 1 || trips[0] > trips[1]), "{trips:?}");
            network.host(0, |host, now| host.send_file(now, to, 1_000_000).unwrap()).unwrap();
            network.run_until(network.graph.now() + Duration::from_secs(5)).unwrap();
            let done = network.host(1, |host, _| host.transfer()).unwrap().unwrap();
            assert_eq!(done.octets, 1_000_000);
            assert_eq!(network.graph.totals().dropped, 0);
        }
    }

    /// A processor serves packets one after another.
    #[test]
    fn a_processor_delays_each_packet() {
        let trip = |service: u64| {
            let processor = Some(Processor { service: Duration::from_micros(service) });
            let mut network = Network::start(&Plan { processor, ..line(1) }, None).unwrap();
            network.run_until(Time::from_secs(1)).unwrap();
            let to = network.address(1);
            network.host(0, |host, now| host.ping(now, to, 0)).unwrap();
            network.run_until(Time::from_secs(2)).unwrap();
            network.host(0, |host, _| host.round_trips()[0]).unwrap().unwrap()
        };
        assert_eq!(trip(700) - trip(0), Duration::from_micros(1400));
    }
}
