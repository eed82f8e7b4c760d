//! Call set-up over UDP, TCP and SCTP, which Gangurde et al. announce in their abstract and do not
//! print.

use super::{
    Side, Study, StudyResult, all_above, by_side, difference, or_no_estimate, rack, row, side,
    transports, values_of,
};
use crate::output::{AxisSheet, ChartSheet, SeriesSheet, Style};
use crate::papers::{Claim, MeasuredFigure, MeasuredTable};
use crate::run::RunError;
use crate::sip::{Calls, TestBed};
use ringway_figures::statistics::{
    mean, paired, percentile_of_replications, ratio_of_replications,
};
use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, Change, LinkConfig, Loss, Rate, Span, Streams};
use ringway_sansio::{Duration, Time};
use ringway_sim::flows::TransportConfig;

/// Loss of each link in each direction, in per cent.
const LOSSES: [f64; 6] = [0.0, 0.2, 1.0, 2.0, 5.0, 10.0];
/// Time at which losses and calls begin, and duration of the experiment.
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

fn bed(transport_config: TransportConfig, loss: f64) -> TestBed {
    TestBed {
        transport: transport_config,
        // The proxy is on the middle node.
        links: [line(loss), line(loss), LinkConfig::default()].map(|link| [link.clone(), link]),
        pairs: 1,
        callers_register: true,
        register_again: None,
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

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let mut cells = Vec::new();
    for loss in LOSSES {
        for (name, transport_config) in transports().into_iter().chain([rack()]) {
            cells.push((loss, name, super::beds(study, &bed(transport_config, loss))?));
        }
    }
    let (mut means, mut tails, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for loss in LOSSES {
        let of = cells.iter().filter(|c| c.0 == loss);
        let each = |unit, estimate: &dyn Fn(&[Calls]) -> ringway_figures::statistics::Estimate| {
            let figure =
                |c: &(f64, &str, Vec<Calls>)| MeasuredFigure::new(c.1, unit, estimate(&c.2));
            row(format!("{loss} %"), of.clone().map(figure).collect())
        };
        means.push(each("ms", &|runs| or_no_estimate(mean(&values_of(runs, average)))));
        tails.push(each("ms", &|runs| {
            let times: Vec<Vec<f64>> =
                runs.iter().map(|c| setups(c).iter().map(|t| t * 1e3).collect()).collect();
            or_no_estimate(percentile_of_replications(&times, 0.9))
        }));
        shares.push(each("share", &|runs| {
            let counts: Vec<(u64, u64)> =
                runs.iter().map(|c| (setups(c).len() as u64, c.calls.len() as u64)).collect();
            or_no_estimate(ratio_of_replications(&counts))
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
            "mean call set-up time, INVITE to 200, over the two links of 0.2 Mbit/s and 10 ms with the proxy between \
             them, against the loss of each link in each direction. The paper prints no figures.",
            means,
        ),
        table("90th percentile of the call set-up time.", tails),
        table("share of the calls that were answered.", shares),
    ];
    let runs = |transport: &str, loss: f64| {
        let cell = cells.iter().find(|c| c.1 == transport && c.0 == loss);
        cell.map_or(Vec::new(), |c| values_of(&c.2, average))
    };
    // The set-up time that loss adds in each run.
    let added = |transport: &str, loss: f64| -> Vec<f64> {
        let without = runs(transport, 0.0);
        runs(transport, loss).iter().zip(without).map(|(with, without)| with - without).collect()
    };
    let more = |transport: &str, loss: f64| {
        or_no_estimate(paired(&added(transport, loss), &added("UDP", loss)))
    };
    let shown = |transport: &str, losses: &[f64]| {
        let one = |l: &f64| format!("{l} %: {} ms", difference(&more(transport, *l), 0));
        losses.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let losses = [1.0, 2.0, 5.0];
    let [least] = [0.2];
    let each = |transport: &str| losses.map(|loss| (loss, more(transport, loss)));
    let (degrades, tells) = all_above(&each("SCTP").map(|d| d.1));
    let with_rack = by_side(&each("SCTP, RACK"), ["more", "nothing significant", "less"]);
    let at_least = more("SCTP", least);
    let claims = vec![
        Claim {
            source: "Gangurde et al., section 4",
            says: "with packet loss the performance of SCTP degrades more than that of UDP".into(),
            ours: format!(
                "additional mean set-up time due to loss over SCTP less that over UDP, at {}; with RACK, {}",
                shown("SCTP", &losses),
                shown("SCTP, RACK", &losses)
            ),
            holds: degrades,
            expected: true,
            sure: tells,
            why: format!(
                "The reason is not that of the paper: SIP over UDP retransmits a lost request after 0.5 s, and SCTP \
                 after RTO.Min, 1 s. With a tail loss probe (RACK), which does not wait for that timer, loss adds to \
                 the set-up time over SCTP compared to UDP: {with_rack}."
            ),
        },
        Claim {
            source: "Gangurde et al., section 4",
            says: "a loss of 0.2 % degrades SCTP significantly compared to UDP".into(),
            ours: format!(
                "additional mean set-up time over SCTP less that over UDP, at {}",
                shown("SCTP", &[least])
            ),
            holds: at_least.value > 0.0,
            expected: true,
            sure: side(&at_least) != Side::Level,
            why: "The set-up time increases more; whether this number of milliseconds matters for a call is not \
                  decided here."
                .into(),
        },
        consistent(&added("UDP", 1.0), &added("UDP", 5.0)),
    ];
    let charts = vec![lines(study, &tables[0]), ecdf(study, &cells)];
    Ok(StudyResult { tables, claims, charts, findings: vec![bundled(study)?] })
}

/// Whether loss has no effect on call set-up over UDP, from the milliseconds that it adds in each run.
fn consistent(little: &[f64], more: &[f64]) -> Claim {
    let [little, more] = [little, more].map(|added| or_no_estimate(mean(added)));
    Claim {
        source: "Gangurde et al., section 4",
        says: "call set-up is consistent over UDP, for a packet drop has no effect on its application".into(),
        ours: format!(
            "loss adds {} ms to the mean set-up time over UDP at 1 %, and {} ms at 5 %",
            difference(&little, 0),
            difference(&more, 0)
        ),
        holds: side(&more) != Side::Above,
        expected: false,
        sure: side(&more) != Side::Level,
        why: "Over UDP the application is what sends again: an INVITE that is lost costs timer A, 500 ms (RFC 3261 section \
              17.1.1.2)."
            .into(),
    }
}

/// Explains why call set-up takes longer over SCTP and TCP even without loss.
fn bundled(study: &Study) -> Result<String, RunError> {
    // Mean set-up times over UDP and over SCTP, and bytes of a call.
    let both = |answer: Duration| -> Result<[[f64; 2]; 2], RunError> {
        let mut of = [[0.0; 2]; 2];
        for (of, (_, transport_config)) in of.iter_mut().zip(transports().into_iter().step_by(2)) {
            let calls = TestBed { answer, ..bed(transport_config, 0.0) }
                .run(Streams::new(study.seed, 0))?;
            let bytes = calls.bytes as f64 / calls.calls.len() as f64;
            *of = [average(&calls).unwrap_or(f64::NAN), bytes];
        }
        Ok(of)
    };
    let [udp, sctp] = both(Duration::ZERO)?;
    let ringing = Duration::from_millis(100);
    let [udp_rings, sctp_rings] = both(ringing)?;
    Ok(format!(
        "Without loss a call is set up {} over SCTP than over UDP here. A phone that answers at once sends 180 and \
         200 together, and they share a packet over SCTP (and a segment over TCP); if it rings for {} ms first, the \
         difference is {:.0} ms. The cause is the number of bytes on slow links: {:.0} per call over UDP, {:.0} over \
         SCTP, because the proxy writes a flow token for each side into Record-Route (RFC 5626), and headers and \
         SACKs are larger.",
        match sctp[0] - udp[0] {
            later if later >= 0.0 => format!("{later:.0} ms later"),
            sooner => format!("{:.0} ms earlier", -sooner),
        },
        ringing.as_millis(),
        sctp_rings[0] - udp_rings[0],
        udp[1],
        sctp[1]
    ))
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
        shaded: Vec::new(),
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
        shaded: Vec::new(),
        name: "call-setup-ecdf".into(),
        title: format!("Call set-up at {AT} % loss"),
        caption: "Share of calls whose set-up time was at most this.".into(),
        seed: study.seed,
        rests_on: Some((study.replications as usize, "replications".into())),
        x: AxisSheet::new("set-up time", "s").log(),
        y: AxisSheet::default(),
        series: cells.iter().filter(|c| c.0 == AT).map(of).collect(),
    }
}
