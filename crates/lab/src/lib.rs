//! The laboratory: scenarios run in virtual time, campaigns of them, the papers' tables, and search.
//!
//! A [`scenario`] is one TOML file; [`mod@run`] builds a world from it, lets it happen and gives
//! measures of each flow. The protocols that run are those of the real world, plugged in through
//! [`ringway_sansio`]; how links treat packets is decided by [`ringway_link`]. [`campaign`] crosses
//! parameters and replications, [`mod@search`] asks which of them give a printed figure, [`sip`] makes calls, [`papers`] holds
//! what was printed, [`commands`] is what the command line calls, and [`output`] what they leave on
//! disk. Sockets are not touched; the real clock only says how long a command has taken.

#![forbid(unsafe_code)]

pub mod builtin;
pub mod campaign;
pub mod commands;
mod estimate;
pub mod output;
pub mod papers;
pub mod progress;
pub mod run;
pub mod scenario;
pub mod search;
pub mod sip;
