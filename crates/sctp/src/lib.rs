//! SCTP as a pure state machine (RFC 9260).
//!
//! [`Sctp`] is the SCTP of one host: it is handed packets and the time, and is asked what to send,
//! when to wake and what happened. Programs above it listen, connect, send and receive messages,
//! shut down and abort by calls, and hear of changes by [`Event`]s; there are no callbacks, and
//! everything is bounded by a [`Settings`] or [`Limits`] field or a named constant. It opens no
//! socket and reads no clock; tags, TSNs and nonces come from the random source that it is given.
//! It knows nothing of IP beyond addresses: addresses are always given as lists, never gathered.
//!
//! Read [`wire`] for the formats, [`endpoint`] for what a host holds, the association's modules for
//! the state machine, [`congestion`] for how fast a path is used and [`scheduler`] for the order
//! among streams. What of the standard is there and what is not: `docs/sctp.md`.

#![forbid(unsafe_code)]

mod association;
mod auth;
pub mod congestion;
pub mod endpoint;
mod features;
mod incoming;
pub mod ns2;
pub mod numbers;
mod outgoing;
mod path;
mod pmtu;
mod ring;
mod rto;
pub mod scheduler;
pub mod settings;
pub mod wire;

pub use association::{
    Change, Close, MAX_ADDRESS_REQUESTS, MAX_REASON, MAX_REQUESTS, MAX_RESET_STREAMS, PathSnapshot,
    Reset, Snapshot, State, Totals,
};
pub use endpoint::{AssocId, Counters, Event, ListenerId, Sctp};
pub use incoming::{CHUNK_COST, Received};
pub use numbers::{Mid, Ssn, Tsn};
pub use outgoing::{MAX_IN_FLIGHT, MESSAGE_COST, Reliability, SendOptions, UndeliveredMessage};
pub use path::PathState;
pub use settings::{Algorithm, Error, Limits, Multipath, Scheduling, Settings};

/// The protocol number of SCTP in an IP header.
pub const PROTOCOL: u8 = 132;
