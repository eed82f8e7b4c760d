//! The transaction layer: RFC 3261 section 17 with RFC 6026.
//!
//! [`machine`] holds the four state machines as tables of state and input, with neither bytes nor
//! clock; [`id`] says how transactions are named and found; [`table`] keeps the transactions of one
//! worker, their buffers and their timers; [`report`] names what could not be sent; [`request`] writes the ACK and CANCEL that follow from a
//! request. What is *not* here is what to do with a request: that is
//! the transaction user's affair (in Ringway, `ringway-proxy`).

pub mod id;
pub mod machine;
pub mod report;
pub mod request;
pub mod table;

pub use id::{Branch, ClientId, ServerId, ServerKey};
pub use machine::{Kind, Timers};
pub use report::Report;
pub use table::{ClientEvent, Expired, Incoming, Transactions};
