//! How flows are carried: a file for each transport.
//!
//! A transport puts its endpoints on the two nodes of a flow and gives a [`Carried`], by which the
//! run asks how it goes. To add one: a line in [`Transport`], a file here, and a line in
//! [`attach`].

mod ns2;
mod sctp;
mod stream;
mod tcp;
mod udp;

use super::thinned::Spread;
use crate::scenario::{Flow, Pattern, Traffic, Transport};
use ringway_link::{Rate, Size, Streams};
use ringway_sansio::{Duration, Endpoint, Time};
use ringway_sim::traffic::{self, Source, SourceConfig};
use ringway_sim::{EndpointId, Error, NodeId, World};
use std::net::{IpAddr, SocketAddr};

/// Messages that wait to be written; more are refused and counted.
const MAX_BACKLOG: usize = 1 << 20;

/// The two ends of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) nodes: [NodeId; 2],
    /// Of the primary path.
    pub(crate) addresses: [SocketAddr; 2],
    /// Of every path, the primary one first.
    pub(crate) paths: &'a [[IpAddr; 2]],
}

/// What a sender looks like now. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) cwnd: f64,
    pub(crate) retransmits: u64,
    pub(crate) timeouts: u64,
    /// Times new data was held back by the transport's bound on segments in flight.
    pub(crate) window_full: u64,
}

/// What the programs at both ends have seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Data bytes the receiver got, in order where the transport keeps order.
    pub(crate) bytes: u64,
    /// Packets that brought nothing new.
    pub(crate) duplicates: u64,
    pub(crate) damaged: u64,
    pub(crate) messages: bool,
    pub(crate) written: u64,
    pub(crate) delivered: u64,
    pub(crate) refused: u64,
    pub(crate) delay: Spread,
    /// When data came to the program.
    pub(crate) progress: Progress,
    /// When the flow came to its end.
    pub(crate) completed: Option<Time>,
    pub(crate) failed: Option<&'static str>,
}

/// How evenly data comes to a program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    last: Option<Time>,
    longest: Duration,
}

impl Progress {
    /// New data has come.
    pub(crate) fn push(&mut self, now: Time) {
        self.longest = self.stall(Some(now)).unwrap_or_default();
        self.last = Some(now);
    }

    /// When data came last.
    pub(crate) fn last(&self) -> Option<Time> {
        self.last
    }

    /// The longest time between two arrivals, and from the last to `end` if more was to come; `None`
    /// before the first.
    pub(crate) fn stall(&self, end: Option<Time>) -> Option<Duration> {
        let last = self.last?;
        Some(self.longest.max(end.map_or(Duration::ZERO, |end| end.since(last))))
    }
}

/// Highest number of a message whose coming again is noticed.
const MAX_NUMBER: u64 = 1 << 30;

/// Which numbered messages have come.
#[derive(Clone, Debug, Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    /// Whether this number is a new one.
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

/// A flow that runs.
pub(crate) trait Carried {
    /// What the programs have seen.
    fn seen(&self, world: &World) -> Seen;
    /// What the sender looks like.
    fn look(&self, world: &World) -> Option<Look>;
    /// Whether it has ended, well or not, as far as its ends know.
    fn is_done(&self, world: &World) -> bool;
}

/// Plugs a flow into a world.
pub(crate) fn attach(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn Carried>, Error> {
    match flow.transport {
        Transport::Udp => udp::attach(world, flow, ends, streams),
        Transport::Tcp => tcp::attach(world, flow, ends, streams),
        Transport::TcpNs2 => ns2::attach_tcp(world, flow, ends, streams),
        Transport::Sctp => sctp::attach(world, flow, ends, streams),
        Transport::SctpNs2 => ns2::attach_sctp(world, flow, ends, streams),
    }
}

/// What drives the sources of messages over UDP: the very times of those over other transports.
fn source_config(flow: &Flow, ends: Ends<'_>) -> SourceConfig {
    let (packet, pattern, most) = match flow.traffic {
        Traffic::Messages { packet, rate, pattern, most } => (packet, times(pattern, rate), most),
        _ => (Size(1000), traffic::Pattern::Constant(Rate(1)), 0),
    };
    let start = Time::ZERO + Duration::from(flow.start);
    SourceConfig {
        packet,
        pattern,
        max_packets: most,
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

/// Tells when messages are due, by a source whose packets nobody sends.
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

    /// Messages that are due.
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

/// The name of the random stream of a flow's source: the flow's, so that another transport or
/// another link sees the same times (common random numbers).
fn source_name(flow: &Flow) -> String {
    format!("{}/source", flow.name)
}

/// An endpoint of a world by its type.
fn endpoint<T: ringway_sim::Plug>(world: &World, id: EndpointId) -> Option<&T> {
    world.endpoint::<T>(id)
}
