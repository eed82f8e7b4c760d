//! The measures of a run: figures of each flow and each link, with their names.

use serde::Serialize;
use std::collections::BTreeMap;

/// Times from sending to arrival, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Delay {
    /// Mean.
    pub mean: f64,
    /// Variance of the measured delays, in s^2.
    pub variance: f64,
    /// Minimum.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Messages, or requests and responses, of the program above a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Messages {
    /// Messages written, or requests sent.
    pub written: u64,
    /// Messages delivered to the program at the other end.
    pub delivered: u64,
    /// Messages not written because too many were waiting.
    pub refused: u64,
    /// Time from writing to delivery; for requests, to the complete response.
    pub delay: Option<Delay>,
}

/// The reverse direction of a flow: acknowledgments, responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Back {
    /// Packets sent.
    pub sent: u64,
    /// Packets duplicated by links.
    pub copied: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Dropped packets by reason.
    pub dropped_by: BTreeMap<&'static str, u64>,
    /// Packets in flight at the cut.
    pub in_flight: u64,
}

/// The figures of one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowMeasures {
    /// Name of the flow.
    pub flow: String,
    /// Transport of the flow.
    pub transport: &'static str,
    /// Packets sent by the sender, retransmissions included.
    pub sent: u64,
    /// Packets duplicated by links.
    pub copied: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Dropped packets by reason.
    pub dropped_by: BTreeMap<&'static str, u64>,
    /// Packets in flight when the run ended. `sent + copied` is the sum of these three.
    pub in_flight: u64,
    /// Packets that arrived without new data.
    pub duplicates: u64,
    /// Packets that arrived damaged and were discarded.
    pub damaged: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
    /// Number of expirations of a retransmission timer.
    pub timeouts: u64,
    /// Number of times TCP held new data back because its limit of tracked segments in flight was
    /// reached.
    pub window_full: u64,
    /// Delay of the packets that arrived.
    pub delay: Option<Delay>,
    /// Received bits per second, with IP headers, from the first packet sent to the last one
    /// received.
    pub throughput: Option<f64>,
    /// Bits per second of data delivered to the program, from the flow's start to its end or the
    /// cut.
    pub goodput: f64,
    /// Bytes of data delivered to the program.
    pub bytes: u64,
    /// Seconds from the flow's start to its end; `None` if it did not end.
    pub completion: Option<f64>,
    /// Reason of the failure, if it failed.
    pub failed: Option<&'static str>,
    /// Longest time between two deliveries of data to the program, in seconds, or from the last one
    /// to the cut if more was expected; `None` if none was delivered.
    pub stall: Option<f64>,
    /// Messages of the program, if it sends any.
    pub messages: Option<Messages>,
    /// The reverse direction.
    pub back: Back,
}

/// Names of all figures of a flow, with their units.
pub const MEASURES: [(&str, &str); 30] = [
    ("sent", "packets"),
    ("delivered", "packets"),
    ("dropped", "packets"),
    ("in_flight", "packets"),
    ("copied", "packets"),
    ("duplicates", "packets"),
    ("damaged", "packets"),
    ("retransmits", "packets"),
    ("timeouts", ""),
    ("window_full", ""),
    ("loss_ratio", ""),
    ("delay_mean", "s"),
    ("delay_variance", "s^2"),
    ("delay_min", "s"),
    ("delay_p50", "s"),
    ("delay_p90", "s"),
    ("delay_p99", "s"),
    ("delay_max", "s"),
    ("throughput", "bit/s"),
    ("goodput", "bit/s"),
    ("completion", "s"),
    ("messages_written", ""),
    ("messages_delivered", ""),
    ("message_delay_mean", "s"),
    ("message_delay_p50", "s"),
    ("message_delay_p90", "s"),
    ("message_delay_p99", "s"),
    ("message_delay_max", "s"),
    ("stall", "s"),
    ("not_received", "packets"),
];

impl FlowMeasures {
    /// Returns a figure by its name; `None` if it has no value, such as a delay when nothing
    /// arrived.
    pub fn value(&self, name: &str) -> Option<f64> {
        let delay = self.delay.as_ref();
        let messages = self.messages.as_ref();
        Some(match name {
            "sent" => self.sent as f64,
            "delivered" => self.delivered as f64,
            "dropped" => self.dropped as f64,
            "in_flight" => self.in_flight as f64,
            "copied" => self.copied as f64,
            "duplicates" => self.duplicates as f64,
            "damaged" => self.damaged as f64,
            "retransmits" => self.retransmits as f64,
            "timeouts" => self.timeouts as f64,
            "window_full" => self.window_full as f64,
            // Of the packets that are no longer in flight.
            "loss_ratio" => match self.dropped + self.delivered {
                0 => return None,
                known => self.dropped as f64 / known as f64,
            },
            "delay_mean" => delay?.mean,
            "delay_variance" => delay?.variance,
            "delay_min" => delay?.min,
            "delay_p50" => delay?.p50,
            "delay_p90" => delay?.p90,
            "delay_p99" => delay?.p99,
            "delay_max" => delay?.max,
            "throughput" => self.throughput?,
            "goodput" => self.goodput,
            "completion" => self.completion?,
            "messages_written" => messages?.written as f64,
            "messages_delivered" => messages?.delivered as f64,
            "message_delay_mean" => messages?.delay?.mean,
            "message_delay_p50" => messages?.delay?.p50,
            "message_delay_p90" => messages?.delay?.p90,
            "message_delay_p99" => messages?.delay?.p99,
            "message_delay_max" => messages?.delay?.max,
            "stall" => self.stall?,
            "not_received" => self.sent.saturating_sub(self.delivered) as f64,
            _ => return None,
        })
    }

    /// Returns every figure that has a value, with its name.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, f64)> {
        MEASURES.iter().filter_map(|(name, _)| Some((*name, self.value(name)?)))
    }
}

/// Method by which replications of a figure are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Mean.
    Mean,
    /// Share of the first count in the sum of both, which are figures too.
    Ratio(&'static str, &'static str),
    /// Percentile, one per replication.
    Percentile,
}

/// Returns the kind of a figure.
pub fn kind(name: &str) -> Kind {
    match name {
        "loss_ratio" => Kind::Ratio("dropped", "delivered"),
        "delay_p50" | "delay_p90" | "delay_p99" | "message_delay_p50" | "message_delay_p90"
        | "message_delay_p99" => Kind::Percentile,
        _ => Kind::Mean,
    }
}

/// Returns the unit of a figure.
pub fn unit(name: &str) -> &'static str {
    MEASURES.iter().find(|m| m.0 == name).map_or("", |m| m.1)
}

/// The figures of one direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkMeasures {
    /// Name of the link.
    pub link: String,
    /// Node at the beginning of this direction.
    pub from: String,
    /// Node at the end of this direction.
    pub to: String,
    /// Packets offered to the link, including the copies it made.
    pub offered: u64,
    /// Packets sent.
    pub left: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets in the queue at the end.
    pub waiting: u64,
    /// Share of the time in which it was sending; `None` without a rate, or with a varying rate.
    pub utilisation: Option<f64>,
}
