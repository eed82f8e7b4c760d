#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`world`] first, then [`events`] for the order in which things happen, [`traffic`] for sources and sinks,
//! [`flows`] for programs that speak in messages, [`record`] and [`capture`] for what can be looked at afterwards, and
//! [`mod@replicate`] for runs on all cores. What a link does to packets is decided by [`ringway_link`]; every link joins
//! two interfaces, what exceeds an MTU is dropped, and paths are computed once, from the whole map.

#![forbid(unsafe_code)]

pub mod capture;
pub mod error;
pub mod events;
pub mod flows;
pub mod headers;
mod node;
mod pool;
pub mod record;
pub mod replicate;
mod routes;
pub mod traffic;
mod wire;
pub mod world;

pub use capture::Capture;
pub use error::{Budget, Error};
pub use node::{Bind, Counters, EndpointId, InterfaceId, NodeId, Plug};
pub use pool::MAX_PACKETS;
pub use record::{Reason, Record, Recorder, Records, Step};
pub use replicate::replicate;
pub use ringway_link::random;
pub use world::{Census, World};
