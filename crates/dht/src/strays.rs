//! Records at routers that are no keepers of them any more.
//!
//! When networks meet, or many routers join at once, all keepers of a record may be others than before. Nobody beside them
//! has it, so the repair does not find that out. A router that has a record and is not its keeper any more asks the owner of
//! its key whether it is there (CHECK). If it is not, the signer is notified (ASTRAY), which asks as well, and writes it once
//! more. Keepers do not take it of the router that has it: whoever has recorded one could revive it after it has ended.
//!
//! Rounds over all such records begin some time after the routers beside this one have changed. What keepers are known to
//! have is asked for no more.

use ringway_mesh::NodeId;
use ringway_sansio::Random;
use ringway_sansio::time::{Duration, Time, sooner};

use crate::positions::Cursor;
use crate::repair::vary;
use crate::table::Slot;
use crate::wire::Copy;

/// The time from a change of the routers beside this one to the first round: keepers have mostly compared by then.
const FIRST: Duration = Duration::from_secs(8);
/// The time from the first round to the second, if something was left over. It doubles with each round.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it doubles.
const MAX_DOUBLINGS: u8 = 7;
/// The time after which there is no answer any more.
const WAIT: Duration = Duration::from_secs(1);
/// The time to the next attempt if there was no budget for one.
const UNPAID: Duration = Duration::from_secs(1);
/// Failures one after the other with which a round ends.
const MAX_FAILURES: u8 = 4;
/// How often a check that another router has asked for is sent, if there is no answer. What a round asks for is asked again by
/// the next one.
const MAX_ATTEMPTS: u8 = 3;
/// Maximum number of checks under way that other routers have asked for.
const MAX_CHECKS: usize = 8;

/// A CHECK that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    request: u32,
    /// The records, in the order of CHECK.
    pub(crate) records: Vec<(Slot, Copy)>,
    until: Time,
    /// The router that has asked for it.
    pub(crate) cause: NodeId,
    attempts: u8,
    /// It is part of a round over what is kept here.
    pub(crate) of_round: bool,
}

impl Check {
    /// Returns one that is to be sent.
    pub(crate) fn new(cause: NodeId, records: Vec<(Slot, Copy)>, of_round: bool) -> Check {
        Check { request: 0, records, until: Time::ZERO, cause, attempts: 0, of_round }
    }
}

/// A round over the records that are kept here, and are others' to keep.
#[derive(Clone, Copy, Default, Debug)]
struct Round {
    /// The last record that was asked for.
    after: Option<Cursor>,
    failures: u8,
    /// Some records may not be at their keepers.
    is_open: bool,
}

/// What is being checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strays {
    /// When the next round begins, or the one under way goes on.
    due: Option<Time>,
    round: Option<Round>,
    /// Rounds since the routers beside this one have changed.
    rounds: u8,
    checks: Vec<Check>,
    /// Hints of other routers for which too many checks were under way.
    pub(crate) dropped: u64,
}

impl Strays {
    /// The routers beside this one have changed: a round begins soon, or the one under way begins anew. Returns a time by which keepers
    /// have mostly compared.
    pub(crate) fn changed(&mut self, now: Time, random: &mut dyn Random) -> Time {
        self.checks.retain(|check| !check.of_round);
        (self.round, self.rounds) = (None, 0);
        let first = now + vary(FIRST, random);
        self.due = sooner(self.due, Some(first));
        first
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let is_waiting = self.checks.iter().any(|check| check.of_round);
        let due = self.due.filter(|_| !is_waiting);
        self.checks.iter().map(|check| check.until).fold(due, |due, at| sooner(due, Some(at)))
    }

    /// Forgets checks without an answer. Returns whether a round is due, and whether it is a new one.
    pub(crate) fn timeout(&mut self, now: Time) -> (bool, bool) {
        let round = &mut self.round;
        self.checks.retain(|check| {
            let waits = now < check.until;
            if !waits && check.of_round {
                round.iter_mut().for_each(|round| round.failures += 1);
            }
            waits
        });
        let is_waiting = self.checks.iter().any(|check| check.of_round);
        let is_due = !is_waiting && self.due.is_some_and(|due| due <= now);
        let is_new = is_due && self.round.is_none();
        if is_new {
            self.round = Some(Round::default());
        }
        (is_due, is_new)
    }

    /// Removes and returns a check without an answer that is to be sent once more.
    pub(crate) fn take_unanswered(&mut self, now: Time) -> Option<Check> {
        let is_due =
            |check: &Check| check.until <= now && !check.of_round && check.attempts < MAX_ATTEMPTS;
        let at = self.checks.iter().position(is_due)?;
        Some(self.checks.swap_remove(at))
    }

    /// Returns where the round goes on; `None` if too much has failed.
    pub(crate) fn next(&self) -> Option<Option<Cursor>> {
        self.round.filter(|round| round.failures < MAX_FAILURES).map(|round| round.after)
    }

    /// The round went on: up to `after`, or nobody who keeps the next record was there.
    pub(crate) fn advance(
        &mut self,
        due: Time,
        after: Option<Cursor>,
        is_open: bool,
        failed: bool,
    ) {
        let Some(round) = &mut self.round else { return };
        (round.after, self.due) = (after.or(round.after), Some(due));
        round.is_open |= is_open;
        round.failures = if failed { round.failures + 1 } else { 0 };
    }

    /// There was no budget for the next message.
    pub(crate) fn postpone(&mut self, now: Time) {
        self.due = Some(now + UNPAID);
    }

    /// Ends the round. Another one follows if something was left over.
    pub(crate) fn end_round(&mut self, now: Time) {
        let round = self.round.take().unwrap_or_default();
        let is_open = round.is_open || round.failures > 0;
        self.due = is_open.then_some(now + PAUSE * (1 << self.rounds.min(MAX_DOUBLINGS)));
        self.rounds = self.rounds.saturating_add(1);
    }

    /// Returns whether another router may have this one check something.
    pub(crate) fn has_room(&mut self) -> bool {
        let has_room = self.checks.iter().filter(|check| !check.of_round).count() < MAX_CHECKS;
        self.dropped += u64::from(!has_room);
        has_room
    }

    /// Notes a CHECK that was sent.
    pub(crate) fn begin(&mut self, now: Time, request: u32, check: Check) {
        let (until, attempts) = (now + WAIT, check.attempts + 1);
        self.checks.push(Check { request, until, attempts, ..check });
    }

    /// Returns the first key of a CHECK that was sent.
    pub(crate) fn key_of(&self, request: u32) -> Option<NodeId> {
        let check = self.checks.iter().find(|check| check.request == request)?;
        check.records.first().map(|(_, copy)| copy.key)
    }

    /// Ends a CHECK that was answered.
    pub(crate) fn end(&mut self, request: u32) -> Option<Check> {
        let at = self.checks.iter().position(|check| check.request == request)?;
        Some(self.checks.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    const NOW: Time = Time::from_secs(100);

    fn copies(count: u64) -> Vec<(Slot, Copy)> {
        let id = NodeId::new;
        (0..count).map(|key| ((id(key), id(9)), Copy { key: id(key), mark: 7 })).collect()
    }

    /// Begins the round that is due, and returns when that was.
    fn begin_round(strays: &mut Strays) -> Time {
        let at = strays.poll_timeout().unwrap();
        assert_eq!(strays.timeout(at), (true, true));
        at
    }

    #[test]
    fn rounds_follow_each_other_more_and_more_slowly_while_something_is_left_over() {
        let (mut strays, random) = (Strays::default(), &mut SplitMix::new(1));
        assert_eq!((strays.poll_timeout(), strays.timeout(NOW)), (None, (false, false)));
        strays.changed(NOW, random);
        let mut at = begin_round(&mut strays);
        assert!((6..=10).contains(&at.since(NOW).as_secs()));
        for doublings in [0, 1, 2, 3, 4, 5, 6, 7, 7, 7] {
            strays.begin(at, 1, Check::new(NodeId::new(9), copies(3), true));
            assert!(strays.end(1).is_some_and(|check| check.of_round));
            strays.advance(at, Some(Cursor::last(NodeId::new(2))), true, false);
            assert_eq!(strays.timeout(at), (true, false));
            strays.end_round(at);
            assert_eq!(begin_round(&mut strays), at + PAUSE * (1 << doublings));
            at += PAUSE * (1 << doublings);
        }
        strays.end_round(at);
        assert_eq!(strays.poll_timeout(), None, "nothing was left over");
        // A change has the pauses begin anew.
        strays.changed(at, random);
        assert!(begin_round(&mut strays).since(at) < 2 * FIRST);
    }

    #[test]
    fn a_round_ends_when_nobody_answers() {
        let (mut strays, random) = (Strays::default(), &mut SplitMix::new(1));
        strays.changed(NOW, random);
        let mut at = begin_round(&mut strays);
        for _ in 0..MAX_FAILURES {
            assert_eq!(strays.next(), Some(None));
            strays.begin(at, 1, Check::new(NodeId::new(9), copies(3), true));
            assert_eq!(
                (strays.timeout(at), strays.key_of(1)),
                ((false, false), Some(NodeId::new(0)))
            );
            at += WAIT;
            assert_eq!(strays.timeout(at), (true, false));
        }
        assert_eq!((strays.next(), strays.key_of(1)), (None, None));
        strays.end_round(at);
        assert_eq!(strays.poll_timeout(), Some(at + PAUSE));
    }

    #[test]
    fn others_cause_only_so_many_checks_at_a_time() {
        let mut strays = Strays::default();
        for request in 0..MAX_CHECKS as u32 {
            assert!(strays.has_room());
            strays.begin(NOW, request, Check::new(NodeId::new(9), copies(1), false));
        }
        assert!(!strays.has_room());
        assert_eq!(strays.dropped, 1);
        assert!(strays.end(3).is_some() && strays.end(3).is_none());
        assert!(strays.has_room());
        assert_eq!(strays.timeout(NOW + WAIT), (false, false));
        assert!(strays.checks.is_empty() && strays.poll_timeout().is_none());
    }
}
