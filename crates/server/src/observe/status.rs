//! The status as JSON, and as a few lines for people. Keys of the JSON may be added but are not
//! changed.

use super::metrics::Ratios;
use super::{Monitor, Snapshot, resident_bytes};
use crate::users::shared::{SharedUsers, UsersStatus};
use ringway_proxy::location::LocationStore;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// The status as `ringway status --json` prints it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Version of the running program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// `serving` or `draining`.
    pub phase: String,
    /// Seconds since the server began to serve.
    pub uptime_seconds: u64,
    /// Worker threads.
    pub workers: usize,
    /// URIs of the listeners.
    pub listen: Vec<String>,
    /// Domains.
    pub domains: Vec<DomainStatus>,
    /// `digest` or `off`.
    pub auth: String,
    /// Algorithms of the challenges, in their order.
    #[serde(default)]
    pub algorithms: Vec<String>,
    /// The store.
    pub store: StoreStatus,
    /// Number of users that may register.
    pub users: usize,
    /// The database that has them, if servers share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users_database: Option<UsersStatus>,
    /// Number of addresses-of-record with a registration.
    pub records: usize,
    /// Number of registered contacts.
    pub contacts: usize,
    /// Sizes of tables, summed over all workers.
    pub tables: BTreeMap<String, u64>,
    /// Counters, summed over all workers.
    pub counters: BTreeMap<String, u64>,
    /// Ratios of RFC 6076 from 0 to 1; absent while their denominator is 0.
    pub ratios: BTreeMap<String, f64>,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}

/// A domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DomainStatus {
    /// Name of the domain, also the digest realm.
    pub name: String,
    /// Other names of the domain.
    pub aliases: Vec<String>,
}

/// The store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreStatus {
    /// As configured.
    pub name: String,
    /// Whether changes can be written.
    pub healthy: bool,
    /// Number of changes that wait to be written.
    pub queued: u64,
    /// Number of transactions committed.
    pub commits: u64,
    /// Number of changes in these transactions.
    pub changes: u64,
    /// Number of failed commits.
    pub failures: u64,
}

impl Status {
    /// Computes the status from the snapshots that workers published.
    pub fn new(monitor: &Monitor, snapshots: &[Snapshot]) -> Self {
        let facts = monitor.facts.load();
        let mut tables = BTreeMap::new();
        let mut counters = BTreeMap::new();
        for snapshot in snapshots {
            super::metrics::each_table(snapshot, &mut |name, _, value| {
                *tables.entry(name.to_owned()).or_insert(0) += value;
            });
            super::metrics::each_counter(snapshot, &mut |name, _, value| {
                *counters.entry(name.to_owned()).or_insert(0) += value;
            });
        }
        for worker in 0..snapshots.len() {
            (monitor.net)(worker, &mut |name, _, value| {
                *counters.entry(name.to_owned()).or_insert(0) += value;
            });
        }
        let mut ratios = BTreeMap::new();
        Ratios::new(snapshots).each(&mut |name, _, value| {
            ratios.insert(name.to_owned(), value);
        });
        let writer = monitor.store.writer_stats();
        let count = |read: fn(&crate::store::WriterStats) -> u64| writer.as_deref().map_or(0, read);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            phase: monitor.phase().word().to_owned(),
            uptime_seconds: monitor.started.elapsed().as_secs(),
            workers: snapshots.len(),
            listen: facts.listen.clone(),
            domains: facts
                .domains
                .iter()
                .map(|(name, aliases)| DomainStatus {
                    name: name.clone(),
                    aliases: aliases.clone(),
                })
                .collect(),
            auth: facts.auth.to_owned(),
            algorithms: facts.algorithms.iter().map(|a| (*a).to_owned()).collect(),
            store: StoreStatus {
                name: facts.store.clone(),
                healthy: !writer.as_ref().is_some_and(|w| w.failed.load(Relaxed)),
                queued: count(|w| w.queued.load(Relaxed)),
                commits: count(|w| w.commits.load(Relaxed)),
                changes: count(|w| w.changes.load(Relaxed)),
                failures: count(|w| w.failures.load(Relaxed)),
            },
            users: monitor.store.users().len(),
            users_database: monitor.store.shared().map(SharedUsers::status),
            records: monitor.store.location().records(),
            contacts: monitor.store.location().contacts(),
            tables,
            counters,
            ratios,
            resident_bytes: resident_bytes(),
        }
    }

    /// Formats the status as a few lines for people.
    pub fn text(&self) -> String {
        let counter = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        let table = |name: &str| self.tables.get(name).copied().unwrap_or(0);
        let mut out = String::new();
        let mut line = |label: &str, text: String| {
            let _ = writeln!(out, "{label:<14}{text}");
        };
        line(
            "ringway",
            format!(
                "{}, {} for {}, {} workers, {} MiB",
                self.version,
                self.phase,
                duration(self.uptime_seconds),
                self.workers,
                self.resident_bytes >> 20
            ),
        );
        line("listening", self.listen.join(" "));
        for domain in &self.domains {
            let aliases = match domain.aliases.is_empty() {
                true => String::new(),
                false => format!(" (also {})", domain.aliases.join(", ")),
            };
            line("domain", format!("{}{aliases}", domain.name));
        }
        line(
            "users",
            format!(
                "{}, {} contacts registered{}",
                self.users,
                self.contacts,
                if self.auth == "off" { ", without authentication (auth off)" } else { "" }
            ),
        );
        if let Some(database) = &self.users_database {
            line("", database.text());
        }
        line(
            "calls",
            format!(
                "{} attempted, {} answered; {} requests in memory",
                counter("sessions"),
                counter("sessions_established"),
                table("contexts")
            ),
        );
        line(
            "requests",
            format!(
                "{} received, {} forwarded, {} challenged, {} refused",
                counter("requests"),
                counter("forwarded"),
                counter("challenged"),
                counter("overloaded") + counter("rate_limited")
            ),
        );
        let health = match (self.store.healthy, self.store.queued) {
            (true, 0) => "all written".to_owned(),
            (true, n) => format!("{n} changes to write"),
            (false, _) => "CANNOT BE WRITTEN, registrations are refused".to_owned(),
        };
        line("store", format!("{}, {health}", self.store.name));
        out
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}
