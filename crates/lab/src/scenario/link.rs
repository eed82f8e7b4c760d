//! The tables `[[link]]`: two nodes, and everything a link can do to packets, each way.

use super::document::{Document, Place};
use ringway_document::{Problem, describe, label};
use ringway_link::{ConfigError, LinkConfig};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys of a link that are not those of its configuration.
const OWN: [&str; 6] = ["name", "between", "cost", "there", "back", "schedule"];

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name; `a-b` unless given.
    pub name: String,
    /// The node at each end, by number.
    pub between: [usize; 2],
    /// From the first node to the second.
    pub there: LinkConfig,
    /// From the second to the first.
    pub back: LinkConfig,
    /// What a path over it counts.
    pub cost: u32,
}

/// Largest cost of a link.
const MAX_COST: u64 = 1 << 20;

type Table<'t> = DeTable<'t>;

/// Reads one link; its ends are names still.
pub(crate) fn read<'t>(
    document: &Document<'t>,
    index: usize,
    value: &Spanned<DeValue<'t>>,
    problems: &mut Vec<Problem>,
) -> Option<(Link, [String; 2])> {
    let place = |key: &'static str| Place { section: "link", index: Some(index), key };
    let DeValue::Table(table) = value.get_ref() else {
        problems
            .push(document.blame(place(""), format!("expected a table, got {}", describe(value))));
        return None;
    };
    let mut table = table.clone();
    let mut take = |key: &str| table.remove(key);
    let (name, between) = (take("name"), take("between"));
    let (cost, there, back) = (take("cost"), take("there"), take("back"));

    let path = format!("link.{}", label(value, index));
    let Some(between) = between else {
        let what = "the key `between` is missing: the names of two nodes, such as [\"a\", \"b\"]";
        problems.push(document.blame(place(""), what));
        return None;
    };
    let ends: [String; 2] = document.read(&format!("{path}.between"), &between, &[], problems)?;
    let name = match name {
        Some(name) => document.read::<String>(&format!("{path}.name"), &name, &[], problems)?,
        None => format!("{}-{}", ends[0], ends[1]),
    };
    let cost = match cost {
        Some(cost) => document.read::<u64>(&format!("{path}.cost"), &cost, &[], problems)?,
        None => 1,
    };
    if cost == 0 || cost > MAX_COST {
        problems
            .push(document.blame(place("cost"), format!("expected 1 to {MAX_COST}, got {cost}")));
        return None;
    }
    let mut side = |own: Option<Spanned<DeValue<'t>>>, key: &'static str| -> Option<LinkConfig> {
        let own = match own.map(Spanned::into_inner) {
            None => Table::new(),
            Some(DeValue::Table(own)) => own,
            Some(_) => {
                let what = "expected a table with what differs in this direction";
                problems.push(document.blame(place(key), what));
                return None;
            }
        };
        let mut all = table.clone();
        for (key, value) in own.iter() {
            // Taken out first: inserting would keep the place of the key that is replaced.
            all.remove(key);
            all.insert(key.clone(), value.clone());
        }
        let whole = Spanned::new(value.span(), DeValue::Table(all));
        let before = problems.len();
        let config: Option<LinkConfig> = document.read(&path, &whole, &OWN, problems);
        for problem in &mut problems[before..] {
            in_direction(problem, &path, key, &own);
        }
        let config = config?;
        match config.check() {
            Ok(()) => Some(config),
            Err(error) => {
                let (field, what) = said(&error);
                let inside =
                    if own.contains_key(field) { format!("{key}.{field}") } else { field.into() };
                let at = Place { section: "link", index: Some(index), key: &inside };
                problems.push(document.blame(at, what));
                None
            }
        }
    };
    let (there, back) = (side(there, "there"), side(back, "back"));
    let link = Link { name, between: [0, 0], there: there?, back: back?, cost: cost as u32 };
    Some((link, ends))
}

/// Names the direction in the key of a problem, if that is where the key stands.
fn in_direction(problem: &mut Problem, path: &str, direction: &str, own: &Table<'_>) {
    let Some(rest) = problem.key.strip_prefix(&format!("{path}.")) else { return };
    let first = rest.split('.').next().unwrap_or_default();
    if own.contains_key(first) {
        problem.key = format!("{path}.{direction}.{rest}");
    }
}

/// The key that is wrong, and what was expected.
fn said(error: &ConfigError) -> (&'static str, String) {
    match error {
        ConfigError::Range { field, expected } => (field, format!("expected {expected}")),
        ConfigError::Table(error) => ("distribution", error.to_string()),
        ConfigError::Change { number, error } => ("schedule", format!("change {number}: {error}")),
        other => ("", other.to_string()),
    }
}
