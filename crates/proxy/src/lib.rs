//! SIP proxy, registrar and redirect logic, without input or output.

pub mod gruu;
pub mod location;
pub mod outbound;
