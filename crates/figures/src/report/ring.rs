//! A drawing of a ring of ids: who is responsible for which part, and where keys are.
//!
//! Position 0 is at the top, and positions grow clockwise. Each node has the part from its own position up to the
//! next node's, in the colour that the legend shows beside its name.

use super::escape;
use crate::chart::{FAMILY, bounded, colour, text_width};
use std::f64::consts::TAU;
use std::fmt::Write as _;

/// Most nodes that are drawn: more colours nobody tells apart.
pub const MAX_RING_NODES: usize = 40;
/// Most keys that are drawn.
pub const MAX_RING_KEYS: usize = 1_000;
/// Text size, in pixels, and from one line of the legend to the next.
const NAME: f64 = 13.0;
const LINE: f64 = 22.0;
/// Radius of the ring and width of its stroke.
const RADIUS: f64 = 110.0;
const WIDTH: f64 = 16.0;
/// Radius at which keys stand, and the size of one.
const KEYS: f64 = RADIUS + 18.0;
const KEY: f64 = 3.5;
/// Half of the width and height of the ring with all that surrounds it.
const HALF: f64 = 140.0;
const MARGIN: f64 = 14.0;
/// Most characters of a name.
const MAX_TEXT: usize = 48;

/// Nodes and keys on a ring. Positions are parts of the whole ring; of others the fraction counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ring {
    /// Its title.
    pub title: String,
    /// What it shows.
    pub caption: String,
    /// Nodes with their positions.
    pub nodes: Vec<(String, f64)>,
    /// Positions of keys.
    pub keys: Vec<f64>,
}

impl Ring {
    /// The part of the ring that each node is responsible for, from its position up to the next one. Of nodes in one
    /// position the last has it.
    pub fn parts(&self) -> Vec<f64> {
        let position = |i: usize| self.nodes[i].1.rem_euclid(1.0);
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by(|a, b| position(*a).total_cmp(&position(*b)));
        let mut parts = vec![0.0; self.nodes.len()];
        for (i, node) in order.iter().enumerate() {
            parts[*node] = match order.get(i + 1) {
                Some(next) => position(*next) - position(*node),
                None => 1.0 + position(order[0]) - position(*node),
            };
        }
        parts
    }

    fn is_drawn(&self) -> bool {
        let finite = self.nodes.iter().map(|n| n.1).chain(self.keys.iter().copied());
        self.nodes.len() <= MAX_RING_NODES
            && self.keys.len() <= MAX_RING_KEYS
            && finite.into_iter().all(f64::is_finite)
    }

    /// The caption, and whether the ring is not drawn.
    pub(super) fn full_caption(&self) -> String {
        if self.is_drawn() {
            return self.caption.clone();
        }
        format!(
            "{} Not drawn: {} nodes and {} keys; at most {MAX_RING_NODES} and {MAX_RING_KEYS} are.",
            self.caption,
            self.nodes.len(),
            self.keys.len()
        )
    }

    /// The drawing, in the colours of a page around it or on its own; empty if there are no or too many nodes.
    pub fn svg(&self) -> String {
        if self.nodes.is_empty() || !self.is_drawn() {
            return String::new();
        }
        let parts = self.parts();
        let label =
            |i: usize| format!("{}: {} %", bounded(&self.nodes[i].0, MAX_TEXT), per_cent(parts[i]));
        let labels: Vec<String> = (0..parts.len()).map(label).collect();
        let widest = labels.iter().map(|l| text_width(l, NAME)).fold(0.0, f64::max);
        let left = 2.0 * (HALF + MARGIN);
        let height = left.max(labels.len() as f64 * LINE + 2.0 * MARGIN);
        let width = left + 24.0 + widest + MARGIN;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{}\" font-family=\"{FAMILY}\" fill=\"currentColor\">\n",
            escape(&bounded(&self.title, MAX_TEXT))
        );
        let centre = (HALF + MARGIN, height / 2.0);
        for (i, (_, position)) in self.nodes.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{WIDTH}\"/>",
                arc(centre, *position, parts[i]),
                colour(i)
            );
        }
        for (_, position) in &self.nodes {
            let [(x, y), (u, v)] =
                [-WIDTH, WIDTH].map(|by| point(centre, RADIUS + by * 0.75, *position));
            let _ = writeln!(
                svg,
                "<path class=\"node\" d=\"M{x:.2} {y:.2}L{u:.2} {v:.2}\" stroke=\"currentColor\" stroke-width=\"2\"/>"
            );
        }
        for key in &self.keys {
            let (x, y) = point(centre, KEYS, *key);
            let _ = writeln!(svg, "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{KEY}\"/>");
        }
        let top = (height - labels.len() as f64 * LINE) / 2.0;
        for (i, label) in labels.iter().enumerate() {
            let y = top + (i as f64 + 0.5) * LINE;
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"14\" height=\"14\" fill=\"{}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{NAME}\">{}</text>",
                y - 7.0,
                colour(i),
                left + 22.0,
                y + NAME * 0.35,
                escape(label)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// A part as per cent: three digits, and less than the least of them as such.
fn per_cent(part: f64) -> String {
    match part * 100.0 {
        part if part > 0.0 && part < 0.01 => "< 0.01".into(),
        part if part < 10.0 => format!("{part:.2}"),
        part => format!("{part:.1}"),
    }
}

fn point((x, y): (f64, f64), radius: f64, position: f64) -> (f64, f64) {
    let (sin, cos) = (position * TAU).sin_cos();
    (x + radius * sin, y - radius * cos)
}

/// A part of the circle, in two halves, since an arc of SVG must end elsewhere than it begins.
fn arc(centre: (f64, f64), from: f64, part: f64) -> String {
    let (x, y) = point(centre, RADIUS, from);
    let mut data = format!("M{x:.2} {y:.2}");
    for share in [0.5, 1.0] {
        let (x, y) = point(centre, RADIUS, from + part * share);
        let _ = write!(data, "A{RADIUS} {RADIUS} 0 0 1 {x:.2} {y:.2}");
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use resvg::usvg::roxmltree::Document;

    fn ring(positions: &[f64], keys: &[f64]) -> Ring {
        let nodes = positions.iter().enumerate().map(|(i, p)| (format!("n{i} <&>"), *p)).collect();
        Ring { title: "A ring".into(), caption: "It shows.".into(), nodes, keys: keys.into() }
    }

    #[test]
    fn a_node_has_the_part_up_to_the_next() {
        assert_eq!(ring(&[0.75, 0.25], &[]).parts(), [0.5, 0.5]);
        assert_eq!(ring(&[0.5, 0.0, 1.25], &[]).parts(), [0.5, 0.25, 0.25]);
        assert_eq!(ring(&[0.3], &[]).parts(), [1.0]);
        let svg = ring(&[0.0, 1e-9], &[0.5]).svg();
        assert!(
            svg.contains("n0 &lt;&amp;&gt;: &lt; 0.01 %") && svg.contains(": 100.0 %"),
            "{svg}"
        );
    }

    #[test]
    fn too_many_nodes_are_not_drawn() {
        let many = ring(&vec![0.5; MAX_RING_NODES + 1], &[]);
        assert_eq!(many.svg(), "");
        assert!(many.full_caption().contains("Not drawn: 41 nodes and 0 keys"));
        assert_eq!(ring(&[], &[0.5]).svg(), "");
        assert_eq!(ring(&[f64::NAN], &[]).svg(), "");
    }

    proptest! {
        /// Parts are the whole ring, and the drawing is XML with each node and key, within its page.
        #[test]
        fn a_ring_is_drawn_whole(
            positions in prop::collection::vec(-2.0f64..2.0, 1..=MAX_RING_NODES),
            keys in prop::collection::vec(-2.0f64..2.0, 0..20),
        ) {
            let ring = ring(&positions, &keys);
            prop_assert!((ring.parts().iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!(ring.parts().iter().all(|part| *part >= 0.0));
            let svg = ring.svg();
            let document = Document::parse(&svg).unwrap();
            let count = |tag| document.descendants().filter(|n| n.has_tag_name(tag)).count();
            prop_assert_eq!((count("path"), count("circle")), (2 * positions.len(), keys.len()));
            let page = document.root_element().attribute("viewBox").unwrap();
            let page: Vec<f64> = page.split(' ').map(|n| n.parse().unwrap()).collect();
            for circle in document.descendants().filter(|n| n.has_tag_name("circle")) {
                let at = |name| circle.attribute(name).unwrap().parse::<f64>().unwrap();
                prop_assert!((KEY..page[2] - KEY).contains(&at("cx")) && (KEY..page[3] - KEY).contains(&at("cy")));
            }
        }
    }
}
