//! The transaction layer: RFC 3261 section 17 with RFC 6026.
//!
//! [`machine`] contains the four state machines as tables of state and input, with neither bytes nor clock. [`id`]
//! defines the ids and keys of transactions. [`table`] contains the transactions of one worker, their buffers and their
//! timers. [`report`] numbers messages for reports of failure. [`request`] writes the ACK and CANCEL that follow from a
//! request. The processing of a request is *not* here: it is the transaction user's (in Ringway, `ringway-proxy`).

pub mod id;
pub mod machine;
pub mod report;
pub mod request;
pub mod table;

pub use id::{Branch, ClientId, ServerId, ServerKey};
pub use machine::{Kind, Timers};
pub use report::Report;
pub use table::{ClientEvent, Expired, Incoming, Transactions};
