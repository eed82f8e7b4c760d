//! The handshake (RFC 9260 sections 5.1 and 5.2).

use super::acks::Acks;
use super::chosen::Chosen;
use super::ecn::Marks;
use super::errors::ErrorCount;
use super::offer::{Agreement, Offer, local_parameters};
use super::phase::{Attempt, CookieEchoed, CookieWait, Phase};
use super::tags::Tags;
use super::zero_window::ZeroWindow;
use super::{Association, Auth, Close, Control, Cx, Ends, Pending, Totals};
use crate::Tsn;
use crate::auth::{self, Agreed};
use crate::features::Features;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::settings::Settings;
use crate::timers::{AssociationTimers, PathTimer, Timer};
use crate::wire::cause::Cause;
use crate::wire::chunk::{Chunk, kind};
use crate::wire::parameter;
use crate::wire::{Init, InitParameters, MIN_A_RWND, TLV_HEADER, Writer};
use ringway_sansio::{Addressing, Time};
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum length of a peer's State Cookie, in bytes. It must fit one packet.
const MAX_COOKIE: usize = 4096;
/// Milliseconds requested beyond the round trip when a cookie was stale (RFC 9260 section 5.2.6: at
/// most a second).
const MORE_LIFE: u32 = 1000;

impl CookieWait {
    /// Discards an INIT ACK whose window is below 1500 bytes (RFC 9260 section 3.3.3), so that T1-init
    /// repeats the INIT. Linux answers a restarted peer with the rest of the old association's window,
    /// which grows as its program reads. Therefore the handshake is not aborted as erratum 7148 has it.
    /// The peer holds no state that an ABORT could end, unless it is opening too, and then both want
    /// the association.
    fn discards_small_window(&mut self, init: &Init<'_>) -> bool {
        let small = init.initiate_tag != 0 && init.a_rwnd < MIN_A_RWND;
        if small {
            self.small_window = Some(init.a_rwnd);
        }
        small
    }
}

impl Association {
    fn empty(
        settings: Arc<Settings>,
        ends: Ends,
        cx: &mut Cx<'_>,
        tag: u32,
        tsn: Tsn,
        phase: Phase,
    ) -> Association {
        Association {
            phase,
            ends,
            paths: Vec::new(),
            chosen: Chosen::default(),
            tags: Tags::new(tag, cx.random),
            agreement: Agreement::proposed(&settings, tsn),
            reconfig: None,
            asconf: None,
            auth: None,
            out: Outgoing::new(tsn, &settings),
            inn: Incoming::new(Tsn::new(0), settings.receive_buffer),
            acks: Acks::default(),
            control: Control::default(),
            errors: ErrorCount::default(),
            timers: AssociationTimers::default(),
            window: ZeroWindow::default(),
            max: 1,
            marks: Marks::default(),
            pending: Pending::default(),
            totals: Totals::default(),
            previous_identity: None,
            settings,
        }
    }

    /// Creates an association opened by the local endpoint (RFC 9260 section 5.1 A). All `remotes` come
    /// from the user and count as verified (section 5.4).
    pub(crate) fn connect(
        settings: Arc<Settings>,
        ends: Ends,
        remotes: &[IpAddr],
        cx: &mut Cx<'_>,
        tag: u32,
        tsn: Tsn,
    ) -> Association {
        let dynamic = settings.dynamic_addresses;
        let attempt = Attempt::first();
        let opening = CookieWait { attempt, preservative: None, small_window: None };
        let phase = Phase::CookieWait(Box::new(opening));
        let mut association = Association::empty(settings, ends, cx, tag, tsn, phase);
        if dynamic {
            let local = auth::local_parameters(cx.random);
            association.auth = Some(Box::new(Auth { local, agreed: None }));
        }
        for &remote in remotes {
            association.add_path(remote, None, true, cx.now);
        }
        association
    }

    /// Creates an association from a cookie (RFC 9260 section 5.1.5, step 5).
    pub(crate) fn accept(
        settings: Arc<Settings>,
        ends: Ends,
        offer: &Offer,
        cx: &mut Cx<'_>,
    ) -> Association {
        let (tag, tsn) = (offer.local_tag, offer.local_tsn);
        let phase = Phase::Established;
        let mut association = Association::empty(settings, ends, cx, tag, tsn, phase);
        association.take_offer(offer, cx.now);
        // RFC 9260 section 5.4, rule 2: only the address that the INIT ACK went to is verified.
        association.add_path(offer.source, Some(offer.local), true, cx.now);
        association.add_listed(&offer.addresses, cx.now);
        association.begin_beats(cx);
        association.pending.up = true;
        association
    }

    /// Adds the addresses that the peer listed, unverified.
    fn add_listed(&mut self, addresses: &[IpAddr], now: Time) {
        for &address in addresses {
            self.add_path(address, None, false, now);
        }
    }

    fn take_offer(&mut self, offer: &Offer, now: Time) {
        self.tags.set_peer(offer.peer_tag);
        self.agreement = Agreement::of(offer);
        self.pending.unsent += self.out.limit_streams(offer.streams.0, &self.settings);
        self.check_writable();
        self.out.offered(offer.peer_rwnd);
        self.auth = offer.auth.clone().map(|mut agreed| {
            if let Some(before) = self.auth.as_mut().and_then(|auth| auth.agreed.take()) {
                (agreed.shared, agreed.active) = (before.shared, before.active);
            }
            let local = self.auth.take().map(|auth| auth.local).unwrap_or_default();
            Box::new(Auth { local, agreed: Some(agreed) })
        });
        self.out.set_forwards(offer.features.has(Features::FORWARD));
        self.out.interleave(offer.features.has(Features::INTERLEAVE));
        self.inn.interleave(offer.features.has(Features::INTERLEAVE));
        self.inn.restart(offer.peer_tsn);
        for path in &mut self.paths {
            path.offered(now, &self.settings, offer.peer_rwnd);
        }
    }

    /// Returns the local INIT or INIT ACK.
    pub(crate) fn init(&self) -> (Init<'static>, InitParameters) {
        let streams = (self.settings.outbound_streams, self.settings.inbound_streams);
        let fixed = Init::fixed(
            self.tags.local,
            self.settings.receive_buffer as u32,
            streams,
            self.agreement.initial_tsns.0,
        );
        let mut parameters = local_parameters(&self.ends.locals, &self.settings);
        parameters.auth = self.auth.as_ref().map(|auth| auth.local.clone());
        (fixed, parameters)
    }

    /// Returns whether the peer is known to have an address. Addresses from the user do not count while
    /// the peer is unknown.
    pub(crate) fn knows_address(&self, address: IpAddr) -> bool {
        self.path_to(address).is_some()
    }

    pub(super) fn transmit_opening(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<usize> {
        let attempt = self.phase.attempt_mut().filter(|attempt| attempt.due)?;
        attempt.sent(cx.now);
        let index = attempt.path;
        let ports = (self.ends.local_port, self.ends.remote_port);
        let limit = self.paths[index].packet();
        let start = out.len();
        let mut packet = Writer::new(out, limit, ports.0, ports.1, self.tags.outbound());
        if let Phase::CookieWait(opening) = &mut self.phase {
            opening.small_window = None;
            let preservative = opening.preservative;
            let (fixed, mut parameters) = self.init();
            parameters.cookie_preservative = preservative;
            parameters.emit(packet.chunks(), kind::INIT, &fixed);
        } else if let Phase::CookieEchoed(opening) = &self.phase {
            self.begin_auth(&mut packet);
            Chunk::CookieEcho(&opening.cookie).emit(packet.chunks());
            let size = TLV_HEADER + self.control.errors.len();
            if size > TLV_HEADER && packet.space() >= size {
                Chunk::Error(&self.control.errors).emit(packet.chunks());
            }
            self.put_first_data(cx, index, &mut packet);
            self.finish_auth(&mut packet, start);
        }
        let path = &mut self.paths[index];
        path.heartbeat.note_use(cx.now);
        self.timers.start(Timer::T1, cx.now + path.rto.get());
        packet.finish().then_some(index)
    }

    /// Writes data after COOKIE ECHO, which then waits for COOKIE ACK (RFC 9260 section 5.1 C).
    /// T1-cookie replaces T3-rtx.
    fn put_first_data(&mut self, cx: &mut Cx<'_>, index: usize, packet: &mut Writer<'_>) {
        while let Some((len, ..)) = self.out.first_marked()
            && packet.space() >= self.out.chunk_size(len)
        {
            self.out.send_again(cx.now, index, &mut self.paths, packet.chunks());
        }
        if !self.out.has_marked() {
            self.paths[index].allow_burst(&self.settings);
            self.out.begin_packet();
            self.out.drop_expired(cx.now);
            let before = packet.len();
            self.put_new(cx, index, packet, before);
        }
        self.paths[index].timers.cancel(PathTimer::T3Rtx);
    }

    /// Handles the expiry of T1-init or T1-cookie.
    pub(super) fn opening_timeout(&mut self, cx: &mut Cx<'_>) {
        let (small_window, cookie) = match &self.phase {
            Phase::CookieWait(opening) => (opening.small_window, None),
            Phase::CookieEchoed(opening) => (None, Some(opening.cookie.len())),
            _ => return,
        };
        let Some(attempt) = self.phase.attempt_mut() else { return };
        attempt.retransmits += 1;
        let last = attempt.path;
        let path = &mut self.paths[last];
        path.rto.back_off();
        if attempt.retransmits > self.settings.max_init_retransmits {
            self.close(match small_window {
                Some(a_rwnd) => Close::SmallWindow { a_rwnd },
                None => Close::Unreachable,
            });
            return;
        }
        if let Some(cookie) = cookie {
            // The data may have made the packet too large, and the rest of it was the cookie.
            let lost = path.flight.bytes() as usize + cookie;
            path.suspect_black_hole(cx.now, lost);
        }
        path.error(&self.settings);
        self.out.mark_all(last, path, true);
        path.timers.cancel(PathTimer::T3Rtx);
        // RFC 9260 section 5.1: all addresses of the peer are used in turn.
        let count = self.paths.len();
        let next = (1..=count).map(|step| (last + step) % count);
        attempt.path = next.clone().find(|&p| self.paths[p].usable()).unwrap_or(last);
        attempt.due = true;
        // The next packet is sent at once. If it is lost, T1 starts from here.
        self.timers.start(Timer::T1, cx.now + self.paths[attempt.path].rto.get());
    }

    /// Handles an INIT ACK, the only chunk of its packet.
    pub(crate) fn handle_init_ack(
        &mut self,
        cx: &mut Cx<'_>,
        path: usize,
        addressing: &Addressing,
        init: &Init<'_>,
    ) {
        // RFC 9260 section 5.2.3.
        let Phase::CookieWait(opening) = &mut self.phase else { return };
        if opening.discards_small_window(init) {
            return;
        }
        let attempt = opening.attempt;
        self.learn_way(path, addressing);
        self.ends.udp_port = addressing.udp_port;
        // Errors are reported with the tag of this chunk (section 5.1).
        self.tags.set_peer(init.initiate_tag);
        let refuse = |this: &mut Association, cause: Cause<'_>, what| {
            this.fail(cause, Close::Violation(what));
        };
        // Section 3.3.3.
        if init.initiate_tag == 0 {
            return refuse(self, Cause::InvalidParameter, "an INIT ACK has no tag");
        }
        if init.check().is_err() {
            return refuse(self, Cause::InvalidParameter, "an INIT ACK has no streams");
        }
        let parameters = match InitParameters::read(init, true) {
            Ok(parameters) if parameters.host_name => {
                return refuse(
                    self,
                    Cause::UnresolvableAddress(&[]),
                    "an INIT ACK has a host name",
                );
            }
            Ok(parameters) => parameters,
            Err(_) => {
                return refuse(self, Cause::InvalidParameter, "an INIT ACK has a bad parameter");
            }
        };
        let local = self.auth.as_ref().map(|auth| &auth.local);
        let auth = local.zip(parameters.auth.as_ref()).and_then(|(a, b)| Agreed::new(a, b));
        let features = Features::offered(&self.settings).both(Features::declared(&parameters));
        let Some(cookie) = parameters.cookie.filter(|cookie| cookie.len() <= MAX_COOKIE) else {
            let cause = Cause::MissingParameter(parameter::kind::STATE_COOKIE);
            return refuse(self, cause, "an INIT ACK has no cookie");
        };
        if let Some(at) = attempt.timed {
            self.paths[attempt.path].rto.measure(cx.now.since(at));
        }
        let streams = (
            self.settings.outbound_streams.min(init.inbound_streams),
            self.settings.inbound_streams.min(init.outbound_streams),
        );
        let source = self.paths[path].remote;
        let offer = Offer {
            local_tag: self.tags.local,
            peer_tag: init.initiate_tag,
            local_tsn: self.agreement.initial_tsns.0,
            peer_tsn: init.initial_tsn,
            peer_rwnd: init.a_rwnd,
            streams,
            ties: (0, 0),
            features,
            auth,
            local: self.paths[path].local(),
            source,
            addresses: Vec::new(),
            alone: false,
        };
        self.take_offer(&offer, cx.now);
        self.add_listed(&parameters.addresses, cx.now);
        if !parameters.unrecognized.is_empty() {
            // RFC 9260 section 3.2.2.
            self.report(Cause::UnrecognizedParameters(&parameters.unrecognized));
        }
        self.paths[path].answered();
        // Only to a verified address (section 5.4).
        let target = if self.paths[path].usable() { path } else { attempt.path };
        let attempt = Attempt { path: target, due: true, retransmits: 0, ..attempt };
        self.enter(Phase::CookieEchoed(Box::new(CookieEchoed { attempt, cookie })));
        self.chosen.current = path.min(self.paths.len() - 1);
        self.choose_current();
    }

    /// Handles COOKIE ACK (RFC 9260 section 5.1 E).
    pub(super) fn handle_cookie_ack(&mut self, cx: &mut Cx<'_>, path: usize) {
        let Phase::CookieEchoed(opening) = &self.phase else { return };
        if let Some(at) = opening.attempt.timed {
            self.paths[path].rto.measure(cx.now.since(at));
        }
        self.paths[path].answered();
        self.establish(cx);
    }

    fn establish(&mut self, cx: &mut Cx<'_>) {
        let shutdown_requested = self.phase.wants_shutdown();
        self.enter(Phase::Established);
        self.errors.peer_answered();
        self.control.errors.clear();
        self.begin_beats(cx);
        self.pending.up = true;
        for path in &mut self.paths {
            if !path.flight.is_empty() {
                path.start_t3(cx.now);
            }
        }
        self.allow_bursts();
        self.path_changed();
        if shutdown_requested {
            self.shutdown(cx);
        }
    }

    /// Handles a stale cookie by a new INIT that requests a longer life (RFC 9260 section 5.2.6). The
    /// next cookie may be stale as well: with heavy loss T1 grows to RTO.Max, which is as long as a
    /// cookie lives. The limit is that of INIT retransmissions.
    pub(super) fn handle_stale_cookie(&mut self, cx: &mut Cx<'_>) {
        let Phase::CookieEchoed(opening) = &self.phase else { return };
        let mut attempt = opening.attempt;
        let round_trip = attempt.timed.map_or(0, |at| cx.now.since(at).as_millis() as u32);
        attempt.retransmits += 1;
        attempt.stale += 1;
        if attempt.stale.max(attempt.retransmits) > self.settings.max_init_retransmits {
            self.close(Close::Unreachable);
            return;
        }
        attempt.due = true;
        self.cut_anew();
        self.tags.set_peer(0);
        let preservative = Some(round_trip.saturating_add(MORE_LIFE));
        let opening = CookieWait { attempt, preservative, small_window: None };
        self.enter(Phase::CookieWait(Box::new(opening)));
    }

    /// Requeues data that went with COOKIE ECHO and did not arrive. It is cut again by the parameters
    /// of the next INIT ACK.
    fn cut_anew(&mut self) {
        self.out.requeue_sent(&self.settings);
        for path in &mut self.paths {
            path.empty();
        }
    }

    /// Handles a cookie with both tags of this association (RFC 9260 section 5.2.4 D), or with a new
    /// tag of the peer (B): the handshake is complete on the peer's side.
    pub(crate) fn handle_matching_cookie(&mut self, cx: &mut Cx<'_>, offer: &Offer, path: usize) {
        self.keep_identity();
        self.control.cookie_ack = Some(path);
        if !self.is_opening() {
            self.tags.set_peer(offer.peer_tag);
            return;
        }
        if self.waits_for_init_ack() || !self.tags.is_of_peer(offer.peer_tag) {
            self.cut_anew();
            self.take_offer(offer, cx.now);
            self.add_listed(&offer.addresses, cx.now);
        }
        self.establish(cx);
    }

    /// Handles a restart of the peer (RFC 9260 section 5.2.4 A). Received messages stay readable, and
    /// unsent messages are sent.
    pub(crate) fn restart(&mut self, cx: &mut Cx<'_>, offer: &Offer, path: usize) {
        self.keep_identity();
        self.tags = Tags::new(offer.local_tag, cx.random);
        for path in &mut self.paths {
            path.restart(&self.settings, offer.peer_rwnd);
        }
        self.pending.unsent += self.out.restart(offer.local_tsn);
        self.inn.finish();
        self.acks = Acks::on(path);
        self.control =
            Control { cookie_ack: Some(path), probe: self.control.probe, ..Control::default() };
        let shutdown_requested = self.phase.wants_shutdown();
        self.enter(Phase::Established);
        self.reconfig = None;
        self.asconf = None;
        self.ends.resting.clear();
        self.errors.peer_answered();
        self.marks = Marks::default();
        self.out.set_forced(false);
        self.window.reset();
        self.leave_unlisted(offer, path);
        if offer.alone {
            self.ends.locals.retain(|local| *local == offer.local);
            self.leave_local(cx.now);
        }
        self.take_offer(offer, cx.now);
        self.begin_beats(cx);
        self.allow_bursts();
        self.path_changed();
        self.pending.restarted = true;
        self.pending.readable = self.inn.is_readable();
        if shutdown_requested {
            self.shutdown(cx);
        }
    }

    /// Removes the addresses that a restarted peer does not list. They may be another host's, whatever
    /// was known of them before (RFC 5062 section 4).
    fn leave_unlisted(&mut self, offer: &Offer, path: usize) {
        for old in &mut self.paths {
            if old.remote != offer.source && !offer.addresses.contains(&old.remote) {
                old.leave();
            }
        }
        // RFC 9260 section 5.4, rule 2: the cookie was sent to this address and came back.
        if let Some(source) = self.path_to(offer.source) {
            self.paths[source].confirm();
        }
        let paths = &self.paths;
        self.chosen.replace(|chosen| paths[chosen].is_gone(), path);
    }

    /// Queues the COOKIE ACK of a new association to the address that the cookie came from.
    pub(crate) fn owe_cookie_ack(&mut self, path: usize) {
        self.control.cookie_ack = Some(path);
        if !self.paths[path].usable() {
            // RFC 9260 section 5.4: with a heartbeat, since the address is not verified.
            self.paths[path].heartbeat.request();
        }
    }
}
