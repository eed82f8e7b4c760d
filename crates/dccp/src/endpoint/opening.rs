//! Requests and Init Cookies (RFC 4340 sections 8.1.3, 8.1.4 and 8.5, step 3).

use super::cookie::Cookie;
use super::key::Key;
use super::{Dccp, ListenerId, Reply};
use crate::connection::{Connection, Ends, State};
use crate::seq::Seq;
use crate::wire::{Carrier, DccpOption, Header, Kind, Packet, Reset, ResetCode};
use ringway_sansio::{Addressing, Time};
use ringway_transport::number;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

impl Dccp {
    /// Handles a packet without a connection.
    pub(super) fn pass_to_listener(
        &mut self,
        now: Time,
        key: Key,
        addressing: &Addressing,
        packet: &Packet<'_>,
    ) {
        let Some(listener) = self.listener(addressing.destination, packet.header.destination)
        else {
            self.stray(now, addressing, packet, Reset::new(ResetCode::NoConnection));
            return;
        };
        match packet.header.kind {
            Kind::Request(service) => {
                self.counters.requests += 1;
                self.handle_request(now, key, listener, addressing, packet, service);
            }
            Kind::Ack | Kind::DataAck => match cookie(packet) {
                Some(cookie) => {
                    self.handle_cookie(now, key, listener, addressing, packet, cookie);
                }
                None => self.stray(now, addressing, packet, Reset::new(ResetCode::NoConnection)),
            },
            _ => self.stray(now, addressing, packet, Reset::new(ResetCode::NoConnection)),
        }
    }

    fn listener(&self, address: IpAddr, port: u16) -> Option<u32> {
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let exact = self.listening.get(&(number(address), port));
        exact.or_else(|| self.listening.get(&(number(any), port))).copied()
    }

    fn handle_request(
        &mut self,
        now: Time,
        key: Key,
        listener: u32,
        addressing: &Addressing,
        packet: &Packet<'_>,
        service: u32,
    ) {
        let entry = &self.listeners[listener as usize];
        let refusal = if !entry.services.contains(&service) {
            // RFC 4340 section 8.1.3.
            self.counters.wrong_service += 1;
            Some(ResetCode::BadServiceCode)
        } else if !self.has_room(addressing.source) {
            self.counters.connections_full += 1;
            Some(ResetCode::TooBusy)
        } else {
            None
        };
        if let Some(code) = refusal {
            self.stray(now, addressing, packet, Reset::new(code));
            return;
        }
        if !entry.half_open.has_room(addressing.source) {
            self.answer_with_cookie(now, key, listener, addressing, packet, service);
            return;
        }
        let iss = Seq::new(self.random.next_u64());
        let connection = self.accept(now, listener, addressing, packet, iss);
        let slot = self.insert(connection, Some(self.listener_id(listener)));
        self.settle(now, slot);
        // What its options made impossible was never a connection.
        if self.connection_mut(slot).is_some_and(|c| c.state() == State::Closed) {
            self.release(slot);
        }
    }

    /// Returns whether one more connection of a peer can be accepted.
    fn has_room(&self, source: IpAddr) -> bool {
        self.len() < self.limits.connections && self.accepted.has_room(source)
    }

    fn listener_id(&self, slot: u32) -> ListenerId {
        ListenerId { slot, generation: self.listeners[slot as usize].generation }
    }

    /// Returns the connection that a Request begins.
    fn accept(
        &self,
        now: Time,
        listener: u32,
        addressing: &Addressing,
        packet: &Packet<'_>,
        iss: Seq,
    ) -> Connection {
        let header = &packet.header;
        let ends = Ends {
            local: SocketAddr::new(addressing.destination, header.destination),
            remote: SocketAddr::new(addressing.source, header.source),
            udp_port: addressing.udp_port,
        };
        let settings = Arc::clone(&self.listeners[listener as usize].settings);
        Connection::accept(now, ends, settings, iss, packet)
    }

    /// Answers a Request so that nothing is kept of it.
    fn answer_with_cookie(
        &mut self,
        now: Time,
        key: Key,
        listener: u32,
        addressing: &Addressing,
        packet: &Packet<'_>,
        service: u32,
    ) {
        if !self.cookie_shares.take(now, addressing.source) {
            self.counters.cookies_limited += 1;
            return;
        }
        let iss = self.cookies.initial(now, &mut *self.random, &key);
        let cookie = Cookie {
            expires: now + self.limits.cookie_life,
            iss,
            isr: packet.header.seq,
            service,
            options: packet.option_bytes().to_vec(),
        };
        let Some(sealed) = self.cookies.seal(now, &mut *self.random, &key, &cookie) else {
            self.counters.cookies_too_long += 1;
            self.stray(now, addressing, packet, Reset::new(ResetCode::TooBusy));
            return;
        };
        let mut connection = self.accept(now, listener, addressing, packet, iss);
        let mut bytes = Vec::new();
        let way = match connection.take_final_reset() {
            Some(reset) => {
                self.counters.resets += 1;
                connection.transmit_reset(now, reset, &mut bytes)
            }
            None => {
                self.counters.cookies += 1;
                connection.transmit_cookie(now, &sealed, &mut bytes)
            }
        };
        self.reply(Reply { way, bytes });
    }

    /// Restores the connection of an Init Cookie, and handles the packet that brought it.
    fn handle_cookie(
        &mut self,
        now: Time,
        key: Key,
        listener: u32,
        addressing: &Addressing,
        packet: &Packet<'_>,
        bytes: &[u8],
    ) {
        let opened = self.cookies.open(now, &mut *self.random, &key, bytes);
        let services = &self.listeners[listener as usize].services;
        let Some(cookie) = opened.filter(|cookie| services.contains(&cookie.service)) else {
            self.counters.cookies_refused += 1;
            self.stray(now, addressing, packet, Reset::new(ResetCode::BadInitCookie));
            return;
        };
        if !self.has_room(addressing.source) {
            self.counters.connections_full += 1;
            self.stray(now, addressing, packet, Reset::new(ResetCode::TooBusy));
            return;
        }
        let request = Header {
            kind: Kind::Request(cookie.service),
            seq: cookie.isr,
            long: true,
            coverage: 0,
            ..packet.header
        };
        let mut again = Vec::new();
        request.emit(Carrier::Udp, &cookie.options, &[], &mut again);
        // The options were on a Request that was answered, so they are valid.
        let Ok(request) = Packet::parse_unchecked(&again) else { return };
        let mut connection = self.accept(now, listener, addressing, &request, cookie.iss);
        if connection.take_final_reset().is_some() {
            return;
        }
        connection.restore(now);
        let slot = self.insert(connection, Some(self.listener_id(listener)));
        self.pass(now, slot, addressing, packet);
        // A packet that does not fit its cookie opens nothing.
        if self.connection_mut(slot).is_some_and(|c| c.state() == State::Respond) {
            self.release(slot);
        }
    }
}

/// Returns the Init Cookie of a packet.
fn cookie<'a>(packet: &Packet<'a>) -> Option<&'a [u8]> {
    packet.options().map_while(Result::ok).find_map(|option| match option {
        DccpOption::InitCookie(cookie) => Some(cookie),
        _ => None,
    })
}
