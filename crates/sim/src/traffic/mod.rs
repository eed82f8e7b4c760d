//! Traffic over UDP: sources that send by the clock or by chance, and sinks that measure.
//!
//! A packet carries, behind its UDP header, its number and the time it was sent, eight bytes each,
//! and zeros. Its size is that of the whole IP packet, as ns-2 counts a CBR packet of 1000 bytes.

mod sink;
mod source;

pub use sink::{Arrival, Sink, Totals};
pub use source::{Pattern, Source, SourceConfig, Stay};

/// Bytes of data every packet has: its number and the time it was sent.
pub const STAMP: usize = 16;
