//! Protocols that others are compared with.
//!
//! [`oracle_router`] knows all shortest paths and pays nothing for them; [`chord`] is an overlay on top of it; and
//! [`aodv`] finds routes by flooding. Plain flooding is [`Flood`](super::Flood).

pub mod aodv;
pub mod chord;
pub mod oracle_router;

pub use aodv::Aodv;
pub use chord::Chord;
pub use oracle_router::{OracleRouter, Paths, SharedPaths};
