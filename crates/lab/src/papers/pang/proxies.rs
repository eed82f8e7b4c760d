//! Chapter 6, what the paper proposes and leaves open: two proxies with several streams between them, proxies with two
//! links, both links at once, and a benchmark like SIPstone with losses.

use super::{
    Side, Study, StudyResult, difference, ethernet, or_no_estimate, row, sctp, side, tcp, values_of,
};
use crate::papers::{Claim, MeasuredFigure, MeasuredTable};
use crate::run::RunError;
use crate::sip::{Call, Calls, Chain};
use ringway_figures::statistics::{
    Estimate, mean, paired, percentile_of_replications, ratio_of_replications,
};
use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, Change, LinkConfig, Loss, Rate, Span, Streams};
use ringway_sansio::{Duration, Time};
use ringway_sctp::{Multipath, Settings};
use ringway_sim::flows::TransportConfig;

/// Time at which calls begin, and losses do.
const FROM: Time = Time::from_secs(20);
/// Duration in which calls begin.
const COUNTED: Duration = Duration::from_secs(60);
/// Time limit of an INVITE: timer B of RFC 3261, 64*T1.
const LIMIT: Duration = Duration::from_secs(32);
/// SIPstone counts a transaction only if it is complete in this time.
const SIPSTONE: Duration = Duration::from_secs(2);
/// Loss of the benchmark in per cent, in each direction between the proxies.
const LOSSES: [f64; 4] = [0.0, 1.0, 5.0, 10.0];

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let mut all = benchmark(study)?;
    for part in [homed(study)?, balanced(study)?] {
        all.tables.extend(part.tables);
        all.claims.extend(part.claims);
    }
    Ok(all)
}

/// Two proxies 10 ms apart, and calls without people.
fn chain(transport: TransportConfig, between: Vec<LinkConfig>, pairs: u8) -> Chain {
    Chain {
        transport,
        access: ethernet(Span::from_millis(1)),
        between,
        pairs,
        from: FROM,
        until: FROM + COUNTED,
        end: FROM + COUNTED + LIMIT * 2,
        talk: Duration::from_millis(500),
        pause: Duration::from_secs(1),
        answer: Duration::from_millis(100),
    }
}

fn link() -> LinkConfig {
    ethernet(Span::from_millis(10))
}

/// Returns a link with a change at a time.
fn changed(at: Time, change: Change) -> LinkConfig {
    let at = Span(at.as_nanos());
    LinkConfig { schedule: vec![Change { at, ..change }], ..link() }
}

fn runs(study: &Study, chain: &Chain) -> Result<Vec<Calls>, RunError> {
    study.each(|replication| Ok(chain.run(Streams::new(study.seed, replication))?))
}

/// Returns the time from the INVITE to its 200, the ringing included.
fn setup(call: &Call) -> Option<Duration> {
    Some(call.answered?.since(call.invited))
}

/// Returns the number of calls that were set up within a time.
fn set_up(calls: &Calls, within: Duration) -> u64 {
    calls.calls.iter().filter(|call| setup(call).is_some_and(|took| took <= within)).count() as u64
}

fn completed(runs: &[Calls]) -> Vec<f64> {
    values_of(runs, |calls| Some(set_up(calls, LIMIT) as f64))
}

fn estimate(values: &[f64]) -> Estimate {
    or_no_estimate(mean(values))
}

fn kinds() -> [(&'static str, TransportConfig); 5] {
    let settings = Settings::default();
    [
        ("UDP", TransportConfig::Udp),
        ("TCP", tcp()),
        ("SCTP", sctp(settings)),
        ("SCTP, one stream", TransportConfig::Sctp(settings, 1)),
        ("SCTP, RACK", sctp(Settings { rack: true, ..settings })),
    ]
}

fn benchmark(study: &Study) -> Result<StudyResult, RunError> {
    const PAIRS: u8 = 24;
    let (mut shares, mut times) = (Vec::new(), Vec::new());
    let mut streams = Vec::new();
    for loss in LOSSES {
        let chance = Chance::percent(loss).unwrap_or_default();
        let loss_model = Loss::Random(RandomLoss { chance, ..RandomLoss::default() });
        let between = changed(FROM, Change { loss: Some(loss_model), ..Change::default() });
        let (mut of_shares, mut of_times, mut setups) = (Vec::new(), Vec::new(), Vec::new());
        for (name, transport) in kinds() {
            let runs = runs(study, &chain(transport, vec![between.clone()], PAIRS))?;
            let counts = |calls: &Calls| (set_up(calls, SIPSTONE), calls.calls.len() as u64);
            let ratio = ratio_of_replications(&runs.iter().map(counts).collect::<Vec<_>>());
            of_shares.push(MeasuredFigure::new(name, "share", or_no_estimate(ratio)));
            let all = |calls: &Calls| -> Vec<f64> {
                calls.calls.iter().filter_map(setup).map(|took| took.as_secs_f64() * 1e3).collect()
            };
            let all: Vec<Vec<f64>> =
                runs.iter().map(all).filter(|times| !times.is_empty()).collect();
            let p90 = or_no_estimate(percentile_of_replications(&all, 0.9));
            of_times.push(MeasuredFigure::new(name, "ms", p90));
            let means = all.iter().map(|times| times.iter().sum::<f64>() / times.len() as f64);
            setups.push(means.collect::<Vec<f64>>());
        }
        shares.push(row(format!("{loss} %"), of_shares));
        times.push(row(format!("{loss} %"), of_times));
        if loss > 0.0 {
            let [Some(eight), Some(one)] = [2, 3].map(|kind| setups.get(kind)) else { continue };
            streams.push((loss, or_no_estimate(paired(one, eight))));
        }
    }
    let table = |what: String, rows| MeasuredTable {
        source: "Chapter 6, two proxies",
        what,
        replications: study.replications as usize,
        rows,
    };
    let calls = format!(
        "{PAIRS} phones of one proxy that repeatedly call as many of another, 10 ms away, for {} s, against the loss between \
         the proxies in each direction",
        COUNTED.as_secs()
    );
    let tables = vec![
        table(
            format!(
                "share of calls set up within {} s, as SIPstone counts them; {calls}.",
                SIPSTONE.as_secs()
            ),
            shares,
        ),
        table(
            format!(
                "90th percentile of the time from INVITE to 200, with 100 ms of ringing; {calls}."
            ),
            times,
        ),
    ];
    let sides: Vec<Side> = streams.iter().map(|(_, gain)| side(gain)).collect();
    let list: Vec<String> = streams
        .iter()
        .map(|(loss, gain)| format!("{loss} %: {} ms", difference(gain, 1)))
        .collect();
    let holds = sides.iter().all(|s| *s == Side::Above);
    let claims = vec![Claim {
        source: "Chapter 6, two proxies",
        says: "streams between two proxies resolve the head-of-line blocking: calls are set up sooner than in one stream".into(),
        ours: format!("the mean set-up is shorter by {}", list.join(", ")),
        holds,
        expected: true,
        sure: holds || sides.contains(&Side::Below),
        why: "All calls of a proxy share one association. In one stream each lost message holds up those of all other calls \
              behind it."
            .into(),
    }];
    Ok(StudyResult { tables, claims, ..StudyResult::default() })
}

/// Proxies with one link and with two, of which the first fails.
fn homed(study: &Study) -> Result<StudyResult, RunError> {
    const PAIRS: u8 = 8;
    let half = FROM + COUNTED / 2;
    let down = changed(half, Change { up: Some(false), ..Change::default() });
    let kinds = [
        ("one link", sctp(Settings::default()), vec![down.clone()]),
        ("two links, default timers", sctp(Settings::default()), vec![down.clone(), link()]),
        ("two links, ss7", sctp(Settings::ss7()), vec![down.clone(), link()]),
    ];
    let mut rows = Vec::new();
    let mut counts = Vec::new();
    for (name, transport, between) in kinds {
        let runs = runs(study, &chain(transport, between, PAIRS))?;
        let calls = completed(&runs);
        let longest = values_of(&runs, |calls| {
            calls.calls.iter().filter_map(setup).max().map(|took| took.as_secs_f64())
        });
        rows.push(row(
            name,
            vec![
                MeasuredFigure::new("calls", "calls", estimate(&calls)),
                MeasuredFigure::new("longest set-up", "s", estimate(&longest)),
            ],
        ));
        counts.push(calls);
    }
    let table = MeasuredTable {
        source: "Chapter 6, multi-homing",
        what: format!(
            "calls set up in {} s by {PAIRS} phones of one proxy that call as many of another, if the first link between the \
             proxies fails after half of that time.",
            COUNTED.as_secs()
        ),
        replications: study.replications as usize,
        rows,
    };
    let gain = or_no_estimate(paired(&counts[1], &counts[0]));
    let claim = Claim {
        source: "Chapter 6, multi-homing",
        says: "a multi-homed proxy performs better than a single-homed one when a link is broken".into(),
        ours: format!("calls with two links less those with one: {}", difference(&gain, 1)),
        holds: gain.value > 0.0,
        expected: true,
        sure: side(&gain) != Side::Level || gain.equal,
        why: "With one link there is no other way. With two, the calls under way wait for the timeout of the first path.".into(),
    };
    Ok(StudyResult { tables: vec![table], claims: vec![claim], ..StudyResult::default() })
}

/// Two narrow links, of which one is used or both.
fn balanced(study: &Study) -> Result<StudyResult, RunError> {
    const PAIRS: u8 = 40;
    let narrow = || LinkConfig { rate: Rate(64_000), ..link() };
    let multipath = |multipath| sctp(Settings { multipath, ..Settings::default() });
    let kinds = [
        ("one link", multipath(Multipath::Off), 1),
        ("two links, one for failures", multipath(Multipath::Off), 2),
        ("two links at once", multipath(Multipath::Independent), 2),
        ("two links at once, pooled", multipath(Multipath::Pooled), 2),
    ];
    let mut rows = Vec::new();
    let mut counts = Vec::new();
    for (name, transport, links) in kinds {
        let between = (0..links).map(|_| narrow()).collect();
        let runs = runs(study, &chain(transport, between, PAIRS))?;
        let calls = completed(&runs);
        let in_time = values_of(&runs, |calls| Some(set_up(calls, SIPSTONE) as f64));
        rows.push(row(
            name,
            vec![
                MeasuredFigure::new("calls", "calls", estimate(&calls)),
                MeasuredFigure::new("within 2 s", "calls", estimate(&in_time)),
            ],
        ));
        counts.push(calls);
    }
    let table = MeasuredTable {
        source: "Chapter 6, load balancing",
        what: format!(
            "calls set up in {} s by {PAIRS} phones of one proxy that call as many of another over links of 64 kbit/s, which \
             is less than they offer.",
            COUNTED.as_secs()
        ),
        replications: study.replications as usize,
        rows,
    };
    let gain = or_no_estimate(paired(&counts[2], &counts[1]));
    let (both, one) = (estimate(&counts[2]).value, estimate(&counts[1]).value);
    let claim = Claim {
        source: "Chapter 6, load balancing",
        says: "multi-homing can balance load: two links carry more calls than one".into(),
        ours: format!("{both:.0} calls over both at once, {one:.0} over one of them: {} more", difference(&gain, 0)),
        holds: gain.value > 0.0,
        expected: true,
        sure: side(&gain) != Side::Level,
        why: "RFC 9260 uses the second path only if the first fails; with a window for each path both carry data.".into(),
    };
    Ok(StudyResult { tables: vec![table], claims: vec![claim], ..StudyResult::default() })
}
