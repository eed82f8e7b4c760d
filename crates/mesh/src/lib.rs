#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`id`] and [`identity`] for who a router is, [`metric`] for distance and responsibility, [`config`] for every
//! limit, [`budget`] for what control messages may cost, [`wire`] for the
//! formats, [`crypto`] for what seals them, [`link`] for neighbours, [`forward`] for what happens to a packet at a router, [`routes`] for what it remembers, and
//! [`ring`] for how routers sort themselves.

#![forbid(unsafe_code)]

pub mod budget;
pub mod config;
pub mod crypto;
pub mod forward;
pub mod id;
pub mod identity;
pub mod link;
pub mod metric;
pub mod ring;
pub mod routes;
pub mod wire;

pub use config::Limits;
pub use id::{Instance, NodeId, Prefix, Sequence};
pub use identity::{Identity, Proof};
pub use metric::{Ring, Space, Xor};
pub use ring::{Action, Overlay};
