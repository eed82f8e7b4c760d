//! Search: the settings that reproduce a set of printed figures.
//!
//! A campaign with a `[target]` is a search. The error of a setting is the relative error of its
//! worst figure. Settings are listed best first.

use crate::campaign::{Campaign, CampaignResults};
use crate::output::{TableSheet, figure};
use serde_json::{Value, json};

/// Maximum number of settings listed.
const MAX_LISTED: usize = 20;

/// A setting and its error.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult {
    /// Index of the campaign's cell.
    pub cell: usize,
    /// Relative error of the worst figure; infinite if a figure is missing.
    pub error: f64,
    /// Values of the figures.
    pub figures: Vec<Option<f64>>,
}

/// Returns all settings, best first; equally good ones in the order of the campaign.
pub(crate) fn rank(campaign: &Campaign, done: &CampaignResults) -> Vec<SearchResult> {
    let Some(target) = &campaign.target else { return Vec::new() };
    let mut hits: Vec<SearchResult> = done
        .samples
        .iter()
        .enumerate()
        .map(|(cell, samples)| {
            let mut error: f64 = 0.0;
            let mut figures = Vec::new();
            for (name, expected) in &target.figures {
                let values: Vec<f64> =
                    samples.iter().filter_map(|f| f.get(name).copied()).collect();
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let found = (!values.is_empty()).then_some(mean);
                figures.push(found);
                let off = found.map_or(f64::INFINITY, |mean| match *expected == 0.0 {
                    true => mean.abs(),
                    false => (mean / expected - 1.0).abs(),
                });
                error = error.max(off);
            }
            SearchResult { cell, error, figures }
        })
        .collect();
    hits.sort_by(|a, b| a.error.total_cmp(&b.error));
    hits
}

/// Returns the number of settings within the tolerance.
pub(crate) fn found(campaign: &Campaign, done: &CampaignResults) -> usize {
    let tolerance = campaign.target.as_ref().map_or(0.0, |t| t.tolerance);
    rank(campaign, done).iter().filter(|h| h.error <= tolerance).count()
}

/// Returns the table of the best settings.
pub(crate) fn table(campaign: &Campaign, done: &CampaignResults) -> TableSheet {
    let hits = rank(campaign, done);
    let figures = campaign.target.as_ref().map_or(&[][..], |t| &t.figures);
    let tolerance = campaign.target.as_ref().map_or(0.0, |t| t.tolerance);
    let mut head: Vec<String> = vec!["rank".into()];
    head.extend(campaign.vary.iter().map(|v| v.name.clone()));
    head.push("worst error".into());
    head.extend(figures.iter().map(|(name, _)| name.clone()));
    let mut rows = Vec::new();
    let mut target_row = vec!["wanted".to_string()];
    target_row.extend(campaign.vary.iter().map(|_| String::new()));
    target_row.push(format!("{} %", figure(tolerance * 100.0)));
    target_row.extend(figures.iter().map(|(_, value)| figure(*value)));
    rows.push(target_row);
    for (rank, hit) in hits.iter().take(MAX_LISTED).enumerate() {
        let cell = &campaign.cells[hit.cell];
        let mark = if hit.error <= tolerance { "" } else { " !" };
        let mut row = vec![format!("{}{mark}", rank + 1)];
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
            hits.len().min(MAX_LISTED),
            campaign.rule(),
            campaign.seed
        ),
        head,
        rows,
    }
}

/// Returns the best settings as JSON.
pub(crate) fn json(campaign: &Campaign, done: &CampaignResults) -> Value {
    let Some(target) = &campaign.target else { return Value::Null };
    let one = |hit: &SearchResult| {
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
    let figures: serde_json::Map<String, Value> =
        target.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "wanted": figures,
        "tolerance_percent": target.tolerance * 100.0,
        "found": found(campaign, done),
        "tried": done.samples.len(),
        "best": rank(campaign, done).iter().take(MAX_LISTED).map(one).collect::<Vec<_>>(),
    })
}
