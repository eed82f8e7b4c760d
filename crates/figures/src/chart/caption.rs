//! The sentences below a figure that say what its numbers rest on and what is not drawn.

use super::axis::Scale;
use super::figure::{Data, Figure, MAX_TEXT};
use super::prepare::{Drawn, Prepared, Shape};
use super::text::{bounded, grouped};
use super::thin::Thinned;

/// The caption: what the figure was given, then n, the intervals and the seed, then what is missing.
pub(super) fn write(figure: &Figure, prepared: &Prepared<'_>, thinned: Thinned) -> String {
    let mut sentences = Vec::new();
    let said = bounded(figure.caption.trim(), MAX_TEXT);
    if !said.is_empty() {
        let ends = said.ends_with(['.', '!', '?', '…', ':', ')']);
        sentences.push(if ends { said } else { format!("{said}.") });
    }
    let mut facts = vec![observations(figure, prepared)];
    facts.extend(intervals(prepared));
    facts.push(format!("seed {}", figure.seed));
    sentences.push(format!("{}.", facts.join("; ")));
    if let Some((kept, of, side)) = thinned {
        sentences.push(format!(
            "{} of {} marks are drawn: one for each square of {side:.1}\u{a0}pt.",
            thousands(kept),
            thousands(of)
        ));
    }
    if prepared.skipped > 0 {
        let log = figure.x.scale == Scale::Log || figure.y.scale == Scale::Log;
        let why =
            if log { "not finite, or not positive on a logarithmic axis" } else { "not finite" };
        let noun = if prepared.skipped == 1 { "point is" } else { "points are" };
        sentences.push(format!("{} {noun} not drawn: {why}.", thousands(prepared.skipped)));
    }
    sentences.join(" ")
}

/// n: what the figure says it is, or the observations of each series.
fn observations(figure: &Figure, prepared: &Prepared<'_>) -> String {
    if let Some((n, what)) = &figure.n {
        return format!("n\u{a0}=\u{a0}{} {what}", thousands(*n)).trim_end().to_owned();
    }
    let counts: Vec<String> = prepared.series.iter().map(count).collect();
    let estimates = prepared.series.iter().any(|series| series.rests_on.is_some());
    let observed = |data: &Data| matches!(data, Data::Scatter(_) | Data::Ecdf(_));
    let noun = match figure.series.first() {
        _ if estimates => "observations each",
        Some(series) if observed(&series.data) => "observations",
        _ => "points",
    };
    match counts.as_slice() {
        [] => "n\u{a0}=\u{a0}0".to_owned(),
        [first, rest @ ..] if rest.iter().all(|other| other == first) => {
            let each = if rest.is_empty() || estimates { "" } else { " each" };
            format!("n\u{a0}=\u{a0}{first} {noun}{each}")
        }
        _ => {
            let named = prepared.series.iter().zip(&counts);
            let named: Vec<String> =
                named.map(|(series, n)| format!("{n} ({})", bounded(series.name, 40))).collect();
            format!("n\u{a0}=\u{a0}{} {noun}", named.join(", "))
        }
    }
}

fn count(series: &Drawn<'_>) -> String {
    match series.rests_on {
        Some((fewest, most)) if fewest == most => thousands(fewest),
        Some((fewest, most)) => format!("{} to {}", thousands(fewest), thousands(most)),
        None => thousands(series.given),
    }
}

/// The kinds of interval drawn, with the shape that shows them.
fn intervals(prepared: &Prepared<'_>) -> Option<String> {
    let mut kinds: Vec<String> = Vec::new();
    for interval in prepared.series.iter().flat_map(|series| &series.intervals) {
        let kind = interval.to_string().replace(" %", "\u{a0}%");
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let bars = prepared.series.iter().any(|series| matches!(series.shape, Shape::Bars(_)));
    let shape = if bars { "error bars" } else { "ribbon" };
    (!kinds.is_empty()).then(|| format!("{shape}: {} interval", kinds.join(" and ")))
}

fn thousands(n: usize) -> String {
    grouped(&n.to_string())
}
