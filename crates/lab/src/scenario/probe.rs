//! The tables `[[probe]]`: what is looked at while a scenario runs.

use ringway_link::Span;
use serde::{Deserialize, Serialize};

/// Shortest time between two looks.
pub(super) const MIN_EVERY: Span = Span(10_000);

/// What a probe looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The delay of each packet of a flow, from its sending to its arrival.
    Delay,
    /// The delay of each message, from when it was due to its delivery to the program.
    MessageDelay,
    /// Bits a second of a flow that arrive, in steps.
    Throughput,
    /// The congestion window of a flow's sender.
    Cwnd,
    /// When each packet of a flow is sent, arrives or is lost, by its number.
    Sequence,
    /// Packets that wait for a link.
    Queue,
    /// Everything on a link, as pcapng.
    Capture,
    /// Every step of every packet, as Parquet.
    Packets,
}

impl What {
    /// As it stands in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            What::Delay => "delay",
            What::MessageDelay => "message-delay",
            What::Throughput => "throughput",
            What::Cwnd => "cwnd",
            What::Sequence => "sequence",
            What::Queue => "queue",
            What::Capture => "capture",
            What::Packets => "packets",
        }
    }

    /// Whether it looks at a flow.
    pub const fn of_flow(self) -> bool {
        matches!(
            self,
            What::Delay | What::MessageDelay | What::Throughput | What::Cwnd | What::Sequence
        )
    }

    /// Whether it looks at a link.
    pub const fn of_link(self) -> bool {
        matches!(self, What::Queue | What::Capture)
    }

    /// Whether it looks every so often.
    pub const fn has_every(self) -> bool {
        matches!(self, What::Throughput | What::Cwnd | What::Queue)
    }
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What it looks at.
    pub what: What,
    /// Which flow, for those that look at one.
    pub flow: Option<usize>,
    /// Which link, and whether from its first node to its second.
    pub link: Option<(usize, bool)>,
    /// How often.
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

/// The table as it stands in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raw {
    pub(crate) what: What,
    pub(crate) flow: Option<String>,
    pub(crate) link: Option<String>,
    pub(crate) direction: Option<Direction>,
    pub(crate) every: Option<Span>,
}
