//! "We also compared the performance of SCTP and TCP as the transport for HTTP" (abstract): the paper prints nothing of it.
//! A browser asks for pages one after another.

use super::{
    Claim, MeasuredFigure, MeasuredTable, Side, Study, StudyResult, difference, estimate, less,
    row, side, values_of,
};
use crate::run::RunError;

/// Loss in each direction in per cent.
const LOSSES: [u32; 4] = [0, 1, 3, 5];
const REQUESTS: u32 = 50;
/// As servers of HTTP set TCP: without Nagle's algorithm, which holds the end of a response back.
const OF_2010: &str =
    "tcp = { algorithm = \"cubic\", detection = \"sack\", initial_window = 3, nagle = false }";
const KINDS: [(&str, &str, &str); 4] = [
    ("TCP of 2010", "tcp", OF_2010),
    ("SCTP", "sctp", ""),
    ("TCP", "tcp", "tcp = { nagle = false }"),
    ("SCTP, RACK, CUBIC", "sctp", "sctp = { rack = true, algorithm = \"cubic\" }"),
];

fn scenario((_, transport, settings): (&str, &str, &str), loss: u32) -> String {
    format!(
        "[scenario]\ntitle = \"HTTP\"\nnodes = [\"browser\", \"server\"]\nstop = \"flows done\"\nat_most = \"3600 s\"\n\
         [[link]]\nbetween = [\"browser\", \"server\"]\nrate = \"10 Mbit/s\"\ndelay = \"20 ms\"\n\
         queue = {{ discipline = \"drop-tail\", limit = 100 }}\n\
         loss = {{ model = \"random\", chance = \"{loss} %\" }}\nloss_at = \"after-link\"\n\
         [[flow]]\nname = \"f\"\nfrom = \"browser\"\nto = \"server\"\ntransport = \"{transport}\"\n\
         traffic = \"request-response\"\nrequest = \"300 B\"\nresponse = \"20 kB\"\nrequests = {REQUESTS}\n\
         think = \"100 ms\"\n{settings}\n"
    )
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let mut rows = Vec::new();
    let mut gains = Vec::new();
    for loss in LOSSES {
        let mut times: Vec<Vec<f64>> = Vec::new();
        for kind in KINDS {
            let runs = study.scenario(&scenario(kind, loss))?;
            times
                .push(values_of(&runs, |run| Some(run.flows.first()?.messages?.delay?.mean * 1e3)));
        }
        let figures = times.iter().zip(KINDS);
        let figures =
            figures.map(|(times, (kind, ..))| MeasuredFigure::new(kind, "ms", estimate(times)));
        rows.push(row(format!("{loss} %"), figures.collect()));
        gains.push((loss, less(&times[0], &times[1]), less(&times[2], &times[1])));
    }
    let table = MeasuredTable {
        source: "Abstract, HTTP",
        what: format!(
            "milliseconds from a request of 300 B to the end of its response of 20 kB, mean of {REQUESTS} in one connection \
             over 10 Mbit/s and 20 ms, against the loss in each direction."
        ),
        replications: study.replications as usize,
        rows,
    };
    let claim = |than: &str,
                 of: fn(
        &(u32, ringway_figures::statistics::Estimate, ringway_figures::statistics::Estimate),
    ) -> ringway_figures::statistics::Estimate,
                 expected: bool,
                 why: &str| {
        let lossy: Vec<_> = gains.iter().filter(|g| g.0 > 0).map(|g| (g.0, of(g))).collect();
        let sides: Vec<Side> = lossy.iter().map(|(_, gain)| side(gain)).collect();
        let holds = sides.iter().all(|s| *s == Side::Above);
        let list: Vec<String> = lossy
            .iter()
            .map(|(loss, gain)| format!("{loss} %: {} ms", difference(gain, 0)))
            .collect();
        Claim {
            source: "Abstract, HTTP",
            says: format!("SCTP is the better transport for HTTP under loss than {than}"),
            ours: format!("a response comes sooner by {}", list.join(", ")),
            holds,
            expected,
            sure: holds || sides.contains(&Side::Below),
            why: why.into(),
        }
    };
    let claims = vec![
        claim(
            "the TCP of its day",
            |g| g.1,
            false,
            "A response costs time where its last packets are lost: both find that by a timer alone.",
        ),
        claim(
            "today's TCP",
            |g| g.2,
            false,
            "RACK's probe of the tail saves a timeout where a response's last packets are lost.",
        ),
    ];
    Ok(StudyResult { tables: vec![table], claims, ..StudyResult::default() })
}
