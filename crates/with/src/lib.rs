//! `ringway with`: an unmodified program's TCP sockets move to chosen services, over SCTP for instance.
//!
//! The library `ringway-with-preload` makes a Unix stream socket of each TCP socket that the program creates; this crate
//! is the broker at its other end. [`run`] starts the program and serves it until it has ended.
//!
//! | module | what it does |
//! |---|---|
//! | `services` | the services that a user names, as a preconnection of `ringway-services` |
//! | `program` | whether the library can be loaded into a program |
//! | `child` | the program as a process, and what it leaves behind |
//! | `broker` | requests of the library; connections that arrive |
//! | `datagrams` | the program's sockets of UDP |
//! | `network` | the only part that knows protocols: opening, accepting, carrying |
//! | `pump` | bytes between a program's socket and a connection |
//! | `remembered` | the file of what peers have |

#![forbid(unsafe_code)]

mod broker;
mod child;
mod datagrams;
mod lines;
mod locking;
mod network;
mod program;
mod pump;
mod remembered;
mod run;
mod services;

pub use lines::Lines;
pub use program::ProgramError;
pub use run::{RunError, With, run};
pub use services::{ServiceError, Services};

/// The name of the library.
pub const LIBRARY: &str = "libringway_with.so";
/// The environment variable that names another file.
pub const LIBRARY_VARIABLE: &str = "RINGWAY_WITH_LIBRARY";
