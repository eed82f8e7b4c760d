//! The world of scale: a graph of up to millions of nodes that exchange short packets with their neighbours.
//!
//! It has neither addresses nor routes: [`World`](crate::World) has those, at some kilobytes a link. Here all
//! nodes are of one type, so calls are static. A link has a delay and a probability of loss and takes 12 bytes in
//! each direction, and if any link has a rate, each takes 32 more for its queue. A packet in flight takes 20 bytes
//! and its size, less where it repeats itself, a broadcast to any number of neighbours no more; and each of its arrivals takes 20 bytes during the
//! window in which it happens.
//!
//! Read [`topology`] for graphs and [`Plan`] for those that someone described, [`adjacency`] for links, [`node`] for
//! the trait of nodes and [`mod@world`] for the passing of time, in which nodes start and stop and links are cut.
//! [`faults`] has schedules of such events, and [`oracle`] knows what could be reached. [`data`] is what protocols
//! are tried with, [`flood`] one of them, and [`baseline`] has others. In [`hostile`] some routers of the mesh lie, and
//! in [`radio`] nodes share the air and move.

pub mod adjacency;
mod agenda;
pub mod baseline;
pub mod clock;
pub mod data;
pub mod dht;
mod engine;
mod exchange;
pub mod faults;
mod flight;
pub mod flood;
pub mod hostile;
mod lane;
mod links;
pub mod mesh;
pub mod node;
pub mod oracle;
mod pages;
mod plan;
mod planar;
mod points;
mod queue;
pub mod radio;
mod random;
mod store;
pub mod topology;
pub mod world;

pub use adjacency::{Adjacency, LinkModel};
pub use data::{DataNode, Delivery, Outcome, Trial};
pub use dht::DhtNode;
pub use engine::{Counters, Totals};
pub use faults::{Fault, FaultRates, Faults, Schedule};
pub use flood::{Flood, Origin};
pub use hostile::{Attack, Member};
pub use links::{Links, MAX_SHARDS};
pub use mesh::{Datagram, Identities, MeshNode};
pub use node::{Destination, GraphNode, node_random};
pub use oracle::{Oracle, Pair, Parts};
pub use plan::{Plan, PlanError, PlanLink, PlanNode};
pub use radio::{Radio, RadioConfig};
pub use store::MAX_LEN;
pub use topology::Topology;
pub use world::{Graph, Memory};
