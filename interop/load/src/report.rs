//! Delays, and what a run prints: a few lines for people, JSON for scripts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::error::{Error, doing};
use crate::port::Troubles;
use crate::tally::{Fault, Step, Tally};
use crate::watch::Use;

/// Longest delay told apart, nanoseconds; a longer one counts as this long.
const LONGEST: u64 = 60_000_000_000;
/// Significant digits of a delay.
const DIGITS: u8 = 3;

/// A set of durations.
#[derive(Clone)]
pub(crate) struct Durations(Option<Histogram<u64>>);

impl Durations {
    pub(crate) fn new() -> Self {
        // The bounds are constants the library accepts; without a histogram nothing is recorded.
        Self(Histogram::new_with_bounds(1, LONGEST, DIGITS).ok())
    }

    /// Adds one, in nanoseconds.
    pub(crate) fn record(&mut self, nanoseconds: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(nanoseconds.clamp(1, LONGEST));
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if let (Some(mine), Some(theirs)) = (&mut self.0, &other.0) {
            // Both have the same bounds, so adding cannot fail.
            let _ = mine.add(theirs);
        }
    }

    /// Summary in microseconds.
    pub(crate) fn spread(&self) -> Spread {
        let Some(h) = self.0.as_ref().filter(|h| !h.is_empty()) else { return Spread::default() };
        let us = |ns: u64| ns as f64 / 1e3;
        Spread {
            count: h.len(),
            mean: h.mean() / 1e3,
            p50: us(h.value_at_quantile(0.5)),
            p99: us(h.value_at_quantile(0.99)),
            p999: us(h.value_at_quantile(0.999)),
            max: us(h.max()),
        }
    }
}

/// A set of durations in short, microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// Delays of a call's messages: from one end's send to the other's receipt through the server, and
/// from INVITE to 100 at the caller.
#[derive(Clone)]
pub(crate) struct Delays {
    invite: Durations,
    trying: Durations,
    ringing: Durations,
    ok: Durations,
    bye: Durations,
}

impl Delays {
    pub(crate) fn new() -> Self {
        let none = Durations::new();
        Self {
            invite: none.clone(),
            trying: none.clone(),
            ringing: none.clone(),
            ok: none.clone(),
            bye: none,
        }
    }

    pub(crate) fn record(&mut self, step: Step, nanoseconds: u64) {
        match step {
            Step::Invite => self.invite.record(nanoseconds),
            Step::Trying => self.trying.record(nanoseconds),
            Step::Ringing => self.ringing.record(nanoseconds),
            Step::Ok => self.ok.record(nanoseconds),
            Step::Bye => self.bye.record(nanoseconds),
            Step::Ack | Step::ByeOk => {}
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.invite.add(&other.invite);
        self.trying.add(&other.trying);
        self.ringing.add(&other.ringing);
        self.ok.add(&other.ok);
        self.bye.add(&other.bye);
    }

    fn report(&self) -> DelayReport {
        let mut added = self.invite.clone();
        added.add(&self.ringing);
        added.add(&self.ok);
        DelayReport {
            added: added.spread(),
            invite: self.invite.spread(),
            trying: self.trying.spread(),
            ringing: self.ringing.spread(),
            ok: self.ok.spread(),
            bye: self.bye.spread(),
        }
    }
}

/// Delays, microseconds. `added` is INVITE, 180 and 200 together.
#[derive(Serialize)]
pub(crate) struct DelayReport {
    pub(crate) added: Spread,
    invite: Spread,
    trying: Spread,
    ringing: Spread,
    ok: Spread,
    bye: Spread,
}

/// The generator about itself.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Generator {
    pub(crate) workers: usize,
    pub(crate) ports: usize,
    /// Granted receive buffer of each UDP port, the kernel's count, bytes.
    pub(crate) receive_buffer: usize,
    /// Processor time for one call or REGISTER, both ends, microseconds.
    pub(crate) cpu_us_each: f64,
    /// Share of one processor the busiest worker used.
    pub(crate) cpu_share: f64,
    /// What the busiest worker had left, share of one processor.
    pub(crate) headroom: f64,
    /// How late the schedule was kept, microseconds.
    pub(crate) schedule_late_us: Spread,
    pub(crate) troubles: Troubles,
}

/// The server's use of the machine in the measured window.
#[derive(Serialize)]
pub(crate) struct Server {
    /// Processor time of all its processes, microseconds per call or REGISTER.
    pub(crate) cpu_us_each: f64,
    /// Of which in the kernel, as far as the kernel's ticks tell.
    pub(crate) system_share: f64,
    /// Processors used.
    pub(crate) cpus: f64,
    /// Processors it was ready for but did not get: above a few hundredths, other work disturbed the
    /// measurement, or its own processes stood in each other's way.
    pub(crate) waited: f64,
    /// Memory of all its processes at the end, shared pages counted once, bytes.
    pub(crate) memory: u64,
}

impl Server {
    /// From the use at both ends of a window in which `each` things were done.
    pub(crate) fn between(start: &Use, end: &Use, each: u64) -> Self {
        let cpu = end.cpu.saturating_sub(start.cpu);
        let ticks = end.ticks().saturating_sub(start.ticks());
        let span = end.at.saturating_sub(start.at) as f64;
        Self {
            cpu_us_each: ratio(cpu as f64 / 1e3, each as f64),
            system_share: ratio(end.system.saturating_sub(start.system) as f64, ticks as f64),
            cpus: ratio(cpu as f64, span),
            waited: ratio(end.waited.saturating_sub(start.waited) as f64, span),
            memory: end.memory,
        }
    }
}

/// `a / b`, or 0 when there is nothing to divide by.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// The result of a run of calls.
#[derive(Serialize)]
pub(crate) struct CallReport {
    pub(crate) command: &'static str,
    pub(crate) server_address: String,
    pub(crate) transport: &'static str,
    /// Session Attempt Rate (RFC 7501 section 3.3.1).
    pub(crate) rate: f64,
    pub(crate) warm_up_seconds: f64,
    pub(crate) seconds: f64,
    pub(crate) users: u32,
    /// Session Duration (RFC 7501 section 3.3.3).
    pub(crate) hold_seconds: f64,
    /// Establishment Threshold Time (RFC 7501 section 3.3.2).
    pub(crate) timeout_seconds: f64,
    pub(crate) late_seconds: f64,
    pub(crate) retransmit: bool,
    pub(crate) attempted: u64,
    pub(crate) established: u64,
    pub(crate) completed: u64,
    /// Calls completed each second of the window.
    pub(crate) completed_rate: f64,
    pub(crate) failed: BTreeMap<&'static str, u64>,
    pub(crate) rejected: BTreeMap<u16, u64>,
    pub(crate) repeated: BTreeMap<&'static str, u64>,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) stray: u64,
    pub(crate) late: u64,
    pub(crate) resent: u64,
    /// Whether the zero-failure rule holds.
    pub(crate) clean: bool,
    pub(crate) delay_us: DelayReport,
    pub(crate) generator: Generator,
    pub(crate) server: Option<Server>,
}

impl CallReport {
    /// Fills in what a tally knows.
    pub(crate) fn count(&mut self, tally: &Tally) {
        let steps = |counts: &[u64]| named(Step::ALL.iter().map(|(_, name)| *name), counts);
        self.attempted = tally.attempted;
        self.established = tally.established;
        self.completed = tally.completed;
        self.failed = steps(&tally.failed);
        self.repeated = steps(&tally.repeated);
        self.faults = named(Fault::NAMES.into_iter(), &tally.faults);
        self.rejected.clone_from(&tally.rejected);
        self.stray = tally.stray;
        self.late = tally.late;
        self.resent = tally.resent;
        self.clean = tally.clean() && self.generator.troubles == Troubles::default();
        self.delay_us = tally.delays.report();
    }

    /// A report with nothing in it but the generator's part.
    pub(crate) fn empty(generator: Generator) -> Self {
        Self {
            command: "calls",
            server_address: String::new(),
            transport: "",
            rate: 0.0,
            warm_up_seconds: 0.0,
            seconds: 0.0,
            users: 0,
            hold_seconds: 0.0,
            timeout_seconds: 0.0,
            late_seconds: 0.0,
            retransmit: false,
            attempted: 0,
            established: 0,
            completed: 0,
            completed_rate: 0.0,
            failed: BTreeMap::new(),
            rejected: BTreeMap::new(),
            repeated: BTreeMap::new(),
            faults: BTreeMap::new(),
            stray: 0,
            late: 0,
            resent: 0,
            clean: false,
            delay_us: Delays::new().report(),
            generator,
            server: None,
        }
    }

    /// The lines for people.
    pub(crate) fn lines(&self) -> String {
        let mut text = format!(
            "calls over {} at {:.0}/s for {:.1} s: attempted {}, completed {}, {}\n",
            self.transport,
            self.rate,
            self.seconds,
            self.attempted,
            self.completed,
            if self.clean { "clean" } else { "NOT clean" },
        );
        for (what, counts) in
            [("missing", &self.failed), ("came again", &self.repeated), ("wrong", &self.faults)]
        {
            text += &listed(what, counts.iter());
        }
        text += &listed("rejected", self.rejected.iter());
        for (what, count) in
            [("stray", self.stray), ("late", self.late), ("sent again", self.resent)]
        {
            if count > 0 {
                text += &format!("  {what}: {count}\n");
            }
        }
        text += &spread_line("added delay", &self.delay_us.added);
        text += &spread_line("100 after", &self.delay_us.trying);
        text + &self.generator.lines("call") + &server_line(self.server.as_ref(), "call")
    }
}

impl Generator {
    /// The lines for people; `each` names what was done.
    pub(crate) fn lines(&self, each: &str) -> String {
        let mut text = format!(
            "  generator: {:.1} us a {each}, {:.0} % of a processor, schedule late p99 {:.0} us, max {:.0} us\n",
            self.cpu_us_each,
            100.0 * self.cpu_share,
            self.schedule_late_us.p99,
            self.schedule_late_us.max,
        );
        let t = self.troubles;
        if t != Troubles::default() {
            text += &format!(
                "  generator troubles: own drops {}, refused {}, not sent {}, connections lost {}\n",
                t.own_drops, t.refused, t.not_sent, t.connections_lost
            );
        }
        text
    }
}

/// A line about the server, if it was watched.
pub(crate) fn server_line(server: Option<&Server>, each: &str) -> String {
    server.map_or_else(String::new, |s| {
        format!(
            "  server: {:.1} us a {each} ({:.0} % in the kernel), {:.2} processors, waited for {:.2}, {:.1} MiB\n",
            s.cpu_us_each,
            100.0 * s.system_share,
            s.cpus,
            s.waited,
            s.memory as f64 / f64::from(1 << 20)
        )
    })
}

/// A line about a spread, if there is one.
pub(crate) fn spread_line(name: &str, spread: &Spread) -> String {
    if spread.count == 0 {
        return String::new();
    }
    format!(
        "  {name}: p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, max {:.0} us\n",
        spread.p50, spread.p99, spread.p999, spread.max
    )
}

/// Counts that are not zero, on a line of their own; nothing when all are.
pub(crate) fn listed<'a, K: std::fmt::Display + 'a>(
    what: &str,
    counts: impl Iterator<Item = (&'a K, &'a u64)>,
) -> String {
    let some: Vec<_> =
        counts.filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if some.is_empty() { String::new() } else { format!("  {what}: {}\n", some.join(", ")) }
}

fn named(names: impl Iterator<Item = &'static str>, counts: &[u64]) -> BTreeMap<&'static str, u64> {
    names.zip(counts.iter().copied()).collect()
}

/// Where the results go: a few lines to the terminal, or JSON to standard output (`-`) or a file.
pub(crate) fn publish<T: Serialize>(
    report: &T,
    lines: &str,
    json: Option<&Path>,
) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let Some(path) = json else {
        return doing("cannot print", out.write_all(lines.as_bytes()));
    };
    let text = serde_json::to_string_pretty(report)
        .map_err(|e| Error::Io { what: "cannot write JSON".into(), source: e.into() })?;
    if path.as_os_str() == "-" {
        return doing("cannot print", writeln!(out, "{text}"));
    }
    doing("cannot print", out.write_all(lines.as_bytes()))?;
    doing(format!("cannot write {}", path.display()), fs::write(path, text + "\n"))
}
