//! The virtual world: hosts with interfaces and addresses, links between them, routes, and time
//! that passes from one event to the next.
//!
//! Protocols are plugged in through [`ringway_sansio::Endpoint`] and cannot tell this world from a
//! real one; nothing here knows any of them. What a link does to packets is decided by
//! [`ringway_link`]. The model leaves out: shared media (every link joins two interfaces),
//! fragmentation (what exceeds an MTU is dropped), routing protocols (paths are computed once, from
//! the whole map), and the time that hosts need to think.
//!
//! Read [`world`] first, then [`events`] for the order in which things happen, [`traffic`] for
//! sources and sinks, [`record`] and [`capture`] for what can be looked at afterwards, and
//! [`replicate`] for runs on all cores.

#![forbid(unsafe_code)]

pub mod capture;
pub mod error;
pub mod events;
pub mod headers;
mod node;
pub mod pcapng;
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
