//! The book by LDAP (RFC 4511), read-only: a connection is a machine of octets in and octets out.
//!
//! Answered are bind, unbind, search and abandon; everything else is refused with the result code that the standard names.
//! The tree is flat: entries of persons below one base, such as `dc=mesh`, beside the root DSE and the schema.
//!
//! # Who may read
//!
//! Everybody who can connect. A simple bind succeeds with any name and password, and grants nothing that an anonymous one does
//! not: many phones cannot do without both. SASL is refused. The server decides who can connect.
//!
//! # Limits
//!
//! A request has at most [`MAX_REQUEST`] octets, which are counted before they are collected, and at most [`MAX_DEPTH`]
//! nested elements. One connection answers one request at a time, does at most [`MAX_SCAN`] entries of work in a call, and
//! makes no more octets while [`MAX_OUTPUT`] wait to be sent.

pub mod ber;
pub mod connection;
pub mod directory;
pub mod dn;
pub mod filter;
pub mod message;
mod search;

pub use connection::{Connection, Progress};
pub use directory::Directory;

/// Maximum length of a request in octets, without its header.
pub const MAX_REQUEST: usize = 8_192;
/// Maximum number of nested elements of BER.
pub const MAX_DEPTH: usize = 32;
/// Maximum number of conditions in a filter.
pub const MAX_CONDITIONS: usize = 64;
/// Maximum number of attributes that a search selects.
pub const MAX_SELECTED: usize = 64;
/// Maximum number of entries that a search returns.
pub const MAX_RESULTS: u32 = 1_000;
/// Maximum number of requests of a connection that wait.
pub const MAX_QUEUED: usize = 16;
/// Octets that wait to be sent from which on no more are made.
pub const MAX_OUTPUT: usize = 65_536;
/// Entries that are examined in one call.
pub const MAX_SCAN: usize = 256;
