//! The laboratory: scenarios that run in virtual time, campaigns of them, the papers' tables, and
//! search.
//!
//! A [`scenario`] is one TOML file. [`mod@run`] builds a world from it, runs it and returns
//! measures of each flow. The protocols are the same state machines as in the real world, connected
//! through [`ringway_sansio`]; [`ringway_link`] decides how links treat packets. [`campaign`]
//! crosses parameters and replications, [`mod@search`] finds the parameters that reproduce printed
//! figures, [`sip`] makes calls, [`mesh`] runs mesh routers, [`ns2`] has the protocols of that
//! simulator, [`topology`] reads maps of real networks, [`papers`] holds the
//! printed figures, [`view`] makes a page of a run, [`watch`] follows and ends a command from another thread, [`commands`]
//! implements the command line, and [`output`] writes files. No sockets are used; the real clock only measures how
//! long a command takes.

#![forbid(unsafe_code)]

pub mod builtin;
pub mod campaign;
pub mod commands;
mod estimate;
pub mod mesh;
pub mod ns2;
pub mod onesip;
pub mod output;
pub mod papers;
pub mod progress;
pub mod run;
pub mod scenario;
pub mod search;
pub mod sip;
pub mod topology;
pub mod view;
pub mod watch;
