//! Request validation: RFC 3261 section 16.3, with the loop detection of RFC 5393, and who may use
//! the server for what.

use super::context::Kept;
use super::preroute::Routed;
use super::{AuthFailure, AuthFailureReason, Core, Event, MAX_TEXT, Pass};
use crate::auth::Verdict;
use ringway_sansio::Flow;
use ringway_sip::header::{HeaderId, Via};
use ringway_sip::message::{Message, Method};
use ringway_sip::transaction::Branch;
use ringway_sip::uri::{Scheme, Uri};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::IpAddr;

/// Max-Forwards of a request that comes without (RFC 3261 section 16.6 item 3).
const DEFAULT_MAX_FORWARDS: u8 = 70;

/// The largest Max-Breadth taken on, and that of a request without one (RFC 5393 section 5.3.3).
const MAX_BREADTH: u32 = 60;

/// Why a request goes no further.
pub(super) struct Refusal {
    pub status: u16,
    pub reason: &'static str,
    /// Header lines for the answer.
    pub headers: Vec<u8>,
}

impl Refusal {
    /// Nothing is answered: to an ACK there is no response (section 17).
    pub(super) const SILENT: Refusal = Refusal { status: 0, reason: "", headers: Vec::new() };

    pub(super) fn new(status: u16, reason: &'static str) -> Refusal {
        Refusal { status, reason, headers: Vec::new() }
    }
}

/// Whom a request comes from, as far as it has been proved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Proof {
    /// Nothing was asked for, and nothing was proved.
    None,
    /// A trusted peer, or a network without digest.
    Trusted,
    /// A dialog we are in the path of. It leads to the other party, and by no routing rule.
    Dialog,
    /// Digest credentials of this user that hold in the realm of this domain.
    Digest { domain: usize, user: Box<[u8]> },
}

impl Core {
    /// Section 16.3 items 2 to 5. `ends_here` says that the request is for the server itself and will
    /// not be forwarded.
    pub(super) fn validate(
        &mut self,
        pass: &Pass<'_>,
        routed: &Routed<'_>,
        ends_here: bool,
    ) -> Result<Kept, Refusal> {
        let msg = pass.msg;
        // Item 2: a scheme that is not understood.
        if let Scheme::Other(_) = routed.uri.scheme
            && routed.next.is_none()
            && routed.flow.is_none()
        {
            return Err(Refusal::new(416, "Unsupported URI Scheme"));
        }
        // Item 3.
        let hops = msg.max_forwards().map_err(|e| Refusal::new(e.status, e.reason))?;
        if hops == Some(0) && !ends_here {
            self.stats.looped += 1;
            return Err(Refusal::new(483, "Too Many Hops"));
        }
        // Item 4. What goes no further cannot go round.
        let spiral = if ends_here { 0 } else { self.spiral(pass, routed) };
        if !ends_here && self.is_loop(pass, spiral) {
            self.stats.looped += 1;
            return Err(Refusal::new(482, "Loop Detected"));
        }
        // Item 5: none of the extensions a proxy could be required to have is one of ours.
        if msg.method() != Method::Ack && msg.first(HeaderId::ProxyRequire).is_some() {
            let mut headers = Vec::new();
            super::local::unsupported(&mut headers, msg.items(HeaderId::ProxyRequire));
            return Err(Refusal { status: 420, reason: "Bad Extension", headers });
        }
        let breadth = msg
            .first(HeaderId::MaxBreadth)
            .and_then(|v| std::str::from_utf8(v).ok()?.parse().ok())
            .unwrap_or(MAX_BREADTH);
        Ok(Kept {
            routes_used: routed.routes_used,
            last_route_used: routed.last_route_used,
            max_forwards: hops.map_or(DEFAULT_MAX_FORWARDS, |hops| hops.saturating_sub(1)),
            max_breadth: breadth.min(MAX_BREADTH),
            realm: None,
            privileged: false,
            in_dialog: routed.in_dialog,
            spiral,
            way_back: true,
            // What makes a dialog; NOTIFY may be the first of one (RFC 6665 section 4.3).
            // At the edge of TLS it is not for the operator to say (section 16.6 item 4).
            record_route: (self.config.record_route
                || pass.flow.transport.is_secure()
                || super::branch::is_sips(routed.uri_bytes))
                && matches!(
                    msg.method(),
                    Method::Invite | Method::Subscribe | Method::Notify | Method::Refer
                ),
        })
    }

    /// The hash of all that decides the routing of a request (RFC 5393 section 4.2.2): the same
    /// request coming back unchanged has the same, one that comes back for another target has not.
    fn spiral(&self, pass: &Pass<'_>, routed: &Routed<'_>) -> u64 {
        let mut h = SipHasher13::new_with_key(&self.spiral_key);
        let mut field = |bytes: &[u8]| {
            h.write(bytes);
            h.write_u8(b'\n');
        };
        let msg = pass.msg;
        field(routed.uri_bytes);
        field(msg.call_id());
        field(msg.first(HeaderId::From).unwrap_or_default());
        field(msg.first(HeaderId::To).unwrap_or_default());
        field(&msg.cseq().map_or(0, |c| c.seq).to_be_bytes());
        for id in [HeaderId::Route, HeaderId::ProxyRequire, HeaderId::ProxyAuthorization] {
            if msg.first(id).is_some() {
                msg.all(id).for_each(&mut field);
            }
        }
        h.finish()
    }

    fn is_loop(&self, pass: &Pass<'_>, spiral: u64) -> bool {
        let ours = |via: &Via<'_>| Branch::parse(via.branch).is_some_and(|b| b.spiral == spiral);
        if ours(pass.via) {
            return true;
        }
        let only = |value: &[u8]| value.len() == pass.via.element.len();
        let mut lines = pass.msg.all(HeaderId::Via);
        if lines.next().is_some_and(only) && lines.next().is_none() {
            return false;
        }
        pass.msg.items(HeaderId::Via).skip(1).any(|element| {
            // Only a Via that has the shape of ours is worth parsing.
            memchr::memmem::find(element, b"z9hG4bK").is_some()
                && Via::parse(element).is_ok_and(|via| ours(&via))
        })
    }

    /// Section 16.3 item 6, and the rule that this is no open relay: what is not for a domain of
    /// ours is sent on only for those who have proved who they are. What is for a domain of ours and
    /// turns out to need a routing rule is asked for proof there ([`Core::demand_proof`]).
    pub(super) fn authorise(
        &mut self,
        pass: &Pass<'_>,
        routed: &Routed<'_>,
        local: bool,
    ) -> Result<Proof, Refusal> {
        let method = pass.msg.method();
        if !self.config.auth.enabled || self.is_trusted(pass) {
            return Ok(Proof::Trusted);
        }
        if routed.is_in_dialog() {
            return Ok(Proof::Dialog);
        }
        if method == Method::Ack {
            // An ACK cannot be challenged (section 22.1): without a mark it goes to our own users.
            return if local { Ok(Proof::None) } else { Err(Refusal::SILENT) };
        }
        let from = pass.msg.from().map_err(|e| Refusal::new(e.status, e.reason))?;
        let from = Uri::parse(from.uri).ok();
        let sip = from.as_ref().filter(|uri| uri.is_sip());
        let claims = sip.and_then(|uri| self.own.domain(uri.host));
        if claims.is_none() && (local || self.is_for_open_rule(routed)) {
            return Ok(Proof::None);
        }
        let domain = claims.unwrap_or(0);
        let user = self.prove(pass, domain)?;
        if !self.may_write(from.as_ref(), claims, &user) {
            // Whoever proves to be one user cannot call as another.
            self.stats.forbidden += 1;
            self.auth_failed(pass, domain, AuthFailureReason::OtherUser);
            return Err(Refusal::new(403, "Forbidden: From is another user"));
        }
        Ok(Proof::Digest { domain, user: user.into() })
    }

    /// Whether a user may write this From: their own address, an anonymous one (RFC 3323
    /// section 4.1.1.3), or any where the operator allows it and it is none of our domains.
    fn may_write(&self, from: Option<&Uri<'_>>, claims: Option<usize>, user: &[u8]) -> bool {
        let Some(from) = from else { return false };
        if claims.is_some() {
            return from.user.is_some_and(|claimed| same_user(claimed, user));
        }
        let anonymous = from.is_sip() && from.host.eq_ignore_ascii_case(b"anonymous.invalid");
        let number = from.scheme == Scheme::Tel
            && super::targets::user_of(from).is_some_and(|number| same_user(number, user));
        anonymous || number || self.config.auth.any_from
    }

    /// The user that the request's Proxy-Authorization proves, or the challenge.
    fn prove(&mut self, pass: &Pass<'_>, domain: usize) -> Result<Vec<u8>, Refusal> {
        let config = self.config.clone();
        let realm = &config.domains[domain].name;
        let verdict = self.check_credentials(pass, HeaderId::ProxyAuthorization, realm);
        if let Verdict::Proved(user) = verdict {
            return Ok(user);
        }
        self.refuse_credentials(pass, &verdict, domain)?;
        let mut headers = Vec::new();
        let stale = matches!(verdict, Verdict::Stale | Verdict::Repeated);
        self.note_verdict(pass, &verdict, domain);
        let (id, random) = (HeaderId::ProxyAuthenticate, &mut *self.random);
        self.auth.challenge(pass.now, random, id, realm, stale, &mut headers);
        Err(Refusal { status: 407, reason: "Proxy Authentication Required", headers })
    }

    /// What the credentials of a request for a realm are worth.
    pub(super) fn check_credentials(
        &mut self,
        pass: &Pass<'_>,
        id: HeaderId,
        realm: &str,
    ) -> Verdict {
        let (own, msg) = (&self.own, pass.msg);
        let fits = |uri: &[u8]| is_digest_uri_of(own, uri, msg.request_uri());
        let source = pass.flow.remote.ip();
        self.auth.check(pass.now, source, msg, id, realm, &fits)
    }

    /// Refuses credentials that another challenge would not better.
    pub(super) fn refuse_credentials(
        &mut self,
        pass: &Pass<'_>,
        verdict: &Verdict,
        domain: usize,
    ) -> Result<(), Refusal> {
        match verdict {
            Verdict::BackOff => {
                self.stats.backed_off += 1;
                self.auth_failed(pass, domain, AuthFailureReason::BackOff);
                Err(Refusal::new(403, "Forbidden: too many wrong passwords"))
            }
            // RFC 7616 section 3.4.6.
            Verdict::OtherUri => {
                self.stats.auth_failed += 1;
                self.auth_failed(pass, domain, AuthFailureReason::OtherUri);
                Err(Refusal::new(400, "Authorization: uri is not the Request-URI"))
            }
            _ => Ok(()),
        }
    }

    /// Asks for proof of a request that so far needed none.
    pub(super) fn demand_proof(
        &mut self,
        pass: &Pass<'_>,
        domain: usize,
    ) -> Result<Proof, Refusal> {
        if pass.msg.method() == Method::Ack {
            return Err(Refusal::SILENT);
        }
        let user = self.prove(pass, domain)?;
        let from = pass.msg.from().ok().and_then(|from| Uri::parse(from.uri).ok());
        if !self.may_write(from.as_ref(), None, &user) {
            self.stats.forbidden += 1;
            self.auth_failed(pass, domain, AuthFailureReason::OtherUser);
            return Err(Refusal::new(403, "Forbidden: From is another user"));
        }
        Ok(Proof::Digest { domain, user: user.into() })
    }

    /// Whether a routing rule that is open to anybody decides where a request for another domain goes.
    fn is_for_open_rule(&self, routed: &Routed<'_>) -> bool {
        self.foreign_rule(routed).is_some_and(|rule| rule.open)
    }

    pub(super) fn note_verdict(&mut self, pass: &Pass<'_>, verdict: &Verdict, domain: usize) {
        self.stats.challenged += 1;
        if let Verdict::Wrong(reason) = *verdict {
            self.stats.auth_failed += 1;
            self.auth_failed(pass, domain, reason);
        }
    }

    /// Reports credentials that were refused.
    pub(super) fn auth_failed(
        &mut self,
        pass: &Pass<'_>,
        domain: usize,
        reason: AuthFailureReason,
    ) {
        if self.events.len() >= super::MAX_EVENTS {
            self.stats.limits_hit += 1;
            return;
        }
        let realm = &self.config.domains[domain].name;
        let user = crate::auth::claimed_user(pass.msg, realm);
        self.events.push_back(Event::AuthFailed(Box::new(AuthFailure {
            at: pass.now,
            user: short_text(&user),
            realm: realm.clone(),
            source: pass.flow.remote,
            transport: pass.flow.transport,
            method: short_text(pass.msg.method().as_bytes()),
            call_id: short_text(pass.msg.call_id()),
            reason,
        })));
    }

    /// Whether the request comes from a peer that is believed. What we have sent ourselves, and what
    /// has come back by our own address, proves nothing: it belongs to its first sender.
    pub(super) fn is_trusted(&self, pass: &Pass<'_>) -> bool {
        self.is_trusted_ip(pass.flow.remote.ip()) && !self.is_our_via(pass)
    }

    /// Whether an address is one of a trusted peer.
    pub(super) fn is_trusted_ip(&self, ip: IpAddr) -> bool {
        self.config.trusted.iter().any(|n| n.contains(ip))
    }

    /// Whether what a message says of identities goes no further: it comes from a peer that is not
    /// believed, or asks for privacy towards one (RFC 3325 sections 5 and 7).
    pub(super) fn strips_identity(&self, from: &Flow, to: IpAddr, msg: &Message<'_>) -> bool {
        if !self.config.auth.enabled {
            return false;
        }
        let private = || {
            let values = msg.first(HeaderId::Privacy).unwrap_or_default();
            values.split(|&b| b == b';').any(|v| v.trim_ascii().eq_ignore_ascii_case(b"id"))
        };
        !self.is_trusted_ip(from.remote.ip()) || private() && !self.is_trusted_ip(to)
    }

    fn is_our_via(&self, pass: &Pass<'_>) -> bool {
        let Via { host, port, .. } = *pass.via;
        self.own.is_us(host, port, pass.flow.transport.default_port(), pass.flow.local)
    }

    /// Puts a line about this request into the log.
    pub(super) fn log(&mut self, pass: &Pass<'_>, what: &'static str, status: u16) {
        if self.events.len() >= super::MAX_EVENTS {
            self.stats.limits_hit += 1;
            return;
        }
        self.events.push_back(Event::Log(super::LogLine {
            what,
            status,
            method: short_text(pass.msg.method().as_bytes()),
            call_id: short_text(pass.msg.call_id()),
            uri: short_text(pass.msg.request_uri()),
            source: pass.flow.remote,
        }));
    }
}

/// Text from the network for the log: at most [`MAX_TEXT`] octets of it, what is no UTF-8 replaced.
pub(super) fn short_text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into()
}

/// Whether a digest was made for a Request-URI (RFC 7616 section 3.4.6). A proxy before us may have
/// changed the Request-URI, and phones write it without parameters, so the same user at the same host
/// is enough, and any two names of ours are the same host.
fn is_digest_uri_of(own: &crate::own::Own, digest: &[u8], request: &[u8]) -> bool {
    if digest == request {
        return true;
    }
    let (Ok(digest), Ok(request)) = (Uri::parse(digest), Uri::parse(request)) else { return false };
    if !digest.is_sip() || !request.is_sip() {
        return digest.equivalent(&request);
    }
    let plain = |user: Option<&[u8]>| {
        let mut plain = Vec::new();
        ringway_sip::uri::unescape_into(user.unwrap_or_default(), &mut plain);
        plain
    };
    let ours = |uri: &Uri<'_>| own.domain(uri.host).is_some();
    let same_host = match (digest.host_ip(), request.host_ip()) {
        (Some(a), Some(b)) => a.to_canonical() == b.to_canonical(),
        _ => digest.host.eq_ignore_ascii_case(request.host),
    };
    // Some agents write the server alone, SIPp among them, and prove no particular target by it.
    let server = digest.user.is_none() && ours(&digest);
    server
        || plain(digest.user) == plain(request.user)
            && (same_host || ours(&digest) && ours(&request))
}

/// Compares a user part of a URI, which may be escaped, with a user name.
pub(super) fn same_user(escaped: &[u8], name: &[u8]) -> bool {
    if !escaped.contains(&b'%') {
        return escaped == name;
    }
    let mut plain = Vec::with_capacity(escaped.len());
    ringway_sip::uri::unescape_into(escaped, &mut plain);
    plain == name
}
