//! Reclaiming the blocks of lost routers: a census of what all others hold.
//!
//! A block that a router owns, or is handing over, when the last answer arrives it has had since its own answer, as it has
//! accepted none since. So it is in that answer, whichever parts of the answer were computed when, and what is in no answer
//! is nobody's.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use ringway_sansio::Random;
use ringway_sansio::time::{Time, sooner};

use super::{Event, Numbers, Repeated};
use crate::numbers::Node;
use crate::numbers::config::{CENSUS_PATIENCE, CENSUS_RESEND, FREEZE, MAX_CENSUS};
use crate::numbers::ranges::{Range, Ranges};
use crate::numbers::space::Tag;
use crate::numbers::state::{Freeze, Grant, MAX_BANNED, MAX_RANGES};
use crate::numbers::wire::{MAX_LOST, MAX_RANGES_SENT, Packet};

/// All blocks that there could be.
const ALL: Range = Range { first: 0, last: u32::MAX };
/// How often the end of a census is sent.
const ENDS: u8 = 5;
/// Censuses that have ended here that are remembered.
const MAX_ENDED: usize = 16;

/// Why a census was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReclaimError {
    /// This router is in no network.
    #[error("this router has no network of short numbers")]
    NoNetwork,
    /// A census is under way.
    #[error("a census is under way; it ends within 20 minutes")]
    Busy,
    /// Too many routers.
    #[error("expected at most {MAX_LOST} lost and {MAX_CENSUS} other routers, got {0} and {1}")]
    TooMany(usize, usize),
    /// A router is named as lost and as not lost.
    #[error("router {0:016x} is named as lost and as not lost")]
    Both(Node),
}

/// Why a census has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReclaimFailure {
    /// Routers that have not answered.
    NoAnswer(Vec<Node>),
    /// A router takes part in another census.
    Busy(Node),
    /// A router that is said to be lost has answered.
    Alive(Node),
    /// Routers that have been granted blocks, but are not named.
    Missing(Vec<Node>),
    /// A router does not know all routers that it has granted blocks to.
    Unknown,
    /// This router cannot own so many ranges.
    TooManyRanges,
    /// This router's own blocks were reclaimed.
    Expelled,
}

impl fmt::Display for ReclaimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, text: &str, nodes: &[Node]| {
            f.write_str(text)?;
            nodes.iter().try_for_each(|node| write!(f, " {node:016x}"))
        };
        match self {
            ReclaimFailure::NoAnswer(nodes) => list(f, "no answer from", nodes),
            ReclaimFailure::Busy(node) => {
                write!(f, "router {node:016x} takes part in another census")
            }
            ReclaimFailure::Alive(node) => {
                write!(f, "router {node:016x} is not lost: it has answered")
            }
            ReclaimFailure::Missing(nodes) => list(f, "routers with blocks are not named:", nodes),
            ReclaimFailure::Unknown => {
                f.write_str("a router does not know all routers that it has granted blocks to")
            }
            ReclaimFailure::TooManyRanges => write!(f, "more than {MAX_RANGES} ranges of blocks"),
            ReclaimFailure::Expelled => f.write_str("this router's own blocks were reclaimed"),
        }
    }
}

/// A census that this router has begun.
#[derive(Clone, Debug)]
pub(super) struct Census {
    id: u64,
    tag: Tag,
    lost: Vec<Node>,
    /// The parts of the space that each other router has answered for.
    answered: BTreeMap<Node, Ranges>,
    /// Those that have not stated whom they have granted blocks to.
    kinless: BTreeSet<Node>,
    kin: BTreeSet<Node>,
    kin_unknown: bool,
    unchecked: bool,
    held: Ranges,
    deadline: Time,
    next: Time,
}

impl Census {
    /// Returns the routers of which an answer is missing.
    fn silent(&self) -> Vec<Node> {
        let silent =
            |node: &Node, ranges: &Ranges| !ranges.covers(ALL) || self.kinless.contains(node);
        self.answered
            .iter()
            .filter(|(node, ranges)| silent(node, ranges))
            .map(|(node, _)| *node)
            .collect()
    }
}

/// The end of a census, which is sent several times.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    id: u64,
    reclaimed: bool,
    nodes: Vec<Node>,
    left: u8,
    next: Time,
}

impl Numbers {
    /// Begins a census that reclaims what belongs to nobody: blocks of the routers in `lost`, and blocks whose owner has lost
    /// its state. `others` are all other routers that have ever been granted blocks of this network. See
    /// [`numbers`](crate::numbers) for when this is safe. [`Event::Reclaimed`] or [`Event::ReclaimFailed`] follows.
    ///
    /// With `unchecked`, the census ends also if a router is known to have been granted blocks that is not named.
    ///
    /// # Errors
    /// No network, a census under way, or names that cannot be.
    pub fn reclaim(
        &mut self,
        now: Time,
        lost: &[Node],
        others: &[Node],
        unchecked: bool,
        random: &mut dyn Random,
    ) -> Result<(), ReclaimError> {
        let Some(tag) = self.state.home else { return Err(ReclaimError::NoNetwork) };
        if self.census.is_some() || self.ending.is_some() || self.state.freeze.is_some() {
            return Err(ReclaimError::Busy);
        }
        if lost.len() > MAX_LOST
            || others.len() > MAX_CENSUS
            || self.state.banned.len() + lost.len() > MAX_BANNED
        {
            return Err(ReclaimError::TooMany(lost.len(), others.len()));
        }
        if let Some(&both) = lost.iter().find(|&&node| node == self.id || others.contains(&node)) {
            return Err(ReclaimError::Both(both));
        }
        let id = random.next_u64();
        self.take_part(now, Freeze { census: id, by: self.id }, tag, lost);
        let others: BTreeSet<Node> =
            others.iter().copied().filter(|&node| node != self.id).collect();
        self.census = Some(Census {
            id,
            tag,
            lost: lost.to_vec(),
            answered: others.iter().map(|&node| (node, Ranges::default())).collect(),
            kinless: others,
            kin: self.state.kin.clone(),
            kin_unknown: self.state.kin_incomplete,
            unchecked,
            held: self.state.held(tag),
            deadline: now + CENSUS_PATIENCE,
            next: now,
        });
        self.census_timeout(now);
        self.conclude(now);
        Ok(())
    }

    /// Returns when a census needs something.
    pub(super) fn census_due(&self) -> Option<Time> {
        let census = self.census.as_ref().map(|census| census.next.min(census.deadline));
        let ending = self.ending.as_ref().map(|ending| ending.next);
        let freeze = self.state.freeze.map(|_| self.frozen_until);
        sooner(sooner(census, ending), freeze)
    }

    /// Repeats the questions of a census and its end, and ends what takes too long.
    pub(super) fn census_timeout(&mut self, now: Time) {
        if let Some(census) = self.census.as_mut() {
            if census.deadline <= now {
                let silent = census.silent();
                self.fail(now, ReclaimFailure::NoAnswer(silent));
            } else if census.next <= now {
                census.next = now + CENSUS_RESEND;
                let lost = census.lost.clone();
                let packet = Packet::Census { census: census.id, tag: census.tag, lost };
                // The lost ones too: one that answers is not lost.
                let nodes = [census.silent(), census.lost.clone()].concat();
                nodes.into_iter().for_each(|node| self.send(node, &packet));
            }
        }
        if let Some(ending) = self.ending.as_mut().filter(|ending| ending.next <= now) {
            ending.next = now + CENSUS_RESEND;
            ending.left -= 1;
            let packet = Packet::End { census: ending.id, reclaimed: ending.reclaimed };
            let (nodes, ended) = (ending.nodes.clone(), ending.left == 0);
            nodes.into_iter().for_each(|node| self.send(node, &packet));
            if ended {
                self.ending = None;
            }
        }
        if self.state.freeze.is_some() && self.frozen_until <= now {
            self.thaw();
        }
    }

    /// Handles CENSUS.
    pub(super) fn counted(&mut self, now: Time, from: Node, id: u64, tag: Tag, lost: &[Node]) {
        let freeze = Freeze { census: id, by: from };
        let other = self.state.freeze.is_some_and(|own| own != freeze);
        let full = self.state.banned.len() + lost.len() > MAX_BANNED && self.state.freeze.is_none();
        if other || full || lost.contains(&self.id) || self.ended.contains(&id) {
            self.send(from, &Packet::Busy { census: id });
            return;
        }
        if self.state.freeze.is_none() {
            self.take_part(now, freeze, tag, lost);
        }
        self.send_holds(from, id, tag);
        let routers: Vec<Node> = self.state.kin.iter().copied().collect();
        let there = self.state.home.is_none_or(|home| home == tag);
        let complete = there && !self.state.kin_incomplete;
        self.send(from, &Packet::Kin { census: id, complete, routers });
    }

    /// Accepts no grants and nothing of the lost routers from now on. Grants that they may have accepted become nobody's.
    fn take_part(&mut self, now: Time, freeze: Freeze, tag: Tag, lost: &[Node]) {
        self.state.freeze = Some(freeze);
        self.frozen_until = now + FREEZE;
        for &node in lost {
            self.state.banned.entry(node).or_insert(freeze.census);
            self.sources.forget(node);
        }
        // What is under way when the census ends may be of blocks that it has reclaimed.
        self.asks.clear();
        // Those of earlier networks too: nobody will ever acknowledge them.
        let gone = |grant: &Grant| lost.contains(&grant.to) || (grant.tag == tag && grant.orphan);
        let retries = &mut self.retries;
        self.state.grants.retain(|id, grant| {
            let gone = gone(grant);
            if gone {
                retries.remove(&Repeated::Grant(*id));
            }
            !gone
        });
        self.changed();
    }

    /// Sends what this router holds, in parts that cover the whole space.
    fn send_holds(&mut self, to: Node, census: u64, tag: Tag) {
        let held: Vec<Range> = self.state.held(tag).iter().collect();
        let mut first = 0;
        let mut chunks = held.chunks(MAX_RANGES_SENT).peekable();
        loop {
            let blocks: Ranges = chunks.next().unwrap_or_default().iter().copied().collect();
            let next = chunks.peek().and_then(|chunk| chunk.first()).map(|range| range.first);
            let last = next.map_or(u32::MAX, |next| next - 1);
            self.send(to, &Packet::Holds { census, part: Range { first, last }, blocks });
            match next {
                Some(next) => first = next,
                None => break,
            }
        }
    }

    /// Handles HOLDS.
    pub(super) fn holds(&mut self, now: Time, from: Node, id: u64, part: Range, blocks: &Ranges) {
        let Some(census) = self.census.as_mut().filter(|census| census.id == id) else { return };
        let Some(answered) = census.answered.get_mut(&from) else { return };
        answered.insert(part);
        census.held.insert_all(blocks);
        self.conclude(now);
    }

    /// Handles KIN.
    pub(super) fn kin(&mut self, now: Time, from: Node, id: u64, complete: bool, routers: &[Node]) {
        let Some(census) = self.census.as_mut().filter(|census| census.id == id) else { return };
        if census.kinless.remove(&from) {
            census.kin.extend(routers);
            census.kin_unknown |= !complete;
        }
        self.conclude(now);
    }

    /// Handles BUSY.
    pub(super) fn busy(&mut self, now: Time, from: Node, id: u64) {
        let Some(census) = self.census.as_ref().filter(|census| census.id == id) else { return };
        if census.lost.contains(&from) {
            self.fail(now, ReclaimFailure::Alive(from));
        } else if census.answered.contains_key(&from) {
            self.fail(now, ReclaimFailure::Busy(from));
        }
    }

    /// Ends the census if all have answered.
    fn conclude(&mut self, now: Time) {
        let Some(census) = self.census.as_ref().filter(|census| census.silent().is_empty()) else {
            return;
        };
        let named = |node: &Node| {
            census.answered.contains_key(node) || census.lost.contains(node) || *node == self.id
        };
        let missing: Vec<Node> = census.kin.iter().copied().filter(|node| !named(node)).collect();
        let mut free = self.config.space.blocks();
        free.remove_all(&census.held);
        if !census.unchecked && !missing.is_empty() {
            self.fail(now, ReclaimFailure::Missing(missing));
        } else if !census.unchecked && census.kin_unknown {
            self.fail(now, ReclaimFailure::Unknown);
        } else if self.state.free.len() + free.len() > MAX_RANGES {
            self.fail(now, ReclaimFailure::TooManyRanges);
        } else {
            self.state.free.insert_all(&free);
            self.end_census(now, true);
            self.notify(Event::Reclaimed { blocks: free.count() });
            self.hurry_status(now);
        }
    }

    fn fail(&mut self, now: Time, failure: ReclaimFailure) {
        self.end_census(now, false);
        self.notify(Event::ReclaimFailed(failure));
    }

    /// Ends a census of this router whose blocks were reclaimed.
    pub(super) fn abandon_census(&mut self, now: Time) {
        if self.census.is_some() {
            self.fail(now, ReclaimFailure::Expelled);
        }
    }

    fn end_census(&mut self, now: Time, reclaimed: bool) {
        if let Some(census) = self.census.take() {
            let nodes: Vec<Node> = census.answered.into_keys().collect();
            self.finish(census.id, reclaimed);
            let ending = Ending { id: census.id, reclaimed, nodes, left: ENDS, next: now };
            self.ending = Some(ending).filter(|ending| !ending.nodes.is_empty());
        }
    }

    /// Handles END.
    pub(super) fn census_ended(&mut self, from: Node, id: u64, reclaimed: bool) {
        if self.state.freeze == Some(Freeze { census: id, by: from }) {
            self.finish(id, reclaimed);
        }
    }

    /// Applies the end of a census: what the lost routers owned is somebody's, or they are not lost.
    fn finish(&mut self, id: u64, reclaimed: bool) {
        let banned = &mut self.state.banned;
        if reclaimed {
            // Their grants are void, so that no copy of one has to be recognised.
            self.state.accepted.retain(|(node, _)| banned.get(node) != Some(&id));
            let accepted = &self.state.accepted;
            self.retries.retain(|what, _| match what {
                Repeated::Ack(giver, grant) => accepted.contains(&(*giver, *grant)),
                Repeated::Grant(_) => true,
            });
        } else {
            banned.retain(|_, census| *census != id);
        }
        self.thaw();
    }

    /// Accepts grants again.
    fn thaw(&mut self) {
        if let Some(freeze) = self.state.freeze.take() {
            self.ended.push_back(freeze.census);
            if self.ended.len() > MAX_ENDED {
                self.ended.pop_front();
            }
            self.changed();
        }
    }

    /// Handles RESET: a router that was said to be lost owns nothing any longer, and may ask again.
    pub(super) fn unban(&mut self, node: Node) {
        self.state.banned.remove(&node);
        self.state.accepted.retain(|(giver, _)| *giver != node);
        self.retries.retain(|what, _| !matches!(what, Repeated::Ack(giver, _) if *giver == node));
        self.changed();
    }
}
