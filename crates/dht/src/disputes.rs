//! Names that several routers claim, and of which this keeper cannot know who was first.
//!
//! It may have become a keeper only just, or have missed the first claim, which came to it later. So it asks all keepers when
//! another router claims a name, and takes the order of most of them. One signer can have it ask about its share of names only.

use std::collections::VecDeque;

use ringway_mesh::NodeId;
use ringway_sansio::time::{Duration, Time};

use crate::config::Config;
use crate::record::Record;

/// How often it is asked about one name that too few keepers answer for.
const ATTEMPTS: u8 = 4;

#[derive(Clone, Debug)]
struct Dispute {
    kind: u8,
    name: Box<[u8]>,
    /// Who has claimed it last.
    by: NodeId,
    attempts: u8,
}

/// What this keeper still has to ask about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disputes {
    open: VecDeque<Dispute>,
    due: Option<Time>,
    /// Names about which too much was to be asked already.
    pub(crate) dropped: u64,
}

impl Disputes {
    /// Has it be asked about the name of a record, which `by` has signed, if there is room.
    pub(crate) fn open(&mut self, now: Time, config: &Config, record: &Record, by: NodeId) {
        let (kind, name) = (record.kind(), record.name());
        if self.open.iter().any(|open| open.kind == kind && *open.name == *name) {
            return;
        }
        let of_signer = self.open.iter().filter(|open| open.by == by).count();
        if self.open.len() >= config.disputes || of_signer >= config.disputes_of_signer {
            self.dropped += 1;
            return;
        }
        self.open.push_back(Dispute { kind, name: name.into(), by, attempts: 0 });
        self.due.get_or_insert(now + config.dispute_pace);
    }

    /// Returns the name to ask about now, if it is time to. It is asked about again until it is [settled](Self::settle).
    pub(crate) fn next(&mut self, now: Time, pace: Duration) -> Option<(u8, Box<[u8]>)> {
        self.due.filter(|&due| due <= now)?;
        let mut next = self.open.pop_front()?;
        let asked = (next.kind, next.name.clone());
        next.attempts += 1;
        if next.attempts < ATTEMPTS {
            self.open.push_back(next);
        }
        self.due = (!self.open.is_empty()).then(|| now + pace);
        Some(asked)
    }

    /// Notes that the order of the claims of a name is known.
    pub(crate) fn settle(&mut self, record: &Record) {
        let is_of = |open: &Dispute| open.kind == record.kind() && *open.name == *record.name();
        self.open.retain(|open| !is_of(open));
        if self.open.is_empty() {
            self.due = None;
        }
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Draft;
    use ringway_mesh::crypto::StandIn;
    use ringway_mesh::id::Sequence;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    const PACE: Duration = Duration::from_secs(2);

    fn record(name: &[u8]) -> Record {
        let identity = Search::new(0, &mut SplitMix::new(1)).step(1).unwrap();
        let draft = Draft { kind: 1, name, value: b"x", lifetime: 600 };
        Record::sign::<StandIn>(&identity, Sequence::default(), &draft).unwrap()
    }

    #[test]
    fn names_are_asked_about_in_turn_until_they_are_settled_or_for_the_last_time() {
        let mut disputes = Disputes::default();
        let (config, by) = (Config::default(), NodeId::new(1));
        let at = Time::from_secs;
        for name in [&b"alice"[..], b"bob", b"bob"] {
            disputes.open(at(0), &config, &record(name), by);
        }
        let mut next = |now| disputes.next(at(now), PACE).map(|(_, name)| name.to_vec());
        assert_eq!(next(1), None);
        assert_eq!(next(2), Some(b"alice".to_vec()));
        assert_eq!(next(3), None);
        assert_eq!(next(4), Some(b"bob".to_vec()));
        disputes.settle(&record(b"alice"));
        let asked = |disputes: &mut Disputes, now| disputes.next(at(now), PACE).is_some();
        assert!((6..12).step_by(2).all(|now| asked(&mut disputes, now)));
        assert!(!asked(&mut disputes, 12));
        assert_eq!(disputes.poll_timeout(), None);
    }

    #[test]
    fn one_signer_leaves_room_for_others() {
        let mut disputes = Disputes::default();
        let config = Config { disputes: 5, disputes_of_signer: 3, ..Config::default() };
        let mut open = |by| {
            for number in 0..4_u64 {
                let name = format!("{by}.{number}");
                disputes.open(Time::ZERO, &config, &record(name.as_bytes()), NodeId::new(by));
            }
            (disputes.open.len(), disputes.dropped)
        };
        assert_eq!(open(1), (3, 1));
        assert_eq!(open(2), (5, 3));
    }
}
