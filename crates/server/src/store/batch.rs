//! Changes on their way to the file: a group in memory, and its encoding as an entry of the file's
//! journal.
//!
//! ```text
//! journal entry := change*
//! change        := length of key (2) key  length of value (4), or all ones for a removal  value
//! ```
//! Numbers are little-endian.

use super::table::Table;
use ringway_proxy::location::CommitTag;
use std::ops::Range;
use std::sync::mpsc::SyncSender;

/// A length that marks a removal.
const REMOVED: u32 = u32::MAX;

/// The party that waits for a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiter {
    None,
    Worker(CommitTag),
    /// Index into [`Batch::replies`].
    Caller(usize),
}

pub(super) struct Change {
    table: Table,
    key: Range<usize>,
    value: Option<Range<usize>>,
    pub(super) waiter: Waiter,
}

/// Changes in the order they were made, with all bytes in one buffer.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    pub(super) changes: Vec<Change>,
    pub(super) replies: Vec<SyncSender<Result<(), String>>>,
}

impl Batch {
    pub(super) fn push(&mut self, table: Table, key: &[u8], value: Option<&[u8]>, waiter: Waiter) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        let value = value.map(|v| {
            self.bytes.extend_from_slice(v);
            middle..self.bytes.len()
        });
        self.changes.push(Change { table, key: start..middle, value, waiter });
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of keys and values.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all changes; keeps up to `keep` bytes of allocated memory.
    pub(super) fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
        self.changes.clear();
        self.replies.clear();
    }

    /// Returns one change: table, key, value.
    pub(super) fn get(&self, index: u32) -> (Table, &[u8], Option<&[u8]>) {
        let change = &self.changes[index as usize];
        let value = change.value.as_ref().map(|v| &self.bytes[v.clone()]);
        (change.table, &self.bytes[change.key.clone()], value)
    }

    /// Writes the indices of the last change to each key into `order`, sorted by table and key, so
    /// that neighbouring records share pages.
    pub(super) fn order(&self, order: &mut Vec<u32>) {
        let key = |i: u32| {
            let change = &self.changes[i as usize];
            (change.table, &self.bytes[change.key.clone()])
        };
        order.clear();
        order.extend(0..self.changes.len() as u32);
        order.sort_unstable_by(|&a, &b| key(a).cmp(&key(b)).then(b.cmp(&a)));
        order.dedup_by(|second, first| key(*second) == key(*first));
    }

    /// Appends the changes of `other` to bindings; no party waits for them.
    pub(super) fn append_bindings(&mut self, other: &Batch) {
        for index in 0..other.changes.len() as u32 {
            if let (Table::Bindings, key, value) = other.get(index) {
                self.push(Table::Bindings, key, value, Waiter::None);
            }
        }
    }

    /// Encodes the changes of bindings among `order` as a journal entry.
    pub(super) fn encode(&self, order: &[u32], out: &mut Vec<u8>) {
        out.clear();
        for &index in order {
            let (Table::Bindings, key, value) = self.get(index) else { continue };
            // An address-of-record has at most 1,024 bytes, a record 65,535.
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
            let length = value.map_or(REMOVED, |v| v.len() as u32);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(value.unwrap_or_default());
        }
    }

    /// Decodes a journal entry; `None` if the bytes are not one.
    pub(super) fn decode(&mut self, mut entry: &[u8]) -> Option<()> {
        while !entry.is_empty() {
            let (length, rest) = entry.split_first_chunk::<2>()?;
            let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let (value, rest) = match u32::from_le_bytes(*length) {
                REMOVED => (None, rest),
                length => {
                    let (value, rest) = rest.split_at_checked(length as usize)?;
                    (Some(value), rest)
                }
            };
            self.push(Table::Bindings, key, value, Waiter::None);
            entry = rest;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(batch: &Batch) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut order = Vec::new();
        batch.order(&mut order);
        order
            .iter()
            .map(|i| batch.get(*i))
            .map(|(_, key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
            .collect()
    }

    #[test]
    fn changes_are_ordered_by_key_and_the_last_one_counts() {
        let mut batch = Batch::default();
        for (key, value) in [("b", Some("1")), ("a", Some("2")), ("b", None), ("a", Some("3"))] {
            batch.push(Table::Bindings, key.as_bytes(), value.map(str::as_bytes), Waiter::None);
        }
        assert_eq!(all(&batch), [(b"a".to_vec(), Some(b"3".to_vec())), (b"b".to_vec(), None)]);
    }

    proptest! {
        #[test]
        fn a_journal_entry_round_trips(
            changes in prop::collection::vec((any::<[u8; 2]>(), any::<Option<Vec<u8>>>()), 0..40)
        ) {
            let mut batch = Batch::default();
            for (key, value) in &changes {
                batch.push(Table::Bindings, key, value.as_deref(), Waiter::None);
            }
            let (mut order, mut entry) = (Vec::new(), Vec::new());
            batch.order(&mut order);
            batch.encode(&order, &mut entry);
            let mut back = Batch::default();
            prop_assert!(back.decode(&entry).is_some());
            prop_assert_eq!(all(&back), all(&batch));
            // A truncated entry is decoded as fewer changes or refused, never read beyond its end.
            for cut in 0..entry.len() {
                let mut part = Batch::default();
                if part.decode(&entry[..cut]).is_some() {
                    prop_assert!(part.len() < back.len());
                }
            }
        }
    }
}
