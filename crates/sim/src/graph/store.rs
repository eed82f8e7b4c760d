//! The packets in flight.
//!
//! A packet is copied once, from its sender into a slot of the next larger size. It has one owner, the event of
//! its arrival or of its broadcast, so nothing is counted. Slots of one size are in chunks that are never
//! moved, and free slots are used again, the last one first.

/// Maximum length of a packet.
pub const MAX_LEN: usize = 2048;
/// Sizes of slots.
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, MAX_LEN];
/// Bytes of a chunk.
const CHUNK: usize = 1 << 16;
/// Bits of a packet's number that select the size.
const SIZE_BITS: u32 = 3;
/// Bits of a packet's number.
const NUMBER_BITS: u32 = 30;
/// Maximum number of packets of one size.
pub(super) const MAX_PACKETS: usize = 1 << (NUMBER_BITS - SIZE_BITS);
/// The end of a list of free slots.
const NIL: u32 = u32::MAX;

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The node that sent it. In a free slot, the next free slot.
    pub(super) sender: u32,
    pub(super) len: u16,
    /// The number of events that its sender had requested with it, which distinguishes its packets.
    pub(super) count: u64,
}

/// Slots of one size.
#[derive(Debug, Default)]
struct Slots {
    heads: Vec<Head>,
    chunks: Vec<Box<[u8]>>,
    free: u32,
}

/// Packets by number.
#[derive(Debug)]
pub(super) struct Store {
    sizes: [Slots; SIZES.len()],
    in_use: u64,
}

impl Store {
    pub(super) fn new() -> Self {
        let sizes = core::array::from_fn(|_| Slots { free: NIL, ..Slots::default() });
        Store { sizes, in_use: 0 }
    }

    /// Stores a packet of at most [`MAX_LEN`] bytes; `None` if there are too many.
    #[inline]
    pub(super) fn insert(&mut self, sender: u32, count: u64, bytes: &[u8]) -> Option<u32> {
        let class = class(bytes.len());
        let slots = &mut self.sizes[class];
        let head = Head { sender, len: bytes.len() as u16, count };
        let index = slots.free;
        let index = if index == NIL {
            let index = slots.heads.len();
            if index >= MAX_PACKETS {
                return None;
            }
            if index * SIZES[class] == slots.chunks.len() * CHUNK {
                slots.chunks.push(vec![0; CHUNK].into_boxed_slice());
            }
            slots.heads.push(head);
            index as u32
        } else {
            slots.free = core::mem::replace(&mut slots.heads[index as usize], head).sender;
            index
        };
        slots.slot_mut(class, index)[..bytes.len()].copy_from_slice(bytes);
        self.in_use += 1;
        Some(index << SIZE_BITS | class as u32)
    }

    #[inline]
    pub(super) fn head(&self, packet: u32) -> Head {
        self.sizes[split(packet).0].heads[split(packet).1 as usize]
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self, packet: u32) -> &mut [u8] {
        let (class, index) = split(packet);
        let slots = &mut self.sizes[class];
        let len = usize::from(slots.heads[index as usize].len);
        &mut slots.slot_mut(class, index)[..len]
    }

    #[inline]
    pub(super) fn release(&mut self, packet: u32) {
        let (class, index) = split(packet);
        let slots = &mut self.sizes[class];
        slots.heads[index as usize].sender = slots.free;
        slots.free = index;
        self.in_use -= 1;
    }

    /// Returns the number of packets in flight.
    pub(super) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        let of =
            |slots: &Slots| slots.heads.capacity() * size_of::<Head>() + slots.chunks.len() * CHUNK;
        self.sizes.iter().map(of).sum()
    }
}

impl Slots {
    #[inline]
    fn slot_mut(&mut self, class: usize, index: u32) -> &mut [u8] {
        let position = index as usize * SIZES[class];
        &mut self.chunks[position / CHUNK][position % CHUNK..][..SIZES[class]]
    }
}

/// Returns the position in [`SIZES`] of the smallest slot for a length.
#[inline]
fn class(len: usize) -> usize {
    let bits = len.saturating_sub(1) >> SIZES[0].trailing_zeros();
    (usize::BITS - bits.leading_zeros()) as usize
}

/// Returns the position of a packet's size, and its slot.
#[inline]
fn split(packet: u32) -> (usize, u32) {
    ((packet & ((1 << SIZE_BITS) - 1)) as usize, packet >> SIZE_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_slot_is_used() {
        for (len, size) in
            [(0, 64), (1, 64), (64, 64), (65, 128), (1024, 1024), (1025, 2048), (2048, 2048)]
        {
            assert_eq!(SIZES[class(len)], size, "{len}");
        }
        assert_eq!(size_of::<Head>(), 16);
    }

    proptest! {
        /// Packets are what was stored, whatever is stored and released meanwhile; slots are reused.
        #[test]
        fn packets_stay_as_they_are(
            steps in prop::collection::vec((any::<bool>(), 0..=MAX_LEN, any::<u8>()), 1..300),
        ) {
            let (mut store, mut model) = (Store::new(), Vec::new());
            let mut most = [0; SIZES.len()];
            for (number, (adds, len, byte)) in (0..).zip(steps) {
                if adds || model.is_empty() {
                    let bytes = vec![byte; len];
                    let packet = store.insert(number, number.into(), &bytes).unwrap();
                    model.push((packet, number, bytes));
                } else {
                    let (packet, ..) = model.swap_remove(len % model.len());
                    store.release(packet);
                }
                for (packet, number, bytes) in &model {
                    let len = bytes.len() as u16;
                    let head = Head { sender: *number, len, count: u64::from(*number) };
                    prop_assert_eq!(store.head(*packet), head);
                    prop_assert_eq!(store.bytes_mut(*packet), &bytes[..]);
                }
                for (class, most) in most.iter_mut().enumerate() {
                    let used = model.iter().filter(|m| split(m.0).0 == class).count();
                    *most = used.max(*most);
                    prop_assert_eq!(store.sizes[class].heads.len(), *most);
                }
                prop_assert_eq!(store.in_use(), model.len() as u64);
            }
        }
    }
}
