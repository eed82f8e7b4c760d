//! A scenario: nodes, links, flows, probes, and the end of the run.
//!
//! One TOML file contains one scenario. [`Scenario::read`] parses and checks it, and reports every
//! problem with its line and what was expected. [`mod@crate::run`] runs it. `docs/lab.md` describes
//! the format line by line.

pub(crate) mod document;
mod flow;
mod header;
mod keys;
mod link;
mod probe;

pub(crate) use document::Location;
pub use document::{Document, MAX_FILE};
pub use flow::{Flow, MAX_MESSAGE, MAX_SIZE, MIN_MESSAGE, Pattern, Sctp, Traffic, Transport};
pub use header::{MAX_TIME, Stop};
pub use keys::Deal;
pub use link::Link;
pub use probe::{Probe, ProbeKind};
pub use ringway_document::{MAX_PROBLEMS, Problem, Problems};

use header::Header;
use ringway_document::nearest;
use ringway_link::{Generator, Span};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of static routes.
pub const MAX_ROUTES: usize = 65_536;
/// Maximum number of flows: each has a port of its own from 20,000 on.
pub const MAX_FLOWS: usize = 45_536;
/// Maximum number of paths of a flow.
pub const MAX_PATHS: usize = 8;
/// Maximum number of probes.
pub const MAX_PROBES: usize = 256;
/// Maximum number of replications of one run.
pub const MAX_REPLICATIONS: u64 = 1_000_000;
/// Maximum number of samples of a probe in a run.
pub const MAX_LOOKS: u64 = 4_000_000;
/// Maximum coordinate of a node's position.
pub const MAX_POSITION: f64 = 1e6;
/// Maximum length of a name.
pub const MAX_NAME: usize = 64;

/// A valid scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Title, in one line.
    pub title: String,
    /// Description of what it shows.
    pub text: String,
    /// Seed of the random streams.
    pub seed: u64,
    /// Default number of replications.
    pub replications: u64,
    /// Random number generator.
    pub generator: Generator,
    /// End of a run.
    pub stop: Stop,
    /// Latest end of a run that waits for its flows.
    pub at_most: Span,
    /// Maximum number of events of a run.
    pub events: u64,
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Positions of the nodes in drawings, to the right and downwards; none, or one for each node.
    pub positions: BTreeMap<String, [f64; 2]>,
    /// Links.
    pub links: Vec<Link>,
    /// Static routes, which precede computed ones.
    pub routes: Vec<Route>,
    /// Flows.
    pub flows: Vec<Flow>,
    /// Probes.
    pub probes: Vec<Probe>,
}

/// A static route: packets at a node for another node leave by a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the node with the route.
    pub at: usize,
    /// Index of the destination.
    pub to: usize,
    /// Index of the link.
    pub link: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    at: String,
    to: String,
    link: String,
}

/// The sections of a file. `emulate` is for `ringway emulate`, which runs a link of the scenario in real time.
const SECTIONS: [&str; 6] = ["scenario", "link", "route", "flow", "probe", "emulate"];

impl Scenario {
    /// Reads a scenario from the text of a file; `file` is the name in error messages.
    pub fn read(file: &str, text: &str) -> Result<Self, Problems> {
        Self::from_document(&Document::parse(file, text)?)
    }

    /// Reads a scenario from a document that may have been changed since it was parsed.
    pub fn from_document(document: &Document<'_>) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        document.only(&SECTIONS, &mut problems);
        let read = Reader { document, problems: &mut problems, complete: true }.scenario();
        match read {
            Some(scenario) if problems.is_empty() => Ok(scenario),
            _ => Err(Problems::new(document.file(), problems)),
        }
    }

    /// Returns the latest end of a run.
    pub fn end(&self) -> Span {
        match self.stop {
            Stop::At(end) => end,
            Stop::FlowsDone => self.at_most,
        }
    }
}

/// Reads a document and collects its problems.
struct Reader<'a, 't> {
    document: &'a Document<'t>,
    problems: &'a mut Vec<Problem>,
    /// Whether all tables that others refer to could be read so far.
    complete: bool,
}

impl Reader<'_, '_> {
    fn report(&mut self, section: &str, index: Option<usize>, key: &str, what: impl Into<String>) {
        self.problems.push(self.document.blame(Location { section, index, key }, what));
    }

    fn scenario(&mut self) -> Option<Scenario> {
        for section in ["scenario", "link", "flow"] {
            if !self.document.has(section) {
                let what = format!("the section `{section}` is missing");
                self.problems.push(self.document.at(0..0, "", what));
            }
        }
        let before = self.problems.len();
        let header: Header = self.document.one("scenario", self.problems);
        if self.problems.len() == before {
            self.header(&header);
        }
        let nodes = self.nodes(&header.nodes);
        self.complete = !nodes.is_empty();
        let links = self.links(&nodes);
        let names = Names::new(links.iter().map(|l| l.name.as_str()));
        let routes = self.routes(&nodes, &links, &names);
        let flows = self.flows(&nodes, &links, &names);
        let end = if let Stop::At(end) = header.stop { end } else { header.at_most };
        let probes = self.probes(&flows, &names, end);
        if header.stop == Stop::FlowsDone && !flows.is_empty() && !flows.iter().any(Flow::has_end) {
            let what = "expected a time: no flow of this scenario ends by itself";
            self.report("scenario", None, "stop", what);
        }
        Some(Scenario {
            title: header.title,
            text: header.text,
            seed: header.seed,
            replications: header.replications,
            generator: header.generator,
            stop: header.stop,
            at_most: header.at_most,
            events: header.events,
            nodes: header.nodes,
            positions: header.positions,
            links,
            routes,
            flows,
            probes,
        })
    }

    fn header(&mut self, header: &Header) {
        if header.title.is_empty() {
            self.report("scenario", None, "title", "expected a title in a line");
        }
        let end = if let Stop::At(end) = header.stop { end } else { header.at_most };
        let key = if let Stop::At(_) = header.stop { "stop" } else { "at_most" };
        if end == Span(0) || end > MAX_TIME {
            self.report(
                "scenario",
                None,
                key,
                format!("expected more than 0 s and at most {MAX_TIME}, got {end}"),
            );
        }
        if !(1..=MAX_REPLICATIONS).contains(&header.replications) {
            let what = format!("expected 1 to {MAX_REPLICATIONS}, got {}", header.replications);
            self.report("scenario", None, "replications", what);
        }
        if header.events == 0 || header.events > 1 << 40 {
            self.report("scenario", None, "events", "expected 1 to 2^40 events");
        }
        if header.nodes.len() < 2 {
            let what = format!("expected at least 2 names, got {}", header.nodes.len());
            self.report("scenario", None, "nodes", what);
        }
        self.positions(header);
    }

    fn positions(&mut self, header: &Header) {
        if header.positions.is_empty() {
            return;
        }
        let known: Vec<&str> = header.nodes.iter().map(String::as_str).collect();
        let nodes: BTreeSet<&str> = known.iter().copied().collect();
        for (name, position) in &header.positions {
            if !nodes.contains(name.as_str()) {
                self.report("scenario", None, "positions", no_such("node", name, &known));
            }
            if !position.iter().all(|x| x.abs() <= MAX_POSITION) {
                let what = format!("expected numbers of at most {MAX_POSITION}, got {position:?}");
                self.report("scenario", None, "positions", what);
            }
        }
        for name in known.iter().filter(|name| !header.positions.contains_key(**name)) {
            let what = format!("expected a position of each node, got none of \"{name}\"");
            self.report("scenario", None, "positions", what);
        }
    }

    fn name(&mut self, section: &str, index: Option<usize>, key: &str, name: &str) {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
            let what = format!(
                "expected a name of 1 to {MAX_NAME} letters, digits, - and _, got {:?}",
                name.chars().take(MAX_NAME).collect::<String>()
            );
            self.report(section, index, key, what);
        }
    }

    fn nodes(&mut self, names: &[String]) -> BTreeMap<String, usize> {
        let mut nodes = BTreeMap::new();
        for (i, name) in names.iter().enumerate() {
            self.name("scenario", None, "nodes", name);
            if nodes.insert(name.clone(), i).is_some() {
                self.report(
                    "scenario",
                    None,
                    "nodes",
                    format!("the node \"{name}\" is listed twice"),
                );
            }
        }
        nodes
    }

    /// Returns the index of a node by its name.
    fn node(
        &mut self,
        nodes: &BTreeMap<String, usize>,
        name: &str,
        (section, index, key): (&str, usize, &str),
    ) -> usize {
        if let Some(&found) = nodes.get(name) {
            return found;
        }
        // Without any node there is another problem, which is reported.
        if nodes.is_empty() {
            return 0;
        }
        let known: Vec<&str> = nodes.keys().map(String::as_str).collect();
        self.report(section, Some(index), key, no_such("node", name, &known));
        0
    }

    fn links(&mut self, nodes: &BTreeMap<String, usize>) -> Vec<Link> {
        if !self.document.is_list("link", self.problems) {
            return Vec::new();
        }
        let mut links: Vec<Link> = Vec::new();
        let mut names = BTreeMap::new();
        for (i, value) in self.document.elements("link").into_iter().enumerate() {
            let Some((mut link, ends)) = link::read(self.document, i, value, self.problems) else {
                self.complete = false;
                continue;
            };
            self.name("link", Some(i), "name", &link.name);
            link.between = ends.each_ref().map(|end| self.node(nodes, end, ("link", i, "between")));
            if ends[0] == ends[1] {
                self.report("link", Some(i), "between", "expected two different nodes");
            }
            if names.insert(link.name.clone(), i).is_some() {
                let what = format!("an earlier link has the name \"{}\"", link.name);
                self.report("link", Some(i), "name", what);
            }
            links.push(link);
        }
        links
    }

    fn routes(
        &mut self,
        nodes: &BTreeMap<String, usize>,
        links: &[Link],
        names: &Names<'_>,
    ) -> Vec<Route> {
        let raw: Vec<Option<RawRoute>> = self.document.all("route", MAX_ROUTES, self.problems);
        let mut routes = Vec::new();
        for (i, raw) in raw.into_iter().enumerate() {
            let Some(raw) = raw else { continue };
            let at = self.node(nodes, &raw.at, ("route", i, "at"));
            let to = self.node(nodes, &raw.to, ("route", i, "to"));
            let Some(link) = names.find(&raw.link) else {
                if !self.complete {
                    continue;
                }
                self.report("route", Some(i), "link", no_such("link", &raw.link, &names.all));
                continue;
            };
            if !links[link].between.contains(&at) {
                let what = format!("the link \"{}\" does not begin at \"{}\"", raw.link, raw.at);
                self.report("route", Some(i), "link", what);
                continue;
            }
            routes.push(Route { at, to, link });
        }
        routes
    }

    fn flows(
        &mut self,
        nodes: &BTreeMap<String, usize>,
        links: &[Link],
        link_names: &Names<'_>,
    ) -> Vec<Flow> {
        let raw: Vec<Option<flow::Raw>> = self.document.all("flow", MAX_FLOWS, self.problems);
        // Of two equal names the higher index is used.
        let reach = Reach::new(nodes.values().max().map_or(0, |n| n + 1), links.iter());
        let mut flows: Vec<Flow> = Vec::new();
        let mut names = BTreeMap::new();
        let links_complete = self.complete;
        for (i, raw) in raw.into_iter().enumerate() {
            let Some(raw) = raw else {
                self.complete = false;
                continue;
            };
            self.name("flow", Some(i), "name", &raw.name);
            if names.insert(raw.name.clone(), i).is_some() {
                let what = format!("an earlier flow has the name \"{}\"", raw.name);
                self.report("flow", Some(i), "name", what);
            }
            let before = self.problems.len();
            let from = self.node(nodes, &raw.from, ("flow", i, "from"));
            let to = self.node(nodes, &raw.to, ("flow", i, "to"));
            if self.problems.len() == before && !nodes.is_empty() {
                if from == to {
                    self.report("flow", Some(i), "to", "expected another node than `from`");
                } else if links_complete && !reach.joined(from, to) {
                    let what =
                        format!("no route: no links lead from \"{}\" to \"{}\"", raw.from, raw.to);
                    self.report("flow", Some(i), "to", what);
                }
            }
            let paths = match raw.sctp.as_ref().map_or(&[][..], |sctp| &sctp.paths) {
                [] => Vec::new(),
                paths => self.paths(i, [from, to], links, link_names, paths),
            };
            if let Some(mut flow) = raw.check(self.document, i, self.problems) {
                flow.sctp.paths = paths;
                flows.push(Flow { from, to, ..flow });
            } else {
                self.complete = false;
            }
        }
        flows
    }

    /// Returns the links by which the paths of a flow leave its first node.
    fn paths(
        &mut self,
        flow: usize,
        [from, to]: [usize; 2],
        links: &[Link],
        names: &Names<'_>,
        names_of_links: &[String],
    ) -> Vec<usize> {
        let others = links.iter().filter(|l| !l.between.contains(&from));
        let nodes = links.iter().flat_map(|l| l.between).max().map_or(0, |n| n + 1);
        let beyond = Reach::new(nodes.max(to + 1), others);
        let mut paths = Vec::new();
        for name in names_of_links {
            let key = "sctp.paths";
            match names.find(name) {
                _ if !self.complete => {}
                None => self.report("flow", Some(flow), key, no_such("link", name, &names.all)),
                Some(link) if !links[link].between.contains(&from) => {
                    let what = format!("the link \"{name}\" does not begin where the flow does");
                    self.report("flow", Some(flow), key, what);
                }
                Some(link)
                    if !links[link].between.iter().any(|&n| n != from && beyond.joined(n, to)) =>
                {
                    let what =
                        format!("no route: the link \"{name}\" does not lead to the flow's end");
                    self.report("flow", Some(flow), key, what);
                }
                Some(link) if paths.contains(&link) => {
                    self.report("flow", Some(flow), key, format!("\"{name}\" is listed twice"));
                }
                Some(link) => paths.push(link),
            }
        }
        if paths.len() > MAX_PATHS {
            let what = format!("expected at most {MAX_PATHS} links, got {}", paths.len());
            self.report("flow", Some(flow), "sctp.paths", what);
        }
        paths
    }

    fn probes(&mut self, flows: &[Flow], links: &Names<'_>, end: Span) -> Vec<Probe> {
        let raw: Vec<Option<probe::Raw>> = self.document.all("probe", MAX_PROBES, self.problems);
        let names = Names::new(flows.iter().map(|f| f.name.as_str()));
        let mut probes: Vec<Probe> = Vec::new();
        for (i, raw) in raw.into_iter().enumerate() {
            let Some(raw) = raw else { continue };
            let before = self.problems.len();
            let what = raw.what;
            let flow = self.one_of(i, "flow", what.of_flow(), raw.flow.as_deref(), &names, what);
            let link = self.one_of(i, "link", what.of_link(), raw.link.as_deref(), links, what);
            if raw.direction.is_some() && !what.of_link() {
                self.report("probe", Some(i), "direction", "expected with a probe of a link only");
            }
            let every = raw.every.unwrap_or(Span::from_millis(if what == ProbeKind::Throughput {
                500
            } else {
                10
            }));
            if raw.every.is_some() && !what.has_every() {
                let what = "expected with \"throughput\", \"cwnd\" and \"queue\" only";
                self.report("probe", Some(i), "every", what);
            } else if every < probe::MIN_EVERY || every > MAX_TIME {
                let what = format!("expected {} to {MAX_TIME}, got {every}", probe::MIN_EVERY);
                self.report("probe", Some(i), "every", what);
            } else if end.as_nanos() / every.as_nanos() > MAX_LOOKS && what.has_every() {
                let least = Span(end.as_nanos() / MAX_LOOKS + 1);
                let what = format!("expected {least} or more in a run of {end}, got {every}");
                self.report("probe", Some(i), "every", what);
            }
            if let (ProbeKind::Cwnd, Some(flow)) = (what, flow)
                && flows[flow].transport == Transport::Udp
            {
                self.report(
                    "probe",
                    Some(i),
                    "flow",
                    "a flow over \"udp\" has no congestion window",
                );
            }
            if let (ProbeKind::MessageDelay, Some(flow)) = (what, flow)
                && (!matches!(
                    flows[flow].traffic,
                    Traffic::Messages { .. } | Traffic::RequestResponse { .. }
                ) || matches!(flows[flow].transport, Transport::TcpNs2 | Transport::SctpNs2))
            {
                let what = "this flow has no messages whose delay is known";
                self.report("probe", Some(i), "flow", what);
            }
            let there = raw.direction.unwrap_or_default() == probe::Direction::There;
            let probe = Probe { what, flow, link: link.map(|l| (l, there)), every };
            if probes.contains(&probe) {
                self.report("probe", Some(i), "", "the same probe is listed twice");
            }
            if self.problems.len() == before {
                probes.push(probe);
            }
        }
        probes
    }

    /// Returns the index of the flow or link of a probe.
    fn one_of(
        &mut self,
        index: usize,
        key: &str,
        needed: bool,
        name: Option<&str>,
        known: &Names<'_>,
        what: ProbeKind,
    ) -> Option<usize> {
        let what = what.as_str();
        match (needed, name) {
            (false, None) => None,
            (false, Some(_)) => {
                self.report(
                    "probe",
                    Some(index),
                    key,
                    format!("a probe of \"{what}\" has no `{key}`"),
                );
                None
            }
            (true, None) => {
                let message =
                    format!("the key `{key}` is missing: the name of the {key} to look at");
                self.report("probe", Some(index), "", message);
                None
            }
            (true, Some(name)) => {
                let found = known.find(name);
                if found.is_none() && self.complete {
                    self.report("probe", Some(index), key, no_such(key, name, &known.all));
                }
                found
            }
        }
    }
}

/// Formats `no node "x"; did you mean "y"?`
fn no_such(what: &str, name: &str, known: &[&str]) -> String {
    let name: String = name.chars().take(MAX_NAME).collect();
    match nearest(&name, known) {
        Some(nearest) => format!("no {what} \"{name}\"; did you mean \"{nearest}\"?"),
        None if known.is_empty() => format!("no {what} \"{name}\"; there is none"),
        None if known.len() <= 16 => {
            format!("no {what} \"{name}\"; there are: {}", known.join(", "))
        }
        None => format!("no {what} \"{name}\""),
    }
}

/// Names in the order of the file, and their positions.
struct Names<'a> {
    all: Vec<&'a str>,
    positions: BTreeMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    fn new(names: impl Iterator<Item = &'a str>) -> Self {
        let all: Vec<&str> = names.collect();
        // Of two equal names, which are reported, the first is found.
        let positions = all.iter().enumerate().rev().map(|(i, name)| (*name, i)).collect();
        Names { all, positions }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }
}

/// By node, a number of the set of nodes that links connect it with.
struct Reach(Vec<usize>);

impl Reach {
    fn new<'a>(nodes: usize, links: impl Iterator<Item = &'a Link>) -> Self {
        let mut reach = Reach((0..nodes.max(1)).collect());
        for link in links {
            let [a, b] = link.between.map(|end| reach.root(end));
            reach.0[a] = b;
        }
        for node in 0..reach.0.len() {
            reach.0[node] = reach.root(node);
        }
        reach
    }

    /// Returns the root of a set, and halves the path to it.
    fn root(&mut self, mut node: usize) -> usize {
        while self.0[node] != node {
            self.0[node] = self.0[self.0[node]];
            node = self.0[node];
        }
        node
    }

    fn joined(&self, a: usize, b: usize) -> bool {
        self.0[a] == self.0[b]
    }
}

#[cfg(test)]
mod tests;
