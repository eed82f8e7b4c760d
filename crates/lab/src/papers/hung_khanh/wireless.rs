//! "They assume that all losses are caused by congestion [...]. This will cause SCTP to back off unnecessarily and result
//! in poor throughput" (section II.2): a link that loses packets by errors of bits, and has room for all of them.

use super::{Claim, MeasuredFigure, MeasuredTable, Study, StudyResult, estimate, row, values_of};
use crate::run::RunError;
use ringway_figures::statistics::Estimate;

/// Rate of the link in kbit/s.
const RATE: f64 = 10_000.0;
/// Losses: names, keys of the link, and the share of packets that is lost on average.
const LOSSES: [(&str, &str, f64); 5] = [
    ("none", "", 0.0),
    (
        "0.1 %, independent",
        "loss = { model = \"random\", chance = \"0.1 %\" }\nloss_at = \"after-link\"\n",
        0.001,
    ),
    (
        "1 %, independent",
        "loss = { model = \"random\", chance = \"1 %\" }\nloss_at = \"after-link\"\n",
        0.01,
    ),
    (
        "5 %, independent",
        "loss = { model = \"random\", chance = \"5 %\" }\nloss_at = \"after-link\"\n",
        0.05,
    ),
    (
        "1 %, in bursts of five",
        "loss = { model = \"gilbert-elliott\", p = \"0.202 %\", r = \"20 %\", bad_loss = \"100 %\", good_loss = \"0 %\" }\n\
         loss_at = \"after-link\"\n",
        0.01,
    ),
];
const KINDS: [(&str, &str); 3] = [
    ("SCTP", "sctp = { receive_buffer = \"1 MiB\", send_buffer = \"1 MiB\" }"),
    ("SCTP, RACK", "sctp = { rack = true, receive_buffer = \"1 MiB\", send_buffer = \"1 MiB\" }"),
    (
        "SCTP, RACK, CUBIC",
        "sctp = { rack = true, algorithm = \"cubic\", receive_buffer = \"1 MiB\", send_buffer = \"1 MiB\" }",
    ),
];

fn scenario(settings: &str, loss: &str) -> String {
    format!(
        "[scenario]\ntitle = \"Losses without congestion\"\nnodes = [\"mobile\", \"host\"]\nstop = \"60 s\"\n\
         [[link]]\nbetween = [\"mobile\", \"host\"]\nrate = \"{RATE} kbit/s\"\ndelay = \"20 ms\"\n\
         queue = {{ discipline = \"drop-tail\", limit = 100 }}\n[link.there]\n{loss}\
         [[flow]]\nname = \"f\"\nfrom = \"mobile\"\nto = \"host\"\ntransport = \"sctp\"\ntraffic = \"bulk\"\n\
         packet = \"1452 B\"\n{settings}\n"
    )
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let mut rows = Vec::new();
    let mut all: Vec<Vec<Estimate>> = Vec::new();
    for (name, loss, chance) in LOSSES {
        // What gets through if every packet that is not lost is of use: 28 octets of each are SCTP's and 20 are IP's.
        let ideal = RATE * (1.0 - chance) * 1_452.0 / 1_500.0;
        let mut figures = Vec::new();
        let mut estimates = Vec::new();
        for (kind, settings) in KINDS {
            let runs = study.scenario(&scenario(settings, loss))?;
            let used =
                values_of(&runs, |run| Some(run.flows.first()?.goodput / 1e3 / ideal * 100.0));
            let used = estimate(&used);
            figures.push(MeasuredFigure::new(kind, "%", used));
            estimates.push(used);
        }
        rows.push(row(name, figures));
        all.push(estimates);
    }
    let table = MeasuredTable {
        source: "Section II.2, wireless",
        what: "share of what the link lets through that is used by a transfer of 60 s over 10 Mbit/s and 20 ms, if packets \
               are lost by errors on the way and not in queues."
            .into(),
        replications: study.replications as usize,
        rows,
    };
    // The loss of 1 %, independent: rows are those of LOSSES.
    let (plain, cubic) = (all[2][0], all[2][2]);
    let bound = |e: &Estimate| e.interval.map_or([e.value; 2], |i| [i.low, i.high]);
    let decided = |e: &Estimate, limit: f64| {
        let [low, high] = bound(e);
        low > limit || high < limit
    };
    let claims = vec![
        Claim {
            source: "Section II.2, wireless",
            says: "losses by errors make SCTP back off, and the throughput poor: less than half of the link at 1 %".into(),
            ours: format!("{:.0} % of what the link lets through", plain.value),
            holds: plain.value < 50.0,
            expected: true,
            sure: decided(&plain, 50.0),
            why: "Each loss halves the window (RFC 9260 section 7.2.3), whatever caused it.".into(),
        },
        Claim {
            source: "Section II.2, wireless",
            says: "the same of SCTP with the loss detection and the congestion control of today's TCP".into(),
            ours: format!("{:.0} %", cubic.value),
            holds: cubic.value < 50.0,
            expected: true,
            sure: decided(&cubic, 50.0),
            why: "CUBIC takes 30 % away where RFC 9260 takes half, and RACK saves timeouts; both still take a loss for \
                  congestion.".into(),
        },
    ];
    Ok(StudyResult { tables: vec![table], claims, ..StudyResult::default() })
}
