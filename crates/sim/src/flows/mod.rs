//! Programs that exchange messages, such as SIP, over UDP datagrams, TCP and SCTP on the world's links.
//!
//! A [`Program`] receives whole messages with their flow and writes messages to send: the proxy, a phone. A
//! [`Host`] is a node's endpoint that runs it above [`ringway_flow`], the same code that runs it above real
//! sockets in `ringway_net`. Here the pipes below are `ringway_tcp`, `ringway_sctp` and UDP on virtual links:
//! over UDP one datagram per message; over TCP consecutively, separated by Content-Length (RFC 3261 section
//! 18.3); over SCTP one SCTP message each, with a stream for each call. Both ends use the same port. There is
//! no TLS here and no WebSocket.

mod pipes;
mod sctp;
mod table;
mod tcp;
mod udp;

use crate::node::{Bind, EndpointId, NodeId};
use crate::world::World;
use crate::{Error, headers};
use pipes::{Request, Requests};
use ringway_flow::{Common, Counters, Flows, Limits, Open};
use ringway_sansio::{Addressing, CloseReason, Endpoint, FlowId, Program, Random, Time, Transport};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Maximum number of connections or associations of one host.
pub const MAX_FLOWS: usize = 4096;
/// Maximum number of workers of one host.
pub const MAX_WORKERS: usize = ringway_flow::limits::MAX_WORKERS;

/// The transport of a host and its settings.
#[derive(Clone, Copy, Debug)]
pub enum TransportConfig {
    /// Datagrams.
    Udp,
    /// Connections.
    Tcp(ringway_tcp::Settings),
    /// Associations, and the number of streams for calls.
    Sctp(ringway_sctp::Settings, u16),
}

impl TransportConfig {
    /// Returns the transport that a Via names.
    pub const fn transport(&self) -> Transport {
        match self {
            TransportConfig::Udp => Transport::Udp,
            TransportConfig::Tcp(_) => Transport::Tcp,
            TransportConfig::Sctp(..) => Transport::Sctp,
        }
    }

    const fn protocol(&self) -> u8 {
        match self {
            TransportConfig::Udp => headers::UDP,
            TransportConfig::Tcp(_) => ringway_tcp::PROTOCOL,
            TransportConfig::Sctp(..) => ringway_sctp::PROTOCOL,
        }
    }
}

/// Returns the bounds on the connections of a host: those of a server, with one source's share lifted, because
/// a host of a scenario stands for many.
pub fn limits() -> Limits {
    Limits { connections: MAX_FLOWS, connections_per_source: MAX_FLOWS, ..Limits::default() }
}

/// A worker of a host.
type Worker<P> = Flows<P, Requests>;

/// A transport of a host.
trait Stack: Endpoint {
    /// Begins to open a connection for a flow. Returns `false` if it cannot be opened.
    fn open(&mut self, now: Time, flow: FlowId, open: Open) -> bool;
    /// Sends a datagram.
    fn send(&mut self, remote: SocketAddr, bytes: &[u8]);
    /// Passes what was received to the workers.
    fn handle_events<P: Program>(&mut self, now: Time, workers: &mut [Worker<P>]);
    /// Gives a flow's connection its turn.
    fn turn<P: Program>(&mut self, now: Time, flow: FlowId, worker: &mut Worker<P>);
    /// Returns the number of retransmissions.
    fn retransmits(&self) -> u64;
}

/// Programs on a node, with their transport.
pub struct Host<P> {
    workers: Vec<Worker<P>>,
    stack: AnyStack,
}

enum AnyStack {
    Udp(udp::Udp),
    Tcp(tcp::Tcp),
    Sctp(Box<sctp::Sctp>),
}

/// Evaluates an expression with the stack that a host has.
macro_rules! with_stack {
    ($stack:expr, $name:ident => $work:expr) => {
        match $stack {
            AnyStack::Udp($name) => $work,
            AnyStack::Tcp($name) => $work,
            AnyStack::Sctp($name) => $work,
        }
    };
}

impl<P: Program + 'static> Host<P> {
    /// Attaches a program to a node. It is reached at `port` of the addresses in `locals`. The first
    /// address is the local one of its flows; SCTP uses all of them. Fails with `Error::Settings` where
    /// the settings of a transport are out of bounds.
    pub fn attach(
        world: &mut World,
        node: NodeId,
        at: (&[IpAddr], u16),
        transport_config: TransportConfig,
        program: P,
        random: impl Random + Send + 'static,
    ) -> Result<EndpointId, Error> {
        Self::attach_workers(world, node, at, transport_config, limits(), vec![program], random)
    }

    /// Attaches the workers of a program, of which there are 1 to [`MAX_WORKERS`], with bounds on their
    /// connections. Connections are accepted
    /// by them in turn, associations and datagrams by the first.
    pub fn attach_workers(
        world: &mut World,
        node: NodeId,
        (locals, port): (&[IpAddr], u16),
        transport_config: TransportConfig,
        limits: Limits,
        programs: Vec<P>,
        mut random: impl Random + Send + 'static,
    ) -> Result<EndpointId, Error> {
        let wrong = |what: String| Error::Settings { what };
        let first = locals.first().ok_or_else(|| wrong("expected an address, got none".into()))?;
        let count = programs.len();
        if !(1..=MAX_WORKERS).contains(&count) {
            return Err(wrong(format!("expected 1 to {MAX_WORKERS} workers, got {count}")));
        }
        let local = SocketAddr::new(*first, port);
        let mut call_key = [0; 16];
        random.fill(&mut call_key);
        let common = Arc::new(Common::new(limits, MAX_FLOWS, &call_key));
        let stack = match transport_config {
            TransportConfig::Udp => AnyStack::Udp(udp::Udp::new(local)),
            TransportConfig::Tcp(settings) => {
                let made = tcp::Tcp::new(local, settings, random);
                AnyStack::Tcp(made.map_err(|e| wrong(e.to_string()))?)
            }
            TransportConfig::Sctp(settings, streams) => {
                let calls = (streams, common.calls());
                let made = sctp::Sctp::new(locals, port, settings, calls, random);
                AnyStack::Sctp(Box::new(made.map_err(|e| wrong(e.to_string()))?))
            }
        };
        let transport = transport_config.transport();
        let now = world.now();
        let worker = |(index, program): (usize, P)| {
            let pipes = Requests::new(transport, local, count);
            // At most MAX_WORKERS, which fits.
            let of = (index as u8, count);
            Flows::new(now, of, common.clone(), Arc::new(Counters::default()), program, pipes)
        };
        let workers = programs.into_iter().enumerate().map(worker).collect();
        let bind = Bind { protocol: transport_config.protocol(), port: Some(port) };
        world.attach(node, bind, Host { workers, stack })
    }

    /// Returns the program of the first worker.
    pub fn program(&self) -> &P {
        self.workers[0].program()
    }

    /// Returns the flows of a worker.
    pub fn worker(&self, index: usize) -> Option<&Flows<P, impl ringway_flow::Pipes>> {
        self.workers.get(index)
    }

    /// Has the program of a worker do something, and sends what it writes.
    pub fn with_program(
        &mut self,
        now: Time,
        worker: usize,
        work: impl FnOnce(&mut P, Time, &mut ringway_sansio::Outbox),
    ) {
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.with_program(now, work);
            self.drive(now);
        }
    }

    /// Returns the number of retransmissions by the transport, not by the program.
    pub fn retransmits(&self) -> u64 {
        with_stack!(&self.stack, stack => stack.retransmits())
    }

    /// Moves messages both ways until none is left.
    fn drive(&mut self, now: Time) {
        loop {
            with_stack!(&mut self.stack, stack => stack.handle_events(now, &mut self.workers));
            let mut idle = true;
            for index in 0..self.workers.len() {
                while let Some(request) = self.workers[index].pipes_mut().next() {
                    idle = false;
                    self.handle_request(now, index, request);
                }
            }
            if idle {
                return;
            }
        }
    }

    fn handle_request(&mut self, now: Time, index: usize, request: Request) {
        let Host { workers, stack } = self;
        let worker = &mut workers[index];
        match request {
            Request::Open(id, open) => {
                if !with_stack!(stack, stack => stack.open(now, id, open)) {
                    worker.closed(now, id, CloseReason::Broken);
                }
            }
            Request::Turn(id) => with_stack!(stack, stack => stack.turn(now, id, worker)),
            Request::Datagram(remote, bytes) => {
                with_stack!(stack, stack => stack.send(remote, &bytes));
            }
            Request::Mail(to, mail) => {
                if let Some(worker) = workers.get_mut(usize::from(to)) {
                    worker.mail(now, mail);
                    worker.flush(now);
                }
            }
        }
    }
}

impl<P: Program + 'static> Endpoint for Host<P> {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        with_stack!(&mut self.stack, stack => stack.handle_packet(now, addressing, payload));
        self.drive(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        with_stack!(&mut self.stack, stack => {
            if stack.poll_timeout().is_some_and(|at| at <= now) {
                stack.handle_timeout(now);
            }
        });
        for worker in &mut self.workers {
            if worker.poll_timeout().is_some_and(|at| at <= now) {
                worker.timeout(now);
            }
        }
        self.drive(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let below = with_stack!(&self.stack, stack => stack.poll_timeout());
        self.workers.iter().filter_map(Flows::poll_timeout).chain(below).min()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        with_stack!(&mut self.stack, stack => stack.poll_transmit(now, payload))
    }
}
