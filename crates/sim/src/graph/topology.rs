//! Graphs of nodes and links: regular ones, and random ones from a seeded generator.

use super::points::{Cells, Points};
use super::random::{below, uniform};
use ringway_sansio::Random;
use std::f64::consts::PI;

/// Nodes, numbered from 0, and the links between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: u32,
    edges: Vec<[u32; 2]>,
}

impl Topology {
    /// Creates a graph from pairs of nodes. Links of a node to itself, repeated links, and links to a node
    /// that is not below `nodes` are left out.
    pub fn new(nodes: u32, pairs: impl IntoIterator<Item = [u32; 2]>) -> Self {
        let ordered = pairs.into_iter().map(|[a, b]| [a.min(b), a.max(b)]);
        let mut edges: Vec<_> = ordered.filter(|[a, b]| a < b && *b < nodes).collect();
        edges.sort_unstable();
        edges.dedup();
        Topology { nodes, edges }
    }

    /// Creates a line.
    pub fn line(nodes: u32) -> Self {
        Topology::new(nodes, (1..nodes).map(|node| [node - 1, node]))
    }

    /// Creates a ring.
    pub fn ring(nodes: u32) -> Self {
        Topology::new(nodes, (0..nodes).map(|node| [node, (node + 1) % nodes]))
    }

    /// Creates a rectangular grid of fewer than 2^32 nodes, numbered row by row.
    pub fn grid(width: u32, height: u32) -> Self {
        let right = |node: u32| (!(node + 1).is_multiple_of(width)).then_some([node, node + 1]);
        let pairs = |node| right(node).into_iter().chain([[node, node + width]]);
        Topology::new(width * height, (0..width * height).flat_map(pairs))
    }

    /// Creates a tree in which each node but the last ones has `children` children.
    pub fn tree(nodes: u32, children: u32) -> Self {
        Topology::new(nodes, (1..nodes).map(|node| [(node - 1) / children.max(1), node]))
    }

    /// Creates a unit disk graph: random points in a square, linked if they are near each other. The range
    /// is such that a node has `degree` neighbours in the mean, and fewer at the border. Nodes near each
    /// other have near numbers, which makes a run faster. The graph may have several parts.
    pub fn disk(nodes: u32, degree: f64, random: &mut impl Random) -> Self {
        let points = Points::random(nodes, random);
        let side = 2f64.powi(32);
        let range = (degree / (PI * f64::from(nodes))).sqrt() * side;
        // A cell is no smaller than the range, and there are no more cells than nodes.
        let cells = Cells::new(&points, ((side / range) as u64).min(u64::from(nodes).isqrt()));
        let mut pairs = Vec::new();
        for node in 0..nodes {
            let [x, y] = points.position(node);
            let [columns, rows] = [x, y].map(|coordinate| cells.around(cells.cell(coordinate), 1));
            for other in cells.within(columns, rows) {
                let [dx, dy] = {
                    let [to_x, to_y] = points.position(other);
                    [(x, to_x), (y, to_y)].map(|(a, b)| f64::from(a) - f64::from(b))
                };
                if node < other && dx * dx + dy * dy <= range * range {
                    pairs.push([node, other]);
                }
            }
        }
        Topology::new(nodes, pairs)
    }

    /// Creates a small world (Watts and Strogatz 1998): a ring in which each node is linked to the
    /// `degree / 2` nodes on each side, and each link leads to a random node with probability `rewired`.
    /// The graph may have several parts, though rarely.
    pub fn small_world(nodes: u32, degree: u32, rewired: f64, random: &mut impl Random) -> Self {
        let mut pairs = Vec::new();
        for node in 0..nodes {
            for step in 1..=degree / 2 {
                let far = match uniform(random) < rewired {
                    true => below(random, nodes.into()) as u32,
                    false => ((u64::from(node) + u64::from(step)) % u64::from(nodes)) as u32,
                };
                pairs.push([node, far]);
            }
        }
        Topology::new(nodes, pairs)
    }

    /// Creates a graph whose degrees follow a power law (Barabasi and Albert 1999): each node is linked to
    /// `links` earlier nodes, chosen in proportion to their degrees. The first `links + 1` nodes are all
    /// linked.
    pub fn power_law(nodes: u32, links: u32, random: &mut impl Random) -> Self {
        let first = nodes.min(links + 1);
        let mut pairs: Vec<[u32; 2]> =
            (0..first).flat_map(|b| (0..b).map(move |a| [a, b])).collect();
        for node in first..nodes {
            let before = pairs.len() as u64;
            let mut chosen = 0;
            while chosen < links as usize {
                // A random end of a random link: a node of degree d is found in proportion to d.
                let end = below(random, 2 * before);
                let far = pairs[(end / 2) as usize][(end % 2) as usize];
                if pairs[before as usize..].iter().all(|pair| pair[0] != far) {
                    pairs.push([far, node]);
                    chosen += 1;
                }
            }
        }
        Topology::new(nodes, pairs)
    }

    /// Returns the largest connected part, with nodes in the same order. Of equal parts it is the one
    /// with the lowest node.
    pub fn largest_part(self) -> Self {
        let mut roots: Vec<u32> = (0..self.nodes).collect();
        for &[a, b] in &self.edges {
            let (a, b) = (root(&mut roots, a), root(&mut roots, b));
            roots[a.max(b) as usize] = a.min(b);
        }
        let mut sizes = vec![0u32; self.nodes as usize];
        for node in 0..self.nodes {
            sizes[root(&mut roots, node) as usize] += 1;
        }
        let largest = (0..self.nodes).rev().max_by_key(|node| sizes[*node as usize]);
        let mut numbers = vec![None; self.nodes as usize];
        let mut nodes = 0;
        for node in (0..self.nodes).filter(|node| Some(roots[*node as usize]) == largest) {
            numbers[node as usize] = Some(nodes);
            nodes += 1;
        }
        let renumbered = |[a, b]: [u32; 2]| Some([numbers[a as usize]?, numbers[b as usize]?]);
        let edges = self.edges.into_iter().filter_map(renumbered).collect();
        Topology { nodes, edges }
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the links in order, each with the lower node first.
    pub fn edges(&self) -> &[[u32; 2]] {
        &self.edges
    }
}

/// Returns the root of the part of `node`, and halves the path to it.
fn root(roots: &mut [u32], mut node: u32) -> u32 {
    while roots[node as usize] != node {
        let above = roots[roots[node as usize] as usize];
        roots[node as usize] = above;
        node = above;
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    #[test]
    fn regular_graphs_have_their_links() {
        assert_eq!(Topology::line(4).edges(), [[0, 1], [1, 2], [2, 3]]);
        assert_eq!(Topology::ring(3).edges(), [[0, 1], [0, 2], [1, 2]]);
        assert_eq!(Topology::ring(2).edges(), [[0, 1]]);
        assert_eq!(Topology::tree(5, 2).edges(), [[0, 1], [0, 2], [1, 3], [1, 4]]);
        let grid = Topology::grid(3, 2);
        assert_eq!(grid.edges(), [[0, 1], [0, 3], [1, 2], [1, 4], [2, 5], [3, 4], [4, 5]]);
    }

    #[test]
    fn the_largest_part_keeps_its_order() {
        let parts = Topology::new(9, [[0, 1], [3, 8], [8, 5], [5, 3], [2, 4], [7, 7]]);
        assert_eq!(parts.largest_part(), Topology::new(3, [[0, 2], [1, 2], [0, 1]]));
        // Of equal parts the first.
        let equal = Topology::new(6, [[4, 5], [1, 2], [2, 3], [3, 1], [4, 0], [0, 5]]);
        assert_eq!(equal.largest_part().edges(), [[0, 1], [0, 2], [1, 2]]);
    }

    /// Exactly the pairs of points within the range, found without cells.
    #[test]
    fn a_disk_links_the_points_in_range() {
        for (nodes, degree) in [(2, 0.5), (50, 4.0), (400, 12.0), (30, 200.0)] {
            let disk = Topology::disk(nodes, degree, &mut SplitMix::new(3));
            let mut random = SplitMix::new(3);
            let mut points: Vec<u64> = (0..nodes).map(|_| random.next_u64()).collect();
            points.sort_unstable();
            let coordinate = |point: u64, odd: u32| {
                (0..32).fold(0u64, |sum, bit| sum | (point >> (2 * bit + odd) & 1) << bit) as f64
                    / 2f64.powi(32)
            };
            let range = degree / (PI * f64::from(nodes));
            let near = |a: u32, b: u32| {
                let [dx, dy] = [0, 1].map(|odd| {
                    coordinate(points[a as usize], odd) - coordinate(points[b as usize], odd)
                });
                dx * dx + dy * dy <= range
            };
            let all = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| [a, b]));
            let expected: Vec<_> = all.filter(|[a, b]| near(*a, *b)).collect();
            assert_eq!(disk.edges(), expected, "{nodes} nodes");
        }
    }

    #[test]
    fn random_graphs_have_their_degrees_and_repeat() {
        let random = || SplitMix::new(1);
        let degree = |t: &Topology| 2.0 * t.edges().len() as f64 / f64::from(t.nodes());
        let disk = Topology::disk(20_000, 12.0, &mut random());
        assert!((degree(&disk) - 12.0).abs() < 0.4, "{}", degree(&disk));
        assert_eq!(disk, Topology::disk(20_000, 12.0, &mut random()));
        assert!(disk.clone().largest_part().nodes() > 19_900);
        let world = Topology::small_world(10_000, 6, 0.1, &mut random());
        assert!((degree(&world) - 6.0).abs() < 0.01, "{}", degree(&world));
        assert_eq!(world.largest_part().nodes(), 10_000);
        let ring = Topology::small_world(100, 2, 0.0, &mut random());
        assert_eq!(ring, Topology::ring(100));
        let hubs = Topology::power_law(10_000, 3, &mut random());
        assert_eq!(hubs.edges().len(), 6 + 3 * 9_996);
        let mut degrees = vec![0; 10_000];
        hubs.edges().iter().flatten().for_each(|node| degrees[*node as usize] += 1);
        // The largest degree grows with the root of the nodes, the smallest is 3.
        assert!(degrees.iter().max() > Some(&100) && degrees.iter().min() == Some(&3));
        assert_eq!(hubs.largest_part().nodes(), 10_000);
    }
}
