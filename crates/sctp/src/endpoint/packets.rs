//! Received packets, and packets out of the blue (RFC 9260 sections 8.4 and 8.5).

use super::{Associations, Endpoint, Reply, back};
use crate::PROTOCOL;
use crate::association::{Association, is_unicast};
use crate::auth::Agreed;
use crate::wire::asconf::requests;
use crate::wire::cause::{Causes, code};
use crate::wire::chunk::{Chunk, Raw, kind};
use crate::wire::{COMMON_HEADER, Packet, WireError, Writer};
use ringway_sansio::{Addressing, Time};
use ringway_transport::Key;

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

impl Endpoint {
    /// Handles a packet. `payload` begins with the common header. Replies without an association are returned by
    /// [`Endpoint::poll_transmit`].
    pub fn handle_packet(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        addressing: &Addressing,
        payload: &[u8],
    ) {
        self.counters.received += 1;
        let packet = match Packet::parse(payload) {
            Ok(packet) if addressing.protocol == PROTOCOL => packet,
            Err(WireError::Checksum { .. }) => {
                match self.unsummed(associations, addressing, payload) {
                    Some(packet) => packet,
                    None => {
                        self.counters.checksum += 1;
                        return;
                    }
                }
            }
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
        if let Some(slot) = self.by_tag(associations, addressing, &packet)
            && !cookie
        {
            let (a, p) = (addressing, &packet);
            let handled =
                self.call(now, associations, slot, |x, cx| x.handle_from(cx, a, p, first));
            if handled == Some(false) {
                self.stray(now, addressing, &packet);
            }
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
            kind::INIT => self.handle_init(now, associations, addressing, &packet, first),
            // RFC 9260 section 8.5.1 A.
            _ if packet.tag == 0 => self.counters.malformed += 1,
            _ if cookie => self.handle_cookie_echo(now, associations, addressing, &packet),
            _ => self.pass_by_addresses(now, associations, addressing, &packet, first),
        }
    }

    /// Returns the association with the packet's tag, if the addresses belong to it.
    fn by_tag(
        &mut self,
        associations: &impl Associations,
        addressing: &Addressing,
        packet: &Packet<'_>,
    ) -> Option<u32> {
        let slot = match self.recent {
            Some((tag, slot)) if tag == packet.tag => slot,
            _ => *self.tags.get(&packet.tag)?,
        };
        let ours = associations.read(self.id(slot), |x| x.is_between(addressing, packet));
        if ours != Some(true) {
            return None;
        }
        self.recent = Some((packet.tag, slot));
        Some(slot)
    }

    /// Returns a packet with a checksum of zero that an association accepts (RFC 9653 section 5.3).
    fn unsummed<'a>(
        &mut self,
        associations: &impl Associations,
        addressing: &Addressing,
        payload: &'a [u8],
    ) -> Option<Packet<'a>> {
        let packet = Packet::parse_zero_checksum(payload)?;
        if addressing.protocol != PROTOCOL {
            return None;
        }
        let slot = self.by_tag(associations, addressing, &packet)?;
        let takes = associations.read(self.id(slot), |x| x.settings().over_dtls)?;
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

    /// Handles a packet whose tag is not that of an association between its addresses.
    fn pass_by_addresses(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        addressing: &Addressing,
        packet: &Packet<'_>,
        first: Raw<'_>,
    ) {
        let found = self.by_addresses(addressing.destination, addressing.source, packet);
        let Some(slot) = found else {
            if !self.pass_from_elsewhere(now, associations, addressing, packet) {
                self.stray(now, addressing, packet);
            }
            return;
        };
        let reflected = associations.read(self.id(slot), |x| {
            x.accepts_reflected(packet.tag, first.kind, first.flags)
                && x.knows_address(addressing.source)
        });
        let opening = associations.read(self.id(slot), Association::is_opening);
        if reflected == Some(true) {
            self.call(now, associations, slot, |x, cx| x.handle_reflected(cx, addressing, packet));
        } else if first.kind == kind::SHUTDOWN_ACK && opening == Some(true) {
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
        associations: &mut impl Associations,
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
        let right = associations.read(self.id(slot), |x| x.tags.local == packet.tag);
        if right != Some(true) {
            self.counters.wrong_tag += 1;
            return true;
        }
        let chunks = packet.chunks();
        self.call(now, associations, slot, |x, cx| x.handle_from_elsewhere(cx, addressing, chunks));
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
        if !self.strays.take(now, addressing.source) {
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
