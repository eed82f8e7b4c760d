//! `[users]`: where users are, and how they are read from there.

use super::database::{host_port, unescape};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Default port of PostgreSQL.
const PORT: u16 = 5432;
/// Maximum number of hosts.
const MAX_HOSTS: usize = 8;
/// Maximum length of a name in PostgreSQL, in bytes.
const MAX_NAME: usize = 63;
/// Where Debian's server has its socket.
const SOCKETS: &str = "/var/run/postgresql";
const EXPECTED: &str =
    "postgresql://USER[:PASSWORD]@HOST[:PORT][,..]/DATABASE[?sslmode=verify-full]";

/// Why a store has no users.
pub const NO_USERS_IN_STORE: &str =
    "expected a store \"redis://..\" with one primary for users in the store";

/// Where the users of this server are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum UserSource {
    /// In this server's own store.
    #[default]
    Embedded,
    /// In a PostgreSQL database.
    Postgres(Box<PostgresUri>),
    /// In the Redis or Valkey of the store.
    Store,
}

/// `[users]`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserSettings {
    /// Where users are.
    pub source: UserSource,
    /// A table of Kamailio or OpenSIPS that is read as it is; Ringway's own tables without.
    pub table: Option<TableName>,
    /// Interval at which such a table is read.
    pub refresh: Duration,
    /// Trust anchors for the certificate of the database, in PEM; those of the host without.
    pub roots: Option<PathBuf>,
}

/// Default interval at which a table of another program is read.
pub(super) const REFRESH: Duration = Duration::from_secs(30);

impl Default for UserSettings {
    fn default() -> Self {
        UserSettings { source: UserSource::Embedded, table: None, refresh: REFRESH, roots: None }
    }
}

/// The URI of a PostgreSQL database.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUri {
    /// Hosts and ports, tried in this order; a host that begins with `/` is a directory with a socket.
    pub hosts: Vec<(String, u16)>,
    /// Name of the role.
    pub user: String,
    /// Its password.
    pub password: Option<String>,
    /// Name of the database.
    pub database: String,
    /// Whether it is reached by TLS, and its certificate checked for the host's name.
    pub tls: bool,
}

impl PostgresUri {
    /// Returns whether a host is this one, so that nobody else can read what is sent.
    fn is_local(host: &str) -> bool {
        host.starts_with('/')
            || host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Returns whether passwords' hashes travel in clear text to other hosts.
    pub fn is_exposed(&self) -> bool {
        !self.tls && !self.hosts.iter().all(|(host, _)| Self::is_local(host))
    }
}

impl fmt::Display for PostgresUri {
    /// Writes the URI without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = if self.password.is_some() { ":***" } else { "" };
        write!(f, "postgresql://{}{password}@", self.user)?;
        for (i, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match host.contains(':') {
                true => write!(f, "{comma}[{host}]:{port}")?,
                false => write!(f, "{comma}{host}:{port}")?,
            }
        }
        write!(f, "/{}", self.database)?;
        f.write_str(if self.tls { "?sslmode=verify-full" } else { "?sslmode=disable" })
    }
}

impl fmt::Debug for PostgresUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PostgresUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The text may have a password, so it is not repeated.
        let error = |got: &str| format!("expected {EXPECTED}, got {got}");
        let rest = text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://"));
        let rest = rest.ok_or_else(|| error("another scheme"))?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(r, q)| (r, Some(q)));
        let (credentials, rest) = rest.rsplit_once('@').ok_or_else(|| error("no user"))?;
        let (hosts, database) = rest.split_once('/').ok_or_else(|| error("no database"))?;
        let part = |text: &str| unescape(text).ok_or_else(|| error("a wrong % escape"));
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (part(user)?, Some(part(password)?)),
            None => (part(credentials)?, None),
        };
        let database = part(database)?;
        for (what, name) in [("user", &user), ("database", &database)] {
            if name.is_empty()
                || name.len() > MAX_NAME
                || name.bytes().any(|b| b < b' ' || b == b'/')
            {
                return Err(error(&format!("a wrong name of the {what}")));
            }
        }
        let mut parsed = Vec::new();
        for host in hosts.split(',') {
            parsed.push(host_of(host).ok_or_else(|| error("a wrong host"))?);
        }
        if parsed.len() > MAX_HOSTS {
            return Err(error(&format!("{} hosts", parsed.len())));
        }
        let tls = match query.filter(|query| !query.is_empty()) {
            None => !parsed.iter().all(|(host, _)| Self::is_local(host)),
            Some("sslmode=disable") => false,
            Some("sslmode=verify-full") => true,
            Some(_) => {
                let expected =
                    "expected ?sslmode=verify-full or ?sslmode=disable and no other option";
                return Err(format!("{expected}, got another one"));
            }
        };
        if tls && parsed.iter().any(|(host, _)| host.starts_with('/')) {
            return Err(error("sslmode=verify-full for a Unix socket"));
        }
        Ok(PostgresUri { hosts: parsed, user, password, database, tls })
    }
}

/// Parses a host. None at all is the socket of this host's server; a directory has its slashes escaped.
fn host_of(text: &str) -> Option<(String, u16)> {
    if text.is_empty() {
        return Some((SOCKETS.to_owned(), PORT));
    }
    if text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("%2f")) {
        let (directory, port) = match text.split_once(':') {
            Some((directory, port)) => (directory, port.parse().ok().filter(|port| *port > 0)?),
            None => (text, PORT),
        };
        let directory = unescape(directory)?;
        return Some((directory, port)).filter(|(d, _)| !d.contains('\0'));
    }
    host_port(text, PORT)
}

/// The name of a table, perhaps with its schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableName(String);

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TableName {
    /// Returns the name for a statement of SQL, each part in quotes.
    pub fn quoted(&self) -> String {
        let parts: Vec<String> = self.0.split('.').map(|part| format!("\"{part}\"")).collect();
        parts.join(".")
    }
}

impl FromStr for TableName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |part: &str| {
            let first = part.bytes().next();
            first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
                && part.len() <= MAX_NAME
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        match text.split('.').count() <= 2 && text.split('.').all(is_name) {
            true => Ok(TableName(text.to_owned())),
            false => Err(format!(
                "expected the name of a table of letters, digits and _, such as \"subscriber\" or \
                 \"public.subscriber\", got {text:?}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_written_as_they_are_read_without_the_password() {
        for (text, written) in [
            ("postgresql://u@db/x", "postgresql://u@db:5432/x?sslmode=verify-full"),
            ("postgres://u:secret@db:6000/x", "postgresql://u:***@db:6000/x?sslmode=verify-full"),
            ("postgresql://u:a%40b@a,b:7/x", "postgresql://u:***@a:5432,b:7/x?sslmode=verify-full"),
            ("postgresql://u@db/x?sslmode=disable", "postgresql://u@db:5432/x?sslmode=disable"),
            ("postgresql://u@127.0.0.1/x", "postgresql://u@127.0.0.1:5432/x?sslmode=disable"),
            ("postgresql://u@[::1]/x", "postgresql://u@[::1]:5432/x?sslmode=disable"),
            (
                "postgresql://u@localhost,db/x",
                "postgresql://u@localhost:5432,db:5432/x?sslmode=verify-full",
            ),
            ("postgresql://u@/x", "postgresql://u@/var/run/postgresql:5432/x?sslmode=disable"),
            ("postgresql://u@%2Frun%2Fpg:7/x", "postgresql://u@/run/pg:7/x?sslmode=disable"),
        ] {
            let uri: PostgresUri = text.parse().unwrap();
            assert_eq!(uri.to_string(), written);
            assert_eq!(format!("{uri:?}"), written);
        }
        let uri: PostgresUri = "postgresql://ring%3Away:a%40b@db/x".parse().unwrap();
        assert_eq!((&*uri.user, uri.password.as_deref()), ("ring:way", Some("a@b")));
    }

    #[test]
    fn what_travels_in_clear_text_is_known() {
        let exposed = |text: &str| text.parse::<PostgresUri>().unwrap().is_exposed();
        assert!(exposed("postgresql://u@db/x?sslmode=disable"));
        assert!(!exposed("postgresql://u@db/x") && !exposed("postgresql://u@127.0.0.1/x"));
    }

    #[test]
    fn a_wrong_uri_is_explained_without_its_password() {
        for (text, what) in [
            ("mysql://u:secret@db/x", "another scheme"),
            ("postgresql://db/x", "no user"),
            ("postgresql://u:secret@db", "no database"),
            ("postgresql://u:secret@db/", "a wrong name of the database"),
            ("postgresql://:secret@db/x", "a wrong name of the user"),
            ("postgresql://u:secret%4@db/x", "a wrong % escape"),
            ("postgresql://u:secret@d b/x", "a wrong host"),
            ("postgresql://u:secret@db:0/x", "a wrong host"),
            ("postgresql://u:secret@a,b,c,d,e,f,g,h,i/x", "9 hosts"),
            ("postgresql://u:secret@db/x?sslmode=require", "another one"),
            ("postgresql://u:secret@db/x?password=secret", "another one"),
            ("postgresql://u:secret@/x?sslmode=verify-full", "for a Unix socket"),
        ] {
            let error = text.parse::<PostgresUri>().unwrap_err();
            assert!(error.ends_with(what), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn names_of_tables_are_quoted() {
        assert_eq!("subscriber".parse::<TableName>().unwrap().quoted(), "\"subscriber\"");
        assert_eq!("sip.Users_2".parse::<TableName>().unwrap().quoted(), "\"sip\".\"Users_2\"");
        for wrong in ["", "a.b.c", "a\"b", "a b", "1a", ".a", &"x".repeat(64)] {
            assert!(wrong.parse::<TableName>().is_err(), "{wrong}");
        }
    }
}
