//! A row of the table as a user.

use crate::MAX_VALUE;
use crate::error::FileError;
use crate::found::{Position, Reason, Refusal, User};
use ringway_sip::digest::{Algorithm, Ha1};
use std::borrow::Cow;

/// Maximum number of columns of a table.
pub const MAX_COLUMNS: usize = 256;

/// The value of a column.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Null,
    Text(Cow<'a, [u8]>),
    /// What a database would have to compute.
    Expression,
}

const USERNAME: usize = 0;
const DOMAIN: usize = 1;
const PASSWORD: usize = 2;
const HA1: usize = 3;
const HA1B: usize = 4;
const SHA256: usize = 5;
const SHA512T256: usize = 6;

pub(super) const NAMES: [&str; 7] =
    ["username", "domain", "password", "ha1", "ha1b", "ha1_sha256", "ha1_sha512t256"];

/// The positions of the columns that are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Columns {
    positions: [Option<usize>; NAMES.len()],
    count: usize,
}

impl Columns {
    /// Finds the columns by their names.
    pub(super) fn new(at: &Position, names: &[&[u8]]) -> Result<Self, FileError> {
        if names.len() > MAX_COLUMNS {
            return Err(FileError::Limit { at: at.clone(), what: "columns", max: MAX_COLUMNS });
        }
        let find = |name: &str| names.iter().position(|n| n.eq_ignore_ascii_case(name.as_bytes()));
        let positions = NAMES.map(find);
        let format = |expected| Err(FileError::Format { at: at.clone(), expected });
        if positions[USERNAME].is_none() {
            return format("a table with a column `username`");
        }
        if [PASSWORD, HA1, HA1B, SHA256, SHA512T256].iter().all(|i| positions[*i].is_none()) {
            return format(
                "a table with a column `password`, `ha1`, `ha1_sha256` or `ha1_sha512t256`",
            );
        }
        Ok(Columns { positions, count: names.len() })
    }

    /// Returns the user in a row.
    pub(super) fn user(&self, at: Position, values: &[Value<'_>]) -> Result<User, Refusal> {
        if values.len() != self.count {
            let reason = Reason::Columns { expected: self.count, got: values.len() };
            return Err(Refusal { at, name: None, reason });
        }
        let row = Row { columns: self, values };
        let name = match row.text(USERNAME) {
            Ok(Some(name)) => name.trim_ascii().to_owned(),
            Ok(None) => return Err(Refusal { at, name: None, reason: Reason::NoName }),
            Err(reason) => return Err(Refusal { at, name: None, reason }),
        };
        if name.is_empty() {
            return Err(Refusal { at, name: None, reason: Reason::NoName });
        }
        match row.secrets() {
            Ok(Secrets { domain, password, hashes }) => {
                Ok(User { at, name, realm: domain.clone(), domain, password, hashes })
            }
            Err(reason) => Err(Refusal { at, name: Some(name), reason }),
        }
    }
}

struct Row<'r, 'v> {
    columns: &'r Columns,
    values: &'r [Value<'v>],
}

struct Secrets {
    domain: Option<String>,
    password: Option<String>,
    hashes: Vec<Ha1>,
}

impl Row<'_, '_> {
    /// Returns the text of a column; `None` if it is absent or empty.
    fn text(&self, column: usize) -> Result<Option<&str>, Reason> {
        let name = NAMES[column];
        let Some(value) = self.columns.positions[column].and_then(|i| self.values.get(i)) else {
            return Ok(None);
        };
        match value {
            Value::Null => Ok(None),
            Value::Expression => Err(Reason::Expression(name)),
            Value::Text(text) if text.is_empty() => Ok(None),
            Value::Text(text) if text.len() > MAX_VALUE => Err(Reason::TooLong(name)),
            Value::Text(text) => {
                std::str::from_utf8(text).map(Some).map_err(|_| Reason::Encoding(name))
            }
        }
    }

    fn secrets(&self) -> Result<Secrets, Reason> {
        let trimmed = |text: &str| Some(text.trim_ascii().to_owned()).filter(|t| !t.is_empty());
        let domain = self.text(DOMAIN)?.and_then(trimmed);
        if let Some(password) = self.text(PASSWORD)? {
            // A hash beside a password is only compared with it, so one that cannot be read is no obstacle.
            let hashes = HASHES.iter().filter_map(|i| self.hash(*i).ok().flatten()).collect();
            return Ok(Secrets {
                domain,
                password: Some(password.to_owned()),
                hashes: one_each(hashes),
            });
        }
        let mut hashes = Vec::new();
        for column in HASHES {
            hashes.extend(self.hash(column)?);
        }
        if hashes.is_empty() {
            let ha1b = matches!(self.text(HA1B), Ok(Some(_)) | Err(_));
            return Err(if ha1b { Reason::OnlyHa1b } else { Reason::NoSecret });
        }
        Ok(Secrets { domain, password: None, hashes: one_each(hashes) })
    }

    /// Returns the hash in a column.
    fn hash(&self, column: usize) -> Result<Option<Ha1>, Reason> {
        let Some(hex) = self.text(column)?.map(str::trim_ascii).filter(|t| !t.is_empty()) else {
            return Ok(None);
        };
        let algorithm = match (column, hex.len()) {
            (SHA256, _) => Algorithm::Sha256,
            (SHA512T256, _) => Algorithm::Sha512_256,
            // Kamailio's module auth has one algorithm for the column: MD5, or SHA-256 where it is configured.
            (_, 64) => Algorithm::Sha256,
            _ => Algorithm::Md5,
        };
        let hash = Ha1::from_hex(algorithm, hex.as_bytes());
        hash.map(Some).ok_or(Reason::Hash(NAMES[column]))
    }
}

const HASHES: [usize; 3] = [HA1, SHA256, SHA512T256];

/// Keeps the last hash of each algorithm: a column with the name of its algorithm precedes `ha1`.
fn one_each(hashes: Vec<Ha1>) -> Vec<Ha1> {
    let mut out: Vec<Ha1> = Vec::with_capacity(hashes.len());
    for hash in hashes {
        out.retain(|other| other.algorithm() != hash.algorithm());
        out.push(hash);
    }
    out
}
