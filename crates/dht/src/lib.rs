#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | what is kept: a name, a value, who signs it, and for how long |
//! | [`wire`] | the messages between routers |
//! | [`config`] | every limit and interval by name |
//! | [`neighbours`] | who is beside this router on the ring |
//! | [`table`] | the records that are kept here |
//! | [`publications`] | the records of this router, and where they are kept |
//! | `renewals` | keeping them alive with few messages |
//! | [`look_ups`] | questions under way |
//! | `disputes` | names that several routers claim |
//! | [`positions`], `listing`, `scans` | all records of a kind |
//! | [`repair`] | how keepers find out what one of them lacks |
//! | `strays` | records at routers that are no keepers of them any more |
//! | [`origins`], `shares` | what each other router may ask for, and what is spent for it |
//! | `scale` | who is near enough to a key to be one of its keepers |
//! | [`output`] | messages to send |
//! | [`machine`] | all of it joined |

#![forbid(unsafe_code)]

pub mod config;
mod disputes;
mod listing;
pub mod look_ups;
pub mod machine;
pub mod neighbours;
pub mod origins;
pub mod output;
pub mod positions;
pub mod publications;
pub mod record;
mod renewals;
pub mod repair;
mod scale;
mod scans;
mod search;
mod shares;
mod strays;
pub mod table;
mod timing;
pub mod wire;

pub use config::{Config, Kinds, Rate};
pub use look_ups::{Answer, LookUpId};
pub use machine::{Counters, Dht, Event};
pub use output::Message;
pub use record::{Draft, Record, RecordError};
pub use scans::{ScanEnd, ScanId};
pub use shares::Sent;
