//! What the properties of one message come to on one connection (RFC 9622 section 9.1.3).

use crate::gather::Candidate;
use crate::properties::{
    CapacityProfile, ConnectionProperties, Coverage, Limit, MessageProperties, Service,
};
use crate::protocol::MessageLimits;
use core::time::Duration;
use thiserror::Error;

/// The properties of a message, after those of its connection have filled in what it leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// Time that the message may wait; `None` for ever.
    pub lifetime: Option<Duration>,
    /// Priority among the messages of the connection; a lower number goes first.
    pub priority: u32,
    /// Whether it is delivered behind the ordered messages before it.
    pub ordered: bool,
    /// Whether it is repeated until it arrives.
    pub reliable: bool,
    /// Whether it is the last one.
    pub last: bool,
    /// Octets from its start that a checksum must cover.
    pub checksum: Coverage,
    /// What delay and capacity are traded by.
    pub capacity_profile: CapacityProfile,
    /// Retransmissions after which it is abandoned; `None` for no limit.
    pub max_retransmissions: Option<u32>,
    /// Whether the network layer must not fragment it.
    pub no_fragmentation: bool,
    /// Whether the transport must not split it.
    pub no_segmentation: bool,
}

/// Why a message cannot be sent with its properties (RFC 9622 section 9.2.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is larger than the connection carries.
    #[error("the message has {length} octets, expected at most {max} (sendMsgMaxLen)")]
    TooLarge {
        /// Its octets.
        length: usize,
        /// The maximum.
        max: u32,
    },
    /// The message does not fit into one packet and must not be split.
    #[error(
        "the message has {length} octets and noSegmentation, expected at most {max} \
         (singularTransmissionMsgMaxLen)"
    )]
    NotSingular {
        /// Its octets.
        length: usize,
        /// The maximum.
        max: u32,
    },
    /// The protocol may duplicate the message, which may not be repeated.
    #[error("safelyReplayable is false and the protocol may deliver the message twice")]
    MayDuplicate,
    /// The protocol does not keep order.
    #[error("msgOrdered is true and the connection does not provide preserveOrder")]
    NotOrdered,
    /// The protocol is not reliable.
    #[error("msgReliable is true and the connection does not provide reliability")]
    NotReliable,
    /// The connection was not established with reliability that can be chosen.
    #[error("msgReliable is false and the connection does not provide perMsgReliability")]
    AlwaysReliable,
    /// The connection was not established with limits of retransmissions.
    #[error(
        "ringway.msgMaxRetransmissions is set and the connection does not provide \
         ringway.partialByRetransmissions"
    )]
    NoRetransmissionLimit,
    /// The connection does not send (`direction`).
    #[error("the connection only receives")]
    OnlyReceives,
}

impl Sending {
    /// Returns what the properties of a message of `length` octets come to.
    ///
    /// # Errors
    /// The message is too large, or its properties contradict what the connection provides.
    pub fn new(
        message: &MessageProperties,
        connection: &ConnectionProperties,
        candidate: &Candidate,
        limits: MessageLimits,
        length: usize,
    ) -> Result<Sending, SendError> {
        let has = |service| candidate.provides.has(service);
        let exceeds = |max: &u32| length > *max as usize;
        if let Some(max) = limits.send_msg_max_len.filter(exceeds) {
            return Err(SendError::TooLarge { length, max });
        }
        let singular = limits.singular_transmission_msg_max_len;
        if let Some(max) = singular.filter(|max| message.no_segmentation && exceeds(max)) {
            return Err(SendError::NotSingular { length, max });
        }
        // Section 9.1.3.4.
        if candidate.protocol.may_duplicate() && !message.safely_replayable {
            return Err(SendError::MayDuplicate);
        }
        let ordered = message.msg_ordered.0.unwrap_or(has(Service::PreserveOrder));
        if ordered && !has(Service::PreserveOrder) {
            return Err(SendError::NotOrdered);
        }
        // Section 9.1.3.7: only a connection with perMsgReliability lets a message differ.
        let default = has(Service::Reliability);
        let reliable = message.msg_reliable.0.unwrap_or(default);
        if reliable != default && !has(Service::PerMsgReliability) {
            let differs = if reliable { SendError::NotReliable } else { SendError::AlwaysReliable };
            return Err(differs);
        }
        let Limit(max_retransmissions) = message.msg_max_retransmissions;
        if max_retransmissions.is_some() && !has(Service::PartialByRetransmissions) {
            return Err(SendError::NoRetransmissionLimit);
        }
        // Section 9.1.3.6: anything but full coverage is advisory.
        let full = has(Service::FullChecksumSend);
        Ok(Sending {
            lifetime: message.msg_lifetime.0,
            priority: message.msg_priority,
            ordered,
            reliable,
            last: message.final_message,
            checksum: if full { Coverage(None) } else { message.msg_checksum_len },
            capacity_profile: message
                .msg_capacity_profile
                .0
                .unwrap_or(connection.conn_capacity_profile),
            max_retransmissions,
            no_fragmentation: message.no_fragmentation,
            no_segmentation: message.no_segmentation,
        })
    }
}
