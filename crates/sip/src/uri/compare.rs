//! The equivalence of URIs (RFC 3261 section 19.1.4, RFC 3966 section 5), and the key under which an address-of-record
//! is stored (RFC 3261 section 10.3).

use super::escape::{octet, push};
use super::{Scheme, Uri, host_ip};
use crate::syntax::USER;
use crate::write;
use std::net::IpAddr;

/// Parameters that must be in both URIs or in neither.
const NEVER_IGNORED: [&[u8]; 5] = [b"user", b"ttl", b"method", b"maddr", b"transport"];

/// Parameters of a `tel` URI that must be in both or in neither (RFC 3966 section 5.1).
const TEL_NEVER_IGNORED: [&[u8]; 3] = [b"ext", b"isub", b"phone-context"];

impl Uri<'_> {
    /// Returns whether two URIs are equivalent. The relation is not transitive: a parameter that only one of them has
    /// may be ignored.
    pub fn equivalent(&self, other: &Uri<'_>) -> bool {
        match (self.scheme, other.scheme) {
            (Scheme::Sip, Scheme::Sip) | (Scheme::Sips, Scheme::Sips) => self.equivalent_sip(other),
            (Scheme::Tel, Scheme::Tel) => {
                same_number(self.user, other.user)
                    && same_params(self, other, &TEL_NEVER_IGNORED, true)
            }
            (Scheme::Other(a), Scheme::Other(b)) => {
                a.eq_ignore_ascii_case(b) && self.opaque == other.opaque
            }
            _ => false,
        }
    }

    fn equivalent_sip(&self, other: &Uri<'_>) -> bool {
        self.port == other.port
            && same_host(self.host, other.host)
            && same_optional(self.user, other.user)
            && same_optional(self.password, other.password)
            && same_params(self, other, &NEVER_IGNORED, false)
            && same_headers(self, other)
    }

    /// Appends the canonical form of an address-of-record (RFC 3261 section 10.3 step 5): the same bytes for all its
    /// notations. `sips` becomes `sip`; the user is unescaped, and escaped again only where required; the host is in
    /// lower case; a default port, the password, parameters and header fields are left out. Of a `tel` URI only the
    /// digits remain. A URI of another scheme is appended as written.
    pub fn aor(&self, out: &mut Vec<u8>) {
        match self.scheme {
            Scheme::Sip | Scheme::Sips => {
                out.extend_from_slice(b"sip:");
                if let Some(user) = self.user {
                    canonical_user(user, out);
                    out.push(b'@');
                }
                canonical_host(self.host, out);
                // The key has the scheme `sip`, of which 5060 is the default; so it is left out of `sips` as well.
                let default = |port| port == 5060 || port == 5061 && self.scheme == Scheme::Sips;
                if let Some(port) = self.port.filter(|&port| !default(port)) {
                    out.push(b':');
                    write::decimal(out, port as u64);
                }
            }
            Scheme::Tel => {
                out.extend_from_slice(b"tel:");
                out.extend(digits(self.user.unwrap_or_default()));
            }
            Scheme::Other(scheme) => {
                out.extend_from_slice(scheme);
                out.push(b':');
                out.extend_from_slice(self.opaque);
            }
        }
    }
}

fn canonical_user(user: &[u8], out: &mut Vec<u8>) {
    if memchr::memchr2(b'%', b'#', user).is_none() {
        out.extend_from_slice(user);
        return;
    }
    let mut i = 0;
    while i < user.len() {
        let (b, n) = octet(&user[i..]);
        push(b, USER, out);
        i += n;
    }
}

fn canonical_host(host: &[u8], out: &mut Vec<u8>) {
    if host.first() == Some(&b'[')
        && let Some(IpAddr::V6(v6)) = host_ip(host)
    {
        out.push(b'[');
        write::ip(out, IpAddr::V6(v6));
        out.push(b']');
        return;
    }
    let host = host.strip_suffix(b".").unwrap_or(host);
    out.extend(host.iter().map(u8::to_ascii_lowercase));
}

/// Returns a character as it is compared: an escaped character equals itself unescaped, unless it is reserved (RFC 2396
/// section 2.2); then it equals only its escape.
fn symbol(bytes: &[u8], fold: bool) -> (u16, usize) {
    const RESERVED: &[u8] = b";/?:@&=+$,";
    let (mut b, n) = octet(bytes);
    if n == 3 && RESERVED.contains(&b) {
        return (0x100 | b as u16, n);
    }
    if fold {
        b = b.to_ascii_lowercase();
    }
    (b as u16, n)
}

fn same(a: &[u8], b: &[u8], fold: bool) -> bool {
    if a == b {
        return true;
    }
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, n) = symbol(&a[i..], fold);
        let (y, m) = symbol(&b[j..], fold);
        if x != y {
            return false;
        }
        i += n;
        j += m;
    }
    i == a.len() && j == b.len()
}

fn same_optional(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => same(a, b, false),
        (None, None) => true,
        _ => false,
    }
}

fn same_host(a: &[u8], b: &[u8]) -> bool {
    if a.eq_ignore_ascii_case(b) {
        return true;
    }
    match (host_ip(a), host_ip(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => {
            let (a, b) = (a.strip_suffix(b".").unwrap_or(a), b.strip_suffix(b".").unwrap_or(b));
            a.eq_ignore_ascii_case(b)
        }
        _ => false,
    }
}

/// Returns the value of the first parameter of this name; empty if it has none. A name may be escaped as well, so that
/// [`Uri::param`], which compares octets, is not sufficient.
fn find<'u>(uri: &Uri<'u>, name: &[u8]) -> Option<&'u [u8]> {
    uri.params().find(|(n, _)| same(n, name, true)).map(|(_, value)| value.unwrap_or_default())
}

fn same_params(a: &Uri<'_>, b: &Uri<'_>, never: &[&[u8]], tel: bool) -> bool {
    if a.params == b.params {
        return true;
    }
    for name in never {
        if a.param(name).is_some() != b.param(name).is_some() {
            return false;
        }
    }
    // If a name occurs twice, which is invalid (section 19.1.1), the first counts.
    let every = a.params().all(|(name, _)| match (find(a, name), find(b, name)) {
        (Some(one), Some(two)) if tel && name.eq_ignore_ascii_case(b"ext") => {
            same_number(Some(one), Some(two))
        }
        (Some(one), Some(two)) => same(one, two, true),
        _ => !tel,
    });
    // RFC 3966 section 5.1: `tel` URIs differ if only one of them has a parameter.
    every && (!tel || b.params().all(|(name, _)| find(a, name).is_some()))
}

fn same_headers(a: &Uri<'_>, b: &Uri<'_>) -> bool {
    if a.headers.is_empty() && b.headers.is_empty() {
        return true;
    }
    let count = |uri: &Uri<'_>, name: &[u8], value: &[u8]| {
        uri.header_fields().filter(|(n, v)| same(n, name, true) && same(v, value, false)).count()
    };
    a.header_fields().count() == b.header_fields().count()
        && a.header_fields().all(|(name, value)| count(a, name, value) == count(b, name, value))
}

/// Returns a number without its visual separators (RFC 3966 section 5.1.1), in lower case.
fn digits(number: &[u8]) -> impl Iterator<Item = u8> + '_ {
    number.iter().filter(|b| !matches!(b, b'-' | b'.' | b'(' | b')')).map(u8::to_ascii_lowercase)
}

fn same_number(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    digits(a.unwrap_or_default()).eq(digits(b.unwrap_or_default()))
}
