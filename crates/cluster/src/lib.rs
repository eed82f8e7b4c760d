//! Several SIP servers as one, by a database that all of them share (Redis or Valkey): which node holds the registrations
//! of a user.
//!
//! The bindings of a phone stay at the node that has its flow (RFC 5626). The database knows only, for each user, the nodes
//! that hold bindings, so that any other node sends a call there by a value of Path (RFC 3327). A node that does not renew
//! its lease is passed over. Nothing here opens a socket or reads a clock: commands for the database come out, and what it
//! has answered goes in, so that the same code runs against a model of a database in virtual time.
//!
//! | module | what it does |
//! |---|---|
//! | [`record`] | what is in the database: names of nodes, records, scripts, messages |
//! | [`machine`] | one node: leases, what it publishes and reads, deadlines |
//! | [`exchange`] | what passes between a node and its world |
//! | [`slots`] | which primary of the database has which users |
//! | [`shards`] | which of these primaries are there |
//! | [`presence`] | what other nodes know of a user at a node |
//! | [`own`] | the users of this node, and what of them is not in the database yet |
//! | [`secrets`] | secrets of tokens, which all nodes share |
//! | [`asks`] | requests that wait for a read |
//! | [`holds`] | requests that wait for a node that is being restarted |
//! | [`cache`] | what was read of users at other nodes |
//! | [`nodes`] | which nodes live |
//! | [`hub`] | the machine, shared by threads |
//! | [`journal`] | registrations are acknowledged when the database has them too |
//! | [`letter`] | messages from node to node |
//! | [`location`] | the location service of workers |

#![forbid(unsafe_code)]

pub mod asks;
pub mod cache;
pub mod config;
pub mod exchange;
pub mod holds;
pub mod hub;
pub mod journal;
pub mod letter;
pub mod location;
pub mod machine;
pub mod nodes;
pub mod own;
pub mod presence;
pub mod record;
pub mod secrets;
pub mod shards;
pub mod slots;

pub use config::Config;
pub use exchange::{Command, Counts, Event, Probed, Reading, Report, Written};
pub use hub::{Hub, World};
pub use journal::ClusterJournal;
pub use letter::Letter;
pub use location::ClusterLocation;
pub use machine::Machine;
pub use presence::{Phones, Presence};
pub use record::{Found, Lease, NodeName, Publication};
pub use secrets::StoredSecret;
pub use slots::{Shard, Slots};
