//! The transports of flows: one file each.
//!
//! A transport attaches its endpoints to the two nodes of a flow and returns a [`RunningFlow`], by
//! which the run queries its state. A new transport needs a variant of [`Transport`], a file here,
//! and a match arm in [`attach`].

mod ns2;
mod sctp;
mod stream;
mod tcp;
mod udp;

use super::statistics::TimeStatistics;
use crate::scenario::{Flow, Pattern, Traffic, Transport};
use ringway_link::{Rate, Size, Streams};
use ringway_sansio::{Duration, Endpoint, Time};
use ringway_sim::traffic::{self, Source, SourceConfig};
use ringway_sim::{EndpointId, Error, NodeId, World};
use std::net::{IpAddr, SocketAddr};

/// Maximum number of messages that wait to be written; more are refused and counted.
const MAX_BACKLOG: usize = 1 << 20;

/// The two ends of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) nodes: [NodeId; 2],
    /// Addresses of the primary path.
    pub(crate) addresses: [SocketAddr; 2],
    /// Addresses of every path, the primary one first.
    pub(crate) paths: &'a [[IpAddr; 2]],
}

/// State of a sender. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SenderState {
    pub(crate) cwnd: f64,
    pub(crate) retransmits: u64,
    pub(crate) timeouts: u64,
    /// Number of times new data was held back by the transport's limit of segments in flight.
    pub(crate) window_full: u64,
}

/// The window of a sender on a path. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Local address of the path, where the transport has several.
    pub path: Option<IpAddr>,
    /// Congestion window.
    pub cwnd: f64,
    /// Slow start threshold, once there is one.
    pub ssthresh: Option<f64>,
    /// Data in flight.
    pub flight: f64,
    /// The smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
}

/// Counters of the programs at both ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramStats {
    /// Data bytes received, in order if the transport keeps order.
    pub(crate) bytes: u64,
    /// Packets without new data.
    pub(crate) duplicates: u64,
    pub(crate) damaged: u64,
    pub(crate) messages: bool,
    pub(crate) written: u64,
    pub(crate) delivered: u64,
    pub(crate) refused: u64,
    pub(crate) delay: TimeStatistics,
    /// Times at which data arrived at the program.
    pub(crate) progress: Progress,
    /// Time at which the flow ended.
    pub(crate) completed: Option<Time>,
    pub(crate) failed: Option<&'static str>,
}

/// Tracks the intervals between arrivals of data at a program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    last: Option<Time>,
    longest: Duration,
}

impl Progress {
    /// Records an arrival of new data.
    pub(crate) fn push(&mut self, now: Time) {
        self.longest = self.stall(Some(now)).unwrap_or_default();
        self.last = Some(now);
    }

    /// Returns the time of the last arrival.
    pub(crate) fn last(&self) -> Option<Time> {
        self.last
    }

    /// Returns the longest interval between two arrivals, or from the last one to `end` if more was
    /// expected; `None` before the first.
    pub(crate) fn stall(&self, end: Option<Time>) -> Option<Duration> {
        let last = self.last?;
        Some(self.longest.max(end.map_or(Duration::ZERO, |end| end.since(last))))
    }
}

/// Maximum number of a message for which duplicates are detected.
const MAX_NUMBER: u64 = 1 << 30;

/// Set of the message numbers that have arrived.
#[derive(Clone, Debug, Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    /// Adds a number; returns whether it is new.
    fn is_new(&mut self, number: u64) -> bool {
        if number >= MAX_NUMBER {
            return true;
        }
        let (word, bit) = ((number / 64) as usize, 1u64 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }
}

/// A flow in a running world.
pub(crate) trait RunningFlow {
    /// Returns the counters of the programs.
    fn stats(&self, world: &World) -> ProgramStats;
    /// Returns the state of the sender.
    fn sender_state(&self, world: &World) -> Option<SenderState>;
    /// Returns the windows of the sender, one for each path; none without a connection.
    fn windows(&self, _: &World) -> Vec<Window> {
        Vec::new()
    }
    /// Returns whether the flow has ended, successfully or not, according to its ends.
    fn is_done(&self, world: &World) -> bool;
}

/// Attaches a flow to a world.
pub(crate) fn attach(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn RunningFlow>, Error> {
    match flow.transport {
        Transport::Udp => udp::attach(world, flow, ends, streams),
        Transport::Tcp => tcp::attach(world, flow, ends, streams),
        Transport::TcpNs2 => ns2::attach_tcp(world, flow, ends, streams),
        Transport::Sctp => sctp::attach(world, flow, ends, streams),
        Transport::SctpNs2 => ns2::attach_sctp(world, flow, ends, streams),
    }
}

/// Returns the configuration of a UDP message source; other transports use the same times.
fn source_config(flow: &Flow, ends: Ends<'_>) -> SourceConfig {
    let (packet, pattern, max_packets) = match flow.traffic {
        Traffic::Messages { packet, rate, pattern, max_packets } => {
            (packet, times(pattern, rate), max_packets)
        }
        _ => (Size(1000), traffic::Pattern::Constant(Rate(1)), 0),
    };
    let start = Time::ZERO + Duration::from(flow.start);
    SourceConfig {
        packet,
        pattern,
        max_packets,
        start,
        stop: stop(flow),
        ecn: if flow.ecn { ringway_sansio::Ecn::Ect0 } else { ringway_sansio::Ecn::NotEct },
        ..SourceConfig::ns2(ends.addresses[0], ends.addresses[1])
    }
}

fn times(pattern: Pattern, rate: Rate) -> traffic::Pattern {
    match pattern {
        Pattern::Constant => traffic::Pattern::Constant(rate),
        Pattern::Poisson => traffic::Pattern::Poisson(rate),
        Pattern::OnOff { on, off, stay } => traffic::Pattern::OnOff { rate, on, off, stay },
    }
}

fn start(flow: &Flow) -> Time {
    Time::ZERO + Duration::from(flow.start)
}

fn stop(flow: &Flow) -> Time {
    flow.stop.map_or(Time::from_nanos(u64::MAX), |stop| Time::ZERO + Duration::from(stop))
}

/// Returns the times at which messages are due, from a source whose packets are not sent.
struct Clock {
    source: Source,
    scratch: Vec<u8>,
}

impl Clock {
    fn new(flow: &Flow, ends: Ends<'_>, streams: &Streams) -> Self {
        let source = Source::new(source_config(flow, ends), streams.stream(&source_name(flow)));
        Clock { source, scratch: Vec::new() }
    }

    fn next(&self) -> Option<Time> {
        self.source.poll_timeout()
    }

    /// Returns the number of messages that are due.
    fn due(&mut self, now: Time) -> u64 {
        let mut due = 0;
        while self.source.poll_timeout().is_some_and(|at| at <= now) {
            self.source.handle_timeout(now);
            self.scratch.clear();
            due += u64::from(self.source.poll_transmit(now, &mut self.scratch).is_some());
        }
        due
    }
}

/// Returns the name of the random stream of a flow's source. It depends on the flow only, so that
/// another transport or another link gets the same times (common random numbers).
fn source_name(flow: &Flow) -> String {
    format!("{}/source", flow.name)
}

/// Returns an endpoint of a world by its type.
fn endpoint<T: ringway_sim::Plug>(world: &World, id: EndpointId) -> Option<&T> {
    world.endpoint::<T>(id)
}
