//! "The time needed to switch to another link when link failure occurs should be less than 800 ms, and the availability
//! of communication service [...] at least 99,9988 percent" (section II.2), as a run with failures and repairs.
//!
//! Each link fails after a time with a mean of [`WORKS`], and is repaired after one with a mean of [`BROKEN`], both
//! exponential. A message is due every second for a day. The service is available to a message that is delivered within
//! 800 ms; so a change of path that takes longer counts as much as two links that are broken at once.

use super::{Claim, MeasuredFigure, MeasuredTable, Study, StudyResult, estimate, row, values_of};
use crate::run::{Options, Outcome, RunError, run as run_once};
use crate::scenario::ProbeKind;
use ringway_figures::statistics::Estimate;
use ringway_link::Streams;
use ringway_sansio::Random;
use std::fmt::Write;

/// Mean seconds between a repair and the next failure of a link, and from a failure to its repair.
const WORKS: f64 = 14_400.0;
const BROKEN: f64 = 10.0;
/// Seconds of a run, and messages in a second.
const DURATION: f64 = 86_400.0;
const EACH_SECOND: u32 = 1;
/// Longest delay of a message in seconds.
const LIMIT: f64 = 0.8;
/// Availability in per cent that SS7 needs.
const NEEDED: f64 = 99.9988;
const KINDS: [(&str, usize, &str); 4] = [
    ("one link, default timers", 1, ""),
    ("one link, ss7", 1, ", profile = \"ss7\""),
    ("two links, default timers", 2, ""),
    ("two links, ss7", 2, ", profile = \"ss7\""),
];

/// Returns when a link fails and when it is repaired, in milliseconds.
fn failures(random: &mut impl Random) -> Vec<[u64; 2]> {
    let mut exponential = |mean: f64| {
        let unit = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (-mean * (1.0 - unit).ln() * 1e3) as u64
    };
    let (mut at, mut all) = (0, Vec::new());
    loop {
        let fails = at + exponential(WORKS) + 1;
        at = fails + exponential(BROKEN) + 1;
        if at as f64 >= DURATION * 1e3 {
            return all;
        }
        all.push([fails, at]);
    }
}

/// Returns the share of the time in which both of two links are broken, in per cent.
fn broken_at_once([one, other]: [&[[u64; 2]]; 2]) -> f64 {
    let overlap = |a: &[u64; 2], b: &[u64; 2]| a[1].min(b[1]).saturating_sub(a[0].max(b[0]));
    let both: u64 = one.iter().flat_map(|a| other.iter().map(move |b| overlap(a, b))).sum();
    both as f64 / 1e3 / DURATION * 100.0
}

fn scenario(links: &[Vec<[u64; 2]>], settings: &str) -> String {
    let mut text = format!(
        "[scenario]\ntitle = \"Availability\"\nnodes = [\"a\", \"b\"]\nstop = \"{DURATION} s\"\n\
         events = 100000000000\n"
    );
    let mut paths = Vec::new();
    for (n, failures) in links.iter().enumerate() {
        let change = |[fails, repaired]: &[u64; 2]| {
            format!(
                "{{ at = \"{fails} ms\", up = false }}, {{ at = \"{repaired} ms\", up = true }}, "
            )
        };
        let schedule: String = failures.iter().map(change).collect();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[link]]\nname = \"path-{n}\"\nbetween = [\"a\", \"b\"]\nrate = \"2 Mbit/s\"\ndelay = \"5 ms\"\n\
             schedule = [{schedule}]\n"
        );
        paths.push(format!("\"path-{n}\""));
    }
    let packet = 250;
    let rate = packet * 8 * EACH_SECOND;
    let _ = write!(
        text,
        "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"sctp\"\ntraffic = \"cbr\"\n\
         rate = \"{rate} bit/s\"\npacket = \"{packet} B\"\n\
         sctp = {{ paths = [{}], association_max_retrans = 1000{settings} }}\n\
         [[probe]]\nwhat = \"message-delay\"\nflow = \"f\"\n",
        paths.join(", ")
    );
    text
}

/// Returns the share of messages that arrived in time, in per cent.
fn available(outcome: &Outcome) -> Option<f64> {
    let delays = outcome.series.iter().find(|s| s.what == ProbeKind::MessageDelay)?;
    let in_time = delays.points.iter().filter(|point| point[1] <= LIMIT).count();
    let written = outcome.flows.first()?.messages?.written;
    Some(in_time as f64 / written as f64 * 100.0)
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let mut rows = Vec::new();
    let mut estimates: Vec<Estimate> = Vec::new();
    for (name, links, settings) in KINDS {
        let runs = study.each(|replication| {
            let streams = Streams::new(study.seed, replication);
            let failures: Vec<_> = (0..links)
                .map(|link| failures(&mut streams.stream(&format!("failures/{link}"))))
                .collect();
            let at_once = match &failures[..] {
                [one, other] => Some(broken_at_once([one, other])),
                _ => None,
            };
            let scenario = study.read(&scenario(&failures, settings))?;
            let options =
                Options { seed: Some(study.seed), replication, probes: true, ..Options::default() };
            let outcome = run_once(&scenario, &options, |_| ())?;
            Ok((available(&outcome), outcome.flows.first().and_then(|f| f.stall), at_once))
        })?;
        let shares = values_of(&runs, |run| run.0);
        let available = estimate(&shares);
        let longest = values_of(&runs, |run| run.1).into_iter().fold(0.0, f64::max);
        let mut figures = vec![
            MeasuredFigure::new("available", "%", available),
            MeasuredFigure::exact("longest halt", "s", longest),
        ];
        if links > 1 {
            let at_once = estimate(&values_of(&runs, |run| run.2));
            figures.push(MeasuredFigure::new("both links broken", "%", at_once));
        }
        rows.push(row(name, figures));
        estimates.push(available);
    }
    let table = MeasuredTable {
        source: "Section II.2, availability",
        what: format!(
            "messages delivered within {} ms, of {EACH_SECOND} a second for {:.0} day; a link works for {WORKS:.0} s and is \
             broken for {BROKEN:.0} s on average, {:.2} % of the time.",
            LIMIT * 1e3,
            DURATION / 86_400.0,
            BROKEN / (WORKS + BROKEN) * 100.0
        ),
        replications: study.replications as usize,
        rows,
    };
    let claims = vec![
        judged(&estimates[3], "SCTP with two links and the timers of the ss7 profile", true, format!(
            "A change of path takes less than {} ms there, so only links that are broken at the same time count: {:.6} % of \
             the time are to be expected, as they fail independently.",
            LIMIT * 1e3,
            (BROKEN / (WORKS + BROKEN)).powi(2) * 100.0
        )),
        judged(&estimates[2], "SCTP with two links and its default timers", false,
            "A failure is found by a timeout of 1 s or more (RTO.Min), and every failure of the primary path costs the \
             messages of that time.".into()),
        judged(&estimates[1], "SCTP with one link", false,
            "The service is as available as the link.".into()),
    ];
    Ok(StudyResult { tables: vec![table], claims, ..StudyResult::default() })
}

fn judged(estimate: &Estimate, what: &str, expected: bool, why: String) -> Claim {
    let decided = estimate.interval.is_some_and(|i| i.low >= NEEDED || i.high < NEEDED);
    Claim {
        source: "Section II.2, availability",
        says: format!("{what} is available for {NEEDED} % of the time"),
        ours: match estimate.interval {
            Some(i) => format!("{:.5} % [{:.5}, {:.5}]", estimate.value, i.low, i.high),
            None => format!("{:.5} %", estimate.value),
        },
        holds: estimate.value >= NEEDED,
        expected,
        sure: decided || estimate.equal,
        why,
    }
}
