//! Message properties (RFC 9622 section 9.1.3).

use super::connection::{CapacityProfile, DEFAULT_PRIORITY};
use super::value::{Coverage, Inherited, Lifetime, Limit, Value};

/// A capacity profile of one message; `None` is that of the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MessageProfile(pub Option<CapacityProfile>);

impl Value for MessageProfile {
    const EXPECTED: &'static str = "a capacity profile or inherited";

    fn read(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("inherited") {
            return Some(MessageProfile(None));
        }
        CapacityProfile::read(text).map(|profile| MessageProfile(Some(profile)))
    }

    fn write(&self) -> String {
        self.0.map_or("inherited", CapacityProfile::name).to_string()
    }
}

/// Properties of one message, or defaults for all messages of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageProperties {
    /// Time that the message may wait (section 9.1.3.1).
    pub msg_lifetime: Lifetime,
    /// Priority among the messages of the connection; a lower number goes first (section 9.1.3.2).
    pub msg_priority: u32,
    /// Whether the message arrives behind those sent before it (section 9.1.3.3).
    pub msg_ordered: Inherited,
    /// Whether the message may arrive several times (section 9.1.3.4).
    pub safely_replayable: bool,
    /// Whether it is the last message of the connection (section 9.1.3.5).
    pub final_message: bool,
    /// Octets from its start that a checksum must cover (section 9.1.3.6).
    pub msg_checksum_len: Coverage,
    /// Whether the message must arrive (section 9.1.3.7).
    pub msg_reliable: Inherited,
    /// What delay and capacity are traded by (section 9.1.3.8).
    pub msg_capacity_profile: MessageProfile,
    /// Whether the network layer must not fragment it (section 9.1.3.9).
    pub no_fragmentation: bool,
    /// Whether the transport must not split it either (section 9.1.3.10).
    pub no_segmentation: bool,
    /// Number of retransmissions after which it is abandoned (RFC 7496 section 3.1).
    pub msg_max_retransmissions: Limit,
}

impl Default for MessageProperties {
    fn default() -> Self {
        MessageProperties {
            msg_lifetime: Lifetime(None),
            msg_priority: DEFAULT_PRIORITY,
            msg_ordered: Inherited(None),
            safely_replayable: false,
            final_message: false,
            msg_checksum_len: Coverage(None),
            msg_reliable: Inherited(None),
            msg_capacity_profile: MessageProfile(None),
            no_fragmentation: false,
            no_segmentation: false,
            msg_max_retransmissions: Limit(None),
        }
    }
}
