//! Stateless forwarding: RFC 3261 section 16.11, and the ACK for a 2xx, which is a transaction of its own without a
//! response (section 16.7, RFC 6026).

use super::events::ResolveTarget;
use super::forwarding::{self, ForwardRequest};
use super::ids::ResolveUser;
use super::locator::{Destination, Lookup};
use super::node::own_socket;
use super::request::{Findings, IncomingRequest};
use super::target::{Attempt, RequestTarget};
use super::turn::Turn;
use crate::forward;
use ringway_sansio::{Flow, Hop, Target};
use ringway_sip::header::{HeaderId, Via};
use ringway_sip::message::{self, Message};
use ringway_sip::transaction::Report;
use ringway_sip::transaction::id::MAGIC_COOKIE;
use siphasher::sip::SipHasher13;
use slab::Slab;
use std::collections::VecDeque;
use std::hash::Hasher;

/// A request that waits for server location, or that may need another attempt, such as the ACK of a call.
struct PendingRequest {
    request: Vec<u8>,
    flow: Flow,
    findings: Findings,
    target: RequestTarget,
}

/// The number of ACKs stored for another attempt. The oldest is evicted.
const MAX_RESENDS: usize = 1024;

/// The size above which an ACK is not stored for another attempt.
const MAX_RESEND_OCTETS: usize = 4096;

/// The prefix that distinguishes branches of stateless forwarding from those of transactions.
const STATELESS: &[u8] = b"-s";

/// Requests that are forwarded without a transaction.
pub(super) struct Stateless {
    /// The key of the branches.
    key: [u8; 16],
    /// Requests that wait for server location.
    parked: Slab<PendingRequest>,
    /// ACKs that may need another attempt, by report number.
    resends: VecDeque<(u32, PendingRequest)>,
    /// The number of the last of them.
    serial: u32,
}

impl Stateless {
    pub(super) fn new(key: [u8; 16]) -> Stateless {
        Stateless { key, parked: Slab::new(), resends: VecDeque::new(), serial: 0 }
    }

    /// Forwards a request without state: always to the first target, so that the same request always takes the same
    /// path (section 16.11).
    pub(super) fn forward(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        findings: &Findings,
        targets: Vec<RequestTarget>,
    ) {
        let Some(target) = targets.into_iter().next() else {
            return t.refuse(incoming, 480, "", &[]);
        };
        if let Some(server) = incoming.server() {
            // It has waited for an answer of the world. From now on its responses belong to no transaction.
            t.tx.drop_server(server);
        }
        let incoming = IncomingRequest { progress: None, ..*incoming };
        self.forward_to(t, &incoming, findings, &target);
    }

    fn forward_to(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        findings: &Findings,
        target: &RequestTarget,
    ) {
        let found = target.attempts.last().map_or(Lookup::Unreachable, |attempt| {
            forwarding::locate_attempt(t.locator, attempt, incoming.msg, findings, target)
        });
        match found {
            Lookup::Destination(destination) => {
                self.send_if_allowed(t, incoming, findings, target, destination)
            }
            Lookup::Name(name) if t.node.forbids_name(target, findings.privileged, &name.host) => {
                t.stats.forbidden += 1;
                t.refuse(incoming, 403, "Forbidden", &[]);
            }
            Lookup::Name(name) => self.park(t, incoming, findings, target, name),
            Lookup::Unreachable => t.refuse(incoming, 503, "", &[]),
        }
    }

    fn park(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        findings: &Findings,
        target: &RequestTarget,
        name: ResolveTarget,
    ) {
        if t.locator.is_full() {
            t.stats.limits_hit += 1;
            return t.refuse(incoming, 503, "", &[]);
        }
        if !t.reserve_budget(incoming.msg, incoming.flow, None, findings.is_known()) {
            return t.refuse(incoming, 503, "", &[]);
        }
        let waiting = ResolveUser::Stateless(self.parked.vacant_key() as u32);
        let asked = t.ask(waiting, name, incoming.flow.remote.ip());
        debug_assert!(asked, "there is room");
        let (request, flow) = (incoming.msg.whole().to_vec(), *incoming.flow);
        let (findings, target) = (findings.clone(), target.clone());
        self.parked.insert(PendingRequest { request, flow, findings, target });
    }

    /// Sends a waiting request to its located next hop. No hops mean that there is none.
    pub(super) fn resolved(&mut self, t: &mut Turn<'_>, index: u32, hops: &[Hop]) {
        let Some(parked) = self.parked.try_remove(index as usize) else { return };
        t.release_budget(parked.request.len(), &parked.flow, None);
        let destination = hops.first().cloned().and_then(|hop| t.locator.destination_of(hop));
        parked.read(t, |t, incoming| match destination {
            Some(destination) => {
                self.send_if_allowed(t, incoming, &parked.findings, &parked.target, destination)
            }
            None => t.refuse(incoming, 503, "", &[]),
        });
    }

    fn send_if_allowed(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        findings: &Findings,
        target: &RequestTarget,
        destination: Destination,
    ) {
        if t.node.forbids(t.now, target, findings.privileged, &destination) {
            t.stats.forbidden += 1;
            return t.refuse(incoming, 403, "Forbidden", &[]);
        }
        let IncomingRequest { msg, via, flow, .. } = *incoming;
        let body = match t.node.relay_request(t.now, msg, flow, &destination, None) {
            Ok(body) => body,
            Err(refusal) => {
                t.stats.limits_hit += 1;
                return t.refuse(incoming, refusal.status(), "", &[]);
            }
        };
        t.node.gateways.note_destination(t.now, &t.node.trust, target, &destination);
        let (node, max_breadth) = (t.node, findings.max_breadth);
        let through = match target.attempts.last() {
            Some(Attempt::Via(uri)) => Some(&**uri),
            _ => None,
        };
        let forwarded = ForwardRequest {
            msg,
            via,
            flow,
            findings,
            target,
            through,
            destination: &destination,
            max_breadth,
            body: body.as_deref(),
        };
        let start = t.out.buffer().len();
        let branch = |buf: &mut Vec<u8>| {
            write_branch(buf, &self.key, incoming);
            if findings.return_path {
                buf.push(b'.');
                let (back, _) = node.reply_to(flow, via);
                // The socket of any worker counts.
                node.tokens.write(buf, &own_socket(back, 0));
            }
        };
        forwarded.write(t.out.buffer(), node, |_| {}, branch);
        let report = self.keep_for_another_way(incoming, findings, target, &destination);
        t.out.finish(start, destination.into_target(), report.map_or(0, Report::to_u64));
        t.stats.forwarded += 1;
    }

    /// Stores an ACK that is sent over a connection while its target has another attempt left. If the connection has
    /// closed, the ACK would be sent again only after the next 2xx. Returns the number under which a failure is
    /// reported.
    fn keep_for_another_way(
        &mut self,
        incoming: &IncomingRequest<'_>,
        findings: &Findings,
        target: &RequestTarget,
        destination: &Destination,
    ) -> Option<Report> {
        let connection = destination.flow.is_some_and(|flow| !flow.transport.is_datagram());
        let request = incoming.msg.whole();
        if !connection || target.attempts.len() < 2 || request.len() > MAX_RESEND_OCTETS {
            return None;
        }
        let mut target = target.clone();
        target.attempts.pop();
        if self.resends.len() >= MAX_RESENDS {
            self.resends.pop_front();
        }
        self.serial = self.serial.wrapping_add(1);
        let (request, flow, findings) = (request.to_vec(), *incoming.flow, findings.clone());
        self.resends.push_back((self.serial, PendingRequest { request, flow, findings, target }));
        Some(Report::User(self.serial))
    }

    /// Sends the ACK of this number by its next attempt, because it could not be sent.
    pub(super) fn resend(&mut self, t: &mut Turn<'_>, number: u32) {
        let at = self.resends.iter().position(|(serial, _)| *serial == number);
        let Some((_, parked)) = at.and_then(|at| self.resends.remove(at)) else { return };
        parked.read(t, |t, incoming| {
            self.forward_to(t, incoming, &parked.findings, &parked.target);
        });
    }
}

impl PendingRequest {
    /// Runs `f` with the request, parsed again.
    fn read(&self, t: &mut Turn<'_>, f: impl FnOnce(&mut Turn<'_>, &IncomingRequest<'_>)) {
        let Ok(msg) = message::parse(&self.request) else { return };
        let Ok(via) = msg.top_via() else { return };
        let key = t.tx.key(&msg, &via);
        let flow = &self.flow;
        f(t, &IncomingRequest { flow, msg: &msg, via: &via, key, progress: None });
    }
}

/// Appends the branch. It is the same for a retransmission and for the ACK and CANCEL of an INVITE, and different for
/// another transaction (section 16.11). It is followed by the return path under a MAC, so that a response is sent only
/// to the sender of the request, over the same connection.
fn write_branch(buf: &mut Vec<u8>, key: &[u8; 16], incoming: &IncomingRequest<'_>) {
    let mut h = SipHasher13::new_with_key(key);
    let mut field = |bytes: &[u8]| {
        h.write(bytes);
        h.write_u8(b'\n');
    };
    if incoming.via.has_cookie() {
        field(incoming.via.branch);
        field(incoming.via.host);
        field(&incoming.via.port.unwrap_or(0).to_be_bytes());
    } else {
        // RFC 2543. The To tag is left out: the ACK has one and the INVITE has none.
        field(incoming.via.element);
        field(incoming.msg.request_uri());
        field(incoming.msg.from().ok().and_then(|from| from.tag()).unwrap_or_default());
        field(incoming.msg.call_id());
        field(&incoming.msg.cseq().map_or(0, |cseq| cseq.seq).to_be_bytes());
    }
    buf.extend_from_slice(MAGIC_COOKIE);
    buf.extend_from_slice(STATELESS);
    ringway_sip::write::hex(buf, &h.finish().to_be_bytes());
}

/// Forwards a response whose topmost Via is ours but that matches no transaction: to the sender of its request, if that
/// was forwarded statelessly (section 16.11).
pub(super) fn forward_response(t: &mut Turn<'_>, flow: &Flow, msg: &Message<'_>, via: &Via<'_>) {
    let back = via
        .branch
        .strip_prefix(MAGIC_COOKIE)
        .and_then(|rest| rest.strip_prefix(STATELESS))
        .and_then(|rest| rest.get(memchr::memchr(b'.', rest)? + 1..))
        .and_then(|token| t.node.tokens.read(token).ok());
    let (Some(back), true) = (back, msg.items(HeaderId::Via).nth(1).is_some()) else {
        t.stats.stray_responses += 1;
        return;
    };
    let strip = t.node.trust.strips_identity(flow, back.remote.ip(), msg);
    let body = t.node.relay_response(t.now, msg, flow, &back, None);
    let to = Target::Flow(t.node.own_socket(back));
    t.out.push(to, 0, |buf| forward::response(buf, msg, via, strip, body.as_deref()));
}
