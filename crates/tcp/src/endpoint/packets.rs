//! Received and sent packets, and time.

use super::time_wait::Waiting;
use super::{Recent, Reply, TableEntry, Tcp, is_unicast};
use crate::PROTOCOL;
use crate::connection::Connection;
use crate::segment::{Flags, Header, Segment, fill_checksum};
use crate::seq::Seq;
use ringway_sansio::{Addressing, Ecn, Endpoint, Time};
use ringway_transport::{Key, number};
use std::net::{IpAddr, SocketAddr};

/// Distance of a new connection's initial number above the numbers of the TIME-WAIT connection that it
/// replaces.
const BEYOND_TIME_WAIT: u32 = 0x1_0001;

impl Endpoint for Tcp {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.counters.received += 1;
        let Addressing { source, destination, protocol, .. } = addressing;
        if protocol != PROTOCOL {
            self.counters.malformed += 1;
            return;
        }
        if !addressing.offload {
            let Ok(segment) = Segment::parse(source, destination, payload) else {
                self.counters.malformed += 1;
                return;
            };
            return self.handle_segment(now, &addressing, &segment);
        }
        self.offload = true;
        if let Some((head, data)) = Header::split_usual(payload) {
            let mut segment = Segment { header: Header::default(), data };
            segment.header.read_usual(head);
            return self.handle_segment(now, &addressing, &segment);
        }
        match Segment::parse_intact(payload) {
            Ok(segment) => self.handle_segment(now, &addressing, &segment),
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((at, slot)) = self.deadlines.first()
            && at <= now
        {
            if let Some(connection) = self.connection_mut(slot) {
                connection.handle_timeout(now);
            }
            self.settle(now, slot);
            let next = self.connection_mut(slot).and_then(|c| c.deadline());
            self.deadlines.set(slot, next);
        }
        while let Some((index, waiting)) = self.time_wait.first()
            && waiting.until <= now
        {
            self.leave_time_wait(index);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let first = self.deadlines.first().map(|(at, _)| at);
        let over = self.time_wait.first().map(|(_, waiting)| waiting.until);
        match (first, over) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        if let Some(Reply { source, destination, header }) = self.replies.pop_front() {
            header.emit(source, destination, payload, (&[], &[]));
            return Some(Addressing::new(source, destination, PROTOCOL));
        }
        while let Some(&slot) = self.ready.front() {
            let entry = &mut self.slots[slot as usize];
            if let Some(connection) = &mut entry.connection {
                let start = payload.len();
                if let Some(ecn) = connection.transmit(now, payload) {
                    if !self.offload {
                        let (source, destination) = connection.addresses();
                        fill_checksum(source, destination, &mut payload[start..]);
                    }
                    if connection.addressing.offload != self.offload {
                        connection.addressing.offload = self.offload;
                    }
                    // Few segments differ, so the whole is mostly copied in one piece.
                    if ecn == Ecn::NotEct {
                        return Some(connection.addressing);
                    }
                    return Some(Addressing { ecn, ..connection.addressing });
                }
                let deadline = connection.deadline();
                let spent = connection.is_spent();
                self.deadlines.set(slot, deadline);
                if spent {
                    self.release(slot);
                }
            }
            self.slots[slot as usize].ready = false;
            self.ready.pop_front();
        }
        None
    }
}

impl Tcp {
    /// Handles a valid segment.
    #[inline(never)]
    fn handle_segment(&mut self, now: Time, addressing: &Addressing, segment: &Segment<'_>) {
        let Addressing { source, destination, .. } = *addressing;
        let header = &segment.header;
        let ports = (header.destination, header.source);
        if let Some(recent) = &self.recent
            && (recent.ports, recent.local, recent.remote) == (ports, destination, source)
        {
            let slot = recent.slot;
            self.pass_to_connection(now, slot, addressing, segment);
            return;
        }
        let key = Key::new(destination, header.destination, source, header.source);
        if !is_unicast(source) || !is_unicast(destination) {
            self.counters.malformed += 1;
            return;
        }
        match self.table.get(&key) {
            Some(&TableEntry::Connection(slot)) => {
                self.recent = Some(Recent { local: destination, remote: source, ports, slot });
                self.pass_to_connection(now, slot, addressing, segment);
            }
            Some(&TableEntry::TimeWait(index)) => {
                self.pass_to_time_wait(now, index, key, *addressing, segment);
            }
            None => self.pass_to_listener(now, key, *addressing, segment, None),
        }
    }

    fn pass_to_connection(
        &mut self,
        now: Time,
        slot: u32,
        addressing: &Addressing,
        segment: &Segment<'_>,
    ) {
        let Some(connection) = self.connection_mut(slot) else { return };
        if connection.resets(segment) {
            self.reset(*addressing, segment);
            return;
        }
        connection.handle_segment(now, addressing.ecn, segment);
        self.settle(now, slot);
    }

    /// Handles a segment for a connection in TIME-WAIT (RFC 9293 section 3.10.7.4).
    fn pass_to_time_wait(
        &mut self,
        now: Time,
        index: u32,
        key: Key,
        addressing: Addressing,
        segment: &Segment<'_>,
    ) {
        let waiting = *self.time_wait.get(index);
        let header = &segment.header;
        if header.flags.has(Flags::RST) {
            if header.seq == waiting.rcv_nxt {
                self.leave_time_wait(index);
            }
            return;
        }
        if header.flags.has(Flags::SYN)
            && !header.flags.has(Flags::ACK)
            && header.seq.after(waiting.rcv_nxt)
        {
            // RFC 9293 section 3.10.7.4 (MAY-2): a new connection with numbers beyond the old.
            self.leave_time_wait(index);
            self.pass_to_listener(now, key, addressing, segment, Some(waiting));
            return;
        }
        if segment.is_empty() {
            return;
        }
        if header.flags.has(Flags::FIN) {
            let until = now + self.limits.time_wait_for;
            self.time_wait.restart(index, until);
        }
        self.reply(Reply {
            source: waiting.local.ip(),
            destination: waiting.remote.ip(),
            header: waiting.acknowledgment(now),
        });
    }

    /// Handles a segment without a connection (RFC 9293 sections 3.10.7.1 and 3.10.7.2).
    fn pass_to_listener(
        &mut self,
        now: Time,
        key: Key,
        addressing: Addressing,
        segment: &Segment<'_>,
        old: Option<Waiting>,
    ) {
        let header = &segment.header;
        let port = header.destination;
        let any: IpAddr = match addressing.destination {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let found = self
            .listening
            .get(&(number(addressing.destination), port))
            .or_else(|| self.listening.get(&(number(any), port)));
        let Some(&listener_slot) = found else {
            self.counters.stray += 1;
            self.reset(addressing, segment);
            return;
        };
        if header.flags.has(Flags::RST) {
            return;
        }
        if header.flags.has(Flags::ACK) {
            self.counters.stray += 1;
            self.reset(addressing, segment);
            return;
        }
        if !header.flags.has(Flags::SYN) {
            return;
        }
        let listener = &mut self.listeners[listener_slot as usize];
        if listener.queue.len() >= listener.backlog {
            self.counters.backlog_full += 1;
            return;
        }
        if listener.half_open >= self.limits.half_open {
            self.counters.half_open_full += 1;
            return;
        }
        if self.slots.len() - self.free.len() >= self.limits.connections {
            self.counters.connections_full += 1;
            return;
        }
        listener.half_open += 1;
        let settings = listener.settings;
        let id = super::ListenerId { slot: listener_slot, generation: listener.generation };
        let local = SocketAddr::new(addressing.destination, port);
        let remote = SocketAddr::new(addressing.source, header.source);
        let (mut iss, stamp) = self.initial_numbers(now, key, local.ip(), remote.ip());
        if let Some(old) = old
            && !iss.after(old.snd_nxt)
        {
            // RFC 9293 section 3.10.7.4 (MAY-2) requires larger numbers than were used.
            iss = old.snd_nxt + BEYOND_TIME_WAIT;
        }
        let connection = Connection::accept(local, remote, &settings, (iss, stamp), segment, now);
        let slot = self.insert(key, connection);
        let entry = &mut self.slots[slot as usize];
        entry.listener = Some(id);
        entry.half_open = true;
        self.settle(now, slot);
    }

    /// Answers a segment without a connection by a reset (RFC 9293 section 3.10.7.1).
    fn reset(&mut self, addressing: Addressing, segment: &Segment<'_>) {
        let header = &segment.header;
        if header.flags.has(Flags::RST) {
            return;
        }
        let (seq, ack, flags) = if header.flags.has(Flags::ACK) {
            (header.ack, Seq::default(), Flags::RST)
        } else {
            (Seq::default(), header.seq + segment.len(), Flags::RST | Flags::ACK)
        };
        self.counters.resets += 1;
        self.reply(Reply {
            source: addressing.destination,
            destination: addressing.source,
            header: Header {
                source: header.destination,
                destination: header.source,
                seq,
                ack,
                flags,
                ..Header::default()
            },
        });
    }
}
