//! What was received over a connection and is not read yet.

use ringway_os::unread;
use std::os::fd::AsFd;
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

/// A connection that can tell what was received and is not read yet.
pub(super) trait Unread {
    /// Returns the number of bytes, still encrypted if they are.
    fn unread(&self) -> usize;
}

impl Unread for TcpStream {
    fn unread(&self) -> usize {
        unread(self.as_fd())
    }
}

impl Unread for server::TlsStream<TcpStream> {
    fn unread(&self) -> usize {
        self.get_ref().0.unread()
    }
}

impl Unread for client::TlsStream<TcpStream> {
    fn unread(&self) -> usize {
        self.get_ref().0.unread()
    }
}
