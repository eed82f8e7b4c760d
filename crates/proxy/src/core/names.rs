//! Users and hosts of URIs.

use ringway_sansio::Transport;
use ringway_sip::uri::{self, Scheme, Uri};

/// Returns the user part, or the number of a `tel` URI.
pub(super) fn user_of<'a>(uri: &Uri<'a>) -> Option<&'a [u8]> {
    match uri.scheme {
        Scheme::Tel => Some(uri.opaque.split(|&b| b == b';').next().unwrap_or_default()),
        _ => uri.user.filter(|u| !u.is_empty()),
    }
}

/// Returns whether a user part of a URI, which may be escaped, is this user name.
pub(super) fn same_user(escaped: &[u8], name: &[u8]) -> bool {
    if !escaped.contains(&b'%') {
        return escaped == name;
    }
    plain_user(escaped) == name
}

/// Returns a user part without its escapes.
pub(super) fn plain_user(escaped: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(escaped.len());
    uri::unescape_into(escaped, &mut plain);
    plain
}

/// Returns the default port of a SIP URI, for the decision whether the URI is this server.
pub(super) fn default_port(uri: &Uri<'_>) -> u16 {
    match uri.transport() {
        Some(t) => t.default_port(),
        None if uri.scheme == Scheme::Sips => Transport::Tls.default_port(),
        None => Transport::Udp.default_port(),
    }
}

/// Returns the host that a URI leads to (RFC 3261 section 19.1.1).
pub(super) fn next_host<'a>(uri: &Uri<'a>) -> &'a [u8] {
    uri.param(b"maddr").flatten().unwrap_or(uri.host)
}

pub(super) fn is_sips(uri: &[u8]) -> bool {
    uri.get(..5).is_some_and(|s| s.eq_ignore_ascii_case(b"sips:"))
}

/// Returns whether the transport is WebSocket, over which no client can be connected to (RFC 7118 section 5).
pub(super) fn is_websocket(transport: Transport) -> bool {
    matches!(transport, Transport::Ws | Transport::Wss)
}

/// Returns whether a URI belongs to a phone that has negotiated Outbound (RFC 5626 section 4.3).
pub(super) fn has_ob(uri: &Uri<'_>) -> bool {
    uri.param(b"ob").is_some()
}
