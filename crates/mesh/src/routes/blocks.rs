//! A sequence in blocks of one length.
//!
//! Very many routers are simulated, and the tables of all grow at the same time. A table in one allocation passes through all
//! sizes of it, and each size keeps memory of its own in an allocator. Blocks are of one size, so what one router releases
//! another takes, and nothing is copied to grow.

use smallvec::SmallVec;

/// Elements of a block: with its length one of contacts has just below 512 octets, a power of two, because allocators that
/// are asked for an alignment take a longer class for other sizes.
const BLOCK: usize = 10;

type Block<T> = Box<SmallVec<[T; BLOCK]>>;

/// Elements by position. All blocks but the last are full.
#[derive(Clone, Debug)]
pub(super) struct Blocks<T> {
    blocks: Vec<Block<T>>,
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Blocks { blocks: Vec::new() }
    }
}

impl<T> Blocks<T> {
    /// Returns the element at a position.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.blocks.get(at / BLOCK)?.get(at % BLOCK)
    }

    /// Returns the element at a position.
    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.blocks.get_mut(at / BLOCK)?.get_mut(at % BLOCK)
    }

    /// Returns all elements in order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    /// Returns all elements in order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.blocks.iter_mut().flat_map(|block| block.iter_mut())
    }

    /// Appends an element.
    fn push(&mut self, value: T) {
        match self.blocks.last_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => block.push(value),
            None => {
                let mut block = Block::<T>::default();
                block.push(value);
                self.blocks.push(block);
            }
        }
    }

    /// Inserts an element before that at a position, or behind the last one.
    pub(super) fn insert(&mut self, at: usize, mut value: T) {
        let mut position = at % BLOCK;
        for block in self.blocks.iter_mut().skip(at / BLOCK) {
            if block.len() < BLOCK {
                return block.insert(position.min(block.len()), value);
            }
            // The last one moves on to the next block.
            let last = block.pop();
            block.insert(position, value);
            let Some(last) = last else { return };
            (value, position) = (last, 0);
        }
        self.push(value);
    }

    /// Removes the element at a position.
    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        let block = at / BLOCK;
        let removed = self.blocks.get_mut(block).filter(|block| at % BLOCK < block.len());
        let removed = removed?.remove(at % BLOCK);
        for next in block + 1..self.blocks.len() {
            let first = self.blocks[next].remove(0);
            self.blocks[next - 1].push(first);
        }
        self.blocks.pop_if(|block| block.is_empty());
        Some(removed)
    }

    /// Removes all elements of which `is_kept` is false, and returns them in order.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for value in core::mem::take(&mut self.blocks).into_iter().flat_map(|block| *block) {
            if is_kept(&value) {
                self.push(value);
            } else {
                removed.push(value);
            }
        }
        removed
    }

    /// Returns the octets that are allocated, without what the elements have.
    pub(super) fn heap_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block<T>>()
            + self.blocks.len() * size_of::<SmallVec<[T; BLOCK]>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_of_contacts_fits_its_size() {
        let size = size_of::<SmallVec<[crate::routes::Contact; BLOCK]>>();
        assert!((481..=512).contains(&size), "{size}");
    }

    proptest! {
        #[test]
        fn blocks_are_a_sequence(
            steps in proptest::collection::vec((0..4u8, any::<usize>(), any::<u8>()), 1..200),
        ) {
            let (mut blocks, mut model) = (Blocks::default(), Vec::new());
            for (kind, at, value) in steps {
                let at = at % (model.len() + 1);
                match kind {
                    0..=1 => {
                        blocks.insert(at, value);
                        model.insert(at, value);
                    }
                    2 => {
                        let removed = (at < model.len()).then(|| model.remove(at));
                        prop_assert_eq!(blocks.remove(at), removed);
                    }
                    _ => {
                        let is_kept = |other: &u8| other % 16 != value % 16;
                        let (kept, gone) = model.into_iter().partition(is_kept);
                        model = kept;
                        prop_assert_eq!(blocks.retain(is_kept), gone);
                    }
                }
                prop_assert_eq!(blocks.iter().copied().collect::<Vec<u8>>(), model.clone());
                prop_assert_eq!(blocks.get(at), model.get(at));
                prop_assert!(blocks.blocks.iter().all(|block| !block.is_empty()));
                let full = blocks.blocks.iter().rev().skip(1);
                prop_assert!(full.clone().all(|block| block.len() == BLOCK));
            }
        }
    }
}
