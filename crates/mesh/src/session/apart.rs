//! Apart routes: a second route to another router, which shares neither links nor routers with the first.
//!
//! What the second address of a router sends to that of another goes by a session of its own. Its route is looked for only
//! when there are such packets: the routers on the ordinary route are asked for their ids by probes, and LOOKUP_APART goes
//! where those are not ([`crate::forward::apart`]). When an answer has come, the routers on the new route are asked, too.
//! Until a route is found, and when there is none, these packets go by the ordinary session. The search is repeated: after
//! 2 s at first, and within 2 s when the ordinary route has changed.

use ringway_sansio::{Random, Time};

use super::aparts::{Next, Seen};
use super::peer::Search;
use super::track::Track;
use super::{Departure, IDLE, SessionAction, Sessions};
use crate::crypto::Crypto;
use crate::id::{NodeId, Prefix};
use crate::local::LocalRouter;
use crate::wire::control::{Code, ErrorReport};
use crate::wire::{MessageId, Routed, Slot};

impl<C: Crypto> Sessions<C> {
    /// Returns the way that a packet between second addresses takes now: the ordinary one while no apart route works. Has
    /// one looked for.
    pub(crate) fn apart_or_ordinary(&mut self, now: Time, own: NodeId, prefix: Prefix) -> Track {
        let (ordinary, apart) = (Track::ordinary(prefix), Track::apart(prefix));
        let session = |track| self.peers.get(&track).and_then(|peer| peer.session.as_ref());
        let is_up = session(apart).is_some_and(|session| session.is_proved() && !session.broken);
        let route = session(ordinary).map(|session| &session.path.route);
        self.aparts.note_use(now, own, prefix, (is_up, route));
        if is_up { apart } else { ordinary }
    }

    /// Returns the routers on the ordinary route to a prefix, the last one being its owner, and the first slot of that
    /// route. `None` if no apart route is looked for.
    pub(crate) fn avoided(&self, prefix: Prefix) -> Option<(Vec<NodeId>, Slot)> {
        let traced = self.aparts.get(prefix)?.ordinary()?;
        let owner = self.peers.get(&Track::ordinary(prefix))?.session.as_ref()?.owner;
        let routers = traced.routers.iter().copied().chain([owner]).collect();
        Some((routers, traced.route.first))
    }

    /// Returns the first slot of the route that a LOOKUP_APART of this router avoids; `None` of any other.
    pub(crate) fn avoided_first(&self, message: &Routed<'_>) -> Option<Slot> {
        let track = Track::apart(message.target.prefix());
        let search = self.peers.get(&track)?.search.as_ref()?;
        let traced = self.aparts.get(track.prefix())?.ordinary()?;
        (search.id == message.id).then_some(traced.route.first)
    }

    /// A LOOKUP_APART of this router has come back, and there is nobody else to send it to: the next is due.
    pub(crate) fn exhausted(&mut self, now: Time, id: MessageId) {
        let searches = self.peers.iter_mut().filter(|(track, _)| track.is_apart());
        let mut searches = searches.filter_map(|(_, peer)| peer.search.as_mut());
        searches.find(|search| search.id == id).into_iter().for_each(|search| search.ends(now));
    }

    /// A probe that asks a router for its id was sent.
    pub(crate) fn traced_by(&mut self, track: Track, departure: Departure) {
        self.aparts.probed(track, departure.quote);
    }

    /// A router on a route has reported. Returns whether that was about a probe which has asked for it.
    pub(crate) fn trace_reported(
        &mut self,
        now: Time,
        entered: Slot,
        report: &ErrorReport,
    ) -> bool {
        let is_end = report.code == Code::HopLimit;
        is_end && self.aparts.reported(now, entered, report.quoted, report.by)
    }

    /// Does what is due for apart routes.
    pub(super) fn aparts_timeout(
        &mut self,
        now: Time,
        local: &LocalRouter,
        random: &mut dyn Random,
        out: &mut Vec<SessionAction>,
    ) {
        for prefix in self.aparts.due(now, IDLE) {
            let (aparts, peers) = (&mut self.aparts, &self.peers);
            let session = |track| peers.get(&track).and_then(|peer| peer.session.as_ref());
            let apart = session(Track::apart(prefix));
            let apart = apart.filter(|session| !session.broken && session.is_proved());
            let ordinary = session(Track::ordinary(prefix)).filter(|session| !session.broken);
            let seen = ordinary.map(|ordinary| Seen {
                owner: ordinary.owner,
                ordinary: &ordinary.path.route,
                apart: apart.map(|session| &session.path.route),
                is_ours: apart.is_some_and(|session| session.initiated),
                is_old: apart.is_some_and(|session| session.is_old(now)),
            });
            match aparts.decide(now, local.id(), prefix, seen) {
                Next::Rest => {}
                Next::Trace(track, count) => out.push(SessionAction::Trace(track, count)),
                Next::Look => self.search_apart(now, local, prefix, random, out),
            }
        }
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
}
