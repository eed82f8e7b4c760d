//! Packets in flight and timers, by the window of time in which they are due.
//!
//! A [`Log`] has what is due within one window, in the order in which it was added; packets to one neighbour by the block
//! of nodes that the neighbour is in. It is written from the beginning to the end and read once, block by block. It is in
//! pages, so that nothing is moved when it grows and a burst leaves no holes in memory, and pages are used again as soon
//! as their block was read.

use std::collections::BTreeMap;

/// Bits of a node's index in its shard that select it in its block.
const BLOCK_BITS: u32 = 10;
/// Maximum number of bytes of the packets in a page, and of packets.
const PAGE_BYTES: usize = 1 << 15;
const PAGE_PACKETS: usize = 1 << PAGE_BITS;
/// Bits of a packet's number that select it in its page.
const PAGE_BITS: u32 = 8;
/// The first page of a block is shorter by this: most blocks have few packets in most windows.
const FIRST_PART: usize = 4;
/// Maximum number of empty pages of each length that wait for another use.
const MAX_SPARE: usize = 128;
/// Windows between two reviews of how many are needed.
const REVIEW: u32 = 256;
/// Windows after a burst in which no page waits for another use, so that those in use then do not stay, which may be the
/// only ones in use of what an allocator has taken from the system.
const RELEASE: u32 = 4;

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The time of arrival.
    pub(super) at: u64,
    /// The number of events that its sender had requested with it, which distinguishes its packets.
    pub(super) count: u64,
    pub(super) sender: u32,
    /// The link that it arrives over; and after that, if it is a broadcast, over the others of its sender that follow.
    pub(super) link: u32,
    /// The position of its bytes.
    pub(super) start: u32,
    pub(super) len: u16,
    pub(super) is_broadcast: bool,
}

/// Packets one after another.
#[derive(Debug, Default)]
struct Page {
    heads: Vec<Head>,
    bytes: Vec<u8>,
}

impl Page {
    /// Creates an empty page with all of its memory, which does not grow.
    fn new(is_first: bool) -> Self {
        let part = if is_first { FIRST_PART } else { 1 };
        let heads = Vec::with_capacity(PAGE_PACKETS / part);
        Page { heads, bytes: Vec::with_capacity(PAGE_BYTES / part) }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.heads.len() < self.heads.capacity()
            && self.bytes.len() + bytes <= self.bytes.capacity()
    }

    fn memory(&self) -> [usize; 2] {
        [self.heads.capacity() * size_of::<Head>(), self.bytes.capacity()]
    }
}

/// Packets in pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Page>,
}

impl Pages {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Adds a packet. Its position is set here.
    #[inline]
    pub(super) fn add(&mut self, head: Head, bytes: &[u8]) {
        self.add_with(head, bytes, Page::new);
    }

    /// Adds a packet, if need be in a new page.
    #[inline]
    fn add_with(&mut self, head: Head, bytes: &[u8], new: impl FnOnce(bool) -> Page) {
        if !self.pages.last().is_some_and(|page| page.has_room(bytes.len())) {
            let page = new(self.pages.is_empty());
            self.pages.push(page);
        }
        if let Some(page) = self.pages.last_mut() {
            let start = page.bytes.len() as u32;
            page.bytes.extend_from_slice(bytes);
            page.heads.push(Head { start, ..head });
        }
    }

    /// Returns all packets with their numbers.
    pub(super) fn packets(&self) -> impl Iterator<Item = (u32, &Head)> + '_ {
        let pages = (0..).zip(&self.pages);
        pages.flat_map(|(page, of)| (page << PAGE_BITS..).zip(&of.heads))
    }

    /// Returns a packet.
    #[inline]
    pub(super) fn head(&self, packet: u32) -> &Head {
        &self.pages[(packet >> PAGE_BITS) as usize].heads[packet as usize % PAGE_PACKETS]
    }

    /// Returns the bytes of a packet.
    #[inline]
    pub(super) fn bytes(&self, packet: u32) -> &[u8] {
        let Head { start, len, .. } = *self.head(packet);
        &self.pages[(packet >> PAGE_BITS) as usize].bytes[start as usize..][..len.into()]
    }

    /// Returns a packet and its bytes.
    #[inline]
    pub(super) fn packet_mut(&mut self, packet: u32) -> (&Head, &mut [u8]) {
        let Page { heads, bytes } = &mut self.pages[(packet >> PAGE_BITS) as usize];
        let head = &heads[packet as usize % PAGE_PACKETS];
        (head, &mut bytes[head.start as usize..][..head.len.into()])
    }

    /// Returns the allocated bytes: of events, and of packets.
    pub(super) fn memory(&self) -> [usize; 2] {
        let pages = self.pages.capacity() * size_of::<Page>();
        self.pages.iter().map(Page::memory).fold([pages, 0], sum)
    }
}

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
        let blocks = timers + self.blocks.capacity() * size_of::<Pages>();
        let pages = self.blocks.iter().chain([&self.broadcasts]);
        pages.map(Pages::memory).fold([blocks, 0], sum)
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

/// Empty pages that wait for another use.
#[derive(Debug, Default)]
struct Spare {
    /// Those that come first in a block, and others.
    pages: [Vec<Page>; 2],
    /// Number of pages in use, and its maximum since the last review.
    in_use: usize,
    max_in_use: usize,
    /// Windows since the last review.
    windows: u32,
    /// Windows in which no page is to wait.
    releasing: u32,
}

impl Spare {
    fn take(&mut self, is_first: bool) -> Page {
        self.in_use += 1;
        self.max_in_use = self.max_in_use.max(self.in_use);
        let page = self.pages[usize::from(!is_first)].pop();
        page.unwrap_or_else(|| Page::new(is_first))
    }

    fn release(&mut self, pages: Pages) {
        for (position, mut page) in pages.pages.into_iter().enumerate() {
            self.in_use = self.in_use.saturating_sub(1);
            let pages = &mut self.pages[usize::from(position > 0)];
            if pages.len() < MAX_SPARE && self.releasing == 0 {
                page.heads.clear();
                page.bytes.clear();
                pages.push(page);
            }
        }
    }

    /// A window begins: if far fewer pages were in use lately than wait, all are released.
    fn turn(&mut self) {
        self.releasing = self.releasing.saturating_sub(1);
        self.windows += 1;
        if self.windows < REVIEW {
            return;
        }
        if self.pages.iter().map(Vec::len).sum::<usize>() > 2 * self.max_in_use {
            self.pages = Default::default();
            self.releasing = RELEASE;
        }
        (self.windows, self.max_in_use) = (0, self.in_use);
    }
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
    spare: Spare,
    /// Number of packets in flight that are counted here.
    pub(super) packets: u64,
}

impl Flight {
    /// Creates it for windows of a length in nanoseconds.
    pub(super) fn new(window: u64) -> Self {
        let near = (0, Log::default());
        Flight { window, near, other: BTreeMap::new(), spare: Spare::default(), packets: 0 }
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
    pub(super) fn add_broadcast(&mut self, head: Head, bytes: &[u8]) {
        let window = self.window_of(head.at);
        let Flight { near, other, spare, .. } = self;
        log(near, other, window).broadcasts.add_with(head, bytes, |is_first| spare.take(is_first));
    }

    /// Adds a packet to the node with an index in the shard.
    #[inline]
    pub(super) fn add(&mut self, index: u32, head: Head, bytes: &[u8]) {
        let window = self.window_of(head.at);
        let Flight { near, other, spare, .. } = self;
        let log = log(near, other, window);
        let block = (index >> BLOCK_BITS) as usize;
        if block >= log.blocks.len() {
            log.blocks.resize_with(block + 1, Pages::default);
        }
        log.blocks[block].add_with(head, bytes, |is_first| spare.take(is_first));
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
        self.spare.turn();
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
        for (packet, head) in mail.packets() {
            let bytes = mail.bytes(packet);
            if head.is_broadcast {
                // It is counted by the shard of its sender.
                self.add_broadcast(*head, bytes);
            } else {
                self.packets += 1;
                self.add(index(head.link), *head, bytes);
            }
        }
        self.release(core::mem::take(mail));
    }

    /// Takes pages that were read.
    pub(super) fn release(&mut self, pages: Pages) {
        self.spare.release(pages);
    }

    /// Returns the allocated bytes: of events, and of packets.
    pub(super) fn memory(&self) -> [usize; 2] {
        let logs = self.other.len() * size_of::<(u64, Log)>();
        let logs = self.other.values().chain([&self.near.1]).map(Log::memory).fold([logs, 0], sum);
        self.spare.pages.iter().flatten().map(Page::memory).fold(logs, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(at: u64, link: u32) -> Head {
        Head { at, count: 0, sender: 0, link, start: 0, len: 1, is_broadcast: false }
    }

    #[test]
    fn what_is_due_is_found_in_its_window() {
        assert_eq!(size_of::<Head>(), 32);
        let mut flight = Flight::new(10);
        assert_eq!((flight.first(), flight.first_of(3), flight.last_of(3)), (u64::MAX, 30, 39));
        for (link, at) in [(1, 39), (2, 5), (3, 30), (4, 19), (5, 1_000)] {
            flight.add(5_000 * link, head(at, link), &[link as u8]);
        }
        flight.add_timer(12, 7);
        for (window, links, timers) in
            [(0, &[2][..], 0), (1, &[4], 1), (3, &[1, 3], 0), (100, &[5], 0)]
        {
            assert_eq!(flight.first(), window);
            let mut log = flight.take(window);
            let mut found = Vec::new();
            while let Some((block, pages)) = log.take_block(0) {
                for (packet, head) in pages.packets() {
                    assert!(first_of_block(block) <= 5_000 * head.link);
                    assert!(5_000 * head.link < first_of_block(block + 1));
                    assert_eq!(pages.bytes(packet), [head.link as u8]);
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

    #[test]
    fn packets_of_many_pages_are_found_and_their_memory_is_released() {
        let (mut flight, mut mail) = (Flight::new(10), Pages::default());
        for number in 0..20_000u32 {
            let bytes = vec![number as u8; 1 + (number % 400) as usize];
            let head = Head { len: bytes.len() as u16, ..head(5, number) };
            mail.add(head, &bytes);
        }
        flight.accept(&mut mail, |_| 7);
        assert_eq!((flight.packets, mail.is_empty()), (20_000, true));
        let (_, mut pages) = flight.take(0).take_block(0).unwrap();
        let packets: Vec<u32> = pages.packets().map(|(packet, _)| packet).collect();
        for (number, packet) in (0..).zip(packets) {
            assert_eq!(pages.head(packet).link, number);
            let (_, bytes) = pages.packet_mut(packet);
            let expected = vec![number as u8; 1 + (number % 400) as usize];
            assert_eq!(bytes, expected);
        }
        flight.release(pages);
        let [heads, bytes] = flight.memory();
        let max = MAX_SPARE + 1;
        assert!(heads <= max * PAGE_PACKETS * 32 && bytes <= max * PAGE_BYTES);
    }
}
