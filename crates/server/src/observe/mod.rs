//! What an operator may see and ask: metrics, health, status, users.
//!
//! Served on loopback and on a Unix socket by a thread of its own. Workers are never asked to wait: each writes a copy of
//! its counters onto a [`Board`] when it is told to, and skips it if the board is being read at that
//! very moment. Read [`metrics`] for what is counted, [`http`] for what may be asked, [`control`]
//! for how `ringway user` and `ringway status` find a running server.

pub mod board;
pub mod control;
pub mod http;
pub mod metrics;
pub mod status;

pub use board::{Board, Snapshot};
pub use control::Control;
pub use status::Status;

use crate::calls::Calls;
use crate::store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Instant;

/// Visits the counters of one worker's sockets: name, what it counts, value.
pub type VisitNet =
    Box<dyn Fn(usize, &mut dyn FnMut(&'static str, &'static str, u64)) + Send + Sync>;

/// Where the process stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Takes calls.
    Serving = 0,
    /// Finishes what is under way and takes no new calls.
    Draining = 1,
}

impl Phase {
    /// The word for it in the status.
    pub const fn word(self) -> &'static str {
        match self {
            Phase::Serving => "serving",
            Phase::Draining => "draining",
        }
    }
}

/// The names and places a status shows; replaced as a whole on reload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Domains with their other names.
    pub domains: Vec<(String, Vec<String>)>,
    /// What is listened on, as URIs.
    pub listen: Vec<String>,
    /// The store, as configured.
    pub store: String,
    /// `digest` or `off`.
    pub auth: &'static str,
}

/// Everything that is asked about.
pub struct Observed {
    /// What workers publish.
    pub board: Arc<Board>,
    /// Tells all workers to publish.
    pub ask: Box<dyn Fn() + Send + Sync>,
    /// Counters of the sockets.
    pub net: VisitNet,
    /// How many queries for servers are remembered and under way, and servers that count as failed.
    pub located: Box<dyn Fn() -> (usize, usize, usize) + Send + Sync>,
    /// Users, registrations and their writer.
    pub store: Arc<Store>,
    /// Calls under way.
    pub calls: Calls,
    /// Connections to management.
    pub connections: Arc<http::connections::ConnectionCounters>,
    /// Log lines dropped so far.
    pub log_dropped: Box<dyn Fn() -> u64 + Send + Sync>,
    /// When the process began to serve.
    pub started: Instant,
    /// Names and places.
    pub facts: arc_swap::ArcSwap<Facts>,
    /// Reloads done, and reloads that failed.
    pub reloads: (std::sync::atomic::AtomicU64, std::sync::atomic::AtomicU64),
    phase: AtomicU8,
}

impl Observed {
    /// At the start.
    pub fn new(
        board: Arc<Board>,
        ask: Box<dyn Fn() + Send + Sync>,
        net: VisitNet,
        located: Box<dyn Fn() -> (usize, usize, usize) + Send + Sync>,
        store: Arc<Store>,
        calls: Calls,
        log_dropped: Box<dyn Fn() -> u64 + Send + Sync>,
        facts: Facts,
    ) -> Self {
        Observed {
            board,
            ask,
            net,
            located,
            store,
            calls,
            connections: Arc::default(),
            log_dropped,
            started: Instant::now(),
            facts: arc_swap::ArcSwap::from_pointee(facts),
            reloads: Default::default(),
            phase: AtomicU8::new(Phase::Serving as u8),
        }
    }

    /// Where the process stands.
    pub fn phase(&self) -> Phase {
        if self.phase.load(Relaxed) == Phase::Draining as u8 {
            Phase::Draining
        } else {
            Phase::Serving
        }
    }

    /// Moves on.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }
}

/// Bytes of memory the process has resident; 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}
