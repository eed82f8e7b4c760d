//! What was found in the files: users, and entries that are no usable users.

use crate::MAX_USERS;
use crate::error::FileError;
use ringway_sip::digest::Ha1;
use std::fmt;
use std::sync::Arc;

/// A line of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file as the caller named it.
    pub file: Arc<str>,
    /// Number of the line, from 1.
    pub line: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A user with a secret. Its name is not checked.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Where it is.
    pub at: Position,
    /// Its name.
    pub name: String,
    /// The domain that the file has for it.
    pub domain: Option<String>,
    /// The password in clear text.
    pub password: Option<String>,
    /// The hashes of user, realm and password (RFC 7616 section 3.4.2), at most one for each algorithm.
    pub hashes: Vec<Ha1>,
    /// The realm that the hashes were made for, if the file names it.
    pub realm: Option<String>,
}

impl fmt::Debug for User {
    /// Hides the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("at", &self.at)
            .field("name", &self.name)
            .field("domain", &self.domain)
            .field("password", &self.password.as_ref().map(|_| ".."))
            .field("hashes", &self.hashes)
            .field("realm", &self.realm)
            .finish()
    }
}

/// An entry that cannot be a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Where it is.
    pub at: Position,
    /// The name of the user, or of the section.
    pub name: Option<String>,
    /// The reason.
    pub reason: Reason,
}

/// Reason why an entry cannot be a user.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// It has no user name.
    NoName,
    /// It has neither a password nor a hash.
    NoSecret,
    /// It has the hash of the user name with its domain only.
    OnlyHa1b,
    /// The hash in this column is not one.
    Hash(&'static str),
    /// The value of this column is not UTF-8.
    Encoding(&'static str),
    /// The value of this column exceeds [`crate::MAX_VALUE`].
    TooLong(&'static str),
    /// The value of this column is an expression.
    Expression(&'static str),
    /// The value of a column has an escape sequence that does not exist.
    Escape,
    /// The number of values differs from that of the columns.
    Columns {
        /// The number of columns.
        expected: usize,
        /// The number of values.
        got: usize,
    },
    /// The rows are the result of a query, or are in another form than that of a dump.
    Query,
    /// The endpoint has no `auth`.
    NoAuth,
    /// The section with this name, which `auth` names, does not exist.
    MissingAuth(String),
    /// No endpoint uses the section.
    UnusedAuth,
    /// The user name of the credentials is neither the name of the endpoint nor that of its address-of-record.
    OtherName {
        /// The name of the endpoint.
        endpoint: String,
    },
    /// The `auth_type` is not one with a password.
    AuthType,
    /// The peer has a fixed address.
    FixedHost,
    /// The section has no `type`.
    NoType,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoName => f.write_str("has no user name"),
            Reason::NoSecret => f.write_str("has neither a password nor a hash"),
            Reason::OnlyHa1b => f.write_str(
                "has only ha1b, which is made of the user name with its domain: phones send the name alone",
            ),
            Reason::Hash(column) => {
                write!(f, "{column}: expected 32 or 64 hexadecimal digits as its algorithm has")
            }
            Reason::Encoding(column) => write!(f, "{column}: expected UTF-8"),
            Reason::TooLong(column) => {
                write!(f, "{column}: expected at most {} bytes", crate::MAX_VALUE)
            }
            Reason::Expression(column) => {
                write!(f, "{column}: expected a literal, got an expression of SQL")
            }
            Reason::Escape => f.write_str("has an unknown escape sequence"),
            Reason::Columns { expected, got } => {
                write!(f, "expected {expected} values, one for each column, got {got}")
            }
            Reason::Query => f.write_str("expected rows of values, got a query"),
            Reason::NoAuth => f.write_str("the endpoint has no auth, so there is no password"),
            Reason::MissingAuth(name) => {
                write!(f, "section {} of type auth does not exist", shown(name))
            }
            Reason::UnusedAuth => f.write_str("no endpoint uses this auth"),
            Reason::OtherName { endpoint } => write!(
                f,
                "endpoint {} has another name: a user authenticates by the name it registers",
                shown(endpoint)
            ),
            Reason::AuthType => {
                f.write_str("auth_type: expected userpass, md5 or digest")
            }
            Reason::FixedHost => {
                f.write_str("host: expected dynamic; a peer at a fixed address does not register")
            }
            Reason::NoType => f.write_str("the section has no type: expected friend, peer or user"),
        }
    }
}

/// Returns a name of the input for an error: quoted, escaped and bounded.
pub(crate) fn shown(name: &str) -> String {
    const MAX: usize = 64;
    let mut text: String = name.chars().take(MAX).collect();
    if text.len() < name.len() {
        text.push_str("..");
    }
    format!("{text:?}")
}

/// What was found in the files of one import, in the order of the files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Entries with a name and a secret.
    pub users: Vec<User>,
    /// Entries that cannot be users.
    pub refused: Vec<Refusal>,
}

impl Found {
    pub(crate) fn add(&mut self, entry: Result<User, Refusal>) -> Result<(), FileError> {
        if self.users.len() + self.refused.len() >= MAX_USERS {
            let at = match entry {
                Ok(user) => user.at,
                Err(refusal) => refusal.at,
            };
            return Err(FileError::Limit { at, what: "users", max: MAX_USERS });
        }
        match entry {
            Ok(user) => self.users.push(user),
            Err(refusal) => self.refused.push(refusal),
        }
        Ok(())
    }
}
