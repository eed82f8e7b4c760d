//! Call set-up over UDP, TCP and SCTP, which Gangurde et al. announce in their abstract and do not
//! print.

use super::{Part, Study, known, of_each, rack, row, transports};
use crate::output::{AxisSheet, ChartSheet, SeriesSheet, Style};
use crate::papers::{Claim, Measured, MeasuredTable};
use crate::run::RunError;
use crate::sip::{Bed, Calls};
use ringway_figures::statistics::{
    mean, paired, percentile_of_replications, ratio_of_replications,
};
use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, Change, LinkConfig, Loss, Rate, Span};
use ringway_sansio::{Duration, Time};
use ringway_sim::flows::Carried;

/// Loss of each link in each direction, in per cent.
const LOSSES: [f64; 5] = [0.0, 1.0, 2.0, 5.0, 10.0];
/// When losses begin and calls are made, and how long.
const FROM: Time = Time::from_secs(40);
const LENGTH: Duration = Duration::from_secs(300);
const TRANSPORTS: [&str; 4] = ["UDP", "TCP", "SCTP", "SCTP, RACK"];

/// The links of the papers' ns-2 runs.
fn line(loss: f64) -> LinkConfig {
    let chance = Chance::percent(loss).unwrap_or_default();
    let loss = Loss::Random(RandomLoss { chance, ..RandomLoss::default() });
    let change = Change { at: Span(FROM.as_nanos()), loss: Some(loss), ..Change::default() };
    LinkConfig {
        rate: Rate(200_000),
        delay: Span::from_millis(10),
        schedule: vec![change],
        ..LinkConfig::default()
    }
}

fn bed(carried: Carried, loss: f64) -> Bed {
    Bed {
        carried,
        // The proxy is on the node in the middle.
        links: [line(loss), line(loss), LinkConfig::default()].map(|link| [link.clone(), link]),
        pairs: 1,
        callers_register: true,
        from: FROM,
        until: FROM + LENGTH,
        end: FROM + LENGTH + Duration::from_secs(70),
        talk: Duration::from_secs(1),
        pause: Duration::from_secs(1),
        answer: Duration::ZERO,
    }
}

fn setups(calls: &Calls) -> Vec<f64> {
    let took = |call: &crate::sip::Call| Some(call.answered?.since(call.invited).as_secs_f64());
    calls.calls.iter().filter_map(took).collect()
}

fn average(calls: &Calls) -> Option<f64> {
    let times = setups(calls);
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64 * 1e3)
}

pub(super) fn run(study: &Study) -> Result<Part, RunError> {
    let mut cells = Vec::new();
    for loss in LOSSES {
        for (name, carried) in transports().into_iter().chain([rack()]) {
            cells.push((loss, name, study.beds(&bed(carried, loss))?));
        }
    }
    let (mut means, mut tails, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for loss in LOSSES {
        let of = cells.iter().filter(|c| c.0 == loss);
        let each = |unit, estimate: &dyn Fn(&[Calls]) -> ringway_figures::statistics::Estimate| {
            let figure = |c: &(f64, &str, Vec<Calls>)| Measured::new(c.1, unit, estimate(&c.2));
            row(format!("{loss} %"), of.clone().map(figure).collect())
        };
        means.push(each("ms", &|runs| known(mean(&of_each(runs, average)))));
        tails.push(each("ms", &|runs| {
            let times: Vec<Vec<f64>> =
                runs.iter().map(|c| setups(c).iter().map(|t| t * 1e3).collect()).collect();
            known(percentile_of_replications(&times, 0.9, study.seed))
        }));
        shares.push(each("share", &|runs| {
            let counts: Vec<(u64, u64)> =
                runs.iter().map(|c| (setups(c).len() as u64, c.calls.len() as u64)).collect();
            known(ratio_of_replications(&counts))
        }));
    }
    let n = study.replications as usize;
    let table = |what: &str, rows| MeasuredTable {
        source: "Gangurde et al., announced",
        what: what.into(),
        replications: n,
        rows,
    };
    let tables = vec![
        table(
            "mean call set-up, INVITE to 200, over the two links of 0.2 Mbit/s and 10 ms with the proxy \
             between them, against the loss of each link in each direction. The paper prints no figure.",
            means,
        ),
        table("90 % of call set-ups take no longer.", tails),
        table("share of the calls that were set up.", shares),
    ];
    let runs = |transport: &str, loss: f64| {
        let cell = cells.iter().find(|c| c.1 == transport && c.0 == loss);
        cell.map_or(Vec::new(), |c| of_each(&c.2, average))
    };
    let difference = |loss: f64| known(paired(&runs("SCTP", loss), &runs("UDP", loss)));
    let losses = [1.0, 2.0, 5.0];
    let slower = losses.iter().filter(|l| difference(**l).value > 0.0).count();
    let shown: Vec<String> =
        losses.iter().map(|l| format!("{l} %: {:+.0} ms", difference(*l).value)).collect();
    let claims = vec![Claim {
        source: "Gangurde et al., section 4",
        says: "with packet loss the performance of SCTP degrades more than that of UDP".into(),
        ours: format!("mean set-up over SCTP less that over UDP, at {}", shown.join(", ")),
        holds: slower == losses.len(),
        expected: true,
        why: "Not for the paper's reason: SIP over UDP sends a lost request again after 0.5 s, and SCTP after \
              RTO.Min, 1 s. It is a matter of that timer, as the column of SCTP with a tail loss probe (RACK) shows.",
    }];
    let charts = vec![lines(study, &tables[0]), ecdf(study, &cells)];
    Ok(Part { tables, claims, charts, findings: Vec::new() })
}

fn lines(study: &Study, table: &MeasuredTable) -> ChartSheet {
    let series = TRANSPORTS.map(|transport| {
        let mut series =
            SeriesSheet { name: transport.into(), style: Style::Ribbon, ..Default::default() };
        for (row, loss) in table.rows.iter().zip(LOSSES) {
            if let Some(f) = row.figures.iter().find(|f| f.column == transport) {
                series.points.push([loss, f.ours / 1e3]);
                let bounds = f.low.zip(f.high).map(|(low, high)| [low / 1e3, high / 1e3]);
                series.bounds.push((bounds, f.n));
            }
        }
        series
    });
    ChartSheet {
        name: "call-setup".into(),
        title: "Call set-up against loss".into(),
        caption: "Mean time from INVITE to 200 over two links of 0.2 Mbit/s and 10 ms.".into(),
        seed: study.seed,
        rests_on: Some((study.replications as usize, "replications".into())),
        x: AxisSheet::new("loss", "%"),
        y: AxisSheet::new("set-up time", "s"),
        series: series.into(),
    }
}

fn ecdf(study: &Study, cells: &[(f64, &str, Vec<Calls>)]) -> ChartSheet {
    const AT: f64 = 5.0;
    let of = |cell: &(f64, &str, Vec<Calls>)| {
        let times = cell.2.iter().flat_map(setups);
        let points: Vec<[f64; 2]> = times.enumerate().map(|(i, t)| [i as f64, t]).collect();
        SeriesSheet::new(cell.1, Style::Ecdf, &points)
    };
    ChartSheet {
        name: "call-setup-ecdf".into(),
        title: format!("Call set-up at {AT} % loss"),
        caption: "The share of calls whose set-up took no longer.".into(),
        seed: study.seed,
        rests_on: Some((study.replications as usize, "replications".into())),
        x: AxisSheet::new("set-up time", "s"),
        y: AxisSheet::default(),
        series: cells.iter().filter(|c| c.0 == AT).map(of).collect(),
    }
}
