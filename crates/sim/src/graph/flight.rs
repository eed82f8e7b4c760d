//! Packets in flight and timers, by the window of time in which they are due.
//!
//! A [`Log`] has what is due within one window, in the order in which it was added. It is written from the beginning
//! to the end and read once. It is in pages, so that nothing is moved when it grows and a burst leaves no holes in
//! memory, and pages are used again.

use std::collections::BTreeMap;

/// Maximum number of bytes of the packets in a page, and of packets.
const PAGE_BYTES: usize = 1 << 16;
const PAGE_PACKETS: usize = 1 << PAGE_BITS;
/// Bits of a packet's number that select it in its page.
const PAGE_BITS: u32 = 10;
/// Maximum number of empty pages that wait for another use.
const MAX_SPARE: usize = 64;

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
    fn memory(&self) -> [usize; 2] {
        [self.heads.capacity() * size_of::<Head>(), self.bytes.capacity()]
    }
}

/// What is due in one window.
#[derive(Debug, Default)]
pub(super) struct Log {
    pages: Vec<Page>,
    /// Nodes that have set a timer.
    pub(super) timers: Vec<u32>,
}

impl Log {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.timers.is_empty()
    }

    /// Adds a packet. Its position is set here.
    #[inline]
    pub(super) fn add(&mut self, head: Head, bytes: &[u8]) {
        self.add_with(head, bytes, Page::default);
    }

    /// Adds a packet, if need be in a new page.
    #[inline]
    fn add_with(&mut self, head: Head, bytes: &[u8], new: impl FnOnce() -> Page) {
        let has_room = self.pages.last().is_some_and(|page| {
            page.heads.len() < PAGE_PACKETS && page.bytes.len() + bytes.len() <= PAGE_BYTES
        });
        if !has_room {
            let mut page = new();
            if !self.pages.is_empty() {
                page.heads.reserve_exact(PAGE_PACKETS);
                page.bytes.reserve_exact(PAGE_BYTES);
            }
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
    pub(super) fn head(&self, packet: u32) -> Head {
        self.pages[(packet >> PAGE_BITS) as usize].heads[packet as usize % PAGE_PACKETS]
    }

    /// Returns the bytes of a packet.
    #[inline]
    pub(super) fn bytes(&self, packet: u32) -> &[u8] {
        let Head { start, len, .. } = self.head(packet);
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
        let timers = self.timers.capacity() * size_of::<u32>();
        let pages = timers + self.pages.capacity() * size_of::<Page>();
        self.pages.iter().map(Page::memory).fold([pages, 0], sum)
    }
}

/// Returns the sums of two pairs.
pub(super) fn sum(one: [usize; 2], other: [usize; 2]) -> [usize; 2] {
    [one[0] + other[0], one[1] + other[1]]
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
    spare: Vec<Page>,
    /// Number of packets in flight that are counted here.
    pub(super) packets: u64,
}

impl Flight {
    /// Creates it for windows of a length in nanoseconds.
    pub(super) fn new(window: u64) -> Self {
        let near = (0, Log::default());
        Flight { window, near, other: BTreeMap::new(), spare: Vec::new(), packets: 0 }
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

    /// Adds a packet.
    #[inline]
    pub(super) fn add(&mut self, head: Head, bytes: &[u8]) {
        let window = self.window_of(head.at);
        let log = match window == self.near.0 {
            true => &mut self.near.1,
            false => self.other.entry(window).or_default(),
        };
        log.add_with(head, bytes, || self.spare.pop().unwrap_or_default());
    }

    /// Adds the timer of a node.
    #[inline]
    pub(super) fn add_timer(&mut self, at: u64, node: u32) {
        let window = self.window_of(at);
        let log = match window == self.near.0 {
            true => &mut self.near.1,
            false => self.other.entry(window).or_default(),
        };
        log.timers.push(node);
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

    /// Adds what another shard has sent, and empties its log.
    pub(super) fn accept(&mut self, mail: &mut Log) {
        for (packet, head) in mail.packets() {
            // A broadcast is counted by the shard of its sender.
            self.packets += u64::from(!head.is_broadcast);
            self.add(*head, mail.bytes(packet));
        }
        self.release(core::mem::take(mail));
    }

    /// Takes the pages of a log that was read.
    pub(super) fn release(&mut self, log: Log) {
        for mut page in log.pages {
            if self.spare.len() < MAX_SPARE {
                page.heads.clear();
                page.bytes.clear();
                self.spare.push(page);
            }
        }
    }

    /// Returns the allocated bytes: of events, and of packets.
    pub(super) fn memory(&self) -> [usize; 2] {
        let logs = self.other.len() * size_of::<(u64, Log)>();
        let logs = self.other.values().chain([&self.near.1]).map(Log::memory).fold([logs, 0], sum);
        self.spare.iter().map(Page::memory).fold(logs, sum)
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
            flight.add(head(at, link), &[link as u8]);
        }
        flight.add_timer(12, 7);
        for (window, links, timers) in
            [(0, &[2][..], 0), (1, &[4], 1), (3, &[1, 3], 0), (100, &[5], 0)]
        {
            assert_eq!(flight.first(), window);
            let log = flight.take(window);
            let found: Vec<u32> = log.packets().map(|(_, head)| head.link).collect();
            assert_eq!((&found[..], log.timers.len()), (links, timers));
            let bytes = log.packets().map(|(packet, _)| u32::from(log.bytes(packet)[0]));
            assert!(bytes.eq(found));
            flight.release(log);
        }
        assert_eq!(flight.first(), u64::MAX);
    }

    #[test]
    fn a_window_that_was_read_may_be_written_again() {
        let mut flight = Flight::new(10);
        flight.add_timer(21, 0);
        let log = flight.take(2);
        flight.add_timer(25, 1);
        flight.add_timer(31, 2);
        flight.release(log);
        assert_eq!(flight.first(), 2);
        assert_eq!(flight.take(2).timers, [1]);
        flight.add_timer(22, 1);
        assert_eq!((flight.first(), flight.take(2).timers.len()), (2, 1));
        assert_eq!(flight.take(3).timers, [2]);
        assert_eq!(flight.first(), u64::MAX);
    }

    #[test]
    fn packets_of_many_pages_are_found_and_their_memory_is_released() {
        let (mut flight, mut mail) = (Flight::new(10), Log::default());
        for number in 0..20_000u32 {
            let bytes = vec![number as u8; 1 + (number % 400) as usize];
            let head = Head { len: bytes.len() as u16, ..head(5, number) };
            mail.add(head, &bytes);
        }
        flight.accept(&mut mail);
        assert_eq!((flight.packets, mail.is_empty()), (20_000, true));
        let mut log = flight.take(0);
        let packets: Vec<u32> = log.packets().map(|(packet, _)| packet).collect();
        for (number, packet) in (0..).zip(packets) {
            assert_eq!(log.head(packet).link, number);
            let (_, bytes) = log.packet_mut(packet);
            let expected = vec![number as u8; 1 + (number % 400) as usize];
            assert_eq!(bytes, expected);
        }
        flight.release(log);
        let [heads, bytes] = flight.memory();
        assert!(heads <= MAX_SPARE * PAGE_PACKETS * 32 && bytes <= MAX_SPARE * PAGE_BYTES);
    }
}
