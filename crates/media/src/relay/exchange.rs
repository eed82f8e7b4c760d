//! Which messages carry an offer and which an answer (RFC 3261 section 13.2.1, RFC 3262, RFC 3311, RFC 6337), and how
//! dialogs begin and end.

use super::{Facts, Forwarded, MAX_COMMANDS, Refusal, Relay};
use crate::body::{Located, locate};
use crate::description::{Address, Description, Stream};
use crate::reach::Leg;
use crate::session::{Exchange, Session, State, Who};
use crate::shares::Source;
use ringway_sansio::{Time, TimerId};
use ringway_sip::message::{Message, Method};
use smallvec::SmallVec;

/// What a message carries.
pub(super) enum Carried<'a> {
    Nothing,
    Description(Located, Description<'a>),
    Unreadable,
}

impl<'a> Carried<'a> {
    fn of(message: &Message<'a>) -> Carried<'a> {
        let Some(located) = locate(message) else { return Carried::Nothing };
        match Description::parse(&message.body()[located.description.clone()]) {
            Ok(description) => Carried::Description(located, description),
            Err(_) => Carried::Unreadable,
        }
    }

    fn is_some(&self) -> bool {
        !matches!(self, Carried::Nothing)
    }
}

impl Relay {
    /// Records a request that is forwarded. Returns its body if that must be another one; its Content-Length is then to be
    /// replaced too.
    ///
    /// # Errors
    /// The request is to be answered with the status of the refusal, if media is to work. Nothing has changed.
    pub fn request(
        &mut self,
        now: Time,
        forwarded: &Forwarded<'_>,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let forwarded = &canonical(forwarded);
        let Some(facts) = self.facts(forwarded.message) else { return Ok(None) };
        match facts.method {
            Method::Bye => self.bye(now, &facts, forwarded),
            Method::Invite | Method::Update | Method::Prack | Method::Ack => {
                let result = self.negotiating(now, &facts, forwarded);
                self.count(&result);
                return result;
            }
            _ => {}
        }
        Ok(None)
    }

    fn negotiating(
        &mut self,
        now: Time,
        facts: &Facts<'_>,
        forwarded: &Forwarded<'_>,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let carried = Carried::of(forwarded.message);
        let found = self.find(facts, forwarded);
        let (id, who) = match found {
            Some(found) => found,
            None if facts.method != Method::Ack && self.is_wanted(&carried, facts, forwarded) => {
                (self.begin(now, facts, forwarded)?, Who::Caller)
            }
            None => return Ok(None),
        };
        self.touch(now, id);
        let result = self.request_of(now, (id, who), facts, forwarded, &carried);
        if result.is_err() && found.is_none() {
            self.release(now, id);
        }
        result
    }

    fn request_of(
        &mut self,
        now: Time,
        (id, who): (u32, Who),
        facts: &Facts<'_>,
        forwarded: &Forwarded<'_>,
        carried: &Carried<'_>,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let session = &mut self.sessions[id as usize];
        let before = (session.legs, session.invite, session.other);
        session.legs[who as usize] = forwarded.from;
        session.legs[who.other() as usize] = forwarded.to;
        // RFC 3262 section 5: a PRACK answers an offer in the response that it acknowledges, or makes one.
        let answers = session.offer.as_ref().is_some_and(|offer| offer.from != who);
        let is_answer = match facts.method {
            Method::Ack => true,
            Method::Prack => answers,
            _ => false,
        };
        let exchange =
            Exchange { cseq: facts.cseq, from: who, offered: carried.is_some() && !is_answer };
        match facts.method {
            Method::Invite => session.invite = Some(exchange),
            Method::Update | Method::Prack => session.other = Some(exchange),
            _ => {}
        }
        let Carried::Description(located, description) = carried else {
            self.counters.unreadable += u64::from(carried.is_some());
            return Ok(None);
        };
        let body = forwarded.message.body();
        if is_answer {
            return Ok(self.answer(id, who, located, description, body));
        }
        let result = self.offer(now, id, who, located, description, body);
        if result.is_err() {
            let session = &mut self.sessions[id as usize];
            (session.legs, session.invite, session.other) = before;
        }
        result
    }

    fn bye(&mut self, now: Time, facts: &Facts<'_>, forwarded: &Forwarded<'_>) {
        if let Some((id, _)) = self.find(facts, forwarded) {
            self.touch(now, id);
            self.sessions[id as usize].ending.get_or_insert(now);
            self.rearm(id);
        }
    }

    /// Records a response that is forwarded. Returns its body if that must be another one; its Content-Length is then to
    /// be replaced too.
    pub fn response(&mut self, now: Time, forwarded: &Forwarded<'_>) -> Option<Vec<u8>> {
        let forwarded = &canonical(forwarded);
        let facts = self.facts(forwarded.message)?;
        if !matches!(facts.method, Method::Invite | Method::Update | Method::Prack | Method::Bye) {
            return None;
        }
        let (id, requester) = self.find(&facts, forwarded)?;
        self.touch(now, id);
        let status = forwarded.message.status();
        match facts.method {
            Method::Invite => self.response_to_invite(now, id, requester, &facts, forwarded),
            Method::Bye => {
                match status {
                    100..=199 => {}
                    // The BYE must be sent again with credentials: the dialog goes on until then.
                    401 | 407 => self.sessions[id as usize].ending = None,
                    _ => self.release(now, id),
                }
                None
            }
            _ => self.response_to_other(now, id, requester, &facts, forwarded),
        }
    }

    fn response_to_invite(
        &mut self,
        now: Time,
        id: u32,
        requester: Who,
        facts: &Facts<'_>,
        forwarded: &Forwarded<'_>,
    ) -> Option<Vec<u8>> {
        let session = &mut self.sessions[id as usize];
        let is_its =
            |exchange: &Exchange| (exchange.cseq, exchange.from) == (facts.cseq, requester);
        let exchange = session.invite.filter(is_its)?;
        let (status, responder) = (forwarded.message.status(), requester.other());
        if status >= 300 {
            if session.state == State::Early {
                self.release(now, id);
            } else {
                // RFC 3261 section 14.1: the session goes on as before.
                session.offer = None;
            }
            return None;
        }
        if session.state == State::Early && facts.to.is_some() {
            // The latest of several early dialogs behind one branch, and then the one that is confirmed.
            session.tags[responder as usize] = facts.to;
        }
        let is_other = facts.to != session.tags[responder as usize];
        if status >= 200 {
            self.confirm(id);
        }
        self.described(now, (id, responder), exchange.offered, is_other, forwarded)
    }

    /// Processes a response to an UPDATE or PRACK.
    fn response_to_other(
        &mut self,
        now: Time,
        id: u32,
        requester: Who,
        facts: &Facts<'_>,
        forwarded: &Forwarded<'_>,
    ) -> Option<Vec<u8>> {
        let session = &mut self.sessions[id as usize];
        let is_its =
            |exchange: &Exchange| (exchange.cseq, exchange.from) == (facts.cseq, requester);
        let exchange = session.other.filter(is_its).filter(|exchange| exchange.offered)?;
        let began = session.invite.is_none() && session.state == State::Early;
        match forwarded.message.status() {
            100..=199 => return None,
            200..=299 => {}
            _ if began => {
                self.release(now, id);
                return None;
            }
            _ => {
                session.offer.take_if(|offer| offer.from == requester);
                return None;
            }
        }
        if began {
            self.confirm(id);
        }
        self.described(now, (id, requester.other()), exchange.offered, false, forwarded)
    }

    /// Processes the description of a response, which answers the request if that `offered`. `is_other`: it comes from a
    /// dialog other than the one that is relayed, and changes nothing.
    fn described(
        &mut self,
        now: Time,
        (id, responder): (u32, Who),
        offered: bool,
        is_other: bool,
        forwarded: &Forwarded<'_>,
    ) -> Option<Vec<u8>> {
        let (located, description) = match Carried::of(forwarded.message) {
            Carried::Description(located, description) => (located, description),
            Carried::Unreadable => {
                self.counters.unreadable += 1;
                return None;
            }
            Carried::Nothing => return None,
        };
        let body = forwarded.message.body();
        if is_other {
            return self.rewrite_for(id, responder.other(), &located, &description, body);
        }
        if offered {
            return self.answer(id, responder, &located, &description, body);
        }
        let result = self.offer(now, id, responder, &located, &description, body);
        self.count(&result);
        result.ok().flatten()
    }

    /// Returns whether a request needs a relay.
    fn is_wanted(
        &mut self,
        carried: &Carried<'_>,
        facts: &Facts<'_>,
        forwarded: &Forwarded<'_>,
    ) -> bool {
        let (from, to) = (&forwarded.from, &forwarded.to);
        let are_apart = self.config.are_apart(from, to);
        match carried {
            // The offer comes in the response, and only then it is known whether there is one.
            Carried::Nothing => facts.method == Method::Invite && are_apart,
            Carried::Unreadable => {
                self.counters.unreadable += u64::from(are_apart);
                false
            }
            Carried::Description(_, description) => {
                let streams = description.streams();
                let is_wanted = streams.iter().any(|stream| self.needs(stream, from, to));
                if !is_wanted && are_apart {
                    let active = streams.iter().filter(|stream| stream.port != 0);
                    self.counters.left_alone += active.count() as u64;
                }
                is_wanted
            }
        }
    }

    /// Returns whether a stream described by the peer of `from` needs a relay.
    pub(super) fn needs(&self, stream: &Stream, from: &Leg, to: &Leg) -> bool {
        let is_out_of_reach =
            matches!(stream.address, Some(Address::Ip(ip)) if !self.config.reaches(to, ip));
        stream.is_relayable() && (is_out_of_reach || self.config.are_apart(from, to))
    }

    /// Begins a session, of which the sender of this request is the caller.
    fn begin(
        &mut self,
        now: Time,
        facts: &Facts<'_>,
        forwarded: &Forwarded<'_>,
    ) -> Result<u32, Refusal> {
        if self.commands.len() >= MAX_COMMANDS {
            return Err(Refusal::Full);
        }
        let source = Source::of(&forwarded.from);
        self.shares.take(&self.config.limits, &source, 1, true)?;
        let id = self.sessions.vacant_key() as u32;
        let branch = forwarded.branch;
        self.sessions.insert(Session {
            call: facts.call,
            tags: [Some(facts.from), facts.to],
            branch,
            legs: [forwarded.from, forwarded.to],
            source,
            state: State::Early,
            ending: None,
            streams: SmallVec::new(),
            charged: 1,
            invite: None,
            other: None,
            offer: None,
            active: now,
            timer: TimerId::NONE,
        });
        self.calls.entry(facts.call).or_default().push(id);
        if let Some(branch) = branch {
            self.branches.insert(branch, id);
        }
        self.rearm(id);
        self.counters.sessions += 1;
        Ok(id)
    }

    /// Records that a dialog has been answered.
    fn confirm(&mut self, id: u32) {
        let session = &mut self.sessions[id as usize];
        if session.state == State::Early {
            session.state = State::Confirmed;
            self.shares.answered(session.charged);
        }
    }

    fn count<T>(&mut self, result: &Result<T, Refusal>) {
        let counters = &mut self.counters;
        match result {
            Ok(_) => {}
            Err(Refusal::NoPorts) => counters.no_ports += 1,
            Err(Refusal::Full) => counters.full += 1,
            Err(Refusal::Share) => counters.share += 1,
            Err(Refusal::Unanswered) => counters.unanswered += 1,
            Err(Refusal::TooMany) => counters.too_many += 1,
        }
    }
}

fn canonical<'a>(forwarded: &Forwarded<'a>) -> Forwarded<'a> {
    Forwarded { from: forwarded.from.canonical(), to: forwarded.to.canonical(), ..*forwarded }
}
