//! The tables `[[probe]]`: observations made while a scenario runs.

use ringway_link::Span;
use serde::{Deserialize, Serialize};

/// Minimum interval between two samples.
pub(super) const MIN_EVERY: Span = Span(10_000);

/// Kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeKind {
    /// Delay of each packet of a flow, from its sending to its arrival.
    Delay,
    /// Delay of each message, from the time it was due to its delivery to the program.
    MessageDelay,
    /// Received bits per second of a flow, in intervals.
    Throughput,
    /// Congestion window of a flow's sender.
    Cwnd,
    /// Times at which each packet of a flow is sent, arrives or is lost, by its number.
    Sequence,
    /// Packets waiting in the queue of a link.
    Queue,
    /// All packets on a link, as pcapng.
    Capture,
    /// Every step of every packet, as Parquet.
    Packets,
}

impl ProbeKind {
    /// Returns the name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProbeKind::Delay => "delay",
            ProbeKind::MessageDelay => "message-delay",
            ProbeKind::Throughput => "throughput",
            ProbeKind::Cwnd => "cwnd",
            ProbeKind::Sequence => "sequence",
            ProbeKind::Queue => "queue",
            ProbeKind::Capture => "capture",
            ProbeKind::Packets => "packets",
        }
    }

    /// Returns whether it observes a flow.
    pub const fn of_flow(self) -> bool {
        matches!(
            self,
            ProbeKind::Delay
                | ProbeKind::MessageDelay
                | ProbeKind::Throughput
                | ProbeKind::Cwnd
                | ProbeKind::Sequence
        )
    }

    /// Returns whether it observes a link.
    pub const fn of_link(self) -> bool {
        matches!(self, ProbeKind::Queue | ProbeKind::Capture)
    }

    /// Returns whether it samples at intervals.
    pub const fn has_every(self) -> bool {
        matches!(self, ProbeKind::Throughput | ProbeKind::Cwnd | ProbeKind::Queue)
    }
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Kind.
    pub what: ProbeKind,
    /// Index of the flow, for kinds that observe one.
    pub flow: Option<usize>,
    /// Index of the link, and whether from its first node to its second.
    pub link: Option<(usize, bool)>,
    /// Interval between samples.
    pub every: Span,
}

/// Direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Direction {
    #[default]
    There,
    Back,
}

/// The table as written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raw {
    pub(crate) what: ProbeKind,
    pub(crate) flow: Option<String>,
    pub(crate) link: Option<String>,
    pub(crate) direction: Option<Direction>,
    pub(crate) every: Option<Span>,
}
