#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`flows`] for the machine of one worker and its inputs, [`pipes`] for what a world supplies, and
//! [`drive`] for what the owner of each connection does. [`call`] chooses the stream of a call, [`limits`] has
//! all bounds.

#![forbid(unsafe_code)]

mod admission;
mod awaited;
mod bytes;
pub mod call;
mod common;
mod connection;
pub mod counters;
mod directory;
pub mod drive;
pub mod flows;
mod fresh;
mod gauge;
mod handover;
mod key;
pub mod limits;
mod mail;
pub mod pipes;
mod queue;
mod table;

pub use admission::source_of;
pub use bytes::ByteStream;
pub use call::{CallStreams, EarlyCalls};
pub use common::Common;
pub use connection::Ending;
pub use counters::{Counter, Counters};
pub use drive::{Broken, Carrier, Driver, Turn};
pub use flows::{Flows, Received};
pub use fresh::METHODS;
pub use limits::Limits;
pub use mail::{Carry, Mail, Report};
pub use pipes::{Open, Pipes};
pub use queue::WriteQueue;
