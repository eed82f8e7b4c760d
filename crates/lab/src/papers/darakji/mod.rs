//! Darakji and Johansson 2008, "An Implementation of Distributed SIP for Wireless Mesh Networks": its figures, and what
//! follows from them.
//!
//! [`ids`] is section 3.4.2, [`table9`] sections 4.6 and 4.7, over the routers of [`model`], and [`running`] the same
//! with the mesh of this project. [`plan`] is section 4.5.1 without SIP, [`calls`] with it, beside the server of [`central`],
//! and [`wires`] the same on cables. [`pictures`] draws the figures of routing from runs. What is not measured is listed as
//! such.

mod calls;
mod central;
mod domains;
mod ids;
mod model;
mod pictures;
mod plan;
mod running;
mod table9;
mod wires;

use super::Progress::{Compared, Drawn, Open};
use super::{Claim, MeasuredTable, Part, Reproduction, Row};
use crate::output::{ChartSheet, LadderSheet, PictureSheet, RingSheet};
use crate::run::RunError;

/// Default number of replications, of the draws of ids and keys. It is also the per cent of Table 9's file that are
/// transferred, so that fewer replications are a smaller experiment in both.
pub(super) const REPLICATIONS: u64 = 100;

/// Parameters shared by all experiments.
#[derive(Clone, Copy, Debug)]
struct Study {
    seed: u64,
    replications: u64,
}

/// Results of one experiment.
#[derive(Default)]
struct StudyResult {
    rows: Vec<Row>,
    tables: Vec<MeasuredTable>,
    claims: Vec<Claim>,
    charts: Vec<ChartSheet>,
    rings: Vec<RingSheet>,
    pictures: Vec<PictureSheet>,
    ladders: Vec<LadderSheet>,
    findings: Vec<String>,
}

/// The parts of the paper that have figures, or an experiment that was planned.
const PARTS: &[Part] = &[
    part("Figures 5 to 8", "virtual ring, source routes and packets", Drawn),
    part("Figure 16", "SIP packets by the domain of their target", Drawn),
    part("Figure 17", "a put request", Drawn),
    part("Figures 18 and 19", "routing to an exact id and to the closest one", Drawn),
    part("Tables 4 to 8, Figures 20 and 21", "spread of ids", Compared),
    part("Figures 25 and 26", "four routers in a line, and their ring", Drawn),
    part("Section 4.5.1", "round trip of an echo from A0 to D0, over the mesh and AODV", Compared),
    part(
        "Section 4.5.1",
        "the ways of the tests below without SIP, with and without traffic",
        Compared,
    ),
    part("Section 4.5.1", "REGISTER from A0 to 30, 70, A0 and D0", Compared),
    part("Section 4.5.1", "INVITE from D0 to A0, registered at D0", Compared),
    part("Section 4.5.1", "INVITE from D0 to A0, registered at A0", Compared),
    part("Section 4.5.1", "INVITE from D0 to D0, registered at A0", Compared),
    part("Section 4.5.1", "INVITE from D0 to D0, registered at D0", Compared),
    part("Section 4.5.1", "the same over AODV with a SIP server", Compared),
    part("Section 4.5.1", "the same routers on cables, as interop/paper/calls has them", Compared),
    part(
        "Table 9, Figures 27 to 30",
        "one router, two, x86 and the SIP module: a model of the processor",
        Compared,
    ),
    part(
        "Table 9, Figures 27 and 28",
        "one router and two with running routers of this project",
        Compared,
    ),
    part(
        "Table 9, Figure 30",
        "what the SIP module sends by itself; interop/paper/table9 has the rest",
        Compared,
    ),
    part(
        "Section 2.1.4.5",
        "delivery in networks of up to 125,000 nodes: ringway lab run mesh-scale",
        Open,
    ),
];

const fn part(source: &'static str, what: &'static str, progress: super::Progress) -> Part {
    Part { source, what, progress }
}

pub(super) fn run(seed: u64, replications: u64) -> Result<Reproduction, RunError> {
    let study = Study { seed, replications };
    let mut all = StudyResult::default();
    let parts = [
        ids::run(&study)?,
        table9::run(&study)?,
        running::run(&study)?,
        plan::run(&study)?,
        calls::run(&study)?,
        wires::run(&study)?,
        pictures::run(&study)?,
    ];
    for part in parts {
        all.rows.extend(part.rows);
        all.tables.extend(part.tables);
        all.claims.extend(part.claims);
        all.charts.extend(part.charts);
        all.rings.extend(part.rings);
        all.pictures.extend(part.pictures);
        all.ladders.extend(part.ladders);
        all.findings.extend(part.findings);
    }
    all.findings.extend(all.claims.iter().filter_map(Claim::reason));
    let within = all.rows.iter().flat_map(|r| &r.figures).all(|f| f.within);
    Ok(Reproduction {
        paper: "darakji",
        title: "Distributed SIP for wireless mesh networks: Darakji and Johansson 2008, Tables 4 to 9",
        ok: within && all.claims.iter().all(Claim::is_right),
        seed,
        replications,
        rows: all.rows,
        figures: Vec::new(),
        measured: all.tables,
        claims: all.claims,
        parts: PARTS.to_vec(),
        findings: all.findings,
        charts: all.charts,
        rings: all.rings,
        pictures: all.pictures,
        ladders: all.ladders,
    })
}
