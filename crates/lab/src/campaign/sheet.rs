//! Tables and figures of a campaign.

use super::file::{Campaign, Vary};
use super::plan::CampaignResults;
use super::store::Figures;
use crate::estimate::{self, EQUAL, is_even, kinds, runs_note};
use crate::output::{
    AxisSheet, ChartSheet, SeriesSheet, Sheet, Style, TableSheet, figure, version,
};
use crate::run::unit;
use crate::search;
use ringway_figures::statistics::{Estimate, paired};
use ringway_figures::table::{Cell, RowSink, Schema, Table, TableError, Type};
use serde_json::{Value, json};

/// Maximum number of rows of a table in a report; the files beside it have all rows.
const MAX_ROWS: usize = 200;
/// Maximum number of series of a figure.
const MAX_SERIES: usize = 8;
/// Maximum number of bars of a figure.
const MAX_BARS: usize = 60;

/// Returns the values of a figure in those replications in which both cells have it.
fn pairs(one: &[Figures], other: &[Figures], name: &str) -> (Vec<f64>, Vec<f64>) {
    let both = one.iter().zip(other);
    both.filter_map(|(a, b)| a.get(name).copied().zip(b.get(name).copied())).unzip()
}

fn estimate(samples: &[Figures], name: &str) -> Option<Estimate> {
    let (flow, measure) = name.split_once('.')?;
    let of = |r: usize, measure: &str| samples[r].get(&format!("{flow}.{measure}")).copied();
    estimate::estimate(measure, samples.len(), of)
}

/// Returns whether a cell has several replications and all their figures are equal.
fn is_constant(samples: &[Figures]) -> bool {
    samples.len() > 1 && samples.iter().all(|s| *s == samples[0])
}

fn measure(name: &str) -> &str {
    name.split_once('.').map_or(name, |n| n.1)
}

/// Returns the column head of a figure: `completion of file (s)`.
fn column_head(name: &str) -> String {
    let (flow, measure) = name.split_once('.').unwrap_or(("", name));
    let unit = unit(measure);
    let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
    format!("{} of {flow}{unit}", measure.replace('_', " "))
}

/// Returns the column head without the unit.
fn column_name(name: &str) -> String {
    column_head(name).split(" (").next().unwrap_or_default().into()
}

fn format_estimate(estimate: Option<Estimate>) -> String {
    let Some(estimate) = estimate else { return "-".into() };
    match estimate.interval {
        Some(interval) => {
            // Value and interval get only as many digits as the interval makes meaningful.
            let half = interval.half_width();
            let digits = 10f64.powi(2 - half.log10().ceil() as i32);
            let round = |x: f64| figure((x * digits).round() / digits);
            if is_even(interval.kind) {
                return format!("{} ± {}", round(estimate.value), round(half));
            }
            let [value, low, high] = [estimate.value, interval.low, interval.high].map(round);
            format!("{value} [{low}, {high}]")
        }
        None if estimate.equal => figure(estimate.value) + EQUAL,
        None => figure(estimate.value),
    }
}

/// Returns the report of a campaign.
pub(crate) fn sheet(campaign: &Campaign, done: &CampaignResults) -> Sheet {
    let mut tables = Vec::new();
    if campaign.target.is_some() {
        tables.push(search::table(campaign, done));
    } else {
        tables.push(cells(campaign, done));
        tables.extend(differences(campaign, done));
    }
    let runs: usize = done.samples.iter().map(Vec::len).sum();
    let files = [
        ("campaign.toml", "the campaign"),
        ("scenario.toml", "the scenario it varies"),
        ("results.log", "results in the order of computation, from which a campaign is resumed"),
        ("results.csv", "every figure of every run, as a long table"),
        ("results.parquet", "the same as Parquet"),
        ("summary.csv", "means and intervals of every cell"),
        ("summary.parquet", "the same as Parquet"),
        ("manifest.json", "version, seed, parameters, host"),
    ];
    Sheet {
        network: None,
        title: campaign.title.clone(),
        text: campaign.text.split("\n\n").map(|p| p.trim().to_string()).collect(),
        facts: vec![
            ("version".into(), version()),
            ("scenario".into(), campaign.scenario.clone()),
            ("seed".into(), campaign.seed.to_string()),
            ("cells".into(), campaign.cells.len().to_string()),
            ("runs".into(), runs.to_string()),
            ("replications".into(), campaign.rule()),
        ],
        tables,
        charts: if campaign.target.is_some() { Vec::new() } else { charts(campaign, done) },
        rings: Vec::new(),
        pictures: Vec::new(),
        ladders: Vec::new(),
        files: files.map(|(a, b)| (a.to_string(), b.to_string())).to_vec(),
    }
}

fn cells(campaign: &Campaign, done: &CampaignResults) -> TableSheet {
    let mut heads: Vec<String> = campaign.vary.iter().map(|v| v.name.clone()).collect();
    heads.push("n".into());
    heads.extend(campaign.measures.iter().map(|m| column_head(m)));
    let rows = campaign.cells.iter().zip(&done.samples).zip(&done.settled).take(MAX_ROWS);
    let rows = rows
        .map(|((cell, samples), settled)| {
            let parameters = campaign.vary.iter().zip(&cell.choices);
            let mut row: Vec<String> =
                parameters.map(|(v, c)| v.choices[*c].text.clone()).collect();
            let mark = match settled {
                true if is_constant(samples) => EQUAL,
                true => "",
                false => " *",
            };
            row.push(format!("{}{mark}", samples.len()));
            row.extend(campaign.measures.iter().map(|m| {
                let estimate = estimate(samples, m);
                format_estimate(estimate) + &runs_note(estimate, samples.len())
            }));
            row
        })
        .collect();
    let heads_of: Vec<String> = campaign.measures.iter().map(|m| column_name(m)).collect();
    let all = done.samples.iter().flat_map(|samples| {
        let parameters = campaign.measures.iter().zip(&heads_of);
        parameters.map(|(m, head)| (head.as_str(), estimate(samples, m)))
    });
    let mut caption = format!(
        "Cells: {}, over n replications; seed {}; {}.",
        kinds(all).unwrap_or("one run each".into()),
        campaign.seed,
        campaign.rule()
    );
    if done.samples.iter().any(|s| is_constant(s)) {
        caption += " n =: all replications of the cell are equal: no random element has an effect.";
    }
    if done.settled.contains(&false) {
        caption += " * not within that bound.";
    }
    if campaign.cells.len() > MAX_ROWS {
        caption += &format!(" The first {MAX_ROWS} of {}.", campaign.cells.len());
    }
    TableSheet { caption, head: heads, rows }
}

/// Cells that differ only in the parameter on the x axis.
struct Group {
    name: String,
    /// Indices of the cells with their x values, in the order of x.
    cells: Vec<(f64, usize)>,
}

/// Returns the parameter on the x axis: the first one with numeric values.
fn x_axis(campaign: &Campaign) -> Option<usize> {
    let by_numbers = |v: &Vary| v.choices.len() > 1 && v.choices.iter().all(|c| c.number.is_some());
    campaign.vary.iter().position(by_numbers)
}

fn groups(campaign: &Campaign, x: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, cell) in campaign.cells.iter().enumerate() {
        let others = campaign.vary.iter().zip(&cell.choices).enumerate().filter(|(i, _)| *i != x);
        let alone = campaign.vary.len() == 2;
        let words = others.map(|(_, (v, c))| match alone {
            true => v.choices[*c].text.clone(),
            false => format!("{} {}", v.name, v.choices[*c].text),
        });
        let name = words.collect::<Vec<_>>().join(", ");
        let Some((value, _)) = campaign.vary[x].choices[cell.choices[x]].number else { continue };
        match groups.iter_mut().find(|g| g.name == name) {
            Some(group) => group.cells.push((value, index)),
            None => groups.push(Group { name, cells: vec![(value, index)] }),
        }
    }
    for group in &mut groups {
        group.cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    groups
}

/// Returns the table of differences. Each cell is compared with the cell that has the first value
/// of the compared parameter and is otherwise equal, run by run with the same random numbers. The
/// compared parameter is the last one that is not on the x axis.
fn differences(campaign: &Campaign, done: &CampaignResults) -> Option<TableSheet> {
    let x = x_axis(campaign)?;
    let compared = (0..campaign.vary.len()).rev().find(|i| *i != x)?;
    let others: Vec<usize> = (0..campaign.vary.len()).filter(|i| *i != compared).collect();
    let mut rows = Vec::new();
    let varied = campaign.cells.iter().enumerate().filter(|(_, cell)| cell.choices[compared] > 0);
    for (b, cell) in varied {
        let like = |c: &super::Cell| {
            c.choices[compared] == 0 && others.iter().all(|i| c.choices[*i] == cell.choices[*i])
        };
        let Some(a) = campaign.cells.iter().position(like) else { continue };
        let text =
            |i: usize, cell: &super::Cell| campaign.vary[i].choices[cell.choices[i]].text.clone();
        for name in &campaign.measures {
            let (left, right) = pairs(&done.samples[b], &done.samples[a], name);
            let Ok(estimate) = paired(&left, &right) else { continue };
            if estimate.interval.is_none() && !estimate.equal {
                continue;
            }
            let bound = |b: Option<f64>| b.map_or("-".into(), figure);
            let mut row: Vec<String> = others.iter().map(|i| text(*i, cell)).collect();
            row.extend([
                format!("{} less {}", text(compared, cell), text(compared, &campaign.cells[a])),
                column_head(name),
                figure(estimate.value),
                bound(estimate.interval.map(|i| i.low)),
                bound(estimate.interval.map(|i| i.high)),
                estimate.n.to_string(),
                match estimate.interval {
                    None => "all equal",
                    Some(i) if i.contains(0.0) => "no",
                    Some(_) => "yes",
                }
                .into(),
            ]);
            rows.push(row);
        }
    }
    rows.truncate(MAX_ROWS);
    let mut head: Vec<String> = others.iter().map(|i| campaign.vary[*i].name.clone()).collect();
    head.extend(["difference", "of", "mean", "low", "high", "n", "sure"].map(String::from));
    (!rows.is_empty()).then(|| TableSheet {
        caption: format!(
            "Differences between cells with the same random numbers: mean and 95 % paired Student t interval; sure \
             if 0 is not in it. All equal: the same in every pair of replications, which has no spread and no \
             interval. Seed {}.",
            campaign.seed
        ),
        head,
        rows,
    })
}

fn charts(campaign: &Campaign, done: &CampaignResults) -> Vec<ChartSheet> {
    let mut charts = Vec::new();
    let min = done.samples.iter().map(Vec::len).min().unwrap_or(0);
    for name in &campaign.measures {
        let y = AxisSheet::new(measure(name).replace('_', " "), unit(measure(name)));
        let title = column_name(name);
        // A title begins with a capital letter; names of figures are ASCII.
        let title =
            title.get(..1).unwrap_or_default().to_uppercase() + title.get(1..).unwrap_or_default();
        let chart = |part: usize, x: AxisSheet, series: Vec<SeriesSheet>| ChartSheet {
            shaded: Vec::new(),
            name: if part == 0 {
                name.replace('.', "-")
            } else {
                format!("{}-{}", name.replace('.', "-"), part + 1)
            },
            title: title.clone(),
            caption: format!("Means of {}.", campaign.rule()),
            seed: campaign.seed,
            rests_on: Some((min, "replications or more of each cell".into())),
            x,
            y: y.clone(),
            series,
        };
        let Some(x) = x_axis(campaign) else {
            let bars = bars(campaign, done, name);
            charts.extend(bars.map(|b| chart(0, AxisSheet::default(), vec![b])));
            continue;
        };
        let choice = campaign.vary[x].choices.first().and_then(|c| c.number);
        let axis = AxisSheet::new(&campaign.vary[x].name, choice.map_or("", |c| c.1));
        for (part, groups) in groups(campaign, x).chunks(MAX_SERIES).enumerate() {
            let series = groups.iter().map(|g| ribbon(g, done, name, &title)).collect();
            charts.push(chart(part, axis.clone(), series));
        }
    }
    charts
}

fn ribbon(group: &Group, done: &CampaignResults, name: &str, title: &str) -> SeriesSheet {
    let label = if group.name.is_empty() { title } else { &group.name };
    let mut series =
        SeriesSheet { name: label.into(), style: Style::Ribbon, ..SeriesSheet::default() };
    for (x, cell) in &group.cells {
        if let Some(e) = estimate(&done.samples[*cell], name) {
            series.points.push([*x, e.value]);
            series.bounds.push((e.interval.map(|i| [i.low, i.high]), e.n));
            series.kind = e.interval.map_or(series.kind, |i| i.kind.into());
        }
    }
    if series.bounds.iter().all(|b| b.0.is_none()) {
        series.style = Style::Line;
    }
    series
}

fn bars(campaign: &Campaign, done: &CampaignResults, name: &str) -> Option<SeriesSheet> {
    let mut series = SeriesSheet {
        name: measure(name).replace('_', " "),
        style: Style::Bars,
        ..SeriesSheet::default()
    };
    for (i, cell) in campaign.cells.iter().enumerate().take(MAX_BARS) {
        if let Some(e) = estimate(&done.samples[i], name) {
            let parameters = campaign.vary.iter().zip(&cell.choices);
            let words: Vec<String> = parameters.map(|(v, c)| v.choices[*c].text.clone()).collect();
            series.names.push(words.join(", "));
            series.points.push([i as f64, e.value]);
            series.bounds.push((e.interval.map(|i| [i.low, i.high]), e.n));
            series.kind = e.interval.map_or(series.kind, |i| i.kind.into());
        }
    }
    (!series.points.is_empty()).then_some(series)
}

/// Returns the columns of the parameters, numeric where all values are numbers.
fn vary_columns(campaign: &Campaign) -> Vec<(String, Type)> {
    let column = |v: &Vary| match v.choices.iter().all(|c| c.number.is_some()) {
        true => (v.name.clone(), Type::F64),
        false => (v.name.clone(), Type::Text),
    };
    campaign.vary.iter().map(column).collect()
}

fn vary_cells<'a>(campaign: &'a Campaign, choices: &[usize]) -> Vec<Cell<'a>> {
    let cell = |(v, c): (&'a Vary, &usize)| -> Cell<'a> {
        match v.choices.iter().all(|c| c.number.is_some()) {
            true => Cell::from(v.choices[*c].number.map(|n| n.0)),
            false => v.choices[*c].text.as_str().into(),
        }
    };
    campaign.vary.iter().zip(choices).map(cell).collect()
}

/// Returns every figure of every run that counts.
pub(crate) fn long_table(campaign: &Campaign, done: &CampaignResults) -> Result<Table, TableError> {
    let mut columns = vary_columns(campaign);
    columns.extend([
        ("replication".to_string(), Type::U64),
        ("seed".to_string(), Type::U64),
        ("flow".to_string(), Type::Text),
        ("measure".to_string(), Type::Text),
        ("unit".to_string(), Type::Text),
        ("value".to_string(), Type::F64),
    ]);
    let mut table = Table::new(Schema::new(columns)?);
    for (cell, samples) in campaign.cells.iter().zip(&done.samples) {
        for (replication, figures) in samples.iter().enumerate() {
            for (name, value) in figures {
                let (flow, measure) = name.split_once('.').unwrap_or(("", name));
                let mut row = vary_cells(campaign, &cell.choices);
                row.extend::<[Cell<'_>; 6]>([
                    (replication as u64).into(),
                    campaign.seed.into(),
                    flow.into(),
                    measure.into(),
                    unit(measure).into(),
                    (*value).into(),
                ]);
                table.row(&row)?;
            }
        }
    }
    Ok(table)
}

/// Returns the names of all figures, in order.
fn all_names(done: &CampaignResults) -> Vec<&str> {
    let mut names: Vec<&str> =
        done.samples.iter().flatten().flat_map(|f| f.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns means and intervals of every figure of every cell.
pub(crate) fn summary_table(
    campaign: &Campaign,
    done: &CampaignResults,
) -> Result<Table, TableError> {
    let mut columns = vary_columns(campaign);
    columns.extend([
        ("flow".to_string(), Type::Text),
        ("measure".to_string(), Type::Text),
        ("unit".to_string(), Type::Text),
        ("n".to_string(), Type::U64),
        ("mean".to_string(), Type::F64),
        ("low".to_string(), Type::F64),
        ("high".to_string(), Type::F64),
        ("interval".to_string(), Type::Text),
    ]);
    let mut table = Table::new(Schema::new(columns)?);
    let names = all_names(done);
    for (cell, samples) in campaign.cells.iter().zip(&done.samples) {
        for name in &names {
            let Some(estimate) = estimate(samples, name) else { continue };
            let (flow, measure) = name.split_once('.').unwrap_or(("", name));
            let mut row = vary_cells(campaign, &cell.choices);
            let interval = estimate.interval.map_or(String::new(), |i| i.to_string());
            row.extend::<[Cell<'_>; 8]>([
                flow.into(),
                measure.into(),
                unit(measure).into(),
                (estimate.n as u64).into(),
                estimate.value.into(),
                estimate.interval.map(|i| i.low).into(),
                estimate.interval.map(|i| i.high).into(),
                interval.as_str().into(),
            ]);
            table.row(&row)?;
        }
    }
    Ok(table)
}

/// Returns the same summary as JSON.
pub(crate) fn json(campaign: &Campaign, done: &CampaignResults) -> Value {
    let one = |((cell, samples), settled): ((&super::Cell, &Vec<Figures>), &bool)| {
        let parameters = campaign.vary.iter().zip(&cell.choices);
        let choices: serde_json::Map<String, Value> =
            parameters.map(|(v, c)| (v.name.clone(), v.choices[*c].text.clone().into())).collect();
        let figures: serde_json::Map<String, Value> = campaign
            .measures
            .iter()
            .filter_map(|name| {
                let e = estimate(samples, name)?;
                let (low, high) = (e.interval.map(|i| i.low), e.interval.map(|i| i.high));
                let unit = unit(measure(name));
                let kind = e.interval.map(|i| i.to_string());
                let figure = json!({
                    "unit": unit, "n": e.n, "mean": e.value, "low": low, "high": high,
                    "interval": kind, "equal": e.equal,
                });
                Some((name.clone(), figure))
            })
            .collect();
        json!({
            "choices": choices, "n": samples.len(), "settled": settled, "equal": is_constant(samples),
            "figures": figures,
        })
    };
    let cells = campaign.cells.iter().zip(&done.samples).zip(&done.settled);
    json!({
        "title": campaign.title,
        "scenario": campaign.scenario,
        "version": version(),
        "seed": campaign.seed,
        "rule": campaign.rule(),
        "cells": cells.map(one).collect::<Vec<_>>(),
        "search": campaign.target.as_ref().map(|_| search::json(campaign, done)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which one of two cells has no figure is not compared.
    #[test]
    fn pairs_are_of_one_replication() {
        let of = |values: &[Option<f64>]| -> Vec<Figures> {
            let one =
                |v: &Option<f64>| v.iter().map(|v| ("f.completion".to_string(), *v)).collect();
            values.iter().map(one).collect()
        };
        let one = of(&[Some(1.0), None, Some(3.0), Some(4.0)]);
        let other = of(&[Some(10.0), Some(20.0), None]);
        assert_eq!(pairs(&one, &other, "f.completion"), (vec![1.0], vec![10.0]));
    }
}
