//! Which routers are said to have free blocks.
//!
//! Each router states how many it has to the routers beside it, and passes on the best of what it has heard, with its age.
//! What it believes is the latest statement of a router; one that is older than [`LIFETIME`] is dropped.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use ringway_sansio::time::{Duration, Time};

use super::Node;
use super::space::Tag;
use super::wire::{Hint, MAX_HINTS};

/// Maximum number of routers that are remembered.
pub const MAX_SOURCES: usize = 64;
/// Time for which a statement is believed.
pub const LIFETIME: Duration = Duration::from_secs(300);

/// What a router has stated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Source {
    tag: Tag,
    free: u32,
    stated: Time,
}

/// The statements of other routers.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    by_node: BTreeMap<Node, Source>,
}

impl Sources {
    /// Notes a statement that is `age` old.
    pub fn learn(&mut self, now: Time, node: Node, tag: Tag, free: u32, age: Duration) {
        let stated = Time::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64));
        if age >= LIFETIME || self.by_node.get(&node).is_some_and(|known| known.stated > stated) {
            return;
        }
        self.by_node.insert(node, Source { tag, free, stated });
        if self.by_node.len() > MAX_SOURCES {
            let worst = self.by_node.iter().max_by_key(|(node, source)| (rank(source), **node));
            if let Some(worst) = worst.map(|(node, _)| *node) {
                self.by_node.remove(&worst);
            }
        }
    }

    /// Drops what is too old.
    pub fn expire(&mut self, now: Time) {
        self.by_node.retain(|_, source| now.since(source.stated) < LIFETIME);
    }

    /// Drops what a router has stated: it does not answer, or has lost its blocks.
    pub fn forget(&mut self, node: Node) {
        self.by_node.remove(&node);
    }

    /// Returns the smallest network that is known.
    pub fn smallest(&self) -> Option<Tag> {
        self.by_node.values().map(|source| source.tag).min()
    }

    /// Returns whether a router with at least `least` free blocks of a network below `home` is known.
    pub fn knows_better(&self, home: Tag, least: u32) -> bool {
        self.by_node.values().any(|source| source.tag < home && source.free >= least)
    }

    /// Returns the router to ask next: of the smallest network, beside this router, and with the most free blocks, in this
    /// order. A router of `peers` that has stated nothing comes last.
    pub fn candidate(
        &self,
        peers: &[Node],
        home: Option<Tag>,
        least: u32,
        excluded: impl Fn(Node) -> bool,
    ) -> Option<Node> {
        let usable = |node: &Node, source: &Source| {
            source.free >= least && home.is_none_or(|home| source.tag <= home) && !excluded(*node)
        };
        let nearness =
            |node: Node| peers.iter().position(|&peer| peer == node).unwrap_or(peers.len());
        let known = self.by_node.iter().filter(|(node, source)| usable(node, source));
        let best = known.min_by_key(|(node, source)| {
            (source.tag, nearness(**node), Reverse(source.free), **node)
        });
        let silent = || {
            peers
                .iter()
                .find(|&&peer| !self.by_node.contains_key(&peer) && !excluded(peer))
                .copied()
        };
        best.map(|(node, _)| *node).or_else(silent)
    }

    /// Returns the best statements for others: of the smallest network, with the most free blocks.
    pub fn hints(&self, now: Time) -> Vec<Hint> {
        let mut best: Vec<_> = self.by_node.iter().filter(|(_, source)| source.free > 0).collect();
        best.sort_by_key(|(node, source)| (rank(source), **node));
        best.truncate(MAX_HINTS);
        let hint = |(&node, source): (&Node, &Source)| {
            let age = now.since(source.stated).as_secs().saturating_add(1);
            let age = u16::try_from(age).unwrap_or(u16::MAX);
            Hint { node, tag: source.tag, free: source.free, age }
        };
        best.into_iter().map(hint).collect()
    }
}

/// The order in which statements are worth remembering.
fn rank(source: &Source) -> (Tag, Reverse<u32>, Reverse<Time>) {
    (source.tag, Reverse(source.free), Reverse(source.stated))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Tag = Tag { created: 5, random: 0 };
    const OLDER: Tag = Tag { created: 4, random: 0 };
    const YOUNGER: Tag = Tag { created: 6, random: 0 };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_nearest_router_of_the_smallest_network_is_asked_first() {
        let now = Time::from_secs(1_000);
        let mut sources = Sources::default();
        for (node, tag, free) in
            [(1, HOME, 90), (2, HOME, 5), (3, OLDER, 1), (4, YOUNGER, 99), (5, HOME, 0)]
        {
            sources.learn(now, node, tag, free, seconds(0));
        }
        let mut asked = Vec::new();
        while let Some(node) =
            sources.candidate(&[5, 2, 6], Some(HOME), 1, |node| asked.contains(&node))
        {
            asked.push(node);
        }
        assert_eq!(asked, [3, 2, 1, 6]);
        assert_eq!(sources.candidate(&[], None, 100, |_| false), None);
        assert!(sources.knows_better(HOME, 1) && !sources.knows_better(HOME, 2));
        assert_eq!(sources.smallest(), Some(OLDER));
    }

    #[test]
    fn an_older_statement_does_not_replace_a_later_one() {
        let now = Time::from_secs(1_000);
        let mut sources = Sources::default();
        sources.learn(now, 1, HOME, 0, seconds(10));
        sources.learn(now, 1, HOME, 50, seconds(20));
        assert_eq!(sources.hints(now), []);
        sources.learn(now, 1, HOME, 50, seconds(5));
        assert_eq!(sources.hints(now), [Hint { node: 1, tag: HOME, free: 50, age: 6 }]);
        sources.learn(now, 2, HOME, 50, LIFETIME);
        sources.expire(now + seconds(295));
        assert_eq!(sources.smallest(), None);
    }

    #[test]
    fn the_worst_statement_makes_room() {
        let now = Time::from_secs(1_000);
        let mut sources = Sources::default();
        for node in 0..200 {
            sources.learn(
                now,
                node,
                if node < 100 { YOUNGER } else { HOME },
                node as u32,
                seconds(0),
            );
        }
        assert_eq!(sources.by_node.len(), MAX_SOURCES);
        let best: Vec<Node> = sources.hints(now).iter().map(|hint| hint.node).collect();
        assert_eq!(best, (192..200).rev().collect::<Vec<_>>());
    }
}
