//! The parts of a core, and the dispatch of each request, response and report to them.
//!
//! Requests are processed by RFC 3261 section 16: 16.3 to 16.5 in `routing`, 16.6 to 16.10 in `calls`, 16.11 in
//! `stateless`.

use super::KeptMessage;
use super::calls::{Answer, Calls, RETRY_AFTER_STOP};
use super::dialogs::{TargetMatch, refreshes_target};
use super::events::{Event, short_text};
use super::ids::{AskId, ClientUser, ContextId, ResolveId, ResolveUser};
use super::kept;
use super::local_requests;
use super::names::user_of;
use super::parked::{MAX_WAIT, Parked};
use super::proof::Proof;
use super::refusal::{Refusal, Stop};
use super::registrations::Registrations;
use super::request::{Findings, IncomingRequest, Progress};
use super::routing::access::Access;
use super::routing::preroute::{Maddr, RequestRoute, preroute};
use super::routing::{
    targets,
    validate::{of_own, validate},
};
use super::stateless::{self, Stateless};
use super::subscriptions::{self, Subject, Subscriptions};
use super::target::RequestTarget;
use super::turn::Turn;
use crate::config::Mode;
use crate::notifier::Package;
use crate::overload::Guard;
use crate::question::{Question, Reply};
use ringway_sansio::{Flow, Hop};
use ringway_sip::header::Via;
use ringway_sip::message::{self, Message, Method};
use ringway_sip::transaction::{Branch, ClientEvent, Expired, Incoming, Kind, Report, ServerKey};
use ringway_sip::uri::{self, Uri};
use std::net::SocketAddr;
use std::sync::Arc;

/// How a message came to this worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// By a socket of this worker.
    Here,
    /// From another worker.
    HandedOver,
}

/// The parts of a core. Each part owns its state. Only `access` is lent to others, which ask it for proof.
pub(super) struct Parts {
    pub guard: Guard,
    pub access: Access,
    pub calls: Calls,
    pub stateless: Stateless,
    pub registrations: Registrations,
    pub subscriptions: Subscriptions,
    pub parked: Parked,
}

impl Parts {
    pub(super) fn request(
        &mut self,
        t: &mut Turn<'_>,
        flow: &Flow,
        msg: &Message<'_>,
        arrival: Arrival,
    ) {
        let via = match msg.top_via() {
            Ok(via) => via,
            Err(fault) => return local_requests::refuse_without_via(t, flow, msg, fault.reason),
        };
        let key = match t.tx.receive(t.now, msg, &via, t.out) {
            Incoming::Absorbed => return,
            // The ACK of a response of ours: sent without a transaction, or in one of another worker. Under overload
            // there are many, so nothing more is checked.
            Incoming::New(key) if msg.method() == Method::Ack && t.node.is_own_tag(msg) => {
                if arrival == Arrival::Here {
                    hand_over_request(t, flow, msg, key);
                }
                return;
            }
            Incoming::New(key) => key,
            Incoming::AckOf2xx(_) => t.tx.key(msg, &via),
        };
        if arrival == Arrival::Here && hand_over_request(t, flow, msg, key) {
            return;
        }
        if !flow.transport.is_datagram() && via.param(b"alias").is_some() {
            let port = via.port.unwrap_or(flow.transport.default_port());
            let addr = SocketAddr::new(flow.remote.ip(), port);
            t.events.push(Event::Alias(*flow, addr));
        }
        let incoming = IncomingRequest { flow, msg, via: &via, key, progress: None };
        if let Some(retry) = self.guard.refuses(t.now, flow, msg) {
            return t.refuse_with_retry(&incoming, retry);
        }
        if let Err(fault) = msg.check() {
            t.stats.malformed += 1;
            return t.refuse(&incoming, fault.status, fault.reason, &[]);
        }
        if msg.method() == Method::Cancel {
            return self.cancel(t, &incoming);
        }
        self.process(t, &incoming);
    }

    /// Routes a request, and answers or parks it if it goes no further.
    fn process(&mut self, t: &mut Turn<'_>, incoming: &IncomingRequest<'_>) {
        let refusal = match self.route(t, incoming) {
            Ok(()) => return,
            Err(Stop::Refused(refusal)) => refusal,
            Err(Stop::Asks { question, proof }) => match self.park(t, incoming, question, proof) {
                Ok(()) => return,
                Err(refusal) => refusal,
            },
        };
        if refusal.status == 0 || incoming.msg.method() == Method::Ack {
            return;
        }
        // A challenge is the usual beginning and is not logged.
        if !matches!(refusal.status, 401 | 407) {
            t.log(incoming, "refused", refusal.status);
        }
        t.refuse(incoming, refusal.status, refusal.reason, &refusal.headers);
    }

    /// Performs steps 16.3 to 16.6 for a request that is new and well-formed.
    fn route(&mut self, t: &mut Turn<'_>, incoming: &IncomingRequest<'_>) -> Result<(), Stop> {
        let method = incoming.msg.method();
        let routed =
            preroute(t.node, t.now, incoming).map_err(|e| Refusal::new(e.status, e.reason))?;
        if let Some(why) = routed.void.filter(|_| incoming.progress.is_none()) {
            t.log(incoming, why, 0);
        }
        if let (Some(mark), Some(dialog)) = (&routed.mark, &routed.in_dialog)
            && refreshes_target(method)
        {
            t.node.dialogs.refresh_target(t.now, incoming.flow, incoming.msg);
            let evicted = t.node.dialogs.follow(t.now, &t.node.trust, incoming, mark, dialog);
            t.stats.limits_hit += u64::from(evicted);
        }
        let domain = own_domain(t, incoming, &routed);
        let user = user_of(&routed.uri);
        let ends_here = domain.is_some() && (method == Method::Register || user.is_none());
        // RFC 3261 section 16.3 item 3 allows an answer to an OPTIONS without hops left as if it were for this server;
        // RFC 4475 section 3.3.11 expects 483 unless it is.
        let mut findings = validate(t, incoming, &routed, ends_here)?;
        if method == Method::Ack
            && domain.is_some()
            && !routed.is_in_dialog()
            && t.forward_to_next_worker(incoming)
        {
            // It takes the path of the INVITE and no route of ours: most likely it is the ACK of a refusal that another
            // worker waits for.
            return Ok(());
        }
        let Some(domain) = domain else {
            if !routed.is_in_dialog() {
                findings.ack = t.node.dialogs.ack_path(incoming.msg, routed.next_uri());
            }
            let proof = self.access.authorise(t, incoming, &routed, false)?;
            let targets =
                targets::remote(t, incoming, &routed).map_err(|stop| stop.with_proof(&proof))?;
            self.forward(t, incoming, findings, &routed, proof, targets, Mode::Proxy);
            return Ok(());
        };
        if method == Method::Subscribe
            && let Some(worker) = subscriptions::worker_of(incoming.msg)
        {
            if worker != t.node.worker && worker < t.node.workers {
                t.hand_over(worker, incoming.flow, incoming.msg);
                return Ok(());
            }
            return self.resubscribe(t, incoming, &routed, domain);
        }
        let package = package_here(t, incoming, domain, findings.record_route);
        match method {
            Method::Register => {
                return self.registrations.register(t, &mut self.access, incoming, domain);
            }
            _ if user.is_none() => return Ok(local_requests::serve(t, incoming)?),
            Method::Subscribe | Method::Publish
                if package.is_none()
                    && !routed.is_in_dialog()
                    && is_to_own_address(t, incoming, &routed.uri, domain) =>
            {
                return Err(local_requests::no_such_service().into());
            }
            _ => {}
        }
        let mut proof = self.access.authorise(t, incoming, &routed, true)?;
        // A stranger may still ask the phone.
        let package = package.filter(|p| *p == Package::Reg || proof != Proof::None);
        if let Some(package) = package
            && self
                .has_subject(t, incoming, &routed, domain, package)
                .map_err(|stop| stop.with_proof(&proof))?
        {
            let subject = subscriptions::subject(t, package, &routed.uri, domain);
            let done = match method {
                Method::Publish => self.subscriptions.publish(t, incoming, &subject, &proof),
                _ => self.subscriptions.subscribe(t, incoming, &subject, &proof),
            };
            return Ok(done?);
        }
        let access = &mut self.access;
        let targets = targets::local(access, t, incoming, &routed.uri, domain, &mut proof)
            .map_err(|stop| stop.with_proof(&proof))?;
        let mode = t.node.domain(domain).mode;
        self.forward(t, incoming, findings, &routed, proof, targets, mode);
        Ok(())
    }

    /// Forwards a request to its targets, or redirects its sender to them.
    fn forward(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        mut findings: Findings,
        routed: &RequestRoute<'_>,
        proof: Proof,
        targets: Vec<RequestTarget>,
        mode: Mode,
    ) {
        let ack = incoming.msg.method() == Method::Ack;
        findings.return_path = !ack || mode == Mode::Stateless;
        let mut user = None;
        if incoming.msg.method() == Method::Invite {
            findings.sender = sender(t, incoming, &proof);
        }
        match proof {
            Proof::Digest { realm, user: proven } => {
                user = Some(format!("{}@{realm}", short_text(&proven)).into());
                findings.realm = Some(realm);
            }
            Proof::Trusted => findings.privileged = true,
            Proof::Dialog => findings.privileged = routed.target_match == TargetMatch::Verified,
            Proof::Router { vouched } => findings.vouched = vouched,
            Proof::None => {}
        }
        match mode {
            _ if ack => {
                self.calls.acknowledged(t, incoming.msg);
                self.stateless.forward(t, incoming, &findings, targets);
            }
            Mode::Proxy => self.calls.begin(t, incoming, findings, targets, user),
            Mode::Stateless => self.stateless.forward(t, incoming, &findings, targets),
            // No Contact leads to another server.
            Mode::Redirect if targets.iter().any(|t| t.origin.is_server()) => {
                self.calls.begin(t, incoming, findings, targets, user);
            }
            Mode::Redirect => local_requests::redirect(t, incoming, &targets),
        }
    }

    /// Processes a SUBSCRIBE within a dialog of the notifier.
    fn resubscribe(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        routed: &RequestRoute<'_>,
        domain: usize,
    ) -> Result<(), Stop> {
        let proof = self.access.authorise(t, incoming, routed, true)?;
        let Some(package) = subscriptions::package_of(incoming.msg) else {
            return Err(local_requests::no_such_service().into());
        };
        let subject = match self.subscriptions.dialog_aor(incoming.msg) {
            Some(aor) => Subject { package, entity: aor.clone(), aor },
            None => subscriptions::subject(t, package, &routed.uri, domain),
        };
        Ok(self.subscriptions.subscribe(t, incoming, &subject, &proof)?)
    }

    /// Returns whether the notifier has what a request for an event package of ours is about: the user exists. A name that
    /// is no user's may be a number that a routing rule leads on.
    fn has_subject(
        &self,
        t: &Turn<'_>,
        incoming: &IncomingRequest<'_>,
        routed: &RequestRoute<'_>,
        domain: usize,
        package: Package,
    ) -> Result<bool, Stop> {
        Ok(package == Package::Reg
            || targets::exists(&self.access, t, incoming, &routed.uri, domain)?)
    }

    /// Stores a request until the world has answered a question. Its server transaction absorbs retransmissions
    /// meanwhile.
    fn park(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
        question: Question,
        proof: Option<Proof>,
    ) -> Result<(), Refusal> {
        let (msg, flow) = (incoming.msg, incoming.flow);
        let initial = msg.to().is_ok_and(|to| to.tag().is_none());
        if self.calls.is_draining() && initial && incoming.progress.is_none() {
            return Err(Refusal::busy());
        }
        let (mut known, mut check) = (proof.is_some(), None);
        if let Question::Credentials(question) = &question {
            let source = flow.remote.ip();
            known = self.access.is_known(t.now, source, &question.user, &question.realm);
            check = self.parked.check(t, flow, question, known);
            if check.is_none() {
                t.stats.limits_hit += 1;
                return Err(Refusal::busy());
            }
        }
        if !self.parked.has_room(t, flow, known) {
            t.stats.limits_hit += 1;
            return Err(Refusal::busy());
        }
        if !t.reserve_budget(msg, flow, None, known) {
            return Err(Refusal::busy());
        }
        let progress = match incoming.progress {
            Some(progress) => Some(progress.clone()),
            None => self.open_parked(t, incoming),
        };
        let Some(mut progress) = progress else {
            t.release_budget(msg.whole().len(), flow, None);
            t.stats.limits_hit += 1;
            return Err(Refusal::busy());
        };
        progress.proof = proof;
        progress.note_question(&question);
        let id = self.parked.insert(t, incoming, progress, check);
        t.stats.asked += 1;
        t.events.push(Event::Ask { id, question, source: flow.remote.ip() });
        Ok(())
    }

    /// Opens the server transaction of a request that is to be parked, and holds a context for it. Returns `None` if the
    /// table is full.
    fn open_parked(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
    ) -> Option<Progress> {
        let invite = incoming.msg.method() == Method::Invite;
        let kind = if invite { Kind::Invite } else { Kind::NonInvite };
        let (reply, port) = t.node.reply_to(incoming.flow, incoming.via);
        let context = self.calls.hold();
        let Some(server) = t.tx.open(incoming.key, kind, reply, port, Some(context)) else {
            self.calls.release_held(context);
            return None;
        };
        t.note_worker(incoming);
        t.limit_repeats(incoming, server);
        let trying = invite && !is_stateless(t, incoming);
        if trying {
            t.trying(incoming, server);
        }
        let (came, deadline) = (t.now, t.now + MAX_WAIT);
        Some(Progress {
            server,
            context,
            trying,
            came,
            deadline,
            proof: None,
            asked: Vec::new(),
            asked_for_rules: false,
            asked_to_keep: false,
            credentials: None,
        })
    }

    /// Processes the reply of the world to [`Event::Ask`]. A reply that comes late, or twice, has no effect.
    pub(super) fn answered(&mut self, t: &mut Turn<'_>, id: AskId, reply: Reply) {
        let Some(mut parked) = self.parked.take(t, id) else { return };
        parked.note_reply(reply);
        t.stats.unanswered += u64::from(reply == Reply::Unavailable);
        let context = parked.progress.context;
        if reply == Reply::Kept && parked.progress.asked_to_keep {
            // RFC 3428 section 7. It goes nowhere else: the user would have it twice.
            t.stats.kept += 1;
            parked.read(t, |t, incoming| t.refuse(incoming, 202, "Accepted", &[]));
            return self.calls.release_held(context);
        }
        if let Some(server) = parked.read(t, |t, incoming| self.process(t, incoming)) {
            t.tx.drop_server(server);
        }
        if !self.parked.holds(context) {
            self.calls.release_held(context);
        }
    }

    /// The server ends: answers all requests that are not answered yet with 503.
    pub(super) fn end(&mut self, t: &mut Turn<'_>) {
        for id in self.parked.ids() {
            let Some(parked) = self.parked.take(t, id) else { continue };
            let context = parked.progress.context;
            parked.read(t, |t, incoming| t.refuse_with_retry(incoming, RETRY_AFTER_STOP));
            self.calls.release_held(context);
        }
        self.calls.end(t);
    }

    /// Answers 487 to a request that waits and is cancelled (RFC 3261 section 9.2). Returns whether it was one.
    fn cancel_parked(&mut self, t: &mut Turn<'_>, context: ContextId) -> bool {
        let Some(parked) = self.parked.take_by_context(t, context) else { return false };
        parked.read(t, |t, incoming| t.refuse(incoming, 487, "", &[]));
        self.calls.release_held(context);
        true
    }

    /// Processes a CANCEL: RFC 3261 sections 9.2 and 16.10.
    fn cancel(&mut self, t: &mut Turn<'_>, incoming: &IncomingRequest<'_>) {
        if let Some(context) = t.tx.find_cancelled(incoming.msg, incoming.via) {
            // Section 9.2: 200 whatever happens to the INVITE, with the To tag of the responses to it.
            t.refuse(incoming, 200, "OK", &[]);
            if let Some(context) = context
                && !self.cancel_parked(t, context)
            {
                self.calls.cancel(t, context, incoming);
            }
        } else if !t.forward_to_next_worker(incoming) {
            match self.stateless_targets(t, incoming) {
                Some((findings, targets)) => {
                    self.stateless.forward(t, incoming, &findings, targets)
                }
                None => t.refuse(incoming, 481, "Call/Transaction Does Not Exist", &[]),
            }
        }
    }

    /// Returns the targets of a CANCEL whose INVITE may have been forwarded statelessly (section 16.10).
    fn stateless_targets(
        &mut self,
        t: &mut Turn<'_>,
        incoming: &IncomingRequest<'_>,
    ) -> Option<(Findings, Vec<RequestTarget>)> {
        let routed = preroute(t.node, t.now, incoming).ok()?;
        let domain = t.node.own_domain(&routed.uri, incoming.flow, routed.is_in_dialog())?;
        if t.node.domain(domain).mode != Mode::Stateless {
            return None;
        }
        let findings = validate(t, incoming, &routed, false).ok()?;
        // It cannot be challenged, and cancels only what the same sender began with the same branch.
        let (access, proof) = (&mut self.access, &mut Proof::Trusted);
        let targets = targets::local(access, t, incoming, &routed.uri, domain, proof).ok()?;
        (!targets.is_empty()).then_some((findings, targets))
    }

    pub(super) fn response(&mut self, t: &mut Turn<'_>, flow: &Flow, msg: &Message<'_>) {
        let Ok(via) = msg.top_via() else {
            t.stats.garbage += 1;
            return;
        };
        // RFC 3261 section 18.3: a truncated response is discarded. Other errors of user agents are left to the client
        // that sent the request.
        if msg.check_frame().is_err() {
            t.stats.garbage += 1;
            return;
        }
        let Some(branch) = Branch::parse(via.branch) else {
            return stateless::forward_response(t, flow, msg, &via);
        };
        if branch.worker != t.node.worker {
            if branch.worker < t.node.workers {
                t.hand_over(branch.worker, flow, msg);
            }
            return;
        }
        match t.tx.response(t.now, branch.client, msg, t.out) {
            Some(event) => self.answer(t, event, flow, msg, &via),
            // RFC 6026 section 8.8: a stray response is not forwarded.
            None if msg.method() == Method::Cancel => {}
            None => t.stats.stray_responses += 1,
        }
    }

    fn answer(
        &mut self,
        t: &mut Turn<'_>,
        event: ClientEvent<ClientUser>,
        flow: &Flow,
        msg: &Message<'_>,
        via: &Via<'_>,
    ) {
        match event.user {
            ClientUser::Branch(id) => {
                self.calls.answer(t, event.id, id, &Answer { flow, msg, via });
            }
            ClientUser::Notify(id) => self.subscriptions.answered(t, id, msg.status()),
        }
    }

    /// Dispatches a report that the message with this number could not be sent.
    pub(super) fn not_sent(&mut self, t: &mut Turn<'_>, report: Report) {
        if let Report::User(number) = report {
            return self.stateless.resend(t, number);
        }
        if let Some(ClientEvent { id: client, user }) = t.tx.not_sent(t.now, report, t.out) {
            match user {
                ClientUser::Branch(id) => self.calls.not_sent(t, client, id),
                ClientUser::Notify(id) => self.subscriptions.answered(t, id, 503),
            }
        }
    }

    /// Dispatches a report that the connection of the message with this number has closed.
    pub(super) fn cut_off(&mut self, t: &mut Turn<'_>, report: Report) {
        if let Report::User(number) = report {
            return self.stateless.resend(t, number);
        }
        if let Some(ClientEvent { id: client, user }) = t.tx.cut_off(t.now, report) {
            match user {
                ClientUser::Branch(id) => self.calls.cut_off(t, client, id),
                ClientUser::Notify(id) => self.subscriptions.answered(t, id, 503),
            }
        }
    }

    /// Forwards a message that was kept for a user who is registered again: [`Event::Delivered`] follows.
    pub(super) fn deliver(&mut self, t: &mut Turn<'_>, id: u64, kept: &KeptMessage<'_>) {
        let status = match self.begin_delivery(t, id, kept) {
            Ok(()) => return,
            Err(status) => status,
        };
        t.events.push(Event::Delivered { id, status });
    }

    /// Returns the status with which a message fails at once.
    fn begin_delivery(
        &mut self,
        t: &mut Turn<'_>,
        id: u64,
        kept: &KeptMessage<'_>,
    ) -> Result<(), u16> {
        let bytes = kept::request(t.node, kept.to, kept.from, kept.octets).ok_or(400_u16)?;
        let msg = message::parse(&bytes).map_err(|_| 400_u16)?;
        let via = msg.top_via().map_err(|fault| fault.status)?;
        let uri = Uri::parse(msg.request_uri()).map_err(|_| 400_u16)?;
        let flow = t.node.inside();
        let key = t.tx.key(&msg, &via);
        let incoming = IncomingRequest { flow: &flow, msg: &msg, via: &via, key, progress: None };
        match targets::of_user(t, &incoming, &uri, kept.to) {
            Ok(targets) if targets.is_empty() => Err(480),
            Ok(targets) => self.calls.begin_own(t, &incoming, id, of_own(), targets),
            Err(Stop::Refused(refusal)) => Err(refusal.status),
            // The world says where the user is before it has a message delivered.
            Err(Stop::Asks { .. }) => Err(504),
        }
    }

    /// Dispatches the result of [`Event::Resolve`].
    pub(super) fn resolved(&mut self, t: &mut Turn<'_>, id: ResolveId, hops: &[Hop]) {
        t.locator.answered();
        match id.0 {
            ResolveUser::Branch(id) => self.calls.resolved(t, id, hops),
            ResolveUser::Stateless(index) => self.stateless.resolved(t, index, hops),
            ResolveUser::Notify(index) => self.subscriptions.resolved(t, index, hops),
        }
    }

    /// Processes everything that is due.
    pub(super) fn timeout(&mut self, t: &mut Turn<'_>) {
        while let Some(expired) = t.tx.expire(t.now, t.out) {
            match expired {
                Expired::ClientTimeout(ClientEvent { id: client, user }) => {
                    t.stats.timeouts += 1;
                    match user {
                        ClientUser::Branch(id) => self.calls.timed_out(t, client, id),
                        ClientUser::Notify(id) => self.subscriptions.answered(t, id, 408),
                    }
                }
                Expired::ClientGone(ClientEvent { id: client, user: ClientUser::Branch(id) }) => {
                    self.calls.client_gone(t, client, id);
                }
                Expired::ServerGone(Some(context)) => self.calls.server_gone(context),
                Expired::ClientGone(_) | Expired::ServerGone(None) | Expired::Nothing => {}
            }
        }
        self.calls.handle_timeout(t);
        self.subscriptions.handle_timeout(t);
        while let Some(id) = self.parked.expire(t.now) {
            self.answered(t, id, Reply::Unavailable);
        }
    }
}

/// Hands a request over if another worker has its transaction: a retransmission, or the ACK of a refusal, from another
/// source port (RFC 3261 section 17.2.3 matches without regard to it).
fn hand_over_request(t: &mut Turn<'_>, flow: &Flow, msg: &Message<'_>, key: ServerKey) -> bool {
    if t.node.workers < 2 || msg.method() == Method::Cancel {
        return false;
    }
    let found = t.node.shared.requests.get(key.to_u64(), t.now);
    let Some(worker) = found.filter(|&w| w != t.node.worker && w < t.node.workers) else {
        return false;
    };
    t.hand_over(worker, flow, msg);
    true
}

/// Returns whether a request is for a domain that is forwarded statelessly. No provisional response is sent then:
/// retransmissions of the sender must go on.
fn is_stateless(t: &Turn<'_>, incoming: &IncomingRequest<'_>) -> bool {
    let Ok(routed) = preroute(t.node, t.now, incoming) else { return false };
    let domain = own_domain(t, incoming, &routed);
    domain.is_some_and(|domain| t.node.domain(domain).mode == Mode::Stateless)
}

/// Returns the domain of ours that a request is for; `None` if a Route, a flow or an `maddr` is its next hop.
fn own_domain(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
) -> Option<usize> {
    if routed.next.is_some() || routed.flow.is_some() || routed.detour.is_some() {
        return None;
    }
    let own = |uri| t.node.own_domain(uri, incoming.flow, routed.is_in_dialog());
    match routed.maddr {
        Maddr::None => own(&routed.uri),
        // The port belongs to the `maddr` that led to this server, and is removed with it.
        Maddr::Ours => own(&Uri { port: None, ..routed.uri }),
        Maddr::Other => None,
    }
}

/// Returns the address-of-record of a request's sender, if a phone of one of our users has sent it to this server.
fn sender(t: &Turn<'_>, incoming: &IncomingRequest<'_>, proof: &Proof) -> Option<Arc<[u8]>> {
    let aor = match proof {
        Proof::Digest { realm, user } => {
            let mut escaped = Vec::with_capacity(user.len());
            uri::escape_into(user, &mut escaped);
            t.node.aor(&escaped, t.node.identity.domain(realm.as_bytes())?)
        }
        // A network without digest.
        Proof::Trusted => {
            let from = Uri::parse(incoming.msg.from().ok()?.uri).ok()?;
            t.node.aor(from.user?, t.node.identity.domain(from.host)?)
        }
        _ => return None,
    };
    Some(aor.as_slice().into())
}

/// Returns the event package of a request that this server answers itself, rather than a phone of the user. A request of
/// another router of the mesh is for the phone: that router would answer it otherwise. Of calls that are not record-routed
/// this server knows nothing.
fn package_here(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    domain: usize,
    record_routes: bool,
) -> Option<Package> {
    let package = subscriptions::package_of(incoming.msg)?;
    let knows = record_routes && t.node.domain(domain).mode == Mode::Proxy;
    let is_initial = incoming.msg.to().is_ok_and(|to| to.tag().is_none());
    let here = match (incoming.msg.method(), package) {
        (Method::Subscribe, Package::Reg) => true,
        (Method::Subscribe, Package::Dialog | Package::Presence) => is_initial && knows,
        (Method::Publish, Package::Presence) => t.node.domain(domain).mode == Mode::Proxy,
        _ => false,
    };
    (here && (package == Package::Reg || t.node.trust.sender(incoming).is_none()))
        .then_some(package)
}

/// Returns whether a request is for the same address-of-record that it comes from.
fn is_to_own_address(
    t: &Turn<'_>,
    incoming: &IncomingRequest<'_>,
    uri: &Uri<'_>,
    domain: usize,
) -> bool {
    let aor = t.node.aor(user_of(uri).unwrap_or_default(), domain);
    t.node.is_from(incoming.msg, &aor)
}
