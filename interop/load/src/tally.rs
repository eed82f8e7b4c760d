//! What is counted in a run. A call either completed, or failed for one cause; beside that stand
//! the things that must not happen even in a call that completed.

use std::collections::BTreeMap;

use crate::report::Delays;

/// Steps of a call, in order. A call that runs out of time failed at the first one missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    /// The called end got the INVITE.
    Invite,
    /// The calling end got 100.
    Trying,
    /// The calling end got 180.
    Ringing,
    /// The calling end got 200.
    Ok,
    /// The called end got the ACK.
    Ack,
    /// The called end got the BYE.
    Bye,
    /// The calling end got the BYE's 200.
    ByeOk,
}

/// Number of steps.
pub(crate) const STEPS: usize = 7;

impl Step {
    /// All, in order, with the names they have in the report.
    pub(crate) const ALL: [(Self, &'static str); STEPS] = [
        (Self::Invite, "invite"),
        (Self::Trying, "trying"),
        (Self::Ringing, "ringing"),
        (Self::Ok, "ok"),
        (Self::Ack, "ack"),
        (Self::Bye, "bye"),
        (Self::ByeOk, "bye_ok"),
    ];
}

/// Things a correct server does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    /// A response that has not exactly the one Via its request was sent with (RFC 3261 8.1.3.3).
    Via,
    /// An INVITE without Record-Route: the rest of the call would bypass the server.
    NoRecordRoute,
    /// An INVITE whose Request-URI is not the registered contact (RFC 3261 16.5).
    RequestUri,
    /// A request whose Max-Forwards was not lowered (RFC 3261 16.6 step 3).
    MaxForwards,
    /// No SIP message, or more Via or Record-Route lines than are kept.
    Unreadable,
    /// Longer than the receive slot.
    Truncated,
    /// A method or status that has no place in the flow.
    Unexpected,
    /// A 200 to REGISTER that does not list the contact just registered (RFC 3261 10.3 step 8).
    ContactMissing,
}

/// Number of faults.
pub(crate) const FAULTS: usize = 8;

impl Fault {
    /// Names in the report, in order.
    pub(crate) const NAMES: [&'static str; FAULTS] = [
        "wrong_via",
        "no_record_route",
        "wrong_request_uri",
        "max_forwards",
        "unreadable",
        "truncated",
        "unexpected",
        "contact_missing",
    ];
}

/// Counts and delays of one worker.
#[derive(Clone)]
pub(crate) struct Tally {
    pub(crate) attempted: u64,
    pub(crate) established: u64,
    pub(crate) completed: u64,
    /// Calls given up, by the first step missing.
    pub(crate) failed: [u64; STEPS],
    /// Calls ended by a final response other than 2xx, by status, to INVITE and to BYE alike.
    pub(crate) rejected: BTreeMap<u16, u64>,
    /// Messages that came again, by step.
    pub(crate) repeated: [u64; STEPS],
    /// Messages of calls that were over.
    pub(crate) stray: u64,
    pub(crate) faults: [u64; FAULTS],
    /// Calls established later than the threshold.
    pub(crate) late: u64,
    /// Messages the generator sent again (only when it was told to).
    pub(crate) resent: u64,
    pub(crate) delays: Delays,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            attempted: 0,
            established: 0,
            completed: 0,
            failed: [0; STEPS],
            rejected: BTreeMap::new(),
            repeated: [0; STEPS],
            stray: 0,
            faults: [0; FAULTS],
            late: 0,
            resent: 0,
            delays: Delays::new(),
        }
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Calls that did not complete.
    pub(crate) fn failures(&self) -> u64 {
        self.failed.iter().sum::<u64>() + self.rejected.values().sum::<u64>()
    }

    /// The zero-failure rule: every call completed in time, and no message came twice, too late
    /// or wrong.
    pub(crate) fn clean(&self) -> bool {
        self.attempted > 0
            && self.completed == self.attempted
            && self.failures() == 0
            && self.repeated.iter().sum::<u64>() == 0
            && self.faults.iter().sum::<u64>() == 0
            && self.stray == 0
            && self.late == 0
            && self.resent == 0
    }

    /// Adds another worker's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.established += other.established;
        self.completed += other.completed;
        self.stray += other.stray;
        self.late += other.late;
        self.resent += other.resent;
        for i in 0..STEPS {
            self.failed[i] += other.failed[i];
            self.repeated[i] += other.repeated[i];
        }
        for i in 0..FAULTS {
            self.faults[i] += other.faults[i];
        }
        for (status, count) in &other.rejected {
            *self.rejected.entry(*status).or_default() += count;
        }
        self.delays.add(&other.delays);
    }
}
