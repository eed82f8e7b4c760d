//! CSV (RFC 4180) with a header, with commas or semicolons; and the output of `mysql --batch`, with tabs.

use super::row::{Columns, MAX_COLUMNS, Value};
use crate::error::FileError;
use crate::found::{Found, Position};
use csv::{ByteRecord, ReaderBuilder};
use std::borrow::Cow;
use std::sync::Arc;

const EXPECTED: &str = "a dump in SQL, a table of db_text, or CSV whose first line names the columns, `username` among them";

pub(super) fn read(
    file: &Arc<str>,
    bytes: &[u8],
    delimiter: u8,
    found: &mut Found,
) -> Result<(), FileError> {
    let batch = delimiter == b'\t';
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .quoting(!batch)
        .from_reader(bytes);
    let mut record = ByteRecord::new();
    let mut columns = None;
    let mut lines = Lines { bytes, at: 0, line: 1 };
    loop {
        let more = reader.read_byte_record(&mut record);
        let start = record.position().and_then(|p| usize::try_from(p.byte()).ok());
        let at = Position { file: file.clone(), line: lines.line_of(start.unwrap_or(bytes.len())) };
        match more {
            Ok(true) => {}
            Ok(false) if columns.is_some() => return Ok(()),
            Ok(false) | Err(_) => return Err(FileError::Format { at, expected: EXPECTED }),
        }
        let Some(columns) = &columns else {
            let names: Vec<&[u8]> = fields(&record).map(<[u8]>::trim_ascii).collect();
            if !names.iter().any(|n| n.eq_ignore_ascii_case(b"username")) {
                return Err(FileError::Format { at, expected: EXPECTED });
            }
            columns = Some(Columns::new(&at, &names)?);
            continue;
        };
        let values: Vec<Value<'_>> = fields(&record).map(|field| value(field, batch)).collect();
        found.add(columns.user(at, &values))?;
    }
}

/// Counts lines up to positions that grow. The reader's own count is one less where lines end with CR LF.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

impl Lines<'_> {
    /// Returns the line of the first octet at or behind a position that does not end a line.
    fn line_of(&mut self, start: usize) -> u32 {
        let rest = self.bytes.get(start..).unwrap_or_default();
        let end = start + rest.iter().take_while(|b| b"\r\n".contains(b)).count();
        let passed = self.bytes.get(self.at..end).unwrap_or_default();
        let lines = passed.iter().filter(|b| **b == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.at = self.at.max(end);
        self.line
    }
}

/// Returns the fields, at most one more than there may be.
fn fields(record: &ByteRecord) -> impl Iterator<Item = &[u8]> {
    record.iter().take(MAX_COLUMNS + 1)
}

/// Returns the value of a field. `\N` is the NULL of `SELECT .. INTO OUTFILE` of MySQL.
fn value(field: &[u8], batch: bool) -> Value<'_> {
    match field {
        b"\\N" => Value::Null,
        b"NULL" if batch => Value::Null,
        _ if batch && field.contains(&b'\\') => Value::Text(Cow::Owned(unescape(field))),
        _ => Value::Text(Cow::Borrowed(field)),
    }
}

/// Removes the escapes that `mysql --batch` writes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut octets = field.iter();
    while let Some(&octet) = octets.next() {
        match (octet, octets.clone().next()) {
            (b'\\', Some(next @ (b'n' | b't' | b'0' | b'\\'))) => {
                octets.next();
                out.push(match next {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'0' => 0,
                    _ => b'\\',
                });
            }
            _ => out.push(octet),
        }
    }
    out
}
