//! Digest authentication: RFC 7616 as RFC 8760 lets SIP use it.
//!
//! A server writes one [`challenge`](challenge()) for each [`Algorithm`] it likes, in order of
//! preference, with a nonce from [`Nonces`]; reads [`Credentials`], asks [`Nonces::check`], looks
//! the user's [`Ha1`] up, and [`verify`]s; then [`Nonces::remember`]s. A client picks a
//! [`Challenge`] with [`choose`] and answers it with [`authorize`]. Nothing here knows users,
//! passwords at rest, or which request is to be challenged.
//!
//! The `-sess` variants and the hashed user name are neither offered nor accepted; credentials
//! without `qop` (RFC 2069) are, for MD5 alone.

mod algorithm;
mod challenge;
mod credentials;
mod nonce;
mod params;

pub use algorithm::{Algorithm, Ha1};
pub use challenge::{Answer, Challenge, authorize, challenge, choose};
pub use credentials::{Credentials, Qop, verify};
pub use nonce::{MAX_REMEMBERED, NonceVerdict, Nonces};

#[cfg(test)]
mod tests;
