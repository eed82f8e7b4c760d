//! Digest authentication: RFC 7616 as adapted to SIP by RFC 8760.
//!
//! A server writes one [`challenge`](challenge()) for each [`Algorithm`] it accepts, in order of preference, with a
//! nonce from [`Nonces`]. It parses [`Credentials`], calls [`Nonces::check`], looks up the user's [`Ha1`], and calls
//! [`verify`] and then [`Nonces::remember`]. A client selects a [`Challenge`] with [`choose`] and answers it with
//! [`authorize`]. Users, stored passwords and the choice of requests to challenge are not part of this module.
//!
//! The `-sess` variants and the hashed user name are neither offered nor accepted. Credentials without `qop` (RFC 2069)
//! are accepted for MD5 only.

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
