//! Links as pure decisions: rate, delay, loss, duplication, corruption, reordering, marks, and the
//! queue before all that.
//!
//! A [`Link`] is told the time and given handles of packets; it tells an [`Outlet`] when each one
//! leaves and arrives, or why it does not. It keeps no clock, no bytes and no queue of events, so
//! one model serves the virtual world and the line between two real interfaces, and writes the same
//! log in both for the same seed and arrivals. It is not a network: hosts, routes and everything
//! with more than one link live elsewhere.
//!
//! Read [`config`] for what can be asked of a link, [`link`] for the order in which it happens,
//! [`queue`] for the disciplines and [`random`] for where chance comes from.

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
