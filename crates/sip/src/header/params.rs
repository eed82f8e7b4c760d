//! Header field parameters: `generic-param` of RFC 3261 section 25.1.

use crate::syntax::{TOKEN, VALUE, quoted_end, spaces, span};
use ringway_sansio::Malformed;

/// A name, and a value if there is one.
pub(crate) type Param<'a> = (&'a [u8], Option<&'a [u8]>);

/// Parses the parameter at `from`, where a semicolon is expected. Returns it with the index after it; `None` at the end
/// of the text.
#[inline(always)]
pub(crate) fn next_param(
    bytes: &[u8],
    from: usize,
) -> Result<Option<(Param<'_>, usize)>, Malformed> {
    let semicolon = spaces(bytes, from);
    if semicolon == bytes.len() {
        return Ok(None);
    }
    if bytes[semicolon] != b';' {
        return Err(Malformed::here("expected ';' or the end", bytes, semicolon));
    }
    let start = spaces(bytes, semicolon + 1);
    let end = span(bytes, start, TOKEN);
    if end == start {
        return Err(Malformed::here("expected a parameter name", bytes, start));
    }
    let name = &bytes[start..end];
    let equal = spaces(bytes, end);
    if bytes.get(equal) != Some(&b'=') {
        return Ok(Some(((name, None), end)));
    }
    let start = spaces(bytes, equal + 1);
    let end = if bytes.get(start) == Some(&b'"') {
        quoted_end(bytes, start)
            .ok_or_else(|| Malformed::here("expected a closing quote", bytes, bytes.len()))?
    } else {
        span(bytes, start, VALUE)
    };
    if end == start {
        return Err(Malformed::here("expected a parameter value", bytes, start));
    }
    Ok(Some(((name, Some(&bytes[start..end])), end)))
}

/// Returns the result of [`next_param`] for a parameter that begins with `start`, a semicolon, its name and `=`, and
/// has an unquoted value; `None` for any other.
#[inline(always)]
pub(crate) fn known_param<'a, const N: usize>(
    bytes: &'a [u8],
    from: usize,
    start: &[u8; N],
) -> Option<(Param<'a>, usize)> {
    if bytes.get(from..)?.first_chunk() != Some(start) {
        return None;
    }
    let value = from + N;
    let end = span(bytes, value, VALUE);
    let name = bytes.get(from + 1..value - 1)?;
    (end > value).then(|| ((name, Some(&bytes[value..end])), end))
}

/// The parameters of a header field element, in order: name, and value if there is one. A quoted value includes its
/// quotes. Ends at the first error.
#[derive(Clone, Debug)]
pub struct Params<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Params<'a> {
    /// Returns the parameters of a text that is empty or begins with a semicolon.
    pub fn new(bytes: &'a [u8]) -> Self {
        Params { bytes, at: 0 }
    }

    /// Returns the first parameter of this name, in any case: `Some(None)` if it has no value.
    pub fn get(mut self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        self.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Params<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        match next_param(self.bytes, self.at) {
            Ok(Some((param, next))) => {
                self.at = next;
                Some(param)
            }
            _ => {
                self.at = self.bytes.len();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        let all: Vec<_> = Params::new(b" ;a ; b = c;d=\"x;y\" ;e=[::1]").collect();
        assert_eq!(
            all,
            [
                (&b"a"[..], None),
                (b"b", Some(&b"c"[..])),
                (b"d", Some(b"\"x;y\"")),
                (b"e", Some(b"[::1]")),
            ]
        );
        assert_eq!(Params::new(b";TAG=1").get(b"tag"), Some(Some(&b"1"[..])));
        assert_eq!(Params::new(b";lr").get(b"lr"), Some(None));
        assert_eq!(Params::new(b";lr").get(b"tag"), None);
    }

    /// For any text, `known_param` returns what `next_param` does.
    #[test]
    fn known_parameters_are_those_that_are_read() {
        for text in [
            &b";tag=a"[..],
            b";tag=a;tag=b",
            b";tag=a ; b",
            b";tag=[::1]",
            b";tag= a",
            b";tag =a",
            b"; tag=a",
            b";TAG=a",
            b";tag=\"a\"",
            b";tag=",
            b";tag=;b",
            b";tag=,",
            b";tag",
            b";tags=a",
            b"",
        ] {
            if let Some(known) = known_param(text, 0, b";tag=") {
                assert_eq!(next_param(text, 0).unwrap(), Some(known));
            } else {
                assert!(!text.starts_with(b";tag=a") && !text.starts_with(b";tag=["));
            }
        }
    }

    #[test]
    fn faults_are_reported_and_end_the_iterator() {
        for bad in [&b";;"[..], b";a=", b";a=\"x", b"x", b";a=b c", b";a=;b"] {
            let mut at = 0;
            loop {
                match next_param(bad, at) {
                    Ok(Some((_, next))) => at = next,
                    Ok(None) => panic!("{bad:?} passed"),
                    Err(e) => break assert_eq!(e.status, 400),
                }
            }
            assert!(Params::new(bad).count() <= 1);
        }
    }
}
