//! A TOML file of sections whose tables are found by name or number. Tables are read one by one,
//! values can be set by key path, and problems are reported at their key.

use ringway_document::{Problem, Problems, Value, describe, label, unknown};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Maximum size of a file, in bytes. It also limits the numbers of nodes and links.
pub const MAX_FILE: usize = 16 << 20;
/// Maximum length of a key path, in keys.
const MAX_PATH: usize = 16;

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Document<'t>(ringway_document::Document<'t>);

/// A location in a file: section, index of the table, and key path below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location<'a> {
    pub(crate) section: &'a str,
    pub(crate) index: Option<usize>,
    pub(crate) key: &'a str,
}

impl<'t> Document<'t> {
    /// Parses TOML. `file` is the name in error messages.
    pub fn parse(file: &str, text: &'t str) -> Result<Self, Problems> {
        if text.len() > MAX_FILE {
            let what = format!("expected at most {MAX_FILE} bytes, got {}", text.len());
            return Err(Problems::one(Problem::whole(file, what)));
        }
        ringway_document::Document::parse(file, text).map(Document)
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        self.0.file()
    }

    /// Creates a problem with a key, at a byte range of the text.
    pub(crate) fn at(&self, span: Range<usize>, key: &str, what: impl Into<String>) -> Problem {
        self.0.at(span, key, what)
    }

    /// Creates a problem with the value of a key, or with the table that lacks it.
    pub(crate) fn blame(&self, location: Location<'_>, what: impl Into<String>) -> Problem {
        let index = location.index.map(|index| (index + 1).to_string());
        self.0.blame(&[location.section, &index.unwrap_or_default(), location.key].join("."), what)
    }

    /// Returns the tables of a section that may occur several times.
    pub(crate) fn elements(&self, section: &str) -> Vec<&Value<'t>> {
        match self.0.section(section).map(|(_, value)| value.get_ref()) {
            Some(DeValue::Array(array)) => array.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Reports sections that are not in `known`.
    pub(crate) fn only(&self, known: &[&str], problems: &mut Vec<Problem>) {
        for key in self.0.sections() {
            if !known.contains(&key.get_ref().as_ref()) {
                problems.push(self.at(key.span(), "", unknown(key.get_ref(), known)));
            }
        }
    }

    /// Returns whether the file has a section.
    pub(crate) fn has(&self, section: &str) -> bool {
        self.0.section(section).is_some()
    }

    /// Reads a section that occurs once; returns its defaults if it is missing.
    pub(crate) fn one<T: DeserializeOwned + Default>(
        &self,
        section: &str,
        problems: &mut Vec<Problem>,
    ) -> T {
        let Some((_, value)) = self.0.section(section) else { return T::default() };
        self.read(section, value, &[], problems).unwrap_or_default()
    }

    /// Reads every table of a section. An invalid table is reported and `None`.
    pub(crate) fn all<T: DeserializeOwned>(
        &self,
        section: &str,
        max: usize,
        problems: &mut Vec<Problem>,
    ) -> Vec<Option<T>> {
        if !self.is_list(section, problems) {
            return Vec::new();
        }
        let elements = self.elements(section);
        if elements.len() > max {
            let what = format!("expected at most {max}, got {}", elements.len());
            let span = self.0.section(section).map_or(0..0, |(key, _)| key.span());
            problems.push(self.at(span, section, what));
            return Vec::new();
        }
        let elements = elements.into_iter().enumerate();
        elements
            .map(|(i, e)| self.read(&format!("{section}.{}", label(e, i)), e, &[], problems))
            .collect()
    }

    /// Returns whether a section is a list of tables or missing; reports if not.
    pub(crate) fn is_list(&self, section: &str, problems: &mut Vec<Problem>) -> bool {
        let Some((key, value)) = self.0.section(section) else { return true };
        let is_list = matches!(value.get_ref(), DeValue::Array(_));
        if !is_list {
            let what = format!("expected [[{section}]], a table each, got {}", describe(value));
            problems.push(self.at(key.span(), section, what));
        }
        is_list
    }

    /// Reads one value. `more` are further valid keys besides those of `T`. Reports problems and
    /// returns `None` if there are any.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        value: &Value<'t>,
        more: &[&str],
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let before = problems.len();
        let read = self.0.read(path, value, more, problems);
        read.filter(|_| problems.len() == before)
    }

    /// Sets the values at a key path: `flow.NAME.rate`, `link.*.queue.limit`, `scenario.stop`.
    /// Tables of a list are found by name or number, or all by `*`. Missing keys below the section
    /// are created.
    pub fn set(&mut self, path: &str, value: &Value<'t>) -> Result<(), String> {
        let keys: Vec<&str> = path.split('.').collect();
        if keys.len() < 2 || keys.len() > MAX_PATH || keys.iter().any(|k| k.is_empty()) {
            return Err(format!(
                "expected a key path such as \"flow.NAME.rate\" or \"link.*.delay\", got {path:?}"
            ));
        }
        let known: Vec<String> = self.0.sections().map(|k| k.get_ref().to_string()).collect();
        let Some(section) = self.0.section_mut(keys[0]) else {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(format!("{path:?}: {}", unknown(keys[0], &known)));
        };
        put(section, &keys[1..], value).map_err(|what| format!("{path:?}: {what}"))
    }
}

/// Sets a value at a path of keys below a value.
fn put<'t>(below: &mut Value<'t>, keys: &[&str], value: &Value<'t>) -> Result<(), String> {
    let Some((first, rest)) = keys.split_first() else {
        *below = value.clone();
        return Ok(());
    };
    let span = below.span();
    match below.get_mut() {
        DeValue::Array(array) => {
            let names: Vec<String> = array.iter().enumerate().map(|(i, e)| label(e, i)).collect();
            let number = first.parse().unwrap_or(0usize);
            let mut found = false;
            for (i, element) in array.iter_mut().enumerate() {
                if *first == "*" || names[i] == *first || number == i + 1 {
                    put(element, rest, value)?;
                    found = true;
                }
            }
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            if found { Ok(()) } else { Err(unknown(first, &known)) }
        }
        DeValue::Table(table) => match table.get_mut(*first) {
            Some(inner) => put(inner, rest, value),
            None => {
                let key = Spanned::new(span.clone(), DeString::Owned((*first).to_string()));
                let mut inner = Spanned::new(span, DeValue::Table(DeTable::new()));
                put(&mut inner, rest, value)?;
                table.insert(key, inner);
                Ok(())
            }
        },
        _ => Err(format!("expected a table above `{first}`, got {}", describe(below))),
    }
}
