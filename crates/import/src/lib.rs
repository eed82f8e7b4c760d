//! The users of other SIP servers, read from the files of these servers.
//!
//! The crate parses and decides nothing: which domain a user gets, and whether a hash can be used there, is up to the
//! caller. It opens no file; `#include` of Asterisk is answered by a function of the caller. What is read is taken for
//! hostile: the parsers do not panic, and what they allocate is bounded by the size of the input and the limits here.
//! No error repeats a value of the input other than the name of a user or of a section.
//!
//! Read [`kamailio()`] for the `subscriber` table of Kamailio and OpenSIPS, and [`asterisk()`] for `pjsip.conf` and
//! `sip.conf`.

#![forbid(unsafe_code)]

mod asterisk;
mod error;
mod found;
mod kamailio;

pub use asterisk::{Load, MAX_FILES, MAX_INCLUDES, MAX_SECTIONS, asterisk};
pub use error::FileError;
pub use found::{Found, Position, Reason, Refusal, User};
pub use kamailio::{COLUMNS, MAX_COLUMNS, Subscribers, kamailio};

/// Maximum size of the files of one import, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// Maximum number of users in the files of one import, with those that are refused.
pub const MAX_USERS: usize = 100_000;
/// Maximum length of a value that is used, in bytes.
pub const MAX_VALUE: usize = 4096;
/// Maximum length of a line in bytes, except in a dump in SQL, in which a line is a whole table.
pub const MAX_LINE: usize = 64 << 10;
