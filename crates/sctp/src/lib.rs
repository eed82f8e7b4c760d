#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! [`Sctp`] is the SCTP of one host. Programs listen, connect, send and receive messages, shut down and abort by calls,
//! and read changes as [`Event`]s. There are no callbacks, and everything is bounded by a field of [`Settings`] or
//! [`Limits`] or a named constant. Tags, TSNs and nonces come from the caller's random source.
//!
//! It consists of an [`Endpoint`], which finds the association of a packet, and of the [`Association`]s, one object each,
//! in a table. A program that stores associations in another way, such as each behind a lock of its own, uses these two.
//!
//! Read [`wire`] for the formats, [`endpoint`] for what is found how, the association's modules for the state machine,
//! [`congestion`] for the window of a path and [`scheduler`] for the order among streams. `docs/sctp.md` lists the
//! supported standards and what is missing.

#![forbid(unsafe_code)]

mod association;
mod auth;
pub mod congestion;
pub mod endpoint;
mod error;
mod features;
mod host;
mod incoming;
pub mod numbers;
mod outgoing;
mod path;
mod pmtu;
mod rack;
mod ring;
mod rto;
pub mod scheduler;
pub mod settings;
mod timers;
pub mod wire;

pub use association::{
    Association, AssociationEvent, Change, Close, Cx, MAX_ADDRESS_REQUESTS, MAX_REASON,
    MAX_REQUESTS, MAX_RESET_STREAMS, PathSnapshot, Reset, Snapshot, State, Totals,
};
pub use endpoint::{AssocId, Associations, Counters, Endpoint, ListenerId, Settled};
pub use error::{
    AddressError, CallError, ConnectError, KeyError, ListenError, NoAssociation, NoListener,
    NoPath, NoStream, SendError, SetKeyError, SettingError, StreamError,
};
pub use host::{Event, Sctp};
pub use incoming::{CHUNK_COST, Received};
pub use numbers::{Mid, Ssn, Tsn};
pub use outgoing::{MAX_IN_FLIGHT, MESSAGE_COST, Reliability, SendOptions, UndeliveredMessage};
pub use path::PathState;
pub use settings::{Algorithm, Factory, Limits, Multipath, Scheduling, Settings};

/// The protocol number of SCTP in an IP header.
pub const PROTOCOL: u8 = 132;
