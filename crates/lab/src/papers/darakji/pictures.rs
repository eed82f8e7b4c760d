//! Figures 5 to 8, 16 to 19, 25 and 26 as pictures of runs: rings, cables and packets as the routers have them, not as drawn by
//! hand.
//!
//! Ids are those of the paper's figures as far as its text has them: the highest bits of ours are theirs. Figures 6, 18
//! and 19 assume, as the paper does, that a router knows nobody but its neighbours on the ring and on its cables.

use super::{Study, StudyResult, domains};
use crate::mesh::{
    Cable, Contents, HostPlan, LabRouter, Log, Network, Plan, Step, identity_at, lock, shared_log,
};
use crate::output::{
    LadderSheet, PictureSheet, RungSheet, SpotSheet, SpotStyle, WaySheet, WayStyle,
};
use crate::run::RunError;
use ringway_figures::report::on_ring;
use ringway_link::Rate;
use ringway_mesh::wire::Message;
use ringway_mesh::{Limits, NodeId};
use ringway_sansio::{Duration, Time};
use ringway_tcp::Settings;

/// The time when a network has settled, and the time that packets are followed for.
const SETTLED: Time = Time::from_secs(30);
const FOLLOWED: Duration = Duration::from_millis(900);
/// The ids of Figure 6, of 128.
const EIGHT: [u64; 8] = [1, 13, 17, 19, 32, 39, 42, 88];
const EIGHT_BITS: u32 = 7;
/// Cables between them, by position: the paper's are only in its drawing.
const EIGHT_LINKS: [[u32; 2]; 9] =
    [[0, 1], [0, 7], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [3, 7], [1, 4]];
/// Octets of an echo request.
const ECHO: usize = 104;
/// Source and destination of Figure 6, and an id of Figures 18 and 19 that no router has.
const SOURCE: u32 = 0;
const TARGET: usize = 6;
const ABSENT: u64 = 64;
/// The routers of section 4.5.1, of 256, in a line.
pub(super) const FOUR: [u64; 4] = [0xa0, 0x30, 0x70, 0xd0];

/// A settled network whose packets are logged.
struct Run {
    network: Network,
    log: Log,
    names: Vec<String>,
    links: Vec<[u32; 2]>,
}

impl Run {
    /// Starts routers with ids of `bits` bits, and hosts at some of them.
    fn start(
        ids: &[u64],
        bits: u32,
        links: &[[u32; 2]],
        hosts: &[usize],
        limits: Limits,
        seed: u64,
    ) -> Result<Self, RunError> {
        let id = |id: &u64| identity_at(NodeId::new(id << (64 - bits)), bits, seed);
        let host = |router: &usize| HostPlan { router: *router, tcp: Settings::default() };
        let plan = Plan {
            routers: ids.iter().map(id).collect(),
            limits,
            links: links.to_vec(),
            hosts: hosts.iter().map(host).collect(),
            cable: Cable { rate: Rate(100_000_000), delay: Duration::from_micros(1) },
            processor: None,
            seed,
        };
        let log = shared_log();
        let mut network = Network::start(&plan, Some(&log))?;
        network.run_until(SETTLED)?;
        lock(&log).clear();
        let name = |id: &u64| if bits == 8 { format!("{id:X}") } else { id.to_string() };
        Ok(Run { network, log, names: ids.iter().map(name).collect(), links: links.to_vec() })
    }

    /// Calls a router, and returns what passes over cables thereupon, with the time since the call.
    fn follow<R>(
        &mut self,
        call: impl FnOnce(&mut Network) -> Result<R, RunError>,
    ) -> Result<Vec<(Duration, Step)>, RunError> {
        lock(&self.log).clear();
        let begun = self.network.graph.now();
        call(&mut self.network)?;
        self.network.run_until(begun + FOLLOWED)?;
        let mut steps: Vec<_> =
            lock(&self.log).iter().map(|s| (s.at.since(begun), s.clone())).collect();
        steps.sort_by_key(|(at, _)| *at);
        Ok(steps)
    }

    /// Returns the routers on the ring, in even steps and with room for `further`, and with what each knows of the
    /// next one.
    fn even_ring(
        &mut self,
        further: Option<NodeId>,
    ) -> Result<(Vec<SpotSheet>, Vec<WaySheet>), RunError> {
        let (mut spots, ways) = self.ring()?;
        let mut order: Vec<NodeId> = self.network.routers().to_vec();
        order.extend(further);
        spots.extend(further.map(|_| SpotSheet {
            name: ABSENT.to_string(),
            label: vec!["no router".into()],
            at: [0.0; 2],
            style: SpotStyle::Key,
        }));
        let ids = order.clone();
        order.sort_unstable();
        for (spot, id) in spots.iter_mut().zip(ids) {
            let rank = order.iter().position(|other| *other == id).unwrap_or_default();
            spot.at = on_ring(rank as f64 / order.len() as f64);
        }
        Ok((spots, ways))
    }

    /// Returns the routers on the ring, each with what it knows of the next one.
    fn ring(&mut self) -> Result<(Vec<SpotSheet>, Vec<WaySheet>), RunError> {
        let ids = self.network.routers().to_vec();
        let position = |id: NodeId| id.raw() as f64 / 2f64.powi(64);
        let spot = |(id, name): (&NodeId, &String)| SpotSheet {
            name: name.clone(),
            label: vec![format!("{id}")],
            at: on_ring(position(*id)),
            style: SpotStyle::Router,
        };
        let spots = ids.iter().zip(&self.names).map(spot).collect();
        let mut ways = self.cables();
        for (number, id) in (0u32..).zip(&ids) {
            let next = |router: &mut LabRouter, _| next_of(router, *id);
            let next = self.network.router(number, next)?.flatten();
            if let Some(to) = next.and_then(|next| ids.iter().position(|id| *id == next)) {
                let between = [number as usize, to];
                ways.push(WaySheet { between, style: WayStyle::Next, label: String::new() });
            }
        }
        Ok((spots, ways))
    }

    fn cables(&self) -> Vec<WaySheet> {
        let way = |link: &[u32; 2]| WaySheet {
            between: link.map(|end| end as usize),
            style: WayStyle::Cable,
            label: String::new(),
        };
        self.links.iter().map(way).collect()
    }
}

/// Returns the next router on the ring as a router has it in its tables.
fn next_of(router: &LabRouter, own: NodeId) -> Option<NodeId> {
    let overlay = router.machine().overlay();
    let ids = overlay.contacts().ids();
    let after = ids.iter().find(|id| **id > own).copied();
    after.or_else(|| overlay.partner().filter(|partner| *partner < own))
}

/// Returns arrows for messages of one type, numbered from `first` on.
fn arrows(steps: &[(Duration, Step)], of: Message, style: WayStyle, first: usize) -> Vec<WaySheet> {
    let is_one =
        |step: &&Step| matches!(&step.contents, Contents::Routed { message, .. } if *message == of);
    let steps = steps.iter().map(|(_, step)| step).filter(is_one);
    let way = |(number, step): (usize, &Step)| WaySheet {
        between: [step.from as usize, step.to as usize],
        style,
        label: number.to_string(),
    };
    (first..).zip(steps).map(way).collect()
}

/// Returns arrows for the data packet from [`SOURCE`]. What the session sends back is left out.
fn forward(steps: &[(Duration, Step)]) -> Vec<WaySheet> {
    let (mut at, mut ways) = (SOURCE, Vec::new());
    for step in steps.iter().map(|(_, step)| step) {
        if step.contents == Contents::Data && step.from == at && at != TARGET as u32 {
            let between = [step.from as usize, step.to as usize];
            ways.push(WaySheet { between, style: WayStyle::Answer, label: String::new() });
            at = step.to;
        }
    }
    ways
}

/// Returns the names of the nodes that packets passed, in order.
fn road(names: &[String], ways: &[WaySheet]) -> String {
    let first = ways.first().map(|way| way.between[0]);
    let nodes = first.into_iter().chain(ways.iter().map(|way| way.between[1]));
    let names = nodes.filter_map(|node| names.get(node).map(String::as_str));
    names.collect::<Vec<_>>().join(" - ")
}

const CABLE: (WayStyle, &str) = (WayStyle::Cable, "cable");
const NEXT: (WayStyle, &str) = (WayStyle::Next, "next router on the ring, as in a router's table");

fn legend(entries: &[(WayStyle, &str)]) -> Vec<(WayStyle, String)> {
    entries.iter().map(|(style, text)| (*style, (*text).to_string())).collect()
}

/// Tables with the nearest on each side and the neighbours on cables, and nothing more.
fn bare() -> Limits {
    Limits { near: 1, candidates: 0, ..Limits::default() }
}

/// The routers on the ring, and how they are joined.
fn figure_5(study: &Study) -> Result<PictureSheet, RunError> {
    let links = [[1, 0], [0, 3], [3, 2]];
    let mut run = Run::start(&[1, 5, 9, 15], 4, &links, &[], Limits::default(), study.seed)?;
    let (spots, ways) = run.ring()?;
    Ok(PictureSheet {
        name: "figure-05-ring".into(),
        title: "Figure 5, the ring of four routers".into(),
        caption: "Four routers with ids that begin with 1, 5, 9 and 15 of 16, on cables in the order 5, 1, 15, 9, after \
                  30 s. How they are joined does not relate to the ring."
            .into(),
        ring: true,
        height: 1.0,
        spots,
        ways,
        legend: legend(&[CABLE, NEXT]),
    })
}

/// The first packet from router 1 to router 42.
fn figure_6(study: &Study) -> Result<PictureSheet, RunError> {
    let mut run = Run::start(&EIGHT, EIGHT_BITS, &EIGHT_LINKS, &[], bare(), study.seed)?;
    let (spots, mut ways) = run.even_ring(None)?;
    let to = run.network.routers()[TARGET];
    let steps = run.follow(|network| {
        network.router(SOURCE, |router, now| router.send_packet(now, to, 1, 100))
    })?;
    let search = arrows(&steps, Message::LookUp, WayStyle::Packet, 1);
    let data = forward(&steps);
    let (there, passed) = (road(&run.names, &search), road(&run.names, &data));
    let to = TARGET as u32;
    let is_last = |(_, step): &&(Duration, Step)| step.contents == Contents::Data && step.to == to;
    let took = steps.iter().find(is_last).map_or(0.0, |(at, _)| at.as_secs_f64() * 1e3);
    ways.extend(search);
    ways.extend(data);
    Ok(PictureSheet {
        name: "figure-06-routing".into(),
        title: "Figure 6, a packet from router 1 to router 42".into(),
        caption: format!(
            "Routers with the ids of the figure, of 128; the cables are ours. Each knows its neighbours on the ring and on \
             its cables. The ring is not to scale. The LOOKUP for 42 went {there}: wherever its route ended, a router chose the next. Its answer has \
             the route, and the packet went {passed}; it arrived {took:.2} ms after it was sent."
        ),
        ring: true,
        height: 1.0,
        spots,
        ways,
        legend: legend(&[
            CABLE,
            NEXT,
            (WayStyle::Packet, "LOOKUP, which finds the way"),
            (WayStyle::Answer, "the packet, by the route that was found"),
        ]),
    })
}

/// Routers and hosts as they are joined, and what a packet is on each cable.
fn figures_7_and_8(study: &Study) -> Result<(PictureSheet, LadderSheet), RunError> {
    let links = [[0, 1], [1, 2]];
    let mut run = Run::start(&[4, 12, 7], 4, &links, &[0, 2], Limits::default(), study.seed)?;
    let (first, last) = (run.network.number(0) as usize, run.network.number(1) as usize);
    let to = run.network.address(1);
    let ping = |number| {
        move |network: &mut Network| network.host(0, |host, now| host.ping(now, to, number))
    };
    let begin = run.follow(ping(0))?;
    let steps = run.follow(ping(1))?;
    let columns = [0.16, 0.5, 0.84];
    let prefixes = run.network.routers().to_vec();
    let split = |address: String| {
        let at = address.match_indices(':').nth(1).map_or(address.len(), |(at, _)| at + 1);
        let (head, tail) = address.split_at(at);
        vec![head.to_string(), tail.to_string()]
    };
    let router = |(i, id): (usize, &NodeId)| SpotSheet {
        name: format!("router {}", run.names[i]),
        label: split(format!("{}/64", id.prefix().network())),
        at: [columns[i], 0.0],
        style: SpotStyle::Router,
    };
    let host = |(i, name): (usize, &str)| SpotSheet {
        name: name.into(),
        label: split(run.network.address(i).to_string()),
        at: [columns[2 * i], 0.42],
        style: SpotStyle::Host,
    };
    let mut spots: Vec<SpotSheet> = prefixes.iter().enumerate().map(router).collect();
    spots.extend(["host A", "host B"].into_iter().enumerate().map(host));
    let mut ways = run.cables();
    ways.extend([[0, first], [2, last]].map(|between| WaySheet {
        between,
        style: WayStyle::Cable,
        label: String::new(),
    }));
    let is_packet = |step: &&Step| matches!(step.contents, Contents::Ipv6 { .. } | Contents::Data);
    for step in steps.iter().map(|(_, step)| step).filter(is_packet).take(4) {
        let style =
            if step.contents == Contents::Data { WayStyle::Packet } else { WayStyle::Answer };
        let between = [step.from as usize, step.to as usize];
        ways.push(WaySheet { between, style, label: format!("{} B", step.octets) });
    }
    let picture = PictureSheet {
        name: "figure-07-topology".into(),
        title: "Figure 7, routers, hosts and an echo request".into(),
        caption: "Three routers, two hosts, and an echo request from host A to host B on its way, with its octets above \
                  IPv6 and UDP of the routers, or above Ethernet. Hosts have addresses of their router's /64 and are not \
                  modified."
            .into(),
        ring: false,
        height: 0.5,
        spots,
        ways,
        legend: legend(&[
            CABLE,
            (WayStyle::Answer, "IPv6 between a host and its router"),
            (WayStyle::Packet, "DATA between routers, with the route in labels"),
        ]),
    };
    // Left to right as they are joined.
    let order = [first, 0, 1, 2, last];
    let end = |node: u32| order.iter().position(|other| *other == node as usize);
    let rungs = |(at, step): &(Duration, Step)| {
        let what = match &step.contents {
            Contents::Ipv6 { .. } => "IPv6",
            Contents::Data if step.octets < ECHO => "DATA without a packet",
            Contents::Data => "DATA",
            Contents::Routed { message, .. } => match message {
                Message::LookUp => "LOOKUP",
                Message::LookUpAck => "LOOKUP_ACK",
                Message::Confirm => "CONFIRM",
                _ => return None,
            },
            _ => return None,
        };
        let between = [end(step.from)?, end(step.to)?];
        Some(RungSheet {
            between,
            time: format!("{:.3} ms", at.as_secs_f64() * 1e3),
            label: format!("{what}, {} B", step.octets),
            back: between[1] < between[0],
        })
    };
    let names = run.names.iter().map(|name| format!("router {name}"));
    let ladder = LadderSheet {
        name: "figure-08-packets".into(),
        title: "Figure 8, what becomes of the first packet between two networks".into(),
        caption: "The first echo request from host A to host B and its answer, with octets above IPv6 and UDP of the \
                  routers. The session is begun once, and confirmed by a DATA without a packet; later packets go at once."
            .into(),
        ends: ["host A".to_string()].into_iter().chain(names).chain(["host B".into()]).collect(),
        rungs: begin.iter().filter_map(rungs).collect(),
    };
    Ok((picture, ladder))
}

/// The routers of section 4.5.1 in a line, and their ring.
fn figures_25_and_26(study: &Study) -> Result<PictureSheet, RunError> {
    let links = [[0, 1], [1, 2], [2, 3]];
    let mut run = Run::start(&FOUR, 8, &links, &[], Limits::default(), study.seed)?;
    let (spots, ways) = run.ring()?;
    Ok(PictureSheet {
        name: "figure-25-26-four-routers".into(),
        title: "Figures 25 and 26, the routers of the abandoned plan".into(),
        caption: "Four routers in a line, A0 and D0 at its ends, and their ring, to scale.".into(),
        ring: true,
        height: 1.0,
        spots,
        ways,
        legend: legend(&[(WayStyle::Cable, "in range of each other"), NEXT]),
    })
}

/// A value that is put at the router that is responsible for its key, and the answer.
fn figure_17(study: &Study) -> Result<LadderSheet, RunError> {
    let links = [[0, 1], [1, 2], [2, 3]];
    let mut run = Run::start(&FOUR, 8, &links, &[], Limits::default(), study.seed)?;
    let key = NodeId::new(0xe1 << 56);
    let back = run.network.routers()[0];
    let there = run
        .follow(|network| network.router(0, |router, now| router.send_closest(now, key, 1, 200)))?;
    let last = there.iter().rev().find_map(|(at, step)| is_payload(step).then_some((*at, step.to)));
    let (arrived, owner) = last.unwrap_or_default();
    let answer = run.follow(|network| {
        network.router(owner, |router, now| router.send_closest(now, back, 2, 20))
    })?;
    let rung = |(at, step): &(Duration, Step), begun: Duration, back: bool| RungSheet {
        between: [step.from as usize, step.to as usize],
        time: format!("{:.3} ms", (begun + *at).as_secs_f64() * 1e3),
        label: format!("{}, {} B", if back { "answer" } else { "put" }, step.octets),
        back,
    };
    let payloads = |steps: &[(Duration, Step)], begun, back| -> Vec<RungSheet> {
        steps.iter().filter(|(_, step)| is_payload(step)).map(|s| rung(s, begun, back)).collect()
    };
    let mut rungs = payloads(&there, Duration::ZERO, false);
    rungs.extend(payloads(&answer, arrived, true));
    Ok(LadderSheet {
        name: "figure-17-put".into(),
        title: "Figure 17, a put request to the mesh itself".into(),
        caption: format!(
            "Where the figure asks OpenDHT, here the mesh is the table (section 3.3.3): 200 octets for the key {key} from \
             router A0 go to the router that is responsible, {}, which answers. Times from the request on, without what \
             the table needs.",
            run.names.get(owner as usize).map_or("none", String::as_str)
        ),
        ends: run.names.iter().map(|name| format!("router {name}")).collect(),
        rungs,
    })
}

fn is_payload(step: &Step) -> bool {
    matches!(step.contents, Contents::Routed { message: Message::Payload, .. })
}

/// A packet for a router that does not exist: exactly that, and the closest one.
fn figures_18_and_19(study: &Study) -> Result<[PictureSheet; 2], RunError> {
    let mut run = Run::start(&EIGHT, EIGHT_BITS, &EIGHT_LINKS, &[0], bare(), study.seed)?;
    let target = NodeId::new(ABSENT << (64 - EIGHT_BITS));
    let (spots, ways) = run.even_ring(Some(target))?;
    let to = target.prefix().router();
    let steps = run.follow(|network| network.host(0, |host, now| host.ping(now, to, 0)))?;
    let search = arrows(&steps, Message::LookUp, WayStyle::Packet, 1);
    let answer = arrows(&steps, Message::NotResponsible, WayStyle::Answer, search.len() + 1);
    let error = run.network.host(0, |host, _| host.errors.first().copied())?.flatten();
    let error = match error {
        Some((_, kind)) => format!("the host received an ICMPv6 error of type {kind}, no route"),
        None => "the host received no error".into(),
    };
    let exact = PictureSheet {
        name: "figure-18-default-routing".into(),
        title: "Figure 18, default routing to a router that does not exist".into(),
        caption: format!(
            "A host at router 1 sends to an address behind id {ABSENT}; the ring is not to scale. The LOOKUP went {}, whose router is responsible \
             for the id and states that there is no such router; {error}.",
            road(&run.names, &search)
        ),
        ring: true,
        height: 1.0,
        spots: spots.clone(),
        ways: ways.iter().cloned().chain(search).chain(answer).collect(),
        legend: legend(&[
            CABLE,
            NEXT,
            (WayStyle::Packet, "LOOKUP"),
            (WayStyle::Answer, "NOT_RESPONSIBLE, signed"),
        ]),
    };
    let steps = run.follow(|network| {
        network.router(SOURCE, |router, now| router.send_closest(now, target, 1, 200))
    })?;
    let closest = arrows(&steps, Message::Payload, WayStyle::Packet, 1);
    let end = closest.last().map(|way| way.between[1] as u32).unwrap_or_default();
    let delivered = run.network.router(end, |router, _| router.poll_arrival())?.flatten();
    let end = run.names.get(end as usize).map_or("none", String::as_str);
    let closest_picture = PictureSheet {
        name: "figure-19-closest-routing".into(),
        title: "Figure 19, closest routing to a router that does not exist".into(),
        caption: format!(
            "A message for the key {ABSENT} from router 1 went {}. Router {end} is responsible for the keys up to the \
             next router's, and {} it.",
            road(&run.names, &closest),
            if delivered.is_some() { "received" } else { "did not receive" }
        ),
        ring: true,
        height: 1.0,
        spots,
        ways: ways.into_iter().chain(closest).collect(),
        legend: legend(&[CABLE, NEXT, (WayStyle::Packet, "the message")]),
    };
    Ok([exact, closest_picture])
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let (topology, packets) = figures_7_and_8(study)?;
    let [exact, closest] = figures_18_and_19(study)?;
    Ok(StudyResult {
        pictures: vec![
            figure_5(study)?,
            figure_6(study)?,
            topology,
            exact,
            closest,
            figures_25_and_26(study)?,
        ],
        ladders: vec![packets, domains::figure_16(study)?, figure_17(study)?],
        ..StudyResult::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDY: Study = Study { seed: 12_345, replications: 1 };

    fn of(picture: &PictureSheet, style: WayStyle) -> Vec<[usize; 2]> {
        picture.ways.iter().filter(|w| w.style == style).map(|w| w.between).collect()
    }

    /// All routers know the next one, also the one with the highest id.
    #[test]
    fn the_ring_is_closed_in_the_tables() {
        let mut next = of(&figure_5(&STUDY).unwrap(), WayStyle::Next);
        next.sort_unstable();
        assert_eq!(next, [[0, 1], [1, 2], [2, 3], [3, 0]]);
    }

    /// A packet arrives over cables that exist, and arrows follow each other.
    #[test]
    fn a_packet_is_followed_over_cables() {
        let six = figure_6(&STUDY).unwrap();
        for style in [WayStyle::Packet, WayStyle::Answer] {
            let ways = of(&six, style);
            assert_eq!((ways[0][0], ways[ways.len() - 1][1]), (0, TARGET), "{ways:?}");
            for way in &ways {
                let [a, b] = way.map(|end| end as u32);
                assert!(EIGHT_LINKS.contains(&[a, b]) || EIGHT_LINKS.contains(&[b, a]));
            }
            assert!(ways.windows(2).all(|pair| pair[0][1] == pair[1][0]), "{ways:?}");
        }
    }

    /// Figure 18 ends with an error at the host, Figure 19 at the router before the key; both go the same way.
    #[test]
    fn an_absent_id_is_refused_exactly_and_served_by_the_closest() {
        let [exact, closest] = figures_18_and_19(&STUDY).unwrap();
        let (there, message) = (of(&exact, WayStyle::Packet), of(&closest, WayStyle::Packet));
        assert_eq!(there.last().map(|way| way[1]), Some(TARGET), "{there:?}");
        assert_eq!(message.last().map(|way| way[1]), Some(TARGET), "{message:?}");
        assert_eq!(of(&exact, WayStyle::Answer).last().map(|way| way[1]), Some(0));
        assert!(exact.caption.contains("ICMPv6 error of type 1"), "{}", exact.caption);
        assert!(closest.caption.contains("and received it"), "{}", closest.caption);
    }

    /// The request passes four cables each way, after a session was begun, and the answer that shows it to work two.
    #[test]
    fn a_packet_is_ipv6_at_hosts_and_data_between_routers() {
        let (topology, ladder) = figures_7_and_8(&STUDY).unwrap();
        assert_eq!(of(&topology, WayStyle::Packet), [[0, 1], [1, 2]]);
        assert_eq!(of(&topology, WayStyle::Answer), [[3, 0], [2, 4]]);
        let labels = |of: &str| ladder.rungs.iter().filter(|r| r.label.starts_with(of)).count();
        assert_eq!(
            [labels("IPv6"), labels("DATA,"), labels("LOOKUP,"), labels("LOOKUP_ACK")],
            [4, 6, 2, 2]
        );
        let put = figure_17(&STUDY).unwrap();
        assert_eq!(put.rungs.iter().filter(|r| r.back).count(), 3, "{put:?}");
    }
}
