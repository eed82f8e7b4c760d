//! Requests of RFC 5061 and their answers, in both directions.

use crate::error::AddressError;
use crate::wire::asconf::AddressChange;
use ringway_sansio::{Addressing, Time};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Maximum number of address requests that wait for their turn.
pub const MAX_ADDRESS_REQUESTS: usize = 8;
/// Maximum number of answers that wait to be sent. The peer repeats its request for the others.
const MAX_ANSWERS: usize = 4;

/// An outstanding request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) serial: u32,
    pub(crate) change: AddressChange,
    pub(crate) path: usize,
    /// Number of times that it was sent.
    pub(crate) sent: u32,
    /// Whether it is to be sent now.
    send: bool,
}

/// State of the requests in both directions. It is created with the first request.
#[derive(Debug)]
pub(crate) struct Asconf {
    next_serial: u32,
    /// The serial number of the peer's next request.
    expected: u32,
    queued: VecDeque<AddressChange>,
    pending: Option<PendingRequest>,
    /// The last answer and its serial number, in case the request is repeated.
    answered: Option<(u32, Vec<u8>)>,
    /// Answers that wait to be sent, and their addressing.
    unsent: VecDeque<(Addressing, u32, Vec<u8>)>,
    /// The peer's address that becomes the primary path once it is verified, as the peer requested.
    primary_requested: Option<IpAddr>,
    /// T-4 (section 5.1).
    timer: Option<Time>,
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

    /// Queues a request.
    pub(super) fn queue(&mut self, change: AddressChange) -> Result<(), AddressError> {
        if self.queued.len() >= MAX_ADDRESS_REQUESTS {
            return Err(AddressError::Full { limit: MAX_ADDRESS_REQUESTS });
        }
        self.queued.push_back(change);
        Ok(())
    }

    /// Starts the next request, on a path, unless one is outstanding.
    pub(super) fn start_next(&mut self, path: usize) {
        if self.pending.is_some() {
            return;
        }
        let Some(change) = self.queued.pop_front() else { return };
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        self.pending = Some(PendingRequest { serial, change, path, sent: 0, send: true });
    }

    /// Removes and returns the next answer to send.
    pub(super) fn take_answer(&mut self) -> Option<(Addressing, u32, Vec<u8>)> {
        self.unsent.pop_front()
    }

    /// Returns the outstanding request if it is to be sent now, and counts that it is.
    pub(super) fn take_request(&mut self) -> Option<PendingRequest> {
        let pending = self.pending.as_mut().filter(|pending| pending.send)?;
        pending.send = false;
        pending.sent += 1;
        Some(*pending)
    }

    /// Starts T-4.
    pub(super) fn start_timer(&mut self, at: Time) {
        self.timer = Some(at);
    }

    /// Returns the time when T-4 expires.
    pub(crate) fn timer(&self) -> Option<Time> {
        self.timer
    }

    /// Returns whether T-4 has expired, and stops it then.
    pub(crate) fn take_expired(&mut self, now: Time) -> bool {
        self.timer.take_if(|at| *at <= now).is_some()
    }

    /// Has the outstanding request sent again. Returns its path.
    pub(super) fn repeat(&mut self) -> Option<usize> {
        let pending = self.pending.as_mut()?;
        pending.send = true;
        Some(pending.path)
    }

    /// Moves the outstanding request to a path.
    pub(super) fn move_to(&mut self, path: usize) {
        if let Some(pending) = &mut self.pending {
            pending.path = path;
        }
    }

    /// Moves what was to go on a removed path to another path.
    pub(crate) fn leave(&mut self, path: usize, other: usize) {
        if self.pending.is_some_and(|pending| pending.path == path) {
            self.move_to(other);
        }
    }

    /// Removes and returns the outstanding request, if an answer with this serial number is its answer.
    pub(super) fn complete(&mut self, serial: u32) -> Option<AddressChange> {
        let answers = |pending: &mut PendingRequest| pending.serial == serial && pending.sent > 0;
        let pending = self.pending.take_if(answers)?;
        self.timer = None;
        Some(pending.change)
    }

    /// Returns whether an answer with this serial number answers a request that was never made (section 5.3, F0).
    pub(super) fn answers_nothing(&self, serial: u32) -> bool {
        self.pending.is_none() && (serial.wrapping_sub(self.next_serial) as i32) >= 0
    }

    /// Returns the requests that are not completed.
    pub(super) fn changes(&self) -> impl Iterator<Item = AddressChange> {
        let pending = self.pending.iter().map(|pending| pending.change);
        pending.chain(self.queued.iter().copied())
    }

    /// Returns whether a request of the peer is the next one. Another that repeats the last one is answered again.
    pub(crate) fn expects(&mut self, serial: u32, way: Addressing) -> bool {
        if serial == self.expected {
            return true;
        }
        // Section 5.2, E2.
        if let Some((last, answer)) = &self.answered
            && *last == serial
        {
            let answer = answer.clone();
            self.queue_answer(way, serial, answer);
        }
        false
    }

    /// Answers a request of the peer, at the address that it came from (section 5.2, E6).
    pub(crate) fn answer(&mut self, way: Addressing, serial: u32, value: Vec<u8>) {
        self.expected = serial.wrapping_add(1);
        self.answered = Some((serial, value.clone()));
        self.queue_answer(way, serial, value);
    }

    fn queue_answer(&mut self, way: Addressing, serial: u32, value: Vec<u8>) {
        if self.unsent.len() < MAX_ANSWERS {
            self.unsent.push_back((way, serial, value));
        }
    }

    /// Notes that the peer's address is to be the primary path once it is verified.
    pub(crate) fn request_primary(&mut self, address: IpAddr) {
        self.primary_requested = Some(address);
    }

    /// Returns whether an address that was verified now is to be the primary path.
    pub(crate) fn takes_primary(&mut self, verified: IpAddr) -> bool {
        self.primary_requested.take_if(|requested| *requested == verified).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    /// RFC 5061 section 5.1: one request at a time, each with the next serial number.
    #[test]
    fn one_request_is_outstanding() {
        let mut asconf = Asconf::new(7, 1);
        asconf.queue(AddressChange::Add(A)).unwrap();
        asconf.queue(AddressChange::Delete(A)).unwrap();
        asconf.start_next(0);
        asconf.start_next(0);
        assert_eq!(asconf.complete(7), None, "not sent yet");
        let sent = asconf.take_request().unwrap();
        assert_eq!((sent.serial, sent.sent, sent.change), (7, 1, AddressChange::Add(A)));
        assert!(asconf.take_request().is_none());
        assert_eq!(asconf.repeat(), Some(0));
        assert_eq!(asconf.take_request().unwrap().sent, 2);
        assert_eq!(asconf.complete(8), None);
        assert_eq!(asconf.complete(7), Some(AddressChange::Add(A)));
        assert!(asconf.answers_nothing(8) && !asconf.answers_nothing(7));
        asconf.start_next(1);
        assert_eq!(asconf.take_request().unwrap().serial, 8);
    }

    /// RFC 5061 section 5.2, E2.
    #[test]
    fn a_repeated_request_gets_the_same_answer() {
        let way = Addressing::new(A, A, crate::PROTOCOL);
        let mut asconf = Asconf::new(7, 1);
        assert!(!asconf.expects(2, way) && asconf.take_answer().is_none());
        assert!(asconf.expects(1, way));
        asconf.answer(way, 1, vec![9]);
        assert_eq!(asconf.take_answer(), Some((way, 1, vec![9])));
        assert!(!asconf.expects(1, way));
        assert_eq!(asconf.take_answer(), Some((way, 1, vec![9])));
        assert!(asconf.expects(2, way));
    }
}
