//! Handshakes that this router has answered, until their CONFIRM comes.

use ringway_sansio::{Random, Time};

use super::peer::{self, Established, Half, Path, Session};
use super::renewal::Which;
use super::track::Track;
use super::{CROSSING, SessionAction, Sessions};
use crate::crypto::{Crypto, Purpose, Role};
use crate::id::NodeId;
use crate::identity::KEY;
use crate::local::LocalRouter;
use crate::wire::bodies::SESSION_SECOND;
use crate::wire::{MessageId, Route, Slot};

impl<C: Crypto> Sessions<C> {
    /// Answers a LOOKUP for our prefix that came by `slot`. Returns our number for the session and the second message.
    #[expect(clippy::too_many_arguments, reason = "all of it is what the message brought")]
    pub fn look_up(
        &mut self,
        now: Time,
        local: &LocalRouter,
        remote: u32,
        noise: &[u8],
        back: &Route,
        mtu: u16,
        (id, is_apart): (MessageId, bool),
        neighbour: Option<NodeId>,
        random: &mut dyn Random,
    ) -> Option<(u32, Vec<u8>)> {
        let path = Path { route: back.clone(), mtu, mark: id.mark() };
        if !path.is_wide() {
            self.counters.too_long += 1;
            return None;
        }
        // It has come again, because the answer was lost, or by another way.
        if let Some(half) = self.halves.iter_mut().find(|half| half.id == id) {
            half.path = path;
            return Some((half.index, half.second.clone()));
        }
        self.make_room_for_half(back.first, is_apart);
        let answer = answer::<C>(local, noise, (mtu, neighbour), random);
        let Some((handshake, second)) = answer else {
            self.counters.refused += 1;
            return None;
        };
        let index = self.new_index(random);
        self.halves.push(Half {
            index,
            remote,
            id,
            second: second.clone(),
            handshake,
            path,
            since: now,
            is_apart,
        });
        Some((index, second))
    }

    /// Makes room for another handshake that came by a link: the oldest of that link makes way if the link has its half,
    /// and the oldest of all if there is no room. Those of apart routes have a quarter.
    fn make_room_for_half(&mut self, slot: Slot, is_apart: bool) {
        let (all, limit) = (self.halves.len(), self.limits.half_sessions);
        let is_by_slot = |half: &Half<C>| half.path.route.first == slot;
        let of_slot = self.halves.iter().filter(|half| is_by_slot(half)).count();
        let aparts = self.halves.iter().filter(|half| half.is_apart).count();
        let at = if is_apart && aparts >= limit.div_ceil(4) {
            self.halves.iter().position(|half| half.is_apart)
        } else if of_slot >= limit.div_ceil(2) {
            self.halves.iter().position(is_by_slot)
        } else {
            (all >= limit).then_some(0)
        };
        if let Some(at) = at {
            self.counters.refused += 1;
            self.halves.remove(at);
        }
    }

    /// Handles a CONFIRM.
    pub fn confirm(
        &mut self,
        now: Time,
        local: &LocalRouter,
        index: u32,
        noise: &[u8],
        out: &mut Vec<SessionAction>,
    ) {
        let Some(at) = self.halves.iter().position(|half| half.index == index) else {
            // It came again: the first answer to it was lost.
            if let Some(&track) = self.by_index.get(&index) {
                out.push(match self.which(track, index) {
                    Which::Current => SessionAction::Alive(track, Which::Current, 0),
                    Which::Next => SessionAction::KeepAlive(track, Which::Next),
                });
            }
            return;
        };
        let mut payload = Vec::new();
        if C::read(&mut self.halves[at].handshake, noise, &mut payload).is_err() {
            self.counters.refused += 1;
            return;
        }
        let half = self.halves.remove(at);
        let established = peer::establish::<C>(local, half.handshake, &payload);
        let Some(Established { keys, owner, mtu, .. }) = established else {
            self.counters.refused += 1;
            return;
        };
        let prefix = owner.prefix();
        let track = if half.is_apart { Track::apart(prefix) } else { Track::ordinary(prefix) };
        self.peer(now, track);
        let path = Path { mtu: mtu.min(half.path.mtu), ..half.path };
        let begun = (half.since, CROSSING);
        let session = Session::new(now, owner, (index, half.remote), keys, path);
        if self.install(now, local.id(), track, begun, session) {
            out.push(SessionAction::Alive(track, Which::Current, 0));
            out.push(SessionAction::Ready(track));
        } else {
            out.push(SessionAction::KeepAlive(track, Which::Next));
        }
    }
}

/// Reads the first message of a handshake and returns the handshake and the second.
fn answer<C: Crypto>(
    local: &LocalRouter,
    noise: &[u8],
    (mtu, neighbour): (u16, Option<NodeId>),
    random: &mut dyn Random,
) -> Option<(C::Handshake, Vec<u8>)> {
    let mut seed = [0; KEY];
    random.fill(&mut seed);
    let role = Role::Responder;
    let mut handshake =
        C::begin(role, Purpose::Session, &local.identity, &local.network, seed).ok()?;
    let (mut payload, mut second) = (Vec::new(), Vec::with_capacity(SESSION_SECOND));
    C::read(&mut handshake, noise, &mut payload).ok()?;
    C::write(&mut handshake, &peer::payload(local, mtu, neighbour), &mut second).ok()?;
    Some((handshake, second))
}

#[cfg(test)]
mod tests {
    use super::super::peer::Search;
    use super::*;
    use crate::config::Limits;
    use crate::crypto::{NetworkKey, StandIn};
    use crate::identity;
    use ringway_sansio::SplitMix;

    const NOW: Time = Time::from_secs(9);

    /// Whoever floods a router with LOOKUP_APART has a quarter of the room, and displaces no LOOKUP of others.
    #[test]
    fn look_ups_apart_do_not_displace_others() {
        let mut random = SplitMix::new(3);
        let Some(identity) = identity::Search::new(0, &mut random).step(1) else {
            panic!("no identity")
        };
        let local = LocalRouter::new(identity, NetworkKey::OPEN, 0, 0, &mut random);
        let mut sessions: Sessions<StandIn> = Sessions::new(Limits::default());
        let search = &mut Search::new(NOW, 1, &mut random);
        let track = Track::ordinary(local.id().prefix());
        let asked = search.ask::<StandIn>(NOW, &local, track, false, None);
        let Some(SessionAction::LookUp { noise, .. }) = asked else { panic!("{asked:?}") };
        let mut look_up = |id: u64, slot: u16, is_apart: bool| {
            let (id, back) = ((MessageId(id), is_apart), Route::direct(Slot(slot)));
            let random = &mut random;
            let answer = sessions.look_up(NOW, &local, 7, &noise, &back, 1_400, id, None, random);
            let Some((index, _)) = answer else { panic!("no answer") };
            index
        };
        let others: Vec<u32> = (0..10).map(|id| look_up(id, 1, false)).collect();
        let flood: Vec<u32> = (100..1_000).map(|id| look_up(id, (id % 5) as u16, true)).collect();
        let known = |all: &[u32]| all.iter().filter(|&&index| sessions.knows(index)).count();
        assert_eq!((known(&others), known(&flood)), (10, Limits::default().half_sessions / 4));
    }
}
