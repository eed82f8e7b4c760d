//! When a router looks after its part of the ring.
//!
//! A change of the near contacts is followed by quiet: after [`QUIET`] without another change the router asks the nearest
//! contact on each side for those beside it, and the first router of the line looks for the last. Then it does so ever
//! more rarely: what the triggers have left undone, because messages were lost, is found by asking.

use ringway_sansio::Time;
use ringway_sansio::time::Duration;
use smallvec::SmallVec;

use super::{Action, Overlay};
use crate::id::NodeId;
use crate::metric::Space;
use crate::wire::Route;

/// Time without a change after which a router asks.
const QUIET: Duration = Duration::from_secs(2);
/// First and longest time between two questions when nothing changes.
const FIRST_WAIT: Duration = Duration::from_secs(4);
const MAX_WAIT: Duration = Duration::from_secs(240);
/// Time between two questions up to which they are the first after a change.
const EARLY: Duration = Duration::from_secs(32);
/// Time without a change after which a part of the ring counts as settled.
const SETTLED: Duration = Duration::from_secs(5);
/// Links of a route over which the contact is asked in each turn of upkeep; over twice as many in every second one, and so on.
const LINKS_EACH_TURN: u16 = 64;

/// When the next question is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Upkeep {
    changed: Option<Time>,
    due: Option<Time>,
    wait: Duration,
}

impl Upkeep {
    /// The near contacts have changed.
    pub(super) fn change(&mut self, now: Time) {
        self.changed = Some(now);
        self.due = Some(now + QUIET);
        self.wait = FIRST_WAIT;
    }

    /// A router that may be a near one was not reached: it is asked for again soon.
    pub(super) fn hurry(&mut self, now: Time) {
        let soon = now + FIRST_WAIT;
        if self.due.is_none_or(|due| due > soon) {
            self.due = Some(soon);
            self.wait = FIRST_WAIT * 2;
        }
    }

    /// The near contacts are again those that were asked. They may have lost this router meanwhile, so they are asked once.
    pub(super) fn ask_again(&mut self, now: Time) {
        let soon = now + FIRST_WAIT;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Returns whether a question is due, and sets the time of the next.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = Some(now + self.wait);
            self.wait = (self.wait * 2).min(MAX_WAIT);
        }
        due
    }

    /// Returns when the next question is due.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Returns whether this turn is one of the first after a change.
    pub(super) fn is_early(&self) -> bool {
        self.wait <= EARLY
    }

    /// Returns whether nothing has changed for some time.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        self.changed.is_some_and(|changed| now.since(changed) >= SETTLED)
    }
}

impl<S: Space> Overlay<S> {
    /// Connects to the nearest contact on each side, to hear of those beside it. When nothing has changed for some time, those
    /// over long routes are not asked in each turn.
    pub fn refresh(&mut self, out: &mut Vec<Action>) {
        let is_due = |links: u16| {
            self.upkeep.is_early()
                || self.turn.is_multiple_of(1 + usize::from(links / LINKS_EACH_TURN))
        };
        let asked = S::asked(self.contacts.own(), self.contacts.ids(), self.turn).into_iter();
        let asked = asked.filter_map(|id| self.contacts.get(id));
        let asked: SmallVec<[(NodeId, Route); 2]> = asked
            .filter(|contact| is_due(contact.route.hops()))
            .map(|contact| (contact.id, contact.route.clone()))
            .collect();
        for (id, route) in asked {
            self.connect(id, route, self.limits.pending, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::id::Sequence;
    use crate::metric::Ring;
    use crate::routes::Contact;
    use crate::wire::{Labels, Slot};

    /// What is asked for costs as many octets as the route has links.
    #[test]
    fn contacts_over_long_routes_are_asked_more_rarely_when_nothing_changes() {
        let mut overlay = Overlay::<Ring>::new(NodeId::new(50), Limits::default());
        for (id, links) in [(40, 10), (60, 200)] {
            let mut labels = Labels::default();
            (1..links).for_each(|_| labels.push(Slot(2), Slot(2)).unwrap());
            let (route, said) = (Route { first: Slot(id), labels }, Sequence::default());
            let contact = Contact { id: NodeId::new(id.into()), route, cost: links, mark: 0, said };
            overlay.adopt(contact, &mut Vec::new());
        }
        overlay.review(Time::ZERO);
        let (mut turns, mut out) = ([Vec::new(), Vec::new()], Vec::new());
        for turn in 1..=16 {
            let due = overlay.upkeep.due().unwrap();
            overlay.timeout(due, &mut out);
            for (turns, id) in turns.iter_mut().zip([40, 60].map(NodeId::new)) {
                let is_it = |action: &Action| action.subject() == id;
                turns.extend(out.iter().any(is_it).then_some(turn));
                overlay.abandon(id);
            }
            out.clear();
        }
        assert_eq!(turns, [(1..=16).collect(), vec![1, 2, 3, 4, 8, 12, 16]]);
    }

    #[test]
    fn questions_become_rarer_until_something_changes() {
        let mut upkeep = Upkeep::default();
        assert!(upkeep.due().is_none() && !upkeep.is_settled(Time::from_secs(9)));
        let mut now = Time::from_secs(100);
        upkeep.change(now);
        let mut waits = Vec::new();
        while let Some(due) = upkeep.due().filter(|_| waits.len() < 10) {
            waits.push(due.since(now).as_secs());
            assert!(!upkeep.is_due(Time::from_nanos(due.as_nanos() - 1)));
            now = due;
            assert!(upkeep.is_due(now));
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 240, 240, 240]);
        upkeep.hurry(now);
        upkeep.hurry(now + FIRST_WAIT);
        assert_eq!(upkeep.due(), Some(now + FIRST_WAIT));
        assert!(upkeep.is_settled(now));
        upkeep.change(now);
        assert_eq!((upkeep.due(), upkeep.is_settled(now)), (Some(now + QUIET), false));
    }
}
