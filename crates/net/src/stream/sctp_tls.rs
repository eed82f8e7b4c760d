//! TLS over SCTP (RFC 3436): the first stream of an association, both ways, as a stream of bytes.
//!
//! RFC 3436 section 5 has a TLS connection for each pair of streams in use; one pair is in use here, so
//! calls over TLS are in one order, as over TCP. What several paths are worth stays.

use super::bytes::Framed;
use super::drive::drive;
use super::unread::Unread;
use super::{SharedHub, guarded};
use crate::handler::{CloseReason, Handler, Peer};
use crate::sctp::{Association, SendOptions};
use crate::tls::{peer_domains, server_name};
use bytes::Bytes;
use ringway_sansio::FlowId;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{client, server};

/// Most bytes put into one message: a record of TLS with its header, which RFC 3436 section 4 wants
/// sent whole.
const MOST: usize = (16 << 10) + 2048 + 5;

/// The stream that is used.
const STREAM: u16 = 0;

/// Stream zero of an association.
pub(super) struct Bytestream {
    association: Association,
    /// What was received and not read yet, from `at` on.
    received: Vec<u8>,
    at: usize,
}

impl Bytestream {
    fn new(association: Association) -> Bytestream {
        Bytestream { association, received: Vec::new(), at: 0 }
    }
}

impl AsyncRead for Bytestream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.at >= this.received.len() {
            this.received.clear();
            this.at = 0;
            match ready!(this.association.poll_recv_into(cx, &mut this.received)) {
                Ok(None) => return Poll::Ready(Ok(())),
                // RFC 3436 section 4: in order, and nothing of it is ever given up.
                Ok(Some(got)) if got.stream == STREAM && !got.unordered && !got.cut => {}
                Ok(Some(got)) => {
                    let text = format!("expected TLS on stream {STREAM}, got {got:?}");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                Err(error) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let rest = &this.received[this.at..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        this.at += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Bytestream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = bytes.len().min(MOST);
        if count == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut data = Bytes::copy_from_slice(&bytes[..count]);
        let options = SendOptions { stream: STREAM, ..SendOptions::default() };
        let sent = ready!(self.association.poll_send(cx, &mut data, &options));
        Poll::Ready(sent.map(|()| count).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// All that was given is delivered first.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.association.begin_shutdown();
        Poll::Ready(Ok(()))
    }
}

impl Unread for server::TlsStream<Bytestream> {
    fn unread(&self) -> usize {
        self.get_ref().0.association.statistics().map_or(0, |s| s.unread)
    }
}

impl Unread for client::TlsStream<Bytestream> {
    fn unread(&self) -> usize {
        self.get_ref().0.association.statistics().map_or(0, |s| s.unread)
    }
}

/// Carries SIP over TLS for a peer that opened the association, until it ends.
pub(super) async fn serve<H: Handler>(
    hub: &SharedHub<H>,
    id: FlowId,
    association: Association,
) -> io::Result<CloseReason> {
    let server = hub.borrow().shared.tls_server.clone();
    let acceptor = server.ok_or_else(|| io::Error::other("no certificate"))?.acceptor();
    let tls = guarded(hub, id, acceptor.accept(Bytestream::new(association))).await?;
    let domains = peer_domains(tls.get_ref().1.peer_certificates());
    hub.borrow_mut().opened(id, None, Peer { domains, inbound: true });
    Ok(drive(hub, id, Framed::new(tls)).await)
}

/// Carries SIP over TLS to a peer that we opened an association to, until it ends.
pub(super) async fn dial<H: Handler>(
    hub: &SharedHub<H>,
    id: FlowId,
    association: Association,
    remote: SocketAddr,
    name: Option<Arc<str>>,
    local: Option<SocketAddr>,
) -> io::Result<CloseReason> {
    let client = hub.borrow().shared.tls_client.clone();
    let client = client.ok_or_else(|| io::Error::other("no certificates to trust"))?;
    let name = server_name(name.as_deref(), remote.ip())
        .ok_or_else(|| io::Error::other("not a name a certificate can carry"))?;
    let connecting = client.connector().connect(name, Bytestream::new(association));
    let tls = guarded(hub, id, connecting).await?;
    let domains = peer_domains(tls.get_ref().1.peer_certificates());
    hub.borrow_mut().opened(id, local, Peer { domains, inbound: false });
    Ok(drive(hub, id, Framed::new(tls)).await)
}
