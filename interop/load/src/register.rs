//! `register` and `fill`: refreshes at a fixed rate, and as many new contacts as the server takes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::calls::run_number;
use crate::clock::{self, MILLISECOND, SECOND};
use crate::drive::{self, Desk, Outcome, Plan};
use crate::error::Error;
use crate::registration::{RegisterTally, Registrations, SETUP_WINDOW, Terms};
use crate::report::{Generator, Server, Spread, listed, publish, server_line, spread_line};
use crate::tally::Fault;
use crate::target::Target;
use crate::watch::Use;

/// How registrations are judged.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Judgement {
    /// Seconds a binding lasts.
    #[arg(long, default_value_t = 3_600, value_name = "S")]
    expires: u32,
    /// Time after which a REGISTER has failed, milliseconds.
    #[arg(long, default_value_t = 4_000, value_name = "MS")]
    timeout_ms: u64,
    /// Time to the answer above which it is late, milliseconds.
    #[arg(long, default_value_t = 500, value_name = "MS")]
    late_ms: u64,
}

impl Judgement {
    fn terms(self, resend: bool, elsewhere: bool) -> Terms {
        Terms {
            expires: self.expires,
            timeout: self.timeout_ms * MILLISECOND,
            late: self.late_ms * MILLISECOND,
            resend,
            elsewhere,
        }
    }
}

#[derive(Serialize)]
struct RegisterReport {
    command: &'static str,
    server_address: String,
    transport: &'static str,
    rate: f64,
    warm_up_seconds: f64,
    seconds: f64,
    users: u32,
    attempted: u64,
    accepted: u64,
    accepted_rate: f64,
    refused: BTreeMap<u16, u64>,
    missing: u64,
    busy: u64,
    stray: u64,
    late: u64,
    resent: u64,
    challenged: u64,
    faults: BTreeMap<&'static str, u64>,
    clean: bool,
    delay_us: Spread,
    generator: Generator,
    server: Option<Server>,
}

impl RegisterReport {
    fn new(
        command: &'static str,
        target: &Target,
        plan: Plan,
        outcome: Outcome<Registrations>,
    ) -> Self {
        let mut tally = RegisterTally::new();
        for registrations in &outcome.plays {
            tally.add(&registrations.tally);
        }
        Self {
            command,
            server_address: target.server.to_string(),
            transport: target.transport.name(),
            rate: plan.rate,
            warm_up_seconds: plan.warm_up,
            seconds: plan.seconds,
            users: target.users,
            attempted: tally.attempted,
            accepted: tally.accepted,
            accepted_rate: outcome.completed_rate,
            clean: tally.clean() && outcome.generator.troubles == Default::default(),
            missing: tally.missing,
            busy: tally.busy,
            stray: tally.stray,
            late: tally.late,
            resent: tally.resent,
            challenged: tally.challenged,
            faults: Fault::NAMES.into_iter().zip(tally.faults).collect(),
            delay_us: tally.delay.spread(),
            refused: tally.refused,
            generator: outcome.generator,
            server: outcome.server,
        }
    }

    fn lines(&self) -> String {
        let mut text = format!(
            "{} over {}: attempted {}, accepted {}, {:.0}/s, {}\n",
            self.command,
            self.transport,
            self.attempted,
            self.accepted,
            self.accepted_rate,
            if self.clean { "clean" } else { "NOT clean" },
        );
        text += &listed("refused", self.refused.iter());
        text += &listed("wrong", self.faults.iter());
        let others = [
            ("missing", self.missing),
            ("previous one unanswered", self.busy),
            ("stray", self.stray),
            ("late", self.late),
            ("sent again", self.resent),
            ("challenges answered", self.challenged),
        ];
        for (what, count) in others {
            if count > 0 {
                text += &format!("  {what}: {count}\n");
            }
        }
        text += &spread_line("answer after", &self.delay_us);
        text + &self.generator.lines("REGISTER") + &server_line(self.server.as_ref(), "REGISTER")
    }
}

/// `ringway-load register`.
pub(crate) fn register(target: &Target, judgement: Judgement, plan: Plan) -> Result<bool, Error> {
    let run = run_number();
    let outcome = drive::run(
        target,
        plan,
        |worker| {
            let mut desk = Desk::open(target)?;
            let terms = judgement.terms(true, false);
            let mut users = Registrations::new(target, worker, run, &desk.homes, terms);
            users.all(&mut desk, SETUP_WINDOW)?;
            users.again(judgement.terms(false, false));
            Ok((desk, users))
        },
        |desk, users| users.remove(target, desk),
    )?;
    let report = RegisterReport::new("register", target, plan, outcome);
    publish(&report, &report.lines(), target.json.as_deref())?;
    Ok(report.clean)
}

#[derive(Serialize)]
struct FillReport {
    command: &'static str,
    server_address: String,
    transport: &'static str,
    contacts: u32,
    accepted: u64,
    seconds: f64,
    rate: f64,
    resent: u64,
    window: usize,
    /// Resident memory of the watched processes before and after, shared pages once, bytes.
    memory_before: u64,
    memory_after: u64,
    bytes_each: f64,
    /// Processor time of the watched processes for one REGISTER of the fill, microseconds.
    cpu_us_each: f64,
}

/// `ringway-load fill`.
pub(crate) fn fill(target: &Target, judgement: Judgement, window: usize) -> Result<bool, Error> {
    let run = run_number();
    let workers = target.workers;
    let before = Use::with_memory(&target.watch);
    let start = clock::monotonic();
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                scope.spawn(move || -> Result<_, Error> {
                    clock::wake_exactly();
                    let mut desk = Desk::open(target)?;
                    let terms = judgement.terms(true, true);
                    let mut users = Registrations::new(target, worker, run, &desk.homes, terms);
                    users.all(&mut desk, (window / workers).max(1))?;
                    let end = clock::monotonic();
                    Ok((users, end))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| Error::Worker)?)
            .collect::<Result<Vec<_>, _>>()
    })?;
    let end = results.iter().map(|(_, end)| *end).max().unwrap_or(start);
    let after = Use::with_memory(&target.watch);
    let mut tally = RegisterTally::new();
    for (users, _) in &results {
        tally.add(&users.tally);
    }
    let seconds = (end - start) as f64 / SECOND as f64;
    let each = f64::from(target.users);
    let report = FillReport {
        command: "fill",
        server_address: target.server.to_string(),
        transport: target.transport.name(),
        contacts: target.users,
        accepted: tally.accepted,
        seconds,
        rate: tally.accepted as f64 / seconds,
        resent: tally.resent,
        window,
        memory_before: before.memory,
        memory_after: after.memory,
        bytes_each: (after.memory as f64 - before.memory as f64) / each,
        cpu_us_each: after.cpu.saturating_sub(before.cpu) as f64 / 1e3 / each,
    };
    publish(&report, &report.lines(!target.watch.is_empty()), target.json.as_deref())?;
    Ok(report.accepted == u64::from(target.users))
}

impl FillReport {
    fn lines(&self, watched: bool) -> String {
        let mut text = format!(
            "fill over {}: {} contacts in {:.1} s, {:.0}/s, window {}, sent again {}\n",
            self.transport, self.accepted, self.seconds, self.rate, self.window, self.resent
        );
        if watched {
            text += &format!(
                "  server: {:.1} us a REGISTER, {:.0} bytes a contact ({:.1} to {:.1} MiB)\n",
                self.cpu_us_each,
                self.bytes_each,
                self.memory_before as f64 / f64::from(1 << 20),
                self.memory_after as f64 / f64::from(1 << 20),
            );
        }
        text
    }
}
