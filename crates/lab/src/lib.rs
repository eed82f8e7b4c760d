//! The laboratory: scenarios run in virtual time, campaigns of them, the papers' tables, and search.
//!
//! A [`scenario`] is one TOML file; [`mod@run`] builds a world from it, lets it happen and gives
//! measures of each flow. The protocols that run are those of the real world, plugged in through
//! [`ringway_sansio`]; how links treat packets is decided by [`ringway_link`]. Nothing here knows a
//! socket or a clock of the real world, but for how long a campaign takes.

#![forbid(unsafe_code)]

pub mod builtin;
pub mod run;
pub mod scenario;
