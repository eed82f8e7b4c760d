//! Links as pure decisions: rate, delay, loss, duplication, corruption, reordering, marks, and the
//! queue before all that.
//!
//! A [`Link`] receives the time and handles of packets. It reports to an [`Outlet`] when each packet
//! leaves and arrives, or the reason why it is dropped. It holds no clock, no bytes and no event queue,
//! so one model serves the virtual world and the connection of two real interfaces, and writes the same
//! log in both for the same seed and arrivals. It is not a network: hosts, routes and everything with
//! more than one link are elsewhere.
//!
//! Read [`config`] for the parameters of a link, [`link`] for the order of its decisions, [`queue`] for
//! the disciplines and [`random`] for the random streams.

#![forbid(unsafe_code)]

pub mod config;
mod correlated;
mod delay;
pub mod distribution;
pub mod in_flight;
pub mod link;
pub mod log;
pub mod loss;
mod normal;
pub mod packet;
pub mod quantity;
pub mod queue;
pub mod random;
mod schedule;
pub mod trace;

pub use config::{Cells, Change, ConfigError, LinkConfig, Reorder, Slot, Sometimes};
pub use distribution::Distribution;
pub use in_flight::InFlight;
pub use link::Link;
pub use log::Logged;
pub use loss::{Loss, LossList, LossPosition};
pub use packet::{Departure, DropReason, Outlet, Packet};
pub use quantity::{Chance, Rate, Size, Span};
pub use queue::{Queue, QueueConfig};
pub use random::{Generator, Stream, Streams};
