//! Who is beside this router on the ring.
//!
//! The mesh knows the nearest routers on each side of a *line*, and at its ends the other end. Beyond an end, the router
//! there is asked: every keeper states who is beside it.

use ringway_mesh::NodeId;
use ringway_sansio::time::{Duration, Time};
use smallvec::SmallVec;

use crate::config::{BESIDE, KEEPERS};
use crate::wire::Span;

/// Time for which a router that has left is not counted, though the mesh may still know it.
const LEFT: Duration = Duration::from_secs(30);
/// Time for which a router that the mesh has lost is not believed to be beside this one because others state it: they may
/// not have noticed yet.
const LOST: Duration = Duration::from_secs(10);
/// The same of a router that is silent, unless somebody states it who did not before.
const SILENT: Duration = Duration::from_secs(120);
/// Maximum number of routers that are doubted.
const MAX_DOUBTED: usize = 16;
/// Maximum number of routers whose leaves are known.
const MAX_REPORTS: usize = 8;

/// One side of a router: the nearest first.
pub type Side = SmallVec<[NodeId; BESIDE]>;

/// The routers beside one, on the closed ring. In a small network one router may be on both sides.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Leaves {
    /// Those before it.
    pub before: Side,
    /// Those behind it.
    pub behind: Side,
}

impl Leaves {
    /// Returns all of them: those before, then those behind.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> {
        self.before.iter().chain(&self.behind).copied()
    }

    /// Returns each of them once.
    pub fn distinct(&self) -> SmallVec<[NodeId; 2 * BESIDE]> {
        let mut ids: SmallVec<[NodeId; 2 * BESIDE]> = self.iter().collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Returns whether a router would be one of these if it were there.
    pub(crate) fn reach(&self, id: NodeId) -> bool {
        match (self.before.last(), self.behind.last()) {
            (Some(&first), Some(&last)) if self.distinct().len() == 2 * BESIDE => {
                behind(first, id) <= behind(first, last)
            }
            // There are no others.
            _ => true,
        }
    }

    /// Returns about how far routers are from each other on the ring: a quarter of the distance between the outer ones. If
    /// there are fewer than four, they and the router between them are all.
    pub(crate) fn spacing(&self) -> u64 {
        let count = self.distinct().len();
        match (self.before.last(), self.behind.last()) {
            (Some(&first), Some(&last)) if count == 2 * BESIDE => {
                behind(first, last) / count as u64
            }
            _ => u64::MAX / (count as u64 + 1),
        }
    }
}

/// Returns how far behind `from` a position is, around the ring.
pub fn behind(from: NodeId, to: NodeId) -> u64 {
    to.raw().wrapping_sub(from.raw())
}

/// Returns the keepers of a key among `ids`: the owner, and those beside it. The owner is the first. Of more ids than a
/// record has keepers, those beyond half of the ring are not behind the key: they are far before it.
pub fn keepers(ids: &mut Vec<NodeId>, key: NodeId) -> SmallVec<[NodeId; KEEPERS]> {
    keepers_within(ids, key, u64::MAX)
}

/// Does the same, knowing that a keeper is at most `reach` from the key. What is not before it within that is behind it.
pub(crate) fn keepers_within(
    ids: &mut Vec<NodeId>,
    key: NodeId,
    reach: u64,
) -> SmallVec<[NodeId; KEEPERS]> {
    ids.sort_unstable_by_key(|&id| behind(id, key));
    ids.dedup();
    let before = ids.iter().copied().take_while(|&id| behind(id, key) <= reach);
    let mut keepers: SmallVec<_> = before.take(1 + BESIDE).collect();
    // The last of the list are the first behind the key.
    let half = u64::MAX / 2;
    let is_behind = |id: &NodeId| ids.len() <= KEEPERS || behind(key, *id) < half;
    let rest = ids[keepers.len()..].iter().rev().take(BESIDE);
    keepers.extend(rest.copied().filter(is_behind));
    keepers
}

/// A router that is not believed to be there.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    id: NodeId,
    until: Time,
    /// It has not answered, so it ends when somebody states that router who did not before.
    is_silent: bool,
}

/// What is known of the routers beside this one.
#[derive(Clone, Debug)]
pub struct Neighbours {
    own: NodeId,
    /// The nearest contacts, in ascending order.
    near: Vec<NodeId>,
    /// The other end of the line, at an end.
    partner: Option<NodeId>,
    /// What others state of those beside them, the oldest first.
    reports: Vec<(NodeId, Leaves)>,
    left: Vec<(NodeId, Time)>,
    /// Routers that the mesh has lost, or that are silent, and until when others are not believed that they are there.
    doubted: Vec<Doubt>,
    leaves: Leaves,
    /// When the leaves last changed.
    changed: Time,
}

impl Neighbours {
    /// The neighbours of the router `own`, of whom none is known.
    pub fn new(own: NodeId, now: Time) -> Self {
        Neighbours {
            own,
            near: Vec::new(),
            partner: None,
            reports: Vec::new(),
            left: Vec::new(),
            doubted: Vec::new(),
            leaves: Leaves::default(),
            changed: now,
        }
    }

    /// Returns the routers beside this one.
    pub fn leaves(&self) -> &Leaves {
        &self.leaves
    }

    /// Returns the positions that this router owns.
    pub fn owned(&self) -> Span {
        let next = self.leaves.behind.first().copied().unwrap_or(self.own);
        Span { first: self.own, last: NodeId::new(next.raw().wrapping_sub(1)) }
    }

    /// Returns whether this router is a keeper of a key, as far as it knows: its owner, or one of those beside the owner.
    pub fn keeps(&self, key: NodeId) -> bool {
        self.kept().is_none_or(|span| span.contains(key))
    }

    /// Returns the positions of which this router is a keeper, as far as it knows; `None` if these are all.
    pub(crate) fn kept(&self) -> Option<Span> {
        let Leaves { before, behind: after } = &self.leaves;
        let (Some(&first), Some(&last)) = (before.get(BESIDE - 1), after.get(BESIDE - 1)) else {
            return None;
        };
        if self.keepers() < KEEPERS {
            // So few that each keeps everything, also if one of them is on both sides.
            return None;
        }
        // What the last of those behind this one owns ends where the next begins, which only it knows.
        let report = self.reports.iter().find(|(id, _)| *id == last);
        let end = report.and_then(|(_, leaves)| leaves.behind.first().copied()).unwrap_or(last);
        let is_all = end != last && behind(first, end) <= behind(first, last);
        let span = Span { first, last: NodeId::new(end.raw().wrapping_sub(1)) };
        (!is_all).then_some(span)
    }

    /// Returns how many keepers a record has in this network, as far as this router knows.
    pub fn keepers(&self) -> usize {
        1 + self.leaves.distinct().len()
    }

    /// Returns for how long the leaves have not changed.
    pub fn unchanged(&self, now: Time) -> Duration {
        now.since(self.changed)
    }

    /// Returns whether a router is one of those beside this one, or would be if this one knew of it.
    pub fn is_beside(&self, id: NodeId) -> bool {
        let within = |side: &Side, distance: &dyn Fn(NodeId) -> u64| {
            let last = if side.len() < BESIDE { None } else { side.last() };
            last.is_none_or(|&last| distance(id) <= distance(last))
        };
        id != self.own
            && (within(&self.leaves.behind, &|other| behind(self.own, other))
                || within(&self.leaves.before, &|other| behind(other, self.own)))
    }

    /// Takes what the mesh knows: the nearest contacts in ascending order, and the other end of the line at an end. Returns
    /// whether the leaves have changed.
    pub fn update(
        &mut self,
        now: Time,
        near: impl Iterator<Item = NodeId>,
        partner: Option<NodeId>,
    ) -> bool {
        let before = core::mem::take(&mut self.near);
        self.near.extend(near);
        self.partner = partner;
        self.doubted.retain(|doubt| !self.near.contains(&doubt.id));
        // What somebody stated before it was away counts no more.
        let (near, leaves) = (&self.near, &self.leaves);
        let is_new = |id: &NodeId| {
            (near.contains(id) || partner == Some(*id)) && leaves.iter().all(|leaf| leaf != *id)
        };
        self.reports.retain(|(id, _)| !is_new(id));
        for id in before {
            if !self.near.contains(&id) {
                self.doubt(Doubt { id, until: now + LOST, is_silent: false });
            }
        }
        self.refresh(now)
    }

    /// Returns when a router that is not believed to be there may be believed to be again.
    pub fn poll_timeout(&self) -> Option<Time> {
        let left = self.left.iter().map(|&(_, at)| at + LEFT);
        left.chain(self.doubted.iter().map(|doubt| doubt.until)).min()
    }

    /// Forgets what was too long ago. Returns whether the leaves have changed.
    pub fn refresh(&mut self, now: Time) -> bool {
        self.left.retain(|&(_, at)| now < at + LEFT);
        self.doubted.retain(|doubt| now < doubt.until);
        self.review(now)
    }

    /// Returns whether one of those that a router beside this one has stated before is gone by what it states now.
    pub(crate) fn misses(&self, origin: NodeId, leaves: &Leaves) -> bool {
        let before = self.reports.iter().find(|(id, _)| *id == origin);
        let is_gone = |id| leaves.reach(id) && leaves.iter().all(|leaf| leaf != id);
        before.is_some_and(|(_, before)| before.iter().any(is_gone))
    }

    /// Takes what a router beside this one states of those beside it. Returns whether the leaves have changed.
    pub fn report(&mut self, now: Time, origin: NodeId, leaves: Leaves) -> bool {
        // Whoever speaks has not left.
        self.left.retain(|&(id, _)| id != origin);
        let before = self.reports.iter().find(|(id, _)| *id == origin);
        let is_new = |id| before.is_none_or(|(_, leaves)| leaves.iter().all(|leaf| leaf != id));
        let is_stated = |id| leaves.iter().any(|leaf| leaf == id) && is_new(id);
        self.doubted
            .retain(|doubt| doubt.id != origin && !(doubt.is_silent && is_stated(doubt.id)));
        self.reports.retain(|(id, _)| *id != origin);
        if self.reports.len() == MAX_REPORTS {
            self.reports.remove(0);
        }
        self.reports.push((origin, leaves));
        self.review(now)
    }

    /// Leaves that have not spoken are not believed to be there because others state it. Returns whether the leaves have
    /// changed.
    pub fn silent(&mut self, now: Time, spoken: &[NodeId]) -> bool {
        let is_known = |id: &NodeId| spoken.contains(id) || self.near.contains(id);
        let mut silent: SmallVec<[NodeId; 2 * BESIDE]> = self.leaves.distinct();
        silent.retain(|id| !is_known(id) && self.partner != Some(*id));
        let until = now + SILENT;
        silent.into_iter().for_each(|id| self.doubt(Doubt { id, until, is_silent: true }));
        self.review(now)
    }

    fn doubt(&mut self, doubt: Doubt) {
        self.doubted.retain(|other| other.id != doubt.id);
        if self.doubted.len() == MAX_DOUBTED {
            self.doubted.remove(0);
        }
        self.doubted.push(doubt);
    }

    /// A router has left. Returns whether the leaves have changed.
    pub fn leave(&mut self, now: Time, id: NodeId) -> bool {
        if self.leaves.iter().any(|leaf| leaf == id) {
            self.left.retain(|&(other, _)| other != id);
            self.left.push((id, now));
        }
        self.review(now)
    }

    fn review(&mut self, now: Time) -> bool {
        let middle = self.near.partition_point(|&id| id < self.own);
        let lower = self.near[..middle].iter().rev().copied();
        let higher = self.near[middle..].iter().copied();
        let distance_before = |from, to| behind(to, from);
        let leaves = Leaves {
            before: self.side(lower, distance_before, |leaves| &leaves.before, |id| id > self.own),
            behind: self.side(higher, behind, |leaves| &leaves.behind, |id| id < self.own),
        };
        let changed = leaves != self.leaves;
        if changed {
            (self.leaves, self.changed) = (leaves, now);
        }
        changed
    }

    /// Returns one side: what the mesh knows, and beyond the end of the line what those there state. `distance` is that from
    /// one router to another in the direction of this side. The partner is beyond this side if `is_beyond`.
    fn side(
        &self,
        known: impl Iterator<Item = NodeId>,
        distance: impl Fn(NodeId, NodeId) -> u64,
        of: impl Fn(&Leaves) -> &Side,
        is_beyond: impl Fn(NodeId) -> bool,
    ) -> Side {
        let counts = |&id: &NodeId| id != self.own && self.left.iter().all(|&(left, _)| left != id);
        let mut side: Side = known.filter(counts).take(BESIDE).collect();
        let next_of = |of_whom: NodeId| {
            let report = self.reports.iter().find(|(id, _)| *id == of_whom);
            let next = report.and_then(|(_, leaves)| of(leaves).first().copied());
            next.filter(|id| self.doubted.iter().all(|doubt| doubt.id != *id))
        };
        // The mesh is certain of the nearest only.
        if let [nearest, second] = side[..]
            && let Some(id) = next_of(nearest)
            && counts(&id)
            && id != nearest
            && distance(nearest, id) < distance(nearest, second)
        {
            side[1] = id;
        }
        while side.len() < BESIDE {
            let beyond = match side.last() {
                None => self.partner.filter(|&id| is_beyond(id)),
                Some(&last) => next_of(last),
            };
            // Once around, the first of this side comes again, or this router.
            match beyond.filter(counts).filter(|id| !side.contains(id)) {
                Some(id) => side.push(id),
                None => break,
            }
        }
        side
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> Side {
        ids.iter().map(|&id| NodeId::new(id)).collect()
    }

    fn near(ids: &[u64]) -> impl Iterator<Item = NodeId> {
        ids.iter().map(|&id| NodeId::new(id))
    }

    const NOW: Time = Time::from_secs(9);

    #[test]
    fn within_the_line_the_leaves_are_the_near_contacts() {
        let mut neighbours = Neighbours::new(NodeId::new(50), NOW);
        assert!(neighbours.update(NOW, near(&[30, 40, 60, 70]), None));
        let leaves = Leaves { before: ids(&[40, 30]), behind: ids(&[60, 70]) };
        assert_eq!(neighbours.leaves(), &leaves);
        assert_eq!(neighbours.owned(), Span { first: NodeId::new(50), last: NodeId::new(59) });
        let later = NOW + Duration::from_secs(3);
        assert!(!neighbours.update(later, near(&[30, 40, 60, 70]), None));
        assert_eq!(neighbours.unchanged(later), Duration::from_secs(3));
        assert!(neighbours.is_beside(NodeId::new(65)) && neighbours.is_beside(NodeId::new(30)));
        assert!(!neighbours.is_beside(NodeId::new(80)) && !neighbours.is_beside(NodeId::new(29)));
        assert!(!neighbours.is_beside(NodeId::new(50)));
    }

    #[test]
    fn beyond_the_ends_of_the_line_those_there_are_asked() {
        let mut last = Neighbours::new(NodeId::new(90), NOW);
        last.update(NOW, near(&[70, 80]), Some(NodeId::new(10)));
        assert_eq!(last.leaves().behind, ids(&[10]));
        let of_first = Leaves { before: ids(&[90, 80]), behind: ids(&[20, 30]) };
        assert!(last.report(NOW, NodeId::new(10), of_first));
        assert_eq!(last.leaves().behind, ids(&[10, 20]));
        assert_eq!(last.owned(), Span { first: NodeId::new(90), last: NodeId::new(9) });

        let mut second = Neighbours::new(NodeId::new(80), NOW);
        second.update(NOW, near(&[60, 70, 90]), None);
        assert_eq!(second.leaves().behind, ids(&[90]));
        second.report(NOW, NodeId::new(90), last.leaves().clone());
        assert_eq!(second.leaves().behind, ids(&[90, 10]));
    }

    #[test]
    fn one_that_the_mesh_has_missed_is_learned_from_the_router_between() {
        let mut neighbours = Neighbours::new(NodeId::new(50), NOW);
        neighbours.update(NOW, near(&[20, 40, 60, 80]), None);
        let of_next = Leaves { before: ids(&[30, 20]), behind: ids(&[50, 60]) };
        assert!(neighbours.report(NOW, NodeId::new(40), of_next));
        assert_eq!(neighbours.leaves().before, ids(&[40, 30]));
        // Unless it is silent; then not before it speaks, whatever that router states.
        assert!(neighbours.silent(NOW, &ids(&[40, 60, 80])));
        assert_eq!(neighbours.leaves().before, ids(&[40, 20]));
        assert!(neighbours.report(NOW, NodeId::new(30), Leaves::default()));
        assert_eq!(neighbours.leaves().before, ids(&[40, 30]));
        // Nor one that the mesh has lost while others have not noticed.
        let of_next = Leaves { before: ids(&[50, 40]), behind: ids(&[70, 80]) };
        neighbours.report(NOW, NodeId::new(60), of_next);
        assert_eq!(neighbours.leaves().behind, ids(&[60, 70]));
        neighbours.update(NOW, near(&[20, 40, 60, 70]), None);
        neighbours.update(NOW, near(&[20, 40, 60, 80]), None);
        assert_eq!(neighbours.leaves().behind, ids(&[60, 80]));
        let of_next = Leaves { before: ids(&[50, 40]), behind: ids(&[90, 95]) };
        neighbours.report(NOW, NodeId::new(60), of_next);
        assert_eq!(neighbours.leaves().behind, ids(&[60, 80]), "one beyond is none");
    }

    #[test]
    fn a_router_is_missed_when_none_that_is_nearer_has_come() {
        let of =
            |before: &[u64], behind: &[u64]| Leaves { before: ids(before), behind: ids(behind) };
        let mut neighbours = Neighbours::new(NodeId::new(50), NOW);
        let origin = NodeId::new(60);
        assert!(!neighbours.misses(origin, &of(&[50, 40], &[70, 80])));
        neighbours.report(NOW, origin, of(&[50, 40], &[70, 80]));
        assert!(!neighbours.misses(origin, &of(&[50, 40], &[70, 75])));
        assert!(neighbours.misses(origin, &of(&[50, 40], &[70, 90])));
        assert!(neighbours.misses(origin, &of(&[50, 40], &[75, 80])));
        assert!(neighbours.misses(origin, &of(&[50, 40], &[70])));
        assert!(!neighbours.misses(NodeId::new(70), &of(&[60, 50], &[90, 95])));
    }

    /// With few routers the second that the mesh knows may be most of the ring away.
    #[test]
    fn one_that_the_mesh_has_missed_may_be_followed_by_a_long_gap() {
        let at = |eighths: u64| NodeId::new(eighths << 61);
        let side = |eighths: &[u64]| -> Side { eighths.iter().map(|&one| at(one)).collect() };
        let mut neighbours = Neighbours::new(at(0), NOW);
        neighbours.update(NOW, [at(1), at(7)].into_iter(), Some(at(7)));
        assert_eq!(neighbours.leaves().behind, side(&[1, 7]));
        let of_next = Leaves { before: side(&[0, 7]), behind: side(&[2, 3]) };
        assert!(neighbours.report(NOW, at(1), of_next));
        assert_eq!(neighbours.leaves().behind, side(&[1, 2]));
        // The same on the other side.
        let mut neighbours = Neighbours::new(at(7), NOW);
        neighbours.update(NOW, [at(0), at(6)].into_iter(), Some(at(0)));
        assert_eq!(neighbours.leaves().before, side(&[6, 0]));
        let of_next = Leaves { before: side(&[5, 4]), behind: side(&[7, 0]) };
        assert!(neighbours.report(NOW, at(6), of_next));
        assert_eq!(neighbours.leaves().before, side(&[6, 5]));
    }

    #[test]
    fn a_router_that_is_doubted_is_believed_again() {
        let mut neighbours = Neighbours::new(NodeId::new(50), NOW);
        let stated = |behind: &[u64]| Leaves { before: ids(&[50, 40]), behind: ids(behind) };
        // The mesh loses 70, and 60 has not noticed.
        neighbours.update(NOW, near(&[20, 40, 60, 70]), None);
        neighbours.report(NOW, NodeId::new(60), stated(&[70, 80]));
        neighbours.update(NOW, near(&[20, 40, 60, 80]), None);
        assert_eq!(neighbours.leaves().behind, ids(&[60, 80]));
        let until = neighbours.poll_timeout().unwrap();
        assert_eq!(until, NOW + LOST);
        assert!(!neighbours.refresh(NOW + LOST / 2));
        assert!(neighbours.refresh(until));
        assert_eq!(neighbours.leaves().behind, ids(&[60, 70]));
        // It is silent, whatever 60 repeats, until 60 has noticed both that it had gone and that it is back.
        assert!(neighbours.silent(until, &ids(&[20, 40, 60])));
        neighbours.report(until, NodeId::new(60), stated(&[70, 80]));
        assert_eq!(neighbours.leaves().behind, ids(&[60, 80]));
        assert_eq!(neighbours.poll_timeout(), Some(until + SILENT));
        neighbours.report(until, NodeId::new(60), stated(&[80, 90]));
        assert!(neighbours.report(until, NodeId::new(60), stated(&[70, 80])));
        assert_eq!(neighbours.leaves().behind, ids(&[60, 70]));
        assert_eq!(neighbours.poll_timeout(), None);
    }

    #[test]
    fn what_somebody_stated_before_it_was_away_counts_no_more() {
        let mut neighbours = Neighbours::new(NodeId::new(10), NOW);
        neighbours.update(NOW, near(&[20, 30]), Some(NodeId::new(90)));
        let stated = Leaves { before: ids(&[80, 70]), behind: ids(&[10, 20]) };
        assert!(neighbours.report(NOW, NodeId::new(90), stated.clone()));
        assert_eq!(neighbours.leaves().before, ids(&[90, 80]));
        neighbours.update(NOW, near(&[20, 30]), Some(NodeId::new(40)));
        neighbours.update(NOW, near(&[20, 30]), Some(NodeId::new(90)));
        assert_eq!(neighbours.leaves().before, ids(&[90]));
        assert!(neighbours.report(NOW, NodeId::new(90), stated));
        assert_eq!(neighbours.leaves().before, ids(&[90, 80]));
    }

    #[test]
    fn two_routers_are_on_both_sides_of_each_other() {
        let mut one = Neighbours::new(NodeId::new(1), NOW);
        assert_eq!(one.owned(), Span { first: NodeId::new(1), last: NodeId::new(0) });
        one.update(NOW, near(&[2]), Some(NodeId::new(2)));
        one.report(NOW, NodeId::new(2), Leaves { before: ids(&[1]), behind: ids(&[1]) });
        assert_eq!(one.leaves(), &Leaves { before: ids(&[2]), behind: ids(&[2]) });
        assert_eq!(one.leaves().distinct().len(), 1);
    }

    #[test]
    fn who_has_left_is_not_counted_until_it_speaks() {
        let mut neighbours = Neighbours::new(NodeId::new(50), NOW);
        neighbours.update(NOW, near(&[30, 40, 60, 70]), None);
        assert!(neighbours.leave(NOW, NodeId::new(60)));
        assert_eq!(neighbours.leaves().behind, ids(&[70]));
        assert!(!neighbours.leave(NOW, NodeId::new(11)), "nobody beside this router");
        assert!(neighbours.report(NOW, NodeId::new(60), Leaves::default()));
        assert_eq!(neighbours.leaves().behind, ids(&[60, 70]));
    }

    #[test]
    fn a_router_keeps_the_keys_of_two_owners_on_each_side() {
        let mut neighbours = Neighbours::new(NodeId::new(50), NOW);
        neighbours.update(NOW, near(&[30, 40, 60, 70]), None);
        let kept = |neighbours: &Neighbours| {
            [29, 30, 50, 69, 70, 79, 80].map(|key| neighbours.keeps(NodeId::new(key)))
        };
        assert_eq!(kept(&neighbours), [false, true, true, true, false, false, false]);
        neighbours.report(NOW, NodeId::new(70), Leaves { before: ids(&[60]), behind: ids(&[80]) });
        assert_eq!(kept(&neighbours), [false, true, true, true, true, true, false]);
        assert_eq!(neighbours.keepers(), 5);
        // A network of five: the one behind the last is the first before this one.
        neighbours.report(NOW, NodeId::new(70), Leaves { before: ids(&[60]), behind: ids(&[30]) });
        assert_eq!(kept(&neighbours), [true; 7]);
        // Of three, each is on both sides of the others.
        let mut last = Neighbours::new(NodeId::new(50), NOW);
        last.update(NOW, near(&[10, 20]), Some(NodeId::new(10)));
        last.report(
            NOW,
            NodeId::new(10),
            Leaves { before: ids(&[50, 20]), behind: ids(&[20, 50]) },
        );
        last.report(
            NOW,
            NodeId::new(20),
            Leaves { before: ids(&[10, 50]), behind: ids(&[50, 10]) },
        );
        assert_eq!(last.leaves(), &Leaves { before: ids(&[20, 10]), behind: ids(&[10, 20]) });
        assert_eq!((kept(&last), last.keepers()), ([true; 7], 3));
        neighbours.update(NOW, near(&[60]), None);
        assert_eq!((kept(&neighbours), neighbours.keepers()), ([true; 7], 2));
    }

    #[test]
    fn the_keepers_are_the_owner_and_two_on_each_side() {
        let mut all: Vec<NodeId> = near(&[10, 20, 30, 40, 50, 60]).collect();
        let found = keepers(&mut all, NodeId::new(35));
        assert_eq!(found[..], near(&[30, 20, 10, 40, 50]).collect::<Vec<_>>()[..]);
        let found = keepers(&mut all, NodeId::new(5));
        assert_eq!(found[..], near(&[60, 50, 40, 10, 20]).collect::<Vec<_>>()[..]);
        let found = keepers(&mut all, NodeId::new(90));
        assert_eq!(found[..], near(&[60, 50, 40]).collect::<Vec<_>>()[..]);
        let found = keepers_within(&mut all, NodeId::new(5), 99);
        assert_eq!(found[..], near(&[10, 20]).collect::<Vec<_>>()[..], "the owner is not known");
        let mut three: Vec<NodeId> = near(&[10, 20, 30]).collect();
        assert_eq!(keepers(&mut three, NodeId::new(25)).len(), 3);
    }
}
