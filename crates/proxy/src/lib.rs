//! The proxy, registrar and redirect server of RFC 3261 as a pure machine: it is handed messages
//! and the time, and says what to send and what to ask the world for.
//!
//! It owns no socket, thread or clock and reads no file; who runs it does. Read [`core`](mod@core)
//! for the road of a message, [`location`] for where users are, [`registrar`] for REGISTER,
//! [`config`] for what an operator can decide.

#![forbid(unsafe_code)]

pub mod auth;
pub mod backoff;
pub mod config;
pub mod core;
mod forward;
pub mod gruu;
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
    AuthFailure, AuthFailureReason, CallEvent, CallInfo, CallStep, Core, Event, Hop, LogLine, Path,
    Paths, ResolveTarget, World,
};
