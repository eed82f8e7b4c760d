//! Routes: computed shortest paths, and static routes before them.

use crate::node::{Interface, NONE, Node};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
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

/// Fills every node's table: the next hop to each of `addresses`, an address and the interface that has
/// it. The longest static route is first, then a neighbour, then the shortest path if `computed`.
pub(crate) fn fill(
    nodes: &mut [Node],
    interfaces: &[Interface],
    addresses: &[(IpAddr, u32)],
    computed: bool,
) {
    for node in nodes.iter_mut() {
        node.table.clear();
        node.table.resize(addresses.len(), NONE);
    }
    let into = incoming(nodes.len(), interfaces);
    let mut last: Option<(u32, Vec<u32>)> = None;
    for (number, &(ip, at)) in addresses.iter().enumerate() {
        if computed && last.as_ref().is_none_or(|l| l.0 != at) {
            last = Some((at, ways_to(at, nodes.len(), interfaces, &into)));
        }
        for (index, node) in nodes.iter_mut().enumerate() {
            let fixed = node.routes.iter().filter(|r| matches(&ip, &r.0, r.1));
            let fixed = fixed.max_by_key(|r| r.1).map(|r| r.2);
            let neighbour =
                node.interfaces.iter().copied().find(|&i| interfaces[i as usize].peer == at);
            let shortest = last.as_ref().map(|l| l.1[index]).filter(|&i| i != NONE);
            node.table[number] = fixed.or(neighbour).or(shortest).unwrap_or(NONE);
        }
    }
}

/// Returns the interfaces whose links lead to each node.
fn incoming(nodes: usize, interfaces: &[Interface]) -> Vec<Vec<u32>> {
    let mut into = vec![Vec::new(); nodes];
    for (index, interface) in interfaces.iter().enumerate() {
        into[interface.peer_node as usize].push(index as u32);
    }
    into
}

/// Returns for each node the interface that starts the shortest path to the interface `at` (Dijkstra
/// 1959, from the destination). Of equal paths, the one with the lowest interface is used.
fn ways_to(at: u32, nodes: usize, interfaces: &[Interface], into: &[Vec<u32>]) -> Vec<u32> {
    let target = interfaces[at as usize].node;
    let mut distance = vec![u64::MAX; nodes];
    let mut way = vec![NONE; nodes];
    let mut heap = BinaryHeap::from([Reverse((0u64, target))]);
    distance[target as usize] = 0;
    while let Some(Reverse((so_far, node))) = heap.pop() {
        if so_far > distance[node as usize] {
            continue;
        }
        for &link in &into[node as usize] {
            let interface = &interfaces[link as usize];
            let from = interface.node as usize;
            let back_door = node == target && interface.peer != at;
            let length = so_far + u64::from(interface.cost) + if back_door { BACK_DOOR } else { 0 };
            if (length, link) < (distance[from], way[from]) && from != target as usize {
                if length < distance[from] {
                    heap.push(Reverse((length, interface.node)));
                }
                distance[from] = length;
                way[from] = link;
            }
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
