//! The stateless half of the handshake: INIT is answered with a cookie, and the cookie makes the
//! association (RFC 9260 sections 5.1 and 5.2).

use super::cookie::{Cookie, PacketFields};
use super::packets::abort;
use super::{Associations, Endpoint, ListenerId, Reply, back};
use crate::association::{Association, Cx, Ends, Offer, State, local_parameters};
use crate::auth::{self, Agreed};
use crate::features::Features;
use crate::numbers::Tsn;
use crate::settings::Settings;
use crate::wire::cause::Cause;
use crate::wire::chunk::{self, Chunk, Raw, kind};
use crate::wire::{AuthParameters, COMMON_HEADER, Init, InitParameters, Packet, Parameter, Writer};
use ringway_sansio::{Addressing, Duration, Time};
use ringway_transport::Key;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum ratio of an answer's length to that of the INIT, whose source address is not verified (as in
/// RFC 9000 section 8.1). A longer answer first omits the extensions that the peer does not support,
/// then the other local addresses.
const MAX_AMPLIFICATION: usize = 3;
/// Maximum extension of a cookie's life by a cookie preservative (RFC 9260 section 5.2.6).
const MAX_PRESERVATIVE: Duration = Duration::from_secs(2);

/// The local endpoint of the association that an INIT ACK offers.
struct Answer {
    settings: Arc<Settings>,
    locals: Vec<IpAddr>,
    tag: u32,
    tsn: Tsn,
    ties: (u32, u32),
    destination: IpAddr,
    auth: Option<AuthParameters>,
}

/// Removes extensions that the peer does not support.
fn offer_only(local: &mut InitParameters, features: Features, auth: bool) {
    local.ecn = features.has(Features::ECN);
    local.forward_tsn = features.has(Features::FORWARD);
    local.extensions = features.chunk_types();
    local.auth.take_if(|_| !auth);
}

/// What the local endpoint of an association would draw anew.
struct Fresh {
    tag: u32,
    tsn: Tsn,
    auth: AuthParameters,
}

/// How an INIT for an association that exists is answered.
enum KnownAnswer {
    Offer(Answer),
    Nothing,
    /// The association has sent a SHUTDOWN ACK, which is sent again (RFC 9260 section 9.2).
    ShutdownAck,
    /// The INIT lists addresses that the association does not have.
    NewAddresses(Vec<IpAddr>),
}

fn known_answer(
    association: &Association,
    source: IpAddr,
    init: &Init<'_>,
    parameters: &InitParameters,
    fresh: Fresh,
) -> KnownAnswer {
    let state = association.state();
    if state == State::ShutdownAckSent {
        return KnownAnswer::ShutdownAck;
    }
    let known = |address: &IpAddr| association.knows_address(*address);
    let offered = || core::iter::once(&source).chain(&parameters.addresses);
    let added: Vec<IpAddr> = offered().filter(|address| !known(address)).copied().collect();
    if state != State::CookieWait && !added.is_empty() {
        // A delayed INIT of this very association, whose addresses have changed since.
        if association.tags.is_of_peer(init.initiate_tag) {
            return KnownAnswer::Nothing;
        }
        return KnownAnswer::NewAddresses(added);
    }
    let Some(destination) = offered().copied().find(known) else { return KnownAnswer::Nothing };
    let settings = Arc::clone(association.settings());
    let locals = association.ends.locals.clone();
    let (fixed, _) = association.init();
    let (tag, tsn, ties) = match state {
        State::CookieWait => (fixed.initiate_tag, fixed.initial_tsn, (0, 0)),
        State::CookieEchoed => (fixed.initiate_tag, fixed.initial_tsn, association.tags.ties),
        _ => (fresh.tag, fresh.tsn, association.tags.ties),
    };
    // RFC 4895 section 6.1: the random number and the tag are reused together.
    let old_auth = association.local_auth().filter(|_| tag == fixed.initiate_tag);
    let auth = settings.dynamic_addresses.then(|| old_auth.unwrap_or(fresh.auth));
    KnownAnswer::Offer(Answer { settings, locals, tag, tsn, ties, destination, auth })
}

impl Endpoint {
    fn refuse(&mut self, addressing: &Addressing, packet: &Packet<'_>, tag: u32, causes: &[u8]) {
        self.counters.aborts += 1;
        let bytes = abort((packet.destination, packet.source), tag, false, causes);
        self.reply(Reply { way: back(addressing), bytes });
    }

    /// Handles an INIT without storing anything.
    pub(super) fn handle_init(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        addressing: &Addressing,
        packet: &Packet<'_>,
        raw: Raw<'_>,
    ) {
        // RFC 9260 sections 6.10 and 8.5.1 A.
        let alone = packet.chunks().count() == 1;
        let Ok(Chunk::Init(init)) = raw.parse() else {
            self.counters.malformed += 1;
            return;
        };
        if packet.tag != 0 || !alone || init.initiate_tag == 0 {
            self.counters.malformed += 1;
            return;
        }
        if !self.inits.take(now, addressing.source) {
            self.counters.inits_limited += 1;
            return;
        }
        let tag = init.initiate_tag;
        let read = init.check().and_then(|()| InitParameters::read(&init, false));
        let parameters = match read {
            Ok(parameters) if parameters.host_name => {
                let causes = chunk::causes(Cause::UnresolvableAddress(&[]));
                return self.refuse(addressing, packet, tag, &causes);
            }
            Ok(parameters) => parameters,
            Err(error) => {
                let text = error.to_string();
                let causes = chunk::causes(Cause::ProtocolViolation(text.as_bytes()));
                return self.refuse(addressing, packet, tag, &causes);
            }
        };
        let local = addressing.destination;
        // RFC 9260 section 5.1.2 D.
        let found = core::iter::once(&addressing.source)
            .chain(&parameters.addresses)
            .find_map(|&remote| self.holder(associations, local, remote, packet));
        let answer = match found {
            Some(slot) => {
                let offered = (&init, &parameters);
                self.answer_known(now, associations, slot, addressing, packet, offered)
            }
            None => self.answer_new(now, addressing, packet, &init),
        };
        if let Some(answer) = answer {
            let init = (&init, raw.whole.len());
            self.init_ack(now, addressing, packet, init, parameters, answer);
        }
    }

    fn answer_new(
        &mut self,
        now: Time,
        addressing: &Addressing,
        packet: &Packet<'_>,
        init: &Init<'_>,
    ) -> Option<Answer> {
        let Some((_, settings, locals)) =
            self.listener_for(addressing.destination, packet.destination)
        else {
            // RFC 9260 section 8.4, rule 3.
            self.counters.stray += 1;
            if self.strays.take(now, addressing.source) {
                self.refuse(addressing, packet, init.initiate_tag, &[]);
            } else {
                self.counters.strays_limited += 1;
            }
            return None;
        };
        let tag = self.free_tag()?;
        let tsn = Tsn::new(self.random.next_u64() as u32);
        let auth = settings.dynamic_addresses.then(|| auth::local_parameters(&mut *self.random));
        let destination = addressing.source;
        Some(Answer { settings, locals, tag, tsn, ties: (0, 0), destination, auth })
    }

    /// Answers an INIT for an association that exists (RFC 9260 sections 5.2.1 and 5.2.2, and 9.2).
    fn answer_known(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        slot: u32,
        addressing: &Addressing,
        packet: &Packet<'_>,
        (init, parameters): (&Init<'_>, &InitParameters),
    ) -> Option<Answer> {
        let fresh = Fresh {
            tag: self.free_tag()?,
            tsn: Tsn::new(self.random.next_u64() as u32),
            auth: auth::local_parameters(&mut *self.random),
        };
        let known = associations.read(self.id(slot), |association| {
            known_answer(association, addressing.source, init, parameters, fresh)
        })?;
        match known {
            KnownAnswer::Offer(answer) => Some(answer),
            KnownAnswer::Nothing => None,
            KnownAnswer::ShutdownAck => {
                self.call(now, associations, slot, |x, _| x.repeat_shutdown_ack(false));
                None
            }
            KnownAnswer::NewAddresses(added) => {
                let mut list = Vec::new();
                for address in added {
                    Parameter::Address(address).emit(&mut list);
                }
                let causes = chunk::causes(Cause::RestartWithNewAddresses(&list));
                self.refuse(addressing, packet, init.initiate_tag, &causes);
                None
            }
        }
    }

    fn init_ack(
        &mut self,
        now: Time,
        addressing: &Addressing,
        packet: &Packet<'_>,
        (init, length): (&Init<'_>, usize),
        parameters: InitParameters,
        answer: Answer,
    ) {
        let Answer { settings, locals, tag, tsn, ties, destination, auth } = answer;
        let both = auth.as_ref().zip(parameters.auth.as_ref());
        let agreed = both.and_then(|(local, peer)| Agreed::new(local, peer));
        let more = Duration::from_millis(u64::from(parameters.cookie_preservative.unwrap_or(0)));
        let mut cookie = Cookie {
            expires: now + settings.cookie_life + more.min(MAX_PRESERVATIVE),
            ports: (packet.destination, packet.source),
            offer: Offer {
                local_tag: tag,
                peer_tag: init.initiate_tag,
                local_tsn: tsn,
                peer_tsn: init.initial_tsn,
                peer_rwnd: init.a_rwnd,
                streams: (
                    settings.outbound_streams.min(init.inbound_streams),
                    settings.inbound_streams.min(init.outbound_streams),
                ),
                ties,
                features: Features::offered(&settings).both(Features::declared(&parameters)),
                auth: agreed,
                local: addressing.destination,
                source: addressing.source,
                addresses: parameters.addresses,
                alone: locals.len() == 1,
            },
        };
        let mut local = local_parameters(&locals, &settings);
        local.address_types = None;
        local.auth = auth;
        local.cookie = Some(self.keys.seal(now, &mut *self.random, &cookie));
        let limit = usize::from(settings.mtu) - 40 - COMMON_HEADER;
        if local.len() + parameters.unrecognized.len() * 2 <= limit {
            local.unrecognized = parameters.unrecognized;
        }
        let room = MAX_AMPLIFICATION * (COMMON_HEADER + length) - COMMON_HEADER;
        if local.len() > room {
            offer_only(&mut local, cookie.offer.features, parameters.auth.is_some());
        }
        if local.len() > room && !cookie.offer.alone {
            cookie.offer.alone = true;
            local.addresses.clear();
            local.cookie = Some(self.keys.seal(now, &mut *self.random, &cookie));
        }
        // RFC 9260 section 3.3.3: no more outbound streams than the INIT's MIS.
        let streams = (cookie.offer.streams.0, settings.inbound_streams);
        let fixed = Init::fixed(tag, settings.receive_buffer as u32, streams, tsn);
        let mut bytes = Vec::new();
        let ports = (packet.destination, packet.source);
        let max = usize::from(u16::MAX);
        let mut writer = Writer::new(&mut bytes, max, ports.0, ports.1, init.initiate_tag);
        local.emit(writer.chunks(), kind::INIT_ACK, &fixed);
        writer.finish();
        self.counters.inits += 1;
        self.reply(Reply { way: Addressing { destination, ..back(addressing) }, bytes });
    }

    fn listening_slot(&self, local: IpAddr, port: u16) -> Option<u32> {
        let any: IpAddr = match local {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        self.listening
            .get(&(ringway_transport::number(local), port))
            .or_else(|| self.listening.get(&(ringway_transport::number(any), port)))
            .copied()
    }

    /// Returns whether there is a listener for an address and port.
    pub(super) fn listens(&self, local: IpAddr, port: u16) -> bool {
        self.listening_slot(local, port).is_some()
    }

    /// Returns the listener for an address and port, its settings, and the addresses of its
    /// associations.
    fn listener_for(
        &self,
        local: IpAddr,
        port: u16,
    ) -> Option<(ListenerId, Arc<Settings>, Vec<IpAddr>)> {
        let slot = self.listening_slot(local, port)?;
        let listener = &self.listeners[slot as usize];
        let addresses = listener.addresses.as_ref()?;
        let locals = match addresses[0].is_unspecified() {
            true if self.joined.contains(&local) => self.joined.clone(),
            true => vec![local],
            false => addresses.clone(),
        };
        let id = ListenerId { slot, generation: listener.generation };
        Some((id, Arc::clone(&listener.settings), locals))
    }

    /// Handles a COOKIE ECHO and the chunks after it (RFC 9260 sections 5.1.5 and 5.2.4).
    pub(super) fn handle_cookie_echo(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        addressing: &Addressing,
        packet: &Packet<'_>,
    ) {
        let mut chunks = packet.chunks();
        let mut vouched = None;
        let mut next = chunks.next();
        if let Some(Ok(raw)) = next
            && raw.kind == kind::AUTH
        {
            vouched = Some((raw, chunks.rest()));
            next = chunks.next();
        }
        let Some(Ok(Ok(Chunk::CookieEcho(bytes)))) = next.map(|raw| raw.map(|r| r.parse())) else {
            return;
        };
        let seen = PacketFields {
            ports: (packet.destination, packet.source),
            tag: packet.tag,
            local: addressing.destination,
            source: addressing.source,
        };
        let Some(cookie) = self.keys.open(now, &mut *self.random, bytes, &seen) else {
            self.counters.cookies_refused += 1;
            return;
        };
        let right = vouched.is_none_or(|(raw, rest)| {
            cookie.offer.auth.as_ref().is_some_and(|agreed| agreed.vouches(raw.whole, rest))
        });
        if !right {
            self.counters.cookies_refused += 1;
            return;
        }
        let local = addressing.destination;
        let offer = &cookie.offer;
        let found = core::iter::once(&addressing.source)
            .chain(core::iter::once(&offer.source))
            .chain(&offer.addresses)
            .find_map(|&remote| self.holder(associations, local, remote, packet));
        let slot = match found {
            None => self.accept(now, associations, addressing, packet, &cookie),
            Some(slot) => self.reconcile(now, associations, slot, addressing, packet, &cookie),
        };
        let Some(slot) = slot else { return };
        self.call(now, associations, slot, |association, cx| {
            if let Some(path) = association.path_to(addressing.source) {
                association.handle_chunks(cx, path, addressing, false, chunks);
            }
        });
    }

    fn report_stale(
        &mut self,
        addressing: &Addressing,
        packet: &Packet<'_>,
        cookie: &Cookie,
        by: Duration,
    ) {
        self.counters.cookies_stale += 1;
        let micros = by.as_nanos().div_ceil(1000).min(u128::from(u32::MAX)) as u32;
        let causes = chunk::causes(Cause::StaleCookie(micros));
        let mut bytes = Vec::new();
        let (max, tag) = (usize::from(u16::MAX), cookie.offer.peer_tag);
        let mut writer = Writer::new(&mut bytes, max, packet.destination, packet.source, tag);
        Chunk::Error(&causes).emit(writer.chunks());
        writer.finish();
        self.reply(Reply { way: back(addressing), bytes });
    }

    /// Accepts a new association (RFC 9260 section 5.1.5, steps 4 and 5).
    fn accept(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        addressing: &Addressing,
        packet: &Packet<'_>,
        cookie: &Cookie,
    ) -> Option<u32> {
        if let Some(by) = cookie.stale(now) {
            self.report_stale(addressing, packet, cookie, by);
            return None;
        }
        let offer = &cookie.offer;
        let Some((listener, settings, locals)) = self.listener_for(offer.local, cookie.ports.0)
        else {
            self.refuse(addressing, packet, offer.peer_tag, &[]);
            return None;
        };
        let locals = if offer.alone { vec![offer.local] } else { locals };
        // The INIT ACK went to this address, so it is not forged. That of the COOKIE ECHO may be.
        let holder = offer.source;
        if !self.room.has_room(holder) {
            self.counters.associations_full += 1;
            let causes = chunk::causes(Cause::OutOfResource);
            self.refuse(addressing, packet, offer.peer_tag, &causes);
            return None;
        }
        let udp_port = addressing.udp_port;
        let (local_port, remote_port) = cookie.ports;
        let ends = Ends { local_port, remote_port, locals, resting: Vec::new(), udp_port };
        let from_known =
            addressing.source == offer.source || offer.addresses.contains(&addressing.source);
        let Ends { ref locals, local_port, remote_port, .. } = ends;
        let free = self.is_free(associations, locals, local_port, &offer.addresses, remote_port);
        if !from_known
            || !free
            || !ends.locals.contains(&addressing.destination)
            || self.tags.contains_key(&offer.local_tag)
            || self.ended.contains(&offer.local_tag)
        {
            self.counters.cookies_refused += 1;
            return None;
        }
        self.claim(now, associations, &ends, &offer.addresses);
        let mut cx = Cx { now, random: &mut *self.random };
        let mut association = Association::accept(settings, ends, offer, &mut cx);
        let path = association.path_to(addressing.source)?;
        association.owe_cookie_ack(path);
        self.room.take(holder);
        Some(self.insert(associations, association, Some((listener, holder))).slot)
    }

    /// Returns the association that a pair of addresses belongs to. An address that a peer merely
    /// listed does not count, so that it cannot block the host that really has it (RFC 5062 section 2).
    fn holder(
        &self,
        associations: &impl Associations,
        local: IpAddr,
        remote: IpAddr,
        packet: &Packet<'_>,
    ) -> Option<u32> {
        let found = self.by_addresses(local, remote, packet);
        found.filter(|slot| self.holds(associations, *slot, remote))
    }

    /// Returns whether an address belongs to an association that lists it.
    pub(super) fn holds(
        &self,
        associations: &impl Associations,
        slot: u32,
        remote: IpAddr,
    ) -> bool {
        associations.read(self.id(slot), |association| association.holds(remote)) == Some(true)
    }

    /// Removes the addresses of a new association from others that only list them.
    pub(super) fn claim(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        ends: &Ends,
        remotes: &[IpAddr],
    ) {
        for (&remote, &local) in
            remotes.iter().flat_map(|r| ends.locals.iter().map(move |l| (r, l)))
        {
            let key = Key::new(local, ends.local_port, remote, ends.remote_port);
            let Some(&slot) = self.table.get(&key) else { continue };
            if !self.holds(associations, slot, remote) {
                self.call(now, associations, slot, |x, cx| x.lose_address(cx.now, remote));
            }
        }
    }

    /// Handles the cookie of an existing association (RFC 9260 section 5.2.4, table 12).
    fn reconcile(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        slot: u32,
        addressing: &Addressing,
        packet: &Packet<'_>,
        cookie: &Cookie,
    ) -> Option<u32> {
        let offer = &cookie.offer;
        let (local, peer, ties, opening, path) =
            associations.read(self.id(slot), |association| {
                let local = association.tags.local == offer.local_tag;
                let peer = association.tags.is_of_peer(offer.peer_tag);
                let ties = association.tags.ties == offer.ties;
                let opening = association.is_opening();
                Some((local, peer, ties, opening, association.path_to(addressing.source)?))
            })??;
        if !(local && peer)
            && let Some(by) = cookie.stale(now)
        {
            self.report_stale(addressing, packet, cookie, by);
            return None;
        }
        match (local, peer) {
            // Action A. It is one too if the INIT arrived in COOKIE-ECHOED, whose INIT ACK has the tag of this association,
            // and the peer's earlier self has completed the handshake since: where both merely open at once, the one
            // whose tag is not in the cookie does not answer it (action C).
            (false, false) if ties => self.restart(now, associations, slot, offer, path),
            (true, false) if ties && !opening => self.restart(now, associations, slot, offer, path),
            // Actions B and D.
            (true, _) => {
                let cookie = |x: &mut Association, cx: &mut Cx<'_>| {
                    x.handle_matching_cookie(cx, offer, path);
                };
                self.call(now, associations, slot, cookie);
                Some(slot)
            }
            // Action C, and what the table does not show.
            _ => {
                self.counters.cookies_refused += 1;
                None
            }
        }
    }

    /// Has an association start over with a peer that has restarted. Returns it, unless it refuses.
    fn restart(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        slot: u32,
        offer: &Offer,
        path: usize,
    ) -> Option<u32> {
        if self.refuses_restart(associations, slot, offer) {
            self.counters.cookies_refused += 1;
            return None;
        }
        let restarted = self.call(now, associations, slot, |association, cx| {
            if association.state() == State::ShutdownAckSent {
                association.repeat_shutdown_ack(true);
                return false;
            }
            association.restart(cx, offer, path);
            true
        });
        (restarted == Some(true)).then_some(slot)
    }

    /// Returns whether the cookie of a restart has addresses that its association does not have, or a tag that
    /// another one has. One that waits for the end of its shutdown does not restart, so it does not matter there.
    fn refuses_restart(&self, associations: &impl Associations, slot: u32, offer: &Offer) -> bool {
        let foreign = associations.read(self.id(slot), |association| {
            let known = |address: &IpAddr| association.knows_address(*address);
            // The one local address that the INIT ACK promised may have been deleted since.
            let local_gone = offer.alone && !association.ends.locals.contains(&offer.local);
            association.state() != State::ShutdownAckSent
                && (local_gone
                    || !offer.addresses.iter().all(known)
                    || self.tags.get(&offer.local_tag).is_some_and(|other| *other != slot))
        });
        foreign == Some(true)
    }
}
