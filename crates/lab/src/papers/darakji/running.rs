//! Table 9 with running routers: the mesh of this project in virtual time, with two hosts on cables of the paper's rate.
//!
//! Links and headers are Ethernet's, the routers' machine is the one that runs in a daemon, and the file goes over the
//! laboratory's TCP. Virtual time has no processors: a router takes either no time for a packet, or the time that the
//! model has fitted to the paper's reference column.

use super::model::{FILE, Model, WIRE};
use super::table9::{Printed, REFERENCE, TWO_ROUTERS};
use super::{Study, StudyResult};
use crate::mesh::{Cable, HostPlan, Network, Plan, Processor, identity_at};
use crate::papers::{Claim, MeasuredFigure, MeasuredRow, MeasuredTable};
use crate::run::RunError;
use rayon::prelude::*;
use ringway_link::Rate;
use ringway_mesh::{Limits, NodeId};
use ringway_sansio::{Duration, Time};
use ringway_tcp::Settings;

const MIB: f64 = 1_048_576.0;
/// Echo requests, as in the paper.
const ECHOES: u16 = 100;
/// Delay of a cable of some metres.
const CABLE: Duration = Duration::from_micros(1);
/// MTU that the routers advertise on their LANs.
const MTU: u16 = 1_368;
/// Window of the transfer, which is less than any queue.
const WINDOW: usize = 256 << 10;
/// Time in which two routers find each other, and more.
const START: Time = Time::from_secs(10);
/// A transfer that takes longer has failed.
const MAX_TIME: Duration = Duration::from_secs(10_000);

/// What was measured of one network.
#[derive(Clone, Copy, Debug)]
struct Case {
    routers: usize,
    service: Option<Duration>,
    /// The first round trip, which begins a session of two routers.
    first: f64,
    /// Least, mean and greatest of the other round trips in seconds.
    trips: [f64; 3],
    /// Duration of the whole file in seconds.
    seconds: f64,
    /// Octets that the sender's router sent to the next node for each octet of the file.
    octets: f64,
    /// Share of the time in which the cable behind the first router was busy.
    busy: f64,
}

impl Case {
    fn name(&self) -> String {
        let routers = if self.routers == 1 { "one router" } else { "two routers" };
        match self.service {
            None => format!("{routers}, no time for a packet"),
            Some(service) => {
                format!("{routers}, {:.4} ms for a packet", service.as_secs_f64() * 1e3)
            }
        }
    }

    fn speed(&self) -> f64 {
        FILE as f64 / self.seconds
    }

    fn printed(&self) -> &'static Printed {
        if self.routers == 1 { &REFERENCE } else { &TWO_ROUTERS }
    }
}

/// Measures a line of routers, with `percent` of the file.
fn measure(
    routers: usize,
    service: Option<Duration>,
    percent: u64,
    seed: u64,
) -> Result<Case, RunError> {
    let tcp =
        Settings { mtu: MTU, receive_buffer: WINDOW, send_buffer: WINDOW, ..Settings::default() };
    let plan = Plan {
        routers: (0..routers as u64)
            .map(|i| identity_at(NodeId::new((4 + 6 * i) << 60), 4, seed))
            .collect(),
        limits: Limits::default(),
        links: (1..routers as u32).map(|i| [i - 1, i]).collect(),
        hosts: [0, routers - 1].map(|router| HostPlan { router, tcp }).to_vec(),
        cable: Cable { rate: Rate(WIRE as u64), delay: CABLE },
        processor: service.map(|service| Processor { service }),
        seed,
    };
    let mut network = Network::start(&plan, None)?;
    network.run_until(START)?;
    let to = network.address(1);
    for number in 0..=ECHOES {
        network.host(0, |host, now| host.ping(now, to, number))?;
        network.run_until(network.graph.now() + Duration::from_secs(1))?;
    }
    let trips = network.host(0, |host, _| host.round_trips().to_vec())?.unwrap_or_default();
    let trips: Vec<f64> = trips.iter().map(Duration::as_secs_f64).collect();
    let octets = FILE * percent / 100;
    // What the first router sends to the next node, not back to its host.
    let onward = |network: &Network| {
        let sent = network.graph.counters(0).map_or(0, |c| c.sent_bytes);
        let back = network.graph.counters(network.number(0)).map_or(0, |c| c.received_bytes);
        sent.saturating_sub(back)
    };
    let before = onward(&network);
    network.host(0, |host, now| host.send_file(now, to, octets).ok())?;
    let begun = network.graph.now();
    let mut done = None;
    while done.is_none() && network.graph.now().since(begun) < MAX_TIME {
        network.run_until(network.graph.now() + Duration::from_millis(100))?;
        let transfer = network.host(1, |host, _| host.transfer())?.unwrap_or_default();
        done = transfer.last.filter(|_| transfer.octets >= octets);
    }
    let seconds = done.map_or(f64::NAN, |at| at.since(begun).as_secs_f64());
    let onward = (onward(&network) - before) as f64;
    let rest = trips.get(1..).unwrap_or_default();
    let pick = |by: fn(f64, f64) -> f64| rest.iter().copied().reduce(by).unwrap_or(f64::NAN);
    Ok(Case {
        routers,
        service,
        first: trips.first().copied().unwrap_or(f64::NAN),
        trips: [pick(f64::min), rest.iter().sum::<f64>() / rest.len() as f64, pick(f64::max)],
        seconds: seconds * 100.0 / percent as f64,
        octets: onward / octets as f64,
        busy: onward * 8.0 / WIRE / seconds,
    })
}

/// Measures one router and two, with the reference's time for a packet and without.
pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let percent = study.replications.min(100);
    let service = Model::service_for_transfer(1, REFERENCE.seconds[2])?;
    let service = Some(Duration::from_secs_f64(service));
    let cases = [(1, None), (2, None), (1, service), (2, service)];
    let cases: Vec<Case> = cases
        .into_par_iter()
        .map(|(routers, service)| measure(routers, service, percent, study.seed))
        .collect::<Result<_, _>>()?;
    Ok(StudyResult {
        tables: vec![table(&cases, percent)],
        claims: claims(&cases),
        ..StudyResult::default()
    })
}

fn table(cases: &[Case], percent: u64) -> MeasuredTable {
    let row = |case: &Case| {
        let printed = case.printed();
        let exact = |name: &str, unit, value| MeasuredFigure::exact(name, unit, value);
        // The paper's routers have a processor; those without take no time that could be compared.
        let beside = |figure: MeasuredFigure, paper: f64| match case.service {
            Some(_) => figure.with_paper_value(paper),
            None => figure.with_other_quantity(paper),
        };
        let [min, mean, max] = case.trips.map(|seconds| seconds * 1e3);
        let utilisation = case.speed() * 8.0 / WIRE * 100.0;
        let figures = vec![
            exact("first round trip", "ms", case.first * 1e3),
            beside(exact("minimum", "ms", min), printed.round_trip[0]),
            beside(exact("average", "ms", mean), printed.round_trip[1]),
            beside(exact("maximum", "ms", max), printed.round_trip[2]),
            beside(exact("transfer", "s", case.seconds), printed.seconds[2]),
            beside(exact("speed", "MiB/s", case.speed() / MIB), printed.speeds[2].0),
            exact("utilisation", "%", utilisation),
            exact("cable busy", "%", case.busy * 100.0),
            exact("octets on the cable for one of the file", "", case.octets),
        ];
        MeasuredRow { name: case.name(), figures }
    };
    MeasuredTable {
        source: "Table 9, running routers in virtual time",
        what: format!(
            "two hosts, cables of 100 Mbit/s, {ECHOES} echo requests, {FILE} octets over TCP with an MTU of {MTU}; the \
             machine of the daemon, with stand-ins of the same lengths for its cryptography. Virtual time has no \
             processors: a packet takes no time in a router, or the model's for the reference. The first echo request \
             begins the session between two routers. What the SIP module adds is in a table of its own.{}",
            if percent < 100 {
                format!(" {percent} % of the file were transferred, with the duration scaled.")
            } else {
                String::new()
            }
        ),
        replications: 1,
        rows: cases.iter().map(row).collect(),
    }
}

fn claims(cases: &[Case]) -> Vec<Claim> {
    let find = |routers, served: bool| {
        cases.iter().find(|c| c.routers == routers && c.service.is_some() == served)
    };
    let (Some(one), Some(two), Some(slow_one), Some(slow_two)) =
        (find(1, false), find(2, false), find(1, true), find(2, true))
    else {
        return Vec::new();
    };
    let more = (two.octets / one.octets - 1.0) * 100.0;
    vec![
        Claim {
            source: "Section 4.7.1, running routers",
            says: "the bandwidth of a cable is not utilised over one router, and even less over two".into(),
            ours: format!(
                "{:.1} and {:.1} % of 100 Mbit/s without a time for packets, {:.2} and {:.2} % with the reference's",
                one.speed() * 8.0 / WIRE * 100.0,
                two.speed() * 8.0 / WIRE * 100.0,
                slow_one.speed() * 8.0 / WIRE * 100.0,
                slow_two.speed() * 8.0 / WIRE * 100.0,
            ),
            holds: one.speed() * 8.0 < 0.5 * WIRE || two.speed() * 8.0 < 0.5 * WIRE,
            sure: true,
            expected: false,
            why: format!(
                "What routing by identifiers costs a cable is its headers, {more:.1} % more octets than one router \
                 sends; all else is the processor's time. With the same time for a packet, two routers are as fast as \
                 one."
            ),
        },
        Claim {
            source: "Table 9, running routers",
            says: "with the reference's time for a packet the running router is the reference, within 15 %".into(),
            ours: format!(
                "average round trip {:.3} ms (in print {}), transfer {:.0} s (in print {:.0})",
                slow_one.trips[1] * 1e3,
                REFERENCE.round_trip[1],
                slow_one.seconds,
                REFERENCE.seconds[2]
            ),
            holds: (slow_one.seconds / REFERENCE.seconds[2] - 1.0).abs() < 0.15
                && (slow_one.trips[1] * 1e3 / REFERENCE.round_trip[1] - 1.0).abs() < 0.15,
            sure: true,
            expected: true,
            why: "The time was fitted to packets of 1,480 octets; the routers advertise 1,368, so there are 10 % more of \
                  them. What hosts add to a round trip is not in it."
                .into(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file fills the cable, and the second router costs its headers.
    #[test]
    fn two_routers_cost_headers_and_no_bandwidth_besides() {
        let [one, two] = [1, 2].map(|routers| measure(routers, None, 1, 1).unwrap());
        assert!(one.busy > 0.97 && two.busy > 0.97, "{one:?} {two:?}");
        // TCP and IPv6 take 72 octets of 1,368, Ethernet 38, and the routers' headers 48 and 57 or more.
        assert!((one.octets - 1406.0 / 1296.0).abs() < 0.01, "{}", one.octets);
        assert!((two.octets - 1511.0 / 1296.0).abs() < 0.02, "{}", two.octets);
        assert!(two.first > 1.2 * two.trips[1] && one.first < 1.01 * one.trips[1]);
    }
}
