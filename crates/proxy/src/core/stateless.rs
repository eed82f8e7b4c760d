//! Stateless forwarding: RFC 3261 section 16.11, and the ACK for a 2xx, which is a transaction of
//! its own without an answer (section 16.7, RFC 6026).

use super::branch::{Found, Way, as_request_uri, has_lr, next_route};
use super::context::{Goal, Kept, Try};
use super::validate::Proof;
use super::{Core, Event, Hop, MAX_RESOLVING, Pass, ResolveTarget};
use crate::config::Mode;
use crate::forward::{self, Plan};
use ringway_sansio::{Flow, Outbox, Target, Time};
use ringway_sip::header::{HeaderId, Items, NameAddr, Via};
use ringway_sip::message::{Message, Method};
use ringway_sip::transaction::id::MAGIC_COOKIE;
use ringway_sip::uri::Uri;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// A request that waits for server location: the ACK of a call to a host name, say.
pub(super) struct Parked {
    request: Vec<u8>,
    flow: Flow,
    kept: Kept,
    goal: Goal,
}

/// Marks the numbers of parked requests among those of branches.
pub(super) const PARKED: u64 = 1 << 63;

/// Tells branches of stateless forwarding from those of transactions.
const STATELESS: &[u8] = b"-s";

impl Core {
    /// Sends a request on without keeping anything: only ever to the first goal, so that the same
    /// request always takes the same way (section 16.11).
    pub(super) fn forward_statelessly(
        &mut self,
        pass: &Pass<'_>,
        kept: &Kept,
        goals: Vec<Goal>,
        out: &mut Outbox,
    ) {
        let Some(goal) = goals.into_iter().next() else {
            return self.refuse(pass, 480, "", &[], out);
        };
        match self.stateless_way(pass.msg, kept, &goal) {
            Found::Way(way) if self.is_barred(pass.now, &goal, kept.privileged, &way) => {
                self.stats.forbidden += 1;
                self.refuse(pass, 403, "Forbidden", &[], out);
            }
            Found::Name(target) if self.is_barred_name(&goal, kept.privileged, &target.host) => {
                self.stats.forbidden += 1;
                self.refuse(pass, 403, "Forbidden", &[], out);
            }
            Found::Way(way) => self.send_statelessly(pass, kept, &goal, way, out),
            Found::Name(target) => self.park(pass, kept, goal, target, out),
            Found::Nowhere => self.refuse(pass, 503, "", &[], out),
        }
    }

    fn park(
        &mut self,
        pass: &Pass<'_>,
        kept: &Kept,
        goal: Goal,
        target: ResolveTarget,
        out: &mut Outbox,
    ) {
        if self.resolving >= MAX_RESOLVING {
            self.stats.limits_hit += 1;
            return self.refuse(pass, 503, "", &[], out);
        }
        if !self.keep(pass.msg.whole()) {
            return self.refuse(pass, 503, "", &[], out);
        }
        self.resolving += 1;
        let request = pass.msg.whole().to_vec();
        let place = self.parked.insert(Parked { request, flow: *pass.flow, kept: *kept, goal });
        let (id, source) = (PARKED | place as u64, pass.flow.remote.ip());
        self.events.push_back(Event::Resolve { id, target, source });
    }

    /// The next hop of a parked request has been located.
    pub(super) fn unpark(&mut self, now: Time, id: u64, hops: &[Hop], out: &mut Outbox) {
        let Some(parked) = self.parked.try_remove((id & !PARKED) as usize) else { return };
        self.let_go(&parked.request);
        let Ok(msg) = ringway_sip::message::parse(&parked.request) else { return };
        let Ok(via) = msg.top_via() else { return };
        let key = self.tx.key(&msg, &via);
        let pass = Pass { now, flow: &parked.flow, msg: &msg, via: &via, key };
        match hops.first().cloned().and_then(|hop| self.way_to_hop(hop)) {
            Some(way) if self.is_barred(now, &parked.goal, parked.kept.privileged, &way) => {
                self.stats.forbidden += 1;
                self.refuse(&pass, 403, "Forbidden", &[], out);
            }
            Some(way) => self.send_statelessly(&pass, &parked.kept, &parked.goal, way, out),
            None => self.refuse(&pass, 503, "", &[], out),
        }
    }

    fn send_statelessly(
        &mut self,
        pass: &Pass<'_>,
        kept: &Kept,
        goal: &Goal,
        way: Way,
        out: &mut Outbox,
    ) {
        let msg = pass.msg;
        let mut on_top = std::mem::take(&mut self.scratch);
        on_top.clear();
        if let Some(Try::Via(uri)) = goal.tries.last() {
            let end: &[u8] = if has_lr(uri) { b">\r\n" } else { b";lr>\r\n" };
            for part in [b"Route: <", uri.as_bytes(), end] {
                on_top.extend_from_slice(part);
            }
        }
        if !goal.path.is_empty() {
            for part in [b"Route: ", goal.path.as_slice(), b"\r\n"] {
                on_top.extend_from_slice(part);
            }
        }
        let strict = strict_route(msg, kept, goal, &way);
        let uri = as_request_uri(&goal.uri);
        let config = &self.config;
        let displaced = [b"<", &*uri, b">"].concat();
        let plan = Plan {
            uri: strict.unwrap_or(&uri),
            transport: way.transport,
            sent_by: way.local,
            on_top: &on_top,
            routes_used: kept.routes_used + usize::from(strict.is_some()),
            last_route_used: kept.last_route_used,
            last_route: if strict.is_some() { &displaced } else { &[] },
            max_forwards: kept.max_forwards,
            max_breadth: kept.max_breadth,
            realm: config.realm(kept.realm),
        };
        let start = out.buffer().len();
        forward::request(out.buffer(), msg, pass.via, pass.flow, &plan, |buf| {
            self.write_stateless_branch(buf, pass);
        });
        out.finish(start, way.target, 0);
        self.stats.forwarded += 1;
        on_top.clear();
        self.scratch = on_top;
    }

    /// The branch: the same for a retransmission, and for the ACK and CANCEL of an INVITE, and
    /// different for another transaction (section 16.11). It carries the way back under a MAC, so that
    /// a response goes to whom the request came from, over the same connection, and nowhere else.
    fn write_stateless_branch(&self, buf: &mut Vec<u8>, pass: &Pass<'_>) {
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
        buf.push(b'.');
        let (back, _) = self.reply_to(pass.flow, pass.via);
        // Whichever worker's socket it came in at.
        self.tokens.write(buf, &super::targets::own_socket(back, 0));
    }

    fn stateless_way(&mut self, msg: &Message<'_>, kept: &Kept, goal: &Goal) -> Found {
        let bytes = match goal.tries.last() {
            Some(Try::Flow(flow)) => {
                return Found::Way(Way {
                    target: Target::Flow(*flow),
                    transport: flow.transport,
                    local: flow.local,
                    flow: Some(*flow),
                    any_size: true,
                });
            }
            Some(Try::Hop(hop)) => {
                return self.way_to_hop(hop.clone()).map_or(Found::Nowhere, Found::Way);
            }
            // These come second, after a first try in a transaction.
            Some(Try::Datagram(_) | Try::Binding(_)) => return Found::Nowhere,
            Some(Try::Via(uri)) => uri.as_bytes(),
            Some(Try::Uri) => {
                match Items::new(&goal.path).next().or_else(|| next_route(msg, kept)) {
                    Some(route) => NameAddr::parse(route).map_or(&[][..], |r| r.uri),
                    None => &goal.uri,
                }
            }
            None => return Found::Nowhere,
        };
        Uri::parse(bytes).map_or(Found::Nowhere, |uri| self.locate_uri(&uri, &goal.uri))
    }

    /// A response whose topmost Via is ours but names no transaction: sent on to whom its request came
    /// from, if we forwarded that statelessly (section 16.11).
    pub(super) fn stateless_response(
        &mut self,
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
        let to = Target::Flow(self.own_socket(back));
        out.push(to, 0, |buf| forward::response(buf, msg, via));
    }

    /// The goals of a CANCEL whose INVITE may have been forwarded statelessly (section 16.10).
    pub(super) fn stateless_goals(&mut self, pass: &Pass<'_>) -> Option<(Kept, Vec<Goal>)> {
        let routed = self.preroute(pass).ok()?;
        let domain = self.own_domain(&routed.uri, pass.flow, routed.marked)?;
        if self.config.domains[domain].mode != Mode::Stateless {
            return None;
        }
        let kept = self.validate(pass, &routed, false).ok()?;
        // It cannot be challenged, and cancels nothing but what the same sender began by the same branch.
        let goals = self.local_goals(pass, &routed.uri, domain, &mut Proof::Trusted).ok()?;
        (!goals.is_empty()).then_some((kept, goals))
    }

    pub(super) fn forward_cancel(
        &mut self,
        pass: &Pass<'_>,
        (kept, goals): (Kept, Vec<Goal>),
        out: &mut Outbox,
    ) {
        debug_assert!(pass.msg.method() == Method::Cancel);
        self.forward_statelessly(pass, &kept, goals, out);
    }
}

fn strict_route<'a>(msg: &Message<'a>, kept: &Kept, goal: &Goal, way: &Way) -> Option<&'a [u8]> {
    if !goal.path.is_empty() || way.flow.is_some() {
        return None;
    }
    let route = NameAddr::parse(next_route(msg, kept)?).ok()?;
    let uri = Uri::parse(route.uri).ok()?;
    (!uri.is_loose_router()).then_some(route.uri)
}
