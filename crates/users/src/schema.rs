//! The tables in PostgreSQL, by versions.
//!
//! Each version is a file of SQL that is applied once, in a transaction with all others that are missing, by the server that
//! holds [`LOCK`].

use std::fmt;

/// The version that this program reads and writes.
pub const VERSION: i32 = 1;

/// The key of the advisory lock under which migrations are applied: "ringway" in ASCII.
pub const LOCK: i64 = 0x0072_696e_6777_6179;

/// The table of applied migrations.
pub const PREPARE: &str = "CREATE SCHEMA IF NOT EXISTS ringway;
CREATE TABLE ringway.schema_version (
    version integer PRIMARY KEY,
    applied timestamptz NOT NULL DEFAULT now()
);";

/// The migrations, in the order of their versions, from 1.
pub const MIGRATIONS: [&str; VERSION as usize] = [include_str!("../migrations/0001_users.sql")];

/// The schema is of a later program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewerSchema(pub i32);

impl fmt::Display for NewerSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "schema ringway: expected a version up to {VERSION}, got {}: a later program has made it",
            self.0
        )
    }
}

impl std::error::Error for NewerSchema {}

/// Returns the migrations that a database lacks, with their versions. `found` is its version; 0 if it has none.
///
/// # Errors
/// [`NewerSchema`] if the version is unknown here.
pub fn missing(found: i32) -> Result<impl Iterator<Item = (i32, &'static str)>, NewerSchema> {
    if found > VERSION {
        return Err(NewerSchema(found));
    }
    Ok((1..).zip(MIGRATIONS).filter(move |(version, _)| *version > found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_gets_what_it_lacks() {
        let versions = |found| missing(found).unwrap().map(|(version, _)| version);
        assert!(versions(0).eq(1..=VERSION));
        assert_eq!(versions(VERSION).count(), 0);
        assert_eq!(missing(VERSION + 1).err(), Some(NewerSchema(VERSION + 1)));
        assert!(NewerSchema(7).to_string().ends_with("got 7: a later program has made it"));
    }
}
