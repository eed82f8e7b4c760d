//! Request validation: RFC 3261 section 16.3, with the loop detection of RFC 5393, and who may use
//! the server for what.

use super::context::Kept;
use super::preroute::Routed;
use super::{Core, Event, Pass};
use crate::auth::Verdict;
use ringway_sip::header::{HeaderId, Via};
use ringway_sip::message::Method;
use ringway_sip::transaction::Branch;
use ringway_sip::uri::{Scheme, Uri};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

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
    pub(super) fn new(status: u16, reason: &'static str) -> Refusal {
        Refusal { status, reason, headers: Vec::new() }
    }
}

/// Whom a request comes from, as far as it has been proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Proof {
    /// Nothing was asked for, and nothing was proved.
    None,
    /// A dialog we are in the path of, a trusted peer, or a network without digest.
    Trusted,
    /// Digest credentials that hold in this domain's realm.
    Digest(usize),
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
            spiral,
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
    /// ours is sent on only for those who have proved who they are.
    pub(super) fn authorise(
        &mut self,
        pass: &Pass<'_>,
        routed: &Routed<'_>,
        local: bool,
    ) -> Result<Proof, Refusal> {
        let method = pass.msg.method();
        if routed.marked || !self.config.auth.enabled || self.is_trusted(pass) {
            return Ok(Proof::Trusted);
        }
        if method == Method::Ack {
            // An ACK cannot be challenged (section 22.1): without a mark it goes to our own users.
            return if local { Ok(Proof::None) } else { Err(Refusal::new(0, "")) };
        }
        let from = pass.msg.from().map_err(|e| Refusal::new(e.status, e.reason))?;
        let from = Uri::parse(from.uri).ok().filter(Uri::is_sip);
        let claims = from.as_ref().and_then(|uri| self.own.domain(uri.host));
        if claims.is_none() && local {
            return Ok(Proof::None);
        }
        let domain = claims.unwrap_or(0);
        let config = self.config.clone();
        let realm = &config.domains[domain].name;
        match self.auth.check(pass.now, pass.msg, HeaderId::ProxyAuthorization, realm) {
            Verdict::Proved(user) => {
                // Whoever proves to be one user cannot call as another.
                let claimed = from.and_then(|uri| uri.user).filter(|_| claims.is_some());
                if claimed.is_some_and(|claimed| !same_user(claimed, &user)) {
                    self.stats.forbidden += 1;
                    return Err(Refusal::new(403, "Forbidden: From is another user"));
                }
                Ok(Proof::Digest(domain))
            }
            verdict => {
                let mut headers = Vec::new();
                let stale = matches!(verdict, Verdict::Stale | Verdict::Repeated);
                self.note_verdict(pass, &verdict, 407);
                self.auth.challenge(
                    pass.now,
                    &mut *self.random,
                    HeaderId::ProxyAuthenticate,
                    realm,
                    stale,
                    &mut headers,
                );
                Err(Refusal { status: 407, reason: "Proxy Authentication Required", headers })
            }
        }
    }

    pub(super) fn note_verdict(&mut self, pass: &Pass<'_>, verdict: &Verdict, status: u16) {
        self.stats.challenged += 1;
        if *verdict == Verdict::Wrong {
            self.stats.auth_failed += 1;
            self.log(pass, "wrong credentials", status);
        }
    }

    /// Whether the request comes from a peer that is believed.
    pub(super) fn is_trusted(&self, pass: &Pass<'_>) -> bool {
        !self.config.trusted.is_empty()
            && self.config.trusted.iter().any(|n| n.contains(pass.flow.remote.ip()))
    }

    /// Puts a line about this request into the log.
    pub(super) fn log(&mut self, pass: &Pass<'_>, what: &'static str, status: u16) {
        if self.events.len() >= super::MAX_EVENTS {
            self.stats.limits_hit += 1;
            return;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(256)]).into();
        self.events.push_back(Event::Log(super::LogLine {
            what,
            status,
            method: text(pass.msg.method().as_bytes()),
            call_id: text(pass.msg.call_id()),
            uri: text(pass.msg.request_uri()),
            source: pass.flow.remote,
        }));
    }
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
