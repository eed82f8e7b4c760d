//! The search for the keepers of a key, for writes and look-ups alike.

use ringway_mesh::{Identity, NodeId};
use ringway_sansio::{Random, Time};
use smallvec::SmallVec;

use crate::config::{Config, KEEPERS};
use crate::neighbours::{Leaves, keepers, keepers_within};
use crate::output::Message;
use crate::scale::{Measure, Scale};
use crate::shares::{Purse, SPARE};
use crate::timing::RoundTrip;
use crate::wire::Span;

/// Maximum number of routers around a key that are remembered.
const MAX_KNOWN: usize = 24;

/// What a write or a look-up needs of the router.
pub(crate) struct Desk<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a Config,
    pub(crate) identity: &'a Identity,
    /// The positions that this router owns: what it sends there costs nothing.
    pub(crate) owned: Span,
    /// How far routers are from each other on the ring.
    pub(crate) measure: Measure,
    pub(crate) scale: &'a mut Scale,
    /// The mean number of links of a way.
    pub(crate) hops: u16,
    /// What all messages cost.
    pub(crate) purse: &'a mut Purse,
    /// How many of the keepers of a record make a quorum.
    pub(crate) quorum: usize,
    pub(crate) trip: &'a mut RoundTrip,
    pub(crate) random: &'a mut dyn Random,
    pub(crate) out: &'a mut Vec<Message>,
}

impl Desk<'_> {
    /// Returns whether so much of the budget is there that a message may be sent whatever was sent before.
    pub(crate) fn has_spare(&mut self) -> bool {
        self.purse.pay(self.now, self.config.budget, (self.hops, self.owned), self.out);
        self.purse.has_eighths(self.now, self.config.budget, SPARE)
    }
}

/// Whom to ask next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The owner of the key; by another way than the best if `by_another`.
    Owner {
        /// Whether the best way has failed.
        by_another: bool,
    },
    /// This router, or whoever owns this position.
    At(NodeId),
}

/// What is known of the keepers of a key, and who was asked.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    key: NodeId,
    known: Vec<NodeId>,
    asked: Vec<NodeId>,
    attempts: u8,
    /// Whether somebody has answered.
    answered: bool,
    /// How far from the key a keeper may be.
    reach: u64,
}

impl Search {
    pub(crate) fn new(key: NodeId) -> Self {
        Search {
            key,
            known: Vec::new(),
            asked: Vec::new(),
            attempts: 0,
            answered: false,
            reach: u64::MAX,
        }
    }

    pub(crate) fn key(&self) -> NodeId {
        self.key
    }

    /// Returns how many messages were sent.
    pub(crate) fn attempts(&self) -> u8 {
        self.attempts
    }

    /// Notes who has answered, and who is beside it. The first answer is a sample of the spacing.
    pub(crate) fn learn(&mut self, desk: &mut Desk<'_>, origin: NodeId, leaves: &Leaves) {
        self.reach = desk.measure.reach;
        if !core::mem::replace(&mut self.answered, true) && origin != desk.identity.id() {
            desk.scale.note(desk.now, leaves.spacing());
        }
        self.note(origin, leaves);
    }

    fn note(&mut self, origin: NodeId, leaves: &Leaves) {
        for id in leaves.iter().chain([origin]) {
            if !self.known.contains(&id) {
                self.known.push(id);
            }
        }
        if !self.asked.contains(&origin) {
            self.asked.push(origin);
        }
        if self.known.len() > MAX_KNOWN {
            // The first half of the list is before the key, the nearest first, and the second behind it.
            keepers(&mut self.known, self.key);
            self.known.drain(MAX_KNOWN / 2..self.known.len() - MAX_KNOWN / 2);
        }
    }

    /// Returns the keepers among those who are known, the owner first.
    pub(crate) fn keepers(&mut self) -> SmallVec<[NodeId; KEEPERS]> {
        keepers_within(&mut self.known, self.key, self.reach)
    }

    /// Returns the known keepers that were not asked, and counts them as asked.
    pub(crate) fn take_unasked(&mut self, max: usize) -> SmallVec<[NodeId; KEEPERS]> {
        let keepers = self.keepers();
        let unasked = keepers.into_iter().filter(|id| !self.asked.contains(id)).take(max);
        let unasked: SmallVec<[NodeId; KEEPERS]> = unasked.collect();
        self.asked.extend(&unasked);
        self.attempts = self.attempts.saturating_add(unasked.len() as u8);
        unasked
    }

    /// Returns whom to ask when the wait for answers is over: a keeper that others have named, or whom the ring alone
    /// leads to.
    pub(crate) fn next(&mut self, spacing: u64) -> Target {
        if self.attempts > 0
            && let Some(&id) = self.take_unasked(1).first()
        {
            return Target::At(id);
        }
        self.next_by_ring(spacing)
    }

    /// Returns whom the ring leads to, whatever was answered: the owner, the owner by another way, and whoever is one, four
    /// or sixteen times `spacing` before or behind the key, as gaps between routers differ that much.
    pub(crate) fn next_by_ring(&mut self, spacing: u64) -> Target {
        let attempt = self.attempts;
        self.attempts = attempt.saturating_add(1);
        let steps = match attempt % 8 {
            0 => {
                // What was lost may arrive this time, and who could not answer may be able to.
                self.asked.clear();
                return Target::Owner { by_another: attempt > 0 };
            }
            1 | 5 => return Target::Owner { by_another: true },
            2 => -1,
            3 => 1,
            4 => -4,
            6 => 4,
            _ if attempt % 16 < 8 => -16,
            _ => 16,
        };
        let offset = (spacing as i64).wrapping_mul(steps);
        Target::At(NodeId::new(self.key.raw().wrapping_add_signed(offset)))
    }

    /// Remembers nothing but keepers that have answered.
    pub(crate) fn rest(&mut self, answered: &[NodeId]) {
        let keepers = self.keepers();
        self.known = keepers.into_iter().filter(|id| answered.contains(id)).collect();
        self.asked = Vec::new();
    }

    /// Takes what a keeper states of those beside it. Whoever was between them and is not any more has gone. Returns how
    /// many these are.
    pub(crate) fn refresh(&mut self, origin: NodeId, leaves: &Leaves) -> usize {
        let is_there = |id: NodeId| id == origin || leaves.iter().any(|leaf| leaf == id);
        let before = self.known.len();
        self.known.retain(|&id| is_there(id) || !leaves.reach(id));
        let gone = before - self.known.len();
        self.note(origin, leaves);
        self.known = self.keepers().to_vec();
        self.asked = Vec::new();
        gone
    }

    /// Begins anew with those who are known.
    pub(crate) fn restart(&mut self) {
        self.asked.clear();
        (self.attempts, self.answered) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(raw: u64) -> NodeId {
        NodeId::new(raw)
    }

    #[test]
    fn nobody_answers_and_positions_around_the_key_are_tried() {
        let mut search = Search::new(id(1_000));
        let targets: Vec<Target> = (0..8).map(|_| search.next(10)).collect();
        let owner = |by_another| Target::Owner { by_another };
        let at = |raw| Target::At(id(raw));
        assert_eq!(targets[..4], [owner(false), owner(true), at(990), at(1_010)]);
        assert_eq!(targets[4..], [at(960), owner(true), at(1_040), at(840)]);
        assert_eq!(search.attempts(), 8);
    }

    #[test]
    fn keepers_that_others_name_are_asked_once() {
        let mut search = Search::new(id(1_000));
        search.next(10);
        let leaves = Leaves {
            before: [id(980), id(970)].into_iter().collect(),
            behind: [id(1_010), id(1_020)].into_iter().collect(),
        };
        search.note(id(990), &leaves);
        assert_eq!(search.keepers()[..], [990, 980, 970, 1_010, 1_020].map(id));
        assert_eq!(search.next(10), Target::At(id(980)));
        assert_eq!(search.take_unasked(9)[..], [970, 1_010, 1_020].map(id));
        assert!(search.take_unasked(9).is_empty());
        assert_eq!(search.attempts(), 5);
    }

    #[test]
    fn who_is_not_beside_a_keeper_any_more_is_forgotten() {
        let mut search = Search::new(id(1_000));
        for raw in [970, 980, 990, 1_010, 1_020] {
            search.note(id(raw), &Leaves::default());
        }
        let leaves = Leaves {
            before: [id(970), id(960)].into_iter().collect(),
            behind: [id(995), id(1_010)].into_iter().collect(),
        };
        assert_eq!(search.refresh(id(980), &leaves), 1);
        assert_eq!(search.keepers()[..], [995, 980, 970, 1_010, 1_020].map(id));
        assert_eq!(search.refresh(id(995), &Leaves::default()), 4);
        assert_eq!(search.keepers()[..], [id(995)]);
    }

    #[test]
    fn of_too_many_the_nearest_on_both_sides_are_remembered() {
        let mut search = Search::new(id(1_000));
        for raw in (900..1_100).rev() {
            search.note(id(raw), &Leaves::default());
        }
        assert!(search.known.len() <= MAX_KNOWN);
        assert_eq!(search.keepers()[..], [1_000, 999, 998, 1_001, 1_002].map(id));
    }
}
