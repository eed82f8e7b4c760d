#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! [`Stack`] is the SCTP of a process or of a worker: it listens and connects. [`Association`] sends and receives
//! messages and reports its state by [`Event`]s. No packet is parsed or answered here: that is the task of
//! [`ringway_sctp`]. Read [`stack`] first, then `lock` and `core` for the state that users and drivers share, and `driver`
//! for the tasks that move packets.

#![forbid(unsafe_code)]

pub mod association;
mod carrier;
mod config;
mod core;
mod driver;
mod error;
mod fragments;
mod host_events;
mod inbox;
mod kernel;
mod limits;
mod listener;
mod locals;
mod lock;
mod member;
mod message;
mod moderation;
mod opening;
mod ports;
mod runner;
mod sockets;
pub mod stack;
mod tables;
mod tun;
mod userspace;
mod view;
mod waiters;

pub use association::Association;
pub use carrier::Traffic;
pub use config::{Config, Connect, Over};
pub use error::{
    AcceptError, AddAddressError, CallError, ConnectError, EndedError, ListenError, OpenError,
    SendError, Stopped, SystemError, UnusableAddress,
};
pub use limits::{
    ACCEPT_QUEUE, EVENT_QUEUE, LINGER, MAX_DRIVERS, MAX_PORTS, MAX_UDP_ADDRESSES, RETURNED_BYTES,
};
pub use listener::Listener;
pub use message::{Event, Message};
pub use opening::UDP_PORT;
pub use ringway_sctp::{
    Algorithm, Change, Close, Counters, Factory, Limits, Multipath, PathSnapshot, PathState,
    Received, Reliability, Reset, Scheduling, SendOptions, Settings, Snapshot, State, Totals,
    UndeliveredMessage,
};
pub use sockets::{StackSockets, is_permitted};

/// The reasons why the protocol refuses a call.
pub mod refusal {
    pub use ringway_sctp::{
        AddressError, ConnectError, KeyError, ListenError, NoPath, NoStream, SendError,
        SetKeyError, SettingError, StreamError,
    };
}
pub use stack::Stack;
