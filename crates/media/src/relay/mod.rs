//! The signalling half: the dialogs whose media is relayed, their ports, and the rewriting of their descriptions.
//!
//! A proxy shows every message that it forwards to [`Relay::request`] or [`Relay::response`]. A dialog is relayed if its
//! peers do not reach each other; each branch of a forked request is a dialog of its own, with its own ports on both
//! sides. What is agreed becomes [`Command`]s for the half that forwards ([`Forwarder`](crate::Forwarder)).

mod exchange;
mod negotiation;

use crate::command::{Command, Family, Port, StreamId};
use crate::config::{Config, GRACE};
use crate::counters::Counters;
use crate::ports::Pool;
use crate::reach::Leg;
pub use crate::refusal::Refusal;
use crate::session::{Relayed, Session, State, Who};
use crate::shares::Shares;
use ringway_sansio::{Random, Time, TimerWheel};
use ringway_sip::message::{Message, Method};
use siphasher::sip::SipHasher13;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;

/// Commands that may wait for the other half. Beyond it no dialog is begun.
pub const MAX_COMMANDS: usize = 16_384;

/// A message that a proxy forwards.
#[derive(Clone, Copy)]
pub struct Forwarded<'a> {
    /// The message as it came.
    pub message: &'a Message<'a>,
    /// The side that it came from.
    pub from: Leg,
    /// The side that it goes to.
    pub to: Leg,
    /// The client transaction of the request, of the response to it, or what else identifies the branch; `None` if the
    /// request is forwarded without a transaction.
    pub branch: Option<u64>,
}

/// The numbers of what a relay holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tables {
    /// Dialogs.
    pub sessions: usize,
    /// Streams of all shares.
    pub charged: usize,
    /// Streams with ports.
    pub streams: usize,
    /// Pairs of ports that are bound and free, of IPv4 and of IPv6.
    pub ready: [usize; 2],
    /// Commands that wait.
    pub commands: usize,
}

/// A command as it waits. What is set is looked up when it is taken, so that each stream waits once.
#[derive(Clone, Copy, Debug)]
enum Queued {
    Set(StreamId),
    Clear(StreamId, [Port; 2]),
    Unbind(Port),
}

/// What identifies a message, as keyed hashes.
#[derive(Clone, Copy)]
struct Facts<'a> {
    method: Method<'a>,
    cseq: u32,
    call: u64,
    from: u64,
    to: Option<u64>,
}

/// The relayed dialogs of a server.
pub struct Relay {
    config: Config,
    key: [u8; 16],
    sessions: Slab<Session>,
    streams: Slab<Relayed>,
    /// The sessions of each Call-ID.
    calls: BTreeMap<u64, SmallVec<[u32; 2]>>,
    branches: BTreeMap<u64, u32>,
    serial: u32,
    pools: [Pool; 2],
    shares: Shares,
    wheel: TimerWheel<u32>,
    commands: VecDeque<Queued>,
    counters: Counters,
}

impl Relay {
    /// Returns a relay without dialogs. `key` must be secret: Call-IDs and tags are stored as hashes with it.
    pub fn new(config: Config, key: [u8; 16], now: Time) -> Relay {
        let pools = [Pool::new(&config.ports), Pool::new(&config.ports)];
        Relay {
            config,
            key,
            sessions: Slab::new(),
            streams: Slab::new(),
            calls: BTreeMap::new(),
            branches: BTreeMap::new(),
            serial: 0,
            pools,
            shares: Shares::default(),
            wheel: TimerWheel::new(now),
            commands: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Replaces the configuration, except the ports. Dialogs keep their streams.
    pub fn reconfigure(&mut self, config: Config) {
        self.config = Config { ports: self.config.ports.clone(), ..config };
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns what is held.
    pub fn tables(&self) -> Tables {
        Tables {
            sessions: self.sessions.len(),
            charged: self.shares.streams(),
            streams: self.streams.len(),
            ready: [self.pools[0].ready(), self.pools[1].ready()],
            commands: self.commands.len(),
        }
    }

    /// Returns the even port of a pair that is to be bound now; it is reported to [`Relay::port_bound`]. To be called until
    /// it returns `None`, at the start and whenever ports have been taken.
    pub fn wanted_port(&mut self, random: &mut dyn Random) -> Option<Port> {
        [Family::V4, Family::V6].into_iter().find_map(|family| {
            let number = self.pools[family as usize].wanted(random)?;
            Some(Port { family, number })
        })
    }

    /// Reports that both ports of a pair have been bound, or could not be.
    pub fn port_bound(&mut self, now: Time, port: Port, ok: bool) {
        self.pools[port.family as usize].bound(now, port.number, ok);
    }

    /// Removes and returns the next command for the half that forwards.
    pub fn poll_command(&mut self) -> Option<Command> {
        loop {
            match self.commands.pop_front()? {
                Queued::Clear(id, ports) => return Some(Command::Clear(id, ports)),
                Queued::Unbind(port) => return Some(Command::Unbind(port)),
                Queued::Set(id) => {
                    let index = id.index as usize;
                    let Some(stream) =
                        self.streams.get_mut(index).filter(|stream| stream.serial == id.serial)
                    else {
                        continue;
                    };
                    stream.queued = false;
                    let legs = &self.sessions[stream.session as usize].legs;
                    let locals = [0, 1].map(|side| self.config.media_address(&legs[side]));
                    return Some(stream.command(index, locals));
                }
            }
        }
    }

    /// Reports that packets of these streams have been forwarded.
    pub fn media_seen(&mut self, now: Time, streams: impl IntoIterator<Item = StreamId>) {
        for id in streams {
            let found = self.streams.get(id.index as usize).filter(|s| s.serial == id.serial);
            if let Some(stream) = found {
                self.sessions[stream.session as usize].active = now;
            }
        }
    }

    /// Reports that a branch has ended without a response that was forwarded: it timed out, or could not be sent.
    pub fn ended(&mut self, branch: u64) {
        if let Some(&id) = self.branches.get(&branch)
            && self.sessions[id as usize].state == State::Early
        {
            // Its ports rest from the time of its last message on.
            self.release(self.sessions[id as usize].active, id);
        }
    }

    /// Processes everything that is due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(id) = self.wheel.expire(now) {
            let Some(session) = self.sessions.get_mut(id as usize) else { continue };
            let deadline = deadline(&self.config, session);
            if deadline > now {
                session.timer = self.wheel.set(deadline, id);
                continue;
            }
            self.counters.idle += u64::from(session.ending.is_none());
            self.release(now, id);
        }
        for family in [Family::V4, Family::V6] {
            let commands = &mut self.commands;
            self.pools[family as usize].handle_timeout(now, |number| {
                commands.push_back(Queued::Unbind(Port { family, number }));
            });
        }
    }

    /// Returns the time at which [`Relay::handle_timeout`] should be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let rests = self.pools.iter().filter_map(Pool::next_timeout);
        rests.chain(self.wheel.next()).min()
    }

    fn facts<'a>(&self, message: &Message<'a>) -> Option<Facts<'a>> {
        let cseq = message.cseq().ok()?;
        let (from, to) = (message.from().ok()?.tag()?, message.to().ok()?.tag());
        Some(Facts {
            method: message.method(),
            cseq: cseq.seq,
            call: self.hash(b'c', message.call_id()),
            from: self.hash(b't', from),
            to: to.map(|tag| self.hash(b't', tag)),
        })
    }

    fn hash(&self, kind: u8, text: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u8(kind);
        hasher.write(text);
        hasher.finish()
    }

    /// Returns the session of a message, and the side that sent its request. Where a message passes this server twice
    /// (RFC 3261 section 16.6), the addresses tell its two sessions apart.
    fn find(&self, facts: &Facts<'_>, forwarded: &Forwarded<'_>) -> Option<(u32, Who)> {
        let branch = forwarded.branch.and_then(|branch| self.branches.get(&branch).copied());
        if let Some(id) = branch.filter(|&id| self.sessions[id as usize].call == facts.call) {
            return Some((id, Who::Caller));
        }
        let is_request = forwarded.message.is_request();
        let (requester, responder) = match is_request {
            true => (forwarded.from.remote, forwarded.to.remote),
            false => (forwarded.to.remote, forwarded.from.remote),
        };
        let in_dialog = self.calls.get(&facts.call)?.iter().filter_map(|&id| {
            let session = &self.sessions[id as usize];
            let who = session.who(facts.from)?;
            let tag = session.tags[who.other() as usize];
            // Without a To tag it can only be meant by its branch, if it has one.
            let is_same = match (tag, facts.to) {
                (Some(known), to) => to == Some(known),
                (None, _) => {
                    who == Who::Caller && (facts.to.is_some() || forwarded.branch.is_none())
                }
            };
            let legs = [&session.legs[who as usize], &session.legs[who.other() as usize]];
            let near = [requester, responder];
            let at =
                legs.iter().zip(near).filter(|(leg, ip)| leg.remote == ip.to_canonical()).count();
            // A tag that is not known yet is not learnt by another message.
            (is_same && (tag.is_some() || at == 2)).then_some((at, id, who))
        });
        in_dialog
            .max_by_key(|&(at, id, _)| (at, std::cmp::Reverse(id)))
            .map(|(_, id, who)| (id, who))
    }

    /// Records a message of a session.
    fn touch(&mut self, now: Time, id: u32) {
        self.sessions[id as usize].active = now;
    }

    /// Sets the timer of a session anew, because its deadline has come closer.
    fn rearm(&mut self, id: u32) {
        let session = &mut self.sessions[id as usize];
        self.wheel.cancel(session.timer);
        session.timer = self.wheel.set(deadline(&self.config, session), id);
    }

    fn release(&mut self, now: Time, id: u32) {
        let Some(session) = self.sessions.try_remove(id as usize) else { return };
        self.wheel.cancel(session.timer);
        if let Some(ids) = self.calls.get_mut(&session.call) {
            ids.retain(|&mut other| other != id);
            if ids.is_empty() {
                self.calls.remove(&session.call);
            }
        }
        if let Some(branch) = session.branch
            && self.branches.get(&branch) == Some(&id)
        {
            self.branches.remove(&branch);
        }
        for stream in session.streams.iter().copied().flatten() {
            self.close(now, stream);
        }
        self.shares.release(&session.source, session.charged, session.state == State::Early);
    }
}

/// Returns the time at which a session is released unless something is heard of it.
fn deadline(config: &Config, session: &Session) -> Time {
    match (session.ending, session.state) {
        (Some(began), _) => began + GRACE,
        (None, State::Early) => session.active + config.unanswered,
        (None, State::Confirmed) => session.active + config.idle,
    }
}
