//! Which nodes live.
//!
//! A lease is counted from the moment at which it was read, on the clock of this node. While the database is absent no
//! lease ends: the nodes that lived when it was last there are the best that is known. A node is dropped when a reading
//! after the end of its lease has not shown another: the last one may be of before its last renewal.

use std::collections::BTreeMap;

use ringway_proxy::config::NodeKey;
use ringway_sansio::Time;

use crate::config::{HOLD, LEASE};
use crate::record::{Lease, NodeName};

/// The other nodes.
pub struct Nodes {
    this: NodeName,
    alive: BTreeMap<NodeName, Node>,
    /// Runs that have ended their lease a short time ago: what was read before must not bring them back, and another run of
    /// the node may come soon.
    left: BTreeMap<NodeName, Node>,
    changed: bool,
    /// Time of the last call of [`Nodes::expire`].
    looked: Time,
    /// Nodes whose lease has ended without a word.
    gone: Vec<NodeName>,
}

struct Node {
    boot: u64,
    ends: Time,
    key: NodeKey,
}

impl Nodes {
    /// Returns the nodes beside this one: none.
    pub fn new(this: NodeName) -> Self {
        Nodes {
            this,
            alive: BTreeMap::new(),
            left: BTreeMap::new(),
            changed: false,
            looked: Time::ZERO,
            gone: Vec::new(),
        }
    }

    /// The leases were read.
    pub fn read(&mut self, now: Time, leases: &[Lease]) {
        self.left.retain(|_, node| now < node.ends);
        for lease in leases.iter().filter(|lease| lease.node != self.this) {
            if self.left.get(&lease.node).is_some_and(|node| node.boot == lease.boot) {
                continue;
            }
            // The lease may have been written with another clock, or by another version.
            let node = Node { boot: lease.boot, ends: now + lease.left.min(LEASE), key: lease.key };
            let before = self.alive.insert(lease.node, node);
            self.changed |= before.is_none_or(|before| before.boot != lease.boot);
        }
    }

    /// The database is there again: nodes have the time of a lease to renew theirs.
    pub fn extend(&mut self, now: Time) {
        for node in self.alive.values_mut() {
            node.ends = node.ends.max(now + LEASE);
        }
    }

    /// A node has ended its lease.
    pub fn left(&mut self, now: Time, name: NodeName) {
        let Some(node) = self.alive.remove(&name) else { return };
        self.changed = true;
        self.left.insert(name, Node { ends: now + HOLD, ..node });
    }

    /// Drops the nodes whose lease had ended when the last reading of the leases began. Returns whether others have ended
    /// since, for which they are to be read again.
    pub fn expire(&mut self, now: Time, reading: Time) -> bool {
        self.looked = now;
        let ended = |(name, node): (&NodeName, &Node)| (node.ends <= reading).then_some(*name);
        let ended: Vec<NodeName> = self.alive.iter().filter_map(ended).collect();
        self.alive.retain(|_, node| reading < node.ends);
        self.changed |= !ended.is_empty();
        self.gone.extend(ended);
        self.alive.values().any(|node| node.ends <= now)
    }

    /// Returns the time at which the next lease ends, but for those of which [`Nodes::expire`] knows.
    pub fn next_end(&self) -> Option<Time> {
        self.alive.values().map(|node| node.ends).filter(|ends| self.looked < *ends).min()
    }

    /// Returns the key of this run of a node, if it lives.
    pub fn key(&self, node: NodeName, boot: u64) -> Option<NodeKey> {
        self.alive.get(&node).filter(|node| node.boot == boot).map(|node| node.key)
    }

    /// Returns the key of the run of a node that lives.
    pub fn latest_key(&self, node: NodeName) -> Option<NodeKey> {
        self.alive.get(&node).map(|node| node.key)
    }

    /// Returns until when it is expected that this run of a node, or one after it, is known to live: the node has left a short
    /// time ago.
    pub fn expected_until(&self, name: NodeName, boot: u64, now: Time) -> Option<Time> {
        let left = self.left.get(&name).filter(|node| node.boot <= boot && now < node.ends)?;
        Some(left.ends)
    }

    /// Returns whether this run of a node, or a later one, lives or has left a short time ago.
    pub fn has_heard_of(&self, name: NodeName, boot: u64) -> bool {
        let known = [self.alive.get(&name), self.left.get(&name)];
        known.into_iter().flatten().any(|node| node.boot >= boot)
    }

    /// Returns the runs of the other nodes that live.
    pub fn runs(&self) -> impl Iterator<Item = (NodeName, u64)> {
        self.alive.iter().map(|(name, node)| (*name, node.boot))
    }

    /// Returns the number of other nodes that live.
    pub fn len(&self) -> usize {
        self.alive.len()
    }

    /// Returns whether this node is alone.
    pub fn is_empty(&self) -> bool {
        self.alive.is_empty()
    }

    /// Returns the nodes whose lease has ended since the last call, but for those that have ended it themselves.
    pub fn take_gone(&mut self) -> Vec<NodeName> {
        std::mem::take(&mut self.gone)
    }

    /// Returns the names of all other nodes, if they have changed since the last call, or another run of one has begun.
    pub fn take_change(&mut self) -> Option<Vec<NodeName>> {
        std::mem::take(&mut self.changed).then(|| self.alive.keys().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_that_were_read_before_a_node_has_left_do_not_bring_it_back() {
        let name = |n| NodeName { address: ([10, 0, 0, n], 5060).into(), tcp: false };
        let now = Time::from_secs(1000);
        let lease = |boot| Lease { node: name(1), boot, left: LEASE, key: NodeKey([1; 16]) };
        let mut nodes = Nodes::new(name(9));
        nodes.read(now, &[lease(7)]);
        assert!(nodes.key(name(1), 7).is_some());
        nodes.left(now, name(1));
        nodes.read(now, &[lease(7)]);
        assert!(nodes.is_empty(), "the answer came by another connection than the message");
        // The next run of it is another.
        nodes.read(now, &[lease(8)]);
        assert!(nodes.key(name(1), 8).is_some());
    }
}
