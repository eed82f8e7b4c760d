//! Connections: TCP and TLS with SIP's own framing, WebSockets with theirs, associations of SCTP with or
//! without TLS. Each has a task that owns the socket; [`mod@drive`] runs it, [`bytes`], [`websocket`] and
//! [`sctp`] carry its messages.

mod acknowledgments;
mod bytes;
mod drive;
pub(crate) mod port;
pub(crate) mod sctp;
mod sctp_tls;
mod unread;
mod upgrade;
mod websocket;

use crate::handler::Handler;
use crate::shared::Files;
use crate::sockets::{SharedWorker, Sockets, listen, now};
use crate::tls::{TlsClient, peer_domains, server_name};
use bytes::Framed;
use drive::drive;
use ringway_flow::Open;
use ringway_sansio::{CloseReason, FlowId, Peer, Time, Transport};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use websocket::Socket;

/// How long accepting pauses after a failure such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a listener logs no further failure after one.
const ACCEPT_LOG_PAUSE: Duration = Duration::from_secs(10);

/// How long the system may wait for the peer to acknowledge what was sent before it calls the
/// connection broken (RFC 5482), in milliseconds: the length of a SIP transaction (RFC 3261
/// section 17.1.1.2, timer B).
const USER_TIMEOUT: Duration = Duration::from_secs(32);

/// Accepts connections for as long as the worker lives.
pub(crate) async fn accept<H: Handler>(
    worker: SharedWorker<H>,
    listener: TcpListener,
    transport: Transport,
) {
    let mut logged: Option<Instant> = None;
    loop {
        match listener.accept().await {
            Ok((tcp, remote)) => {
                let Ok(local) = tcp.local_addr() else { continue };
                let mut flows = worker.borrow_mut();
                if !flows.pipes().shared().files.permit(&tcp) {
                    // One without a message makes room for one to come.
                    flows.counters().refused_files.add(1);
                    flows.end_oldest_half_open();
                    continue;
                }
                let at = now(&flows);
                if let Some(id) = flows.accept(at, transport, local, remote) {
                    tokio::task::spawn_local(serve(worker.clone(), id, tcp, transport));
                }
            }
            Err(error) => {
                worker.borrow().counters().accept_failed.add(1);
                if logged.is_none_or(|at| at.elapsed() >= ACCEPT_LOG_PAUSE) {
                    logged = Some(Instant::now());
                    tracing::warn!(%transport, %error, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Notes that a connection carries messages from now on.
fn opened<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    local: Option<SocketAddr>,
    peer: &Peer,
) {
    let mut flows = worker.borrow_mut();
    let at = now(&flows);
    flows.opened(at, id, local, peer);
}

/// Notes that a connection is closed.
fn closed<H: Handler>(worker: &SharedWorker<H>, id: FlowId, reason: CloseReason) {
    let mut flows = worker.borrow_mut();
    let at = now(&flows);
    flows.closed(at, id, reason);
    // The last one may be what the end of the worker waits for.
    flows.pipes().alarm.ring();
}

/// The life of a connection that we accepted.
async fn serve<H: Handler>(
    worker: SharedWorker<H>,
    id: FlowId,
    tcp: TcpStream,
    transport: Transport,
) {
    tune(&tcp);
    let reason = match serve_open(&worker, id, tcp, transport).await {
        Ok(reason) => reason,
        Err(error) => {
            tracing::debug!(%transport, %error, "handshake failed");
            CloseReason::Broken
        }
    };
    closed(&worker, id, reason);
}

async fn serve_open<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    tcp: TcpStream,
    transport: Transport,
) -> io::Result<CloseReason> {
    let mut peer = Peer { domains: Vec::new(), inbound: true };
    let allow = |origin: &[u8]| allow_origin(worker, id, origin);
    if !transport.is_secure() {
        if transport == Transport::Ws {
            let ws = boxed(guarded(worker, id, upgrade::upgrade(tcp, allow))).await?;
            opened(worker, id, None, &peer);
            return Ok(drive(worker, id, Socket::new(ws)).await);
        }
        opened(worker, id, None, &peer);
        return Ok(drive(worker, id, Framed::new(tcp)).await);
    }
    let server = worker.borrow().pipes().shared().tls_server.clone();
    let acceptor = server.ok_or_else(|| io::Error::other("no certificate"))?.acceptor();
    let tls = boxed(guarded(worker, id, acceptor.accept(tcp))).await?;
    peer.domains = peer_domains(tls.get_ref().1.peer_certificates());
    if transport == Transport::Wss {
        let ws = boxed(guarded(worker, id, upgrade::upgrade(tls, allow))).await?;
        opened(worker, id, None, &peer);
        return Ok(drive(worker, id, Socket::new(ws)).await);
    }
    opened(worker, id, None, &peer);
    Ok(drive(worker, id, Framed::new(tls)).await)
}

/// Whether a page of this origin may open a WebSocket.
fn allow_origin<H: Handler>(worker: &SharedWorker<H>, id: FlowId, origin: &[u8]) -> bool {
    let mut flows = worker.borrow_mut();
    let at = now(&flows);
    let Some(flow) = flows.flow(id) else { return false };
    flows.pipes_mut().allow_origin(at, (flow.local, flow.remote), origin)
}

/// A peer to connect to.
struct Dial {
    remote: SocketAddr,
    /// The address to connect from, where the listener has one of its own.
    from: Option<IpAddr>,
    /// The name the certificate must carry.
    name: Option<Arc<str>>,
    /// For TLS.
    secure: Option<Arc<TlsClient>>,
    files: Files,
}

/// Begins to open a connection. Returns our address, as far as it is known.
pub(crate) fn open<H: Handler>(
    sockets: &mut Sockets<H>,
    at: Time,
    id: FlowId,
    open: Open,
) -> Option<SocketAddr> {
    let Open { transport, remote, name } = open;
    let worker = sockets.worker()?;
    let secure = match transport {
        Transport::Tls => Some(sockets.shared().tls_client.clone()?),
        _ => None,
    };
    let listener = sockets.listener_for(at, transport, remote);
    let from = listener
        .map(|index| sockets.listening().listeners()[index].addr.ip())
        .filter(|ip| !ip.is_unspecified() && ip.is_loopback() == remote.ip().is_loopback());
    let dial = Dial { remote, from, name, secure, files: sockets.shared().files };
    tokio::task::spawn_local(connect_and_serve(worker, id, dial));
    Some(SocketAddr::new(from.unwrap_or(remote.ip()), 0))
}

/// The life of a connection that we open.
async fn connect_and_serve<H: Handler>(worker: SharedWorker<H>, id: FlowId, dial: Dial) {
    let remote = dial.remote;
    let reason = match dial_open(&worker, id, dial).await {
        Ok(reason) => reason,
        Err(error) => {
            tracing::debug!(%remote, %error, "cannot connect");
            CloseReason::Broken
        }
    };
    closed(&worker, id, reason);
}

async fn dial_open<H: Handler>(
    worker: &SharedWorker<H>,
    id: FlowId,
    dial: Dial,
) -> io::Result<CloseReason> {
    let tcp = guarded(worker, id, connect(dial.remote, dial.from, &dial.files)).await?;
    tune(&tcp);
    let local = tcp.local_addr().ok();
    let mut peer = Peer::default();
    let Some(client) = dial.secure else {
        opened(worker, id, local, &peer);
        return Ok(drive(worker, id, Framed::new(tcp)).await);
    };
    let name = server_name(dial.name.as_deref(), dial.remote.ip())
        .ok_or_else(|| io::Error::other("not a name a certificate can carry"))?;
    let tls = boxed(guarded(worker, id, client.connector().connect(name, tcp))).await?;
    peer.domains = peer_domains(tls.get_ref().1.peer_certificates());
    opened(worker, id, local, &peer);
    Ok(drive(worker, id, Framed::new(tls)).await)
}

async fn connect(remote: SocketAddr, from: Option<IpAddr>, files: &Files) -> io::Result<TcpStream> {
    let socket = if remote.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if !files.permit(&socket) {
        return Err(io::Error::other("no file descriptor is free but those reserved"));
    }
    if let Some(from) = from {
        socket.bind(SocketAddr::new(from, 0))?;
    }
    socket.connect(remote).await
}

/// Messages are small and complete when written: nothing is gained by waiting for more.
fn tune(tcp: &TcpStream) {
    let socket = socket2::SockRef::from(tcp);
    // A socket that refuses these options still carries messages.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_user_timeout(Some(USER_TIMEOUT));
}

/// Puts a handshake into a box of its own, which is freed when it is over: the task stays small.
fn boxed<T>(work: impl Future<Output = T>) -> Pin<Box<impl Future<Output = T>>> {
    Box::pin(work)
}

/// Does `work` unless the connection is to end before it is done.
async fn guarded<H: Handler, T>(
    worker: &SharedWorker<H>,
    id: FlowId,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let mut flows = worker.borrow_mut();
        if !listen(&mut flows, id, cx) || flows.ending(id).is_some() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        drop(flows);
        work.as_mut().poll(cx)
    })
    .await
}
