//! TCP, MPTCP and TLS at one socket. The kernel distinguishes MPTCP from TCP; TLS is recognised by its first octet.

use super::Shared;
use crate::error::Error;
use crate::io::ByteStream;
use crate::options;
use crate::transport::{Established, Transport};
use ringway_os::IPPROTO_MPTCP;
use ringway_services::framing::Side;
use ringway_services::{Candidate, Protocol, Service};
use rustls::ServerConfig;
use socket2::{SockRef, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections that the system completes before they are accepted.
const BACKLOG: i32 = 1_024;
/// The pause after an error of the system, such as no more descriptors, which would be repeated at once.
const PAUSE: Duration = Duration::from_millis(50);
/// The time in which a peer that speaks TLS has sent its first octet, also when that was lost once (RFC 6298 section 2: the
/// first retransmission is after a second). A peer of TCP may wait for longer.
const FIRST_OCTET: Duration = Duration::from_secs(3);
/// The type of the record that TLS begins with (RFC 8446 section 5.1: handshake).
const HANDSHAKE: u8 = 22;

/// Binds a socket for TCP, or for MPTCP, which accepts TCP too.
pub(crate) fn bind(
    candidates: &[Candidate],
    address: SocketAddr,
    interface: Option<&str>,
    shares_port: bool,
) -> io::Result<TcpListener> {
    let is_multipath = candidates.iter().any(|one| one.protocol == Protocol::Mptcp);
    let number = if is_multipath { IPPROTO_MPTCP } else { libc::IPPROTO_TCP };
    let socket = options::open(address, Type::STREAM, number, interface)?;
    // Connections of an earlier listener may still have the port.
    socket.set_reuse_address(true)?;
    if shares_port {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts until the listener is dropped.
pub(super) async fn run(shared: Arc<Shared>, listener: TcpListener, candidates: Vec<Candidate>) {
    let is_secure = candidates.iter().any(|one| one.protocol == Protocol::Tls);
    let security = &shared.policy.security;
    let tls = is_secure.then(|| shared.system.resources().keyring.server(security, &security.alpn));
    let tls = tls.and_then(Result::ok).map(Arc::new);
    let candidates = Arc::new(candidates);
    let mut handshakes = JoinSet::new();
    loop {
        while handshakes.try_join_next().is_some() {}
        let (stream, remote) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        let Some(permit) = shared.admit(remote.ip()) else { continue };
        let (shared, candidates, tls) = (shared.clone(), candidates.clone(), tls.clone());
        handshakes.spawn(async move {
            let limit = shared.system.limits().handshake;
            let established = timeout(limit, establish(&shared, stream, &candidates, tls)).await;
            if let Ok(Ok(established)) = established {
                shared.accept(established, permit, Side::Responder);
            }
        });
    }
}

/// Finds out what the peer speaks, and completes its handshake.
async fn establish(
    shared: &Shared,
    stream: TcpStream,
    candidates: &[Candidate],
    tls: Option<Arc<ServerConfig>>,
) -> Result<Established, Error> {
    let failed = |error: io::Error| Error::system("accept", error);
    let of = |protocol| candidates.iter().find(|one| one.protocol == protocol).cloned();
    let (local, remote) =
        (stream.local_addr().map_err(failed)?, stream.peer_addr().map_err(failed)?);
    let is_multipath = SockRef::from(&stream).protocol().map_err(failed)?;
    let is_multipath = is_multipath.is_some_and(|number| i32::from(number) == IPPROTO_MPTCP);
    // A peer that has no MPTCP speaks TCP, and has one path.
    let plain = if is_multipath { of(Protocol::Mptcp) } else { None };
    let fallback = of(Protocol::Mptcp).map(|one| one.without(Service::Multihoming));
    let plain = plain.or_else(|| of(Protocol::Tcp)).or(fallback);
    let secure = match tls {
        None => false,
        Some(_) if plain.is_none() => true,
        Some(_) => begins_with_tls(&stream).await.map_err(failed)?,
    };
    let candidate = if secure { of(Protocol::Tls) } else { plain };
    let candidate = candidate.ok_or_else(|| Error::lost("nothing that fits"))?;
    options::apply_to_tcp(SockRef::from(&stream), &candidate, &shared.policy).map_err(failed)?;
    let io: Box<dyn ByteStream> = match tls.filter(|_| secure) {
        Some(config) => Box::new(TlsAcceptor::from(config).accept(stream).await.map_err(failed)?),
        None => Box::new(stream),
    };
    Ok(Established { transport: Transport::Stream(io), local, remote, candidate })
}

/// Returns whether the peer begins with TLS. One that waits for this end to speak first does not.
async fn begins_with_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match timeout(FIRST_OCTET, stream.peek(&mut first)).await {
        Ok(peeked) => Ok(peeked? == 1 && first[0] == HANDSHAKE),
        Err(_) => Ok(false),
    }
}
