//! What an emulation reports of itself. The names of the keys are stable.

use ringway_link::LinkConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of an emulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Seconds since its start.
    pub seconds: f64,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Lines that are missing in the log, because the disk was too slow.
    pub log_lines_lost: u64,
    /// Both interfaces; none between TUN devices.
    pub interfaces: Vec<InterfaceReport>,
    /// From the first end to the second, and back.
    pub directions: [DirectionReport; 2],
}

/// One of the interfaces between which the link is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: InterfaceState,
    /// Its MTU in octets; 0 if it does not exist.
    pub mtu: u32,
    /// How often it has ceased to be up.
    pub interruptions: u64,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceState {
    /// It does not exist.
    Missing,
    /// It is configured to be down.
    Down,
    /// It cannot carry packets: its cable is not plugged in, say.
    NoCarrier,
    /// It can.
    Up,
}

impl InterfaceState {
    /// Returns the state in words.
    pub fn as_str(self) -> &'static str {
        match self {
            InterfaceState::Missing => "missing",
            InterfaceState::Down => "down",
            InterfaceState::NoCarrier => "no carrier",
            InterfaceState::Up => "up",
        }
    }
}

/// The state of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Name of the interface or device where packets come from.
    pub from: String,
    /// Name of the one where they go.
    pub to: String,
    /// Name of the link's random streams.
    pub link: String,
    /// Packets that have come.
    pub received: Amount,
    /// Packets that were sent.
    pub sent: Amount,
    /// Packets in the queue.
    pub queue: Amount,
    /// Packets in flight.
    pub in_flight: u64,
    /// Packets that the link has dropped, by the reason.
    pub dropped: BTreeMap<String, u64>,
    /// Copies that the link has made.
    pub copied: u64,
    /// Packets with an inverted bit.
    pub corrupted: u64,
    /// Packets that were marked as having experienced congestion.
    pub marked: u64,
    /// Packets that were lost otherwise, by the reason: limits of this program and of the system.
    pub lost: BTreeMap<String, u64>,
    /// Delays from the arrival of a packet to its sending.
    pub delay: Delays,
    /// The same of the last second.
    pub recent_delay: Delays,
    /// How exactly the decisions were carried out.
    pub error: Errors,
    /// The present parameters.
    pub parameters: LinkConfig,
}

/// A number of packets and their octets, with the IP header and without that of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Number of packets.
    pub packets: u64,
    /// Number of octets.
    pub octets: u64,
}

impl Amount {
    /// Adds a packet.
    pub(crate) fn add(&mut self, octets: usize) {
        self.packets += 1;
        self.octets += octets as u64;
    }
}

/// Quantiles of delays, in milliseconds; 0 without packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// The median.
    pub p50_ms: f64,
    /// The delay that 99 % of the packets do not exceed.
    pub p99_ms: f64,
}

/// How exactly the decisions were carried out; `None` where there is nothing to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Of the delay.
    pub delay: Option<DelayError>,
    /// Of the rate.
    pub rate: Option<RateError>,
    /// Of the loss.
    pub loss: Option<LossError>,
}

/// Time from the decided sending of a packet until the system had accepted it, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayError {
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// What 99 % do not exceed.
    pub p99_us: f64,
    /// What 99.9 % do not exceed.
    pub p99_9_us: f64,
    /// The largest.
    pub max_us: f64,
}

/// The rate of packets that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateError {
    /// Seconds that were measured.
    pub seconds: f64,
    /// Bits of the packets, by the time that was decided.
    pub decided_bits_per_s: f64,
    /// The same by the time that they took.
    pub measured_bits_per_s: f64,
    /// The difference, in per cent of the decided rate.
    pub percent: f64,
}

/// The loss at random.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossError {
    /// Packets that could be lost.
    pub packets: u64,
    /// Packets that were.
    pub lost: u64,
    /// The share that was configured, on average over the packets.
    pub configured: f64,
    /// The share that was lost.
    pub measured: f64,
    /// The interval in which the configured share is with a confidence of 95 % (Wilson 1927). `None` where losses depend
    /// on each other.
    pub interval: Option<[f64; 2]>,
}
