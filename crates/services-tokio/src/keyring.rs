//! Certificates, keys and trust by name: what the names in security parameters stand for (RFC 9622 section 6.3).

use crate::error::Error;
use ringway_services::SecurityParameters;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// Where systems keep the trust anchors of the public key infrastructure of the web.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A certificate with its chain, and its key.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Identity { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// Certificates, keys and trust anchors, by the names that security parameters use.
///
/// The first identity is the one of parameters that name none.
#[derive(Clone, Default)]
pub struct Keyring {
    roots: Vec<CertificateDer<'static>>,
    identities: BTreeMap<String, Identity>,
    first: Option<String>,
    /// Certificates that servers are pinned to.
    pinned: BTreeMap<String, CertificateDer<'static>>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("roots", &self.roots.len())
            .field("identities", &self.identities.keys())
            .finish_non_exhaustive()
    }
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| Error::security(what, error))?;
    if all.is_empty() {
        return Err(Error::security(what, "expected a certificate in PEM, got none"));
    }
    Ok(all)
}

impl Keyring {
    /// Returns an empty keyring, with which nothing secure can be opened or listened for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns it with trust anchors in PEM.
    ///
    /// # Errors
    /// The text has no certificate.
    pub fn with_roots(mut self, pem: &[u8]) -> Result<Self, Error> {
        self.roots.extend(certificates("trust anchors", pem)?);
        Ok(self)
    }

    /// Returns it with the trust anchors that the system keeps for the web.
    ///
    /// # Errors
    /// The system keeps none at a known location.
    pub fn with_system_roots(self) -> Result<Self, Error> {
        let file = SYSTEM_ROOTS.iter().find(|file| Path::new(file).exists());
        let file = file.ok_or_else(|| {
            Error::security("trust anchors of the system", "there is no file at a known location")
        })?;
        let pem = std::fs::read(file).map_err(|error| Error::system(*file, error))?;
        self.with_roots(&pem)
    }

    /// Returns it with an identity: a certificate with its chain and a key, both in PEM.
    ///
    /// # Errors
    /// The texts have no certificate or no key.
    pub fn with_identity(mut self, name: &str, chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| Error::security(name, e))?;
        let identity = Identity { chain: certificates(name, chain)?, key };
        self.identities.insert(name.to_string(), identity);
        self.first.get_or_insert_with(|| name.to_string());
        Ok(self)
    }

    /// Returns it with a certificate in PEM that servers can be pinned to (`pinnedServerCertificate`).
    ///
    /// # Errors
    /// The text has no certificate.
    pub fn with_pinned(mut self, name: &str, pem: &[u8]) -> Result<Self, Error> {
        let first = certificates(name, pem)?.swap_remove(0);
        self.pinned.insert(name.to_string(), first);
        Ok(self)
    }

    /// Returns why nothing secure can be opened; `None` if it can.
    pub(crate) fn lacks_trust(&self) -> Option<&'static str> {
        let has_trust = !self.roots.is_empty() || !self.pinned.is_empty();
        (!has_trust).then_some("the keyring has no trust anchor")
    }

    /// Returns why nothing secure can be listened for; `None` if it can.
    pub(crate) fn lacks_identity(&self) -> Option<&'static str> {
        self.first.is_none().then_some("the keyring has no identity")
    }

    fn identity(&self, names: &[String]) -> Result<Option<&Identity>, Error> {
        let Some(name) = names.first() else { return Ok(None) };
        let found = self.identities.get(name);
        found
            .map(Some)
            .ok_or_else(|| Error::security(name.as_str(), "the keyring has no such identity"))
    }

    fn roots(&self, pinned: &[String]) -> Result<RootCertStore, Error> {
        let mut store = RootCertStore::empty();
        for name in pinned {
            let certificate = self.pinned.get(name).ok_or_else(|| {
                Error::security(name.as_str(), "the keyring has no such pinned certificate")
            })?;
            store
                .add(certificate.clone())
                .map_err(|error| Error::security(name.as_str(), error))?;
        }
        if pinned.is_empty() {
            // Collections of the system contain certificates that are none, and others have a broken one each year.
            store.add_parsable_certificates(self.roots.iter().cloned());
        }
        Ok(store)
    }

    /// Returns the configuration of an end that opens connections.
    pub(crate) fn client(
        &self,
        parameters: &SecurityParameters,
        alpn: &[String],
    ) -> Result<ClientConfig, Error> {
        refuse_unsupported(parameters)?;
        let roots = self.roots(&parameters.pinned_server_certificate)?;
        let builder = ClientConfig::builder_with_provider(provider(parameters)?)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::security("ciphersuite", error))?
            .with_root_certificates(roots);
        let mut config = match self.identity(&parameters.client_certificate)?.cloned() {
            None => builder.with_no_client_auth(),
            Some(Identity { chain, key }) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| Error::security("clientCertificate", error))?,
        };
        config.alpn_protocols = alpn.iter().map(|name| name.clone().into_bytes()).collect();
        if let Some(sessions) = parameters.max_cached_sessions {
            config.resumption = Resumption::in_memory_sessions(sessions as usize);
        }
        Ok(config)
    }

    /// Returns the configuration of an end that listens. It asks for a certificate of the peer if `clientCertificate` is
    /// set, whose value then means nothing else.
    pub(crate) fn server(
        &self,
        parameters: &SecurityParameters,
        alpn: &[String],
    ) -> Result<ServerConfig, Error> {
        refuse_unsupported(parameters)?;
        let provider = provider(parameters)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::security("ciphersuite", error))?;
        let builder = if parameters.client_certificate.is_empty() {
            builder.with_no_client_auth()
        } else {
            let roots = Arc::new(self.roots(&[])?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            let verifier = verifier.map_err(|error| Error::security("clientCertificate", error))?;
            builder.with_client_cert_verifier(verifier)
        };
        let named = self.identity(&parameters.server_certificate)?;
        let first = self.first.as_ref().and_then(|name| self.identities.get(name));
        let identity = named.or(first).cloned();
        let Identity { chain, key } = identity
            .ok_or_else(|| Error::security("serverCertificate", "the keyring has no identity"))?;
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| Error::security("serverCertificate", error))?;
        config.alpn_protocols = alpn.iter().map(|name| name.clone().into_bytes()).collect();
        if let Some(sessions) = parameters.max_cached_sessions {
            config.session_storage =
                rustls::server::ServerSessionMemoryCache::new(sessions as usize);
        }
        Ok(config)
    }
}

/// Refuses parameters that cannot be met: what is required must not seem to be there.
fn refuse_unsupported(parameters: &SecurityParameters) -> Result<(), Error> {
    let unsupported = [
        ("preSharedKey", !parameters.pre_shared_key.is_empty()),
        ("signatureAlgorithm", !parameters.signature_algorithm.is_empty()),
        ("cachedSessionLifetimeSeconds", parameters.cached_session_lifetime_seconds.is_some()),
    ];
    match unsupported.into_iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(Error::security(name, "the TLS library has no such setting")),
        None => Ok(()),
    }
}

/// Returns the cryptography, reduced to the ciphers and groups that the parameters name.
fn provider(parameters: &SecurityParameters) -> Result<Arc<CryptoProvider>, Error> {
    let mut provider = rustls::crypto::ring::default_provider();
    let names = |list: &[String], name: &str| {
        list.is_empty() || list.iter().any(|one| one.eq_ignore_ascii_case(name))
    };
    let suite =
        |suite: &rustls::SupportedCipherSuite| suite.suite().as_str().unwrap_or("").to_string();
    provider.cipher_suites.retain(|one| names(&parameters.ciphersuite, &suite(one)));
    let group = |group: &&'static dyn rustls::crypto::SupportedKxGroup| {
        group.name().as_str().unwrap_or("").to_string()
    };
    provider.kx_groups.retain(|one| names(&parameters.supported_group, &group(one)));
    if provider.cipher_suites.is_empty() {
        return Err(Error::security("ciphersuite", "none of them is supported"));
    }
    if provider.kx_groups.is_empty() {
        return Err(Error::security("supportedGroup", "none of them is supported"));
    }
    Ok(Arc::new(provider))
}

/// Returns the name that is expected in the certificate of a peer: the host of its endpoint, or else its address.
pub(crate) fn server_name(host: Option<&str>, ip: IpAddr) -> Result<ServerName<'static>, String> {
    match host {
        Some(host) => ServerName::try_from(host.trim_end_matches('.').to_string())
            .map_err(|error| format!("{host}: {error}")),
        None => Ok(ServerName::IpAddress(ip.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring() -> Keyring {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        Keyring::new()
            .with_identity("server", chain.as_bytes(), key.as_bytes())
            .and_then(|keyring| keyring.with_roots(chain.as_bytes()))
            .unwrap()
    }

    /// RFC 9622 section 6.3.
    #[test]
    fn names_of_parameters_are_resolved_or_refused() {
        let keyring = keyring();
        let mut parameters = SecurityParameters::new();
        assert!(
            keyring.server(&parameters, &[]).is_ok() && keyring.client(&parameters, &[]).is_ok()
        );
        parameters.server_certificate = vec!["other".into()];
        let error = keyring.server(&parameters, &[]).unwrap_err().to_string();
        assert_eq!(error, "other: the keyring has no such identity");
        parameters.pinned_server_certificate = vec!["pin".into()];
        assert!(keyring.client(&parameters, &[]).is_err());
    }

    #[test]
    fn what_cannot_be_met_is_refused() {
        let keyring = keyring();
        let mut parameters = SecurityParameters::new();
        parameters.set("ciphersuite", "TLS13_AES_256_GCM_SHA384").unwrap();
        assert!(keyring.client(&parameters, &[]).is_ok());
        parameters.set("ciphersuite", "TLS_NULL").unwrap();
        assert!(keyring.client(&parameters, &[]).is_err());
        let mut parameters = SecurityParameters::new();
        parameters.set("preSharedKey", "k").unwrap();
        let error = keyring.client(&parameters, &[]).unwrap_err().to_string();
        assert!(error.starts_with("preSharedKey: "), "{error}");
    }

    #[test]
    fn an_empty_keyring_says_what_it_lacks() {
        let keyring = Keyring::new();
        assert_eq!(keyring.lacks_trust(), Some("the keyring has no trust anchor"));
        assert_eq!(keyring.lacks_identity(), Some("the keyring has no identity"));
        assert!(keyring.with_roots(b"nothing").is_err());
    }
}
