//! Packets of hosts: sealed and opened at the ends of a session, forwarded between.

use core::net::Ipv6Addr;
use core::ops::Range;
use std::collections::VecDeque;
use std::sync::Arc;

use ringway_sansio::{Malformed, Random, Time};
use smallvec::SmallVec;

use super::outbox::Outbox;
use crate::config::{HOP_LIMIT, Limits};
use crate::crypto::Crypto;
use crate::forward::{Step, step};
use crate::icmp::{self, IcmpError, Ipv6Header};
use crate::id::{NodeId, Prefix};
use crate::link::Links;
use crate::local::LocalRouter;
use crate::output::Output;
use crate::routes::Detours;
use crate::session::{
    Contents, Delivery, Piece, ProbeId, ProbeOutcome, ProbeRefused, Probes, SessionAction,
    Sessions, Track, Which,
};
use crate::wire::control::{Code, ErrorReport};
use crate::wire::{DataView, Item, Slot};

/// Maximum number of packets for hosts here that wait for the caller.
const MAX_LOCAL: usize = 64;

/// Counts of packets of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounters {
    /// From hosts here, sent.
    pub sent: u64,
    /// To hosts here, delivered.
    pub delivered: u64,
    /// Between other routers, forwarded.
    pub forwarded: u64,
    /// Not sent, delivered or forwarded.
    pub dropped: u64,
    /// Malformed, or with an address that is not its sender's.
    pub bad: u64,
    /// From no neighbour.
    pub refused: u64,
    /// Of those dropped: nobody owns the destination.
    pub no_route: u64,
    /// Of those dropped: longer than the path allows.
    pub too_big: u64,
    /// Of those dropped: neither forwarded nor opened, which was reported to the sender.
    pub undeliverable: u64,
    /// Octets of those sent.
    pub sent_octets: u64,
    /// Octets of those delivered.
    pub delivered_octets: u64,
    /// Octets of those forwarded, with the headers of the mesh.
    pub forwarded_octets: u64,
}

impl PacketCounters {
    /// Counts a packet that `owner` has sent, and returns whether it is for a host here: its source must be of the owner's
    /// prefix, and its destination of this router's.
    fn accept(&mut self, local: &LocalRouter, owner: NodeId, packet: &[u8]) -> bool {
        let is_right = Ipv6Header::parse(packet).is_some_and(|header| {
            Prefix::of(&header.source) == Some(owner.prefix())
                && Prefix::of(&header.destination) == Some(local.id().prefix())
        });
        if is_right {
            self.delivered += 1;
            self.delivered_octets += packet.len() as u64;
        } else {
            self.bad += 1;
        }
        is_right
    }
}

/// What the carrier borrows for one call.
pub(super) struct Road<'a, C: Crypto> {
    pub(super) now: Time,
    pub(super) local: &'a LocalRouter,
    pub(super) links: &'a mut Links<C>,
    pub(super) detours: &'a Detours,
    pub(super) outbox: &'a mut Outbox,
    pub(super) output: &'a mut Output,
}

/// The sessions of a router, and the packets that go by them.
pub(super) struct Carrier<C: Crypto> {
    pub(super) sessions: Sessions<C>,
    probes: Probes,
    outcomes: VecDeque<(ProbeId, ProbeOutcome)>,
    actions: Vec<SessionAction>,
    /// ICMPv6 errors, and packets that came in pieces, for hosts here.
    local: VecDeque<Vec<u8>>,
    pub(super) counters: PacketCounters,
}

impl<C: Crypto> Carrier<C> {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        Carrier {
            sessions: Sessions::new(limits),
            probes: Probes::default(),
            outcomes: VecDeque::new(),
            actions: Vec::new(),
            local: VecDeque::new(),
            counters: PacketCounters::default(),
        }
    }

    /// Returns the sessions, and where to put what they ask for.
    pub(super) fn parts(&mut self) -> (&mut Sessions<C>, &mut Vec<SessionAction>) {
        (&mut self.sessions, &mut self.actions)
    }

    /// Removes and returns what the sessions have asked for.
    pub(super) fn take_actions(&mut self) -> Vec<SessionAction> {
        core::mem::take(&mut self.actions)
    }

    /// Removes and returns the next ICMPv6 error, or packet that came in pieces, for a host here.
    pub(super) fn poll_local(&mut self) -> Option<Vec<u8>> {
        self.local.pop_front()
    }

    /// Returns the octets that are allocated, without the packets that wait.
    pub(super) fn heap_bytes(&self) -> usize {
        let local: usize = self.local.iter().map(Vec::capacity).sum();
        let outcomes = self.outcomes.capacity() * size_of::<(ProbeId, ProbeOutcome)>();
        let probes = self.probes.heap_bytes() + outcomes;
        self.sessions.heap_bytes()
            + probes
            + self.actions.capacity() * size_of::<SessionAction>()
            + local
    }

    /// Forwards a data packet, or opens it here. Returns where in its buffer a packet for a host is.
    pub(super) fn receive(
        &mut self,
        road: &mut Road<'_, C>,
        bytes: &mut [u8],
    ) -> Result<Option<Range<usize>>, Malformed> {
        let mut data = DataView::parse(bytes)?;
        let Some(entered) = road.links.accept_data(road.now, &data) else {
            self.counters.refused += 1;
            return Ok(None);
        };
        let (mut cursor, mut hop_limit) = data.cursor()?;
        // The routes of sessions never turn: a packet that would return is of somebody who has it go to and fro.
        let taken = step(&mut cursor, &mut hop_limit, entered, |slot| {
            slot != entered && road.is_open(slot)
        });
        let at = cursor.at();
        data.set_position(at, hop_limit);
        match taken {
            Step::Out(out) => self.forward(road, entered, out, &data)?,
            Step::End => return self.deliver(road, entered, &mut data),
            Step::Widen | Step::Error(Code::LinkDown)
                if self.rewrite(road, entered, &mut data).is_some() => {}
            Step::Widen => self.report(road, entered, &data, Code::BadRoute, 0)?,
            Step::Error(code) => self.report(road, entered, &data, code, 0)?,
        }
        Ok(None)
    }

    /// Sends a packet of a host here, or answers it with an error.
    pub(super) fn send(&mut self, road: &mut Road<'_, C>, packet: &[u8], random: &mut dyn Random) {
        let own = road.local.id().prefix();
        // Nobody uses an address behind another router (RFC 2827).
        let header = Ipv6Header::parse(packet);
        let Some(header) = header.filter(|header| Prefix::of(&header.source) == Some(own)) else {
            self.counters.bad += 1;
            return;
        };
        let prefix = Prefix::of(&header.destination).filter(|&prefix| prefix != own);
        let (now, local) = (road.now, road.local);
        let is_second = header.source == own.second();
        let track = prefix.map(|prefix| self.track(road, prefix, header.destination, is_second));
        let delivery = track.map_or(Delivery::NoRoute, |track| {
            self.sessions.offer(now, local, track, packet, random, &mut self.actions)
        });
        match (delivery, track) {
            (Delivery::Send, Some(track)) => self.send_packet(road, track, packet),
            (Delivery::NoRoute, _) => self.complain(local, IcmpError::NoRoute, packet),
            (Delivery::TooBig(mtu), _) => {
                self.complain(local, IcmpError::TooBig(u32::from(mtu)), packet);
            }
            (Delivery::Dropped, _) => self.counters.dropped += 1,
            (Delivery::Queued | Delivery::Send, _) => {}
        }
    }

    /// Returns the way to an address of another router's prefix: that apart, if it works, for what is between second
    /// addresses.
    fn track(
        &mut self,
        road: &Road<'_, C>,
        prefix: Prefix,
        destination: Ipv6Addr,
        is_second: bool,
    ) -> Track {
        if is_second && destination == prefix.second() {
            self.sessions.apart_or_ordinary(road.now, road.local.id(), prefix)
        } else {
            Track::ordinary(prefix)
        }
    }

    /// Asks routers on a way for their ids: the first `count`.
    pub(super) fn trace(&mut self, road: &mut Road<'_, C>, track: Track, count: u8) {
        let Some(slot) = self.sessions.first_hop(track) else { return };
        for hop_limit in 0..count {
            let (sessions, contents) = (&mut self.sessions, Contents::KeepAlive(0));
            let mut departure = None;
            road.links.send_data(road.now, slot, road.output, |out| {
                departure = sessions.seal(track, &contents, hop_limit, out);
            });
            departure.into_iter().for_each(|departure| self.sessions.traced_by(track, departure));
        }
    }

    /// Sends the packets that have waited for a session.
    pub(super) fn send_queue(
        &mut self,
        road: &mut Road<'_, C>,
        track: Track,
        random: &mut dyn Random,
    ) {
        for packet in self.sessions.take_queue(track) {
            self.send(road, &packet, random);
        }
    }

    /// Sends a packet of a host to the owner of a prefix, with whom there is a session, in pieces if its route does not carry
    /// it at once.
    fn send_packet(&mut self, road: &mut Road<'_, C>, track: Track, packet: &[u8]) {
        self.counters.sent += 1;
        self.counters.sent_octets += packet.len() as u64;
        let pieces: SmallVec<[Piece<'_>; 4]> = self.sessions.pieces(track, packet).collect();
        if pieces.is_empty() {
            self.seal(road, track, &Contents::Packet(packet));
        }
        for piece in pieces {
            self.seal(road, track, &Contents::Piece(piece));
        }
    }

    /// Sends the packets again of which it is not known whether they have arrived.
    pub(super) fn send_again(&mut self, road: &mut Road<'_, C>, track: Track) {
        let Some(slot) = self.sessions.first_hop(track) else { return };
        let sessions = &mut self.sessions;
        let mut packet = Vec::new();
        let mut send = |packet: &mut Vec<u8>| {
            road.links.send_data(road.now, slot, road.output, |out| out.append(packet));
        };
        while sessions.seal_previous(track, HOP_LIMIT, &mut packet) {
            send(&mut packet);
        }
        for at in 0.. {
            if !sessions.seal_again(track, at, HOP_LIMIT, &mut packet) {
                break;
            }
            send(&mut packet);
        }
    }

    /// Sends contents to the owner of a prefix, with whom there is a session.
    fn seal(&mut self, road: &mut Road<'_, C>, track: Track, contents: &Contents<'_>) {
        self.seal_by(road, (track, Which::Current), contents);
    }

    /// Sends contents to the owner of a prefix by one of the sessions with it.
    pub(super) fn seal_by(
        &mut self,
        road: &mut Road<'_, C>,
        (track, which): (Track, Which),
        contents: &Contents<'_>,
    ) {
        let Some(slot) = self.sessions.first_hop_of(track, which) else { return };
        let sessions = &mut self.sessions;
        road.links.send_data(road.now, slot, road.output, |out| {
            sessions.seal_by((track, which), contents, HOP_LIMIT, out);
        });
    }

    /// Sends a probe to an address of another router's prefix, now or when there is a session.
    pub(super) fn probe(
        &mut self,
        road: &mut Road<'_, C>,
        (prefix, destination): (Prefix, Ipv6Addr),
        hop_limit: u8,
        random: &mut dyn Random,
    ) -> Result<ProbeId, ProbeRefused> {
        let track = self.track(road, prefix, destination, true);
        let (now, local) = (road.now, road.local);
        let id = self.probes.begin(now, track, hop_limit, random)?;
        match self.sessions.ready(now, local, track, random, &mut self.actions) {
            Delivery::Send => self.send_probes(road, track),
            Delivery::Queued => {}
            Delivery::NoRoute | Delivery::TooBig(_) | Delivery::Dropped => self.absent(track),
        }
        Ok(id)
    }

    /// Sends the probes that have waited for a session.
    pub(super) fn send_probes(&mut self, road: &mut Road<'_, C>, track: Track) {
        let Some(slot) = self.sessions.first_hop(track) else { return };
        while let Some(ready) = self.probes.waiting(track) {
            let (sessions, contents) = (&mut self.sessions, Contents::KeepAlive(ready.id.0));
            let mut departure = None;
            road.links.send_data(road.now, slot, road.output, |out| {
                departure = sessions.seal(track, &contents, ready.hop_limit, out);
            });
            let Some(departure) = departure else { return };
            self.probes.sent(road.now, ready.id, departure);
        }
    }

    /// Nobody owns a prefix: the probes that have waited for a session have failed.
    pub(super) fn absent(&mut self, track: Track) {
        while let Some(id) = self.probes.absent(track) {
            self.outcomes.push_back((id, ProbeOutcome::NoRoute));
        }
    }

    /// Handles a report about a packet that this router has sent. Returns whether it was about a probe that was to end on
    /// the way: then its route is none the worse.
    pub(super) fn reported(&mut self, now: Time, entered: Slot, report: &ErrorReport) -> bool {
        if self.sessions.trace_reported(now, entered, report) {
            return true;
        }
        let outcome = self.probes.reported(now, entered, report);
        self.outcomes.extend(outcome);
        if matches!(outcome, Some((_, ProbeOutcome::Expired { .. }))) {
            return true;
        }
        let mtu = (report.code == Code::TooBig).then_some(report.value);
        self.sessions.failed(report.quoted, entered, mtu);
        false
    }

    /// Removes and returns what became of a probe.
    pub(super) fn poll_outcome(&mut self) -> Option<(ProbeId, ProbeOutcome)> {
        self.outcomes.pop_front()
    }

    /// Sends an error about a packet to a host here.
    pub(super) fn complain(&mut self, local: &LocalRouter, error: IcmpError, packet: &[u8]) {
        self.counters.dropped += 1;
        match error {
            IcmpError::NoRoute => self.counters.no_route += 1,
            IcmpError::TooBig(_) => self.counters.too_big += 1,
        }
        if self.local.len() < MAX_LOCAL {
            self.local.extend(icmp::error(error, local.id().prefix().router(), packet));
        }
    }

    fn forward(
        &mut self,
        road: &mut Road<'_, C>,
        entered: Slot,
        out: Slot,
        data: &DataView<'_>,
    ) -> Result<(), Malformed> {
        let mtu = road.links.neighbour(out).map_or(u16::MAX, |neighbour| neighbour.mtu);
        let bytes = data.bytes();
        if bytes.len() > usize::from(mtu) {
            return self.report(road, entered, data, Code::TooBig, mtu);
        }
        self.counters.forwarded += 1;
        self.counters.forwarded_octets += bytes.len() as u64;
        road.links.send_data(road.now, out, road.output, |out| out.extend_from_slice(bytes));
        Ok(())
    }

    /// Forwards a data packet of which the labels must grow, also round the link that it should leave by. Returns `None` if
    /// there is no way.
    fn rewrite(
        &mut self,
        road: &mut Road<'_, C>,
        entered: Slot,
        data: &mut DataView<'_>,
    ) -> Option<()> {
        let reverse = data.reverse();
        let (cursor, mut hop_limit) = data.cursor().ok()?;
        let (_, slot) = cursor.peek().ok()?;
        let (mut labels, mut at) = (data.labels().ok()?, data.position());
        if slot == entered {
            return None;
        }
        let out = match road.detours.get(slot) {
            Some(detour) => detour.step(&mut labels, &mut at, reverse, &mut hop_limit, entered)?,
            None => {
                at = labels.rewrite(at, reverse, entered, None).ok()?.1;
                slot
            }
        };
        let link = road.links.neighbour(out).filter(|link| link.is_usable())?;
        let packet = data.relabelled(&labels, at, hop_limit)?;
        if packet.len() > usize::from(link.mtu) {
            return None;
        }
        self.counters.forwarded += 1;
        self.counters.forwarded_octets += packet.len() as u64;
        road.links.send_data(road.now, out, road.output, |out| out.extend_from_slice(&packet));
        Some(())
    }

    /// Opens a data packet at its end. Returns where in its buffer a packet for a host is.
    fn deliver(
        &mut self,
        road: &mut Road<'_, C>,
        entered: Slot,
        data: &mut DataView<'_>,
    ) -> Result<Option<Range<usize>>, Malformed> {
        let (index, nonce) = (data.session(), data.nonce());
        let (header, sealed, start) = data.sealed();
        let actions = &mut self.actions;
        match self.sessions.open(road.now, (index, nonce), &header, sealed, actions) {
            Some((owner, Contents::Packet(packet))) => {
                let range = start + 1..start + 1 + packet.len();
                return Ok(self.counters.accept(road.local, owner, packet).then_some(range));
            }
            Some((owner, Contents::Piece(piece))) => {
                let joined = self.sessions.join(road.now, (index, nonce), entered, &piece);
                let is_for_us = |packet: &Vec<u8>| self.counters.accept(road.local, owner, packet);
                if let Some(packet) = joined.filter(is_for_us)
                    && self.local.len() < MAX_LOCAL
                {
                    self.local.push_back(packet);
                }
            }
            Some((owner, Contents::KeepAlive(number))) => {
                let Some(track) = self.sessions.track_of(index) else { return Ok(None) };
                debug_assert_eq!(track.prefix(), owner.prefix());
                let which = self.sessions.which(track, index);
                self.actions.push(SessionAction::Alive(track, which, number));
            }
            Some((owner, Contents::Alive(number, _))) => {
                self.outcomes.extend(self.probes.answered(road.now, owner, number));
            }
            None if self.sessions.knows(index) => {}
            None => self.report(road, entered, data, Code::NotHere, 0)?,
        }
        Ok(None)
    }

    /// Reports to the sender of a data packet what was wrong with it.
    fn report(
        &mut self,
        road: &mut Road<'_, C>,
        entered: Slot,
        data: &DataView<'_>,
        code: Code,
        value: u16,
    ) -> Result<(), Malformed> {
        self.counters.dropped += 1;
        self.counters.undeliverable += 1;
        let (reverse, at, quoted) = (!data.reverse(), data.position(), data.quote());
        let (by, labels) = (road.local.id(), data.labels()?);
        let report = ErrorReport { reverse, at, code, value, quoted, by, labels };
        road.outbox.push(entered, &Item::Error(report));
        Ok(())
    }
}
