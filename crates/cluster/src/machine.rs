//! One node: leases, what it publishes and reads, deadlines.
//!
//! The database is asked on three lanes (the lease, changes, reads), each with one command under way. It counts as there
//! when it has renewed the lease in time, and as absent as soon as a command fails or is late. While it is absent only the
//! lease is tried, registrations are refused at once, and calls go on from what this node knows.

use std::collections::VecDeque;

use ringway_proxy::config::NodeKey;
use ringway_proxy::location::CommitTag;
use ringway_proxy::{AskId, Reply};
use ringway_sansio::Time;
use ringway_sansio::time::sooner;

use crate::asks::Asks;
use crate::cache::{Cache, Server};
use crate::config::{
    Config, LEASE, MAX_WAITING, MEET_INTERVAL, RENEW_INTERVAL, RENEW_LIMIT, REPORT_INTERVAL,
    RETRY_INTERVAL,
};
use crate::nodes::Nodes;
use crate::own::Own;
use crate::record::{Found, Lease, Message, NodeName, Publication};

/// A command for the database. Each is answered by one [`Report`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Renew the lease of this run: [`Report::Renewed`].
    Renew {
        /// The run.
        boot: u64,
    },
    /// End the lease of this run: [`Report::Left`].
    Leave {
        /// The run.
        boot: u64,
    },
    /// Publish changes of this run, and have replicas take them: [`Report::Published`].
    Publish {
        /// The run.
        boot: u64,
        /// The changes.
        changes: Vec<Publication>,
    },
    /// Read users: [`Report::Read`].
    Read(Vec<Box<[u8]>>),
}

/// What the database has answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// The leases of all nodes, and the number of replicas that have this one's; none if a later run of a node of this name
    /// has the lease. `None` if the command has failed.
    Renewed(Option<(Vec<Lease>, u32)>),
    /// What became of each change; of none if the command has failed.
    Published(Vec<Written>),
    /// What was found of each user; of none if the command has failed.
    Read(Vec<Reading>),
    /// Whether the lease has ended.
    Left(bool),
    /// The connection for a command was lost, and another carries it.
    Reconnected,
    /// Changes are reported from now on.
    Subscribed,
    /// Changes are no longer reported.
    Unsubscribed,
    /// A change.
    Heard(Message),
}

/// What the database has done with a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It has it, and so have this many replicas.
    Stored(u32),
    /// A later run of a node of this name has published the user.
    Outrun {
        /// That run.
        boot: u64,
    },
    /// The key of the user has what is not ours.
    Unusable,
    /// It does not have it.
    Failed,
}

/// What the database knows of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reading {
    /// The nodes.
    Found(Vec<Found>),
    /// The key of the user has what is not ours.
    Unusable,
    /// Nothing was read.
    Failed,
}

/// The state of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It does not answer.
    Absent,
    /// A later run of a node of this name has the lease.
    Superseded,
    /// It answers, and has too few replicas.
    Unreplicated {
        /// The number of replicas.
        replicas: u32,
    },
    /// Registrations are taken.
    Ready,
}

/// What the machine has to say to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A registration is in the database and on the disk, or is not.
    Committed {
        /// The registration.
        tag: CommitTag,
        /// Whether it is.
        stored: bool,
    },
    /// The reply to a question.
    Answered {
        /// The worker.
        worker: u8,
        /// Its question.
        id: AskId,
        /// The reply.
        reply: Reply,
    },
    /// The other nodes that live.
    Nodes(Vec<NodeName>),
    /// The database has another state.
    State(State),
    /// The key of this user has what is not ours; reported at most once in [`REPORT_INTERVAL`].
    Unusable(Box<[u8]>),
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Whether registrations are taken.
    pub ready: bool,
    /// Whether the database answers.
    pub present: bool,
    /// The number of its replicas, as it was reported last.
    pub replicas: u32,
    /// Other nodes that live.
    pub nodes: usize,
    /// Users of this node.
    pub users: usize,
    /// Registrations that wait for the database.
    pub waiting: usize,
    /// Requests that wait for a read.
    pub asks: usize,
    /// Users of whom something is remembered.
    pub cached: usize,
    /// Changes that are in the database.
    pub published: u64,
    /// Users that were read.
    pub read: u64,
    /// Registrations refused because the database is absent or has too few replicas, or too many wait.
    pub refused: u64,
    /// Registrations that the database did not take in time.
    pub failed: u64,
    /// Questions without an answer.
    pub unanswered: u64,
    /// Times at which the database became absent.
    pub outages: u64,
    /// Times at which changes were no longer reported.
    pub gaps: u64,
    /// Changes that were reported of users of whom something is remembered.
    pub invalidated: u64,
    /// Changes and reads that found a key with what is not ours.
    pub unusable: u64,
}

/// Whether the node is about to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stay {
    /// It has a lease.
    Stays,
    /// Its lease is to end.
    Leaves,
    /// Its lease has ended.
    Left,
}

/// A command under way, or the time of the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    Idle { next: Time },
    Busy { since: Time, late: bool },
}

impl Lane {
    const READY: Lane = Lane::Idle { next: Time::ZERO };

    fn may_begin(self, now: Time) -> bool {
        matches!(self, Lane::Idle { next } if next <= now)
    }
}

/// One node of a cluster.
pub struct Machine {
    config: Config,
    own: Own,
    asks: Asks,
    cache: Cache,
    nodes: Nodes,
    state: State,
    stay: Stay,
    /// A later run that has published a user of this node, and when that was heard, until it is certain whether it lives.
    outrun: Option<(u64, Time)>,
    /// Time until which unusable keys are not reported.
    silent: Time,
    /// Whether the state was reported: what is absent at the start is, when that is certain.
    reported: bool,
    renew: Lane,
    /// The time at which the last renewal began.
    renewal_began: Time,
    /// A run that was not known and was heard of before it, and one since then.
    meeting: Option<(NodeName, u64)>,
    meets: Option<(NodeName, u64)>,
    /// Until this time, runs that are not known wait for the next renewal.
    meets_from: Time,
    publish: Lane,
    read: Lane,
    /// Number of the period without a gap in the reports of changes, and whether they are reported.
    epoch: u64,
    subscribed: bool,
    /// The epoch in which the read under way began.
    read_epoch: Option<u64>,
    commands: VecDeque<Command>,
    events: VecDeque<Event>,
    counts: Counts,
}

impl Machine {
    /// Returns a node that does not know the database yet.
    pub fn new(config: Config) -> Self {
        let nodes = Nodes::new(config.name);
        Machine {
            config,
            own: Own::default(),
            asks: Asks::default(),
            cache: Cache::default(),
            nodes,
            state: State::Absent,
            stay: Stay::Stays,
            outrun: None,
            silent: Time::ZERO,
            reported: false,
            renew: Lane::READY,
            renewal_began: Time::ZERO,
            meeting: None,
            meets: None,
            meets_from: Time::ZERO,
            publish: Lane::READY,
            read: Lane::READY,
            epoch: 1,
            subscribed: false,
            read_epoch: None,
            commands: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Returns what the node is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether a registration may be taken: it can be expected to be acknowledged. One that may not is counted.
    pub fn takes_registrations(&mut self) -> bool {
        let takes = self.state == State::Ready
            && self.stay == Stay::Stays
            && self.own.waiting() < MAX_WAITING;
        self.counts.refused += u64::from(!takes);
        takes
    }

    /// The node is about to stop: its lease ends, so that other nodes send nothing here any more, and no registration is
    /// taken.
    pub fn leave(&mut self) {
        if self.stay == Stay::Stays {
            self.stay = Stay::Leaves;
            // After the renewal under way, if there is one: that must not come second.
            if let Lane::Idle { .. } = self.renew {
                self.renew = Lane::READY;
            }
        }
    }

    /// Returns whether the lease has ended for good.
    pub fn has_left(&self) -> bool {
        self.stay == Stay::Left
    }

    /// A user has bindings here with this q until this time, or none. `waits` is the registration that is acknowledged when
    /// the database has it, and the disk ([`Machine::on_disk`]). Returns the state before.
    pub fn changed(
        &mut self,
        user: &[u8],
        state: Option<(u16, Time)>,
        waits: Option<CommitTag>,
    ) -> Option<(u16, Time)> {
        self.own.change(user, state, waits)
    }

    /// The disk has a registration, or has failed to take it. Returns whether it is over, and the caller reports it.
    pub fn on_disk(&mut self, tag: CommitTag, ok: bool) -> bool {
        self.own.on_disk(tag, ok)
    }

    /// A registration was refused by the disk: nobody waits for it any more, and the user is as before.
    pub fn cancel(&mut self, user: &[u8], before: Option<(u16, Time)>, tag: CommitTag) {
        self.own.cancel(tag);
        self.own.change(user, before, None);
    }

    /// Visits the other nodes at which a user is registered, with their keys and q. Returns whether there are any; `None` if
    /// the database must be asked.
    pub fn visit(
        &mut self,
        user: &[u8],
        now: Time,
        visit: &mut dyn FnMut(NodeName, NodeKey, u16),
    ) -> Option<bool> {
        let is_absent = self.is_absent();
        let epoch = self.reported_epoch();
        let entry = self.cache.get(user)?;
        // While the database is absent, what was known last is the best there is.
        if !is_absent && !entry.is_fresh(now, epoch) {
            return None;
        }
        let nodes = &self.nodes;
        let has_not_ended = |server: &&Server| now < server.ends;
        let mut exists = false;
        for server in entry.servers().iter().filter(has_not_ended) {
            if let Some(key) = nodes.key(server.node, server.boot) {
                exists = true;
                visit(server.node, key, server.q);
            }
        }
        Some(exists)
    }

    /// Answers a question for the nodes of a user now, or later by [`Event::Answered`].
    pub fn ask(&mut self, user: &[u8], worker: u8, id: AskId) -> Option<Reply> {
        if !self.is_absent() && self.asks.ask(user, (worker, id)) {
            return None;
        }
        self.counts.unanswered += 1;
        Some(Reply::Unavailable)
    }

    /// Processes what the database has answered.
    pub fn handle(&mut self, now: Time, report: Report) {
        match report {
            Report::Renewed(renewed) => self.renewed(now, renewed),
            Report::Published(results) => self.published(now, &results),
            Report::Read(results) => self.was_read(now, results),
            Report::Left(done) => {
                self.renew =
                    if done { Lane::READY } else { Lane::Idle { next: now + RETRY_INTERVAL } };
                self.stay = if done { Stay::Left } else { self.stay };
            }
            Report::Reconnected => self.send_again(),
            Report::Subscribed => {
                self.subscribed = true;
                self.epoch += 1;
            }
            Report::Unsubscribed => {
                self.counts.gaps += u64::from(self.subscribed);
                self.subscribed = false;
            }
            Report::Heard(Message::User(user)) => {
                self.asks.changed(&user);
                self.counts.invalidated += u64::from(self.cache.changed(&user));
            }
            Report::Heard(Message::Left(node)) => self.nodes.left(now, node),
            Report::Heard(Message::Renewed { node, boot }) => self.meet(now, node, boot),
        }
        self.handle_timeout(now);
    }

    /// Another node has renewed its lease. Where this run of it is not known, the leases are read soon: the users who register
    /// there are to be called from here.
    fn meet(&mut self, now: Time, node: NodeName, boot: u64) {
        let is_known = node == self.config.name || self.nodes.has_heard_of(node, boot);
        if now < self.meets_from || is_known {
            return;
        }
        self.meets = Some((node, boot));
        if let Lane::Idle { next } = &mut self.renew {
            *next = (*next).min(self.renewal_began + MEET_INTERVAL);
        }
    }

    /// The leases were read.
    fn was_met(&mut self, now: Time) {
        let is_unknown = |(node, boot): &(NodeName, u64)| !self.nodes.has_heard_of(*node, *boot);
        if self.meeting.is_some_and(|run| is_unknown(&run)) {
            // It is not among the leases: there are too many, or somebody else reports it.
            self.meets_from = now + LEASE;
        }
        self.meets = self.meets.filter(is_unknown);
        if let Lane::Idle { next } = &mut self.renew
            && self.meets.is_some()
        {
            *next = self.renewal_began + MEET_INTERVAL;
        }
    }

    /// Does what is due, and begins commands.
    pub fn handle_timeout(&mut self, now: Time) {
        self.own.date(now);
        self.asks.date(now);
        self.check_deadlines(now);
        if !self.is_absent() {
            self.nodes.expire(now);
        }
        if let Some(names) = self.nodes.take_change() {
            self.events.push_back(Event::Nodes(names));
        }
        if self.renew.may_begin(now) && self.stay != Stay::Left {
            self.renew = Lane::Busy { since: now, late: false };
            (self.renewal_began, self.meeting) = (now, self.meets.take());
            let boot = self.config.boot;
            self.commands.push_back(match self.stay {
                Stay::Leaves => Command::Leave { boot },
                _ => Command::Renew { boot },
            });
        }
        if self.is_absent() {
            return;
        }
        if self.publish.may_begin(now)
            && let Some(changes) = self.own.begin(now)
        {
            self.publish = Lane::Busy { since: now, late: false };
            self.commands.push_back(Command::Publish { boot: self.config.boot, changes });
        }
        if self.read.may_begin(now)
            && let Some(users) = self.asks.begin()
        {
            self.read = Lane::Busy { since: now, late: false };
            self.read_epoch = self.reported_epoch();
            self.commands.push_back(Command::Read(users));
        }
    }

    /// Returns the time at which [`Machine::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        let renew = match self.renew {
            _ if self.stay == Stay::Left => None,
            Lane::Idle { next } => Some(next),
            Lane::Busy { since, late: false } => Some(since + RENEW_LIMIT),
            Lane::Busy { late: true, .. } => None,
        };
        let publish = match self.publish {
            Lane::Idle { next } if !self.is_absent() => {
                self.own.next_change().map(|at| at.max(next))
            }
            _ => None,
        };
        let lease = self.nodes.next_end().filter(|_| !self.is_absent());
        let deadlines = sooner(self.own.next_deadline(), self.asks.next_deadline());
        sooner(sooner(renew, publish), sooner(lease, deadlines))
    }

    /// Returns the next command for the database.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Returns the next event for the server.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns what is counted.
    pub fn counts(&self) -> Counts {
        Counts {
            ready: self.state == State::Ready,
            present: !self.is_absent(),
            nodes: self.nodes.len(),
            users: self.own.len(),
            waiting: self.own.waiting(),
            asks: self.asks.len(),
            cached: self.cache.len(),
            ..self.counts
        }
    }

    /// Returns the state of the database.
    pub fn state(&self) -> State {
        self.state
    }

    fn is_absent(&self) -> bool {
        matches!(self.state, State::Absent | State::Superseded)
    }

    fn reported_epoch(&self) -> Option<u64> {
        self.subscribed.then_some(self.epoch)
    }

    fn check_deadlines(&mut self, now: Time) {
        if let Lane::Busy { since, late: false } = self.renew
            && since + RENEW_LIMIT <= now
        {
            self.renew = Lane::Busy { since, late: true };
            self.is_now(now, State::Absent);
        }
        let mut outcomes = Vec::new();
        let overdue = self.own.overdue(now, &mut outcomes);
        self.report(outcomes);
        let asked = self.asks.overdue(now);
        let is_late = overdue > 0 || !asked.is_empty();
        self.unavailable(asked);
        if is_late && !self.is_absent() {
            self.is_now(now, State::Absent);
        }
    }

    fn renewed(&mut self, now: Time, renewed: Option<(Vec<Lease>, u32)>) {
        let Lane::Busy { since, late } = self.renew else { return };
        let next = now + if renewed.is_some() { RENEW_INTERVAL } else { RETRY_INTERVAL };
        self.renew = if self.stay == Stay::Stays { Lane::Idle { next } } else { Lane::READY };
        let Some((leases, replicas)) = renewed else { return self.is_now(now, State::Absent) };
        let outrun = self.outrun.take_if(|(_, heard)| *heard <= since);
        if leases.is_empty() {
            return self.is_now(now, State::Superseded);
        }
        if let Some((boot, _)) = outrun {
            self.run_after(boot);
        }
        self.nodes.read(now, &leases);
        self.was_met(now);
        if late {
            // It answers, but too slowly to wait for.
            self.renew = Lane::READY;
            return;
        }
        if self.is_absent() {
            self.nodes.extend(now);
        }
        self.replicas(now, replicas);
    }

    fn replicas(&mut self, now: Time, replicas: u32) {
        self.counts.replicas = replicas;
        let enough = replicas >= self.config.replicas;
        self.is_now(now, if enough { State::Ready } else { State::Unreplicated { replicas } });
    }

    fn published(&mut self, now: Time, results: &[Written]) {
        self.publish = Lane::READY;
        let mut outcomes = Vec::new();
        let unusable = self.own.end(now, results, self.config.replicas, &mut outcomes);
        self.report(outcomes);
        let is_failed = |result: &Written| *result == Written::Failed;
        let stored = results.iter().filter_map(|result| match result {
            Written::Stored(replicas) => Some(*replicas),
            _ => None,
        });
        self.counts.published += stored.clone().count() as u64;
        if results.iter().all(is_failed) {
            self.is_now(now, State::Absent);
        } else if let Some(replicas) = stored.min().filter(|_| !self.is_absent()) {
            self.replicas(now, replicas);
        }
        let outrun = results.iter().filter_map(|result| match result {
            Written::Outrun { boot } => Some(*boot),
            _ => None,
        });
        if let Some(boot) = outrun.max() {
            self.outrun = Some((boot, now));
            // The next renewal shows whether that run lives.
            if let Lane::Idle { .. } = self.renew {
                self.renew = Lane::READY;
            }
        }
        if self.outrun.is_some() || results.iter().any(is_failed) {
            // A part of the database is absent; the rest must not be asked for it all the time.
            self.publish = Lane::Idle { next: now + RETRY_INTERVAL };
        }
        self.counts.unusable += unusable.len() as u64;
        if let Some(user) = unusable.into_iter().next() {
            self.report_unusable(now, user);
        }
    }

    /// The lease is this run's, so no later run of a node of this name lives: this one takes the number after its.
    fn run_after(&mut self, boot: u64) {
        self.config.boot = self.config.boot.max(boot.saturating_add(1));
        self.renew = Lane::READY;
        if let Lane::Idle { .. } = self.publish {
            self.publish = Lane::READY;
        }
        self.send_again();
    }

    fn report_unusable(&mut self, now: Time, user: Box<[u8]>) {
        if self.silent <= now {
            self.silent = now + REPORT_INTERVAL;
            self.events.push_back(Event::Unusable(user));
        }
    }

    fn was_read(&mut self, now: Time, results: Vec<Reading>) {
        self.read = Lane::READY;
        let epoch = self.read_epoch.take();
        let is_absent = results.iter().all(|result| *result == Reading::Failed);
        let mut results = results.into_iter();
        for (user, changed) in self.asks.end() {
            let asked = self.asks.take(&user);
            let mut found = match results.next() {
                Some(Reading::Found(found)) => found,
                unread => {
                    self.unavailable(asked);
                    if unread == Some(Reading::Unusable) {
                        self.counts.unusable += 1;
                        self.report_unusable(now, user);
                    }
                    continue;
                }
            };
            found.retain(|found| found.node != self.config.name);
            self.counts.read += 1;
            self.cache.read(now, user, epoch.filter(|_| !changed), &found);
            for (worker, id) in asked {
                self.events.push_back(Event::Answered { worker, id, reply: Reply::Located });
            }
        }
        if is_absent {
            self.is_now(now, State::Absent);
        }
    }

    /// The database has this state.
    fn is_now(&mut self, now: Time, state: State) {
        let before = std::mem::replace(&mut self.state, state);
        if before == state && self.reported {
            return;
        }
        self.reported = true;
        self.events.push_back(Event::State(state));
        if self.is_absent() {
            self.counts.outages += u64::from(!matches!(before, State::Absent | State::Superseded));
            let mut outcomes = Vec::new();
            self.own.fail_all(&mut outcomes);
            self.report(outcomes);
            let asked = self.asks.take_all();
            self.unavailable(asked);
            // It is tried again soon, but not at once.
            if let Lane::Idle { next } = self.renew {
                self.renew = Lane::Idle { next: next.min(now + RETRY_INTERVAL) };
            }
            return;
        }
        if before != State::Ready {
            self.send_again();
        }
    }

    /// What the database had may be lost: it was away, or a replica that lacked something has become the primary.
    fn send_again(&mut self) {
        self.epoch += 1;
        self.own.send_again();
    }

    fn report(&mut self, outcomes: Vec<(CommitTag, bool)>) {
        for (tag, stored) in outcomes {
            self.counts.failed += u64::from(!stored);
            self.events.push_back(Event::Committed { tag, stored });
        }
    }

    fn unavailable(&mut self, asked: Vec<(u8, AskId)>) {
        self.counts.unanswered += asked.len() as u64;
        for (worker, id) in asked {
            self.events.push_back(Event::Answered { worker, id, reply: Reply::Unavailable });
        }
    }
}
