//! The one-way TCP and SCTP of the ns-2 simulator, for results that must match those of ns-2. They are much smaller
//! protocols than [`ringway_tcp`] and [`ringway_sctp`], of which they use the packet formats.

pub mod sctp;
pub mod tcp;
