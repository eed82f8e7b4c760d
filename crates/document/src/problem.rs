//! What is wrong with a file, and where.

use std::fmt;

/// Problems reported for one file; that there are more is one line.
pub const MAX_PROBLEMS: usize = 50;

/// One thing wrong in a file. Displays as `file:line:column: key: what`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The file as the caller named it.
    pub file: String,
    /// Line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The path of the key or section; empty at the top.
    pub key: String,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl Problem {
    /// A problem of a file as a whole.
    pub fn whole(file: &str, what: impl Into<String>) -> Self {
        Problem { file: file.into(), line: 0, column: 0, key: String::new(), what: what.into() }
    }

    /// The key and what is wrong with it, without the position.
    pub fn message(&self) -> String {
        if self.key.is_empty() { self.what.clone() } else { format!("{}: {}", self.key, self.what) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.file, self.message())
        } else {
            write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message())
        }
    }
}

/// Everything wrong with one file, in the order of its lines.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.lines().join("\n"))]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// From a list that is not empty.
    pub fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|p| (p.line, p.column));
        // What is read twice, such as the two directions of a link, is reported once.
        problems.dedup();
        if problems.len() > MAX_PROBLEMS {
            problems.truncate(MAX_PROBLEMS);
            problems.push(Problem::whole(file, "further problems are not shown"));
        }
        Problems(problems)
    }

    /// One problem.
    pub fn one(problem: Problem) -> Self {
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

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
