//! Flows for programs that speak in messages, as SIP does, made of UDP datagrams, TCP and SCTP over
//! the world's links.
//!
//! A [`Program`] is handed whole messages with the [`Flow`] they came on and writes what it wants
//! sent into an [`Outbox`]: the face of the proxy and of everything above `ringway_sip`. A [`Host`]
//! is a node's endpoint that carries them: over UDP one datagram a message; over TCP one after
//! another, cut by Content-Length (RFC 3261 section 18.3); over SCTP one message of SCTP each, and
//! each call on a stream of its own ([`stream_of`]). What is sent to a peer goes over the connection
//! or association that there is, or over one that is opened for it; both ends use the same port. The
//! real world's flows are in `ringway_net`; there is no TLS here and no WebSocket.

mod sctp;
mod tcp;
mod udp;

use crate::node::{Bind, EndpointId, NodeId};
use crate::world::World;
use crate::{Error, headers};
use ringway_sansio::{Addressing, Endpoint, Flow, FlowId, Outbox, Random, Target, Time, Transport};
use std::net::{IpAddr, SocketAddr};

pub use sctp::stream_of;

/// Connections or associations of one host; beyond it nothing is opened.
pub const MAX_FLOWS: usize = 4096;
/// Bytes that wait for a connection to take them; a message that does not fit is not sent.
pub const MAX_WAITING: usize = 4 << 20;

/// What lives above flows.
pub trait Program: 'static {
    /// A message has come on a flow.
    fn handle_message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox);

    /// What was sent under a report number could not be sent.
    fn handle_not_sent(&mut self, now: Time, report: u64, out: &mut Outbox);

    /// A connection is gone.
    fn handle_flow_closed(&mut self, now: Time, flow: FlowId);

    /// The time that [`Program::poll_timeout`] named has come.
    fn handle_timeout(&mut self, now: Time, out: &mut Outbox);

    /// When [`Program::handle_timeout`] is to be called.
    fn poll_timeout(&self) -> Option<Time>;
}

/// What carries the messages of a host.
#[derive(Clone, Copy, Debug)]
pub enum TransportConfig {
    /// Datagrams.
    Udp,
    /// Connections.
    Tcp(ringway_tcp::Settings),
    /// Associations, with calls on so many streams.
    Sctp(ringway_sctp::Settings, u16),
}

impl TransportConfig {
    /// By the name that stands in a Via.
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

/// What a carrier has to say.
enum CarrierEvent {
    Message(Flow, Vec<u8>),
    Closed(FlowId),
    NotSent(u64),
}

/// A transport of a host.
trait Carrier: Endpoint {
    /// Sends a message, or says that it cannot be sent.
    fn send(&mut self, now: Time, to: &Target, report: u64, bytes: &[u8]) -> bool;
    /// What happened next.
    fn poll(&mut self, now: Time) -> Option<CarrierEvent>;
    /// Times that something was sent again.
    fn retransmits(&self) -> u64;
}

/// A program on a node, with what carries its messages.
pub struct Host<P> {
    program: P,
    carrier: Box<dyn Carrier>,
    out: Outbox,
}

impl<P: Program> Host<P> {
    /// Plugs a program into a node. It is reached at `port` of the addresses in `locals`, of which
    /// the first is its own in flows; SCTP uses all of them. `Error::Settings` where the settings of
    /// a transport are not within its bounds.
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

    /// The program.
    pub fn program(&self) -> &P {
        &self.program
    }

    /// Times that the transport, not the program, sent something again.
    pub fn retransmits(&self) -> u64 {
        self.carrier.retransmits()
    }

    /// Carries messages both ways until neither has more.
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

/// Names flows of a host in the order in which they come to be.
#[derive(Debug, Default)]
struct Names(u64);

impl Names {
    fn next(&mut self) -> FlowId {
        self.0 += 1;
        FlowId::new(0, self.0)
    }
}
