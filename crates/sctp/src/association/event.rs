//! What an association reports to its user (RFC 9260 section 11.2).

use super::{Association, Change, Close};
use crate::outgoing::UndeliveredMessage;
use crate::path::PathState;
use std::collections::VecDeque;
use std::net::IpAddr;

/// An event of an association (RFC 9260 section 11.2). At most one of each kind waits, and one path change per path.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AssociationEvent {
    /// COMMUNICATION UP: the association is established.
    Up,
    /// RESTART: the peer restarted. Unacknowledged messages are lost, and streams begin at zero.
    Restarted,
    /// DATA ARRIVE: a message can be read. Read until nothing is left: the event is repeated only when more arrives.
    Readable,
    /// A message was refused because the buffer was full, and a quarter of the buffer is free again.
    Writable,
    /// The peer has started a shutdown. It accepts only what was already queued here.
    PeerShutdown,
    /// NETWORK STATUS CHANGE: the state of a path has changed.
    Path {
        /// The address of the peer that identifies the path.
        remote: IpAddr,
        /// The new state.
        state: PathState,
    },
    /// COMMUNICATION ERROR: the peer reported an error that does not end the association.
    PeerError {
        /// The cause code (RFC 9260 section 3.3.10).
        code: u16,
    },
    /// SEND FAILURE: queued messages are lost. Their stream does not exist, the peer restarted before it acknowledged
    /// them, or they were abandoned ([`Reliability`](crate::Reliability)).
    SendFailed {
        /// Number of messages.
        messages: u32,
    },
    /// A message that was not delivered, with [`Settings::return_undelivered`](crate::Settings::return_undelivered).
    Returned(UndeliveredMessage),
    /// Streams or addresses have changed.
    Changed(Change),
    /// COMMUNICATION LOST or SHUTDOWN COMPLETE: the association has ended. Received messages can still be read. This is
    /// the last event.
    Closed(Close),
}

/// Events that the user has not read.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) up: bool,
    pub(crate) restarted: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_shutdown: bool,
    pub(crate) paths: bool,
    pub(crate) error: Option<u16>,
    pub(crate) unsent: u32,
    pub(crate) changes: VecDeque<Change>,
    pub(crate) closed: Option<Close>,
}

impl Pending {
    pub(crate) fn any(&self) -> bool {
        self.up
            || self.restarted
            || self.readable
            || self.writable
            || self.peer_shutdown
            || self.paths
            || self.error.is_some()
            || self.unsent > 0
            || !self.changes.is_empty()
            || self.closed.is_some()
    }
}

impl Association {
    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<AssociationEvent> {
        use core::mem::take;
        let pending = &mut self.pending;
        if take(&mut pending.up) {
            return Some(AssociationEvent::Up);
        }
        if take(&mut pending.restarted) {
            return Some(AssociationEvent::Restarted);
        }
        if pending.paths
            && let Some((remote, state)) = self.take_path_change()
        {
            return Some(AssociationEvent::Path { remote, state });
        }
        let pending = &mut self.pending;
        if let Some(code) = pending.error.take() {
            return Some(AssociationEvent::PeerError { code });
        }
        if pending.unsent > 0 {
            return Some(AssociationEvent::SendFailed { messages: take(&mut pending.unsent) });
        }
        if let Some(change) = pending.changes.pop_front() {
            return Some(AssociationEvent::Changed(change));
        }
        if take(&mut pending.readable) {
            return Some(AssociationEvent::Readable);
        }
        if take(&mut pending.writable) {
            return Some(AssociationEvent::Writable);
        }
        if take(&mut pending.peer_shutdown) {
            return Some(AssociationEvent::PeerShutdown);
        }
        if let Some(message) = self.take_returned() {
            return Some(AssociationEvent::Returned(message));
        }
        Some(AssociationEvent::Closed(self.pending.closed.take()?))
    }

    /// Returns the next undelivered message.
    fn take_returned(&mut self) -> Option<UndeliveredMessage> {
        let returned = self.out.take_returned();
        self.check_writable();
        returned
    }

    /// Returns the next path whose state differs from the one last reported.
    fn take_path_change(&mut self) -> Option<(IpAddr, PathState)> {
        for path in &mut self.paths {
            if let Some(state) = path.take_change() {
                return Some((path.remote, state));
            }
        }
        self.pending.paths = false;
        None
    }
}
