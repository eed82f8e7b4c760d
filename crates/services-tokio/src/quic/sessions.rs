//! Sessions of QUIC that outlive their connections, so that the next one to the same server can begin with data
//! (RFC 9001 section 4.6).

use crate::error::Error;
use crate::keyring::Keyring;
use quinn::crypto::rustls::QuicClientConfig;
use ringway_services::SecurityParameters;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Combinations of security parameters and application protocols whose sessions are kept. The oldest are dropped.
const MAX_KINDS: usize = 16;

/// Security parameters and the names of application protocols: what a session was agreed for.
type Kind = (SecurityParameters, Vec<String>);

/// The sessions of a system. Each kind has its own, so that none is resumed with less trust than it began with.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<VecDeque<(Kind, Arc<QuicClientConfig>)>>);

impl Sessions {
    /// Returns the configuration of an end that opens connections, with the sessions of earlier ones.
    pub(super) fn client(
        &self,
        keyring: &Keyring,
        security: &SecurityParameters,
        alpn: &[String],
    ) -> Result<Arc<QuicClientConfig>, Error> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |((one, names), _): &&(Kind, _)| one == security && names == alpn;
        if let Some((_, config)) = kinds.iter().find(is) {
            return Ok(config.clone());
        }
        let mut tls = keyring.client(security, alpn)?;
        tls.enable_early_data = true;
        let config = QuicClientConfig::try_from(tls).map_err(|e| Error::security("QUIC", e))?;
        let config = Arc::new(config);
        if kinds.len() >= MAX_KINDS {
            kinds.pop_front();
        }
        kinds.push_back(((security.clone(), alpn.to_vec()), config.clone()));
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_for_equal_parameters_and_are_bounded() {
        let (sessions, keyring) = (Sessions::default(), Keyring::new());
        let client = |name: &str, security: &SecurityParameters| {
            sessions.client(&keyring, security, &[name.to_string()]).unwrap()
        };
        let security = SecurityParameters::new();
        let first = client("a", &security);
        assert!(Arc::ptr_eq(&first, &client("a", &security)));
        assert!(!Arc::ptr_eq(&first, &client("b", &security)));
        let mut other = SecurityParameters::new();
        other.set("supportedGroup", "X25519").unwrap();
        assert!(!Arc::ptr_eq(&first, &client("a", &other)));
        (0..MAX_KINDS).for_each(|n| drop(client(&n.to_string(), &security)));
        assert!(!Arc::ptr_eq(&first, &client("a", &security)));
    }
}
