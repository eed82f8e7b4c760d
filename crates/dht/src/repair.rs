//! How keepers find out what one of them lacks.
//!
//! The owner of a range sends a DIGEST of it to each router beside it: soon after these have changed, again and again until
//! all have agreed, once more then, and now and then while nothing changes (Rhea et al. 2004: periodic repair survives
//! churn that reactive repair does not). Whoever has something else answers with ENTRIES, or with DIGESTs of parts if it has too much for one message. Then both
//! send what the other lacks, a few records at a time.

use std::collections::{BTreeSet, VecDeque};

use ringway_mesh::NodeId;
use ringway_sansio::Random;
use ringway_sansio::time::{Duration, Time, sooner};
use smallvec::{SmallVec, smallvec};

use crate::config::{BESIDE, Config};
use crate::neighbours::Neighbours;
use crate::output::Message;
use crate::shares::{Purse, SPARE_FOR_REPAIR, Shares, cost};
use crate::table::{Entry, Table};
use crate::wire::{MAX_COPIED, MAX_MARKS, MAX_RENEWALS, Marks, PARTS, Packet, Renewal, Span};

/// Digests that are sent after a change before the usual interval, unless all agree before.
const REPEATS: u8 = 10;
/// The time to the first of them: changes seldom come alone.
const FIRST: Duration = Duration::from_secs(1);
/// The time from the first to the second of them. It doubles, up to [`MAX_HURRY`].
const HURRY: Duration = Duration::from_millis(400);
const MAX_HURRY: Duration = Duration::from_millis(1_600);

/// The longer interval is that many times as long while there is nothing to compare.
const IDLE: u32 = 8;
/// The time to the next digest after a record has changed.
const SOON: Duration = Duration::from_secs(15);
/// The same after another router has sent one that this one lacked.
const AFTER_REPAIR: Duration = Duration::from_secs(1);
/// The time to the next digest when one has no room for all renewals.
const MORE_RENEWALS: Duration = Duration::from_secs(1);

/// A record to send: to whom, its key, and its signer.
type Task = (NodeId, NodeId, NodeId);

/// What a turn of repair needs of the router.
pub(crate) struct Desk<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a Config,
    pub(crate) neighbours: &'a Neighbours,
    pub(crate) table: &'a Table,
    /// What may be spent for each router beside this one.
    pub(crate) shares: &'a mut Shares,
    pub(crate) purse: &'a mut Purse,
    pub(crate) hops: u16,
    pub(crate) out: &'a mut Vec<Message>,
}

impl Desk<'_> {
    fn send(&mut self, to: NodeId, packet: &Packet<'_>) {
        self.out.push(Message::to(to, packet));
    }

    /// Sends what another router has caused, if its share allows that. What it does not, the next digest finds.
    fn answer(&mut self, to: NodeId, packet: &Packet<'_>) -> bool {
        self.spend(to, Message::to(to, packet))
    }

    /// Sends a message that another router has caused, if its share allows that.
    pub(crate) fn spend(&mut self, cause: NodeId, message: Message) -> bool {
        let cost = cost(message.octets.len(), self.hops);
        let Config { budget, repairs, origins, .. } = *self.config;
        let way = (self.hops, self.neighbours.owned());
        self.purse.pay(self.now, budget, way, self.out);
        let is_spare = self.purse.has_eighths(self.now, budget, SPARE_FOR_REPAIR);
        let is_paid = is_spare || self.shares.spend(self.now, repairs, origins, cause, cost);
        if is_paid {
            self.out.push(message);
        }
        is_paid
    }
}

/// Repair of the records of this router's range, and of those beside it.
#[derive(Clone, Debug)]
pub struct Repair {
    due: Time,
    /// When digests were last sent.
    sent: Time,
    repeats: u8,
    /// Those beside this router do not know yet who else is.
    untold: bool,
    /// A digest was sent to all since the last change: the next one is due after the longer interval.
    calm: bool,
    /// This router's range when it was last compared.
    span: Option<Span>,
    /// Drawn when this router has started.
    life: u16,
    /// The same of those beside this one, as they state it.
    lives: SmallVec<[(NodeId, u16); 2 * BESIDE]>,
    /// Routers that have the same records in it.
    agreed: SmallVec<[NodeId; 2 * BESIDE]>,
    /// Those of them that know that all have.
    settled: SmallVec<[NodeId; 2 * BESIDE]>,
    /// Ranges of others in which this router has what all of their keepers have, by owner.
    synced: SmallVec<[(NodeId, Span); 2 * BESIDE]>,
    /// Records that were renewed here, of which those beside this router are notified with the next digest.
    renewed: BTreeSet<(NodeId, NodeId)>,
    queue: VecDeque<Task>,
    /// When the next records of the queue are sent.
    next: Time,
    /// Records that found no room in the queue. The next digest finds out.
    pub(crate) postponed: u64,
}

impl Repair {
    pub(crate) fn new(now: Time) -> Self {
        Repair {
            due: now,
            sent: now,
            repeats: REPEATS,
            untold: true,
            calm: false,
            span: None,
            life: (now.as_millis() & 0xffff) as u16,
            lives: SmallVec::new(),
            agreed: SmallVec::new(),
            settled: SmallVec::new(),
            synced: SmallVec::new(),
            renewed: BTreeSet::new(),
            queue: VecDeque::new(),
            next: now,
            postponed: 0,
        }
    }

    /// The routers beside this one have changed. If its range is the same, those that were beside it before have the same
    /// as before.
    pub(crate) fn hurry(&mut self, now: Time, neighbours: &Neighbours, random: &mut dyn Random) {
        let span = Some(neighbours.owned());
        let is_beside = |id: &mut NodeId| neighbours.leaves().iter().any(|leaf| leaf == *id);
        if self.span == span {
            self.agreed.retain(is_beside);
            self.settled.retain(is_beside);
        } else {
            self.agreed.clear();
            self.settled.clear();
        }
        (self.span, self.untold, self.calm) = (span, true, false);
        self.repeats = REPEATS;
        self.due = now + vary(FIRST, random);
    }

    /// Returns whether this router would have a record at a position if anybody had one: all other keepers have agreed.
    pub(crate) fn is_settled(
        &self,
        now: Time,
        config: &Config,
        neighbours: &Neighbours,
        key: NodeId,
    ) -> bool {
        if neighbours.unchanged(now) < config.settle {
            return false;
        }
        if neighbours.owned().contains(key) {
            return self.is_complete(neighbours);
        }
        let of_key = |(id, span): &(NodeId, Span)| span.contains(key) && neighbours.is_beside(*id);
        self.synced.iter().any(of_key)
    }

    /// Returns those who have agreed, when this router has waited for the others for long enough.
    pub(crate) fn spoken(&self) -> Option<&[NodeId]> {
        (self.repeats == 0).then_some(&self.agreed)
    }

    /// Returns whether all beside this router have agreed.
    fn is_complete(&self, neighbours: &Neighbours) -> bool {
        neighbours.leaves().iter().all(|leaf| self.agreed.contains(&leaf))
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let queue = (!self.queue.is_empty()).then_some(self.next);
        sooner(Some(self.due), queue)
    }

    /// Does what is due.
    pub(crate) fn timeout(&mut self, desk: &mut Desk<'_>, random: &mut dyn Random) {
        if self.due <= desk.now {
            self.send_digests(desk, random);
        }
        if self.next <= desk.now && !self.queue.is_empty() {
            self.next = desk.now + desk.config.repair_pace;
            for _ in 0..desk.config.repair_burst {
                if !self.send_copies(desk) {
                    break;
                }
            }
        }
    }

    /// Sends records that a router lacks, as many as one message has room for. Returns whether there may be more to send now.
    fn send_copies(&mut self, desk: &mut Desk<'_>) -> bool {
        let Some(&(to, ..)) = self.queue.front() else { return false };
        let (mut tasks, mut records) = (SmallVec::<[Task; 6]>::new(), Vec::new());
        let mut room = MAX_COPIED;
        while let Some(&task) = self.queue.front()
            && task.0 == to
        {
            if let Some(entry) = desk.table.get(task.1, task.2) {
                let Some(less) = room.checked_sub(6 + entry.record.octets().len()) else { break };
                room = less;
                records.push((entry.rest(desk.now), entry.record.clone()));
                tasks.push(task);
            }
            self.queue.pop_front();
        }
        if records.is_empty() || desk.answer(to, &Packet::Copies { records }) {
            return true;
        }
        // They wait until others have had their turn.
        self.queue.extend(tasks);
        false
    }

    /// Sends DIGESTs: until all beside this router have agreed to those that have not, then to those that do not know that,
    /// and now and then to all.
    fn send_digests(&mut self, desk: &mut Desk<'_>, random: &mut dyn Random) {
        let mut leaves = desk.neighbours.leaves().distinct();
        let settled = self.is_complete(desk.neighbours);
        let hurry = self.repeats > 0;
        let mut interval = self.interval(desk, settled);
        let to_all = core::mem::take(&mut self.untold) || !hurry;
        if hurry && !settled {
            interval = (HURRY * (1 << (REPEATS - self.repeats))).min(MAX_HURRY);
            leaves.retain(|leaf| to_all || !self.agreed.contains(leaf));
            self.repeats -= 1;
        } else if hurry {
            leaves.retain(|leaf| to_all || !self.settled.contains(leaf));
            self.repeats = 0;
        } else {
            self.calm = true;
        }
        if settled {
            self.settled = leaves.iter().chain(&self.settled).copied().collect();
            self.settled.sort_unstable();
            self.settled.dedup();
        } else {
            self.settled.retain(|leaf| !leaves.contains(leaf));
        }
        (self.due, self.sent) = (desk.now + vary(interval, random), desk.now);
        let renewals = if hurry { Vec::new() } else { self.take_renewed(desk) };
        if !self.renewed.is_empty() {
            self.due = self.due.min(desk.now + if hurry { SOON } else { MORE_RENEWALS });
        }
        let mut digest =
            digest(desk, self.life, desk.neighbours.owned(), 1, (false, settled), renewals);
        for leaf in leaves {
            if let Packet::Digest { confirm, .. } = &mut digest {
                *confirm = !self.agreed.contains(&leaf);
            }
            desk.send(leaf, &digest);
        }
    }

    /// Returns the time to the next digest to all. What no router has a record for needs none until there is one: a change of
    /// the routers beside this one, or of a record, ends that.
    fn interval(&self, desk: &Desk<'_>, settled: bool) -> Duration {
        if !self.calm {
            return desk.config.repair;
        }
        let is_idle = settled && desk.table.is_empty();
        desk.config.rest * if is_idle { IDLE } else { 1 }
    }

    /// Notes that a record of this router's range has changed, which its publisher or, in a repair, another router has sent.
    /// What others have missed of it, they learn soon.
    pub(crate) fn changed(&mut self, now: Time, in_repair: bool) {
        if in_repair {
            // Who has agreed before has not agreed to this.
            self.settled.clear();
            self.calm = false;
        }
        self.due = self.due.min(now + if in_repair { AFTER_REPAIR } else { SOON });
    }

    /// Notes that a record which is kept here was renewed.
    pub(crate) fn renewed(&mut self, now: Time, config: &Config, entry: &Entry) {
        let slot = (entry.record.key(), entry.signer);
        // Others keep it for two thirds of its lifetime at least.
        let soon = Duration::from_secs(entry.record.lifetime().into()) / 8;
        self.due = self.due.min(now + soon);
        if self.renewed.len() < config.renewals {
            self.renewed.insert(slot);
        } else {
            // Others have it until it expires there; then a digest finds that they lack it.
            self.postponed += 1;
        }
        if self.renewed.len() >= MAX_RENEWALS {
            self.due = self.due.min(now + MORE_RENEWALS);
        }
    }

    /// Returns renewals for a digest, and counts them as sent.
    fn take_renewed(&mut self, desk: &Desk<'_>) -> Vec<Renewal> {
        let taken = core::iter::from_fn(|| self.renewed.pop_first());
        let renewal = |(key, signer)| {
            let entry = desk.table.get(key, signer)?;
            Some(Renewal { copy: entry.copy(), stamp: entry.stamp, rest: entry.rest(desk.now) })
        };
        taken.take(MAX_RENEWALS).filter_map(renewal).collect()
    }

    /// Handles AGREE of a router beside this one. Returns the time since it was asked.
    pub(crate) fn agree(
        &mut self,
        desk: &Desk<'_>,
        origin: NodeId,
        span: Span,
    ) -> Option<Duration> {
        let is_owned = span == desk.neighbours.owned();
        let is_new = is_owned && self.agreed.len() < 2 * BESIDE && !self.agreed.contains(&origin);
        is_new.then(|| {
            self.agreed.push(origin);
            if self.is_complete(desk.neighbours) {
                // All of them can deny records when they know that.
                self.due = desk.now;
            }
            desk.now.since(self.sent)
        })
    }

    /// Notes that a router beside this one has something else in this router's range, and asks it soon whether it has the
    /// same.
    fn disagree(&mut self, desk: &Desk<'_>, origin: NodeId, span: Span) {
        let owned = desk.neighbours.owned();
        if self.agreed.contains(&origin) && owned.contains(span.first) && owned.contains(span.last)
        {
            self.agreed.retain(|id| *id != origin);
            self.settled.clear();
            (self.repeats, self.calm) = (REPEATS, false);
            self.due = self.due.min(desk.now + HURRY);
        }
    }

    /// A router beside this one states in which of its lives it is. One that has restarted before anybody has noticed has
    /// nothing of what it has agreed to.
    pub(crate) fn meet(&mut self, now: Time, origin: NodeId, life: u16) {
        let known = self.lives.iter().position(|(id, _)| *id == origin);
        if known.is_some_and(|at| self.lives[at].1 != life) {
            self.agreed.retain(|id| *id != origin);
            self.settled.clear();
            (self.repeats, self.calm) = (REPEATS, false);
            self.due = self.due.min(now + HURRY);
        }
        match known {
            Some(at) => _ = self.lives.remove(at),
            None if self.lives.len() == 4 * BESIDE => _ = self.lives.remove(0),
            None => {}
        }
        self.lives.push((origin, life));
    }

    /// Handles a DIGEST of a router beside this one.
    pub(crate) fn compare(
        &mut self,
        desk: &mut Desk<'_>,
        origin: NodeId,
        span: Span,
        (confirm, settled): (bool, bool),
        count: usize,
        parts: &[u64],
    ) {
        let mut differs = false;
        for (index, &theirs) in parts.iter().enumerate() {
            let Some(part) = span.part(index, parts.len()) else { continue };
            let (ours, own_count) = desk.table.digest(desk.now, part);
            if ours == theirs {
                continue;
            }
            differs = true;
            // What they have in a part is not known, so their number for the whole bounds it.
            let packet = match own_count.max(if parts.len() == 1 { count } else { 0 }) <= MAX_MARKS
            {
                true => entries(desk, part),
                false => digest(desk, self.life, part, PARTS, (false, false), Vec::new()),
            };
            desk.answer(origin, &packet);
        }
        if parts.len() == 1 {
            self.synced.retain(|(id, _)| *id != origin && desk.neighbours.is_beside(*id));
            if !differs && settled && self.synced.len() < 4 * BESIDE {
                self.synced.push((origin, span));
            }
        }
        if !differs && confirm {
            let leaves = desk.neighbours.leaves().clone();
            desk.answer(origin, &Packet::Agree { leaves, span });
        }
    }

    /// Handles ENTRIES of a router beside this one: sends what it lacks, and asks for what it has besides.
    pub(crate) fn exchange(
        &mut self,
        desk: &mut Desk<'_>,
        origin: NodeId,
        span: Span,
        mut theirs: Marks,
    ) {
        self.disagree(desk, origin, span);
        theirs.sort_unstable();
        let passed_on = desk.table.passed_on(desk.now, span);
        let mut ours: Marks = passed_on.map(|entry| entry.mark).collect();
        ours.sort_unstable();
        self.push_all(desk, origin, span, |mark| theirs.binary_search(&mark).is_err());
        theirs.retain(|mark| ours.binary_search(mark).is_err());
        if !theirs.is_empty() {
            desk.answer(origin, &Packet::Want { span, marks: theirs });
        }
    }

    /// Handles WANT of a router beside this one.
    pub(crate) fn provide(
        &mut self,
        desk: &Desk<'_>,
        origin: NodeId,
        span: Span,
        mut marks: Marks,
    ) {
        marks.sort_unstable();
        self.push_all(desk, origin, span, |mark| marks.binary_search(&mark).is_ok());
    }

    /// Has another router be sent the records in a range of which the marks are wanted.
    fn push_all(
        &mut self,
        desk: &Desk<'_>,
        to: NodeId,
        span: Span,
        is_wanted: impl Fn(u64) -> bool,
    ) {
        let passed_on = desk.table.passed_on(desk.now, span);
        let mut wanted: Vec<&Entry> = passed_on.filter(|entry| is_wanted(entry.mark)).collect();
        wanted.sort_unstable_by_key(|entry| entry.arrival());
        for entry in wanted {
            self.push(desk.config, (to, entry.record.key(), entry.signer));
        }
    }

    fn push(&mut self, config: &Config, task: Task) {
        if self.queue.len() >= config.repair_queue {
            self.postponed += 1;
        } else if !self.queue.contains(&task) {
            self.queue.push_back(task);
        }
    }
}

/// Returns a time between three and five quarters of `time`.
pub(crate) fn vary(time: Duration, random: &mut dyn Random) -> Duration {
    time * 3 / 4 + time / 2 * ((random.next_u64() % 1_024) as u32) / 1_024
}

/// Returns a DIGEST of a range in `count` parts, in fewer if there are fewer positions.
fn digest(
    desk: &Desk<'_>,
    life: u16,
    span: Span,
    count: usize,
    (confirm, settled): (bool, bool),
    renewals: Vec<Renewal>,
) -> Packet<'static> {
    let digest_of = |part: Span| desk.table.digest(desk.now, part).0;
    let parts: SmallVec<[u64; 1]> =
        (0..count).filter_map(|index| span.part(index, count)).map(digest_of).collect();
    let parts = if parts.len() == count { parts } else { smallvec![digest_of(span)] };
    let total = desk.table.digest(desk.now, span).1;
    let leaves = desk.neighbours.leaves().clone();
    let count = total.min(usize::from(u16::MAX)) as u16;
    Packet::Digest { confirm, settled, life, leaves, span, count, renewals, parts }
}

/// Returns ENTRIES of a range.
fn entries(desk: &Desk<'_>, span: Span) -> Packet<'static> {
    let passed_on = desk.table.passed_on(desk.now, span).take(MAX_MARKS);
    Packet::Entries { span, marks: passed_on.map(|entry| entry.mark).collect() }
}
