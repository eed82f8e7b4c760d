//! One request in progress, and the findings of its validation and routing.

use super::ids::ContextId;
use super::proof::Proof;
use crate::mark::TargetHash;
use crate::question::{CredentialsAnswer, CredentialsVerdict, Question};
use ringway_sansio::{Flow, Time};
use ringway_sip::header::Via;
use ringway_sip::message::{Message, Method};
use ringway_sip::transaction::{ServerId, ServerKey};
use std::sync::Arc;

/// The number of questions that the world is asked for one request.
const MAX_QUESTIONS: usize = 16;

/// One incoming request: what every step needs of it.
#[derive(Clone, Copy)]
pub(super) struct IncomingRequest<'a> {
    pub flow: &'a Flow,
    pub msg: &'a Message<'a>,
    pub via: &'a Via<'a>,
    pub key: ServerKey,
    /// What has been done for it, if it has waited for an answer of the world.
    pub progress: Option<&'a Progress>,
}

impl IncomingRequest<'_> {
    /// Returns the server transaction, if one is open already.
    pub(super) fn server(&self) -> Option<ServerId> {
        self.progress.map(|progress| progress.server)
    }

    /// Returns whether the request may wait for another answer of the world. An ACK cannot be answered, and what a CANCEL
    /// is for must not change while it waits.
    pub(super) fn may_ask(&self, now: Time) -> bool {
        !matches!(self.msg.method(), Method::Ack | Method::Cancel)
            && self.progress.is_none_or(|progress| progress.may_ask(now))
    }

    /// Returns whether it may wait for the routing rules of other servers, for which it has not waited before.
    pub(super) fn may_ask_for_rules(&self, now: Time) -> bool {
        self.may_ask(now) && self.progress.is_none_or(|progress| !progress.asked_for_rules)
    }

    /// Returns whether it may wait until it is kept for a user who is away, for which it has not waited before.
    pub(super) fn may_ask_to_keep(&self, now: Time) -> bool {
        self.may_ask(now) && self.progress.is_none_or(|progress| !progress.asked_to_keep)
    }

    /// Returns whether it may wait for the servers at which a user is registered, for which it has not waited before.
    pub(super) fn may_ask_about(&self, now: Time, aor: &[u8]) -> bool {
        self.may_ask(now)
            && self.progress.is_none_or(|progress| progress.asked.iter().all(|a| **a != *aor))
    }
}

/// What has been done for a request that has waited for an answer of the world.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// Its server transaction.
    pub server: ServerId,
    /// The response context that is held for it.
    pub context: ContextId,
    /// Whether a 100 has been sent.
    pub trying: bool,
    /// The time at which it came.
    pub came: Time,
    /// The time from which nothing is asked for it any more.
    pub deadline: Time,
    /// The proof that its sender has given.
    pub proof: Option<Proof>,
    /// The addresses-of-record that have been asked for.
    pub asked: Vec<Box<[u8]>>,
    /// Whether the routing rules of other servers have been asked for.
    pub asked_for_rules: bool,
    /// Whether the world has been asked to keep it.
    pub asked_to_keep: bool,
    /// The credentials that another server has been asked about.
    pub credentials: Option<CredentialsAnswer>,
}

impl Progress {
    /// Records that a question is asked.
    pub(super) fn note_question(&mut self, question: &Question) {
        match question {
            Question::Location { aor } => self.asked.push(aor.clone()),
            Question::Rules => self.asked_for_rules = true,
            Question::Keep(_) => self.asked_to_keep = true,
            Question::Credentials(question) => {
                let value = question.value.clone();
                self.credentials = Some(CredentialsAnswer { value, verdict: None });
            }
        }
    }

    /// Records the verdict about the credentials that were asked about.
    pub(super) fn note_verdict(&mut self, verdict: CredentialsVerdict) {
        if let Some(answer) = &mut self.credentials {
            answer.verdict = Some(verdict);
        }
    }

    fn may_ask(&self, now: Time) -> bool {
        now < self.deadline && self.asked.len() < MAX_QUESTIONS
    }
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
    /// The address-of-record of the sender of an INVITE, if a phone of one of our users has sent it to this server.
    pub sender: Option<Arc<[u8]>>,
    /// Whether a router of the mesh vouches for the sender.
    pub vouched: bool,
    /// Whether another server of our domains has sent it.
    pub from_server: bool,
    /// Whether it is for some phones of its user, and another request of the same call may be for the others.
    pub is_part: bool,
    pub spiral: u64,
    pub record_route: bool,
    /// Whether the branch of stateless forwarding encodes the return path. There is no response to an ACK, but the ACK
    /// of an INVITE that was forwarded statelessly must have the branch of its INVITE.
    pub return_path: bool,
    /// The dialog of ours that it belongs to.
    pub in_dialog: Option<InDialog>,
    /// The way of the ACK, if this is an INVITE of a dialog that is not ours.
    pub ack: Option<AckPath>,
}

impl Findings {
    /// Returns the status where the flow of a user has closed: another server may know another flow (RFC 5626 section 7), a
    /// client should never receive 430 (section 11.5).
    pub(super) fn without_flow(&self) -> u16 {
        if self.from_server { 430 } else { 480 }
    }

    /// Returns whether the sender has proved to be a user, here or at another router, is trusted, or belongs to a dialog
    /// of ours.
    pub(super) fn is_known(&self) -> bool {
        self.privileged || self.realm.is_some() || self.vouched || self.in_dialog.is_some()
    }
}

/// The target of the ACK for a 2xx.
#[derive(Clone, Copy, Debug)]
pub(super) enum AckPath {
    /// The Route that the INVITE had.
    Route(TargetHash),
    /// The Contact of the 2xx (RFC 3261 section 12.2.1.2).
    Contact,
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
