//! The index of records with bindings that came over a connection.
//!
//! Only connections are listed: a registration over UDP costs nothing here. A record is identified by the hash of its
//! address-of-record. The table finds it by that hash and reads the record to check it, so a collision does no harm.

use ringway_sansio::FlowId;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 64;

type Part = Mutex<BTreeSet<(u64, u64)>>;

/// An ordered set of (flow, record) pairs, in parts with a lock each.
pub(super) struct FlowIndex {
    parts: Box<[Part]>,
}

impl FlowIndex {
    pub(super) fn new() -> Self {
        FlowIndex { parts: (0..SHARDS).map(|_| Mutex::new(BTreeSet::new())).collect() }
    }

    fn part(&self, flow: FlowId) -> MutexGuard<'_, BTreeSet<(u64, u64)>> {
        // Serial numbers run, so their low bits spread the flows of one worker evenly.
        let raw = flow.to_u64();
        let index = (raw ^ raw >> 56) as usize % SHARDS;
        self.parts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, flow: FlowId, record: u64) {
        self.part(flow).insert((flow.to_u64(), record));
    }

    pub(super) fn remove(&self, flow: FlowId, record: u64) {
        self.part(flow).remove(&(flow.to_u64(), record));
    }

    /// Removes and returns all records of a flow.
    pub(super) fn take(&self, flow: FlowId) -> Vec<u64> {
        let mut part = self.part(flow);
        let raw = flow.to_u64();
        let records: Vec<u64> =
            part.range((raw, 0)..=(raw, u64::MAX)).map(|&(_, record)| record).collect();
        for &record in &records {
            part.remove(&(raw, record));
        }
        records
    }

    /// Returns the connections of a worker, each with one of its records.
    pub(super) fn of_worker(&self, worker: u8) -> Vec<(FlowId, u64)> {
        let mut found = Vec::new();
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let mut last = None;
            let flows = part.range((FlowId::new(worker, 0).to_u64(), 0)..);
            for &(raw, record) in
                flows.take_while(|(raw, _)| FlowId::from_u64(*raw).worker() == worker)
            {
                if last.replace(raw) != Some(raw) {
                    found.push((FlowId::from_u64(raw), record));
                }
            }
        }
        found
    }

    /// Returns the number of pairs, over all parts.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|p| p.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }
}
