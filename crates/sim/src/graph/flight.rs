//! Packets in flight and timers, by the window of time in which they are due.
//!
//! A [`Log`] has what is due within one window, in the order in which it was added; packets to one neighbour by the block
//! of nodes that the neighbour is in. It is written from the beginning to the end and read once, block by block. It is in
//! pages, so that nothing is moved when it grows, and pages are used again as soon as their block was read.

use super::pages::{Head, Pages, Pool};
use std::collections::BTreeMap;

/// Bits of a node's index in its shard that select it in its block.
const BLOCK_BITS: u32 = 10;
/// What is due in one window.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Broadcasts, which arrive at nodes of several blocks.
    pub(super) broadcasts: Pages,
    /// Other packets by the block of the node at which they arrive; without the last blocks if they have none.
    blocks: Vec<Pages>,
    /// Nodes that have set a timer.
    pub(super) timers: Vec<u32>,
}

impl Log {
    fn is_empty(&self) -> bool {
        self.broadcasts.is_empty()
            && self.timers.is_empty()
            && self.blocks.iter().all(Pages::is_empty)
    }

    /// Removes the packets to nodes of the first block that has any, `from` or a later one. Returns the block and them.
    pub(super) fn take_block(&mut self, from: usize) -> Option<(usize, Pages)> {
        let mut blocks = self.blocks.iter_mut().enumerate().skip(from);
        let (block, pages) = blocks.find(|(_, pages)| !pages.is_empty())?;
        Some((block, core::mem::take(pages)))
    }

    fn memory(&self) -> [usize; 2] {
        let timers = self.timers.capacity() * size_of::<u32>();
        let events = timers + self.blocks.capacity() * size_of::<Pages>();
        [events, self.blocks.iter().chain([&self.broadcasts]).map(Pages::memory).sum()]
    }
}

/// Returns the index of the first node of a block.
pub(super) fn first_of_block(block: usize) -> u32 {
    (block as u32) << BLOCK_BITS
}

/// Returns the sums of two pairs.
pub(super) fn sum(one: [usize; 2], other: [usize; 2]) -> [usize; 2] {
    [one[0] + other[0], one[1] + other[1]]
}

/// Returns the log of a window.
#[inline]
fn log<'a>(
    near: &'a mut (u64, Log),
    other: &'a mut BTreeMap<u64, Log>,
    window: u64,
) -> &'a mut Log {
    match window == near.0 {
        true => &mut near.1,
        false => other.entry(window).or_default(),
    }
}

/// Everything that is due at the nodes of a shard.
#[derive(Debug)]
pub(super) struct Flight {
    /// Length of a window in nanoseconds.
    window: u64,
    /// The log of the window with this number, which most events are added to.
    near: (u64, Log),
    /// The logs of other windows, by their numbers.
    other: BTreeMap<u64, Log>,
    pool: Pool,
    /// Number of packets in flight that are counted here.
    pub(super) packets: u64,
}

impl Flight {
    /// Creates it for windows of a length in nanoseconds.
    pub(super) fn new(window: u64) -> Self {
        let near = (0, Log::default());
        Flight { window, near, other: BTreeMap::new(), pool: Pool::default(), packets: 0 }
    }

    /// Returns the number of the window that a time is in.
    #[inline]
    pub(super) fn window_of(&self, at: u64) -> u64 {
        at / self.window
    }

    /// Returns the first nanosecond of a window.
    pub(super) fn first_of(&self, window: u64) -> u64 {
        window.saturating_mul(self.window)
    }

    /// Returns the last nanosecond of a window.
    pub(super) fn last_of(&self, window: u64) -> u64 {
        self.first_of(window).saturating_add(self.window - 1)
    }

    /// Adds a broadcast.
    #[inline]
    pub(super) fn add_broadcast(&mut self, head: &Head, bytes: &[u8]) {
        let window = self.window_of(head.at);
        let Flight { near, other, pool, .. } = self;
        log(near, other, window).broadcasts.add_from(pool, head, bytes);
    }

    /// Adds a packet to the node with an index in the shard.
    #[inline]
    pub(super) fn add(&mut self, index: u32, head: &Head, bytes: &[u8]) {
        let window = self.window_of(head.at);
        let Flight { near, other, pool, .. } = self;
        let log = log(near, other, window);
        let block = (index >> BLOCK_BITS) as usize;
        if block >= log.blocks.len() {
            log.blocks.resize_with(block + 1, Pages::default);
        }
        log.blocks[block].add_from(pool, head, bytes);
    }

    /// Adds the timer of a node.
    #[inline]
    pub(super) fn add_timer(&mut self, at: u64, node: u32) {
        let window = self.window_of(at);
        log(&mut self.near, &mut self.other, window).timers.push(node);
    }

    /// Returns the number of the first window in which something is due, or the largest number.
    pub(super) fn first(&self) -> u64 {
        let near = if self.near.1.is_empty() { u64::MAX } else { self.near.0 };
        let other = self.other.first_key_value().map_or(u64::MAX, |(window, _)| *window);
        near.min(other)
    }

    /// Removes what is due in a window, before which nothing is due.
    pub(super) fn take(&mut self, window: u64) -> Log {
        let (number, log) = core::mem::take(&mut self.near);
        if !log.is_empty() {
            self.other.insert(number, log);
        }
        let next = window + 1;
        self.near = (next, self.other.remove(&next).unwrap_or_default());
        self.other.remove(&window).unwrap_or_default()
    }

    /// Adds what another shard has sent, and empties it. `index` returns the index of the node at the end of a link.
    pub(super) fn accept(&mut self, mail: &mut Pages, index: impl Fn(u32) -> u32) {
        let mut copy = Vec::new();
        for (packet, head) in mail.packets() {
            mail.copy(packet, &mut copy);
            if head.is_broadcast {
                // It is counted by the shard of its sender.
                self.add_broadcast(&head, &copy);
            } else {
                self.packets += 1;
                self.add(index(head.link), &head, &copy);
            }
        }
        *mail = Pages::default();
    }

    /// Takes pages that were read.
    pub(super) fn release(&mut self, pages: Pages) {
        self.pool.release(pages);
    }

    /// Returns the allocated bytes: of events, and of packets.
    pub(super) fn memory(&self) -> [usize; 2] {
        let logs = self.other.values().chain([&self.near.1]).map(Log::memory);
        let logs = logs.fold([self.other.len() * size_of::<(u64, Log)>(), 0], sum);
        sum(logs, [0, self.pool.memory()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(at: u64, link: u32) -> Head {
        Head { at, count: 0, sender: 0, link, len: 1, is_broadcast: false }
    }

    #[test]
    fn what_is_due_is_found_in_its_window() {
        let mut flight = Flight::new(10);
        assert_eq!((flight.first(), flight.first_of(3), flight.last_of(3)), (u64::MAX, 30, 39));
        for (link, at) in [(1, 39), (2, 5), (3, 30), (4, 19), (5, 1_000)] {
            flight.add(5_000 * link, &head(at, link), &[link as u8]);
        }
        flight.add_timer(12, 7);
        for (window, links, timers) in
            [(0, &[2][..], 0), (1, &[4], 1), (3, &[1, 3], 0), (100, &[5], 0)]
        {
            assert_eq!(flight.first(), window);
            let mut log = flight.take(window);
            let mut found = Vec::new();
            while let Some((block, mut pages)) = log.take_block(0) {
                for (packet, head) in pages.packets().collect::<Vec<_>>() {
                    assert!(first_of_block(block) <= 5_000 * head.link);
                    assert!(5_000 * head.link < first_of_block(block + 1));
                    assert_eq!(pages.read(packet, &mut Vec::new()).1, [head.link as u8]);
                    found.push(head.link);
                }
                flight.release(pages);
            }
            assert_eq!((&found[..], log.timers.len()), (links, timers));
        }
        assert_eq!(flight.first(), u64::MAX);
    }

    #[test]
    fn a_window_that_was_read_may_be_written_again() {
        let mut flight = Flight::new(10);
        flight.add_timer(21, 0);
        assert_eq!(flight.take(2).timers, [0]);
        flight.add_timer(25, 1);
        flight.add_timer(31, 2);
        assert_eq!(flight.first(), 2);
        assert_eq!(flight.take(2).timers, [1]);
        flight.add_timer(22, 1);
        assert_eq!((flight.first(), flight.take(2).timers.len()), (2, 1));
        assert_eq!(flight.take(3).timers, [2]);
        assert_eq!(flight.first(), u64::MAX);
    }
}
