//! The phones at a router: they register, call and send messages as RFC 3261 requires of a user agent behind a proxy that
//! never loses what they send.
//!
//! Between a phone and its router nothing is lost, so that phones send requests once; a 2xx to an INVITE, which only the
//! other phone acknowledges, they retransmit (section 13.3.1.4). A phone keeps nothing but a few numbers while it is not in a
//! call.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use ringway_proxy::core::MAX_WAIT;
use ringway_sansio::{Duration, Random, SplitMix, Time};
use ringway_sip::dialog::{self, Dialog};
use ringway_sip::digest::{self, Answer};
use ringway_sip::message::{self, Message, Method};
use ringway_sip::write::{self, Party, Request};
use ringway_sip::{HeaderId, Uri, transaction};

use super::outcomes::{Call, Sent, Stray};
use super::users::{DOMAIN, GATEWAY, OUTSIDE, aor, name, number, password};

/// Beginning of the last 64 bits of a phone's address; its user is the rest.
const HOSTS: u64 = 1 << 32;
/// Timers B and F of RFC 3261: 64 times T1.
const PATIENCE: Duration = Duration::from_secs(32);
/// T1 and T2 of RFC 3261, for a 2xx.
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
/// Time after which a phone tries again to register, for one that is refused.
const RETRY: Duration = Duration::from_secs(5);
/// Requests sent for one purpose: without credentials, with them, and once more with a new nonce.
const MAX_ATTEMPTS: u8 = 3;

/// Returns the address of a user's phone at a router.
pub(crate) fn address(router: &Ipv6Addr, user: u32) -> Ipv6Addr {
    let prefix = router.to_bits() >> 64 << 64;
    Ipv6Addr::from_bits(prefix | u128::from(HOSTS | u64::from(user)))
}

/// How phones behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhoneTimes {
    /// Lifetime of a registration. It is refreshed after half of it.
    pub expires: Duration,
    /// Time for which a phone rings.
    pub ring: Duration,
    /// Time from an answer to the BYE.
    pub talk: Duration,
}

impl Default for PhoneTimes {
    fn default() -> Self {
        PhoneTimes {
            expires: Duration::from_secs(3_600),
            ring: Duration::from_secs(3),
            talk: Duration::from_secs(20),
        }
    }
}

/// A phone that is not in a call.
#[derive(Clone, Copy, Debug)]
struct Phone {
    /// Whether its user is here. One who has gone without notice leaves a registration.
    is_here: bool,
    cseq: u32,
    /// When the last 200 of a REGISTER came, since the user is here.
    registered: Option<Time>,
    /// When the last binding expires that the router may have.
    bound_until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Register(u32),
    /// No final response to this request.
    Timeout(u64),
    /// The caller hangs up.
    Hangup(u64),
    /// The caller cancels.
    GiveUp(u64),
    /// The callee answers.
    Answer(u64),
    /// The callee sends its 200 again.
    Repeat(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Register,
    Unregister,
    Invite(u64),
    Bye(u64),
    /// The BYE of a callee, who expects nothing of it.
    End,
    Message(u32),
}

/// A request that waits for its final response.
struct Pending {
    user: u32,
    purpose: Purpose,
    octets: Vec<u8>,
    begun: Time,
    attempts: u8,
}

struct Outgoing {
    call: Call,
    dialog: Option<Dialog>,
    /// The INVITE that the dialog comes of.
    invite: Vec<u8>,
}

struct Incoming {
    user: u32,
    call_id: Vec<u8>,
    dialog: Dialog,
    invite: Vec<u8>,
    /// The 200, once it was sent.
    ok: Vec<u8>,
    since: Time,
    interval: Duration,
    is_acknowledged: bool,
}

/// The phones at a router.
pub struct Phones {
    host: Ipv6Addr,
    times: PhoneTimes,
    phones: BTreeMap<u32, Phone>,
    pending: BTreeMap<u64, Pending>,
    outgoing: BTreeMap<u64, Outgoing>,
    incoming: BTreeMap<u64, Incoming>,
    /// Calls by Call-ID: caller and callee may be at the same router.
    made: BTreeMap<Vec<u8>, u64>,
    received: BTreeMap<Vec<u8>, u64>,
    timers: BTreeSet<(Time, Timer)>,
    last: u64,
    random: SplitMix,
    sent: Vec<(Ipv6Addr, Vec<u8>)>,
    calls: Vec<Call>,
    messages: Vec<Sent>,
    received_messages: Vec<(u32, Box<[u8]>)>,
    strays: Vec<Stray>,
    /// Calls and messages that arrived.
    arrived: u64,
    /// Registrations that were refused or not answered.
    refused: u64,
    /// The maximum number of Via header fields of a request that arrived.
    max_vias: usize,
}

impl Phones {
    /// No phones at the router with the address `host`.
    pub fn new(host: Ipv6Addr, times: PhoneTimes, random: SplitMix) -> Self {
        Phones {
            host,
            times,
            phones: BTreeMap::new(),
            pending: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            made: BTreeMap::new(),
            received: BTreeMap::new(),
            timers: BTreeSet::new(),
            last: 0,
            random,
            sent: Vec::new(),
            calls: Vec::new(),
            messages: Vec::new(),
            received_messages: Vec::new(),
            strays: Vec::new(),
            arrived: 0,
            refused: 0,
            max_vias: 0,
        }
    }

    /// A user comes here and registers at a time.
    pub fn come(&mut self, user: u32, at: Time) {
        let phone = Phone { is_here: true, cseq: 0, registered: None, bound_until: Time::ZERO };
        let phone = self.phones.entry(user).or_insert(phone);
        (phone.is_here, phone.registered) = (true, None);
        self.timers.insert((at, Timer::Register(user)));
    }

    /// A user goes, and withdraws the registration if `politely`.
    pub fn go(&mut self, now: Time, user: u32, politely: bool) {
        let Some(phone) = self.phones.get_mut(&user).filter(|phone| phone.is_here) else { return };
        phone.is_here = false;
        self.timers.retain(|(_, timer)| *timer != Timer::Register(user));
        if politely {
            self.register(now, user, Purpose::Unregister);
        }
    }

    /// Returns whether a user is here.
    pub fn has(&self, user: u32) -> bool {
        self.phones.get(&user).is_some_and(|phone| phone.is_here)
    }

    /// Returns when the registration of a user who is here was last acknowledged, if it has not expired.
    pub fn registered(&self, now: Time, user: u32) -> Option<Time> {
        let phone = self.phones.get(&user).filter(|phone| phone.is_here)?;
        phone.registered.filter(|&at| now.since(at) < self.times.expires)
    }

    /// Returns the users who are here.
    pub fn users(&self) -> impl Iterator<Item = u32> + '_ {
        self.phones.iter().filter(|(_, phone)| phone.is_here).map(|(&user, _)| user)
    }

    /// Returns the requests under way, and the calls.
    pub fn under_way(&self) -> usize {
        self.pending.len() + self.outgoing.len() + self.incoming.len()
    }

    /// Returns the calls and messages that have arrived here.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns how many registrations were refused or not answered.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the maximum number of Via header fields of the requests that arrived here: one more than the proxies it passed.
    pub fn max_vias(&self) -> usize {
        self.max_vias
    }

    /// A user who is here calls another.
    pub fn call(&mut self, now: Time, caller: u32, callee: u32) {
        let id = self.next();
        let call = Call { caller, callee, begun: now, ..Call::default() };
        self.outgoing.insert(id, Outgoing { call, dialog: None, invite: Vec::new() });
        self.timers.insert((now + PATIENCE, Timer::GiveUp(id)));
        self.request(now, caller, Purpose::Invite(id), callee);
    }

    /// A user who is here sends another a message.
    pub fn message(&mut self, now: Time, from: u32, to: u32) {
        self.request(now, from, Purpose::Message(to), to);
    }

    /// Removes and returns calls that have ended.
    pub fn take_calls(&mut self) -> Vec<Call> {
        core::mem::take(&mut self.calls)
    }

    /// Removes and returns messages that were answered.
    pub fn take_messages(&mut self) -> Vec<Sent> {
        core::mem::take(&mut self.messages)
    }

    /// Removes and returns the messages that have arrived here, by the user.
    pub fn take_received(&mut self) -> Vec<(u32, Box<[u8]>)> {
        core::mem::take(&mut self.received_messages)
    }

    /// Removes and returns the calls that came for users who had gone, after their registrations had expired.
    pub fn take_strays(&mut self) -> Vec<Stray> {
        core::mem::take(&mut self.strays)
    }

    /// Removes and returns what is to be sent: from an address, to the router.
    pub(crate) fn take_sent(&mut self) -> Vec<(Ipv6Addr, Vec<u8>)> {
        core::mem::take(&mut self.sent)
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Returns the address of a user's phone.
    fn address(&self, user: u32) -> Ipv6Addr {
        address(&self.host, user)
    }

    fn contact(&self, user: u32) -> String {
        format!("sip:{}@[{}]:5060", name(user), self.address(user))
    }

    fn via(&self, user: u32, branch: u64) -> Vec<u8> {
        format!("SIP/2.0/UDP [{}]:5060;branch=z9hG4bK{branch:x};rport", self.address(user)).into()
    }

    fn register(&mut self, now: Time, user: u32, purpose: Purpose) {
        self.request(now, user, purpose, user);
    }

    /// Sends the first request of a purpose.
    fn request(&mut self, now: Time, user: u32, purpose: Purpose, peer: u32) {
        let (id, tag) = (self.next(), self.random.next_u64());
        let via = self.via(user, id);
        let (from, to, contact) = (aor(user), aor(peer), self.contact(user));
        let expires = self.times.expires.as_secs().to_string();
        let mut cseq = 1;
        let (method, fields): (_, &[(&'static str, &[u8])]) = match purpose {
            Purpose::Register | Purpose::Unregister => {
                if let Some(phone) = self.phones.get_mut(&user) {
                    phone.cseq += 1;
                    cseq = phone.cseq;
                    phone.bound_until = now + self.times.expires + MAX_WAIT;
                }
                let is_end = purpose == Purpose::Unregister;
                let expires = if is_end { b"0" } else { expires.as_bytes() };
                (Method::Register, &[("Expires", expires)])
            }
            Purpose::Message(_) => (Method::Message, &[("Content-Type", b"text/plain")]),
            _ => (Method::Invite, &[]),
        };
        let is_register = method == Method::Register;
        // All REGISTERs of a phone have one Call-ID (RFC 3261 section 10.2.4).
        let call_id = match is_register {
            true => format!("r{user}@{}", self.host),
            false => format!("{tag:x}.{id}@{}", self.host),
        };
        let target = if is_register { format!("sip:{DOMAIN}") } else { to.clone() };
        let (from_tag, mut octets) = (format!("{:x}", tag | 1), Vec::new());
        let from = Party { uri: from.as_bytes(), tag: from_tag.as_bytes(), ..Party::default() };
        let to = Party { uri: to.as_bytes(), ..Party::default() };
        let contact = if method == Method::Message { "" } else { &contact };
        let body: &[u8] = if method == Method::Message { b"hello" } else { b"" };
        Request {
            via: &via,
            contact: contact.as_bytes(),
            fields,
            body,
            ..Request::new(method, target.as_bytes(), from, to, call_id.as_bytes(), cseq)
        }
        .emit(&mut octets);
        self.send(now, id, Pending { user, purpose, octets, begun: now, attempts: 1 });
    }

    fn send(&mut self, now: Time, id: u64, pending: Pending) {
        if let Purpose::Invite(call) = pending.purpose {
            if let Some(outgoing) = self.outgoing.get_mut(&call) {
                outgoing.invite.clone_from(&pending.octets);
            }
        } else {
            self.timers.insert((now + PATIENCE, Timer::Timeout(id)));
        }
        self.sent.push((self.address(pending.user), pending.octets.clone()));
        self.pending.insert(id, pending);
    }

    /// Takes a message for the phone with an address.
    pub(crate) fn receive(&mut self, now: Time, to: Ipv6Addr, bytes: &[u8]) {
        let user = to.to_bits() as u32;
        let Ok(message) = message::parse(bytes) else { return };
        if message.is_request() {
            self.handle_request(now, user, &message);
        } else {
            self.handle_response(now, &message);
        }
    }

    fn handle_response(&mut self, now: Time, response: &Message<'_>) {
        let Some(id) = branch_of(response) else { return };
        let status = response.status();
        let Some(pending) = self.pending.get(&id) else {
            // A 200 of an INVITE that comes again is acknowledged again.
            return self.acknowledge_again(response);
        };
        if status < 200 {
            if let Purpose::Invite(call) = pending.purpose
                && let Some(outgoing) = self.outgoing.get_mut(&call)
                && status == 180
            {
                outgoing.call.ringing.get_or_insert(now);
                // It rings, and is answered or not after a while.
                self.timers.retain(|(_, timer)| *timer != Timer::GiveUp(call));
                self.timers.insert((now + self.times.ring + PATIENCE, Timer::GiveUp(call)));
            }
            return;
        }
        let Some(pending) = self.pending.remove(&id) else { return };
        self.timers.remove(&(pending.begun + PATIENCE, Timer::Timeout(id)));
        if let Purpose::Invite(_) = pending.purpose
            && status >= 300
            && let Ok(invite) = message::parse(&pending.octets)
        {
            let mut ack = Vec::new();
            transaction::request::ack(&mut ack, &invite, response);
            self.sent.push((self.address(pending.user), ack));
        }
        if matches!(status, 401 | 407)
            && pending.attempts < MAX_ATTEMPTS
            && let Some(octets) = self.authorized(&pending, response)
        {
            let id = self.next();
            let octets = with_branch(&octets, id);
            let attempts = pending.attempts + 1;
            return self.send(now, id, Pending { octets, attempts, begun: now, ..pending });
        }
        self.ended(now, &pending, status, Some(response));
    }

    /// Returns a request once more, with the credentials that a response asks for.
    fn authorized(&mut self, pending: &Pending, response: &Message<'_>) -> Option<Vec<u8>> {
        let (id, name_of_field) = match response.status() {
            401 => (HeaderId::WwwAuthenticate, "Authorization"),
            _ => (HeaderId::ProxyAuthenticate, "Proxy-Authorization"),
        };
        let challenge = digest::choose(response.all(id))?;
        let request = message::parse(&pending.octets).ok()?;
        let (user, secret) = (name(pending.user), password(pending.user));
        let cnonce = format!("{:x}", self.random.next_u64());
        let answer = Answer {
            user: user.as_bytes(),
            password: secret.as_bytes(),
            method: request.method().as_bytes(),
            uri: request.request_uri(),
            body: request.body(),
            count: 1,
            cnonce: cnonce.as_bytes(),
        };
        let mut field = Vec::new();
        digest::authorize(&mut field, name_of_field, &challenge, &answer).then_some(())?;
        let next = request.cseq().ok()?.seq + 1;
        if let Some(phone) = self.phones.get_mut(&pending.user)
            && request.method() == Method::Register
        {
            phone.cseq = next;
        }
        // The same request with the next sequence number (RFC 3261 section 22.2).
        let mut octets = Vec::with_capacity(pending.octets.len() + field.len());
        octets.extend_from_slice(request.start_line());
        if !octets.ends_with(b"\r\n") {
            octets.extend_from_slice(b"\r\n");
        }
        for slot in request.headers() {
            match slot.id {
                HeaderId::CSeq => {
                    octets.extend_from_slice(format!("CSeq: {next} ").as_bytes());
                    octets.extend_from_slice(request.method().as_bytes());
                    octets.extend_from_slice(b"\r\n");
                }
                HeaderId::Authorization | HeaderId::ProxyAuthorization => {}
                _ => octets.extend_from_slice(request.line(slot)),
            }
        }
        octets.extend_from_slice(&field);
        octets.extend_from_slice(b"\r\n");
        octets.extend_from_slice(request.body());
        Some(octets)
    }

    /// A request has its final response, or none.
    fn ended(&mut self, now: Time, pending: &Pending, status: u16, response: Option<&Message<'_>>) {
        let is_good = status < 300;
        match pending.purpose {
            Purpose::Register => self.registered_now(now, pending.user, is_good),
            Purpose::Unregister | Purpose::End => {}
            Purpose::Message(to) => {
                let (from, begun) = (pending.user, pending.begun);
                self.messages.push(Sent { from, to, begun, ended: now, status });
            }
            Purpose::Invite(call) if is_good => {
                if let Some(response) = response {
                    self.answered(now, call, response);
                }
            }
            Purpose::Invite(call) => self.finish(call, Some(status), None),
            Purpose::Bye(call) => {
                self.finish(call, (!is_good).then_some(status), is_good.then_some(now));
            }
        }
    }

    fn registered_now(&mut self, now: Time, user: u32, is_good: bool) {
        self.refused += u64::from(!is_good);
        let Some(phone) = self.phones.get_mut(&user) else { return };
        // A binding that other routers do not know yet is there as well.
        phone.bound_until = now + self.times.expires;
        let next = match is_good {
            true => {
                phone.registered = Some(now);
                now + self.times.expires / 2
            }
            // Not all at once.
            false => now + RETRY + RETRY / 256 * (self.random.next_u64() % 256) as u32,
        };
        if phone.is_here {
            self.timers.insert((next, Timer::Register(user)));
        }
    }

    fn answered(&mut self, now: Time, id: u64, response: &Message<'_>) {
        let Some(outgoing) = self.outgoing.get_mut(&id) else { return };
        let Ok(invite) = message::parse(&outgoing.invite) else { return };
        let Ok(dialog) = Dialog::new_uac(&invite, response, false) else { return };
        outgoing.call.answered = Some(now);
        outgoing.dialog = Some(dialog);
        self.timers.retain(|(_, timer)| *timer != Timer::GiveUp(id));
        self.timers.insert((now + self.times.talk, Timer::Hangup(id)));
        self.made.insert(response.call_id().to_vec(), id);
        self.acknowledge(id);
    }

    fn acknowledge_again(&mut self, response: &Message<'_>) {
        let is_ok = response.cseq().is_ok_and(|cseq| cseq.method == Method::Invite);
        if let Some(&id) = self.made.get(response.call_id())
            && (200..300).contains(&response.status())
            && is_ok
        {
            self.acknowledge(id);
        }
    }

    /// Sends the ACK of a 2xx (RFC 3261 section 13.2.2.4).
    fn acknowledge(&mut self, id: u64) {
        let branch = self.next();
        let Some(outgoing) = self.outgoing.get(&id) else { return };
        let Some(dialog) = &outgoing.dialog else { return };
        let seq = message::parse(&outgoing.invite).ok().and_then(|invite| invite.cseq().ok());
        let user = outgoing.call.caller;
        let via = self.via(user, branch);
        let mut octets = Vec::new();
        Request { via: &via, ..dialog.ack(seq.map_or(1, |cseq| cseq.seq)) }.emit(&mut octets);
        self.sent.push((self.address(user), octets));
    }

    fn hang_up(&mut self, now: Time, id: u64) {
        let branch = self.next();
        let Some(outgoing) = self.outgoing.get(&id) else { return };
        let user = outgoing.call.caller;
        let via = self.via(user, branch);
        let mut octets = Vec::new();
        let Some(outgoing) = self.outgoing.get_mut(&id) else { return };
        let Some(Ok(bye)) = outgoing.dialog.as_mut().map(|dialog| dialog.request(Method::Bye))
        else {
            return;
        };
        Request { via: &via, ..bye }.emit(&mut octets);
        let purpose = Purpose::Bye(id);
        self.send(now, branch, Pending { user, purpose, octets, begun: now, attempts: 1 });
    }

    /// The caller has waited long enough: CANCEL, and nothing is expected any more.
    fn give_up(&mut self, id: u64) {
        let is_of = |pending: &Pending| pending.purpose == Purpose::Invite(id);
        let found = self.pending.iter().find(|(_, pending)| is_of(pending));
        if let Some((&branch, pending)) = found {
            let mut octets = Vec::new();
            if let Ok(invite) = message::parse(&pending.octets) {
                transaction::request::cancel(&mut octets, &invite, b"");
                write::end(&mut octets, b"");
            }
            self.sent.push((self.address(pending.user), octets));
            self.pending.remove(&branch);
        }
        self.finish(id, Some(408), None);
    }

    fn finish(&mut self, id: u64, failed: Option<u16>, ended: Option<Time>) {
        let Some(mut outgoing) = self.outgoing.remove(&id) else { return };
        self.timers.retain(|(_, timer)| *timer != Timer::GiveUp(id));
        if let Ok(invite) = message::parse(&outgoing.invite) {
            self.made.remove(invite.call_id());
        }
        (outgoing.call.failed, outgoing.call.ended) = (failed, ended);
        self.calls.push(outgoing.call);
    }

    fn handle_request(&mut self, now: Time, user: u32, request: &Message<'_>) {
        let known = self.received.get(request.call_id()).copied();
        self.max_vias = self.max_vias.max(request.items(HeaderId::Via).count());
        match request.method() {
            Method::Ack => {
                if let Some(incoming) = known.and_then(|id| self.incoming.get_mut(&id)) {
                    incoming.is_acknowledged = true;
                }
            }
            Method::Invite => self.invited(now, user, request, known),
            Method::Cancel => {
                self.reply(user, request, 200, None);
                let is_ringing = |incoming: &Incoming| incoming.ok.is_empty();
                let id = known.filter(|id| self.incoming.get(id).is_some_and(is_ringing));
                if let Some(incoming) = id.and_then(|id| self.drop_incoming(id))
                    && let Ok(invite) = message::parse(&incoming.invite)
                {
                    let tag = incoming.dialog.local_tag().to_vec();
                    self.reply(user, &invite, 487, Some(&tag));
                }
            }
            Method::Bye => {
                let is_known = known.is_some_and(|id| self.drop_incoming(id).is_some());
                self.reply(user, request, if is_known { 200 } else { 481 }, None);
            }
            Method::Message => {
                let status = self.is_for(now, user, request);
                if status == 200 {
                    self.arrived += 1;
                    self.received_messages.push((user, request.whole().into()));
                }
                self.reply(user, request, status, Some(b"m"));
            }
            _ => self.reply(user, request, 501, Some(b"x")),
        }
    }

    /// Returns 200 if a request is for a user who is here, or what to refuse it with.
    fn is_for(&mut self, now: Time, user: u32, request: &Message<'_>) -> u16 {
        let target = Uri::parse(request.request_uri()).ok().and_then(|uri| uri.user);
        let target = target.and_then(number);
        if user == GATEWAY {
            return if target >= Some(OUTSIDE) { 200 } else { 404 };
        }
        let Some(phone) = self.phones.get(&user).filter(|_| target == Some(user)) else {
            return 404;
        };
        if !phone.is_here {
            // Nobody is there. Until the registration has expired that is nobody's fault.
            let expired = phone.bound_until;
            if expired < now {
                self.strays.push(Stray { user, at: now, expired });
            }
            return 480;
        }
        200
    }

    fn invited(&mut self, now: Time, user: u32, request: &Message<'_>, known: Option<u64>) {
        let status = self.is_for(now, user, request);
        let id = self.next();
        let tag = format!("{:x}.{id}", self.random.next_u64());
        if status != 200 {
            return self.reply(user, request, status, Some(tag.as_bytes()));
        }
        if known.is_some() {
            // RFC 3261 section 8.2.2.2: it has come by another way before.
            return self.reply(user, request, 482, Some(tag.as_bytes()));
        }
        let Ok(dialog) = Dialog::new_uas(request, 180, tag.as_bytes(), false) else {
            return self.reply(user, request, 400, Some(tag.as_bytes()));
        };
        self.arrived += 1;
        self.ring(user, request, 180, &dialog);
        let call_id = request.call_id().to_vec();
        self.received.insert(call_id.clone(), id);
        let incoming = Incoming {
            user,
            call_id,
            dialog,
            invite: request.whole().to_vec(),
            ok: Vec::new(),
            since: now,
            interval: T1,
            is_acknowledged: false,
        };
        self.incoming.insert(id, incoming);
        self.timers.insert((now + self.times.ring, Timer::Answer(id)));
    }

    /// Sends a response that makes a dialog. Returns it.
    fn ring(&mut self, user: u32, request: &Message<'_>, status: u16, dialog: &Dialog) -> Vec<u8> {
        let (mut extra, mut octets) = (Vec::new(), Vec::new());
        dialog::record_routes(&mut extra, request);
        write::header(&mut extra, "Contact", format!("<{}>", self.contact(user)).as_bytes());
        let tag = Some(dialog.local_tag());
        write::response(&mut octets, request, None, status, "", tag, &extra, b"");
        self.sent.push((self.address(user), octets.clone()));
        octets
    }

    fn reply(&mut self, user: u32, request: &Message<'_>, status: u16, tag: Option<&[u8]>) {
        let mut octets = Vec::new();
        write::response(&mut octets, request, None, status, "", tag, b"", b"");
        self.sent.push((self.address(user), octets));
    }

    fn answer(&mut self, now: Time, id: u64) {
        let Some(incoming) = self.incoming.get(&id) else { return };
        let (user, invite) = (incoming.user, incoming.invite.clone());
        let mut dialog = incoming.dialog.clone();
        let Ok(request) = message::parse(&invite) else { return };
        dialog.answered(200);
        let ok = self.ring(user, &request, 200, &dialog);
        if let Some(incoming) = self.incoming.get_mut(&id) {
            (incoming.ok, incoming.dialog, incoming.since) = (ok, dialog, now);
        }
        self.timers.insert((now + T1, Timer::Repeat(id)));
    }

    /// Sends the BYE of a callee who hears nothing any more.
    fn end(&mut self, now: Time, incoming: Incoming) {
        let (id, user, mut dialog) = (self.next(), incoming.user, incoming.dialog);
        let via = self.via(user, id);
        let mut octets = Vec::new();
        let Ok(bye) = dialog.request(Method::Bye) else { return };
        Request { via: &via, ..bye }.emit(&mut octets);
        let purpose = Purpose::End;
        self.send(now, id, Pending { user, purpose, octets, begun: now, attempts: 1 });
    }

    /// Sends a 200 again until its ACK comes (RFC 3261 section 13.3.1.4). A call that nobody ends, or whose ACK does not come,
    /// is ended at last.
    fn repeat(&mut self, now: Time, id: u64) {
        let longest = self.times.talk + PATIENCE * 2;
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let age = now.since(incoming.since);
        if age > longest || (age > PATIENCE && !incoming.is_acknowledged) {
            if let Some(incoming) = self.drop_incoming(id) {
                self.end(now, incoming);
            }
            return;
        }
        incoming.interval = (incoming.interval * 2).min(T2);
        let next = now + incoming.interval;
        let again = (!incoming.is_acknowledged).then(|| (incoming.user, incoming.ok.clone()));
        if let Some((user, ok)) = again {
            self.sent.push((self.address(user), ok));
        }
        self.timers.insert((next, Timer::Repeat(id)));
    }

    fn drop_incoming(&mut self, id: u64) -> Option<Incoming> {
        let incoming = self.incoming.remove(&id)?;
        self.received.remove(&incoming.call_id);
        Some(incoming)
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, timer)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Register(user) => self.register(now, user, Purpose::Register),
                Timer::Timeout(id) => {
                    if let Some(pending) = self.pending.remove(&id) {
                        self.ended(now, &pending, 408, None);
                    }
                }
                Timer::Hangup(id) => self.hang_up(now, id),
                Timer::GiveUp(id) => self.give_up(id),
                Timer::Answer(id) => self.answer(now, id),
                Timer::Repeat(id) => self.repeat(now, id),
            }
        }
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|&(at, _)| at)
    }
}

/// Returns the number in the branch of the top Via.
fn branch_of(message: &Message<'_>) -> Option<u64> {
    let via = message.top_via().ok()?;
    let digits = via.branch.strip_prefix(b"z9hG4bK")?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns a request of a phone with another branch.
fn with_branch(octets: &[u8], branch: u64) -> Vec<u8> {
    const BEGIN: &[u8] = b";branch=z9hG4bK";
    let found = octets.windows(BEGIN.len()).position(|part| part == BEGIN);
    let Some(start) = found.map(|at| at + BEGIN.len()) else { return octets.to_vec() };
    let digits = octets[start..].iter().take_while(|octet| octet.is_ascii_hexdigit()).count();
    [&octets[..start], format!("{branch:x}").as_bytes(), &octets[start + digits..]].concat()
}
