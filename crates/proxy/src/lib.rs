#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`core`](mod@core) for the road of a message, [`location`] for where users are, [`registrar`] for REGISTER,
//! [`config`] for what an operator can decide.

#![forbid(unsafe_code)]

pub mod auth;
pub mod backoff;
pub mod config;
pub mod core;
mod forward;
pub mod gruu;
pub mod keys;
pub mod location;
pub mod mark;
pub mod outbound;
pub mod overload;
pub mod own;
pub mod regevent;
pub mod registrar;
pub mod routes;
pub mod shared;
pub mod stats;
#[cfg(test)]
mod testing;

pub use core::{
    AuthFailure, AuthFailureReason, CallEvent, CallInfo, CallStep, Core, Event, LogLine, Paths,
    ResolveId, ResolveTarget, World,
};
