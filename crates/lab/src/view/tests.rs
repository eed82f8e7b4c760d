//! Networks and scenes for the tests of this module, and the tests of reading.

#![allow(clippy::unwrap_used)]

use super::network::{Direction, FORMAT, Flow, Link, Network, Node};
use super::page::page;
use super::read::{Curve, Hop, Packet, Scene, read};
use super::{ViewError, network, tables};
use crate::commands::{RunArgs, run};
use std::path::{Path, PathBuf};

/// Returns a network of `nodes` nodes with these links and one flow.
pub(super) fn network(nodes: usize, links: &[[usize; 2]], (from, to): (usize, usize)) -> Network {
    let node = |n: usize| Node { name: format!("n{n}"), position: None };
    let link = |(n, between): (usize, &[usize; 2])| Link {
        name: format!("l{n}"),
        between: *between,
        there: Direction::default(),
        back: Direction { text: "1 Mbit/s".into(), down_ns: vec![[5, 9], [10, 12]] },
    };
    Network {
        format: FORMAT,
        title: "t".into(),
        version: "0".into(),
        seed: 1,
        ended_ns: 100,
        left_out: 0,
        nodes: (0..nodes).map(node).collect(),
        links: links.iter().enumerate().map(link).collect(),
        flows: vec![Flow { name: "f".into(), from, to, transport: "udp".into() }],
    }
}

/// Returns a scene of one packet in which every name is `name`.
pub(super) fn scene(name: &str) -> Scene {
    let mut network = network(2, &[[0, 1]], (0, 1));
    network.title = name.into();
    network.nodes[0].name = name.into();
    network.links[0].name = name.into();
    network.links[0].there.text = name.into();
    network.flows[0].name = name.into();
    let hop = Hop {
        lane: 0,
        packet: 0,
        node: 0,
        at: 3,
        waited: 1,
        sending: 2,
        flying: 3,
        lost: 1,
    };
    let curve = Curve {
        path: name.into(),
        at: vec![1],
        values: [vec![1.0], vec![f64::NAN], vec![0.0]],
        srtt: vec![0],
        ..Curve::default()
    };
    Scene {
        network,
        packets: vec![Packet { flow: 1, size: 1000, seq: 1, ..Packet::default() }],
        hops: vec![hop],
        words: vec![name.into()],
        reasons: vec![name.into()],
        curves: vec![curve],
    }
}
