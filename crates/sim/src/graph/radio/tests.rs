//! Packets in the air.

use super::*;
use crate::graph::baseline::Aodv;
use crate::graph::{Destination, Trial, node_random};
use ringway_sansio::Time;

/// Sends `packets` packets of 700 bytes to one node or all, as fast as the air takes them.
struct Talker {
    to: Destination,
    packets: u32,
    heard: Vec<u16>,
    next: Time,
    is_due: bool,
}

/// Time that a packet takes: 60 us and 700 bytes at 6 Mbit/s.
const AIRTIME: Duration = Duration::from_nanos(60_000 + 933_333);

impl GraphNode for Talker {
    fn handle_packet(&mut self, _: Time, from: u16, _: &mut [u8]) {
        self.heard.push(from);
    }
    fn handle_timeout(&mut self, now: Time) {
        self.next = now + AIRTIME + Duration::from_nanos(1);
        self.packets -= 1;
        self.is_due = true;
    }
    fn poll_timeout(&self) -> Option<Time> {
        (self.packets > 0).then_some(self.next)
    }
    fn poll_transmit(&mut self, _: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        core::mem::take(&mut self.is_due).then(|| {
            bytes.resize(700, 0);
            self.to
        })
    }
    fn heap_bytes(&self) -> usize {
        self.heard.capacity() * size_of::<u16>()
    }
}

/// Nodes at positions, of which some talk to a node.
fn talkers(
    config: RadioConfig,
    positions: &[[f64; 2]],
    talkers: &[u32],
    to: Destination,
    packets: u32,
) -> Radio<Talker> {
    let mut radio = Radio::radio(config, positions, 1).unwrap();
    for node in 0..radio.len() {
        let packets = if talkers.contains(&node) { packets } else { 0 };
        let talker = Talker { to, packets, heard: Vec::new(), next: Time::ZERO, is_due: false };
        radio.start(node, talker).unwrap();
    }
    radio
}

const CONFIG: RadioConfig = RadioConfig::new(1_000.0, 100.0);

/// Returns how many packets of each node another has heard.
fn heard(radio: &Radio<Talker>, node: u32, of: u16) -> usize {
    radio.node(node).unwrap().heard.iter().filter(|from| **from == of).count()
}

#[test]
fn one_talker_has_the_air_for_itself() {
    let positions = [[0.0, 0.0], [99.0, 0.0], [101.0, 0.0]];
    let free = RadioConfig { carrier_sense: false, ..CONFIG };
    let mut radio = talkers(free, &positions, &[0], Destination::Neighbours, 100);
    radio.run_until(Time::ZERO + 101 * AIRTIME).unwrap();
    // The farther one is out of range.
    let all = [1, 2].map(|node| radio.node(node).unwrap().heard.len());
    assert_eq!((all, radio.collisions(), radio.in_flight()), ([100, 0], 0, 0));
    assert_eq!(radio.airtime(), 100 * AIRTIME);
    assert_eq!((radio.neighbours(1), radio.neighbours(9)), (vec![0, 2], vec![]));
    assert_eq!((radio.position(2), radio.position(3)), (Some([101.0, 0.0]), None));
}

/// Of n talkers that hear each other each gets its share of the air. Two collide when they choose one slot of
/// sixteen.
#[test]
fn neighbours_share_the_airtime() {
    for talking in [2, 5, 10u32] {
        let positions: Vec<[f64; 2]> =
            (0..=talking).map(|node| [500.0 + f64::from(node), 500.0]).collect();
        let all: Vec<u32> = (1..=talking).collect();
        let config = RadioConfig { retries: 0, ..CONFIG };
        let mut radio = talkers(config, &positions, &all, Destination::Neighbour(0), 1 << 20);
        radio.run_until(Time::from_secs(10)).unwrap();
        let each: Vec<usize> = all.iter().map(|node| heard(&radio, 0, *node as u16)).collect();
        let sum: usize = each.iter().sum();
        // 10 s have room for 10,067 packets without gaps.
        let expected = 9_600.0 * (15.0f64 / 16.0).powi(talking as i32 - 1);
        assert!((0.85..1.05).contains(&(sum as f64 / expected)), "{talking} talkers: {each:?}");
        let share = sum / talking as usize;
        assert!(each.iter().all(|n| n.abs_diff(share) < share / 4), "{each:?}");
        assert!(radio.totals().dropped > 0 && radio.totals().lost > 0);
    }
}

/// Two that do not hear each other disturb each other at the one between them.
#[test]
fn hidden_terminals_collide() {
    let positions = [[0.0, 0.0], [90.0, 0.0], [180.0, 0.0]];
    let run = |talking: &[u32], config, packets| {
        let mut radio = talkers(config, &positions, talking, Destination::Neighbour(1), packets);
        radio.run_until(Time::from_secs(2)).unwrap();
        (heard(&radio, 1, 0) + heard(&radio, 1, 2), radio.totals().lost)
    };
    let once = RadioConfig { retries: 0, ..CONFIG };
    assert_eq!(run(&[0], once, 60), (60, 0));
    let (received, lost) = run(&[0, 2], once, 60);
    assert!(received < 30 && received as u64 + lost == 120, "{received} {lost}");
    // Packets that are sent again after more and more time mostly arrive.
    let (received, lost) = run(&[0, 2], CONFIG, 60);
    assert!(received > 100 && received as u64 + lost == 120, "{received} {lost}");
    // Without carrier sense they send at the same time.
    let deaf = RadioConfig { carrier_sense: false, ..once };
    assert_eq!(run(&[0, 2], deaf, 60), (0, 120));
    // A node that sends does not receive.
    assert_eq!(run(&[0, 1], deaf, 60).0, 0);
}

#[test]
fn packets_of_a_node_that_stopped_are_released() {
    let positions = [[0.0, 0.0], [90.0, 0.0]];
    let mut radio = talkers(CONFIG, &positions, &[0], Destination::Neighbours, 1_000);
    radio.run_until(Time::from_millis(100)).unwrap();
    radio.stop(0).unwrap();
    radio.run_until(Time::from_millis(200)).unwrap();
    assert_eq!(radio.in_flight(), 0);
    assert!(heard(&radio, 1, 0) < 101);
}

#[test]
fn an_undisturbed_packet_is_lost_with_the_probability_of_loss() {
    let positions = [[0.0, 0.0], [90.0, 0.0]];
    let config = RadioConfig { loss: Chance::new(0.25).unwrap(), ..CONFIG };
    let mut radio = talkers(config, &positions, &[0], Destination::Neighbours, 1 << 20);
    radio.run_until(Time::from_secs(10)).unwrap();
    let (received, lost) = (heard(&radio, 1, 0) as f64, radio.totals().lost as f64);
    assert!((lost / (lost + received) - 0.25).abs() < 0.02, "{lost} {received}");
}

/// The same seed moves nodes in the same way, whoever sends meanwhile, and each is found by those in its range.
#[test]
fn movement_changes_neighbours_deterministically() {
    let motion = Waypoints { min_speed: 1.0, max_speed: 20.0, pause: Duration::from_secs(2) };
    let config = RadioConfig { motion: Some(motion), ..CONFIG };
    let positions = config.positions(400, 9);
    let neighbours = |talking: &[u32], steps: &[u64]| {
        let mut radio = talkers(config, &positions, talking, Destination::Neighbours, 1_000);
        let mut last = Vec::new();
        for second in steps {
            radio.run_until(Time::from_secs(*second)).unwrap();
            last = (0..400).map(|node| radio.neighbours(node)).collect::<Vec<_>>();
            let places: Vec<[f64; 2]> =
                (0..400).map(|node| radio.position(node).unwrap()).collect();
            let is_near = |a: u32, b: u32| {
                let [dx, dy] =
                    [0, 1].map(|axis| places[a as usize][axis] - places[b as usize][axis]);
                a != b && dx * dx + dy * dy <= 1e4
            };
            for (node, near) in (0..).zip(&last) {
                let expected: Vec<u32> = (0..400).filter(|other| is_near(node, *other)).collect();
                assert_eq!(*near, expected, "node {node} at {second} s");
            }
        }
        last
    };
    let quiet = neighbours(&[], &[30]);
    assert_eq!(quiet, neighbours(&[1, 2, 3], &[0, 1, 2, 3, 17, 30]));
    assert_ne!(quiet, neighbours(&[], &[0]));
}

#[test]
fn a_configuration_that_makes_no_sense_is_an_error() {
    let error = |config: RadioConfig, position: [f64; 2]| {
        Radio::<Talker>::radio(config, &[position], 1).unwrap_err().to_string()
    };
    let new = RadioConfig::new(10.0, 1.0);
    assert_eq!(error(RadioConfig::new(-1.0, 1.0), [0.0; 2]), "expected a side above 0 m, got -1 m");
    assert_eq!(
        error(RadioConfig::new(1.0, f64::NAN), [0.0; 2]),
        "expected a range above 0 m, got NaN m"
    );
    assert_eq!(error(new, [11.0, 0.0]), "expected a position from 0 to 10 m, got 11 and 0");
    let still = Waypoints { min_speed: 0.0, max_speed: 1.0, pause: Duration::ZERO };
    assert_eq!(
        error(RadioConfig { motion: Some(still), ..new }, [0.0; 2]),
        "expected speeds above 0 m/s in their order, got from 0 to 1 m/s"
    );
}

/// A routing protocol runs over radio as it does over links.
#[test]
fn routes_are_found_over_radio() {
    let config = RadioConfig::new(1_000.0, 140.0);
    let positions = config.positions(300, 4);
    let mut radio = Radio::radio(config, &positions, 4).unwrap();
    for node in 0..radio.len() {
        radio.start(node, Aodv::new(node, Time::ZERO, node_random(5, node, 0))).unwrap();
    }
    let oracle = Oracle::of_radio(&mut radio);
    assert!(oracle.parts().sizes().iter().max() > Some(&290));
    let pairs = oracle.pairs(5, 2, 2, &mut SplitMix::new(6));
    let mut trial = Trial::new(&radio);
    trial.send_all(&mut radio, &pairs, 100, Duration::from_secs(20)).unwrap();
    radio.run_until(Time::from_secs(40)).unwrap();
    let outcome = trial.outcome(&mut radio).unwrap();
    assert!(outcome.delivery() >= 0.8, "{outcome:?}");
    assert!((1.0..1.6).contains(&outcome.stretch()), "{outcome:?}");
}
