//! The files in the user guide are valid.

#![allow(clippy::unwrap_used)]

use ringway_lab::builtin;
use ringway_lab::campaign;
use ringway_lab::mesh::scale::Settings;
use ringway_lab::run::{Options, run};
use ringway_lab::scenario::{Document, Scenario};
use std::path::Path;

const GUIDE: &str = include_str!("../../../docs/lab.md");

/// Returns the n-th block of TOML.
fn block(n: usize) -> &'static str {
    let block = GUIDE.split("```toml\n").nth(n + 1).unwrap();
    block.split("```").next().unwrap()
}

#[test]
fn examples_of_the_guide_are_valid() {
    let scenario = Scenario::read("guide", block(0)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.flows.len(), 1);
    let base = builtin::find("lossy-bulk").unwrap();
    let read = |text: &str, base: &builtin::Builtin| {
        campaign::read("guide", text, (base.name, base.text), None)
            .unwrap_or_else(|e| panic!("{e}"))
    };
    assert_eq!(read(block(2), base).cells.len(), 6);
    // The guide shows the target without its campaign.
    let search = format!("[campaign]\ntitle = \"t\"\nscenario = \"gangurde-udp\"\n{}", block(3));
    let search = read(&search, builtin::find("gangurde-udp").unwrap());
    assert_eq!(search.target.unwrap().figures.len(), 3);
    let mesh = Document::parse("guide", block(4)).unwrap_or_else(|e| panic!("{e}"));
    let mesh = Settings::from_document(&mesh, Path::new("guide"));
    assert_eq!(mesh.unwrap_or_else(|e| panic!("{e}")).kinds().len(), 4);
}

/// The scenario with all settings of SCTP behaves as its comments state.
#[test]
fn the_sctp_example_behaves_as_described() {
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
    // The link was down for four of sixteen seconds, and then the timer had doubled.
    assert_eq!(live.written, 800);
    assert!((300..790).contains(&live.delivered), "{}", live.delivered);
    assert!(live.delay.unwrap().max < 3.0, "{live:?}");
    // More than its own link could have delivered in the time it was up.
    assert!(flow("both").goodput > 2e6, "{}", flow("both").goodput);
    assert!(flow("shares").goodput > 0.5e6, "{}", flow("shares").goodput);
}

/// Built-in campaigns vary built-in scenarios.
#[test]
fn built_in_campaigns_are_valid() {
    for b in builtin::CAMPAIGNS {
        let (scenario, _) = campaign::scenario_and_title(b.name, b.text).unwrap();
        let base = builtin::find(&scenario).unwrap();
        let campaign = campaign::read(b.name, b.text, (base.name, base.text), None);
        let campaign = campaign.unwrap_or_else(|e| panic!("{e}"));
        assert!(campaign.cells.len() > 1, "{}", b.name);
    }
}
