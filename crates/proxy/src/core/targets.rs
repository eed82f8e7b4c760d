//! Determining request targets: RFC 3261 section 16.5.

use super::context::{Attempt, Origin, RequestTarget};
use super::dialog::Followed;
use super::preroute::{Maddr, Routed};
use super::validate::{Proof, Refusal, short_text};
use super::{Core, Pass};
use crate::config::Mode;
use crate::gruu::Resolved;
use crate::location::BindingView;
use crate::routes::{self, RouteTable, Rule};
use ringway_sansio::{Flow, Outbox, Time, Transport};
use ringway_sip::header::HeaderId;
use ringway_sip::message::Method;
use ringway_sip::uri::{self, Scheme, Uri};
use ringway_sip::write;
use smallvec::{SmallVec, smallvec};

/// Users looked up for one request, where contacts are other users of ours.
const MAX_LOOKUPS: usize = 16;

/// A user part longer than this names nobody.
const MAX_USER: usize = 512;

impl Core {
    /// Steps 16.3 to 16.6 for a request that is new and well-formed.
    pub(super) fn route(&mut self, pass: &Pass<'_>, out: &mut Outbox) {
        if let Err(refusal) = self.try_route(pass, out)
            && refusal.status != 0
            && pass.msg.method() != Method::Ack
        {
            // A challenge is the usual beginning, not worth a line.
            if !matches!(refusal.status, 401 | 407) {
                self.log(pass, "refused", refusal.status);
            }
            self.refuse(pass, refusal.status, refusal.reason, &refusal.headers, out);
        }
    }

    fn try_route(&mut self, pass: &Pass<'_>, out: &mut Outbox) -> Result<(), Refusal> {
        let msg = pass.msg;
        let method = msg.method();
        let routed = self.preroute(pass).map_err(|e| Refusal::new(e.status, e.reason))?;
        if let Some(why) = routed.void {
            self.log(pass, why, 0);
        }
        if routed.is_in_dialog() && super::dialog::refreshes_target(method) {
            self.refresh_target(pass.now, pass.flow, msg);
        }
        let here = routed.next.is_none() && routed.flow.is_none();
        let domain = match routed.maddr {
            _ if !here => None,
            Maddr::None => self.own_domain(&routed.uri, pass.flow, routed.is_in_dialog()),
            // Its port led to us, and goes with it.
            Maddr::Ours => {
                let uri = Uri { port: None, ..routed.uri };
                self.own_domain(&uri, pass.flow, routed.is_in_dialog())
            }
            Maddr::Other => None,
        };
        let ends_here =
            domain.is_some() && (method == Method::Register || user_of(&routed.uri).is_none());
        // RFC 3261 section 16.3 item 3 would let us answer an OPTIONS that has run out of hops as if it
        // were for us; RFC 4475 section 3.3.11 expects 483 unless it is.
        let mut kept = self.validate(pass, &routed, ends_here)?;
        if method == Method::Ack && domain.is_some() && !routed.is_in_dialog() && self.pass_on(pass)
        {
            // It goes where the INVITE went and by no route of ours: most likely the ACK of a refusal
            // that another worker waits for.
            return Ok(());
        }
        if method == Method::Subscribe
            && let Some(domain) = domain
        {
            match self.is_own_subscription(pass) {
                Some(true) => return self.subscribe(pass, &routed, domain, out),
                Some(false) => return Ok(()),
                None => {}
            }
        }
        if let Some(domain) = domain {
            if method == Method::Register {
                return self.register(pass, domain, out);
            }
            if user_of(&routed.uri).is_none() {
                return self.serve_itself(pass, out);
            }
            if method == Method::Subscribe && self.is_reg_event(msg) {
                return self.subscribe(pass, &routed, domain, out);
            }
            if matches!(method, Method::Subscribe | Method::Publish)
                && !routed.is_in_dialog()
                && self.is_to_own_address(pass, &routed.uri, domain)
            {
                return Err(self.no_such_service(method));
            }
        }
        let mut proof = self.authorise(pass, &routed, domain.is_some())?;
        let mode = domain.map_or(Mode::Proxy, |d| self.config.domains[d].mode);
        kept.way_back = method != Method::Ack || mode == Mode::Stateless;
        let targets = match domain {
            Some(domain) => self.local_targets(pass, &routed.uri, domain, &mut proof)?,
            None => self.remote_targets(pass, &routed)?,
        };
        let mut user = None;
        match proof {
            Proof::Digest { domain, user: proven } => {
                kept.realm = Some(domain);
                let realm = &self.config.domains[domain].name;
                user = Some(format!("{}@{realm}", short_text(&proven)).into());
            }
            Proof::Trusted => kept.privileged = true,
            Proof::Dialog => kept.privileged = routed.followed == Followed::Verified,
            Proof::None => {}
        }
        match mode {
            _ if method == Method::Ack => self.forward_statelessly(pass, &kept, targets, out),
            Mode::Proxy => self.begin(pass, kept, targets, user, out),
            Mode::Stateless => self.forward_statelessly(pass, &kept, targets, out),
            Mode::Redirect => self.redirect(pass, &targets, out),
        }
        Ok(())
    }

    /// Whether a request is for the very address-of-record it comes from.
    fn is_to_own_address(&self, pass: &Pass<'_>, uri: &Uri<'_>, domain: usize) -> bool {
        let mut aor = Vec::with_capacity(64);
        self.write_aor(user_of(uri).unwrap_or_default(), domain, &mut aor);
        self.is_from(pass, &aor)
    }

    /// What a phone asks its server for by its own address (waiting messages, its dialogs, to publish)
    /// and the server does not have. It is not sent back to the phone.
    fn no_such_service(&self, method: Method<'_>) -> Refusal {
        if method == Method::Publish {
            return Refusal::new(501, "Not Implemented");
        }
        // RFC 6665 section 4.2.1.1.
        Refusal { status: 489, reason: "Bad Event", headers: b"Allow-Events: reg\r\n".to_vec() }
    }

    /// The domain of ours that a Request-URI names. A number without a domain (RFC 3966) belongs to
    /// the first. A literal address counts only with a port we listen on: a phone may share our
    /// host.
    pub(super) fn own_domain(&self, uri: &Uri<'_>, flow: &Flow, in_dialog: bool) -> Option<usize> {
        if uri.scheme == Scheme::Tel {
            return Some(0);
        }
        if !uri.is_sip() {
            return None;
        }
        let domain = self.own.domain(uri.host).or_else(|| {
            let ip = crate::own::parse_ip(uri.host)?;
            (ip == flow.local.ip()).then_some(0)
        })?;
        let listens = |port| port == flow.local.port() || self.own.listens_on(port);
        let ours = match uri.port {
            Some(port) => listens(port),
            // Within a dialog a literal address is some phone's Contact, and may be on our host; a
            // name without a port is the domain, whatever port SRV records lead to.
            None if in_dialog && crate::own::parse_ip(uri.host).is_some() => {
                listens(super::preroute::default_port(uri))
            }
            None => true,
        };
        ours.then_some(domain)
    }

    /// Appends the address-of-record of a user at a domain of ours (RFC 3261 section 10.3 item 5).
    pub(super) fn write_aor(&self, user: &[u8], domain: usize, aor: &mut Vec<u8>) {
        aor.extend_from_slice(b"sip:");
        if user.contains(&b'%') {
            let mut plain = Vec::with_capacity(user.len());
            uri::unescape_into(user, &mut plain);
            uri::escape_into(&plain, aor);
        } else {
            aor.extend_from_slice(user);
        }
        aor.push(b'@');
        aor.extend_from_slice(self.config.domains[domain].name.as_bytes());
    }

    pub(super) fn local_targets(
        &mut self,
        pass: &Pass<'_>,
        uri: &Uri<'_>,
        domain: usize,
        proof: &mut Proof,
    ) -> Result<Vec<RequestTarget>, Refusal> {
        let user = user_of(uri).unwrap_or_default();
        if user.len() > MAX_USER {
            return Err(Refusal::new(414, "Request-URI Too Long"));
        }
        let mut aor = std::mem::take(&mut self.scratch);
        aor.clear();
        self.write_aor(user, domain, &mut aor);
        let targets = if uri.param(b"gr").is_some() {
            self.gruu_targets(pass, uri, domain, &mut aor)
        } else {
            let mut targets = Vec::new();
            self.add_contacts(pass, &aor, None, &mut Vec::new(), &mut targets);
            targets.truncate(self.config.limits.max_forks);
            Ok(targets)
        };
        let mut targets = targets;
        if uri.scheme == Scheme::Sips
            && let Ok(contacts) = &mut targets
            && !contacts.is_empty()
        {
            contacts.retain_mut(is_secure);
            if contacts.is_empty() {
                aor.clear();
                self.scratch = aor;
                return Err(self.sips_not_allowed());
            }
        }
        let aor_found = targets.as_ref().is_ok_and(|g| !g.is_empty());
        let result = if aor_found {
            targets
        } else if let Err(refusal) = targets {
            Err(refusal)
        } else {
            self.unregistered(pass, uri, user, domain, proof)
        };
        aor.clear();
        self.scratch = aor;
        result
    }

    /// RFC 5630 section 5.3: nothing that was asked for by a `sips` URI goes on in the clear.
    fn sips_not_allowed(&self) -> Refusal {
        let name = &self.config.domains[0].name;
        let headers = format!("Warning: 380 {name} \"SIPS Not Allowed\"\r\n").into_bytes();
        Refusal { status: 480, reason: "Temporarily Unavailable", headers }
    }

    /// The contacts of the instance a GRUU names (RFC 5627 section 5.1).
    fn gruu_targets(
        &mut self,
        pass: &Pass<'_>,
        uri: &Uri<'_>,
        domain: usize,
        aor: &mut Vec<u8>,
    ) -> Result<Vec<RequestTarget>, Refusal> {
        let mut named = Vec::new();
        let Resolved::Gruu(gruu) = self.gruus.resolve(uri, &mut named) else {
            return Err(Refusal::new(404, "Not Found"));
        };
        let user = Uri::parse(&named).ok().and_then(|u| u.user.map(<[u8]>::to_vec));
        aor.clear();
        self.write_aor(&user.unwrap_or_default(), domain, aor);
        let targets = self.contacts(pass, aor, &|binding| gruu.matches(binding));
        // Section 5.1: of several bindings of an instance the most recent one. Flows of Outbound are one
        // target already.
        let mut newest = None;
        self.store.lookup(aor, pass.now, &mut |binding| {
            if newest.is_none() && gruu.matches(binding) {
                newest = Some(binding.contact.to_vec());
            }
        });
        let targets: Vec<RequestTarget> = targets
            .into_iter()
            .filter(|target| Some(&target.uri) == newest.as_ref())
            .take(1)
            .collect();
        if targets.is_empty() {
            return Err(Refusal::new(gruu.unbound_status(), ""));
        }
        Ok(targets)
    }

    /// Adds the contacts of an address-of-record to `targets`. A contact that is another user at a domain
    /// of ours stands for that user's contacts (RFC 3261 section 16.5: a target for which we are
    /// responsible may be located in turn). `seen` are the users looked up so far; each is looked up
    /// once, and no target is there twice.
    fn add_contacts(
        &mut self,
        pass: &Pass<'_>,
        aor: &[u8],
        q: Option<u16>,
        seen: &mut Vec<Vec<u8>>,
        targets: &mut Vec<RequestTarget>,
    ) {
        for mut target in self.contacts(pass, aor, &|_| true) {
            target.q = q.unwrap_or(target.q);
            match self.own_contact(pass, &mut target) {
                OwnContact::No if targets.contains(&target) => {}
                OwnContact::No => targets.push(target),
                OwnContact::Nobody => {}
                OwnContact::User(next) => {
                    if seen.is_empty() {
                        seen.push(aor.to_vec());
                    }
                    if seen.len() < MAX_LOOKUPS && !seen.contains(&next) {
                        seen.push(next.clone());
                        self.add_contacts(pass, &next, Some(target.q), seen, targets);
                    }
                }
            }
        }
    }

    /// Whether a contact leads back to this server. It never is sent there: a user of ours is looked up
    /// here, and nobody else is reached that way, least of all by a routing rule. A contact with a flow
    /// is reached over that, whatever its URI says.
    fn own_contact(&self, pass: &Pass<'_>, target: &mut RequestTarget) -> OwnContact {
        if !target.path.is_empty() || !target.attempts.contains(&Attempt::Uri) {
            return OwnContact::No;
        }
        let Ok(uri) = Uri::parse(&target.uri) else { return OwnContact::No };
        let host = uri.param(b"maddr").flatten().filter(|_| uri.is_sip()).unwrap_or(uri.host);
        let Some(domain) = self.own_domain(&Uri { host, ..uri }, pass.flow, true) else {
            return OwnContact::No;
        };
        if target.attempts.len() > 1 {
            target.attempts.retain(|way| *way != Attempt::Uri);
            return OwnContact::No;
        }
        let Some(user) = user_of(&uri) else { return OwnContact::Nobody };
        let mut aor = Vec::new();
        self.write_aor(user, domain, &mut aor);
        OwnContact::User(aor)
    }

    /// Where a request for a user without contacts goes: through the routing table, or nowhere.
    fn unregistered(
        &mut self,
        pass: &Pass<'_>,
        uri: &Uri<'_>,
        user: &[u8],
        domain: usize,
        proof: &mut Proof,
    ) -> Result<Vec<RequestTarget>, Refusal> {
        let config = self.config.clone();
        let name = &config.domains[domain].name;
        if let Some(rule) = config.routes.find(true, name.as_bytes(), user) {
            // A rule leads to where calls cost money: who uses it must be known.
            let unproven = matches!(proof, Proof::None | Proof::Dialog);
            if unproven && !rule.open && rule.reject.is_none() {
                *proof = self.demand_proof(pass, domain)?;
            }
            return self.apply_rule(pass.now, rule, uri, user, name.as_bytes());
        }
        let mut plain = Vec::new();
        uri::unescape_into(user, &mut plain);
        if self.auth.knows(&plain, name) {
            // Known, but not here now.
            Err(Refusal::new(480, "Temporarily Unavailable"))
        } else {
            Err(Refusal::new(404, "Not Found"))
        }
    }

    /// The contacts of an address-of-record that are wanted, best q first, as targets. Contacts of one
    /// instance over several flows make one target (RFC 5626 section 7: never more than one flow of an
    /// instance at a time).
    fn contacts(
        &mut self,
        pass: &Pass<'_>,
        aor: &[u8],
        wanted: &dyn Fn(&BindingView<'_>) -> bool,
    ) -> Vec<RequestTarget> {
        let mut targets: Vec<RequestTarget> = Vec::new();
        let mut instances: SmallVec<[(u64, usize); 4]> = SmallVec::new();
        let (limit, worker) = (self.config.limits.max_forks, self.worker);
        let store = self.store.clone();
        store.lookup(aor, pass.now, &mut |binding| {
            if !wanted(binding) {
                return;
            }
            let target = target_of(binding, worker);
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
        targets.truncate(limit);
        targets
    }

    fn remote_targets(
        &mut self,
        pass: &Pass<'_>,
        routed: &Routed<'_>,
    ) -> Result<Vec<RequestTarget>, Refusal> {
        let uri = match routed.maddr {
            Maddr::Ours => without_maddr(&routed.uri, routed.uri_bytes),
            _ => routed.uri_bytes.to_vec(),
        };
        let target = |attempts| RequestTarget::remote(uri, Origin::Request, attempts);
        if let Some(flow) = routed.flow {
            let mut attempts = self.ways_without_flow(pass, routed, &flow);
            attempts.push(Attempt::Flow(self.own_socket(flow)));
            return Ok(vec![target(attempts)]);
        }
        let config = self.config.clone();
        if let Some(rule) = config.routes.of_foreign(routed) {
            let user = user_of(&routed.uri).unwrap_or_default();
            return self.apply_rule(pass.now, rule, &routed.uri, user, routed.uri.host);
        }
        let mut attempts = smallvec![Attempt::Uri];
        if routed.is_in_dialog()
            && routed.next.is_none()
            && routed.uri.transport().is_some_and(|t| !t.is_datagram())
            && let Some(flow) = self.registered_flow(pass, &routed.uri, None)
        {
            // The connection a phone has registered on is open already.
            attempts.push(Attempt::Flow(self.own_socket(flow)));
        }
        Ok(vec![target(attempts)])
    }

    /// Where a request of a dialog goes once its flow is gone, last first: to the flow that the user has
    /// registered on meanwhile, and where the Request-URI leads, by a new connection (RFC 3261
    /// section 18.1.1), if a phone can be expected there. A phone that has negotiated Outbound is reached
    /// by its flows only (RFC 5626 section 5.3), and a WebSocket cannot be opened (RFC 7118 section 5).
    fn ways_without_flow(
        &self,
        pass: &Pass<'_>,
        routed: &Routed<'_>,
        gone: &Flow,
    ) -> SmallVec<[Attempt; 1]> {
        let mut attempts = SmallVec::new();
        let bound = has_ob(&routed.uri) || is_websocket(&Attempt::Flow(*gone));
        if routed.followed != Followed::No && !bound && !gone.transport.is_datagram() {
            attempts.push(Attempt::Uri);
        }
        if let Some(flow) = self.registered_flow(pass, &routed.uri, Some(gone)) {
            attempts.push(Attempt::Flow(self.own_socket(flow)));
        }
        attempts
    }

    /// The flow on which the user that To names has registered the phone of this Request-URI, if it is
    /// another than the one that is gone: the same Contact, or else the only one.
    fn registered_flow(
        &self,
        pass: &Pass<'_>,
        target: &Uri<'_>,
        gone: Option<&Flow>,
    ) -> Option<Flow> {
        let to = pass.msg.to().ok().and_then(|to| Uri::parse(to.uri).ok())?;
        let domain = self.own.domain(to.host)?;
        let mut aor = Vec::with_capacity(64);
        self.write_aor(to.user?, domain, &mut aor);
        let (mut same, mut only, mut count) = (None, None, 0);
        self.store.lookup(&aor, pass.now, &mut |binding| {
            let usable = |flow: &Flow| match gone {
                Some(gone) => flow != gone,
                None => Some(flow.transport) == target.transport(),
            };
            let Some(flow) = binding.over_flow().filter(usable) else { return };
            count += 1;
            only = Some(flow);
            let contact = Uri::parse(binding.contact);
            if contact
                .is_ok_and(|c| c.user == target.user && c.host.eq_ignore_ascii_case(target.host))
            {
                same = Some(flow);
            }
        });
        same.or(only.filter(|_| count == 1 && gone.is_some()))
    }

    /// The routing rule that decides where a request for another domain goes.
    pub(super) fn foreign_rule(&self, routed: &Routed<'_>) -> Option<&Rule> {
        self.config.routes.of_foreign(routed)
    }

    fn apply_rule(
        &mut self,
        now: Time,
        rule: &Rule,
        uri: &Uri<'_>,
        user: &[u8],
        host: &[u8],
    ) -> Result<Vec<RequestTarget>, Refusal> {
        if let Some(status) = rule.reject {
            return Err(Refusal::new(status, write::reason_phrase(status)));
        }
        let mut new = Vec::with_capacity(64);
        new.extend_from_slice(if uri.scheme == Scheme::Sips { b"sips:" } else { b"sip:" });
        rule.rewrite.user(user, &mut new);
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
        routes::order(&rule.next_hops, &mut *self.random, &mut order);
        self.failed_last(now, rule, &mut order);
        let mut attempts: SmallVec<[Attempt; 1]> =
            order.iter().rev().map(|&i| Attempt::Via(rule.next_hops[i].uri.clone())).collect();
        if attempts.is_empty() {
            attempts.push(Attempt::Uri);
        }
        Ok(vec![RequestTarget::remote(new, Origin::Rule, attempts)])
    }

    /// A datagram flow of another worker, as one of this worker's own socket on the same address.
    pub(super) fn own_socket(&self, flow: Flow) -> Flow {
        own_socket(flow, self.worker)
    }

    pub(super) fn is_reg_event(&self, msg: &ringway_sip::message::Message<'_>) -> bool {
        msg.first(HeaderId::Event).is_some_and(|v| {
            v.split(|&b| b == b';').next().unwrap_or_default().trim_ascii() == b"reg"
        })
    }
}

impl RouteTable {
    /// The rule for a request whose next hop nothing else decides: no Route, no flow, no `maddr`, no
    /// dialog.
    fn of_foreign(&self, routed: &Routed<'_>) -> Option<&Rule> {
        let decided = routed.next.is_some()
            || routed.flow.is_some()
            || routed.is_in_dialog()
            || matches!(routed.maddr, Maddr::Other);
        let user = user_of(&routed.uri).unwrap_or_default();
        if decided { None } else { self.find(false, routed.uri.host, user) }
    }
}

/// What a contact means that may be an address of ours.
enum OwnContact {
    /// It leads elsewhere.
    No,
    /// It is this address-of-record of ours.
    User(Vec<u8>),
    /// It is this server, and nobody.
    Nobody,
}

/// A URI without the maddr that led here, and the port and transport that came with it unless they
/// are what would be meant without them (section 16.4).
fn without_maddr(uri: &Uri<'_>, bytes: &[u8]) -> Vec<u8> {
    let transport = uri.transport().filter(|&t| t != Transport::Udp);
    let end = bytes.len() - uri.params.len();
    // The port, where there is one, stands right before the parameters.
    let port = match uri.port {
        Some(port) if port != super::preroute::default_port(uri) => {
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

/// The user part, or the number of a `tel` URI.
pub(super) fn user_of<'a>(uri: &Uri<'a>) -> Option<&'a [u8]> {
    match uri.scheme {
        Scheme::Tel => Some(uri.opaque.split(|&b| b == b';').next().unwrap_or_default()),
        _ => uri.user.filter(|u| !u.is_empty()),
    }
}

/// A datagram flow as one of `worker`'s own socket on the same address.
pub(super) fn own_socket(flow: Flow, worker: u8) -> Flow {
    if !flow.transport.is_datagram() {
        return flow;
    }
    let serial = flow.id.to_u64() & 0x00ff_ffff_ffff_ffff;
    Flow { id: ringway_sansio::FlowId::new(worker, serial), ..flow }
}

/// A binding as a target: reached by its Path if it has one, else over the flow it registered on where
/// that is known better than the Contact.
fn target_of(binding: &BindingView<'_>, worker: u8) -> RequestTarget {
    let mut attempts = SmallVec::new();
    let way = match binding.over_flow() {
        Some(flow) if binding.path.is_empty() => Attempt::Flow(own_socket(flow, worker)),
        _ => Attempt::Uri,
    };
    if let Attempt::Flow(flow) = &way
        && !binding.outbound
        && !is_websocket(&way)
        && !flow.transport.is_datagram()
    {
        // A connection that is gone does not mean that the phone is.
        attempts.push(Attempt::Uri);
    }
    attempts.push(way);
    let (uri, path) = (binding.contact.to_vec(), binding.path.to_vec());
    let origin = Origin::Location(binding.flow.map(|flow| flow.remote.ip()));
    RequestTarget { uri, path, q: binding.q, attempts, origin }
}

/// Whether a URI is of a phone that has negotiated Outbound (RFC 5626 section 4.3).
pub(super) fn has_ob(uri: &Uri<'_>) -> bool {
    uri.param(b"ob").is_some()
}

/// Whether a contact can be reached without the clear; what leads there in the clear is taken out (RFC
/// 5630 section 5.3). A `sip` contact counts where its flow or its transport is TLS.
fn is_secure(target: &mut RequestTarget) -> bool {
    let tls = |uri: &[u8]| {
        Uri::parse(uri).is_ok_and(|uri| {
            uri.scheme == Scheme::Sips || uri.transport().is_some_and(Transport::is_secure)
        })
    };
    let first = ringway_sip::header::Items::new(&target.path).next();
    let path = first.and_then(|first| ringway_sip::NameAddr::parse(first).ok());
    let uri = path.map_or(tls(&target.uri), |path| tls(path.uri));
    target.attempts.retain(|way| match way {
        Attempt::Flow(flow) => flow.transport.is_secure(),
        Attempt::Binding(other) => is_secure(other),
        _ => uri,
    });
    !target.attempts.is_empty()
}

fn is_websocket(way: &Attempt) -> bool {
    use ringway_sansio::Transport::{Ws, Wss};
    matches!(way, Attempt::Flow(Flow { transport: Ws | Wss, .. }))
}

fn hash_instance(instance: &[u8]) -> u64 {
    use std::hash::Hasher;
    // Within one record only, whose owner gains nothing from a collision.
    let mut h = siphasher::sip::SipHasher13::new();
    h.write(instance);
    h.finish()
}
