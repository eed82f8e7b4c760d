//! What a router knows of its apart routes, and when it looks for them.

use std::collections::BTreeMap;

use ringway_sansio::Time;
use ringway_sansio::time::Duration;

use super::track::Track;
use crate::id::{NodeId, Prefix};
use crate::wire::bodies::MAX_AVOIDED;
use crate::wire::{Route, Slot};

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

/// A route, and the routers between its ends as they have named themselves.
#[derive(Clone, Debug)]
pub(super) struct Traced {
    pub(super) route: Route,
    pub(super) routers: Vec<NodeId>,
}

impl Traced {
    fn is_of(traced: Option<&Traced>, route: &Route) -> bool {
        traced.is_some_and(|traced| traced.route == *route)
    }

    /// Returns the links of the route between two routers but for the first, which is known by its slot.
    fn links(&self, owner: NodeId) -> impl Iterator<Item = (NodeId, NodeId)> {
        let ids = || self.routers.iter().copied();
        ids().zip(ids().skip(1).chain([owner]))
    }
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

/// What is to be done for an apart route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing.
    Rest,
    /// So many routers on a route are to be asked for their ids.
    Trace(Track, u8),
    /// A route is to be looked for.
    Look,
}

/// The sessions with a router as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// The router.
    pub(super) owner: NodeId,
    /// The route of the ordinary session.
    pub(super) ordinary: &'a Route,
    /// That of the apart session, if it works.
    pub(super) apart: Option<&'a Route>,
    /// Whether it was this router that has looked for that; then it also keeps it.
    pub(super) is_ours: bool,
    /// Whether it is to be renewed.
    pub(super) is_old: bool,
}

/// The apart route to one router.
#[derive(Clone, Debug)]
pub(super) struct Apart {
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
    fn new(now: Time, due: Time, was_up: bool) -> Self {
        Apart {
            used: now,
            due,
            begun: None,
            next: now,
            pause: FIRST_PAUSE,
            stage: Stage::Idle,
            ordinary: None,
            apart: None,
            was_up,
        }
    }

    /// Repeats the search soon.
    fn hurry(&mut self, now: Time) {
        self.pause = FIRST_PAUSE;
        let soonest = self.begun.map_or(now, |begun| begun + FIRST_PAUSE);
        self.next = self.next.min(soonest);
        self.due = self.due.min(self.next.max(now));
    }

    /// Begins a search if that is allowed now, or waits until it is.
    fn look(&mut self, now: Time) -> Next {
        if now < self.next {
            self.due = self.next;
            return Next::Rest;
        }
        (self.begun, self.next) = (Some(now), now + self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        self.stage = Stage::Looking;
        Next::Look
    }

    /// Asks the routers on a route for their ids.
    fn trace(&mut self, now: Time, track: Track, route: &Route) -> Next {
        let between = route.hops() - 1;
        let wait = if between == 0 { Duration::ZERO } else { REPORTS };
        self.due = now + wait + REPORTS_LINK * u32::from(between);
        self.stage = Stage::Tracing(Trace { track, route: route.clone(), probes: Vec::new() });
        if between == 0 { Next::Rest } else { Next::Trace(track, between as u8) }
    }

    /// Returns the ordinary route that was last compared.
    pub(super) fn ordinary(&self) -> Option<&Traced> {
        self.ordinary.as_ref()
    }

    /// Decides what to do when something is due: asks who is on a route that has changed, looks for another one, or rests.
    pub(super) fn decide(
        &mut self,
        now: Time,
        own: NodeId,
        prefix: Prefix,
        seen: Option<Seen<'_>>,
    ) -> Next {
        // Whatever comes next may set another time.
        self.due = now + MAX_PAUSE;
        if let Stage::Tracing(trace) = core::mem::replace(&mut self.stage, Stage::Idle) {
            let routers = trace.probes.iter().filter_map(|&(_, by)| by).collect();
            let traced = Some(Traced { route: trace.route, routers });
            match trace.track.is_apart() {
                true => self.apart = traced,
                false => self.ordinary = traced,
            }
        }
        let Some(seen) = seen else {
            self.due = now + FIRST_PAUSE;
            return Next::Rest;
        };
        let is_too_long = usize::from(seen.ordinary.hops()) > MAX_AVOIDED;
        if is_too_long || seen.apart.is_some() && !seen.is_ours {
            return Next::Rest;
        }
        if !Traced::is_of(self.ordinary.as_ref(), seen.ordinary) {
            return self.trace(now, Track::ordinary(prefix), seen.ordinary);
        }
        let Some(apart) = seen.apart else { return self.look(now) };
        if !Traced::is_of(self.apart.as_ref(), apart) {
            return self.trace(now, Track::apart(prefix), apart);
        }
        match self.shared(own, seen.owner) {
            _ if seen.is_old => self.look(now),
            Shared::Nothing => {
                self.pause = FIRST_PAUSE;
                Next::Rest
            }
            Shared::Routers => {
                self.next = self.begun.map_or(now, |begun| begun + MAX_PAUSE);
                self.look(now)
            }
            Shared::Links => self.look(now),
        }
    }

    /// Returns what the two routes between `own` and `owner` have in common, as far as is known.
    fn shared(&self, own: NodeId, owner: NodeId) -> Shared {
        let (Some(one), Some(other)) = (&self.ordinary, &self.apart) else {
            return Shared::Nothing;
        };
        let begins_alike = one.route.first == other.route.first;
        // Whoever is named as this router, or as the owner, between them is not there.
        let is_false = other.routers.iter().any(|&id| id == own || id == owner);
        let mut links = other.links(owner);
        let is_link =
            |(from, to)| one.links(owner).any(|link| link == (from, to) || link == (to, from));
        if begins_alike || is_false || links.any(is_link) {
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
        let routers = |traced: &Traced| traced.routers.capacity() * size_of::<NodeId>();
        let routers = |apart: &Apart| {
            let both = apart.ordinary.iter().chain(&apart.apart);
            both.map(routers).sum::<usize>()
        };
        self.all.len() * (size_of::<Apart>() + 2 * size_of::<(Prefix, Box<Apart>)>())
            + self.all.values().map(|apart| routers(apart)).sum::<usize>()
    }

    /// Returns when something is due, with routes that are not used for `idle` removed.
    pub(super) fn poll_timeout(&self, idle: Duration) -> Option<Time> {
        self.all.values().map(|apart| apart.due.min(apart.used + idle)).min()
    }

    /// Returns what is known of the way to a prefix.
    pub(super) fn get(&self, prefix: Prefix) -> Option<&Apart> {
        self.all.get(&prefix).map(|apart| &**apart)
    }

    /// A packet is sent between second addresses. Whoever's id is higher leaves the search to the other one for a moment.
    pub(super) fn note_use(
        &mut self,
        now: Time,
        own: NodeId,
        prefix: Prefix,
        (is_up, route): (bool, Option<&Route>),
    ) {
        if !self.all.contains_key(&prefix) {
            self.make_room();
            let due = if own.prefix() < prefix || is_up { now } else { now + TURN };
            self.all.insert(prefix, Box::new(Apart::new(now, due, is_up)));
        }
        let Some(apart) = self.all.get_mut(&prefix) else { return };
        apart.used = now;
        let known = apart.ordinary.as_ref().map(|traced| &traced.route);
        let is_other = route.zip(known).is_some_and(|(route, known)| route != known);
        let is_lost = core::mem::replace(&mut apart.was_up, is_up) && !is_up;
        if matches!(apart.stage, Stage::Idle) && (is_other || is_lost) {
            apart.hurry(now);
        }
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

    /// A probe that asks a router for its id was sent; a report about it will quote this.
    pub(super) fn probed(&mut self, track: Track, quote: u64) {
        if let Some(apart) = self.all.get_mut(&track.prefix())
            && let Stage::Tracing(trace) = &mut apart.stage
            && trace.track == track
        {
            trace.probes.push((quote, None));
        }
    }

    /// A router has reported a packet, by a slot. Returns whether that has asked for its id.
    pub(super) fn reported(&mut self, now: Time, entered: Slot, quoted: u64, by: NodeId) -> bool {
        for apart in self.all.values_mut() {
            let Stage::Tracing(trace) = &mut apart.stage else { continue };
            let mut probes = trace.probes.iter_mut().filter(|_| trace.route.first == entered);
            if let Some((_, name)) = probes.find(|(quote, _)| *quote == quoted) {
                *name = Some(by);
                if trace.probes.iter().all(|(_, by)| by.is_some()) {
                    apart.due = now;
                }
                return true;
            }
        }
        false
    }

    /// Removes the routes that are not used for `idle`, and returns those for which something is due.
    pub(super) fn due(&mut self, now: Time, idle: Duration) -> Vec<Prefix> {
        self.all.retain(|_, apart| now.since(apart.used) < idle);
        let due = self.all.iter().filter(|(_, apart)| apart.due <= now);
        due.map(|(&prefix, _)| prefix).collect()
    }

    /// Decides what to do for the way to a prefix.
    pub(super) fn decide(
        &mut self,
        now: Time,
        own: NodeId,
        prefix: Prefix,
        seen: Option<Seen<'_>>,
    ) -> Next {
        let apart = self.all.get_mut(&prefix);
        apart.map_or(Next::Rest, |apart| apart.decide(now, own, prefix, seen))
    }

    /// Makes room for another route: the least recently used makes way.
    fn make_room(&mut self) {
        if self.all.len() >= MAX_APARTS {
            let oldest = self.all.iter().min_by_key(|(_, apart)| apart.used);
            if let Some(prefix) = oldest.map(|(&prefix, _)| prefix) {
                self.all.remove(&prefix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Labels;

    const NOW: Time = Time::from_secs(1_000);
    const OWN: NodeId = NodeId::new(1 << 40);
    const OWNER: NodeId = NodeId::new(2 << 40);
    const IDLE: Duration = Duration::from_secs(240);

    fn route(first: u16, hops: u16) -> Route {
        let mut labels = Labels::default();
        (1..hops).for_each(|_| labels.push(Slot(2), Slot(2)).unwrap());
        Route { first: Slot(first), labels }
    }

    /// The ways to one router over some time.
    struct Ways {
        aparts: Aparts,
        ordinary: Route,
        apart: Option<Route>,
        /// Who is on them, as they say.
        named: [Vec<NodeId>; 2],
        now: Time,
        looks: Vec<u64>,
        probes: u64,
    }

    impl Ways {
        fn new() -> Ways {
            let (named, looks) = ([vec![NodeId::new(7)], vec![NodeId::new(8)]], Vec::new());
            let (aparts, ordinary) = (Aparts::default(), route(3, 2));
            Ways { aparts, ordinary, apart: None, named, now: NOW, looks, probes: 0 }
        }

        /// Lets some seconds pass, in each of which a packet is sent. What is looked for is found if `finds` is a route.
        fn pass(&mut self, seconds: u64, finds: Option<&Route>) {
            let prefix = OWNER.prefix();
            for tick in 0..seconds * 10 {
                self.now += Duration::from_millis(100);
                if tick % 10 == 0 {
                    let ways = (self.apart.is_some(), Some(&self.ordinary));
                    self.aparts.note_use(self.now, OWN, prefix, ways);
                }
                for prefix in self.aparts.due(self.now, IDLE) {
                    let seen = Seen {
                        owner: OWNER,
                        ordinary: &self.ordinary,
                        apart: self.apart.as_ref(),
                        is_ours: true,
                        is_old: false,
                    };
                    match self.aparts.decide(self.now, OWN, prefix, Some(seen)) {
                        Next::Rest => {}
                        Next::Trace(track, count) => {
                            let named = &self.named[usize::from(track.is_apart())];
                            assert_eq!(usize::from(count), named.len());
                            let of = if track.is_apart() { &self.apart } else { &None };
                            let entered = of.as_ref().unwrap_or(&self.ordinary).first;
                            for &by in named {
                                self.probes += 1;
                                self.aparts.probed(track, self.probes);
                                // By another link, or about something else, it counts for nothing.
                                let other = Slot(entered.0 + 1);
                                assert!(!self.aparts.reported(self.now, other, self.probes, by));
                                assert!(!self.aparts.reported(self.now, entered, 0, by));
                                assert!(self.aparts.reported(self.now, entered, self.probes, by));
                            }
                        }
                        Next::Look => {
                            self.looks.push(self.now.since(NOW).as_secs());
                            match finds {
                                Some(route) => {
                                    self.apart = Some(route.clone());
                                    self.aparts.found(self.now, prefix);
                                }
                                None => self.aparts.failed(self.now, prefix),
                            }
                        }
                    }
                }
            }
        }
    }

    /// What is not found is looked for ever more rarely, and soon again when the ordinary route is another.
    #[test]
    fn a_search_in_vain_is_repeated_ever_more_rarely() {
        let mut ways = Ways::new();
        ways.pass(600, None);
        let pauses: Vec<u64> = ways.looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 120, 120, 120]);
        ways.looks.clear();
        ways.ordinary = route(4, 2);
        ways.pass(10, None);
        assert_eq!(ways.looks.len(), 3, "{:?}", ways.looks);
        assert!(ways.looks[0] <= 602, "{:?}", ways.looks);
    }

    /// One that shares nothing is kept, and is compared with the ordinary route when that is another.
    #[test]
    fn what_shares_nothing_is_kept() {
        let mut ways = Ways::new();
        ways.pass(300, Some(&route(5, 2)));
        assert_eq!(ways.looks.len(), 1);
        // Another ordinary route that shares nothing with it either.
        (ways.ordinary, ways.named[0]) = (route(6, 3), vec![NodeId::new(9), NodeId::new(10)]);
        ways.pass(300, Some(&route(5, 2)));
        assert_eq!(ways.looks.len(), 1);
        // And one that passes the router on it.
        (ways.ordinary, ways.named[0]) = (route(7, 2), vec![NodeId::new(8)]);
        ways.pass(3, Some(&route(5, 2)));
        assert!(ways.looks.len() > 1);
    }

    /// A router that has its neighbour take the way for another, which it is not, is looked past again and again, but ever more
    /// rarely: what it costs is bounded.
    #[test]
    fn a_lie_about_a_way_costs_little() {
        for named in [vec![NodeId::new(7)], vec![OWN], vec![OWNER]] {
            let mut ways = Ways::new();
            ways.named[1] = named;
            ways.pass(600, Some(&route(5, 2)));
            assert!((4..=12).contains(&ways.looks.len()), "{:?}", ways.looks);
        }
    }

    /// So many routers and no more are remembered, however many there are, and they are forgotten when nothing is sent.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut aparts = Aparts::default();
        for router in 1..2_000 {
            let now = NOW + Duration::from_millis(router);
            let prefix = NodeId::new(router << 32).prefix();
            aparts.note_use(now, OWN, prefix, (false, None));
        }
        assert_eq!(aparts.all.len(), MAX_APARTS);
        assert!(aparts.heap_bytes() < MAX_APARTS * 400, "{} octets", aparts.heap_bytes());
        aparts.due(NOW + IDLE * 2, IDLE);
        assert_eq!((aparts.all.len(), aparts.heap_bytes()), (0, 0));
    }
}
