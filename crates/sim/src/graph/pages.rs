//! Packets one after another in memory.
//!
//! Each packet is behind its [`Head`] in a page, which has 20 octets of it, so that what arrives is read where it lies.
//! When very many routers start at once, most of the memory is packets in flight; a run of equal words of 8 octets, such as
//! zeros, or the signature of the stand-in for cryptography, is stored once.
//!
//! Pages are parts of slabs, and the oldest slabs are used first: when a burst is over, what is left of it is in few of
//! them, and the others go back to the allocator as a whole. A pool of single pages would hold memory wherever one is in use.

use bytes::BytesMut;
use std::collections::BTreeMap;

/// Octets of a page, and of the unit in which packets begin.
const PAGE: usize = 1 << 14;
const UNIT: usize = 4;
/// Bits of a packet's number that select the unit in its page.
const PAGE_BITS: u32 = (PAGE / UNIT).trailing_zeros();
/// Octets of a slab.
const SLAB: usize = 1 << 20;
/// Pages of a slab.
const SLAB_PAGES: usize = SLAB / PAGE;
/// Number of free pages, beside those of a slab that is free, with which the slab is released.
const MAX_SPARE: usize = SLAB_PAGES;
/// The slab of a page that belongs to none.
const NO_SLAB: u64 = u64::MAX;
/// Octets of a head in a page.
const HEAD: usize = 20;
/// Octets of a word, of which runs are found.
const WORD: usize = 8;
/// Number of words of which a run is found wherever it begins.
const STEP: usize = 4;
/// The bit of a length in a page that distinguishes broadcasts.
const BROADCAST: u16 = 1 << 15;

/// What is known of a packet beside its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The time of arrival in nanoseconds.
    pub(super) at: u64,
    /// The number of events that its sender had requested with it, which distinguishes its packets; below 2^40.
    pub(super) count: u64,
    pub(super) sender: u32,
    /// The link that it arrives over; and after that, if it is a broadcast, over the others of its sender that follow.
    pub(super) link: u32,
    /// Octets of the packet, below 2^15.
    pub(super) len: u16,
    pub(super) is_broadcast: bool,
}

/// Words that are like the one before them, and are not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    /// How many there are; 0 if all octets are stored.
    words: u8,
    /// Number of words behind them.
    behind: u8,
}

impl Run {
    /// Returns a run in a packet of which two neighbours are looked at, one pair in each [`STEP`] words. Words are counted
    /// from its end.
    #[inline]
    fn find(bytes: &[u8]) -> Run {
        let word = |at: usize| {
            let end = bytes.len().checked_sub(WORD * at)?;
            bytes.get(end.checked_sub(WORD)?..end)?.first_chunk::<WORD>()
        };
        let words = (bytes.len() / WORD).min(u8::MAX.into());
        for at in (STEP..words).step_by(STEP) {
            let value = word(at);
            if word(at - 1) != value {
                continue;
            }
            let mut behind = at - 1;
            while behind > 0 && word(behind - 1) == value {
                behind -= 1;
            }
            let mut end = at + 1;
            while end < words && word(end) == value {
                end += 1;
            }
            // The one that is stored is the last.
            return Run { words: (end - behind - 1) as u8, behind: (behind + 1) as u8 };
        }
        Run::default()
    }

    /// Returns where the octets of a packet that are left out begin and end.
    #[inline]
    fn range(self, len: usize) -> [usize; 2] {
        let end = len - WORD * usize::from(self.behind);
        [end - WORD * usize::from(self.words), end]
    }
}

/// Packets one after another.
#[derive(Debug)]
struct Page {
    /// As many as [`PAGE`].
    bytes: BytesMut,
    /// Octets that are in use.
    used: usize,
    slab: u64,
    /// The time of the first packet.
    first: u64,
}

impl Page {
    fn new(bytes: BytesMut, slab: u64) -> Self {
        Page { bytes, used: 0, slab, first: 0 }
    }

    /// Creates a page in memory of its own.
    fn alone() -> Self {
        Page::new(BytesMut::zeroed(PAGE), NO_SLAB)
    }

    #[inline]
    fn has_room(&self, head: &Head) -> bool {
        let needed = HEAD + 1 + usize::from(head.len);
        self.used + needed <= PAGE && head.at.abs_diff(self.first) <= i32::MAX as u64
    }

    #[inline]
    fn add(&mut self, head: &Head, bytes: &[u8]) {
        if self.used == 0 {
            self.first = head.at;
        }
        let run = Run::find(bytes);
        let since = head.at.wrapping_sub(self.first) as u32;
        let len = head.len | if head.is_broadcast { BROADCAST } else { 0 };
        let (octets, rest) = self.bytes[self.used..].split_at_mut(HEAD);
        octets[..4].copy_from_slice(&since.to_le_bytes());
        octets[4..12].copy_from_slice(&head.count.to_le_bytes());
        octets[9] = run.words;
        octets[10..12].copy_from_slice(&len.to_le_bytes());
        octets[12..16].copy_from_slice(&head.sender.to_le_bytes());
        octets[16..20].copy_from_slice(&head.link.to_le_bytes());
        if run.words > 0 {
            let [begin, end] = run.range(bytes.len());
            let (before, after) = (&bytes[..begin], &bytes[end..]);
            rest[0] = run.behind;
            rest[1..][..begin].copy_from_slice(before);
            rest[1 + begin..][..after.len()].copy_from_slice(after);
        } else {
            rest[..bytes.len()].copy_from_slice(bytes);
        }
        self.used += stored(head, run.words);
    }

    /// Returns the packet that begins at an octet, and the number of words that are left out.
    #[inline]
    fn head(&self, start: usize) -> (Head, u8) {
        let octets = &self.bytes[start..][..HEAD];
        let word = |at: usize| {
            u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        let len = u16::from_le_bytes([octets[10], octets[11]]);
        let head = Head {
            at: self.first.wrapping_add_signed(i64::from(word(0).cast_signed())),
            count: u64::from(word(4)) | u64::from(octets[8]) << 32,
            sender: word(12),
            link: word(16),
            len: len & !BROADCAST,
            is_broadcast: len & BROADCAST != 0,
        };
        (head, octets[9])
    }
}

/// Returns how many octets a packet with its head has in its page.
#[inline]
fn stored(head: &Head, words: u8) -> usize {
    let position = usize::from(words > 0);
    let len = HEAD + position + usize::from(head.len) - WORD * usize::from(words);
    len.next_multiple_of(UNIT)
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

    /// Adds a packet, if need be in a new page of its own memory.
    #[inline]
    pub(super) fn add(&mut self, head: &Head, bytes: &[u8]) {
        self.add_with(head, bytes, Page::alone);
    }

    /// Adds a packet, if need be in a page of a pool.
    #[inline]
    pub(super) fn add_from(&mut self, pool: &mut Pool, head: &Head, bytes: &[u8]) {
        self.add_with(head, bytes, || pool.take());
    }

    #[inline]
    fn add_with(&mut self, head: &Head, bytes: &[u8], new: impl FnOnce() -> Page) {
        let last = self.pages.last();
        if !last.is_some_and(|page| page.has_room(head)) {
            self.pages.push(new());
        }
        if let Some(page) = self.pages.last_mut() {
            page.add(head, bytes);
        }
    }

    /// Returns all packets with their numbers.
    pub(super) fn packets(&self) -> Packets<'_> {
        Packets { pages: &self.pages, page: 0, start: 0 }
    }

    /// Returns a packet.
    #[inline]
    pub(super) fn head(&self, packet: u32) -> Head {
        self.page(packet).head(start(packet)).0
    }

    /// Returns a packet and its octets, which may be changed. They are in `copy` unless all are stored and nobody else reads
    /// them, as those of a broadcast.
    #[inline]
    pub(super) fn read<'a>(
        &'a mut self,
        packet: u32,
        copy: &'a mut Vec<u8>,
    ) -> (Head, &'a mut [u8]) {
        let (head, words) = self.page(packet).head(start(packet));
        if words > 0 || head.is_broadcast {
            self.copy(packet, copy);
            return (head, copy);
        }
        let page = &mut self.pages[(packet >> PAGE_BITS) as usize];
        (head, &mut page.bytes[start(packet) + HEAD..][..head.len.into()])
    }

    /// Replaces what is in `copy` by the octets of a packet. Returns the packet.
    pub(super) fn copy(&self, packet: u32, copy: &mut Vec<u8>) -> Head {
        let page = self.page(packet);
        let (head, words) = page.head(start(packet));
        let (len, rest) = (usize::from(head.len), &page.bytes[start(packet) + HEAD..]);
        copy.clear();
        if words == 0 {
            copy.extend_from_slice(&rest[..len]);
            return head;
        }
        let [begin, end] = Run { words, behind: rest[0] }.range(len);
        let (before, after) = rest[1..][..begin + len - end].split_at(begin);
        copy.extend_from_slice(before);
        // The word behind those that are left out is like them.
        let word: [u8; WORD] = core::array::from_fn(|at| after[at]);
        let mut words = words.into();
        while words > 0 {
            let some = usize::min(words, 16);
            copy.extend_from_slice(&[word; 16].as_flattened()[..WORD * some]);
            words -= some;
        }
        copy.extend_from_slice(after);
        head
    }

    #[inline]
    fn page(&self, packet: u32) -> &Page {
        &self.pages[(packet >> PAGE_BITS) as usize]
    }

    /// Returns the allocated bytes of pages that belong to no pool.
    pub(super) fn memory(&self) -> usize {
        let alone = self.pages.iter().filter(|page| page.slab == NO_SLAB);
        self.pages.capacity() * size_of::<Page>() + alone.count() * PAGE
    }
}

/// The packets of pages, in the order in which they were added.
#[derive(Debug)]
pub(super) struct Packets<'a> {
    pages: &'a [Page],
    page: usize,
    /// At which octet of the page the next one begins.
    start: usize,
}

impl Iterator for Packets<'_> {
    type Item = (u32, Head);

    #[inline]
    fn next(&mut self) -> Option<(u32, Head)> {
        let mut page = self.pages.get(self.page)?;
        if self.start >= page.used {
            (self.page, self.start) = (self.page + 1, 0);
            page = self.pages.get(self.page)?;
        }
        let (head, words) = page.head(self.start);
        let packet = (self.page as u32) << PAGE_BITS | (self.start / UNIT) as u32;
        self.start += stored(&head, words);
        Some((packet, head))
    }
}

/// Returns at which octet of its page a packet begins.
#[inline]
fn start(packet: u32) -> usize {
    (packet as usize % (PAGE / UNIT)) * UNIT
}

/// Pages of a shard.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Free pages by their slab.
    free: BTreeMap<u64, Vec<Page>>,
    /// The number of free pages.
    free_pages: usize,
    /// The part of the newest slab of which no page was taken yet.
    rest: BytesMut,
    /// The number of slabs so far, and of those that are allocated.
    slabs: u64,
    allocated: usize,
}

impl Pool {
    /// Returns an empty page of the oldest slab that has a free one.
    fn take(&mut self) -> Page {
        while let Some(mut slab) = self.free.first_entry() {
            if let Some(page) = slab.get_mut().pop() {
                self.free_pages -= 1;
                return page;
            }
            slab.remove();
        }
        if self.rest.is_empty() {
            self.rest = BytesMut::zeroed(SLAB);
            self.slabs += 1;
            self.allocated += 1;
        }
        let bytes = self.rest.split_to(PAGE);
        if self.rest.is_empty() {
            // It would hold the slab.
            self.rest = BytesMut::new();
        }
        Page::new(bytes, self.slabs)
    }

    /// Takes pages that were read.
    pub(super) fn release(&mut self, pages: Pages) {
        for mut page in pages.pages {
            if page.slab == NO_SLAB {
                continue;
            }
            page.used = 0;
            let slab = page.slab;
            let free = self.free.entry(slab).or_default();
            free.push(page);
            self.free_pages += 1;
            if free.len() == SLAB_PAGES && self.free_pages >= MAX_SPARE + SLAB_PAGES {
                self.free.remove(&slab);
                self.free_pages -= SLAB_PAGES;
                self.allocated -= 1;
            }
        }
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        self.allocated * SLAB + self.free.len() * SLAB_PAGES * size_of::<Page>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(at: u64, len: usize) -> Head {
        let (count, sender, link) = ((1 << 40) - 1 - at, u32::MAX, at as u32);
        Head { at, count, sender, link, len: len as u16, is_broadcast: at.is_multiple_of(3) }
    }

    #[test]
    fn equal_words_are_stored_once() {
        let mut packet: Vec<u8> = (0..50).collect();
        packet.extend([1, 2, 3, 4, 5, 6, 7, 8].repeat(8));
        packet.extend(0..16);
        let run = Run::find(&packet);
        assert_eq!((run, run.range(130)), (Run { words: 7, behind: 3 }, [50, 106]));
        assert_eq!(Run::find(&packet[..65]), Run::default());
        assert_eq!(Run::find(&[0; 2_048]), Run { words: 254, behind: 1 });
        let (mut pages, mut copy) = (Pages::default(), Vec::new());
        pages.add(&head(1, packet.len()), &packet);
        assert_eq!(pages.pages[0].used, 20 + 1 + 130 - 56 + 1);
        assert_eq!(pages.read(0, &mut copy), (head(1, 130), &mut packet[..]));
    }

    proptest! {
        /// Packets are what was added, in the order in which they were, at whatever times they arrive.
        #[test]
        fn packets_are_as_they_were(
            packets in prop::collection::vec(
                (any::<u64>(), prop::collection::vec((any::<u8>(), 1..60usize), 0..60)),
                1..100,
            ),
        ) {
            let (mut pages, mut pool, mut copy) = (Pages::default(), Pool::default(), Vec::new());
            let packets: Vec<_> = packets
                .into_iter()
                .map(|(at, parts)| {
                    let part = |(octet, len): &(u8, usize)| vec![octet & 3; *len];
                    let mut octets: Vec<u8> = parts.iter().flat_map(part).collect();
                    octets.truncate(2_048);
                    // Most arrive at about the same time.
                    (head(if at.is_multiple_of(4) { at >> 24 } else { at % 9 }, octets.len()), octets)
                })
                .collect();
            packets.iter().for_each(|(head, octets)| pages.add_from(&mut pool, head, octets));
            let numbers: Vec<(u32, Head)> = pages.packets().collect();
            prop_assert_eq!(numbers.len(), packets.len());
            for ((number, found), (head, octets)) in numbers.into_iter().zip(packets) {
                prop_assert_eq!([found, pages.head(number)], [head; 2]);
                prop_assert_eq!(pages.copy(number, &mut copy), head);
                prop_assert_eq!(&copy, &octets);
                prop_assert_eq!(pages.read(number, &mut copy), (head, &mut octets.clone()[..]));
            }
        }
    }

    #[test]
    fn slabs_of_a_burst_are_released() {
        let mut pool = Pool::default();
        let mut blocks: Vec<Pages> = (0..50).map(|_| Pages::default()).collect();
        for number in 0..100_000 {
            blocks[number % 50].add_from(&mut pool, &head(5, 400), &[number as u8; 400][..]);
            blocks[number % 7].add_from(
                &mut pool,
                &head(5, 401),
                &[[1u8, 2]; 201].as_flattened()[1..],
            );
        }
        let max = pool.memory();
        assert!(max > 4 << 20, "{max}");
        // What is sent meanwhile is in the oldest slabs.
        for block in blocks.drain(..).rev() {
            pool.release(block);
        }
        assert!(pool.memory() <= 3 * SLAB, "{}", pool.memory());
        let mut few = Pages::default();
        few.add_from(&mut pool, &head(5, 1), &[0]);
        assert_eq!(few.pages[0].slab, *pool.free.keys().next().unwrap());
    }
}
