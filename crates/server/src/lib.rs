//! `ringway serve`: the process around the protocols.
//!
//! This crate owns what the pure rooms must not: threads, the sockets of the workers, the disk, the
//! logs and the interface for operators. It does not parse or route SIP. Read [`serve`] for the
//! start and end of the process, [`worker`] for the loop of one worker, [`store`] for the data that
//! is kept after the process ends, and [`config`] for the configuration.

#![forbid(unsafe_code)]

mod calendar;
pub mod calls;
pub mod cluster;
pub mod config;
pub mod first_run;
mod following;
pub mod host;
mod locate;
pub mod log;
pub mod manage;
pub mod media;
pub mod mesh;
mod messages;
mod notify;
pub mod numbers;
pub mod observe;
pub mod phonebook;
pub mod post;
pub mod prepare;
pub mod random;
pub mod serve;
pub mod setup;
mod signals;
pub mod states;
pub mod store;
pub mod text;
pub mod users;
mod validity;
pub mod worker;
