//! Request forwarding: RFC 3261 section 16.6, one branch at a time.

use super::calls::end_of_call;
use super::context::{self, Attempt, Branch, Context, Kept, RequestTarget, State};
use super::preroute::MARK_AFTER;
use super::{Core, Event, MAX_RESOLVING, Pass, ResolveTarget, Tick};
use crate::forward::{self, Plan};
use crate::mark::DialogId;
use crate::outbound::MAX_TOKEN;
use crate::shared::REMEMBER_REQUEST;
use ringway_sansio::{Flow, Hop, Outbox, Target, Time, TimerId, Transport};
use ringway_sip::header::{HeaderId, Items, NameAddr, Via};
use ringway_sip::message::{self, Message, Method};
use ringway_sip::transaction::{self, ClientId, Kind};
use ringway_sip::uri::{Scheme, Uri};
use ringway_sip::write;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::net::SocketAddr;

/// A request larger than this goes over TCP unless the way is given (RFC 3261 section 18.1.1).
pub(super) const MAX_DATAGRAM: usize = 1300;

/// Where a try leads.
pub(super) struct Way {
    pub target: Target,
    pub transport: Transport,
    /// Our address on it.
    pub local: SocketAddr,
    /// Over a flow that exists: what it is.
    pub flow: Option<Flow>,
    /// Over UDP however large, because TCP has been refused there.
    pub any_size: bool,
}

impl Core {
    /// Takes a request on: opens the server transaction and the response context, and starts the
    /// branches of best q.
    pub(super) fn begin(
        &mut self,
        pass: &Pass<'_>,
        kept: Kept,
        targets: Vec<RequestTarget>,
        user: Option<Box<str>>,
        out: &mut Outbox,
    ) {
        let msg = pass.msg;
        let kind = if msg.method() == Method::Invite { Kind::Invite } else { Kind::NonInvite };
        if self.draining && msg.to().is_ok_and(|to| to.tag().is_none()) {
            return self.turn_away(pass, 30, out);
        }
        if targets.is_empty() {
            return self.refuse(pass, 480, "", &[], out);
        }
        if !self.keep(msg, pass.flow, user.as_deref(), kept.is_known()) {
            return self.turn_away(pass, 10, out);
        }
        let (reply, port) = self.reply_to(pass.flow, pass.via);
        self.serial = self.serial.wrapping_add(1);
        let (index, serial) = (self.contexts.vacant_key(), self.serial);
        let number = context::user(index, serial, 0);
        let Some(server) = self.tx.open(pass.key, kind, reply, port, number) else {
            self.release_kept(msg.whole().len(), pass.flow, user.as_deref());
            self.stats.limits_hit += 1;
            return self.turn_away(pass, 10, out);
        };
        if self.workers > 1 {
            let (key, worker) = (pass.key.to_u64(), self.worker);
            self.shared.requests.put(key, worker, pass.now, REMEMBER_REQUEST);
        }
        let session = kind == Kind::Invite && msg.to().is_ok_and(|to| to.tag().is_none());
        if kept.record_route && msg.to().is_ok_and(|to| to.tag().is_none()) {
            self.begin_dialog(msg);
        }
        if session {
            self.stats.sessions += 1;
        }
        let trying = match kind {
            Kind::Invite => TimerId::NONE,
            Kind::NonInvite => {
                let at = pass.now + self.tx.timers().trying();
                self.wheel.set(at, Tick::Trying { context: index, serial })
            }
        };
        let ended = match (&kept.in_dialog, msg.method()) {
            (Some(dialog), Method::Bye) => Some(end_of_call(pass, dialog)),
            _ => None,
        };
        let branches: SmallVec<[Branch; 1]> = targets.into_iter().map(Branch::waiting).collect();
        self.contexts.insert(Context {
            serial,
            kind,
            server,
            request: Some(msg.whole().into()),
            flow: *pass.flow,
            reply,
            kept,
            branches,
            best: None,
            challenges: Vec::new(),
            came: pass.now,
            answered: false,
            cancelled: false,
            reason: Vec::new(),
            user,
            call: None,
            ended,
            session,
            rang: false,
            trying,
            alive: 1,
        });
        if !kept.is_known() {
            let credit = self.repeat_credit(pass);
            if credit != u32::MAX {
                self.tx.limit_repeats(server, credit);
            }
        }
        if kind == Kind::Invite {
            // Section 17.2.1: a 100 at once, so that the peer stops sending the INVITE again.
            let start = out.buffer().len();
            write::response(out.buffer(), msg, Some(pass.flow), 100, "Trying", None, &[], &[]);
            self.tx.respond(pass.now, server, 100, out, start);
        }
        if session {
            self.report_began(pass.now, index, msg);
        }
        self.start_group(pass.now, index, msg, out);
    }

    /// Starts the waiting branches of the best q (section 16.6: parallel within one q, serial from
    /// one q to the next).
    pub(super) fn start_group(
        &mut self,
        now: Time,
        index: usize,
        msg: &Message<'_>,
        out: &mut Outbox,
    ) {
        let ctx = &mut self.contexts[index];
        let waiting = |b: &&Branch| b.state == State::Waiting;
        let Some(q) = ctx.branches.iter().filter(waiting).map(|b| b.target.q).max() else { return };
        let count = ctx.branches.iter().filter(waiting).filter(|b| b.target.q == q).count() as u32;
        // RFC 5393 section 5.3.3: branches share the breadth; one that would get none is not started.
        // Those of all q share it: one after the other they would cost as much as side by side, and ten
        // contacts that lead back here each with ten more would never end.
        let total = ctx.branches.len() as u32;
        let started = ctx.branches.iter().filter(|b| b.state != State::Waiting).count() as u32;
        let breadth = ctx.kept.max_breadth;
        if count > breadth.saturating_sub(started) {
            for b in
                ctx.branches.iter_mut().filter(|b| b.state == State::Waiting && b.target.q == q)
            {
                b.state = State::Done;
            }
            ctx.offer(440, Vec::new);
            return self.settle(now, index, out);
        }
        for b in 0..self.contexts[index].branches.len() {
            let branch = &mut self.contexts[index].branches[b];
            if branch.state == State::Waiting && branch.target.q == q {
                branch.breadth = (breadth / total).max(1);
                self.try_next(now, index, b, msg, out);
            }
        }
        self.settle(now, index, out);
    }

    /// Goes the next way to the target of a branch; without one left the branch is done.
    pub(super) fn try_next(
        &mut self,
        now: Time,
        index: usize,
        b: usize,
        msg: &Message<'_>,
        out: &mut Outbox,
    ) {
        loop {
            let ctx = &mut self.contexts[index];
            let branch = &mut ctx.branches[b];
            let Some(next) = branch.target.attempts.pop() else {
                branch.state = State::Done;
                // Nothing could be reached: what section 16.9 has for a transport error; of a user of
                // ours whose contacts no SIP leads to, that the user is not there.
                let nowhere = branch.target.is_located() && branch.went.is_none();
                ctx.offer(if nowhere { 480 } else { 503 }, Vec::new);
                return;
            };
            let found = match next {
                Attempt::Flow(flow) => {
                    branch.on_flow = true;
                    Found::Way(Way {
                        target: Target::Flow(flow),
                        transport: flow.transport,
                        local: flow.local,
                        flow: Some(flow),
                        any_size: true,
                    })
                }
                Attempt::Binding(other) => {
                    let RequestTarget { uri, path, attempts, .. } = *other;
                    branch.target.uri = uri;
                    branch.target.path = path;
                    branch.target.attempts.extend(attempts);
                    continue;
                }
                Attempt::Hop(hop) => self.way_to_hop(hop).map_or(Found::Nowhere, Found::Way),
                Attempt::Datagram(addr) => {
                    let hop = Hop { transport: Transport::Udp, addr, name: None };
                    let way = self.way_to_hop(hop).map(|way| Way { any_size: true, ..way });
                    way.map_or(Found::Nowhere, Found::Way)
                }
                Attempt::Via(uri) => {
                    branch.through = Some(uri.clone());
                    let request_uri = SmallVec::<[u8; 128]>::from_slice(&branch.target.uri);
                    let Ok(uri) = Uri::parse(uri.as_bytes()) else { continue };
                    self.locate_uri(&uri, &request_uri)
                }
                Attempt::Uri => self.locate_next(index, b, msg),
            };
            let (target, kept) = {
                let ctx = &self.contexts[index];
                (&ctx.branches[b].target, ctx.kept)
            };
            match found {
                Found::Way(way) if self.is_barred(now, target, kept.privileged, &way) => {
                    self.bar(index, b);
                }
                Found::Name(name) if self.is_barred_name(target, kept.privileged, &name.host) => {
                    self.bar(index, b);
                }
                Found::Way(way) => {
                    return self.launch(now, index, b, way, msg, out);
                }
                Found::Name(name) => {
                    if self.ask(index, b, name) {
                        return;
                    }
                }
                Found::Nowhere => {}
            }
        }
    }

    /// A try leads where this request may not go.
    fn bar(&mut self, index: usize, b: usize) {
        self.stats.forbidden += 1;
        let ctx = &mut self.contexts[index];
        let status = if ctx.branches[b].target.is_located() { 480 } else { 403 };
        ctx.offer(status, Vec::new);
    }

    /// Where the topmost Route, or else the Request-URI, leads (section 16.6 item 7).
    fn locate_next(&mut self, index: usize, b: usize, msg: &Message<'_>) -> Found {
        let ctx = &self.contexts[index];
        let (target, kept) = (&ctx.branches[b].target, &ctx.kept);
        let route = Items::new(&target.path).next().or_else(|| next_route(msg, kept));
        let request_uri = SmallVec::<[u8; 128]>::from_slice(&target.uri);
        let uri = match route.map(NameAddr::parse) {
            Some(Ok(route)) => SmallVec::<[u8; 128]>::from_slice(route.uri),
            Some(Err(_)) => return Found::Nowhere,
            None => request_uri.clone(),
        };
        Uri::parse(&uri).map_or(Found::Nowhere, |uri| self.locate_uri(&uri, &request_uri))
    }

    /// Asks the world to locate a server for a branch.
    fn ask(&mut self, index: usize, b: usize, name: ResolveTarget) -> bool {
        if self.resolving >= MAX_RESOLVING {
            self.stats.limits_hit += 1;
            return false;
        }
        let ctx = &mut self.contexts[index];
        ctx.branches[b].state = State::Resolving;
        let id = context::user(index, ctx.serial, b);
        self.resolving += 1;
        let source = ctx.flow.remote.ip();
        self.events.push_back(Event::Resolve { id, target: name, source });
        true
    }

    /// Server location (RFC 3263) as far as it needs no question to the world: literal addresses.
    /// `request_uri` is the one of the request to be sent: if that is a `sips` one, every URI is
    /// followed as if it were (section 16.6 item 7).
    pub(super) fn locate_uri(&mut self, uri: &Uri<'_>, request_uri: &[u8]) -> Found {
        if !uri.is_sip() {
            return Found::Nowhere;
        }
        let host = uri.param(b"maddr").flatten().unwrap_or(uri.host);
        let secure = uri.scheme == Scheme::Sips || is_sips(request_uri);
        let named = match (uri.param(b"transport"), uri.transport()) {
            (None, _) => None,
            (Some(_), Some(Transport::Tcp)) if secure => Some(Transport::Tls),
            (Some(_), Some(Transport::Sctp)) if secure => Some(Transport::TlsSctp),
            (Some(_), Some(t)) if t.is_secure() || !secure => Some(t),
            (Some(_), _) => return Found::Nowhere,
        };
        if let Some(ip) = crate::own::parse_ip(host) {
            // RFC 3263 section 4.1 and 4.2: a literal address needs no look-up.
            let transport = named.unwrap_or(if secure { Transport::Tls } else { Transport::Udp });
            let addr = SocketAddr::new(ip, uri.port.unwrap_or(transport.default_port()));
            let hop = Hop { transport, addr, name: None };
            return self.way_to_hop(hop).map_or(Found::Nowhere, Found::Way);
        }
        let Ok(host) = std::str::from_utf8(host) else { return Found::Nowhere };
        Found::Name(ResolveTarget { host: host.into(), port: uri.port, transport: named, secure })
    }

    pub(super) fn way_to_hop(&mut self, hop: Hop) -> Option<Way> {
        // A WebSocket client cannot be connected to (RFC 7118 section 5).
        if matches!(hop.transport, Transport::Ws | Transport::Wss) {
            return None;
        }
        let Hop { transport, addr: remote, name } = hop;
        let local = self.paths.local_for(transport, remote)?;
        let target = Target::Peer { transport, remote, name };
        Some(Way { target, transport, local, flow: None, any_size: false })
    }

    /// An answer to [`Event::Resolve`]; no hops means that there is no such server.
    pub fn handle_resolved(&mut self, now: Time, id: u64, hops: &[Hop], out: &mut Outbox) {
        self.resolving = self.resolving.saturating_sub(1);
        if id & super::stateless::PARKED != 0 {
            return self.unpark(now, id, hops, out);
        }
        if id & super::notify::PARKED_NOTIFY != 0 {
            return self.unpark_notify(now, id, hops, out);
        }
        let Some((index, b)) = self.find(id) else { return };
        let ctx = &mut self.contexts[index];
        if ctx.branches[b].state != State::Resolving {
            return;
        }
        let attempts = &mut ctx.branches[b].target.attempts;
        attempts.extend(hops.iter().rev().cloned().map(Attempt::Hop));
        self.retry(now, index, b, out);
    }

    /// Goes on with a branch from the request as it was kept.
    pub(super) fn retry(&mut self, now: Time, index: usize, b: usize, out: &mut Outbox) {
        self.with_request(index, |core, msg| {
            core.try_next(now, index, b, msg, out);
            core.settle(now, index, out);
        });
    }

    /// Runs `f` with the kept request of a context, parsed once more.
    pub(super) fn with_request(&mut self, index: usize, f: impl FnOnce(&mut Core, &Message<'_>)) {
        let Some(bytes) = self.contexts[index].request.clone() else { return };
        if let Ok(msg) = message::parse(&bytes) {
            f(self, &msg);
        }
    }

    /// Steps 1 to 11 of section 16.6 for one branch.
    fn launch(
        &mut self,
        now: Time,
        index: usize,
        b: usize,
        way: Way,
        msg: &Message<'_>,
        out: &mut Outbox,
    ) {
        // It has been read before, when the request came.
        let Ok(via) = msg.top_via() else { return };
        let client = self.tx.reserve(&mut *self.random);
        let ctx = &self.contexts[index];
        let (kept, flow, kind, serial) = (ctx.kept, ctx.flow, ctx.kind, ctx.serial);
        let branch = &ctx.branches[b];
        let start = out.buffer().len();
        let mut on_top = std::mem::take(&mut self.scratch);
        on_top.clear();
        if kept.record_route {
            self.write_record_route(now, &mut on_top, msg, &branch.target.uri, &flow, &way);
        }
        self.write_request(out.buffer(), &on_top, msg, &via, &flow, &kept, branch, &way, client);
        let mut way = way;
        if self.too_large_for_udp(&way, out.buffer().len() - start)
            && let Some(tcp) = self.over_tcp(&way)
        {
            // Should TCP be refused, UDP is tried after all (section 18.1.1).
            let udp = Attempt::Datagram(way.target.remote());
            self.contexts[index].branches[b].target.attempts.push(udp);
            way = tcp;
            out.abandon(start);
            on_top.clear();
            let branch = &self.contexts[index].branches[b];
            if kept.record_route {
                self.write_record_route(now, &mut on_top, msg, &branch.target.uri, &flow, &way);
            }
            self.write_request(
                out.buffer(),
                &on_top,
                msg,
                &via,
                &flow,
                &kept,
                branch,
                &way,
                client,
            );
        }
        on_top.clear();
        self.scratch = on_top;
        let hop = way.flow.is_none().then(|| Hop {
            transport: way.transport,
            addr: way.target.remote(),
            name: match &way.target {
                Target::Peer { name, .. } => name.clone(),
                Target::Flow(_) => None,
            },
        });
        let went = Some((way.transport, way.target.remote()));
        self.tx.send(now, client, kind, way.target, context::user(index, serial, b), out, start);
        self.stats.forwarded += 1;
        let timer_c = if kind == Kind::Invite {
            let tick = Tick::TimerC { context: index, serial, branch: b };
            self.wheel.set(now + self.config.timer_c, tick)
        } else {
            TimerId::NONE
        };
        let ctx = &mut self.contexts[index];
        ctx.alive += 1;
        let branch = &mut ctx.branches[b];
        branch.state = State::Sent;
        branch.client = Some(client);
        branch.timer_c = timer_c;
        branch.hop = hop;
        branch.went = went;
    }

    /// Whether size alone asks for another transport than the UDP that was chosen. A flow a phone
    /// registered on is kept: it is known to work, and its TCP port may not exist.
    fn too_large_for_udp(&self, way: &Way, len: usize) -> bool {
        len > MAX_DATAGRAM && way.transport == Transport::Udp && !way.any_size
    }

    fn over_tcp(&mut self, way: &Way) -> Option<Way> {
        let addr = way.target.remote();
        self.way_to_hop(Hop { transport: Transport::Tcp, addr, name: None })
    }

    fn write_request(
        &self,
        buf: &mut Vec<u8>,
        record_route: &[u8],
        msg: &Message<'_>,
        via: &Via<'_>,
        flow: &Flow,
        kept: &Kept,
        branch: &Branch,
        way: &Way,
        client: ClientId,
    ) {
        let target = &branch.target;
        let uri = as_request_uri(&target.uri);
        let mut routes = SmallVec::<[u8; 256]>::from_slice(record_route);
        let mut plan = Plan {
            uri: &uri,
            transport: way.transport,
            sent_by: way.local,
            on_top: &[],
            routes_used: kept.routes_used,
            last_route_used: kept.last_route_used,
            last_route: &[],
            max_forwards: kept.max_forwards,
            max_breadth: branch.breadth,
            strip_identity: self.strips_identity(flow, way.target.remote().ip(), msg),
            realm: self.config.realm(kept.realm),
        };
        let through;
        let mut top: SmallVec<[&[u8]; 2]> = SmallVec::new();
        if let Some(uri) = &branch.through {
            // The next hop of a routing rule is a loose router by decree (section 16.6 item 6).
            let end: &[u8] = if has_lr(uri) { b">" } else { b";lr>" };
            through = [b"<", uri.as_bytes(), end].concat();
            top.push(&through);
        }
        if !target.path.is_empty() {
            top.push(&target.path);
        }
        let mut strict = None;
        if top.is_empty() && way.flow.is_none() {
            // Section 16.6 item 6: a strict router takes the Request-URI's place.
            strict = next_route(msg, kept)
                .and_then(|item| NameAddr::parse(item).ok())
                .filter(|r| Uri::parse(r.uri).is_ok_and(|uri| !uri.is_loose_router()));
        }
        for value in &top {
            routes.extend_from_slice(b"Route: ");
            routes.extend_from_slice(value);
            routes.extend_from_slice(b"\r\n");
        }
        let displaced;
        if let Some(route) = strict {
            displaced = [b"<", &*uri, b">"].concat();
            plan.uri = route.uri;
            plan.routes_used += 1;
            plan.last_route = &displaced;
        }
        plan.on_top = &routes;
        let name = transaction::Branch { worker: self.worker, client, spiral: kept.spiral };
        forward::request(buf, msg, via, flow, &plan, |buf| name.write(buf));
    }

    /// Record-Route for both sides (section 16.6 item 4): one value where both sides see the same
    /// address, two where they do not (RFC 5658) or where a side must be reached over its flow
    /// (RFC 5626 section 5.3). `uri` is the Request-URI that is sent.
    fn write_record_route(
        &self,
        now: Time,
        buf: &mut Vec<u8>,
        msg: &Message<'_>,
        uri: &[u8],
        from: &Flow,
        to: &Way,
    ) {
        let mark = self.callee_mark(now, msg, from);
        let caller_tag = msg.from().ok().and_then(|from| from.tag()).unwrap_or_default();
        let dialog = DialogId { call_id: msg.call_id(), caller_tag, callee_tag: b"" };
        let near = needs_flow(msg, from).then_some(*from);
        // A datagram flow is used only where the Contact does not tell the address.
        let far = to.flow.filter(|f| f.transport.is_datagram() || contact_needs_flow(uri, f));
        let secure = is_sips(uri);
        let same = from.transport == to.transport && from.local == to.local;
        let mut write = |transport: Transport, local: SocketAddr, token: Option<Flow>| {
            buf.extend_from_slice(b"Record-Route: <");
            // A sips URI on the side of TLS only: on the other it would lead nowhere (section 16.7
            // item 8 has it rewritten there).
            let sips = secure && transport.is_secure();
            buf.extend_from_slice(if sips { b"sips:" } else { b"sip:" });
            let start = buf.len();
            if let Some(flow) = token {
                self.tokens.write(buf, &flow);
            }
            let token = SmallVec::<[u8; MAX_TOKEN]>::from_slice(&buf[start..]);
            if !token.is_empty() {
                buf.push(MARK_AFTER);
            }
            buf.extend_from_slice(&self.marks.text(&mark, &dialog, &token));
            buf.push(b'@');
            write::addr(buf, local);
            if transport != Transport::Udp {
                buf.extend_from_slice(b";transport=");
                // A peer need not know `tls-sctp`: RFC 4168 has it for Via alone.
                let named = if sips && transport == Transport::TlsSctp {
                    Transport::Sctp
                } else {
                    transport
                };
                buf.extend_from_slice(named.uri().as_bytes());
            }
            buf.extend_from_slice(b";lr>\r\n");
        };
        if same && near.is_none() && far.is_none() {
            return write(from.transport, from.local, None);
        }
        write(to.transport, to.local, far);
        write(from.transport, from.local, near);
    }

    /// The context and branch a number of ours means, if it still lives.
    pub(super) fn find(&self, user: u64) -> Option<(usize, usize)> {
        let (index, serial, b) = context::from_user(user);
        let ctx = self.contexts.get(index)?;
        (ctx.serial & 0xffff == serial && b < ctx.branches.len()).then_some((index, b))
    }
}

/// What came of looking for the next hop.
pub(super) enum Found {
    /// Here.
    Way(Way),
    /// Behind a name: the world must be asked.
    Name(ResolveTarget),
    /// Nothing we could reach.
    Nowhere,
}

impl Branch {
    fn waiting(target: RequestTarget) -> Branch {
        Branch {
            target,
            state: State::Waiting,
            client: None,
            timer_c: TimerId::NONE,
            cancel: None,
            breadth: 0,
            through: None,
            hop: None,
            again: false,
            on_flow: false,
            went: None,
        }
    }
}

/// The first Route element that is not ours.
pub(super) fn next_route<'a>(msg: &Message<'a>, kept: &Kept) -> Option<&'a [u8]> {
    if !msg.has(HeaderId::Route) {
        return None;
    }
    let mut rest = msg.items(HeaderId::Route).skip(kept.routes_used);
    let next = rest.next()?;
    // The last one has become the Request-URI, if a strict router sent this.
    (!kept.last_route_used || rest.next().is_some()).then_some(next)
}

/// A URI without what a Request-URI may not have: header fields and the `method` parameter
/// (section 16.6 item 2, section 19.1.1).
pub(super) fn as_request_uri(uri: &[u8]) -> Cow<'_, [u8]> {
    const METHOD: &[u8] = b";method";
    let suspect = memchr::memchr2_iter(b'?', b'=', uri).any(|at| {
        let before = &uri[at.saturating_sub(METHOD.len())..at];
        uri[at] == b'?' || before.eq_ignore_ascii_case(METHOD)
    });
    let parsed = match suspect {
        true => Uri::parse(uri).ok().filter(Uri::is_sip),
        false => None,
    };
    let Some(parsed) = parsed else { return Cow::Borrowed(uri) };
    let tail =
        parsed.params.len() + if parsed.headers.is_empty() { 0 } else { parsed.headers.len() + 1 };
    let mut plain = uri[..uri.len() - tail].to_vec();
    for (name, value) in parsed.params().filter(|(name, _)| !name.eq_ignore_ascii_case(b"method")) {
        plain.push(b';');
        plain.extend_from_slice(name);
        if let Some(value) = value {
            plain.push(b'=');
            plain.extend_from_slice(value);
        }
    }
    Cow::Owned(plain)
}

pub(super) fn is_sips(uri: &[u8]) -> bool {
    uri.get(..5).is_some_and(|s| s.eq_ignore_ascii_case(b"sips:"))
}

pub(super) fn has_lr(uri: &str) -> bool {
    Uri::parse(uri.as_bytes()).is_ok_and(|u| u.is_loose_router())
}

/// Whether requests back to the sender of this one are to travel on the flow it came on. Only for a user
/// agent right before us; behind another proxy it is that proxy's affair.
fn needs_flow(msg: &Message<'_>, flow: &Flow) -> bool {
    if msg.items(HeaderId::Via).nth(1).is_some() {
        return false;
    }
    match msg.items(HeaderId::Contact).next().map(NameAddr::parse) {
        Some(Ok(contact)) => contact_needs_flow(contact.uri, flow),
        _ => !flow.transport.is_datagram(),
    }
}

/// Whether a Contact is reached by the flow of its owner rather than by itself: a phone that negotiated
/// Outbound (RFC 5626 section 5.3), one whose address is another than it sends from, a WebSocket (RFC
/// 7118 section 5), an SCTP association with its several addresses, and a TLS client, which has no
/// certificate to be connected to by. Any other is
/// connected to where its Contact says (RFC 3261 section 18.1.1), also when its flow is gone.
fn contact_needs_flow(contact: &[u8], flow: &Flow) -> bool {
    let datagram = flow.transport.is_datagram();
    let Ok(uri) = Uri::parse(contact) else { return !datagram };
    if matches!(flow.transport, Transport::Ws | Transport::Sctp) || flow.transport.is_secure() {
        return true;
    }
    match uri.host_ip() {
        Some(ip) => {
            ip.to_canonical() != flow.remote.ip().to_canonical()
                || !datagram && super::targets::has_ob(&uri)
        }
        None => !datagram || uri.host.to_ascii_lowercase().ends_with(b".invalid"),
    }
}
