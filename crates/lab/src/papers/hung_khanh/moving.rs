//! "The dynamic addition/deletion interface provides a graceful method to modify interfaces to an existing association
//! [...] without interrupting ongoing data transfers" (section II.2), then a draft, since RFC 5061: a host changes from one
//! network to another while it sends.

use super::{Claim, MeasuredFigure, MeasuredTable, Study, StudyResult, estimate, row, values_of};
use crate::run::{Outcome, RunError};

/// Seconds at which the host has the second address, and at which the first network is gone.
const MOVES: u32 = 5;
const GONE: u32 = 6;
const END: u32 = 30;

/// Returns a scenario in which the host moves, or has both addresses from the start, or has the first alone.
fn scenario(keys: &str) -> String {
    format!(
        "[scenario]\ntitle = \"A host that moves\"\nnodes = [\"mobile\", \"router\", \"host\"]\nstop = \"{END} s\"\n\
         [[link]]\nname = \"first\"\nbetween = [\"mobile\", \"router\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n\
         schedule = [{{ at = \"{GONE} s\", up = false }}]\n\
         [[link]]\nname = \"second\"\nbetween = [\"mobile\", \"router\"]\nrate = \"10 Mbit/s\"\ndelay = \"15 ms\"\n\
         [[link]]\nname = \"wire\"\nbetween = [\"router\", \"host\"]\nrate = \"100 Mbit/s\"\ndelay = \"2 ms\"\n\
         [[flow]]\nname = \"f\"\nfrom = \"mobile\"\nto = \"host\"\ntransport = \"sctp\"\ntraffic = \"poisson\"\n\
         rate = \"400 kbit/s\"\npacket = \"500 B\"\nstop = \"25 s\"\nsctp = {{ {keys} }}\n"
    )
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let both = "paths = [\"first\", \"second\"]";
    let kinds = [
        ("addresses change (RFC 5061)", format!("{both}, moves = \"{MOVES} s\"")),
        ("both addresses from the start", both.into()),
        ("one address", "paths = [\"first\"]".into()),
    ];
    let mut rows = Vec::new();
    let mut gaps = Vec::new();
    let mut complete = Vec::new();
    for (name, keys) in &kinds {
        let runs = study.scenario(&scenario(keys))?;
        let gap = values_of(&runs, |run| run.flows.first()?.stall.map(|s| s * 1e3));
        let share = |run: &Outcome| {
            let messages = run.flows.first()?.messages?;
            Some(messages.delivered as f64 / messages.written as f64 * 100.0)
        };
        let delivered = values_of(&runs, share);
        rows.push(row(
            *name,
            vec![
                MeasuredFigure::new("gap", "ms", estimate(&gap)),
                MeasuredFigure::new("delivered", "%", estimate(&delivered)),
            ],
        ));
        complete.push(delivered.iter().filter(|share| **share == 100.0).count());
        gaps.push(gap);
    }
    let longest = |kind: usize| gaps[kind].iter().copied().fold(0.0, f64::max);
    let n = study.replications as usize;
    let claims = vec![Claim {
        source: "Section II.2, addresses",
        says: "addresses can change without interrupting a transfer".into(),
        ours: format!(
            "every message arrived in {} of {n} runs, with gaps of at most {:.0} ms; in {} with both addresses from the start \
             ({:.0} ms), in {} with one",
            complete[0],
            longest(0),
            complete[1],
            longest(1),
            complete[2]
        ),
        // Messages come a hundred times a second on average, at random times: gaps of 100 ms are among those.
        holds: complete[0] == n && longest(0) < 200.0,
        expected: true,
        sure: gaps[0].len() == n,
        why: "The new address is in use before the old network is gone, so nothing is lost on the way. With both addresses \
              and no word to the peer, the change waits for a timeout."
            .into(),
    }];
    let table = MeasuredTable {
        source: "Section II.2, addresses",
        what: format!(
            "longest time without a message, of a hundred a second, when a host gets a second address at {MOVES} s and loses \
             the first network at {GONE} s."
        ),
        replications: n,
        rows,
    };
    Ok(StudyResult { tables: vec![table], claims, ..StudyResult::default() })
}
