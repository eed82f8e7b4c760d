//! Registrations of one worker's users: each has one REGISTER under way at most, and every new one
//! a higher CSeq (RFC 3261 section 10.2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU64;

use memchr::memmem;

use crate::clock::{MILLISECOND, SECOND};
use crate::compose::{Composer, Key, Register, branch_key, decimal};
use crate::digest::{Algorithm, Challenge};
use crate::drive::{self, Desk, Home, Pace, Play, Task};
use crate::error::Error;
use crate::floor::{Kind, MARK_LENGTH, Mark};
use crate::message::{self, Message, Method, Start};
use crate::port::{Incoming, Local, Outgoing, Port, Sent, Stamp};
use crate::report::Durations;
use crate::tally::Fault;
use crate::target::Target;

/// Times a REGISTER of a closed loop is sent before its user is given up.
const MAX_TRIES: u8 = 8;
/// Time a closed loop waits for an answer before it sends again.
const PATIENCE: u64 = 500 * MILLISECOND;
/// REGISTERs under way while the users of a call run are registered.
pub(crate) const SETUP_WINDOW: usize = 64;
/// Answers to challenges for one REGISTER; a server that asks more often is not satisfied.
const MAX_CHALLENGED: u8 = 2;

/// Counts of registrations.
#[derive(Clone)]
pub(crate) struct RegisterTally {
    pub(crate) attempted: u64,
    pub(crate) accepted: u64,
    /// Final answers other than 2xx, by status.
    pub(crate) refused: BTreeMap<u16, u64>,
    pub(crate) missing: u64,
    /// Attempts that found the user's last REGISTER still unanswered.
    pub(crate) busy: u64,
    pub(crate) stray: u64,
    pub(crate) late: u64,
    pub(crate) resent: u64,
    pub(crate) challenged: u64,
    pub(crate) faults: [u64; crate::tally::FAULTS],
    pub(crate) delay: Durations,
}

impl RegisterTally {
    pub(crate) fn new() -> Self {
        Self {
            attempted: 0,
            accepted: 0,
            refused: BTreeMap::new(),
            missing: 0,
            busy: 0,
            stray: 0,
            late: 0,
            resent: 0,
            challenged: 0,
            faults: [0; crate::tally::FAULTS],
            delay: Durations::new(),
        }
    }

    /// Adds another worker's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.accepted += other.accepted;
        self.missing += other.missing;
        self.busy += other.busy;
        self.stray += other.stray;
        self.late += other.late;
        self.resent += other.resent;
        self.challenged += other.challenged;
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
        for (status, count) in &other.refused {
            *self.refused.entry(*status).or_default() += count;
        }
        self.delay.add(&other.delay);
    }

    /// The zero-failure rule for registrations.
    pub(crate) fn clean(&self) -> bool {
        self.attempted > 0
            && self.accepted == self.attempted
            && self.stray + self.late + self.resent == 0
            && self.faults.iter().sum::<u64>() == 0
    }
}

#[derive(Clone, Default)]
struct User {
    cseq: u32,
    pending: bool,
    measured: bool,
    tries: u8,
    /// Refused for now: the next try is a new request, not the same one again.
    put_off: bool,
    challenged: u8,
    sent_at: u64,
    session: Option<Box<Session>>,
}

/// The last challenge a user got, and how often it was answered.
#[derive(Clone)]
struct Session {
    challenge: Challenge,
    count: u32,
}

/// How registrations are made.
#[derive(Clone)]
pub(crate) struct Terms {
    /// Seconds; 0 removes.
    pub(crate) expires: u32,
    /// Nanoseconds until a REGISTER of an open loop counts as lost.
    pub(crate) timeout: u64,
    /// Nanoseconds above which an answer is late.
    pub(crate) late: u64,
    /// Whether to send again what is not answered, as a closed loop must to go on.
    pub(crate) resend: bool,
    /// Whether contacts name hosts elsewhere, a different one for every user, as in a large
    /// network, and not this generator.
    pub(crate) elsewhere: bool,
}

impl Terms {
    /// For what is done before and after a measurement.
    pub(crate) fn setup(expires: u32) -> Self {
        let timeout = PATIENCE * u64::from(MAX_TRIES);
        Self { expires, timeout, late: timeout, resend: true, elsewhere: false }
    }
}

/// The users of one worker.
pub(crate) struct Registrations {
    composer: Composer,
    domain: String,
    floor: bool,
    login: Option<(Algorithm, String)>,
    homes: Vec<(Vec<u8>, usize)>,
    first: u32,
    stride: u32,
    users: Vec<User>,
    terms: Terms,
    waiting: VecDeque<(u64, Key)>,
    active: usize,
    pub(crate) tally: RegisterTally,
}

impl Registrations {
    /// The users of `worker`, none of them registered yet.
    pub(crate) fn new(
        target: &Target,
        worker: usize,
        run: u32,
        homes: &[Home],
        terms: Terms,
    ) -> Self {
        let domain = target.domain();
        let password = target.password.clone().unwrap_or_default();
        Self {
            composer: Composer::new(&domain, run, worker as u8, target.floor),
            domain,
            floor: target.floor,
            login: target.auth.map(|algorithm| (algorithm, password)),
            homes: homes.iter().map(|home| (home.contact.clone(), home.port)).collect(),
            first: worker as u32,
            stride: target.workers as u32,
            users: vec![User::default(); target.users_of(worker) as usize],
            terms,
            waiting: VecDeque::new(),
            active: 0,
            tally: RegisterTally::new(),
        }
    }

    /// Changes the terms for what follows, and begins counting anew.
    pub(crate) fn again(&mut self, terms: Terms) {
        self.terms = terms;
        self.tally = RegisterTally::new();
    }

    /// Registers every user once, `window` at a time, and fails unless all were accepted.
    pub(crate) fn all(&mut self, desk: &mut Desk, window: usize) -> Result<(), Error> {
        let total = self.users.len() as u64;
        let task = Task { pace: Pace::Window(window), total, from: 0, until: u64::MAX };
        drive::play(desk, self, task, &AtomicU64::new(0))?;
        if self.tally.accepted == total {
            return Ok(());
        }
        let refused: Vec<_> = self
            .tally
            .refused
            .iter()
            .map(|(status, n)| format!("{n} refused with {status}"))
            .collect();
        let note =
            if refused.is_empty() { String::new() } else { format!("; {}", refused.join(", ")) };
        let seconds = u64::from(MAX_TRIES) * PATIENCE / SECOND;
        Err(Error::NotRegistered { done: self.tally.accepted, wanted: total, seconds, note })
    }

    /// Removes every registration, unless they are to be kept. What was counted stays; a server
    /// that does not let them go is only mentioned.
    pub(crate) fn remove(&mut self, target: &Target, desk: &mut Desk) {
        if target.keep {
            return;
        }
        let counted = self.tally.clone();
        self.again(Terms::setup(0));
        if let Err(error) = self.all(desk, SETUP_WINDOW) {
            eprintln!("ringway-load: while removing registrations: {error}");
        }
        self.tally = counted;
    }

    fn user_number(&self, index: u32) -> u32 {
        self.first + index * self.stride
    }

    /// Sends the next REGISTER of a user.
    fn send(&mut self, now: u64, index: u32, measured: bool, local: &Local, out: &mut Outgoing) {
        let user = &mut self.users[index as usize];
        user.cseq += 1;
        user.pending = true;
        user.measured = measured;
        user.put_off = false;
        user.sent_at = 0;
        if let Some(session) = &mut user.session {
            session.count += 1;
        }
        self.write(now, index, local, out);
    }

    /// Writes a user's REGISTER, the same one as long as its CSeq stays.
    fn write(&mut self, now: u64, index: u32, local: &Local, out: &mut Outgoing) {
        let number = self.user_number(index);
        let elsewhere;
        let contact = if self.terms.elsewhere {
            elsewhere = host_elsewhere(number);
            elsewhere.as_slice()
        } else {
            &self.homes[index as usize % self.homes.len()].0
        };
        let user = &self.users[index as usize];
        let key = Key { slot: index, generation: user.cseq };
        let credentials = match (&self.login, &user.session) {
            (Some((_, password)), Some(session)) => {
                let uri = format!("sip:{}", self.domain);
                let name = format!("u{number}");
                session.challenge.answer(&name, password, "REGISTER", &uri, session.count)
            }
            _ => String::new(),
        };
        let what = Register {
            user: number,
            contact,
            expires: self.terms.expires,
            credentials: credentials.as_bytes(),
        };
        let mark = self.floor.then_some(Mark { kind: Kind::Register, port: 0 });
        self.composer.register(out.begin(mark), local, key, &what);
        let Key { slot, generation } = key;
        out.end(Some(Stamp { slot, generation, what: Sent::Register }));
        let patience = if self.terms.resend { PATIENCE } else { self.terms.timeout };
        self.waiting.push_back((now + patience, key));
    }

    fn ended(&mut self, index: u32) {
        self.users[index as usize].pending = false;
        self.active -= 1;
    }

    /// The pending user a response belongs to.
    fn whose(&mut self, message: &Message<'_>) -> Option<u32> {
        let key = self.composer.key(message.call_id)?;
        let user = self.users.get(key.slot as usize)?;
        (user.pending && user.cseq == message.cseq_number).then_some(key.slot)
    }

    fn fault(&mut self, fault: Fault) {
        self.tally.faults[fault as usize] += 1;
    }

    /// Whether a 200 names the contact its REGISTER had, which shows that the server kept it. Nothing
    /// is asked of a floor, nor of an answer to a removal.
    fn lists_contact(&self, index: u32, answer: &[u8]) -> bool {
        if self.floor || self.terms.expires == 0 {
            return true;
        }
        let number = self.user_number(index);
        let mut wanted = b"sip:u".to_vec();
        decimal(&mut wanted, number);
        wanted.push(b'@');
        if self.terms.elsewhere {
            wanted.extend_from_slice(&host_elsewhere(number));
        } else {
            wanted.extend_from_slice(&self.homes[index as usize % self.homes.len()].0);
        }
        memmem::find(answer, &wanted).is_some()
    }

    fn accepted(&mut self, index: u32, at: u64) {
        let user = &self.users[index as usize];
        let delay = at.saturating_sub(user.sent_at);
        self.tally.late += u64::from(delay > self.terms.late);
        if user.measured && user.sent_at != 0 {
            self.tally.delay.record(delay);
        }
        self.tally.accepted += 1;
        self.ended(index);
    }

    /// Takes up a challenge this run can answer. False when there is none, or enough were answered.
    fn challenged(&mut self, index: u32, message: &Message<'_>, by_proxy: bool) -> bool {
        let Some((algorithm, _)) = self.login else { return false };
        let mut challenges = message.challenges.as_slice().iter();
        let found = challenges.find_map(|value| Challenge::parse(value, algorithm, by_proxy));
        let user = &mut self.users[index as usize];
        let (Some(challenge), true) = (found, user.challenged < MAX_CHALLENGED) else {
            return false;
        };
        user.challenged += 1;
        user.session = Some(Box::new(Session { challenge, count: 0 }));
        self.tally.challenged += 1;
        true
    }
}

impl Play for Registrations {
    fn port(&self, n: u64) -> usize {
        let index = (n % self.users.len() as u64) as usize;
        self.homes[index % self.homes.len()].1
    }

    fn launch(&mut self, n: u64, due: u64, measured: bool, local: &Local, out: &mut Outgoing) {
        let index = (n % self.users.len() as u64) as u32;
        self.tally.attempted += 1;
        if self.users[index as usize].pending {
            self.tally.busy += 1;
            return;
        }
        let user = &mut self.users[index as usize];
        user.tries = 1;
        user.challenged = 0;
        self.active += 1;
        self.send(due, index, measured, local, out);
    }

    fn message(&mut self, now: u64, incoming: &Incoming<'_>, local: &Local, out: &mut Outgoing) {
        if incoming.truncated {
            self.fault(Fault::Truncated);
            return;
        }
        let bytes = if self.floor {
            incoming.bytes.get(MARK_LENGTH..).unwrap_or_default()
        } else {
            incoming.bytes
        };
        let Some(message) = message::scan(bytes) else {
            self.fault(Fault::Unreadable);
            return;
        };
        let Some(index) = self.whose(&message) else {
            self.tally.stray += 1;
            return;
        };
        let expected = Key { slot: index, generation: message.cseq_number };
        let ours = matches!(message.vias.as_slice(), [via]
            if branch_key(via).is_some_and(|(_, key)| key == expected));
        if !ours {
            self.fault(Fault::Via);
            return;
        }
        let status = match message.start {
            Start::Response(status) if message.cseq_method == Method::Register => status,
            // A floor returns the REGISTER itself.
            Start::Request(Method::Register, _) if self.floor => 200,
            _ => {
                self.fault(Fault::Unexpected);
                return;
            }
        };
        match status {
            100..=199 => {}
            200..=299 => {
                if !self.lists_contact(index, bytes) {
                    self.fault(Fault::ContactMissing);
                }
                self.accepted(index, incoming.at);
            }
            401 | 407 if self.challenged(index, &message, status == 407) => {
                let measured = self.users[index as usize].measured;
                self.send(now, index, measured, local, out);
            }
            // RFC 3261 section 21.5.4: a server that is overloaded now is asked again later.
            503 if self.terms.resend && self.users[index as usize].tries < MAX_TRIES => {
                self.users[index as usize].put_off = true;
            }
            _ => {
                *self.tally.refused.entry(status).or_default() += 1;
                self.ended(index);
            }
        }
    }

    fn sent(&mut self, stamp: Stamp, now: u64) {
        let user = self.users.get_mut(stamp.slot as usize);
        if let Some(user) = user.filter(|user| user.cseq == stamp.generation) {
            user.sent_at = now;
        }
    }

    fn tick(&mut self, now: u64, ports: &mut [Port]) {
        while let Some((due, key)) = self.waiting.front().copied() {
            let user = &self.users[key.slot as usize];
            let over = !user.pending || user.cseq != key.generation;
            if due > now && !over {
                break;
            }
            self.waiting.pop_front();
            if over {
                continue;
            }
            if !self.terms.resend || user.tries == MAX_TRIES {
                self.tally.missing += 1;
                self.ended(key.slot);
                continue;
            }
            self.tally.resent += 1;
            self.users[key.slot as usize].tries += 1;
            let home = self.homes[key.slot as usize % self.homes.len()].1;
            let Port { local, out, .. } = &mut ports[home];
            if self.users[key.slot as usize].put_off {
                self.send(now, key.slot, false, local, out);
            } else {
                self.write(now, key.slot, local, out);
            }
        }
    }

    fn next(&self) -> Option<u64> {
        self.waiting.front().map(|(due, _)| *due)
    }

    fn active(&self) -> usize {
        self.active
    }

    fn completed(&self) -> u64 {
        self.tally.accepted
    }
}

/// A host of a private network, a different one for every user.
fn host_elsewhere(user: u32) -> Vec<u8> {
    let [a, b, c, d] = user.to_be_bytes();
    format!("10.{b}.{c}.{d}:{}", 5060 + u16::from(a)).into_bytes()
}
