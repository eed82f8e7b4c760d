//! `ringway serve`: the process around the protocols.
//!
//! This crate owns what the pure rooms must not: threads, sockets' workers, the disk, the logs and
//! the operator's questions. It knows no SIP beyond what it must hand on. Read [`serve`] for how a
//! process begins and ends, [`worker`] for how one worker runs, [`store`] for what outlives the
//! process, [`config`] for what an operator may decide.

#![forbid(unsafe_code)]

mod calendar;
pub mod calls;
pub mod config;
pub mod first_run;
pub mod host;
mod locate;
pub mod log;
pub mod manage;
mod notify;
pub mod observe;
pub mod prepare;
pub mod random;
pub mod serve;
pub mod setup;
pub mod store;
pub mod text;
mod validity;
pub mod worker;
