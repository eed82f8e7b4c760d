//! The transactions of one worker: their state machines, buffers and timers.
//!
//! The caller writes a message to send at the end of the outbox's buffer, and passes the position where it starts. So
//! it is written once, and copied only if it must be stored for retransmission.

use super::id::{self, ClientId, ServerId, ServerKey};
use super::machine::{
    Client, ClientState, Deadline, Kind, Server, ServerState, Step, Timers, Transmit,
};
use super::report::{self, Report};
use super::request;
use crate::header::Via;
use crate::message::{self, Message};
use crate::method::Method;
use fnv::FnvHasher;
use hashbrown::HashMap;
use ringway_sansio::{Flow, Outbox, Random, Target, Time, TimerId, TimerWheel, Transport};
use slab::Slab;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;

/// The maximum number of transactions (server and client together) of one worker; a request beyond it is refused with
/// 503.
pub const MAX_TRANSACTIONS: usize = 4_000_000;

/// A table larger than this is replaced by a small one when it becomes empty.
const KEEP_ENTRIES: usize = 1024;

/// The keys are keyed hashes already; their low half is used unchanged.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
    fn write_u128(&mut self, n: u128) {
        self.0 = n as u64;
    }
}

struct ServerEntry<S> {
    key: ServerKey,
    generation: u32,
    machine: Server,
    /// The flow that responses take: that of the request, for datagrams with the address of RFC 3261 section 18.2.2 and
    /// RFC 3581.
    reply: Flow,
    /// The port for a new connection if the flow has closed (RFC 3261 section 18.2.2).
    sent_by_port: u16,
    user: S,
    response: Vec<u8>,
    /// The octets of responses that may still be retransmitted; see [`Transactions::limit_repeats`].
    credit: u32,
    clock: Clocks,
}

/// The maximum ratio of octets sent in answer to a request to its own octets, for a sender that has proved nothing.
pub const MAX_AMPLIFICATION: u32 = 3;

/// The credit of a server transaction whose retransmissions are not limited.
const NO_LIMIT: u32 = u32::MAX;

impl<S> ServerEntry<S> {
    /// Returns whether the response may be retransmitted; subtracts its octets from the credit.
    fn may_repeat(&mut self) -> bool {
        if self.credit == NO_LIMIT {
            return true;
        }
        let left = self.credit.checked_sub(self.response.len() as u32);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }
}

struct ClientEntry<C> {
    nonce: u64,
    /// A hash of the method: the CSeq of a response must have the same.
    method: u32,
    machine: Client,
    target: Target,
    role: Role<C>,
    request: Vec<u8>,
    /// The index of the transaction that cancels this one.
    cancel: Option<u32>,
    clock: Clocks,
}

/// The purpose of a client transaction.
#[derive(Clone, Copy)]
enum Role<C> {
    /// A request of the user, with the user's value.
    User(C),
    /// The CANCEL of the INVITE with this nonce. No branch identifies its transaction, and no user is notified of it.
    Cancels(u64),
}

impl<C: Copy> ClientEntry<C> {
    /// Returns the event of a transaction that has a user.
    fn event(&self, index: u32) -> Option<ClientEvent<C>> {
        let id = ClientId { index, nonce: self.nonce };
        match self.role {
            Role::User(user) => Some(ClientEvent { id, user }),
            Role::Cancels(_) => None,
        }
    }
}

/// The two deadlines of a transaction share one slot of the wheel: that of the earlier.
struct Clocks {
    timer: TimerId,
    repeat: Option<Time>,
    deadline: Option<Time>,
}

impl Clocks {
    const fn new() -> Self {
        Clocks { timer: TimerId::NONE, repeat: None, deadline: None }
    }

    fn earliest(&self) -> Option<Time> {
        match (self.repeat, self.deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn apply(&mut self, now: Time, step: &Step, wheel: &mut TimerWheel<Tick>, tick: Tick) {
        let before = self.earliest();
        match step.repeat {
            None => {}
            Some(d) if d.is_zero() => self.repeat = None,
            Some(d) => self.repeat = Some(now + d),
        }
        match step.deadline {
            Deadline::Keep => {}
            Deadline::Clear => self.deadline = None,
            Deadline::After(d) => self.deadline = Some(now + d),
            Deadline::Linger(d) => self.deadline = Some(together(now + d)),
        }
        if self.earliest() != before || self.timer == TimerId::NONE {
            wheel.cancel(self.timer);
            self.timer = self.earliest().map_or(TimerId::NONE, |at| wheel.set(at, tick));
        }
    }
}

/// Returns the next time at which lingering transactions end, ten times a second: a worker would otherwise be woken for
/// each of them.
fn together(at: Time) -> Time {
    const STEP: u64 = 100;
    Time::from_millis(at.as_nanos().div_ceil(STEP * 1_000_000) * STEP)
}

#[derive(Clone, Copy)]
enum Tick {
    Server(u32),
    Client(u32),
}

/// The result of matching a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// No transaction matches: the user decides, and may open one under this key.
    New(ServerKey),
    /// A retransmission, or the ACK of a final response: processed.
    Absorbed,
    /// An ACK for a 2xx that passed through this transaction.
    AckOf2xx(ServerId),
}

/// A response that is passed to the transaction user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEvent<C> {
    /// The transaction.
    pub id: ClientId,
    /// The value of the user from the call that sent the request.
    pub user: C,
}

/// The result of an expired timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired<C, S> {
    /// Timer B or F: no final response came.
    ClientTimeout(ClientEvent<C>),
    /// A client transaction has ended and is dropped.
    ClientGone(ClientEvent<C>),
    /// A server transaction has ended and is dropped; the value of the user from the call that opened it.
    ServerGone(S),
    /// A message was retransmitted.
    Nothing,
}

/// Counters for the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests and responses retransmitted by a timer.
    pub retransmitted: u64,
    /// Requests recognised as retransmissions.
    pub absorbed: u64,
    /// Final responses to INVITE without an ACK (timer H).
    pub unacknowledged: u64,
    /// Responses not retransmitted because of [`MAX_AMPLIFICATION`].
    pub not_repeated: u64,
    /// Requests refused because of [`MAX_TRANSACTIONS`].
    pub refused: u64,
}

/// All transactions of one worker. `C` is the user's value for a client transaction, and `S` for a server transaction:
/// small values that are returned with its events.
pub struct Transactions<C, S> {
    worker: u8,
    secret: [u8; 16],
    timers: Timers,
    servers: Slab<ServerEntry<S>>,
    keys: HashMap<u128, u32, BuildHasherDefault<Identity>>,
    clients: Slab<ClientEntry<C>>,
    wheel: TimerWheel<Tick>,
    generation: u32,
    /// Counters for the operator.
    pub counters: Counters,
}

impl<C: Copy, S: Copy> Transactions<C, S> {
    /// Returns an empty table. `random` supplies the key of the look-up hash.
    pub fn new(worker: u8, timers: Timers, random: &mut dyn Random, now: Time) -> Self {
        let mut secret = [0; 16];
        random.fill(&mut secret);
        Transactions {
            worker,
            secret,
            timers,
            servers: Slab::new(),
            keys: HashMap::default(),
            clients: Slab::new(),
            wheel: TimerWheel::new(now),
            generation: 0,
            counters: Counters::default(),
        }
    }

    /// Uses this secret for keys instead of one of its own, so that the keys of several workers can be compared. Must
    /// be called while the table is empty.
    pub fn share_secret(&mut self, secret: [u8; 16]) {
        debug_assert!(self.servers.is_empty());
        self.secret = secret;
    }

    /// Returns the number of server transactions.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Returns the number of client transactions.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Sets the base timers of later transactions.
    pub fn set_timers(&mut self, timers: Timers) {
        self.timers = timers;
    }

    /// Returns the base timers.
    pub fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Returns whether no more transactions can be opened.
    pub fn is_full(&self) -> bool {
        self.servers.len() + self.clients.len() >= MAX_TRANSACTIONS
    }

    /// Matches a request (RFC 3261 section 17.2.3): answers a retransmission, absorbs an ACK.
    pub fn receive(
        &mut self,
        now: Time,
        request: &Message<'_>,
        via: &Via<'_>,
        out: &mut Outbox,
    ) -> Incoming {
        let method = request.method();
        let looked_for = if method == Method::Ack { Method::Invite } else { method };
        let key = id::server_key(&self.secret, request, via, looked_for);
        let Some(&index) = self.keys.get(&key.0) else {
            return Incoming::New(key);
        };
        let entry = &mut self.servers[index as usize];
        let id = ServerId { index, generation: entry.generation };
        let step = if method == Method::Ack {
            entry.machine.ack(&self.timers)
        } else {
            self.counters.absorbed += 1;
            if entry.credit != NO_LIMIT {
                let more = (request.whole().len() as u32).saturating_mul(MAX_AMPLIFICATION);
                entry.credit = entry.credit.saturating_add(more).min(NO_LIMIT - 1);
            }
            entry.machine.request_retransmission()
        };
        if step.transmit == Transmit::Last && !entry.response.is_empty() {
            if entry.may_repeat() {
                let reply = Target::Flow(entry.reply);
                out.push(reply, 0, |buf| buf.extend_from_slice(&entry.response));
            } else {
                self.counters.not_repeated += 1;
            }
        }
        entry.clock.apply(now, &step, &mut self.wheel, Tick::Server(index));
        if step.pass { Incoming::AckOf2xx(id) } else { Incoming::Absorbed }
    }

    /// Returns the key under which a transaction for `request` would be opened.
    pub fn key(&self, request: &Message<'_>, via: &Via<'_>) -> ServerKey {
        id::server_key(&self.secret, request, via, request.method())
    }

    /// Returns the user's value of the INVITE server transaction that a CANCEL is for (RFC 3261 section 9.2).
    pub fn find_cancelled(&self, cancel: &Message<'_>, via: &Via<'_>) -> Option<S> {
        let key = id::server_key(&self.secret, cancel, via, Method::Invite);
        let index = *self.keys.get(&key.0)?;
        Some(self.servers[index as usize].user)
    }

    /// Opens a server transaction; returns `None` if the table is full.
    pub fn open(
        &mut self,
        key: ServerKey,
        kind: Kind,
        reply: Flow,
        sent_by_port: u16,
        user: S,
    ) -> Option<ServerId> {
        if self.is_full() {
            self.counters.refused += 1;
            return None;
        }
        self.generation = self.generation.wrapping_add(1) & report::CHECK;
        let index = self.servers.insert(ServerEntry {
            key,
            generation: self.generation,
            machine: Server::new(kind, reply.transport.is_reliable()),
            reply,
            sent_by_port,
            user,
            response: Vec::new(),
            credit: NO_LIMIT,
            clock: Clocks::new(),
        }) as u32;
        self.keys.insert(key.0, index);
        Some(ServerId { index, generation: self.generation })
    }

    /// Limits the retransmissions of a server transaction. It retransmits a response only while all it has sent is at
    /// most `octets`, plus [`MAX_AMPLIFICATION`] times the octets of each further copy of the request: its sender may
    /// have forged its address. The first transmission of a response counts, but is never suppressed.
    pub fn limit_repeats(&mut self, id: ServerId, octets: u32) {
        if let Some(entry) = server(&mut self.servers, id) {
            entry.credit = octets.min(NO_LIMIT - 1);
        }
    }

    /// Sends the response that was written into the outbox from `start` on, as far as the state machine allows it.
    pub fn respond(
        &mut self,
        now: Time,
        id: ServerId,
        status: u16,
        out: &mut Outbox,
        start: usize,
    ) {
        let Some(entry) = server(&mut self.servers, id) else {
            out.abandon(start);
            return;
        };
        let step = entry.machine.respond(status, &self.timers);
        if step.transmit != Transmit::Given {
            out.abandon(start);
            return;
        }
        match entry.machine.state() {
            // RFC 6026 section 8.5: 2xx is retransmitted by the UAS, not by us.
            ServerState::Accepted if !entry.reply.transport.is_reliable() => {
                entry.response = Vec::new();
            }
            // Stored for retransmission, and for a connection that breaks during a final response.
            _ if entry.reply.transport.is_reliable() && status < 200 => {}
            _ => {
                entry.response.clear();
                entry.response.extend_from_slice(&out.buffer()[start..]);
            }
        }
        if entry.credit != NO_LIMIT {
            let octets = out.buffer().len() - start;
            entry.credit = entry.credit.saturating_sub(octets as u32);
        }
        let report = Report::Server { index: id.index, check: id.generation };
        out.finish(start, Target::Flow(entry.reply), report.to_u64());
        entry.clock.apply(now, &step, &mut self.wheel, Tick::Server(id.index));
    }

    /// Returns the state of a server transaction that still exists.
    pub fn server_state(&self, id: ServerId) -> Option<ServerState> {
        self.servers
            .get(id.index as usize)
            .filter(|e| e.generation == id.generation)
            .map(|e| e.machine.state())
    }

    /// Drops a server transaction without a response (RFC 4320 section 4.2 requires it).
    pub fn drop_server(&mut self, id: ServerId) {
        if server(&mut self.servers, id).is_some() {
            self.remove_server(id.index);
        }
    }

    /// Reserves the id of the next client transaction: the branch of its request must contain it. Follow with
    /// [`Transactions::send`].
    pub fn reserve(&mut self, random: &mut dyn Random) -> ClientId {
        let nonce = random.next_u64() >> 8;
        ClientId { index: self.clients.vacant_key() as u32, nonce }
    }

    /// Sends the request that was written into the outbox from `start` on, in the client transaction just reserved.
    pub fn send(
        &mut self,
        now: Time,
        id: ClientId,
        kind: Kind,
        target: Target,
        user: C,
        out: &mut Outbox,
        start: usize,
    ) {
        let reliable = target.transport().is_reliable();
        let (machine, step) = Client::new(kind, reliable, &self.timers);
        // A non-INVITE over a reliable transport is never retransmitted and needs no ACK: no copy.
        let request = if reliable && kind == Kind::NonInvite {
            Vec::new()
        } else {
            out.buffer()[start..].to_vec()
        };
        let index = self.clients.insert(ClientEntry {
            nonce: id.nonce,
            method: hash_method(method_of(&out.buffer()[start..])),
            machine,
            target: target.clone(),
            role: Role::User(user),
            request,
            cancel: None,
            clock: Clocks::new(),
        }) as u32;
        debug_assert_eq!(index, id.index);
        out.finish(start, target, client_report(index, id.nonce));
        self.clients[index as usize].clock.apply(now, &step, &mut self.wheel, Tick::Client(index));
    }

    /// Matches a response to its client transaction (RFC 3261 section 17.1.3). Returns the event for the user; `None`
    /// if the response has been processed or matches nothing.
    pub fn response(
        &mut self,
        now: Time,
        id: ClientId,
        response: &Message<'_>,
        out: &mut Outbox,
    ) -> Option<ClientEvent<C>> {
        // Section 17.1.3: the method in CSeq distinguishes a CANCEL's response from its INVITE's.
        let method = response.method();
        if method == Method::Cancel {
            self.cancel_response(now, id, response.status());
            return None;
        }
        let entry = client(&mut self.clients, id)?;
        if hash_method(method.as_bytes()) != entry.method {
            return None;
        }
        let status = response.status();
        let step = entry.machine.response(status, &self.timers);
        if step.transmit == Transmit::Ack {
            let target = entry.target.clone();
            if let Ok(sent) = message::parse(&entry.request) {
                out.push(target, 0, |buf| request::ack(buf, &sent, response));
            }
        }
        if entry.machine.state() == ClientState::Accepted && !entry.request.is_empty() {
            entry.request = Vec::new();
        }
        entry.clock.apply(now, &step, &mut self.wheel, Tick::Client(id.index));
        if step.pass { entry.event(id.index) } else { None }
    }

    /// Returns whether a client INVITE transaction has received a provisional but no final response, so that a CANCEL
    /// may be sent now (RFC 3261 section 9.1).
    pub fn is_proceeding(&self, id: ClientId) -> bool {
        self.clients
            .get(id.index as usize)
            .is_some_and(|e| e.nonce == id.nonce && e.machine.state() == ClientState::Proceeding)
    }

    /// Sends a CANCEL for a client INVITE transaction, in a transaction of its own, to the target of the INVITE (RFC
    /// 3261 section 9.1). The INVITE has 64*T1 more to end by itself. A second CANCEL is not sent (section 16.7 item
    /// 10). `reason` is a complete header line, or empty (RFC 3326).
    pub fn cancel(&mut self, now: Time, id: ClientId, reason: &[u8], out: &mut Outbox) {
        let Some(entry) = client(&mut self.clients, id) else { return };
        if entry.machine.state() != ClientState::Proceeding || entry.cancel.is_some() {
            return;
        }
        let step = Step { deadline: Deadline::After(self.timers.lifetime()), ..Step::default() };
        entry.clock.apply(now, &step, &mut self.wheel, Tick::Client(id.index));
        let target = entry.target.clone();
        let start = out.buffer().len();
        let Ok(invite) = message::parse(&entry.request) else { return };
        request::cancel(out.buffer(), &invite, reason);
        // The CANCEL has the INVITE's branch (section 9.1). So its response matches the id of the INVITE with another
        // method, and its transaction is found from there.
        let reliable = target.transport().is_reliable();
        let (machine, step) = Client::new(Kind::NonInvite, reliable, &self.timers);
        let request = if reliable { Vec::new() } else { out.buffer()[start..].to_vec() };
        let index = self.clients.insert(ClientEntry {
            nonce: NO_NAME,
            method: hash_method(b"CANCEL"),
            machine,
            target: target.clone(),
            role: Role::Cancels(id.nonce),
            request,
            cancel: None,
            clock: Clocks::new(),
        }) as u32;
        out.finish(start, target, 0);
        self.clients[index as usize].clock.apply(now, &step, &mut self.wheel, Tick::Client(index));
        self.clients[id.index as usize].cancel = Some(index);
    }

    fn cancel_response(&mut self, now: Time, invite: ClientId, status: u16) {
        let Some(index) = client(&mut self.clients, invite).and_then(|e| e.cancel) else { return };
        // The index may belong to another transaction now.
        let Some(entry) = self.clients.get_mut(index as usize) else { return };
        if !matches!(entry.role, Role::Cancels(nonce) if nonce == invite.nonce) {
            return;
        }
        let step = entry.machine.response(status, &self.timers);
        entry.clock.apply(now, &step, &mut self.wheel, Tick::Client(index));
    }

    /// Reports that the message of `report` could not be sent. A client transaction ends (RFC 3261 section 17.1.4) and
    /// its user is notified; a response is sent once over a new connection (section 18.2.2).
    pub fn not_sent(
        &mut self,
        now: Time,
        report: Report,
        out: &mut Outbox,
    ) -> Option<ClientEvent<C>> {
        if let Report::Server { index, check } = report {
            self.reply_anew(index, check, out);
            return None;
        }
        let index = self.unanswered(report)?;
        self.end_client(now, index);
        self.clients[index as usize].event(index)
    }

    /// Reports that the server of a client transaction is most likely gone. Returns whether it has not answered, by a
    /// provisional response either: then another may be tried. As for [`Transactions::cut_off`], an INVITE is continued until
    /// timer B.
    pub fn abandon(&mut self, now: Time, id: ClientId) -> bool {
        let Some(entry) = client(&mut self.clients, id) else { return false };
        let waits = matches!(entry.machine.state(), ClientState::Calling | ClientState::Trying);
        if waits && entry.machine.kind() == Kind::NonInvite {
            self.end_client(now, id.index);
        }
        waits
    }

    /// Reports that the connection of the request of `report` has closed. If the request is unanswered, its user is
    /// notified as if it could not be sent (RFC 3261 section 17.1.4). But it may have arrived, and the response may
    /// come over another connection (section 18.2.2). A late 2xx to an INVITE may have established a session, so an
    /// INVITE is continued until timer B. A request with a provisional response is unaffected.
    pub fn cut_off(&mut self, now: Time, report: Report) -> Option<ClientEvent<C>> {
        let index = self.unanswered(report)?;
        let event = self.clients[index as usize].event(index)?;
        if self.clients[index as usize].machine.kind() == Kind::NonInvite {
            self.end_client(now, index);
        }
        Some(event)
    }

    /// Returns the index of the client transaction that sent under this number, while it is unanswered.
    fn unanswered(&self, report: Report) -> Option<u32> {
        let Report::Client { index, check } = report else { return None };
        let entry = self.clients.get(index as usize)?;
        let waits = matches!(entry.machine.state(), ClientState::Calling | ClientState::Trying);
        (check_of(entry.nonce) == check && waits).then_some(index)
    }

    /// Ends a client transaction with the next tick.
    fn end_client(&mut self, now: Time, index: u32) {
        let entry = &mut self.clients[index as usize];
        entry.machine.terminate();
        let step = Step { deadline: Deadline::After(Default::default()), ..Step::default() };
        entry.clock.apply(now, &step, &mut self.wheel, Tick::Client(index));
    }

    fn reply_anew(&mut self, index: u32, check: u32, out: &mut Outbox) {
        let Some(entry) = self.servers.get_mut(index as usize) else { return };
        if entry.generation != check
            || entry.response.is_empty()
            || entry.sent_by_port == 0
            || !matches!(entry.reply.transport, Transport::Tcp | Transport::Tls)
        {
            return;
        }
        let to = Target::Peer {
            transport: entry.reply.transport,
            remote: SocketAddr::new(entry.reply.remote.ip(), entry.sent_by_port),
            name: None,
        };
        // A second failure is not reported: each response is tried once.
        out.push(to, 0, |buf| buf.extend_from_slice(&entry.response));
    }

    /// Returns the time at which [`Transactions::expire`] should be called next.
    pub fn next_timeout(&self) -> Option<Time> {
        self.wheel.next()
    }

    /// Fires one timer that is due; returns `None` if no more are.
    pub fn expire(&mut self, now: Time, out: &mut Outbox) -> Option<Expired<C, S>> {
        match self.wheel.expire(now)? {
            Tick::Server(index) => Some(self.server_tick(now, index, out)),
            Tick::Client(index) => Some(self.client_tick(now, index, out)),
        }
    }

    fn server_tick(&mut self, now: Time, index: u32, out: &mut Outbox) -> Expired<C, S> {
        let entry = &mut self.servers[index as usize];
        entry.clock.timer = TimerId::NONE;
        if entry.clock.deadline.is_some_and(|d| d <= now) {
            let step = entry.machine.deadline();
            if step.pass {
                self.counters.unacknowledged += 1;
            }
            let user = entry.user;
            self.remove_server(index);
            return Expired::ServerGone(user);
        }
        let step = entry.machine.repeat(&self.timers);
        if step.transmit == Transmit::Last && !entry.response.is_empty() {
            if entry.may_repeat() {
                self.counters.retransmitted += 1;
                let reply = Target::Flow(entry.reply);
                out.push(reply, 0, |buf| buf.extend_from_slice(&entry.response));
            } else {
                self.counters.not_repeated += 1;
            }
        }
        entry.clock.apply(now, &step, &mut self.wheel, Tick::Server(index));
        Expired::Nothing
    }

    fn client_tick(&mut self, now: Time, index: u32, out: &mut Outbox) -> Expired<C, S> {
        let entry = &mut self.clients[index as usize];
        entry.clock.timer = TimerId::NONE;
        if entry.clock.deadline.is_some_and(|d| d <= now) {
            let event = entry.event(index);
            let timed_out = entry.machine.deadline().pass;
            if let Some(event) = event.filter(|_| timed_out) {
                // The user is notified of the time-out first, and of the end with the next tick.
                entry.clock.deadline = None;
                let step =
                    Step { deadline: Deadline::After(Default::default()), ..Step::default() };
                entry.clock.apply(now, &step, &mut self.wheel, Tick::Client(index));
                return Expired::ClientTimeout(event);
            }
            self.remove_client(index);
            return event.map_or(Expired::Nothing, Expired::ClientGone);
        }
        let step = entry.machine.repeat(&self.timers);
        if step.transmit == Transmit::Last {
            self.counters.retransmitted += 1;
            // A CANCEL has no user to notify; its INVITE has a deadline of its own.
            let report = match entry.role {
                Role::User(_) => client_report(index, entry.nonce),
                Role::Cancels(_) => 0,
            };
            out.push(entry.target.clone(), report, |buf| buf.extend_from_slice(&entry.request));
        }
        entry.clock.apply(now, &step, &mut self.wheel, Tick::Client(index));
        Expired::Nothing
    }

    fn remove_server(&mut self, index: u32) {
        let entry = self.servers.remove(index as usize);
        self.wheel.cancel(entry.clock.timer);
        // Another transaction may have the key now, if the same request came at once from two workers; only its own key
        // is removed.
        if self.keys.get(&entry.key.0) == Some(&index) {
            self.keys.remove(&entry.key.0);
        }
        if self.servers.is_empty() && self.servers.capacity() > KEEP_ENTRIES {
            self.servers = Slab::new();
            self.keys = HashMap::default();
        }
    }

    fn remove_client(&mut self, index: u32) {
        let entry = self.clients.remove(index as usize);
        self.wheel.cancel(entry.clock.timer);
        if self.clients.is_empty() && self.clients.capacity() > KEEP_ENTRIES {
            self.clients = Slab::new();
        }
    }

    /// Returns the worker of these transactions; part of every branch.
    pub fn worker(&self) -> u8 {
        self.worker
    }
}

/// The nonce of a client transaction that no branch identifies. Drawn nonces have 56 bits.
const NO_NAME: u64 = u64::MAX;

/// Returns the bits of a nonce that are in reports.
fn check_of(nonce: u64) -> u32 {
    nonce as u32 & report::CHECK
}

fn client_report(index: u32, nonce: u64) -> u64 {
    Report::Client { index, check: check_of(nonce) }.to_u64()
}

/// Returns the method of a request that begins here.
fn method_of(request: &[u8]) -> &[u8] {
    request.split(|&b| b == b' ').next().unwrap_or_default()
}

/// Returns half of FNV-1a: methods are few, and a peer that chooses one by its hash gains nothing.
fn hash_method(method: &[u8]) -> u32 {
    let mut hasher = FnvHasher::default();
    hasher.write(method);
    hasher.finish() as u32
}

fn server<S>(slab: &mut Slab<ServerEntry<S>>, id: ServerId) -> Option<&mut ServerEntry<S>> {
    slab.get_mut(id.index as usize).filter(|e| e.generation == id.generation)
}

fn client<C>(slab: &mut Slab<ClientEntry<C>>, id: ClientId) -> Option<&mut ClientEntry<C>> {
    slab.get_mut(id.index as usize).filter(|e| e.nonce == id.nonce)
}
