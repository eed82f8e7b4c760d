//! Nayak and Mishra, "Multi-streaming behavior in protocol independent transport API": four TCP connections beside
//! one SCTP association with four streams, through an emulated link.
//!
//! The paper prints neither which direction its emulator delayed nor how long its queue was. `tc` configures one
//! direction, so delay and loss are those of one direction here; the queue is netem's of 1,000 packets.
//!
//! [`files`] is Tables V to IX and Figures 4 to 8, [`bandwidth`] Tables III and IV and Figures 2 and 3, [`translation`]
//! the conclusion.

mod bandwidth;
mod files;
mod translation;

use super::study::{Study, StudyResult, or_no_estimate, row, values_of};
use super::{Claim, MeasuredFigure, MeasuredTable, Reproduction};
use crate::run::{Outcome, RunError};
use ringway_figures::statistics::{Estimate, mean};

/// Default number of replications.
pub(super) const REPLICATIONS: u64 = 10;

/// Rate of the bottleneck in kbit/s. With the headers of packets of 1,500 bytes it carries the 4.16 to 4.18 Mbit/s of
/// data that the paper prints, whatever the paper says about 1 Mbit/s.
const RATE: u64 = 4_300;

pub(super) fn run(seed: u64, replications: u64) -> Result<Reproduction, RunError> {
    let study = Study { paper: "nayak", seed, replications };
    study.reproduce(
        "Four TCP connections and one SCTP association with four streams: Nayak and Mishra",
        &[files::run, bandwidth::run, translation::run],
    )
}

/// What carries the data of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// TCP connections.
    Tcp(u64),
    /// One SCTP association with this number of streams.
    Streams(u64),
    /// SCTP associations with one stream each.
    Associations(u64),
}

/// TCP of Linux 3.4: CUBIC and selective acknowledgements, without RACK. Its window is one that four connections do not
/// overfill the emulator's queue with: the paper's times have no timeouts in them.
const TCP: &str = "tcp = { algorithm = \"cubic\", detection = \"sack\", receive_buffer = \"256 KiB\", send_buffer = \"256 KiB\" }";

impl Carrier {
    /// Returns the flows that share `traffic` evenly; `traffic` returns the keys of one flow that has a part in so
    /// many.
    fn flows(self, traffic: impl Fn(u64) -> String) -> String {
        let (transport, count, settings) = match self {
            Carrier::Tcp(n) => ("tcp", n, TCP.into()),
            Carrier::Streams(n) => ("sctp", 1, sctp(n)),
            Carrier::Associations(n) => ("sctp", n, sctp(1)),
        };
        let flow = |i| {
            format!(
                "[[flow]]\nname = \"f{i}\"\nfrom = \"client\"\nto = \"server\"\ntransport = \"{transport}\"\n{}\n\
                 {settings}\n",
                traffic(count)
            )
        };
        (0..count).map(flow).collect()
    }
}

/// Returns the settings of SCTP: messages that fill a packet, and the window of four connections.
fn sctp(streams: u64) -> String {
    format!(
        "packet = \"1452 B\"\nsctp = {{ streams = {streams}, receive_buffer = \"1 MiB\", send_buffer = \"1 MiB\" }}"
    )
}

/// The emulated link.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Rate in kbit/s.
    rate: u64,
    /// Delay towards the server in milliseconds.
    delay: u64,
    /// Deviation from it in milliseconds, each with a quarter of the one before.
    jitter: u64,
    /// Loss towards the server in per cent.
    loss: f64,
}

impl Line {
    /// The link of Tables V to IX.
    fn of_files(loss: f64) -> Line {
        Line { rate: RATE, delay: 35, jitter: 0, loss }
    }

    /// Returns a scenario with this link and flows.
    fn scenario(self, stop: &str, flows: &str) -> String {
        let Line { rate, delay, jitter, loss } = self;
        let jitter = match jitter {
            0 => String::new(),
            _ => format!("jitter = \"{jitter} ms\"\ndelay_correlation = \"25 %\"\n"),
        };
        format!(
            "[scenario]\ntitle = \"Nayak and Mishra\"\nnodes = [\"client\", \"emulator\", \"server\"]\n{stop}\n\
             [[link]]\nname = \"ethernet\"\nbetween = [\"client\", \"emulator\"]\nrate = \"1 Gbit/s\"\ndelay = \"50 us\"\n\
             [[link]]\nname = \"line\"\nbetween = [\"emulator\", \"server\"]\nrate = \"{rate} kbit/s\"\n\
             queue = {{ discipline = \"drop-tail\", limit = 1000 }}\n\
             [link.there]\ndelay = \"{delay} ms\"\n{jitter}loss = {{ model = \"random\", chance = \"{loss} %\" }}\n\
             {flows}"
        )
    }
}

/// Returns a scenario that transfers kilobytes over a link.
fn transfer(line: Line, carrier: Carrier, kilobytes: u64) -> String {
    let flows = carrier.flows(|n| format!("traffic = \"file\"\nsize = \"{} kB\"", kilobytes / n));
    line.scenario("stop = \"flows done\"\nat_most = \"7200 s\"", &flows)
}

/// Returns the seconds until the last flow of each run was complete.
fn completions(runs: &[Outcome]) -> Vec<f64> {
    values_of(runs, |run| {
        let times: Option<Vec<f64>> = run.flows.iter().map(|f| f.completion).collect();
        times?.into_iter().reduce(f64::max)
    })
}

/// Whether an estimate is within a share of a value, and whether its interval decides that.
fn within(estimate: &Estimate, value: f64, share: f64) -> (bool, bool) {
    let (low, high) = (value * (1.0 - share), value * (1.0 + share));
    let inside = |x: f64| (low..=high).contains(&x);
    let decided = estimate.interval.map_or(estimate.equal, |i| {
        (inside(i.low) && inside(i.high)) || i.high < low || i.low > high
    });
    (inside(estimate.value), decided && estimate.value.is_finite())
}

/// Whether all estimates are within a share of their values, and whether that is decided.
fn all_within(pairs: &[(Estimate, f64)], share: f64) -> (bool, bool) {
    let judged: Vec<(bool, bool)> = pairs.iter().map(|(e, v)| within(e, *v, share)).collect();
    let holds = judged.iter().all(|j| j.0);
    // One that is outside for sure decides it; otherwise all must be sure to be inside.
    let sure = if holds { judged.iter().all(|j| j.1) } else { judged.iter().any(|j| !j.0 && j.1) };
    (holds, sure)
}
