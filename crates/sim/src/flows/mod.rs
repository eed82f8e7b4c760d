//! Flows for programs that exchange messages, such as SIP, over UDP datagrams, TCP and SCTP on the
//! world's links.
//!
//! A [`Program`] receives whole messages with their [`Flow`] and writes messages to send into an
//! [`Outbox`]: the interface of the proxy and of everything above `ringway_sip`. A [`Host`] is a node's
//! endpoint that transports them: over UDP one datagram per message; over TCP consecutively, separated
//! by Content-Length (RFC 3261 section 18.3); over SCTP one SCTP message each, with a stream for each
//! call ([`stream_of`]). A message to a peer uses the existing connection or association, or a new one.
//! Both ends use the same port. The real world's flows are in `ringway_net`; there is no TLS here and
//! no WebSocket.

mod sctp;
mod tcp;
mod udp;

use crate::node::{Bind, EndpointId, NodeId};
use crate::world::World;
use crate::{Error, headers};
use ringway_sansio::{Addressing, Endpoint, Flow, FlowId, Outbox, Random, Target, Time, Transport};
use std::net::{IpAddr, SocketAddr};

pub use sctp::stream_of;

/// Maximum number of connections or associations of one host. Beyond it none is opened.
pub const MAX_FLOWS: usize = 4096;
/// Maximum number of bytes that wait for a connection. A message that does not fit is not sent.
pub const MAX_WAITING: usize = 4 << 20;

/// A program above flows.
pub trait Program: 'static {
    /// Handles a message on a flow.
    fn handle_message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox);

    /// Handles the failure to send the message with a report number.
    fn handle_not_sent(&mut self, now: Time, report: u64, out: &mut Outbox);

    /// Handles the end of a connection.
    fn handle_flow_closed(&mut self, now: Time, flow: FlowId);

    /// Handles the time that [`Program::poll_timeout`] returned.
    fn handle_timeout(&mut self, now: Time, out: &mut Outbox);

    /// Returns the time when [`Program::handle_timeout`] is to be called.
    fn poll_timeout(&self) -> Option<Time>;
}

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

/// An event of a carrier.
enum CarrierEvent {
    Message(Flow, Vec<u8>),
    Closed(FlowId),
    NotSent(u64),
}

/// A transport of a host.
trait Carrier: Endpoint {
    /// Sends a message. Returns `false` if it cannot be sent.
    fn send(&mut self, now: Time, to: &Target, report: u64, bytes: &[u8]) -> bool;
    /// Returns the next event.
    fn poll(&mut self, now: Time) -> Option<CarrierEvent>;
    /// Returns the number of retransmissions.
    fn retransmits(&self) -> u64;
}

/// A program on a node, with its transport.
pub struct Host<P> {
    program: P,
    carrier: Box<dyn Carrier>,
    out: Outbox,
}

impl<P: Program> Host<P> {
    /// Attaches a program to a node. It is reached at `port` of the addresses in `locals`. The first
    /// address is the local one of its flows; SCTP uses all of them. Fails with `Error::Settings` where
    /// the settings of a transport are out of bounds.
    pub fn attach(
        world: &mut World,
        node: NodeId,
        (locals, port): (&[IpAddr], u16),
        transport_config: TransportConfig,
        program: P,
        random: impl Random + Send + 'static,
    ) -> Result<EndpointId, Error> {
        let wrong = |what: String| Error::Settings { what };
        let first = locals.first().ok_or_else(|| wrong("expected an address, got none".into()))?;
        let local = SocketAddr::new(*first, port);
        let carrier: Box<dyn Carrier> = match transport_config {
            TransportConfig::Udp => Box::new(udp::Udp::new(local)),
            TransportConfig::Tcp(settings) => {
                let made = tcp::Tcp::new(local, settings, random);
                Box::new(made.map_err(|e| wrong(e.to_string()))?)
            }
            TransportConfig::Sctp(settings, streams) => {
                let made = sctp::Sctp::new(locals, port, settings, streams, random);
                Box::new(made.map_err(|e| wrong(e.to_string()))?)
            }
        };
        let host = Host { program, carrier, out: Outbox::new() };
        world.attach(node, Bind { protocol: transport_config.protocol(), port: Some(port) }, host)
    }

    /// Returns the program.
    pub fn program(&self) -> &P {
        &self.program
    }

    /// Returns the number of retransmissions by the transport, not by the program.
    pub fn retransmits(&self) -> u64 {
        self.carrier.retransmits()
    }

    /// Moves messages both ways until none is left.
    fn drive(&mut self, now: Time) {
        loop {
            let mut failed = Vec::new();
            for (send, bytes) in self.out.iter() {
                if !self.carrier.send(now, &send.to, send.report, bytes) && send.report != 0 {
                    failed.push(send.report);
                }
            }
            self.out.clear();
            for report in failed {
                self.program.handle_not_sent(now, report, &mut self.out);
            }
            match self.carrier.poll(now) {
                Some(CarrierEvent::Message(flow, bytes)) => {
                    self.program.handle_message(now, &flow, &bytes, &mut self.out);
                }
                Some(CarrierEvent::Closed(flow)) => self.program.handle_flow_closed(now, flow),
                Some(CarrierEvent::NotSent(report)) => {
                    self.program.handle_not_sent(now, report, &mut self.out);
                }
                None if self.out.is_empty() => return,
                None => {}
            }
        }
    }
}

impl<P: Program> Endpoint for Host<P> {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.carrier.handle_packet(now, addressing, payload);
        self.drive(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.carrier.poll_timeout().is_some_and(|at| at <= now) {
            self.carrier.handle_timeout(now);
        }
        if self.program.poll_timeout().is_some_and(|at| at <= now) {
            self.program.handle_timeout(now, &mut self.out);
        }
        self.drive(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.carrier.poll_timeout(), self.program.poll_timeout()].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.carrier.poll_transmit(now, payload)
    }
}

/// Identifiers of a host's flows, in the order of their creation.
#[derive(Debug, Default)]
struct Names(u64);

impl Names {
    fn next(&mut self) -> FlowId {
        self.0 += 1;
        FlowId::new(0, self.0)
    }
}
