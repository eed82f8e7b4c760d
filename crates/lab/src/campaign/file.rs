//! The file of a campaign: a scenario, the parameters that vary, and the stopping rule of a cell.

use crate::output::figure;
use crate::run::MEASURES;
use crate::scenario::document::Location;
use crate::scenario::{Document, Problem, Problems, Scenario};
use ringway_document::{Value, unknown};
use ringway_link::{Chance, Rate, Size, Span};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeString, DeValue};

/// Maximum number of parameters that vary.
pub const MAX_VARY: usize = 8;
/// Maximum number of values of one parameter.
pub const MAX_VALUES: usize = 1000;
/// Maximum number of cells of a campaign.
pub const MAX_CELLS: usize = 100_000;
/// Maximum number of replications of a cell.
pub const MAX_REPLICATIONS: u64 = 100_000;
/// Maximum number of keys set for all cells.
pub const MAX_SET: usize = 256;
/// Default number of replications of a cell: minimum and maximum.
const AT_LEAST: u64 = 10;
const AT_MOST: u64 = 50;

/// A valid campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Title of the campaign.
    pub title: String,
    /// Description of what it shows.
    pub text: String,
    /// Name of the scenario whose parameters it varies.
    pub scenario: String,
    /// Seed of all cells, so that they use the same random numbers.
    pub seed: u64,
    /// Figures to show, as `FLOW.MEASURE`; the first one decides when a cell is done.
    pub measures: Vec<String>,
    /// Minimum number of replications of a cell.
    pub at_least: u64,
    /// Maximum number of replications of a cell.
    pub at_most: u64,
    /// Ratio of half the confidence interval to the mean at which a cell is done.
    pub within: f64,
    /// Parameters that vary.
    pub vary: Vec<Vary>,
    /// Target figures of a search.
    pub target: Option<Target>,
    /// All cells: every combination of values; the last parameter varies fastest.
    pub cells: Vec<Cell>,
}

/// A parameter that varies.
#[derive(Clone, Debug)]
pub struct Vary {
    /// Name of the parameter in tables and figures.
    pub name: String,
    /// Values of the parameter.
    pub choices: Vec<Choice>,
}

/// One value of a parameter.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The value as text.
    pub text: String,
    /// The value as a number with its unit, if it is a number.
    pub number: Option<(f64, &'static str)>,
}

/// A cell: one combination of values.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Index of the value of each parameter.
    pub choices: Vec<usize>,
    /// The scenario with these values.
    pub scenario: Scenario,
}

/// Target figures of a search.
#[derive(Clone, Debug)]
pub struct Target {
    /// Maximum relative error of each figure.
    pub tolerance: f64,
    /// Name and value of each figure.
    pub figures: Vec<(String, f64)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Header {
    title: String,
    text: String,
    scenario: String,
    seed: Option<u64>,
    measures: Vec<String>,
    at_least: Option<u64>,
    at_most: Option<u64>,
    within: Option<Chance>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVary {
    key: String,
    name: Option<String>,
    /// The values are read with their positions elsewhere; this field only makes the key known.
    #[serde(rename = "values")]
    _values: Vec<IgnoredAny>,
    labels: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSet {
    key: String,
    #[serde(rename = "value")]
    _value: IgnoredAny,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawTarget {
    tolerance: Chance,
    figures: BTreeMap<String, f64>,
}

const SECTIONS: [&str; 4] = ["campaign", "set", "vary", "target"];

/// Returns the name of the campaign's scenario, and the campaign's title.
pub fn scenario_and_title(file: &str, text: &str) -> Result<(String, String), Problems> {
    let document = Document::parse(file, text)?;
    let mut problems = Vec::new();
    let header: Header = document.one("campaign", &mut problems);
    if problems.is_empty() && header.scenario.is_empty() {
        let what = "expected a built-in scenario's name (ringway lab list) or a file";
        let location = Location { section: "campaign", index: None, key: "scenario" };
        problems.push(document.blame(location, what));
    }
    if problems.is_empty() {
        return Ok((header.scenario, header.title));
    }
    Err(Problems::new(file, problems))
}

/// A change of a scenario: the key path, the values, and the location of the change in the file.
struct Change<'a, 't> {
    path: String,
    values: Vec<&'a Value<'t>>,
    section: &'static str,
    index: usize,
}

/// Reads a campaign. `base` is the name and text of its scenario. `seed` replaces the scenario's
/// seed.
pub fn read(
    file: &str,
    text: &str,
    base: (&str, &str),
    seed: Option<u64>,
) -> Result<Campaign, Problems> {
    let document = Document::parse(file, text)?;
    let base = Document::parse(base.0, base.1)?;
    // Problems of the unchanged scenario are reported as its own.
    let plain = Scenario::from_document(&base)?;
    let mut problems = Vec::new();
    document.only(&SECTIONS, &mut problems);
    let header: Header = document.one("campaign", &mut problems);
    let sets: Vec<Option<RawSet>> = document.all("set", MAX_SET, &mut problems);
    let varies: Vec<Option<RawVary>> = document.all("vary", MAX_VARY, &mut problems);
    let target: RawTarget = document.one("target", &mut problems);
    if !problems.is_empty() {
        return Err(Problems::new(file, problems));
    }
    let mut reader = Reader { document: &document, problems };
    let target = document.has("target").then_some(target);
    let mut campaign = reader.header(&header, &plain, target);
    campaign.seed = seed.or(header.seed).unwrap_or(plain.seed);
    let sets = reader.sets(sets);
    let vary = reader.varies(varies);
    if reader.problems.is_empty() {
        campaign.cells = reader.cells(&base, &vary, &sets, campaign.seed);
    }
    if !reader.problems.is_empty() {
        return Err(Problems::new(file, reader.problems));
    }
    campaign.vary = vary.into_iter().map(|(vary, _)| vary).collect();
    Ok(campaign)
}

struct Reader<'a, 't> {
    document: &'a Document<'t>,
    problems: Vec<Problem>,
}

impl<'a, 't> Reader<'a, 't> {
    fn report(&mut self, section: &str, index: Option<usize>, key: &str, what: impl Into<String>) {
        self.problems.push(self.document.blame(Location { section, index, key }, what));
    }

    fn header(&mut self, header: &Header, plain: &Scenario, target: Option<RawTarget>) -> Campaign {
        if header.title.is_empty() {
            self.report("campaign", None, "title", "expected a title in a line");
        }
        for name in &header.measures {
            if let Err(what) = check_figure_name(name, plain) {
                self.report("campaign", None, "measures", what);
            }
        }
        if header.measures.is_empty() && target.is_none() {
            let what = "expected at least one figure, such as \"FLOW.completion\"";
            self.report("campaign", None, "measures", what);
        }
        let target = target.map(|target| self.target(target, plain));
        // A search runs each cell once unless configured otherwise.
        let (min, max) = if target.is_some() { (1, 1) } else { (AT_LEAST, AT_MOST) };
        let at_least = header.at_least.unwrap_or(min);
        let at_most = header.at_most.unwrap_or(max.max(at_least));
        if !(1..=MAX_REPLICATIONS).contains(&at_least) {
            let what = format!("expected 1 to {MAX_REPLICATIONS}, got {at_least}");
            self.report("campaign", None, "at_least", what);
        } else if at_most < at_least || at_most > MAX_REPLICATIONS {
            let what = format!("expected {at_least} to {MAX_REPLICATIONS}, got {at_most}");
            self.report("campaign", None, "at_most", what);
        }
        let mut measures = header.measures.clone();
        if let (Some(target), true) = (&target, measures.is_empty()) {
            measures = target.figures.iter().map(|(name, _)| name.clone()).collect();
        }
        Campaign {
            title: header.title.clone(),
            text: header.text.clone(),
            scenario: header.scenario.clone(),
            seed: plain.seed,
            measures,
            at_least,
            at_most,
            within: header.within.map_or(0.05, Chance::get),
            vary: Vec::new(),
            target,
            cells: Vec::new(),
        }
    }

    fn target(&mut self, target: RawTarget, plain: &Scenario) -> Target {
        for (name, value) in &target.figures {
            if let Err(what) = check_figure_name(name, plain) {
                self.report("target", None, "figures", what);
            } else if !value.is_finite() {
                self.report("target", None, "figures", format!("expected a number, got {value}"));
            }
        }
        if target.figures.is_empty() {
            self.report("target", None, "", "expected [target.figures] with at least one figure");
        }
        Target { tolerance: target.tolerance.get(), figures: target.figures.into_iter().collect() }
    }

    /// Returns the value of a key in a table of a list.
    fn at(&self, section: &str, index: usize, key: &str) -> Option<&'a Value<'t>> {
        match self.document.elements(section).get(index)?.get_ref() {
            DeValue::Table(table) => table.get(key),
            _ => None,
        }
    }

    fn sets(&self, sets: Vec<Option<RawSet>>) -> Vec<Change<'a, 't>> {
        let change = |(index, raw): (usize, Option<RawSet>)| {
            let values = self.at("set", index, "value").into_iter().collect();
            Some(Change { path: raw?.key, values, section: "set", index })
        };
        sets.into_iter().enumerate().filter_map(change).collect()
    }

    fn varies(&mut self, varies: Vec<Option<RawVary>>) -> Vec<(Vary, Change<'a, 't>)> {
        let mut vary: Vec<(Vary, Change<'a, 't>)> = Vec::new();
        for (index, raw) in varies.into_iter().enumerate() {
            let Some(raw) = raw else { continue };
            let values: Vec<&Value<'t>> =
                match self.at("vary", index, "values").map(|v| v.get_ref()) {
                    Some(DeValue::Array(array)) => array.iter().collect(),
                    _ => Vec::new(),
                };
            if values.is_empty() || values.len() > MAX_VALUES {
                let what = format!("expected 1 to {MAX_VALUES} values, got {}", values.len());
                self.report("vary", Some(index), "values", what);
                continue;
            }
            if raw.labels.as_ref().is_some_and(|l| l.len() != values.len()) {
                let what = format!("expected {} labels, one for each value", values.len());
                self.report("vary", Some(index), "labels", what);
            }
            let choice = |(i, value): (usize, &&Value<'t>)| {
                let label = raw.labels.as_ref().and_then(|l| l.get(i).cloned());
                let text = format_value(value);
                let number = number(value, &text).filter(|_| label.is_none());
                Choice { text: label.unwrap_or(text), number }
            };
            let choices: Vec<Choice> = values.iter().enumerate().map(choice).collect();
            if (1..choices.len()).any(|i| choices[..i].iter().any(|c| c.text == choices[i].text)) {
                self.report("vary", Some(index), "values", "the same value is listed twice");
            }
            let last = raw.key.rsplit('.').next().unwrap_or_default().to_string();
            let name = raw.name.unwrap_or(last);
            if vary.iter().any(|(v, _)| v.name == name) {
                let what =
                    format!("an earlier parameter has the name {name:?}; set a different `name`");
                self.report("vary", Some(index), "name", what);
            }
            let change = Change { path: raw.key, values, section: "vary", index };
            vary.push((Vary { name, choices }, change));
        }
        let cells = vary.iter().map(|(v, _)| v.choices.len()).fold(1, usize::saturating_mul);
        if cells > MAX_CELLS {
            let what = format!("expected at most {MAX_CELLS} combinations of values, got {cells}");
            self.report("vary", None, "", what);
        }
        vary
    }

    /// Returns every combination of values, each with its scenario.
    fn cells(
        &mut self,
        base: &Document<'t>,
        vary: &[(Vary, Change<'a, 't>)],
        sets: &[Change<'a, 't>],
        seed: u64,
    ) -> Vec<Cell> {
        let mut base = base.clone();
        for set in sets {
            let failed = set.values.first().and_then(|value| base.set(&set.path, value).err());
            if let Some(what) = failed {
                self.report(set.section, Some(set.index), "key", what);
            }
        }
        for (_, change) in vary {
            let mut tried = base.clone();
            let failed = change.values.first().and_then(|v| tried.set(&change.path, v).err());
            if let Some(what) = failed {
                self.report(change.section, Some(change.index), "key", what);
            }
        }
        if !self.problems.is_empty() {
            return Vec::new();
        }
        let total: usize = vary.iter().map(|(v, _)| v.choices.len()).product();
        let mut cells = Vec::with_capacity(total);
        for number in 0..total {
            let mut rest = number;
            let mut choices = vec![0; vary.len()];
            for (i, (v, _)) in vary.iter().enumerate().rev() {
                choices[i] = rest % v.choices.len();
                rest /= v.choices.len();
            }
            let mut document = base.clone();
            for ((_, change), choice) in vary.iter().zip(&choices) {
                // The path was tested above.
                let _ = document.set(&change.path, change.values[*choice]);
            }
            match Scenario::from_document(&document) {
                Ok(scenario) => {
                    cells.push(Cell { choices, scenario: Scenario { seed, ..scenario } });
                }
                Err(error) => {
                    self.blame(vary, sets, &choices, &error);
                    return Vec::new();
                }
            }
        }
        cells
    }

    /// Reports a combination that is not a valid scenario, at the value that was changed last.
    fn blame(
        &mut self,
        vary: &[(Vary, Change<'a, 't>)],
        sets: &[Change<'a, 't>],
        choices: &[usize],
        error: &Problems,
    ) {
        let Some(problem) = error.iter().next() else { return };
        let with = |((v, _), c): (&(Vary, Change<'a, 't>), &usize)| {
            format!("{} = {}", v.name, v.choices[*c].text)
        };
        let with: Vec<String> = vary.iter().zip(choices).map(with).collect();
        // The value whose key has the problem, or else the last one.
        let changes =
            sets.iter().map(|s| (s, 0)).chain(vary.iter().zip(choices).map(|(v, c)| (&v.1, *c)));
        let changes: Vec<(&Change<'a, 't>, usize)> = changes.collect();
        let last = |path: &str| path.rsplit('.').next().map(str::to_owned);
        let culprit = changes.iter().find(|(c, _)| last(&c.path) == last(&problem.key));
        let Some((change, choice)) = culprit.or(changes.last()) else { return };
        let span = change.values.get(*choice).map_or(0..0, |v| v.span());
        let with =
            if with.is_empty() { String::new() } else { format!("with {}: ", with.join(", ")) };
        let what = format!("{with}{}", problem.message());
        self.problems.push(self.document.at(span, &change.path, what));
    }
}

/// Checks that `FLOW.MEASURE` names a figure of a flow of the scenario.
fn check_figure_name(name: &str, scenario: &Scenario) -> Result<(), String> {
    let Some((flow, measure)) = name.split_once('.') else {
        return Err(format!("expected a figure as \"FLOW.MEASURE\", got {name:?}"));
    };
    let flows: Vec<&str> = scenario.flows.iter().map(|f| f.name.as_str()).collect();
    if !flows.contains(&flow) {
        return Err(format!("{name:?}: no such flow: {}", unknown(flow, &flows)));
    }
    let measures: Vec<&str> = MEASURES.iter().map(|m| m.0).collect();
    if !measures.contains(&measure) {
        return Err(format!("{name:?}: {}", unknown(measure, &measures)));
    }
    Ok(())
}

/// Formats a value as text.
fn format_value(value: &Value<'_>) -> String {
    match value.get_ref() {
        DeValue::String(s) => s.to_string(),
        DeValue::Integer(i) => i.as_str().into(),
        DeValue::Float(f) => f.as_str().into(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(d) => d.to_string(),
        DeValue::Table(table) => {
            let entry = |(key, value): (&Spanned<DeString<'_>>, &Value<'_>)| {
                format!("{} {}", key.get_ref(), format_value(value))
            };
            table.iter().map(entry).collect::<Vec<_>>().join(", ")
        }
        DeValue::Array(array) => array.iter().map(format_value).collect::<Vec<_>>().join(", "),
    }
}

/// Converts a value into a number with the unit used on axes.
fn number(value: &Value<'_>, text: &str) -> Option<(f64, &'static str)> {
    match value.get_ref() {
        DeValue::Integer(_) | DeValue::Float(_) => Some((text.replace('_', "").parse().ok()?, "")),
        DeValue::String(_) => {
            if let Some(percent) = text.trim().strip_suffix('%') {
                // A percentage is taken as written: a fraction multiplied by 100 may differ by
                // rounding.
                return Some((percent.trim().parse().ok()?, "%"));
            }
            let span = Span::parse(text).ok().map(|s| (s.as_secs_f64(), "s"));
            let rate = Rate::parse(text).ok().filter(|r| !r.is_unlimited());
            let size = Size::parse(text).ok().filter(|s| *s != Size::UNLIMITED);
            span.or(rate.map(|r| (r.0 as f64, "bit/s"))).or(size.map(|s| (s.0 as f64, "B")))
        }
        _ => None,
    }
}

impl Campaign {
    /// Returns the name of a cell: each parameter with its value.
    pub fn name(&self, cell: &Cell) -> String {
        let parameters = self.vary.iter().zip(&cell.choices);
        let words: Vec<String> =
            parameters.map(|(v, c)| format!("{} = {}", v.name, v.choices[*c].text)).collect();
        if words.is_empty() { "as it is".into() } else { words.join(", ") }
    }

    /// Returns a description of the stopping rule.
    pub fn rule(&self) -> String {
        if self.at_least == self.at_most {
            let plural = if self.at_least == 1 { "" } else { "s" };
            return format!("{} replication{plural} each", self.at_least);
        }
        format!(
            "{} to {} replications, until half the interval of {} is within {} % of its mean",
            self.at_least,
            self.at_most,
            self.measures.first().map_or("", String::as_str),
            figure(self.within * 100.0)
        )
    }
}
