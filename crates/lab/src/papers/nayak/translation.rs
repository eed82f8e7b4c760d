//! The conclusion: a TCP program whose sockets are translated to SCTP performs as over TCP.
//!
//! A translator makes an association of each connection, as `withsctp` does. So what a program sees is one connection
//! beside one association, or four beside four; the paper's four streams need a program that was written for them.

use super::{
    Carrier, Claim, Line, MeasuredFigure, MeasuredTable, RATE, Study, StudyResult, all_within,
    completions, mean, or_no_estimate, row, transfer,
};
use crate::run::RunError;
use ringway_figures::statistics::Estimate;

/// Size of the transfer in megabytes, and losses in per cent.
const SIZE: u64 = 10;
const LOSSES: [f64; 4] = [0.0, 0.01, 0.1, 1.0];
const CARRIERS: [(&str, Carrier); 5] = [
    ("1 connection", Carrier::Tcp(1)),
    ("1 association", Carrier::Associations(1)),
    ("4 connections", Carrier::Tcp(4)),
    ("4 associations", Carrier::Associations(4)),
    ("4 streams", Carrier::Streams(4)),
];
/// Tolerance of times that are to be the same.
const CLOSE: f64 = 0.1;

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let mut cells: Vec<Vec<Estimate>> = Vec::new();
    for loss in LOSSES {
        let mut line = Vec::new();
        for (_, carrier) in CARRIERS {
            let runs = study.scenario(&transfer(Line::of_files(loss), carrier, SIZE * 1000))?;
            line.push(or_no_estimate(mean(&completions(&runs))));
        }
        cells.push(line);
    }
    let figures = |line: &Vec<Estimate>| {
        let figures = line.iter().zip(CARRIERS);
        figures.map(|(estimate, (name, _))| MeasuredFigure::new(name, "s", *estimate)).collect()
    };
    let rows =
        LOSSES.iter().zip(&cells).map(|(loss, line)| row(format!("{loss} %"), figures(line)));
    let table = MeasuredTable {
        source: "Section IX",
        what: format!(
            "seconds of {SIZE} MB over {} Mbit/s and 35 ms, against the loss, as a program over TCP and the same over SCTP \
             after translation.",
            RATE as f64 / 1000.0
        ),
        replications: study.replications as usize,
        rows: rows.collect(),
    };
    // Up to 0.1 %, the losses of the paper's text.
    let pairs = |lines: &[Vec<Estimate>]| -> Vec<(Estimate, f64)> {
        lines.iter().flat_map(|l| [(l[1], l[0].value), (l[3], l[2].value)]).collect()
    };
    let (holds, sure) = all_within(&pairs(&cells[..3]), CLOSE);
    let ratios = |line: &Vec<Estimate>| {
        format!("{:.2} and {:.2}", line[1].value / line[0].value, line[3].value / line[2].value)
    };
    let lossy = pairs(&cells[3..]);
    let (alike, decided) = all_within(&lossy, CLOSE);
    let claims = vec![
        Claim {
            source: "Section IX",
            says: format!("translated to SCTP, a program is as fast as over TCP, within {:.0} %", CLOSE * 100.0),
            ours: format!(
                "one association takes so many times as long as one connection, four as four connections: without loss {}, \
                 at {} % {}",
                ratios(&cells[0]),
                LOSSES[2],
                ratios(&cells[2])
            ),
            holds,
            expected: true,
            sure,
            why: "Up to the losses that the paper's emulator made, the link is the limit, of either.".into(),
        },
        Claim {
            source: "Section IX",
            says: format!("the same at {} %", LOSSES[3]),
            ours: format!("so many times as long: {}", ratios(&cells[3])),
            holds: alike,
            expected: true,
            sure: decided,
            why: "The link needs a window of some twenty packets. At that size CUBIC behaves as the congestion control of RFC \
                  9260 does (RFC 9438 section 4.3).".into(),
        },
    ];
    Ok(StudyResult { tables: vec![table], claims, ..StudyResult::default() })
}
