//! Requests of RFC 5061 and their answers, in both directions.

use crate::wire::asconf::AddressChange;
use ringway_sansio::{Addressing, Time};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Maximum number of address requests that wait for their turn.
pub const MAX_ADDRESS_REQUESTS: usize = 8;
/// Maximum number of answers that wait to be sent. The peer repeats its request for the others.
const MAX_ANSWERS: usize = 4;

/// An outstanding request.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) serial: u32,
    pub(super) change: AddressChange,
    pub(super) send: bool,
    pub(super) path: usize,
    /// Number of times that it was sent.
    pub(super) sent: u32,
}

/// State of the requests in both directions. It is created with the first request.
#[derive(Debug)]
pub(crate) struct Asconf {
    pub(super) next_serial: u32,
    /// The serial number of the peer's next request.
    pub(crate) expected: u32,
    pub(super) queued: VecDeque<AddressChange>,
    pub(super) pending: Option<PendingRequest>,
    /// The last answer and its serial number, in case the request is repeated.
    pub(crate) answered: Option<(u32, Vec<u8>)>,
    /// Answers that wait to be sent, and their addressing.
    pub(super) unsent: VecDeque<(Addressing, u32, Vec<u8>)>,
    /// The peer's address that becomes the primary path once it is verified, as the peer requested.
    pub(crate) primary_requested: Option<IpAddr>,
    pub(crate) timer: Option<Time>,
}

impl Asconf {
    pub(super) fn new(next_serial: u32, expected: u32) -> Asconf {
        Asconf {
            next_serial,
            expected,
            queued: VecDeque::new(),
            pending: None,
            answered: None,
            unsent: VecDeque::new(),
            primary_requested: None,
            timer: None,
        }
    }

    /// Moves what was to go on a removed path to another path.
    pub(crate) fn leave(&mut self, path: usize, other: usize) {
        if let Some(pending) = self.pending.as_mut().filter(|pending| pending.path == path) {
            pending.path = other;
        }
    }

    /// Queues an answer to the address that the request came from (section 5.2 E6).
    pub(crate) fn answer(&mut self, way: Addressing, serial: u32, value: Vec<u8>) {
        if self.unsent.len() < MAX_ANSWERS {
            self.unsent.push_back((way, serial, value));
        }
    }
}
