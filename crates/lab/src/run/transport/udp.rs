//! Flows over UDP: messages, and requests with responses.

use super::{
    Ends, Numbers, ProgramStats, Progress, RunningFlow, SenderState, endpoint, source_config,
    source_name, start, stop,
};
use crate::run::statistics::TimeStatistics;
use crate::scenario::{Flow, Traffic};
use ringway_link::Streams;
use ringway_sansio::{Addressing, Duration, Endpoint, Time};
use ringway_sim::headers::{self, UDP_HEADER};
use ringway_sim::traffic::{STAMP, Source};
use ringway_sim::{Bind, EndpointId, Error, World};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of responses that wait to be sent; more are dropped.
const MAX_RESPONSES: usize = 65_536;

pub(super) fn attach(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn RunningFlow>, Error> {
    let [local, remote] = ends.addresses;
    let binds = [Bind::udp(local.port()), Bind::udp(remote.port())];
    if let Traffic::RequestResponse { request, response, requests, think, timeout } = flow.traffic {
        let requester = Requester {
            local,
            remote,
            size: request.0 as usize,
            left: requests,
            stop: stop(flow),
            think: think.into(),
            timeout_after: timeout.into(),
            next: (requests > 0).then(|| start(flow)),
            requested: 0,
            due: false,
            waits_since: None,
            responded: 0,
            bytes: 0,
            delay: TimeStatistics::default(),
            ended: None,
        };
        let responder =
            Responder { local: remote, size: response.0 as usize, responses: VecDeque::new() };
        let requester = world.attach(ends.nodes[0], binds[0], requester)?;
        world.attach(ends.nodes[1], binds[1], responder)?;
        return Ok(Box::new(RequestFlow(requester)));
    }
    let source = Source::new(source_config(flow, ends), streams.stream(&source_name(flow)));
    let source = world.attach(ends.nodes[0], binds[0], source)?;
    let sink = world.attach(ends.nodes[1], binds[1], Sink::default())?;
    Ok(Box::new(MessageFlow { source, sink }))
}

/// Returns number and time of sending from a complete datagram whose checksum is correct or absent.
fn stamp(addressing: &Addressing, payload: &[u8]) -> Option<(u64, Time)> {
    // RFC 768: zero means that there is no checksum.
    if payload.get(6..8)? != [0, 0] {
        let sum = headers::pseudo_sum(addressing, payload.len()) + headers::sum(payload);
        if headers::fold(sum) != 0 {
            return None;
        }
    }
    let stamp = payload.get(UDP_HEADER..UDP_HEADER + STAMP)?;
    let (number, sent) = stamp.split_first_chunk::<8>()?;
    let sent = u64::from_be_bytes(*sent.first_chunk()?);
    Some((u64::from_be_bytes(*number), Time::from_nanos(sent)))
}

/// Writes a datagram of `size` bytes, which include its IP header.
fn write(
    payload: &mut Vec<u8>,
    [from, to]: [SocketAddr; 2],
    size: usize,
    number: u64,
    at: Time,
) -> Addressing {
    let addressing = headers::udp_between(from.ip(), to.ip());
    let overhead = headers::ip_header_len(&addressing) + UDP_HEADER;
    let data = size.saturating_sub(overhead).max(STAMP);
    payload.extend_from_slice(&headers::udp_header(from.port(), to.port(), data));
    payload.extend_from_slice(&number.to_be_bytes());
    payload.extend_from_slice(&at.as_nanos().to_be_bytes());
    payload.resize(UDP_HEADER + data, 0);
    let sum = headers::pseudo_sum(&addressing, payload.len()) + headers::sum(payload);
    // RFC 768: a checksum of zero is sent as all ones.
    let checksum = headers::fold(sum).max(u16::from(headers::fold(sum) == 0) * u16::MAX);
    payload[6..8].copy_from_slice(&checksum.to_be_bytes());
    addressing
}

/// Receives messages.
#[derive(Default)]
struct Sink {
    bytes: u64,
    delivered: u64,
    duplicates: u64,
    damaged: u64,
    delay: TimeStatistics,
    numbers: Numbers,
    last: Option<Time>,
    progress: Progress,
}

impl Endpoint for Sink {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        let Some((number, sent)) = stamp(&addressing, payload) else {
            self.damaged += 1;
            return;
        };
        if !self.numbers.is_new(number) {
            self.duplicates += 1;
            return;
        }
        self.delivered += 1;
        self.bytes += (payload.len() - UDP_HEADER) as u64;
        self.delay.push(now.since(sent).as_nanos() as u64);
        self.last = Some(now);
        self.progress.push(now);
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Option<Addressing> {
        None
    }
}

/// A flow of messages.
struct MessageFlow {
    source: EndpointId,
    sink: EndpointId,
}

impl RunningFlow for MessageFlow {
    fn stats(&self, world: &World) -> ProgramStats {
        let Some(source) = endpoint::<Source>(world, self.source) else {
            return ProgramStats::default();
        };
        let Some(sink) = endpoint::<Sink>(world, self.sink) else { return ProgramStats::default() };
        ProgramStats {
            bytes: sink.bytes,
            duplicates: sink.duplicates,
            damaged: sink.damaged,
            messages: true,
            written: source.sent(),
            delivered: sink.delivered,
            delay: sink.delay.clone(),
            completed: sink.last.filter(|_| source.poll_timeout().is_none()),
            progress: sink.progress,
            ..ProgramStats::default()
        }
    }

    fn sender_state(&self, _: &World) -> Option<SenderState> {
        None
    }

    fn is_done(&self, world: &World) -> bool {
        endpoint::<Source>(world, self.source).is_none_or(|s| s.poll_timeout().is_none())
    }
}

/// Sends one request after another; a request without a response is abandoned.
struct Requester {
    local: SocketAddr,
    remote: SocketAddr,
    size: usize,
    left: u64,
    stop: Time,
    think: Duration,
    timeout_after: Duration,
    /// Time at which the next request is due, or the current one times out.
    next: Option<Time>,
    requested: u64,
    due: bool,
    waits_since: Option<Time>,
    responded: u64,
    bytes: u64,
    delay: TimeStatistics,
    ended: Option<Time>,
}

impl Requester {
    /// Sets the time of the next request.
    fn plan(&mut self, now: Time, wait: Duration) {
        self.waits_since = None;
        let at = now + wait;
        self.next = (self.left > 0 && at <= self.stop).then_some(at);
        if self.next.is_none() {
            self.ended = Some(now);
        }
    }
}

impl Endpoint for Requester {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        let Some((number, _)) = stamp(&addressing, payload) else { return };
        let Some(since) = self.waits_since.filter(|_| number + 1 == self.requested) else { return };
        self.responded += 1;
        self.bytes += (payload.len() - UDP_HEADER) as u64;
        self.delay.push(now.since(since).as_nanos() as u64);
        self.plan(now, self.think);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.next.is_none_or(|at| at > now) {
            return;
        }
        if self.waits_since.is_some() {
            self.plan(now, Duration::ZERO);
            if self.next.is_none() {
                return;
            }
        }
        self.due = true;
        self.left -= 1;
        self.requested += 1;
        self.waits_since = Some(now);
        self.next = Some(now + self.timeout_after);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        Some(write(payload, [self.local, self.remote], self.size, self.requested - 1, now))
    }
}

/// Responds to every request.
struct Responder {
    local: SocketAddr,
    size: usize,
    responses: VecDeque<(SocketAddr, u64)>,
}

impl Endpoint for Responder {
    fn handle_packet(&mut self, _: Time, addressing: Addressing, payload: &[u8]) {
        let Some((number, _)) = stamp(&addressing, payload) else { return };
        let port = payload.first_chunk::<2>().map_or(0, |p| u16::from_be_bytes(*p));
        if self.responses.len() < MAX_RESPONSES {
            self.responses.push_back((SocketAddr::new(addressing.source, port), number));
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        let (to, number) = self.responses.pop_front()?;
        Some(write(payload, [self.local, to], self.size, number, now))
    }
}

/// A flow of requests.
struct RequestFlow(EndpointId);

impl RunningFlow for RequestFlow {
    fn stats(&self, world: &World) -> ProgramStats {
        let Some(requester) = endpoint::<Requester>(world, self.0) else {
            return ProgramStats::default();
        };
        ProgramStats {
            bytes: requester.bytes,
            messages: true,
            written: requester.requested,
            delivered: requester.responded,
            delay: requester.delay.clone(),
            completed: requester.ended,
            ..ProgramStats::default()
        }
    }

    fn sender_state(&self, _: &World) -> Option<SenderState> {
        None
    }

    fn is_done(&self, world: &World) -> bool {
        endpoint::<Requester>(world, self.0).is_none_or(|a| a.ended.is_some())
    }
}
