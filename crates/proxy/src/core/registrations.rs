//! Registrations: RFC 3261 section 10.3. The [registrar](crate::registrar) changes the bindings. This module decides
//! who may send a REGISTER, and sends the response as soon as the store has made the change durable.

use super::names::user_of;
use super::refusal::{Refusal, Stop};
use super::request::IncomingRequest;
use super::routing::access::Access;
use super::turn::Turn;
use crate::gruu::Gruus;
use crate::location::{Commit, CommitTag};
use crate::registrar::{Registrar, RegistrarConfig};
use hashbrown::HashMap;
use ringway_sansio::{Duration, Flow, Time};
use ringway_sip::message;
use ringway_sip::transaction::ServerId;
use ringway_sip::uri::{Scheme, Uri};
use slab::Slab;

/// The number of registrations that may wait for the store. More are answered with 503.
pub const MAX_PENDING_COMMITS: usize = 100_000;

/// The divisor of the free entries that one source may hold.
const PART: usize = 4;

/// A table larger than this is replaced by a small one when it becomes empty.
const KEEP_ENTRIES: usize = 4096;

/// A REGISTER whose response waits for the store.
struct PendingRegister {
    request: Vec<u8>,
    flow: Flow,
    server: Option<ServerId>,
    headers: Vec<u8>,
    came: Time,
    /// Its source.
    holder: u64,
}

/// The registrar, and the requests that wait for its store.
pub(super) struct Registrations {
    registrar: Registrar,
    pending: Slab<PendingRegister>,
    /// The number of those of each source.
    held: HashMap<u64, usize>,
}

impl Registrations {
    pub(super) fn new(config: RegistrarConfig, gruus: Gruus) -> Registrations {
        let registrar = Registrar::new(config, gruus);
        Registrations { registrar, pending: Slab::new(), held: HashMap::new() }
    }

    /// Replaces the configuration.
    pub(super) fn reconfigure(&mut self, config: RegistrarConfig, gruus: Gruus) {
        self.registrar.reconfigure(config, gruus);
    }

    /// Returns the number of requests that wait for the store.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Processes a REGISTER: RFC 3261 section 10.3, items 2 to 5; the registrar does the rest. `request_domain` is the
    /// domain of the Request-URI.
    pub(super) fn register(
        &mut self,
        t: &mut Turn<'_>,
        access: &mut Access,
        incoming: &IncomingRequest<'_>,
        request_domain: usize,
    ) -> Result<(), Stop> {
        let msg = incoming.msg;
        let to = msg.to().map_err(|e| Refusal::new(e.status, e.reason))?;
        let to = Uri::parse(to.uri).map_err(|e| Refusal::new(e.status, e.reason))?;
        if !to.is_sip() && to.scheme != Scheme::Tel {
            // RFC 4475 section 3.3.4: no registrar can have such an address-of-record.
            return Err(Refusal::new(400, "To: expected a SIP URI").into());
        }
        // Item 5: the address-of-record must lie in a domain of ours.
        let not_found = || Refusal::new(404, "Not Found");
        let domain = t.node.own_domain(&to, incoming.flow, false).ok_or_else(not_found)?;
        // A literal address is the server's and belongs to no particular domain.
        let named = Uri::parse(msg.request_uri()).is_ok_and(|uri| uri.host_ip().is_none());
        if named && domain != request_domain {
            return Err(not_found().into());
        }
        let user = user_of(&to).ok_or_else(not_found)?;
        let aor = t.node.aor(user, domain);
        let is_repeat =
            |t: &Turn<'_>| self.registrar.is_repeat(t.now, incoming.flow, msg, &aor, t.store);
        access.authorise_register(t, incoming, domain, user, is_repeat)?;
        Ok(self.change(t, incoming, &aor)?)
    }

    /// Returns whether one more registration of this source may wait for the store: of what is free, a source holds a
    /// part, so that a slow store is not one source's; a trusted peer carries the phones of many.
    fn has_room(&self, t: &Turn<'_>, incoming: &IncomingRequest<'_>, holder: u64) -> bool {
        let limit = t.store.max_waiting().min(MAX_PENDING_COMMITS);
        let free = limit.saturating_sub(self.pending.len());
        let part = if t.node.is_trusted(incoming) { 1 } else { PART };
        self.held.get(&holder).copied().unwrap_or(0) < free.div_ceil(part)
    }

    /// Passes an authorised REGISTER to the registrar.
    fn change(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        aor: &[u8],
    ) -> Result<(), Refusal> {
        let [holder, _] = t.budget.holders(incoming.flow, None);
        if !self.has_room(t, incoming, holder) {
            t.stats.limits_hit += 1;
            return Err(Refusal::busy());
        }
        if !t.reserve_budget(incoming.msg, incoming.flow, None, true) {
            return Err(Refusal::busy());
        }
        let tag = CommitTag { worker: t.node.worker, id: self.pending.vacant_key() as u64 };
        let mut headers = Vec::with_capacity(256);
        let done = self.registrar.register(
            t.now,
            incoming.flow,
            incoming.msg,
            aor,
            tag,
            t.store,
            t.random,
            &mut headers,
        );
        let (request, flow) = (incoming.msg.whole(), *incoming.flow);
        if done.commit == Commit::Pending && done.status == 200 {
            self.pending.insert(PendingRegister {
                request: request.to_vec(),
                flow,
                server: incoming.server(),
                headers,
                came: t.now,
                holder,
            });
            *self.held.entry(holder).or_insert(0) += 1;
            return Ok(());
        }
        t.release_budget(request.len(), incoming.flow, None);
        if done.commit == Commit::Refused {
            return Err(Refusal::busy());
        }
        if done.status == 200 {
            t.stats.registers_ok += 1;
            t.stats.registration_request_delay.add(Duration::ZERO);
        } else {
            t.stats.registers_failed += 1;
            t.log(incoming, "registration refused", done.status);
        }
        let (msg, via, status) = (incoming.msg, incoming.via, (done.status, done.reason));
        t.reply(incoming.flow, msg, via, incoming.server(), status, &headers);
        Ok(())
    }

    /// Answers the REGISTER that waited for this commit: the store has made the change durable, or has failed to.
    pub(super) fn committed(&mut self, t: &mut Turn<'_>, id: u64, ok: bool) {
        let Some(pending) = self.pending.try_remove(id as usize) else { return };
        t.release_budget(pending.request.len(), &pending.flow, None);
        if let Some(held) = self.held.get_mut(&pending.holder) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&pending.holder);
            }
        }
        if self.pending.is_empty() && self.pending.capacity() > KEEP_ENTRIES {
            self.pending = Slab::new();
            self.held = HashMap::new();
        }
        let Ok(msg) = message::parse(&pending.request) else { return };
        let Ok(via) = msg.top_via() else { return };
        let (status, headers): (u16, &[u8]) = if ok {
            t.stats.registers_ok += 1;
            t.stats.registration_request_delay.add(t.now - pending.came);
            (200, &pending.headers)
        } else {
            t.stats.registers_failed += 1;
            (503, b"Retry-After: 10\r\n")
        };
        t.reply(&pending.flow, &msg, &via, pending.server, (status, ""), headers);
    }
}
