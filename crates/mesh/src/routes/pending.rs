//! Requests that wait for an answer.
//!
//! A request is sent again after 40 ms for each hop, and after twice as long each further time. Requests and answers are
//! joined by a random number that only routers on the way can know.

use std::sync::Arc;

use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};

use crate::config::Limits;
use crate::wire::MessageId;

/// Wait for each hop.
const HOP: Duration = Duration::from_millis(40);

#[derive(Clone, Debug)]
struct Request<T> {
    id: MessageId,
    value: T,
    due: Time,
    /// Time in microseconds from when it was last sent to when it is due.
    wait: u32,
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

/// The requests of a router that wait for an answer.
#[derive(Clone, Debug)]
pub struct Pending<T> {
    requests: Vec<Request<T>>,
    limits: Arc<Limits>,
    /// Requests that were not answered.
    pub expired: u64,
}

impl<T: Clone> Pending<T> {
    /// An empty table.
    pub fn new(limits: impl Into<Arc<Limits>>) -> Self {
        Pending { requests: Vec::new(), limits: limits.into(), expired: 0 }
    }

    /// Returns whether there is no room for another request.
    pub fn is_full(&self) -> bool {
        self.requests.len() >= self.limits.pending
    }

    /// Notes a request that is sent now over `hops` links. Returns the number to send it with, or `None` if the table is
    /// full.
    pub fn insert(
        &mut self,
        now: Time,
        value: T,
        hops: u16,
        random: &mut dyn Random,
    ) -> Option<MessageId> {
        if self.is_full() {
            return None;
        }
        let id = loop {
            let id = MessageId(random.next_u64());
            if self.requests.iter().all(|request| request.id != id) {
                break id;
            }
        };
        let wait = (HOP * u32::from(hops)).max(self.limits.min_wait);
        let due = now + wait;
        let wait = u32::try_from(wait.as_micros()).unwrap_or(u32::MAX);
        // Some are under way at the start only, and very many routers are simulated: few sizes leave few gaps in memory.
        if self.requests.len() == self.requests.capacity() {
            self.requests.reserve_exact(self.requests.len().max(4));
        }
        self.requests.push(Request { id, value, due, wait, retransmissions: 0 });
        Some(id)
    }

    /// Removes and returns the request that an answer belongs to.
    pub fn answer(&mut self, id: MessageId) -> Option<T> {
        let at = self.requests.iter().position(|request| request.id == id)?;
        Some(self.requests.swap_remove(at).value)
    }

    /// Returns a request that waits for an answer.
    pub fn get(&self, id: MessageId) -> Option<&T> {
        self.requests.iter().find(|request| request.id == id).map(|request| &request.value)
    }

    /// Returns the first request that is due; all others follow in later calls.
    pub fn due(&mut self, now: Time) -> Option<Due<T>> {
        if self.requests.is_empty() {
            self.requests = Vec::new();
        }
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
        request.wait = request.wait.saturating_mul(2);
        request.due = now + Duration::from_micros(request.wait.into());
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
        let id = pending.insert(START, 'a', 10, &mut SplitMix::new(1)).unwrap();
        assert_eq!(pending.poll_timeout(), Some(at(400)));
        assert_eq!(pending.due(at(399)), None);
        assert_eq!(pending.due(at(400)), Some(Due::Again(id, 'a')));
        assert_eq!(pending.due(at(1_199)), None);
        assert_eq!(pending.due(at(1_200)), Some(Due::Again(id, 'a')));
        assert_eq!(pending.due(at(2_800)), Some(Due::Expired('a')));
        assert_eq!((pending.expired, pending.poll_timeout()), (1, None));
    }

    #[test]
    fn an_answer_ends_its_request_alone() {
        let mut pending = Pending::new(Limits::default());
        let mut random = SplitMix::new(2);
        let [one, other] = [1, 2].map(|value| pending.insert(START, value, 1, &mut random));
        assert_eq!(pending.answer(one.unwrap()), Some(1));
        assert_eq!(pending.answer(one.unwrap()), None);
        assert_eq!(pending.get(other.unwrap()), Some(&2));
    }

    #[test]
    fn a_full_table_refuses() {
        let mut pending = Pending::new(Limits { pending: 2, ..Limits::default() });
        let mut random = SplitMix::new(3);
        let results: Vec<_> =
            (0..3).map(|n| pending.insert(START, n, 1, &mut random).is_some()).collect();
        assert_eq!((results, pending.is_full()), (vec![true, true, false], true));
    }
}
