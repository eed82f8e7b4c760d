//! Certificates, keys and roots, read from PEM.

use super::identity::all_names;
use super::provider::provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The file of the certificate authorities that the system trusts.
pub const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A certificate, key or root that cannot be used. Prints as one line: location and fault.
#[derive(Debug)]
pub struct TlsError {
    location: String,
    fault: String,
}

impl TlsError {
    pub(crate) fn new(location: &str, fault: &dyn fmt::Display) -> Self {
        TlsError { location: location.to_owned(), fault: fault.to_string() }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.fault)
    }
}

impl std::error::Error for TlsError {}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| {
        let location = path.display().to_string();
        match error.kind() {
            std::io::ErrorKind::NotFound => TlsError::new(&location, &"no such file"),
            std::io::ErrorKind::PermissionDenied => TlsError::new(&location, &"permission denied"),
            _ => TlsError::new(&location, &error),
        }
    })
}

fn certificates(pem: &[u8], location: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::new(location, &error))?;
    if chain.is_empty() {
        return Err(TlsError::new(location, &"expected a certificate in PEM, got none"));
    }
    Ok(chain)
}

/// A certificate chain with its private key: the identity of this server.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    origin: String,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Identity {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
            origin: self.origin.clone(),
        }
    }
}

impl fmt::Debug for Identity {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads a chain, the end-entity certificate first, and its key.
    pub fn load(chain: &Path, key: &Path) -> Result<Self, TlsError> {
        let (chain_pem, key_pem) = (read(chain)?, read(key)?);
        let location = chain.display().to_string();
        let chain_der = certificates(&chain_pem, &location)?;
        let key_der = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|_| no_key(&key.display().to_string()))?;
        let identity = Identity { chain: chain_der, key: key_der, origin: location };
        identity.certified()?;
        Ok(identity)
    }

    /// Parses a chain and its key; `origin` names them in errors.
    pub fn from_pem(chain: &[u8], key: &[u8], origin: &str) -> Result<Self, TlsError> {
        let chain = certificates(chain, origin)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| no_key(origin))?;
        let identity = Identity { chain, key, origin: origin.to_owned() };
        identity.certified()?;
        Ok(identity)
    }

    /// Returns every name in the certificate in lower case, wildcards unchanged.
    pub fn names(&self) -> Vec<Box<str>> {
        self.chain.first().map(all_names).unwrap_or_default()
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns an error when the key does not belong to the certificate.
    pub(crate) fn certified(&self) -> Result<CertifiedKey, TlsError> {
        CertifiedKey::from_der(self.chain.clone(), self.key(), &provider())
            .map_err(|error| TlsError::new(&self.origin, &error))
    }
}

fn no_key(location: &str) -> TlsError {
    TlsError::new(location, &"expected a private key in PEM, got none")
}

/// Trusted certificate authorities.
#[derive(Clone, Debug)]
pub struct Roots(Arc<RootCertStore>);

impl Roots {
    /// Reads those that the system trusts, from [`SYSTEM_ROOTS`].
    pub fn system() -> Result<Self, TlsError> {
        Self::load(&[Path::new(SYSTEM_ROOTS)])
    }

    /// Reads PEM files.
    pub fn load(files: &[&Path]) -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        for file in files {
            add(&mut store, &read(file)?, &file.display().to_string())?;
        }
        Ok(Roots(Arc::new(store)))
    }

    /// Parses PEM text; `origin` names it in errors.
    pub fn from_pem(pem: &[u8], origin: &str) -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        add(&mut store, pem, origin)?;
        Ok(Roots(Arc::new(store)))
    }

    /// Returns a client of servers that have their own name in the certificate (RFC 9525), as a database has. Servers of SIP
    /// are checked by [`crate::TlsClient`] (RFC 5922).
    ///
    /// # Errors
    /// Fails when the library has no version of TLS for its cryptography.
    pub fn client(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new("TLS versions", &error))?;
        Ok(builder.with_root_certificates(self.0.clone()).with_no_client_auth())
    }

    pub(crate) fn store(&self) -> &Arc<RootCertStore> {
        &self.0
    }
}

fn add(store: &mut RootCertStore, pem: &[u8], location: &str) -> Result<(), TlsError> {
    // A system's store may contain a certificate that rustls cannot read; the others are still used.
    let (added, ignored) = store.add_parsable_certificates(certificates(pem, location)?);
    if added == 0 {
        let fault = format!("expected a certificate authority, got {ignored} unusable ones");
        return Err(TlsError::new(location, &fault));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_location_and_fault() {
        let error = Roots::load(&[Path::new("/nonexistent/ca.pem")]).unwrap_err();
        assert_eq!(error.to_string(), "/nonexistent/ca.pem: no such file");
        let error = Roots::from_pem(b"no pem here", "ca.pem").unwrap_err();
        assert_eq!(error.to_string(), "ca.pem: expected a certificate in PEM, got none");
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let make = || rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let (a, b) = (make(), make());
        let (chain, key) = (a.cert.pem(), b.signing_key.serialize_pem());
        let error = Identity::from_pem(chain.as_bytes(), key.as_bytes(), "a.pem").unwrap_err();
        assert!(error.to_string().starts_with("a.pem: "), "{error}");
        let error = Identity::from_pem(chain.as_bytes(), b"", "a.pem").unwrap_err();
        assert_eq!(error.to_string(), "a.pem: expected a private key in PEM, got none");
    }
}
