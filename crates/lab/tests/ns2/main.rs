//! The one-way protocols of ns-2 over its default links, against the published figures of a run with them.

mod path;
mod sctp;
mod tcp;
