//! Hostile routers of the mesh, one attack after the other, among honest ones: no packet goes round or arrives twice,
//! what an honest router stores and sends is bounded, no honest router loses an honest neighbour, and what honest routers
//! deliver to each other does not fall below what it was. The figures at scale are those of
//! `cargo run --release -p ringway-sim --example hostile`.

#[path = "mesh_checks/mod.rs"]
#[allow(dead_code)]
mod checks;

use ringway_mesh::config::{Config, Limits};
use ringway_sansio::{Duration, SplitMix, Time};
use ringway_sim::graph::hostile::{Attack, Siege, Toll};
use ringway_sim::graph::{Adjacency, Graph, LinkModel, Member, Topology};

/// Routers, of which one in ten is hostile.
const ROUTERS: u32 = 150;
/// Octets that an honest router may store.
const MAX_HEAP: usize = 120_000;

fn config() -> Config {
    let limits = Limits { output: 512, ..Limits::default() };
    Config { limits: limits.into(), extension_bits: 0, ..Config::default() }
}

/// Runs a trial.
fn watch(siege: &Siege) -> (Toll, Graph<Member>) {
    let topology = Topology::disk(ROUTERS, 9.0, &mut SplitMix::new(4)).largest_part();
    let adjacency = Adjacency::new(&topology, |_, _| LinkModel::new(Duration::from_millis(1)));
    match adjacency.and_then(|adjacency| siege.watch(adjacency, &config())) {
        Ok(seen) => seen,
        Err(error) => panic!("{error}"),
    }
}

fn siege(attack: Option<Attack>) -> Siege {
    Siege {
        seconds: 12,
        flows_from: Time::from_secs(10),
        sources: 10,
        each: 4,
        ..Siege::new(attack, 11)
    }
}

/// Returns the links between honest routers that are not up, in each direction.
fn lost_links(graph: &Graph<Member>) -> usize {
    let mut lost = 0;
    for (number, member) in graph.numbered().filter(|(_, member)| !member.is_hostile()) {
        let up = member.router().links().up();
        for peer in graph.adjacency().neighbours(number) {
            let Some(peer) = graph.node(peer).filter(|peer| !peer.is_hostile()) else { continue };
            lost += usize::from(!up.iter().any(|neighbour| neighbour.id == peer.id()));
        }
    }
    lost
}

/// Runs an attack. At least `delivery` of all packets of the last seconds must arrive, and an honest router may send
/// `octets` a second. `delivery` is mostly 0.05 less than with the worst of the seeds 11 to 16.
fn withstand(attack: Attack, delivery: f64, octets: u64) -> Toll {
    let (toll, graph) = watch(&siege(Some(attack)));
    let name = attack.name();
    assert!(toll.hostile >= 4 && toll.deeds > 0, "{name}: nothing was attacked, {toll:?}");
    assert_eq!(toll.duplicates, 0, "{name}: packets arrived again, {toll:?}");
    assert!(toll.heap <= MAX_HEAP, "{name}: {} octets are stored", toll.heap);
    assert!(toll.octets <= octets, "{name}: {} octets a second are sent", toll.octets);
    let routes = checks::routes_of_one_link_lead_to_neighbours(&graph);
    assert_eq!(routes, Ok(()), "{name}");
    assert_eq!(lost_links(&graph), 0, "{name}: links between honest routers are down");
    let late = toll.late_delivery();
    assert!(late >= delivery, "{name}: {late} of the last packets arrived, {toll:?}");
    toll
}

/// What is dropped on the way of a session is found out, and other ways are tried; not all in a few seconds.
#[test]
fn routers_that_drop() {
    withstand(Attack::BlackHole, 0.72, 6_000);
    withstand(Attack::Selective, 0.72, 6_000);
    withstand(Attack::Silence, 0.9, 6_000);
    withstand(Attack::GreyHole, 0.9, 8_000);
}

#[test]
fn routers_that_lie_about_routes() {
    withstand(Attack::CheapRoutes, 0.99, 6_000);
    withstand(Attack::Sinkhole, 0.72, 6_000);
    withstand(Attack::SmallMtu, 0.95, 6_000);
    withstand(Attack::FalseHints, 0.95, 20_000);
    withstand(Attack::Mangler, 0.95, 8_000);
    withstand(Attack::Returner, 0.71, 10_000);
}

#[test]
fn routers_that_answer_for_others() {
    withstand(Attack::Impostor, 0.95, 6_000);
    withstand(Attack::Denier, 0.53, 6_000);
}

/// The mean of six seeds is 0.68 without anybody who judges denials, and with them 0.79.
#[test]
fn false_denials_are_found_out() {
    let late = |seed| watch(&Siege { seed, ..siege(Some(Attack::Denier)) }).0.late_delivery();
    let mean = (11..17).map(late).sum::<f64>() / 6.0;
    assert!(mean > 0.74, "{mean} of the last packets arrived");
}

#[test]
fn routers_that_repeat() {
    withstand(Attack::Replay, 0.95, 20_000);
    withstand(Attack::Hijack, 0.4, 60_000);
}

#[test]
fn routers_that_flood() {
    withstand(Attack::Flood, 0.95, 400_000);
}

#[test]
fn routers_that_report_routes_as_broken() {
    withstand(Attack::Breaker, 0.95, 10_000);
}

/// The key of a router's HELLOs is known to all its neighbours. That of a report in it is not, so nobody can make others
/// believe that their link is bad.
#[test]
fn others_hellos() {
    let (toll, graph) = watch(&siege(Some(Attack::FalseHello)));
    let links: usize =
        (0..graph.len()).map(|node| graph.adjacency().neighbours(node).count()).sum();
    let lost = lost_links(&graph);
    assert!(lost * 100 < links, "{lost} of {links} links are down");
    assert!(
        toll.late_delivery() > 0.97 && toll.heap <= MAX_HEAP && toll.octets < 20_000,
        "{toll:?}"
    );
}

/// Neighbours that state that they lead packets round the links that are down, and do not, are found out by those whose
/// packets do not arrive. Nobody does more for an answer that was not asked for. The mean of the seeds 11 to 30 is 0.97; with
/// 11, the worst, it takes 40 s until the ring is whole again.
#[test]
fn routers_that_lead_astray() {
    let mut late = 0.0;
    for seed in 11..17 {
        let cut = Siege { cuts: 100, seed, ..siege(Some(Attack::FalseDetour)) };
        let (toll, graph) = watch(&cut);
        assert!(toll.deeds > 1_000 && toll.duplicates == 0, "{toll:?}");
        assert!(toll.heap <= MAX_HEAP && toll.octets <= 20_000, "{toll:?}");
        assert_eq!(checks::routes_of_one_link_lead_to_neighbours(&graph), Ok(()));
        assert!(toll.late_delivery() > 0.78, "{toll:?}");
        late += toll.late_delivery() / 6.0;
    }
    assert!(late > 0.92, "{late} of the last packets arrived");
}

/// Each hostile router does something else.
#[test]
fn all_attacks_at_once() {
    let (toll, _) = watch(&siege(None));
    assert!(
        toll.late_delivery() > 0.78 && toll.duplicates == 0 && toll.heap <= MAX_HEAP,
        "{toll:?}"
    );
}

/// Hostile routers choose their ids next to one router's: what is for it does not arrive while they drop everything, but
/// others do not notice.
#[test]
fn a_place_that_is_taken() {
    let around = Siege { victim: Some(0), permille: 50, ..siege(Some(Attack::Silence)) };
    let (toll, _) = watch(&around);
    assert!(toll.hostile >= 4 && toll.wrong <= 20 && toll.octets <= 6_000, "{toll:?}");
}
