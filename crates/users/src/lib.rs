//! The users of several SIP servers in a database that all of them share.
//!
//! A server holds a mirror of all users and answers from it, so that no call and no registration waits for the database.
//! Nothing here connects to a database or reads a clock: what was read goes in, and what is to be done comes out, so that
//! the decisions are tested without a database and in virtual time.
//!
//! | module | what it does |
//! |---|---|
//! | [`mirror`] | when a server connects and reads: everything, or what has changed |
//! | [`complete`] | which users are gone after everything was read, and whether that can be believed |
//! | [`row`] | a row of the database as a user, or the reason why it is none |
//! | [`name`] | names of users, and passwords |
//! | [`schema`] | the tables in PostgreSQL, by versions |
//! | [`script`] | what is kept in Redis or Valkey |

#![forbid(unsafe_code)]

pub mod complete;
pub mod mirror;
pub mod name;
pub mod row;
pub mod schema;
pub mod script;

pub use complete::{Complete, Outcome};
pub use mirror::{Mirror, Position, Step};
pub use name::{
    BadUser, MAX_REALM, MAX_USER, MAX_USERS, PASSWORD_BYTES, check_name, check_password,
};
pub use row::{Domains, Entry, Refusal, Row, Secret};
