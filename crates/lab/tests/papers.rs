//! Papers are reproduced identically, with the expected outcomes.

#![allow(clippy::unwrap_used)]

use ringway_lab::papers::{Claim, Reproduction, find};

/// A claim with an unexpected outcome is a fault, in either direction, and so is one that too few
/// replications cannot decide. One thread and two give the same figures to the last bit.
#[test]
fn a_paper_is_reproducible_and_its_claims_can_fail() {
    let nayak = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| find("nayak").unwrap().run(1, 2).unwrap())
    };
    let text = |r: &Reproduction| {
        (serde_json::to_string(r).unwrap(), format!("{:?} {:?}", r.charts, r.sheet()))
    };
    let mut first = nayak(1);
    assert_eq!(text(&first), text(&nayak(2)));
    assert!(first.claims.iter().all(|c| c.expected || !c.why.is_empty()));
    for expected in [true, false] {
        let before = first.outside().len();
        let is_one = |c: &&mut Claim| c.expected == expected && c.is_right();
        let claim = first.claims.iter_mut().find(is_one).unwrap();
        claim.holds = !expected;
        assert_eq!(first.outside().len(), before + 1);
        let is_one = |c: &&mut Claim| c.expected == expected && c.is_right();
        first.claims.iter_mut().find(is_one).unwrap().sure = false;
        assert_eq!(first.outside().len(), before + 2);
        assert!(first.outside().iter().any(|line| line.contains("is undecided")));
    }
    // Two replications do not decide every claim, and this is reported.
    assert!(!first.ok && first.claims.iter().any(|c| !c.sure));
}

/// Two replications decide all but what is drawn at random; one thread and two give the same figures.
#[test]
fn a_paper_with_open_parts_is_reproducible() {
    let darakji = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| find("darakji").unwrap().run(12_345, 2).unwrap())
    };
    let done = darakji(1);
    let text = |r: &Reproduction| {
        (serde_json::to_string(r).unwrap(), format!("{:?} {:?}", r.charts, r.sheet()))
    };
    assert_eq!(text(&done), text(&darakji(2)));
    assert!(done.rows.iter().flat_map(|r| &r.figures).all(|f| f.within), "{:?}", done.outside());
    assert!(done.claims.iter().filter(|c| c.sure).all(Claim::is_right), "{:?}", done.outside());
    let tables = done.sheet().tables;
    let parts = tables.iter().find(|t| t.caption.starts_with("Parts of the paper")).unwrap();
    assert!(parts.rows.iter().any(|r| r[2] == "not measured here"));
    assert!(!tables.iter().any(|t| t.caption.starts_with("What \"lost\"")));
    // Figures 20 and 21, and the same with our ids.
    let rings = done.sheet().rings;
    assert_eq!(
        rings.iter().map(|r| (r.nodes.len(), r.keys.len())).collect::<Vec<_>>(),
        [(3, 10); 3]
    );
    // Figures 5 to 8, 16 to 19, 25 and 26 are drawn from runs.
    let sheet = done.sheet();
    assert_eq!((sheet.pictures.len(), sheet.ladders.len()), (6, 3));
    assert!(parts.rows.iter().any(|r| r[2] == "drawn from a run"));
    // Points of a chart over sizes have their intervals, and bars their names.
    let points = done.points().unwrap();
    let (chart, low) = (points.texts("chart").unwrap(), points.schema().position("low").unwrap());
    let estimates =
        (0..points.len()).filter(|row| points.get(*row, low).unwrap().number().is_some());
    assert_eq!(estimates.filter(|row| chart[*row] == "section-3-4-2-largest-share").count(), 16);
    assert!(points.texts("bar").unwrap().contains(&"two routers"));
}

/// Delays and cuts in a finding are this run's figures, and no figure is compared with a value that
/// no paper prints.
#[test]
fn findings_of_table_1_are_computed() {
    let done = find("gangurde").unwrap().run(12_345, 1).unwrap();
    assert!(done.ok, "{:?}", done.outside());
    let printed: Vec<f64> = done.figures.iter().map(|f| f.comparison.paper).collect();
    assert_eq!(printed, [0.82, 2.05, 4.4, 2.3, 0.5]);
    let ours =
        |figure: &str| done.figures.iter().find(|f| f.figure == figure).unwrap().comparison.ours;
    let delays = done.findings.iter().find(|f| f.starts_with("The delays compare")).unwrap();
    for expected in [
        format!("at most {:.2} s over UDP", ours("3.4")),
        format!("{:.2} s over TCP", ours("3.2")),
        format!("{:.1} s over SCTP", ours("3.6")),
        format!("{:.2} times TCP's", ours("3.4") / ours("3.2")),
    ] {
        assert!(delays.contains(&expected), "{expected} in {delays}");
    }
    let cuts = "a cut at 28.985 s or 28.998 s gives the same counts of all three as that at 28.99 s, one at \
                28.97 s or 29.01 s does not";
    assert!(done.findings[0].contains(cuts), "{}", done.findings[0]);
}
