//! The four routers of section 4.5.1 on cables with a delay, as `interop/paper/calls` makes them of network namespaces: the same
//! requests in the same order, so that virtual time stands beside real time. And what the SIP module of Table 9 sends by itself.

use super::plan::pairs;
use super::{Study, StudyResult};
use crate::onesip::{Network, PhoneTimes, Settings};
use crate::papers::{Claim, MeasuredFigure, MeasuredRow, MeasuredTable};
use crate::run::RunError;
use rayon::prelude::*;
use ringway_figures::statistics::{Estimate, mean};
use ringway_link::Rate;
use ringway_sansio::{Duration, Time};
use ringway_sim::graph::{Adjacency, Graph, GraphNode, LinkModel, MeshNode, Topology, mesh};

/// A cable, as `interop/mesh/ether.c` makes it.
const CABLE: Duration = Duration::from_millis(5);
const RATE: Rate = Rate(100_000_000);
const MAX_WAIT: Duration = Duration::from_millis(20);
/// The time in which routers find each other, and after each request.
const SETTLED: Duration = Duration::from_secs(40);
const REST: Duration = Duration::from_secs(2);
/// Users of each router.
const USERS: u32 = 3;
const PHONES: PhoneTimes = PhoneTimes {
    expires: Duration::from_secs(3_600),
    ring: Duration::from_millis(300),
    talk: Duration::from_millis(300),
};
/// The time for which routers are left alone, to count what they send.
const ALONE: Duration = Duration::from_secs(600);
/// The time of the transfer over two routers in print, and the share that the module adds to that over one, in per cent.
const PAPER_COST: f64 = 8.8;

/// Delays in milliseconds by row: the first of a kind, and the same again.
type Rows = Vec<(String, Vec<[f64; 2]>)>;

fn line(routers: u32) -> Result<Adjacency, RunError> {
    let link = LinkModel { rate: RATE, max_wait: MAX_WAIT, ..LinkModel::new(CABLE) };
    Ok(Adjacency::new(&Topology::line(routers), |_, _| link)?)
}

/// Registers the users of all routers, twice each.
fn register(network: &mut Network, rows: &mut Rows) -> Result<(), RunError> {
    for router in 0..4u32 {
        let mut delays = Vec::new();
        for user in (0..USERS).map(|number| router + 4 * number) {
            let mut both = [f64::NAN; 2];
            for delay in &mut both {
                let begun = network.graph.now();
                network.come(router, user);
                network.run(REST)?;
                let now = network.graph.now();
                let phones = network.graph.node(router).map(|node| node.phones());
                let done = phones.and_then(|phones| phones.registered(now, user));
                *delay = millis(done.filter(|done| *done >= begun), begun);
            }
            delays.push(both);
        }
        rows.push((format!("REGISTER at router {}", router + 1), delays));
    }
    Ok(())
}

/// Calls from each router to each other one, twice.
fn call(network: &mut Network, rows: &mut Rows) -> Result<(), RunError> {
    for hops in 1..4u32 {
        let mut delays = Vec::new();
        for (from, to) in pairs(hops) {
            let mut both = [f64::NAN; 2];
            for delay in &mut both {
                network.call(from, from, to);
                network.run(REST)?;
                let calls = network.take_calls();
                let call = calls.first().map(|(_, call)| *call).unwrap_or_default();
                *delay = millis(call.ringing, call.begun);
            }
            delays.push(both);
        }
        let links = if hops == 1 { "link" } else { "links" };
        rows.push((format!("INVITE over {hops} {links}"), delays));
    }
    Ok(())
}

fn millis(done: Option<Time>, begun: Time) -> f64 {
    done.map_or(f64::NAN, |done| done.since(begun).as_secs_f64() * 1e3)
}

fn world(seed: u64) -> Result<Rows, RunError> {
    let homes = (0..4 * USERS).map(|user| user % 4).collect();
    let settings = Settings { phones: PHONES, ..Settings::new(homes, seed) };
    let mut network = Network::new(line(4)?, settings)?;
    network.run(SETTLED)?;
    let mut rows = Rows::new();
    register(&mut network, &mut rows)?;
    call(&mut network, &mut rows)?;
    Ok(rows)
}

/// Octets a second that two routers send which nobody uses: with the directory and the proxy, and without.
fn alone(seed: u64) -> Result<[f64; 2], RunError> {
    let settings = Settings { phones: PHONES, ..Settings::new(vec![0, 1], seed) };
    let mut with = Network::new(line(2)?, settings)?;
    for user in 0..2 {
        with.come(user, user);
    }
    let makings = with.makings().clone();
    let mut without: Graph<MeshNode> = Graph::idle(line(2)?, seed);
    for number in 0..2 {
        let node = MeshNode::new(&makings.mesh, &makings.identities, number, 0, seed, Time::ZERO);
        let missing = || ringway_sim::Error::Settings { what: format!("no router {number}") };
        without.start(number, node.ok_or_else(missing)?)?;
    }
    Ok([octets(&mut with.graph)?, octets(&mut without)?])
}

/// Octets a second of all nodes, once they have settled, with the headers below.
fn octets<N: GraphNode + Send>(graph: &mut Graph<N>) -> Result<f64, RunError> {
    graph.run_until(graph.now() + SETTLED)?;
    let before = graph.totals();
    graph.run_until(graph.now() + ALONE)?;
    let after = graph.totals();
    let packets = after.sent - before.sent;
    let octets = after.sent_bytes - before.sent_bytes + packets * mesh::HEADERS as u64;
    Ok(octets as f64 / ALONE.as_secs_f64())
}

fn estimate(values: &[f64]) -> Estimate {
    let none = Estimate { value: f64::NAN, n: 0, interval: None, equal: false };
    mean(values).unwrap_or(none)
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let worlds = study.replications.div_ceil(4).max(2);
    let seed = |n: u64| study.seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let done: Vec<Rows> =
        (0..worlds).into_par_iter().map(|n| world(seed(n))).collect::<Result<_, _>>()?;
    let idle: Vec<[f64; 2]> =
        (0..worlds.min(4)).into_par_iter().map(|n| alone(seed(n))).collect::<Result<_, _>>()?;
    let (module, claim) = module(&idle);
    Ok(StudyResult {
        tables: vec![table(&done), module],
        claims: vec![claim],
        ..StudyResult::default()
    })
}

fn table(done: &[Rows]) -> MeasuredTable {
    let names = done.first().into_iter().flatten().map(|(name, _)| name);
    let row = |(index, name): (usize, &String)| {
        let column = |title, again: usize| {
            let of_world = |rows: &Rows| {
                let delays = &rows.get(index)?.1;
                let sum: f64 = delays.iter().map(|both| both[again]).sum();
                Some(sum / delays.len() as f64).filter(|mean| mean.is_finite())
            };
            let values: Vec<f64> = done.iter().filter_map(of_world).collect();
            MeasuredFigure::new(title, "ms", estimate(&values))
        };
        MeasuredRow { name: name.clone(), figures: vec![column("first", 0), column("again", 1)] }
    };
    MeasuredTable {
        source: "Section 4.5.1 on cables",
        what: format!(
            "the four routers on cables of {} ms and 100 Mbit/s, each with {USERS} users at home there; ids are random. \
             Milliseconds from the first REGISTER to its 200, and from the first INVITE to the 180. First: a new \
             registration, the first call of a pair; again: the same 2 s later. `interop/paper/calls` measures the same \
             in network namespaces.",
            CABLE.as_millis()
        ),
        replications: done.len(),
        rows: names.enumerate().map(row).collect(),
    }
}

fn module(idle: &[[f64; 2]]) -> (MeasuredTable, Claim) {
    let column = |pick: fn(&[f64; 2]) -> f64| estimate(&idle.iter().map(pick).collect::<Vec<_>>());
    // Both directions are counted, and a cable carries its rate in each.
    let share = column(|[with, without]| (with - without) * 8.0 / (2.0 * RATE.0 as f64) * 100.0);
    let cost = share.value;
    let figures = vec![
        MeasuredFigure::new("with it, octets/s", "", column(|both| both[0])),
        MeasuredFigure::new("without", "", column(|both| both[1])),
        MeasuredFigure::new("share of the cable", "%", share).with_other_quantity(PAPER_COST),
    ];
    let table = MeasuredTable {
        source: "Table 9, SIP module in virtual time",
        what: format!(
            "two routers on a cable of 100 Mbit/s that nobody uses for {} s, with directory, proxy and a registered phone at \
             each, and without. Virtual time has no processors, and no packet of others passes the module, so that what it \
             sends by itself is all that it can cost a transfer; `interop/paper/table9` measures the processor's part. In \
             print: how much longer the transfer takes.",
            ALONE.as_secs()
        ),
        replications: idle.len(),
        rows: vec![MeasuredRow { name: "two routers".into(), figures }],
    };
    let claim = Claim {
        source: "Section 4.7.3",
        says: "the SIP module makes other traffic slower".into(),
        ours: format!("its messages take {cost:.4} % of a cable of 100 Mbit/s (in print {PAPER_COST} % longer)"),
        holds: cost >= 1.0,
        sure: cost.is_finite(),
        expected: false,
        why: "The paper inspects every packet for SIP. Here the kernel hands the server what is for its port, and no \
              other packet meets it; what the processor does besides is measured on a machine."
            .into(),
    };
    (table, claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All requests are answered; a call on a known way takes one round trip over its links, and a refreshed registration
    /// none.
    #[test]
    fn a_call_on_a_known_way_takes_one_round_trip() {
        let rows = world(1).unwrap();
        assert_eq!(rows.len(), 7);
        for (name, delays) in rows {
            for [first, again] in delays {
                assert!(first.is_finite() && again <= first + 0.1, "{name}: {first} {again}");
                let links =
                    name.strip_prefix("INVITE over ").map_or(0.0, |n| n[..1].parse().unwrap());
                assert!((again - 10.0 * links).abs() < 1.0, "{name}: {again}");
            }
        }
    }

    /// The module renews its records, and that is all.
    #[test]
    fn the_module_sends_little_by_itself() {
        let [with, without] = alone(1).unwrap();
        assert!(with > without && with < 3.0 * without, "{with} {without}");
    }
}
