//! Whom a router asks in a turn of upkeep.

use smallvec::SmallVec;

use super::{Action, Overlay};
use crate::id::NodeId;
use crate::metric::Space;
use crate::wire::Route;

/// Links of a route over which the contact is asked in each turn of upkeep; over twice as many in every second one, and so on.
const LINKS_EACH_TURN: u16 = 64;

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
    use ringway_sansio::Time;

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
}
