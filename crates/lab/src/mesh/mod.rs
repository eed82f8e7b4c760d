//! Routers of the mesh and their hosts in virtual time: the machine of `ringway_mesh`, with IPv6 of real hosts.
//!
//! `ringway_sim::graph` has routers alone, as small as possible, for networks of any size; [`scale`] measures them.
//! The others here are for small networks that are looked at closely: [`Host`]s with TCP and echo requests, cables
//! with the headers of Ethernet, routers with a processor, and a [`Log`] of every packet.

mod host;
mod log;
mod network;
mod node;
mod router;
pub mod scale;

pub use host::{Host, Transfer};
pub use log::{Contents, Log, Step, lock, shared_log};
pub use network::{Cable, HostPlan, Network, Plan};
pub use node::LabNode;
pub use router::{Arrival, LabRouter, Processor, Wiring, identity_at};
