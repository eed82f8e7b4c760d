#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`world`] first, then [`events`] for the order of events, [`traffic`] for sources and sinks, [`flows`] for
//! programs that exchange messages, [`record`] and [`capture`] for logs of packets, and [`mod@replicate`] for runs on all
//! cores. [`graph`] is another world, of up to millions of nodes. [`ringway_link`] decides what happens to packets on a link. Every link joins two interfaces, a packet that
//! exceeds an MTU is dropped, and paths are computed once, from the whole map.

#![forbid(unsafe_code)]

pub mod capture;
pub mod error;
pub mod events;
pub mod flows;
pub mod graph;
pub mod headers;
pub mod interrupt;
mod node;
mod packed;
mod pool;
pub mod record;
pub mod replicate;
mod routes;
pub mod traffic;
mod wire;
pub mod world;

pub use capture::Capture;
pub use error::{Budget, Error};
pub use interrupt::Interrupt;
pub use node::{Bind, Counters, EndpointId, InterfaceId, NodeId, Plug};
pub use pool::MAX_PACKETS;
pub use record::{Reason, Record, Recorder, Records, Step};
pub use replicate::replicate;
pub use ringway_link::random;
pub use world::{Census, World};
