//! Received and sent packets, time, and packets out of the blue (RFC 9260 sections 8.4 and 8.5).

use super::key::Key;
use super::{Reply, Sctp, back};
use crate::PROTOCOL;
use crate::association::{State, is_unicast};
use crate::auth::{Agreed, REQUIRED};
use crate::wire::asconf::requests;
use crate::wire::cause::{Causes, code};
use crate::wire::chunk::{Chunk, Raw, kind};
use crate::wire::{COMMON_HEADER, Packet, WireError, Writer};
use ringway_sansio::{Addressing, Endpoint, Time};

/// Returns a packet of one chunk.
pub(super) fn single(ports: (u16, u16), tag: u32, chunk: &Chunk<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut packet = Writer::new(&mut out, usize::from(u16::MAX), ports.0, ports.1, tag);
    chunk.emit(packet.chunks());
    packet.finish();
    out
}

/// Returns a packet as [`single`] does, with the chunk authenticated (RFC 4895).
pub(super) fn authenticated(
    ports: (u16, u16),
    tag: u32,
    agreed: &Agreed,
    chunk: &Chunk<'_>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut packet = Writer::new(&mut out, usize::from(u16::MAX), ports.0, ports.1, tag);
    agreed.begin(packet.chunks());
    chunk.emit(packet.chunks());
    agreed.finish(&mut packet.chunks()[COMMON_HEADER..]);
    packet.finish();
    out
}

/// Returns an ABORT from the first port to the second.
pub(super) fn abort(ports: (u16, u16), tag: u32, reflected: bool, causes: &[u8]) -> Vec<u8> {
    single(ports, tag, &Chunk::Abort { reflected, causes })
}

/// Returns a SHUTDOWN COMPLETE from the first port to the second.
pub(super) fn shutdown_complete(ports: (u16, u16), tag: u32, reflected: bool) -> Vec<u8> {
    single(ports, tag, &Chunk::ShutdownComplete { reflected })
}

impl Endpoint for Sctp {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.counters.received += 1;
        let packet = match Packet::parse(payload) {
            Ok(packet) if addressing.protocol == PROTOCOL => packet,
            Err(WireError::Checksum { .. }) => match self.unsummed(&addressing, payload) {
                Some(packet) => packet,
                None => {
                    self.counters.checksum += 1;
                    return;
                }
            },
            _ => {
                self.counters.malformed += 1;
                return;
            }
        };
        let Some(Ok(first)) = packet.chunks().next() else {
            self.counters.malformed += 1;
            return;
        };
        let cookie = match first.kind {
            kind::COOKIE_ECHO => true,
            // RFC 4895 section 6.3.
            kind::AUTH => {
                let second = packet.chunks().nth(1).and_then(Result::ok);
                second.is_some_and(|second| second.kind == kind::COOKIE_ECHO)
            }
            _ => false,
        };
        if let Some(slot) = self.by_tag(&addressing, &packet)
            && !cookie
        {
            self.pass(now, slot, &addressing, &packet, first);
            return;
        }
        if packet.source == 0
            || packet.destination == 0
            || !is_unicast(addressing.source)
            || !is_unicast(addressing.destination)
        {
            // RFC 9260 sections 3.1 and 8.4, rule 1.
            self.counters.malformed += 1;
            return;
        }
        match first.kind {
            kind::INIT => self.handle_init(now, &addressing, &packet, first),
            // RFC 9260 section 8.5.1 A.
            _ if packet.tag == 0 => self.counters.malformed += 1,
            _ if cookie => self.handle_cookie_echo(now, &addressing, &packet),
            _ => self.pass_by_addresses(now, &addressing, &packet, first),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((at, slot)) = self.deadlines.first()
            && at <= now
        {
            self.with(now, slot, |association, cx| association.handle_timeout(cx));
            let next = self.association_mut(slot).and_then(|a| a.deadline());
            self.deadlines.set(slot, next);
            self.settle(slot);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| at)
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        if let Some(Reply { way, bytes }) = self.replies.pop_front() {
            payload.extend_from_slice(&bytes);
            return Some(way);
        }
        while let Some(&slot) = self.ready.front() {
            let entry = &mut self.slots[slot as usize];
            if let Some(association) = &mut entry.association {
                let mut cx = crate::association::Cx { now, random: &mut *self.random };
                let sent = association.transmit(&mut cx, payload);
                // A message may have been abandoned instead of sent.
                if association.has_events() && !core::mem::replace(&mut entry.notified, true) {
                    self.notices.push_back(slot);
                }
                if sent.is_some() {
                    return sent;
                }
                let deadline = association.deadline();
                self.deadlines.set(slot, deadline);
            }
            self.slots[slot as usize].ready = false;
            self.ready.pop_front();
        }
        None
    }
}

impl Sctp {
    /// Returns the association with the packet's tag, if the addresses belong to it.
    fn by_tag(&mut self, addressing: &Addressing, packet: &Packet<'_>) -> Option<u32> {
        let slot = match self.recent {
            Some((tag, slot)) if tag == packet.tag => slot,
            _ => *self.tags.get(&packet.tag)?,
        };
        let association = self.slots[slot as usize].association.as_ref()?;
        let ends = &association.ends;
        let ours = ends.local_port == packet.destination
            && ends.remote_port == packet.source
            && ends.locals.contains(&addressing.destination)
            && association.knows_address(addressing.source);
        if !ours {
            return None;
        }
        self.recent = Some((packet.tag, slot));
        Some(slot)
    }

    /// Returns a packet with a checksum of zero that an association accepts (RFC 9653 section 5.3).
    fn unsummed<'a>(&mut self, addressing: &Addressing, payload: &'a [u8]) -> Option<Packet<'a>> {
        if payload.get(8..COMMON_HEADER)? != [0; 4] || addressing.protocol != PROTOCOL {
            return None;
        }
        let packet = Packet::parse_unchecked(payload).ok()?;
        let first = packet.chunks().next()?.ok()?.kind;
        // Section 5.2: these always have a checksum.
        if [kind::INIT, kind::COOKIE_ECHO].contains(&first) {
            return None;
        }
        let slot = self.by_tag(addressing, &packet)?;
        let takes = self.association_mut(slot)?.settings().over_dtls;
        takes.then_some(packet)
    }

    pub(super) fn by_addresses(
        &self,
        local: std::net::IpAddr,
        remote: std::net::IpAddr,
        packet: &Packet<'_>,
    ) -> Option<u32> {
        let key = Key::new(local, packet.destination, remote, packet.source);
        self.table.get(&key).copied()
    }

    /// Handles a packet with the right tag.
    fn pass(
        &mut self,
        now: Time,
        slot: u32,
        addressing: &Addressing,
        packet: &Packet<'_>,
        first: Raw<'_>,
    ) {
        let Some(association) = self.association_mut(slot) else { return };
        let opening = matches!(association.state(), State::CookieWait | State::CookieEchoed);
        let Some(path) = association.path_to(addressing.source) else { return };
        if first.kind == kind::SHUTDOWN_ACK && opening {
            // RFC 9260 section 8.5.1 E.
            self.stray(now, addressing, packet);
            return;
        }
        if first.kind == kind::INIT_ACK {
            // RFC 9260 section 6.10: never bundled.
            if packet.chunks().count() == 1
                && let Ok(Chunk::InitAck(init)) = first.parse()
            {
                let before = association.remotes().count();
                self.with(now, slot, |a, cx| a.handle_init_ack(cx, path, addressing, &init));
                if self.association_mut(slot).is_some_and(|a| a.remotes().count() > before) {
                    self.list(slot);
                }
            }
        } else {
            let chunks = packet.chunks();
            // Addresses may change, and the tables contain them.
            let moves = association.changes_addresses()
                && chunks
                    .map_while(Result::ok)
                    .any(|raw| REQUIRED.contains(&raw.kind) || raw.kind == kind::ERROR);
            if moves {
                self.unlist(slot);
            }
            self.with(now, slot, |a, cx| a.handle_chunks(cx, path, addressing, false, chunks));
            if moves {
                self.list(slot);
            }
        }
        self.settle(slot);
    }

    /// Handles a packet whose tag is not that of an association between its addresses.
    fn pass_by_addresses(
        &mut self,
        now: Time,
        addressing: &Addressing,
        packet: &Packet<'_>,
        first: Raw<'_>,
    ) {
        let found = self.by_addresses(addressing.destination, addressing.source, packet);
        let Some(slot) = found else {
            if !self.pass_from_elsewhere(now, addressing, packet) {
                self.stray(now, addressing, packet);
            }
            return;
        };
        let Some(association) = self.association_mut(slot) else { return };
        let opening = matches!(association.state(), State::CookieWait | State::CookieEchoed);
        if association.accepts_reflected(packet.tag, first.kind, first.flags)
            && let Some(path) = association.path_to(addressing.source)
        {
            let chunks = packet.chunks();
            self.with(now, slot, |a, cx| a.handle_chunks(cx, path, addressing, true, chunks));
            self.settle(slot);
        } else if first.kind == kind::SHUTDOWN_ACK && opening {
            self.stray(now, addressing, packet);
        } else {
            // RFC 9260 section 8.5.
            self.counters.wrong_tag += 1;
        }
    }

    /// Handles a packet from an unknown address with an ASCONF that names another address of the peer
    /// (RFC 5061 section 5.2, D2). Returns `false` if it is not one.
    fn pass_from_elsewhere(
        &mut self,
        now: Time,
        addressing: &Addressing,
        packet: &Packet<'_>,
    ) -> bool {
        let mut chunks = packet.chunks().map_while(Result::ok);
        let (Some(first), Some(second)) = (chunks.next(), chunks.next()) else { return false };
        let Ok(Chunk::Asconf(_, value)) = second.parse() else { return false };
        let Some((lookup, _)) = requests(value) else { return false };
        if first.kind != kind::AUTH {
            return false;
        }
        let Some(slot) = self.by_addresses(addressing.destination, lookup, packet) else {
            return false;
        };
        let right = self.association_mut(slot).is_some_and(|a| a.local_tag == packet.tag);
        if !right {
            self.counters.wrong_tag += 1;
            return true;
        }
        self.unlist(slot);
        let chunks = packet.chunks();
        self.with(now, slot, |a, cx| a.handle_from_elsewhere(cx, addressing, chunks));
        self.list(slot);
        self.settle(slot);
        true
    }

    /// Handles a packet out of the blue (RFC 9260 section 8.4, rules 2 and 5 to 8).
    pub(super) fn stray(&mut self, now: Time, addressing: &Addressing, packet: &Packet<'_>) {
        self.counters.stray += 1;
        let mut acked = false;
        for raw in packet.chunks().map_while(Result::ok) {
            match raw.kind {
                kind::ABORT | kind::SHUTDOWN_COMPLETE | kind::COOKIE_ACK => return,
                kind::SHUTDOWN_ACK => acked = true,
                kind::ERROR => {
                    let causes = &raw.whole[crate::wire::TLV_HEADER..];
                    let stale = |c: Result<crate::wire::Cause<'_>, _>| {
                        c.is_ok_and(|c| c.code() == code::STALE_COOKIE)
                    };
                    if Causes::new(causes).any(stale) {
                        return;
                    }
                }
                _ => {}
            }
        }
        if !self.strays.take(now) {
            self.counters.strays_limited += 1;
            return;
        }
        let ports = (packet.destination, packet.source);
        let bytes = if acked {
            shutdown_complete(ports, packet.tag, true)
        } else {
            self.counters.aborts += 1;
            abort(ports, packet.tag, true, &[])
        };
        self.reply(Reply { way: back(addressing), bytes });
    }
}
