//! One request in progress, and the findings of its validation and routing.

use ringway_sansio::{Flow, Time};
use ringway_sip::header::Via;
use ringway_sip::message::Message;
use ringway_sip::transaction::ServerKey;
use std::sync::Arc;

/// One incoming request: what every step needs of it.
#[derive(Clone, Copy)]
pub(super) struct IncomingRequest<'a> {
    pub flow: &'a Flow,
    pub msg: &'a Message<'a>,
    pub via: &'a Via<'a>,
    pub key: ServerKey,
}

/// The findings of validation and routing that later branches need again.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    pub routes_used: usize,
    pub last_route_used: bool,
    pub max_forwards: u8,
    pub max_breadth: u32,
    /// The realm of the credentials.
    pub realm: Option<Arc<str>>,
    /// Whether it is from a trusted peer, within a dialog of ours, or in a network without digest: then it may be sent
    /// to the next hop of a routing rule without a rule.
    pub privileged: bool,
    pub spiral: u64,
    pub record_route: bool,
    /// Whether the branch of stateless forwarding encodes the return path. There is no response to an ACK, but the ACK
    /// of an INVITE that was forwarded statelessly must have the branch of its INVITE.
    pub return_path: bool,
    /// The dialog of ours that it belongs to.
    pub in_dialog: Option<InDialog>,
}

impl Findings {
    /// Returns whether the sender has proved to be a user, is trusted, or belongs to a dialog of ours.
    pub(super) fn is_known(&self) -> bool {
        self.privileged || self.realm.is_some() || self.in_dialog.is_some()
    }
}

/// The dialog of ours that a request belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct InDialog {
    /// The time of its beginning.
    pub began: Time,
    /// Whether the caller is the sender.
    pub by_caller: bool,
    /// Its key among the dialogs whose marks are revoked.
    pub key: u64,
}
