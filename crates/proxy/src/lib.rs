//! SIP proxy, registrar and redirect logic, without input or output.

pub mod location;
