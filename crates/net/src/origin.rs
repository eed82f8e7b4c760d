//! The origins of web pages that may open a WebSocket (RFC 6455 section 10.2).
//!
//! A browser opens a WebSocket to any server for any page that its user looks at, from inside the user's
//! network and with the user's address, and sends the page's origin in `Origin`. Other programs send no
//! `Origin`, and could send any, so this module does not concern them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The origin of a page, as in `Origin` (RFC 6454 section 6.2): `https://phone.example.com`, with a port where
/// it is not the default. `null` is the origin of a page from a file, or of one that hides its origin; `*`
/// matches every page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin(Box<str>);

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let valid = || match text.split_once("://") {
            Some((scheme, host)) => {
                scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
                    && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                    && !host.is_empty()
                    && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
            }
            None => matches!(text, "null" | "*"),
        };
        if valid() {
            return Ok(Origin(text.to_ascii_lowercase().into()));
        }
        Err(format!(
            "expected an origin as \"https://phone.example.com\", \"null\" or \"*\", got {text:?}"
        ))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The origins that may open a WebSocket. A request without `Origin` always may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origins {
    /// Pages served at one of these hosts or below it, at the address that the connection was opened to, or
    /// from loopback, where only the user's own machine can serve one. The scheme
    /// and the port do not matter; `null` is refused, because every page can have a frame of that origin.
    OfHosts(Vec<Box<str>>),
    /// Only these origins.
    Listed(Vec<Origin>),
}

impl Default for Origins {
    fn default() -> Self {
        Origins::OfHosts(Vec::new())
    }
}

impl Origins {
    /// Returns whether a page of this origin may open a WebSocket to the local address `local`.
    pub(crate) fn allow(&self, origin: &[u8], local: IpAddr) -> bool {
        let Ok(origin) = std::str::from_utf8(origin) else { return false };
        match self {
            Origins::Listed(listed) => {
                listed.iter().any(|o| &*o.0 == "*" || o.0.eq_ignore_ascii_case(origin))
            }
            Origins::OfHosts(hosts) => host_of(origin).is_some_and(|host| {
                match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
                    Ok(ip) => ip == local || ip.is_loopback() || has(hosts, host),
                    Err(_) => is_at_or_below(host, "localhost") || is_below_any(hosts, host),
                }
            }),
        }
    }
}

/// Returns the host of an origin, without its port.
fn host_of(origin: &str) -> Option<&str> {
    let (_, authority) = origin.split_once("://")?;
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => Some(host),
        _ => Some(authority),
    }
}

fn has(hosts: &[Box<str>], host: &str) -> bool {
    hosts.iter().any(|h| h.eq_ignore_ascii_case(host))
}

fn is_below_any(hosts: &[Box<str>], host: &str) -> bool {
    hosts.iter().any(|parent| is_at_or_below(host, parent))
}

fn is_at_or_below(host: &str, parent: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let Some(above) = host.len().checked_sub(parent.len()) else { return false };
    let tail = host.as_bytes().get(above..).unwrap_or_default();
    tail.eq_ignore_ascii_case(parent.as_bytes())
        && (above == 0 || host.as_bytes()[above - 1] == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed<'a>(origins: &Origins, all: &[&'a str]) -> Vec<&'a str> {
        let local = "192.0.2.7".parse().unwrap();
        all.iter().copied().filter(|origin| origins.allow(origin.as_bytes(), local)).collect()
    }

    /// RFC 6455 section 10.2.
    #[test]
    fn pages_of_configured_hosts_and_of_loopback_are_allowed() {
        let ours = ["example.com", "[2001:db8::1]", "198.51.100.1"].map(Box::from);
        let origins = Origins::OfHosts(ours.into());
        let good = [
            "https://example.com",
            "http://EXAMPLE.com:8080",
            "https://phone.example.com",
            "https://example.com.",
            "http://localhost:3000",
            "http://app.localhost",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "https://192.0.2.7",
            "https://198.51.100.1:8443",
            "https://[2001:db8::1]",
            "https://[2001:db8::1]:8443",
        ];
        assert_eq!(allowed(&origins, &good), good);
        let bad = [
            "null",
            "",
            "https://evil.example",
            "https://evilexample.com",
            "https://example.com.evil.example",
            "https://example.com@evil.example",
            "https://evil.example/example.com",
            "https://evil.example?.example.com/",
            "https://192.0.2.8",
            "https://192.0.2.7.evil.example",
            "https://localhost.evil.example",
            "example.com",
            "https://",
            "https://:443",
        ];
        // A browser sends a host and a port there, nothing else.
        assert_eq!(allowed(&origins, &bad), Vec::<&str>::new());
        assert!(!origins.allow(b"https://\xff.example.com", IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn a_list_allows_its_origins() {
        let list = |all: &[&str]| Origins::Listed(all.iter().map(|o| o.parse().unwrap()).collect());
        let all = ["https://a.example", "https://a.example:8443", "http://a.example", "null"];
        assert_eq!(allowed(&list(&["https://A.example"]), &all), all[..1]);
        assert_eq!(allowed(&list(&["null", all[1]]), &all), ["https://a.example:8443", "null"]);
        assert_eq!(allowed(&list(&["*"]), &all), all);
        assert_eq!(allowed(&list(&[]), &all), Vec::<&str>::new());
        for wrong in ["a.example", "https://", "https://a.example/", "https://a b", "", "://a"] {
            let error = wrong.parse::<Origin>().unwrap_err();
            assert!(error.starts_with("expected an origin as"), "{error}");
        }
    }
}
