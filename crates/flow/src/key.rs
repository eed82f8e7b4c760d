//! The key of a connection that this worker opened.

use ringway_sansio::Transport;
use std::net::SocketAddr;
use std::sync::Arc;

/// The key by which a message for a peer finds a connection that this worker opened. A secure connection was
/// verified for one name and serves no other (RFC 5922 section 4).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    transport: Transport,
    remote: SocketAddr,
    name: Option<Arc<str>>,
}

impl Key {
    pub(crate) fn new(transport: Transport, remote: SocketAddr, name: Option<&Arc<str>>) -> Self {
        let name = name.filter(|_| transport.is_secure()).cloned();
        Key { transport, remote, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5922 section 4: a certificate proves one domain.
    #[test]
    fn a_secure_key_is_of_one_name() {
        let remote = "192.0.2.1:5061".parse().unwrap();
        let (a, b): (Arc<str>, Arc<str>) = ("a.example".into(), "b.example".into());
        let key = |t, n| Key::new(t, remote, Some(n));
        assert_ne!(key(Transport::Tls, &a), key(Transport::Tls, &b));
        assert_eq!(key(Transport::Tcp, &a), key(Transport::Tcp, &b));
    }
}
