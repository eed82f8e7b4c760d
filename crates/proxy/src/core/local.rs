//! What is addressed to the server itself: REGISTER, OPTIONS, redirection.

use super::context::RequestTarget;
use super::validate::Refusal;
use super::{AuthFailureReason, Core, MAX_PENDING_COMMITS, Pass, PendingRegister};
use crate::auth::Verdict;
use crate::location::{Commit, CommitTag};
use crate::shared::REMEMBER_REQUEST;
use ringway_sansio::{Outbox, Target, Time};
use ringway_sip::header::HeaderId;
use ringway_sip::message::{self, Method};
use ringway_sip::uri::{Scheme, Uri};
use ringway_sip::write;
use std::hash::Hasher;

/// Methods a request to the server itself may have.
const ALLOW: &[u8] = b"Allow: OPTIONS, REGISTER, SUBSCRIBE\r\n";

/// What the server understands, for OPTIONS (RFC 3261 section 11.2).
const CAPABILITIES: &[u8] =
    b"Allow: OPTIONS, REGISTER, SUBSCRIBE, INVITE, ACK, CANCEL, BYE, MESSAGE, \
NOTIFY, REFER, INFO, UPDATE, PRACK, PUBLISH\r\nAccept: application/sdp, application/reginfo+xml\r\n\
Accept-Encoding: identity\r\nAccept-Language: en\r\nAllow-Events: reg\r\n\
Supported: path, outbound, gruu\r\n";

impl Core {
    /// A request whose Request-URI is the server, without a user.
    pub(super) fn serve_itself(
        &mut self,
        pass: &Pass<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let msg = pass.msg;
        match msg.method() {
            Method::Ack => {}
            // RFC 3261 section 8.2.2.3: an extension that is required and not understood.
            _ if msg.has(HeaderId::Require) => {
                let mut headers = Vec::new();
                unsupported(&mut headers, msg.items(HeaderId::Require));
                return Err(Refusal { status: 420, reason: "Bad Extension", headers });
            }
            Method::Options if self.is_merged(pass) => {
                self.stats.looped += 1;
                return Err(Refusal::new(482, "Loop Detected"));
            }
            Method::Options => self.refuse(pass, 200, "OK", CAPABILITIES, out),
            Method::Other(_) => {
                let headers = ALLOW.to_vec();
                return Err(Refusal { status: 501, reason: "Not Implemented", headers });
            }
            Method::Bye | Method::Update | Method::Info | Method::Prack | Method::Notify => {
                return Err(Refusal::new(481, "Call/Transaction Does Not Exist"));
            }
            Method::Invite | Method::Message | Method::Refer | Method::Publish => {
                return Err(Refusal::new(404, "Not Found"));
            }
            _ => {
                let headers = ALLOW.to_vec();
                return Err(Refusal { status: 405, reason: "Method Not Allowed", headers });
            }
        }
        Ok(())
    }

    /// Whether the same request has come another way (RFC 3261 section 8.2.2.2): without a To tag, with
    /// the From tag, Call-ID and CSeq of one that came by another branch.
    fn is_merged(&mut self, pass: &Pass<'_>) -> bool {
        let msg = pass.msg;
        let from = msg.from().ok().and_then(|from| from.tag()).unwrap_or_default();
        if from.is_empty() || msg.to().is_ok_and(|to| to.tag().is_some()) {
            return false;
        }
        let mut h = self.shared.requests.hasher();
        for field in [b"merged", msg.call_id(), from] {
            h.write(field);
            h.write_u8(b'\n');
        }
        h.write_u32(msg.cseq().map_or(0, |cseq| cseq.seq));
        let (key, branch) = (h.finish(), pass.key.to_u64() as u8);
        let before = self.shared.requests.get(key, pass.now);
        self.shared.requests.put(key, before.unwrap_or(branch), pass.now, REMEMBER_REQUEST);
        before.is_some_and(|before| before != branch)
    }

    /// RFC 3261 section 10.3, items 2 to 5; the rest is the registrar's.
    pub(super) fn register(
        &mut self,
        pass: &Pass<'_>,
        request_domain: usize,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let msg = pass.msg;
        let to = msg.to().map_err(|e| Refusal::new(e.status, e.reason))?;
        let to = Uri::parse(to.uri).map_err(|e| Refusal::new(e.status, e.reason))?;
        if !to.is_sip() && to.scheme != Scheme::Tel {
            // RFC 4475 section 3.3.4: no registrar can have such an address-of-record.
            return Err(Refusal::new(400, "To: expected a SIP URI"));
        }
        // Item 5: the address-of-record must lie in a domain of ours.
        let not_found = || Refusal::new(404, "Not Found");
        let domain = self.own_domain(&to, pass.flow, false).ok_or_else(not_found)?;
        // A literal address is the server's and of no domain in particular.
        let named = Uri::parse(msg.request_uri()).is_ok_and(|uri| uri.host_ip().is_none());
        if named && domain != request_domain {
            return Err(not_found());
        }
        let user = super::targets::user_of(&to).ok_or_else(not_found)?;
        let mut aor = std::mem::take(&mut self.scratch);
        aor.clear();
        self.write_aor(user, domain, &mut aor);
        let result = self
            .authorise_register(pass, domain, user, &aor)
            .and_then(|()| self.do_register(pass, &aor, out));
        self.scratch = aor;
        result
    }

    /// Items 3 and 4: who asks, and whether the address-of-record is theirs.
    fn authorise_register(
        &mut self,
        pass: &Pass<'_>,
        domain: usize,
        user: &[u8],
        aor: &[u8],
    ) -> Result<(), Refusal> {
        if !self.config.auth.enabled || self.is_trusted(pass) {
            return Ok(());
        }
        let config = self.config.clone();
        let realm = &config.domains[domain].name;
        let verdict = self.check_credentials(pass, HeaderId::Authorization, realm);
        self.refuse_credentials(pass, &verdict, domain)?;
        match verdict {
            Verdict::Proved(name) if super::validate::same_user(user, &name) => {
                self.vet_contacts(pass).inspect_err(|refusal| {
                    self.stats.forbidden += 1;
                    self.log(pass, refusal.reason, refusal.status);
                })
            }
            // Its answer may have been lost or still wait for the disk. Digest does not protect the
            // Contact, so nothing but the same bindings may come of it.
            Verdict::Repeated if self.is_repeated(pass, aor) => Ok(()),
            Verdict::Proved(_) => {
                self.stats.forbidden += 1;
                self.auth_failed(pass, domain, AuthFailureReason::OtherUser);
                Err(Refusal::new(403, "Forbidden"))
            }
            verdict => {
                self.note_verdict(pass, &verdict, domain);
                let mut headers = Vec::with_capacity(512);
                let stale = matches!(verdict, Verdict::Stale | Verdict::Repeated);
                let id = HeaderId::WwwAuthenticate;
                let random = &mut *self.random;
                self.auth.challenge(pass.now, random, id, realm, stale, &mut headers);
                Err(Refusal { status: 401, reason: "Unauthorized", headers })
            }
        }
    }

    fn is_repeated(&mut self, pass: &Pass<'_>, aor: &[u8]) -> bool {
        let store = self.store.clone();
        self.registrar.is_repeat(pass.now, pass.flow, pass.msg, aor, &*store)
    }

    fn do_register(
        &mut self,
        pass: &Pass<'_>,
        aor: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if self.pending.len() >= MAX_PENDING_COMMITS {
            self.stats.limits_hit += 1;
            return Err(busy());
        }
        if !self.keep(pass.msg, pass.flow, None, true) {
            return Err(busy());
        }
        let index = self.pending.vacant_key();
        let tag = CommitTag { worker: self.worker, id: index as u64 };
        let mut headers = Vec::with_capacity(256);
        let store = self.store.clone();
        let done = self.registrar.register(
            pass.now,
            pass.flow,
            pass.msg,
            aor,
            tag,
            &*store,
            &mut *self.random,
            &mut headers,
        );
        if done.commit == Commit::Pending && done.status == 200 {
            self.pending.insert(PendingRegister {
                request: pass.msg.whole().to_vec(),
                flow: *pass.flow,
                headers,
                came: pass.now,
            });
            return Ok(());
        }
        self.release_kept(pass.msg.whole().len(), pass.flow, None);
        if done.commit == Commit::Refused {
            return Err(busy());
        }
        if done.status == 200 {
            self.stats.registers_ok += 1;
            self.stats.registration_request_delay.add(Default::default());
        } else {
            self.stats.registers_failed += 1;
            self.log(pass, "registration refused", done.status);
        }
        self.reply(pass.flow, pass.msg, pass.via, done.status, done.reason, &headers, out);
        Ok(())
    }

    /// The store has made a change durable (or has failed to): the REGISTER that waited for it is
    /// answered.
    pub fn handle_committed(&mut self, now: Time, id: u64, ok: bool, out: &mut Outbox) {
        let Some(pending) = self.pending.try_remove(id as usize) else { return };
        self.release_kept(pending.request.len(), &pending.flow, None);
        if self.pending.is_empty() && self.pending.capacity() > 4096 {
            self.pending = slab::Slab::new();
        }
        let Ok(msg) = message::parse(&pending.request) else { return };
        let Ok(via) = msg.top_via() else { return };
        let (reply, _) = self.reply_to(&pending.flow, &via);
        let tag = self.own.tag(msg.call_id());
        let (status, headers): (u16, &[u8]) = if ok {
            self.stats.registers_ok += 1;
            self.stats.registration_request_delay.add(now - pending.came);
            (200, &pending.headers)
        } else {
            self.stats.registers_failed += 1;
            (503, b"Retry-After: 10\r\n")
        };
        out.push(Target::Flow(reply), 0, |buf| {
            write::response(buf, &msg, Some(&pending.flow), status, "", Some(&tag), headers, &[]);
        });
    }

    /// Redirection (RFC 3261 section 8.3): the contacts with their q, best first.
    pub(super) fn redirect(
        &mut self,
        pass: &Pass<'_>,
        targets: &[RequestTarget],
        out: &mut Outbox,
    ) {
        let mut headers = Vec::with_capacity(64 * targets.len());
        for target in targets {
            headers.extend_from_slice(b"Contact: <");
            headers.extend_from_slice(&target.uri);
            headers.extend_from_slice(b">;q=");
            headers.extend_from_slice(if target.q >= 1000 { b"1." } else { b"0." });
            let digits = target.q % 1000;
            for d in [digits / 100, digits / 10 % 10, digits % 10] {
                headers.push(b'0' + d as u8);
            }
            headers.extend_from_slice(b"\r\n");
        }
        if pass.msg.method() == Method::Invite && pass.msg.to().is_ok_and(|t| t.tag().is_none()) {
            self.stats.sessions += 1;
            self.stats.sessions_redirected += 1;
        }
        self.refuse(pass, 302, "Moved Temporarily", &headers, out);
    }
}

fn busy() -> Refusal {
    Refusal { status: 503, reason: "Service Unavailable", headers: b"Retry-After: 10\r\n".to_vec() }
}

/// Appends an Unsupported header field with these option tags.
pub(super) fn unsupported<'a>(buf: &mut Vec<u8>, tags: impl Iterator<Item = &'a [u8]>) {
    buf.extend_from_slice(b"Unsupported: ");
    for (i, tag) in tags.enumerate() {
        if i > 0 {
            buf.extend_from_slice(b", ");
        }
        buf.extend_from_slice(tag);
    }
    buf.extend_from_slice(b"\r\n");
}
