#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! [`Tcp`] is the TCP of one host. Programs open, accept, write, read, shut down and abort by calls and read changes as
//! [`Event`]s. There are no callbacks, and everything is bounded by a field of [`Settings`] or [`Limits`] or a named
//! constant. Urgent data is delivered in line (RFC 6093), and data on a SYN is ignored until the peer sends it again.
//!
//! Read [`segment`] for the wire, [`endpoint`] for the state of a host, [`connection`] for the state machine of RFC 9293,
//! and [`congestion`] for the window.

#![forbid(unsafe_code)]

pub mod congestion;
pub mod connection;
pub mod endpoint;
pub mod segment;
pub mod seq;
pub mod settings;

mod board;
mod checksum;
mod prr;
mod rack;
mod ranges;
mod ring;
mod rtt;

pub use connection::{Close, Recovery, Snapshot, State};
pub use endpoint::{ConnId, Counters, Event, ListenerId, Tcp};
pub use segment::{Flags, Header, Options, Sack, Segment, SegmentError, Timestamps, fill_checksum};
pub use seq::Seq;
pub use settings::{Algorithm, Detection, Error, KeepAlive, Limits, Settings};

/// The protocol number of TCP in an IP header.
pub const PROTOCOL: u8 = 6;
