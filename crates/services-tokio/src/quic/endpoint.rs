//! Opening QUIC connections and listening for them.

use super::datagrams::Datagrams;
use super::early::{self, Begun};
use super::{QuicStreams, Settings};
use crate::error::Error;
use crate::limits::Limits;
use crate::options;
use crate::transport::{Established, FirstMessage, Peer, Resources, Transport};
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use ringway_services::protocol::MessageLimits;
use ringway_services::sending::Sending;
use ringway_services::{Candidate, Preconnection as Policy, Protocol, Service};
use socket2::{SockRef, Type};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The name of connections that are streams, where the program names no application protocol.
pub(crate) const STREAMS: &str = "ringway";
/// The name of connections that have only datagrams.
pub(crate) const DATAGRAMS: &str = "ringway-datagram";

/// The limits of a message whose length is checked when it is sent.
const UNLIMITED: MessageLimits = MessageLimits {
    singular_transmission_msg_max_len: None,
    send_msg_max_len: None,
    recv_msg_max_len: None,
};

/// Octets of unsent datagrams of a QUIC connection.
const DATAGRAM_BUFFER: usize = 1 << 20;
/// Time without packets after which a QUIC connection has failed, unless the program names another.
const IDLE: Duration = Duration::from_secs(30);
/// Packets that keep a connection alive which the program wants to be kept.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Returns the names of application protocols to offer or to accept.
fn alpn(policy: &Policy, streams: bool, datagrams: bool) -> Vec<String> {
    if !policy.security.alpn.is_empty() {
        return policy.security.alpn.clone();
    }
    let names = [(streams, STREAMS), (datagrams, DATAGRAMS)];
    names.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name.to_string()).collect()
}

fn transport(policy: &Policy, limits: &Limits, keeps_alive: bool) -> TransportConfig {
    let properties = &policy.properties.connection;
    let idle = properties.conn_timeout.0.unwrap_or(IDLE);
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(quinn::IdleTimeout::try_from(idle).ok())
        .max_concurrent_bidi_streams(crate::framed::STREAMS.into())
        .max_concurrent_uni_streams(0u8.into())
        .stream_receive_window(limits.window.into())
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER))
        .datagram_send_buffer_size(DATAGRAM_BUFFER);
    if keeps_alive {
        let interval = properties.keep_alive().unwrap_or(KEEP_ALIVE);
        config.keep_alive_interval(Some(interval.min(idle / 2)));
    }
    config
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::system(what, error)
}

/// Opens a QUIC connection, from a socket of its own. With `zeroRttMsg` the message may go before the handshake.
pub(crate) async fn connect(
    resources: &Resources,
    peer: &Peer<'_>,
    policy: &Policy,
    candidate: Candidate,
    first: Option<&FirstMessage>,
) -> Result<Established, Error> {
    let is_datagram = candidate.protocol == Protocol::QuicDatagram;
    let names = alpn(policy, !is_datagram, is_datagram);
    let resumes = candidate.provides.has(Service::ZeroRttMsg);
    let tls = if resumes {
        resources.sessions.client(&resources.keyring, &policy.security, &names)?
    } else {
        let tls = resources.keyring.client(&policy.security, &names)?;
        Arc::new(QuicClientConfig::try_from(tls).map_err(|e| Error::security("QUIC", e))?)
    };
    let mut config = ClientConfig::new(tls);
    let keeps_alive = candidate.provides.has(Service::KeepAlive);
    config.transport_config(Arc::new(transport(policy, &resources.limits, keeps_alive)));

    let remote = SocketAddr::new(peer.address.ip(), peer.udp_port);
    let socket = options::bound(&candidate, remote, Type::DGRAM, libc::IPPROTO_UDP, false);
    let socket = socket.map_err(failed("socket"))?;
    options::apply_profile(SockRef::from(&socket), policy).map_err(failed("socket"))?;
    if candidate.local_address.is_none() && candidate.local_port.is_none() {
        let any = SocketAddr::new(options::any(remote), 0);
        socket.bind(&any.into()).map_err(failed("bind"))?;
    }
    let endpoint =
        Endpoint::new(EndpointConfig::default(), None, socket.into(), Arc::new(TokioRuntime));
    let endpoint = endpoint.map_err(failed("socket"))?;
    let ip = remote.ip().to_string();
    let connecting = endpoint.connect_with(config, remote, peer.host.unwrap_or(&ip));
    let connecting = connecting.map_err(|error| Error::security("QUIC", error))?;
    let first = first.filter(|_| resumes).and_then(|first| {
        // What contradicts the connection is an error when it is sent.
        let (connection, limits) = (&policy.properties.connection, UNLIMITED);
        let sending = Sending::new(&first.properties, connection, &candidate, limits, 0);
        Some((first, sending.ok()?))
    });
    let settings = Settings::new(resources, policy, candidate.clone(), remote.ip());
    let new = |connection, confirmed| QuicStreams::new(connection, confirmed, settings);
    let begun = early::connect(connecting, first, new).await?;
    let connection = begun.connection.clone();
    let port = endpoint.local_addr().map_or(0, |local| local.port());
    let ip = connection.local_ip().or_else(|| ringway_os::source_for(remote.ip()));
    let local = SocketAddr::new(ip.unwrap_or(options::any(remote)), port);
    Ok(Established { transport: carry(begun, is_datagram), local, remote, candidate })
}

fn carry(begun: Begun, is_datagram: bool) -> Transport {
    if is_datagram {
        Transport::Single(Box::new(Datagrams::new(begun.connection.clone())))
    } else {
        Transport::Quic(begun)
    }
}

/// Listens for QUIC connections with these candidates: streams, datagrams, or both.
pub(crate) fn listen(
    resources: &Resources,
    policy: &Policy,
    candidates: &[Candidate],
    address: SocketAddr,
    interface: Option<&str>,
) -> Result<Endpoint, Error> {
    let has = |protocol| candidates.iter().any(|candidate| candidate.protocol == protocol);
    let names = alpn(policy, has(Protocol::Quic), has(Protocol::QuicDatagram));
    let mut tls = resources.keyring.server(&policy.security, &names)?;
    if accepts_early(policy, candidates) {
        // RFC 9001 section 4.6.1: no other number is allowed. A session is used once, so that a copy of its data is rejected.
        tls.max_early_data_size = u32::MAX;
    }
    let tls = QuicServerConfig::try_from(tls).map_err(|e| Error::security("QUIC", e))?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    let keeps_alive = candidates.iter().any(|one| one.provides.has(Service::KeepAlive));
    config.transport_config(Arc::new(transport(policy, &resources.limits, keeps_alive)));
    config.max_incoming(resources.limits.waiting);

    let socket = options::open(address, Type::DGRAM, libc::IPPROTO_UDP, interface);
    let socket = socket.map_err(failed("socket"))?;
    socket.bind(&address.into()).map_err(failed("bind"))?;
    let (runtime, endpoint) = (Arc::new(TokioRuntime), EndpointConfig::default());
    Endpoint::new(endpoint, Some(config), socket.into(), runtime).map_err(failed("socket"))
}

/// Returns whether a listener accepts data before the handshake has ended. One that asks peers for a certificate does not: it
/// would answer before it has seen that.
fn accepts_early(policy: &Policy, candidates: &[Candidate]) -> bool {
    policy.security.client_certificate.is_empty()
        && candidates.iter().any(|candidate| candidate.provides.has(Service::ZeroRttMsg))
}

/// Completes the handshake of a connection that a peer opens, as far as its first message needs it, and finds the candidate that
/// it is.
pub(crate) async fn accept_connection(
    incoming: quinn::Incoming,
    port: u16,
    policy: &Policy,
    candidates: &[Candidate],
    limits: &Limits,
) -> Result<Established, Error> {
    let failed = |error| Error::security("QUIC", error);
    let connecting = incoming.accept().map_err(failed)?;
    let mut begun = if accepts_early(policy, candidates) {
        early::accept(connecting, limits.handshake).await?
    } else {
        connecting.await.map_err(failed)?.into()
    };
    let connection = begun.connection.clone();
    let data = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    let name = data.and_then(|data| data.protocol).unwrap_or_default();
    let has_datagrams = name == DATAGRAMS.as_bytes();
    let is_stream = name == STREAMS.as_bytes();
    let fits = |candidate: &&Candidate| match candidate.protocol {
        Protocol::Quic => !has_datagrams,
        _ => !is_stream,
    };
    // With a name of the program's, the one that ranks first.
    let candidate = candidates.iter().find(fits).cloned();
    let candidate = candidate.ok_or_else(|| Error::lost("neither streams nor datagrams fit"))?;
    let is_datagram = candidate.protocol == Protocol::QuicDatagram;
    if is_datagram {
        // Nothing of it is a first message.
        begun.confirm().await?;
    }
    let remote = connection.remote_address();
    let ip = connection.local_ip().unwrap_or(options::any(remote));
    let transport = carry(begun, is_datagram);
    Ok(Established { transport, local: SocketAddr::new(ip, port), remote, candidate })
}
