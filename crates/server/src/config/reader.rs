//! Walks a parsed TOML file and says everything that is wrong with it, each with its place.
//!
//! Not serde: a derived reader stops at the first error and cannot say what unit a number lacks.
//! Here a section is asked for its keys one by one; what was asked for is what is known, and what
//! is left over is reported with the nearest known key.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Problems reported for one file; what follows is counted and not listed.
pub const MAX_PROBLEMS: usize = 50;

/// One thing wrong in a configuration file. Displays as `file:line:column: what`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The file as the caller named it.
    pub file: String,
    /// Line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.file, self.what)
        } else {
            write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)
        }
    }
}

/// Collects what is wrong with one file.
pub(crate) struct Report<'t> {
    file: &'t str,
    text: &'t str,
    problems: RefCell<Vec<(usize, Problem)>>,
}

impl<'t> Report<'t> {
    pub(crate) fn new(file: &'t str, text: &'t str) -> Self {
        Report { file, text, problems: RefCell::new(Vec::new()) }
    }

    /// Notes a problem at a byte range of the text.
    pub(crate) fn at(&self, span: Range<usize>, what: impl Into<String>) {
        let at = span.start.min(self.text.len());
        let before = &self.text.as_bytes()[..at];
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        // Columns count characters: every byte that does not continue one.
        let column = before[line_start..].iter().filter(|&&b| b & 0xc0 != 0x80).count() + 1;
        let what = what.into();
        let problem = Problem { file: self.file.to_owned(), line, column, what };
        self.problems.borrow_mut().push((at, problem));
    }

    /// Everything noted, in the order of the file.
    pub(crate) fn finish(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(at, _)| *at);
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        let mut out: Vec<_> = problems.into_iter().take(MAX_PROBLEMS).map(|(_, p)| p).collect();
        if more > 0 {
            out.push(Problem {
                file: self.file.to_owned(),
                line: 0,
                column: 0,
                what: format!("{more} more problems not shown"),
            });
        }
        out
    }
}

/// What a key's value may look like.
pub(crate) trait Shape: Sized {
    /// Reads a value, or says what was expected (as in `expected ..., got ...`).
    fn read(value: &DeValue<'_>) -> Result<Self, String>;
}

/// Says what a value is, for `got ...`.
pub(crate) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(s) if s.len() <= 40 => format!("{s:?}"),
        DeValue::String(s) => format!("a string of {} bytes", s.len()),
        DeValue::Integer(i) => format!("the number {i}"),
        DeValue::Float(f) => format!("the number {f}"),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a section".to_owned(),
    }
}

/// The usual refusal.
pub(crate) fn mismatch<T>(expected: &str, value: &DeValue<'_>) -> Result<T, String> {
    Err(format!("expected {expected}, got {}", describe(value)))
}

impl Shape for String {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(s) => Ok(s.clone().into_owned()),
            other => mismatch("a string in quotes", other),
        }
    }
}

impl Shape for bool {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::Boolean(b) => Ok(*b),
            other => mismatch("true or false", other),
        }
    }
}

impl Shape for i64 {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix())
                .map_err(|_| format!("expected a whole number of at most 63 bits, got {i}")),
            other => mismatch("a whole number", other),
        }
    }
}

/// A value together with where it stands, for checks that come later.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

/// One table of the file while it is read.
pub(crate) struct Section<'a, 't> {
    /// The path of the section, empty at the top.
    name: String,
    table: &'a DeTable<'t>,
    span: Range<usize>,
    report: &'a Report<'a>,
    known: Vec<&'static str>,
}

impl<'a, 't> Section<'a, 't> {
    pub(crate) fn top(table: &'a Spanned<DeTable<'t>>, report: &'a Report<'a>) -> Self {
        let known = Vec::new();
        Section { name: String::new(), table: table.get_ref(), span: table.span(), report, known }
    }

    /// Where the section begins.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Whether it has this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Whether it has no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Notes a problem at a place of this file.
    pub(crate) fn wrong(&self, span: Range<usize>, what: impl Into<String>) {
        self.report.at(span, what);
    }

    fn raw(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'t>>> {
        self.known.push(key);
        self.table.get(key)
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// A key with its place; `None` when it is absent or wrong (then it has been reported).
    pub(crate) fn placed<T: Shape>(&mut self, key: &'static str) -> Option<Placed<T>> {
        let raw = self.raw(key)?;
        match T::read(raw.get_ref()) {
            Ok(value) => Some(Placed { value, span: raw.span() }),
            Err(what) => {
                self.wrong(raw.span(), format!("{}: {what}", self.path(key)));
                None
            }
        }
    }

    /// A key; `None` when it is absent or wrong (then it has been reported).
    pub(crate) fn get<T: Shape>(&mut self, key: &'static str) -> Option<T> {
        self.placed(key).map(|p| p.value)
    }

    /// A key with a default.
    pub(crate) fn or<T: Shape>(&mut self, key: &'static str, default: T) -> T {
        self.get(key).unwrap_or(default)
    }

    /// A whole number within `range`; `unit` completes "expected a whole number of".
    pub(crate) fn number<N>(
        &mut self,
        key: &'static str,
        unit: &str,
        range: RangeInclusive<N>,
        default: N,
    ) -> N
    where
        N: TryFrom<i64> + PartialOrd + fmt::Display,
    {
        let Some(raw) = self.raw(key) else { return default };
        let expected =
            || format!("expected a whole number of {unit}, {} to {}", range.start(), range.end());
        let what = match raw.get_ref() {
            DeValue::Integer(i) => match i64::read(raw.get_ref()).map(N::try_from) {
                Ok(Ok(n)) if range.contains(&n) => return n,
                _ => format!("{}: {}, got {i}", self.path(key), expected()),
            },
            other => format!("{}: {}, got {}", self.path(key), expected(), describe(other)),
        };
        self.wrong(raw.span(), what);
        default
    }

    /// A duration within `range`.
    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<super::shape::Span>,
        default: super::shape::Span,
    ) -> std::time::Duration {
        match self.placed::<super::shape::Span>(key) {
            Some(p) if range.contains(&p.value) => p.value.0,
            Some(p) => {
                let what = format!(
                    "{}: expected a duration from {} to {}, got {}",
                    self.path(key),
                    range.start(),
                    range.end(),
                    p.value
                );
                self.wrong(p.span, what);
                default.0
            }
            None => default.0,
        }
    }

    /// A list; `None` when it is absent, or when any item is wrong (each has been reported then).
    pub(crate) fn list<T: Shape>(&mut self, key: &'static str) -> Option<Vec<Placed<T>>> {
        let raw = self.raw(key)?;
        let DeValue::Array(array) = raw.get_ref() else {
            let what = format!(
                "{}: expected a list in [ ], got {}",
                self.path(key),
                describe(raw.get_ref())
            );
            self.wrong(raw.span(), what);
            return None;
        };
        let mut out = Vec::with_capacity(array.len());
        for item in array.iter() {
            match T::read(item.get_ref()) {
                Ok(value) => out.push(Placed { value, span: item.span() }),
                Err(what) => self.wrong(item.span(), format!("{}: {what}", self.path(key))),
            }
        }
        (out.len() == array.len()).then_some(out)
    }

    /// A section, `[key]`.
    pub(crate) fn section(&mut self, key: &'static str) -> Option<Section<'a, 't>> {
        let raw = self.raw(key)?;
        match raw.get_ref() {
            DeValue::Table(table) => Some(self.below(self.path(key), table, raw.span())),
            other => {
                let what = format!(
                    "{0}: expected a section [{0}], got {1}",
                    self.path(key),
                    describe(other)
                );
                self.wrong(raw.span(), what);
                None
            }
        }
    }

    /// Repeated sections, `[[key]]`, or a list of inline tables.
    pub(crate) fn sections(&mut self, key: &'static str) -> Vec<Section<'a, 't>> {
        let Some(raw) = self.raw(key) else { return Vec::new() };
        let path = self.path(key);
        let wrong = |span, value: &DeValue<'_>| {
            self.wrong(span, format!("{path}: expected [[{path}]], got {}", describe(value)));
        };
        let DeValue::Array(array) = raw.get_ref() else {
            wrong(raw.span(), raw.get_ref());
            return Vec::new();
        };
        let mut out = Vec::with_capacity(array.len());
        for item in array.iter() {
            match item.get_ref() {
                DeValue::Table(table) => out.push(self.below(path.clone(), table, item.span())),
                other => wrong(item.span(), other),
            }
        }
        out
    }

    fn below(&self, name: String, table: &'a DeTable<'t>, span: Range<usize>) -> Section<'a, 't> {
        Section { name, table, span, report: self.report, known: Vec::new() }
    }

    /// A key that must be there.
    pub(crate) fn required<T: Shape>(&mut self, key: &'static str) -> Option<T> {
        if !self.table.contains_key(key) {
            self.known.push(key);
            self.wrong(self.span(), format!("{} is missing", self.path(key)));
            return None;
        }
        self.get(key)
    }

    /// Ends the section: every key that was not asked for is unknown.
    pub(crate) fn finish(self) {
        for key in self.table.keys() {
            if self.known.iter().any(|k| *k == key.get_ref().as_ref()) {
                continue;
            }
            let path = self.path(key.get_ref());
            let mut what = format!("unknown key \"{path}\"");
            let near = |k: &&&str| (strsim::jaro_winkler(k, key.get_ref()) * 1000.0) as u64;
            if let Some(nearest) = self.known.iter().max_by_key(near) {
                what.push_str(&format!(", the nearest is \"{}\"", self.path(nearest)));
            }
            self.wrong(key.span(), what);
        }
    }
}
