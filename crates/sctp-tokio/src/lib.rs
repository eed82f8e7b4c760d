#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! [`Stack`] is the SCTP of a process or of a worker: it listens and connects. [`Association`] sends and receives
//! messages and reports its state by [`Event`]s. No packet is parsed or answered here: that is the task of
//! [`ringway_sctp`]. Read [`stack`] first, then `core` for the state that users and driver share, and `driver` for
//! the task that moves packets.

#![forbid(unsafe_code)]

pub mod association;
mod carrier;
mod config;
mod core;
mod driver;
mod error;
mod fragments;
mod host_events;
mod kernel;
mod limits;
mod listener;
mod locals;
mod message;
mod moderation;
mod opening;
mod ports;
mod sockets;
pub mod stack;
mod tun;
mod userspace;
mod waiters;

pub use association::Association;
pub use carrier::Traffic;
pub use config::{Config, Connect, Over};
pub use error::Error;
pub use limits::{ACCEPT_QUEUE, EVENT_QUEUE, LINGER, MAX_PORTS, MAX_UDP_ADDRESSES, RETURNED_BYTES};
pub use listener::Listener;
pub use message::{Event, Message};
pub use opening::UDP_PORT;
pub use ringway_sctp::{
    Algorithm, Change, Close, Counters, Error as Refusal, Factory, Limits, Multipath, PathSnapshot,
    PathState, Received, Reliability, Reset, Scheduling, SendOptions, Settings, Snapshot, State,
    Totals, UndeliveredMessage,
};
pub use sockets::{StackSockets, is_permitted};
pub use stack::Stack;
