//! Authorisation of requests: RFC 3261 section 16.3 item 6.

use super::preroute::RequestRoute;
use crate::auth::{Authenticator, Verdict, claimed_user};
use crate::config::Config;
use crate::core::events::{AuthFailure, AuthFailureReason, Event, short_text};
use crate::core::names::{plain_user, same_user, user_of};
use crate::core::node::Aor;
use crate::core::proof::Proof;
use crate::core::refusal::{Refusal, Stop};
use crate::core::request::IncomingRequest;
use crate::core::turn::Turn;
use crate::local_identity::LocalIdentity;
use crate::mark::MarkKey;
use crate::question::Question;
use ringway_sansio::Time;
use ringway_sip::header::HeaderId;
use ringway_sip::message::Method;
use ringway_sip::uri::{Scheme, Uri};
use std::net::IpAddr;

/// Asks for proof and checks it.
pub(in crate::core) struct Access {
    auth: Authenticator,
}

impl Access {
    pub(in crate::core) fn new(auth: Authenticator) -> Access {
        Access { auth }
    }

    /// Replaces the configuration.
    pub(in crate::core) fn reconfigure(&mut self, config: &Config, now: Time) {
        self.auth.reconfigure(config, now);
    }

    /// Returns whether a realm has this user.
    pub(in crate::core) fn has_user(&self, user: &[u8], realm: &str) -> bool {
        self.auth.has_user(user, realm)
    }

    /// Returns whether a source has recently proved to be a user.
    pub(in crate::core) fn is_known(
        &self,
        now: Time,
        source: IpAddr,
        user: &[u8],
        realm: &[u8],
    ) -> bool {
        self.auth.is_known(now, source, user, realm)
    }

    /// Authorises a request: section 16.3 item 6, and the rule that this is no open relay. A request for a domain that
    /// is not ours is forwarded only if its sender is authenticated. A request for a domain of ours that turns out to
    /// need a routing rule is authorised there ([`Access::demand_proof`]).
    pub(in crate::core) fn authorise(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        routed: &RequestRoute<'_>,
        local: bool,
    ) -> Result<Proof, Stop> {
        if let Some(proof) = incoming.progress.and_then(|progress| progress.proof.clone()) {
            return Ok(proof);
        }
        if let Some(router) = t.node.trust.sender(incoming) {
            return authorise_router(t, incoming, routed, local, router);
        }
        let method = incoming.msg.method();
        if !t.node.trust.asks_for_proof() || t.node.is_trusted(incoming) {
            return Ok(Proof::Trusted);
        }
        if routed.is_in_dialog() {
            return Ok(Proof::Dialog);
        }
        // A name that sends a request to another router is not one of a user here, nor is it for a routing rule.
        let is_of_other = local && t.node.gruus.other_maker(&routed.uri).is_some();
        let local = local && !is_of_other;
        if method == Method::Ack {
            return authorise_ack(t, incoming, routed, local);
        }
        let from = incoming.msg.from().map_err(|e| Refusal::new(e.status, e.reason))?;
        let from = Uri::parse(from.uri).ok();
        let sip = from.as_ref().filter(|uri| uri.is_sip());
        let claims = sip.and_then(|uri| t.node.identity.domain(uri.host));
        let open = |rule: &crate::routes::Rule| rule.open;
        if claims.is_none()
            && !is_of_other
            && (local || routed.foreign_rule(&t.node.config.routes).is_some_and(open))
        {
            return Ok(Proof::None);
        }
        self.prove_sender(t, incoming, claims.unwrap_or(0), from.as_ref(), claims)
    }

    /// Asks for proof of a request that did not need any before.
    pub(in crate::core) fn demand_proof(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        domain: usize,
    ) -> Result<Proof, Stop> {
        if incoming.msg.method() == Method::Ack {
            return Err(Refusal::SILENT.into());
        }
        let from = incoming.msg.from().ok().and_then(|from| Uri::parse(from.uri).ok());
        self.prove_sender(t, incoming, domain, from.as_ref(), None)
    }

    /// Returns the user of a domain who is proved to be the sender, and may use this From. `claims` is the domain of
    /// ours that From claims.
    fn prove_sender(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        domain: usize,
        from: Option<&Uri<'_>>,
        claims: Option<usize>,
    ) -> Result<Proof, Stop> {
        if t.node.trust.is_unknown_node(incoming) {
            // Its user has proved it there, and could make nothing of a challenge of another node.
            return Err(Refusal::new(430, "Flow Failed").into());
        }
        let user = self.prove(t, incoming, domain)?;
        if !may_write(&t.node.config, from, claims, &user) {
            // An authenticated user cannot call as another.
            t.stats.forbidden += 1;
            report_failure(t, incoming, domain, AuthFailureReason::OtherUser);
            return Err(Refusal::new(403, "Forbidden: From is another user").into());
        }
        let realm = t.node.domain(domain).name.clone();
        Ok(Proof::Digest { realm, user: user.into() })
    }

    /// Returns the user that the request's Proxy-Authorization proves, or the challenge.
    fn prove(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        domain: usize,
    ) -> Result<Vec<u8>, Stop> {
        match self.check(t, incoming, HeaderId::ProxyAuthorization, domain)? {
            Verdict::Proved(user) => Ok(user),
            verdict => {
                let id = HeaderId::ProxyAuthenticate;
                Err(self.challenge(t, incoming, id, &verdict, domain).into())
            }
        }
    }

    /// Authorises a REGISTER: RFC 3261 section 10.3 items 3 and 4. The sender must be authenticated, and own the
    /// address-of-record of `user` at this domain. `is_repeat` returns whether a REGISTER only repeats bindings that
    /// exist.
    pub(in crate::core) fn authorise_register(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        domain: usize,
        user: &[u8],
        is_repeat: impl FnOnce(&Turn<'_>) -> bool,
    ) -> Result<(), Stop> {
        if t.node.trust.sender(incoming).is_some() {
            // Its users register there.
            t.stats.forbidden += 1;
            return Err(Refusal::new(403, "Forbidden: a router registers nobody").into());
        }
        if !t.node.trust.asks_for_proof() || t.node.is_trusted(incoming) {
            return Ok(());
        }
        match self.check(t, incoming, HeaderId::Authorization, domain)? {
            Verdict::Proved(name) if same_user(user, &name) => {
                let vetted =
                    t.node.gateways.vet_contacts(t.now, &t.node.trust, incoming.msg, incoming.flow);
                Ok(vetted.inspect_err(|refusal| {
                    t.stats.forbidden += 1;
                    t.log(incoming, refusal.reason, refusal.status);
                })?)
            }
            // Its response may have been lost or still wait for the disk. Digest does not protect the Contact, so only
            // the same bindings are accepted.
            Verdict::Repeated if is_repeat(t) => Ok(()),
            Verdict::Proved(_) => {
                t.stats.forbidden += 1;
                report_failure(t, incoming, domain, AuthFailureReason::OtherUser);
                Err(Refusal::new(403, "Forbidden").into())
            }
            verdict => {
                let id = HeaderId::WwwAuthenticate;
                Err(self.challenge(t, incoming, id, &verdict, domain).into())
            }
        }
    }

    /// Returns the verdict about the credentials of a request in the realm of a domain. Credentials that another
    /// challenge would not improve are refused.
    fn check(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        id: HeaderId,
        domain: usize,
    ) -> Result<Verdict, Stop> {
        let (identity, msg) = (&t.node.identity, incoming.msg);
        let fits = |uri: &[u8]| is_digest_uri_of(identity, uri, msg.request_uri());
        let (source, realm) = (incoming.flow.remote.ip(), &t.node.domain(domain).name);
        let answer = incoming.progress.and_then(|progress| progress.credentials.as_ref());
        match self.auth.check(t.now, source, msg, id, realm, &fits, answer) {
            Verdict::Ask(question) if answer.is_none() && incoming.may_ask(t.now) => {
                Err(Stop::Asks { question: Question::Credentials(question), proof: None })
            }
            Verdict::Ask(_) => Err(Refusal::unanswered_for_now().into()),
            Verdict::BackOff => {
                t.stats.backed_off += 1;
                report_failure(t, incoming, domain, AuthFailureReason::BackOff);
                Err(Refusal::new(403, "Forbidden: too many wrong passwords").into())
            }
            // RFC 7616 section 3.4.6.
            Verdict::OtherUri => {
                t.stats.auth_failed += 1;
                report_failure(t, incoming, domain, AuthFailureReason::OtherUri);
                Err(Refusal::new(400, "Authorization: uri is not the Request-URI").into())
            }
            verdict => Ok(verdict),
        }
    }

    /// Returns the challenge in answer to credentials that prove nothing.
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

/// Authorises an ACK that has no mark. It cannot be challenged (RFC 3261 section 22.1), so it may be sent to our own users
/// only, or where an INVITE of the same source has been sent and accepted: credentials that were accepted in the INVITE are
/// accepted in its ACK.
fn authorise_ack(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
    local: bool,
) -> Result<Proof, Stop> {
    if local {
        return Ok(Proof::None);
    }
    let dialogs = &t.node.dialogs;
    let target = dialogs.target(MarkKey::OWN, routed.next_uri(), routed.uri_bytes, &routed.uri);
    if !dialogs.is_awaited_ack(t.now, incoming, &target) {
        return Err(Refusal::SILENT.into());
    }
    let from = incoming.msg.from().ok().and_then(|from| Uri::parse(from.uri).ok());
    let from = from.filter(Uri::is_sip);
    let domain = from.as_ref().and_then(|uri| t.node.identity.domain(uri.host)).unwrap_or(0);
    let user = from.and_then(|uri| uri.user).unwrap_or_default();
    Ok(Proof::Digest { realm: t.node.domain(domain).name.clone(), user: user.into() })
}

/// Authorises a request of another router of the mesh. It is for our own users, or within a dialog, or for a routing rule
/// that is shared. A router is not asked for credentials: it vouches for its users, and for no others.
fn authorise_router(
    t: &mut Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
    local: bool,
    router: IpAddr,
) -> Result<Proof, Stop> {
    if routed.is_in_dialog() {
        return Ok(Proof::Dialog);
    }
    let rule = routed.foreign_rule(&t.node.config.routes).filter(|_| !local);
    if !local && rule.is_none_or(|rule| rule.shared.is_none()) {
        t.stats.forbidden += 1;
        return Err(Refusal::new(403, "Forbidden: for no user of this router").into());
    }
    let from = incoming.msg.from().map_err(|e| Refusal::new(e.status, e.reason))?;
    let from = Uri::parse(from.uri).ok().filter(Uri::is_sip);
    let claims = from.and_then(|from| Some((from.user, t.node.identity.domain(from.host)?)));
    // Others are strangers to every router.
    let claims = claims.filter(|_| incoming.msg.method() != Method::Ack);
    let Some((user, domain)) = claims else {
        return if local { Ok(Proof::Router { vouched: false }) } else { Err(unvouched(t).into()) };
    };
    if !t.node.trust.asks_for_proof() {
        return Ok(Proof::Router { vouched: true });
    }
    let aor = t.node.aor(user.unwrap_or_default(), domain);
    match t.store.speaks_for(router, &aor, t.now) {
        Some(true) => Ok(Proof::Router { vouched: true }),
        Some(false) => match delivers(t, incoming, routed, router) {
            Some(true) => Ok(Proof::Router { vouched: true }),
            Some(false) => {
                t.stats.forbidden += 1;
                Err(Refusal::new(403, "Forbidden: From is no user of that router").into())
            }
            None => match target_aor(t, incoming, routed) {
                Some(aor) if incoming.may_ask_about(t.now, &aor) => Err(Stop::locate(&aor)),
                _ => Err(Refusal::unanswered().into()),
            },
        },
        None if incoming.may_ask_about(t.now, &aor) => Err(Stop::locate(&aor)),
        None => Err(Refusal::unanswered().into()),
    }
}

/// Returns whether a message comes from the home of its recipient, which delivers what others have left there for this
/// user and has verified who they are; `None` if the world must be asked. A home knows all of its users' secrets, so nothing
/// is gained that it could not do without this.
fn delivers(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
    router: IpAddr,
) -> Option<bool> {
    let aor = target_aor(t, incoming, routed).filter(|_| incoming.msg.method() == Method::Message);
    aor.map_or(Some(false), |aor| t.store.is_home(router, &aor, t.now))
}

/// Returns the address-of-record that the Request-URI of a request for one of our users names.
fn target_aor(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
) -> Option<Aor> {
    let domain = t.node.own_domain(&routed.uri, incoming.flow, false)?;
    Some(t.node.aor(user_of(&routed.uri)?, domain))
}

/// Returns the refusal of a request by a shared routing rule for whose sender the router does not vouch.
pub(super) fn unvouched(t: &mut Turn<'_>) -> Refusal {
    t.stats.forbidden += 1;
    Refusal::new(403, "Forbidden: From is no user of the mesh")
}

/// Returns whether a user may use this From: their own address, an anonymous one (RFC 3323 section 4.1.1.3), or any
/// other if the operator allows it and it is in none of our domains.
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

/// Returns whether a digest was made for a Request-URI (RFC 7616 section 3.4.6). A proxy before this one may have
/// changed the Request-URI, and phones write it without parameters. So the same user at the same host is enough, and
/// any two names of ours are the same host.
fn is_digest_uri_of(identity: &LocalIdentity, digest: &[u8], request: &[u8]) -> bool {
    if digest == request {
        return true;
    }
    let (Ok(digest), Ok(request)) = (Uri::parse(digest), Uri::parse(request)) else { return false };
    if !digest.is_sip() || !request.is_sip() {
        return digest.equivalent(&request);
    }
    let plain = |user: Option<&[u8]>| plain_user(user.unwrap_or_default());
    let ours = |uri: &Uri<'_>| identity.domain(uri.host).is_some();
    let same_host = match (digest.host_ip(), request.host_ip()) {
        (Some(a), Some(b)) => a.to_canonical() == b.to_canonical(),
        _ => digest.host.eq_ignore_ascii_case(request.host),
    };
    // Some agents, SIPp among them, write the server alone, and prove no particular target by it.
    let server = digest.user.is_none() && ours(&digest);
    server
        || plain(digest.user) == plain(request.user)
            && (same_host || ours(&digest) && ours(&request))
}
