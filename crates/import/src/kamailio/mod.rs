//! The `subscriber` table of Kamailio and OpenSIPS: a dump in SQL, a file of db_text, or CSV.
//!
//! Columns are found by their names. Kamailio has `username`, `domain`, `password`, `ha1` and `ha1b`; OpenSIPS has
//! `ha1_sha256` and `ha1_sha512t256` instead of `ha1b` since version 3.2. Other columns are ignored.

mod csv;
mod dbtext;
mod dump;
mod lexer;
mod literal;
mod row;

use crate::error::FileError;
use crate::found::{Found, Position, Refusal, User};
use crate::{MAX_BYTES, MAX_LINE};
pub use row::MAX_COLUMNS;
use row::{Columns, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// Words that begin a statement in a dump.
const STATEMENTS: [&str; 18] = [
    "ALTER", "ANALYZE", "BEGIN", "CONNECT", "COPY", "CREATE", "DELETE", "DROP", "GRANT", "INSERT",
    "LOCK", "PRAGMA", "REPLACE", "SELECT", "SET", "START", "TRUNCATE", "USE",
];

/// Reads the users of a `subscriber` table. The format is found from the beginning of the file.
///
/// # Errors
/// Fails when the file has no `subscriber` table, cannot be parsed, or exceeds a limit.
pub fn kamailio(name: &str, bytes: &[u8]) -> Result<Found, FileError> {
    let file: Arc<str> = name.into();
    let at = |line| Position { file: file.clone(), line };
    if bytes.len() > MAX_BYTES {
        return Err(FileError::Limit { at: at(1), what: "bytes", max: MAX_BYTES });
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(FileError::Encoding { at: at(1) });
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut found = Found::default();
    match Format::of(bytes) {
        Format::Sql => dump::read(&file, bytes, &mut found)?,
        Format::DbText => dbtext::read(&file, bytes, &mut found)?,
        Format::Csv(delimiter) => csv::read(&file, bytes, delimiter, &mut found)?,
    }
    Ok(found)
}

/// The columns that are used, in lower case.
pub const COLUMNS: [&str; 7] = row::NAMES;

/// A `subscriber` table whose rows a database returns, instead of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscribers {
    at: Position,
    columns: Columns,
}

impl Subscribers {
    /// Returns the table with this name and these columns.
    ///
    /// # Errors
    /// Fails when a column that is needed is missing.
    pub fn new(table: &str, names: &[&str]) -> Result<Self, FileError> {
        let at = Position { file: table.into(), line: 1 };
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        Ok(Subscribers { columns: Columns::new(&at, &names)?, at })
    }

    /// Returns the user in a row.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn user(&self, values: &[Option<&[u8]>]) -> Result<User, Refusal> {
        let value =
            |value: &Option<_>| value.map_or(Value::Null, |v| Value::Text(Cow::Borrowed(v)));
        let values: Vec<Value<'_>> = values.iter().map(value).collect();
        self.columns.user(self.at.clone(), &values)
    }
}

/// The form of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Sql,
    DbText,
    /// With this octet between values.
    Csv(u8),
}

impl Format {
    fn of(bytes: &[u8]) -> Self {
        let first = bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).find(|l| !l.is_empty());
        let first = first.unwrap_or_default();
        let first = &first[..first.len().min(MAX_LINE)];
        let word = first.iter().take_while(|b| b.is_ascii_alphabetic()).count();
        let is_statement =
            STATEMENTS.iter().any(|s| s.as_bytes().eq_ignore_ascii_case(&first[..word]))
                && first.get(word).is_none_or(|b| b.is_ascii_whitespace() || *b == b';');
        let is_comment = [&b"--"[..], b"/*", b"#", b"\\"].iter().any(|s| first.starts_with(s));
        if is_statement || is_comment {
            Format::Sql
        } else if dbtext::is_header(first) {
            Format::DbText
        } else {
            let delimiter = first.iter().copied().find(|b| b",;\t".contains(b));
            Format::Csv(delimiter.unwrap_or(b','))
        }
    }
}

#[cfg(test)]
mod tests;
