//! Offers and answers (RFC 3264): which streams are relayed, at which ports, and between whom.

use super::{Queued, Refusal, Relay};
use crate::body::Located;
use crate::command::{Family, Port};
use crate::config::MAX_STREAMS;
use crate::description::Description;
use crate::rewrite::{Plan, rewrite};
use crate::session::{MAX_DESCRIBED, Offer, Parties, Relayed, State, Who, party};
use ringway_sansio::Time;
use smallvec::SmallVec;

/// The changes that an offer makes to the streams of a session.
#[derive(Default)]
struct Changes {
    /// Positions at which a stream is opened.
    open: SmallVec<[usize; 4]>,
    /// Positions at which one is closed.
    close: SmallVec<[usize; 4]>,
}

impl Relay {
    /// Processes an offer of `who`. Returns the body for the other side, unless nothing of the dialog is relayed.
    pub(super) fn offer(
        &mut self,
        now: Time,
        id: u32,
        who: Who,
        located: &Located,
        description: &Description<'_>,
        body: &[u8],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let changes = self.changes(id, who, description);
        self.reserve(id, &changes)?;
        for position in changes.close {
            if let Some(stream) = self.sessions[id as usize].stream(position) {
                self.sessions[id as usize].set_stream(position, None);
                self.close(now, stream);
            }
        }
        for position in changes.open {
            let stream = self.open(id);
            self.sessions[id as usize].set_stream(position, stream);
        }
        let parties = self.parties(id, who, description);
        self.sessions[id as usize].offer = Some(Offer { from: who, parties });
        Ok(self.rewrite_for(id, who.other(), located, description, body))
    }

    /// Returns what an offer changes. A relayed stream stays at its position as long as it is offered, and while it is
    /// refused: what was written before is written again, as RFC 3264 section 8 requires for an unchanged version.
    fn changes(&mut self, id: u32, who: Who, description: &Description<'_>) -> Changes {
        let session = &self.sessions[id as usize];
        let (from, to) = (&session.legs[who as usize], &session.legs[who.other() as usize]);
        let families = [0, 1].map(|side| Family::of(session.legs[side].remote));
        let (mut changes, mut left_alone) = (Changes::default(), 0);
        for (position, stream) in description.streams().iter().enumerate().take(MAX_DESCRIBED) {
            let existing = session.stream(position);
            let is_relayable = stream.is_relayable();
            if stream.port == 0 {
                continue;
            }
            let fits = existing.is_some_and(|index| {
                self.streams[index as usize].ports.map(|port| port.family) == families
            });
            if existing.is_some() && !(fits && is_relayable) {
                changes.close.push(position);
            }
            if is_relayable && !fits && (existing.is_some() || self.needs(stream, from, to)) {
                changes.open.push(position);
            }
            left_alone += u64::from(!is_relayable && self.config.are_apart(from, to));
        }
        self.counters.left_alone += left_alone;
        changes
    }

    /// Takes what the streams to be opened cost from the share of their source. Ports are there if this succeeds.
    fn reserve(&mut self, id: u32, changes: &Changes) -> Result<(), Refusal> {
        let session = &mut self.sessions[id as usize];
        let opened = changes.open.len();
        let after = (session.relayed() + opened).saturating_sub(changes.close.len());
        if after > MAX_STREAMS {
            return Err(Refusal::TooMany);
        }
        let needed = |family: Family| {
            opened * session.legs.iter().filter(|leg| Family::of(leg.remote) == family).count()
        };
        let is_ready = |family: Family| self.pools[family as usize].ready() >= needed(family);
        if !is_ready(Family::V4) || !is_ready(Family::V6) {
            return Err(Refusal::NoPorts);
        }
        let more = after.saturating_sub(session.charged);
        let unanswered = session.state == State::Early;
        self.shares.take(&self.config.limits, &session.source, more, unanswered)?;
        session.charged += more;
        Ok(())
    }

    /// Opens a stream of a session.
    fn open(&mut self, id: u32) -> Option<u32> {
        let families = [0, 1].map(|side| Family::of(self.sessions[id as usize].legs[side].remote));
        let mut take = |family: Family| {
            let number = self.pools[family as usize].take()?;
            Some(Port { family, number })
        };
        // There are enough: `reserve` has counted them.
        let ports = [take(families[0])?, take(families[1])?];
        self.serial = self.serial.wrapping_add(1);
        self.counters.streams += 1;
        let parties = [None, None];
        let relayed = Relayed { serial: self.serial, session: id, ports, parties, queued: false };
        Some(self.streams.insert(relayed) as u32)
    }

    /// Closes a stream. Its ports rest.
    pub(super) fn close(&mut self, now: Time, index: u32) {
        let Some(stream) = self.streams.try_remove(index as usize) else { return };
        for port in stream.ports {
            self.pools[port.family as usize].release(now, port.number);
        }
        self.commands.push_back(Queued::Clear(stream.id(index as usize), stream.ports));
    }

    /// Returns the parties that a description of `who` has at the positions of relayed streams.
    fn parties(&mut self, id: u32, who: Who, description: &Description<'_>) -> Parties {
        let session = &self.sessions[id as usize];
        let leg = &session.legs[who as usize];
        let of_position = |position: usize| {
            let index = session.stream(position)? as usize;
            let previous = self.streams[index].parties[who as usize].as_ref();
            let stream = description.streams().get(position)?;
            party(&self.config, leg, stream, previous, &mut self.counters.refused_addresses)
        };
        (0..session.streams.len()).map(of_position).collect()
    }

    /// Processes an answer of `who`: from now on both sides are as their descriptions say. Without an offer that waits it is
    /// the same answer again, as in a 200 after a 183. Returns the body for the other side, unless nothing of the dialog is
    /// relayed.
    pub(super) fn answer(
        &mut self,
        id: u32,
        who: Who,
        located: &Located,
        description: &Description<'_>,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let mut answered = self.parties(id, who, description);
        let session = &mut self.sessions[id as usize];
        let mut offered = session.offer.take_if(|offer| offer.from != who);
        for (position, index) in session.streams.iter().enumerate() {
            let Some(index) = *index else { continue };
            let stream = &mut self.streams[index as usize];
            let mut agreed = stream.parties;
            agreed[who as usize] = answered.get_mut(position).and_then(Option::take);
            if let Some(offer) = &mut offered {
                let party = offer.parties.get_mut(position).and_then(Option::take);
                agreed[who.other() as usize] = party;
            }
            if agreed != stream.parties {
                stream.parties = agreed;
                if !std::mem::replace(&mut stream.queued, true) {
                    self.commands.push_back(Queued::Set(stream.id(index as usize)));
                }
            }
        }
        self.rewrite_for(id, who.other(), located, description, body)
    }

    /// Returns a body as it is sent to `reader`; `None` if nothing of the dialog is relayed.
    pub(super) fn rewrite_for(
        &mut self,
        id: u32,
        reader: Who,
        located: &Located,
        description: &Description<'_>,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let session = &self.sessions[id as usize];
        if session.relayed() == 0 {
            return None;
        }
        let port = |index: &Option<u32>| {
            index.map(|index| self.streams[index as usize].ports[reader as usize].number)
        };
        let ports: SmallVec<[Option<u16>; 4]> = session.streams.iter().map(port).collect();
        let address = self.config.media_address(&session.legs[reader as usize]);
        self.counters.rewritten += 1;
        let text = rewrite(description, &Plan { address, ports: &ports });
        Some(located.replace(body, &text))
    }
}
