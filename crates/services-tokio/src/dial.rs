//! One attempt: opens the transport connection of a candidate.

use crate::datagram::Connected;
use crate::dccp;
use crate::error::Error;
use crate::keyring::server_name;
use crate::options;
use crate::transport::{self, Established, Peer, Request, Resources, Transport};
use crate::{quic, sctp};
use ringway_os::{IPPROTO_MPTCP, IPPROTO_UDPLITE, is_mptcp_fallback};
use ringway_services::{Candidate, Preconnection as Policy, Preference, Protocol, Role, Service};
use socket2::{SockRef, Type};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// Opens the transport connection of a candidate.
pub(crate) async fn dial(
    resources: &Resources,
    request: &Request,
    candidate: Candidate,
) -> Result<Established, Error> {
    let policy = &request.policy;
    let peer = transport::peer(policy, &candidate);
    let peer = peer.ok_or_else(|| Error::lost("a name that was not resolved"))?;
    match candidate.protocol {
        Protocol::Tcp | Protocol::Mptcp => {
            let (stream, candidate) = connect(&peer, policy, candidate, false).await?;
            established(stream, candidate)
        }
        Protocol::Tls => tls(resources, &peer, policy, candidate).await,
        Protocol::Udp | Protocol::UdpLite => datagrams(&peer, policy, candidate, false),
        Protocol::Sctp | Protocol::SctpUdp | Protocol::SctpKernel => {
            sctp::connect(resources, &peer, policy, candidate).await
        }
        Protocol::Quic | Protocol::QuicDatagram => {
            quic::connect(resources, &peer, policy, candidate, request.first.as_ref()).await
        }
        Protocol::DccpUdp => dccp::connect(&peer, policy, candidate, &resources.limits).await,
    }
}

fn established(stream: TcpStream, candidate: Candidate) -> Result<Established, Error> {
    let failed = |error| Error::system("the addresses of the connection", error);
    let (local, remote) =
        (stream.local_addr().map_err(failed)?, stream.peer_addr().map_err(failed)?);
    Ok(Established { transport: Transport::Stream(Box::new(stream)), local, remote, candidate })
}

/// Connects by TCP or MPTCP.
pub(crate) async fn connect(
    peer: &Peer<'_>,
    policy: &Policy,
    candidate: Candidate,
    shares_port: bool,
) -> Result<(TcpStream, Candidate), Error> {
    let failed = |error: io::Error| Error::system("connect", error);
    let is_multipath = candidate.protocol == Protocol::Mptcp;
    let protocol = if is_multipath { IPPROTO_MPTCP } else { libc::IPPROTO_TCP };
    let socket = options::bound(&candidate, peer.address, Type::STREAM, protocol, shares_port);
    let socket = socket.map_err(|error| Error::system("socket", error))?;
    options::apply_to_tcp(SockRef::from(&socket), &candidate, policy).map_err(failed)?;
    let stream = TcpSocket::from_std_stream(socket.into()).connect(peer.address).await;
    let stream = stream.map_err(failed)?;
    if !is_multipath || !is_mptcp_fallback(stream.as_fd()).unwrap_or(true) {
        return Ok((stream, candidate));
    }
    // RFC 8684 section 3.7: it has become TCP.
    if policy.preference(Service::Multihoming, Role::Initiate) == Preference::Require {
        return Err(Error::lost("the peer or the path has no MPTCP"));
    }
    Ok((stream, candidate.without(Service::Multihoming)))
}

async fn tls(
    resources: &Resources,
    peer: &Peer<'_>,
    policy: &Policy,
    candidate: Candidate,
) -> Result<Established, Error> {
    let config = resources.keyring.client(&policy.security, &policy.security.alpn)?;
    let name = server_name(peer.host, peer.address.ip())
        .map_err(|error| Error::security("the name of the peer", error))?;
    let (stream, candidate) = connect(peer, policy, candidate, false).await?;
    let failed = |error: io::Error| Error::system("the addresses of the connection", error);
    let (local, remote) =
        (stream.local_addr().map_err(failed)?, stream.peer_addr().map_err(failed)?);
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| Error::security("the TLS handshake", error))?;
    Ok(Established { transport: Transport::Stream(Box::new(stream)), local, remote, candidate })
}

/// Connects by UDP or UDP-Lite, which sends nothing.
pub(crate) fn datagrams(
    peer: &Peer<'_>,
    policy: &Policy,
    candidate: Candidate,
    shares_port: bool,
) -> Result<Established, Error> {
    let is_lite = candidate.protocol == Protocol::UdpLite;
    let protocol = if is_lite { IPPROTO_UDPLITE } else { libc::IPPROTO_UDP };
    let remote = peer.address;
    let socket = options::bound(&candidate, remote, Type::DGRAM, protocol, shares_port);
    let socket = socket.map_err(|error| Error::system("socket", error))?;
    options::apply_profile(SockRef::from(&socket), policy)
        .and_then(|()| socket.connect(&remote.into()))
        .map_err(|error| Error::system("connect", error))?;
    let carrier = Connected::new(socket, is_lite)?;
    let local = carrier.local();
    let transport = Transport::Single(Box::new(carrier));
    Ok(Established { transport, local, remote, candidate })
}
