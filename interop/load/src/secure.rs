//! TLS for the generator: one self-signed certificate that both ends show and trust, so that server
//! and generator verify each other as they would elsewhere.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig};
use rustls::{ServerConnection, crypto};

use crate::error::{Error, doing};

/// What connections of both directions are made with.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// Reads a certificate and its key from PEM files. The certificate is also the only authority that
    /// is trusted.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let bad = |path: &Path, why: String| Error::Usage(format!("{}: {why}", path.display()));
        let shown = CertificateDer::from_pem_file(certificate)
            .map_err(|e| bad(certificate, e.to_string()))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|e| bad(key, e.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots.add(shown.clone()).map_err(|e| bad(certificate, e.to_string()))?;
        let provider = Arc::new(crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(certificate, e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(certificate, e.to_string()))?
            .with_no_client_auth()
            .with_single_cert(vec![shown], key)
            .map_err(|e| bad(certificate, e.to_string()))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The generator's end of a connection to a server at `ip`, after its handshake.
    pub(crate) fn connect(&self, mut socket: TcpStream, ip: IpAddr) -> Result<Link, Error> {
        let what = "cannot open a TLS connection";
        let name = ServerName::IpAddress(ip.into());
        let client = ClientConnection::new(Arc::clone(&self.client), name);
        let mut connection = doing(what, client.map_err(io::Error::other))?;
        while connection.is_handshaking() {
            doing(what, connection.complete_io(&mut socket))?;
        }
        Ok(Link::new(connection.into(), socket))
    }

    /// The generator's end of a connection that the server has opened.
    pub(crate) fn accept(&self, socket: TcpStream) -> Result<Link, Error> {
        let server = ServerConnection::new(Arc::clone(&self.server)).map_err(io::Error::other);
        Ok(Link::new(doing("cannot take a TLS connection", server)?.into(), socket))
    }
}

/// A TLS connection over a socket that does not block.
pub(crate) struct Link {
    tls: Box<Connection>,
    socket: TcpStream,
}

impl Link {
    fn new(mut tls: Connection, socket: TcpStream) -> Self {
        // What the socket does not take waits in `port.rs`'s count; a limit here would split messages.
        tls.set_buffer_limit(None);
        Self { tls: Box::new(tls), socket }
    }

    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether records wait for the socket.
    pub(crate) fn owes(&self) -> bool {
        self.tls.wants_write()
    }

    /// Gives the socket what waits, as far as it takes it.
    fn push(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Read for Link {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(room) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            self.tls.process_new_packets().map_err(io::Error::other)?;
            self.push()?;
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        self.push()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}
