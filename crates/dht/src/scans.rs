//! Lists of all records of one kind, wherever they are kept.
//!
//! The ring is divided into arcs, which are walked in parallel. In each, the owner of the first position that is not covered
//! yet is asked; it lists what it owns from there on, in several messages, and each of them states what it covers: so the
//! end of the last one is where to go on. Messages that are lost leave holes, which are asked for again.

use ringway_mesh::NodeId;
use ringway_sansio::Random;
use ringway_sansio::time::{Duration, Time};
use smallvec::SmallVec;

use crate::listing::MAX_MESSAGES;
use crate::output::Message;
use crate::positions::{Cursor, Stretch};
use crate::record::Record;
use crate::search::Desk;
use crate::shares::{Bucket, cost};
use crate::wire::Packet;

/// Arcs that are walked in parallel.
const ARCS: u64 = 16;
/// Messages after which an owner that is not settled is to list what it has, and the list counts as partial.
const ANYHOW: u8 = 4;
/// Messages without an answer after which a position is left out.
const MAX_ATTEMPTS: u8 = 12;
/// Maximum time to wait for an answer. It is longer than that of look-ups, because an owner may have to earn what it spends.
const MAX_WAIT: Duration = Duration::from_secs(4);

/// The number of a scan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScanId(u32);

/// How a scan has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanEnd {
    /// All owners have listed what they have, and they have what their neighbours have.
    Whole,
    /// Some could not be asked, or did not have everything yet.
    Partial,
    /// There are more records than a scan returns.
    Full,
}

/// A part of the ring.
#[derive(Clone, Debug)]
struct Arc {
    request: u32,
    /// The first position that is not covered.
    next: Cursor,
    last: Cursor,
    /// What is covered beyond, in ascending order.
    covered: SmallVec<[Stretch; 2]>,
    attempts: u8,
    /// The owner was asked for what it has though it may lack some.
    anyhow: bool,
    /// When it asks again; `None` if all is covered.
    due: Option<Time>,
}

#[derive(Clone, Debug)]
struct Scan {
    id: ScanId,
    kind: u8,
    arcs: Vec<Arc>,
    count: usize,
    partial: bool,
}

/// One message of an owner; its records are verified.
pub(crate) struct Listed {
    pub(crate) request: u32,
    pub(crate) settled: bool,
    /// It is the last that answers a LIST.
    pub(crate) last: bool,
    pub(crate) stretch: Stretch,
    pub(crate) records: Vec<(Cursor, Record)>,
}

/// Scans under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scans {
    under_way: Vec<Scan>,
    bucket: Bucket,
}

impl Scans {
    /// Begins one. Returns `None` if too many are under way.
    pub(crate) fn begin(&mut self, desk: &mut Desk<'_>, kind: u8) -> Option<ScanId> {
        if self.under_way.len() >= desk.config.scans {
            return None;
        }
        let width = u64::MAX / ARCS;
        let mut arc = |number: u64| {
            let first = (width + 1) * number;
            Arc {
                request: draw(desk.random),
                next: Cursor::first(NodeId::new(first)),
                last: Cursor::last(NodeId::new(first + width)),
                covered: SmallVec::new(),
                attempts: 0,
                anyhow: false,
                due: Some(desk.now),
            }
        };
        let arcs = (0..ARCS).map(&mut arc).collect();
        let id = ScanId(draw(desk.random));
        self.under_way.push(Scan { id, kind, arcs, count: 0, partial: false });
        self.timeout(desk);
        Some(id)
    }

    /// Ends a scan without a notice.
    pub(crate) fn stop(&mut self, id: ScanId) {
        self.under_way.retain(|scan| scan.id != id);
    }

    /// Returns the kind that is asked for with this number.
    pub(crate) fn kind_of(&self, request: u32) -> Option<u8> {
        let is_of = |scan: &&Scan| scan.arcs.iter().any(|arc| arc.request == request);
        self.under_way.iter().find(is_of).map(|scan| scan.kind)
    }

    /// Handles LISTED of a router that may own the positions. Returns the records that are new.
    pub(crate) fn listed(
        &mut self,
        desk: &mut Desk<'_>,
        listed: Listed,
    ) -> Option<(ScanId, Vec<Record>)> {
        let mut scans = self.under_way.iter_mut();
        let (scan, at) = scans.find_map(|scan| {
            let at = scan.arcs.iter().position(|arc| arc.request == listed.request)?;
            Some((scan, at))
        })?;
        let arc = &mut scan.arcs[at];
        if arc.due.is_none() || !(listed.settled || arc.anyhow) {
            return None;
        }
        let is_new = |cursor: Cursor| arc.is_open(cursor) && listed.stretch.contains(cursor);
        let records = listed.records.into_iter().filter(|(cursor, _)| is_new(*cursor));
        let mut records: Vec<Record> = records.map(|(_, record)| record).collect();
        if !arc.cover(listed.stretch) {
            return None;
        }
        scan.partial |= !listed.settled;
        (arc.attempts, arc.anyhow) = (0, !listed.settled);
        if arc.due.is_some() {
            // While there are gaps, others may still be on their way.
            let is_gapless = listed.last && arc.covered.is_empty();
            let wait = desk.trip.wait(desk.config, 1);
            arc.due = Some(if is_gapless { desk.now } else { desk.now + wait });
        }
        records.truncate(desk.config.scan_records.saturating_sub(scan.count));
        scan.count += records.len();
        (!records.is_empty()).then_some((scan.id, records))
    }

    /// Does what is due. Returns the scans that have ended.
    pub(crate) fn timeout(&mut self, desk: &mut Desk<'_>) -> Vec<(ScanId, ScanEnd)> {
        let (bucket, mut ended) = (&mut self.bucket, Vec::new());
        self.under_way.retain_mut(|scan| {
            let end = match scan.count >= desk.config.scan_records {
                true => Some(ScanEnd::Full),
                false => scan.go_on(desk, bucket),
            };
            ended.extend(end.map(|end| (scan.id, end)));
            end.is_none()
        });
        ended
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let arcs = self.under_way.iter().flat_map(|scan| &scan.arcs);
        arcs.filter_map(|arc| arc.due).min()
    }
}

impl Scan {
    /// Asks the owners that are due. Returns how the scan has ended when all is covered.
    fn go_on(&mut self, desk: &mut Desk<'_>, bucket: &mut Bucket) -> Option<ScanEnd> {
        for arc in &mut self.arcs {
            if arc.due.is_none_or(|due| due > desk.now) {
                continue;
            }
            if arc.attempts >= MAX_ATTEMPTS {
                self.partial = true;
                arc.skip(desk.measure.spacing);
                if arc.due.is_none() {
                    continue;
                }
            }
            arc.anyhow |= arc.attempts >= ANYHOW;
            let by_another = arc.attempts % 2 == 1;
            let message =
                Message { by_another, ..Message::to(arc.next.key(), &arc.question(self.kind)) };
            let is_own = desk.owned.contains(message.to);
            let cost = if is_own { 0 } else { cost(message.octets.len(), desk.hops) };
            let ready = bucket.ready_at(desk.config.listing, cost);
            if ready > desk.now {
                arc.due = Some(ready);
                continue;
            }
            bucket.take(desk.now, desk.config.listing, cost);
            desk.out.push(message);
            let wait = desk.trip.wait(desk.config, 1) * (1 << u32::from(arc.attempts).min(8));
            arc.attempts += 1;
            arc.due = Some(desk.now + wait.min(MAX_WAIT));
        }
        let is_over = self.arcs.iter().all(|arc| arc.due.is_none());
        is_over.then_some(if self.partial { ScanEnd::Partial } else { ScanEnd::Whole })
    }
}

impl Arc {
    /// Returns the question for the first stretch that is not covered.
    fn question(&self, kind: u8) -> Packet<'static> {
        let end = self.covered.first().and_then(|stretch| stretch.first.before());
        let stretch = Stretch { first: self.next, last: end.unwrap_or(self.last) };
        Packet::List { request: self.request, kind, anyhow: self.anyhow, stretch }
    }

    /// Returns whether a position is not covered yet.
    fn is_open(&self, cursor: Cursor) -> bool {
        let is_within = |stretch: &Stretch| stretch.contains(cursor);
        cursor >= self.next && cursor <= self.last && !self.covered.iter().any(is_within)
    }

    /// Notes that a stretch is covered. Returns whether it was not.
    fn cover(&mut self, stretch: Stretch) -> bool {
        let first = stretch.first.max(self.next);
        let stretch = Stretch { first, last: stretch.last.min(self.last) };
        let is_known = self.covered.iter().any(|other| other.contains(stretch.first));
        let is_room = stretch.first == self.next || self.covered.len() < MAX_MESSAGES;
        if stretch.first > stretch.last || is_known || !is_room {
            return false;
        }
        let at = self.covered.partition_point(|other| other.first < stretch.first);
        self.covered.insert(at, stretch);
        self.advance();
        true
    }

    /// Goes on to the first position that is not covered.
    fn advance(&mut self) {
        while let Some(&stretch) = self.covered.first()
            && stretch.first <= self.next
        {
            self.covered.remove(0);
            match stretch.last.after() {
                Some(after) => self.next = self.next.max(after),
                None => self.due = None,
            }
        }
        if self.next > self.last {
            self.due = None;
        }
    }

    /// Leaves out the positions of an owner that does not answer.
    fn skip(&mut self, spacing: u64) {
        (self.attempts, self.anyhow) = (0, false);
        match self.next.key().raw().checked_add(spacing.max(1)) {
            Some(raw) => self.next = Cursor::first(NodeId::new(raw)),
            None => self.due = None,
        }
        self.advance();
    }
}

fn draw(random: &mut dyn Random) -> u32 {
    random.next_u64() as u32 | 1
}
