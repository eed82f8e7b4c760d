//! The formats of `ringway with`: between the library in a program and the broker, and between two brokers over SCTP.
//!
//! Nothing here calls the system, allocates, or knows a runtime: the library reads and writes these formats in signal
//! handlers and between fork(2) and execve(2).
//!
//! Read [`name`] first: a program's socket is known by its name in the kernel, so that neither side keeps a table of
//! descriptors. [`request`] has the questions about a socket, [`environment`] how the library finds the broker, and
//! [`stream`] how a stream of bytes with two ends travels as SCTP messages, and [`sharing`] how several of them share an
//! association. [`datagrams`] has those of programs as messages, and [`translation`] the table by which the library finds
//! where they go. [`executable`] is what both sides judge programs by.

#![forbid(unsafe_code)]

pub mod address;
mod cursor;
pub mod datagrams;
pub mod environment;
pub mod executable;
pub mod name;
pub mod request;
pub mod sharing;
pub mod stream;
pub mod translation;

pub use environment::{Environment, Secret};
pub use name::{BrokerId, Name, SocketId};
pub use request::{Reply, Request};

/// Why octets are not what the other side of the broker's socket writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The octets end early.
    #[error("expected {expected} octets more, got {got}")]
    Short {
        /// The length that was expected.
        expected: usize,
        /// The length that is left.
        got: usize,
    },
    /// There is no room to write.
    #[error("expected room for {expected} octets more, got {got}")]
    NoRoom {
        /// The length that was needed.
        expected: usize,
        /// The length that is left.
        got: usize,
    },
    /// A field has a value that means nothing.
    #[error("{what}: unexpected value {got}")]
    Value {
        /// The field.
        what: &'static str,
        /// Its value.
        got: u32,
    },
}
