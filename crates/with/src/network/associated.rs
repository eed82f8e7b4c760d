//! A connection over SCTP: with an association of its own, or as a stream of one.

use super::alone::AloneTransport;
use super::below::{Below, addresses, shares};
use super::opened::{Opened, Received};
use super::sharing::{Hub, SharedTransport};
use super::unread::Unread;
use bytes::Bytes;
use ringway_sctp_tokio::Association;
use std::io;
use std::sync::Arc;

/// A connection over SCTP.
pub(crate) enum SctpTransport {
    Alone(AloneTransport),
    Shared(SharedTransport),
}

impl SctpTransport {
    pub(super) fn association(&self) -> &Association {
        match self {
            SctpTransport::Alone(alone) => alone.association(),
            SctpTransport::Shared(shared) => shared.association(),
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            SctpTransport::Alone(alone) => alone.title(),
            SctpTransport::Shared(shared) => shared.title(),
        }
    }

    pub(super) async fn send(&self, bytes: Bytes) -> io::Result<()> {
        match self {
            SctpTransport::Alone(alone) => alone.send(bytes).await,
            SctpTransport::Shared(shared) => shared.send(bytes).await,
        }
    }

    pub(super) async fn finish(&self) -> io::Result<()> {
        match self {
            SctpTransport::Alone(alone) => alone.finish().await,
            SctpTransport::Shared(shared) => shared.finish().await,
        }
    }

    pub(super) async fn receive(&self, out: &mut Vec<u8>) -> io::Result<Received> {
        match self {
            SctpTransport::Alone(alone) => alone.receive(out).await,
            SctpTransport::Shared(shared) => shared.receive(out).await,
        }
    }

    pub(super) fn abort(&self) {
        match self {
            SctpTransport::Alone(alone) => alone.abort(),
            SctpTransport::Shared(shared) => shared.abort(),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            SctpTransport::Alone(alone) => alone.close().await,
            SctpTransport::Shared(shared) => shared.close().await,
        }
    }
}

/// Returns the connection that an association was opened for. If others may share that, the association, too.
pub(super) async fn first(
    association: Association,
    below: Below,
    unread: &Unread,
) -> io::Result<(Opened<SctpTransport>, Option<Arc<Hub>>)> {
    let (local, peer) = addresses(&association)?;
    if !shares(&association) {
        let transport = SctpTransport::Alone(AloneTransport::new(association, below));
        return Ok((Opened { transport, local, peer }, None));
    }
    let (hub, transport) =
        Hub::opened(association, below, unread).ok_or(io::ErrorKind::NotConnected)?;
    transport.begin(local.port()).await?;
    Ok((Opened { transport: SctpTransport::Shared(transport), local, peer }, Some(hub)))
}
