//! Requests that wait for an answer.
//!
//! A request is sent again after the measured round trip times three, or 40 ms a hop while nothing has been measured, and
//! after twice as long each further time. Requests and answers are joined by a random number that only routers on the
//! way can know.

use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};

use crate::config::Limits;
use crate::wire::MessageId;

/// Assumed round trip of one hop.
const HOP: Duration = Duration::from_millis(40);
/// Round trips to wait.
const PATIENCE: u32 = 3;

/// The table of requests is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no room for another request, all {0} are under way")]
pub struct Full(pub usize);

#[derive(Clone, Debug)]
struct Request<T> {
    id: MessageId,
    value: T,
    sent: Time,
    due: Time,
    wait: Duration,
    retransmissions: u8,
}

/// A request whose time has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Due<T> {
    /// It is to be sent again.
    Again(MessageId, T),
    /// It was sent often enough, and no longer waits.
    Expired(T),
}

/// An answered request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered<T> {
    /// What was asked.
    pub value: T,
    /// The round trip, if the request was sent only once (Karn's algorithm).
    pub round_trip: Option<Duration>,
}

/// The requests of a router that wait for an answer.
#[derive(Clone, Debug)]
pub struct Pending<T> {
    requests: Vec<Request<T>>,
    limits: Limits,
    /// Requests that found no room.
    pub full: u64,
    /// Requests that were not answered.
    pub expired: u64,
}

impl<T: Clone> Pending<T> {
    /// An empty table.
    pub fn new(limits: Limits) -> Self {
        Pending { requests: Vec::new(), limits, full: 0, expired: 0 }
    }

    /// Notes a request that is sent now over `hops` links. Returns the number to send it with.
    pub fn insert(
        &mut self,
        now: Time,
        value: T,
        hops: u16,
        measured: Option<Duration>,
        random: &mut dyn Random,
    ) -> Result<MessageId, Full> {
        if self.requests.len() >= self.limits.pending {
            self.full += 1;
            return Err(Full(self.limits.pending));
        }
        let id = loop {
            let id = MessageId(random.next_u64());
            if self.requests.iter().all(|request| request.id != id) {
                break id;
            }
        };
        let round_trip = measured.map_or(HOP * u32::from(hops), |measured| measured * PATIENCE);
        let wait = round_trip.max(self.limits.min_wait);
        let (sent, due) = (now, now + wait);
        self.requests.push(Request { id, value, sent, due, wait, retransmissions: 0 });
        Ok(id)
    }

    /// Removes and returns the request that an answer belongs to.
    pub fn answer(&mut self, now: Time, id: MessageId) -> Option<Answered<T>> {
        let at = self.requests.iter().position(|request| request.id == id)?;
        let request = self.requests.swap_remove(at);
        let round_trip = (request.retransmissions == 0).then(|| now.since(request.sent));
        Some(Answered { value: request.value, round_trip })
    }

    /// Returns a request that waits for an answer.
    pub fn get(&self, id: MessageId) -> Option<&T> {
        self.requests.iter().find(|request| request.id == id).map(|request| &request.value)
    }

    /// Returns the first request that is due; all others follow in later calls.
    pub fn due(&mut self, now: Time) -> Option<Due<T>> {
        let first = (0..self.requests.len()).min_by_key(|&at| self.requests[at].due)?;
        let request = &mut self.requests[first];
        if request.due > now {
            return None;
        }
        if request.retransmissions >= self.limits.retransmissions {
            self.expired += 1;
            return Some(Due::Expired(self.requests.swap_remove(first).value));
        }
        request.retransmissions += 1;
        request.wait *= 2;
        request.due = now + request.wait;
        Some(Due::Again(request.id, request.value.clone()))
    }

    /// Returns when the next request is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.requests.iter().map(|request| request.due).min()
    }

    /// Returns the octets that are allocated, without what the requests have.
    pub fn heap_bytes(&self) -> usize {
        self.requests.capacity() * size_of::<Request<T>>()
    }

    /// Returns the number of requests under way.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    const START: Time = Time::from_secs(9);

    fn at(millis: u64) -> Time {
        START + Duration::from_millis(millis)
    }

    #[test]
    fn a_request_is_sent_again_twice_and_then_expires() {
        let mut pending = Pending::new(Limits::default());
        let mut random = SplitMix::new(1);
        let id = pending.insert(START, 'a', 10, None, &mut random).unwrap();
        assert_eq!(pending.poll_timeout(), Some(at(400)));
        assert_eq!(pending.due(at(399)), None);
        assert_eq!(pending.due(at(400)), Some(Due::Again(id, 'a')));
        assert_eq!(pending.due(at(1_199)), None);
        assert_eq!(pending.due(at(1_200)), Some(Due::Again(id, 'a')));
        assert_eq!(pending.due(at(2_800)), Some(Due::Expired('a')));
        assert_eq!((pending.expired, pending.is_empty(), pending.poll_timeout()), (1, true, None));
    }

    #[test]
    fn an_answer_measures_only_what_was_sent_once() {
        let mut pending = Pending::new(Limits::default());
        let mut random = SplitMix::new(2);
        let measured = Some(Duration::from_millis(100));
        let one = pending.insert(START, 1, 1, None, &mut random).unwrap();
        let other = pending.insert(START, 2, 1, measured, &mut random).unwrap();
        assert_eq!(pending.due(at(200)), Some(Due::Again(one, 1)));
        assert_eq!(pending.due(at(299)), None);
        assert_eq!(pending.answer(at(250), one), Some(Answered { value: 1, round_trip: None }));
        let round_trip = Some(Duration::from_millis(260));
        assert_eq!(pending.answer(at(260), other), Some(Answered { value: 2, round_trip }));
        assert_eq!(pending.answer(at(260), other), None);
    }

    #[test]
    fn a_full_table_refuses_and_counts() {
        let mut pending = Pending::new(Limits { pending: 2, ..Limits::default() });
        let mut random = SplitMix::new(3);
        let results: Vec<_> =
            (0..3).map(|n| pending.insert(START, n, 1, None, &mut random).is_ok()).collect();
        assert_eq!((results, pending.len(), pending.full), (vec![true, true, false], 2, 1));
    }
}
