//! One TLS connection, on one pair of streams.

use crate::tls::peer_domains;
use bytes::{Buf, Bytes};
use ringway_flow::{Broken, ByteStream};
use ringway_sctp_tokio::{Association, SendOptions};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bytes of a TLS record's header, the last two of which say how many follow (RFC 8446 section 5.1).
const RECORD_HEADER: usize = 5;

/// Bytes of plaintext taken out at once.
const PORTION: usize = 4096;

/// Who speaks first.
pub(super) enum Role {
    Client(Arc<ClientConfig>, ServerName<'static>),
    Server(Arc<ServerConfig>),
}

/// A TLS connection and the messages within it.
pub(super) struct Session {
    tls: Connection,
    stream: u16,
    pub(super) messages: ByteStream,
    /// Records that the association has not taken yet.
    outgoing: Bytes,
    /// Messages of SCTP that were given to the association.
    pub(super) given: u64,
    /// The handshake is over.
    pub(super) open: bool,
}

impl Session {
    pub(super) fn new(role: &Role, stream: u16) -> Result<Session, rustls::Error> {
        let tls = match role {
            Role::Client(config, name) => {
                let mut tls = ClientConnection::new(config.clone(), name.clone())?;
                // What is given is bounded by who gives it: a message at a time.
                tls.set_buffer_limit(None);
                Connection::from(tls)
            }
            Role::Server(config) => {
                let mut tls = ServerConnection::new(config.clone())?;
                tls.set_buffer_limit(None);
                Connection::from(tls)
            }
        };
        let (messages, outgoing) = (ByteStream::new(), Bytes::new());
        Ok(Session { tls, stream, messages, outgoing, given: 0, open: false })
    }

    /// Takes what came on its stream. Gives whether the handshake ended with it. After an error there
    /// may still be an alert to send.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes)?;
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            self.read(state.plaintext_bytes_to_read())?;
            if state.peer_has_closed() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let ended = !self.open && !self.tls.is_handshaking();
        self.open |= ended;
        Ok(ended)
    }

    fn read(&mut self, mut left: usize) -> io::Result<()> {
        let mut portion = [0; PORTION];
        while left > 0 {
            let got = self.tls.reader().read(&mut portion[..left.min(PORTION)])?;
            self.messages.extend(&portion[..got]);
            left -= got;
        }
        Ok(())
    }

    /// The domains that the peer proved.
    pub(super) fn domains(&self) -> Vec<Box<str>> {
        peer_domains(self.tls.peer_certificates())
    }

    /// Puts a message in, once all before it is with the association.
    pub(super) fn write(&mut self, message: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(message)
    }

    /// Says that nothing more follows.
    pub(super) fn say_closed(&mut self) {
        self.tls.send_close_notify();
    }

    /// Gives the association what there is to send: each record is a message (RFC 3436 section 3.2),
    /// in order and for as long as it takes (section 6.2).
    pub(super) fn poll_flush(
        &mut self,
        association: &Association,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        let options = SendOptions { stream: self.stream, ..SendOptions::default() };
        loop {
            while !self.outgoing.is_empty() {
                let length = record(&self.outgoing);
                let mut data = self.outgoing.slice(..length);
                let sent = ready!(association.poll_send(cx, &mut data, &options));
                sent.map_err(|_| Broken)?;
                self.outgoing.advance(length);
                self.given += 1;
            }
            if !self.tls.wants_write() {
                return Poll::Ready(Ok(()));
            }
            let mut records = Vec::new();
            while self.tls.wants_write() {
                self.tls.write_tls(&mut records).map_err(|_| Broken)?;
            }
            self.outgoing = records.into();
        }
    }
}

/// How many bytes the first of some records takes.
fn record(records: &[u8]) -> usize {
    match records.get(RECORD_HEADER - 2..RECORD_HEADER) {
        Some(length) => {
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            records.len().min(RECORD_HEADER + length)
        }
        None => records.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8446 section 5.1.
    #[test]
    fn records_are_told_apart() {
        assert_eq!(record(&[23, 3, 3, 0, 2, 1, 2, 23, 3, 3]), 7);
        assert_eq!(record(&[23, 3, 3, 1, 0, 1]), 6);
        assert_eq!(record(&[23, 3]), 2);
    }
}
