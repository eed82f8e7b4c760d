//! Monitoring and management: metrics, health, status, users.
//!
//! A separate thread serves them on loopback and on a Unix socket. Workers never wait for it: on
//! request each writes a copy of its counters onto a [`Board`], and skips it if the board is being
//! read at that moment. Read [`metrics`] for what is counted, [`http`] for the requests, and
//! [`control`] for how `ringway user` and `ringway status` find a running server.

pub mod board;
pub mod control;
pub mod http;
pub mod metrics;
pub mod status;

pub use board::{Board, Snapshot};
pub use control::Control;
pub use status::Status;

use crate::calls::Calls;
use crate::media::SharedRelay;
use crate::phonebook::PhonebookCounts;
use crate::states::StateCounts;
use crate::store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Instant;

/// Visits the counters of one worker's sockets: name, description, value.
pub type VisitNet =
    Box<dyn Fn(usize, &mut dyn FnMut(&'static str, &'static str, u64)) + Send + Sync>;

/// Phase of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// New calls are accepted.
    Serving = 0,
    /// Calls in progress end; no new calls are accepted.
    Draining = 1,
}

impl Phase {
    /// Returns the word for the phase in the status.
    pub const fn word(self) -> &'static str {
        match self {
            Phase::Serving => "serving",
            Phase::Draining => "draining",
        }
    }
}

/// Configured values that the status shows; replaced as a whole on reload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Domains with their other names.
    pub domains: Vec<(String, Vec<String>)>,
    /// URIs of the listeners.
    pub listen: Vec<String>,
    /// The store as configured.
    pub store: String,
    /// `digest` or `off`.
    pub auth: &'static str,
    /// Algorithms of the challenges, in their order.
    pub algorithms: Vec<&'static str>,
}

/// The state of the process that management can read.
pub struct Monitor {
    /// The counters that workers publish.
    pub board: Arc<Board>,
    /// Asks all workers to publish.
    pub request_publish: Box<dyn Fn() + Send + Sync>,
    /// Counters of the sockets.
    pub net: VisitNet,
    /// Returns the numbers of cached queries for servers, of queries in progress, and of servers
    /// that count as failed.
    pub located: Box<dyn Fn() -> (usize, usize, usize) + Send + Sync>,
    /// Users, registrations and their writer.
    pub store: Arc<Store>,
    /// Calls in progress.
    pub calls: Calls,
    /// Connections to management.
    pub connections: Arc<http::connections::ConnectionCounters>,
    /// Returns the number of log lines dropped so far.
    pub log_dropped: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Time at which the process began to serve.
    pub started: Instant,
    /// Configured values.
    pub facts: arc_swap::ArcSwap<Facts>,
    /// Numbers of successful and of failed reloads.
    pub reloads: (std::sync::atomic::AtomicU64, std::sync::atomic::AtomicU64),
    /// The relay of media, if media is relayed.
    pub media: Option<Arc<SharedRelay>>,
    /// What is counted of the states of users, if the server is a router of a mesh or a node of a cluster.
    pub states: Option<Arc<StateCounts>>,
    /// What is counted of the phonebook.
    pub phonebook: Arc<PhonebookCounts>,
    phase: AtomicU8,
}

impl Monitor {
    /// Creates the state of a process that starts.
    pub fn new(
        board: Arc<Board>,
        request_publish: Box<dyn Fn() + Send + Sync>,
        net: VisitNet,
        located: Box<dyn Fn() -> (usize, usize, usize) + Send + Sync>,
        store: Arc<Store>,
        calls: Calls,
        log_dropped: Box<dyn Fn() -> u64 + Send + Sync>,
        facts: Facts,
    ) -> Self {
        Monitor {
            board,
            request_publish,
            net,
            located,
            store,
            calls,
            connections: Arc::default(),
            log_dropped,
            started: Instant::now(),
            facts: arc_swap::ArcSwap::from_pointee(facts),
            reloads: Default::default(),
            media: None,
            states: None,
            phonebook: Arc::default(),
            phase: AtomicU8::new(Phase::Serving as u8),
        }
    }

    /// Returns the phase of the process.
    pub fn phase(&self) -> Phase {
        if self.phase.load(Relaxed) == Phase::Draining as u8 {
            Phase::Draining
        } else {
            Phase::Serving
        }
    }

    /// Sets the phase of the process.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }
}

/// Returns the resident memory of the process in bytes; 0 if the system does not report it.
pub fn resident_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}
