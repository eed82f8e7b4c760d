//! A file of sections whose tables are found by name or number: they are read one by one, values can be
//! put into them by their key path, and what does not fit together is reported at its key.

use ringway_document::{Problem, Problems, Value, describe, label, unknown};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Largest file that is read, in bytes.
pub const MAX_FILE: usize = 4 << 20;
/// Longest key path, in keys.
const MAX_PATH: usize = 16;

/// One file.
#[derive(Clone, Debug)]
pub struct Document<'t>(ringway_document::Document<'t>);

/// Where in a file: a section, which of its tables, and keys below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) section: &'a str,
    pub(crate) index: Option<usize>,
    pub(crate) key: &'a str,
}

impl<'t> Document<'t> {
    /// Parses TOML. `file` is only a name, for errors.
    pub fn parse(file: &str, text: &'t str) -> Result<Self, Problems> {
        if text.len() > MAX_FILE {
            let what = format!("expected at most {MAX_FILE} bytes, got {}", text.len());
            return Err(Problems::one(Problem::whole(file, what)));
        }
        ringway_document::Document::parse(file, text).map(Document)
    }

    /// The file's name as it was given.
    pub fn file(&self) -> &str {
        self.0.file()
    }

    /// A problem with a key, at a byte range of the text.
    pub(crate) fn at(&self, span: Range<usize>, key: &str, what: impl Into<String>) -> Problem {
        self.0.at(span, key, what)
    }

    /// A problem with the value of a key, or with the table that lacks it.
    pub(crate) fn blame(&self, place: Place<'_>, what: impl Into<String>) -> Problem {
        let index = place.index.map(|index| (index + 1).to_string());
        self.0.blame(&[place.section, &index.unwrap_or_default(), place.key].join("."), what)
    }

    /// The tables of a section that may come several times.
    pub(crate) fn elements(&self, section: &str) -> Vec<&Value<'t>> {
        match self.0.section(section).map(|(_, value)| value.get_ref()) {
            Some(DeValue::Array(array)) => array.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Reports sections that are none of `known`.
    pub(crate) fn only(&self, known: &[&str], problems: &mut Vec<Problem>) {
        for key in self.0.sections() {
            if !known.contains(&key.get_ref().as_ref()) {
                problems.push(self.at(key.span(), "", unknown(key.get_ref(), known)));
            }
        }
    }

    /// Whether the file has a section.
    pub(crate) fn has(&self, section: &str) -> bool {
        self.0.section(section).is_some()
    }

    /// Reads a section that comes once; its defaults if it does not come.
    pub(crate) fn one<T: DeserializeOwned + Default>(
        &self,
        section: &str,
        problems: &mut Vec<Problem>,
    ) -> T {
        let Some((_, value)) = self.0.section(section) else { return T::default() };
        self.read(section, value, &[], problems).unwrap_or_default()
    }

    /// Reads every table of a section. What cannot be read is reported and `None`.
    pub(crate) fn all<T: DeserializeOwned>(
        &self,
        section: &str,
        max: usize,
        problems: &mut Vec<Problem>,
    ) -> Vec<Option<T>> {
        if !self.is_list(section, max, problems) {
            return Vec::new();
        }
        let elements = self.elements(section).into_iter().enumerate();
        elements
            .map(|(i, e)| self.read(&format!("{section}.{}", label(e, i)), e, &[], problems))
            .collect()
    }

    /// Whether a section is a list of at most `max` tables; reports if not.
    pub(crate) fn is_list(&self, section: &str, max: usize, problems: &mut Vec<Problem>) -> bool {
        let Some((key, value)) = self.0.section(section) else { return true };
        let DeValue::Array(array) = value.get_ref() else {
            let what = format!("expected [[{section}]], a table each, got {}", describe(value));
            problems.push(self.at(key.span(), section, what));
            return false;
        };
        if array.len() > max {
            let what = format!("expected at most {max}, got {}", array.len());
            problems.push(self.at(key.span(), section, what));
            return false;
        }
        true
    }

    /// Reads one value; `more` are keys that are known here besides those of `T`. `None` if anything
    /// is wrong with it, which is reported.
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

    /// Puts a value wherever a key path leads: `flow.NAME.rate`, `link.*.queue.limit`, `scenario.stop`.
    /// Tables of a list are found by their name or number, or all by `*`. Keys below the section
    /// that are not there yet are made.
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

/// Puts a value below another.
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
