//! The cryptography of TLS: rustls with ring.

use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// Returns the provider of all configurations.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
