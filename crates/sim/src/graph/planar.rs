//! Planar graphs of random points.

use super::points::{Cells, Points};
use super::topology::Topology;
use ringway_sansio::Random;

/// A difference of two positions, whose coordinates have 31 bits, so that products fit.
type Vector = [i64; 2];

impl Topology {
    /// Creates a planar graph: random points in a square, two of which are linked if no other is in the circle
    /// between them (Gabriel and Sokal 1969). It is connected, and a node has four neighbours in the mean.
    /// Nodes near each other have near numbers.
    pub fn planar(nodes: u32, random: &mut impl Random) -> Self {
        let points = Points::random(nodes, random);
        // Two points a cell.
        let cells = Cells::new(&points, u64::from(nodes / 2).isqrt());
        let mut search = Search { points, cells, near: Vec::new() };
        let mut pairs = Vec::new();
        for node in 0..nodes {
            search.find_near(node);
            let linked = search
                .near
                .iter()
                .filter(|(other, _)| node < *other && search.is_circle_empty(node, *other));
            pairs.extend(linked.map(|(other, _)| [node, *other]));
        }
        Topology::new(nodes, pairs)
    }
}

struct Search {
    points: Points,
    cells: Cells,
    /// Points that may be linked to the present one, and where they are from there.
    near: Vec<(u32, Vector)>,
}

impl Search {
    fn position(&self, point: u32) -> Vector {
        self.points.position(point).map(|coordinate| i64::from(coordinate / 2))
    }

    /// Finds the points that may be linked to one: at least those with an empty circle. Each point found
    /// excludes all behind it, which are those beyond the line through it that is perpendicular to the way
    /// there. What is not excluded is a convex region around the node, so a ring of cells that are excluded
    /// ends the search.
    fn find_near(&mut self, node: u32) {
        let [x, y] = self.points.position(node).map(|coordinate| self.cells.cell(coordinate));
        let from = self.position(node);
        self.near.clear();
        for distance in 0.. {
            let (columns, rows) = (self.cells.around(x, distance), self.cells.around(y, distance));
            let is_in_ring =
                |[column, row]: [u64; 2]| column.abs_diff(x).max(row.abs_diff(y)) == distance;
            let mut is_open = false;
            for row in rows {
                for column in columns.clone().filter(|column| is_in_ring([*column, row])) {
                    if distance == 0 || !self.is_behind(from, [column, row]) {
                        is_open = true;
                        self.add_cell(node, from, [column, row]);
                    }
                }
            }
            if !is_open {
                return;
            }
        }
    }

    /// Returns whether one of the points found excludes a whole cell.
    fn is_behind(&self, from: Vector, cell: [u64; 2]) -> bool {
        let [x, y] = cell.map(|cell| self.cells.bounds(cell).map(|bound| i64::from(bound / 2)));
        self.near.iter().any(|(_, middle)| {
            // The corner that is nearest in the direction of the point.
            let corner = [(x, middle[0], from[0]), (y, middle[1], from[1])]
                .map(|(bounds, way, from)| bounds[usize::from(way < 0)] - from);
            is_beyond(corner, *middle)
        })
    }

    fn add_cell(&mut self, node: u32, from: Vector, [x, y]: [u64; 2]) {
        for index in 0..self.cells.members(x, y).len() {
            let point = self.cells.members(x, y)[index];
            let [to_x, to_y] = self.position(point);
            let way = [to_x - from[0], to_y - from[1]];
            if point != node && !self.near.iter().any(|(_, middle)| is_beyond(way, *middle)) {
                self.near.retain(|(_, far)| !is_beyond(*far, way));
                self.near.push((point, way));
            }
        }
    }

    /// Returns whether no point is in the circle between two.
    fn is_circle_empty(&self, a: u32, b: u32) -> bool {
        let [from, to] = [a, b].map(|point| self.position(point));
        let way = [to[0] - from[0], to[1] - from[1]];
        let [columns, rows] = [0, 1].map(|axis| {
            let middle = from[axis] + to[axis];
            let radius = way[0].unsigned_abs().max(way[1].unsigned_abs()) as i64 * 3 / 2 + 2;
            let [low, high] = [middle - radius, middle + radius];
            let cell = |double: i64| self.cells.cell(double.clamp(0, u32::MAX.into()) as u32);
            cell(low)..=cell(high)
        });
        self.cells.within(columns, rows).all(|point| {
            let [x, y] = self.position(point);
            point == a || point == b || !is_beyond(way, [x - from[0], y - from[1]])
        })
    }
}

/// Returns whether a point is behind `middle`, both seen from the node: `middle` is then in the circle between the
/// node and the point, or on it. A point at the same position is not behind.
fn is_beyond(point: Vector, middle: Vector) -> bool {
    let past = [point[0] - middle[0], point[1] - middle[1]];
    past != [0, 0] && middle != [0, 0] && middle[0] * past[0] + middle[1] * past[1] >= 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;

    /// Returns twice the area of a triangle, positive if it turns left.
    fn turn([a, b, c]: [Vector; 3]) -> i128 {
        let [ab, ac] = [b, c].map(|to| [to[0] - a[0], to[1] - a[1]].map(i128::from));
        ab[0] * ac[1] - ab[1] * ac[0]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Exactly the pairs whose circle is empty, found by trying all; no two links cross.
        #[test]
        fn links_have_empty_circles(seed in any::<u64>(), nodes in 0u32..90) {
            let planar = Topology::planar(nodes, &mut SplitMix::new(seed));
            let points = Points::random(nodes, &mut SplitMix::new(seed));
            let at = |point| points.position(point).map(|coordinate| i64::from(coordinate / 2));
            let is_linked = |[a, b]: &[u32; 2]| {
                (0..nodes).filter(|c| c != a && c != b).all(|c| {
                    let [a, b, c] = [*a, *b, c].map(at);
                    (a[0] - c[0]) * (b[0] - c[0]) + (a[1] - c[1]) * (b[1] - c[1]) > 0
                })
            };
            let all = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| [a, b]));
            let expected: Vec<_> = all.filter(is_linked).collect();
            prop_assert_eq!(planar.edges(), &expected);
            for (index, [a, b]) in expected.iter().enumerate() {
                for [c, d] in &expected[..index] {
                    let [p, q, r, s] = [*a, *b, *c, *d].map(at);
                    let crosses = turn([p, q, r]).signum() * turn([p, q, s]).signum() < 0
                        && turn([r, s, p]).signum() * turn([r, s, q]).signum() < 0;
                    prop_assert!(!crosses);
                }
            }
            prop_assert_eq!(planar.largest_part().nodes(), nodes);
        }
    }

    #[test]
    fn a_node_has_four_neighbours_in_the_mean() {
        let planar = Topology::planar(20_000, &mut SplitMix::new(1));
        let degree = 2.0 * planar.edges().len() as f64 / 20_000.0;
        assert!((3.9..4.05).contains(&degree), "{degree}");
        assert_eq!(planar.largest_part().nodes(), 20_000);
    }
}
