//! A table of Kamailio's module db_text: a line of columns, `name(type[,attribute])` with spaces between, and a line for
//! each row, with colons between the values.

use super::row::{Columns, MAX_COLUMNS, Value};
use crate::MAX_LINE;
use crate::error::FileError;
use crate::found::{Found, Position, Reason, Refusal};
use std::borrow::Cow;
use std::sync::Arc;

/// Returns whether a line is the first one of a table.
pub(super) fn is_header(line: &[u8]) -> bool {
    let mut columns = words(line).peekable();
    columns.peek().is_some() && columns.all(|column| name(column).is_some())
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| *b == b' ').filter(|word| !word.is_empty())
}

/// Returns the name of a column.
fn name(column: &[u8]) -> Option<&[u8]> {
    let open = column.iter().position(|b| *b == b'(')?;
    let name = &column[..open];
    let fits = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    (!name.is_empty() && name.iter().all(fits) && column.ends_with(b")")).then_some(name)
}

pub(super) fn read(file: &Arc<str>, bytes: &[u8], found: &mut Found) -> Result<(), FileError> {
    let mut columns: Option<Columns> = None;
    let mut values = Vec::new();
    for (line, text) in (1..).zip(bytes.split(|b| *b == b'\n')) {
        let at = Position { file: file.clone(), line };
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.len() > MAX_LINE {
            return Err(FileError::Limit { at, what: "bytes of a line", max: MAX_LINE });
        }
        if text.is_empty() {
            continue;
        }
        let Some(columns) = &columns else {
            let names: Vec<&[u8]> = words(text.trim_ascii()).filter_map(name).collect();
            columns = Some(Columns::new(&at, &names)?);
            continue;
        };
        values.clear();
        let user = match split(text, &mut values) {
            Ok(()) => columns.user(at, &values),
            Err(reason) => Err(Refusal { at, name: None, reason }),
        };
        found.add(user)?;
    }
    Ok(())
}

/// Splits a row into its values.
fn split<'a>(row: &'a [u8], values: &mut Vec<Value<'a>>) -> Result<(), Reason> {
    let mut rest = Some(row);
    while let Some(text) = rest {
        if values.len() > MAX_COLUMNS {
            break;
        }
        let mut escaped = false;
        let end = text.iter().position(|b| {
            let is_end = *b == b':' && !escaped;
            escaped = *b == b'\\' && !escaped;
            is_end
        });
        let value = &text[..end.unwrap_or(text.len())];
        rest = end.map(|end| &text[end + 1..]);
        values.push(Value::Text(unescape(value).ok_or(Reason::Escape)?));
    }
    Ok(())
}

fn unescape(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !value.contains(&b'\\') {
        return Some(Cow::Borrowed(value));
    }
    let mut out = Vec::with_capacity(value.len());
    let mut octets = value.iter();
    while let Some(&octet) = octets.next() {
        out.push(match octet {
            b'\\' => match octets.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'0' => 0,
                same @ (b'\\' | b':') => *same,
                _ => return None,
            },
            other => other,
        });
    }
    Some(Cow::Owned(out))
}
