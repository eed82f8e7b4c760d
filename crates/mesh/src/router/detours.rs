//! Repair of routes by the routers beside a link that carries nothing ([`crate::routes::detours`]).

use ringway_sansio::Time;

use super::carrier::Road;
use super::{NOTICE, Router};
use crate::crypto::Crypto;
use crate::id::NodeId;
use crate::link::PATH_COST;
use crate::metric::Space;
use crate::routes::Detour;
use crate::wire::control::ErrorReport;
use crate::wire::{Class, Item, Slot};

impl<C: Crypto, S: Space> Router<C, S> {
    /// A neighbour does not answer: the others are asked for a way to it, unless there is another link.
    pub(super) fn silent(&mut self, now: Time, slot: Slot, id: NodeId) {
        if !self.detours.ask(now, slot, id) {
            return;
        }
        let is_other = |other: &Slot| *other != slot && !self.links.is_silent(*other);
        let links = || self.links.up().iter().filter(|neighbour| neighbour.id == id);
        match links().map(|neighbour| neighbour.slot).find(is_other) {
            Some(via) => self.detour_found(now, id, Detour { via, label: None }),
            None => self.ask_for_detour(id),
        }
    }

    fn ask_for_detour(&mut self, to: NodeId) {
        let neighbours = self.links.up().iter().filter(|neighbour| neighbour.id != to);
        for neighbour in neighbours.filter(|neighbour| !self.links.is_silent(neighbour.slot)) {
            self.outbox.push(neighbour.slot, &Item::DetourRequest { to });
        }
    }

    /// Answers a neighbour that asks for a way to another.
    pub(super) fn detour_request(&mut self, now: Time, from: Slot, to: NodeId) {
        if !self.links.allows(now, from, NOTICE) {
            self.counters.policed += 1;
            return;
        }
        let mut links = self.links.up().iter().filter(|neighbour| neighbour.id == to);
        let link = links.find(|neighbour| !self.links.is_silent(neighbour.slot));
        if let Some(slot) = link.map(|neighbour| neighbour.slot).filter(|&slot| slot != from) {
            self.outbox.push(from, &Item::DetourReply { to, slot });
        }
    }

    /// A neighbour has answered that it has a link to another.
    pub(super) fn detour_reply(&mut self, now: Time, via: Slot, to: NodeId, slot: Slot) {
        // A label of it must fit its slot for us.
        let Some(back) = self.links.neighbour(via).and_then(|neighbour| neighbour.back) else {
            return;
        };
        let label = Some((Class::for_both(slot, back), slot));
        self.detour_found(now, to, Detour { via, label });
    }

    fn detour_found(&mut self, now: Time, id: NodeId, detour: Detour) {
        if let Some(slot) = self.detours.found(now, id, detour) {
            // Packets of hosts here must not wait until the link is given up.
            let mtu = self.links.neighbour(detour.via).map_or(0, |neighbour| neighbour.mtu);
            self.carrier.sessions.detour(slot, detour, mtu);
        }
    }

    /// Forwards a report of which the labels must grow, if there is a way.
    pub(super) fn rewrite_error(&mut self, entered: Slot, mut report: ErrorReport) {
        let ErrorReport { reverse, at, labels, .. } = &mut report;
        let next = labels.cursor(*at, *reverse).and_then(|cursor| cursor.peek());
        let Ok((_, slot)) = next else { return };
        let out = match self.detours.get(slot) {
            Some(detour) => detour.step(labels, at, *reverse, &mut u16::MAX.clone(), entered),
            None => labels.rewrite(*at, *reverse, entered, None).ok().map(|(out, behind)| {
                *at = behind;
                out
            }),
        };
        if let Some(out) = out.filter(|&out| self.links.is_up(out)) {
            self.outbox.push(out, &Item::Error(report));
        }
    }

    /// A link is down. Returns whether there is a way round it: then the routes by it are longer, and nothing else is
    /// wrong with them.
    pub(super) fn go_round(&mut self, now: Time, slot: Slot) -> bool {
        for id in self.detours.lose(now, slot) {
            self.ask_for_detour(id);
        }
        let Some(detour) = self.detours.down(now, slot) else { return false };
        let cost = |neighbour: &crate::link::Neighbour<C::Keys>| neighbour.cost(now);
        let first = self.links.neighbour(detour.via).and_then(cost).unwrap_or(u16::MAX);
        // Of the second link nothing is known.
        let cost = (first / PATH_COST).saturating_mul(2);
        self.overlay.detour(slot, detour, cost, &mut self.actions);
        for (mark, out) in self.marks.along(slot) {
            self.outbox.push(out, &Item::Detoured { mark });
        }
        true
    }

    /// A marked route has become longer.
    pub(super) fn detoured(&mut self, mark: u32, entered: Slot) {
        match self.marks.other_end(mark, entered) {
            Some(out) => self.outbox.push(out, &Item::Detoured { mark }),
            None => {
                self.overlay.detoured(mark, entered, &mut self.actions);
                self.carrier.sessions.detoured(mark, entered);
            }
        }
    }

    /// Ends the detours that are over: the users of routes by them look for others.
    pub(super) fn expire_detours(&mut self, now: Time) {
        while let Some(slot) = self.detours.expire(now) {
            self.break_marks(slot);
        }
    }

    /// Notifies the users of routes by a slot that they are broken.
    pub(super) fn break_marks(&mut self, slot: Slot) {
        for (mark, out) in self.marks.broken(slot) {
            self.outbox.push(out, &Item::Broken { mark });
        }
    }

    /// Ends the detours round links that carry packets again.
    pub(super) fn review_detours(&mut self, now: Time) {
        if !self.detours.is_empty() {
            let links = &self.links;
            self.detours.review(now, |slot| links.is_silent(slot));
        }
    }
}

impl<C: Crypto> Road<'_, C> {
    /// Returns whether packets leave by the link of a slot, and not by a detour round it.
    pub(super) fn is_open(&self, slot: Slot) -> bool {
        self.links.is_up(slot) && self.detours.get(slot).is_none()
    }
}
