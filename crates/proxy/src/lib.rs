#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`core`](mod@core) for the path of a message, [`location`] for the contacts of users, [`registrar`] for
//! REGISTER, [`question`] for what is asked about users of other servers, [`config`] for what an operator configures.

#![forbid(unsafe_code)]

pub mod auth;
pub mod backoff;
pub mod config;
pub mod core;
pub mod detours;
mod forward;
pub mod gruu;
pub mod keys;
pub mod local_identity;
pub mod location;
pub mod mark;
pub mod notifier;
pub mod outbound;
pub mod overload;
pub mod question;
pub mod registrar;
pub mod routes;
pub mod shared;
pub mod states;
pub mod stats;
#[cfg(test)]
mod testing;

pub use core::{
    AskId, AuthFailure, AuthFailureReason, CallEvent, CallInfo, CallStep, Core, Event, KeptMessage,
    LogLine, Paths, ResolveId, ResolveTarget, World,
};
pub use question::{CredentialsQuestion, CredentialsVerdict, MessageToKeep, Question, Reply};
