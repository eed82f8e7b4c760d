#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`preconnection`] for what a program fills in, [`connection`] for what it gets, [`listener`] for the other end and
//! [`system`] for what they share. Behind them `carrier` is the line between the API and the protocols, `racing` carries
//! out the attempts, `group` makes connections of a transport connection, and each protocol has a module: `framed` (TCP,
//! TLS, MPTCP with messages) and `plain` (without), `datagram` (UDP, UDP-Lite), `sctp`, `quic`, `dccp`.

#![forbid(unsafe_code)]

mod admission;
mod alarm;
pub mod blocking;
mod carrier;
pub mod connection;
mod datagram;
mod dccp;
mod dial;
mod draining;
mod error;
mod events;
mod framed;
mod framer;
mod group;
mod host;
mod io;
mod keyring;
mod limits;
pub mod listener;
mod message;
mod options;
mod outbox;
mod packets;
mod plain;
pub mod preconnection;
mod quic;
mod racing;
mod rendezvous;
mod resolve;
mod sctp;
pub mod system;
mod transport;
mod waiters;

pub use carrier::{Event, Path};
pub use connection::Connection;
pub use error::Error;
pub use framer::Framer;
pub use keyring::Keyring;
pub use limits::{CLOSING, DATAGRAM_QUEUE, EVENT_QUEUE, GROUP_QUEUE, LINGER, Limits};
pub use listener::Listener;
pub use message::Message;
pub use preconnection::Preconnection;
pub use ringway_services::properties;
pub use ringway_services::{
    Candidate, ConnectionProperties, Explanation, LocalEndpoint, MessageProperties, Preference,
    Protocol, Provided, Ranked, RemoteEndpoint, SecurityParameters, Service, TransportProperties,
    UdpPorts, Unfit,
};
pub use system::{Builder, System};
