//! Search: which of the settings tried give a set of figures that somebody has printed.
//!
//! A campaign with a `[target]` is a search. The error of a setting is that of its worst figure, as a
//! part of the printed one; settings are told best first.

use crate::campaign::{Campaign, Done};
use crate::output::{TableSheet, figure};
use serde_json::{Value, json};

/// Settings that are told.
const TOLD: usize = 20;

/// One setting, and how near it comes.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Which cell of the campaign.
    pub cell: usize,
    /// How far off the worst of its figures is, as a part of the target; infinite where one is
    /// missing.
    pub error: f64,
    /// The figures.
    pub figures: Vec<Option<f64>>,
}

/// All settings, best first; equally good ones in the order of the campaign.
pub(crate) fn rank(campaign: &Campaign, done: &Done) -> Vec<Hit> {
    let Some(target) = &campaign.target else { return Vec::new() };
    let mut hits: Vec<Hit> = done
        .samples
        .iter()
        .enumerate()
        .map(|(cell, samples)| {
            let mut error: f64 = 0.0;
            let mut figures = Vec::new();
            for (name, wanted) in &target.figures {
                let values: Vec<f64> =
                    samples.iter().filter_map(|f| f.get(name).copied()).collect();
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let found = (!values.is_empty()).then_some(mean);
                figures.push(found);
                let off = found.map_or(f64::INFINITY, |mean| match *wanted == 0.0 {
                    true => mean.abs(),
                    false => (mean / wanted - 1.0).abs(),
                });
                error = error.max(off);
            }
            Hit { cell, error, figures }
        })
        .collect();
    hits.sort_by(|a, b| a.error.total_cmp(&b.error));
    hits
}

/// How many settings come within the tolerance.
pub(crate) fn found(campaign: &Campaign, done: &Done) -> usize {
    let tolerance = campaign.target.as_ref().map_or(0.0, |t| t.tolerance);
    rank(campaign, done).iter().filter(|h| h.error <= tolerance).count()
}

/// The best settings as a table.
pub(crate) fn table(campaign: &Campaign, done: &Done) -> TableSheet {
    let hits = rank(campaign, done);
    let figures = campaign.target.as_ref().map_or(&[][..], |t| &t.figures);
    let tolerance = campaign.target.as_ref().map_or(0.0, |t| t.tolerance);
    let mut head: Vec<String> = vec!["rank".into()];
    head.extend(campaign.vary.iter().map(|v| v.name.clone()));
    head.push("worst error".into());
    head.extend(figures.iter().map(|(name, _)| name.clone()));
    let mut rows = Vec::new();
    let mut wanted = vec!["wanted".to_string()];
    wanted.extend(campaign.vary.iter().map(|_| String::new()));
    wanted.push(format!("{} %", figure(tolerance * 100.0)));
    wanted.extend(figures.iter().map(|(_, value)| figure(*value)));
    rows.push(wanted);
    for (place, hit) in hits.iter().take(TOLD).enumerate() {
        let cell = &campaign.cells[hit.cell];
        let mark = if hit.error <= tolerance { "" } else { " !" };
        let mut row = vec![format!("{}{mark}", place + 1)];
        row.extend(
            campaign.vary.iter().zip(&cell.choices).map(|(v, c)| v.choices[*c].text.clone()),
        );
        row.push(match hit.error.is_finite() {
            true => format!("{:.3} %", hit.error * 100.0),
            false => "-".into(),
        });
        row.extend(hit.figures.iter().map(|f| f.map_or("-".into(), figure)));
        rows.push(row);
    }
    let within = found(campaign, done);
    TableSheet {
        caption: format!(
            "{within} of {} settings give every figure to within {} %; the best {} of them, ! outside. \
             {}, seed {}.",
            hits.len(),
            figure(tolerance * 100.0),
            hits.len().min(TOLD),
            campaign.rule(),
            campaign.seed
        ),
        head,
        rows,
    }
}

/// The same for programs.
pub(crate) fn json(campaign: &Campaign, done: &Done) -> Value {
    let Some(target) = &campaign.target else { return Value::Null };
    let one = |hit: &Hit| {
        let cell = &campaign.cells[hit.cell];
        let named = campaign.vary.iter().zip(&cell.choices);
        let choices: serde_json::Map<String, Value> =
            named.map(|(v, c)| (v.name.clone(), v.choices[*c].text.clone().into())).collect();
        let named = target.figures.iter().zip(&hit.figures);
        let figures: serde_json::Map<String, Value> =
            named.map(|((name, _), value)| (name.clone(), json!(value))).collect();
        json!({
            "choices": choices,
            "error_percent": hit.error.is_finite().then_some(hit.error * 100.0),
            "within": hit.error <= target.tolerance,
            "figures": figures,
        })
    };
    let wanted: serde_json::Map<String, Value> =
        target.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "wanted": wanted,
        "tolerance_percent": target.tolerance * 100.0,
        "found": found(campaign, done),
        "tried": done.samples.len(),
        "best": rank(campaign, done).iter().take(TOLD).map(one).collect::<Vec<_>>(),
    })
}
