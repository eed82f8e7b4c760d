//! Determining request targets: RFC 3261 section 16.5.

use super::access::{Access, unvouched};
use super::contacts::{self, Located};
use super::preroute::{Maddr, RequestRoute};
use crate::core::dialogs::TargetMatch;
use crate::core::kept;
use crate::core::names::{default_port, has_ob, is_websocket, plain_user, user_of};
use crate::core::node::Aor;
use crate::core::proof::Proof;
use crate::core::refusal::{Refusal, Stop};
use crate::core::request::IncomingRequest;
use crate::core::target::{Attempt, Origin, RequestTarget};
use crate::core::turn::Turn;
use crate::routes::{self, RouteTable, Rule};
use ringway_sansio::{Flow, Transport};
use ringway_sip::uri::{Scheme, Uri};
use ringway_sip::write;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The length above which a user part matches no user.
const MAX_USER: usize = 512;

/// Returns the targets of a request for a user at a domain of ours. If a routing rule applies, its sender may have to
/// prove more: `proof` is then updated. It stops with a question if the user may be registered elsewhere.
pub(in crate::core) fn local(
    access: &mut Access,
    t: &mut Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    domain: usize,
    proof: &mut Proof,
) -> Result<Vec<RequestTarget>, Stop> {
    let user = user_of(uri).unwrap_or_default();
    if user.len() > MAX_USER {
        return Err(Refusal::new(414, "Request-URI Too Long").into());
    }
    let located = match uri.param(b"gr") {
        Some(_) => contacts::of_gruu(t, incoming, uri, domain)?,
        None => contacts::of_user(t, incoming, uri, &t.node.aor(user, domain))?,
    };
    if located.targets.is_empty() {
        return unregistered(access, t, incoming, uri, domain, proof, &located);
    }
    let mut targets = located.targets;
    if uri.scheme == Scheme::Sips {
        targets.retain_mut(contacts::is_secure);
        if targets.is_empty() {
            return Err(sips_not_allowed(&t.node.domain(0).name).into());
        }
    }
    Ok(targets)
}

/// Returns the contacts of an address-of-record, and the servers elsewhere at which it is registered.
pub(in crate::core) fn of_user(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    aor: &[u8],
) -> Result<Vec<RequestTarget>, Stop> {
    Ok(contacts::of_user(t, incoming, uri, &Aor::from_slice(aor))?.targets)
}

/// Returns the refusal of RFC 5630 section 5.3: a request to a `sips` URI is never forwarded without encryption.
fn sips_not_allowed(name: &str) -> Refusal {
    let headers = format!("Warning: 380 {name} \"SIPS Not Allowed\"\r\n").into_bytes();
    Refusal { status: 480, reason: "Temporarily Unavailable", headers }
}

/// Returns the targets of a request for a user without contacts: by the routing table, or none.
fn unregistered(
    access: &mut Access,
    t: &mut Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    domain: usize,
    proof: &mut Proof,
    located: &Located,
) -> Result<Vec<RequestTarget>, Stop> {
    let (node, user) = (t.node, user_of(uri).unwrap_or_default());
    let name = &node.domain(domain).name;
    let router = node.trust.router(incoming.flow).is_some();
    let own = node.config.routes.find(true, name.as_bytes(), user);
    if let Some(rule) = own.filter(|rule| !router || rule.shared.is_some()) {
        prove_for_rule(access, t, incoming, domain, proof, rule)?;
        return Ok(by_rule(t, rule, uri, name.as_bytes(), Origin::Rule)?);
    }
    let shared = shared_rules(t, incoming)?;
    let found = shared.as_ref().and_then(|rules| rules.find(true, name.as_bytes(), user));
    if let Some(rule) = found {
        prove_for_rule(access, t, incoming, domain, proof, rule)?;
        return Ok(by_rule(t, rule, uri, name.as_bytes(), Origin::Shared)?);
    }
    if located.incomplete || shared.is_none() {
        Err(Refusal::unanswered().into())
    } else if located.exists || access.has_user(&plain_user(user), name) {
        // The user exists, but has no contacts now.
        if let Some(question) = kept::question(t, incoming, uri, domain, proof) {
            return Err(Stop::Asks { question, proof: None });
        }
        Err(Refusal::new(480, "Temporarily Unavailable").into())
    } else {
        Err(Refusal::new(404, "Not Found").into())
    }
}

/// Asks for the proof that a rule of our domain requires: it leads to calls that cost money, so its user must be
/// authenticated.
fn prove_for_rule(
    access: &mut Access,
    t: &mut Turn<'_>,
    incoming: &IncomingRequest<'_>,
    domain: usize,
    proof: &mut Proof,
    rule: &Rule,
) -> Result<(), Stop> {
    match proof {
        Proof::Router { vouched: false } => return Err(unvouched(t).into()),
        Proof::None | Proof::Dialog if !rule.open && rule.reject.is_none() => {
            *proof = access.demand_proof(t, incoming, domain)?;
        }
        _ => {}
    }
    Ok(())
}

/// Returns the routing rules that other servers share; `None` if they could not be found out. A request of another
/// router goes by the rules of this one alone, so that it cannot circle among gateways.
fn shared_rules(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
) -> Result<Option<Arc<RouteTable>>, Stop> {
    if t.node.trust.router(incoming.flow).is_some() {
        return Ok(Some(Arc::default()));
    }
    match t.store.shared_rules(t.now) {
        Some(rules) => Ok(Some(rules)),
        None if incoming.may_ask_for_rules(t.now) => Err(Stop::rules()),
        None => Ok(None),
    }
}

/// Returns the target of a request for none of our domains, or for a user within a dialog.
pub(in crate::core) fn remote(
    t: &mut Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
) -> Result<Vec<RequestTarget>, Stop> {
    let node = t.node;
    if let Some(rule) = routed.foreign_rule(&node.config.routes) {
        return Ok(by_rule(t, rule, &routed.uri, routed.uri.host, Origin::Rule)?);
    }
    if routed.may_follow_rule() {
        // Without an answer the server of the domain itself is tried.
        let shared = shared_rules(t, incoming)?.unwrap_or_default();
        if let Some(rule) = routed.foreign_rule(&shared) {
            return Ok(by_rule(t, rule, &routed.uri, routed.uri.host, Origin::Shared)?);
        }
    }
    let uri = match routed.maddr {
        Maddr::Ours => without_maddr(&routed.uri, routed.uri_bytes),
        _ => routed.uri_bytes.to_vec(),
    };
    let attempts = match routed.flow {
        Some(flow) => {
            let mut attempts = attempts_without_flow(t, incoming, routed, &flow);
            attempts.push(Attempt::Flow(node.own_socket(flow)));
            attempts
        }
        None => attempts_to_uri(t, incoming, routed),
    };
    // The party of a dialog knows the Route before it.
    let local = routed.local.filter(|_| routed.is_in_dialog() && routed.next.is_none());
    Ok(vec![RequestTarget { local, ..RequestTarget::remote(uri, Origin::Request, attempts) }])
}

/// Returns the attempts for the Request-URI or a Route. The connection that the user of a dialog has registered on
/// comes first, because it is open already.
fn attempts_to_uri(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
) -> SmallVec<[Attempt; 1]> {
    let mut attempts = smallvec![Attempt::Uri];
    if routed.is_in_dialog()
        && routed.next.is_none()
        && routed.uri.transport().is_some_and(|t| !t.is_datagram())
        && let Some(flow) = contacts::registered_flow(t, incoming, &routed.uri, None)
    {
        attempts.push(Attempt::Flow(flow));
    }
    attempts
}

/// Returns the attempts for a request of a dialog whose flow has closed, in reverse order. First comes the flow that
/// the user has registered on meanwhile. Then comes the Request-URI over a new connection (RFC 3261 section 18.1.1), if
/// a phone can be expected there. A phone that has negotiated Outbound is reached by its flows only (RFC 5626 section
/// 5.3), and a WebSocket cannot be opened (RFC 7118 section 5).
fn attempts_without_flow(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
    gone: &Flow,
) -> SmallVec<[Attempt; 1]> {
    let mut attempts = SmallVec::new();
    let bound = has_ob(&routed.uri) || is_websocket(gone.transport);
    if routed.target_match != TargetMatch::No && !bound && !gone.transport.is_datagram() {
        attempts.push(Attempt::Uri);
    }
    if let Some(flow) = contacts::registered_flow(t, incoming, &routed.uri, Some(gone)) {
        attempts.push(Attempt::Flow(flow));
    }
    attempts
}

/// Returns the target that a routing rule makes of a Request-URI at this host.
fn by_rule(
    t: &mut Turn<'_>,
    rule: &Rule,
    uri: &Uri<'_>,
    host: &[u8],
    origin: Origin,
) -> Result<Vec<RequestTarget>, Refusal> {
    if let Some(status) = rule.reject {
        return Err(Refusal::new(status, write::reason_phrase(status)));
    }
    let mut new = Vec::with_capacity(64);
    new.extend_from_slice(if uri.scheme == Scheme::Sips { b"sips:" } else { b"sip:" });
    rule.rewrite.user(user_of(uri).unwrap_or_default(), &mut new);
    if new.last() != Some(&b':') {
        new.push(b'@');
    }
    match &rule.rewrite.domain {
        Some(domain) => new.extend_from_slice(domain.as_bytes()),
        None => {
            new.extend_from_slice(host);
            if let Some(port) = uri.port {
                new.push(b':');
                write::decimal(&mut new, u64::from(port));
            }
        }
    }
    let mut order = Vec::new();
    routes::order(&rule.next_hops, t.random, &mut order);
    t.node.gateways.failed_last(t.now, rule, &mut order);
    let mut attempts: SmallVec<[Attempt; 1]> =
        order.iter().rev().map(|&i| Attempt::Via(rule.next_hops[i].uri.clone())).collect();
    if attempts.is_empty() {
        attempts.push(Attempt::Uri);
    }
    Ok(vec![RequestTarget::remote(new, origin, attempts)])
}

/// Returns a URI without the maddr that led here, and without its port and transport unless they equal the defaults
/// (section 16.4).
fn without_maddr(uri: &Uri<'_>, bytes: &[u8]) -> Vec<u8> {
    let transport = uri.transport().filter(|&t| t != Transport::Udp);
    let end = bytes.len() - uri.params.len();
    // The port, if any, stands directly before the parameters.
    let port = match uri.port {
        Some(port) if port != default_port(uri) => {
            bytes[..end].iter().rev().take_while(|b| b.is_ascii_digit()).count() + 1
        }
        _ => 0,
    };
    let mut plain = bytes[..end - port].to_vec();
    for (name, value) in uri.params() {
        if name.eq_ignore_ascii_case(b"maddr")
            || transport.is_some() && name.eq_ignore_ascii_case(b"transport")
        {
            continue;
        }
        plain.push(b';');
        plain.extend_from_slice(name);
        if let Some(value) = value {
            plain.push(b'=');
            plain.extend_from_slice(value);
        }
    }
    plain
}
