//! SIP (RFC 3261) as data and as state: grammar, messages, URIs, digest, SDP, dialogs, stream
//! framing and the keep-alive subset of STUN.
//!
//! It is not a client and not a server: nothing here opens a socket, reads a clock or draws a
//! random number. Bytes, [`Time`](ringway_sansio::Time) and [`Random`](ringway_sansio::Random) are
//! arguments. Every reader borrows the bytes it is given; every bound on them has a name in
//! [`limits`]. Read [`message`] first: one pass over a datagram gives a [`Message`], a view from
//! which everything else is reached. [`write`](mod@write) goes the other way.

#![forbid(unsafe_code)]

pub mod dialog;
pub mod digest;
pub mod framing;
pub mod header;
pub mod limits;
pub mod message;
pub mod sdp;
pub mod stun;
mod syntax;
pub mod transaction;
pub mod uri;
pub mod write;

pub use header::{CSeq, HeaderId, NameAddr, Via};
pub use message::{Malformed, Message, Method, Slot, Start};
pub use uri::{Scheme, Uri};
