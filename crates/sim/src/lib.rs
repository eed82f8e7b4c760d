//! The virtual world: hosts with interfaces and addresses, links between them, routes, and time that
//! advances from event to event.
//!
//! Protocols are attached as [`ringway_sansio::Endpoint`]s and cannot distinguish this world from a
//! real one. Except for [`flows`], which transports messages over three protocols, nothing here depends
//! on a protocol. [`ringway_link`] decides what happens to packets on a link. The model leaves out:
//! shared media (every link joins two interfaces), fragmentation (a packet that exceeds an MTU is
//! dropped), routing protocols (paths are computed once, from the whole map), and the processing time
//! of hosts.
//!
//! ```
//! use ringway_link::{LinkConfig, Rate, Span, Streams};
//! use ringway_sansio::Time;
//! use ringway_sim::traffic::{Sink, Source, SourceConfig};
//! use ringway_sim::{Bind, World};
//!
//! let mut world = World::new(Streams::new(12_345, 0));
//! let (a, b) = (world.add_node("a")?, world.add_node("b")?);
//! let link = LinkConfig { rate: Rate(200_000), delay: Span::from_millis(10), ..Default::default() };
//! let (out, far) = world.connect(a, b, link.clone(), link)?;
//! world.add_address(out, [10, 0, 0, 1].into())?;
//! world.add_address(far, [10, 0, 0, 2].into())?;
//! let config = SourceConfig {
//!     max_packets: 1,
//!     ..SourceConfig::ns2(([10, 0, 0, 1], 9).into(), ([10, 0, 0, 2], 9).into())
//! };
//! let source = Source::new(config, world.streams().stream("a/source"));
//! world.attach(a, Bind::udp(9), source)?;
//! let sink = world.attach(b, Bind::udp(9), Sink::new())?;
//! world.run_until(Time::from_secs(1))?;
//! // 1000 bytes take 40 ms to send and 10 ms to arrive.
//! assert_eq!(world.endpoint::<Sink>(sink).map(|s| s.totals().delay_max), Some(50_000_000));
//! # Ok::<(), ringway_sim::Error>(())
//! ```
//!
//! Read [`world`] first, then [`events`] for the order of events, [`traffic`] for sources and sinks,
//! [`flows`] for programs that exchange messages, [`record`] and [`capture`] for logs of packets, and
//! [`mod@replicate`] for runs on all cores.

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
