//! Positions of nodes that the scenario leaves open.
//!
//! Distances in the drawing are those in the network, as far as a plane allows: the stress of the drawing is reduced node
//! by node (Kamada and Kawai 1989; Gansner, Koren and North 2004). Only additions, products, quotients and square roots
//! are used, which are the same on every machine.

use super::network::Network;
use std::collections::VecDeque;

/// Maximum number of nodes whose stress is reduced; its time grows with the square of them.
const MAX_STRESS: usize = 256;
/// Number of rounds over all nodes.
const ROUNDS: usize = 150;

/// Returns the position of each node, to the right and downwards.
pub(super) fn layout(network: &Network) -> Vec<[f64; 2]> {
    let given: Option<Vec<[f64; 2]>> = network.nodes.iter().map(|node| node.position).collect();
    if let Some(given) = given {
        return given;
    }
    let beside = beside(network);
    let ends = network.flows.first().map_or((0, 0), |flow| (flow.from, flow.to));
    if network.nodes.len() > MAX_STRESS {
        return columns(&distances(&beside, ends.0));
    }
    let all: Vec<Vec<usize>> =
        (0..network.nodes.len()).map(|node| distances(&beside, node)).collect();
    let mut at = columns(&all[ends.0]);
    for (i, position) in at.iter_mut().enumerate() {
        // No three nodes in a line, or they would never leave it.
        position[1] += 0.1 * ((i * 7 + 3) % 11) as f64 / 11.0;
    }
    for _ in 0..ROUNDS {
        for node in 0..at.len() {
            at[node] = moved(&all, &at, node);
        }
    }
    turned(at, ends)
}

/// Returns the neighbours of each node.
fn beside(network: &Network) -> Vec<Vec<usize>> {
    let mut beside = vec![Vec::new(); network.nodes.len()];
    for link in &network.links {
        let [a, b] = link.between;
        beside[a].push(b);
        beside[b].push(a);
    }
    beside
}

/// Returns the number of links to each node; nodes that are not reached are two further than any that is.
fn distances(beside: &[Vec<usize>], from: usize) -> Vec<usize> {
    let mut distance = vec![usize::MAX; beside.len()];
    distance[from] = 0;
    let mut queue = VecDeque::from([from]);
    let mut highest = 0;
    while let Some(node) = queue.pop_front() {
        highest = distance[node];
        for &next in &beside[node] {
            if distance[next] == usize::MAX {
                distance[next] = highest + 1;
                queue.push_back(next);
            }
        }
    }
    distance.iter().map(|d| if *d == usize::MAX { highest + 2 } else { *d }).collect()
}

/// Returns positions in columns by distance.
fn columns(distance: &[usize]) -> Vec<[f64; 2]> {
    let mut height = vec![0usize; distance.iter().max().map_or(0, |max| max + 1)];
    let rows: Vec<usize> = distance
        .iter()
        .map(|d| {
            height[*d] += 1;
            height[*d] - 1
        })
        .collect();
    let middle = |d: usize| (height[d] as f64 - 1.0) / 2.0;
    distance.iter().zip(rows).map(|(d, row)| [*d as f64, row as f64 - middle(*d)]).collect()
}

/// Returns the position of a node with the least stress while the others stay.
fn moved(all: &[Vec<usize>], at: &[[f64; 2]], node: usize) -> [f64; 2] {
    let (mut sum, mut weights) = ([0.0; 2], 0.0);
    for (other, there) in at.iter().enumerate().filter(|(other, _)| *other != node) {
        let distance = all[node][other].max(1) as f64;
        let weight = 1.0 / (distance * distance);
        let to = [at[node][0] - there[0], at[node][1] - there[1]];
        let length = (to[0] * to[0] + to[1] * to[1]).sqrt().max(1e-9);
        for axis in 0..2 {
            sum[axis] += weight * (there[axis] + distance * to[axis] / length);
        }
        weights += weight;
    }
    if weights == 0.0 { at[node] } else { sum.map(|x| x / weights) }
}

/// Turns the drawing so that the first flow goes to the right.
fn turned(at: Vec<[f64; 2]>, (from, to): (usize, usize)) -> Vec<[f64; 2]> {
    let [x, y] = [0, 1].map(|axis| at[to][axis] - at[from][axis]);
    let length = (x * x + y * y).sqrt();
    if length < 1e-9 {
        return at;
    }
    let (cos, sin) = (x / length, y / length);
    at.iter().map(|[px, py]| [px * cos + py * sin, py * cos - px * sin]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::network;
    use super::*;

    fn length(at: &[[f64; 2]], a: usize, b: usize) -> f64 {
        let [x, y] = [0, 1].map(|axis| at[a][axis] - at[b][axis]);
        (x * x + y * y).sqrt()
    }

    /// A line is drawn as one, to the right, with equal steps.
    #[test]
    fn a_line_is_straight() {
        let network = network(5, &[[0, 1], [1, 2], [2, 3], [3, 4]], (0, 4));
        let at = layout(&network);
        for pair in at.windows(2) {
            assert!((pair[1][0] - pair[0][0] - 1.0).abs() < 0.05, "{at:?}");
            assert!((pair[1][1] - pair[0][1]).abs() < 0.05, "{at:?}");
        }
        assert_eq!(at, layout(&network));
    }

    /// The nodes around one are as far from it as each other, and not on one another.
    #[test]
    fn a_star_is_spread() {
        let at = layout(&network(4, &[[0, 2], [1, 2], [2, 3]], (0, 3)));
        for (a, b) in [(0, 1), (1, 3), (0, 3)] {
            assert!(length(&at, a, b) > 1.2, "{at:?}");
        }
        assert!((at[0][1] - at[3][1]).abs() < 1e-9 && at[3][0] > at[0][0], "{at:?}");
    }

    /// Networks in parts, of one node, and of too many have positions, too; given ones are kept.
    #[test]
    fn every_network_has_positions() {
        let two = layout(&network(4, &[[0, 1], [2, 3]], (0, 1)));
        assert!(two.iter().flatten().all(|x| x.is_finite()) && length(&two, 0, 2) > 1.0, "{two:?}");
        assert_eq!(layout(&network(1, &[], (0, 0))).len(), 1);
        let links: Vec<[usize; 2]> = (1..2000).map(|n| [n / 2, n]).collect();
        let many = layout(&network(2000, &links, (0, 1)));
        assert!(many.iter().flatten().all(|x| x.is_finite()));
        let mut given = network(2, &[[0, 1]], (0, 1));
        given.nodes[0].position = Some([3.0, 4.0]);
        given.nodes[1].position = Some([5.0, 6.0]);
        assert_eq!(layout(&given), [[3.0, 4.0], [5.0, 6.0]]);
    }
}
