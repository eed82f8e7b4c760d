//! SCTP for programs: the pure protocol of `ringway-sctp` on real sockets, with an asynchronous API
//! that follows the ideas of RFC 6458.
//!
//! A [`Stack`] carries packets in UDP (RFC 6951), directly over IP or over a TUN device, or uses the
//! kernel's SCTP. It listens and connects. An [`Association`] sends and receives messages, each on a
//! stream, ordered or not, with a chosen reliability, and reports its state by events. No packet is
//! parsed or answered here: that is the protocol's task. Read [`stack`] first, then `core` for the
//! shared state and `driver` for the task that moves packets. `examples/messages.rs` is a sender and a
//! receiver with several addresses.
//!
//! ```no_run
//! # async fn example() -> Result<(), ringway_net::sctp::Error> {
//! use ringway_net::sctp::{Config, Connect, Over, SendOptions, Stack};
//! let here = ["127.0.0.1".parse().unwrap()];
//! let stack = Stack::new(Config::new(Over::udp(&here)))?;
//! let listener = stack.listen(&here, 5060, None)?;
//! let ours = stack.connect(&Connect::new(&here, &here, 5060)).await?;
//! let theirs = listener.accept().await?;
//! ours.send("hello", &SendOptions { stream: 3, ..SendOptions::default() }).await?;
//! let message = theirs.recv().await?;
//! ours.shutdown().await
//! # }
//! ```

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
pub use limits::{ACCEPT_QUEUE, EVENT_QUEUE, LINGER, MAX_PORTS, MAX_UDP_ADDRESSES};
pub use listener::Listener;
pub(crate) use locals::check_scope;
pub use message::{Event, Message};
pub use opening::UDP_PORT;
pub use ringway_sctp::{
    Algorithm, Change, Close, Counters, Error as Refusal, Limits, Multipath, PathSnapshot,
    PathState, Received, Reliability, Reset, Scheduling, SendOptions, Settings, Snapshot, State,
    Totals,
};
pub(crate) use sockets::Opened;
pub use sockets::is_permitted;
pub use stack::Stack;
