//! The SIP domains of a certificate, and its verification (RFC 5922).

use super::provider::provider;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// Returns the SIP domain identities of a valid certificate in lower case (RFC 5922 section 7.1): the hosts
/// of its `sip` URIs without a user, or else its DNS names.
pub fn sip_domains(certificate: &CertificateDer<'_>) -> Vec<Box<str>> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let uris: Vec<Box<str>> = parsed.valid_uri_names().filter_map(uri_domain).collect();
    if !uris.is_empty() {
        return uris;
    }
    parsed.valid_dns_names().map(lower).collect()
}

/// Returns the host of a `sip` URI that names a domain.
fn uri_domain(uri: &str) -> Option<Box<str>> {
    let (scheme, rest) = uri.split_once(':')?;
    if !scheme.eq_ignore_ascii_case("sip") || rest.contains('@') {
        return None;
    }
    let host = rest.split([';', '?', '/', ':']).next()?;
    (!host.is_empty()).then(|| lower(host))
}

/// Returns the names by which a certificate may be requested in a handshake.
pub(crate) fn all_names(certificate: &CertificateDer<'_>) -> Vec<Box<str>> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    parsed
        .valid_uri_names()
        .filter_map(uri_domain)
        .chain(parsed.valid_dns_names().map(lower))
        .collect()
}

fn lower(name: &str) -> Box<str> {
    name.trim_end_matches('.').to_ascii_lowercase().into()
}

/// Accepts a server whose certificate chains to the roots and is for the expected domain.
#[derive(Debug)]
pub(crate) struct SipVerifier {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SipVerifier {
    pub(crate) fn new(roots: Arc<RootCertStore>) -> Self {
        SipVerifier { roots, algorithms: provider().signature_verification_algorithms }
    }
}

impl ServerCertVerifier for SipVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        match server_name {
            ServerName::DnsName(name) => {
                // RFC 5922 section 7.2: whole names, any case, no wildcards.
                let domains = sip_domains(end_entity);
                let expected = name.as_ref().trim_end_matches('.');
                if !domains.iter().any(|d| d.eq_ignore_ascii_case(expected)) {
                    let fault = Arc::new(WrongDomain { expected: expected.into(), domains });
                    return Err(CertificateError::Other(OtherError(fault)).into());
                }
            }
            other => verify_server_name(&parsed, other)?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The error of a valid certificate for another domain.
struct WrongDomain {
    expected: Box<str>,
    domains: Vec<Box<str>>,
}

impl fmt::Debug for WrongDomain {
    /// As `Display`, because rustls prints the errors of verifiers with `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for WrongDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected a certificate for {}, got one for ", self.expected)?;
        match self.domains.as_slice() {
            [] => f.write_str("no SIP domain"),
            domains => f.write_str(&domains.join(", ")),
        }
    }
}

impl std::error::Error for WrongDomain {}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

    /// RFC 5922 section 7.1.
    #[test]
    fn a_uri_names_a_domain_only_without_a_user() {
        assert_eq!(uri_domain("SIP:Example.com"), Some("example.com".into()));
        assert_eq!(uri_domain("sip:example.com:5061;transport=tls"), Some("example.com".into()));
        assert_eq!(uri_domain("sip:alice@example.com"), None);
        assert_eq!(uri_domain("sips:example.com"), None);
        assert_eq!(uri_domain("https://example.com"), None);
    }

    fn signed(names: Vec<SanType>) -> (CertificateDer<'static>, Arc<RootCertStore>) {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_cert = ca.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(ca, ca_key);
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        let cert = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(ca_cert.der().clone()).unwrap();
        (cert.der().clone(), Arc::new(roots))
    }

    fn check(names: Vec<SanType>, wanted: &str) -> Result<(), String> {
        let (cert, roots) = signed(names);
        let name = ServerName::try_from(wanted.to_owned()).unwrap();
        SipVerifier::new(roots)
            .verify_server_cert(&cert, &[], &name, &[], UnixTime::now())
            .map(|_| ())
            .map_err(|e| e.to_string())
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn uri(uri: &str) -> SanType {
        SanType::URI(uri.try_into().unwrap())
    }

    /// RFC 5922 sections 7.1 and 7.2.
    #[test]
    fn a_server_is_accepted_for_its_own_domain_only() {
        assert!(check(vec![dns("example.com")], "EXAMPLE.com").is_ok());
        assert!(check(vec![dns("example.com")], "sip.example.com").is_err());
        assert!(check(vec![dns("*.example.com")], "sip.example.com").is_err());
        assert!(
            check(vec![uri("sip:example.com"), dns("host.example.com")], "example.com").is_ok()
        );
        // A DNS name does not count beside a sip URI.
        let error = check(vec![uri("sip:example.com"), dns("other.org")], "other.org").unwrap_err();
        assert!(
            error.contains("expected a certificate for other.org, got one for example.com"),
            "{error}"
        );
        assert!(check(vec![SanType::IpAddress([192, 0, 2, 1].into())], "192.0.2.1").is_ok());
    }

    #[test]
    fn an_unknown_authority_is_not_trusted() {
        let (cert, _) = signed(vec![dns("example.com")]);
        let (_, others) = signed(vec![dns("example.com")]);
        let name = ServerName::try_from("example.com").unwrap();
        let verdict =
            SipVerifier::new(others).verify_server_cert(&cert, &[], &name, &[], UnixTime::now());
        assert!(verdict.is_err());
    }
}
