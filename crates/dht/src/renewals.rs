//! Renewal of records that their keepers have: one message for all that one keeper has, without the records.
//!
//! A renewal is acknowledged by one keeper, which notifies those beside it with its next digest; the next renewal is another
//! keeper's. A record outlives two renewals that are lost with their keepers, or that a hostile one keeps for itself.
//!
//! All keepers of a record may be gone at once, in the other part of a network that is divided; nobody in this part has it
//! but its signer, and it may not be due for hours. So when the routers beside it have changed, or a keeper does not answer a
//! renewal or states that others have gone, a signer renews all of its records early, and writes those again that no keeper
//! has. One that has nothing to renew tries it with a record of some keeper once in a while, and soon after a router beside it
//! has missed another one.

use std::collections::{BTreeMap, BTreeSet};

use ringway_mesh::NodeId;
use ringway_sansio::Random;
use ringway_sansio::time::{Duration, Time, sooner};

use crate::wire::MAX_COPIES;

/// The time from the end of early renewals until there are others, if the routers beside this one have changed.
const PAUSE: Duration = Duration::from_secs(60);
/// The same if a keeper has gone, as one of very many always has: longer if renewals take long, so that few records are renewed
/// soon and many do not use up the share.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// The pause in terms of the time that the last ones took.
const PAUSES: u32 = 30;
/// Time from when a keeper was missed until the ring is whole again.
const MENDED: Duration = Duration::from_secs(15);
/// Time without a renewal after which one is tried.
const SAMPLE: Duration = Duration::from_secs(60);
/// Time from when a router near this one is known to have gone until a renewal is tried.
const HINTED: Duration = Duration::from_secs(8);

/// The number of a record of this router.
pub(crate) type Id = u32;

/// A renewal that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) ids: Vec<Id>,
    /// The keeper that is asked; none: whoever owns the key of the only record.
    pub(crate) keeper: Option<NodeId>,
    /// The key of the first record.
    pub(crate) key: NodeId,
    pub(crate) begun: Time,
    pub(crate) attempts: u8,
    due: Time,
}

/// When all records are renewed early.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Early {
    /// When they are because the routers beside this one have changed.
    change: Option<Time>,
    /// When they are because a keeper has gone.
    loss: Option<Time>,
    /// When the last message of those before goes, and of those that a change has caused.
    last: Option<Time>,
    last_of_change: Option<Time>,
    /// The time that the last ones took.
    took: Duration,
}

impl Early {
    /// The routers beside this one have changed: records are renewed at `at`, or some time after those that another change has
    /// caused. What a loss has caused does not delay it: it may have come before the ring was whole again.
    pub(crate) fn plan(&mut self, at: Time) {
        let at = self.last_of_change.map_or(at, |last| at.max(last + PAUSE));
        self.change = sooner(self.change, Some(at));
    }

    /// A keeper has gone: records are renewed when the ring has had time to mend.
    pub(crate) fn plan_after_loss(&mut self, now: Time) {
        let at = now + MENDED;
        let pause = (self.took * PAUSES).clamp(PAUSE, MAX_PAUSE);
        let at = self.last.map_or(at, |last| at.max(last + pause));
        self.loss = sooner(self.loss, Some(at));
    }

    /// Returns whether they are due, and then plans none any more.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let is_change = self.change.take_if(|due| *due <= now).is_some();
        let is_loss = self.loss.is_some_and(|due| due <= now);
        if is_change {
            self.last_of_change = Some(now);
        }
        if is_change || is_loss {
            self.loss = None;
        }
        is_change || is_loss
    }

    /// Returns when each group of records is due of which one message is sent, given the time that it takes to earn what the
    /// message costs.
    pub(crate) fn spread(
        &mut self,
        now: Time,
        groups: impl Iterator<Item = Duration>,
    ) -> Vec<Time> {
        let mut at = now;
        let times = groups.map(|time| {
            at += time;
            at
        });
        let times = times.collect();
        (self.last, self.took) = (Some(at), at.since(now));
        self.last_of_change = self.last_of_change.map(|last| if last == now { at } else { last });
        times
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        sooner(self.change, self.loss)
    }
}

/// Renewals under way, and records at rest by the keeper that is to renew them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewals {
    resting: BTreeMap<NodeId, BTreeSet<(Time, Id)>>,
    batches: BTreeMap<u32, Batch>,
    due: BTreeSet<(Time, u32)>,
    /// When a renewal has begun last, or a record has been written.
    last: Time,
    /// When one is tried all the same, since a router near this one has gone.
    hint: Option<Time>,
}

impl Renewals {
    /// A record was written or renewed at `now`.
    pub(crate) fn note(&mut self, now: Time) {
        self.last = now;
    }

    /// A record is at rest until `again`, and then `keeper` is to renew it.
    pub(crate) fn rest(&mut self, keeper: NodeId, again: Time, id: Id) {
        self.resting.entry(keeper).or_default().insert((again, id));
    }

    /// A record is not at rest any more.
    pub(crate) fn wake(&mut self, keeper: NodeId, again: Time, id: Id) {
        if let Some(resting) = self.resting.get_mut(&keeper) {
            resting.remove(&(again, id));
            if resting.is_empty() {
                self.resting.remove(&keeper);
            }
        }
    }

    /// Returns the records that a keeper is to renew until a time, as many as one message has room for.
    pub(crate) fn of_keeper(&self, keeper: NodeId, until: Time) -> Vec<Id> {
        let resting = self.resting.get(&keeper).into_iter().flatten();
        let near = resting.take_while(|&&(again, _)| again <= until).take(MAX_COPIES);
        near.map(|&(_, id)| id).collect()
    }

    /// A router near this one has gone, though none beside it: one renewal is tried soon.
    pub(crate) fn sample_soon(&mut self, now: Time) {
        self.hint.get_or_insert(now + HINTED);
    }

    /// Returns a record to renew though it is not due, if none was for a while or a router has gone, and its keeper, which is
    /// drawn.
    pub(crate) fn sample(&mut self, now: Time, random: &mut dyn Random) -> Option<(NodeId, Id)> {
        if now < self.sample_due()? {
            return None;
        }
        self.hint.take_if(|hint| *hint <= now);
        let at = random.next_u64() as usize % self.resting.len();
        let (keeper, resting) = self.resting.iter().nth(at)?;
        resting.first().map(|&(_, id)| (*keeper, id))
    }

    fn sample_due(&self) -> Option<Time> {
        let due = sooner(Some(self.last + SAMPLE), self.hint);
        due.filter(|_| !self.resting.is_empty())
    }

    /// Begins the renewal of records, of which the first has this key.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        request: u32,
        keeper: Option<NodeId>,
        key: NodeId,
        ids: Vec<Id>,
    ) {
        self.last = now;
        let batch = Batch { ids, keeper, key, begun: now, attempts: 0, due: now };
        self.due.insert((now, request));
        self.batches.insert(request, batch);
    }

    /// Returns a renewal that is due, and has it due again at `again` of its attempts.
    pub(crate) fn next_due(&self, now: Time) -> Option<u32> {
        self.due.first().filter(|&&(at, _)| at <= now).map(|&(_, request)| request)
    }

    /// Counts an attempt, after which the renewal is due again at a time that depends on how many there were.
    pub(crate) fn attempt(&mut self, request: u32, due: impl Fn(u8) -> Time) {
        if let Some(batch) = self.batches.get_mut(&request) {
            self.due.remove(&(batch.due, request));
            batch.attempts = batch.attempts.saturating_add(1);
            batch.due = due(batch.attempts);
            self.due.insert((batch.due, request));
        }
    }

    /// Returns a renewal.
    pub(crate) fn get(&self, request: u32) -> Option<&Batch> {
        self.batches.get(&request)
    }

    /// Ends a renewal.
    pub(crate) fn end(&mut self, request: u32) -> Option<Batch> {
        let batch = self.batches.remove(&request)?;
        self.due.remove(&(batch.due, request));
        Some(batch)
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        sooner(self.due.first().map(|&(at, _)| at), self.sample_due())
    }
}

#[cfg(test)]
mod tests {
    use ringway_sansio::SplitMix;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A keeper that states losses without end has a signer renew its records once after each pause.
    #[test]
    fn however_many_losses_are_stated_there_is_a_pause() {
        for (messages, pause) in [(1, PAUSE), (4, 120 * SECOND), (40, MAX_PAUSE)] {
            let (mut early, mut now) = (Early::default(), Time::from_secs(9));
            early.plan_after_loss(now);
            assert!(!early.take(now) && early.take(now + MENDED));
            now += MENDED;
            let end = *early.spread(now, std::iter::repeat_n(SECOND, messages)).last().unwrap();
            for _ in 0..100 {
                early.plan_after_loss(now);
            }
            assert_eq!(early.poll_timeout(), Some(end + pause), "{messages}");
        }
    }

    #[test]
    fn hints_have_one_renewal_tried_in_eight_seconds() {
        let (mut renewals, mut random) = (Renewals::default(), SplitMix::new(1));
        let (now, keeper) = (Time::from_secs(100), NodeId::new(5));
        renewals.note(now);
        renewals.rest(keeper, now + 999 * SECOND, 7);
        for _ in 0..100 {
            renewals.sample_soon(now);
        }
        assert_eq!(renewals.poll_timeout(), Some(now + HINTED));
        assert_eq!(renewals.sample(now, &mut random), None);
        assert_eq!(renewals.sample(now + HINTED, &mut random), Some((keeper, 7)));
        assert_eq!(renewals.poll_timeout(), Some(now + SAMPLE));
    }
}
