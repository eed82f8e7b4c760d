//! Figures 3.7 and 3.8 (of Rajamani et al. 2002): one file without loss, and eight files with loss.

use super::{Side, Study, StudyResult, difference, or_no_estimate, row, side, values_of};
use crate::output::{AxisSheet, ChartSheet, SeriesSheet, Style};
use crate::papers::{Claim, MeasuredFigure, MeasuredTable};
use crate::run::{Outcome, RunError};
use ringway_figures::statistics::{mean, paired};

/// Sizes of the single file, and of each of the eight, in kilobytes.
const SIZES: [u32; 4] = [10, 50, 200, 1000];
const EACH: u32 = 100;
/// Runs of the eight files per replication of the paper's other experiments. The runs are short,
/// and at 5 % loss the differences are small compared with a retransmission timeout.
const TIMES: u64 = 10;
/// Loss in each direction, in per cent.
const LOSSES: [f64; 4] = [0.0, 1.0, 2.0, 5.0];

/// TCP of RFC 2581, 2582 and 2988, without selective acknowledgements. The paper does not state
/// which TCP it used, so both are run.
const TCP_2002: &str = "tcp = { algorithm = \"new-reno\", detection = \"sack\", sack = false, \
                        timestamps = false, initial_window = 2, delayed_ack = \"200 ms\", min_rto = \"1 s\" }";
/// The same with the selective acknowledgements of RFC 2018, which were common by then.
const TCP_2002_SACK: &str = "tcp = { algorithm = \"new-reno\", detection = \"sack\", timestamps = false, \
                             initial_window = 2, delayed_ack = \"200 ms\", min_rto = \"1 s\" }";
const KINDS: [(&str, &str, &str); 5] = [
    ("TCP", "tcp", ""),
    ("TCP of 2002", "tcp", TCP_2002),
    ("TCP of 2002, SACK", "tcp", TCP_2002_SACK),
    ("SCTP", "sctp", "sctp = { streams = 8 }\npacket = \"1400 B\""),
    (
        "SCTP, RACK, CUBIC",
        "sctp",
        "sctp = { streams = 8, rack = true, algorithm = \"cubic\" }\npacket = \"1400 B\"",
    ),
];

/// Returns a scenario of files with a total size: one after another over TCP, each on its own
/// stream over SCTP.
fn scenario((_, transport, settings): (&str, &str, &str), kilobytes: u32, loss: f64) -> String {
    format!(
        "[scenario]\ntitle = \"Figures 3.7 and 3.8\"\nnodes = [\"a\", \"b\"]\nstop = \"flows done\"\n\
         at_most = \"600 s\"\n\
         [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"10 Mbit/s\"\ndelay = \"10 ms\"\n\
         loss = {{ model = \"random\", chance = \"{loss} %\" }}\nloss_at = \"after-link\"\n\
         [[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"{transport}\"\ntraffic = \"file\"\n\
         size = \"{kilobytes} kB\"\n{settings}\n"
    )
}

fn completions(runs: &[Outcome]) -> Vec<f64> {
    values_of(runs, |o| o.flows.first()?.completion)
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let mut one = Vec::new();
    for size in SIZES {
        let mut figures = Vec::new();
        for kind in KINDS {
            let outcome = study.once(&study.read(&scenario(kind, size, 0.0))?, 1)?;
            let time = completions(&[outcome]).first().copied().unwrap_or(f64::NAN);
            figures.push(MeasuredFigure::exact(kind.0, "s", time));
        }
        one.push(row(format!("{size} kB"), figures));
    }
    let many = Study { replications: study.replications * TIMES, ..*study };
    let mut eight = Vec::new();
    let mut runs = Vec::new();
    for loss in LOSSES {
        let mut figures = Vec::new();
        for kind in KINDS {
            let outcomes = many.scenario(&scenario(kind, 8 * EACH, loss))?;
            figures.push(MeasuredFigure::new(
                kind.0,
                "s",
                or_no_estimate(mean(&completions(&outcomes))),
            ));
            runs.push((loss, kind.0, completions(&outcomes)));
        }
        eight.push(row(format!("{loss} %"), figures));
    }
    let one = MeasuredTable {
        source: "Figure 3.7",
        what: "seconds for one file without loss, over 10 Mbit/s and 10 ms, including connecting."
            .into(),
        replications: 1,
        rows: one,
    };
    let eight = MeasuredTable {
        source: "Figure 3.8",
        what: format!(
            "seconds for eight files of {EACH} kB, over one connection or in eight streams of one association, \
             over the same link, against the loss in each direction."
        ),
        replications: many.replications as usize,
        rows: eight,
    };
    let claims = claims(&one, &runs);
    let charts = vec![
        chart(study, "figure-3-7-one-file", "Figure 3.7, one file without loss", &one, "file", "B"),
        chart(
            study,
            "figure-3-8-eight-files",
            "Figure 3.8, eight files with loss",
            &eight,
            "loss",
            "%",
        ),
    ];
    Ok(StudyResult { tables: vec![one, eight], claims, charts, findings: Vec::new() })
}

fn claims(one: &MeasuredTable, runs: &[(f64, &str, Vec<f64>)]) -> Vec<Claim> {
    let better = |table: &MeasuredTable, a: &str, b: &str| {
        let of = |r: &str, c: &str| table.get(r, c).map_or(f64::NAN, |m| m.ours);
        table.rows.iter().filter(|r| of(&r.name, a) < of(&r.name, b)).count()
    };
    let of = |transport: &str, loss: f64| {
        let found = runs.iter().find(|r| r.0 == loss && r.1 == transport);
        found.map_or(&[][..], |r| &r.2)
    };
    // How much faster SCTP is, in runs with the same random numbers.
    let less =
        |than: &str, what: &str, loss: f64| or_no_estimate(paired(of(than, loss), of(what, loss)));
    let quicker = |than: &str, loss: f64| less(than, "SCTP", loss);
    let list = |than: &str| {
        let losses = LOSSES.iter().filter(|l| **l > 0.0);
        losses
            .map(|l| format!("{l} %: {} s", difference(&quicker(than, *l), 2)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let then = quicker("TCP of 2002", 5.0);
    let now = quicker("TCP", 5.0);
    let both = less("TCP", "SCTP, RACK, CUBIC", 5.0);
    let sizes = SIZES.len();
    vec![
        Claim {
            source: "Figure 3.7",
            says: "one file without loss: TCP is better".into(),
            ours: format!(
                "TCP is faster at {} of {sizes} sizes, TCP of 2002 at {}",
                better(one, "TCP", "SCTP"),
                better(one, "TCP of 2002", "SCTP")
            ),
            holds: better(one, "TCP", "SCTP") == sizes,
            expected: true,
            sure: true,
            why: "An association needs four messages to open and a connection three. TCP begins with ten segments \
                  (RFC 6928), SCTP with three."
                .into(),
        },
        Claim {
            source: "Figure 3.8",
            says: "eight files at 5 % loss: SCTP is better than the TCP of its day".into(),
            ours: format!(
                "SCTP takes less by {}; less than one with SACK by {}",
                list("TCP of 2002"),
                list("TCP of 2002, SACK")
            ),
            holds: then.value > 0.0,
            expected: true,
            sure: side(&then) != Side::Level,
            why: format!(
                "SCTP has selective acknowledgements, like the TCP of the third column; that of the second has none. \
                 At 5 % SCTP is better than {}.",
                match side(&quicker("TCP of 2002, SACK", 5.0)) {
                    Side::Above => "both",
                    _ => "the TCP without them; the difference to the other is not significant",
                }
            ),
        },
        Claim {
            source: "Figure 3.8",
            says: "eight files at 5 % loss: SCTP is better than TCP as it is today".into(),
            ours: format!(
                "SCTP takes less by {}; with RACK and CUBIC, at 5 %: {} s",
                list("TCP"),
                difference(&both, 2)
            ),
            holds: now.value > 0.0,
            expected: false,
            sure: side(&now) != Side::Level,
            why: format!(
                "TCP has improved since: RACK and TLP detect losses without waiting for a timer, and CUBIC grows \
                 faster. Here SCTP can use both, and with them it {} at 5 %. Streams avoid waiting for lost data of \
                 other files, but not the time to retransmit it.",
                match side(&both) {
                    Side::Above => "is better than TCP",
                    Side::Level => "cannot be distinguished from TCP",
                    Side::Below => "is still worse than TCP",
                }
            ),
        },
    ]
}

fn chart(
    study: &Study,
    name: &str,
    title: &str,
    table: &MeasuredTable,
    x: &str,
    unit: &str,
) -> ChartSheet {
    let positions = table.rows.iter().map(|r| {
        let number = r.name.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(f64::NAN);
        if unit == "B" { number * 1e3 } else { number }
    });
    let series = KINDS.map(|(kind, ..)| {
        let mut series =
            SeriesSheet { name: kind.into(), style: Style::Ribbon, ..Default::default() };
        for (row, x_value) in table.rows.iter().zip(positions.clone()) {
            if let Some(f) = row.figures.iter().find(|f| f.column == kind) {
                series.points.push([x_value, f.ours]);
                series.bounds.push((f.low.zip(f.high).map(|(low, high)| [low, high]), f.n));
            }
        }
        series
    });
    ChartSheet {
        shaded: Vec::new(),
        name: name.into(),
        title: title.into(),
        caption: "Time until everything has arrived, over 10 Mbit/s and 10 ms.".into(),
        seed: study.seed,
        rests_on: Some(match table.replications {
            1 => (1, "run without random elements".into()),
            n => (n, "replications".into()),
        }),
        x: AxisSheet::new(x, unit),
        y: AxisSheet::new("time", "s"),
        series: series.into(),
    }
}
