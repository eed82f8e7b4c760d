//! The ACKs that a server which is to stop waits for: without the ACK, a callee that answered hangs up after 64 times T1
//! (RFC 3261 section 13.3.1.4), although its caller was connected.

use ringway_sansio::{Duration, Time};
use std::collections::BTreeMap;

/// What follows an accepted INVITE.
#[derive(Default)]
pub(super) struct AwaitedAcks {
    /// The dialogs whose 2xx was forwarded while the server drains, and the time until which each is waited for.
    dialogs: BTreeMap<u64, Time>,
    /// The time of the last 2xx, or of an ACK that was awaited. What follows at once belongs to the call too: the ACK
    /// of a call that was accepted just before, or the BYE of a caller who hangs up.
    last: Option<Time>,
}

impl AwaitedAcks {
    /// Notes that an INVITE was accepted.
    pub(super) fn accepted(&mut self, now: Time) {
        self.last = Some(now);
    }

    /// Waits for the ACK of a dialog for 64 times `t1`.
    pub(super) fn wait(&mut self, now: Time, dialog: u64, t1: Duration) {
        self.dialogs.insert(dialog, now + t1 * 64);
    }

    /// Notes that the ACK of a dialog is forwarded.
    pub(super) fn forwarded(&mut self, now: Time, dialog: u64) {
        if self.dialogs.remove(&dialog).is_some() {
            self.last = Some(now);
        }
    }

    /// Returns whether no ACK is waited for, and nothing has followed a call for `t1`.
    pub(super) fn is_empty(&self, now: Time, t1: Duration) -> bool {
        self.dialogs.values().all(|until| *until <= now)
            && self.last.is_none_or(|last| last + t1 <= now)
    }
}
