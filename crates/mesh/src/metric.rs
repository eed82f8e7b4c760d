//! Distance in the space of ids: what is near, what is progress, and who is responsible for a key.
//!
//! [`Space`] is the choice between the ring of the source and the XOR metric of Kademlia. Everything else of the overlay
//! is common to both.
//!
//! On the ring a router is responsible for the keys from its own id up to the next router's, and the last router also
//! for those before the first. All progress is measured on a *line* from 0 to 2^64 - 1 without a wrap, because only
//! then sorting converges to a single ring; the step from the first router to the last is one of its own
//! ([`Space::CLOSES`]).

use core::cmp::Reverse;
use core::fmt;

use smallvec::SmallVec;

use crate::id::NodeId;

/// Ids that a router must know, or tells of.
pub type Ids = SmallVec<[NodeId; 8]>;

/// A metric of the space of ids. `sorted` are the ids of a router's contacts in ascending order, without its own.
pub trait Space: Copy + Default + fmt::Debug + 'static {
    /// Whether the ends must be joined: keys before the first router belong to the last.
    const CLOSES: bool;

    /// Returns how far a message for `key` is from done when it is at `node`. No two nodes are equally far, and the one
    /// with the smallest distance is responsible for the key, except for keys before the first node of a ring.
    fn distance(node: NodeId, key: NodeId) -> u64;

    /// Returns how far two ids are from each other, whichever is first.
    fn span(one: NodeId, other: NodeId) -> u64;

    /// Returns the class of a contact by its distance, below 128. Of each class a few candidates are kept.
    fn class(own: NodeId, other: NodeId) -> u8;

    /// Returns the contacts that a router must know, `count` on each side.
    fn near(own: NodeId, sorted: &[NodeId], count: usize) -> Ids;

    /// Returns the contacts that are asked for what they know in a turn of upkeep.
    fn asked(own: NodeId, sorted: &[NodeId], turn: usize) -> Ids;

    /// Returns the contacts that are of most use to `peer`: those it may not know and must.
    fn hints(own: NodeId, peer: NodeId, sorted: &[NodeId]) -> Ids;

    /// Returns the contact to which `evicted` is delegated when it is not kept, so that the network stays connected.
    fn delegate(own: NodeId, evicted: NodeId, sorted: &[NodeId]) -> Option<NodeId>;
}

/// The ring: ids in order.
#[derive(Clone, Copy, Default, Debug)]
pub struct Ring;

impl Space for Ring {
    const CLOSES: bool = true;

    /// Nodes up to the key come before all nodes behind it, whose id is their distance: each distance is unique.
    fn distance(node: NodeId, key: NodeId) -> u64 {
        if node <= key { key.raw() - node.raw() } else { node.raw() }
    }

    fn span(one: NodeId, other: NodeId) -> u64 {
        one.raw().abs_diff(other.raw())
    }

    /// The side, and the power of two of the linear distance.
    fn class(own: NodeId, other: NodeId) -> u8 {
        let side = if other > own { 64 } else { 0 };
        side + (63 - Ring::span(own, other).max(1).leading_zeros()) as u8
    }

    fn near(own: NodeId, sorted: &[NodeId], count: usize) -> Ids {
        let middle = sorted.partition_point(|&id| id < own);
        let last = sorted.len().min(middle + count);
        Ids::from_slice(&sorted[middle.saturating_sub(count)..last])
    }

    fn asked(own: NodeId, sorted: &[NodeId], _turn: usize) -> Ids {
        Ring::near(own, sorted, 1)
    }

    /// The contacts beside the peer, one on each side. Where we are beside it ourselves, there is nothing to tell.
    fn hints(own: NodeId, peer: NodeId, sorted: &[NodeId]) -> Ids {
        let (before, after) = sorted.split_at(sorted.partition_point(|&id| id < peer));
        let before = before.last().filter(|&&id| own > peer || id > own);
        let after = after.iter().find(|&&id| id != peer).filter(|&&id| own < peer || id < own);
        before.into_iter().chain(after).copied().collect()
    }

    /// The contact between us and the evicted one that is closest to it (linearisation).
    fn delegate(own: NodeId, evicted: NodeId, sorted: &[NodeId]) -> Option<NodeId> {
        let (before, after) = sorted.split_at(sorted.partition_point(|&id| id < evicted));
        if own < evicted {
            before.last().copied().filter(|&id| id > own)
        } else {
            after.iter().copied().find(|&id| id != evicted).filter(|&id| id < own)
        }
    }
}

/// Classes of which a hint has a router each.
const MAX_CLASSES: u8 = 14;

/// The XOR metric: ids as leaves of a binary tree.
#[derive(Clone, Copy, Default, Debug)]
pub struct Xor;

impl Space for Xor {
    const CLOSES: bool = false;

    fn distance(node: NodeId, key: NodeId) -> u64 {
        node.raw() ^ key.raw()
    }

    fn span(one: NodeId, other: NodeId) -> u64 {
        one.raw() ^ other.raw()
    }

    /// The number of leading bits in common.
    fn class(own: NodeId, other: NodeId) -> u8 {
        Xor::distance(own, other).leading_zeros().min(63) as u8
    }

    fn near(own: NodeId, sorted: &[NodeId], count: usize) -> Ids {
        closest::<Xor>(own, sorted.iter().copied(), 2 * count)
    }

    /// The closest two, and the closest of one class in turn: what it knows is in the classes before that.
    fn asked(own: NodeId, sorted: &[NodeId], turn: usize) -> Ids {
        let mut asked = Xor::near(own, sorted, 1);
        let mut classes: Ids = Ids::new();
        for class in 0..64 {
            let of_class = sorted.iter().copied().filter(|&id| Xor::class(own, id) == class);
            classes.extend(closest::<Xor>(own, of_class, 1));
        }
        let next = classes.get(turn % classes.len().max(1)).filter(|id| !asked.contains(id));
        asked.extend(next.copied());
        asked
    }

    /// The two closest to the peer, and of each class that both have in common one: a router that knows nobody in a class in
    /// which there is somebody cannot reach it, and those close to it are the ones to know.
    fn hints(own: NodeId, peer: NodeId, sorted: &[NodeId]) -> Ids {
        let others = || sorted.iter().copied().filter(|&id| id != peer);
        let mut hints = closest::<Xor>(peer, others(), 2);
        let common = Xor::class(own, peer);
        for class in common.saturating_sub(MAX_CLASSES)..common {
            let of_class = others().filter(|&id| Xor::class(own, id) == class);
            hints.extend(closest::<Xor>(peer, of_class, 1));
        }
        hints.sort_unstable();
        hints.dedup();
        hints
    }

    fn delegate(own: NodeId, evicted: NodeId, sorted: &[NodeId]) -> Option<NodeId> {
        let best = closest::<Xor>(evicted, sorted.iter().copied().filter(|&id| id != evicted), 1);
        let own = Xor::distance(own, evicted);
        best.first().copied().filter(|&id| Xor::distance(id, evicted) < own)
    }
}

/// Returns the `count` ids closest to `key`, closest first.
fn closest<S: Space>(key: NodeId, ids: impl Iterator<Item = NodeId>, count: usize) -> Ids {
    let mut best = Ids::new();
    for id in ids {
        let at = best.partition_point(|&other| S::distance(other, key) < S::distance(id, key));
        if at < count {
            best.insert(at, id);
            best.truncate(count);
        }
    }
    best
}

/// Returns who is responsible for `key` among all `nodes` of a network, or `None` if there are none. Routers find out by
/// forwarding; who sees the whole network, as a test does, asks here.
pub fn responsible<S: Space>(
    nodes: impl Iterator<Item = NodeId> + Clone,
    key: NodeId,
) -> Option<NodeId> {
    let best = nodes.clone().min_by_key(|&node| S::distance(node, key))?;
    if S::CLOSES && best > key { nodes.min_by_key(|&node| Reverse(node)) } else { Some(best) }
}

#[cfg(test)]
mod tests;
