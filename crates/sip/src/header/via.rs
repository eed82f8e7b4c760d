//! Via (RFC 3261 section 20.42, RFC 3581).

use super::params::{known_param, next_param};
use crate::limits::{MAX_PARAMS, MAX_TAG};
use crate::syntax::{TOKEN, number, spaces, span};
use crate::uri::{host_end, port};
use ringway_sansio::{Got, Malformed, Transport};

/// The prefix of a branch that is unique in space and time (RFC 3261 section 8.1.1.7).
pub const MAGIC_COOKIE: &[u8] = b"z9hG4bK";

/// One element of a Via header field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Via<'a> {
    /// The transport of sent-protocol, as written: `UDP`, `TCP`, or any token.
    pub transport: &'a [u8],
    /// The host of sent-by; an IPv6 address includes its brackets.
    pub host: &'a [u8],
    /// The port of sent-by, if present.
    pub port: Option<u16>,
    /// All parameters from the first semicolon on; empty if there are none.
    pub params: &'a [u8],
    /// The branch parameter; empty if there is none.
    pub branch: &'a [u8],
    /// The received parameter (RFC 3261 section 18.2.1).
    pub received: Option<&'a [u8]>,
    /// The rport parameter (RFC 3581): `Some(None)` if it asks for a value.
    pub rport: Option<Option<u16>>,
    /// The maddr parameter.
    pub maddr: Option<&'a [u8]>,
    /// This one element, without white space around it.
    pub element: &'a [u8],
}

impl<'a> Via<'a> {
    /// Parses one element of a Via field value.
    pub fn parse(element: &'a [u8]) -> Result<Self, Malformed> {
        let b = element;
        let (transport, at) = sent_protocol(b)?;
        let (host, port, end) = sent_by(b, at)?;
        let start = spaces(b, end);
        let mut via = Via {
            transport,
            host,
            port,
            params: &b[start..],
            branch: b"",
            received: None,
            rport: None,
            maddr: None,
            element,
        };
        let mut at = end;
        let mut count = 0;
        while let Some(((name, value), next)) = match known_param(b, at, b";branch=") {
            None => next_param(b, at)?,
            known => known,
        } {
            count += 1;
            if count > MAX_PARAMS {
                let got = Got::Number(count as u64);
                return Err(Malformed::bad("Via: expected fewer parameters", got, at));
            }
            match name.len() {
                6 if is_name(name, b"branch") => {
                    if !via.branch.is_empty() {
                        return Err(Malformed::bad("Via: expected one branch", Got::Several, at));
                    }
                    via.branch =
                        value.ok_or_else(|| Malformed::here("Via: expected a branch", b, next))?;
                    if via.branch.len() > MAX_TAG {
                        let got = Got::Number(via.branch.len() as u64);
                        return Err(Malformed::bad("Via: expected a shorter branch", got, at));
                    }
                }
                8 if is_name(name, b"received") => via.received = value,
                5 if is_name(name, b"rport") => via.rport = Some(port_of(value, b, at)?),
                5 if is_name(name, b"maddr") => via.maddr = value,
                _ => {}
            }
            at = next;
        }
        Ok(via)
    }

    /// Returns the transport, if Ringway knows it.
    pub fn transport(&self) -> Option<Transport> {
        Transport::from_token(self.transport)
    }

    /// Returns whether the branch begins with the cookie of RFC 3261 section 8.1.1.7, in any case, and continues after
    /// it. The cookie alone identifies nothing, and is treated as a branch of RFC 2543 (RFC 4475 section 3.2.1).
    pub fn has_cookie(&self) -> bool {
        let (cookie, rest) = self.branch.split_at(MAGIC_COOKIE.len().min(self.branch.len()));
        cookie.eq_ignore_ascii_case(MAGIC_COOKIE) && !rest.is_empty()
    }

    /// Returns the value of a parameter: `Some(None)` if it has none.
    pub fn param(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        super::Params::new(self.params).get(name)
    }
}

/// Parses `protocol-name SLASH protocol-version SLASH transport LWS`: returns the transport, and the index of sent-by.
fn sent_protocol(b: &[u8]) -> Result<(&[u8], usize), Malformed> {
    const PLAIN: &[u8] = b"SIP/2.0/";
    let mut at = 0;
    if b.starts_with(PLAIN) {
        at = PLAIN.len();
    } else {
        for expected in ["Via: expected a protocol name", "Via: expected a protocol version"] {
            let end = span(b, at, TOKEN);
            if end == at {
                return Err(Malformed::here(expected, b, at));
            }
            let slash = spaces(b, end);
            if b.get(slash) != Some(&b'/') {
                return Err(Malformed::here("Via: expected '/'", b, slash));
            }
            at = slash + 1;
            at = spaces(b, at);
        }
    }
    at = spaces(b, at);
    let end = span(b, at, TOKEN);
    if end == at {
        return Err(Malformed::here("Via: expected a transport", b, at));
    }
    let next = spaces(b, end);
    if next == end {
        return Err(Malformed::here("Via: expected a space before the host", b, next));
    }
    Ok((&b[at..end], next))
}

/// Parses `host [ COLON port ]`; the colon may have white space around it.
fn sent_by(b: &[u8], at: usize) -> Result<(&[u8], Option<u16>, usize), Malformed> {
    let end = host_end(b, at, "Via: expected a host")?;
    let host = &b[at..end];
    let colon = spaces(b, end);
    if b.get(colon) != Some(&b':') {
        return Ok((host, None, end));
    }
    let (port, end) = port(b, spaces(b, colon + 1))?;
    Ok((host, Some(port), end))
}

/// Returns whether a name is `known`. Nearly all implementations write it in lower case.
#[inline(always)]
fn is_name<const N: usize>(name: &[u8], known: &[u8; N]) -> bool {
    name == known || name.eq_ignore_ascii_case(known)
}

fn port_of(value: Option<&[u8]>, b: &[u8], at: usize) -> Result<Option<u16>, Malformed> {
    match value {
        None => Ok(None),
        Some(digits) => match number(digits, u16::MAX as u64) {
            Some(n) => Ok(Some(n as u16)),
            None => Err(Malformed::here("Via: expected a port number in rport", b, at)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 section 20.42.
    #[test]
    fn all_parts_are_found() {
        let text = b"SIP/2.0/UDP pc33.atlanta.com:5070;branch=z9hG4bK776;received=192.0.2.1;rport;\
            maddr=224.2.0.1 ; ttl=16";
        let v = Via::parse(text).unwrap();
        assert_eq!(v.transport, b"UDP");
        assert_eq!(v.transport(), Some(Transport::Udp));
        assert_eq!((v.host, v.port), (&b"pc33.atlanta.com"[..], Some(5070)));
        assert_eq!(v.branch, b"z9hG4bK776");
        assert!(v.has_cookie());
        assert_eq!(v.received, Some(&b"192.0.2.1"[..]));
        assert_eq!(v.rport, Some(None));
        assert_eq!(v.maddr, Some(&b"224.2.0.1"[..]));
        assert_eq!(v.param(b"ttl"), Some(Some(&b"16"[..])));
        assert!(v.params.starts_with(b";branch"));
    }

    /// RFC 4475 section 3.1.1.1: white space and folds wherever the grammar allows them.
    #[test]
    fn spaces_and_folds() {
        let text =
            b"SIP  / 2.0\r\n / TCP     spindle.example.com   ;\r\n  branch  =   z9hG4bK9ikj8  ;\
            \r\n  q1";
        let v = Via::parse(text).unwrap();
        assert_eq!((v.transport, v.host), (&b"TCP"[..], &b"spindle.example.com"[..]));
        assert_eq!(v.branch, b"z9hG4bK9ikj8");
        // RFC 3261 section 20.42.
        let v = Via::parse(b"SIP / 2.0 / UDP first.example.com: 4000;ttl=16").unwrap();
        assert_eq!((v.host, v.port), (&b"first.example.com"[..], Some(4000)));
    }

    /// RFC 5118 section 4.5: received may hold an IPv6 address without brackets.
    #[test]
    fn ipv6() {
        let v = Via::parse(b"SIP/2.0/UDP [2001:db8::9:1]:6050;received=2001:db8::9:255;rport=7")
            .unwrap();
        assert_eq!((v.host, v.port), (&b"[2001:db8::9:1]"[..], Some(6050)));
        assert_eq!(v.received, Some(&b"2001:db8::9:255"[..]));
        assert_eq!(v.rport, Some(Some(7)));
    }

    #[test]
    fn faults_are_reported() {
        for bad in [
            &b""[..],
            b"SIP/2.0 host",
            b"SIP/2.0/UDP",
            b"SIP/2.0/UDP ;branch=x",
            b"SIP/2.0/UDP host;;",
            b"SIP/2.0/UDP host;branch",
            b"SIP/2.0/UDP host;rport=x",
            b"SIP/2.0/UDP host:99999",
            b"SIP/2.0/UDP host:",
            b"SIP/2.0/UDP [::1",
            b"SIP/2.0/UDP host x",
            b"SIP/2.0/UDP host;branch=a;branch=b",
        ] {
            assert_eq!(Via::parse(bad).unwrap_err().status, 400, "{bad:?}");
        }
        let many = [&b"SIP/2.0/UDP h"[..], &b";a".repeat(MAX_PARAMS + 1)].concat();
        assert!(Via::parse(&many).is_err());
    }
}
