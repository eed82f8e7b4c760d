//! The location service (RFC 3261 section 16.5): contacts and flows of users, and other servers, as targets.

use super::phones::{self, Server, Wanted};
use crate::core::names::{is_websocket, next_host, user_of};
use crate::core::node::{Aor, Node};
use crate::core::refusal::{Refusal, Stop};
use crate::core::request::IncomingRequest;
use crate::core::target::{Attempt, Origin, RequestTarget};
use crate::core::turn::Turn;
use crate::gruu::{Gruu, Resolution};
use crate::local_identity::parse_ip;
use crate::location::{BindingView, Elsewhere, ServerView, instance_hash};
use ringway_sansio::{Duration, Flow, Transport};
use ringway_sip::header::{Items, NameAddr};
use ringway_sip::uri::{Scheme, Uri};
use smallvec::{SmallVec, smallvec};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The number of users looked up for one request, if contacts are other users of ours.
const MAX_LOOKUPS: usize = 16;

/// The number of other servers that a user is looked for at.
const MAX_SERVERS: usize = 64;

/// The time for which the first of several users who answer for a name ring alone.
const HUNT: Duration = Duration::from_secs(10);

/// The targets of a user.
pub(super) struct Located {
    /// Best q first.
    pub targets: Vec<RequestTarget>,
    /// Whether another server has the user.
    pub exists: bool,
    /// Whether the servers at which the user is registered could not be found out.
    pub incomplete: bool,
}

/// Returns the contacts of an address-of-record, and the servers elsewhere at which it is registered. A contact that is
/// another user at a domain of ours stands for that user's contacts (RFC 3261 section 16.5: a target for which we are
/// responsible may be located in turn).
pub(super) fn of_user(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    aor: &Aor,
) -> Result<Located, Stop> {
    let mut search = Search::new(t, incoming, uri);
    search.add_user(aor, None)?;
    Ok(search.finish())
}

/// Returns the contacts of the instance that a GRUU names (RFC 5627 section 5.1). An instance that is not registered
/// here may be registered elsewhere: the servers there know by its `gr` parameter, or have made the temporary GRUU.
pub(super) fn of_gruu(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    domain: usize,
) -> Result<Located, Stop> {
    let mut named = Vec::new();
    let gruu = match t.node.gruus.resolve(uri, &mut named) {
        Resolution::Gruu(gruu) => gruu,
        Resolution::Elsewhere(maker) => return of_other_server(t, incoming, uri, domain, maker),
        Resolution::NotAGruu | Resolution::Unknown => {
            return Err(Refusal::new(404, "Not Found").into());
        }
    };
    let user = Uri::parse(&named).ok().and_then(|u| u.user);
    let aor = t.node.aor(user.unwrap_or_default(), domain);
    let wanted = Wanted::of(t, incoming);
    let targets = contacts(t, &aor, &|binding| gruu.matches(binding) && wanted.has(binding));
    // Section 5.1: of several bindings of an instance the most recent one. Flows of Outbound are one target already.
    let mut newest = None;
    t.store.lookup(&aor, t.now, &mut |binding| {
        if newest.is_none() && gruu.matches(binding) {
            newest = Some(binding.contact.to_vec());
        }
    });
    let newest = targets.into_iter().find(|target| Some(&target.uri) == newest.as_ref());
    let mut search = Search::new(t, incoming, uri);
    match (newest, gruu) {
        (Some(target), _) => search.found.targets.push(target),
        (None, Gruu::Public(_)) => search.add_servers(&aor, None)?,
        (None, Gruu::Temporary(_)) => {
            // Which of them has made it, it does not show. They read it as this one does.
            search.name = Some(t.node.aor(uri.user.unwrap_or_default(), domain));
            search.add_servers(&aor, None)?;
        }
    }
    match search.found {
        Located { ref targets, .. } if !targets.is_empty() => Ok(search.finish()),
        Located { incomplete: true, .. } => Err(Refusal::unanswered().into()),
        // Another node may know another flow, as for an address-of-record.
        _ if t.node.trust.node(incoming).is_some() => Err(Refusal::new(430, "Flow Failed").into()),
        _ => Err(Refusal::new(gruu.unbound_status(), "").into()),
    }
}

/// Returns the server that has made a temporary GRUU, for the GRUU as it is: nobody else can read it. A request of another
/// router goes to no third one.
fn of_other_server(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    domain: usize,
    maker: Ipv6Addr,
) -> Result<Located, Stop> {
    let path = match t.node.trust.sender(incoming) {
        None if !t.node.gateways.is_gateway(t.now, maker.into()) => t.store.path_to(maker),
        _ => None,
    };
    let Some(path) = path else { return Err(Refusal::new(404, "Not Found").into()) };
    let mut search = Search::new(t, incoming, uri);
    let gruu = t.node.aor(uri.user.unwrap_or_default(), domain);
    search.add(target_elsewhere(search.uri_elsewhere(&gruu), &path, 1_000));
    Ok(search.finish())
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

/// A search for the targets of a request.
struct Search<'s, 't> {
    t: &'s Turn<'t>,
    incoming: &'s IncomingRequest<'s>,
    /// The Request-URI.
    uri: &'s Uri<'s>,
    /// The name that other servers are asked for, if it is not the address-of-record.
    name: Option<Aor>,
    /// The users looked up so far, if there are several.
    seen: Vec<Aor>,
    /// Whether a name stands for several users of different q, who are called one group after the other.
    hunts: bool,
    found: Located,
}

impl<'s, 't> Search<'s, 't> {
    fn new(t: &'s Turn<'t>, incoming: &'s IncomingRequest<'_>, uri: &'s Uri<'_>) -> Search<'s, 't> {
        let found = Located { targets: Vec::new(), exists: false, incomplete: false };
        Search { t, incoming, uri, name: None, seen: Vec::new(), hunts: false, found }
    }

    /// Returns the targets, best q first, and at most as many as a request is forked to.
    fn finish(mut self) -> Located {
        if self.hunts {
            self.found.targets.sort_by_key(|target| std::cmp::Reverse(target.q));
            self.found.targets.iter_mut().for_each(|target| target.patience = Some(HUNT));
        }
        self.found.targets.truncate(self.t.node.config.limits.max_forks);
        self.found
    }

    /// Adds the contacts of an address-of-record, and the servers elsewhere at which it is registered. Each user is
    /// looked up once, and no target is added twice.
    fn add_user(&mut self, aor: &Aor, q: Option<u16>) -> Result<(), Stop> {
        let before = self.found.targets.len();
        let wanted = Wanted::of(self.t, self.incoming);
        for mut target in contacts(self.t, aor, &|binding| wanted.has(binding)) {
            target.q = q.unwrap_or(target.q);
            match own_contact(self.t.node, self.incoming, &mut target) {
                OwnContact::No => self.add(target),
                OwnContact::Nobody => {}
                OwnContact::User(next) => {
                    if self.seen.is_empty() {
                        self.seen.push(aor.clone());
                    }
                    if self.seen.len() < MAX_LOOKUPS && !self.seen.contains(&next) {
                        self.seen.push(next.clone());
                        self.add_user(&next, Some(target.q))?;
                    }
                }
            }
        }
        self.add_servers(aor, q)?;
        if self.found.targets.len() == before { self.add_aliases(aor) } else { Ok(()) }
    }

    /// Adds the users that a name stands for which has no contacts itself, such as a number.
    fn add_aliases(&mut self, aor: &Aor) -> Result<(), Stop> {
        if self.t.node.trust.sender(self.incoming).is_some() {
            return Ok(());
        }
        let mut users: SmallVec<[(Aor, u16); 1]> = SmallVec::new();
        self.t.store.aliases(aor, self.t.now, &mut |user, q| {
            if users.len() < MAX_LOOKUPS {
                users.push((Aor::from_slice(user), q));
            }
        });
        self.found.exists |= !users.is_empty();
        self.hunts |= users.iter().any(|(_, q)| *q != users[0].1);
        for (user, q) in users {
            if self.seen.len() < MAX_LOOKUPS && user != *aor && !self.seen.contains(&user) {
                self.seen.push(user.clone());
                self.add_user(&user, Some(q))?;
            }
        }
        Ok(())
    }

    /// Adds the servers elsewhere at which an address-of-record is registered, or returns the question for them. A request
    /// of another router is for the contacts here: that router knows the others, and no request may circle among routers.
    fn add_servers(&mut self, aor: &Aor, q: Option<u16>) -> Result<(), Stop> {
        if self.t.node.trust.sender(self.incoming).is_some() {
            return Ok(());
        }
        let t = self.t;
        let mut servers: SmallVec<[Server; 2]> = SmallVec::new();
        let known = t.store.elsewhere(aor, t.now, &mut |server| {
            if servers.len() < MAX_SERVERS && NameAddr::parse(server.path).is_ok() {
                let q = q.unwrap_or(server.q);
                servers.push(Server::from(&ServerView { q, ..*server }));
            }
        });
        if !servers.is_empty() {
            let uri = self.uri_elsewhere(self.name.as_ref().unwrap_or(aor));
            phones::add_servers(&mut self.found.targets, &mut servers, &uri);
            self.found.targets.sort_by_key(|target| std::cmp::Reverse(target.q));
        }
        match known {
            Elsewhere::Known { exists } => self.found.exists |= exists,
            Elsewhere::Unknown if self.incoming.may_ask_about(t.now, aor) => {
                return Err(Stop::locate(aor));
            }
            Elsewhere::Unknown => self.found.incomplete = true,
        }
        Ok(())
    }

    fn add(&mut self, target: RequestTarget) {
        if !self.found.targets.contains(&target) {
            self.found.targets.push(target);
        }
    }

    /// Returns the Request-URI for another server: the address-of-record, or the GRUU of it.
    fn uri_elsewhere(&self, aor: &[u8]) -> Vec<u8> {
        let address = aor.strip_prefix(b"sip:").unwrap_or(aor);
        let mut uri = Vec::with_capacity(aor.len() + 1);
        uri.extend_from_slice(if self.uri.scheme == Scheme::Sips { b"sips:" } else { b"sip:" });
        uri.extend_from_slice(address);
        if let Some(gr) = self.uri.param(b"gr") {
            uri.extend_from_slice(b";gr");
            if let Some(instance) = gr.filter(|instance| !instance.is_empty()) {
                uri.push(b'=');
                uri.extend_from_slice(instance);
            }
        }
        uri
    }
}

/// Returns another server as a target: reached by its Path.
fn target_elsewhere(uri: Vec<u8>, path: &[u8], q: u16) -> RequestTarget {
    let (path, attempts) = (path.to_vec(), smallvec![Attempt::Uri]);
    let target = RequestTarget::remote(uri, Origin::Elsewhere, attempts);
    RequestTarget { path, q, ..target }
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
    let mut owner: Option<Arc<[u8]>> = None;
    t.store.lookup(aor, t.now, &mut |binding| {
        if !wanted(binding) {
            return;
        }
        let owner = owner.get_or_insert_with(|| aor.into()).clone();
        let target = RequestTarget { owner: Some(owner), ..target_of(binding, t.node) };
        if binding.reg_id != 0
            && let Some((key, _)) = target.phone
        {
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
    let local = registered_at(binding);
    let has_instance = !binding.instance.is_empty();
    let phone = has_instance.then(|| (instance_hash(binding.instance), binding.expires));
    let target = RequestTarget::remote(uri, origin, attempts);
    RequestTarget { path, q: binding.q, local, phone, ..target }
}

/// Returns the address of ours that a phone has registered at by UDP, if its Contact is where it sent from.
fn registered_at(binding: &BindingView<'_>) -> Option<SocketAddr> {
    let flow = binding.flow.filter(|flow| flow.transport == Transport::Udp)?;
    let contact = Uri::parse(binding.contact).ok()?;
    let ip = parse_ip(next_host(&contact))?;
    let there = ip.to_canonical() == flow.remote.ip().to_canonical();
    (there && binding.path.is_empty()).then_some(flow.local)
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
