//! Where the database of a cluster is: `redis://`, `rediss://` (TLS), and the same by Sentinel or as a Redis Cluster.

use std::fmt;
use std::str::FromStr;

/// Default port of a server of the database.
const PORT: u16 = 6379;
/// Default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;
/// Maximum number of sentinels, or of servers of a Redis Cluster in a URI.
const MAX_HOSTS: usize = 16;
const EXPECTED: &str = "redis://[USER:PASSWORD@]HOST[:PORT][/NUMBER] or \
                        redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,..]/SERVICE[/NUMBER]\
                        [?sentinel=[USER]:PASSWORD] or \
                        redis+cluster://[USER:PASSWORD@]HOST[:PORT][,..], \
                        with rediss for TLS";

/// The URI of a database.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUri {
    /// Whether it is reached by TLS.
    pub tls: bool,
    /// The service of Sentinel whose primary is meant; without one, the one host is the database.
    pub service: Option<String>,
    /// Whether it is a Redis Cluster: many primaries, of which the hosts are some.
    pub cluster: bool,
    /// Hosts and ports: the database, or the sentinels.
    pub hosts: Vec<(String, u16)>,
    /// Name of the ACL user.
    pub user: Option<String>,
    /// Its password, or that of the default user.
    pub password: Option<String>,
    /// Number of the database in its server.
    pub number: i64,
    /// What the sentinels ask for, if they ask.
    pub sentinel: Credentials,
}

/// A user, or the default one, and a password.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// Name of the user; the default one without.
    pub user: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
}

impl Credentials {
    /// Reads `[USER]:PASSWORD` with the escapes of a URI, or says what is wrong without the password.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (user, password) = text.split_once(':').ok_or("a user without a password")?;
        let unescaped = |text| unescape(text).ok_or("a wrong % escape");
        let user = Some(unescaped(user)?).filter(|user| !user.is_empty());
        Ok(Credentials { user, password: Some(unescaped(password)?) })
    }
}

impl fmt::Display for DatabaseUri {
    /// Writes the URI without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.service {
            Some(_) => "+sentinel",
            None if self.cluster => "+cluster",
            None => "",
        };
        write!(f, "{}{kind}://", if self.tls { "rediss" } else { "redis" })?;
        if self.password.is_some() {
            write!(f, "{}:***@", self.user.as_deref().unwrap_or_default())?;
        }
        for (i, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match host.contains(':') {
                true => write!(f, "{comma}[{host}]:{port}")?,
                false => write!(f, "{comma}{host}:{port}")?,
            }
        }
        if let Some(service) = &self.service {
            write!(f, "/{service}")?;
        }
        if self.number != 0 {
            write!(f, "/{}", self.number)?;
        }
        match (&self.sentinel.user, &self.sentinel.password) {
            (user, Some(_)) => write!(f, "?sentinel={}:***", user.as_deref().unwrap_or_default()),
            (_, None) => Ok(()),
        }
    }
}

impl fmt::Debug for DatabaseUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DatabaseUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The text may have a password, so it is not repeated.
        let error = |got: &str| format!("expected {EXPECTED}, got {got}");
        let (scheme, rest) = text.split_once("://").ok_or_else(|| error("no ://"))?;
        let (tls, is_sentinel, cluster) = match scheme {
            "redis" => (false, false, false),
            "rediss" => (true, false, false),
            "redis+sentinel" => (false, true, false),
            "rediss+sentinel" => (true, true, false),
            "redis+cluster" => (false, false, true),
            "rediss+cluster" => (true, false, true),
            _ => return Err(error(&format!("the scheme {scheme:?}"))),
        };
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let parse = |text| Credentials::parse(text).map_err(error);
        let Credentials { user, password } =
            credentials.map(parse).transpose()?.unwrap_or_default();
        let (rest, sentinel) = match rest.split_once('?') {
            None => (rest, Credentials::default()),
            Some((rest, query)) => match query.strip_prefix("sentinel=").filter(|_| is_sentinel) {
                Some(text) => (rest, parse(text)?),
                None => return Err(error("something else behind the ?")),
            },
        };
        let mut parts = rest.split('/');
        let default = if is_sentinel { SENTINEL_PORT } else { PORT };
        let hosts =
            parts.next().unwrap_or_default().split(',').map(|host| host_port(host, default));
        let hosts: Vec<_> = hosts.collect::<Option<_>>().ok_or_else(|| error("a wrong host"))?;
        if hosts.len() > if is_sentinel || cluster { MAX_HOSTS } else { 1 } {
            return Err(error(&format!("{} hosts", hosts.len())));
        }
        let service = is_sentinel.then(|| parts.next().unwrap_or_default().to_owned());
        if service.as_deref() == Some("") {
            return Err(error("no service"));
        }
        let number = match parts.next().filter(|number| !number.is_empty()) {
            None => 0,
            Some(number) => match number.parse::<u16>() {
                Ok(number) => number.into(),
                Err(_) => return Err(error(&format!("the database {number:?}"))),
            },
        };
        // Redis Cluster specification: there is only the database 0.
        if cluster && number != 0 {
            return Err(error(&format!("the database {number} of a cluster")));
        }
        if let Some(more) = parts.next() {
            return Err(error(&format!("/{more} behind its end")));
        }
        Ok(DatabaseUri { tls, service, cluster, hosts, user, password, number, sentinel })
    }
}

/// Parses `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
pub(super) fn host_port(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(is_name) {
        return None;
    }
    let port = if port.is_empty() { Some(default) } else { port.parse().ok().filter(|p| *p > 0) };
    Some((host.to_owned(), port?))
}

/// Replaces the escapes of RFC 3986 section 2.1.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_written_as_they_are_read_without_the_password() {
        for (text, written) in [
            ("redis://db", "redis://db:6379"),
            ("rediss://db:7000/3", "rediss://db:7000/3"),
            ("redis://:secret@[2001:db8::1]:6379", "redis://:***@[2001:db8::1]:6379"),
            (
                "redis+sentinel://ringway:a%40b@a,b:7000/main",
                "redis+sentinel://ringway:***@a:26379,b:7000/main",
            ),
            ("rediss+sentinel://a/main/2", "rediss+sentinel://a:26379/main/2"),
            (
                "redis+sentinel://:x@a/main?sentinel=:y",
                "redis+sentinel://:***@a:26379/main?sentinel=:***",
            ),
            (
                "redis+sentinel://a/main/2?sentinel=us%65r:y%40",
                "redis+sentinel://a:26379/main/2?sentinel=user:***",
            ),
            ("redis+cluster://:x@a,b:7000", "redis+cluster://:***@a:6379,b:7000"),
            ("rediss+cluster://a/0", "rediss+cluster://a:6379"),
        ] {
            let uri: DatabaseUri = text.parse().unwrap();
            assert_eq!(uri.to_string(), written);
            assert_eq!(format!("{uri:?}"), written);
        }
        let uri: DatabaseUri = "redis://ringway:a%40b@db".parse().unwrap();
        assert_eq!((uri.user.as_deref(), uri.password.as_deref()), (Some("ringway"), Some("a@b")));
        let uri: DatabaseUri = "redis+sentinel://s/main?sentinel=watcher:a%40b".parse().unwrap();
        let Credentials { user, password } = uri.sentinel;
        assert_eq!((user.as_deref(), password.as_deref()), (Some("watcher"), Some("a@b")));
        assert_eq!((uri.user, uri.password), (None, None));
    }

    #[test]
    fn a_wrong_uri_is_explained_without_its_password() {
        for (text, what) in [
            ("redis:db", "no ://"),
            ("redis+clusters://db", "the scheme \"redis+clusters\""),
            ("redis+cluster://db/1", "the database 1 of a cluster"),
            ("redis+cluster://", "a wrong host"),
            ("redis+cluster://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "17 hosts"),
            ("redis://", "a wrong host"),
            ("redis://a,b", "2 hosts"),
            ("redis://db:0", "a wrong host"),
            ("redis://u:secret%4@db", "a wrong % escape"),
            ("redis://user@db", "a user without a password"),
            ("redis://db/x", "the database \"x\""),
            ("redis+sentinel://db", "no service"),
            ("redis://db/0/secret", "/secret behind its end"),
            ("redis://db/0?sentinel=:secret%", "something else behind the ?"),
            ("redis+sentinel://s/main?password=secret%", "something else behind the ?"),
            ("redis+sentinel://s/main?sentinel=secret%25", "a user without a password"),
            ("redis+sentinel://s/main?sentinel=:secret%4", "a wrong % escape"),
        ] {
            let error = text.parse::<DatabaseUri>().unwrap_err();
            assert!(error.ends_with(&format!("got {what}")), "{text}: {error}");
            assert!(!error.contains("secret%"), "{error}");
        }
    }
}
