//! Where workers leave a copy of their counters.

use ringway_proxy::stats::{Stats, Tables};
use ringway_sip::transaction::table::Counters;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a question waits for workers to publish. A worker that takes longer is shown as it was.
pub const FRESH_WITHIN: Duration = Duration::from_millis(200);

/// One worker's counters and table sizes at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// The proxy's counters.
    pub stats: Stats,
    /// The transaction layer's counters.
    pub transactions: Counters,
    /// Table sizes.
    pub tables: Tables,
    /// Whether nothing is under way that a peer waits for.
    pub idle: bool,
}

#[derive(Default)]
struct Slot {
    snapshot: Mutex<Snapshot>,
    generation: AtomicU64,
}

/// A slot for each worker.
pub struct Board(Vec<Slot>);

impl Board {
    /// Empty slots.
    pub fn new(workers: usize) -> Self {
        Board((0..workers).map(|_| Slot::default()).collect())
    }

    /// A worker leaves its counters. Never waits: if the slot is being read, it stays as it was.
    pub fn publish(&self, worker: usize, snapshot: Snapshot) {
        let Some(slot) = self.0.get(worker) else { return };
        if let Ok(mut place) = slot.snapshot.try_lock() {
            *place = snapshot;
            slot.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// How often each worker has published.
    pub fn generations(&self) -> Vec<u64> {
        self.0.iter().map(|slot| slot.generation.load(Ordering::Acquire)).collect()
    }

    /// What each worker has published last.
    pub fn read(&self) -> Vec<Snapshot> {
        self.0
            .iter()
            .map(|slot| *slot.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    /// Runs `ask`, which tells workers to publish, and waits until all have or too long has passed.
    pub async fn refresh(&self, ask: impl FnOnce()) -> Vec<Snapshot> {
        let before = self.generations();
        ask();
        let until = tokio::time::Instant::now() + FRESH_WITHIN;
        while tokio::time::Instant::now() < until {
            if self.generations().iter().zip(&before).all(|(now, then)| now > then) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.read()
    }
}
