//! Forwarding of messages between routers: labels, then contacts, and the record of the way.

use super::{Step, step};
use crate::config::MAX_HOPS;
use crate::id::NodeId;
use crate::routes::Detours;
use crate::wire::control::Code;
use crate::wire::{Neighbour, Route, Routed, Slot};

/// A router as far as forwarding needs it.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// The router.
    pub id: NodeId,
    /// Its neighbours whose links are up.
    pub neighbours: &'a [Neighbour],
    /// Ways round links that carry nothing.
    pub detours: &'a Detours,
    /// Whether keys before the first router belong to the last ([`Space::CLOSES`](crate::metric::Space::CLOSES)).
    pub closes: bool,
    /// How far a router is from a key ([`Space::distance`](crate::metric::Space::distance)).
    pub distance: fn(NodeId, NodeId) -> u64,
}

impl Here<'_> {
    /// Returns whether the link of a slot carries packets.
    pub(super) fn is_up(&self, slot: Slot) -> bool {
        self.neighbours.iter().any(|neighbour| neighbour.slot == slot)
            && self.detours.get(slot).is_none()
    }
}

/// What to do with a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Send it to this neighbour.
    Out(Slot),
    /// It is at its end: for this router, for the one responsible, or in vain.
    Arrived {
        /// The way back to the origin, if there is a record and the origin is elsewhere.
        back: Option<Route>,
    },
    /// It was sent on from here, and has returned, because its route has failed.
    Returned,
    /// Drop it and report this to its origin.
    Error(Code),
}

/// Forwards a message that came by `entered`. `onward` is asked when a greedy message is at the end of its labels: it
/// returns the route to a contact whose distance to [`Routed::key`] is below [`Routed::best`], and that distance.
pub fn forward(
    message: &mut Routed<'_>,
    here: Here<'_>,
    entered: Slot,
    mut onward: impl FnMut(&Routed<'_>) -> Option<(Route, u64)>,
) -> Verdict {
    if ends_here(message, here.id) {
        let (id, record) = (message.id, message.record.as_mut());
        let back = record.and_then(|way| way.finish(id, here.id, here.neighbours, entered));
        return Verdict::Arrived { back };
    }
    let reverse = message.flags.reverse;
    let Ok(mut cursor) = message.labels.cursor(message.at, reverse) else {
        return Verdict::Error(Code::BadRoute);
    };
    let taken = step(&mut cursor, &mut message.hop_limit, entered, |slot| here.is_up(slot));
    message.at = cursor.at();
    let out = match taken {
        Step::Out(out) => out,
        Step::End if message.flags.returned => return Verdict::Returned,
        Step::Widen => {
            let Ok((out, at)) = message.labels.rewrite(message.at, reverse, entered, None) else {
                return turn_back(message, here, entered, Code::BadRoute);
            };
            message.at = at;
            out
        }
        Step::Error(Code::LinkDown) => match detour(message, here.detours, entered) {
            Some(out) => out,
            None => return turn_back(message, here, entered, Code::LinkDown),
        },
        Step::Error(code) => return turn_back(message, here, entered, code),
        Step::End if is_misled(message, here) => {
            return turn_back(message, here, entered, Code::BadRoute);
        }
        Step::End => match go_on(message, here, &mut onward) {
            Some(out) => out,
            None => {
                let id = message.id;
                let record = message.record.as_mut();
                let back = record.and_then(|way| way.finish(id, here.id, here.neighbours, entered));
                return Verdict::Arrived { back };
            }
        },
    };
    if let Some(record) = &mut message.record
        && record.pass(message.id, here.id, here.neighbours, entered, out).is_err()
    {
        return Verdict::Error(Code::BadRoute);
    }
    Verdict::Out(out)
}

/// Returns whether a request that passes is for this router, wherever its labels lead: joined routes may go past their end
/// and back.
fn ends_here(message: &Routed<'_>, own: NodeId) -> bool {
    let is_for = match message.flags.closest {
        true => message.target.prefix() == own.prefix(),
        false => message.target == own,
    };
    is_for && message.record.is_some() && !message.flags.reverse
}

/// Takes the next step of a message by the detour round its link. Changes nothing if there is none.
fn detour(message: &mut Routed<'_>, detours: &Detours, entered: Slot) -> Option<Slot> {
    let reverse = message.flags.reverse;
    let (_, out) = message.labels.cursor(message.at, reverse).ok()?.peek().ok()?;
    let detour = detours.get(out)?;
    let (mut labels, mut at, mut hop_limit) =
        (message.labels.clone(), message.at, message.hop_limit);
    let out = detour.step(&mut labels, &mut at, reverse, &mut hop_limit, entered)?;
    (message.labels, message.at, message.hop_limit) = (labels, at, hop_limit);
    Some(out)
}

/// Returns a greedy message to the router that it goes on from, which has others to try; what only follows a route has
/// failed.
fn turn_back(message: &mut Routed<'_>, here: Here<'_>, entered: Slot, code: Code) -> Verdict {
    if !message.flags.greedy || message.flags.reverse {
        return Verdict::Error(code);
    }
    message.turn_back();
    let id = message.id;
    if let Some(record) = &mut message.record
        && record.pass(id, here.id, here.neighbours, entered, entered).is_err()
    {
        return Verdict::Error(Code::BadRoute);
    }
    Verdict::Out(entered)
}

/// Returns whether a greedy message is not where the router that it goes on from has meant to send it. Slots are assigned
/// anew when a router starts again, and a route may lead elsewhere then. Distances are unique, so they tell.
fn is_misled(message: &Routed<'_>, here: Here<'_>) -> bool {
    let is_greedy = message.flags.greedy && !message.flags.reverse && message.best != u64::MAX;
    is_greedy && (here.distance)(here.id, message.key()) != message.best
}

/// Extends the labels by the route to a closer contact. Returns the first slot, or `None` if the message is at its end.
fn go_on(
    message: &mut Routed<'_>,
    here: Here<'_>,
    onward: &mut impl FnMut(&Routed<'_>) -> Option<(Route, u64)>,
) -> Option<Slot> {
    if !message.flags.greedy || message.flags.reverse || message.target == here.id {
        return None;
    }
    let mut found = onward(message);
    let may_wrap = here.closes && !message.flags.linear && !message.flags.wrapped;
    if found.is_none() && may_wrap && message.target < here.id {
        // Nobody is before us: the last router is responsible. It happens once, so the distance may begin anew.
        (message.flags.wrapped, message.best) = (true, u64::MAX);
        found = onward(message);
    }
    let (mut route, distance) = found?;
    if let Some(detour) = here.detours.get(route.first) {
        route = detour.redirect(&route)?;
    }
    if distance >= message.best || !here.is_up(route.first) {
        return None;
    }
    message.best = distance;
    message.hop_limit = MAX_HOPS;
    message.go_on(&route);
    Some(route.first)
}
