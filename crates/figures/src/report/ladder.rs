//! A ladder: who sends what to whom, in the order of time.

use super::escape;
use crate::chart::{ChartError, FAMILY, bounded, render_png, text_width};
use std::fmt::Write as _;

/// Most ends and steps that are drawn.
pub const MAX_ENDS: usize = 12;
/// See [`MAX_ENDS`].
pub const MAX_STEPS: usize = 100;
/// Text sizes, the height of a step, and the room around all.
const NAME: f64 = 13.0;
const LABEL: f64 = 11.0;
const STEP: f64 = 30.0;
const MARGIN: f64 = 20.0;
/// Height of the names at the top.
const HEAD: f64 = 26.0;
/// Least distance between two ends.
const GAP: f64 = 110.0;
/// Most characters of a text.
const MAX_TEXT: usize = 64;

/// A message from one end to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rung {
    /// The indices of both ends.
    pub between: [usize; 2],
    /// When it arrived.
    pub time: String,
    /// What it is.
    pub label: String,
    /// Whether it is drawn in the second colour.
    pub second: bool,
}

/// Ends, and messages between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ladder {
    /// Its title.
    pub title: String,
    /// What it shows.
    pub caption: String,
    /// Names of the ends from left to right.
    pub ends: Vec<String>,
    /// The messages in their order; those of ends that do not exist are left out.
    pub rungs: Vec<Rung>,
}

impl Ladder {
    fn is_drawn(&self) -> bool {
        !self.ends.is_empty() && self.ends.len() <= MAX_ENDS && self.rungs.len() <= MAX_STEPS
    }

    /// The caption, and whether the ladder is not drawn.
    pub(super) fn full_caption(&self) -> String {
        match self.is_drawn() || self.ends.is_empty() {
            true => self.caption.clone(),
            false => format!("{} Not drawn: too many ends or messages.", self.caption),
        }
    }

    /// The ladder as PNG, on white.
    ///
    /// # Errors
    /// A ladder that is too large.
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        render_png(&self.svg())
    }

    /// The ladder; empty if there are no ends, or too many of anything.
    pub fn svg(&self) -> String {
        if !self.is_drawn() {
            return String::new();
        }
        let rungs: Vec<&Rung> = self
            .rungs
            .iter()
            .filter(|r| r.between[0] != r.between[1])
            .filter(|r| r.between.iter().all(|end| *end < self.ends.len()))
            .collect();
        let wide = |text: &str, size| text_width(&bounded(text, MAX_TEXT), size);
        // A label needs room between the ends of its message.
        let fits = |r: &&&Rung| {
            (wide(&r.label, LABEL) + 34.0) / r.between[0].abs_diff(r.between[1]) as f64
        };
        let names = self.ends.iter().map(|name| wide(name, NAME) + 30.0);
        let gap = rungs.iter().map(|r| fits(&r)).chain(names).fold(GAP, f64::max);
        let times = rungs.iter().map(|r| wide(&r.time, LABEL)).fold(0.0, f64::max);
        let half = self.ends.iter().map(|name| wide(name, NAME)).fold(0.0, f64::max) / 2.0 + 9.0;
        let left = MARGIN + times + 12.0 + half;
        let x = |end: usize| left + end as f64 * gap;
        let width = x(self.ends.len() - 1) + half + MARGIN;
        let height = 2.0 * MARGIN + HEAD + (rungs.len() as f64 + 0.6) * STEP;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{}\" font-family=\"{FAMILY}\" fill=\"currentColor\">\n",
            escape(&bounded(&self.title, MAX_TEXT))
        );
        for (end, name) in self.ends.iter().enumerate() {
            let (x, box_half) = (x(end), wide(name, NAME) / 2.0 + 9.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"currentColor\" stroke-width=\"1\" opacity=\"0.5\"/>\n\
                 <rect x=\"{:.1}\" y=\"{MARGIN}\" width=\"{:.1}\" height=\"{HEAD}\" rx=\"5\" fill=\"#0072b2\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{NAME}\" text-anchor=\"middle\" fill=\"#fff\">{}</text>",
                MARGIN + HEAD,
                height - MARGIN,
                x - box_half,
                2.0 * box_half,
                MARGIN + HEAD / 2.0 + NAME * 0.35,
                escape(&bounded(name, MAX_TEXT))
            );
        }
        for (i, rung) in rungs.iter().enumerate() {
            let y = MARGIN + HEAD + (i as f64 + 0.9) * STEP;
            draw_rung(&mut svg, rung, rung.between.map(x), y);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn draw_rung(svg: &mut String, rung: &Rung, [from, to]: [f64; 2], y: f64) {
    let colour = if rung.second { "#0072b2" } else { "#d55e00" };
    let towards = if to > from { -1.0 } else { 1.0 };
    let _ = writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"{:.1}\" font-size=\"{LABEL}\" opacity=\"0.75\">{}</text>\n\
         <path d=\"M{from:.1} {y:.1}H{:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
         <path d=\"M{to:.1} {y:.1}l{:.1} -4.5v9z\" fill=\"{colour}\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{LABEL}\" text-anchor=\"middle\">{}</text>",
        y + LABEL * 0.35,
        escape(&bounded(&rung.time, MAX_TEXT)),
        to + towards * 7.0,
        towards * 9.0,
        (from + to) / 2.0,
        y - 5.0,
        escape(&bounded(&rung.label, MAX_TEXT))
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use resvg::usvg::roxmltree::Document;

    #[test]
    fn a_ladder_has_its_ends_and_messages() {
        let rung = |between, second| Rung {
            between,
            time: "1.5 ms".into(),
            label: "DATA <&>".into(),
            second,
        };
        let ladder = Ladder {
            title: "t".into(),
            caption: "c".into(),
            ends: ["a", "b", "c"].map(String::from).to_vec(),
            rungs: vec![rung([0, 2], false), rung([2, 0], true), rung([0, 7], false)],
        };
        let svg = ladder.svg();
        Document::parse(&svg).unwrap();
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches("DATA &lt;&amp;&gt;").count()),
            (3, 2)
        );
        assert!(ladder.png().unwrap().starts_with(b"\x89PNG"));
        let many = Ladder { ends: vec!["x".into(); MAX_ENDS + 1], ..ladder };
        assert_eq!(many.svg(), "");
        assert!(many.full_caption().contains("Not drawn"));
    }
}
