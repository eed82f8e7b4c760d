//! The network in a report: its drawing, and the times at which links are down.

use crate::output::{LinkSheet, NetworkSheet, figure, version};
use crate::run::{Outcome, View};
use crate::scenario::Scenario;
use crate::view::network as file;
use ringway_link::{LinkConfig, Loss};
use ringway_sansio::Duration;
use std::collections::BTreeMap;

/// Maximum number of intervals shaded in a figure.
const MAX_DOWN_INTERVALS: usize = 200;

/// Returns the nodes and links of a scenario.
pub(super) fn network(scenario: &Scenario) -> NetworkSheet {
    let link = |l: &crate::scenario::Link| {
        let (there, back) = (describe(&l.there), describe(&l.back));
        let mut label = vec![l.name.clone()];
        match there == back {
            true => label.push(there),
            false => {
                let [a, b] = l.between.map(|n| scenario.nodes[n].as_str());
                label.extend([format!("{a} \u{2192} {there}"), format!("{b} \u{2192} {back}")]);
            }
        }
        let goes_down = [&l.there, &l.back].iter().any(|c| !down_intervals(c, 1.0e9).is_empty());
        LinkSheet { between: l.between, label, goes_down }
    };
    NetworkSheet { nodes: scenario.nodes.clone(), links: scenario.links.iter().map(link).collect() }
}

/// Returns the network of a run for `ringway lab view`.
pub(super) fn view_network(
    scenario: &Scenario,
    outcome: &Outcome,
    view: &View,
    seed: u64,
    tables: BTreeMap<String, String>,
) -> file::Network {
    let direction = |config: &LinkConfig| file::Direction {
        text: describe(config),
        down_ns: down_intervals(config, outcome.ended)
            .into_iter()
            .map(|interval| interval.map(|s| (s * 1e9).round() as u64))
            .collect(),
    };
    file::Network {
        format: file::FORMAT,
        title: scenario.title.clone(),
        version: version(),
        seed,
        ended_ns: (outcome.ended * 1e9).round() as u64,
        left_out: view.trace.left_out,
        tables,
        nodes: scenario
            .nodes
            .iter()
            .map(|name| file::Node {
                name: name.clone(),
                position: scenario.positions.get(name).copied(),
            })
            .collect(),
        links: scenario
            .links
            .iter()
            .map(|l| file::Link {
                name: l.name.clone(),
                between: l.between,
                there: direction(&l.there),
                back: direction(&l.back),
            })
            .collect(),
        flows: scenario
            .flows
            .iter()
            .map(|f| file::Flow {
                name: f.name.clone(),
                from: f.from,
                to: f.to,
                transport: f.transport.as_str().into(),
            })
            .collect(),
    }
}

/// Describes rate, delay and loss in one line.
fn describe(config: &LinkConfig) -> String {
    let mut words = Vec::new();
    if !config.rate.is_unlimited() {
        words.push(config.rate.to_string());
    }
    if !config.rate_trace.is_empty() || !config.deliveries.is_none() {
        words.push("rate by a trace".into());
    }
    let jitter = match config.jitter.0 {
        0 => String::new(),
        _ => format!(" ± {}", config.jitter),
    };
    words.push(format!("{}{jitter}", config.delay));
    match &config.loss {
        Loss::None {} => {}
        Loss::Random(random) => {
            words.push(format!("{} % lost", figure(random.chance.get() * 100.0)));
        }
        _ => words.push("losses in bursts".into()),
    }
    words.join(", ")
}

/// Returns the intervals in which a link is down, in seconds, until `end`.
fn down_intervals(config: &LinkConfig, end: f64) -> Vec<[f64; 2]> {
    let seconds = |span: ringway_link::Span| Duration::from(span).as_secs_f64();
    let mut down = (!config.up).then_some(0.0);
    let mut all = Vec::new();
    let period = seconds(config.schedule_period);
    let mut began = 0.0;
    'periods: loop {
        for change in &config.schedule {
            let at = began + seconds(change.at);
            if at >= end || all.len() >= MAX_DOWN_INTERVALS {
                break 'periods;
            }
            match (change.up, down) {
                (Some(false), None) => down = Some(at),
                (Some(true), Some(since)) => {
                    all.push([since, at]);
                    down = None;
                }
                _ => {}
            }
        }
        if period <= 0.0 || config.schedule.is_empty() {
            break;
        }
        began += period;
    }
    all.extend(down.map(|since| [since, end]));
    all
}

/// Returns the intervals in which any link is down in a run of `end` seconds, without overlaps.
pub(super) fn down_times(scenario: &Scenario, end: f64) -> Vec<[f64; 2]> {
    let configs = scenario.links.iter().flat_map(|l| [&l.there, &l.back]);
    let mut all: Vec<[f64; 2]> = configs.flat_map(|c| down_intervals(c, end)).collect();
    all.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let mut merged: Vec<[f64; 2]> = Vec::new();
    for [from, to] in all {
        match merged.last_mut() {
            Some(last) if from <= last[1] => last[1] = last[1].max(to),
            _ => merged.push([from, to]),
        }
    }
    merged.truncate(MAX_DOWN_INTERVALS);
    merged
}

/// Returns the caption that names the links of the shaded times.
pub(super) fn down_caption(scenario: &Scenario, end: f64) -> String {
    let is_down = |l: &&crate::scenario::Link| {
        [&l.there, &l.back].iter().any(|c| !down_intervals(c, end).is_empty())
    };
    let names: Vec<&str> = scenario.links.iter().filter(is_down).map(|l| l.name.as_str()).collect();
    match &names[..] {
        [] => String::new(),
        [one] => format!(" Shaded: link {one} is down."),
        several => format!(" Shaded: one of the links {} is down.", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(links: &str) -> Scenario {
        let text = format!(
            "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"b\"]\nstop = \"9 s\"\n{links}\n[[flow]]\nname = \"f\"\n\
             from = \"a\"\nto = \"b\"\ntransport = \"udp\"\ntraffic = \"cbr\"\nrate = \"8 kbit/s\"\npacket = \"100 B\"\n"
        );
        Scenario::read("t", &text).unwrap()
    }

    /// Times when links are down are merged, end with the run, and repeat with their period.
    #[test]
    fn down_times_follow_the_schedules() {
        let scenario = read(
            "[[link]]\nname = \"one\"\nbetween = [\"a\", \"b\"]\n\
             schedule = [{ at = \"2 s\", up = false }, { at = \"4 s\", up = true }, { at = \"8 s\", up = false }]\n\
             [[link]]\nname = \"two\"\nbetween = [\"a\", \"b\"]\n\
             schedule = [{ at = \"3 s\", up = false }, { at = \"5 s\", up = true }]\n",
        );
        assert_eq!(down_times(&scenario, 9.0), [[2.0, 5.0], [8.0, 9.0]]);
        assert_eq!(down_caption(&scenario, 9.0), " Shaded: one of the links one, two is down.");
        let repeated = read(
            "[[link]]\nname = \"one\"\nbetween = [\"a\", \"b\"]\nschedule_period = \"3 s\"\n\
             schedule = [{ at = \"1 s\", up = false }, { at = \"2 s\", up = true }]\n",
        );
        assert_eq!(down_times(&repeated, 6.0), [[1.0, 2.0], [4.0, 5.0]]);
        let never = read("[[link]]\nbetween = [\"a\", \"b\"]\n");
        assert!(down_times(&never, 9.0).is_empty() && down_caption(&never, 9.0).is_empty());
    }

    /// Settings that differ by direction are shown for each direction.
    #[test]
    fn a_link_is_described() {
        let scenario = read(
            "[[link]]\nname = \"line\"\nbetween = [\"a\", \"b\"]\nrate = \"10 Mbit/s\"\ndelay = \"20 ms\"\n\
             [link.there]\nloss = { model = \"random\", chance = \"1 %\" }\n",
        );
        let network = network(&scenario);
        assert_eq!(network.nodes, ["a", "b"]);
        let lines =
            ["line", "a \u{2192} 10 Mbit/s, 20 ms, 1 % lost", "b \u{2192} 10 Mbit/s, 20 ms"];
        assert_eq!(network.links[0].label, lines);
        assert!(!network.links[0].goes_down);
    }
}
