//! A picture of nodes at given positions: cables, a ring of ids, and the ways of packets over them.

use super::escape;
use crate::chart::{ChartError, FAMILY, bounded, render_png, text_width};
use std::f64::consts::TAU;
use std::fmt::Write as _;

/// Most nodes that are drawn: with more a picture cannot be read.
pub const MAX_SPOTS: usize = 60;
/// Most lines that are drawn.
pub const MAX_WAYS: usize = 200;
/// Colour of the ground, where a label covers a line.
const GROUND: &str = "var(--ground, #fff)";
/// Side of the square that positions are in, and the room around it, in pixels.
const SIDE: f64 = 420.0;
const MARGIN: f64 = 24.0;
/// Text sizes, and from one line of a label to the next.
const NAME: f64 = 13.0;
const LABEL: f64 = 11.0;
const LINE: f64 = 13.5;
/// Radius of a node's disk, and half the height of its box.
const DISK: f64 = 14.0;
/// Distance between parallel lines.
const ASIDE: f64 = 13.0;
/// Radius of the ring of ids, as a part of the square.
pub const RING_RADIUS: f64 = 0.45;
/// Most characters of a text.
const MAX_TEXT: usize = 64;

/// What a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpotKind {
    /// A router: a disk.
    #[default]
    Router,
    /// A host: a box.
    Host,
    /// A position without a node: a diamond.
    Key,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spot {
    /// Its name, within its mark.
    pub name: String,
    /// Lines beside it.
    pub label: Vec<String>,
    /// Its position, from 0 to 1 to the right and downwards.
    pub at: [f64; 2],
    /// What it is.
    pub kind: SpotKind,
}

/// What joins two nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WayKind {
    /// A cable: a thin line.
    #[default]
    Cable,
    /// Knowledge of the next node on the ring: an arc with an arrow, clockwise.
    Next,
    /// A packet: a thick arrow.
    Packet,
    /// An answer: a dashed arrow.
    Answer,
}

impl WayKind {
    const fn colour(self) -> &'static str {
        match self {
            WayKind::Cable => "currentColor",
            WayKind::Next => "#009e73",
            WayKind::Packet => "#d55e00",
            WayKind::Answer => "#0072b2",
        }
    }
}

/// A line from one node to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    /// The indices of both nodes.
    pub between: [usize; 2],
    /// What it is.
    pub kind: WayKind,
    /// Text at its middle, such as its number.
    pub label: String,
}

/// Nodes and what joins them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Its title.
    pub title: String,
    /// What it shows.
    pub caption: String,
    /// Whether the ring of ids is drawn, on which nodes are at [`on_ring`].
    pub ring: bool,
    /// Height of the square that is used, as a part of its width.
    pub height: f64,
    /// The nodes.
    pub spots: Vec<Spot>,
    /// The lines, those above others last; lines of nodes that do not exist are left out.
    pub ways: Vec<Way>,
    /// The meaning of each kind of line that is used.
    pub legend: Vec<(WayKind, String)>,
}

/// Returns the position of an id, which is a part of the whole ring: 0 is at the top, and ids grow clockwise.
pub fn on_ring(id: f64) -> [f64; 2] {
    let (sin, cos) = (id * TAU).sin_cos();
    [0.5 + RING_RADIUS * sin, 0.5 - RING_RADIUS * cos]
}

impl Picture {
    fn is_drawn(&self) -> bool {
        let finite = self.spots.iter().all(|s| s.at.iter().all(|c| (0.0..=1.0).contains(c)));
        finite
            && self.height > 0.0
            && self.height <= 1.0
            && !self.spots.is_empty()
            && self.spots.len() <= MAX_SPOTS
            && self.ways.len() <= MAX_WAYS
    }

    /// The caption, and whether the picture is not drawn.
    pub(super) fn full_caption(&self) -> String {
        match self.is_drawn() || self.spots.is_empty() {
            true => self.caption.clone(),
            false => format!("{} Not drawn: too many nodes or lines.", self.caption),
        }
    }

    /// The picture as PNG, on white.
    ///
    /// # Errors
    /// A picture that is too large.
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        render_png(&self.svg())
    }

    fn centre(&self, spot: usize) -> [f64; 2] {
        let [x, y] = self.spots[spot].at;
        [self.left() + x * SIDE, self.top() + y * SIDE]
    }

    /// Room above, where labels are above their nodes.
    fn top(&self) -> f64 {
        MARGIN + if self.ring { LINE } else { self.labels() + DISK }
    }

    /// Height of the longest label.
    fn labels(&self) -> f64 {
        self.spots.iter().map(|s| s.label.len()).max().unwrap_or(0) as f64 * LINE
    }

    /// Room on the left for the labels of the leftmost nodes.
    fn left(&self) -> f64 {
        MARGIN + self.label_room()
    }

    fn label_room(&self) -> f64 {
        let widest = |s: &Spot| s.label.iter().map(|l| width(l, LABEL)).fold(0.0, f64::max);
        self.spots.iter().map(widest).fold(0.0, f64::max) / if self.ring { 1.0 } else { 2.0 }
    }

    /// The picture; empty if there are no nodes, or too many.
    pub fn svg(&self) -> String {
        if !self.is_drawn() {
            return String::new();
        }
        let wide = 2.0 * self.left() + SIDE;
        let below = if self.ring { 0.0 } else { self.labels() };
        let bottom = self.top() + self.height * SIDE + below + DISK + MARGIN;
        let high = bottom + self.legend.len() as f64 * (LINE + 6.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.0} {high:.0}\" width=\"{wide:.0}\" \
             height=\"{high:.0}\" role=\"img\" aria-label=\"{}\" font-family=\"{FAMILY}\" fill=\"currentColor\">\n",
            escape(&bounded(&self.title, MAX_TEXT))
        );
        if self.ring {
            let (x, y) = (self.left() + SIDE / 2.0, self.top() + SIDE / 2.0);
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"none\" stroke=\"currentColor\" \
                 stroke-width=\"1\" stroke-dasharray=\"2 5\" opacity=\"0.6\"/>",
                RING_RADIUS * SIDE
            );
        }
        let exists = |way: &&Way| {
            way.between[0] != way.between[1] && way.between.iter().all(|n| *n < self.spots.len())
        };
        for (index, way) in self.ways.iter().enumerate().filter(|(_, way)| exists(way)) {
            self.draw_way(&mut svg, index, way);
        }
        for (index, spot) in self.spots.iter().enumerate() {
            self.draw_spot(&mut svg, index, spot);
        }
        for (index, (kind, meaning)) in self.legend.iter().enumerate() {
            let y = bottom + index as f64 * (LINE + 6.0);
            draw_line(&mut svg, *kind, &format!("M{MARGIN} {y:.1}H{:.1}", MARGIN + 34.0));
            if *kind != WayKind::Cable {
                draw_head(&mut svg, *kind, [MARGIN + 40.0, y], [1.0, 0.0]);
            }
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{LABEL}\">{}</text>",
                MARGIN + 50.0,
                y + LABEL * 0.35,
                escape(&bounded(meaning, MAX_TEXT))
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Number of arrows before this one between the same nodes in the same direction.
    fn parallel(&self, index: usize) -> usize {
        let way = &self.ways[index];
        let is_alike = |other: &&Way| {
            other.between == way.between && !matches!(other.kind, WayKind::Cable | WayKind::Next)
        };
        self.ways[..index].iter().filter(is_alike).count()
    }

    fn draw_way(&self, svg: &mut String, index: usize, way: &Way) {
        let [a, b] = way.between.map(|spot| self.centre(spot));
        match way.kind {
            WayKind::Cable => draw_line(
                svg,
                way.kind,
                &format!("M{:.1} {:.1}L{:.1} {:.1}", a[0], a[1], b[0], b[1]),
            ),
            WayKind::Next => self.draw_arc(svg, a, b),
            WayKind::Packet | WayKind::Answer => {
                let aside = ASIDE * (1.0 + self.parallel(index) as f64);
                let borders = way.between.map(|spot| self.extent(spot));
                draw_arrow(svg, way.kind, [a, b], borders, aside, &way.label);
            }
        }
    }

    /// An arc clockwise along the ring, outside of it.
    fn draw_arc(&self, svg: &mut String, a: [f64; 2], b: [f64; 2]) {
        let centre = [self.left() + SIDE / 2.0, self.top() + SIDE / 2.0];
        let angle = |p: [f64; 2]| (p[0] - centre[0]).atan2(centre[1] - p[1]).rem_euclid(TAU);
        // Outside of the nodes, where no packet is drawn.
        let radius = RING_RADIUS * SIDE + DISK - 2.0;
        let gap = (DISK - 2.0) / radius;
        let (from, mut to) = (angle(a) + gap, angle(b) - gap);
        while to < from {
            to += TAU;
        }
        // Neighbours so near that there is no room between them.
        if to - from > TAU - 2.0 * gap {
            return;
        }
        let point = |t: f64| [centre[0] + radius * t.sin(), centre[1] - radius * t.cos()];
        let (start, end) = (point(from), point(to));
        let large = u8::from(to - from > TAU / 2.0);
        let data = format!(
            "M{:.1} {:.1}A{radius:.1} {radius:.1} 0 {large} 1 {:.1} {:.1}",
            start[0], start[1], end[0], end[1]
        );
        draw_line(svg, WayKind::Next, &data);
        draw_head(svg, WayKind::Next, end, [to.cos(), to.sin()]);
    }

    /// Half the width and height of a node's mark.
    fn extent(&self, spot: usize) -> [f64; 2] {
        let spot = &self.spots[spot];
        let half = (width(&spot.name, NAME) / 2.0 + 7.0).max(DISK);
        match spot.kind {
            SpotKind::Router if half <= DISK + 4.0 => [half, half],
            SpotKind::Router | SpotKind::Host => [half, DISK - 2.0],
            SpotKind::Key => [half, DISK],
        }
    }

    fn draw_spot(&self, svg: &mut String, index: usize, spot: &Spot) {
        let ([x, y], name) = (self.centre(index), escape(&bounded(&spot.name, MAX_TEXT)));
        let [half, high] = self.extent(index);
        let mark = match spot.kind {
            SpotKind::Router if half == high => {
                format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{half:.1}\" fill=\"#0072b2\"/>")
            }
            SpotKind::Router | SpotKind::Host => {
                let (rx, fill) =
                    if spot.kind == SpotKind::Host { (2, "#4d4d4d") } else { (9, "#0072b2") };
                format!(
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{rx}\" fill=\"{fill}\"/>",
                    x - half,
                    y - high,
                    2.0 * half,
                    2.0 * high
                )
            }
            SpotKind::Key => format!(
                "<path d=\"M{x:.1} {:.1}l{half:.1} {DISK} -{half:.1} {DISK} -{half:.1} -{DISK}z\" fill=\"{GROUND}\" \
                 stroke=\"currentColor\" stroke-dasharray=\"3 2\"/>",
                y - DISK
            ),
        };
        let ink = if spot.kind == SpotKind::Key { "currentColor" } else { "#fff" };
        let _ = writeln!(
            svg,
            "{mark}\n<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{NAME}\" text-anchor=\"middle\" fill=\"{ink}\">{name}\
             </text>",
            y + NAME * 0.35
        );
        let lines = spot.label.len() as f64;
        // On a ring a label is outside of it.
        let (anchor, lx, ly) = if self.ring {
            let [dx, dy] = [spot.at[0] - 0.5, spot.at[1] - 0.5];
            let anchor = match dx {
                dx if dx > 0.08 => "start",
                dx if dx < -0.08 => "end",
                _ => "middle",
            };
            let (ux, uy) = (dx / RING_RADIUS, dy / RING_RADIUS);
            let away = DISK + 10.0;
            let shift = (uy - 1.0) / 2.0 * (lines - 1.0) * LINE;
            (anchor, x + ux * away, y + uy * (away + 4.0) + LABEL * 0.35 + shift)
        } else {
            // Where fewer lines are: above in the upper half, below in the lower.
            let y = match spot.at[1] < self.height / 2.0 {
                true => y - DISK - 4.0 - (lines - 1.0) * LINE,
                false => y + DISK + LABEL + 4.0,
            };
            ("middle", x, y)
        };
        for (i, text) in spot.label.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<text x=\"{lx:.1}\" y=\"{:.1}\" font-size=\"{LABEL}\" text-anchor=\"{anchor}\" stroke=\"{GROUND}\" \
                 stroke-width=\"3\" paint-order=\"stroke\">{}</text>",
                ly + i as f64 * LINE,
                escape(&bounded(text, MAX_TEXT))
            );
        }
    }
}

fn width(text: &str, size: f64) -> f64 {
    text_width(&bounded(text, MAX_TEXT), size)
}

fn draw_line(svg: &mut String, kind: WayKind, data: &str) {
    let (thick, rest) = match kind {
        WayKind::Cable => (1.2, " opacity=\"0.55\""),
        WayKind::Next => (1.8, ""),
        WayKind::Packet => (2.4, ""),
        WayKind::Answer => (2.0, " stroke-dasharray=\"6 4\""),
    };
    let colour = kind.colour();
    let _ = writeln!(
        svg,
        "<path d=\"{data}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{thick}\"{rest}/>"
    );
}

/// The head of an arrow whose tip is at `tip`.
fn draw_head(svg: &mut String, kind: WayKind, tip: [f64; 2], along: [f64; 2]) {
    let [dx, dy] = along;
    let corner =
        |side: f64| [tip[0] - 9.0 * dx - side * 4.5 * dy, tip[1] - 9.0 * dy + side * 4.5 * dx];
    let ([lx, ly], [rx, ry]) = (corner(1.0), corner(-1.0));
    let _ = writeln!(
        svg,
        "<path d=\"M{:.1} {:.1}L{lx:.1} {ly:.1} {rx:.1} {ry:.1}z\" fill=\"{}\"/>",
        tip[0],
        tip[1],
        kind.colour()
    );
}

/// An arrow beside the straight line between two nodes, with its label.
fn draw_arrow(
    svg: &mut String,
    kind: WayKind,
    [a, b]: [[f64; 2]; 2],
    [first, last]: [[f64; 2]; 2],
    aside: f64,
    label: &str,
) {
    let [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    let (nx, ny) = (-uy, ux);
    // The control point of a curve whose middle is `aside` from the line.
    let [mx, my] = [(a[0] + b[0]) / 2.0, (a[1] + b[1]) / 2.0];
    let control = [mx + nx * 2.0 * aside, my + ny * 2.0 * aside];
    let shorten = |from: [f64; 2], [wide, high]: [f64; 2]| {
        let [cx, cy] = [control[0] - from[0], control[1] - from[1]];
        let far = cx.hypot(cy).max(1.0);
        // Up to the border of the mark, a disk or a box.
        let border = match wide == high {
            true => wide,
            false => (wide * far / cx.abs().max(0.1)).min(high * far / cy.abs().max(0.1)),
        };
        let by = (border + 3.0).min(far * 0.8);
        [from[0] + cx / far * by, from[1] + cy / far * by]
    };
    let (start, end) = (shorten(a, first), shorten(b, last));
    let far = (end[0] - control[0]).hypot(end[1] - control[1]).max(1.0);
    let along = [(end[0] - control[0]) / far, (end[1] - control[1]) / far];
    let neck = [end[0] - 7.0 * along[0], end[1] - 7.0 * along[1]];
    let data = format!(
        "M{:.1} {:.1}Q{:.1} {:.1} {:.1} {:.1}",
        start[0], start[1], control[0], control[1], neck[0], neck[1]
    );
    draw_line(svg, kind, &data);
    draw_head(svg, kind, end, along);
    if !label.is_empty() {
        let (x, y) = (mx + nx * (aside + 1.0), my + ny * (aside + 1.0));
        let half = (width(label, LABEL) / 2.0 + 4.0).max(8.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"16\" rx=\"8\" fill=\"{GROUND}\" stroke=\"{}\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{LABEL}\" text-anchor=\"middle\">{}</text>",
            x - half,
            y - 8.0,
            2.0 * half,
            kind.colour(),
            y + LABEL * 0.35,
            escape(&bounded(label, MAX_TEXT))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use resvg::usvg::roxmltree::Document;

    fn picture(positions: &[f64], ways: &[[usize; 2]], kind: WayKind) -> Picture {
        let spot = |(i, at): (usize, &f64)| Spot {
            name: format!("{i}<"),
            label: vec!["a & b".into(), "second".into()],
            at: on_ring(*at),
            kind: [SpotKind::Router, SpotKind::Host, SpotKind::Key][i % 3],
        };
        let way = |between: &[usize; 2]| Way { between: *between, kind, label: "1".into() };
        Picture {
            title: "t".into(),
            caption: "c".into(),
            ring: true,
            height: 1.0,
            spots: positions.iter().enumerate().map(spot).collect(),
            ways: ways.iter().map(way).collect(),
            legend: vec![(kind, "meaning".into())],
        }
    }

    #[test]
    fn an_id_is_clockwise_from_the_top() {
        let near = |at: [f64; 2], x: f64, y: f64| (at[0] - x).hypot(at[1] - y) < 1e-9;
        assert!(near(on_ring(0.0), 0.5, 0.5 - RING_RADIUS));
        assert!(near(on_ring(0.25), 0.5 + RING_RADIUS, 0.5));
        assert!(near(on_ring(0.5), 0.5, 0.5 + RING_RADIUS));
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let two = picture(&[0.1, 0.6], &[[0, 1], [0, 9], [1, 1]], WayKind::Packet);
        assert_eq!(two.svg().matches("stroke-width=\"2.4\"").count(), 2);
        let many = picture(&vec![0.5; MAX_SPOTS + 1], &[], WayKind::Cable);
        assert_eq!(many.svg(), "");
        assert!(many.full_caption().contains("Not drawn"));
        assert!(two.png().unwrap().starts_with(b"\x89PNG"));
    }

    proptest! {
        /// Every picture is XML within its page, with each node once.
        #[test]
        fn a_picture_is_drawn_whole(
            positions in prop::collection::vec(0.0f64..1.0, 1..12),
            ways in prop::collection::vec((0usize..12, 0usize..12), 0..20),
            kind in 0usize..4,
        ) {
            let kind = [WayKind::Cable, WayKind::Next, WayKind::Packet, WayKind::Answer][kind];
            let ways: Vec<[usize; 2]> = ways.into_iter().map(|(a, b)| [a, b]).collect();
            let svg = picture(&positions, &ways, kind).svg();
            let document = Document::parse(&svg).unwrap();
            let texts = document.descendants().filter(|n| n.has_tag_name("text"));
            let names = texts.filter(|n| n.text().is_some_and(|t| t.ends_with('<'))).count();
            prop_assert_eq!(names, positions.len());
            let page = document.root_element().attribute("viewBox").unwrap();
            let page: Vec<f64> = page.split(' ').map(|n| n.parse().unwrap()).collect();
            for node in document.descendants().filter(|n| n.has_tag_name("text")) {
                let at = |name| node.attribute(name).unwrap().parse::<f64>().unwrap();
                prop_assert!((0.0..page[2]).contains(&at("x")) && (0.0..page[3]).contains(&at("y")));
            }
        }
    }
}
