//! Metrics in the text format of Prometheus (OpenMetrics).
//!
//! Names follow RFC 6076 where it defines them: registration request delay, session request delay,
//! session establishment ratio, session establishment effectiveness ratio, ineffective session
//! attempts. RFC 6076 measures at the user agent; these values are measured at the proxy, so they
//! do not include the path between phone and proxy. `docs/operation.md` lists all metrics.

use super::{Monitor, Snapshot, resident_bytes};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use ringway_proxy::location::LocationStore;
use ringway_proxy::stats::{DELAY_BOUNDS_US, Delays};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

type Visit<'v> = &'v mut dyn FnMut(&'static str, &'static str, u64);

/// Visits the counters of the proxy and of the transaction layer of one worker.
pub fn each_counter(s: &Snapshot, visit: Visit<'_>) {
    let (p, t) = (&s.stats, &s.transactions);
    visit("requests", "Requests received", p.requests);
    visit("responses", "Responses received", p.responses);
    visit("garbage", "Messages that were not SIP or cannot be answered", p.garbage);
    visit("malformed", "Requests refused as malformed", p.malformed);
    visit("challenged", "Requests answered with 401 or 407", p.challenged);
    visit("auth_failed", "Requests with wrong credentials", p.auth_failed);
    visit("backed_off", "Credentials not checked after too many wrong ones", p.backed_off);
    visit("forbidden", "Requests answered with 403", p.forbidden);
    visit("rate_limited", "Requests dropped: too many from their source", p.rate_limited);
    visit("overloaded", "Requests answered with 503: overload", p.overloaded);
    visit("looped", "Requests answered with 482 or 483", p.looped);
    visit("registers_ok", "REGISTER requests answered with 200", p.registers_ok);
    visit(
        "registers_failed",
        "REGISTER requests refused, challenges not counted",
        p.registers_failed,
    );
    visit("sessions", "Session attempts: INVITE requests outside a dialog", p.sessions);
    visit("sessions_established", "Session attempts answered with 2xx", p.sessions_established);
    visit("sessions_redirected", "Session attempts answered with 3xx", p.sessions_redirected);
    visit(
        "sessions_refused",
        "Session attempts answered with 480, 486, 600 or 603",
        p.sessions_refused,
    );
    visit(
        "sessions_ineffective",
        "Session attempts answered with 408, 500, 503 or 504",
        p.sessions_ineffective,
    );
    visit("forwarded", "Requests forwarded", p.forwarded);
    visit("messages_kept", "MESSAGE requests kept for users who are away", p.kept);
    visit("stray_responses", "Responses that belong to no transaction", p.stray_responses);
    visit("timeouts", "Branches that timed out", p.timeouts);
    visit("failovers", "Next hops skipped for another one", p.failovers);
    visit("handed_over", "Messages handed over to the worker that owns them", p.handed_over);
    visit(
        "amplification_avoided",
        "Answers not sent because they are several times as large as the request",
        p.amplification_avoided,
    );
    visit("limits_hit", "Times a bounded table was full", p.limits_hit);
    visit("retransmitted", "Messages retransmitted by a timer", t.retransmitted);
    visit("absorbed", "Requests recognised as retransmissions", t.absorbed);
    visit("not_repeated", "Responses not retransmitted to an unverified sender", t.not_repeated);
    visit("unacknowledged", "Final responses to INVITE without an ACK", t.unacknowledged);
    visit("transactions_refused", "Requests refused: transaction table full", t.refused);
}

/// Visits the table sizes of one worker.
pub fn each_table(s: &Snapshot, visit: Visit<'_>) {
    let t = &s.tables;
    visit("server_transactions", "Server transactions", t.server_transactions as u64);
    visit("client_transactions", "Client transactions", t.client_transactions as u64);
    visit("contexts", "Requests being proxied", t.contexts as u64);
    visit("pending_commits", "Registrations that wait for the store", t.pending_commits as u64);
    visit("resolving", "Branches that wait for server location", t.resolving as u64);
    visit("kept_octets", "Octets of requests stored until answered", t.kept_octets as u64);
    visit("subscriptions", "Event subscriptions", t.subscriptions as u64);
    visit("sources", "Sources whose rate is tracked", t.sources as u64);
}

/// The ratios of RFC 6076 over all workers, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ratios {
    sessions: u64,
    established: u64,
    redirected: u64,
    refused: u64,
    ineffective: u64,
}

impl Ratios {
    /// Computes the ratios over all workers.
    pub fn new(snapshots: &[Snapshot]) -> Self {
        let sum = |f: fn(&Snapshot) -> u64| snapshots.iter().map(f).sum();
        Ratios {
            sessions: sum(|s| s.stats.sessions),
            established: sum(|s| s.stats.sessions_established),
            redirected: sum(|s| s.stats.sessions_redirected),
            refused: sum(|s| s.stats.sessions_refused),
            ineffective: sum(|s| s.stats.sessions_ineffective),
        }
    }

    /// Visits the ratios whose denominator is not 0.
    pub fn each(&self, visit: &mut dyn FnMut(&'static str, &'static str, f64)) {
        let mut ratio = |name, help, part: u64, total: u64| {
            if total > 0 {
                visit(name, help, part as f64 / total as f64);
            }
        };
        let counted = self.sessions.saturating_sub(self.redirected);
        ratio(
            "session_establishment_ratio",
            "SER, RFC 6076 section 4.6",
            self.established,
            counted,
        );
        ratio(
            "session_establishment_effectiveness_ratio",
            "SEER, RFC 6076 section 4.7",
            self.established + self.refused,
            counted,
        );
        ratio(
            "ineffective_session_attempts_ratio",
            "ISA, RFC 6076 section 4.8",
            self.ineffective,
            self.sessions,
        );
    }
}

/// Renders all metrics as text.
///
/// # Errors
/// Fails only if writing to a string fails.
pub fn render(monitor: &Arc<Monitor>, snapshots: Vec<Snapshot>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("ringway");
    registry.register_collector(Box::new(Scrape { monitor: monitor.clone(), snapshots }));
    let mut out = String::with_capacity(16 << 10);
    text::encode(&mut out, &registry)?;
    Ok(out)
}

struct Scrape {
    monitor: Arc<Monitor>,
    snapshots: Vec<Snapshot>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

/// Name, description, and value for each worker.
type Row = (&'static str, &'static str, Vec<u64>);

fn gather(workers: usize, mut each: impl FnMut(usize, Visit<'_>)) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for worker in 0..workers {
        let mut at = 0;
        each(worker, &mut |name, help, value| {
            if worker == 0 {
                rows.push((name, help, Vec::with_capacity(workers)));
            }
            if let Some(row) = rows.get_mut(at) {
                row.2.push(value);
            }
            at += 1;
        });
    }
    rows
}

impl Collector for Scrape {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let workers = self.snapshots.len();
        for (name, help, values) in
            gather(workers, |w, visit| each_counter(&self.snapshots[w], visit))
        {
            per_worker(&mut out, name, help, MetricType::Counter, &values)?;
        }
        for (name, help, values) in gather(workers, |w, visit| (self.monitor.net)(w, visit)) {
            // Two of the socket metrics are gauges.
            let kind = match name {
                "connections" | "udp_receive_buffer" => MetricType::Gauge,
                _ => MetricType::Counter,
            };
            per_worker(&mut out, name, help.trim_end_matches('.'), kind, &values)?;
        }
        for (name, help, values) in
            gather(workers, |w, visit| each_table(&self.snapshots[w], visit))
        {
            per_worker(&mut out, name, help, MetricType::Gauge, &values)?;
        }
        self.delays(&mut out)?;
        self.process(&mut out)?;
        self.media(&mut out)?;
        self.writer(&mut out)
    }
}

fn per_worker(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    values: &[u64],
) -> fmt::Result {
    let counter = matches!(kind, MetricType::Counter);
    let mut metric = out.encode_descriptor(name, help, None, kind)?;
    for (worker, value) in values.iter().enumerate() {
        let labels = [("worker", worker.to_string())];
        let mut one = metric.encode_family(&labels)?;
        if counter {
            one.encode_counter::<NoLabelSet, u64, u64>(value, None)?;
        } else {
            one.encode_gauge(value)?;
        }
    }
    Ok(())
}

impl Scrape {
    fn delays(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Histogram = (&'static str, &'static str, fn(&Snapshot) -> &Delays);
        let all: [Histogram; 2] = [
            (
                "registration_request_delay",
                "RRD, RFC 6076 section 4.1: from REGISTER to its 200",
                |s| &s.stats.registration_request_delay,
            ),
            (
                "session_request_delay",
                "SRD, RFC 6076 section 4.3: from INVITE to the first ringing or answer",
                |s| &s.stats.session_request_delay,
            ),
        ];
        for (name, help, delays) in all {
            let mut buckets = [0u64; DELAY_BOUNDS_US.len() + 1];
            let mut sum = 0;
            for snapshot in &self.snapshots {
                let delays = delays(snapshot);
                buckets.iter_mut().zip(&delays.buckets).for_each(|(all, one)| *all += one);
                sum += delays.sum_us;
            }
            let bounds = DELAY_BOUNDS_US
                .iter()
                .map(|us| *us as f64 / 1e6)
                .chain(std::iter::once(f64::INFINITY));
            let buckets: Vec<(f64, u64)> = bounds.zip(buckets).collect();
            let count = buckets.iter().map(|b| b.1).sum();
            out.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?
                .encode_histogram::<NoLabelSet>(sum as f64 / 1e6, count, &buckets, None)?;
        }
        let mut result = Ok(());
        Ratios::new(&self.snapshots).each(&mut |name, help, value| {
            if result.is_ok() {
                result = gauge(out, name, help, value);
            }
        });
        result
    }

    fn process(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let o = &self.monitor;
        let loaded = o.store.load_summary();
        gauge(out, "users", "Users that may register", o.store.users().len() as f64)?;
        gauge(
            out,
            "records",
            "Addresses-of-record with a registration",
            o.store.location().records() as f64,
        )?;
        gauge(out, "contacts", "Registered contacts", o.store.location().contacts() as f64)?;
        if let Some(exchange) = o.store.exchange() {
            let counts = exchange.counts();
            gauge(out, "mesh_users", "Users registered at this router", counts.present as f64)?;
            let help = "Those whose record enough routers keep";
            gauge(out, "mesh_users_stored", help, counts.stored as f64)?;
            let help = "Registrations that wait for other routers";
            gauge(out, "mesh_registrations_pending", help, counts.pending as f64)?;
            let help = "Questions to other routers in progress";
            gauge(out, "mesh_questions", help, counts.questions as f64)?;
        }
        self.cluster(out)?;
        self.shared_users(out)?;
        self.numbers(out)?;
        self.states(out)?;
        self.phonebook(out)?;
        let (remembered, under_way, failed) = (o.located)();
        gauge(out, "dns_remembered", "Cached queries for servers", remembered as f64)?;
        gauge(out, "dns_under_way", "Queries for servers in progress", under_way as f64)?;
        gauge(out, "servers_failed", "Servers tried last because they failed", failed as f64)?;
        gauge(out, "workers", "Worker threads", self.snapshots.len() as f64)?;
        gauge(
            out,
            "draining",
            "1 while the process waits for transactions in progress before it ends",
            f64::from(o.phase() == super::Phase::Draining),
        )?;
        gauge(
            out,
            "uptime_seconds",
            "Time since it began to serve",
            o.started.elapsed().as_secs_f64(),
        )?;
        gauge(out, "resident_bytes", "Resident memory", resident_bytes() as f64)?;
        gauge(
            out,
            "store_corrupt_records",
            "Records that could not be read at start",
            loaded.corrupt as f64,
        )?;
        let (calls, cdr) = (&o.calls, o.calls.cdr().counters());
        gauge(out, "calls", "Calls in progress", calls.len() as f64)?;
        for (name, help, value) in [
            ("calls_untracked", "Calls not tracked: too many in progress", calls.untracked()),
            (
                "call_steps_dropped",
                "Steps of calls dropped: the thread is too slow",
                calls.counters().dropped.load(Relaxed),
            ),
            (
                "calls_unlogged",
                "Calls whose steps are not logged: too many per second",
                calls.counters().unlogged.load(Relaxed),
            ),
            ("cdr_written", "Call records written", cdr.written.load(Relaxed)),
            ("cdr_dropped", "Call records dropped: disk slow or full", cdr.dropped.load(Relaxed)),
            (
                "cdr_failures",
                "Failures to open or write the call records",
                cdr.failures.load(Relaxed),
            ),
        ] {
            counter(out, name, help, value)?;
        }
        let management = &o.connections;
        counter(
            out,
            "management_displaced",
            "Connections to management closed in favour of newer ones",
            management.displaced.load(Relaxed),
        )?;
        counter(
            out,
            "management_refused",
            "Connections to the control socket by other users",
            management.refused.load(Relaxed),
        )?;
        counter(out, "log_lines_dropped", "Log lines dropped: slow reader", (o.log_dropped)())?;
        counter(out, "reloads", "Reloads of the configuration", o.reloads.0.load(Relaxed))?;
        counter(
            out,
            "reloads_failed",
            "Reloads refused because of an error",
            o.reloads.1.load(Relaxed),
        )
    }

    fn media(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(media) = &self.monitor.media else { return Ok(()) };
        let crate::media::Snapshot { relay, tables, packets, not_sent } = media.snapshot();
        gauge(out, "media_dialogs", "Dialogs whose media is relayed", tables.sessions as f64)?;
        gauge(out, "media_streams", "Media streams with ports", tables.streams as f64)?;
        for (name, help, value) in [
            ("media_dialogs_begun", "Dialogs whose media was to be relayed", relay.sessions),
            ("media_streams_begun", "Media streams that ports were allocated for", relay.streams),
            ("media_rewritten", "Session descriptions rewritten", relay.rewritten),
            ("media_unreadable", "Session descriptions that could not be read", relay.unreadable),
            ("media_left_alone", "Media streams that cannot be relayed", relay.left_alone),
            (
                "media_refused_addresses",
                "Addresses in descriptions that media is not sent to",
                relay.refused_addresses,
            ),
            ("media_refused_no_ports", "Calls refused: no pair of ports was free", relay.no_ports),
            ("media_refused_full", "Calls refused: too many relayed streams", relay.full),
            ("media_refused_share", "Calls refused: the share of their source", relay.share),
            (
                "media_refused_unanswered",
                "Calls refused: too many relayed calls ring",
                relay.unanswered,
            ),
            ("media_refused_too_many", "Calls refused: too many streams in one", relay.too_many),
            ("media_idle", "Relayed dialogs released without media and signalling", relay.idle),
            ("media_forwarded", "Media packets forwarded", packets.forwarded),
            ("media_octets", "Octets of media forwarded", packets.octets),
            ("media_dropped_no_stream", "Media packets to an unused port", packets.no_stream),
            ("media_dropped_stranger", "Media packets of strangers", packets.stranger),
            (
                "media_dropped_wrong_address",
                "Media packets to another address of this host",
                packets.wrong_address,
            ),
            ("media_dropped_rate", "Media packets above the rate of a stream", packets.rate),
            (
                "media_dropped_no_destination",
                "Media packets for a party that receives nothing",
                packets.no_destination,
            ),
            ("media_not_sent", "Media packets that the system refused to send", not_sent),
        ] {
            counter(out, name, help, value)?;
        }
        Ok(())
    }

    fn numbers(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(numbers) = self.monitor.store.numbers() else { return Ok(()) };
        let n = numbers.counts();
        let gauges = [
            ("numbers_assigned", "Users with a short number", &n.assigned),
            ("numbers_waiting", "Users that wait for a short number", &n.waiting),
            ("numbers_free_blocks", "Free blocks of ten short numbers", &n.free_blocks),
        ];
        gauges
            .iter()
            .try_for_each(|(name, help, of)| gauge(out, name, help, of.load(Relaxed) as f64))?;
        let help = "Messages about short numbers that were refused";
        counter(out, "numbers_refused", help, n.refused.load(Relaxed))?;
        let help = "Messages about short numbers that found no room";
        counter(out, "numbers_unsent", help, n.unsent.load(Relaxed))?;
        let help = "States of short numbers that could not be stored";
        counter(out, "numbers_unsaved", help, n.unsaved.load(Relaxed))
    }

    fn states(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(states) = &self.monitor.states else { return Ok(()) };
        let help = "Users whose state at other servers is followed";
        gauge(out, "states_followed", help, states.names.load(Relaxed) as f64)?;
        let help = "Users whose state other servers follow, once for each server";
        gauge(out, "states_followers", help, states.followers.load(Relaxed) as f64)?;
        let help = "Messages about states of users, users in them, and contacts, that were refused";
        counter(out, "states_refused", help, states.refused.load(Relaxed))?;
        let help = "Messages about states of users that found no room";
        counter(out, "states_unsent", help, states.unsent.load(Relaxed))
    }

    fn cluster(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(hub) = self.monitor.store.hub() else { return Ok(()) };
        let c = hub.counts();
        for (name, help, value) in [
            ("cluster_ready", "1 while the database takes registrations", u64::from(c.ready)),
            ("cluster_present", "1 while the database answers", u64::from(c.present)),
            ("cluster_replicas", "Replicas that had the last change", c.replicas.into()),
            ("cluster_shards", "Shards of the database", c.shards as u64),
            (
                "cluster_shards_present",
                "Shards of the database that take registrations",
                c.shards_present as u64,
            ),
            ("cluster_nodes", "Other nodes whose lease lives", c.nodes as u64),
            ("cluster_users", "Users registered at this node", c.users as u64),
            ("cluster_waiting", "Registrations that wait for the database", c.waiting as u64),
            ("cluster_asks", "Requests that wait for a read", c.asks as u64),
            ("cluster_cached", "Users whose nodes are remembered", c.cached as u64),
        ] {
            gauge(out, name, help, value as f64)?;
        }
        for (name, help, value) in [
            ("cluster_published", "Changes in the database", c.published),
            ("cluster_read", "Users read from the database", c.read),
            (
                "cluster_refused",
                "Registrations refused at once: the database is absent, or has too few replicas",
                c.refused,
            ),
            ("cluster_failed", "Registrations that the database did not take in time", c.failed),
            ("cluster_unanswered", "Requests that the database did not answer", c.unanswered),
            ("cluster_outages", "Times at which a shard of the database became absent", c.outages),
            ("cluster_gaps", "Times at which changes were no longer reported", c.gaps),
            ("cluster_invalidated", "Changes reported of users who are remembered", c.invalidated),
            ("cluster_unusable", "Times that a user's key had what is not ours", c.unusable),
        ] {
            counter(out, name, help, value)?;
        }
        Ok(())
    }

    fn shared_users(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(shared) = self.monitor.store.shared() else { return Ok(()) };
        let n = shared.numbers();
        let help = "1 while the database of users answers";
        gauge(out, "users_database_present", help, f64::from(n.present))?;
        if let Some(age) = shared.age() {
            let help = "Time since it was read";
            gauge(out, "users_database_age_seconds", help, age.as_secs_f64())?;
        }
        for (name, help, value) in [
            ("users_database_unusable", "Rows that are no users", n.unusable),
            (
                "users_database_withheld",
                "Users that it does not have any more, and that stay",
                n.withheld,
            ),
            ("users_database_unsaved", "Users whose change is not in the file yet", n.unsaved),
        ] {
            gauge(out, name, help, value as f64)?;
        }
        for (name, help, value) in [
            ("users_database_reads", "Times that all of it was read", n.reads),
            ("users_database_applied", "Users set or removed for it", n.applied),
            ("users_database_outages", "Times at which it became absent", n.outages),
            ("users_database_failed", "Changes that could not be carried out", n.failed),
        ] {
            counter(out, name, help, value)?;
        }
        Ok(())
    }

    fn phonebook(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let p = &self.monitor.phonebook;
        let gauges = [
            ("phonebook_entries", "Users in the phonebook as it was made last", &p.entries),
            ("phonebook_dropped", "Users that the phonebook had no room for", &p.dropped),
        ];
        gauges
            .iter()
            .try_for_each(|(name, help, of)| gauge(out, name, help, of.load(Relaxed) as f64))?;
        let counters = [
            ("phonebook_requests", "Requests for the phonebook by HTTP", &p.requests),
            ("phonebook_connections", "Connections to the phonebook by LDAP", &p.connections),
            (
                "phonebook_refused",
                "Connections to the phonebook refused: too many from their source",
                &p.refused,
            ),
            (
                "phonebook_displaced",
                "Connections to the phonebook closed in favour of newer ones",
                &p.displaced,
            ),
        ];
        counters.iter().try_for_each(|(name, help, of)| counter(out, name, help, of.load(Relaxed)))
    }

    fn writer(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(w) = self.monitor.store.writer_stats() else { return Ok(()) };
        counter(out, "store_commits", "Transactions committed", w.commits.load(Relaxed))?;
        counter(
            out,
            "store_changes",
            "Changes in committed transactions",
            w.changes.load(Relaxed),
        )?;
        counter(out, "store_failures", "Commits that failed", w.failures.load(Relaxed))?;
        counter(
            out,
            "store_refused_full",
            "Registrations refused: too many changes wait for the disk",
            w.refused_full.load(Relaxed),
        )?;
        counter(
            out,
            "store_refused_failed",
            "Registrations refused: the disk failed",
            w.refused_failed.load(Relaxed),
        )?;
        gauge(out, "store_queued", "Changes waiting for the disk", w.queued.load(Relaxed) as f64)?;
        gauge(
            out,
            "store_failed",
            "1 while the disk cannot be written",
            f64::from(w.failed.load(Relaxed)),
        )?;
        gauge(
            out,
            "store_commit_seconds_max",
            "Duration of the longest commit",
            w.commit_micros_max.load(Relaxed) as f64 / 1e6,
        )?;
        let seconds = w.commit_micros.load(Relaxed) as f64 / 1e6;
        out.encode_descriptor(
            "store_commit",
            "Duration of commits",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?
        .encode_counter::<NoLabelSet, f64, f64>(&seconds, None)
    }
}

fn counter(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    out.encode_descriptor(name, help, None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, u64, u64>(&value, None)
}

fn gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    out.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}
