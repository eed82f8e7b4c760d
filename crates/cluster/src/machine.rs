//! One node: leases, what it publishes and reads, deadlines.
//!
//! Each shard of the database is asked on three lanes (probes, changes, reads), each with one command under way; a database
//! of one server is one shard. The renewal of the lease is the probe of the shard that has the leases, which is asked on one
//! more lane for the secrets of tokens. A shard counts as there when it has answered a probe in time, and as absent as soon as
//! a command fails or is late. While it is absent only probes are tried, registrations of its users are refused at once, and
//! calls to them go on from what this node knows. So no shard waits for another.

use std::collections::{BTreeSet, VecDeque};

use ringway_proxy::config::NodeKey;
use ringway_proxy::location::CommitTag;
use ringway_proxy::states::OTHER_SERVERS;
use ringway_proxy::{AskId, Reply};
use ringway_sansio::time::sooner;
use ringway_sansio::{Duration, Time};

use crate::asks::Asks;
use crate::cache::{self, Cache, Server};
use crate::config::{
    Config, LEASE, LOOK_PAUSE, MAX_WAITING, MEET_INTERVAL, MOVED_PAUSE, RENEW_INTERVAL,
    REPORT_INTERVAL, RETRY_INTERVAL,
};
pub use crate::exchange::{Command, Counts, Event, Probed, Reading, Report, State, Written};
use crate::holds::Holds;
use crate::nodes::Nodes;
use crate::own::Own;
use crate::presence::Presence;
use crate::record::{Lease, Message, NodeName};
use crate::secrets::Secrets;
use crate::shards::{Entry, Lane, Shards};
use crate::slots::{Shard, Slots, slot_of_user};

/// Whether the node is about to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stay {
    /// It has a lease.
    Stays,
    /// It has one, and takes no registrations any more.
    Moves,
    /// Its lease is to end.
    Leaves,
    /// Its lease has ended.
    Left,
}

/// One node of a cluster.
pub struct Machine {
    config: Config,
    own: Own,
    asks: Asks,
    holds: Holds,
    cache: Cache,
    nodes: Nodes,
    secrets: Secrets,
    shards: Shards,
    /// The state of the whole database, as it was reported.
    state: Option<State>,
    stay: Stay,
    /// A later run that has published a user of this node, and when that was heard, until it is certain whether it lives.
    outrun: Option<(u64, Time)>,
    /// Time until which unusable keys are not reported.
    silent: Time,
    renew: Lane,
    /// The shard that the last renewal was sent to.
    renewing: Shard,
    /// The time at which the last renewal began, and that at which the last one began that has read the leases.
    renewal_began: Time,
    leases_read: Time,
    /// A run that was not known and was heard of before it, and one since then.
    meeting: Option<(NodeName, u64)>,
    meets: Option<(NodeName, u64)>,
    /// Until this time, runs that are not known wait for the next renewal.
    meets_from: Time,
    /// Number of the period without a gap in the reports of changes, and whether they are reported.
    epoch: u64,
    subscribed: bool,
    /// Users whose changes are reported to the server.
    followed: BTreeSet<Box<[u8]>>,
    commands: VecDeque<Command>,
    events: VecDeque<Event>,
    counts: Counts,
}

impl Machine {
    /// Returns a node that does not know the database yet.
    pub fn new(config: Config) -> Self {
        let nodes = Nodes::new(config.name);
        let slots = if config.sharded { Slots::none() } else { Slots::whole() };
        Machine {
            config,
            own: Own::default(),
            asks: Asks::default(),
            holds: Holds::default(),
            cache: Cache::default(),
            nodes,
            secrets: Secrets::new(),
            shards: Shards::new(slots),
            state: None,
            stay: Stay::Stays,
            outrun: None,
            silent: Time::ZERO,
            renew: Lane::READY,
            renewing: Shard::whole(),
            renewal_began: Time::ZERO,
            leases_read: Time::ZERO,
            meeting: None,
            meets: None,
            meets_from: Time::ZERO,
            epoch: 1,
            subscribed: false,
            followed: BTreeSet::new(),
            commands: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Returns what the node is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether a registration of a user may be taken: it can be expected to be acknowledged. One that may not is
    /// counted.
    pub fn takes_registrations(&mut self, user: &[u8]) -> bool {
        let takes = self.shards.state(slot_of_user(user)) == State::Ready
            && self.stay == Stay::Stays
            && self.own.waiting() < MAX_WAITING;
        self.counts.refused += u64::from(!takes);
        takes
    }

    /// The phones of this node are moved to others before it stops: no registration is taken, and calls come as before.
    pub fn move_phones(&mut self) {
        if self.stay == Stay::Stays {
            self.stay = Stay::Moves;
        }
    }

    /// The node is about to stop: its lease ends, so that other nodes send nothing here any more, and no registration is
    /// taken.
    pub fn leave(&mut self) {
        if matches!(self.stay, Stay::Stays | Stay::Moves) {
            self.stay = Stay::Leaves;
            // After the renewal under way, if there is one: that must not come second.
            self.renew.hasten(Time::ZERO);
        }
    }

    /// Returns whether the lease has ended for good.
    pub fn has_left(&self) -> bool {
        self.stay == Stay::Left
    }

    /// A user has bindings here, or none. `waits` is the registration that is acknowledged when
    /// the database has it, and the disk ([`Machine::on_disk`]). Returns the state before.
    pub fn changed(
        &mut self,
        user: &[u8],
        state: Option<Presence>,
        waits: Option<CommitTag>,
    ) -> Option<Presence> {
        self.own.change(user, state, waits)
    }

    /// The disk has a registration, or has failed to take it. Returns whether it is over, and the caller reports it.
    pub fn on_disk(&mut self, tag: CommitTag, ok: bool) -> bool {
        self.own.on_disk(tag, ok)
    }

    /// A registration was refused by the disk: nobody waits for it any more, and the user is as before.
    pub fn cancel(&mut self, user: &[u8], before: Option<Presence>, tag: CommitTag) {
        self.own.cancel(tag);
        self.own.change(user, before, None);
    }

    /// Visits the other nodes at which a user is registered, with their keys. Returns whether there are any; `None` if
    /// the database must be asked, or the only node of the user is being restarted.
    pub fn visit(
        &mut self,
        user: &[u8],
        now: Time,
        visit: &mut dyn FnMut(&Server, NodeKey),
    ) -> Option<bool> {
        let (entry, nodes, is_absent) = self.known(user, now)?;
        let has_not_ended = |server: &&Server| now < server.ends;
        let (mut exists, mut is_expected) = (false, false);
        for server in entry.servers().iter().filter(has_not_ended) {
            let of_run = nodes.key(server.node, server.boot);
            // A later run has published what it has of this one, and that cannot be read now.
            if let Some(key) =
                of_run.or_else(|| nodes.latest_key(server.node).filter(|_| is_absent))
            {
                exists = true;
                visit(server, key);
            } else {
                is_expected |= nodes.expected_until(server.node, server.boot, now).is_some();
            }
        }
        let waits = !exists && is_expected && !is_absent && !self.own.has(user);
        (!waits).then_some(exists)
    }

    /// Returns what is known of a user, the nodes, and whether the shard of the user is absent; `None` if the database must be
    /// asked.
    fn known(&mut self, user: &[u8], now: Time) -> Option<(&cache::Entry, &Nodes, bool)> {
        let is_absent = self.has_no_shard(user);
        let epoch = self.reported_epoch();
        let entry = self.cache.get(user)?;
        // While the shard is absent, what was known last is the best there is.
        (is_absent || entry.is_fresh(now, epoch)).then_some((entry, &self.nodes, is_absent))
    }

    /// Returns the runs of other nodes at which a user is registered; `None` if the database must be asked.
    pub fn registered_at(&mut self, user: &[u8], now: Time) -> Option<Vec<(NodeName, u64)>> {
        let (entry, nodes, _) = self.known(user, now)?;
        let lives = |of: &&Server| now < of.ends && nodes.key(of.node, of.boot).is_some();
        Some(entry.servers().iter().filter(lives).map(|of| (of.node, of.boot)).collect())
    }

    /// Returns until when requests for a user wait, whose only node is being restarted; `None` if they need not, or what is known
    /// is not fresh.
    fn held_until(&mut self, user: &[u8], now: Time) -> Option<Time> {
        if self.has_no_shard(user) || self.visit(user, now, &mut |_, _| {}).is_some() {
            return None;
        }
        let (entry, nodes, _) = self.known(user, now)?;
        let ends = entry.servers().iter().filter(|server| now < server.ends);
        ends.filter_map(|server| nodes.expected_until(server.node, server.boot, now)).max()
    }

    /// Has changes of a user be reported by [`Event::Moved`], or not any more. The caller bounds how many users it follows.
    pub fn follow(&mut self, user: &[u8], is_followed: bool) {
        match is_followed {
            true => _ = self.followed.insert(user.into()),
            false => _ = self.followed.remove(user),
        }
    }

    /// Returns this run, and those of the other nodes that live.
    pub fn runs(&self) -> ((NodeName, u64), Vec<(NodeName, u64)>) {
        ((self.config.name, self.config.boot), self.nodes.runs().collect())
    }

    /// Returns whether this run of another node lives.
    pub fn lives(&self, node: NodeName, boot: u64) -> bool {
        self.nodes.key(node, boot).is_some()
    }

    /// Answers a question for the nodes of a user now, or later by [`Event::Answered`]. One of [`OTHER_SERVERS`] does not wait for
    /// a node that is being restarted.
    pub fn ask(&mut self, now: Time, user: &[u8], worker: u8, id: AskId) -> Option<Reply> {
        let asked = (worker, id);
        let held = self.held_until(user, now).filter(|_| worker != OTHER_SERVERS);
        let is_taken = match held {
            Some(until) => self.holds.add(user, until, asked),
            None => !self.has_no_shard(user) && self.asks.ask(user, asked),
        };
        if is_taken {
            return None;
        }
        self.counts.unanswered += 1;
        Some(Reply::Unavailable)
    }

    /// Answers questions about a user of whom more may be known now, or has them wait: for a read, or for a node.
    fn answer(&mut self, now: Time, user: &[u8], asked: Vec<(u8, AskId)>) {
        let is_known = self.visit(user, now, &mut |_, _| {}).is_some();
        for (worker, id) in asked {
            let reply = if is_known || worker == OTHER_SERVERS {
                Some(Reply::Located)
            } else {
                self.ask(now, user, worker, id)
            };
            if let Some(reply) = reply {
                self.events.push_back(Event::Answered { worker, id, reply });
            }
        }
    }

    /// Other nodes live than before: some of those that were awaited, perhaps.
    fn answer_held(&mut self, now: Time) {
        for user in self.holds.users() {
            let asked = self.holds.take(&user);
            self.answer(now, &user, asked);
        }
    }

    /// Processes what the database has answered.
    pub fn handle(&mut self, now: Time, report: Report) {
        match report {
            Report::Renewed(renewed) => self.renewed(now, renewed),
            Report::Published(shard, results) => self.published(now, &shard, &results),
            Report::Read(shard, results) => self.was_read(now, &shard, results),
            Report::Probed(shard, probed) => self.probed(now, &shard, probed),
            Report::Shared(found) => {
                if self.secrets.are_unusable(now, found.as_deref()) {
                    self.events.push_back(Event::UnusableSecrets);
                }
                self.events.extend(self.secrets.read(now, found).map(Event::Secrets));
            }
            Report::Slots(slots) => self.slots(now, slots),
            Report::Left(done) => {
                self.renew =
                    if done { Lane::READY } else { Lane::Idle { next: now + RETRY_INTERVAL } };
                self.stay = if done { Stay::Left } else { self.stay };
            }
            Report::Reconnected(shard) => self.send_again(&[shard]),
            Report::Subscribed => {
                self.subscribed = true;
                self.epoch += 1;
                self.events.push_back(Event::Gap);
                // Which nodes have renewed their leases was not heard meanwhile.
                self.renew.hasten(self.renewal_began + MEET_INTERVAL);
            }
            Report::Unsubscribed => {
                self.counts.gaps += u64::from(self.subscribed);
                self.subscribed = false;
            }
            Report::Heard(Message::User(user)) => {
                self.asks.changed(&user);
                self.counts.invalidated += u64::from(self.cache.changed(&user));
                if self.followed.contains(&user) {
                    self.events.push_back(Event::Moved(user.clone()));
                }
                let asked = self.holds.take(&user);
                if asked.is_empty() {
                    // There may be thousands a second, and nothing is due for them.
                    return;
                }
                self.answer(now, &user, asked);
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
        self.renew.hasten(self.renewal_began + MEET_INTERVAL);
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
        self.expire_leases(now);
        if let Some(names) = self.nodes.take_change() {
            self.events.push_back(Event::Nodes(names));
            self.answer_held(now);
        }
        let gone = self.nodes.take_gone();
        if !gone.is_empty() {
            self.events.push_back(Event::Gone(gone));
        }
        let mut outcomes = Vec::new();
        self.own.sort(now, &self.shards, &mut outcomes);
        self.report(outcomes);
        let asked = self.asks.sort(&self.shards);
        self.unavailable(asked);
        self.begin_renewal(now);
        self.begin_sharing(now);
        for shard in self.shards.names().iter() {
            self.begin(now, shard);
        }
    }

    fn expire_leases(&mut self, now: Time) {
        if self.shards.leases_are_absent() {
            return;
        }
        // One that leaves reads no leases any more.
        let reads_leases = matches!(self.stay, Stay::Stays | Stay::Moves);
        let reading = if reads_leases { self.leases_read } else { now };
        if self.nodes.expire(now, reading) {
            self.renew.hasten(self.renewal_began + MEET_INTERVAL);
        }
    }

    fn begin_renewal(&mut self, now: Time) {
        let may_begin = self.renew.may_begin(now) && self.stay != Stay::Left;
        let Some(shard) = self.shards.of_leases().filter(|_| may_begin).cloned() else { return };
        self.renew = Lane::Busy { since: now, late: false };
        (self.renewal_began, self.meeting) = (now, self.meets.take());
        self.renewing = shard.clone();
        let boot = self.config.boot;
        self.commands.push_back(match self.stay {
            Stay::Leaves => Command::Leave { shard, boot },
            _ => Command::Renew { shard, boot },
        });
    }

    fn begin_sharing(&mut self, now: Time) {
        let is_there = !self.shards.leases_are_absent() && self.stay == Stay::Stays;
        let Some(shard) = self.shards.of_leases().filter(|_| is_there).cloned() else { return };
        let known = self.secrets.begin(now);
        self.commands.extend(known.map(|known| Command::Share { shard, known }));
    }

    /// Begins what may begin at a shard.
    fn begin(&mut self, now: Time, shard: &Shard) {
        let has_leases = self.shards.of_leases() == Some(shard);
        let epoch = self.reported_epoch();
        let begins_probe = |lane: Lane| !has_leases && lane.may_begin(now);
        let Some(entry) = self.shards.get_mut(shard) else { return };
        let Entry { probe, publish, read, .. } = *entry;
        let is_absent = entry.state.is_absent();
        if begins_probe(probe)
            && let Some(slot) = self.shards.probe_slot(shard)
            && let Some(entry) = self.shards.get_mut(shard)
        {
            entry.probe = Lane::Busy { since: now, late: false };
            self.commands.push_back(Command::Probe { shard: shard.clone(), slot });
        }
        if is_absent {
            return;
        }
        if publish.may_begin(now) {
            let changes = self.own.begin(now, shard, &self.shards);
            let goes_on = !self.own.has_nothing_for(shard);
            let Some(entry) = self.shards.get_mut(shard) else { return };
            if let Some(changes) = changes {
                entry.publish = Lane::Busy { since: now, late: false };
                let boot = self.config.boot;
                self.commands.push_back(Command::Publish { shard: shard.clone(), boot, changes });
            } else if goes_on {
                // A repair that has found none of its users yet: workers come first.
                entry.publish = Lane::Idle { next: now + LOOK_PAUSE };
            }
        }
        if read.may_begin(now)
            && let Some(users) = self.asks.begin(shard)
            && let Some(entry) = self.shards.get_mut(shard)
        {
            entry.read = Lane::Busy { since: now, late: false };
            entry.read_epoch = epoch;
            self.commands.push_back(Command::Read { shard: shard.clone(), users });
        }
    }

    /// Returns the time at which [`Machine::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        let may_renew = self.stay != Stay::Left && self.shards.of_leases().is_some();
        let mut first = self.renew.next().filter(|_| may_renew);
        let may_share = !self.shards.leases_are_absent() && self.stay == Stay::Stays;
        first = sooner(first, self.secrets.lane.next().filter(|_| may_share));
        for (shard, entry, has_leases) in self.shards.all() {
            first = sooner(first, entry.probe.next().filter(|_| !has_leases));
            if let Lane::Idle { next } = entry.publish
                && !entry.state.is_absent()
                && !self.own.has_nothing_for(shard)
            {
                first = sooner(first, Some(next));
            }
        }
        let lease = self.nodes.next_end().filter(|_| !self.shards.leases_are_absent());
        let deadlines = sooner(self.own.next_deadline(), self.asks.next_deadline());
        let deadlines = sooner(deadlines, self.holds.next_deadline());
        sooner(sooner(first, self.own.next_change()), sooner(lease, deadlines))
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
        let (shards, shards_present, shards_absent) = self.shards.count();
        Counts {
            ready: self.state() == State::Ready,
            present: !self.state().is_absent(),
            shards,
            shards_present,
            shards_absent,
            nodes: self.nodes.len(),
            users: self.own.len(),
            waiting: self.own.waiting(),
            asks: self.asks.len() + self.holds.len(),
            cached: self.cache.len(),
            ..self.counts
        }
    }

    /// Returns the state of the database.
    pub fn state(&self) -> State {
        self.state.unwrap_or(State::Absent)
    }

    fn has_no_shard(&self, user: &[u8]) -> bool {
        self.shards.present(slot_of_user(user)).is_none()
    }

    fn reported_epoch(&self) -> Option<u64> {
        self.subscribed.then_some(self.epoch)
    }

    fn check_deadlines(&mut self, now: Time) {
        if self.renew.is_late(now) {
            self.is_now(now, &self.renewing.clone(), State::Absent);
        }
        for shard in self.shards.names().iter() {
            if self.shards.get_mut(shard).is_some_and(|entry| entry.probe.is_late(now)) {
                self.is_now(now, shard, State::Absent);
            }
        }
        let mut outcomes = Vec::new();
        let mut late = self.own.overdue(now, &mut outcomes);
        self.report(outcomes);
        let asked = self.asks.overdue(now, &mut late);
        self.unavailable(asked);
        for (worker, id) in self.holds.overdue(now) {
            self.events.push_back(Event::Answered { worker, id, reply: Reply::Located });
        }
        for slot in late {
            if let Some(shard) = self.shards.present(slot).cloned() {
                self.is_now(now, &shard, State::Absent);
            }
        }
    }

    fn renewed(&mut self, now: Time, renewed: Option<(Vec<Lease>, u32)>) {
        let Lane::Busy { since, late } = self.renew else { return };
        let shard = self.renewing.clone();
        let next = now + if renewed.is_some() { RENEW_INTERVAL } else { RETRY_INTERVAL };
        self.renew = match self.stay {
            Stay::Stays | Stay::Moves => Lane::Idle { next },
            Stay::Leaves | Stay::Left => Lane::READY,
        };
        let Some((leases, replicas)) = renewed else {
            return self.is_now(now, &shard, State::Absent);
        };
        let outrun = self.outrun.take_if(|(_, heard)| *heard <= since);
        if leases.is_empty() {
            for shard in self.shards.names().iter() {
                self.is_now(now, shard, State::Superseded);
            }
            return;
        }
        if let Some((boot, _)) = outrun {
            self.run_after(boot);
        }
        self.nodes.read(now, &leases);
        self.leases_read = since;
        self.was_met(now);
        if late {
            // It answers, but too slowly to wait for.
            self.renew = Lane::READY;
            return;
        }
        if self.shards.leases_are_absent() {
            self.nodes.extend(now);
        }
        for shard in self.shards.names().iter() {
            if let Some(entry) = self.shards.get_mut(shard)
                && entry.state == State::Superseded
            {
                entry.state = State::Absent;
                entry.probe.hasten(Time::ZERO);
            }
        }
        self.replicas(now, &shard, replicas);
    }

    /// A shard has answered a probe, or has not.
    fn probed(&mut self, now: Time, shard: &Shard, probed: Probed) {
        let Some(entry) = self.shards.get_mut(shard) else { return };
        let Lane::Busy { late, .. } = entry.probe else { return };
        let pause = match probed {
            Probed::Stored(_) if late => Duration::ZERO,
            Probed::Stored(_) => RENEW_INTERVAL,
            Probed::Moved => MOVED_PAUSE,
            Probed::Failed => RETRY_INTERVAL,
        };
        entry.probe = Lane::Idle { next: now + pause };
        self.shards.clean();
        let is_superseded = self.shards.is_superseded();
        match probed {
            Probed::Stored(replicas) if !late && !is_superseded => {
                self.replicas(now, shard, replicas);
            }
            Probed::Failed if !is_superseded => self.is_now(now, shard, State::Absent),
            _ => {}
        }
    }

    /// The map of slots was read.
    fn slots(&mut self, now: Time, slots: Option<Slots>) {
        let Some(slots) = slots else {
            if self.shards.names().is_empty() {
                self.overall(Some(State::Absent));
            }
            return;
        };
        let Some(replaced) = self.shards.replace(now, slots) else { return };
        self.own.unsort();
        self.asks.unsort();
        self.own.moved(&replaced.moved);
        if replaced.comes_back {
            self.send_again(&self.shards.names());
        }
        self.overall(self.shards.overall());
    }

    fn replicas(&mut self, now: Time, shard: &Shard, replicas: u32) {
        self.counts.replicas = replicas;
        let enough = replicas >= self.config.replicas;
        let state = if enough { State::Ready } else { State::Unreplicated { replicas } };
        self.is_now(now, shard, state);
    }

    fn published(&mut self, now: Time, shard: &Shard, results: &[Written]) {
        let Some(entry) = self.shards.get_mut(shard) else { return };
        entry.publish = Lane::READY;
        let is_absent = entry.state.is_absent();
        let mut outcomes = Vec::new();
        let unusable = self.own.end(now, shard, results, self.config.replicas, &mut outcomes);
        self.report(outcomes);
        let is_failed = |result: &Written| *result == Written::Failed;
        let stored = results.iter().filter_map(|result| match result {
            Written::Stored(replicas) => Some(*replicas),
            _ => None,
        });
        self.counts.published += stored.clone().count() as u64;
        if results.iter().all(is_failed) {
            self.is_now(now, shard, State::Absent);
        } else if let Some(replicas) = stored.min().filter(|_| !is_absent && shard.is_whole()) {
            // Of many, another may have taken a part of them; probes show the state of each.
            self.replicas(now, shard, replicas);
        }
        let outrun = results.iter().filter_map(|result| match result {
            Written::Outrun { boot } => Some(*boot),
            _ => None,
        });
        if let Some(boot) = outrun.max() {
            self.outrun = Some((boot, now));
            // The next renewal shows whether that run lives.
            self.renew.hasten(Time::ZERO);
        }
        let pause = if self.outrun.is_some() || results.iter().any(is_failed) {
            // A part of the database is absent; the rest must not be asked for it all the time.
            Some(RETRY_INTERVAL)
        } else {
            results.contains(&Written::Moved).then_some(MOVED_PAUSE)
        };
        if let (Some(pause), Some(entry)) = (pause, self.shards.get_mut(shard)) {
            entry.publish = Lane::Idle { next: now + pause };
        }
        self.shards.clean();
        self.counts.unusable += unusable.len() as u64;
        if let Some(user) = unusable.into_iter().next() {
            self.report_unusable(now, user);
        }
    }

    /// The lease is this run's, so no later run of a node of this name lives: this one takes the number after its.
    fn run_after(&mut self, boot: u64) {
        self.config.boot = self.config.boot.max(boot.saturating_add(1));
        self.renew = Lane::READY;
        for shard in self.shards.names().iter() {
            if let Some(entry) = self.shards.get_mut(shard) {
                entry.publish.hasten(Time::ZERO);
            }
        }
        self.send_again(&self.shards.names());
    }

    fn report_unusable(&mut self, now: Time, user: Box<[u8]>) {
        if self.silent <= now {
            self.silent = now + REPORT_INTERVAL;
            self.events.push_back(Event::Unusable(user));
        }
    }

    fn was_read(&mut self, now: Time, shard: &Shard, results: Vec<Reading>) {
        let Some(entry) = self.shards.get_mut(shard) else { return };
        entry.read = Lane::READY;
        let epoch = entry.read_epoch.take();
        let is_absent = results.iter().all(|result| *result == Reading::Failed);
        let mut results = results.into_iter();
        for (user, changed) in self.asks.end(shard) {
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
            self.cache.read(now, user.clone(), epoch.filter(|_| !changed), found);
            self.answer(now, &user, asked);
        }
        if is_absent {
            self.is_now(now, shard, State::Absent);
        }
        self.shards.clean();
    }

    /// A shard has this state.
    fn is_now(&mut self, now: Time, shard: &Shard, state: State) {
        // One that has lost its slots concerns nobody.
        let has_slots = self.shards.has_slots(shard);
        let Some(entry) = self.shards.get_mut(shard).filter(|_| has_slots) else { return };
        let before = std::mem::replace(&mut entry.state, state);
        if before == state && entry.reported {
            return;
        }
        entry.reported = true;
        if !shard.is_whole() {
            self.events.push_back(Event::Shard(shard.clone(), state));
        }
        if state.is_absent() {
            // It is tried again soon, but not at once.
            let soon = now + RETRY_INTERVAL;
            entry.probe.hasten(soon);
            if self.shards.of_leases() == Some(shard) {
                self.renew.hasten(soon);
            }
            self.counts.outages += u64::from(!before.is_absent());
            let mut outcomes = Vec::new();
            self.own.fail(shard, &mut outcomes);
            self.report(outcomes);
            let asked = self.asks.fail(shard);
            self.unavailable(asked);
        } else if before != State::Ready {
            self.send_again(std::slice::from_ref(shard));
        }
        self.overall(self.shards.overall());
    }

    /// The database as a whole has this state, if that is certain.
    fn overall(&mut self, state: Option<State>) {
        if state.is_some() && state != self.state {
            self.state = state;
            self.events.extend(state.map(Event::State));
        }
    }

    /// What the database had may be lost: it was away, or a replica that lacked something has become the primary.
    fn send_again(&mut self, shards: &[Shard]) {
        self.epoch += 1;
        self.events.push_back(Event::Gap);
        self.own.send_again(shards);
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
