//! The tables `[[flow]]`: traffic, times and transport of each flow.

use super::document::{Document, Location};
use super::keys::{Deal, Ns2Keys, SctpKeys, SctpNs2Keys, TcpKeys};
use crate::ns2;
use ringway_document::Problem;
use ringway_link::{Rate, Size, Span};
use ringway_sctp::Reliability;
use ringway_sim::traffic::Stay;
use ringway_tcp::Settings;
use serde::{Deserialize, Serialize};

/// Minimum size of a message in bytes: its number and the time it was written.
pub const MIN_MESSAGE: u64 = 16;
/// Maximum size of a message in bytes.
pub const MAX_MESSAGE: u64 = 65_535;
/// Maximum size of a file in bytes.
pub const MAX_SIZE: u64 = 1 << 40;

/// Transport of a flow. A new transport needs a variant here and a file in `run/transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// UDP datagrams.
    Udp,
    /// TCP according to the RFCs.
    Tcp,
    /// The one-way TCP of ns-2.
    TcpNs2,
    /// SCTP according to RFC 9260.
    Sctp,
    /// The one-way SCTP of ns-2.
    SctpNs2,
}

impl Transport {
    /// Returns the name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::TcpNs2 => "tcp-ns2",
            Transport::Sctp => "sctp",
            Transport::SctpNs2 => "sctp-ns2",
        }
    }
}

/// Distribution of the lengths of bursts and silences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StayKind {
    Fixed,
    Exponential,
    Pareto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Cbr,
    Poisson,
    OnOff,
    Bulk,
    File,
    RequestResponse,
}

impl Kind {
    /// Returns the keys of this traffic, besides those of every flow.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Kind::Cbr | Kind::Poisson => &["rate", "packet", "packets", "stop"],
            Kind::OnOff => &["rate", "packet", "packets", "stop", "on", "off", "stay", "shape"],
            Kind::Bulk => &["stop", "packet"],
            Kind::File => &["size", "packet"],
            Kind::RequestResponse => {
                &["request", "response", "requests", "think", "timeout", "stop"]
            }
        }
    }
}

/// Traffic of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// Messages at regular or random times.
    Messages {
        /// Size of a message in bytes: of the whole IP packet over UDP, of the data over a stream.
        packet: Size,
        /// Mean bit rate of the messages; within a burst, if there are bursts.
        rate: Rate,
        /// Distribution of the messages in time.
        pattern: Pattern,
        /// Maximum number of messages.
        max_packets: u64,
    },
    /// As much data as possible.
    Bulk,
    /// A file.
    File {
        /// Size in bytes.
        size: Size,
    },
    /// Requests and responses, one at a time.
    RequestResponse {
        /// Size of a request in bytes.
        request: Size,
        /// Size of a response in bytes.
        response: Size,
        /// Number of requests.
        requests: u64,
        /// Time from a response to the next request.
        think: Span,
        /// Time limit of a response, over datagrams.
        timeout: Span,
    },
}

/// Distribution of messages in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// At a constant rate.
    Constant,
    /// At independent, exponentially distributed intervals.
    Poisson,
    /// In bursts.
    OnOff {
        /// Mean length of a burst.
        on: Span,
        /// Mean length of a silence.
        off: Span,
        /// Distribution of both lengths.
        stay: Stay,
    },
}

/// A flow from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name of the flow.
    pub name: String,
    /// Index of the node at which it begins.
    pub from: usize,
    /// Index of the node at which it ends.
    pub to: usize,
    /// Transport.
    pub transport: Transport,
    /// Traffic.
    pub traffic: Traffic,
    /// Time at which it begins.
    pub start: Span,
    /// Time after which nothing more is sent.
    pub stop: Option<Span>,
    /// Whether its packets are marked ECN-capable (datagrams; TCP has its own setting).
    pub ecn: bool,
    /// Settings of TCP.
    pub tcp: Settings,
    /// Settings of ns-2's TCP.
    pub ns2: ns2::tcp::Settings,
    /// Settings of SCTP, and the use of its streams and paths.
    pub sctp: Sctp,
    /// Settings of ns-2's SCTP.
    pub sctp_ns2: ns2::sctp::Settings,
    /// Over ns-2's SCTP: whether packets without data count, and the delay of each packet counts
    /// from its own transmission. Otherwise a delay counts from the first transmission of a TSN.
    pub every_packet: bool,
}

/// Use of SCTP by a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Sctp {
    /// Settings of the association.
    pub settings: ringway_sctp::Settings,
    /// Number of streams for messages.
    pub streams: u16,
    /// Whether messages are delivered in the order of arrival.
    pub unordered: bool,
    /// Links by which the paths leave the first node, the primary path's link first; empty for the
    /// cheapest path only.
    pub paths: Vec<usize>,
    /// Time at which the association, which begins with the first path alone, moves to the second (RFC 5061).
    pub moves: Option<Span>,
    /// Selection of the stream of a message.
    pub deal: Deal,
    /// Condition under which a message is abandoned.
    pub reliability: Reliability,
    /// Priorities or weights of the first streams.
    pub values: Vec<u16>,
    /// Size in bytes of the messages into which a file or bulk data is divided.
    pub message: u16,
}

impl Flow {
    /// Returns whether the traffic ends without a stop time.
    pub fn has_end(&self) -> bool {
        match self.traffic {
            Traffic::File { .. } => true,
            Traffic::Bulk => false,
            Traffic::Messages { max_packets, .. } => max_packets != u64::MAX,
            Traffic::RequestResponse { requests, .. } => requests != u64::MAX,
        }
    }
}

/// The table as written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raw {
    pub(crate) name: String,
    pub(crate) from: String,
    pub(crate) to: String,
    transport: Transport,
    traffic: Kind,
    #[serde(default)]
    start: Span,
    stop: Option<Span>,
    rate: Option<Rate>,
    packet: Option<Size>,
    packets: Option<u64>,
    on: Option<Span>,
    off: Option<Span>,
    stay: Option<StayKind>,
    shape: Option<f64>,
    size: Option<Size>,
    request: Option<Size>,
    response: Option<Size>,
    requests: Option<u64>,
    think: Option<Span>,
    timeout: Option<Span>,
    #[serde(default)]
    ecn: bool,
    tcp: Option<TcpKeys>,
    ns2: Option<Ns2Keys>,
    pub(crate) sctp: Option<SctpKeys>,
    sctp_ns2: Option<SctpNs2Keys>,
}

impl Raw {
    /// Checks the table; reports problems and returns `None` if there are any.
    pub(crate) fn check(
        self,
        document: &Document<'_>,
        index: usize,
        problems: &mut Vec<Problem>,
    ) -> Option<Flow> {
        let before = problems.len();
        let mut wrong = |key: &str, what: String| {
            let location = Location { section: "flow", index: Some(index), key };
            problems.push(document.blame(location, what));
        };
        let given = [
            ("rate", self.rate.is_some()),
            ("packet", self.packet.is_some()),
            ("packets", self.packets.is_some()),
            ("stop", self.stop.is_some()),
            ("on", self.on.is_some()),
            ("off", self.off.is_some()),
            ("stay", self.stay.is_some()),
            ("shape", self.shape.is_some()),
            ("size", self.size.is_some()),
            ("request", self.request.is_some()),
            ("response", self.response.is_some()),
            ("requests", self.requests.is_some()),
            ("think", self.think.is_some()),
            ("timeout", self.timeout.is_some()),
        ];
        let known = self.traffic.keys();
        for (key, is_given) in given {
            if is_given && !known.contains(&key) {
                let known = known.join(", ");
                wrong(key, format!("not a key of this traffic, which knows: {known}"));
            }
        }
        for (key, is_given, transport) in [
            ("tcp", self.tcp.is_some(), Transport::Tcp),
            ("ns2", self.ns2.is_some(), Transport::TcpNs2),
            ("sctp", self.sctp.is_some(), Transport::Sctp),
            ("sctp_ns2", self.sctp_ns2.is_some(), Transport::SctpNs2),
        ] {
            if is_given && self.transport != transport {
                let (other, own) = (transport.as_str(), self.transport.as_str());
                wrong(
                    key,
                    format!("settings of transport \"{other}\", but this flow has \"{own}\""),
                );
            }
        }
        let datagrams = self.transport == Transport::Udp;
        if self.ecn && !datagrams {
            let what = "expected with transport \"udp\" only; others have `tcp.ecn` and `sctp.ecn`";
            wrong("ecn", what.into());
        }
        let mut span = |key: &str, value: Option<Span>, default: Option<Span>, positive: bool| {
            match value.or(default) {
                None => wrong("", format!("the key `{key}` is missing")),
                Some(s) if s > super::MAX_TIME || (positive && s == Span(0)) => {
                    let least = if positive { "more than 0 s and " } else { "" };
                    wrong(key, format!("expected {least}at most {}, got {s}", super::MAX_TIME));
                }
                Some(s) => return s,
            }
            Span(1)
        };
        span("start", Some(self.start), None, false);
        span("stop", self.stop, Some(Span(0)), false);
        let traffic = match self.traffic {
            Kind::Cbr | Kind::Poisson | Kind::OnOff => {
                let pattern = match self.traffic {
                    Kind::Cbr => Pattern::Constant,
                    Kind::Poisson => Pattern::Poisson,
                    _ => {
                        let on = span("on", self.on, None, true);
                        let off = span("off", self.off, None, true);
                        let shape = self.shape.unwrap_or(1.5);
                        let stay = match self.stay.unwrap_or(StayKind::Exponential) {
                            StayKind::Fixed => Stay::Fixed,
                            StayKind::Exponential => Stay::Exponential,
                            StayKind::Pareto => Stay::Pareto(shape),
                        };
                        if !(shape > 1.0 && shape <= 100.0) {
                            wrong(
                                "shape",
                                format!("expected more than 1 and at most 100, got {shape}"),
                            );
                        }
                        if self.shape.is_some() && self.stay != Some(StayKind::Pareto) {
                            wrong("shape", "expected with stay = \"pareto\" only".into());
                        }
                        Pattern::OnOff { on, off, stay }
                    }
                };
                let packet = self.packet.unwrap_or(Size(1000));
                let least = MIN_MESSAGE + if datagrams { 28 } else { 0 };
                if !(least..=MAX_MESSAGE).contains(&packet.0) {
                    wrong("packet", format!("expected {least} B to {MAX_MESSAGE} B, got {packet}"));
                }
                let rate = self.rate.unwrap_or(Rate(1));
                if self.rate.is_none() {
                    wrong("", "the key `rate` is missing, such as \"448 kbit/s\"".into());
                } else if rate.0 == 0 || rate.is_unlimited() {
                    wrong("rate", format!("expected a bit rate above 0 and limited, got {rate}"));
                }
                Traffic::Messages {
                    packet,
                    rate,
                    pattern,
                    max_packets: self.packets.unwrap_or(u64::MAX),
                }
            }
            Kind::Bulk => Traffic::Bulk,
            Kind::File => {
                let size = self.size.unwrap_or(Size(1));
                if self.size.is_none() {
                    wrong("", "the key `size` is missing, such as \"10 MB\"".into());
                } else if !(1..=MAX_SIZE).contains(&size.0) {
                    wrong("size", format!("expected 1 B to {MAX_SIZE} B, got {size}"));
                }
                Traffic::File { size }
            }
            Kind::RequestResponse => {
                let think = span("think", self.think, Some(Span(0)), false);
                let timeout = span("timeout", self.timeout, Some(Span::from_secs(5)), true);
                let mut size = |key: &str, value: Option<Size>, default| {
                    let size = value.unwrap_or(Size(default));
                    let max = if datagrams { MAX_MESSAGE } else { MAX_SIZE };
                    let least = MIN_MESSAGE + if datagrams { 28 } else { 0 };
                    if !(least..=max).contains(&size.0) {
                        wrong(key, format!("expected {least} B to {max} B, got {size}"));
                    }
                    size
                };
                let request = size("request", self.request, 200);
                let response = size("response", self.response, 1000);
                let requests = self.requests.unwrap_or(u64::MAX);
                Traffic::RequestResponse { request, response, requests, think, timeout }
            }
        };
        match (self.transport, self.traffic) {
            (Transport::Udp, Kind::Bulk | Kind::File) => {
                let what = "needs a transport with congestion control, such as \"tcp\" or \"sctp\"";
                wrong("transport", format!("this traffic {what}"));
            }
            (Transport::TcpNs2 | Transport::SctpNs2, Kind::RequestResponse) => {
                let own = self.transport.as_str();
                let what = format!(
                    "\"{own}\" goes one way: request-response needs \"tcp\", \"sctp\" or \"udp\""
                );
                wrong("transport", what);
            }
            (Transport::Tcp | Transport::TcpNs2 | Transport::SctpNs2, Kind::Bulk | Kind::File)
                if self.packet.is_some() =>
            {
                wrong("packet", "expected with transport \"sctp\" only".into());
            }
            _ => {}
        }
        let tcp = self.tcp.unwrap_or_default().settings();
        if let Err(error) = tcp.check() {
            wrong("tcp", error.to_string());
        }
        let ns2 = self.ns2.unwrap_or_default();
        if let Err((key, what)) = ns2.check() {
            wrong(&format!("ns2.{key}"), what.into());
        }
        let sctp = self.sctp.unwrap_or_default();
        let settings = sctp.settings();
        if let Err(error) = settings.check() {
            wrong("sctp", error.to_string());
        }
        let streams = sctp.streams.unwrap_or(1);
        if streams == 0 || streams > settings.outbound_streams {
            let max = settings.outbound_streams;
            wrong("sctp.streams", format!("expected 1 to {max}, got {streams}"));
        }
        if let Some((key, what)) = sctp.check(streams, self.traffic != Kind::File) {
            wrong(&format!("sctp.{key}"), what);
        }
        let sctp_ns2 = self.sctp_ns2.unwrap_or_default();
        if let Err((key, what)) = sctp_ns2.check() {
            wrong(&format!("sctp_ns2.{key}"), what.into());
        }
        let message = self.packet.unwrap_or(Size(1000)).0;
        if !(MIN_MESSAGE..=MAX_MESSAGE).contains(&message) {
            wrong(
                "packet",
                format!("expected {MIN_MESSAGE} B to {MAX_MESSAGE} B, got {message} B"),
            );
        }
        if self.transport == Transport::SctpNs2
            && message > u64::from(ns2::sctp::Settings::default().mtu) - 48
        {
            wrong("packet", "expected a message that fits into 1500 B with its headers".into());
        }
        let packet = match traffic {
            Traffic::Messages { packet, .. } => packet.0 as u16,
            _ => ns2::tcp::Settings::default().packet,
        };
        (problems.len() == before).then(|| Flow {
            name: self.name,
            from: 0,
            to: 0,
            transport: self.transport,
            traffic,
            start: self.start,
            stop: self.stop,
            ecn: self.ecn,
            tcp,
            ns2: ns2.settings(packet),
            sctp: Sctp {
                settings,
                streams,
                unordered: sctp.unordered,
                paths: Vec::new(),
                moves: sctp.moves,
                deal: sctp.deal,
                reliability: sctp.reliability(),
                values: sctp.values(),
                message: message as u16,
            },
            sctp_ns2: sctp_ns2.settings(message as u16),
            every_packet: sctp_ns2.every_packet,
        })
    }
}
