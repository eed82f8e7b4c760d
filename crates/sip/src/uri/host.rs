//! Hosts and ports.

use crate::limits::MAX_HOST;
use crate::syntax::{DIGIT, LABEL, is, span};
use ringway_sansio::{Got, Malformed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the host as an address, if it is one; an IPv6 address with or without brackets.
pub fn host_ip(host: &[u8]) -> Option<IpAddr> {
    match host.first()? {
        b'[' => {
            let inner = host.strip_prefix(b"[")?.strip_suffix(b"]")?;
            ipv6(inner).map(IpAddr::V6)
        }
        b'0'..=b'9' => match ipv4(host) {
            Some(v4) => Some(IpAddr::V4(v4)),
            None => ipv6(host).map(IpAddr::V6),
        },
        b':' | b'a'..=b'f' | b'A'..=b'F' => ipv6(host).map(IpAddr::V6),
        _ => None,
    }
}

fn ipv4(host: &[u8]) -> Option<Ipv4Addr> {
    match ipv4_prefix(host, 0) {
        Some((address, end)) if end == host.len() => Some(address),
        _ => None,
    }
}

/// Parses `1*3DIGIT` four times, each up to 255, from `at` on; returns the index after it too. One loop, because it
/// runs for most hosts of most messages.
#[inline(always)]
fn ipv4_prefix(b: &[u8], at: usize) -> Option<(Ipv4Addr, usize)> {
    // The start of the octet, to count its digits.
    let (mut address, mut octet, mut start, mut dots) = (0u32, 0u32, at, 0);
    let mut end = at;
    for &c in b.get(at..)? {
        let digit = c.wrapping_sub(b'0');
        if digit <= 9 {
            octet = octet.wrapping_mul(10).wrapping_add(digit as u32);
        } else if c == b'.' && dots < 3 {
            if !matches!(end - start, 1..=3) || octet > 255 {
                return None;
            }
            address = address << 8 | octet;
            (octet, start) = (0, end + 1);
            dots += 1;
        } else {
            break;
        }
        end += 1;
    }
    if dots < 3 || !matches!(end - start, 1..=3) || octet > 255 {
        return None;
    }
    Some((Ipv4Addr::from_bits(address << 8 | octet), end))
}

fn ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    if text.len() > 46 {
        return None;
    }
    if let Ok(address) = core::str::from_utf8(text).ok()?.parse() {
        return Some(address);
    }
    // RFC 5118 section 4.10: the grammar of RFC 3261 makes `2001:db8:::192.0.2.1`, with a colon
    // too many before the IPv4 address, and both forms must be tolerated.
    let extra = memchr::memmem::find(text, b":::")?;
    if !is(*text.get(extra + 3)?, DIGIT) || memchr::memchr(b'.', &text[extra..]).is_none() {
        return None;
    }
    let mut corrected = [0u8; 46];
    let rest = &text[extra + 1..];
    corrected[..extra].copy_from_slice(&text[..extra]);
    corrected[extra..extra + rest.len()].copy_from_slice(rest);
    core::str::from_utf8(&corrected[..extra + rest.len()]).ok()?.parse().ok()
}

/// Returns the index after the host that begins at `at`.
///
/// A few more host names are accepted than the grammar allows: labels may contain underscores and the last may begin
/// with a digit, as names of machines do. A host of digits and dots must be an IPv4 address.
#[inline(always)]
pub(crate) fn host_end(b: &[u8], at: usize, expected: &'static str) -> Result<usize, Malformed> {
    if b.get(at).is_some_and(u8::is_ascii_digit)
        && let Some((_, end)) = ipv4_prefix(b, at)
        && !b.get(end).is_some_and(|&c| c == b'.' || is(c, LABEL))
    {
        return Ok(end);
    }
    if b.get(at) == Some(&b'[') { ipv6_end(b, at) } else { name_end(b, at, expected) }
}

/// Returns the same as [`host_end`] for an IPv6 address in brackets.
fn ipv6_end(b: &[u8], at: usize) -> Result<usize, Malformed> {
    let close = b[at..].iter().take(64).position(|&c| c == b']');
    let Some(close) = close else {
        return Err(Malformed::bad("expected ']' after an IPv6 address", Got::Missing, at));
    };
    let end = at + close + 1;
    if ipv6(&b[at + 1..end - 1]).is_none() {
        return Err(Malformed::here("expected an IPv6 address", b, at));
    }
    Ok(end)
}

/// Returns the same as [`host_end`] for a name.
fn name_end(b: &[u8], at: usize, expected: &'static str) -> Result<usize, Malformed> {
    let mut end = at;
    loop {
        // One label: not empty, with no hyphen at either end.
        let start = end;
        end = span(b, start, LABEL);
        if end == start {
            // The last label may be followed by one dot, but not by two.
            if start == at || b.get(end) == Some(&b'.') {
                return Err(Malformed::here(expected, b, end));
            }
            break;
        }
        if b[start] == b'-' || b[end - 1] == b'-' {
            return Err(Malformed::here(expected, b, end));
        }
        if b.get(end) != Some(&b'.') {
            break;
        }
        end += 1;
    }
    if end - at > MAX_HOST {
        let got = Got::Number((end - at) as u64);
        return Err(Malformed::bad("expected a shorter host name", got, at));
    }
    let digits = |host: &[u8]| host.iter().all(|&c| c == b'.' || c.is_ascii_digit());
    if b[at].is_ascii_digit() && digits(&b[at..end]) {
        return Err(Malformed::here("expected an IPv4 address", b, at));
    }
    Ok(end)
}

/// Host, port if there is one, and the index after them.
type HostPort<'a> = (&'a [u8], Option<u16>, usize);

/// Parses `host [ ":" port ]` at `at`. Ports are 1 to 65535: the grammar does not bound them, but UDP and TCP do.
#[inline]
pub(super) fn host_port<'a>(
    b: &'a [u8],
    at: usize,
    expected: &'static str,
) -> Result<HostPort<'a>, Malformed> {
    let end = host_end(b, at, expected)?;
    let host = &b[at..end];
    if b.get(end) != Some(&b':') {
        return Ok((host, None, end));
    }
    let (port, end) = port(b, end + 1)?;
    Ok((host, Some(port), end))
}

/// Returns the port whose digits begin at `at`, and the index after them.
#[inline]
pub(crate) fn port(b: &[u8], at: usize) -> Result<(u16, usize), Malformed> {
    /// Above any port, and small enough for one digit more.
    const MUCH: u32 = 100_000;
    let (mut port, mut end) = (0, at);
    for digit in b[at..].iter().map(|c| c.wrapping_sub(b'0')).take_while(|&digit| digit <= 9) {
        port = (port * 10 + u32::from(digit)).min(MUCH);
        end += 1;
    }
    match port {
        1..=65_535 => Ok((port as u16, end)),
        _ => Err(Malformed::here("expected a port number", b, at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(host_ip(b"192.0.2.1"), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(host_ip(b"[2001:db8::1]"), Some("2001:db8::1".parse().unwrap()));
        assert_eq!(host_ip(b"2001:db8::1"), Some("2001:db8::1".parse().unwrap()));
        assert_eq!(host_ip(b"::ffff:192.0.2.1"), Some("::ffff:192.0.2.1".parse().unwrap()));
        for name in
            [&b""[..], b"example.com", b"1.2.3", b"1.2.3.4.5", b"1.2.3.256", b"[::1", b"bad"]
        {
            assert_eq!(host_ip(name), None, "{name:?}");
        }
    }

    #[test]
    fn hosts_and_ports() {
        let ok = |text: &'static str| host_port(text.as_bytes(), 0, "host").unwrap();
        assert_eq!(ok("example.com:5060;x"), (&b"example.com"[..], Some(5060), 16));
        assert_eq!(ok("example.com."), (&b"example.com."[..], None, 12));
        assert_eq!(ok("[::1]:5061"), (&b"[::1]"[..], Some(5061), 10));
        assert_eq!(ok("3f2a1bc_9"), (&b"3f2a1bc_9"[..], None, 9));
        for bad in [
            "",
            "-a",
            "a-",
            "a-.b",
            "a..b",
            ".a",
            "1.2.3",
            "256.1.1.1",
            "[::1",
            "[:::1]",
            "a:",
            "a:0",
            "a:65536",
            "a:99999999999999999999",
        ] {
            assert!(host_port(bad.as_bytes(), 0, "host").is_err(), "{bad}");
        }
    }
}
