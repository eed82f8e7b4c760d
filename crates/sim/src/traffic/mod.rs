//! Traffic over UDP: periodic and random sources, and sinks that measure.
//!
//! A packet contains, after its UDP header, its number and its send time, eight bytes each, and zeros.
//! Its size is that of the whole IP packet, as ns-2 counts a CBR packet of 1000 bytes.

mod sink;
mod source;

pub use sink::{Arrival, Sink, Totals};
pub use source::{Pattern, Source, SourceConfig, Stay};

/// Minimum number of data bytes in a packet: its number and its send time.
pub const STAMP: usize = 16;
