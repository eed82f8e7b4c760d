//! Certificates for tests.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ringway_net::{ClientCertificates, Identity, Roots, TlsClient, TlsServer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;

/// A certificate authority for one test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub roots: Roots,
    pub certificate: CertificateDer<'static>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let roots = Roots::from_pem(certificate.pem().as_bytes(), "test").unwrap();
        let certificate = certificate.der().clone();
        Authority { issuer: Issuer::new(params, key), roots, certificate }
    }

    pub fn identity(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes(), "test").unwrap()
    }

    /// Returns a certificate and its key, for a TLS endpoint that is part of a test.
    pub fn shown(&self, name: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    pub fn client(&self, identity: Option<&Identity>) -> Arc<TlsClient> {
        Arc::new(TlsClient::new(&self.roots, identity).unwrap())
    }
}

/// Presents one certificate and requests none.
pub fn tls_server(identity: &Identity) -> Arc<TlsServer> {
    Arc::new(TlsServer::new(std::slice::from_ref(identity), &ClientCertificates::NotAsked).unwrap())
}
