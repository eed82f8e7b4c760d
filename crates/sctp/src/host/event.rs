//! The events of all associations of a host.

use crate::association::{AssociationEvent, Change, Close};
use crate::endpoint::{AssocId, ListenerId};
use crate::outgoing::UndeliveredMessage;
use crate::path::PathState;
use std::net::IpAddr;

/// An event of one of the associations of a host, see [`AssociationEvent`]. The number of waiting events is bounded by
/// that of associations.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// COMMUNICATION UP: the association is established. It was opened by the local endpoint or, at a
    /// listener, by the peer.
    Up {
        /// The association.
        id: AssocId,
        /// The listener that accepted it.
        listener: Option<ListenerId>,
    },
    /// RESTART: the peer restarted. Unacknowledged messages are lost, and streams begin at zero.
    Restarted(AssocId),
    /// DATA ARRIVE: a message can be read. Read until nothing is left: the event is repeated only when
    /// more arrives.
    Readable(AssocId),
    /// A message was refused because the buffer was full, and a quarter of the buffer is free again.
    Writable(AssocId),
    /// The peer has started a shutdown. It accepts only what was already queued here.
    PeerShutdown(AssocId),
    /// NETWORK STATUS CHANGE: the state of a path has changed.
    Path {
        /// The association.
        id: AssocId,
        /// The address of the peer that identifies the path.
        remote: IpAddr,
        /// The new state.
        state: PathState,
    },
    /// COMMUNICATION ERROR: the peer reported an error that does not end the association.
    PeerError {
        /// The association.
        id: AssocId,
        /// The cause code (RFC 9260 section 3.3.10).
        code: u16,
    },
    /// SEND FAILURE: queued messages are lost. Their stream does not exist, the peer restarted before
    /// it acknowledged them, or they were abandoned ([`Reliability`](crate::Reliability)).
    SendFailed {
        /// The association.
        id: AssocId,
        /// Number of messages.
        messages: u32,
    },
    /// A message that was not delivered, with [`Settings::return_undelivered`](crate::Settings::return_undelivered).
    Returned {
        /// The association.
        id: AssocId,
        /// The message.
        message: UndeliveredMessage,
    },
    /// Streams or addresses have changed.
    Changed {
        /// The association.
        id: AssocId,
        /// The change.
        change: Change,
    },
    /// COMMUNICATION LOST or SHUTDOWN COMPLETE: the association has ended. Received messages can still
    /// be read. The id becomes invalid when all are read. This is the last event of an association.
    Closed(AssocId, Close),
}

impl Event {
    /// Returns an event of an association with its id.
    pub(super) fn of(id: AssocId, listener: Option<ListenerId>, event: AssociationEvent) -> Event {
        match event {
            AssociationEvent::Up => Event::Up { id, listener },
            AssociationEvent::Restarted => Event::Restarted(id),
            AssociationEvent::Readable => Event::Readable(id),
            AssociationEvent::Writable => Event::Writable(id),
            AssociationEvent::PeerShutdown => Event::PeerShutdown(id),
            AssociationEvent::Path { remote, state } => Event::Path { id, remote, state },
            AssociationEvent::PeerError { code } => Event::PeerError { id, code },
            AssociationEvent::SendFailed { messages } => Event::SendFailed { id, messages },
            AssociationEvent::Returned(message) => Event::Returned { id, message },
            AssociationEvent::Changed(change) => Event::Changed { id, change },
            AssociationEvent::Closed(why) => Event::Closed(id, why),
        }
    }
}
