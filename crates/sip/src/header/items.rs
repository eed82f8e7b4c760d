//! The elements of a header field value that is a list.

use crate::syntax::{quoted_end, trim};

/// Splits a field value at its commas (RFC 3261 section 7.3.1), except within quoted strings and angle brackets. Empty
/// elements are returned unchanged: the caller decides whether they are valid.
///
/// No list of RFC 3261 allows comments, and parentheses may occur in the user part of a URI without brackets, so they
/// are ordinary characters here (section 25.1).
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Items<'a> {
    /// Returns the elements of one field value; none if it is empty.
    pub fn new(value: &'a [u8]) -> Self {
        Items { rest: (!value.is_empty()).then_some(value) }
    }

    /// Returns the rest of the value.
    pub fn rest(&self) -> &'a [u8] {
        self.rest.unwrap_or_default()
    }
}

/// Returns the index of the comma that ends the first element, or the length if none does.
pub(crate) fn item_end(bytes: &[u8]) -> usize {
    // Most lists have one element and no comma in it.
    if memchr::memchr(b',', bytes).is_none() {
        return bytes.len();
    }
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b',' => return i,
            // An open quote or bracket extends to the end of the line; nothing after it is guessed.
            b'"' => match quoted_end(bytes, i) {
                Some(end) => i = end,
                None => return bytes.len(),
            },
            b'<' => match memchr::memchr(b'>', &bytes[i..]) {
                Some(close) => i += close + 1,
                None => return bytes.len(),
            },
            _ => i += 1,
        }
    }
    bytes.len()
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let end = item_end(rest);
        self.rest = rest.get(end + 1..);
        Some(trim(&rest[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(value: &str) -> Vec<&str> {
        Items::new(value.as_bytes()).map(|i| core::str::from_utf8(i).unwrap()).collect()
    }

    /// RFC 3261 section 7.3.1.
    #[test]
    fn commas_separate_outside_quotes_and_brackets() {
        assert_eq!(split("a, b ,c"), ["a", "b", "c"]);
        assert_eq!(
            split(r#""x, \"y" <sip:a,b@c>;p="1,2", <sip:d>"#),
            [r#""x, \"y" <sip:a,b@c>;p="1,2""#, "<sip:d>"]
        );
        assert_eq!(split("sip:a(b@c, sip:d"), ["sip:a(b@c", "sip:d"]);
        assert_eq!(split("a,\r\n b"), ["a", "b"]);
    }

    #[test]
    fn empty_elements_are_preserved() {
        assert_eq!(split(""), Vec::<&str>::new());
        assert_eq!(split("a,,b,"), ["a", "", "b", ""]);
    }

    #[test]
    fn an_open_quote_takes_the_rest() {
        assert_eq!(split(r#"a, "b, c"#), ["a", r#""b, c"#]);
    }
}
