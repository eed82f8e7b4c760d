//! `auth-param`: names and values with commas between them, after the name of a scheme.

use crate::limits::MAX_PARAMS;
use crate::syntax::{TOKEN, WS, is, quoted_end, span};
use ringway_sansio::{Got, Malformed};
use std::borrow::Cow;

/// A name and its value. A quoted value is without its quotes, and with its escapes.
pub(super) type AuthParam<'a> = (&'a [u8], &'a [u8]);

/// Parses the scheme at the start of a field value, which must be `Digest` in any case, and calls `each` for every
/// parameter. If a name repeats, the last one counts.
pub(super) fn each<'a>(
    value: &'a [u8],
    mut each: impl FnMut(AuthParam<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let b = value;
    let mut at = span(b, 0, TOKEN);
    if !b[..at].eq_ignore_ascii_case(b"Digest") {
        return Err(Malformed::here("expected the Digest scheme", b, 0));
    }
    if !b.get(at).is_some_and(|&c| is(c, WS)) {
        return Err(Malformed::here("expected a space after Digest", b, at));
    }
    let mut count = 0;
    loop {
        let start = span(b, at, WS);
        let end = span(b, start, TOKEN);
        if end == start {
            return Err(Malformed::here("expected a parameter name", b, start));
        }
        let equal = span(b, end, WS);
        if b.get(equal) != Some(&b'=') {
            return Err(Malformed::here("expected '='", b, equal));
        }
        let from = span(b, equal + 1, WS);
        let (content, next) = if b.get(from) == Some(&b'"') {
            let next = quoted_end(b, from)
                .ok_or_else(|| Malformed::here("expected a closing quote", b, b.len()))?;
            (&b[from + 1..next - 1], next)
        } else {
            let next = span(b, from, TOKEN);
            if next == from {
                return Err(Malformed::here("expected a parameter value", b, from));
            }
            (&b[from..next], next)
        };
        count += 1;
        if count > MAX_PARAMS {
            let got = Got::Number(count as u64);
            return Err(Malformed::bad("expected fewer parameters", got, start));
        }
        each((&b[start..end], content)).map_err(|e| e.moved(start))?;
        at = span(b, next, WS);
        match b.get(at) {
            None => return Ok(()),
            Some(b',') => at += 1,
            Some(_) => return Err(Malformed::here("expected ',' or the end", b, at)),
        }
    }
}

/// Returns a quoted value without its escapes (RFC 3261 section 25.1, quoted-pair).
pub(super) fn unquote(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter();
    while let Some(&b) = bytes.next() {
        match (b, bytes.as_slice().first()) {
            (b'\\', Some(&escaped)) => {
                out.push(escaped);
                bytes.next();
            }
            _ => out.push(b),
        }
    }
    Cow::Owned(out)
}
