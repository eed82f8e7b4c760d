//! Tables III and IV, and Figures 2 and 3: bandwidth against round-trip time.
//!
//! Table III has a path of 100 Mbit/s and 100 ms, which deviates by 10 ms, each deviation with 25 % of the one before.
//! The section's 4.16 and 4.18 Mbit/s are those of the tables' link. So both rates are run, over delays that deviate by
//! a tenth. A packet that is delayed by less than the one before overtakes it, as with netem.

use super::{
    Carrier, Claim, Line, MeasuredFigure, MeasuredTable, RATE, Study, StudyResult, all_within,
    mean, or_no_estimate, row, within,
};
use crate::output::{AxisSheet, ChartSheet, SeriesSheet, Style};
use crate::run::RunError;
use ringway_figures::statistics::{Estimate, paired};

/// Delays in milliseconds, which are the round-trip times but for 0.1 ms.
const DELAYS: [u64; 5] = [20, 50, 100, 150, 200];
/// The delay of Table III.
const DELAY: u64 = 100;
/// Rate of Table III in kbit/s.
const FAST: u64 = 100_000;
const CARRIERS: [(&str, Carrier); 2] = [("TCP", Carrier::Tcp(4)), ("SCTP", Carrier::Streams(4))];
/// Duration of a measurement: iperf's default.
const SECONDS: u64 = 10;
/// Mean bandwidth in Mbit/s as printed, over TCP and SCTP.
const PRINTED: [f64; 2] = [4.16, 4.18];
/// Table IV in the order of its rows: TCP's maximum and minimum, and two that are both called SCTP's minimum.
const TABLE_IV: [f64; 4] = [0.017, 0.011, 0.603, 0.194];
/// Tolerance of figures that are to be the same.
const CLOSE: f64 = 0.1;

/// Mbit/s of data of each run, by delay and carrier, with steady or deviating delays.
struct Bandwidth {
    rate: u64,
    deviates: bool,
    cells: Vec<[Vec<f64>; 2]>,
}

impl Bandwidth {
    fn measure(study: &Study, rate: u64, deviates: bool) -> Result<Bandwidth, RunError> {
        let mut cells = Vec::new();
        for delay in DELAYS {
            let jitter = if deviates { delay / 10 } else { 0 };
            let line = Line { rate, delay, jitter, loss: 0.0 };
            let mut row = [Vec::new(), Vec::new()];
            for (cell, (_, carrier)) in row.iter_mut().zip(CARRIERS) {
                let flows = carrier.flows(|_| "traffic = \"bulk\"".into());
                let runs =
                    study.scenario(&line.scenario(&format!("stop = \"{SECONDS} s\""), &flows))?;
                let rate = |run: &crate::run::Outcome| {
                    run.flows.iter().map(|f| f.goodput).sum::<f64>() / 1e6
                };
                *cell = runs.iter().map(rate).collect();
            }
            cells.push(row);
        }
        Ok(Bandwidth { rate, deviates, cells })
    }

    fn estimate(&self, delay: usize, column: usize) -> Estimate {
        or_no_estimate(mean(&self.cells[delay][column]))
    }

    /// Returns the values over all delays.
    fn all(&self, column: usize) -> Vec<f64> {
        (0..DELAYS.len()).map(|delay| self.estimate(delay, column).value).collect()
    }

    /// Returns the quotient of the highest and the lowest bandwidth over the delays.
    fn spread(&self, column: usize) -> f64 {
        let all = self.all(column);
        all.iter().copied().fold(0.0, f64::max) / all.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn megabits(&self) -> f64 {
        self.rate as f64 / 1000.0
    }
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let mut all = Vec::new();
    for rate in [RATE, FAST] {
        for deviates in [false, true] {
            all.push(Bandwidth::measure(study, rate, deviates)?);
        }
    }
    Ok(StudyResult {
        tables: all.iter().map(|b| table(study, b)).collect(),
        claims: claims(&all),
        charts: vec![
            chart(study, "figure-2-bandwidth", "Figure 2, bandwidth at 4.3 Mbit/s", &all[..2]),
            chart(study, "figure-3-throughput", "Figure 3, throughput at 100 Mbit/s", &all[2..]),
        ],
        findings: Vec::new(),
    })
}

fn table(study: &Study, of: &Bandwidth) -> MeasuredTable {
    let rows = DELAYS.iter().enumerate().map(|(i, delay)| {
        let figures = CARRIERS
            .iter()
            .enumerate()
            .map(|(column, (name, _))| MeasuredFigure::new(name, "Mbit/s", of.estimate(i, column)));
        row(format!("{delay} ms"), figures.collect())
    });
    let deviates = if of.deviates {
        "deviates by a tenth, 25 % of it that of the packet before"
    } else {
        "is constant"
    };
    MeasuredTable {
        source: if of.rate == RATE { "Figure 2" } else { "Figure 3" },
        what: format!(
            "Mbit/s of data in {SECONDS} s over {} Mbit/s, four connections or four streams, against the delay, which \
             {deviates}. The paper's figure has no numbers.",
            of.megabits()
        ),
        replications: study.replications as usize,
        rows: rows.collect(),
    }
}

fn claims(all: &[Bandwidth]) -> Vec<Claim> {
    let [steady, deviating, fast, fast_deviating] = all else { return Vec::new() };
    vec![
        average(steady, deviating),
        label(),
        falls(fast, fast_deviating),
        gain(fast, fast_deviating),
    ]
}

/// Whether both transports have the printed mean.
fn average(steady: &Bandwidth, deviating: &Bandwidth) -> Claim {
    // The first delays, in whose ten seconds the start has no part that matters.
    let pairs: Vec<(Estimate, f64)> =
        (0..=2).flat_map(|delay| [0, 1].map(|c| (steady.estimate(delay, c), PRINTED[c]))).collect();
    let (holds, sure) = all_within(&pairs, CLOSE);
    let at = DELAYS.iter().position(|d| *d == DELAY).unwrap_or(0);
    let [tcp, sctp] = [0, 1].map(|column| steady.estimate(at, column).value);
    let [tcp_off, sctp_off] = [0, 1].map(|column| deviating.estimate(at, column).value);
    Claim {
        source: "Figure 2",
        says: format!("TCP has {} and SCTP {} Mbit/s on average", PRINTED[0], PRINTED[1]),
        ours: format!(
            "{tcp:.2} and {sctp:.2} Mbit/s at {DELAY} ms, within {:.0} % up to there",
            CLOSE * 100.0
        ),
        holds,
        expected: true,
        sure,
        why: format!(
            "Both fill the link if its delay is constant. With deviations of a tenth that let packets overtake each other, \
             TCP has {tcp_off:.2} and SCTP {sctp_off:.2} Mbit/s: four misses of a TSN count as a loss (RFC 9260 section \
             7.2.4). The paper's equal figures had no reordering."
        ),
    }
}

/// Which row of Table IV is SCTP's maximum.
fn label() -> Claim {
    let [_, _, first, second] = TABLE_IV;
    Claim {
        source: "Table IV",
        says: format!("{first} is SCTP's minimum"),
        ours: format!("the same table has {second} as SCTP's minimum, which is less"),
        holds: first <= second,
        expected: false,
        sure: true,
        why: format!(
            "The label is printed twice; {first} is the maximum. The table has no unit: in Mbit/s its values are between \
             {:.0} and {:.0} times less than section VIII's means.",
            PRINTED[1] / first,
            PRINTED[0] / TABLE_IV[1]
        ),
    }
}

/// Whether SCTP's throughput falls with the round-trip time by more than TCP's.
fn falls(steady: &Bandwidth, deviating: &Bandwidth) -> Claim {
    let [max, min, sctp_max, sctp_min] = TABLE_IV;
    let spread = |of: &Bandwidth| [of.spread(0), of.spread(1)];
    let ([tcp, sctp], [tcp_off, sctp_off]) = (spread(steady), spread(deviating));
    Claim {
        source: "Figure 3",
        says: format!(
            "SCTP falls with the RTT by more than TCP: by a factor of {:.1}, TCP by {:.1}",
            sctp_max / sctp_min,
            max / min
        ),
        ours: format!(
            "from {} to {} ms by factors of {sctp:.1} and {tcp:.1}; with deviations {sctp_off:.1} and {tcp_off:.1}",
            DELAYS[0],
            DELAYS[DELAYS.len() - 1]
        ),
        holds: sctp > tcp && sctp_off > tcp_off,
        expected: true,
        sure: sctp.is_finite() && tcp.is_finite(),
        why: "One window grows by one packet a round trip, four grow by four; so an association needs four times as long to \
              fill a long path, and to fill it again.".into(),
    }
}

/// Whether SCTP gains.
fn gain(steady: &Bandwidth, deviating: &Bandwidth) -> Claim {
    let at = DELAYS.iter().position(|d| *d == DELAY).unwrap_or(0);
    let less = |of: &Bandwidth| or_no_estimate(paired(&of.cells[at][1], &of.cells[at][0]));
    let (plain, off) = (less(steady), less(deviating));
    let (_, sure) = within(&off, off.value, f64::INFINITY);
    Claim {
        source: "Figure 3",
        says: "multi-streaming is a considerable gain over parallel TCP connections".into(),
        ours: format!(
            "at {} Mbit/s and {DELAY} ms SCTP carries {:+.1} Mbit/s more than TCP, {:+.1} with deviations",
            steady.megabits(),
            plain.value,
            off.value
        ),
        holds: plain.value > 0.0 && off.value > 0.0,
        expected: false,
        sure,
        why: "The paragraph itself says before that its throughput decreases considerably. Table IV has SCTP above TCP by a \
              factor of 18 and more, at a bandwidth that is equal in Figure 2; at least one of the two is wrong."
            .into(),
    }
}

fn chart(study: &Study, name: &str, title: &str, all: &[Bandwidth]) -> ChartSheet {
    let mut series = Vec::new();
    for of in all {
        for (column, (carrier, _)) in CARRIERS.iter().enumerate() {
            let kind = if of.deviates { "deviating" } else { "constant" };
            let mut line = SeriesSheet {
                name: format!("{carrier}, {kind}"),
                style: Style::Ribbon,
                ..Default::default()
            };
            for (i, delay) in DELAYS.iter().enumerate() {
                let estimate = of.estimate(i, column);
                line.points.push([*delay as f64 / 1e3, estimate.value * 1e6]);
                let bounds = estimate.interval.map(|i| [i.low * 1e6, i.high * 1e6]);
                line.bounds.push((bounds, estimate.n));
            }
            series.push(line);
        }
    }
    ChartSheet {
        shaded: Vec::new(),
        name: name.into(),
        title: title.into(),
        caption: format!("Data in {SECONDS} s, against the delay towards the server."),
        seed: study.seed,
        rests_on: Some((study.replications as usize, "replications".into())),
        x: AxisSheet::new("delay", "s"),
        y: AxisSheet::new("bandwidth", "bit/s"),
        series,
    }
}
