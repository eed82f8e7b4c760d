//! What messages do at their end.

use ringway_sansio::{Random, Time};

use super::messenger::{self, Desk};
use super::{Event, Router, least_cost};
use crate::config::MAX_HOPS;
use crate::crypto::Crypto;
use crate::id::NodeId;
use crate::metric::Space;
use crate::ring::{ENDS, Towards};
use crate::routes::Contact;
use crate::session::Way;
use crate::wire::control::Code;
use crate::wire::{Body, Labels, Message, Route, Routed, Slot};

impl<C: Crypto, S: Space> Router<C, S> {
    /// Handles a message that is at its end.
    pub(super) fn arrive(
        &mut self,
        now: Time,
        entered: Slot,
        message: &Routed<'_>,
        back: Option<Route>,
        random: &mut dyn Random,
    ) {
        // A link that does not carry packets now is no way to anybody.
        if !self.links.is_up(entered) {
            self.counters.undelivered += 1;
            return;
        }
        if message.target != self.local.id() && !message.flags.closest {
            self.counters.undelivered += 1;
            // A greedy message is as near as it gets: its target is absent.
            let code = if message.flags.greedy { Code::NoRoute } else { Code::NotHere };
            return self.report(entered, message, code);
        }
        match (message.message, back) {
            (Message::Connect, Some(back)) => self.connect(now, entered, message, back, random),
            (Message::ConnectAck, _) => self.connect_ack(now, entered, message),
            (Message::NotResponsible, _) => {
                // Whoever of our contacts is closer to the key would be responsible instead.
                let origin = message.origin;
                let overlay = &self.overlay;
                let is_closest = |key| overlay.may_be_responsible(origin, key);
                if self.messenger.verify_statement(message) {
                    let (sessions, actions) = self.carrier.parts();
                    sessions.not_responsible(now, message.id, origin, is_closest, actions);
                }
            }
            (Message::Payload, _) => {
                if let Some((application, octets)) = self.messenger.verify_payload(message) {
                    let (origin, key) = (message.origin, message.target);
                    self.notify(Event::Closest {
                        origin,
                        key,
                        application,
                        octets: octets.to_vec(),
                    });
                }
            }
            (_, back) => self.arrive_unsigned(now, entered, message, back, random),
        }
    }

    /// Handles a message that nobody has signed.
    fn arrive_unsigned(
        &mut self,
        now: Time,
        entered: Slot,
        message: &Routed<'_>,
        back: Option<Route>,
        random: &mut dyn Random,
    ) {
        let Ok((body, ..)) = Body::parse(message.message, message.body) else {
            self.counters.malformed += 1;
            return;
        };
        let local = &self.local;
        match (body, back) {
            (Body::Introduce(hint), Some(back))
                if hint.back <= trodden(entered, message, &back) =>
            {
                let cost = self.path_cost(message, &back);
                self.overlay.hear(&back, cost, &hint, &mut self.actions);
            }
            // Its waypoint does not exist, about which nobody has asked.
            (Body::LookUp { onward: Some(_), .. }, _) => self.counters.undelivered += 1,
            (Body::LookUp { index, noise, onward: None }, Some(back)) => {
                self.look_up(now, message, (index, noise), &back, random);
            }
            (Body::LookUpAck { index, receiver: _, noise }, _) => {
                if let Some(route) = message.route_there(entered) {
                    let (id, mtu) = (message.id, message.path_mtu);
                    let (sessions, actions) = self.carrier.parts();
                    let way = Way { route, mtu };
                    sessions.look_up_ack(now, local, id, (index, noise), way, actions);
                }
            }
            (Body::Confirm { receiver, noise }, _) => {
                let (sessions, actions) = self.carrier.parts();
                sessions.confirm(now, local, receiver, noise, actions);
            }
            _ => {}
        }
    }

    /// Turns a LOOKUP of which this router is the waypoint to its key.
    pub(super) fn redirect(&self, message: &mut Routed<'_>) {
        let is_here = message.message == Message::LookUp
            && message.target == self.local.id()
            && !message.flags.reverse;
        if is_here
            && let Ok((Body::LookUp { onward: Some(key), .. }, ..)) =
                Body::parse(message.message, message.body)
        {
            // Once, because it does not have the key any more: so it does not go round.
            let end = message.body.len() - key.to_bytes().len();
            (message.target, message.body) = (key, &message.body[..end]);
            (message.best, message.flags.wrapped) = (u64::MAX, false);
            (message.labels, message.at) = (Labels::default(), 0);
        }
    }

    /// Answers a LOOKUP: it is for this router, or for nobody.
    pub(super) fn look_up(
        &mut self,
        now: Time,
        message: &Routed<'_>,
        (remote, noise): (u32, &[u8]),
        back: &Route,
        random: &mut dyn Random,
    ) {
        let (id, mtu, to) = (message.id, message.path_mtu, message.origin);
        let is_ours = message.target.prefix() == self.local.id().prefix();
        let may_deny = !self.overlay.has_just_lost(now);
        let local = &self.local;
        let sessions = &mut self.carrier.sessions;
        // By another than it came by.
        let others = || self.links.up().iter().filter(|other| other.slot != back.first);
        let at = random.next_u64() % (others().count() as u64).max(1);
        let neighbour = others().nth(at as usize).map(|neighbour| neighbour.id);
        let answer = is_ours
            .then(|| {
                let id = (id, message.message == Message::LookUpApart);
                sessions.look_up(now, local, remote, noise, back, mtu, id, neighbour, random)
            })
            .flatten();
        let mut desk = desk!(self, now, random);
        match answer {
            Some((index, noise)) => {
                let body = Body::LookUpAck { index, receiver: remote, noise: &noise };
                self.messenger.answer(&mut desk, (Message::LookUpAck, id, to), back, &body);
            }
            // The question is repeated.
            None if !is_ours && may_deny => self.messenger.deny(&mut desk, id, to, back),
            None => {}
        }
    }

    fn connect(
        &mut self,
        now: Time,
        entered: Slot,
        message: &Routed<'_>,
        back: Route,
        random: &mut dyn Random,
    ) {
        let Some(mut peer) = self.messenger.verify(message) else { return };
        let trodden = trodden(entered, message, &back);
        peer.connect.hints.retain(|hint| hint.back <= trodden);
        // The target is signed, the flags are not: a CONNECT for somebody else cannot be used here.
        let is_for_us = message.target == self.local.id()
            || (peer.connect.wrap && ENDS.contains(&message.target));
        if !is_for_us || back.hops() > MAX_HOPS || !self.is_plausible(peer.id, &back) {
            self.counters.undelivered += 1;
            return;
        }
        let (hints, settled) =
            (self.overlay.hints(peer.id, Towards::Route(&back)), self.overlay.is_settled(now));
        let cost = self.path_cost(message, &back);
        let (said, mark) = (peer.connect.sequence, message.id.mark());
        let contact = Contact { id: peer.id, route: back.clone(), cost, mark, said };
        // A recorded CONNECT moves nobody; the answer to it does no harm.
        let is_new = self.overlay.contacts().get(peer.id).is_none_or(|known| known.said < said);
        if !is_new {
            self.counters.repeated += 1;
        } else if peer.connect.wrap {
            self.overlay.closed(now, contact, &peer.connect, &mut self.actions);
        } else {
            self.overlay.connected(now, contact, &peer.connect, &mut self.actions);
        }
        let mut desk = desk!(self, now, random);
        let wrap = peer.connect.wrap;
        self.messenger.acknowledge(&mut desk, message.id, peer.id, &back, &hints, (settled, wrap));
    }

    fn connect_ack(&mut self, now: Time, entered: Slot, message: &Routed<'_>) {
        let (Some(request), Some(route)) =
            (self.messenger.request(message.id), message.route_there(entered))
        else {
            return;
        };
        if request.to != message.origin && request.way != messenger::Way::Close {
            return;
        }
        if !self.is_plausible(message.origin, &route) {
            self.counters.undelivered += 1;
            return;
        }
        let Some(peer) = self.messenger.verify(message) else { return };
        let Some(request) = self.messenger.answered(message.id) else { return };
        let cost = message.path_cost.max(least_cost(&route));
        let (said, mark) = (peer.connect.sequence, message.id.mark());
        let contact = Contact { id: peer.id, route, cost, mark, said };
        if request.way == messenger::Way::Close {
            self.overlay.closed(now, contact, &peer.connect, &mut self.actions);
        } else {
            self.overlay.connected(now, contact, &peer.connect, &mut self.actions);
        }
    }

    /// Returns whether a route may lead to a router: one without labels leads to a neighbour and to nobody else. Whoever
    /// shortens the record of what passes would be taken for its sender otherwise, and a neighbour's contact is only lost
    /// with its link.
    fn is_plausible(&self, id: NodeId, route: &Route) -> bool {
        route.labels.count() > 0
            || self.links.neighbour(route.first).is_some_and(|neighbour| neighbour.id == id)
    }

    /// Returns the cost of the way back of a message. Where the record was cut, it is shorter than the way it came.
    fn path_cost(&self, message: &Routed<'_>, back: &Route) -> u16 {
        let walked = MAX_HOPS - message.hop_limit + 1;
        let least = least_cost(back);
        if message.flags.greedy || back.hops() >= walked {
            return message.path_cost.max(least);
        }
        let share = u32::from(message.path_cost) * u32::from(back.hops()) / u32::from(walked);
        (share as u16).max(least)
    }
}

/// Returns how many links at the end of the way `back` are those by which the message left its origin: the record may have
/// been cut, and a hint leaves out links of the way that the sender knows.
fn trodden(entered: Slot, message: &Routed<'_>, back: &Route) -> u16 {
    let slots = |labels: &Labels, last| -> Vec<Slot> {
        labels.iter().map(|(_, slot)| slot).chain([last]).collect()
    };
    let came = slots(&message.labels, entered);
    let known = slots(&back.labels.reversed(), back.first);
    came.iter().zip(&known).take_while(|(came, known)| came == known).count() as u16
}
