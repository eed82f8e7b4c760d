//! The scenario as it is run: nodes, links and flows in the order of their names.
//!
//! Several results depend on numbers: the order of two events in the same nanosecond, the addresses
//! and ports that a queue hashes, the choice between two equally cheap paths, and which of two
//! parallel links is the second. So that none of these depends on the order in a file, all parts
//! are numbered by name, and the figures are returned in the order of the file.

use super::Outcome;
use crate::scenario::Scenario;

/// A scenario in the order of names, and for each flow and link of the file its number there.
pub(super) struct Canonical {
    pub(super) scenario: Scenario,
    flows: Vec<usize>,
    links: Vec<usize>,
}

/// Returns for each entry its position in the order of names.
fn ranks(names: &[&str]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|i| names[*i]);
    let mut ranks = vec![0; names.len()];
    for (rank, index) in order.into_iter().enumerate() {
        ranks[index] = rank;
    }
    ranks
}

/// Returns the entries in the order of their ranks.
fn sorted<T: Clone>(all: &[T], ranks: &[usize]) -> Vec<T> {
    let mut pairs: Vec<(usize, &T)> = ranks.iter().copied().zip(all).collect();
    pairs.sort_by_key(|p| p.0);
    pairs.into_iter().map(|p| p.1.clone()).collect()
}

impl Canonical {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let names = |all: &[String]| ranks(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let nodes = names(&scenario.nodes);
        let links = ranks(&scenario.links.iter().map(|l| l.name.as_str()).collect::<Vec<_>>());
        let flows = ranks(&scenario.flows.iter().map(|f| f.name.as_str()).collect::<Vec<_>>());
        let mut renumbered = scenario.clone();
        for link in &mut renumbered.links {
            link.between = link.between.map(|node| nodes[node]);
        }
        for flow in &mut renumbered.flows {
            (flow.from, flow.to) = (nodes[flow.from], nodes[flow.to]);
            flow.sctp.paths.iter_mut().for_each(|link| *link = links[*link]);
        }
        for route in &mut renumbered.routes {
            (route.at, route.to) = (nodes[route.at], nodes[route.to]);
            route.link = links[route.link];
        }
        renumbered.routes.sort_by_key(|r| (r.at, r.to, r.link));
        for probe in &mut renumbered.probes {
            probe.flow = probe.flow.map(|flow| flows[flow]);
            probe.link = probe.link.map(|(link, there)| (links[link], there));
        }
        renumbered.nodes = sorted(&scenario.nodes, &nodes);
        renumbered.links = sorted(&renumbered.links, &links);
        renumbered.flows = sorted(&renumbered.flows, &flows);
        Canonical { scenario: renumbered, flows, links }
    }

    /// Reorders the figures of a run to the order of the file.
    pub(super) fn restore(&self, outcome: &mut Outcome) {
        outcome.flows = self.flows.iter().map(|flow| outcome.flows[*flow].clone()).collect();
        // Each link has two directions.
        let both = self.links.iter().flat_map(|link| [2 * link, 2 * link + 1]);
        outcome.links = both.map(|i| outcome.links[i].clone()).collect();
    }
}
