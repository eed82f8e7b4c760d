//! Renewal: a new session with the same peer, which is *next* to the current one until its route has carried a packet there
//! and back. So a renewal by way of a route that carries nothing cuts no session that works.

use ringway_sansio::Time;
use ringway_sansio::time::{Duration, sooner};

use super::peer::{Search, Session};
use super::track::Track;
use super::{Contents, Departure, Peer, SessionAction, Sessions};
use crate::crypto::Crypto;

use crate::wire::Slot;

/// Time after a failed renewal until the next, doubled each time up to the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(5);
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(80);

/// One of the sessions with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The one in use.
    Current,
    /// The one that is to follow, if there is one, and the one in use otherwise.
    Next,
}

impl<C: Crypto> Peer<C> {
    pub(super) fn session_mut(&mut self, which: Which) -> Option<&mut Session<C::Keys>> {
        match (which, &mut self.next) {
            (Which::Next, Some(next)) => Some(next),
            _ => self.session.as_mut(),
        }
    }

    /// Begins to use a session. Returns the number of one that is released.
    pub(super) fn follow(&mut self, session: Session<C::Keys>) -> Option<u32> {
        let path = session.path.clone();
        let mut current = self.session.replace(session);
        // What it has sent and nobody has acknowledged goes by the new route, with its own numbers: so the peer refuses
        // what it has.
        current.iter_mut().for_each(|current| current.follow(path.clone()));
        let oldest = current.and_then(|current| self.previous.replace(current));
        oldest.map(|oldest| oldest.index)
    }

    /// Returns when something of the next session is due.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.next.as_ref().and_then(Session::trial_due)
    }
}

impl<C: Crypto> Sessions<C> {
    /// Has a session follow the current one, which works, when it has shown that it does.
    pub(super) fn install_next(&mut self, now: Time, track: Track, next: Session<C::Keys>) {
        let Some(peer) = self.peers.get_mut(&track) else { return };
        let longest = peer.session.as_ref().map_or(0, Session::longest);
        if let Some(gone) = peer.next.replace(next.on_trial(now, longest)) {
            self.by_index.remove(&gone.index);
        }
    }

    /// Begins to use the next session. Returns `false` if there is none.
    pub(super) fn promote(&mut self, track: Track) -> bool {
        let Some(peer) = self.peers.get_mut(&track) else { return false };
        let Some(next) = peer.next.take() else { return false };
        if let Some(gone) = peer.follow(next) {
            self.by_index.remove(&gone);
        }
        true
    }

    /// Begins to use the next session if it has this number. Returns whether it has.
    pub(super) fn promote_if(&mut self, track: Track, index: u32) -> bool {
        self.which(track, index) == Which::Next && self.promote(track)
    }

    /// Begins to use the next session if the route of the current one is broken. Returns whether it has.
    pub(super) fn replace_broken(&mut self, track: Track) -> bool {
        let session = self.peers.get(&track).and_then(|peer| peer.session.as_ref());
        session.is_some_and(|session| session.broken) && self.promote(track)
    }

    /// Returns whether a number is that of a session which is to follow.
    pub(crate) fn which(&self, track: Track, index: u32) -> Which {
        let next = self.peers.get(&track).and_then(|peer| peer.next.as_ref());
        match next.is_some_and(|next| next.index == index) {
            true => Which::Next,
            false => Which::Current,
        }
    }

    /// Returns the first hop of a session.
    pub(crate) fn first_hop_of(&self, track: Track, which: Which) -> Option<Slot> {
        let peer = self.peers.get(&track)?;
        let next = peer.next.as_ref().filter(|_| which == Which::Next);
        next.or(peer.session.as_ref()).map(|session| session.path.route.first)
    }

    /// Appends a packet with these contents to `out`, as [`seal`](Self::seal) does, by one of the sessions.
    pub(crate) fn seal_by(
        &mut self,
        (track, which): (Track, Which),
        contents: &Contents<'_>,
        hop_limit: u8,
        out: &mut Vec<u8>,
    ) -> Option<Departure> {
        let session = self.peers.get_mut(&track)?.session_mut(which)?;
        let quote = session.seal::<C>(contents, hop_limit, out);
        let (route, mtu) = (&session.path.route, session.mtu());
        Some(Departure { first: route.first, quote, hops: route.hops(), mtu })
    }

    /// Does what is due for sessions that are to follow: one that has shown nothing in its time is released.
    pub(super) fn renewal_timeout(&mut self, now: Time, out: &mut Vec<SessionAction>) {
        let Sessions { peers, by_index, .. } = self;
        for (&track, peer) in peers {
            let Some(next) = &mut peer.next else { continue };
            if let Some(confirm) = next.confirm_again(now) {
                out.extend([confirm, SessionAction::KeepAlive(track, Which::Next)]);
            }
            if next.has_failed(now) {
                by_index.remove(&next.index);
                peer.next = None;
                peer.session.iter_mut().for_each(|session| session.renewal_failed(now));
            }
        }
    }

    /// Returns when something is due for a peer.
    pub(super) fn due_of(peer: &Peer<C>, idle: Duration) -> Option<Time> {
        let search = peer.search.as_ref().map(Search::due);
        let session = peer.session.as_ref().and_then(|session| {
            let is_owing = session.is_owing() && peer.search.is_none();
            if is_owing { Some(session.since) } else { session.due() }
        });
        let idle = peer.search.is_none().then(|| peer.used + idle);
        sooner(sooner(sooner(search, session), peer.next_due()), idle)
    }
}
