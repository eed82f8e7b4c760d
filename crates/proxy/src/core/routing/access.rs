//! Who may use the server for what: RFC 3261 section 16.3 item 6.

use super::preroute::RequestRoute;
use crate::auth::{Authenticator, Verdict, claimed_user};
use crate::config::Config;
use crate::core::events::{AuthFailure, AuthFailureReason, Event, short_text};
use crate::core::names::{plain_user, same_user, user_of};
use crate::core::refusal::Refusal;
use crate::core::request::IncomingRequest;
use crate::core::turn::Turn;
use crate::own::Own;
use ringway_sansio::Time;
use ringway_sip::header::HeaderId;
use ringway_sip::message::Method;
use ringway_sip::uri::{Scheme, Uri};

/// Whom a request comes from, as far as it has been proved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::core) enum Proof {
    /// Nothing was asked for, and nothing was proved.
    None,
    /// A trusted peer, or a network without digest.
    Trusted,
    /// A dialog we are in the path of. It leads to the other party, and by no routing rule.
    Dialog,
    /// Digest credentials of this user that hold in the realm of this domain.
    Digest { domain: usize, user: Box<[u8]> },
}

/// Asks for proof and checks it.
pub(in crate::core) struct Access {
    auth: Authenticator,
}

impl Access {
    pub(in crate::core) fn new(auth: Authenticator) -> Access {
        Access { auth }
    }

    /// New rules.
    pub(in crate::core) fn reconfigure(&mut self, config: &Config, now: Time) {
        self.auth.reconfigure(config, now);
    }

    /// Whether there is such a user of a realm.
    pub(in crate::core) fn knows(&self, user: &[u8], realm: &str) -> bool {
        self.auth.knows(user, realm)
    }

    /// Section 16.3 item 6, and the rule that this is no open relay: what is not for a domain of
    /// ours is sent on only for those who have proved who they are. What is for a domain of ours and
    /// turns out to need a routing rule is asked for proof there ([`Access::demand_proof`]).
    pub(in crate::core) fn authorise(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        routed: &RequestRoute<'_>,
        local: bool,
    ) -> Result<Proof, Refusal> {
        let method = incoming.msg.method();
        if !t.node.trust.asks_for_proof() || t.node.is_trusted(incoming) {
            return Ok(Proof::Trusted);
        }
        if routed.is_in_dialog() {
            return Ok(Proof::Dialog);
        }
        if method == Method::Ack {
            // An ACK cannot be challenged (section 22.1): without a mark it goes to our own users.
            return if local { Ok(Proof::None) } else { Err(Refusal::SILENT) };
        }
        let from = incoming.msg.from().map_err(|e| Refusal::new(e.status, e.reason))?;
        let from = Uri::parse(from.uri).ok();
        let sip = from.as_ref().filter(|uri| uri.is_sip());
        let claims = sip.and_then(|uri| t.node.own.domain(uri.host));
        let open = |rule: &crate::routes::Rule| rule.open;
        if claims.is_none()
            && (local || routed.foreign_rule(&t.node.config.routes).is_some_and(open))
        {
            return Ok(Proof::None);
        }
        self.prove_sender(t, incoming, claims.unwrap_or(0), from.as_ref(), claims)
    }

    /// Asks for proof of a request that so far needed none.
    pub(in crate::core) fn demand_proof(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        domain: usize,
    ) -> Result<Proof, Refusal> {
        if incoming.msg.method() == Method::Ack {
            return Err(Refusal::SILENT);
        }
        let from = incoming.msg.from().ok().and_then(|from| Uri::parse(from.uri).ok());
        self.prove_sender(t, incoming, domain, from.as_ref(), None)
    }

    /// The user of a domain who proves to be the sender, and may write this From. `claims` is the domain of
    /// ours that From claims.
    fn prove_sender(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        domain: usize,
        from: Option<&Uri<'_>>,
        claims: Option<usize>,
    ) -> Result<Proof, Refusal> {
        let user = self.prove(t, incoming, domain)?;
        if !may_write(&t.node.config, from, claims, &user) {
            // Whoever proves to be one user cannot call as another.
            t.stats.forbidden += 1;
            report_failure(t, incoming, domain, AuthFailureReason::OtherUser);
            return Err(Refusal::new(403, "Forbidden: From is another user"));
        }
        Ok(Proof::Digest { domain, user: user.into() })
    }

    /// The user that the request's Proxy-Authorization proves, or the challenge.
    fn prove(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        domain: usize,
    ) -> Result<Vec<u8>, Refusal> {
        match self.check(t, incoming, HeaderId::ProxyAuthorization, domain)? {
            Verdict::Proved(user) => Ok(user),
            verdict => {
                Err(self.challenge(t, incoming, HeaderId::ProxyAuthenticate, &verdict, domain))
            }
        }
    }

    /// RFC 3261 section 10.3 items 3 and 4: who registers, and whether the address-of-record of `user` at
    /// this domain is theirs. `is_repeat` says whether a REGISTER makes nothing but bindings that are there.
    pub(in crate::core) fn authorise_register(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        domain: usize,
        user: &[u8],
        is_repeat: impl FnOnce(&Turn<'_>) -> bool,
    ) -> Result<(), Refusal> {
        if !t.node.trust.asks_for_proof() || t.node.is_trusted(incoming) {
            return Ok(());
        }
        match self.check(t, incoming, HeaderId::Authorization, domain)? {
            Verdict::Proved(name) if same_user(user, &name) => {
                let vetted =
                    t.node.gateways.vet_contacts(t.now, &t.node.trust, incoming.msg, incoming.flow);
                vetted.inspect_err(|refusal| {
                    t.stats.forbidden += 1;
                    t.log(incoming, refusal.reason, refusal.status);
                })
            }
            // Its answer may have been lost or still wait for the disk. Digest does not protect the
            // Contact, so nothing but the same bindings may come of it.
            Verdict::Repeated if is_repeat(t) => Ok(()),
            Verdict::Proved(_) => {
                t.stats.forbidden += 1;
                report_failure(t, incoming, domain, AuthFailureReason::OtherUser);
                Err(Refusal::new(403, "Forbidden"))
            }
            verdict => {
                Err(self.challenge(t, incoming, HeaderId::WwwAuthenticate, &verdict, domain))
            }
        }
    }

    /// What the credentials of a request in the realm of a domain are worth. Those that another challenge
    /// would not better are refused.
    fn check(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        id: HeaderId,
        domain: usize,
    ) -> Result<Verdict, Refusal> {
        let (own, msg) = (&t.node.own, incoming.msg);
        let fits = |uri: &[u8]| is_digest_uri_of(own, uri, msg.request_uri());
        let (source, realm) = (incoming.flow.remote.ip(), &t.node.domain(domain).name);
        match self.auth.check(t.now, source, msg, id, realm, &fits) {
            Verdict::BackOff => {
                t.stats.backed_off += 1;
                report_failure(t, incoming, domain, AuthFailureReason::BackOff);
                Err(Refusal::new(403, "Forbidden: too many wrong passwords"))
            }
            // RFC 7616 section 3.4.6.
            Verdict::OtherUri => {
                t.stats.auth_failed += 1;
                report_failure(t, incoming, domain, AuthFailureReason::OtherUri);
                Err(Refusal::new(400, "Authorization: uri is not the Request-URI"))
            }
            verdict => Ok(verdict),
        }
    }

    /// The challenge in answer to credentials that prove nothing.
    fn challenge(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        id: HeaderId,
        verdict: &Verdict,
        domain: usize,
    ) -> Refusal {
        t.stats.challenged += 1;
        if let Verdict::Wrong(reason) = *verdict {
            t.stats.auth_failed += 1;
            report_failure(t, incoming, domain, reason);
        }
        let mut headers = Vec::with_capacity(512);
        let stale = matches!(verdict, Verdict::Stale | Verdict::Repeated);
        let realm = &t.node.domain(domain).name;
        self.auth.challenge(t.now, t.random, id, realm, stale, &mut headers);
        let (status, reason) = match id {
            HeaderId::WwwAuthenticate => (401, "Unauthorized"),
            _ => (407, "Proxy Authentication Required"),
        };
        Refusal { status, reason, headers }
    }
}

/// Whether a user may write this From: their own address, an anonymous one (RFC 3323
/// section 4.1.1.3), or any where the operator allows it and it is none of our domains.
fn may_write(config: &Config, from: Option<&Uri<'_>>, claims: Option<usize>, user: &[u8]) -> bool {
    let Some(from) = from else { return false };
    if claims.is_some() {
        return from.user.is_some_and(|claimed| same_user(claimed, user));
    }
    let anonymous = from.is_sip() && from.host.eq_ignore_ascii_case(b"anonymous.invalid");
    let number =
        from.scheme == Scheme::Tel && user_of(from).is_some_and(|number| same_user(number, user));
    anonymous || number || config.auth.any_from
}

/// Reports credentials that were refused.
fn report_failure(
    t: &mut Turn<'_>,
    incoming: &IncomingRequest<'_>,
    domain: usize,
    reason: AuthFailureReason,
) {
    let (at, realm) = (t.now, &t.node.domain(domain).name);
    t.emit(|| {
        Event::AuthFailed(Box::new(AuthFailure {
            at,
            user: short_text(&claimed_user(incoming.msg, realm)),
            realm: realm.clone(),
            source: incoming.flow.remote,
            transport: incoming.flow.transport,
            method: short_text(incoming.msg.method().as_bytes()),
            call_id: short_text(incoming.msg.call_id()),
            reason,
        }))
    });
}

/// Whether a digest was made for a Request-URI (RFC 7616 section 3.4.6). A proxy before us may have
/// changed the Request-URI, and phones write it without parameters, so the same user at the same host
/// is enough, and any two names of ours are the same host.
fn is_digest_uri_of(own: &Own, digest: &[u8], request: &[u8]) -> bool {
    if digest == request {
        return true;
    }
    let (Ok(digest), Ok(request)) = (Uri::parse(digest), Uri::parse(request)) else { return false };
    if !digest.is_sip() || !request.is_sip() {
        return digest.equivalent(&request);
    }
    let plain = |user: Option<&[u8]>| plain_user(user.unwrap_or_default());
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
