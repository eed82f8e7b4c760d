//! Determining request targets: RFC 3261 section 16.5.

use super::access::{Access, unvouched};
use super::contacts::{self, Located};
use super::preroute::{Maddr, RequestRoute};
use crate::core::dialogs::TargetMatch;
use crate::core::kept;
use crate::core::names::{default_port, has_ob, is_websocket, next_host, plain_user, user_of};
use crate::core::node::Aor;
use crate::core::proof::Proof;
use crate::core::refusal::{Refusal, Stop};
use crate::core::request::IncomingRequest;
use crate::core::target::{Attempt, Origin, RequestTarget};
use crate::core::turn::Turn;
use crate::local_identity::parse_ip;
use crate::routes::{self, RouteTable, Rule};
use ringway_sansio::{Flow, Transport};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::uri::{Scheme, Uri};
use ringway_sip::write;
use smallvec::{SmallVec, smallvec};
use std::net::IpAddr;
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

/// Returns whether a user of this name exists, here or at another server. It stops with a question if another server may
/// have the user; if that cannot be answered, the user is taken to exist.
pub(in crate::core) fn exists(
    access: &Access,
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    domain: usize,
) -> Result<bool, Stop> {
    let user = user_of(uri).unwrap_or_default();
    if user.len() > MAX_USER {
        return Ok(false);
    }
    let located = contacts::of_user(t, incoming, uri, &t.node.aor(user, domain))?;
    let name = &t.node.domain(domain).name;
    Ok(!located.targets.is_empty()
        || located.exists
        || located.incomplete
        || access.has_user(&plain_user(user), name))
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
    let router = node.trust.sender(incoming).is_some();
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
    if node.trust.node(incoming).is_some() {
        // The flow has closed, and that is not known there yet: RFC 5626 section 5.3.1.
        return Err(Refusal::new(430, "Flow Failed").into());
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
    if t.node.trust.sender(incoming).is_some() {
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
    if let Some(detour) = &routed.detour {
        return Ok(vec![by_detour(incoming, routed, detour)]);
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
    let target = RequestTarget { local, ..RequestTarget::remote(uri, Origin::Request, attempts) };
    Ok(vec![past_router(t, incoming, routed, target)])
}

/// Returns the party of a dialog as a target that has moved to another router. What is left of the Route leads to where it
/// was when the dialog began.
fn by_detour(
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
    detour: &[u8],
) -> RequestTarget {
    let routes = incoming.msg.items(HeaderId::Route).count();
    let used = routed.routes_used + usize::from(routed.last_route_used);
    RequestTarget {
        path: detour.to_vec(),
        routes_replaced: routes.saturating_sub(used),
        ..RequestTarget::remote(
            routed.uri_bytes.to_vec(),
            Origin::Elsewhere,
            smallvec![Attempt::Uri],
        )
    }
}

/// Adds an attempt past the router that the Route of a target leads to, for a phone that has come from there in the middle
/// of a call: the router may be gone. All routers are one server, so the next one is as good, if its own mark lets the
/// request pass. A router that has just failed is not tried.
fn past_router(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
    target: RequestTarget,
) -> RequestTarget {
    let in_dialog = incoming.msg.to().is_ok_and(|to| to.tag().is_some());
    let Some((router, count)) = routes_of_router(t, incoming, routed).filter(|_| in_dialog) else {
        return target;
    };
    let past = RequestTarget { routes_replaced: count, ..target.clone() };
    if t.node.gateways.has_failed(t.now, &router.to_string()) {
        return past;
    }
    let attempts = smallvec![Attempt::Binding(Box::new(past)), Attempt::Uri];
    RequestTarget { attempts, ..target }
}

/// Returns the router of the mesh that the Route of a request of a phone leads to, and the number of its elements before
/// those of another router; `None` if it leads elsewhere.
fn routes_of_router(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
) -> Option<(IpAddr, usize)> {
    let mesh = t.node.config.mesh.filter(|_| !routed.is_in_dialog() && routed.next.is_some())?;
    let router_of = |item: &[u8]| {
        let uri = Uri::parse(NameAddr::parse(item).ok()?.uri).ok()?;
        parse_ip(next_host(&uri)).filter(|&ip| mesh.is_other_router(ip))
    };
    let routes = || incoming.msg.items(HeaderId::Route).skip(routed.routes_used).map(router_of);
    let first = routes().next()??;
    let count = routes().take_while(|router| *router == Some(first)).count();
    routes().nth(count)??;
    Some((first, count))
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
