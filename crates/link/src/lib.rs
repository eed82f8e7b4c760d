#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`config`] for the parameters of a [`Link`], [`link`] for the order of its decisions, [`queue`] for the
//! disciplines and [`random`] for the random streams. A world receives the decisions as an [`Outlet`].

#![forbid(unsafe_code)]

pub mod config;
mod correlated;
mod delay;
pub mod deliveries;
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
pub use deliveries::Deliveries;
pub use distribution::Distribution;
pub use in_flight::InFlight;
pub use link::Link;
pub use log::Logged;
pub use loss::{Loss, LossList, LossPosition};
pub use packet::{Departure, DropReason, Outlet, Packet, flow_hash};
pub use quantity::{Chance, Rate, Size, Span};
pub use queue::{Queue, QueueConfig};
pub use random::{Generator, Stream, Streams};
