//! A phone: it registers, calls and is called, and notes when what happened.
//!
//! It does what RFC 3261 asks of a user agent for one call after another: client and server
//! transactions are those of `ringway_sip`, a 2xx is sent again until its ACK comes (section
//! 13.3.1.4), and everything goes through one outbound proxy. Nobody has to lift a receiver: a call
//! is answered after a set time.

use super::proxy::DOMAIN;
use ringway_sansio::{CloseReason, Duration, Flow, Outbox, Program, Random, Target, Time};
use ringway_sip::dialog::{self, Dialog, Outgoing};
use ringway_sip::message::{self, Message, Method};
use ringway_sip::transaction::{
    Branch, ClientEvent, Expired, Incoming, Kind, ServerId, Timers, Transactions,
};
use ringway_sip::uri::Uri;
use ringway_sip::write;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What a phone offers and answers with (RFC 4566): what makes an INVITE as long as usual.
const SDP: &str = "v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=-\r\nc=IN IP4 10.0.0.1\r\nt=0 0\r\n\
                   m=audio 7078 RTP/AVP 0 8 101\r\na=rtpmap:101 telephone-event/8000\r\n";

/// What a phone is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When it registers, if it does.
    pub register: Option<Time>,
    /// Whom it calls and when first; nobody, if it only waits for calls.
    pub call: Option<(String, Time)>,
    /// It begins no call after this.
    pub until: Time,
    /// How long a call lasts, from its answer to the BYE.
    pub talk: Duration,
    /// From the end of a call to the next.
    pub pause: Duration,
    /// How long it rings before it answers.
    pub answer: Duration,
}

/// A call as the caller saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Call {
    /// The INVITE was sent.
    pub invited: Time,
    /// A 180 came.
    pub ringing: Option<Time>,
    /// The 200 came.
    pub answered: Option<Time>,
    /// The BYE was sent.
    pub bye: Option<Time>,
    /// Its 200 came.
    pub ended: Option<Time>,
    /// The INVITE or the BYE failed, with this status: 408 where no answer came.
    pub failed: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tick {
    Register,
    Call,
    /// The caller hangs up this call.
    Hangup(usize),
    /// The phone that was called answers.
    Answer(usize),
    /// It sends its 200 again, after this interval in milliseconds.
    Again(usize, u64),
}

/// A call this phone was called by.
struct Called {
    dialog: Dialog,
    server: ServerId,
    invite: Vec<u8>,
    ok: Vec<u8>,
    to: Target,
    since: Option<Time>,
    acknowledged: bool,
}

/// Numbers of what a client transaction is for.
const REGISTER: u64 = 0;
const INVITE: u64 = 1 << 32;
const BYE: u64 = 2 << 32;

/// A phone.
pub struct Phone<R> {
    user: String,
    local: SocketAddr,
    proxy: Target,
    plan: Plan,
    tx: Transactions,
    random: R,
    ticks: BTreeSet<(Time, Tick)>,
    /// Calls made, with the INVITE and, once answered, the dialog.
    calls: Vec<(Call, Vec<u8>, Option<Dialog>)>,
    called: Vec<Called>,
    /// By Call-ID, the calls it was called by.
    by_call_id: BTreeMap<Vec<u8>, usize>,
    registering: Option<Time>,
    /// How long the REGISTER took, or the status it failed with.
    pub registered: Option<Result<Duration, u16>>,
}

impl<R: Random + 'static> Phone<R> {
    /// A phone of `user` at `local`, which sends everything to `proxy`.
    /// Its number, of those that share a host, stands in its branches.
    pub fn new(
        number: u8,
        user: &str,
        local: SocketAddr,
        proxy: Target,
        plan: Plan,
        mut random: R,
    ) -> Self {
        let tx = Transactions::new(number, Timers::default(), &mut random, Time::ZERO);
        let mut ticks = BTreeSet::new();
        ticks.extend(plan.register.map(|at| (at, Tick::Register)));
        ticks.extend(plan.call.as_ref().map(|call| (call.1, Tick::Call)));
        Phone {
            user: user.into(),
            local,
            proxy,
            plan,
            tx,
            random,
            ticks,
            calls: Vec::new(),
            called: Vec::new(),
            by_call_id: BTreeMap::new(),
            registering: None,
            registered: None,
        }
    }

    /// The calls it made, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().map(|call| &call.0)
    }

    /// Requests and responses sent again by SIP's own timers.
    pub fn retransmitted(&self) -> u64 {
        self.tx.counters.retransmitted
    }

    fn contact(&self) -> String {
        let transport = self.proxy.transport().uri();
        format!("Contact: <sip:{}@{};transport={transport}>\r\n", self.user, self.local)
    }

    /// The value of a Via for a client transaction.
    fn via(&mut self) -> (ringway_sip::transaction::ClientId, Vec<u8>) {
        let client = self.tx.reserve(&mut self.random);
        let mut via =
            format!("SIP/2.0/{} {};rport;branch=", self.proxy.transport().via(), self.local)
                .into_bytes();
        Branch { worker: self.tx.worker(), client, spiral: 0 }.write(&mut via);
        (client, via)
    }

    /// A request outside of a dialog, up to its body.
    fn head(&mut self, method: &str, uri: &str, to: &str, via: &[u8]) -> Vec<u8> {
        let (tag, call) = (self.random.next_u64(), self.random.next_u64());
        let mut head = format!("{method} {uri} SIP/2.0\r\nVia: ").into_bytes();
        head.extend_from_slice(via);
        let from = format!("<sip:{}@{DOMAIN}>", self.user);
        let rest = format!(
            "\r\nMax-Forwards: 70\r\nFrom: {from};tag={tag:x}\r\nTo: {to}\r\nCall-ID: {call:016x}@{}\r\n\
             CSeq: 1 {method}\r\n{}",
            self.local.ip(),
            self.contact()
        );
        head.extend_from_slice(rest.as_bytes());
        head
    }

    fn register(&mut self, now: Time, out: &mut Outbox) {
        let (client, via) = self.via();
        let to = format!("<sip:{}@{DOMAIN}>", self.user);
        let mut request = self.head("REGISTER", &format!("sip:{DOMAIN}"), &to, &via);
        request.extend_from_slice(b"Expires: 3600\r\n");
        write::end(&mut request, b"");
        let start = out.buffer().len();
        out.buffer().extend_from_slice(&request);
        let proxy = self.proxy.clone();
        self.tx.send(now, client, Kind::NonInvite, proxy, REGISTER, out, start);
        self.registering = Some(now);
    }

    fn call(&mut self, now: Time, out: &mut Outbox) {
        let Some((callee, _)) = self.plan.call.clone() else { return };
        if now > self.plan.until {
            return;
        }
        let (client, via) = self.via();
        let uri = format!("sip:{callee}@{DOMAIN}");
        let mut invite = self.head("INVITE", &uri, &format!("<{uri}>"), &via);
        invite.extend_from_slice(b"Content-Type: application/sdp\r\n");
        write::end(&mut invite, SDP.as_bytes());
        let start = out.buffer().len();
        out.buffer().extend_from_slice(&invite);
        let (proxy, user) = (self.proxy.clone(), INVITE | self.calls.len() as u64);
        self.tx.send(now, client, Kind::Invite, proxy, user, out, start);
        self.calls.push((Call { invited: now, ..Call::default() }, invite, None));
    }

    /// A call is over, well or not: the next one is set.
    fn next_call(&mut self, now: Time) {
        self.ticks.insert((now + self.plan.pause, Tick::Call));
    }

    fn hang_up(&mut self, now: Time, index: usize, out: &mut Outbox) {
        let (client, via) = self.via();
        let Some((call, _, Some(dialog))) = self.calls.get_mut(index) else { return };
        let start = out.buffer().len();
        let bye = Outgoing { method: Method::Bye, via: &via, extra: b"", body: b"" };
        if dialog.request(out.buffer(), &bye).is_err() {
            out.abandon(start);
            return;
        }
        call.bye = Some(now);
        let (proxy, user) = (self.proxy.clone(), BYE | index as u64);
        self.tx.send(now, client, Kind::NonInvite, proxy, user, out, start);
    }

    /// A response for a client transaction, or the status that stands for its failure.
    fn answer_came(
        &mut self,
        now: Time,
        event: ClientEvent,
        status: u16,
        response: Option<&Message<'_>>,
        out: &mut Outbox,
    ) {
        let index = (event.user & 0xffff_ffff) as usize;
        match event.user & !0xffff_ffff {
            INVITE => self.invite_answered(now, index, status, response, out),
            BYE if status >= 200 => {
                let Some((call, ..)) = self.calls.get_mut(index) else { return };
                match status {
                    200..=299 => call.ended = Some(now),
                    _ => call.failed = Some(status),
                }
                self.next_call(now);
            }
            REGISTER if status >= 200 => {
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
                    *dialog = made.and_then(|m| Dialog::asking(&m, response, false).ok());
                    call.answered = Some(now);
                    self.ticks.insert((now + self.plan.talk, Tick::Hangup(index)));
                }
                // Every 2xx has its ACK (RFC 3261 section 13.2.2.4).
                let (_, via) = self.via();
                let Some((_, _, Some(dialog))) = self.calls.get(index) else { return };
                out.push(self.proxy.clone(), 0, |buf| dialog.ack(buf, &via, 1, b"", b""));
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
                let number = self.called.len();
                let user = number as u64;
                let Some(server) = self.tx.open(key, Kind::Invite, *flow, port, user) else {
                    return;
                };
                let tag = format!("{:x}", self.random.next_u64());
                let Ok(dialog) = Dialog::answering(request, 180, tag.as_bytes(), false) else {
                    return;
                };
                self.respond(now, server, flow, request, 180, &dialog, out);
                self.by_call_id.insert(request.call_id().to_vec(), number);
                self.called.push(Called {
                    dialog,
                    server,
                    invite: request.whole().to_vec(),
                    ok: Vec::new(),
                    to: Target::Flow(*flow),
                    since: None,
                    acknowledged: false,
                });
                self.ticks.insert((now + self.plan.answer, Tick::Answer(number)));
            }
            _ => {
                let port = via.port.unwrap_or(flow.transport.default_port());
                let Some(server) = self.tx.open(key, Kind::NonInvite, *flow, port, 0) else {
                    return;
                };
                let known = self.by_call_id.get(request.call_id());
                let called = known.and_then(|&n| self.called.get_mut(n));
                let status = match called {
                    Some(called) if request.method() == Method::Bye => {
                        called.acknowledged = true;
                        match called.dialog.receive(request) {
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
        if let Some(called) = known.and_then(|&n| self.called.get_mut(n)) {
            called.acknowledged = true;
        }
    }

    /// Answers an INVITE; gives the response.
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
        extra.extend_from_slice(self.contact().as_bytes());
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
        let Some(called) = self.called.get(number) else { return };
        let (server, invite, dialog) =
            (called.server, called.invite.clone(), called.dialog.clone());
        let Target::Flow(flow) = called.to else { return };
        let Ok(request) = message::parse(&invite) else { return };
        let ok = self.respond(now, server, &flow, &request, 200, &dialog, out);
        let called = &mut self.called[number];
        called.dialog.answered(200);
        (called.ok, called.since) = (ok, Some(now));
        let t1 = self.tx.timers().t1;
        self.ticks.insert((now + t1, Tick::Again(number, t1.as_millis() as u64)));
    }

    /// RFC 3261 section 13.3.1.4: a 2xx is sent again until its ACK comes, whatever carries it.
    fn answer_again(&mut self, now: Time, number: usize, interval: u64, out: &mut Outbox) {
        let timers = *self.tx.timers();
        let Some(called) = self.called.get(number) else { return };
        let old = called.since.is_none_or(|since| now.since(since) >= timers.lifetime());
        if called.acknowledged || old {
            return;
        }
        out.push(called.to.clone(), 0, |buf| buf.extend_from_slice(&called.ok));
        let interval = (interval * 2).min(timers.t2.as_millis() as u64);
        self.ticks.insert((now + Duration::from_millis(interval), Tick::Again(number, interval)));
    }

    /// A response whose top Via this phone wrote.
    fn response(&mut self, now: Time, branch: &Branch, response: &Message<'_>, out: &mut Outbox) {
        if let Some(event) = self.tx.response(now, branch.client, response, out) {
            self.answer_came(now, event, response.status(), Some(response), out);
        }
    }

    fn not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        if let Some(event) = self.tx.not_sent(now, report, out) {
            // RFC 3261 section 8.1.3.1.
            self.answer_came(now, event, 503, None, out);
        }
    }

    fn tick(&mut self, now: Time, out: &mut Outbox) {
        while let Some(&(at, tick)) = self.ticks.first().filter(|tick| tick.0 <= now) {
            self.ticks.remove(&(at, tick));
            match tick {
                Tick::Register => self.register(now, out),
                Tick::Call => self.call(now, out),
                Tick::Hangup(index) => self.hang_up(now, index, out),
                Tick::Answer(number) => self.answer(now, number, out),
                Tick::Again(number, interval) => self.answer_again(now, number, interval, out),
            }
        }
        while let Some(expired) = self.tx.expire(now, out) {
            if let Expired::ClientTimeout(event) = expired {
                self.answer_came(now, event, 408, None, out);
            }
        }
    }

    fn due(&self) -> Option<Time> {
        let tick = self.ticks.first().map(|tick| tick.0);
        [tick, self.tx.next_timeout()].into_iter().flatten().min()
    }
}

/// Phones that share a host, its address and its flows, each under its number.
pub struct Desk<R>(pub Vec<Phone<R>>);

impl<R: Random + 'static> Program for Desk<R> {
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
        // A report bears random bits of its transaction: it is one phone's.
        self.0.iter_mut().for_each(|phone| phone.not_sent(now, report, out));
    }

    fn closed(&mut self, _: Time, _: &Flow, _: CloseReason, _: &mut Outbox) {}

    fn timeout(&mut self, now: Time, out: &mut Outbox) {
        for phone in self.0.iter_mut().filter(|p| p.due().is_some_and(|at| at <= now)) {
            phone.tick(now, out);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.iter().filter_map(Phone::due).min()
    }
}
