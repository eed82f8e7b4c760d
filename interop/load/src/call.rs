//! Both ends of every call of one worker, without sockets or clocks: messages and times come in,
//! messages go out. The caller's end and the called end share one table, because what is measured
//! lies between them; but the called end answers whatever reaches it, as a telephone would, even
//! when the caller has long given up.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::clock::MILLISECOND;
use crate::compose::{Composer, Key, MAX_SLOTS, branch_key};
use crate::floor::{Kind, MARK_LENGTH, Mark};
use crate::message::{self, Message, Method, Start};
use crate::port::{Incoming, Local, Outgoing, Port, Sent, Stamp};
use crate::tally::{Fault, STEPS, Step, Tally};

/// RFC 3261 section 17.1.1.1: first interval of every retransmission.
const T1: u64 = 500 * MILLISECOND;
/// RFC 3261 section 17.1.2.1: longest interval of requests other than INVITE and of 2xx.
const T2: u64 = 4_000 * MILLISECOND;
/// Every step taken.
const ALL_STEPS: u8 = (1 << STEPS) - 1;
/// Max-Forwards every request starts with.
const MAX_FORWARDS: u32 = 70;

/// How calls are to be played and judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Time between 200 and BYE, nanoseconds.
    pub(crate) hold: u64,
    /// Time after which a call is given up, nanoseconds, the hold time not counted.
    pub(crate) timeout: u64,
    /// Time to 200 above which a call is late, nanoseconds.
    pub(crate) late: u64,
    /// Whether messages are sent again as RFC 3261 has it.
    pub(crate) retransmit: bool,
    /// Whether the transport loses nothing, so that requests are never sent again.
    pub(crate) reliable: bool,
    /// Whether the other side is a floor, which changes nothing in a message.
    pub(crate) floor: bool,
}

/// Who calls whom, over which ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parties {
    pub(crate) caller: u32,
    pub(crate) callee: u32,
    /// Port number the called user is reached at; only a floor is told it.
    pub(crate) callee_port: u16,
}

#[derive(Clone, Default)]
struct Call {
    generation: u32,
    active: bool,
    /// Whether its delays count (not while warming up).
    measured: bool,
    steps: u8,
    caller_port: usize,
    /// Port number of the caller, for a floor's responses.
    caller_number: u16,
    callee_number: u16,
    started: u64,
    invite_at: u64,
    ringing_at: u64,
    ok_at: u64,
    bye_at: u64,
    /// What the caller may have to send again: the INVITE, later the BYE. Also the BYE that waits
    /// for the hold time to pass.
    request: Vec<u8>,
    /// What the called end may have to send again: the 200.
    ok: Vec<u8>,
    callee_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Resend {
    Invite,
    Bye,
    Ok,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    due: u64,
    interval: u64,
    slot: u32,
    generation: u32,
    what: Resend,
}

/// All calls of one worker.
pub(crate) struct Calls {
    rules: Rules,
    composer: Composer,
    table: Vec<Call>,
    free: Vec<u32>,
    /// Calls in the order they began, which is the order they run out of time.
    waiting: VecDeque<(u64, Key)>,
    /// Calls in the order they end their hold time.
    holding: VecDeque<(u64, Key)>,
    timers: BinaryHeap<Reverse<Timer>>,
    active: usize,
    pub(crate) tally: Tally,
}

impl Calls {
    pub(crate) fn new(rules: Rules, composer: Composer) -> Self {
        Self {
            rules,
            composer,
            table: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            holding: VecDeque::new(),
            timers: BinaryHeap::new(),
            active: 0,
            tally: Tally::new(),
        }
    }

    /// Calls that are neither completed nor failed.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// Sends the INVITE of a new call that was due at `due`. A full table counts as a failure of
    /// the attempt.
    pub(crate) fn start(
        &mut self,
        due: u64,
        measured: bool,
        parties: Parties,
        local: &Local,
        out: &mut Outgoing,
    ) {
        self.tally.attempted += 1;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.table.len() < MAX_SLOTS => {
                self.table.push(Call::default());
                (self.table.len() - 1) as u32
            }
            None => {
                self.tally.failed[Step::Invite as usize] += 1;
                return;
            }
        };
        let call = &mut self.table[slot as usize];
        let (mut request, mut ok) =
            (std::mem::take(&mut call.request), std::mem::take(&mut call.ok));
        request.clear();
        ok.clear();
        *call = Call {
            generation: call.generation.wrapping_add(1),
            active: true,
            measured,
            caller_port: local.index,
            caller_number: local.number,
            callee_number: parties.callee_port,
            started: due,
            request,
            ok,
            ..Call::default()
        };
        let key = Key { slot, generation: call.generation };
        self.active += 1;
        self.waiting.push_back((due + self.rules.timeout + self.rules.hold, key));
        let mark = self.mark(Kind::Invite, parties.callee_port);
        self.composer.invite(out.begin(mark), local, key, parties.caller, parties.callee);
        out.end(Some(stamp(key, Sent::Invite)));
        if self.resends_requests() {
            self.keep_request(key, out);
            self.arm(due, T1, key, Resend::Invite);
        }
    }

    fn resends_requests(&self) -> bool {
        self.rules.retransmit && !self.rules.reliable
    }

    fn mark(&self, kind: Kind, port: u16) -> Option<Mark> {
        self.rules.floor.then_some(Mark { kind, port })
    }

    /// Tells that a stamped message went.
    pub(crate) fn sent(&mut self, stamp: Stamp, now: u64) {
        let key = Key { slot: stamp.slot, generation: stamp.generation };
        if let Some(call) = self.live(key) {
            match stamp.what {
                Sent::Invite => call.invite_at = now,
                Sent::Ringing => call.ringing_at = now,
                Sent::Ok => call.ok_at = now,
                Sent::Bye => call.bye_at = now,
                Sent::Register => {}
            }
        }
    }

    /// Takes a message that came to `local`; what it causes goes to `out`, back the same way.
    pub(crate) fn message(
        &mut self,
        now: u64,
        incoming: &Incoming<'_>,
        local: &Local,
        out: &mut Outgoing,
    ) {
        if incoming.truncated {
            self.tally.fault(Fault::Truncated);
            return;
        }
        let mut bytes = incoming.bytes;
        let mut kind = None;
        if self.rules.floor {
            kind = bytes.first().and_then(|byte| Kind::of(*byte));
            bytes = bytes.get(MARK_LENGTH..).unwrap_or_default();
        }
        let Some(message) = message::scan(bytes) else {
            self.tally.fault(Fault::Unreadable);
            return;
        };
        let Some(key) = self.composer.key(message.call_id) else {
            self.tally.stray += 1;
            return;
        };
        if kind == Some(Kind::Trying) {
            self.step(key, Step::Trying, incoming.at);
            return;
        }
        match message.start {
            Start::Response(status) => {
                self.response(now, status, &message, key, incoming.at, local, out)
            }
            Start::Request(method, uri) => {
                self.request(now, method, uri, &message, key, incoming.at, local, out);
            }
        }
    }

    // ---- the called end

    fn request(
        &mut self,
        now: u64,
        method: Method,
        uri: &[u8],
        message: &Message<'_>,
        key: Key,
        at: u64,
        local: &Local,
        out: &mut Outgoing,
    ) {
        if !self.rules.floor {
            self.judge_request(method, uri, message);
        }
        let caller = self.live(key).map_or(0, |call| call.caller_number);
        let mark = self.mark(Kind::Response, caller);
        match method {
            Method::Invite => {
                let fresh = self.step(key, Step::Invite, at);
                let composer = &self.composer;
                composer.response(out.begin(mark), b"180 Ringing", message, key, uri, false);
                out.end(fresh.then(|| stamp(key, Sent::Ringing)));
                composer.response(out.begin(mark), b"200 OK", message, key, uri, true);
                out.end(fresh.then(|| stamp(key, Sent::Ok)));
                // RFC 3261 section 13.3.1.4: the 200 is repeated until the ACK comes.
                if self.rules.retransmit && fresh {
                    if let Some(call) = self.live(key) {
                        call.ok.extend_from_slice(out.last());
                        call.callee_at = local.index;
                    }
                    self.arm(now, T1, key, Resend::Ok);
                }
            }
            Method::Ack => {
                self.step(key, Step::Ack, at);
            }
            Method::Bye => {
                self.step(key, Step::Bye, at);
                self.composer.response(out.begin(mark), b"200 OK", message, key, b"", false);
                out.end(None);
            }
            Method::Register | Method::Other => self.tally.fault(Fault::Unexpected),
        }
    }

    fn judge_request(&mut self, method: Method, uri: &[u8], message: &Message<'_>) {
        if message.max_forwards.is_none_or(|hops| hops >= MAX_FORWARDS) {
            self.tally.fault(Fault::MaxForwards);
        }
        if method == Method::Invite {
            if message.record_routes.as_slice().is_empty() {
                self.tally.fault(Fault::NoRecordRoute);
            }
            // The address-of-record names the domain, the contact one of our ports.
            if message::uri(message.to) == uri {
                self.tally.fault(Fault::RequestUri);
            }
        }
    }

    // ---- the calling end

    fn response(
        &mut self,
        now: u64,
        status: u16,
        message: &Message<'_>,
        key: Key,
        at: u64,
        local: &Local,
        out: &mut Outgoing,
    ) {
        let [via] = message.vias.as_slice() else {
            self.tally.fault(Fault::Via);
            return;
        };
        if branch_key(via).is_none_or(|(_, branch)| branch != key) {
            self.tally.fault(Fault::Via);
            return;
        }
        match (message.cseq_method, status) {
            (Method::Invite, 100) => {
                self.step(key, Step::Trying, at);
            }
            (Method::Invite, 180) => {
                self.step(key, Step::Ringing, at);
            }
            (Method::Invite, 200) => self.answered(now, message, key, at, local, out),
            (Method::Invite, 300..=699) => self.refused(status, message, key, local, out),
            (Method::Bye, 200) => {
                self.step(key, Step::ByeOk, at);
            }
            (Method::Bye, 300..=699) => self.reject(key, status),
            // A provisional answer to BYE, which is allowed if useless (RFC 4320 section 4.1).
            (Method::Bye, 100) => {}
            _ => self.tally.fault(Fault::Unexpected),
        }
    }

    fn answered(
        &mut self,
        now: u64,
        message: &Message<'_>,
        key: Key,
        at: u64,
        local: &Local,
        out: &mut Outgoing,
    ) {
        let callee = self.live(key).map_or(0, |call| call.callee_number);
        let mark = self.mark(Kind::Request, callee);
        // RFC 3261 section 13.2.2.4: every 200, a repeated one too, gets its ACK.
        self.composer.in_dialog(out.begin(mark), local, key, message, false);
        out.end(None);
        if !self.step(key, Step::Ok, at) {
            return;
        }
        let late = self.rules.late;
        if let Some(call) = self.live(key) {
            let is_late = now.saturating_sub(call.started) > late;
            self.tally.late += u64::from(is_late);
            self.tally.established += 1;
        }
        if self.rules.hold == 0 {
            self.composer.in_dialog(out.begin(mark), local, key, message, true);
            out.end(Some(stamp(key, Sent::Bye)));
            if self.resends_requests() {
                self.keep_request(key, out);
                self.arm(now, T1, key, Resend::Bye);
            }
        } else {
            let mut bye = Vec::new();
            if let Some(mark) = mark {
                bye.extend_from_slice(&mark.bytes());
            }
            self.composer.in_dialog(&mut bye, local, key, message, true);
            if let Some(call) = self.live(key) {
                call.request = bye;
            }
            self.holding.push_back((now + self.rules.hold, key));
        }
    }

    fn refused(
        &mut self,
        status: u16,
        message: &Message<'_>,
        key: Key,
        local: &Local,
        out: &mut Outgoing,
    ) {
        let callee = self.live(key).map_or(0, |call| call.callee_number);
        let mark = self.mark(Kind::Request, callee);
        self.composer.ack_refusal(out.begin(mark), local, key, message);
        out.end(None);
        self.reject(key, status);
    }

    fn reject(&mut self, key: Key, status: u16) {
        if self.live(key).is_some() {
            *self.tally.rejected.entry(status).or_default() += 1;
            self.end(key);
        } else {
            self.tally.stray += 1;
        }
    }

    // ---- the table

    fn live(&mut self, key: Key) -> Option<&mut Call> {
        self.table
            .get_mut(key.slot as usize)
            .filter(|call| call.active && call.generation == key.generation)
    }

    /// Notes a step of a call. False when it had been taken before or the call is over.
    fn step(&mut self, key: Key, step: Step, at: u64) -> bool {
        let Some(call) = self
            .table
            .get_mut(key.slot as usize)
            .filter(|call| call.active && call.generation == key.generation)
        else {
            self.tally.stray += 1;
            return false;
        };
        let bit = 1 << step as u8;
        if call.steps & bit != 0 {
            self.tally.repeated[step as usize] += 1;
            return false;
        }
        call.steps |= bit;
        if call.measured {
            let sent = match step {
                Step::Invite | Step::Trying => call.invite_at,
                Step::Ringing => call.ringing_at,
                Step::Ok => call.ok_at,
                Step::Bye => call.bye_at,
                Step::Ack | Step::ByeOk => 0,
            };
            if sent != 0 {
                self.tally.delays.record(step, at.saturating_sub(sent));
            }
        }
        if call.steps == ALL_STEPS {
            self.tally.completed += 1;
            self.end(key);
        }
        true
    }

    fn end(&mut self, key: Key) {
        if let Some(call) = self.live(key) {
            call.active = false;
            self.active -= 1;
            self.free.push(key.slot);
        }
    }

    // ---- time

    /// When [`Calls::tick`] next has something to do.
    pub(crate) fn next(&self) -> Option<u64> {
        let ends = self.waiting.front().map(|(due, _)| *due);
        let holds = self.holding.front().map(|(due, _)| *due);
        let resend = self.timers.peek().map(|Reverse(timer)| timer.due);
        [ends, holds, resend].into_iter().flatten().min()
    }

    /// Gives up what ran out of time, ends what was held long enough, repeats what was not
    /// answered.
    pub(crate) fn tick(&mut self, now: u64, ports: &mut [Port]) {
        while let Some((due, key)) = self.waiting.front().copied() {
            let over = self.live(key).is_none();
            if due > now && !over {
                break;
            }
            self.waiting.pop_front();
            if !over {
                self.give_up(key);
            }
        }
        while let Some((due, key)) = self.holding.front().copied() {
            if due > now {
                break;
            }
            self.holding.pop_front();
            let retransmit = self.resends_requests();
            if let Some(call) = self.live(key) {
                again(ports, call.caller_port, &call.request, Some(stamp(key, Sent::Bye)));
                if retransmit {
                    self.arm(now, T1, key, Resend::Bye);
                }
            }
        }
        while let Some(Reverse(timer)) = self.timers.peek().copied() {
            if timer.due > now {
                break;
            }
            self.timers.pop();
            self.resend(now, timer, ports);
        }
    }

    fn give_up(&mut self, key: Key) {
        if let Some(call) = self.live(key) {
            let steps = call.steps;
            let missing = Step::ALL.iter().find(|(step, _)| steps & 1 << *step as u8 == 0);
            if let Some((step, _)) = missing {
                self.tally.failed[*step as usize] += 1;
            }
            self.end(key);
        }
    }

    fn arm(&mut self, now: u64, interval: u64, key: Key, what: Resend) {
        let Key { slot, generation } = key;
        self.timers.push(Reverse(Timer { due: now + interval, interval, slot, generation, what }));
    }

    fn keep_request(&mut self, key: Key, out: &Outgoing) {
        if let Some(call) = self.live(key) {
            call.request.clear();
            call.request.extend_from_slice(out.last());
        }
    }

    fn resend(&mut self, now: u64, timer: Timer, ports: &mut [Port]) {
        let key = Key { slot: timer.slot, generation: timer.generation };
        let Some(call) = self.live(key) else { return };
        let taken = |step: Step| call.steps & 1 << step as u8 != 0;
        let next = match timer.what {
            // RFC 3261 section 17.1.1.2: Timer A stops at any answer, and doubles without bound.
            Resend::Invite if taken(Step::Trying) || taken(Step::Ringing) || taken(Step::Ok) => {
                return;
            }
            Resend::Invite => timer.interval * 2,
            Resend::Bye if taken(Step::ByeOk) => return,
            Resend::Ok if taken(Step::Ack) => return,
            Resend::Bye | Resend::Ok => (timer.interval * 2).min(T2),
        };
        match timer.what {
            Resend::Invite | Resend::Bye => again(ports, call.caller_port, &call.request, None),
            Resend::Ok => again(ports, call.callee_at, &call.ok, None),
        }
        self.tally.resent += 1;
        self.arm(now, next, key, timer.what);
    }
}

fn again(ports: &mut [Port], index: usize, message: &[u8], stamp: Option<Stamp>) {
    if let Some(port) = ports.get_mut(index) {
        port.out.again(message, stamp);
    }
}

fn stamp(key: Key, what: Sent) -> Stamp {
    Stamp { slot: key.slot, generation: key.generation, what }
}
