//! Security parameters (RFC 9622 section 6.3). Certificates, keys and trust are names, which the caller resolves.

use crate::properties::{Preference, ValueError, parse};
use thiserror::Error;

/// Values of one security parameter.
pub const MAX_VALUES: usize = 32;
/// Octets of one value; an ALPN identifier has at most 255 (RFC 7301 section 3.1).
pub const MAX_VALUE: usize = 255;

/// What protects a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SecurityParameters {
    /// Whether there must be security: required unless the program says otherwise (RFC 9622 section 6.3).
    pub preference: Preference,
    /// `allowedSecurityProtocols`; empty for all.
    pub allowed_security_protocols: Vec<String>,
    /// `serverCertificate`.
    pub server_certificate: Vec<String>,
    /// `clientCertificate`.
    pub client_certificate: Vec<String>,
    /// `pinnedServerCertificate`.
    pub pinned_server_certificate: Vec<String>,
    /// `alpn`, most wanted first.
    pub alpn: Vec<String>,
    /// `supportedGroup`.
    pub supported_group: Vec<String>,
    /// `ciphersuite`.
    pub ciphersuite: Vec<String>,
    /// `signatureAlgorithm`.
    pub signature_algorithm: Vec<String>,
    /// `preSharedKey`: the names of keys.
    pub pre_shared_key: Vec<String>,
    /// `maxCachedSessions`; `None` for the library's.
    pub max_cached_sessions: Option<u32>,
    /// `cachedSessionLifetimeSeconds`; `None` for the library's.
    pub cached_session_lifetime_seconds: Option<u32>,
}

/// Why a security parameter cannot be set.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// No parameter has this name.
    #[error("no security parameter is named \"{0}\"")]
    Unknown(String),
    /// A list is longer than allowed, or one of its values is.
    #[error("{name}: expected at most {MAX_VALUES} values of at most {MAX_VALUE} octets")]
    TooLong {
        /// The name of the parameter.
        name: &'static str,
    },
    /// The text is no value of the parameter.
    #[error("{name}: {fault}")]
    Value {
        /// The name of the parameter.
        name: &'static str,
        /// What was expected.
        fault: ValueError,
    },
}

impl Default for SecurityParameters {
    fn default() -> Self {
        SecurityParameters {
            preference: Preference::Require,
            allowed_security_protocols: Vec::new(),
            server_certificate: Vec::new(),
            client_certificate: Vec::new(),
            pinned_server_certificate: Vec::new(),
            alpn: Vec::new(),
            supported_group: Vec::new(),
            ciphersuite: Vec::new(),
            signature_algorithm: Vec::new(),
            pre_shared_key: Vec::new(),
            max_cached_sessions: None,
            cached_session_lifetime_seconds: None,
        }
    }
}

impl SecurityParameters {
    /// Returns parameters that require security.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns parameters that do without security: protocols that always have it are not used.
    pub fn disabled() -> Self {
        SecurityParameters { preference: Preference::Prohibit, ..Self::default() }
    }

    /// Returns parameters that prefer security and do without where there is none.
    pub fn opportunistic() -> Self {
        SecurityParameters { preference: Preference::Prefer, ..Self::default() }
    }

    /// Returns the parameters with names of application protocols (RFC 7301), most wanted first.
    #[must_use]
    pub fn with_alpn(mut self, alpn: &[&str]) -> Self {
        self.alpn = alpn.iter().map(|name| (*name).to_string()).collect();
        self
    }

    fn list(&mut self, name: &str) -> Option<(&'static str, &mut Vec<String>)> {
        let lists = [
            ("allowedSecurityProtocols", &mut self.allowed_security_protocols),
            ("serverCertificate", &mut self.server_certificate),
            ("clientCertificate", &mut self.client_certificate),
            ("pinnedServerCertificate", &mut self.pinned_server_certificate),
            ("alpn", &mut self.alpn),
            ("supportedGroup", &mut self.supported_group),
            ("ciphersuite", &mut self.ciphersuite),
            ("signatureAlgorithm", &mut self.signature_algorithm),
            ("preSharedKey", &mut self.pre_shared_key),
        ];
        lists.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    fn number(&mut self, name: &str) -> Option<(&'static str, &mut Option<u32>)> {
        let numbers = [
            ("maxCachedSessions", &mut self.max_cached_sessions),
            ("cachedSessionLifetimeSeconds", &mut self.cached_session_lifetime_seconds),
        ];
        numbers.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    /// Sets a parameter by its name. The values of a list are separated by commas.
    ///
    /// # Errors
    /// The name is unknown, a list is too long, or the text is no number.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SecurityError> {
        if let Some((name, list)) = self.list(name) {
            let values = value.split(',').map(str::trim).filter(|value| !value.is_empty());
            let values: Vec<String> = values.take(MAX_VALUES + 1).map(str::to_string).collect();
            if values.len() > MAX_VALUES || values.iter().any(|value| value.len() > MAX_VALUE) {
                return Err(SecurityError::TooLong { name });
            }
            *list = values;
            return Ok(());
        }
        if let Some((name, number)) = self.number(name) {
            *number = Some(parse(value).map_err(|fault| SecurityError::Value { name, fault })?);
            return Ok(());
        }
        Err(SecurityError::Unknown(name.chars().take(64).collect()))
    }

    /// Returns a parameter by its name; `None` if there is none of that name, or it is not set.
    pub fn get(&self, name: &str) -> Option<String> {
        let mut copy = self.clone();
        if let Some((_, list)) = copy.list(name) {
            return (!list.is_empty()).then(|| list.join(","));
        }
        copy.number(name).and_then(|(_, number)| number.map(|number| number.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9622 section 6.3: security unless it is disabled.
    #[test]
    fn security_is_required_unless_the_program_says_otherwise() {
        assert_eq!(SecurityParameters::new().preference, Preference::Require);
        assert_eq!(SecurityParameters::opportunistic().preference, Preference::Prefer);
        assert_eq!(SecurityParameters::disabled().preference, Preference::Prohibit);
    }

    #[test]
    fn parameters_are_set_and_read_by_name() {
        let mut security = SecurityParameters::new();
        security.set("ALPN", "h3, h2").unwrap();
        security.set("maxCachedSessions", "16").unwrap();
        assert_eq!(security.alpn, ["h3", "h2"]);
        assert_eq!(security.get("alpn").as_deref(), Some("h3,h2"));
        assert_eq!(security.get("maxCachedSessions").as_deref(), Some("16"));
        assert_eq!(security.get("ciphersuite"), None);
        for (name, value) in
            [("x", "1"), ("maxCachedSessions", "-1"), ("alpn", &"a,".repeat(MAX_VALUES + 1))]
        {
            assert!(security.set(name, value).is_err(), "{name}");
        }
        assert!(security.set("alpn", &"a".repeat(MAX_VALUE + 1)).is_err());
    }
}
