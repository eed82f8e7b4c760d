//! Radio as the medium of a graph: nodes in a square that move and share airtime.
//!
//! A packet occupies the air around its sender, within its range, for its length at the rate. A node receives it if
//! it hears no other packet meanwhile and sends none. With carrier sense a node defers while it hears others; two
//! that begin in one slot still collide, and so do those that do not hear each other. A packet for one node that is not
//! received is sent again after a longer time. The model leaves out that acknowledgements take time and collide,
//! capture of the stronger packet, fading, interference beyond the range, and other rates. It is made for up to
//! 10,000 nodes.
//!
//! A node's index of a neighbour is the neighbour's number. Read [`air`] for what happens to packets, and [`motion`]
//! for where nodes are.

pub mod air;
mod grid;
pub mod motion;

pub use air::Air;
pub use motion::Waypoints;

use super::node::GraphNode;
use super::oracle::Oracle;
use super::random::uniform;
use super::world::Graph;
use crate::error::Error;
use crate::graph::engine::mix;
use ringway_link::{Chance, Rate};
use ringway_sansio::{Duration, SplitMix};

/// Maximum number of nodes, whose numbers are indices of neighbours.
pub const MAX_RADIO_NODES: usize = u16::MAX as usize;

/// A world of radio.
pub type Radio<N> = Graph<N, Air>;

/// What all nodes of a world of radio have in common. Lengths are in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RadioConfig {
    /// Side of the square that nodes are in.
    pub side: f64,
    /// Distance up to which packets are heard.
    pub range: f64,
    /// Rate of all packets.
    pub rate: Rate,
    /// Time that a packet takes besides its bytes.
    pub overhead: Duration,
    /// Whether a node defers while it hears others.
    pub carrier_sense: bool,
    /// How often a packet for one node is sent again that was not received.
    pub retries: u8,
    /// Probability that a packet is not received although nothing disturbed it.
    pub loss: Chance,
    /// How nodes move; `None` if they do not.
    pub motion: Option<Waypoints>,
}

impl RadioConfig {
    /// Creates the configuration of nodes with carrier sense that do not move: 6 Mbit/s, 60 µs, and seven
    /// retries, about as in IEEE 802.11a.
    pub const fn new(side: f64, range: f64) -> Self {
        RadioConfig {
            side,
            range,
            rate: Rate(6_000_000),
            overhead: Duration::from_micros(60),
            carrier_sense: true,
            retries: 7,
            loss: Chance::NEVER,
            motion: None,
        }
    }

    /// Returns random positions in the square.
    pub fn positions(&self, nodes: u32, seed: u64) -> Vec<[f64; 2]> {
        let position = |node| {
            let mut random = SplitMix::new(mix(seed, node));
            [0, 1].map(|_| self.side * uniform(&mut random))
        };
        (0..nodes).map(position).collect()
    }

    fn check(&self, positions: &[[f64; 2]]) -> Result<(), Error> {
        let settings = |what: String| Err(Error::Settings { what });
        if !(self.side.is_finite() && self.side > 0.0) {
            return settings(format!("expected a side above 0 m, got {} m", self.side));
        }
        if !(self.range.is_finite() && self.range > 0.0) {
            return settings(format!("expected a range above 0 m, got {} m", self.range));
        }
        if self.rate == Rate(0) {
            return settings("expected a rate above 0, got 0 bit/s".into());
        }
        if let Some(Waypoints { min_speed, max_speed, .. }) = self.motion
            && !(min_speed > 0.0 && min_speed <= max_speed && max_speed.is_finite())
        {
            let got = format!("from {min_speed} to {max_speed} m/s");
            return settings(format!("expected speeds above 0 m/s in their order, got {got}"));
        }
        if positions.len() > MAX_RADIO_NODES {
            return Err(Error::TooMany { what: "nodes", max: MAX_RADIO_NODES as u64 });
        }
        let is_outside = |position: &&[f64; 2]| {
            !position.iter().all(|coordinate| (0.0..=self.side).contains(coordinate))
        };
        if let Some([x, y]) = positions.iter().find(is_outside) {
            let side = self.side;
            return settings(format!("expected a position from 0 to {side} m, got {x} and {y}"));
        }
        Ok(())
    }
}

impl<N: GraphNode> Radio<N> {
    /// Creates a world at time zero, none of whose nodes runs.
    pub fn radio(config: RadioConfig, positions: &[[f64; 2]], seed: u64) -> Result<Self, Error> {
        config.check(positions)?;
        let air = Air::new(config, positions, seed);
        Ok(Graph::over(air, positions.len() as u32, seed))
    }

    /// Returns where a node is now; `None` if there is no such node.
    pub fn position(&mut self, node: u32) -> Option<[f64; 2]> {
        let now = self.now();
        (node < self.len()).then(|| self.medium.position(node, now))
    }

    /// Returns the nodes within the range of a node now, running or not.
    pub fn neighbours(&mut self, node: u32) -> Vec<u32> {
        let now = self.now();
        if node < self.len() { self.medium.neighbours(node, now) } else { Vec::new() }
    }

    /// Returns the sum of the times that packets took in the air.
    pub fn airtime(&self) -> Duration {
        self.medium.airtime()
    }

    /// Returns the number of times that a node did not receive a packet because it heard another or sent one.
    pub fn collisions(&self) -> u64 {
        self.medium.collisions()
    }
}

impl Oracle {
    /// Creates an oracle from the nodes that run in a world of radio and from who hears whom now.
    pub fn of_radio<N: GraphNode>(radio: &mut Radio<N>) -> Self {
        let nodes = 0..radio.len();
        let runs: Vec<bool> = nodes.clone().map(|node| radio.node(node).is_some()).collect();
        let rows: Vec<Vec<u32>> = nodes.map(|node| radio.neighbours(node)).collect();
        Oracle::heard(runs, &rows)
    }
}

#[cfg(test)]
mod tests;
