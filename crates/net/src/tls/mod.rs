//! TLS for SIP (RFC 3261 section 26, RFC 5922): the local certificates and the trusted authorities, which
//! can be replaced while running. The cryptography is rustls with ring.
//!
//! [`identity`] has the domains of a certificate and its verification, [`store`] reads files.

pub mod identity;
mod provider;
pub mod store;

use arc_swap::ArcSwap;
use identity::{SipVerifier, sip_domains};
use provider::provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
pub use store::{Identity, Roots, TlsError};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Whether clients authenticate with a certificate.
#[derive(Clone, Debug, Default)]
pub enum ClientCertificates {
    /// No certificate is requested.
    #[default]
    NotAsked,
    /// A certificate is requested and may be omitted. One that is sent must chain to these roots.
    Optional(Roots),
    /// A certificate that chains to these roots is required.
    Required(Roots),
}

/// The accepting side. One value serves all secure listeners.
pub struct TlsServer(ArcSwap<ServerConfig>);

impl TlsServer {
    /// Creates a server with these certificates. The first is sent where the client names no server or no
    /// certificate fits.
    pub fn new(identities: &[Identity], clients: &ClientCertificates) -> Result<Self, TlsError> {
        Ok(TlsServer(ArcSwap::new(Arc::new(server_config(identities, clients)?))))
    }

    /// Replaces the certificates for new connections. On an error nothing changes.
    pub fn replace(
        &self,
        identities: &[Identity],
        clients: &ClientCertificates,
    ) -> Result<(), TlsError> {
        self.0.store(Arc::new(server_config(identities, clients)?));
        Ok(())
    }

    /// Returns the current configuration.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config())
    }
}

/// The connecting side.
pub struct TlsClient(ArcSwap<ClientConfig>);

impl TlsClient {
    /// Creates a client that trusts servers whose certificate chains to `roots` and has the expected name
    /// (RFC 5922 section 7.3). It sends `identity` to a server that requests a certificate.
    pub fn new(roots: &Roots, identity: Option<&Identity>) -> Result<Self, TlsError> {
        Ok(TlsClient(ArcSwap::new(Arc::new(client_config(roots, identity)?))))
    }

    /// Replaces roots and certificate for new connections. On an error nothing changes.
    pub fn replace(&self, roots: &Roots, identity: Option<&Identity>) -> Result<(), TlsError> {
        self.0.store(Arc::new(client_config(roots, identity)?));
        Ok(())
    }

    /// Returns the current configuration.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.0.load_full()
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(self.config())
    }
}

/// Returns the name expected in a server's certificate: the domain that the message is for, or the address
/// where it is sent to an address.
pub(crate) fn server_name(name: Option<&str>, ip: IpAddr) -> Option<ServerName<'static>> {
    match name {
        Some(name) => ServerName::try_from(name.trim_end_matches('.').to_owned()).ok(),
        None => Some(ServerName::IpAddress(ip.into())),
    }
}

/// Returns the SIP domains of the certificate that was verified in a handshake.
pub(crate) fn peer_domains(chain: Option<&[CertificateDer<'_>]>) -> Vec<Box<str>> {
    chain.and_then(<[_]>::first).map(sip_domains).unwrap_or_default()
}

fn server_config(
    identities: &[Identity],
    clients: &ClientCertificates,
) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let verifier = |roots: &Roots| {
        let roots = Arc::new(RootCertStore::clone(roots.store()));
        WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
    };
    let refused = |error: &dyn std::fmt::Display| TlsError::new("client roots", error);
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new("TLS versions", &error))?;
    let builder = match clients {
        ClientCertificates::NotAsked => builder.with_no_client_auth(),
        ClientCertificates::Optional(roots) => builder.with_client_cert_verifier(
            verifier(roots).allow_unauthenticated().build().map_err(|e| refused(&e))?,
        ),
        ClientCertificates::Required(roots) => {
            builder.with_client_cert_verifier(verifier(roots).build().map_err(|e| refused(&e))?)
        }
    };
    let resolver = Certificates::new(identities)?;
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.ticketer = rustls::crypto::ring::Ticketer::new()
        .map_err(|error| TlsError::new("session tickets", &error))?;
    Ok(config)
}

fn client_config(roots: &Roots, identity: Option<&Identity>) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new("TLS versions", &error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SipVerifier::new(roots.store().clone())));
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain().to_vec(), identity.key())
            .map_err(|error| TlsError::new(identity.origin(), &error)),
    }
}

/// Chooses the certificate by the server name that the client sends (RFC 6066 section 3).
#[derive(Debug)]
struct Certificates {
    by_name: HashMap<Box<str>, Arc<CertifiedKey>>,
    first: Arc<CertifiedKey>,
}

impl Certificates {
    fn new(identities: &[Identity]) -> Result<Self, TlsError> {
        let mut by_name = HashMap::new();
        let mut first = None;
        for identity in identities {
            let key = Arc::new(identity.certified()?);
            for name in identity.names() {
                by_name.entry(name).or_insert_with(|| key.clone());
            }
            first.get_or_insert(key);
        }
        let first = first.ok_or_else(|| TlsError::new("certificates", &"none given"))?;
        Ok(Certificates { by_name, first })
    }

    fn choose(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        // A wildcard is not valid between SIP domains (RFC 5922 section 7.2), but browsers accept one for
        // secure WebSockets.
        let wild = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        self.by_name
            .get(name.as_str())
            .or_else(|| self.by_name.get(wild()?.as_str()))
            .unwrap_or(&self.first)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or(&self.first, |name| self.choose(name)).clone())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A self-signed certificate for these subject alternative names.
    pub(crate) fn identity(names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        Identity::from_pem(chain.as_bytes(), key.as_bytes(), "test").unwrap()
    }

    #[test]
    fn the_certificate_follows_the_server_name() {
        let (a, b) = (identity(&["a.example", "*.w.example"]), identity(&["b.example"]));
        let certificates = Certificates::new(&[a.clone(), b.clone()]).unwrap();
        let chosen = |name| certificates.choose(name).cert[0].clone();
        assert_eq!(chosen("B.example"), b.chain()[0]);
        assert_eq!(chosen("a.example"), a.chain()[0]);
        assert_eq!(chosen("x.w.example"), a.chain()[0]);
        assert_eq!(chosen("other.example"), a.chain()[0]);
    }

    #[test]
    fn no_certificate_is_an_error() {
        let error = TlsServer::new(&[], &ClientCertificates::NotAsked).err().unwrap();
        assert_eq!(error.to_string(), "certificates: none given");
    }
}
