//! The tables `[[link]]`: two nodes, and the properties of the link in each direction.

use super::document::{Document, Location};
use ringway_document::{Problem, describe, label};
use ringway_link::{ConfigError, LinkConfig};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys of a link besides those of its configuration.
const LINK_KEYS: [&str; 6] = ["name", "between", "cost", "there", "back", "schedule"];

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name; `a-b` by default.
    pub name: String,
    /// Indices of the nodes at its ends.
    pub between: [usize; 2],
    /// Configuration from the first node to the second.
    pub there: LinkConfig,
    /// Configuration from the second node to the first.
    pub back: LinkConfig,
    /// Cost of the link in a path.
    pub cost: u32,
}

/// Maximum cost of a link.
const MAX_COST: u64 = 1 << 20;

type Table<'t> = DeTable<'t>;

/// Reads one link; returns it with the names of its nodes.
pub(crate) fn read<'t>(
    document: &Document<'t>,
    index: usize,
    value: &Spanned<DeValue<'t>>,
    problems: &mut Vec<Problem>,
) -> Option<(Link, [String; 2])> {
    let location = |key: &'static str| Location { section: "link", index: Some(index), key };
    let DeValue::Table(table) = value.get_ref() else {
        problems.push(
            document.blame(location(""), format!("expected a table, got {}", describe(value))),
        );
        return None;
    };
    let mut table = table.clone();
    let mut take = |key: &str| table.remove(key);
    let (name, between) = (take("name"), take("between"));
    let (cost, there, back) = (take("cost"), take("there"), take("back"));

    let path = format!("link.{}", label(value, index));
    let Some(between) = between else {
        let what = "the key `between` is missing: the names of two nodes, such as [\"a\", \"b\"]";
        problems.push(document.blame(location(""), what));
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
        problems.push(
            document.blame(location("cost"), format!("expected 1 to {MAX_COST}, got {cost}")),
        );
        return None;
    }
    let mut side = |own: Option<Spanned<DeValue<'t>>>, key: &'static str| -> Option<LinkConfig> {
        let own = match own.map(Spanned::into_inner) {
            None => Table::new(),
            Some(DeValue::Table(own)) => own,
            Some(_) => {
                let what = "expected a table with what differs in this direction";
                problems.push(document.blame(location(key), what));
                return None;
            }
        };
        let mut all = table.clone();
        for (key, value) in own.iter() {
            // The key is removed first, because inserting would keep the position of the replaced
            // key.
            all.remove(key);
            all.insert(key.clone(), value.clone());
        }
        let merged = Spanned::new(value.span(), DeValue::Table(all));
        let before = problems.len();
        let config: Option<LinkConfig> = document.read(&path, &merged, &LINK_KEYS, problems);
        for problem in &mut problems[before..] {
            in_direction(problem, &path, key, &own);
        }
        let config = config?;
        match config.check() {
            Ok(()) => Some(config),
            Err(error) => {
                let (field, what) = key_and_problem(&error);
                let inside =
                    if own.contains_key(field) { format!("{key}.{field}") } else { field.into() };
                let at = Location { section: "link", index: Some(index), key: &inside };
                problems.push(document.blame(at, what));
                None
            }
        }
    };
    let (there, back) = (side(there, "there"), side(back, "back"));
    let link = Link { name, between: [0, 0], there: there?, back: back?, cost: cost as u32 };
    Some((link, ends))
}

/// Adds the direction to the key of a problem if the key is in the table of that direction.
fn in_direction(problem: &mut Problem, path: &str, direction: &str, own: &Table<'_>) {
    let Some(rest) = problem.key.strip_prefix(&format!("{path}.")) else { return };
    let first = rest.split('.').next().unwrap_or_default();
    if own.contains_key(first) {
        problem.key = format!("{path}.{direction}.{rest}");
    }
}

/// Returns the key of a configuration error, and what was expected.
fn key_and_problem(error: &ConfigError) -> (&'static str, String) {
    match error {
        ConfigError::Range { field, expected } => (field, format!("expected {expected}")),
        ConfigError::Table(error) => ("distribution", error.to_string()),
        ConfigError::Change { number, error } => ("schedule", format!("change {number}: {error}")),
        other => ("", other.to_string()),
    }
}
