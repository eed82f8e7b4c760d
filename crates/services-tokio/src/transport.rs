//! Transport connections that stand, and what opening them needs.

use crate::carrier::Carrier;
use crate::draining::{Closing, Draining};
use crate::framer::NewFramer;
use crate::io::ByteStream;
use crate::keyring::Keyring;
use crate::limits::{CLOSING, Limits};
use crate::quic::{Begun, Sessions};
use crate::sctp::Stacks;
use bytes::Bytes;
use ringway_os::Clock;
use ringway_sctp_tokio::Association;
use ringway_services::queue::ConnectionId;
use ringway_services::{
    Candidate, MessageProperties, Preconnection as Policy, Remote, RemoteEndpoint,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A transport connection that stands, and carries nothing yet.
pub(crate) enum Transport {
    /// A byte stream.
    Stream(Box<dyn ByteStream>),
    /// What has one connection, and needs nothing more.
    Single(Box<dyn Carrier>),
    /// An SCTP association.
    Sctp(Association),
    /// A QUIC connection, used by its streams.
    Quic(Begun),
}

/// A transport connection with its addresses.
pub(crate) struct Established {
    pub(crate) transport: Transport,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// What it was found to be: the candidate, if need be without what the peer lacks.
    pub(crate) candidate: Candidate,
}

/// What attempts of one system share.
pub(crate) struct Resources {
    pub(crate) limits: Limits,
    pub(crate) keyring: Keyring,
    pub(crate) clock: Clock,
    pub(crate) stacks: Stacks,
    pub(crate) draining: Arc<Draining>,
    pub(crate) sessions: Sessions,
}

impl Resources {
    /// Returns what is decided of the end of a connection (RFC 9622 section 8.1.3: the time after which data that does not
    /// arrive has failed).
    pub(crate) fn closing(&self, policy: &Policy, peer: IpAddr) -> Closing {
        let within = policy.properties.connection.conn_timeout.0.unwrap_or(CLOSING);
        Closing::new(&self.draining, peer, within)
    }
}

/// A message with which a connection is opened (RFC 9622 section 9.2.5).
#[derive(Clone)]
pub(crate) struct FirstMessage {
    /// The connection that sends it: others may wait for the same transport connection.
    pub(crate) connection: ConnectionId,
    pub(crate) priority: u32,
    pub(crate) bytes: Bytes,
    pub(crate) properties: MessageProperties,
}

/// What a connection to open was asked for.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) policy: Policy,
    pub(crate) framer: Option<NewFramer>,
    pub(crate) first: Option<FirstMessage>,
}

/// What of the peer's endpoint concerns an attempt.
pub(crate) struct Peer<'a> {
    /// The host's name, which its certificate must have.
    pub(crate) host: Option<&'a str>,
    pub(crate) address: SocketAddr,
    /// The UDP port, for protocols that UDP carries.
    pub(crate) udp_port: u16,
}

/// Returns the endpoint that a candidate comes from; `None` if its name was not resolved.
pub(crate) fn peer<'a>(policy: &'a Policy, candidate: &Candidate) -> Option<Peer<'a>> {
    let Remote::Address(address) = candidate.remote else { return None };
    let protocol = candidate.protocol;
    let is = |one: &&RemoteEndpoint| one.key() == candidate.key.peer && one.speaks(protocol);
    let endpoint = policy.remote.iter().find(is);
    let host = endpoint.and_then(|endpoint| endpoint.host.as_deref());
    let ports = endpoint.map(|endpoint| endpoint.udp_ports).unwrap_or_default();
    let udp_port = ports.of(protocol, address.port()).unwrap_or(0);
    Some(Peer { host, address, udp_port })
}

/// Makes the carrier of a connection, from its number and its priority.
pub(crate) type NewCarrier<'a> =
    Box<dyn FnOnce(ConnectionId, u32) -> Option<Box<dyn Carrier>> + 'a>;

/// Who has a transport connection: learns what its peer does.
pub(crate) trait Owner: Send + Sync {
    /// Takes in a connection that the peer has opened as a stream. Returns whether the limits allow it.
    fn peer_opened(&self, stream: u32, carrier: NewCarrier<'_>) -> bool;

    /// Returns the priority of connections that the peer opens.
    fn priority(&self) -> u32;

    /// Reports that the transport connection has ended.
    fn ended(&self);
}
