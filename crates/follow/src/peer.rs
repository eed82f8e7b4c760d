//! One other server: the names that are followed there, those that it follows here, and what it is to be sent.

use std::collections::{BTreeMap, BTreeSet};

use ringway_proxy::location::Change;
use ringway_proxy::states::Report;
use ringway_sansio::time::sooner;
use ringway_sansio::{Duration, Time};

use super::agenda::Pace;
use super::limits::{Config, MIN_INTERVAL, RENEW, Rate};
use super::locals::Locals;
use super::names::Name;
use super::server::ServerId;
use super::wire::{Batch, Format, Item};

/// Time after which a FOLLOW without an answer is sent again. It doubles.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// FOLLOWs without an answer after which a server counts as silent.
const SILENT: u8 = 3;
/// A FOLLOW is sent this much before it is due if others are, so that they share a message.
const EARLY: Duration = Duration::from_secs(5);
/// Time after which a STATE without an ACK is sent again. It doubles.
const SEND_AGAIN: Duration = Duration::from_millis(500);
/// Maximum number of times that a STATE is sent before the next FOLLOW.
const MAX_SENT: u8 = 5;
/// Changes of one user that a server may report.
const REPORTS: Rate = Rate { interval: MIN_INTERVAL, burst: 4 };
/// Names that a server is notified of not being followed here.
const MAX_ENDS: usize = 256;

/// A name that is followed at the server.
#[derive(Debug)]
struct Followed {
    /// When the next FOLLOW is sent.
    due: Time,
    /// FOLLOWs since the last answer.
    unanswered: u8,
    /// The version of the state that was received last; 0 if none was.
    version: u64,
    /// When what the server has reported expires. `None` while the user is not registered there.
    report: Option<Time>,
    /// Whether the server has reported that the user is not registered there.
    is_absent: bool,
    /// Changes that are taken. What is above is not acknowledged, so that it comes again.
    pace: Pace,
}

/// A name that the server follows here.
#[derive(Debug)]
struct Follower {
    expires: Time,
    /// The version that the server has.
    has: u64,
    /// When a STATE was sent last, and how often that state was sent.
    sent: Option<Time>,
    attempts: u8,
    /// When a STATE is sent, unless the server has it.
    due: Option<Time>,
}

/// What ends by time.
#[derive(Default, Debug)]
pub(super) struct Ended {
    /// Names that the server does not follow any more.
    pub(super) followers: Vec<Name>,
    /// Names of which the server has reported nothing for too long.
    pub(super) reports: Vec<Name>,
    /// Names about which the server is silent.
    pub(super) silent: Vec<Name>,
}

/// What a STATE or FOLLOWED has changed.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// Nothing: it is old, or not of a name that is followed there.
    Nothing,
    /// The report of a user is this one, until it expires.
    Report(Report, Time),
    /// The report of a user stays as it is, until then.
    Renew(Time),
    /// The user is not registered there: whether there was a report before, and why it ends.
    Absent(bool, Change),
}

#[derive(Debug)]
pub(super) struct Peer {
    followed: BTreeMap<Name, Followed>,
    followers: BTreeMap<Name, Follower>,
    /// Names whose FOLLOW is to be answered.
    answers: BTreeSet<Name>,
    /// STATEs that are to be acknowledged.
    acks: BTreeMap<Name, u64>,
    /// Names that are not followed at the server any more.
    ends: BTreeSet<Name>,
    messages: Rate,
    lifetime: Duration,
    max_lifetime: Duration,
    pace: Pace,
}

impl Peer {
    pub(super) fn new(config: &Config) -> Self {
        let &Config { messages, lifetime, max_lifetime, .. } = config;
        Peer {
            followed: BTreeMap::new(),
            followers: BTreeMap::new(),
            answers: BTreeSet::new(),
            acks: BTreeMap::new(),
            ends: BTreeSet::new(),
            messages,
            lifetime,
            max_lifetime,
            pace: Pace::new(messages),
        }
    }

    /// Returns whether nothing is known of the server, and it was sent little.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        let Peer { followed, followers, answers, acks, ends, pace, messages, .. } = self;
        let is_empty = followed.is_empty() && followers.is_empty() && answers.is_empty();
        is_empty && acks.is_empty() && ends.is_empty() && pace.available(now) == messages.burst
    }

    /// Follows a name at the server.
    pub(super) fn follow(&mut self, now: Time, name: &Name) {
        self.ends.remove(name);
        self.followed.entry(name.clone()).or_insert(Followed {
            due: now,
            unanswered: 0,
            version: 0,
            report: None,
            is_absent: false,
            pace: Pace::new(REPORTS),
        });
    }

    /// Does not follow a name at the server any more. Returns whether there was a report.
    pub(super) fn unfollow(&mut self, name: &Name) -> bool {
        let Some(followed) = self.followed.remove(name) else { return false };
        self.acks.remove(name);
        self.end(name);
        followed.report.is_some()
    }

    fn end(&mut self, name: &Name) {
        if self.ends.len() < MAX_ENDS {
            self.ends.insert(name.clone());
        }
    }

    /// Returns whether the server has answered the last FOLLOWs, and has not reported that the user is not there.
    pub(super) fn is_settled(&self, name: &str) -> bool {
        self.followed.get(name).is_some_and(|of| !of.is_absent && of.unanswered < SILENT)
    }

    /// Handles FOLLOWED.
    pub(super) fn followed(&mut self, now: Time, name: &str, version: u64) -> Heard {
        let followed = self.followed.get_mut(name).filter(|followed| followed.unanswered > 0);
        let Some(followed) = followed else { return Heard::Nothing };
        followed.unanswered = 0;
        followed.due = now + RENEW;
        match &mut followed.report {
            Some(expires) if version == followed.version => {
                *expires = now + self.lifetime;
                Heard::Renew(*expires)
            }
            // A STATE follows, or there is nothing to report.
            _ => Heard::Nothing,
        }
    }

    /// Handles STATE.
    pub(super) fn state(&mut self, now: Time, name: &str, version: u64, report: Report) -> Heard {
        let name: Name = name.into();
        let Some(followed) = self.followed.get_mut(&name) else {
            self.end(&name);
            return Heard::Nothing;
        };
        if version == 0 || is_older(version, followed.version) {
            return Heard::Nothing;
        }
        if version == followed.version {
            // The ACK was lost.
            self.acks.insert(name, version);
            return Heard::Nothing;
        }
        if followed.pace.available(now) == 0 {
            return Heard::Nothing;
        }
        followed.pace.take(now);
        self.acks.insert(name, version);
        followed.version = version;
        followed.is_absent = !report.state.is_registered;
        if followed.is_absent {
            return Heard::Absent(followed.report.take().is_some(), report.ended);
        }
        let expires = now + self.lifetime;
        followed.report = Some(expires);
        Heard::Report(report, expires)
    }

    /// Messages may have been lost: the server is asked for all names that are followed there.
    pub(super) fn renew(&mut self, now: Time) {
        for followed in self.followed.values_mut() {
            (followed.due, followed.unanswered) = (now, 0);
        }
    }

    /// The server is gone. Returns what ends by it: all that it has reported, and all that it follows.
    pub(super) fn end_all(self) -> (Vec<(Name, bool)>, Vec<Name>) {
        let reports = self.followed.into_iter().map(|(name, of)| (name, of.report.is_some()));
        (reports.collect(), self.followers.into_keys().collect())
    }

    /// Returns the number of names that the server follows here.
    pub(super) fn followers(&self) -> usize {
        self.followers.len()
    }

    /// Returns whether the server follows a name here.
    pub(super) fn is_follower(&self, name: &str) -> bool {
        self.followers.contains_key(name)
    }

    /// Handles FOLLOW: the server has `version`, and the present one is `present`, if it is known yet.
    pub(super) fn follows(
        &mut self,
        now: Time,
        name: Name,
        lifetime: u16,
        (version, present): (u64, Option<u64>),
    ) {
        let expires = now + Duration::from_secs(lifetime.into()).min(self.max_lifetime);
        let sent = self.followers.get(&name).and_then(|follower| follower.sent);
        let is_known = present.is_none_or(|present| present == version);
        let due = earliest(now, sent);
        let follower =
            Follower { expires, has: version, sent, attempts: 0, due: (!is_known).then_some(due) };
        self.answers.insert(name.clone());
        self.followers.insert(name, follower);
    }

    /// The server does not follow a name any more. Returns whether it did.
    pub(super) fn drop_follower(&mut self, name: &str) -> Option<Name> {
        let (name, _) = self.followers.remove_entry(name)?;
        self.answers.remove(&name);
        Some(name)
    }

    /// Removes any name that the server follows, and returns it.
    pub(super) fn drop_any_follower(&mut self) -> Option<Name> {
        let name = self.followers.keys().next_back()?.clone();
        self.drop_follower(&name)
    }

    /// The state of a name has changed.
    pub(super) fn changed(&mut self, now: Time, name: &Name, version: u64) {
        let Some(follower) = self.followers.get_mut(name) else { return };
        follower.attempts = 0;
        follower.due = (follower.has != version).then(|| earliest(now, follower.sent));
    }

    /// Handles ACK.
    pub(super) fn acknowledged(&mut self, name: &str, version: u64, present: u64) {
        if let Some(follower) = self.followers.get_mut(name).filter(|_| version == present) {
            follower.has = version;
            follower.due = None;
        }
    }

    /// Ends what is over.
    pub(super) fn expire(&mut self, now: Time) -> Ended {
        let mut ended = Ended::default();
        for (name, followed) in &mut self.followed {
            if followed.report.is_some_and(|expires| expires <= now) {
                (followed.report, followed.version) = (None, 0);
                ended.reports.push(name.clone());
            }
            if followed.unanswered == SILENT && followed.due <= now {
                ended.silent.push(name.clone());
            }
        }
        let over = self.followers.iter().filter(|(_, follower)| follower.expires <= now);
        ended.followers = over.map(|(name, _)| name.clone()).collect();
        ended.followers.iter().for_each(|name| _ = self.drop_follower(name));
        ended
    }

    /// Returns the messages that are due, as far as the pace allows.
    pub(super) fn transmit<I: ServerId>(
        &mut self,
        now: Time,
        locals: &Locals<I>,
        format: Format,
    ) -> Vec<Vec<u8>> {
        let mut batch = Batch::new(format, now, self.pace.available(now) as usize);
        self.answers.retain(|name| match locals.get(name) {
            Some((version, _)) => !batch.push(&Item::Followed { version, name }),
            None => false,
        });
        self.acks.retain(|name, version| !batch.push(&Item::Ack { version: *version, name }));
        self.ends.retain(|name| !batch.push(&Item::Follow { lifetime: 0, version: 0, name }));
        self.send_states(now, locals, &mut batch);
        self.send_follows(now, &mut batch);
        let messages = batch.into_messages();
        messages.iter().for_each(|_| self.pace.take(now));
        messages
    }

    fn send_states<I: ServerId>(&mut self, now: Time, locals: &Locals<I>, batch: &mut Batch) {
        for (name, follower) in &mut self.followers {
            if follower.due.is_none_or(|due| due > now) {
                continue;
            }
            let Some((version, state)) = locals.get(name) else { continue };
            if !batch.push(&Item::State { version, name, state }) {
                return;
            }
            let again = SEND_AGAIN * (1 << follower.attempts.min(MAX_SENT));
            follower.attempts += 1;
            follower.sent = Some(now);
            follower.due = (follower.attempts < MAX_SENT).then_some(now + again);
        }
    }

    fn send_follows(&mut self, now: Time, batch: &mut Batch) {
        if self.followed.values().all(|followed| followed.due > now) {
            return;
        }
        let lifetime = self.lifetime.as_secs() as u16;
        for (name, followed) in &mut self.followed {
            let early = if followed.unanswered == 0 { EARLY } else { Duration::ZERO };
            if followed.due > now + early {
                continue;
            }
            if !batch.push(&Item::Follow { lifetime, version: followed.version, name }) {
                return;
            }
            followed.due = now
                + match followed.unanswered {
                    sent if sent < SILENT => ASK_AGAIN * (1 << sent),
                    _ => RENEW,
                };
            followed.unanswered = followed.unanswered.saturating_add(1);
        }
    }

    /// Returns when something is due.
    pub(super) fn poll_timeout(&self, now: Time) -> Option<Time> {
        let waits = !self.answers.is_empty() || !self.acks.is_empty() || !self.ends.is_empty();
        let followed = self.followed.values().map(|followed| followed.due);
        let states = self.followers.values().filter_map(|follower| follower.due);
        let sends = followed.chain(states).chain(waits.then_some(now)).min();
        let reports = self.followed.values().filter_map(|of| of.report);
        let ends = reports.chain(self.followers.values().map(|follower| follower.expires)).min();
        let Rate { interval, burst } = self.messages;
        let is_spent = self.pace.available(now) < burst && sends.is_none() && ends.is_none();
        let sends = sends.map(|at| at.max(self.pace.next()));
        sooner(sooner(sends, ends), is_spent.then(|| now + interval * burst))
    }
}

/// Returns when a state may be sent that has changed, or that is asked for again.
fn earliest(now: Time, sent: Option<Time>) -> Time {
    sent.map_or(now, |sent| now.max(sent + MIN_INTERVAL))
}

/// Returns whether a version was superseded before: those of another life of the server are not.
fn is_older(version: u64, known: u64) -> bool {
    version >> 32 == known >> 32 && version < known
}
