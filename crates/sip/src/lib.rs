#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`message`] first: one pass over a datagram returns a [`Message`], a view from which everything else is
//! reached. [`write`](mod@write) is the opposite direction. Every bound on input has a name in [`limits`].

#![forbid(unsafe_code)]

pub mod dialog;
pub mod digest;
pub mod framing;
pub mod header;
pub mod limits;
pub mod message;
mod method;
pub mod sdp;
pub mod stun;
mod syntax;
pub mod transaction;
pub mod uri;
pub mod write;

pub use header::{CSeq, HeaderId, NameAddr, Via};
pub use message::{Malformed, Message, Method, Slot, Start};
pub use uri::{Scheme, Uri};
