//! URIs: `sip`, `sips` (RFC 3261 section 19.1), `tel` (RFC 3966) and any other scheme.
//!
//! [`Uri`] is a view: it borrows the bytes it was parsed from and unescapes nothing. The comparison by the rules of the
//! standard is in `compare`, escaping in `escape`.

mod compare;
mod escape;
mod host;
mod params;

pub use escape::{escape_into, unescape_into};
pub use host::host_ip;
pub use params::{UriHeaders, UriParams};

use host::host_port;
pub(crate) use host::{host_end, port};

use crate::limits::{MAX_PARAMS, MAX_URI};
use crate::syntax::{
    ALPHA, DIGIT, HASH, HEADER, PARAM, PASSWORD, URIC, USER, find_near, is, span_escaped,
};
use ringway_sansio::{Got, Malformed, Transport};
use std::net::IpAddr;

/// The scheme of a URI. Schemes are case-insensitive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme<'a> {
    /// RFC 3261 section 19.1.
    Sip,
    /// RFC 3261 section 19.1: every hop is secure.
    Sips,
    /// RFC 3966.
    Tel,
    /// Any other, as written.
    Other(&'a [u8]),
}

impl<'a> Scheme<'a> {
    /// Returns the scheme as written on the wire, without its colon.
    pub fn as_bytes(&self) -> &'a [u8] {
        match self {
            Scheme::Sip => b"sip",
            Scheme::Sips => b"sips",
            Scheme::Tel => b"tel",
            Scheme::Other(name) => name,
        }
    }
}

/// A parsed URI.
///
/// For a `tel` URI, `user` is the number, `host` is empty and `params` are those of RFC 3966. For an unknown scheme
/// only `scheme` and `opaque` are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uri<'a> {
    /// The scheme.
    pub scheme: Scheme<'a>,
    /// The user part as written, with its escapes; for `tel` the number.
    pub user: Option<&'a [u8]>,
    /// The password as written, with its escapes.
    pub password: Option<&'a [u8]>,
    /// Host name or address; an IPv6 address includes its brackets.
    pub host: &'a [u8],
    /// The port, if present.
    pub port: Option<u16>,
    /// URI parameters from the first semicolon on; empty if there are none.
    pub params: &'a [u8],
    /// Header fields after the question mark, without it; empty if there are none.
    pub headers: &'a [u8],
    /// Everything after the colon of the scheme.
    pub opaque: &'a [u8],
}

impl<'a> Uri<'a> {
    /// Parses a URI that fills `bytes`.
    ///
    /// It accepts a little more than the grammar: `#` in the user part, which phones send unescaped in dialled codes,
    /// and a parameter with `=` but no value.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_URI {
            let got = Got::Number(bytes.len() as u64);
            return Err(Malformed::bad("URI: expected fewer octets", got, MAX_URI));
        }
        let (scheme, at) = scheme(bytes)?;
        match scheme {
            Scheme::Sip | Scheme::Sips => sip(bytes, scheme, at),
            Scheme::Tel => tel(bytes, at),
            Scheme::Other(_) => other(bytes, scheme, at),
        }
    }

    /// Returns whether this is a `sip` or `sips` URI.
    pub fn is_sip(&self) -> bool {
        matches!(self.scheme, Scheme::Sip | Scheme::Sips)
    }

    /// Returns the first URI parameter of this name, in any case: `Some(None)` if it has no value.
    pub fn param(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        if self.params.is_empty() { None } else { self.params().get(name) }
    }

    /// Returns the URI parameters, in order.
    pub fn params(&self) -> UriParams<'a> {
        UriParams::new(self.params)
    }

    /// Returns the URI's header fields, in order.
    pub fn header_fields(&self) -> UriHeaders<'a> {
        UriHeaders::new(self.headers)
    }

    /// Returns the host as an address, if it is one.
    pub fn host_ip(&self) -> Option<IpAddr> {
        host_ip(self.host)
    }

    /// Returns the transport parameter, if Ringway knows the transport.
    pub fn transport(&self) -> Option<Transport> {
        self.param(b"transport").flatten().and_then(Transport::from_token)
    }

    /// Returns whether the `lr` parameter marks a loose router (RFC 3261 section 19.1.1).
    pub fn is_loose_router(&self) -> bool {
        self.param(b"lr").is_some()
    }
}

/// Parses `ALPHA *( ALPHA / DIGIT / "+" / "-" / "." ) ":"`: returns the scheme and the index after its colon.
#[inline]
fn scheme(bytes: &[u8]) -> Result<(Scheme<'_>, usize), Malformed> {
    // Nearly every URI in a SIP message begins with one of these two.
    if bytes.starts_with(b"sip:") {
        return Ok((Scheme::Sip, 4));
    }
    if bytes.starts_with(b"sips:") {
        return Ok((Scheme::Sips, 5));
    }
    let mut end = 0;
    while end < bytes.len()
        && (is(bytes[end], ALPHA)
            || end > 0 && (is(bytes[end], DIGIT) || matches!(bytes[end], b'+' | b'-' | b'.')))
    {
        end += 1;
    }
    if end == 0 || bytes.get(end) != Some(&b':') {
        return Err(Malformed::here("URI: expected a scheme", bytes, end));
    }
    let name = &bytes[..end];
    let scheme = if name.eq_ignore_ascii_case(b"sip") {
        Scheme::Sip
    } else if name.eq_ignore_ascii_case(b"sips") {
        Scheme::Sips
    } else if name.eq_ignore_ascii_case(b"tel") {
        Scheme::Tel
    } else {
        Scheme::Other(name)
    };
    Ok((scheme, end + 1))
}

/// Parses `[ userinfo ] hostport uri-parameters [ headers ]`.
fn sip<'a>(b: &'a [u8], scheme: Scheme<'a>, start: usize) -> Result<Uri<'a>, Malformed> {
    let mut at = start;
    let (mut user, mut password) = (None, None);
    // The user part may contain ';' and '?', so the '@' decides; none may be unescaped after it.
    let end = span_escaped(b, start, USER | HASH);
    let sign = if b.get(end) == Some(&b'@') { Some(end) } else { find_near(b, end, b'@') };
    if let Some(sign) = sign {
        if end == start {
            return Err(Malformed::here("URI: expected a user", b, end));
        }
        user = Some(&b[start..end]);
        let mut stop = end;
        if b[end] == b':' {
            stop = span_escaped(b, end + 1, PASSWORD);
            password = Some(&b[end + 1..stop]);
        }
        if stop != sign {
            return Err(Malformed::here("URI: expected '@' after the user", b, stop));
        }
        at = sign + 1;
    }
    let (host, port, end) = host_port(b, at, "URI: expected a host")?;
    let params_end = if b.get(end) == Some(&b';') { uri_params(b, end)? } else { end };
    let mut headers = &b[..0];
    if params_end < b.len() {
        if b[params_end] != b'?' {
            return Err(Malformed::here("URI: expected ';', '?' or the end", b, params_end));
        }
        headers = &b[params_end + 1..];
        uri_headers(b, params_end + 1)?;
    }
    let opaque = &b[start..];
    Ok(Uri { scheme, user, password, host, port, params: &b[end..params_end], headers, opaque })
}

/// Parses `*( ";" pname [ "=" pvalue ] )` from `at`: returns the index after it.
fn uri_params(b: &[u8], mut at: usize) -> Result<usize, Malformed> {
    let mut count = 0;
    while b.get(at) == Some(&b';') {
        let start = at + 1;
        let end = span_escaped(b, start, PARAM);
        if end == start {
            return Err(Malformed::here("URI: expected a parameter name", b, end));
        }
        at = end;
        if b.get(at) == Some(&b'=') {
            // The grammar requires a value after '='; some phones write `;lr=` and mean no value.
            at = span_escaped(b, at + 1, PARAM);
        }
        count += 1;
        if count > MAX_PARAMS {
            let got = Got::Number(count as u64);
            return Err(Malformed::bad("URI: expected fewer parameters", got, at));
        }
    }
    Ok(at)
}

/// Parses `hname "=" hvalue *( "&" hname "=" hvalue )` from `at` to the end.
fn uri_headers(b: &[u8], mut at: usize) -> Result<(), Malformed> {
    let mut count = 0;
    loop {
        let end = span_escaped(b, at, HEADER);
        if end == at {
            return Err(Malformed::here("URI: expected a header name", b, end));
        }
        if b.get(end) != Some(&b'=') {
            return Err(Malformed::here("URI: expected '='", b, end));
        }
        at = span_escaped(b, end + 1, HEADER);
        count += 1;
        if count > MAX_PARAMS {
            let got = Got::Number(count as u64);
            return Err(Malformed::bad("URI: expected fewer headers", got, at));
        }
        match b.get(at) {
            None => return Ok(()),
            Some(b'&') => at += 1,
            _ => return Err(Malformed::here("URI: expected '&' or the end", b, at)),
        }
    }
}

/// Parses a `tel` URI. RFC 3966 section 3: a number, global with `+` or local, and parameters.
fn tel(b: &[u8], start: usize) -> Result<Uri<'_>, Malformed> {
    let mut at = start;
    let global = b.get(at) == Some(&b'+');
    if global {
        at += 1;
    }
    let first = at;
    let mut digits = 0;
    while let Some(&c) = b.get(at) {
        match c {
            b'0'..=b'9' => digits += 1,
            b'*' | b'#' if !global => digits += 1,
            c if !global && c.is_ascii_hexdigit() => digits += 1,
            b'-' | b'.' | b'(' | b')' => {}
            _ => break,
        }
        at += 1;
    }
    if digits == 0 {
        return Err(Malformed::here("tel URI: expected a number", b, first));
    }
    let number = &b[start..at];
    let params = at;
    let end = uri_params(b, at)?;
    if end != b.len() {
        return Err(Malformed::here("tel URI: expected ';' or the end", b, end));
    }
    Ok(Uri {
        scheme: Scheme::Tel,
        user: Some(number),
        password: None,
        host: &b[..0],
        port: None,
        params: &b[params..],
        headers: &b[..0],
        opaque: &b[start..],
    })
}

/// Parses an `absoluteURI` of an unknown scheme.
fn other<'a>(b: &'a [u8], scheme: Scheme<'a>, start: usize) -> Result<Uri<'a>, Malformed> {
    let end = span_escaped(b, start, URIC);
    if end == start || end != b.len() {
        return Err(Malformed::here("URI: expected URI characters", b, end));
    }
    let none = &b[..0];
    Ok(Uri {
        scheme,
        user: None,
        password: None,
        host: none,
        port: None,
        params: none,
        headers: none,
        opaque: &b[start..],
    })
}

#[cfg(test)]
mod tests;
