//! Strings of SQL and values of COPY, without their escapes.

use super::lexer::{Quoting, Text};
use super::row::Value;
use std::borrow::Cow;

/// Returns the value of a string.
pub(super) fn text(text: Text<'_>) -> Value<'_> {
    let Text { raw, quote, quoting } = text;
    let escapes = |b: &u8| *b == quote || (*b == b'\\' && quoting != Quoting::Standard);
    if !raw.iter().any(escapes) {
        return Value::Text(Cow::Borrowed(raw));
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&octet, after)) = rest.split_first() {
        rest = after;
        match octet {
            octet if octet == quote && rest.first() == Some(&quote) => {
                out.push(quote);
                rest = &rest[1..];
            }
            b'\\' if quoting == Quoting::MySql => rest = mysql(rest, &mut out),
            b'\\' if quoting == Quoting::Postgres => {
                // Code points by number are not written by pg_dump.
                if rest.first().is_some_and(|b| b"uU".contains(b)) {
                    return Value::Expression;
                }
                rest = postgres(rest, &mut out);
            }
            other => out.push(other),
        }
    }
    Value::Text(Cow::Owned(out))
}

/// Appends what an escape of MySQL means; `rest` begins after the backslash. Returns what follows.
fn mysql<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let Some((&octet, after)) = rest.split_first() else {
        out.push(b'\\');
        return rest;
    };
    match octet {
        b'0' => out.push(0),
        b'b' => out.push(8),
        b'n' => out.push(b'\n'),
        b'r' => out.push(b'\r'),
        b't' => out.push(b'\t'),
        b'Z' => out.push(26),
        b'%' | b'_' => out.extend([b'\\', octet]),
        other => out.push(other),
    }
    after
}

/// Appends what an escape of PostgreSQL means; `rest` begins after the backslash. Returns what follows.
fn postgres<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let number = |digits: &[u8], radix: u32| {
        let text = std::str::from_utf8(digits).unwrap_or_default();
        u32::from_str_radix(text, radix).unwrap_or_default() as u8
    };
    let Some((&octet, after)) = rest.split_first() else {
        out.push(b'\\');
        return rest;
    };
    let simple = match octet {
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'0'..=b'7' => {
            let length = rest.iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
            out.push(number(&rest[..length], 8));
            return &rest[length..];
        }
        b'x' if after.first().is_some_and(u8::is_ascii_hexdigit) => {
            let length = after.iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
            out.push(number(&after[..length], 16));
            return &after[length..];
        }
        other => other,
    };
    out.push(simple);
    after
}

/// Returns a value of the text format of COPY.
pub(super) fn copied(raw: &[u8]) -> Value<'_> {
    if raw == b"\\N" {
        return Value::Null;
    }
    if !raw.contains(&b'\\') {
        return Value::Text(Cow::Borrowed(raw));
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&octet, after)) = rest.split_first() {
        rest = after;
        match octet {
            b'\\' => rest = postgres(rest, &mut out),
            other => out.push(other),
        }
    }
    Value::Text(Cow::Owned(out))
}
