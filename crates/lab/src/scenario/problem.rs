//! What is wrong with a file, and where.

use std::fmt;

/// Problems reported for one file; what follows is counted and not listed.
pub const MAX_PROBLEMS: usize = 50;

/// One thing wrong in a file. Displays as `file:line:column: what`.
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

impl Problem {
    /// A problem of a file as a whole.
    pub fn whole(file: &str, what: impl Into<String>) -> Self {
        Problem { file: file.into(), line: 0, column: 0, what: what.into() }
    }
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

/// Everything wrong with one file, in the order of its lines.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.lines().join("\n"))]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// From a list that is not empty.
    pub(crate) fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|p| (p.line, p.column));
        // Two at one place are one mistake, seen twice.
        problems.dedup_by_key(|p| (p.line, p.column));
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        if more > 0 {
            problems.push(Problem::whole(file, format!("{more} more problems not shown")));
        }
        Problems(problems)
    }

    /// One problem.
    pub(crate) fn one(problem: Problem) -> Self {
        Problems(vec![problem])
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// A line for each.
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}
