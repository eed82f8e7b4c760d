//! `ringway mesh ping` and `trace`: prints each report of the router as it comes, then a summary.

use super::{RouterArgs, runtime};
use crate::out::{self, CommandError};
use clap::Args;
use ringway_router::control::{self, Question};
use ringway_router::probes::{
    HopReport, MAX_COUNT, MAX_SILENT_HOPS, Outcome, PingReport, parse_destination,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::Ipv6Addr;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Args)]
pub(crate) struct Ping {
    #[command(flatten)]
    target: Target,
    /// Number of probes, one a second
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_COUNT)))]
    count: u16,
}

#[derive(Args)]
pub(crate) struct Trace {
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
struct Target {
    /// IPv6 address of a router or of a host behind it, or the id of a router
    #[arg(value_name = "ADDRESS|ID", value_parser = parse_destination)]
    destination: Ipv6Addr,
    #[command(flatten)]
    router: RouterArgs,
}

/// What `ping --json` prints.
#[derive(Serialize)]
struct PingResult {
    destination: Ipv6Addr,
    sent: usize,
    answered: usize,
    #[serde(flatten)]
    times: Option<Times>,
    probes: Vec<PingReport>,
}

/// Round trips in milliseconds.
#[derive(Serialize, Clone, Copy)]
struct Times {
    min_ms: f64,
    avg_ms: f64,
    max_ms: f64,
}

/// What `trace --json` prints.
#[derive(Serialize)]
struct TraceResult {
    destination: Ipv6Addr,
    reached: bool,
    hops: Vec<HopReport>,
}

pub(super) fn ping(args: &Ping) -> Result<(), CommandError> {
    let Ping { target: Target { destination, router }, count } = args;
    let question = Question::Ping { destination: *destination, count: *count };
    let print = !router.json;
    if print {
        out::line(&format!("ping {destination}"))?;
    }
    let probes: Vec<PingReport> = reports(router, &question, |report: &PingReport| match print {
        true => out::line(&ping_line(report)),
        false => Ok(()),
    })?;
    let round_trips: Vec<f64> = probes.iter().filter_map(|probe| answer(&probe.outcome)).collect();
    let (sent, answered) = (probes.len(), round_trips.len());
    let times = times(&round_trips);
    if print {
        out::text(&ping_summary(sent, answered, times))?;
    } else {
        out::json(&PingResult { destination: *destination, sent, answered, times, probes })?;
    }
    if answered > 0 { Ok(()) } else { Err(CommandError::from(format!("{destination}: no answer"))) }
}

pub(super) fn trace(args: &Trace) -> Result<(), CommandError> {
    let Target { destination, router } = &args.target;
    let question = Question::Trace { destination: *destination };
    let print = !router.json;
    if print {
        out::line(&format!("trace to {destination}"))?;
    }
    let hops: Vec<HopReport> = reports(router, &question, |report: &HopReport| match print {
        true => out::line(&hop_line(report)),
        false => Ok(()),
    })?;
    let answered = |hop: &HopReport| hop.probes.iter().any(|probe| answer(probe).is_some());
    let reached = hops.last().is_some_and(answered);
    let silent = hops.len() >= usize::from(MAX_SILENT_HOPS) && is_silent(hops.last());
    if router.json {
        out::json(&TraceResult { destination: *destination, reached, hops })?;
    }
    match (reached, silent) {
        (true, _) => Ok(()),
        (false, true) => {
            let text = format!("{destination}: {MAX_SILENT_HOPS} hops in a row do not answer");
            Err(CommandError::from(text))
        }
        (false, false) => Err(CommandError::from(format!("{destination}: not reached"))),
    }
}

fn is_silent(hop: Option<&HopReport>) -> bool {
    hop.is_some_and(|hop| hop.probes.iter().all(|probe| *probe == Outcome::Timeout))
}

/// Asks the router. Returns its reports, each of which `print` has seen, until the end or an interrupt.
fn reports<T: DeserializeOwned>(
    router: &RouterArgs,
    question: &Question,
    mut print: impl FnMut(&T) -> Result<(), CommandError>,
) -> Result<Vec<T>, CommandError> {
    let path = control::path(&router.state());
    let (mut all, mut failure) = (Vec::new(), None);
    let line = |line: Value| {
        if failure.is_some() {
            return;
        }
        let report = super::checked(line).and_then(|report| print(&report).map(|()| report));
        match report {
            Ok(report) => all.push(report),
            Err(error) => failure = Some(error),
        }
    };
    let asked = runtime()?.block_on(async {
        let asking = control::ask(&path, question, line);
        let Ok(mut interrupt) = signal(SignalKind::interrupt()) else { return asking.await };
        tokio::select! { asked = asking => asked, _ = interrupt.recv() => Ok(()) }
    });
    asked.map_err(|error| CommandError::from(error.to_string()))?;
    match failure {
        Some(error) => Err(error),
        None => Ok(all),
    }
}

/// Returns the round trip of a probe that its destination has answered, in milliseconds.
fn answer(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Answered { rtt_ms, .. } => Some(*rtt_ms),
        _ => None,
    }
}

fn times(round_trips: &[f64]) -> Option<Times> {
    let min_ms = round_trips.iter().copied().reduce(f64::min)?;
    let max_ms = round_trips.iter().copied().reduce(f64::max)?;
    let avg_ms = round_trips.iter().sum::<f64>() / round_trips.len() as f64;
    Some(Times { min_ms, avg_ms: (avg_ms * 1e3).round() / 1e3, max_ms })
}

fn ping_line(report: &PingReport) -> String {
    let sequence = report.sequence;
    match &report.outcome {
        Outcome::Answered { id, rtt_ms, hops, mtu, .. } => {
            format!("{id}: seq={sequence} hops={hops} mtu={mtu} time={rtt_ms:.3} ms")
        }
        Outcome::Expired { id, .. } => format!("{id}: seq={sequence} too many hops"),
        Outcome::Refused { id, reason, .. } => format!("{id}: seq={sequence} {reason}"),
        Outcome::NoRoute => format!("seq={sequence} no route"),
        Outcome::Timeout => format!("seq={sequence} no answer"),
    }
}

fn ping_summary(sent: usize, answered: usize, times: Option<Times>) -> String {
    let lost = 100 * (sent - answered) / sent.max(1);
    let mut text = format!("{sent} sent, {answered} answered, {lost}% lost\n");
    if let Some(Times { min_ms, avg_ms, max_ms }) = times {
        text += &format!("rtt min/avg/max = {min_ms:.3}/{avg_ms:.3}/{max_ms:.3} ms\n");
    }
    text
}

fn hop_line(report: &HopReport) -> String {
    let who = report.probes.iter().find_map(|probe| match probe {
        Outcome::Answered { id, address, .. }
        | Outcome::Expired { id, address, .. }
        | Outcome::Refused { id, address, .. } => {
            Some(format!("{id}  {:<26}", address.to_string()))
        }
        Outcome::NoRoute | Outcome::Timeout => None,
    });
    let mut line = format!("{:>3}  {}", report.hop, who.unwrap_or_default());
    for probe in &report.probes {
        line += &match probe {
            Outcome::Answered { rtt_ms, .. } | Outcome::Expired { rtt_ms, .. } => {
                format!("  {rtt_ms:.3} ms")
            }
            Outcome::Refused { reason, .. } => format!("  {reason}"),
            Outcome::NoRoute => "  no route".to_owned(),
            Outcome::Timeout => "  *".to_owned(),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str) -> (String, Ipv6Addr) {
        (id.to_owned(), "fd01::1".parse().unwrap())
    }

    #[test]
    fn a_ping_is_summed_up() {
        let times = times(&[1.0, 2.0, 6.0]);
        let expected = "4 sent, 3 answered, 25% lost\nrtt min/avg/max = 1.000/3.000/6.000 ms\n";
        assert_eq!(ping_summary(4, 3, times), expected);
        assert_eq!(ping_summary(0, 0, None), "0 sent, 0 answered, 0% lost\n");
    }

    #[test]
    fn a_hop_is_a_line() {
        let (id, address) = named("0100000000000000");
        let expired = Outcome::Expired { id: id.clone(), address, rtt_ms: 0.25 };
        let report = HopReport { hop: 2, probes: vec![Outcome::Timeout, expired] };
        let expected = "  2  0100000000000000  fd01::1                     *  0.250 ms";
        assert_eq!(hop_line(&report), expected);
        let refused = Outcome::Refused { id, address, reason: "too many hops".to_owned() };
        assert!(hop_line(&HopReport { hop: 3, probes: vec![refused] }).ends_with("too many hops"));
        let silent = HopReport { hop: 4, probes: vec![Outcome::Timeout; 3] };
        assert_eq!(hop_line(&silent), "  4    *  *  *");
    }
}
