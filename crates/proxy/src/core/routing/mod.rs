//! Targets of a request, and whether it may be sent to them: RFC 3261 sections 16.3 to 16.5.

pub(super) mod access;
mod contacts;
mod phones;
pub(super) mod preroute;
pub(super) mod targets;
pub(super) mod validate;
