//! Connections: TCP and TLS with SIP's own framing, WebSockets with theirs, associations of SCTP with or
//! without TLS. Each has a task that
//! owns the socket; [`conn`] is what the rest of the worker sees of it, [`mod@drive`] moves its messages,
//! [`bytes`], [`websocket`] and [`sctp`] know what they look like on the way.

mod awaited;
mod bytes;
pub(crate) mod conn;
mod drive;
mod life;
pub(crate) mod queue;
pub(crate) mod sctp;
mod sctp_tls;
pub(crate) mod unread;
mod upgrade;
mod websocket;

use crate::handler::{CloseReason, Handler, Peer};
use crate::hub::Hub;
use crate::shared::Files;
use crate::tls::{TlsClient, peer_domains, server_name};
use bytes::Framed;
use drive::drive;
use ringway_sansio::{FlowId, Transport};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
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

/// How long a worker logs no further refusal of an origin after one.
const ORIGIN_LOG_PAUSE: Duration = Duration::from_secs(1);

/// Octets of an origin that are logged.
const MAX_LOGGED: usize = 255;

pub(crate) type SharedHub<H> = Rc<RefCell<Hub<H>>>;

/// Accepts connections for as long as the worker lives.
pub(crate) async fn accept<H: Handler>(
    hub: SharedHub<H>,
    listener: TcpListener,
    transport: Transport,
) {
    let mut logged: Option<Instant> = None;
    loop {
        match listener.accept().await {
            Ok((tcp, remote)) => {
                let Ok(local) = tcp.local_addr() else { continue };
                let mut h = hub.borrow_mut();
                h.tick();
                if !h.shared.files.permit(&tcp) {
                    h.spare_files();
                    continue;
                }
                if let Some(id) = h.accept(transport, local, remote) {
                    tokio::task::spawn_local(serve(hub.clone(), id, tcp, transport));
                }
            }
            Err(error) => {
                hub.borrow().counters.accept_failed.add(1);
                if logged.is_none_or(|at| at.elapsed() >= ACCEPT_LOG_PAUSE) {
                    logged = Some(Instant::now());
                    tracing::warn!(%transport, %error, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The life of a connection we accepted.
async fn serve<H: Handler>(hub: SharedHub<H>, id: FlowId, tcp: TcpStream, transport: Transport) {
    tune(&tcp);
    let reason = match serve_open(&hub, id, tcp, transport).await {
        Ok(reason) => reason,
        Err(error) => {
            tracing::debug!(%transport, %error, "handshake failed");
            CloseReason::Broken
        }
    };
    hub.borrow_mut().closed(id, reason);
}

async fn serve_open<H: Handler>(
    hub: &SharedHub<H>,
    id: FlowId,
    tcp: TcpStream,
    transport: Transport,
) -> io::Result<CloseReason> {
    let mut peer = Peer { domains: Vec::new(), inbound: true };
    if !transport.is_secure() {
        if transport == Transport::Ws {
            let ws = guarded(hub, id, upgrade::upgrade(tcp, |o| allow_origin(hub, id, o))).await?;
            hub.borrow_mut().opened(id, None, peer);
            return Ok(drive(hub, id, Socket::new(ws)).await);
        }
        hub.borrow_mut().opened(id, None, peer);
        return Ok(drive(hub, id, Framed::new(tcp)).await);
    }
    let server = hub.borrow().shared.tls_server.clone();
    let acceptor = server.ok_or_else(|| io::Error::other("no certificate"))?.acceptor();
    let tls = guarded(hub, id, acceptor.accept(tcp)).await?;
    peer.domains = peer_domains(tls.get_ref().1.peer_certificates());
    if transport == Transport::Wss {
        let ws = guarded(hub, id, upgrade::upgrade(tls, |o| allow_origin(hub, id, o))).await?;
        hub.borrow_mut().opened(id, None, peer);
        return Ok(drive(hub, id, Socket::new(ws)).await);
    }
    hub.borrow_mut().opened(id, None, peer);
    Ok(drive(hub, id, Framed::new(tls)).await)
}

/// Whether a page of this origin may open a WebSocket; counts and logs it if not.
fn allow_origin<H: Handler>(hub: &SharedHub<H>, id: FlowId, origin: &[u8]) -> bool {
    let mut hub = hub.borrow_mut();
    let Some(flow) = hub.conns.get_mut(id).map(|c| c.flow) else { return false };
    let allowed = hub.shared.origins.load().allow(origin, flow.local.ip());
    if !allowed {
        hub.counters.refused_origin.add(1);
        let now = hub.now;
        // A page can ask as often as it likes; the counter tells how often.
        if hub.origin_logged.is_none_or(|at| at + ORIGIN_LOG_PAUSE <= now) {
            hub.origin_logged = Some(now);
            let origin = String::from_utf8_lossy(&origin[..origin.len().min(MAX_LOGGED)]);
            tracing::warn!(source = %flow.remote, ?origin, "WebSocket refused: origin not allowed");
        }
    }
    allowed
}

/// What to connect to.
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

/// The life of a connection we open.
async fn dial<H: Handler>(hub: SharedHub<H>, id: FlowId, dial: Dial) {
    let remote = dial.remote;
    let reason = match dial_open(&hub, id, dial).await {
        Ok(reason) => reason,
        Err(error) => {
            tracing::debug!(%remote, %error, "cannot connect");
            CloseReason::Broken
        }
    };
    hub.borrow_mut().closed(id, reason);
}

async fn dial_open<H: Handler>(
    hub: &SharedHub<H>,
    id: FlowId,
    dial: Dial,
) -> io::Result<CloseReason> {
    let tcp = guarded(hub, id, connect(dial.remote, dial.from, &dial.files)).await?;
    tune(&tcp);
    let local = tcp.local_addr().ok();
    let mut peer = Peer { domains: Vec::new(), inbound: false };
    let Some(client) = dial.secure else {
        hub.borrow_mut().opened(id, local, peer);
        return Ok(drive(hub, id, Framed::new(tcp)).await);
    };
    let name = server_name(dial.name.as_deref(), dial.remote.ip())
        .ok_or_else(|| io::Error::other("not a name a certificate can carry"))?;
    let tls = guarded(hub, id, client.connector().connect(name, tcp)).await?;
    peer.domains = peer_domains(tls.get_ref().1.peer_certificates());
    hub.borrow_mut().opened(id, local, peer);
    Ok(drive(hub, id, Framed::new(tls)).await)
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

/// Does `work` unless the connection is told to end before it is done.
async fn guarded<H: Handler, T>(
    hub: &SharedHub<H>,
    id: FlowId,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        match hub.borrow_mut().conns.get_mut(id).filter(|c| c.ending.is_none()) {
            Some(conn) => conn.listen(cx),
            None => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
        work.as_mut().poll(cx)
    })
    .await
}
