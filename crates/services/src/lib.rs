#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! Read [`properties`] for what a program may ask for, [`protocol`] for what each protocol provides, [`preconnection`]
//! for what a program fills in, [`gather`] for the choice and [`explain`] for its reasons, [`race`] for the attempts,
//! [`memory`] for what is remembered of them. Once a connection stands, [`framing`] keeps messages and streams apart on a
//! byte stream, [`sending`] checks the properties of a message, [`queue`] decides which message goes next, and [`pool`]
//! maps connections to streams.

#![forbid(unsafe_code)]

pub mod availability;
pub mod endpoint;
pub mod explain;
pub mod framing;
pub mod gather;
pub mod memory;
pub mod pool;
pub mod preconnection;
pub mod properties;
pub mod protocol;
pub mod queue;
pub mod race;
pub mod security;
pub mod sending;

pub use availability::{Availability, Interface, LocalAddress};
pub use endpoint::{Family, LocalEndpoint, Remote, RemoteEndpoint, UdpPorts};
pub use explain::{Explanation, Unfit};
pub use gather::{Candidate, Ranked};
pub use memory::Memory;
pub use preconnection::Preconnection;
pub use properties::{
    ConnectionProperties, MessageProperties, Preference, Role, SelectionProperties, Service,
    TransportProperties,
};
pub use protocol::{Protocol, Provided, Provision};
pub use race::Race;
pub use security::SecurityParameters;
