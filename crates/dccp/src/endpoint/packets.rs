//! Received and sent packets, time, and packets without a connection (RFC 4340 sections 8.3.1 and 8.5).

use super::key::Key;
use super::{Dccp, Reply, is_unicast};
use crate::PROTOCOL;
use crate::seq::Seq;
use crate::wire::{Carrier, Header, Kind, Packet, Reset, ResetCode, WireError};
use ringway_sansio::time::sooner;
use ringway_sansio::{Addressing, Endpoint, Time};

/// Returns what carries a received packet.
pub(super) fn carrier(addressing: &Addressing) -> Carrier {
    match addressing.udp_port {
        0 => Carrier::Ip(addressing.source, addressing.destination),
        _ => Carrier::Udp,
    }
}

/// Returns the addressing of an answer.
pub(super) fn back(addressing: &Addressing) -> Addressing {
    let Addressing { source, destination, udp_port, .. } = *addressing;
    Addressing { udp_port, ..Addressing::new(destination, source, PROTOCOL) }
}

impl Endpoint for Dccp {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.counters.received += 1;
        if addressing.protocol != PROTOCOL
            || !is_unicast(addressing.source)
            || !is_unicast(addressing.destination)
        {
            self.counters.malformed += 1;
            return;
        }
        // Step 1.
        let packet = match Packet::parse(carrier(&addressing), payload) {
            Ok(packet) => packet,
            Err(WireError::Checksum { .. }) => {
                self.counters.checksum += 1;
                return;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        // Step 2.
        self.time_wait.expire(now);
        let header = &packet.header;
        let key = Key::of(&addressing, header.source, header.destination);
        if let Some(&slot) = self.table.get(&key) {
            self.pass(now, slot, &addressing, &packet);
        } else if self.time_wait.contains(&key) {
            self.stray(now, &addressing, &packet, Reset::new(ResetCode::NoConnection));
        } else {
            self.pass_to_listener(now, key, &addressing, &packet);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.time_wait.expire(now);
        while let Some((at, slot)) = self.deadlines.first()
            && at <= now
        {
            let next = self.connection_mut(slot).and_then(|connection| {
                connection.handle_timeout(now);
                connection.deadline()
            });
            // What is still due is handled by the poll that follows.
            self.deadlines.set(slot, next.filter(|next| *next > now));
            self.settle(now, slot);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        sooner(self.deadlines.first().map(|(at, _)| at), self.time_wait.deadline())
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        if let Some(Reply { way, bytes }) = self.replies.pop_front() {
            payload.extend_from_slice(&bytes);
            return Some(way);
        }
        while let Some(&slot) = self.ready.front() {
            let entry = &mut self.slots[slot as usize];
            if let Some(connection) = &mut entry.connection {
                let sent = connection.transmit(now, payload);
                if connection.has_events() && !core::mem::replace(&mut entry.notified, true) {
                    self.notices.push_back(slot);
                }
                if sent.is_some() {
                    return sent;
                }
                let deadline = connection.deadline();
                self.deadlines.set(slot, deadline);
            }
            self.slots[slot as usize].ready = false;
            self.ready.pop_front();
        }
        None
    }
}

impl Dccp {
    /// Handles a packet of a connection.
    pub(super) fn pass(
        &mut self,
        now: Time,
        slot: u32,
        addressing: &Addressing,
        packet: &Packet<'_>,
    ) {
        let Some(connection) = self.connection_mut(slot) else { return };
        let answer = connection.handle_packet(now, addressing.ecn, packet);
        if let Some(reset) = answer {
            self.stray(now, addressing, packet, reset);
        }
        self.settle(now, slot);
    }

    /// Answers a packet without a connection by a Reset, unless it is one (RFC 4340 section 8.3.1).
    pub(super) fn stray(
        &mut self,
        now: Time,
        addressing: &Addressing,
        packet: &Packet<'_>,
        reset: Reset,
    ) {
        self.counters.stray += 1;
        if matches!(packet.header.kind, Kind::Reset(_)) {
            return;
        }
        if !self.strays.take(now, addressing.source) {
            self.counters.strays_limited += 1;
            return;
        }
        // Of short numbers the upper 24 bits are zero.
        let whole = |seq: Seq| {
            if packet.header.long { seq } else { Seq::new(seq.short().into()) }
        };
        let header = Header {
            source: packet.header.destination,
            destination: packet.header.source,
            ccval: 0,
            coverage: 0,
            kind: Kind::Reset(reset),
            long: true,
            seq: packet.ack().map_or(Seq::default(), |ack| whole(ack.next())),
            ack: packet.header.seq,
        };
        let way = back(addressing);
        let carrier = match carrier(addressing) {
            Carrier::Ip(source, destination) => Carrier::Ip(destination, source),
            Carrier::Udp => Carrier::Udp,
        };
        let mut bytes = Vec::new();
        header.emit(carrier, &[], &[], &mut bytes);
        self.counters.resets += 1;
        self.reply(Reply { way, bytes });
    }
}
