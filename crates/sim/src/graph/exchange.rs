//! Where shards that run on threads of their own meet between two windows.
//!
//! Each shard announces when its next event is due and hands over what it sent to the others. When all have arrived,
//! each takes what is for it and knows the first window in which anything is due. There are two tables, used in turn:
//! who is late still reads one while the others write into the next.

use super::pages::Pages;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What one shard announces, and what it hands over to each.
#[derive(Debug, Default)]
struct Announcement {
    /// The first window in which it has an event.
    first: AtomicU64,
    /// The number of its events so far.
    events: AtomicU64,
    mail: Vec<Mutex<Pages>>,
}

/// The shards that have arrived.
#[derive(Debug, Default)]
struct Arrived {
    shards: usize,
    /// How often all of them had.
    meetings: u64,
    /// Whether a shard has ended early, so that nobody need wait for it.
    is_over: bool,
}

/// The meetings of a run.
#[derive(Debug)]
pub(super) struct Exchange {
    tables: [Vec<Announcement>; 2],
    arrived: Mutex<Arrived>,
    changed: Condvar,
}

/// What a shard has to announce.
pub(super) struct Report {
    pub(super) first: u64,
    pub(super) events: u64,
}

impl Exchange {
    pub(super) fn new(shards: usize) -> Self {
        let announcement = || Announcement {
            mail: (0..shards).map(|_| Mutex::default()).collect(),
            ..Announcement::default()
        };
        let table = || (0..shards).map(|_| announcement()).collect();
        Exchange { tables: [table(), table()], arrived: Mutex::default(), changed: Condvar::new() }
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Meets the others for the `turn`-th time. `out` has the mail of this shard to each, and is emptied; `take` is
    /// called with the mail of each for this shard. Returns what the shards announced together: the first window in
    /// which something is due, and the number of events; `None` if one has ended early.
    pub(super) fn meet(
        &self,
        turn: u64,
        shard: usize,
        report: &Report,
        out: &mut [Pages],
        mut take: impl FnMut(&mut Pages),
    ) -> Option<Report> {
        let table = &self.tables[(turn % 2) as usize];
        let own = &table[shard];
        own.first.store(report.first, Relaxed);
        own.events.store(report.events, Relaxed);
        let lock = |from: usize, to: usize| {
            table[from].mail[to].lock().unwrap_or_else(PoisonError::into_inner)
        };
        for (to, out) in out.iter_mut().enumerate().filter(|(_, out)| !out.is_empty()) {
            core::mem::swap(&mut *lock(shard, to), out);
        }
        self.wait(table.len())?;
        for from in (0..table.len()).filter(|from| *from != shard) {
            take(&mut lock(from, shard));
        }
        let first = table.iter().map(|of| of.first.load(Relaxed)).min().unwrap_or(u64::MAX);
        let events = table.iter().map(|of| of.events.load(Relaxed)).sum();
        Some(Report { first, events })
    }

    /// Waits until all shards have arrived; `None` if one has ended early.
    fn wait(&self, shards: usize) -> Option<()> {
        if shards == 1 {
            return Some(());
        }
        let mut arrived = self.arrived();
        let meeting = arrived.meetings;
        arrived.shards += 1;
        if arrived.shards == shards {
            arrived.shards = 0;
            arrived.meetings += 1;
            self.changed.notify_all();
        }
        while arrived.meetings == meeting && !arrived.is_over {
            arrived = self.changed.wait(arrived).unwrap_or_else(PoisonError::into_inner);
        }
        (arrived.meetings != meeting).then_some(())
    }

    /// A shard ends early: the others do so when they meet next.
    pub(super) fn end(&self) {
        self.arrived().is_over = true;
        self.changed.notify_all();
    }
}
