//! Handing blocks over: who is asked, what is granted, and what is repeated.

use std::collections::{BTreeSet, VecDeque};

use ringway_sansio::Random;
use ringway_sansio::time::{Duration, Time};

use super::{Event, Numbers, Repeated, Retry};
use crate::numbers::Node;
use crate::numbers::config::{MAX_ASKERS, MAX_OPEN, MAX_PAUSE, RESEND, RESERVE, STATUS_PACE};
use crate::numbers::ranges::Ranges;
use crate::numbers::space::Tag;
use crate::numbers::state::{Grant, MAX_ACCEPTED, MAX_GRANTS, MAX_RANGES};
use crate::numbers::wire::{Hint, MAX_KIN, MAX_RANGES_SENT, Packet};

/// An hour, for the grants of one asker.
const HOUR: Duration = Duration::from_secs(3_600);

/// A request that may still be granted.
#[derive(Clone, Copy, Debug)]
struct Open {
    request: u64,
    giver: Node,
}

/// The search for blocks.
#[derive(Clone, Debug)]
pub(super) struct Asks {
    /// When the next router is asked.
    pub(super) next: Time,
    open: VecDeque<Open>,
    /// Who has been asked since all were asked last.
    asked: BTreeSet<Node>,
    /// The pause before all are asked again.
    pause: Duration,
}

impl Asks {
    pub(super) fn new(now: Time) -> Asks {
        Asks { next: now, open: VecDeque::new(), asked: BTreeSet::new(), pause: RESEND }
    }

    /// Begins anew at once: something has changed.
    pub(super) fn hurry(&mut self, now: Time) {
        if self.pause > RESEND {
            self.pause = RESEND;
            self.next = self.next.min(now);
        }
    }

    /// Drops all requests, so that no grant under way is accepted.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.asked.clear();
    }

    fn begin(&mut self, now: Time, wait: Duration, giver: Node, random: &mut dyn Random) -> u64 {
        let request = random.next_u64();
        if self.open.len() == MAX_OPEN {
            self.open.pop_front();
        }
        self.open.push_back(Open { request, giver });
        self.asked.insert(giver);
        self.next = now + wait;
        request
    }

    /// Removes a request. Returns whether it was there.
    fn close(&mut self, giver: Node, request: u64) -> bool {
        let before = self.open.len();
        self.open.retain(|open| (open.giver, open.request) != (giver, request));
        self.open.len() < before
    }

    fn rest(&mut self, now: Time) {
        self.asked.clear();
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }
}

/// A statement in short: the network, whether something is free, and the best hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stated {
    tag: Option<Tag>,
    free: bool,
    best: Option<(Node, Tag)>,
}

impl Numbers {
    /// Returns whether blocks are needed, and if so, whether at once or in reserve.
    pub(super) fn need(&self) -> Option<bool> {
        if self.state.freeze.is_some() || self.state.accepted.len() >= MAX_ACCEPTED {
            return None;
        }
        let waits = !self.waiting.is_empty();
        let Some(home) = self.state.home else { return waits.then_some(true) };
        let spent = self.state.free.is_empty();
        if waits && spent && self.gaps.is_empty() {
            return Some(true);
        }
        let urgent = waits || !self.users.is_empty();
        if self.sources.knows_better(home, least(urgent)) {
            return Some(urgent);
        }
        (spent && self.gaps.len() < RESERVE).then_some(false)
    }

    /// Asks the next router if blocks are needed.
    pub(super) fn pursue(&mut self, now: Time, random: &mut dyn Random) {
        let Some(urgent) = self.need() else { return };
        if now < self.asks.next {
            return;
        }
        let (home, asked) = (self.state.home, &self.asks.asked);
        let banned = &self.state.banned;
        let excluded = |node| asked.contains(&node) || banned.contains_key(&node);
        match self.sources.candidate(&self.peers, home, least(urgent), excluded) {
            None => self.asks.rest(now),
            Some(node) => {
                let request = self.asks.begin(now, self.config.ask_wait, node, random);
                let (incarnation, tag) = (self.state.incarnation, home);
                self.send(node, &Packet::Ask { request, incarnation, tag, urgent });
            }
        }
    }

    /// Handles STATUS: a statement, or the answer that nothing is granted.
    pub(super) fn status(
        &mut self,
        now: Time,
        from: Node,
        request: u64,
        tag: Option<Tag>,
        free: u32,
        hints: &[Hint],
    ) {
        match tag {
            Some(tag) => self.sources.learn(now, from, tag, free, Duration::ZERO),
            None => self.sources.forget(from),
        }
        let (own, banned) = (self.id, &self.state.banned);
        for hint in hints.iter().filter(|hint| hint.node != own && !banned.contains_key(&hint.node))
        {
            let age = Duration::from_secs(hint.age.into());
            self.sources.learn(now, hint.node, hint.tag, hint.free, age);
        }
        if request != 0 && self.asks.close(from, request) {
            self.asks.next = now;
        } else if self.in_short(now) != self.stated {
            self.asks.hurry(now);
        }
        self.hurry_status(now);
    }

    /// Handles ASK.
    pub(super) fn asked(
        &mut self,
        now: Time,
        from: Node,
        (request, incarnation): (u64, u64),
        tag: Option<Tag>,
        urgent: bool,
        random: &mut dyn Random,
    ) {
        if let Some(tag) = tag {
            // Who asks has nothing to spare.
            self.sources.learn(now, from, tag, 0, Duration::ZERO);
        }
        self.orphan(from, incarnation);
        // One at a time: what this router was granted before is resolved first.
        let pending = self.state.grants.iter().find(|(_, grant)| grant.to == from && !grant.orphan);
        if let Some((&id, _)) = pending {
            self.send_grant(id);
            return;
        }
        let blocks = match self.state.home {
            Some(home) if tag.is_none_or(|tag| home <= tag) => self.spare(now, from, urgent),
            _ => Ranges::default(),
        };
        let Some(tag) = self.state.home.filter(|_| !blocks.is_empty()) else {
            let packet = self.statement(now, request);
            self.send(from, &packet);
            return;
        };
        self.state.free.remove_all(&blocks);
        let grant = Grant { to: from, incarnation, request, tag, blocks, orphan: false };
        let id = random.next_u64();
        self.state.grants.insert(id, grant);
        self.state.kin.insert(from);
        if self.state.kin.len() > MAX_KIN {
            self.state.kin.pop_first();
            self.state.kin_incomplete = true;
        }
        self.changed();
        self.retries.insert(Repeated::Grant(id), Retry::new(now));
        self.send_grant(id);
    }

    /// Marks grants to earlier incarnations of a router: it does not know what became of them.
    fn orphan(&mut self, node: Node, incarnation: u64) {
        let mut orphans = Vec::new();
        for (&id, grant) in &mut self.state.grants {
            if grant.to == node && grant.incarnation != incarnation && !grant.orphan {
                grant.orphan = true;
                orphans.push(id);
            }
        }
        if !orphans.is_empty() {
            orphans.iter().for_each(|&id| _ = self.retries.remove(&Repeated::Grant(id)));
            self.changed();
        }
    }

    /// Returns the blocks for an asker: half of the free ones. Who asks in reserve does not get the last.
    fn spare(&mut self, now: Time, asker: Node, urgent: bool) -> Ranges {
        let free = self.state.free.count();
        let half = if urgent { free.div_ceil(2) } else { free / 2 };
        if half == 0 || self.state.grants.len() >= MAX_GRANTS || !self.allows(now, asker) {
            return Ranges::default();
        }
        self.state.free.share(half, MAX_RANGES_SENT)
    }

    /// Counts a grant to an asker. Returns whether it may have another one in this hour.
    fn allows(&mut self, now: Time, asker: Node) -> bool {
        if self.askers.len() >= MAX_ASKERS && !self.askers.contains_key(&asker) {
            self.askers.retain(|_, (begun, _)| now.since(*begun) < HOUR);
            if self.askers.len() >= MAX_ASKERS {
                self.counters.policed += 1;
                return false;
            }
        }
        let (begun, count) = self.askers.entry(asker).or_insert((now, 0));
        if now.since(*begun) >= HOUR {
            (*begun, *count) = (now, 0);
        }
        *count += 1;
        let allowed = *count <= self.config.grants_per_hour;
        self.counters.policed += u64::from(!allowed);
        allowed
    }

    fn send_grant(&mut self, id: u64) {
        let Some(grant) = self.state.grants.get(&id) else { return };
        let packet = Packet::Grant {
            incarnation: grant.incarnation,
            request: grant.request,
            grant: id,
            tag: grant.tag,
            blocks: grant.blocks.clone(),
        };
        self.send(grant.to, &packet);
    }

    /// Handles GRANT.
    pub(super) fn granted(
        &mut self,
        now: Time,
        from: Node,
        (incarnation, request, grant): (u64, u64, u64),
        tag: Tag,
        blocks: &Ranges,
    ) {
        if incarnation != self.state.incarnation {
            // Nobody knows whether the state that was lost had accepted it.
            self.counters.stale += 1;
            return;
        }
        if self.state.accepted.contains(&(from, grant)) {
            self.send(from, &Packet::Ack { grant });
            return;
        }
        if self.state.freeze.is_some() {
            return;
        }
        // Once the request is closed, no copy of this grant can be accepted.
        let open = self.asks.close(from, request);
        if !open || !self.accepts(from, tag, blocks) {
            self.send(from, &Packet::Refuse { grant });
            return;
        }
        if self.state.home != Some(tag) {
            self.move_to(tag);
        }
        self.state.free.insert_all(blocks);
        self.state.accepted.insert((from, grant));
        self.changed();
        self.retries.insert(Repeated::Ack(from, grant), Retry::new(now));
        self.asks = Asks { open: core::mem::take(&mut self.asks.open), ..Asks::new(now) };
        self.send(from, &Packet::Ack { grant });
        self.hurry_status(now);
    }

    /// Returns whether blocks that were asked for can be owned.
    fn accepts(&mut self, giver: Node, tag: Tag, blocks: &Ranges) -> bool {
        let space = self.config.space.blocks();
        if !blocks.iter().all(|range| space.covers(range)) {
            self.counters.foreign += 1;
            return false;
        }
        let owned = self.state.owned(tag);
        if blocks.iter().any(|range| owned.overlaps(range)) {
            self.counters.conflicts += 1;
            self.notify(Event::Conflict { giver });
            return false;
        }
        self.state.home.is_none_or(|home| tag <= home)
            && self.state.accepted.len() < MAX_ACCEPTED
            && self.state.free.len() + blocks.len() <= MAX_RANGES
    }

    /// Handles ACK: the blocks are another router's.
    pub(super) fn acknowledged(&mut self, from: Node, grant: u64) {
        if self.state.grants.get(&grant).is_some_and(|pending| pending.to == from) {
            self.state.grants.remove(&grant);
            self.retries.remove(&Repeated::Grant(grant));
            self.changed();
        }
        self.send(from, &Packet::Done { grant });
    }

    /// Handles REFUSE: the blocks are this router's again.
    pub(super) fn refused(&mut self, now: Time, from: Node, grant: u64) {
        if self.state.grants.get(&grant).is_none_or(|pending| pending.to != from || pending.orphan)
        {
            return;
        }
        if let Some(pending) = self.state.grants.remove(&grant) {
            if self.state.home == Some(pending.tag) {
                self.state.free.insert_all(&pending.blocks);
            }
            self.retries.remove(&Repeated::Grant(grant));
            self.changed();
            self.hurry_status(now);
        }
    }

    /// Handles DONE.
    pub(super) fn done(&mut self, from: Node, grant: u64) {
        if self.state.accepted.remove(&(from, grant)) {
            self.retries.remove(&Repeated::Ack(from, grant));
            self.changed();
        }
    }

    /// Repeats what is due.
    pub(super) fn repeat(&mut self, now: Time) {
        let due = self.retries.iter_mut().filter(|(_, retry)| retry.next <= now);
        let due = due.map(|(what, retry)| {
            retry.again(now);
            *what
        });
        for what in due.collect::<Vec<_>>() {
            match what {
                Repeated::Grant(id) => self.send_grant(id),
                Repeated::Ack(giver, grant) => self.send(giver, &Packet::Ack { grant }),
            }
        }
    }

    /// States what is free to the routers beside this one, if it is time.
    pub(super) fn state_status(&mut self, now: Time, random: &mut dyn Random) {
        if now < self.status_due {
            return;
        }
        let jitter = random.next_u64() % (self.config.status.as_nanos() as u64 / 4).max(1);
        self.status_due = now + self.config.status + Duration::from_nanos(jitter);
        self.status_sent = now;
        self.stated = self.in_short(now);
        let packet = self.statement(now, 0);
        for peer in self.peers.clone() {
            if !self.state.banned.contains_key(&peer) {
                self.send(peer, &packet);
            }
        }
    }

    fn statement(&self, now: Time, request: u64) -> Packet {
        let free = u32::try_from(self.state.free.count()).unwrap_or(u32::MAX);
        Packet::Status { request, tag: self.state.home, free, hints: self.sources.hints(now) }
    }

    fn in_short(&self, now: Time) -> Stated {
        Stated {
            tag: self.state.home,
            free: !self.state.free.is_empty(),
            best: self.sources.hints(now).first().map(|hint| (hint.node, hint.tag)),
        }
    }

    /// States soon what has changed.
    pub(super) fn hurry_status(&mut self, now: Time) {
        if self.in_short(now) != self.stated {
            self.status_due = self.status_due.min((self.status_sent + STATUS_PACE).max(now));
        }
    }
}

/// Returns how many free blocks a giver must have.
fn least(urgent: bool) -> u32 {
    if urgent { 1 } else { 2 }
}
