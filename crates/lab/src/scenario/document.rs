//! A TOML file with the place of everything in it: sections are read from it one by one, values can
//! be put into it by their key path, and errors are told with file, line, key and what was expected.

use super::problem::{Problem, Problems};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

/// Largest file that is read, in bytes.
pub const MAX_FILE: usize = 4 << 20;
/// Longest key path, in keys.
const MAX_PATH: usize = 16;
/// How alike a known key must be to be offered for an unknown one.
const ALIKE: f64 = 0.85;

type Value<'t> = Spanned<DeValue<'t>>;

/// One file.
#[derive(Clone, Debug)]
pub struct Document<'t> {
    file: String,
    text: &'t str,
    root: DeTable<'t>,
}

/// Where in a file: a section, which of its tables, and keys below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) section: &'a str,
    pub(crate) index: Option<usize>,
    pub(crate) key: &'a str,
}

impl<'t> Document<'t> {
    /// Reads TOML. `file` is only a name, for errors.
    pub fn parse(file: &str, text: &'t str) -> Result<Self, Problems> {
        if text.len() > MAX_FILE {
            let what = format!("expected at most {MAX_FILE} bytes, got {}", text.len());
            return Err(Problems::one(Problem::whole(file, what)));
        }
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            Problems::one(problem(file, text, at, one_line(error.message())))
        })?;
        Ok(Document { file: file.into(), text, root: root.into_inner() })
    }

    /// The file's name as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// A problem at a byte range of the text.
    pub(crate) fn at(&self, span: Range<usize>, what: impl Into<String>) -> Problem {
        problem(&self.file, self.text, span, what)
    }

    /// A problem with the value of a key, or with the table that lacks it.
    pub(crate) fn blame(&self, place: Place<'_>, what: impl Into<String>) -> Problem {
        let path = self.path_of(place);
        let span = self.span_of(place).unwrap_or(0..0);
        self.at(span, format!("`{path}`: {}", what.into()))
    }

    fn path_of(&self, place: Place<'_>) -> String {
        let mut path = vec![place.section.to_string()];
        if let Some(index) = place.index {
            let element = self.elements(place.section).get(index).copied();
            path.push(element.map_or_else(|| (index + 1).to_string(), |e| label(e, index)));
        }
        if !place.key.is_empty() {
            path.push(place.key.into());
        }
        path.join(".")
    }

    fn span_of(&self, place: Place<'_>) -> Option<Range<usize>> {
        let (key, value) = self.root.get_key_value(place.section)?;
        let mut span = key.span();
        let mut value = match place.index {
            Some(index) => self.elements(place.section).get(index).copied()?,
            None => value,
        };
        if place.index.is_some() {
            span = value.span();
        }
        for part in place.key.split('.').filter(|part| !part.is_empty()) {
            let Some((_, inner)) = table(value).and_then(|t| t.get_key_value(part)) else { break };
            (span, value) = (inner.span(), inner);
        }
        Some(span)
    }

    /// The tables of a section that may come several times.
    pub(crate) fn elements(&self, section: &str) -> Vec<&Value<'t>> {
        match self.root.get(section).map(|v| v.get_ref()) {
            Some(DeValue::Array(array)) => array.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Reports sections that are none of `known`.
    pub(crate) fn only(&self, known: &[&str], problems: &mut Vec<Problem>) {
        for key in self.root.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                problems.push(self.at(key.span(), unknown(key.get_ref(), known)));
            }
        }
    }

    /// Whether the file has a section.
    pub(crate) fn has(&self, section: &str) -> bool {
        self.root.contains_key(section)
    }

    /// Reads a section that comes once; its defaults if it does not come.
    pub(crate) fn one<T: DeserializeOwned + Default>(
        &self,
        section: &str,
        problems: &mut Vec<Problem>,
    ) -> T {
        let Some(value) = self.root.get(section) else { return T::default() };
        self.read(section, value.clone(), &[], problems).unwrap_or_default()
    }

    /// Reads every table of a section. What cannot be read is reported and `None`.
    pub(crate) fn all<T: DeserializeOwned>(
        &self,
        section: &str,
        most: usize,
        problems: &mut Vec<Problem>,
    ) -> Vec<Option<T>> {
        if !self.is_list(section, most, problems) {
            return Vec::new();
        }
        let elements = self.elements(section).into_iter().enumerate();
        elements
            .map(|(i, e)| {
                self.read(&format!("{section}.{}", label(e, i)), e.clone(), &[], problems)
            })
            .collect()
    }

    /// Whether a section is a list of at most `most` tables; reports if not.
    pub(crate) fn is_list(&self, section: &str, most: usize, problems: &mut Vec<Problem>) -> bool {
        let Some((key, value)) = self.root.get_key_value(section) else { return true };
        let DeValue::Array(array) = value.get_ref() else {
            let what = format!(
                "`{section}`: expected [[{section}]], a table each, got {}",
                describe(value)
            );
            problems.push(self.at(key.span(), what));
            return false;
        };
        if array.len() > most {
            let what = format!("`{section}`: expected at most {most}, got {}", array.len());
            problems.push(self.at(key.span(), what));
            return false;
        }
        true
    }

    /// Reads one value; `more` are keys that are known here besides those of `T`.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        value: Value<'t>,
        more: &[&str],
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        match T::deserialize(ValueDeserializer::from(value.clone())) {
            Ok(read) => Some(read),
            Err(error) => {
                problems.push(self.explain(path, &value, &error, more));
                None
            }
        }
    }

    /// Says in the terms of the file what serde has to say.
    fn explain(
        &self,
        path: &str,
        value: &Value<'t>,
        error: &toml::de::Error,
        more: &[&str],
    ) -> Problem {
        let message = one_line(error.message());
        let words = backticked(&message);
        let at = error.span().unwrap_or_else(|| value.span());
        if message.starts_with("unknown field") {
            let name = words.first().map_or("", String::as_str);
            let found = key_in(value, name);
            let mut known: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
            if found.as_ref().is_none_or(|(inside, _)| inside.is_empty()) {
                known.extend(more);
            }
            let (inside, span) = found.unwrap_or((String::new(), at));
            return self.at(span, format!("`{path}{inside}`: {}", unknown(name, &known)));
        }
        if message.starts_with("unknown variant") {
            let name = words.first().map_or("", String::as_str);
            let known: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
            let (inside, span) = leaf(value, &at, Some(name));
            let nearest =
                nearest(name, &known).map_or(String::new(), |n| format!("; did you mean \"{n}\"?"));
            let what = format!("expected one of {}, got \"{name}\"{nearest}", list(&known));
            return self.at(span, format!("`{path}{inside}`: {what}"));
        }
        if message.starts_with("missing field") {
            let name = words.first().map_or("", String::as_str);
            let (inside, span) = leaf(value, &at, None);
            return self.at(span, format!("`{path}{inside}`: the key `{name}` is missing"));
        }
        let got = quoted(&message);
        let (inside, span) = leaf(value, &at, got.as_deref());
        let what = match message
            .strip_prefix("invalid type: ")
            .or(message.strip_prefix("invalid value: "))
            .or(message.strip_prefix("invalid length "))
            .and_then(|m| m.split_once(", expected "))
        {
            Some((got, expected)) => format!("expected {}, got {got}", in_words(expected)),
            None => message,
        };
        self.at(span, format!("`{path}{inside}`: {what}"))
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
        let known: Vec<String> = self.root.keys().map(|k| k.get_ref().to_string()).collect();
        let Some(section) = self.root.get_mut(keys[0]) else {
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

fn problem(file: &str, text: &str, span: Range<usize>, what: impl Into<String>) -> Problem {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    // Columns count characters: every byte that does not continue one.
    let column = before[line_start..].iter().filter(|&&b| b & 0xc0 != 0x80).count() + 1;
    Problem { file: file.into(), line, column, what: what.into() }
}

fn table<'a, 't>(value: &'a Value<'t>) -> Option<&'a DeTable<'t>> {
    match value.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// How a table of a list is called: by its name, or by its number from 1.
fn label(value: &Value<'_>, index: usize) -> String {
    let name = table(value).and_then(|t| t.get("name")).map(|v| v.get_ref());
    match name {
        Some(DeValue::String(name)) if !name.is_empty() && name.len() <= 64 => name.to_string(),
        _ => (index + 1).to_string(),
    }
}

/// Says what a value is.
pub(crate) fn describe(value: &Value<'_>) -> String {
    match value.get_ref() {
        DeValue::String(s) if s.len() <= 40 => format!("{s:?}"),
        DeValue::String(s) => format!("a string of {} bytes", s.len()),
        DeValue::Integer(i) => format!("the number {i}"),
        DeValue::Float(f) => format!("the number {f}"),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

/// `` unknown key `x`; did you mean `y`? ``
pub(crate) fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("unknown key `{name}`; did you mean `{nearest}`?"),
        None if known.is_empty() => format!("unknown key `{name}`; none is known here"),
        None => format!("unknown key `{name}`; known here: {}", known.join(", ")),
    }
}

/// The one of `known` most like `name`.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    // Longer ones are nobody's misspelling, and comparing takes time by the square.
    if name.len() > 64 {
        return None;
    }
    let name = name.to_lowercase();
    let close = |known: &str| {
        let steps = strsim::damerau_levenshtein(&name, known);
        let alike = strsim::jaro_winkler(&name, known);
        (steps <= known.len() / 3 || alike >= ALIKE).then_some((steps, alike))
    };
    let mut best: Option<((usize, f64), &str)> = None;
    for known in known.iter().filter(|k| k.len() <= 64) {
        let Some(found) = close(known) else { continue };
        let better = best.is_none_or(|(b, _)| found.0 < b.0 || found.0 == b.0 && found.1 > b.1);
        if better {
            best = Some((found, known));
        }
    }
    best.map(|(_, known)| known)
}

pub(crate) fn list(words: &[&str]) -> String {
    words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
}

/// What a type of the program is to somebody who writes a file.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" => "a number of 0 to 255",
        "u16" => "a number of 0 to 65535",
        "u32" => "a number of 0 to 4294967295",
        "u64" => "a number from 0",
        _ => expected,
    }
}

/// Only what fits a line: a hostile key may hold anything.
fn one_line(text: &str) -> String {
    const MOST: usize = 1000;
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST).collect()
}

/// The words between backticks.
fn backticked(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// The last thing in quotation marks: the value that was not understood.
fn quoted(text: &str) -> Option<String> {
    let got = text
        .rsplit_once("got ")
        .map(|(_, got)| got)
        .or_else(|| text.split_once(": ").map(|(_, t)| t))?;
    let begin = got.find(['"', '`'])? + 1;
    let end = got[begin..].find(['"', '`'])? + begin;
    Some(got[begin..end].into())
}

/// Visits everything below a value: the path to it with a dot before each key, the span of its key,
/// and the value.
fn walk<'a, 't>(
    value: &'a Value<'t>,
    path: &str,
    visit: &mut impl FnMut(&str, Range<usize>, &'a Value<'t>),
) {
    match value.get_ref() {
        DeValue::Table(table) => {
            for (key, inner) in table.iter() {
                let path = format!("{path}.{}", key.get_ref());
                visit(&path, key.span(), inner);
                walk(inner, &path, visit);
            }
        }
        DeValue::Array(array) => {
            for (i, inner) in array.iter().enumerate() {
                let path = format!("{path}.{}", i + 1);
                visit(&path, inner.span(), inner);
                walk(inner, &path, visit);
            }
        }
        _ => {}
    }
}

/// The path above a key of that name and the place of the key.
fn key_in(value: &Value<'_>, name: &str) -> Option<(String, Range<usize>)> {
    let mut found = None;
    walk(value, "", &mut |path, span, _| {
        if let Some(above) = path.strip_suffix(name).and_then(|p| p.strip_suffix('.')) {
            found.get_or_insert((above.to_string(), span));
        }
    });
    found
}

/// The value an error means: the smallest that holds `at`, and if that is a table the one below it
/// that was written as `got`.
fn leaf(value: &Value<'_>, at: &Range<usize>, got: Option<&str>) -> (String, Range<usize>) {
    let mut best = (String::new(), value.span(), value);
    walk(value, "", &mut |path, _, inner| {
        let span = inner.span();
        let holds = span.start <= at.start && at.end <= span.end;
        if holds && (span.len() <= best.1.len() || best.0.is_empty()) {
            best = (path.into(), span, inner);
        }
    });
    let (above, span, holder) = best;
    if let (Some(got), DeValue::Table(_) | DeValue::Array(_)) = (got, holder.get_ref()) {
        let mut exact = None;
        walk(holder, &above, &mut |path, _, inner| {
            let same = match inner.get_ref() {
                DeValue::String(s) => s.as_ref() == got,
                DeValue::Integer(i) => i.as_str() == got,
                DeValue::Float(f) => f.as_str() == got,
                DeValue::Boolean(b) => b.to_string() == got,
                _ => false,
            };
            if same {
                exact.get_or_insert((path.to_string(), inner.span()));
            }
        });
        return exact.unwrap_or((above, span));
    }
    (above, span)
}

/// Anything that has a name of its own in a section.
pub(crate) fn read_value<T: DeserializeOwned>(value: &Value<'_>) -> Option<T> {
    T::deserialize(ValueDeserializer::from(value.clone())).ok()
}
