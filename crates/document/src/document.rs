//! One file, and how values are read from it.

use crate::error::{Error, Kind, Step, quoted};
use crate::node::Node;
use crate::problem::{MAX_PROBLEMS, Problem, Problems};
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// A value with its position.
pub type Value<'t> = Spanned<DeValue<'t>>;

/// Longest name that a table of a list is called by, in bytes.
const MAX_LABEL: usize = 64;

/// A TOML file with the position of everything in it.
#[derive(Clone, Debug)]
pub struct Document<'t> {
    file: String,
    text: &'t str,
    /// Where each line begins, so that a position costs no walk through the file.
    lines: Arc<[usize]>,
    root: Value<'t>,
}

impl<'t> Document<'t> {
    /// Parses TOML. `file` is only a name, for what is reported.
    ///
    /// # Errors
    /// Everything that is not TOML.
    pub fn parse(file: &str, text: &'t str) -> Result<Self, Problems> {
        let (root, mut errors) = DeTable::parse_recoverable(text);
        let span = root.span();
        let root = Spanned::new(span, DeValue::Table(root.into_inner()));
        let after_breaks =
            text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        let lines = std::iter::once(0).chain(after_breaks).collect();
        let document = Document { file: file.into(), text, lines, root };
        if errors.is_empty() {
            return Ok(document);
        }
        errors.sort_by_key(|error| error.span().map_or(0, |span| span.start));
        let problem = |error: &toml::de::Error| {
            document.at(error.span().unwrap_or(0..0), "", one_line(error.message()))
        };
        Err(Problems::new(file, errors.iter().take(MAX_PROBLEMS + 1).map(problem).collect()))
    }

    /// The file's name as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The whole file as one value, a table.
    pub fn root(&self) -> &Value<'t> {
        &self.root
    }

    /// The names of the sections with their positions.
    pub fn sections(&self) -> impl Iterator<Item = &Spanned<DeString<'t>>> {
        table(&self.root).into_iter().flat_map(DeTable::keys)
    }

    /// A section with the position of its name.
    pub fn section(&self, name: &str) -> Option<(&Spanned<DeString<'t>>, &Value<'t>)> {
        table(&self.root)?.get_key_value(name)
    }

    /// A section that is to be changed.
    pub fn section_mut(&mut self, name: &str) -> Option<&mut Value<'t>> {
        match self.root.get_mut() {
            DeValue::Table(table) => table.get_mut(name),
            _ => None,
        }
    }

    /// A problem with a key, at a byte range of the text.
    pub fn at(&self, span: Range<usize>, key: &str, what: impl Into<String>) -> Problem {
        let at = span.start.min(self.text.len());
        // The first line begins at 0, so that there is one.
        let line = self.lines.partition_point(|begins| *begins <= at);
        let before = &self.text.as_bytes()[self.lines[line - 1]..at];
        // Columns count characters: every byte that does not continue one.
        let column = before.iter().filter(|&&b| b & 0xc0 != 0x80).count() + 1;
        Problem { file: self.file.clone(), line, column, key: key.into(), what: what.into() }
    }

    /// A problem with the value that a path leads to, or with the last above it that is there. Keys are
    /// joined by dots, items of a list named by their number from 1.
    pub fn blame(&self, path: &str, what: impl Into<String>) -> Problem {
        let (mut value, mut is_there, mut shown) = (&self.root, true, Vec::new());
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let below = match value.get_ref() {
                _ if !is_there => None,
                DeValue::Table(table) => table.get(step).map(|below| (below, step.to_owned())),
                DeValue::Array(array) => {
                    let index = step.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
                    let item = index.and_then(|i| Some((array.get(i)?, i)));
                    item.map(|(item, i)| (item, label(item, i)))
                }
                _ => None,
            };
            is_there = below.is_some();
            let (below, name) = below.unwrap_or((value, step.to_owned()));
            value = below;
            shown.push(name);
        }
        self.at(value.span(), &shown.join("."), what)
    }

    /// Reads a value whose path in the file is `path`; `more` are keys that are known here besides
    /// those of `T`.
    ///
    /// Reports everything that is wrong. What is wrong is left out and the rest read, so that the
    /// caller can check that too; `None` where `T` cannot be without it.
    pub fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        value: &Value<'t>,
        more: &[&str],
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let mut left_out: Vec<&Value<'t>> = Vec::new();
        // Lists that lack an item. At last they are left out as a whole: what is read of the others keeps
        // its index.
        let mut lists: Vec<&Value<'t>> = Vec::new();
        let before = problems.len();
        // Each turn leaves out a value more. That there are more problems than are shown is seen too.
        while problems.len() - before <= MAX_PROBLEMS {
            let error = match Node::read(value, &left_out) {
                Ok(read) if lists.is_empty() => return Some(read),
                Ok(_) if lists.iter().any(|list| std::ptr::eq(*list, value)) => return None,
                Ok(_) => {
                    left_out.append(&mut lists);
                    continue;
                }
                Err(error) => error,
            };
            let found = Found::new(path, value, &error);
            if !found.is_reported(&error, &lists) {
                let more = if found.parent.is_none() { more } else { &[] };
                problems.push(self.at(found.span, &found.path, one_line(&error.what(more))));
            }
            let is_same = |left_out: &&Value<'t>| std::ptr::eq(*left_out, found.wrong);
            if std::ptr::eq(found.wrong, value) || left_out.iter().any(is_same) {
                return None;
            }
            left_out.push(found.wrong);
            if let Some(parent) = found.parent
                && matches!(parent.get_ref(), DeValue::Array(_))
            {
                lists.push(parent);
            }
        }
        None
    }
}

/// The value that an error means.
struct Found<'a, 't> {
    /// Its path, or that of the table that has an unknown key.
    path: String,
    span: Range<usize>,
    /// What is to be left out.
    wrong: &'a Value<'t>,
    /// The value that holds it; of an unknown key, the value that holds its table.
    parent: Option<&'a Value<'t>>,
}

impl<'a, 't> Found<'a, 't> {
    fn new(path: &str, root: &'a Value<'t>, error: &Error) -> Self {
        let mut found = Found { path: path.into(), span: root.span(), wrong: root, parent: None };
        for step in error.steps.iter().rev() {
            let (below, name) = match (found.wrong.get_ref(), step) {
                (DeValue::Table(table), Step::Key(key)) => (table.get(key.as_str()), key.clone()),
                (DeValue::Array(array), Step::Index(index)) => {
                    let below = array.get(*index);
                    (below, below.map_or(String::new(), |below| label(below, *index)))
                }
                _ => (None, String::new()),
            };
            let Some(below) = below else { break };
            let dot = if found.path.is_empty() { "" } else { "." };
            found.path = format!("{}{dot}{name}", found.path);
            found.parent = Some(found.wrong);
            (found.span, found.wrong) = (below.span(), below);
        }
        if let Kind::UnknownKey { key, .. } = &error.kind
            && let Some((key, value)) =
                table(found.wrong).and_then(|table| table.get_key_value(key.as_str()))
        {
            (found.span, found.wrong) = (key.span(), value);
        }
        found
    }

    /// Whether this follows from what has been left out.
    fn is_reported(&self, error: &Error, lists: &[&Value<'t>]) -> bool {
        match &error.kind {
            Kind::MissingKey(key) => {
                table(self.wrong).is_some_and(|table| table.contains_key(*key))
            }
            Kind::Length { .. } => lists.iter().any(|list| std::ptr::eq(*list, self.wrong)),
            _ => false,
        }
    }
}

pub(crate) fn table<'a, 't>(value: &'a Value<'t>) -> Option<&'a DeTable<'t>> {
    match value.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// How a value of a list is called: by its name if it is a table that has one, or by its number from 1.
pub fn label(value: &Value<'_>, index: usize) -> String {
    let name = table(value).and_then(|t| t.get("name")).map(|v| v.get_ref());
    match name {
        Some(DeValue::String(name)) if !name.is_empty() && name.len() <= MAX_LABEL => {
            one_line(name)
        }
        _ => (index + 1).to_string(),
    }
}

/// What a value is, as in `expected ..., got ...`.
pub fn describe(value: &Value<'_>) -> String {
    match value.get_ref() {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(i) => format!("the number {i}"),
        DeValue::Float(f) => format!("the number {f}"),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

/// Only what fits a line: a hostile key may hold anything.
fn one_line(text: &str) -> String {
    const MAX: usize = 1000;
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX).collect()
}
