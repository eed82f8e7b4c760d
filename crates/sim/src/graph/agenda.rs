//! What is due at each node within a window.
//!
//! Entries are linked by node, and nodes with entries are bits of a bitmap. So they are brought into the order of the
//! nodes without a comparison, and only the few entries of one node are sorted.

/// The end of a list.
const NIL: u32 = u32::MAX;
/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// The arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Nanoseconds since the window began.
    pub(super) since: u32,
    pub(super) sender: u32,
    /// The link that it arrives over.
    pub(super) link: u32,
    /// The number of the packet.
    pub(super) packet: u32,
    /// The next entry of the node.
    next: u32,
}

impl Entry {
    #[inline]
    pub(super) fn new(since: u32, sender: u32, link: u32, packet: u32) -> Self {
        Entry { since, sender, link, packet, next: NIL }
    }

    #[inline]
    fn key(&self) -> u64 {
        u64::from(self.since) << 32 | u64::from(self.sender)
    }
}

/// The entries of the nodes of a shard, which are numbered from 0 here.
#[derive(Debug)]
pub(super) struct Agenda {
    entries: Vec<Entry>,
    /// Maximum number of entries since all were removed.
    used: usize,
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
            used: 0,
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
        self.used = self.used.max(self.entries.len());
    }

    /// Removes the first node, if its number is below `end`, and moves its arrivals into `of_node` in the order of their
    /// times, of their senders, and of `count` of their packets.
    #[inline]
    pub(super) fn pop(
        &mut self,
        end: u32,
        of_node: &mut Vec<Entry>,
        count: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        of_node.clear();
        while *self.words.get(self.next)? == 0 {
            if (self.next + 1) * BITS * BITS > end as usize {
                // Something may be added for its nodes from `end` on.
                return None;
            }
            self.next += 1;
        }
        let words = &mut self.words[self.next];
        let word = self.next * BITS + words.trailing_zeros() as usize;
        let nodes = &mut self.nodes[word];
        let node = word * BITS + nodes.trailing_zeros() as usize;
        if node as u32 >= end {
            return None;
        }
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
            // The last came first, and they were added in about their order, in which there is little to sort.
            of_node.reverse();
            let by_count = |one: &Entry, other: &Entry| count(one.packet).cmp(&count(other.packet));
            of_node.sort_unstable_by(|one, other| {
                one.key().cmp(&other.key()).then_with(|| by_count(one, other))
            });
        }
        Some(node as u32)
    }

    /// Returns the number of entries that were added.
    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Removes all entries but the first, of which the nodes were removed already.
    pub(super) fn truncate(&mut self, entries: usize) {
        self.entries.truncate(entries);
    }

    /// Removes all entries after all nodes, and their memory if they used little of it.
    pub(super) fn clear(&mut self) {
        self.next = 0;
        self.entries.clear();
        let used = core::mem::take(&mut self.used);
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
        for count in [0u32, 1, 5, 3_000, 20_000, 40] {
            let (mut expected, mut counts) = (Vec::new(), Vec::new());
            for packet in 0..count {
                let node = (random.next_u64() % 10_000) as u32;
                if packet % 7 == 0 {
                    agenda.mark(node);
                }
                let since = (random.next_u64() % 5) as u32;
                let sender = (random.next_u64() % 3) as u32;
                agenda.add(node, Entry::new(since, sender, 1, packet));
                counts.push(u64::from(packet ^ 5));
                expected.push((node, since, sender, packet ^ 5));
            }
            expected.sort_unstable();
            let mut got = Vec::new();
            let mut before = None;
            for end in [0, 7_000, 7_000, 9_000, u32::MAX] {
                if end == 9_000 {
                    agenda.add(8_000, Entry::new(9, 0, 1, count));
                    counts.push(0);
                    expected.push((8_000, 9, 0, 0));
                    expected.sort_unstable();
                }
                let of_packet = |packet: u32| counts[packet as usize];
                while let Some(node) = agenda.pop(end, &mut of_node, of_packet) {
                    assert!(before < Some(node) && node < end);
                    before = Some(node);
                    got.extend(
                        of_node
                            .iter()
                            .map(|e| (node, e.since, e.sender, of_packet(e.packet) as u32)),
                    );
                }
            }
            assert_eq!((got, agenda.entries()), (expected, count as usize + 1));
            agenda.clear();
        }
        for _ in 0..30 {
            assert_eq!(agenda.pop(u32::MAX, &mut of_node, |_| 0), None);
            agenda.clear();
        }
        assert!(agenda.memory() < 10_000 * 4 + 2_000, "{}", agenda.memory());
    }

    #[test]
    fn a_node_without_arrivals_is_called_once() {
        let mut agenda = Agenda::new(65);
        [64, 0, 64].into_iter().for_each(|node| agenda.mark(node));
        let mut of_node = Vec::new();
        let nodes: Vec<u32> =
            { core::iter::from_fn(|| agenda.pop(u32::MAX, &mut of_node, |_| 0)).collect() };
        assert_eq!(nodes, [0, 64]);
    }
}
