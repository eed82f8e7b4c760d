//! The board on which workers publish their counters.

use ringway_proxy::stats::{Stats, Tables};
use ringway_sip::transaction::table::Counters;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Maximum time to wait for workers to publish. For a slower worker the last values are shown.
pub const FRESH_WITHIN: Duration = Duration::from_millis(200);

/// Counters and table sizes of one worker at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// The proxy's counters.
    pub stats: Stats,
    /// The transaction layer's counters.
    pub transactions: Counters,
    /// Table sizes.
    pub tables: Tables,
    /// For how long a peer has waited for an answer, if one waits.
    pub unanswered_for: Option<Duration>,
}

#[derive(Default)]
struct Slot {
    snapshot: Mutex<Snapshot>,
    generation: AtomicU64,
}

/// One slot for each worker.
pub struct Board(Vec<Slot>);

impl Board {
    /// Creates empty slots.
    pub fn new(workers: usize) -> Self {
        Board((0..workers).map(|_| Slot::default()).collect())
    }

    /// Publishes the counters of a worker. Never waits: while the slot is being read, it stays
    /// unchanged.
    pub fn publish(&self, worker: usize, snapshot: Snapshot) {
        let Some(slot) = self.0.get(worker) else { return };
        if let Ok(mut stored) = slot.snapshot.try_lock() {
            *stored = snapshot;
            slot.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns how often each worker has published.
    pub fn generations(&self) -> Vec<u64> {
        self.0.iter().map(|slot| slot.generation.load(Ordering::Acquire)).collect()
    }

    /// Returns the last published snapshot of each worker.
    pub fn read(&self) -> Vec<Snapshot> {
        self.0
            .iter()
            .map(|slot| *slot.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    /// Calls `request`, which asks workers to publish, and waits for all of them, at most
    /// [`FRESH_WITHIN`].
    pub async fn refresh(&self, request: impl FnOnce()) -> Vec<Snapshot> {
        let before = self.generations();
        request();
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
