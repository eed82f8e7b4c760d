#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`description`] | a session description as its lines, and what a relay must know of each stream |
//! | [`rewrite`](mod@rewrite) | writing it with other addresses and ports |
//! | [`body`] | the description in the body of a message |
//! | [`config`] | every limit and interval by name |
//! | [`reach`] | which addresses a peer reaches, and where media may be sent to |
//! | [`relay`] | the signalling half: dialogs, ports, offers and answers |
//! | [`command`] | what it tells the other half |
//! | [`forward`] | the half that forwards: what happens to each packet |
//! | [`hook`] | what a proxy calls |
//! | [`counters`] | what was done and refused |

#![forbid(unsafe_code)]

pub mod body;
pub mod command;
pub mod config;
pub mod counters;
pub mod description;
pub mod forward;
pub mod hook;
mod ports;
pub mod reach;
mod refusal;
pub mod relay;
pub mod rewrite;
mod session;
mod shares;

pub use command::{Command, Family, Party, Port, Side, StreamId};
pub use config::{Config, Limits, Network, Rate};
pub use counters::{Counters, PacketCounters};
pub use forward::{Dropped, Forwarder, Route};
pub use hook::MediaRelay;
pub use reach::Leg;
pub use relay::{Forwarded, Refusal, Relay, Tables};
