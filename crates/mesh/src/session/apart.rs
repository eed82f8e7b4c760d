//! Apart routes: a second route to another router, which shares neither links nor routers with the first.
//!
//! What the second address of a router sends to that of another goes by a session of its own. Its route is looked for only
//! when there are such packets: the routers on the ordinary route are asked for their ids by probes, and LOOKUP_APART goes
//! where those are not ([`crate::forward::apart`]). When an answer has come, the routers on the new route are asked, too.
//! Until a route is found, and when there is none, these packets go by the ordinary session. The search is repeated: after
//! 2 s at first, and within 2 s when the ordinary route has changed.

use core::fmt;
use std::collections::BTreeMap;

use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};

use super::peer::Search;
use super::{Departure, IDLE, SessionAction, Sessions};
use crate::crypto::Crypto;
use crate::id::{NodeId, Prefix};
use crate::local::LocalRouter;
use crate::wire::bodies::MAX_AVOIDED;
use crate::wire::control::{Code, ErrorReport};
use crate::wire::{MessageId, Route, Routed, Slot};

/// Times that LOOKUP_APART is sent in a search: first those that avoid routers, then those that avoid links alone.
pub(super) const TRIES: u32 = 4;
pub(super) const STRICT: u32 = 2;
/// Time until a search is repeated, doubled each time up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(120);
/// Time for which the router with the higher id leaves the search to the other one.
const TURN: Duration = Duration::from_secs(3);
/// Time in which routers on a route report, and the same for each link.
const REPORTS: Duration = Duration::from_millis(300);
const REPORTS_LINK: Duration = Duration::from_millis(40);
/// Time after which a new route is compared with the ordinary one.
const SETTLED: Duration = Duration::from_millis(500);
/// Maximum number of routers to which there are apart routes.
const MAX_APARTS: usize = 256;

/// One of the two ways to the owner of a prefix, each of which has a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Track(u64);

impl Track {
    /// A bit that no prefix has: its octets are seven.
    const APART: u64 = 1 << 63;

    /// The way of ordinary packets.
    pub fn ordinary(prefix: Prefix) -> Track {
        let mut all = [0; 8];
        all[1..].copy_from_slice(&prefix.to_bytes());
        Track(u64::from_be_bytes(all))
    }

    /// The way of packets between the second addresses of two routers.
    pub fn apart(prefix: Prefix) -> Track {
        Track(Track::ordinary(prefix).0 | Track::APART)
    }

    /// Returns the prefix.
    pub fn prefix(self) -> Prefix {
        let [_, octets @ ..] = self.0.to_be_bytes();
        Prefix::from_bytes(octets)
    }

    /// Returns whether it is that of second addresses.
    pub fn is_apart(self) -> bool {
        self.0 & Track::APART != 0
    }
}

impl fmt::Debug for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_apart() { "apart" } else { "ordinary" };
        write!(f, "{} {kind}", self.prefix().network())
    }
}

/// A route, and the routers between its ends as they have named themselves.
#[derive(Clone, Debug)]
struct Traced {
    route: Route,
    routers: Vec<NodeId>,
}

/// What is under way.
#[derive(Clone, Debug)]
enum Stage {
    Idle,
    /// Routers on a route are asked for their ids.
    Tracing(Trace),
    /// LOOKUP_APART is under way.
    Looking,
}

#[derive(Clone, Debug)]
struct Trace {
    track: Track,
    route: Route,
    /// What a report about each probe quotes, and who has reported.
    probes: Vec<(u64, Option<NodeId>)>,
}

/// What two routes have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shared {
    Nothing,
    Routers,
    Links,
}

/// The apart route to one router.
#[derive(Clone, Debug)]
struct Apart {
    /// When there were last packets for it.
    used: Time,
    /// When something is due.
    due: Time,
    /// When a search last began, when the next may, and time from that one to the one after it.
    begun: Option<Time>,
    next: Time,
    pause: Duration,
    stage: Stage,
    /// The ordinary route that was last compared.
    ordinary: Option<Traced>,
    /// The apart one.
    apart: Option<Traced>,
    /// Whether there was an apart route when it was last used.
    was_up: bool,
}

impl Apart {
    /// Repeats the search soon.
    fn hurry(&mut self, now: Time) {
        self.pause = FIRST_PAUSE;
        let soonest = self.begun.map_or(now, |begun| begun + FIRST_PAUSE);
        self.next = self.next.min(soonest);
        self.due = self.due.min(self.next.max(now));
    }

    /// Begins a search if that is allowed now, or waits until it is.
    fn look(&mut self, now: Time) -> Stage {
        if now < self.next {
            self.due = self.next;
            return Stage::Idle;
        }
        (self.begun, self.next) = (Some(now), now + self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Stage::Looking
    }

    /// Returns what the two routes between `own` and `owner` have in common, as far as is known.
    fn shared(&self, own: NodeId, owner: NodeId) -> Shared {
        let (Some(one), Some(other)) = (&self.ordinary, &self.apart) else {
            return Shared::Nothing;
        };
        let links = |traced: &Traced| -> Vec<(NodeId, NodeId)> {
            let ids = || traced.routers.iter().copied();
            let from = core::iter::once(own).chain(ids());
            let links = from.zip(ids().chain([owner]));
            // Two routers may have several links; here they are told apart by their slots.
            links.skip(1).collect()
        };
        let ours = links(one);
        let has = |&(from, to): &(NodeId, NodeId)| {
            ours.contains(&(from, to)) || ours.contains(&(to, from))
        };
        if one.route.first == other.route.first || links(other).iter().any(has) {
            return Shared::Links;
        }
        match other.routers.iter().any(|id| one.routers.contains(id)) {
            true => Shared::Routers,
            false => Shared::Nothing,
        }
    }
}

/// The apart routes of a router, by whom they lead to.
#[derive(Debug, Default)]
pub(super) struct Aparts {
    all: BTreeMap<Prefix, Box<Apart>>,
}

impl Aparts {
    pub(super) fn heap_bytes(&self) -> usize {
        self.all.len() * (size_of::<Apart>() + 2 * size_of::<(Prefix, Box<Apart>)>())
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.all.values().map(|apart| apart.due.min(apart.used + IDLE)).min()
    }

    /// A route is to be looked for again soon.
    pub(super) fn hurry(&mut self, now: Time, prefix: Prefix) {
        if let Some(apart) = self.all.get_mut(&prefix) {
            apart.hurry(now);
        }
    }

    /// A search has found nobody.
    pub(super) fn failed(&mut self, now: Time, prefix: Prefix) {
        if let Some(apart) = self.all.get_mut(&prefix) {
            (apart.stage, apart.due) = (Stage::Idle, apart.next.max(now));
        }
    }

    /// A search has found a route.
    pub(super) fn found(&mut self, now: Time, prefix: Prefix) {
        if let Some(apart) = self.all.get_mut(&prefix) {
            (apart.stage, apart.apart, apart.due) = (Stage::Idle, None, now + SETTLED);
        }
    }
}

impl<C: Crypto> Sessions<C> {
    /// Returns the way that a packet between second addresses takes now: the ordinary one while no apart route works. Has
    /// one looked for.
    pub(crate) fn apart_or_ordinary(&mut self, now: Time, own: NodeId, prefix: Prefix) -> Track {
        let (ordinary, track) = (Track::ordinary(prefix), Track::apart(prefix));
        let is_up = self.is_proved(track);
        let route = self.route(ordinary).cloned();
        if !self.aparts.all.contains_key(&prefix) {
            self.make_room_for_apart();
            let is_first = own.prefix() < prefix || is_up;
            let due = if is_first { now } else { now + TURN };
            let apart = Apart {
                used: now,
                due,
                begun: None,
                next: now,
                pause: FIRST_PAUSE,
                stage: Stage::Idle,
                ordinary: None,
                apart: None,
                was_up: is_up,
            };
            self.aparts.all.insert(prefix, Box::new(apart));
        }
        if let Some(apart) = self.aparts.all.get_mut(&prefix) {
            apart.used = now;
            let known = apart.ordinary.as_ref().map(|traced| &traced.route);
            let is_other = route.as_ref().zip(known).is_some_and(|(route, known)| route != known);
            let is_lost = core::mem::replace(&mut apart.was_up, is_up) && !is_up;
            if matches!(apart.stage, Stage::Idle) && (is_other || is_lost) {
                apart.hurry(now);
            }
        }
        if is_up { track } else { ordinary }
    }

    /// Returns the routers on the ordinary route to a prefix, the last one being its owner, and the first slot of that
    /// route. `None` if no apart route is looked for.
    pub(crate) fn avoided(&self, prefix: Prefix) -> Option<(Vec<NodeId>, Slot)> {
        let apart = self.aparts.all.get(&prefix)?;
        let traced = apart.ordinary.as_ref()?;
        let owner = self.peers.get(&Track::ordinary(prefix))?.session.as_ref()?.owner;
        let routers = traced.routers.iter().copied().chain([owner]).collect();
        Some((routers, traced.route.first))
    }

    /// Returns the first slot of the route that a LOOKUP_APART of this router avoids; `None` of any other.
    pub(crate) fn avoided_first(&self, message: &Routed<'_>) -> Option<Slot> {
        let track = Track::apart(message.target.prefix());
        let search = self.peers.get(&track)?.search.as_ref()?;
        let traced = self.aparts.all.get(&track.prefix())?.ordinary.as_ref()?;
        (search.id == message.id).then_some(traced.route.first)
    }

    /// A LOOKUP_APART of this router has come back, and there is nobody else to send it to: the next is due.
    pub(crate) fn exhausted(&mut self, now: Time, id: MessageId) {
        let searches = self.peers.iter_mut().filter(|(track, _)| track.is_apart());
        let mut searches = searches.filter_map(|(_, peer)| peer.search.as_mut());
        if let Some(search) = searches.find(|search| search.id == id) {
            search.due = now;
        }
    }

    /// A probe that asks a router for its id was sent.
    pub(crate) fn traced_by(&mut self, track: Track, departure: Departure) {
        if let Some(apart) = self.aparts.all.get_mut(&track.prefix())
            && let Stage::Tracing(trace) = &mut apart.stage
            && trace.track == track
        {
            trace.probes.push((departure.quote, None));
        }
    }

    /// A router on a route has reported. Returns whether that was about a probe which has asked for it.
    pub(crate) fn trace_reported(
        &mut self,
        now: Time,
        entered: Slot,
        report: &ErrorReport,
    ) -> bool {
        if report.code != Code::HopLimit {
            return false;
        }
        for apart in self.aparts.all.values_mut() {
            let Stage::Tracing(trace) = &mut apart.stage else { continue };
            let is_it = |probe: &&mut (u64, Option<NodeId>)| probe.0 == report.quoted;
            if let Some((_, by)) = trace.probes.iter_mut().find(is_it)
                && trace.route.first == entered
            {
                *by = Some(report.by);
                if trace.probes.iter().all(|(_, by)| by.is_some()) {
                    apart.due = now;
                }
                return true;
            }
        }
        false
    }

    /// Does what is due for apart routes.
    pub(super) fn aparts_timeout(
        &mut self,
        now: Time,
        local: &LocalRouter,
        random: &mut dyn Random,
        out: &mut Vec<SessionAction>,
    ) {
        self.aparts.all.retain(|_, apart| now.since(apart.used) < IDLE);
        let is_due =
            |(&prefix, apart): (&Prefix, &Box<Apart>)| (apart.due <= now).then_some(prefix);
        let due: Vec<Prefix> = self.aparts.all.iter().filter_map(is_due).collect();
        for prefix in due {
            let Some(mut apart) = self.aparts.all.remove(&prefix) else { continue };
            // Whatever comes next sets its own time.
            apart.due = now + MAX_PAUSE;
            if let Stage::Tracing(trace) = core::mem::replace(&mut apart.stage, Stage::Idle) {
                let routers = trace.probes.iter().filter_map(|&(_, by)| by).collect();
                let traced = Some(Traced { route: trace.route, routers });
                match trace.track.is_apart() {
                    true => apart.apart = traced,
                    false => apart.ordinary = traced,
                }
            }
            let stage = self.next_stage(now, local, prefix, &mut apart, out);
            let looks = matches!(stage, Stage::Looking);
            apart.stage = stage;
            self.aparts.all.insert(prefix, apart);
            if looks {
                self.search_apart(now, local, prefix, random, out);
            }
        }
    }

    /// Decides what to do for an apart route: asks who is on a route that has changed, looks for another one, or rests.
    fn next_stage(
        &mut self,
        now: Time,
        local: &LocalRouter,
        prefix: Prefix,
        apart: &mut Apart,
        out: &mut Vec<SessionAction>,
    ) -> Stage {
        let session = |track| self.peers.get(&track).and_then(|peer| peer.session.as_ref());
        let current = |track| session(track).filter(|session| !session.broken);
        let Some(ordinary) = current(Track::ordinary(prefix)) else {
            apart.due = now + FIRST_PAUSE;
            return Stage::Idle;
        };
        let is_of = |traced: &Option<Traced>, route: &Route| {
            traced.as_ref().is_some_and(|traced| traced.route == *route)
        };
        let (owner, route) = (ordinary.owner, &ordinary.path.route);
        if usize::from(route.hops()) > MAX_AVOIDED {
            return Stage::Idle;
        }
        let found = current(Track::apart(prefix)).filter(|session| session.is_proved());
        // The router that has looked for the route also keeps it.
        if found.is_some_and(|session| !session.initiated) {
            return Stage::Idle;
        }
        if !is_of(&apart.ordinary, route) {
            return Self::trace(now, Track::ordinary(prefix), route, apart, out);
        }
        let Some(found) = found else { return apart.look(now) };
        if !is_of(&apart.apart, &found.path.route) {
            return Self::trace(now, Track::apart(prefix), &found.path.route, apart, out);
        }
        match apart.shared(local.id(), owner) {
            _ if found.is_old(now) => apart.look(now),
            Shared::Nothing => {
                apart.pause = FIRST_PAUSE;
                Stage::Idle
            }
            Shared::Routers => {
                apart.next = apart.begun.map_or(now, |begun| begun + MAX_PAUSE);
                apart.look(now)
            }
            Shared::Links => apart.look(now),
        }
    }

    /// Asks the routers on a route for their ids.
    fn trace(
        now: Time,
        track: Track,
        route: &Route,
        apart: &mut Apart,
        out: &mut Vec<SessionAction>,
    ) -> Stage {
        let between = route.hops() - 1;
        let wait = if between == 0 { Duration::ZERO } else { REPORTS };
        apart.due = now + wait + REPORTS_LINK * u32::from(between);
        if between > 0 {
            out.push(SessionAction::Trace(track, between as u8));
        }
        Stage::Tracing(Trace { track, route: route.clone(), probes: Vec::new() })
    }

    /// Begins to look for an apart route, unless that is under way.
    fn search_apart(
        &mut self,
        now: Time,
        local: &LocalRouter,
        prefix: Prefix,
        random: &mut dyn Random,
        out: &mut Vec<SessionAction>,
    ) {
        let (track, index) = (Track::apart(prefix), self.new_index(random));
        let peer = self.peer(now, track);
        if peer.search.is_some() {
            return;
        }
        let search = peer.search.insert(Search::new(now, index, random));
        out.extend(search.ask::<C>(now, local, track, false, None));
    }

    /// Returns whether a session has carried a packet in both directions, and its route is not known to be broken.
    fn is_proved(&self, track: Track) -> bool {
        let session = self.peers.get(&track).and_then(|peer| peer.session.as_ref());
        session.is_some_and(|session| session.is_proved() && !session.broken)
    }

    /// Makes room for another apart route: the least recently used makes way.
    fn make_room_for_apart(&mut self) {
        if self.aparts.all.len() >= MAX_APARTS {
            let oldest = self.aparts.all.iter().min_by_key(|(_, apart)| apart.used);
            if let Some(prefix) = oldest.map(|(&prefix, _)| prefix) {
                self.aparts.all.remove(&prefix);
            }
        }
    }
}
