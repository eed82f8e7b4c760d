//! What can go wrong with a world.

use ringway_link::ConfigError;
use ringway_sansio::Time;
use std::net::IpAddr;

/// Why a world cannot be built or cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A link's configuration is unusable.
    #[error("link {link}: {error}")]
    Link {
        /// The link's name.
        link: String,
        /// What is wrong.
        error: ConfigError,
    },
    /// A node, interface or endpoint that this world does not have.
    #[error("no such {what} in this world: {index}")]
    Unknown {
        /// What was meant.
        what: &'static str,
        /// Its number.
        index: u32,
    },
    /// Two nodes of one name: their random streams would be the same.
    #[error("node name {0:?} is taken")]
    NameTaken(String),
    /// An address that is on another interface already.
    #[error("address {0} is taken")]
    AddressTaken(IpAddr),
    /// A port, or all of a protocol, that another endpoint of the node takes already.
    #[error("node {node}: protocol {protocol}, port {port:?} is taken")]
    PortTaken {
        /// The node's name.
        node: String,
        /// The IP protocol number.
        protocol: u8,
        /// The port; `None` for all.
        port: Option<u16>,
    },
    /// More of something than a world may have.
    #[error("too many {what}: at most {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        max: u64,
    },
    /// A node does not let time go on.
    #[error("node {node} spins: more than {max} events at {at:?}")]
    Spin {
        /// The node's name.
        node: String,
        /// The bound it went over.
        max: u64,
        /// The time that stands still.
        at: Time,
    },
    /// An endpoint gives packets without end.
    #[error("node {node}: an endpoint sent more than {max} packets at once, at {at:?}")]
    Flood {
        /// The node's name.
        node: String,
        /// The bound it went over.
        max: u64,
        /// When.
        at: Time,
    },
    /// A transport cannot be set up so.
    #[error("{what}")]
    Settings {
        /// What was expected, and what it got.
        what: String,
    },
    /// The event budget is used up.
    #[error("event budget of {max} used up at {at:?}; node {node} took most, {took} events")]
    Budget {
        /// The budget.
        max: u64,
        /// When it was used up.
        at: Time,
        /// The node that took most events.
        node: String,
        /// How many it took.
        took: u64,
    },
}

/// Bounds that keep a scenario from running for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Events in all.
    pub events: u64,
    /// Events of one node at one instant.
    pub per_instant: u64,
    /// Packets an endpoint may send each time it is asked.
    pub burst: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { events: 1 << 40, per_instant: 1_000_000, burst: 1_000_000 }
    }
}
