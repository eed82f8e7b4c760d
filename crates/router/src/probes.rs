//! Pings and traces for clients of the control socket: probes one after the other, each with a time-out.

use std::io;
use std::net::Ipv6Addr;
use std::time::Duration;

use ringway_mesh::NodeId;
use ringway_mesh::session::{ProbeOutcome, ProbeRefused};
use ringway_mesh::wire::control::Code;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use crate::control::{Asker, Client, LEAVING, Request};

/// Maximum number of probes of a ping.
pub const MAX_COUNT: u16 = 10_000;
/// Time from one probe of a ping to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for which an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for which the first is waited for: there may be no session yet. A search of an absent router ends sooner.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// Probes of each hop of a trace.
const PROBES_OF_HOP: usize = 3;
/// Hops in a row without any answer after which a trace ends.
pub const MAX_SILENT_HOPS: u8 = 3;

/// What became of a probe.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The router that owns the destination has answered.
    Answered {
        /// Its id.
        id: String,
        /// Its address.
        address: Ipv6Addr,
        /// Milliseconds from sending to the answer.
        rtt_ms: f64,
        /// Links on the way there.
        hops: u16,
        /// Length in octets of the longest packet of a host that passes.
        mtu: u16,
    },
    /// The hop limit ended at a router on the way.
    Expired {
        /// Its id, as it says.
        id: String,
        /// Its address.
        address: Ipv6Addr,
        /// Milliseconds from sending to the report.
        rtt_ms: f64,
    },
    /// A router on the way did not forward it.
    Refused {
        /// Its id, as it says.
        id: String,
        /// Its address.
        address: Ipv6Addr,
        /// Why.
        reason: String,
    },
    /// Nobody owns the destination, or nobody who does was found.
    NoRoute,
    /// No answer came in time.
    Timeout,
}

/// A line of a ping's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PingReport {
    /// Number of the probe, from 1.
    pub sequence: u16,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A line of a trace's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HopReport {
    /// Number of links, from 1.
    pub hop: u8,
    /// What became of its probes.
    pub probes: Vec<Outcome>,
}

/// Returns the address of the router that is named as such, by its id, or by an address in its network.
///
/// # Errors
/// A text that is neither.
pub fn parse_destination(text: &str) -> Result<Ipv6Addr, String> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(address);
    }
    let id = (text.len() == 16 && text.bytes().all(|octet| octet.is_ascii_hexdigit()))
        .then(|| u64::from_str_radix(text, 16).ok());
    match id.flatten() {
        Some(id) => Ok(NodeId::new(id).prefix().router()),
        None => Err(format!("expected an IPv6 address or an id of 16 hex digits, got {text:?}")),
    }
}

impl Outcome {
    fn new(outcome: ProbeOutcome) -> Outcome {
        let named = |id: NodeId| (id.to_string(), id.prefix().router());
        match outcome {
            ProbeOutcome::Answered { owner, rtt, hops, mtu } => {
                let (id, address) = named(owner);
                Outcome::Answered { id, address, rtt_ms: milliseconds(rtt), hops, mtu }
            }
            ProbeOutcome::Expired { by, rtt } => {
                let (id, address) = named(by);
                Outcome::Expired { id, address, rtt_ms: milliseconds(rtt) }
            }
            ProbeOutcome::Refused { by, code } => {
                let (id, address) = named(by);
                Outcome::Refused { id, address, reason: reason(code).to_owned() }
            }
            ProbeOutcome::NoRoute => Outcome::NoRoute,
        }
    }

    fn is_final(&self) -> bool {
        matches!(self, Outcome::Answered { .. } | Outcome::Refused { .. } | Outcome::NoRoute)
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn reason(code: Code) -> &'static str {
    match code {
        Code::LinkDown => "the link to the next router is down",
        Code::NoRoute => "no router closer to the destination is known",
        Code::TooBig => "the packet is too long for a link",
        Code::NotHere => "the packet was for another router",
        Code::HopLimit => "too many hops",
        Code::BadRoute => "the route cannot be followed",
        Code::Refuted => "the statement was refuted",
    }
}

/// Sends `count` probes, one a second, and writes a line about each.
pub(crate) async fn ping(
    asker: &Asker,
    destination: Ipv6Addr,
    count: u16,
    client: &mut Client,
) -> io::Result<()> {
    for sequence in 1..=count.min(MAX_COUNT) {
        let begun = Instant::now();
        match probe(asker, destination, 0, sequence == 1).await {
            Ok(outcome) => client.write(&PingReport { sequence, outcome }).await?,
            Err(error) => return client.fault(&error).await,
        }
        if sequence < count {
            sleep_until(begun + INTERVAL).await;
        }
    }
    Ok(())
}

/// Sends probes that end at each router on the way, and writes a line about each router.
pub(crate) async fn trace(
    asker: &Asker,
    destination: Ipv6Addr,
    client: &mut Client,
) -> io::Result<()> {
    let mut silent = 0;
    for hop in 1..=u8::MAX {
        let mut probes = Vec::with_capacity(PROBES_OF_HOP);
        while probes.len() < PROBES_OF_HOP && probes.last() != Some(&Outcome::NoRoute) {
            match probe(asker, destination, hop, hop == 1 && probes.is_empty()).await {
                Ok(outcome) => probes.push(outcome),
                Err(error) => return client.fault(&error).await,
            }
        }
        let is_silent = probes.iter().all(|outcome| *outcome == Outcome::Timeout);
        silent = if is_silent { silent + 1 } else { 0 };
        let is_final = probes.iter().any(Outcome::is_final);
        client.write(&HopReport { hop, probes }).await?;
        if is_final || silent == MAX_SILENT_HOPS {
            break;
        }
    }
    Ok(())
}

/// Sends a probe and waits for what becomes of it.
async fn probe(
    asker: &Asker,
    destination: Ipv6Addr,
    hop_limit: u8,
    is_first: bool,
) -> Result<Outcome, String> {
    let (answer, answered) = oneshot::channel::<Result<ProbeOutcome, ProbeRefused>>();
    let request = Request::Probe { destination, hop_limit, answer };
    asker.requests.send(request).await.map_err(|_| LEAVING.to_owned())?;
    let patience = if is_first { FIRST_PATIENCE } else { PATIENCE };
    match timeout(patience, answered).await {
        Ok(Ok(Ok(outcome))) => Ok(Outcome::new(outcome)),
        Ok(Ok(Err(refused))) => Err(format!("{destination}: {refused}")),
        Ok(Err(_)) => Err(LEAVING.to_owned()),
        Err(_) => Ok(Outcome::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_named_by_an_address_or_its_id() {
        let host = "fd01:2345:6789:abcd:1:2:3:4";
        assert_eq!(parse_destination(host), Ok(host.parse().unwrap()));
        let router: Ipv6Addr = "fd01:2345:6789:abcd::1".parse().unwrap();
        assert_eq!(parse_destination("0123456789abcdef"), Ok(router));
        for text in ["", "0123456789abcde", "0123456789abcdefg", "+123456789abcdef", "192.0.2.1"] {
            let error = parse_destination(text).unwrap_err();
            assert!(error.starts_with("expected an IPv6 address or an id"), "{error}");
        }
    }
}
