//! Messages and streams over a byte stream: what makes connections over TCP, TLS, MPTCP and streams of QUIC carry messages
//! (RFC 9622 section 9.1.2), and one of them carry many connections.
//!
//! Both ends send a hello of 16 octets and then frames of at most 16 KiB. Each stream has its own window, so that a
//! stream that nobody reads delays no other. Memory is bounded by the number of streams times the window, both of which
//! the receiver states. [`wire`] has the format, [`Mux`] the state, and [`Plain`] stands for a peer without framing, whose
//! octets are one message without end.

mod mux;
mod plain;
mod stream;
pub mod wire;

pub use mux::{Counters, Event, Limits, Mux, SendError, Side};
pub use plain::Plain;
pub use stream::Read;
pub use wire::{FramingError, StreamId};
