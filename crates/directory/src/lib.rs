#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`statement`] | what routers state about users: accounts, locations, grants |
//! | [`resolve`] | what follows from the statements about one name |
//! | [`config`] | every limit and interval by name |
//! | [`private`] | messages between two routers that nobody else may read |
//! | [`accounts`] | the users of this router, and those that are registered here |
//! | [`questions`] | where users are, as far as it is being asked |
//! | [`numbers`] | the users that numbers stand for |
//! | [`deputies`] | routers that check the credentials of users whose home is silent |
//! | [`mail`] | messages for users who are away |
//! | [`verifications`] | credentials that their home is asked about |
//! | [`listing`] | lists of all accounts, or all locations, of the network |
//! | [`machine`] | all of it joined |
//! | [`service`] | commands of a SIP server, and reports to it |

#![forbid(unsafe_code)]

pub mod accounts;
pub mod config;
pub mod deputies;
mod grants;
pub mod listing;
pub mod machine;
pub mod mail;
pub mod numbers;
pub mod private;
pub mod questions;
pub mod resolve;
pub mod service;
pub mod statement;
pub mod verifications;

pub use config::Config;
pub use deputies::Secret;
pub use listing::{ListEnd, Listed, Stated, Subject};
pub use machine::{Counters, Directory, Event};
pub use mail::{Delivery, DeliveryId, Mail, MailCounters};
pub use numbers::Alias;
pub use private::{CredentialsCheck, Verdict};
pub use questions::{QuestionId, Whereabouts};
pub use resolve::{Home, Located};
pub use service::{Command, Report, Service};
pub use statement::{Account, Grant, Location, Number, Replica, SharedRule};
