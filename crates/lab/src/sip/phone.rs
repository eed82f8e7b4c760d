//! A phone: it registers, makes and receives calls, and records their times.
//!
//! It behaves as RFC 3261 requires of a user agent with one call after another. Client and server
//! transactions are those of `ringway_sip`, a 2xx is retransmitted until its ACK arrives (section
//! 13.3.1.4), and all messages go through one outbound proxy. A call is answered automatically
//! after a fixed time.

use ringway_sansio::{CloseReason, Duration, Flow, Outbox, Program, Random, Target, Time};
use ringway_sip::dialog::{self, Dialog};
use ringway_sip::message::{self, Message, Method};
use ringway_sip::transaction::{
    Branch, ClientEvent, ClientId, Expired, Incoming, Kind, Report, ServerId, Timers, Transactions,
};
use ringway_sip::uri::Uri;
use ringway_sip::write::{self, Party, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The SDP offer and answer of a phone (RFC 4566), which gives an INVITE a usual length.
const SDP: &str = "v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=-\r\nc=IN IP4 10.0.0.1\r\nt=0 0\r\n\
                   m=audio 7078 RTP/AVP 0 8 101\r\na=rtpmap:101 telephone-event/8000\r\n";

/// The schedule of a phone.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Time of registration, if it registers.
    pub register: Option<Time>,
    /// Time of another registration.
    pub register_again: Option<Time>,
    /// The domain of the phone's user.
    pub domain: &'static str,
    /// Callee, with a domain, and time of the first call; `None` for a phone that only receives calls.
    pub call: Option<(String, Time)>,
    /// Latest begin of a call.
    pub until: Time,
    /// Duration of a call, from its answer to the BYE.
    pub talk: Duration,
    /// Pause from the end of a call to the next.
    pub pause: Duration,
    /// Ringing time.
    pub answer: Duration,
}

/// A call as recorded by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Call {
    /// Time at which the INVITE was sent.
    pub invited: Time,
    /// Time at which a 180 arrived.
    pub ringing: Option<Time>,
    /// Time at which the 200 arrived.
    pub answered: Option<Time>,
    /// Time at which the BYE was sent.
    pub bye: Option<Time>,
    /// Time at which the 200 of the BYE arrived.
    pub ended: Option<Time>,
    /// Status with which the INVITE or the BYE failed: 408 without a response.
    pub failed: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Register,
    Call,
    /// The caller hangs up this call.
    Hangup(usize),
    /// The callee answers this call.
    Answer(usize),
    /// The callee retransmits its 200; the interval is in milliseconds.
    Retransmit(usize, u64),
}

/// A call that this phone received.
struct IncomingCall {
    dialog: Dialog,
    server: ServerId,
    invite: Vec<u8>,
    ok: Vec<u8>,
    to: Target,
    since: Option<Time>,
    acknowledged: bool,
}

/// What a client transaction is for; a call by its index.
#[derive(Clone, Copy)]
enum Purpose {
    Register,
    Invite(usize),
    Bye(usize),
}

/// A phone.
pub struct Phone<R> {
    user: String,
    local: SocketAddr,
    proxy: Target,
    plan: Plan,
    tx: Transactions<Purpose, ()>,
    random: R,
    timers: BTreeSet<(Time, Timer)>,
    /// Outgoing calls, each with its INVITE and, once answered, its dialog.
    calls: Vec<(Call, Vec<u8>, Option<Dialog>)>,
    incoming: Vec<IncomingCall>,
    /// Indices of the received calls by Call-ID.
    by_call_id: BTreeMap<Vec<u8>, usize>,
    registering: Option<Time>,
    /// Duration of the REGISTER, or the status with which it failed.
    pub registered: Option<Result<Duration, u16>>,
}

impl<R: Random + 'static> Phone<R> {
    /// Creates a phone of `user` at `local`, which sends all messages to `proxy`. `number`
    /// distinguishes phones that share a host and is part of their branches.
    pub fn new(
        number: u8,
        user: &str,
        local: SocketAddr,
        proxy: Target,
        plan: Plan,
        mut random: R,
    ) -> Self {
        let tx = Transactions::new(number, Timers::default(), &mut random, Time::ZERO);
        let mut timers = BTreeSet::new();
        let registers = [plan.register, plan.register_again].into_iter().flatten();
        timers.extend(registers.map(|at| (at, Timer::Register)));
        timers.extend(plan.call.as_ref().map(|call| (call.1, Timer::Call)));
        Phone {
            user: user.into(),
            local,
            proxy,
            plan,
            tx,
            random,
            timers,
            calls: Vec::new(),
            incoming: Vec::new(),
            by_call_id: BTreeMap::new(),
            registering: None,
            registered: None,
        }
    }

    /// Returns its outgoing calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().map(|call| &call.0)
    }

    /// Returns the number of requests and responses retransmitted by SIP's own timers.
    pub fn retransmitted(&self) -> u64 {
        self.tx.counters.retransmitted
    }

    /// Returns the address-of-record of its user.
    fn aor(&self) -> String {
        format!("sip:{}@{}", self.user, self.plan.domain)
    }

    /// Returns the URI of this phone's Contact.
    fn contact(&self) -> String {
        format!("sip:{}@{};transport={}", self.user, self.local, self.proxy.transport().uri())
    }

    /// Returns the value of a Via for a client transaction.
    fn via(&mut self) -> (ClientId, Vec<u8>) {
        let client = self.tx.reserve(&mut self.random);
        let branch = Branch { worker: self.tx.worker(), client, spiral: 0 };
        let mut via = Vec::new();
        write::via(&mut via, self.proxy.transport(), self.local, |buf| branch.write(buf));
        via.extend_from_slice(b";rport");
        (client, via)
    }

    /// Sends a request outside of a dialog, with one further header field, and returns the index
    /// at which it begins in the outbox.
    fn send(
        &mut self,
        now: Time,
        method: Method<'_>,
        purpose: Purpose,
        target: &str,
        to: &str,
        field: (&'static str, &[u8]),
        body: &[u8],
        out: &mut Outbox,
    ) -> usize {
        let (client, via) = self.via();
        let (tag, call) = (self.random.next_u64(), self.random.next_u64());
        let (tag, call) = (format!("{tag:x}"), format!("{call:016x}@{}", self.local.ip()));
        let from = self.aor();
        let from = Party { uri: from.as_bytes(), tag: tag.as_bytes(), ..Party::default() };
        let to = Party { uri: to.as_bytes(), ..Party::default() };
        let start = out.buffer().len();
        Request {
            via: &via,
            contact: self.contact().as_bytes(),
            fields: &[field],
            body,
            ..Request::new(method, target.as_bytes(), from, to, call.as_bytes(), 1)
        }
        .emit(out.buffer());
        let kind = if method == Method::Invite { Kind::Invite } else { Kind::NonInvite };
        self.tx.send(now, client, kind, self.proxy.clone(), purpose, out, start);
        start
    }

    fn register(&mut self, now: Time, out: &mut Outbox) {
        let (target, to) = (format!("sip:{}", self.plan.domain), self.aor());
        let (method, field) = (Method::Register, ("Expires", &b"3600"[..]));
        self.send(now, method, Purpose::Register, &target, &to, field, b"", out);
        self.registering = Some(now);
    }

    fn call(&mut self, now: Time, out: &mut Outbox) {
        let Some((callee, _)) = &self.plan.call else { return };
        if now > self.plan.until {
            return;
        }
        let (purpose, callee) = (Purpose::Invite(self.calls.len()), format!("sip:{callee}"));
        let (field, body) = (("Content-Type", &b"application/sdp"[..]), SDP.as_bytes());
        let start = self.send(now, Method::Invite, purpose, &callee, &callee, field, body, out);
        let invite = out.buffer()[start..].to_vec();
        self.calls.push((Call { invited: now, ..Call::default() }, invite, None));
    }

    /// Schedules the next call after the end of one.
    fn next_call(&mut self, now: Time) {
        self.timers.insert((now + self.plan.pause, Timer::Call));
    }

    fn hang_up(&mut self, now: Time, index: usize, out: &mut Outbox) {
        let (client, via) = self.via();
        let Some((call, _, Some(dialog))) = self.calls.get_mut(index) else { return };
        let Ok(bye) = dialog.request(Method::Bye) else { return };
        let start = out.buffer().len();
        Request { via: &via, ..bye }.emit(out.buffer());
        call.bye = Some(now);
        let (proxy, user) = (self.proxy.clone(), Purpose::Bye(index));
        self.tx.send(now, client, Kind::NonInvite, proxy, user, out, start);
    }

    /// Handles a response to a client transaction, or the status that stands for its failure.
    fn handle_response(
        &mut self,
        now: Time,
        event: ClientEvent<Purpose>,
        status: u16,
        response: Option<&Message<'_>>,
        out: &mut Outbox,
    ) {
        match event.user {
            Purpose::Invite(index) => self.invite_answered(now, index, status, response, out),
            Purpose::Bye(index) if status >= 200 => {
                let Some((call, ..)) = self.calls.get_mut(index) else { return };
                match status {
                    200..=299 => call.ended = Some(now),
                    _ => call.failed = Some(status),
                }
                self.next_call(now);
            }
            Purpose::Register if status >= 200 => {
                let took = self.registering.take().map(|since| now.since(since));
                self.registered =
                    took.map(|took| if status < 300 { Ok(took) } else { Err(status) });
            }
            _ => {}
        }
    }

    fn invite_answered(
        &mut self,
        now: Time,
        index: usize,
        status: u16,
        response: Option<&Message<'_>>,
        out: &mut Outbox,
    ) {
        let Some((call, invite, dialog)) = self.calls.get_mut(index) else { return };
        match status {
            180 => drop(call.ringing.get_or_insert(now)),
            200..=299 => {
                let Some(response) = response else { return };
                if dialog.is_none() {
                    let made = message::parse(invite).ok();
                    *dialog = made.and_then(|m| Dialog::new_uac(&m, response, false).ok());
                    call.answered = Some(now);
                    self.timers.insert((now + self.plan.talk, Timer::Hangup(index)));
                }
                // Every 2xx gets an ACK (RFC 3261 section 13.2.2.4).
                let (_, via) = self.via();
                let Some((_, _, Some(dialog))) = self.calls.get(index) else { return };
                let ack = Request { via: &via, ..dialog.ack(1) };
                out.push(self.proxy.clone(), 0, |buf| {
                    ack.emit(buf);
                });
            }
            300.. => {
                call.failed = Some(status);
                self.next_call(now);
            }
            _ => {}
        }
    }

    fn request(&mut self, now: Time, flow: &Flow, request: &Message<'_>, out: &mut Outbox) {
        let Ok(via) = request.top_via() else { return };
        let key = match self.tx.receive(now, request, &via, out) {
            Incoming::New(key) => key,
            Incoming::Absorbed => return,
            Incoming::AckOf2xx(_) => return self.acknowledged(request),
        };
        match request.method() {
            Method::Ack => self.acknowledged(request),
            Method::Invite => {
                let port = via.port.unwrap_or(flow.transport.default_port());
                let number = self.incoming.len();
                let Some(server) = self.tx.open(key, Kind::Invite, *flow, port, ()) else {
                    return;
                };
                let tag = format!("{:x}", self.random.next_u64());
                let Ok(dialog) = Dialog::new_uas(request, 180, tag.as_bytes(), false) else {
                    return;
                };
                self.respond(now, server, flow, request, 180, &dialog, out);
                self.by_call_id.insert(request.call_id().to_vec(), number);
                self.incoming.push(IncomingCall {
                    dialog,
                    server,
                    invite: request.whole().to_vec(),
                    ok: Vec::new(),
                    to: Target::Flow(*flow),
                    since: None,
                    acknowledged: false,
                });
                self.timers.insert((now + self.plan.answer, Timer::Answer(number)));
            }
            _ => {
                let port = via.port.unwrap_or(flow.transport.default_port());
                let Some(server) = self.tx.open(key, Kind::NonInvite, *flow, port, ()) else {
                    return;
                };
                let known = self.by_call_id.get(request.call_id());
                let incoming = known.and_then(|&n| self.incoming.get_mut(n));
                let status = match incoming {
                    Some(incoming) if request.method() == Method::Bye => {
                        incoming.acknowledged = true;
                        match incoming.dialog.receive(request) {
                            Ok(()) => 200,
                            Err(error) => error.status(),
                        }
                    }
                    _ => 481,
                };
                let start = out.buffer().len();
                write::response(out.buffer(), request, Some(flow), status, "", None, b"", b"");
                self.tx.respond(now, server, status, out, start);
            }
        }
    }

    fn acknowledged(&mut self, ack: &Message<'_>) {
        let known = self.by_call_id.get(ack.call_id());
        if let Some(incoming) = known.and_then(|&n| self.incoming.get_mut(n)) {
            incoming.acknowledged = true;
        }
    }

    /// Answers an INVITE and returns the response.
    fn respond(
        &mut self,
        now: Time,
        server: ServerId,
        flow: &Flow,
        request: &Message<'_>,
        status: u16,
        dialog: &Dialog,
        out: &mut Outbox,
    ) -> Vec<u8> {
        let mut extra = Vec::new();
        dialog::record_routes(&mut extra, request);
        write::header(&mut extra, "Contact", format!("<{}>", self.contact()).as_bytes());
        let body = if status == 200 { SDP.as_bytes() } else { b"" };
        if !body.is_empty() {
            extra.extend_from_slice(b"Content-Type: application/sdp\r\n");
        }
        let start = out.buffer().len();
        let tag = Some(dialog.local_tag());
        write::response(out.buffer(), request, Some(flow), status, "", tag, &extra, body);
        let response = out.buffer()[start..].to_vec();
        self.tx.respond(now, server, status, out, start);
        response
    }

    fn answer(&mut self, now: Time, number: usize, out: &mut Outbox) {
        let Some(incoming) = self.incoming.get(number) else { return };
        let (server, invite, dialog) =
            (incoming.server, incoming.invite.clone(), incoming.dialog.clone());
        let Target::Flow(flow) = incoming.to else { return };
        let Ok(request) = message::parse(&invite) else { return };
        let ok = self.respond(now, server, &flow, &request, 200, &dialog, out);
        let incoming = &mut self.incoming[number];
        incoming.dialog.answered(200);
        (incoming.ok, incoming.since) = (ok, Some(now));
        let t1 = self.tx.timers().t1;
        self.timers.insert((now + t1, Timer::Retransmit(number, t1.as_millis() as u64)));
    }

    /// RFC 3261 section 13.3.1.4: a 2xx is retransmitted until its ACK arrives, over any transport.
    fn retransmit_answer(&mut self, now: Time, number: usize, interval: u64, out: &mut Outbox) {
        let timers = *self.tx.timers();
        let Some(incoming) = self.incoming.get(number) else { return };
        let old = incoming.since.is_none_or(|since| now.since(since) >= timers.lifetime());
        if incoming.acknowledged || old {
            return;
        }
        out.push(incoming.to.clone(), 0, |buf| buf.extend_from_slice(&incoming.ok));
        let interval = (interval * 2).min(timers.t2.as_millis() as u64);
        self.timers
            .insert((now + Duration::from_millis(interval), Timer::Retransmit(number, interval)));
    }

    /// Handles a response whose top Via was written by this phone.
    fn response(&mut self, now: Time, branch: &Branch, response: &Message<'_>, out: &mut Outbox) {
        if let Some(event) = self.tx.response(now, branch.client, response, out) {
            self.handle_response(now, event, response.status(), Some(response), out);
        }
    }

    fn not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        let event = Report::from_u64(report).and_then(|r| self.tx.not_sent(now, r, out));
        if let Some(event) = event {
            // RFC 3261 section 8.1.3.1.
            self.handle_response(now, event, 503, None, out);
        }
    }

    fn handle_timer(&mut self, now: Time, out: &mut Outbox) {
        while let Some(&(at, timer)) = self.timers.first().filter(|timer| timer.0 <= now) {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Register => self.register(now, out),
                Timer::Call => self.call(now, out),
                Timer::Hangup(index) => self.hang_up(now, index, out),
                Timer::Answer(number) => self.answer(now, number, out),
                Timer::Retransmit(number, interval) => {
                    self.retransmit_answer(now, number, interval, out)
                }
            }
        }
        while let Some(expired) = self.tx.expire(now, out) {
            if let Expired::ClientTimeout(event) = expired {
                self.handle_response(now, event, 408, None, out);
            }
        }
    }

    fn due(&self) -> Option<Time> {
        let timer = self.timers.first().map(|timer| timer.0);
        [timer, self.tx.next_timeout()].into_iter().flatten().min()
    }
}

/// Phones that share a host, its address and its flows, each with its number.
pub struct PhoneHost<R>(pub Vec<Phone<R>>);

impl<R: Random + 'static> Program for PhoneHost<R> {
    fn message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        let Ok(message) = message::parse(bytes) else { return };
        if message.is_request() {
            let uri = Uri::parse(message.request_uri());
            let user = uri.ok().and_then(|uri| uri.user).unwrap_or_default();
            if let Some(phone) = self.0.iter_mut().find(|p| p.user.as_bytes() == user) {
                phone.request(now, flow, &message, out);
            }
            return;
        }
        let branch = message.top_via().ok().and_then(|via| Branch::parse(via.branch));
        if let Some(branch) = branch
            && let Some(phone) = self.0.get_mut(usize::from(branch.worker))
        {
            phone.response(now, &branch, &message, out);
        }
    }

    fn not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        // A report contains random bits of its transaction, so it belongs to one phone.
        self.0.iter_mut().for_each(|phone| phone.not_sent(now, report, out));
    }

    fn closed(&mut self, _: Time, _: &Flow, _: CloseReason, _: &mut Outbox) {}

    fn timeout(&mut self, now: Time, out: &mut Outbox) {
        for phone in self.0.iter_mut().filter(|p| p.due().is_some_and(|at| at <= now)) {
            phone.handle_timer(now, out);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.iter().filter_map(Phone::due).min()
    }
}
