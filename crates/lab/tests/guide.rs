//! The files that the reader's guide shows are files that can be used.

#![allow(clippy::unwrap_used)]

use ringway_lab::builtin;
use ringway_lab::campaign;
use ringway_lab::run::{Options, run};
use ringway_lab::scenario::Scenario;

const GUIDE: &str = include_str!("../../../docs/lab.md");

/// The n-th block of TOML.
fn block(n: usize) -> &'static str {
    let block = GUIDE.split("```toml\n").nth(n + 1).unwrap();
    block.split("```").next().unwrap()
}

#[test]
fn what_the_guide_shows_is_read() {
    let scenario = Scenario::read("guide", block(0)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.flows.len(), 1);
    let base = builtin::find("lossy-bulk").unwrap();
    let read = |text: &str, base: &builtin::Builtin| {
        campaign::read("guide", text, (base.name, base.text), None)
            .unwrap_or_else(|e| panic!("{e}"))
    };
    assert_eq!(read(block(2), base).cells.len(), 6);
    // The target stands there without the campaign it belongs to.
    let search = format!("[campaign]\ntitle = \"t\"\nscenario = \"gangurde-udp\"\n{}", block(3));
    let search = read(&search, builtin::find("gangurde-udp").unwrap());
    assert_eq!(search.target.unwrap().figures.len(), 3);
}

/// The scenario with everything of SCTP does what its comments say.
#[test]
fn what_the_guide_shows_of_sctp_is_so() {
    let scenario = Scenario::read("guide", block(1)).unwrap_or_else(|e| panic!("{e}"));
    let outcome = run(&scenario, &Options::default(), |_| ()).unwrap();
    let flow = |name: &str| outcome.flows.iter().find(|f| f.flow == name).unwrap();
    for f in &outcome.flows {
        assert_eq!(f.failed, None, "{}", f.flow);
        assert_eq!(f.sent + f.copied, f.delivered + f.dropped + f.in_flight, "{}", f.flow);
    }
    let [calls, live] = ["calls", "live"].map(|name| flow(name).messages.unwrap());
    assert_eq!((calls.written, calls.delivered), (300, 300));
    assert!(flow("calls").stall.unwrap() < 1.5, "{:?}", flow("calls").stall);
    // Four seconds of sixteen were without a line, and then the timer had doubled.
    assert_eq!(live.written, 800);
    assert!((300..790).contains(&live.delivered), "{}", live.delivered);
    assert!(live.delay.unwrap().max < 3.0, "{live:?}");
    // More than its line alone, less the time it was away, could have brought.
    assert!(flow("both").goodput > 2e6, "{}", flow("both").goodput);
    assert!(flow("shares").goodput > 0.5e6, "{}", flow("shares").goodput);
}

/// Campaigns that are part of the program vary scenarios that are, too.
#[test]
fn built_in_campaigns_are_read() {
    for b in builtin::CAMPAIGNS {
        let (scenario, _) = campaign::named(b.name, b.text).unwrap();
        let base = builtin::find(&scenario).unwrap();
        let campaign = campaign::read(b.name, b.text, (base.name, base.text), None);
        let campaign = campaign.unwrap_or_else(|e| panic!("{e}"));
        assert!(campaign.cells.len() > 1, "{}", b.name);
    }
}
