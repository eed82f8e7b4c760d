//! What a relay has done, and what it has refused.

/// Counters of the signalling half.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Dialogs whose media was to be relayed.
    pub sessions: u64,
    /// Streams for which ports were allocated.
    pub streams: u64,
    /// Descriptions that were rewritten.
    pub rewritten: u64,
    /// Descriptions that could not be read, in dialogs between peers that do not reach each other.
    pub unreadable: u64,
    /// Active streams that were left alone although their peers do not reach each other: TCP, multicast, several ports.
    pub left_alone: u64,
    /// Addresses that media may not be sent to: of strangers, of services, of the relay itself.
    pub refused_addresses: u64,
    /// Refusals because no pair of ports was ready.
    pub no_ports: u64,
    /// Refusals because of the limit of all streams, or because commands wait for the other half.
    pub full: u64,
    /// Refusals because of the share of a source.
    pub share: u64,
    /// Refusals because of the share of unanswered dialogs.
    pub unanswered: u64,
    /// Refusals because of the limit of one dialog.
    pub too_many: u64,
    /// Dialogs that were released because nothing was heard of them.
    pub idle: u64,
}

/// Counters of the half that forwards, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounters {
    /// Forwarded.
    pub forwarded: u64,
    /// Octets of payload that were forwarded.
    pub octets: u64,
    /// To a port at which nothing is relayed.
    pub no_stream: u64,
    /// From an address or a port that is not that of the party.
    pub stranger: u64,
    /// To an address other than that of the port.
    pub wrong_address: u64,
    /// Above the rate of a stream.
    pub rate: u64,
    /// For a party that receives nothing: on hold, refused, or not heard yet.
    pub no_destination: u64,
}
