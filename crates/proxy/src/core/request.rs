//! One request on its way through, and what the first look at it has found out.

use ringway_sansio::{Flow, Time};
use ringway_sip::header::Via;
use ringway_sip::message::Message;
use ringway_sip::transaction::ServerKey;
use std::sync::Arc;

/// One request on its way through: what every step needs to know of it.
#[derive(Clone, Copy)]
pub(super) struct IncomingRequest<'a> {
    pub flow: &'a Flow,
    pub msg: &'a Message<'a>,
    pub via: &'a Via<'a>,
    pub key: ServerKey,
}

/// What validation and routing have found out that later branches need again.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    pub routes_used: usize,
    pub last_route_used: bool,
    pub max_forwards: u8,
    pub max_breadth: u32,
    /// The realm that the credentials were for.
    pub realm: Option<Arc<str>>,
    /// From a trusted peer, within a dialog of ours, or in a network without digest: it may go to a
    /// routing rule's next hop without a rule.
    pub privileged: bool,
    pub spiral: u64,
    pub record_route: bool,
    /// Whether the branch of stateless forwarding leads back. No response comes to an ACK, but that of an
    /// INVITE which was forwarded statelessly must have the branch of its INVITE.
    pub return_path: bool,
    /// The dialog of ours that it belongs to.
    pub in_dialog: Option<InDialog>,
}

impl Findings {
    /// Whether the sender has proved to be a user, is trusted, or belongs to a dialog of ours.
    pub(super) fn is_known(&self) -> bool {
        self.privileged || self.realm.is_some() || self.in_dialog.is_some()
    }
}

/// The dialog of ours that a request belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct InDialog {
    /// When it began.
    pub began: Time,
    /// Whether the caller sends.
    pub by_caller: bool,
    /// Its key among the dialogs whose marks are void.
    pub key: u64,
}
