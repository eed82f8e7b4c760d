//! Figure 16: what routers do with a SIP request by the domain of its target, as messages of a run.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, PoisonError};

use ringway_proxy::routes::Share;
use ringway_sansio::{Duration, Time};
use ringway_sim::graph::{Adjacency, LinkModel, Topology};

use super::Study;
use crate::onesip::users::{GATEWAY, OUTSIDE, OUTSIDE_DOMAIN, aor};
use crate::onesip::{Network, Settings, SipLog, phone_address};
use crate::output::{LadderSheet, RungSheet};
use crate::run::RunError;

/// When users register, and when each of the two calls begins.
const COME: Duration = Duration::from_secs(20);
const CALLS: [Duration; 2] = [Duration::from_secs(40), Duration::from_secs(80)];
/// The caller, the callee in the mesh, and the router that has a way to other domains. Users are at the routers of their number.
const CALLER: u32 = 0;
const CALLEE: u32 = 1;
const GATE: u32 = 2;

/// An INVITE to a user of the mesh, and one to another domain, from the same phone.
pub(super) fn figure_16(study: &Study) -> Result<LadderSheet, RunError> {
    let link = LinkModel::new(Duration::from_millis(1));
    let adjacency = Adjacency::new(&Topology::line(3), |_, _| link)?;
    let log: SipLog = Arc::new(Mutex::new(Vec::new()));
    let mut settings = Settings::new(vec![CALLER, CALLEE], study.seed);
    settings.gateways = BTreeMap::from([(GATE, Share { cost: 10, capacity: 1 })]);
    settings.log = Some(log.clone());
    let mut network = Network::new(adjacency, settings)?;
    network.run(COME)?;
    for user in [CALLER, CALLEE] {
        network.come(user, user);
    }
    let mut rungs = Vec::new();
    let ends = ends(&network);
    for (at, to) in CALLS.into_iter().zip([CALLEE, OUTSIDE]) {
        let now = network.graph.now().since(Time::ZERO);
        network.run(at.saturating_sub(now))?;
        log.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let begun = network.graph.now();
        network.call(CALLER, CALLER, to);
        network.run(Duration::from_secs(2))?;
        for step in log.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let position = |address| ends.iter().position(|(_, end)| *end == address);
            let invite = step.line.starts_with("INVITE").then(|| format!("INVITE {}", aor(to)));
            let ringing = step.line.contains(" 180 ").then(|| "180 Ringing".to_owned());
            let (Some(label), Some(from), Some(end)) =
                (invite.or(ringing), position(step.from), position(step.to))
            else {
                continue;
            };
            rungs.push(RungSheet {
                between: [from, end],
                time: format!("{:.3} ms", step.at.since(begun).as_secs_f64() * 1e3),
                label,
                back: step.line.starts_with("SIP/"),
            });
        }
    }
    Ok(LadderSheet {
        name: "figure-16-domains".into(),
        title: "Figure 16, SIP requests by the domain of their target".into(),
        caption: format!(
            "A phone calls a user of the mesh, and then one of {OUTSIDE_DOMAIN}. Its router looks the first up in the DHT and \
             sends the request to the router there; for other domains it finds the routers that share a way, and sends it to one \
             of them, from where it goes to the server of that domain by ordinary SIP. The first INVITE of each call is \
             challenged. Times from the call on; links of 1 ms in a line; challenges and acknowledgements are left out."
        ),
        ends: ends.into_iter().map(|(name, _)| name).collect(),
        rungs,
    })
}

/// Returns who sends SIP messages, from left to right.
fn ends(network: &Network) -> Vec<(String, Ipv6Addr)> {
    let address = |router| {
        let node = network.graph.node(router);
        node.map_or(Ipv6Addr::UNSPECIFIED, |node| node.directory().id().prefix().router())
    };
    let phone = |router, user| phone_address(&address(router), user);
    vec![
        ("phone".into(), phone(CALLER, CALLER)),
        ("its router".into(), address(CALLER)),
        ("router of the callee".into(), address(CALLEE)),
        ("callee".into(), phone(CALLEE, CALLEE)),
        ("gateway".into(), address(GATE)),
        (format!("server of {OUTSIDE_DOMAIN}"), phone(GATE, GATEWAY)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_to_the_callee_or_to_a_gateway_by_its_domain() {
        let ladder = figure_16(&Study { seed: 12_345, replications: 1 }).unwrap();
        let ways = |domain: &str| -> Vec<[usize; 2]> {
            let invites = ladder.rungs.iter().filter(|rung| rung.label.ends_with(domain));
            let mut ways: Vec<[usize; 2]> = invites.map(|rung| rung.between).collect();
            ways.dedup();
            ways
        };
        assert_eq!(ways("@mesh"), [[0, 1], [1, 2], [2, 3]]);
        assert_eq!(ways(OUTSIDE_DOMAIN), [[0, 1], [1, 4], [4, 5]]);
        let ringing = ladder.rungs.iter().filter(|rung| rung.back && rung.between == [1, 0]);
        assert_eq!(ringing.count(), 2);
    }
}
