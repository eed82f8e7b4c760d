//! Texts and flows as bytes, in records and in flow tokens.
//!
//! ```text
//! text    := length(1, or 2, big-endian, with the top bit of the first set) bytes
//! flow    := kind(1: transport, whether local and remote are IPv6) flow-id(8) local remote
//! address := port(2) v4(4) | port(2) v6(16) scope(4)
//! ```

use super::MAX_TEXT;
use ringway_sansio::{Flow, FlowId, Transport};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const LOCAL_V6: u8 = 0x40;
const REMOTE_V6: u8 = 0x80;

/// The order of [`Transport`] on disk. New transports are appended at the end.
const TRANSPORTS: [Transport; 7] = [
    Transport::Udp,
    Transport::Tcp,
    Transport::Tls,
    Transport::Ws,
    Transport::Wss,
    Transport::Sctp,
    Transport::TlsSctp,
];

/// Bytes that are not a valid record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CorruptRecord {
    /// The position, in bytes from the start.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
    /// The byte or length found instead.
    pub got: u64,
}

impl std::fmt::Display for CorruptRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "location record, byte {}: expected {}, got {}", self.at, self.expected, self.got)
    }
}

impl std::error::Error for CorruptRecord {}

/// Appends a text, which must not be longer than [`MAX_TEXT`].
pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() < 0x80 {
        out.push(text.len() as u8);
    } else {
        out.extend_from_slice(&[0x80 | (text.len() >> 8) as u8, text.len() as u8]);
    }
    out.extend_from_slice(text);
}

/// Appends a flow.
pub(crate) fn put_flow(out: &mut Vec<u8>, flow: &Flow) {
    let mut kind = TRANSPORTS.iter().position(|t| *t == flow.transport).unwrap_or(0) as u8;
    kind |= if flow.local.is_ipv6() { LOCAL_V6 } else { 0 };
    kind |= if flow.remote.is_ipv6() { REMOTE_V6 } else { 0 };
    out.push(kind);
    out.extend_from_slice(&flow.id.to_u64().to_le_bytes());
    put_addr(out, flow.local);
    put_addr(out, flow.remote);
}

fn put_addr(out: &mut Vec<u8>, addr: SocketAddr) {
    out.extend_from_slice(&addr.port().to_le_bytes());
    match addr {
        SocketAddr::V4(a) => out.extend_from_slice(&a.ip().octets()),
        SocketAddr::V6(a) => {
            out.extend_from_slice(&a.ip().octets());
            out.extend_from_slice(&a.scope_id().to_le_bytes());
        }
    }
}

/// Reads from the front, and checks every step.
pub(crate) struct Reader<'a> {
    pub(crate) all: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(all: &'a [u8]) -> Self {
        Reader { all, at: 0 }
    }

    #[inline]
    fn take(&mut self, n: usize, expected: &'static str) -> Result<&'a [u8], CorruptRecord> {
        match self.all.get(self.at..self.at + n) {
            Some(bytes) => {
                self.at += n;
                Ok(bytes)
            }
            None => {
                let got = (self.all.len() - self.at) as u64;
                Err(CorruptRecord { at: self.at, expected, got })
            }
        }
    }

    #[inline]
    pub(crate) fn array<const N: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<[u8; N], CorruptRecord> {
        let at = self.at;
        match self.take(N, expected)?.first_chunk::<N>() {
            Some(bytes) => Ok(*bytes),
            None => Err(CorruptRecord { at, expected, got: 0 }),
        }
    }

    #[inline]
    pub(crate) fn u8(&mut self, expected: &'static str) -> Result<u8, CorruptRecord> {
        self.array::<1>(expected).map(|[b]| b)
    }

    #[inline]
    pub(crate) fn text(&mut self, expected: &'static str) -> Result<&'a [u8], CorruptRecord> {
        let at = self.at;
        let first = self.u8(expected)?;
        let length = if first < 0x80 {
            first as usize
        } else {
            (first as usize & 0x7f) << 8 | self.u8(expected)? as usize
        };
        if length > MAX_TEXT {
            return Err(CorruptRecord { at, expected, got: length as u64 });
        }
        self.take(length, expected)
    }

    fn addr(&mut self, v6: bool) -> Result<SocketAddr, CorruptRecord> {
        let port = u16::from_le_bytes(self.array("port")?);
        if v6 {
            let ip = Ipv6Addr::from(self.array::<16>("IPv6 address")?);
            let scope = u32::from_le_bytes(self.array("IPv6 scope")?);
            Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
        } else {
            let ip = Ipv4Addr::from(self.array::<4>("IPv4 address")?);
            Ok(SocketAddr::new(IpAddr::V4(ip), port))
        }
    }

    pub(crate) fn flow(&mut self) -> Result<Flow, CorruptRecord> {
        let at = self.at;
        let kind = self.u8("transport")?;
        let number = kind & !(LOCAL_V6 | REMOTE_V6);
        let Some(transport) = TRANSPORTS.get(number as usize).copied() else {
            return Err(CorruptRecord { at, expected: "a known transport", got: number.into() });
        };
        let id = FlowId::from_u64(u64::from_le_bytes(self.array("flow id")?));
        let local = self.addr(kind & LOCAL_V6 != 0)?;
        let remote = self.addr(kind & REMOTE_V6 != 0)?;
        Ok(Flow { id, transport, local, remote })
    }
}
