//! Graphs that pass through schedules of faults.

#![allow(clippy::unwrap_used)]

use ringway_link::Chance;
use ringway_sansio::{Duration, Time};
use ringway_sim::Error;
use ringway_sim::graph::faults::{Churn, Outages, Skew};
use ringway_sim::graph::{
    Adjacency, FaultRates, Faults, Flood, Graph, LinkModel, Origin, Schedule, Topology, Totals,
};

/// A node that sends a beacon each second from a time on.
fn beacon(node: u32, first: Time) -> Flood {
    let origin = Origin { first, every: Duration::from_secs(1), packets: 1_000 };
    Flood::new(node, 20, 1, Some(origin))
}

fn graph(topology: &Topology) -> Graph<Flood> {
    let links = Adjacency::new(topology, |_, _| LinkModel::new(Duration::from_millis(1)));
    Graph::new(links.unwrap(), 1, |node| beacon(node, Time::from_millis(500)))
}

/// Runs a schedule, with stops each `step` seconds; returns what each node received and each life.
fn run(
    graph: &mut Graph<Flood>,
    schedule: &str,
    end: u64,
    step: usize,
) -> (Vec<Option<u32>>, Vec<[u32; 2]>) {
    let mut faults = Faults::new(Schedule::parse(schedule).unwrap());
    let mut lives = Vec::new();
    for time in (0..=end).step_by(step).chain([end]) {
        let make = |node, life, now| {
            lives.push([node, life]);
            beacon(node, now + Duration::from_millis(500))
        };
        faults.run_until(graph, Time::from_secs(time), make).unwrap();
    }
    let heard = |node: &Flood| node.received() + node.duplicates();
    let received = (0..graph.len()).map(|node| graph.node(node).map(heard)).collect();
    (received, lives)
}

#[test]
fn a_node_that_crashed_restarts_as_a_new_one() {
    let mut line = graph(&Topology::line(3));
    let schedule = "2 crash 1\n3 crash 1\n4 start 1\n5 start 1\n7 crash 1\n8 start 1\n9 crash 2";
    let (received, lives) = run(&mut line, schedule, 10, 10);
    // Of the beacons at 0.5 s to 9.5 s, node 0 heard all but those at 2.5, 3.5 and 7.5.
    assert_eq!(received, [Some(7), Some(2 + 1), None]);
    assert_eq!(lives, [[1, 1], [1, 2]]);
}

#[test]
fn a_part_that_was_split_off_is_joined() {
    let mut grid = graph(&Topology::grid(10, 10));
    // The first four nodes from the corner have five links to the others.
    let schedule = "1 split 0 4\n3 join 0 4";
    let before = grid.totals();
    assert_eq!(before, Totals::default());
    run(&mut grid, schedule, 10, 3);
    let border = grid.split(|node| [0, 1, 10, 2].contains(&node));
    assert_eq!((border, grid.join(|node| [0, 1, 10, 2].contains(&node))), (5, 5));
    assert_eq!(grid.totals().undelivered, 2 * 2 * border as u64);
    assert!((0..100).all(|node| (0..2).all(|index| !grid.is_cut(node, index))));
}

#[test]
fn a_loss_ends_with_the_loss_from_before() {
    let links = Adjacency::new(&Topology::line(2), |from, _| LinkModel {
        loss: if from == 0 { Chance::ALWAYS } else { Chance::NEVER },
        ..LinkModel::new(Duration::from_millis(1))
    });
    let mut pair = Graph::new(links.unwrap(), 1, |node| beacon(node, Time::from_millis(500)));
    let schedule = "1 loss 0 1 1\n2 loss 1 0 0\n3 end-loss 0 1\n4 end-loss 0 1\n5 clock 0 9 0";
    let (received, _) = run(&mut pair, schedule, 4, 4);
    assert_eq!(received, [Some(3), Some(1)]);
    assert_eq!(pair.local_time(0), Time::from_secs(4));
}

#[test]
fn a_fault_of_a_node_that_does_not_exist_is_an_error() {
    for fault in ["crash 3", "start 3", "split 3 1", "join 3 1", "clock 3 1 0"] {
        let mut faults = Faults::new(Schedule::parse(&format!("1 {fault}")).unwrap());
        let result =
            faults.run_until(&mut graph(&Topology::line(3)), Time::from_secs(2), |n, _, t| {
                beacon(n, t)
            });
        assert_eq!(result, Err(Error::Unknown { what: "node", index: 3 }), "{fault}");
    }
}

/// Runs with the same seed are equal, however they are interrupted and whether the schedule is drawn or parsed
/// from its text.
#[test]
fn a_run_with_faults_repeats() {
    let topology = Topology::grid(20, 20);
    let outages = |per_minute| Outages { per_minute, median: Duration::from_secs(3) };
    let second = Duration::from_secs;
    let rates = FaultRates {
        crashes: outages(30.0),
        flaps: outages(200.0),
        losses: (outages(100.0), Chance::new(0.5).unwrap()),
        splits: outages(5.0),
        churn: Some(Churn { session: second(60), absence: second(5) }),
        skew: Some(Skew { ahead: second(3), drift_ppm: 1_000 }),
        ..FaultRates::new(Time::from_secs(5), Time::from_secs(55))
    };
    let schedule = rates.draw(graph(&topology).adjacency(), 3).unwrap();
    let all = |schedule: &Schedule, step| {
        let mut grid = graph(&topology);
        let lives = run(&mut grid, &schedule.to_string(), 60, step).1;
        let is_whole = (0..400).all(|node| grid.node(node).is_some() && !grid.is_cut(node, 0));
        assert!(is_whole, "every fault has ended");
        (grid.totals(), lives)
    };
    let once = all(&schedule, 60);
    assert_eq!(once, all(&schedule, 7));
    let other = rates.draw(graph(&topology).adjacency(), 4).unwrap();
    assert_ne!(once.0.trace, all(&other, 60).0.trace);
    assert!(once.0.undelivered > 1_000 && once.0.lost > 100 && once.1.len() > 100);
}
