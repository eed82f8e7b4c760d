//! What a protocol knows of the transport beneath it.

use core::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The transports SIP is carried over, by the names of the Via header field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Transport {
    /// RFC 3261 section 18.
    Udp,
    /// RFC 3261 section 18.
    Tcp,
    /// TLS over TCP, RFC 3261 section 26.
    Tls,
    /// WebSocket, RFC 7118.
    Ws,
    /// WebSocket over TLS, RFC 7118.
    Wss,
    /// RFC 4168.
    Sctp,
    /// TLS over SCTP, RFC 4168.
    TlsSctp,
}

impl Transport {
    /// The token of the sent-protocol in a Via header field.
    pub const fn via(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
            Transport::Ws => "WS",
            Transport::Wss => "WSS",
            Transport::Sctp => "SCTP",
            Transport::TlsSctp => "TLS-SCTP",
        }
    }

    /// The value of the `transport` URI parameter (lower case).
    pub const fn uri(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Ws => "ws",
            Transport::Wss => "wss",
            Transport::Sctp => "sctp",
            Transport::TlsSctp => "tls-sctp",
        }
    }

    /// Parses a Via or URI transport token, case-insensitively.
    pub fn from_token(token: &[u8]) -> Option<Self> {
        const ALL: [Transport; 7] = [
            Transport::Udp,
            Transport::Tcp,
            Transport::Tls,
            Transport::Ws,
            Transport::Wss,
            Transport::Sctp,
            Transport::TlsSctp,
        ];
        ALL.into_iter().find(|t| t.via().as_bytes().eq_ignore_ascii_case(token))
    }

    /// Whether the transport itself delivers or reports failure; decides retransmission timers
    /// (RFC 3261 section 17).
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Transport::Udp)
    }

    /// Whether one message is one datagram, without a connection.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Transport::Udp)
    }

    /// Whether the bytes are protected on the wire.
    pub const fn is_secure(self) -> bool {
        matches!(self, Transport::Tls | Transport::Wss | Transport::TlsSctp)
    }

    /// The port meant when none is written (RFC 3261 section 19.1.2, RFC 7118 section 10).
    pub const fn default_port(self) -> u16 {
        match self {
            Transport::Udp | Transport::Tcp | Transport::Sctp => 5060,
            Transport::Tls | Transport::TlsSctp => 5061,
            Transport::Ws => 80,
            Transport::Wss => 443,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.via())
    }
}

/// Names a flow for as long as the process lives; never used again for another.
///
/// The top 8 bits name the worker that owns the flow, so that any worker knows whom to hand a
/// message to. For a datagram transport the id names the listening socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FlowId(u64);

impl FlowId {
    /// The `serial`-th flow of `worker`. `serial` must be below 2^56.
    pub const fn new(worker: u8, serial: u64) -> Self {
        FlowId((worker as u64) << 56 | (serial & 0x00ff_ffff_ffff_ffff))
    }

    /// The worker that owns the flow.
    pub const fn worker(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The id as a number, for tokens and tables.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// Back from [`FlowId::to_u64`].
    pub const fn from_u64(raw: u64) -> Self {
        FlowId(raw)
    }
}

/// A way to one peer: what RFC 5626 calls a flow.
///
/// For a connection, `id` alone names it. For a datagram transport `id` names the listening socket
/// and `remote` the peer; `local` is the address the peer used, which an answer must come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// Connection, or listening socket for datagrams.
    pub id: FlowId,
    /// What carries the bytes.
    pub transport: Transport,
    /// Our address on this flow, never a wildcard.
    pub local: SocketAddr,
    /// The peer's address on this flow.
    pub remote: SocketAddr,
}

/// A local address at which messages are received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Listener {
    /// Its transport.
    pub transport: Transport,
    /// Its address, which may be a wildcard, and its port.
    pub addr: SocketAddr,
}

/// A next hop found by server location (RFC 3263).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Its transport.
    pub transport: Transport,
    /// Its address.
    pub addr: SocketAddr,
    /// The domain that the server's certificate must prove (RFC 5922 section 7.3): the one of the URI,
    /// whatever names DNS led through. Only for TLS, and not for a literal address.
    pub name: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_id_keeps_worker_and_serial() {
        let id = FlowId::new(200, 77);
        assert_eq!(id.worker(), 200);
        assert_eq!(FlowId::from_u64(id.to_u64()), id);
    }

    #[test]
    fn tokens_are_case_insensitive() {
        assert_eq!(Transport::from_token(b"uDp"), Some(Transport::Udp));
        assert_eq!(Transport::from_token(b"tls-sctp"), Some(Transport::TlsSctp));
        assert_eq!(Transport::from_token(b"UNKNOWN"), None);
    }
}
