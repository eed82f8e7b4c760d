//! The location service (RFC 3261 section 16.5): contacts and flows of users as targets.

use crate::core::names::{is_websocket, user_of};
use crate::core::node::{Aor, Node};
use crate::core::refusal::Refusal;
use crate::core::request::IncomingRequest;
use crate::core::target::{Attempt, Origin, RequestTarget};
use crate::core::turn::Turn;
use crate::gruu::Resolution;
use crate::location::BindingView;
use ringway_sansio::{Flow, Transport};
use ringway_sip::header::{Items, NameAddr};
use ringway_sip::uri::{Scheme, Uri};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use std::hash::Hasher;

/// The number of users looked up for one request, if contacts are other users of ours.
const MAX_LOOKUPS: usize = 16;

/// Returns the contacts of an address-of-record. A contact that is another user at a domain of ours stands for that
/// user's contacts (RFC 3261 section 16.5: a target for which we are responsible may be located in turn).
pub(super) fn of_user(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    aor: &Aor,
) -> Vec<RequestTarget> {
    let mut targets = Vec::new();
    add_contacts(t, incoming, aor, None, &mut Vec::new(), &mut targets);
    targets.truncate(t.node.config.limits.max_forks);
    targets
}

/// Returns the contacts of the instance that a GRUU names (RFC 5627 section 5.1).
pub(super) fn of_gruu(
    t: &Turn<'_>,
    uri: &Uri<'_>,
    domain: usize,
) -> Result<Vec<RequestTarget>, Refusal> {
    let mut named = Vec::new();
    let Resolution::Gruu(gruu) = t.node.gruus.resolve(uri, &mut named) else {
        return Err(Refusal::new(404, "Not Found"));
    };
    let user = Uri::parse(&named).ok().and_then(|u| u.user);
    let aor = t.node.aor(user.unwrap_or_default(), domain);
    let targets = contacts(t, &aor, &|binding| gruu.matches(binding));
    // Section 5.1: of several bindings of an instance the most recent one. Flows of Outbound are one target already.
    let mut newest = None;
    t.store.lookup(&aor, t.now, &mut |binding| {
        if newest.is_none() && gruu.matches(binding) {
            newest = Some(binding.contact.to_vec());
        }
    });
    let newest = targets.into_iter().find(|target| Some(&target.uri) == newest.as_ref());
    newest.map(|target| vec![target]).ok_or_else(|| Refusal::new(gruu.unbound_status(), ""))
}

/// Returns the flow on which the user of To has registered the phone of this Request-URI, if it differs from the closed
/// one: the flow of the same Contact, or else the only one.
pub(super) fn registered_flow(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    target: &Uri<'_>,
    gone: Option<&Flow>,
) -> Option<Flow> {
    let to = incoming.msg.to().ok().and_then(|to| Uri::parse(to.uri).ok())?;
    let domain = t.node.identity.domain(to.host)?;
    let aor = t.node.aor(to.user?, domain);
    let (mut same, mut only, mut count) = (None, None, 0);
    t.store.lookup(&aor, t.now, &mut |binding| {
        let usable = |flow: &Flow| match gone {
            Some(gone) => flow != gone,
            None => Some(flow.transport) == target.transport(),
        };
        let Some(flow) = binding.over_flow().filter(usable) else { return };
        count += 1;
        only = Some(flow);
        let contact = Uri::parse(binding.contact);
        if contact.is_ok_and(|c| c.user == target.user && c.host.eq_ignore_ascii_case(target.host))
        {
            same = Some(flow);
        }
    });
    let flow = same.or(only.filter(|_| count == 1 && gone.is_some()));
    flow.map(|flow| t.node.own_socket(flow))
}

/// Adds the contacts of an address-of-record to `targets`. `seen` are the users looked up so far. Each is looked up
/// once, and no target is added twice.
fn add_contacts(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    aor: &Aor,
    q: Option<u16>,
    seen: &mut Vec<Aor>,
    targets: &mut Vec<RequestTarget>,
) {
    for mut target in contacts(t, aor, &|_| true) {
        target.q = q.unwrap_or(target.q);
        match own_contact(t.node, incoming, &mut target) {
            OwnContact::No if targets.contains(&target) => {}
            OwnContact::No => targets.push(target),
            OwnContact::Nobody => {}
            OwnContact::User(next) => {
                if seen.is_empty() {
                    seen.push(aor.clone());
                }
                if seen.len() < MAX_LOOKUPS && !seen.contains(&next) {
                    seen.push(next.clone());
                    add_contacts(t, incoming, &next, Some(target.q), seen, targets);
                }
            }
        }
    }
}

/// What a contact means that may be an address of ours.
enum OwnContact {
    /// It leads elsewhere.
    No,
    /// It is this address-of-record of ours.
    User(Aor),
    /// It is this server, and no user.
    Nobody,
}

/// Returns whether a contact leads back to this server. It is never sent there: a user of ours is looked up here, and
/// any other is not reachable, least of all by a routing rule. A contact with a flow is reached over it, whatever its
/// URI.
fn own_contact(
    node: &Node,
    incoming: &IncomingRequest<'_>,
    target: &mut RequestTarget,
) -> OwnContact {
    if !target.path.is_empty() || !target.attempts.contains(&Attempt::Uri) {
        return OwnContact::No;
    }
    let Ok(uri) = Uri::parse(&target.uri) else { return OwnContact::No };
    let host = uri.param(b"maddr").flatten().filter(|_| uri.is_sip()).unwrap_or(uri.host);
    let Some(domain) = node.own_domain(&Uri { host, ..uri }, incoming.flow, true) else {
        return OwnContact::No;
    };
    if target.attempts.len() > 1 {
        target.attempts.retain(|attempt| *attempt != Attempt::Uri);
        return OwnContact::No;
    }
    user_of(&uri).map_or(OwnContact::Nobody, |user| OwnContact::User(node.aor(user, domain)))
}

/// Returns the matching contacts of an address-of-record, best q first, as targets. Contacts of one instance over
/// several flows make one target (RFC 5626 section 7: never more than one flow of an instance at a time).
fn contacts(
    t: &Turn<'_>,
    aor: &[u8],
    wanted: &dyn Fn(&BindingView<'_>) -> bool,
) -> Vec<RequestTarget> {
    let mut targets: Vec<RequestTarget> = Vec::new();
    let mut instances: SmallVec<[(u64, usize); 4]> = SmallVec::new();
    t.store.lookup(aor, t.now, &mut |binding| {
        if !wanted(binding) {
            return;
        }
        let target = target_of(binding, t.node);
        if binding.reg_id != 0 && !binding.instance.is_empty() {
            let key = hash_instance(binding.instance);
            if let Some(&(_, at)) = instances.iter().find(|(k, _)| *k == key) {
                // A further flow of the same instance: tried if the first fails.
                targets[at].attempts.insert(0, Attempt::Binding(Box::new(target)));
                return;
            }
            instances.push((key, targets.len()));
        }
        targets.push(target);
    });
    targets.sort_by_key(|g| std::cmp::Reverse(g.q));
    targets.truncate(t.node.config.limits.max_forks);
    targets
}

/// Returns a binding as a target: reached by its Path if it has one, else over the flow of its registration if that is
/// more reliable than the Contact.
fn target_of(binding: &BindingView<'_>, node: &Node) -> RequestTarget {
    let mut attempts = SmallVec::new();
    let attempt = match binding.over_flow() {
        Some(flow) if binding.path.is_empty() => Attempt::Flow(node.own_socket(flow)),
        _ => Attempt::Uri,
    };
    if let Attempt::Flow(flow) = &attempt
        && !binding.outbound
        && !is_websocket(flow.transport)
        && !flow.transport.is_datagram()
    {
        // The phone may be reachable though its connection has closed.
        attempts.push(Attempt::Uri);
    }
    attempts.push(attempt);
    let (uri, path) = (binding.contact.to_vec(), binding.path.to_vec());
    let origin = Origin::Location(binding.flow.map(|flow| flow.remote.ip()));
    RequestTarget { uri, path, q: binding.q, attempts, origin }
}

/// Returns whether a contact can be reached securely; insecure attempts are removed (RFC 5630 section 5.3). A `sip`
/// contact counts as secure if its flow or its transport is TLS.
pub(super) fn is_secure(target: &mut RequestTarget) -> bool {
    let tls = |uri: &[u8]| {
        Uri::parse(uri).is_ok_and(|uri| {
            uri.scheme == Scheme::Sips || uri.transport().is_some_and(Transport::is_secure)
        })
    };
    let first = Items::new(&target.path).next();
    let path = first.and_then(|first| NameAddr::parse(first).ok());
    let uri = path.map_or(tls(&target.uri), |path| tls(path.uri));
    target.attempts.retain(|attempt| match attempt {
        Attempt::Flow(flow) => flow.transport.is_secure(),
        Attempt::Binding(other) => is_secure(other),
        _ => uri,
    });
    !target.attempts.is_empty()
}

fn hash_instance(instance: &[u8]) -> u64 {
    // Within one record only, whose owner gains nothing from a collision.
    let mut h = SipHasher13::new();
    h.write(instance);
    h.finish()
}
