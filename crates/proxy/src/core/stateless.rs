//! Stateless forwarding: RFC 3261 section 16.11, and the ACK for a 2xx, which is a transaction of
//! its own without an answer (section 16.7, RFC 6026).

use super::branch::{Found, Way, as_request_uri, has_lr, next_route};
use super::context::{Attempt, Kept, RequestTarget};
use super::validate::Proof;
use super::{Core, Event, MAX_RESOLVING, Pass, ResolveTarget};
use crate::config::Mode;
use crate::forward::{self, Plan};
use ringway_sansio::{Flow, Hop, Outbox, Target, Time};
use ringway_sip::header::{HeaderId, Items, NameAddr, Via};
use ringway_sip::message::{Message, Method};
use ringway_sip::transaction::id::MAGIC_COOKIE;
use ringway_sip::transaction::table::USER_REPORT;
use ringway_sip::uri::Uri;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// A request that waits for server location: the ACK of a call to a host name, say.
pub(super) struct Parked {
    request: Vec<u8>,
    flow: Flow,
    kept: Kept,
    target: RequestTarget,
}

/// ACKs kept for another way; the oldest makes room.
const MAX_RESENDS: usize = 1024;

/// An ACK larger than this is not kept for another way.
const MAX_RESEND_OCTETS: usize = 4096;

/// Marks the numbers of parked requests among those of branches.
pub(super) const PARKED: u64 = 1 << 63;

/// Tells branches of stateless forwarding from those of transactions.
const STATELESS: &[u8] = b"-s";

impl Core {
    /// Sends a request on without keeping anything: only ever to the first target, so that the same
    /// request always takes the same way (section 16.11).
    pub(super) fn forward_statelessly(
        &mut self,
        pass: &Pass<'_>,
        kept: &Kept,
        targets: Vec<RequestTarget>,
        out: &mut Outbox,
    ) {
        let Some(target) = targets.into_iter().next() else {
            return self.refuse(pass, 480, "", &[], out);
        };
        self.forward_to(pass, kept, target, out);
    }

    fn forward_to(
        &mut self,
        pass: &Pass<'_>,
        kept: &Kept,
        target: RequestTarget,
        out: &mut Outbox,
    ) {
        match self.stateless_way(pass.msg, kept, &target) {
            Found::Way(way) if self.is_barred(pass.now, &target, kept.privileged, &way) => {
                self.stats.forbidden += 1;
                self.refuse(pass, 403, "Forbidden", &[], out);
            }
            Found::Name(name) if self.is_barred_name(&target, kept.privileged, &name.host) => {
                self.stats.forbidden += 1;
                self.refuse(pass, 403, "Forbidden", &[], out);
            }
            Found::Way(way) => self.send_statelessly(pass, kept, &target, way, out),
            Found::Name(name) => self.park(pass, kept, target, name, out),
            Found::Nowhere => self.refuse(pass, 503, "", &[], out),
        }
    }

    fn park(
        &mut self,
        pass: &Pass<'_>,
        kept: &Kept,
        target: RequestTarget,
        name: ResolveTarget,
        out: &mut Outbox,
    ) {
        if self.resolving >= MAX_RESOLVING {
            self.stats.limits_hit += 1;
            return self.refuse(pass, 503, "", &[], out);
        }
        if !self.keep(pass.msg, pass.flow, None, kept.is_known()) {
            return self.refuse(pass, 503, "", &[], out);
        }
        self.resolving += 1;
        let request = pass.msg.whole().to_vec();
        let index = self.parked.insert(Parked { request, flow: *pass.flow, kept: *kept, target });
        let (id, source) = (PARKED | index as u64, pass.flow.remote.ip());
        self.events.push_back(Event::Resolve { id, target: name, source });
    }

    /// The next hop of a parked request has been located.
    pub(super) fn unpark(&mut self, now: Time, id: u64, hops: &[Hop], out: &mut Outbox) {
        let Some(parked) = self.parked.try_remove((id & !PARKED) as usize) else { return };
        self.release_kept(parked.request.len(), &parked.flow, None);
        let Ok(msg) = ringway_sip::message::parse(&parked.request) else { return };
        let Ok(via) = msg.top_via() else { return };
        let key = self.tx.key(&msg, &via);
        let pass = Pass { now, flow: &parked.flow, msg: &msg, via: &via, key };
        match hops.first().cloned().and_then(|hop| self.way_to_hop(hop)) {
            Some(way) if self.is_barred(now, &parked.target, parked.kept.privileged, &way) => {
                self.stats.forbidden += 1;
                self.refuse(&pass, 403, "Forbidden", &[], out);
            }
            Some(way) => self.send_statelessly(&pass, &parked.kept, &parked.target, way, out),
            None => self.refuse(&pass, 503, "", &[], out),
        }
    }

    fn send_statelessly(
        &mut self,
        pass: &Pass<'_>,
        kept: &Kept,
        target: &RequestTarget,
        way: Way,
        out: &mut Outbox,
    ) {
        let msg = pass.msg;
        let mut on_top = std::mem::take(&mut self.scratch);
        on_top.clear();
        if let Some(Attempt::Via(uri)) = target.attempts.last() {
            let end: &[u8] = if has_lr(uri) { b">\r\n" } else { b";lr>\r\n" };
            for part in [b"Route: <", uri.as_bytes(), end] {
                on_top.extend_from_slice(part);
            }
        }
        if !target.path.is_empty() {
            for part in [b"Route: ", target.path.as_slice(), b"\r\n"] {
                on_top.extend_from_slice(part);
            }
        }
        let strict = strict_route(msg, kept, target, &way);
        let uri = as_request_uri(&target.uri);
        let config = &self.config;
        let displaced = strict.map(|_| [b"<", &*uri, b">"].concat()).unwrap_or_default();
        let plan = Plan {
            uri: strict.unwrap_or(&uri),
            transport: way.transport,
            sent_by: way.local,
            on_top: &on_top,
            routes_used: kept.routes_used + usize::from(strict.is_some()),
            last_route_used: kept.last_route_used,
            last_route: &displaced,
            max_forwards: kept.max_forwards,
            max_breadth: kept.max_breadth,
            strip_identity: self.strips_identity(pass.flow, way.target.remote().ip(), msg),
            realm: config.realm(kept.realm),
        };
        let start = out.buffer().len();
        forward::request(out.buffer(), msg, pass.via, pass.flow, &plan, |buf| {
            self.write_stateless_branch(buf, pass, kept);
        });
        let report = self.keep_for_another_way(pass, kept, target, &way);
        out.finish(start, way.target, report);
        self.stats.forwarded += 1;
        on_top.clear();
        self.scratch = on_top;
    }

    /// Keeps an ACK that goes over a connection while there is another way to its target: should the
    /// connection be gone, nobody would send it again before the 2xx is. Returns the number under which a
    /// failure is to be reported; 0 for none.
    fn keep_for_another_way(
        &mut self,
        pass: &Pass<'_>,
        kept: &Kept,
        target: &RequestTarget,
        way: &Way,
    ) -> u64 {
        let connection = way.flow.is_some_and(|flow| !flow.transport.is_datagram());
        let request = pass.msg.whole();
        if !connection || target.attempts.len() < 2 || request.len() > MAX_RESEND_OCTETS {
            return 0;
        }
        let mut attempts = target.attempts.clone();
        attempts.pop();
        let target = RequestTarget {
            uri: target.uri.clone(),
            path: target.path.clone(),
            attempts,
            ..*target
        };
        if self.resends.len() >= MAX_RESENDS {
            self.resends.pop_front();
        }
        self.resend_serial = self.resend_serial.wrapping_add(1);
        let (flow, kept) = (*pass.flow, *kept);
        let parked = Parked { request: request.to_vec(), flow, kept, target };
        self.resends.push_back((self.resend_serial, parked));
        USER_REPORT | u64::from(self.resend_serial)
    }

    /// What was sent under this number could not be: it goes the next way.
    pub(super) fn resend(&mut self, now: Time, report: u64, out: &mut Outbox) {
        let at =
            self.resends.iter().position(|(serial, _)| u64::from(*serial) == report & !USER_REPORT);
        let Some((_, parked)) = at.and_then(|at| self.resends.remove(at)) else { return };
        let Ok(msg) = ringway_sip::message::parse(&parked.request) else { return };
        let Ok(via) = msg.top_via() else { return };
        let key = self.tx.key(&msg, &via);
        let pass = Pass { now, flow: &parked.flow, msg: &msg, via: &via, key };
        self.forward_to(&pass, &parked.kept, parked.target, out);
    }

    /// The branch: the same for a retransmission, and for the ACK and CANCEL of an INVITE, and
    /// different for another transaction (section 16.11). It carries the way back under a MAC, so that
    /// a response goes to whom the request came from, over the same connection, and nowhere else.
    fn write_stateless_branch(&self, buf: &mut Vec<u8>, pass: &Pass<'_>, kept: &Kept) {
        let mut h = SipHasher13::new_with_key(&self.spiral_key);
        let mut field = |bytes: &[u8]| {
            h.write(bytes);
            h.write_u8(b'\n');
        };
        if pass.via.has_cookie() {
            field(pass.via.branch);
            field(pass.via.host);
            field(&pass.via.port.unwrap_or(0).to_be_bytes());
        } else {
            // RFC 2543. The To tag is left out: the ACK has one where the INVITE has none.
            field(pass.via.element);
            field(pass.msg.request_uri());
            field(pass.msg.from().ok().and_then(|from| from.tag()).unwrap_or_default());
            field(pass.msg.call_id());
            field(&pass.msg.cseq().map_or(0, |cseq| cseq.seq).to_be_bytes());
        }
        buf.extend_from_slice(MAGIC_COOKIE);
        buf.extend_from_slice(STATELESS);
        ringway_sip::write::hex(buf, &h.finish().to_be_bytes());
        if !kept.way_back {
            return;
        }
        buf.push(b'.');
        let (back, _) = self.reply_to(pass.flow, pass.via);
        // Whichever worker's socket it came in at.
        self.tokens.write(buf, &super::targets::own_socket(back, 0));
    }

    fn stateless_way(&mut self, msg: &Message<'_>, kept: &Kept, target: &RequestTarget) -> Found {
        let bytes = match target.attempts.last() {
            Some(Attempt::Flow(flow)) => {
                return Found::Way(Way {
                    target: Target::Flow(*flow),
                    transport: flow.transport,
                    local: flow.local,
                    flow: Some(*flow),
                    any_size: true,
                });
            }
            Some(Attempt::Hop(hop)) => {
                return self.way_to_hop(hop.clone()).map_or(Found::Nowhere, Found::Way);
            }
            // These come second, after a first attempt in a transaction.
            Some(Attempt::Datagram(_) | Attempt::Binding(_)) => return Found::Nowhere,
            Some(Attempt::Via(uri)) => uri.as_bytes(),
            Some(Attempt::Uri) => {
                match Items::new(&target.path).next().or_else(|| next_route(msg, kept)) {
                    Some(route) => NameAddr::parse(route).map_or(&[][..], |r| r.uri),
                    None => &target.uri,
                }
            }
            None => return Found::Nowhere,
        };
        Uri::parse(bytes).map_or(Found::Nowhere, |uri| self.locate_uri(&uri, &target.uri))
    }

    /// A response whose topmost Via is ours but names no transaction: sent on to whom its request came
    /// from, if we forwarded that statelessly (section 16.11).
    pub(super) fn stateless_response(
        &mut self,
        flow: &Flow,
        msg: &Message<'_>,
        via: &Via<'_>,
        out: &mut Outbox,
    ) {
        let back = via
            .branch
            .strip_prefix(MAGIC_COOKIE)
            .and_then(|rest| rest.strip_prefix(STATELESS))
            .and_then(|rest| rest.get(memchr::memchr(b'.', rest)? + 1..))
            .and_then(|token| self.tokens.read(token).ok());
        let (Some(back), true) = (back, msg.items(HeaderId::Via).nth(1).is_some()) else {
            self.stats.stray_responses += 1;
            return;
        };
        let strip = self.strips_identity(flow, back.remote.ip(), msg);
        let to = Target::Flow(self.own_socket(back));
        out.push(to, 0, |buf| forward::response(buf, msg, via, strip));
    }

    /// The targets of a CANCEL whose INVITE may have been forwarded statelessly (section 16.10).
    pub(super) fn stateless_targets(
        &mut self,
        pass: &Pass<'_>,
    ) -> Option<(Kept, Vec<RequestTarget>)> {
        let routed = self.preroute(pass).ok()?;
        let domain = self.own_domain(&routed.uri, pass.flow, routed.is_in_dialog())?;
        if self.config.domains[domain].mode != Mode::Stateless {
            return None;
        }
        let kept = self.validate(pass, &routed, false).ok()?;
        // It cannot be challenged, and cancels nothing but what the same sender began by the same branch.
        let targets = self.local_targets(pass, &routed.uri, domain, &mut Proof::Trusted).ok()?;
        (!targets.is_empty()).then_some((kept, targets))
    }

    pub(super) fn forward_cancel(
        &mut self,
        pass: &Pass<'_>,
        (kept, targets): (Kept, Vec<RequestTarget>),
        out: &mut Outbox,
    ) {
        debug_assert!(pass.msg.method() == Method::Cancel);
        self.forward_statelessly(pass, &kept, targets, out);
    }
}

fn strict_route<'a>(
    msg: &Message<'a>,
    kept: &Kept,
    target: &RequestTarget,
    way: &Way,
) -> Option<&'a [u8]> {
    if !target.path.is_empty() || way.flow.is_some() {
        return None;
    }
    let route = NameAddr::parse(next_route(msg, kept)?).ok()?;
    let uri = Uri::parse(route.uri).ok()?;
    (!uri.is_loose_router()).then_some(route.uri)
}
