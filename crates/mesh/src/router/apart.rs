//! LOOKUP_APART at one router: sent, sent on, and answered ([`crate::forward::apart`]).

use ringway_sansio::{Random, Time};

use super::Router;
use crate::crypto::Crypto;
use crate::forward::apart::{Choice, Entered, WALK_LIMIT, Walk, walk};
use crate::forward::message::Here;
use crate::id::{NodeId, Prefix};
use crate::metric::Space;
use crate::ring::Overlay;
use crate::routes::Contact;
use crate::wire::bodies::{Avoided, Tags};
use crate::wire::{Body, Item, Items, Message, MessageId, Neighbour, Record, Route, Routed, Slot};

/// Hops for which a LOOKUP_APART is paid: it does not come to so many routers unless there are few ways.
const PAID_HOPS: u16 = WALK_LIMIT / 4;

impl<C: Crypto, S: Space> Router<C, S> {
    /// Looks for the owner of a prefix by a way apart from that of the ordinary session.
    pub(super) fn look_up_apart(
        &mut self,
        now: Time,
        (prefix, id): (Prefix, MessageId),
        (index, noise): (u32, &[u8]),
        (links_alone, by_another): (bool, bool),
        random: &mut dyn Random,
    ) {
        let Some((routers, first)) = self.carrier.sessions.avoided(prefix) else { return };
        let route = routers.iter().map(|router| router.tag(id.0)).collect();
        // Another time all ways are tried, however long they are.
        let (uncut, passed) = (by_another, Tags::new());
        let avoided = Avoided { links_alone, uncut, route, passed };
        let own = self.local.id();
        let body = Body::LookUpApart { index, noise, avoided };
        let mut written = Vec::new();
        body.emit(&mut written);
        if !self.messenger.pays(now, Routed::HEADER + written.len(), PAID_HOPS) {
            return;
        }
        let (key, none) = (prefix.key(), Route::direct(first));
        let message = Routed::new(Message::LookUpApart, id, own, key, &none, &[]);
        let entered = Entered::Origin(first);
        self.walk_on(now, (entered, by_another), message, body, random);
    }

    /// Takes a step with a LOOKUP_APART.
    pub(super) fn walk(
        &mut self,
        now: Time,
        entered: Entered,
        message: Routed<'_>,
        random: &mut dyn Random,
    ) {
        match Body::parse(message.message, message.body) {
            Ok((body, ..)) => self.walk_on(now, (entered, false), message, body, random),
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn walk_on(
        &mut self,
        now: Time,
        (entered, by_another): (Entered, bool),
        mut message: Routed<'_>,
        body: Body<'_>,
        random: &mut dyn Random,
    ) {
        let Body::LookUpApart { index, noise, mut avoided } = body else { return };
        let here = Here {
            id: self.local.id(),
            neighbours: self.links.up(),
            detours: &self.detours,
            closes: S::CLOSES,
            distance: S::distance,
        };
        let drawn = if by_another { Some(random.next_u64()) } else { None };
        let choice = Ways { overlay: &self.overlay, drawn };
        match walk(&mut message, &mut avoided, here, entered, &choice) {
            Walk::Out(out) => {
                let mut written = Vec::new();
                Body::LookUpApart { index, noise, avoided }.emit(&mut written);
                self.counters.forwarded += u64::from(matches!(entered, Entered::By(_)));
                let mtu = self.links.neighbour(out).map_or(0, |neighbour| neighbour.mtu);
                let mut message = Routed { body: &written, ..message };
                message.fit(usize::from(mtu).saturating_sub(Items::OVERHEAD));
                let mut item = Vec::new();
                message.emit(&mut item);
                self.outbox.push(out, &Item::Routed(&item));
            }
            Walk::Arrived(back) => self.look_up(now, &message, (index, noise), &back, random),
            Walk::Exhausted => match (entered, self.carrier.sessions.avoided_first(&message)) {
                // It goes on from here if it is one that was sent.
                (Entered::By(_), Some(first)) => {
                    message.record = Some(Record::new(message.origin.tag(message.id.0)));
                    let body = Body::LookUpApart { index, noise, avoided };
                    let entered = (Entered::Origin(first), false);
                    self.walk_on(now, entered, message, body, random);
                }
                _ => self.carrier.sessions.exhausted(now, message.id),
            },
            Walk::Dropped => self.counters.undelivered += 1,
        }
    }
}

/// The ways that a router knows.
struct Ways<'a, S> {
    overlay: &'a Overlay<S>,
    /// A random number that chooses one of them, instead of the best.
    drawn: Option<u64>,
}

impl<S: Space> Choice for Ways<'_, S> {
    fn best(&self, key: NodeId, is_allowed: &dyn Fn(&Contact) -> bool) -> Option<Route> {
        let allowed = || self.overlay.contacts().iter().filter(|contact| is_allowed(contact));
        let chosen = match self.drawn {
            Some(drawn) => allowed().nth((drawn % (allowed().count() as u64).max(1)) as usize),
            None => allowed().min_by_key(|contact| {
                let magnitude = u64::BITS - S::span(contact.id, key).leading_zeros();
                (magnitude, contact.cost, S::distance(contact.id, key))
            }),
        };
        chosen.map(|contact| contact.route.clone())
    }

    fn closest(&self, key: NodeId, allowed: &[Neighbour]) -> Option<Slot> {
        let closest = allowed.iter().min_by_key(|other| S::distance(other.id, key));
        closest.map(|other| other.slot)
    }
}
