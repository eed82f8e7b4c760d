//! A drawing of a network: nodes, and what joins them, with what is written beside each.
//!
//! Nodes stand in columns by their distance from the first, so that everything joined stands in one
//! column or in neighbouring ones; within a column they stand in the order of what they are joined
//! with to the left. The same network is always drawn alike.

use super::escape;
use crate::chart::{FAMILY, bounded, text_width};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// Most nodes that are drawn: with more nobody finds anything. The caption says so then.
pub const MAX_NODES: usize = 40;
/// Most edges that are drawn.
const MAX_EDGES: usize = 80;
/// Text sizes, in pixels.
const NAME: f64 = 13.0;
const LABEL: f64 = 11.0;
/// Height of a node, and from one line of a label to the next.
const BOX: f64 = 26.0;
const LINE: f64 = 13.5;
/// Least room between columns, and between the nodes of one.
const GAP_X: f64 = 90.0;
const GAP_Y: f64 = 46.0;
const MARGIN: f64 = 14.0;
/// Most characters of a name and of a line of a label.
const MAX_TEXT: usize = 48;

/// What joins two nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edge {
    /// The indices of both nodes.
    pub between: [usize; 2],
    /// Lines written beside it.
    pub label: Vec<String>,
    /// Whether it is dashed, such as a link that is down at times.
    pub dashed: bool,
}

/// Nodes and what joins them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagram {
    /// Its title.
    pub title: String,
    /// What it shows.
    pub caption: String,
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// What joins them; edges of nodes that do not exist are left out.
    pub edges: Vec<Edge>,
}

fn short(text: &str) -> String {
    bounded(text, MAX_TEXT)
}

impl Diagram {
    fn is_drawn(&self) -> bool {
        self.nodes.len() <= MAX_NODES && self.edges.len() <= MAX_EDGES
    }

    /// The caption, and whether the network is too large to be drawn.
    pub(super) fn full_caption(&self) -> String {
        if self.is_drawn() {
            return self.caption.clone();
        }
        format!(
            "{} Not drawn: {} nodes and {} links; at most {MAX_NODES} and {MAX_EDGES} are.",
            self.caption,
            self.nodes.len(),
            self.edges.len()
        )
    }

    /// The column of each node.
    fn columns(&self) -> Vec<usize> {
        let mut column = vec![usize::MAX; self.nodes.len()];
        let mut queue = VecDeque::new();
        for start in 0..self.nodes.len() {
            if column[start] == usize::MAX {
                column[start] = 0;
                queue.push_back(start);
            }
            while let Some(node) = queue.pop_front() {
                for Edge { between: [a, b], .. } in self.edges() {
                    let next = if *a == node { *b } else { *a };
                    if (*a == node || *b == node) && column[next] == usize::MAX {
                        column[next] = column[node] + 1;
                        queue.push_back(next);
                    }
                }
            }
        }
        column
    }

    fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|e| e.between.iter().all(|n| *n < self.nodes.len()))
    }

    /// The nodes of each column from top to bottom.
    fn order(&self) -> Vec<Vec<usize>> {
        let column = self.columns();
        let count = column.iter().map(|c| c + 1).max().unwrap_or(0);
        let mut columns: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut row = vec![0.0f64; self.nodes.len()];
        for (index, nodes) in columns.iter_mut().enumerate() {
            nodes.extend((0..column.len()).filter(|n| column[*n] == index));
            let left = |node: usize| {
                let beside = self.edges().filter_map(|e| match e.between {
                    [a, b] if a == node => Some(b),
                    [a, b] if b == node => Some(a),
                    _ => None,
                });
                let rows: Vec<f64> =
                    beside.filter(|n| column[*n] < index).map(|n| row[n]).collect();
                rows.iter().sum::<f64>() / rows.len().max(1) as f64
            };
            nodes.sort_by(|a, b| left(*a).total_cmp(&left(*b)).then(a.cmp(b)));
            for (at, node) in nodes.iter().enumerate() {
                row[*node] = at as f64 - (nodes.len() as f64 - 1.0) / 2.0;
            }
        }
        columns
    }

    /// The drawing as an element for an HTML page, in the page's own colours.
    pub fn svg(&self) -> String {
        if !self.is_drawn() || self.nodes.is_empty() {
            return String::new();
        }
        let columns = self.order();
        let width_of = |node: usize| text_width(&short(&self.nodes[node]), NAME) + 18.0;
        let label_width =
            |e: &Edge| e.label.iter().map(|l| text_width(&short(l), LABEL)).fold(0.0, f64::max);
        let lines = self.edges().map(|e| e.label.len()).max().unwrap_or(0) as f64;
        // Parallel edges lie beside one another, each with its label.
        let parallel = |e: &Edge| -> (usize, usize) {
            let same =
                |o: &&Edge| o.between == e.between || o.between == [e.between[1], e.between[0]];
            let before = self.edges().take_while(|o| !std::ptr::eq(*o, e)).filter(same).count();
            (before, self.edges().filter(same).count())
        };
        let most = self.edges().map(|e| parallel(e).1).max().unwrap_or(1) as f64;
        let step_y = (BOX + GAP_Y).max((lines * LINE + 16.0) * most + BOX * 0.5);
        let rows = columns.iter().map(Vec::len).max().unwrap_or(1) as f64;
        let height = rows * step_y + 2.0 * MARGIN;
        let mut centre = vec![(0.0, 0.0); self.nodes.len()];
        let mut x = MARGIN;
        for (i, nodes) in columns.iter().enumerate() {
            let widest = nodes.iter().map(|n| width_of(*n)).fold(0.0, f64::max);
            for (row, node) in nodes.iter().enumerate() {
                let offset = row as f64 - (nodes.len() as f64 - 1.0) / 2.0;
                centre[*node] = (x + widest / 2.0, height / 2.0 + offset * step_y);
            }
            // The label of an edge stands between its two columns, or to the right of its own.
            let from_here = self.edges().filter(|e| e.between.iter().any(|n| nodes.contains(n)));
            let next = columns.get(i + 1);
            let on_right = from_here.filter(|e| {
                e.between.iter().all(|n| nodes.contains(n) || next.is_some_and(|c| c.contains(n)))
            });
            let room = on_right.map(label_width).fold(0.0, f64::max);
            let gap = if room > 0.0 { (room + 28.0).max(GAP_X) } else { 0.0 };
            x += widest + gap;
        }
        let width = x + MARGIN;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{}\" font-family=\"{FAMILY}\" fill=\"currentColor\">\n",
            escape(&self.title)
        );
        for edge in self.edges() {
            let (before, of) = parallel(edge);
            let bend = (before as f64 - (of as f64 - 1.0) / 2.0) * (lines * LINE + 16.0);
            draw_edge(&mut svg, edge, edge.between.map(|n| centre[n]), bend);
        }
        for (node, (x, y)) in centre.iter().enumerate() {
            let (wide, name) = (width_of(node), escape(&short(&self.nodes[node])));
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{BOX}\" rx=\"5\" fill=\"#0072B2\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{NAME}\" text-anchor=\"middle\" fill=\"#fff\">{name}</text>",
                x - wide / 2.0,
                y - BOX / 2.0,
                y + NAME * 0.35
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// An edge from centre to centre, bent aside, with its label at its middle.
fn draw_edge(svg: &mut String, edge: &Edge, ends: [(f64, f64); 2], bend: f64) {
    let [(ax, ay), (bx, by)] = ends;
    let upright = (ax - bx).abs() < 1.0;
    // Edges within a column go round its right side.
    let aside = if upright { 60.0 + bend.abs() } else { 0.0 };
    let (mx, my) = ((ax + bx) / 2.0 + aside, (ay + by) / 2.0 + if upright { 0.0 } else { bend });
    // The middle of a quadratic curve lies half-way to its control point.
    let (cx, cy) = (2.0 * mx - (ax + bx) / 2.0, 2.0 * my - (ay + by) / 2.0);
    let dash = if edge.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    let _ = writeln!(
        svg,
        "<path d=\"M{ax:.1} {ay:.1}Q{cx:.1} {cy:.1} {bx:.1} {by:.1}\" fill=\"none\" stroke=\"currentColor\" \
         stroke-width=\"1.2\"{dash}/>"
    );
    let above = edge.label.len().div_ceil(2);
    for (i, line) in edge.label.iter().enumerate() {
        let y = match i < above {
            true => my - 5.0 - (above - 1 - i) as f64 * LINE,
            false => my + LABEL + 2.0 + (i - above) as f64 * LINE,
        };
        let _ = writeln!(
            svg,
            "<text x=\"{mx:.1}\" y=\"{y:.1}\" font-size=\"{LABEL}\" text-anchor=\"middle\" style=\"paint-order: stroke; \
             stroke: var(--ground); stroke-width: 3px\">{}</text>",
            escape(&short(line))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(edges: &[[usize; 2]], nodes: usize) -> Diagram {
        let edge = |between: &[usize; 2]| Edge {
            between: *between,
            label: vec!["l".into(), "1 Mbit/s, 2 ms".into()],
            dashed: false,
        };
        Diagram {
            title: "t <&>".into(),
            nodes: (0..nodes).map(|n| format!("n{n}<")).collect(),
            edges: edges.iter().map(edge).collect(),
            ..Diagram::default()
        }
    }

    /// Nodes stand in columns by distance; every node and link is drawn once, text escaped.
    #[test]
    fn a_network_is_drawn_in_columns() {
        let four = network(&[[0, 2], [1, 2], [2, 3]], 4);
        assert_eq!(four.order(), [vec![0], vec![2], vec![1, 3]]);
        let svg = four.svg();
        assert_eq!((svg.matches("<rect").count(), svg.matches("<path").count()), (4, 3));
        assert_eq!(svg.matches("1 Mbit/s, 2 ms").count(), 3);
        assert!(svg.contains("n3&lt;<") && !svg.contains("n3<<"), "{svg}");
        assert_eq!(svg, four.svg());
    }

    /// Parallel links do not lie on one another; one of unknown nodes, and too many, are left out.
    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let two = network(&[[0, 1], [1, 0], [0, 9]], 2);
        let paths: Vec<String> =
            two.svg().lines().filter(|l| l.starts_with("<path")).map(String::from).collect();
        assert_eq!(paths.len(), 2);
        assert_ne!(paths[0], paths[1]);
        let many = network(&[], MAX_NODES + 1);
        assert_eq!(many.svg(), "");
        assert!(many.full_caption().contains("Not drawn: 41 nodes"), "{}", many.full_caption());
        assert_eq!(network(&[], 0).svg(), "");
    }
}
