#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! [`Dccp`] is the DCCP of one host. Programs listen, connect, send and receive messages and close by calls, and read
//! changes as [`Event`]s. There are no callbacks, and everything is bounded by a field of [`Settings`] or [`Limits`] or
//! a named constant. Sequence numbers and keys come from the caller's random source.
//!
//! Read [`wire`] for the formats, [`endpoint`] for the state of a host, the connection's modules for the state machine
//! and [`congestion`] for CCID 2 and CCID 3. `docs/dccp.md` lists the supported sections and what is missing.

#![forbid(unsafe_code)]

pub mod congestion;
pub mod endpoint;
pub mod seq;
pub mod settings;
pub mod wire;

mod checksum;
mod connection;
mod features;
mod queue;
mod received;
mod rtt;
mod sequence;

pub use connection::{
    Close, MAX_ACK_RECORDS, MAX_LOCAL_WINDOW, MAX_SYNC_ACKS, MAX_SYNCS_PER_SECOND, OPTION_ROOM,
    Snapshot, State, Totals,
};
pub use endpoint::{ConnId, Counters, Dccp, Event, ListenerId};
pub use features::{MAX_CHANGES, MAX_CONFIRMS};
pub use queue::{SendOptions, WhenFull};
pub use received::{MAX_REORDERING, MAX_REPORTED};
pub use seq::Seq;
pub use settings::{
    CallError, Ccid, ConnectError, INVALID_SERVICE, Limits, ListenError, SendError, SettingError,
    Settings, UDP_PORT,
};
pub use wire::{Reset, ResetCode};

/// The protocol number of DCCP in an IP header.
pub const PROTOCOL: u8 = 33;
