//! Errors of a world.

use ringway_link::ConfigError;
use ringway_sansio::Time;
use std::net::IpAddr;

/// The reason why a world cannot be built or cannot continue.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration of a link is invalid.
    #[error("link {link}: {error}")]
    Link {
        /// The link's name.
        link: String,
        /// The error of the configuration.
        error: ConfigError,
    },
    /// This world has no such node, interface or endpoint.
    #[error("no such {what} in this world: {index}")]
    Unknown {
        /// The kind of object.
        what: &'static str,
        /// Its index.
        index: u32,
    },
    /// Two nodes have one name, so their random streams would be the same.
    #[error("node name {0:?} is taken")]
    NameTaken(String),
    /// The address is already on another interface.
    #[error("address {0} is taken")]
    AddressTaken(IpAddr),
    /// Another endpoint of the node uses the port, or the whole protocol.
    #[error("node {node}: protocol {protocol}, port {port:?} is taken")]
    PortTaken {
        /// The node's name.
        node: String,
        /// The IP protocol number.
        protocol: u8,
        /// The port; `None` for all.
        port: Option<u16>,
    },
    /// A limit of the world is reached.
    #[error("too many {what}: at most {max}")]
    TooMany {
        /// The limited items.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// Time does not advance at a node.
    #[error("node {node} spins: more than {max} events at {at:?}")]
    Spin {
        /// The node's name.
        node: String,
        /// The limit.
        max: u64,
        /// The time at which it spins.
        at: Time,
    },
    /// An endpoint sends packets endlessly.
    #[error("node {node}: an endpoint sent more than {max} packets at once, at {at:?}")]
    Flood {
        /// The node's name.
        node: String,
        /// The limit.
        max: u64,
        /// The time.
        at: Time,
    },
    /// A transport has invalid settings.
    #[error("{what}")]
    Settings {
        /// The error of the settings.
        what: String,
    },
    /// The run was ended early by its [`Interrupt`](crate::Interrupt).
    #[error("interrupted")]
    Interrupted,
    /// The event budget is exhausted.
    #[error("event budget of {max} used up at {at:?}; node {node} took most, {took} events")]
    Budget {
        /// The budget.
        max: u64,
        /// The time when it was exhausted.
        at: Time,
        /// The node with the largest number of events.
        node: String,
        /// Its number of events.
        took: u64,
    },
}

/// Limits that keep a scenario from running forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of events in total.
    pub events: u64,
    /// Maximum number of events of one node at one instant.
    pub per_instant: u64,
    /// Maximum number of packets that an endpoint may send each time it is polled.
    pub burst: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { events: 1 << 40, per_instant: 1_000_000, burst: 1_000_000 }
    }
}
