//! TLS for connections with PostgreSQL, by rustls. The server's certificate is checked for the host's name, as
//! `sslmode=verify-full` of libpq does.

use ringway_net::Roots;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Makes connections secure.
#[derive(Clone)]
pub(super) struct Connector(TlsConnector);

impl Connector {
    /// Returns one that trusts these authorities in PEM, or those of the host.
    pub(super) fn new(roots: Option<&[u8]>) -> Result<Self, String> {
        let roots = match roots {
            Some(pem) => Roots::from_pem(pem, "users.roots"),
            None => Roots::system(),
        };
        let client = roots.and_then(|roots| roots.client()).map_err(|e| e.to_string())?;
        Ok(Connector(TlsConnector::from(Arc::new(client))))
    }
}

/// A connector, and the name that the certificate must have.
pub(super) struct Named(TlsConnector, ServerName<'static>);

/// A secure connection.
pub(super) struct Stream(TlsStream<Socket>);

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Named;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Named, InvalidDnsNameError> {
        Ok(Named(self.0.clone(), ServerName::try_from(host.to_owned())?))
    }
}

impl TlsConnect<Socket> for Named {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, socket).await.map(Stream) })
    }
}

impl tokio_postgres::tls::TlsStream for Stream {
    /// The certificate is checked, so that nothing has to bind the password to it.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
