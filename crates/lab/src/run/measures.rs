//! What a run gives: figures of each flow and each link, with their names.

use serde::Serialize;
use std::collections::BTreeMap;

/// Times from sending to arrival, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Delay {
    /// Mean.
    pub mean: f64,
    /// Variance of the delays measured, in s^2.
    pub variance: f64,
    /// Shortest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// Ninth decile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

/// Messages, questions and answers of the program above a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Messages {
    /// Written, or asked.
    pub written: u64,
    /// Delivered to the program at the other end.
    pub delivered: u64,
    /// Not written because too many waited already.
    pub refused: u64,
    /// From writing to delivery; of questions, to the whole answer.
    pub delay: Option<Delay>,
}

/// The other direction of a flow: acknowledgments, answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Back {
    /// Packets sent.
    pub sent: u64,
    /// Packets that links made of others.
    pub copied: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// The same by reason.
    pub dropped_by: BTreeMap<&'static str, u64>,
    /// Packets under way at the cut.
    pub in_flight: u64,
}

/// The figures of one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowMeasures {
    /// Its name.
    pub flow: String,
    /// What carried it.
    pub transport: &'static str,
    /// Packets its sender sent, those sent again included.
    pub sent: u64,
    /// Packets that links made of others.
    pub copied: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets that are gone.
    pub dropped: u64,
    /// The same by reason.
    pub dropped_by: BTreeMap<&'static str, u64>,
    /// Packets under way when the run ended. `sent + copied` is the sum of these three.
    pub in_flight: u64,
    /// Packets that arrived and brought nothing new.
    pub duplicates: u64,
    /// Packets that arrived damaged and were thrown away.
    pub damaged: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Times a retransmission timer expired.
    pub timeouts: u64,
    /// Times TCP held new data back because as many segments as it keeps account of were in flight.
    pub window_full: u64,
    /// Delay of the packets that arrived.
    pub delay: Option<Delay>,
    /// Bits a second that arrived, with IP headers, from the first packet sent to the last arrived.
    pub throughput: Option<f64>,
    /// Bits a second of data that the program got, from the flow's start to its end or the cut.
    pub goodput: f64,
    /// Bytes of data that the program got.
    pub bytes: u64,
    /// Seconds from the flow's start to its end; `None` of a flow that did not come to one.
    pub completion: Option<f64>,
    /// Why it failed, if it did.
    pub failed: Option<&'static str>,
    /// Longest time between two arrivals of data at the program, in seconds, and from the last to
    /// the cut if more was to come; `None` if none came.
    pub stall: Option<f64>,
    /// Messages of the program, where it sends any.
    pub messages: Option<Messages>,
    /// The other direction.
    pub back: Back,
}

/// Names of all figures of a flow that can be asked for by name, with their units.
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
    /// A figure by its name; `None` if there is none, as of a delay when nothing arrived.
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
            // Of the packets whose fate is known.
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

    /// Every figure there is, with its name.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, f64)> {
        MEASURES.iter().filter_map(|(name, _)| Some((*name, self.value(name)?)))
    }
}

/// How replications of a figure are taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By their mean.
    Mean,
    /// As the share of the first count in the sum of both, which are figures too.
    Ratio(&'static str, &'static str),
    /// As percentiles, one a replication.
    Percentile,
}

/// The kind of a figure.
pub fn kind(name: &str) -> Kind {
    match name {
        "loss_ratio" => Kind::Ratio("dropped", "delivered"),
        "delay_p50" | "delay_p90" | "delay_p99" | "message_delay_p50" | "message_delay_p90"
        | "message_delay_p99" => Kind::Percentile,
        _ => Kind::Mean,
    }
}

/// The unit of a figure.
pub fn unit(name: &str) -> &'static str {
    MEASURES.iter().find(|m| m.0 == name).map_or("", |m| m.1)
}

/// The figures of one direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkMeasures {
    /// The link's name.
    pub link: String,
    /// The node it leads from and the node it leads to.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Packets offered to it, copies it made included.
    pub offered: u64,
    /// Packets it sent.
    pub left: u64,
    /// Packets it dropped.
    pub dropped: u64,
    /// Packets that waited at the end.
    pub waiting: u64,
    /// Share of the time it was sending; `None` without a rate, or with one that changes.
    pub utilisation: Option<f64>,
}
