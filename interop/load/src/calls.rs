//! `calls` and `overload`: a rate of calls through the server, once or at several multiples of its
//! capacity.

use std::path::Path;

use serde::Serialize;

use crate::call::{Calls, Parties, Rules};
use crate::clock::{self, MILLISECOND};
use crate::compose::Composer;
use crate::drive::{self, Desk, Outcome, Plan, Play};
use crate::error::Error;
use crate::port::{Incoming, Local, Outgoing, Port, Stamp};
use crate::registration::{Registrations, SETUP_WINDOW, Terms};
use crate::report::{CallReport, listed, publish, ratio, spread_line};
use crate::tally::Tally;
use crate::target::Target;

/// Seconds the callees stay registered; a run that lasts longer loses them.
const EXPIRES: u32 = 7_200;

/// How each call goes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Manner {
    /// Time between 200 and BYE, milliseconds.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    hold_ms: u64,
    /// Time after which a call has failed, hold time not counted, milliseconds (RFC 7501
    /// Establishment Threshold Time, for the whole call).
    #[arg(long, default_value_t = 4_000, value_name = "MS")]
    timeout_ms: u64,
    /// Time from INVITE to 200 above which a call is late, milliseconds.
    #[arg(long, default_value_t = 500, value_name = "MS")]
    late_ms: u64,
    /// Send again by the timers of RFC 3261, and do not count it as failure of the server.
    #[arg(long)]
    retransmit: bool,
}

impl Manner {
    fn rules(self, target: &Target) -> Rules {
        Rules {
            hold: self.hold_ms * MILLISECOND,
            timeout: self.timeout_ms * MILLISECOND,
            late: self.late_ms * MILLISECOND,
            retransmit: self.retransmit,
            reliable: target.transport.is_reliable(),
            floor: target.floor,
        }
    }
}

/// The calls of one worker with the facts that do not change.
struct Caller {
    calls: Calls,
    registrations: Registrations,
    /// Port number and user numbers by which parties are chosen.
    numbers: Vec<u16>,
    callers: usize,
    users: u32,
    first: u32,
    stride: u32,
}

impl Play for Caller {
    fn port(&self, n: u64) -> usize {
        (n % self.callers as u64) as usize
    }

    fn launch(&mut self, n: u64, due: u64, measured: bool, local: &Local, out: &mut Outgoing) {
        let users = u64::from(self.users);
        let callee = (n % users) as u32;
        let caller = ((n + 1) % users) as u32;
        let parties = Parties {
            caller: self.first + caller * self.stride,
            callee: self.first + callee * self.stride,
            callee_port: self.numbers[callee as usize % self.numbers.len()],
        };
        self.calls.start(due, measured, parties, local, out);
    }

    fn message(&mut self, now: u64, incoming: &Incoming<'_>, local: &Local, out: &mut Outgoing) {
        self.calls.message(now, incoming, local, out);
    }

    fn sent(&mut self, stamp: Stamp, now: u64) {
        self.calls.sent(stamp, now);
    }

    fn tick(&mut self, now: u64, ports: &mut [Port]) {
        self.calls.tick(now, ports);
    }

    fn next(&self) -> Option<u64> {
        self.calls.next()
    }

    fn active(&self) -> usize {
        self.calls.active()
    }

    fn completed(&self) -> u64 {
        self.calls.tally.completed
    }
}

/// A number that tells this run's messages from another's.
pub(crate) fn run_number() -> u32 {
    (clock::realtime() / MILLISECOND) as u32 ^ std::process::id().rotate_left(16)
}

/// Registers the users and plays the calls of one plan.
fn measure(target: &Target, manner: Manner, plan: Plan) -> Result<CallReport, Error> {
    let run = run_number();
    let outcome: Outcome<Caller> = drive::run(
        target,
        plan,
        |worker| {
            let mut desk = Desk::open(target)?;
            let mut registrations =
                Registrations::new(target, worker, run, &desk.homes, Terms::setup(EXPIRES));
            registrations.all(&mut desk, SETUP_WINDOW)?;
            // Another number, so that a late answer to a REGISTER is not taken for one to a call.
            let composer =
                Composer::new(&target.domain(), run.wrapping_add(1), worker as u8, target.floor);
            let caller = Caller {
                calls: Calls::new(manner.rules(target), composer),
                registrations,
                numbers: desk.homes.iter().map(|home| home.number).collect(),
                callers: desk.callers,
                users: target.users_of(worker),
                first: worker as u32,
                stride: target.workers as u32,
            };
            Ok((desk, caller))
        },
        |desk, caller| {
            caller.registrations.remove(target, desk);
        },
    )?;
    let mut tally = Tally::new();
    for caller in &outcome.plays {
        tally.add(&caller.calls.tally);
    }
    let rules = manner.rules(target);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut report = CallReport {
        server_address: target.server.to_string(),
        transport: target.transport.name(),
        rate: plan.rate,
        warm_up_seconds: plan.warm_up,
        seconds: plan.seconds,
        users: target.users,
        hold_seconds: seconds(rules.hold),
        timeout_seconds: seconds(rules.timeout),
        late_seconds: seconds(rules.late),
        retransmit: rules.retransmit,
        completed_rate: outcome.completed_rate,
        server: outcome.server,
        ..CallReport::empty(outcome.generator)
    };
    report.count(&tally);
    Ok(report)
}

/// `ringway-load calls`: exit status says whether the run was clean.
pub(crate) fn calls(target: &Target, manner: Manner, plan: Plan) -> Result<bool, Error> {
    let report = measure(target, manner, plan)?;
    publish(&report, &report.lines(), target.json.as_deref())?;
    Ok(report.clean)
}

/// Several loads on one server.
#[derive(Serialize)]
struct OverloadReport {
    command: &'static str,
    capacity: f64,
    steps: Vec<OverloadStep>,
    /// Goodput at the highest multiple, share of the best goodput of all.
    goodput_share_at_most: f64,
}

#[derive(Serialize)]
struct OverloadStep {
    multiple: f64,
    /// Calls completed each second of the window.
    goodput: f64,
    calls: CallReport,
}

/// `ringway-load overload`: the same at multiples of a capacity, as telephones behave.
pub(crate) fn overload(
    target: &Target,
    manner: Manner,
    capacity: f64,
    multiples: &[f64],
    plan: Plan,
) -> Result<bool, Error> {
    let manner = Manner { retransmit: true, ..manner };
    let mut steps = Vec::new();
    for &multiple in multiples {
        let calls = measure(target, manner, Plan { rate: capacity * multiple, ..plan })?;
        steps.push(OverloadStep { multiple, goodput: calls.completed_rate, calls });
    }
    let best = steps.iter().map(|step| step.goodput).fold(0.0, f64::max);
    let most = steps.iter().max_by(|a, b| a.multiple.total_cmp(&b.multiple));
    let share = ratio(most.map_or(0.0, |step| step.goodput), best);
    let report =
        OverloadReport { command: "overload", capacity, steps, goodput_share_at_most: share };
    publish(&report, &report.lines(), target.json.as_deref().map(Path::new))?;
    Ok(share > 0.0)
}

impl OverloadReport {
    fn lines(&self) -> String {
        let mut text = format!("overload, capacity {:.0} calls/s\n", self.capacity);
        for step in &self.steps {
            let calls = &step.calls;
            text += &format!(
                "{:>5.2} x = {:.0}/s: goodput {:.0}/s, attempted {}, completed {}, rejected {}, generator {:.0} % busy\n",
                step.multiple,
                calls.rate,
                step.goodput,
                calls.attempted,
                calls.completed,
                calls.rejected.values().sum::<u64>(),
                100.0 * calls.generator.cpu_share,
            );
            text += &listed("missing", calls.failed.iter());
            text += &listed("rejected", calls.rejected.iter());
            text += &spread_line("added delay", &calls.delay_us.added);
        }
        text + &format!(
            "goodput at the highest load: {:.0} % of the best\n",
            100.0 * self.goodput_share_at_most
        )
    }
}
