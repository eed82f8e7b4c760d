//! `name-addr` and `addr-spec` with parameters: From, To, Contact, Route, Record-Route, Path,
//! Service-Route, Refer-To, Reply-To and the identities (RFC 3261 section 20.10, section 25.1).

use super::params::{Params, known_param, next_param};
use crate::limits::{MAX_PARAMS, MAX_URI};
use crate::syntax::{DISPLAY, WS, find_near, is, quoted_end, spaces, span, trim};
use ringway_sansio::{Got, Malformed};

/// An address with its display name and the header field parameters that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameAddr<'a> {
    /// The display name as written, with its quotes if it has them; empty if there is none.
    pub display: &'a [u8],
    /// The URI as written, without angle brackets.
    pub uri: &'a [u8],
    /// All header field parameters from the first semicolon on; empty if there are none.
    pub params: &'a [u8],
    /// Whether the URI was in angle brackets.
    pub bracketed: bool,
    /// This one element, without white space around it.
    pub element: &'a [u8],
    /// The tag parameter: `Some(None)` if it has no value.
    pub(crate) tag: Option<Option<&'a [u8]>>,
}

impl<'a> NameAddr<'a> {
    /// Parses one element. The URI itself is not parsed: see [`Uri`](crate::Uri).
    ///
    /// Without angle brackets a semicolon ends the URI: the parameters belong to the header field, and the URI must not
    /// contain a comma or a question mark (RFC 3261 section 20.10).
    pub fn parse(element: &'a [u8]) -> Result<Self, Malformed> {
        let b = trim(element);
        let (display, open) = if b.first() == Some(&b'"') {
            let end = quoted_end(b, 0)
                .ok_or_else(|| Malformed::here("expected a closing quote", b, b.len()))?;
            let open = spaces(b, end);
            if b.get(open) != Some(&b'<') {
                return Err(Malformed::here("expected '<' after the display name", b, open));
            }
            (&b[..end], Some(open))
        } else {
            // Most have no display name.
            let stop = if b.first() == Some(&b'<') { 0 } else { span(b, 0, DISPLAY) };
            match b.get(stop) {
                Some(b'<') if stop == 0 => (&b[..0], Some(0)),
                Some(b'<') => (trim(&b[..stop]), Some(stop)),
                Some(b':') => (&b[..0], None),
                _ => return Err(Malformed::here("expected an address", b, stop)),
            }
        };
        let (uri, end) = match open {
            Some(open) => {
                let start = open + 1;
                let close = find_near(b, start, b'>')
                    .ok_or_else(|| Malformed::here("expected '>'", b, b.len()))?;
                (&b[start..close], close + 1)
            }
            None => bare(b)?,
        };
        if uri.is_empty() {
            return Err(Malformed::here("expected a URI", b, end));
        }
        if uri.len() > MAX_URI {
            let got = Got::Number(uri.len() as u64);
            return Err(Malformed::bad("expected a shorter URI", got, end));
        }
        let start = spaces(b, end);
        let mut at = end;
        let mut count = 0;
        let mut tag = None;
        while let Some(((name, value), next)) = match known_param(b, at, b";tag=") {
            None => next_param(b, at)?,
            known => known,
        } {
            // RFC 3261 section 7.3.1: no parameter twice. Checked for this one only.
            if name.len() == 3
                && (name == b"tag" || name.eq_ignore_ascii_case(b"tag"))
                && tag.replace(value).is_some()
            {
                return Err(Malformed::bad("expected one tag", Got::Several, at));
            }
            count += 1;
            if count > MAX_PARAMS {
                let got = Got::Number(count as u64);
                return Err(Malformed::bad("expected fewer parameters", got, at));
            }
            at = next;
        }
        let (params, bracketed) = (&b[start..], open.is_some());
        Ok(NameAddr { display, uri, params, bracketed, element: b, tag })
    }

    /// Returns the tag parameter (RFC 3261 section 19.3), if it has a value.
    pub fn tag(&self) -> Option<&'a [u8]> {
        self.tag.flatten()
    }

    /// Returns whether there is a tag parameter, with or without a value.
    pub(crate) fn has_tag(&self) -> bool {
        self.tag.is_some()
    }

    /// Returns a header field parameter: `Some(None)` if it has no value. Quoted values include their quotes.
    pub fn param(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        if self.params.is_empty() { None } else { Params::new(self.params).get(name) }
    }

    /// Returns the header field parameters in order.
    pub fn params(&self) -> Params<'a> {
        Params::new(self.params)
    }
}

/// Returns an `addr-spec` without brackets: it ends at the first semicolon or white space.
fn bare(b: &[u8]) -> Result<(&[u8], usize), Malformed> {
    let mut end = 0;
    while end < b.len() && b[end] != b';' && !is(b[end], WS) {
        if matches!(b[end], b'?' | b',' | b'<' | b'>' | b'"') {
            return Err(Malformed::here("expected angle brackets around this URI", b, end));
        }
        end += 1;
    }
    Ok((&b[..end], end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> NameAddr<'_> {
        NameAddr::parse(text.as_bytes()).unwrap()
    }

    /// RFC 3261 section 20.10 and section 20.20.
    #[test]
    fn forms_of_an_address() {
        let a = parse(r#""A. G. Bell" <sip:agb@bell-telephone.com> ;tag=a48s"#);
        assert_eq!(a.display, br#""A. G. Bell""#);
        assert_eq!(a.uri, b"sip:agb@bell-telephone.com");
        assert_eq!(a.tag(), Some(&b"a48s"[..]));
        let a = parse("sip:+12125551212@server.phone2net.com;tag=887s");
        assert_eq!((a.display, a.uri), (&b""[..], &b"sip:+12125551212@server.phone2net.com"[..]));
        assert_eq!(a.tag(), Some(&b"887s"[..]));
        let a = parse("Anonymous <sip:c8oqz84zk7z@privacy.org>;tag=hyh8");
        assert_eq!(a.display, b"Anonymous");
        let a = parse("Mr.\r\n Watson<sip:w@x;lr?a=b>;q=0.7; expires=3600");
        assert_eq!((a.display, a.uri), (&b"Mr.\r\n Watson"[..], &b"sip:w@x;lr?a=b"[..]));
        assert_eq!(a.param(b"Q"), Some(Some(&b"0.7"[..])));
    }

    /// RFC 3261 section 20.10: without brackets, parameters belong to the header field.
    #[test]
    fn parameters_without_brackets_are_the_headers() {
        let a = parse("sip:caller@example.com;transport=tcp");
        assert_eq!(a.uri, b"sip:caller@example.com");
        assert_eq!(a.params, b";transport=tcp");
    }

    /// RFC 4475 section 3.1.1.6: no white space between display name and bracket.
    #[test]
    fn no_space_before_the_bracket() {
        assert_eq!(parse("caller<sip:caller@example.com>;tag=323").display, b"caller");
        assert_eq!(parse("<sip:a@b>").display, b"");
        assert_eq!(parse("\"\"<sip:a@b>").display, b"\"\"");
    }

    #[test]
    fn faults_are_reported() {
        for bad in [
            "",
            "\"Bell <sip:a@b>",
            "\"Bell\" sip:a@b",
            "Bell, Alexander <sip:a@b>",
            "<sip:a@b",
            "<>",
            "sip:user@example.com?Route=%3Csip:sip.example.com%3E",
            "<sip:a@b> x",
            "<sip:a@b>;",
            "<sip:a@b>;;tag=1",
            "just words",
            "<sip:a@b>;tag=1;TAG=2",
        ] {
            assert_eq!(NameAddr::parse(bad.as_bytes()).unwrap_err().status, 400, "{bad}");
        }
    }
}
