//! What is due at each node within a window.
//!
//! Entries are linked by node, and nodes with entries are bits of a bitmap. So they are brought into the order of the
//! nodes without a comparison, and only the few entries of one node are sorted.

use crate::events::Order;

/// The end of a list.
const NIL: u32 = u32::MAX;
/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// The arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) order: Order,
    /// Nanoseconds since the window began.
    pub(super) since: u32,
    /// The link that it arrives over.
    pub(super) link: u32,
    /// The number of the packet in its log.
    pub(super) packet: u32,
    /// The next entry of the node.
    next: u32,
    /// The index of the sender among the neighbours of the node.
    pub(super) from: u16,
}

impl Entry {
    #[inline]
    pub(super) fn new(since: u32, order: Order, link: u32, packet: u32, from: u16) -> Self {
        Entry { order, since, link, packet, next: NIL, from }
    }
}

/// The entries of the nodes of a shard, which are numbered from 0 here.
#[derive(Debug)]
pub(super) struct Agenda {
    entries: Vec<Entry>,
    /// By node: its last entry.
    last: Vec<u32>,
    /// Nodes with something due, a bit each; and the words of these that are not zero, a bit each.
    nodes: Vec<u64>,
    words: Vec<u64>,
    /// The word of `words` that is looked at next; those before it are zero.
    next: usize,
}

impl Agenda {
    pub(super) fn new(nodes: usize) -> Self {
        let words = nodes.div_ceil(BITS);
        Agenda {
            entries: Vec::new(),
            last: vec![NIL; nodes],
            nodes: vec![0; words],
            words: vec![0; words.div_ceil(BITS)],
            next: 0,
        }
    }

    /// Notes that a node is to be called.
    #[inline]
    pub(super) fn mark(&mut self, node: u32) {
        let word = node as usize / BITS;
        self.nodes[word] |= 1 << (node as usize % BITS);
        self.words[word / BITS] |= 1 << (word % BITS);
    }

    /// Adds an arrival at a node.
    #[inline]
    pub(super) fn add(&mut self, node: u32, entry: Entry) {
        self.mark(node);
        let last = &mut self.last[node as usize];
        let next = core::mem::replace(last, self.entries.len() as u32);
        self.entries.push(Entry { next, ..entry });
    }

    /// Removes the first node, and moves its arrivals into `of_node` in their order. When there is no node left, all
    /// may be added again.
    #[inline]
    pub(super) fn pop(&mut self, of_node: &mut Vec<Entry>) -> Option<u32> {
        of_node.clear();
        while self.words.get(self.next).is_some_and(|word| *word == 0) {
            self.next += 1;
        }
        let Some(words) = self.words.get_mut(self.next) else {
            self.next = 0;
            self.clear_entries();
            return None;
        };
        let word = self.next * BITS + words.trailing_zeros() as usize;
        let nodes = &mut self.nodes[word];
        let node = word * BITS + nodes.trailing_zeros() as usize;
        *nodes &= *nodes - 1;
        if *nodes == 0 {
            *words &= *words - 1;
        }
        let mut next = core::mem::replace(&mut self.last[node], NIL);
        while next != NIL {
            let entry = self.entries[next as usize];
            of_node.push(entry);
            next = entry.next;
        }
        if of_node.len() > 1 {
            of_node.sort_unstable_by_key(|entry| (entry.since, entry.order));
        }
        Some(node as u32)
    }

    /// Removes the entries, and their memory if they used little of it.
    fn clear_entries(&mut self) {
        let used = self.entries.len();
        self.entries.clear();
        if used < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.capacity() / 2);
        }
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.last.capacity() * size_of::<u32>()
            + (self.nodes.capacity() + self.words.capacity()) * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::{Random, SplitMix};

    #[test]
    fn nodes_come_in_their_order_and_have_their_arrivals_in_order() {
        let mut random = SplitMix::new(3);
        let mut agenda = Agenda::new(10_000);
        let mut of_node = Vec::new();
        for count in [0, 1, 5, 3_000, 20_000, 40] {
            let mut expected = Vec::new();
            for packet in 0..count {
                let node = (random.next_u64() % 10_000) as u32;
                if packet % 7 == 0 {
                    agenda.mark(node);
                }
                let since = (random.next_u64() % 5) as u32;
                let order = Order::new((random.next_u64() % 3) as u32, packet.into());
                agenda.add(node, Entry::new(since, order, 1, packet, 2));
                expected.push((node, since, order, packet));
            }
            expected.sort_unstable();
            let mut got = Vec::new();
            let mut before = None;
            while let Some(node) = agenda.pop(&mut of_node) {
                assert!(before < Some(node));
                before = Some(node);
                got.extend(of_node.iter().map(|e| (node, e.since, e.order, e.packet)));
            }
            assert_eq!(got, expected);
        }
        for _ in 0..30 {
            assert_eq!(agenda.pop(&mut of_node), None);
        }
        assert!(agenda.memory() < 10_000 * 4 + 2_000, "{}", agenda.memory());
    }

    #[test]
    fn a_node_without_arrivals_is_called_once() {
        let mut agenda = Agenda::new(65);
        [64, 0, 64].into_iter().for_each(|node| agenda.mark(node));
        let mut of_node = Vec::new();
        let nodes: Vec<u32> = core::iter::from_fn(|| agenda.pop(&mut of_node)).collect();
        assert_eq!(nodes, [0, 64]);
    }
}
