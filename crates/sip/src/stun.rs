//! The part of STUN (RFC 8489) that SIP over UDP needs: the Binding request that keeps a flow open, and its response
//! (RFC 5626 section 4.4.2 and section 8). No authentication, no retransmission, no ICE.

use ringway_sansio::{Got, Malformed};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const HEADER: usize = 20;
const MAGIC: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

const BINDING_REQUEST: u16 = 0x0001;
const BINDING_SUCCESS: u16 = 0x0101;
const BINDING_ERROR: u16 = 0x0111;

const ERROR_CODE: u16 = 0x0009;
const UNKNOWN_ATTRIBUTES: u16 = 0x000a;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const FINGERPRINT: u16 = 0x8028;

/// Comprehension-required attributes of RFC 8489 itself: known, and of no use in a Binding request without
/// authentication, so they are ignored.
const KNOWN: [u16; 11] = [
    0x0001,
    0x0006,
    0x0008,
    ERROR_CODE,
    UNKNOWN_ATTRIBUTES,
    0x0014,
    0x0015,
    0x001c,
    0x001d,
    0x001e,
    XOR_MAPPED_ADDRESS,
];

/// Attributes of one message. Beyond it: an error, and no response.
pub const MAX_ATTRIBUTES: usize = 32;

/// The id of a transaction: 96 random bits.
pub type TransactionId = [u8; 12];

/// Returns whether a datagram is STUN and not SIP: its first two bits are zero, unlike those of any SIP message, and it
/// has the magic cookie (RFC 8489 section 5).
#[inline]
pub fn is_stun(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER && bytes[0] < 0x40 && bytes[4..8] == MAGIC
}

/// Appends the response to a Binding request from `remote`: its source address, or 420 for an unknown attribute.
/// Returns `false` and appends nothing if there is no response: to responses, indications, other methods and malformed
/// messages. The response has a FINGERPRINT if the request has one.
pub fn answer(bytes: &[u8], remote: SocketAddr, buf: &mut Vec<u8>) -> bool {
    let Ok(request) = View::parse(bytes) else {
        return false;
    };
    if request.kind != BINDING_REQUEST {
        return false;
    }
    let mut unknown = [0u16; MAX_ATTRIBUTES];
    let mut count = 0;
    for (kind, _) in request.attributes() {
        if kind < 0x8000 && !KNOWN.contains(&kind) && !unknown[..count].contains(&kind) {
            unknown[count] = kind;
            count += 1;
        }
    }
    let start = buf.len();
    if count > 0 {
        header(buf, BINDING_ERROR, request.id);
        attribute(buf, ERROR_CODE, b"\0\0\x04\x14Unknown Attribute");
        let mut list = [0u8; 2 * MAX_ATTRIBUTES];
        for (place, kind) in list.chunks_exact_mut(2).zip(&unknown[..count]) {
            place.copy_from_slice(&kind.to_be_bytes());
        }
        attribute(buf, UNKNOWN_ATTRIBUTES, &list[..2 * count]);
    } else {
        header(buf, BINDING_SUCCESS, request.id);
        let (value, len) = xor_address(remote, request.id);
        attribute(buf, XOR_MAPPED_ADDRESS, &value[..len]);
    }
    finish(buf, start, request.fingerprint);
    true
}

/// Appends a Binding request.
pub fn request(id: &TransactionId, buf: &mut Vec<u8>) {
    header(buf, BINDING_REQUEST, id);
}

/// Returns the address in a Binding success response to the request `id`: our own, as the peer sees it. A change of it
/// means that the flow has failed (RFC 5626 section 4.4.2).
pub fn mapped_address(bytes: &[u8], id: &TransactionId) -> Result<SocketAddr, Malformed> {
    let response = View::parse(bytes)?;
    if response.kind != BINDING_SUCCESS || response.id != id {
        return Err(Malformed::here("STUN: expected a success response to this request", bytes, 0));
    }
    let found = response.attributes().find(|(kind, _)| *kind == XOR_MAPPED_ADDRESS);
    let Some((_, value)) = found else {
        return Err(Malformed::bad("STUN: expected XOR-MAPPED-ADDRESS", Got::Missing, HEADER));
    };
    address_from_xor(value, id)
        .ok_or_else(|| Malformed::here("STUN: expected an address", value, 0))
}

/// A message whose attributes have been checked to fit.
struct View<'a> {
    kind: u16,
    id: &'a TransactionId,
    attributes: &'a [u8],
    fingerprint: bool,
}

impl<'a> View<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if !is_stun(bytes) {
            return Err(Malformed::here("STUN: expected a message", bytes, 0));
        }
        let length = u16_at(bytes, 2) as usize;
        if !length.is_multiple_of(4) || HEADER + length != bytes.len() {
            let got = Got::Number(length as u64);
            return Err(Malformed::bad("STUN: expected the length of the datagram", got, 2));
        }
        let id = bytes[8..HEADER].first_chunk().ok_or(Malformed::bad(
            "STUN: expected a transaction id",
            Got::End,
            8,
        ))?;
        let mut view =
            View { kind: u16_at(bytes, 0), id, attributes: &bytes[HEADER..], fingerprint: false };
        let mut at = HEADER;
        let mut count = 0;
        while at < bytes.len() {
            let (kind, len) = (u16_at(bytes, at), u16_at(bytes, at + 2) as usize);
            let next = at + 4 + len.next_multiple_of(4);
            count += 1;
            if next > bytes.len() || count > MAX_ATTRIBUTES || view.fingerprint {
                let got = Got::Number(len as u64);
                return Err(Malformed::bad("STUN: expected no such attribute here", got, at));
            }
            if kind == FINGERPRINT {
                // RFC 8489 section 7.3: a wrong one means that this is not STUN at all.
                if len != 4 || bytes[at + 4..at + 8] != fingerprint(&bytes[..at]).to_be_bytes() {
                    return Err(Malformed::here("STUN: expected the fingerprint", bytes, at + 4));
                }
                view.fingerprint = true;
            }
            at = next;
        }
        Ok(view)
    }

    fn attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let bytes = self.attributes;
        let mut at = 0;
        core::iter::from_fn(move || {
            if at >= bytes.len() {
                return None;
            }
            let (kind, len) = (u16_at(bytes, at), u16_at(bytes, at + 2) as usize);
            let value = &bytes[at + 4..at + 4 + len];
            at += 4 + len.next_multiple_of(4);
            Some((kind, value))
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn header(buf: &mut Vec<u8>, kind: u16, id: &TransactionId) {
    buf.extend_from_slice(&kind.to_be_bytes());
    buf.extend_from_slice(&[0, 0]);
    buf.extend_from_slice(&MAGIC);
    buf.extend_from_slice(id);
}

fn attribute(buf: &mut Vec<u8>, kind: u16, value: &[u8]) {
    buf.extend_from_slice(&kind.to_be_bytes());
    buf.extend_from_slice(&(value.len() as u16).to_be_bytes());
    buf.extend_from_slice(value);
    let padding = value.len().next_multiple_of(4) - value.len();
    buf.resize(buf.len() + padding, 0);
}

/// Writes the length of the message that begins at `start`, and its fingerprint if asked for. The fingerprint counts in
/// the length it covers (RFC 8489 section 14.7).
fn finish(buf: &mut Vec<u8>, start: usize, with_fingerprint: bool) {
    let extra = if with_fingerprint { 8 } else { 0 };
    let length = (buf.len() - start - HEADER + extra) as u16;
    buf[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    if with_fingerprint {
        let value = fingerprint(&buf[start..]);
        attribute(buf, FINGERPRINT, &value.to_be_bytes());
    }
}

/// Returns an XOR-MAPPED-ADDRESS (RFC 8489 section 14.2).
fn xor_address(address: SocketAddr, id: &TransactionId) -> ([u8; 20], usize) {
    let mut value = [0u8; 20];
    let port = address.port() ^ u16::from_be_bytes([MAGIC[0], MAGIC[1]]);
    value[2..4].copy_from_slice(&port.to_be_bytes());
    let len = match address.ip().to_canonical() {
        IpAddr::V4(v4) => {
            value[1] = 1;
            value[4..8].copy_from_slice(&v4.octets());
            8
        }
        IpAddr::V6(v6) => {
            value[1] = 2;
            value[4..20].copy_from_slice(&v6.octets());
            20
        }
    };
    mask(&mut value[4..len], id);
    (value, len)
}

fn address_from_xor(value: &[u8], id: &TransactionId) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([*value.get(2)?, *value.get(3)?])
        ^ u16::from_be_bytes([MAGIC[0], MAGIC[1]]);
    let mut octets = [0u8; 16];
    let len = match (value[1], value.len()) {
        (1, 8) => 4,
        (2, 20) => 16,
        _ => return None,
    };
    octets[..len].copy_from_slice(&value[4..]);
    mask(&mut octets[..len], id);
    let ip = match octets[..len].first_chunk::<4>() {
        Some(v4) if len == 4 => IpAddr::from(*v4),
        _ => IpAddr::V6(Ipv6Addr::from(octets)),
    };
    Some(SocketAddr::new(ip, port))
}

fn mask(octets: &mut [u8], id: &TransactionId) {
    for (octet, key) in octets.iter_mut().zip(MAGIC.iter().chain(id)) {
        *octet ^= key;
    }
}

/// Returns the CRC-32 of ITU V.42, XORed with `STUN` (RFC 8489 section 14.7).
fn fingerprint(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0u32; 256];
        let mut i = 0;
        while i < 256 {
            let mut c = i as u32;
            let mut bit = 0;
            while bit < 8 {
                c = if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 };
                bit += 1;
            }
            table[i] = c;
            i += 1;
        }
        table
    };
    let crc = bytes.iter().fold(u32::MAX, |c, &b| c >> 8 ^ TABLE[((c ^ b as u32) & 0xff) as usize]);
    !crc ^ 0x5354_554e
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 5769 section 2.1: a request with a fingerprint, and PRIORITY, which is ICE's.
    const SAMPLE: &[u8] = b"\x00\x01\x00\x58\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\
        \x87\xdf\xae\x80\x22\x00\x10STUN test client\x00\x24\x00\x04\x6e\x00\x01\xff\x80\x29\x00\
        \x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36\x00\x06\x00\x09\x65\x76\x74\x6a\x3a\x68\x36\x76\x59\
        \x20\x20\x20\x00\x08\x00\x14\x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\
        \x49\xc1\xb5\x71\xa2\x80\x28\x00\x04\xe5\x7a\x3b\xcf";

    const ID: TransactionId = *b"\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae";

    /// RFC 5769 section 2.2: the address of its response.
    #[test]
    fn a_binding_response_contains_the_source_address() {
        let mut ask = Vec::new();
        request(&ID, &mut ask);
        assert!(is_stun(&ask));
        let mut buf = b"before".to_vec();
        assert!(answer(&ask, "192.0.2.1:32853".parse().unwrap(), &mut buf));
        assert_eq!(
            buf[6..],
            [
                b"\x01\x01\x00\x0c\x21\x12\xa4\x42",
                &ID[..],
                b"\x00\x20\x00\x08\x00\x01\xa1\x47\xe1\x12\xa6\x43"
            ]
            .concat()
        );
        assert_eq!(mapped_address(&buf[6..], &ID), Ok("192.0.2.1:32853".parse().unwrap()));
        assert!(mapped_address(&buf[6..], b"another one!").is_err());
    }

    /// RFC 8489 section 6.3.1 and section 14.7.
    #[test]
    fn what_is_unknown_is_listed_and_fingerprints_are_returned() {
        let mut buf = Vec::new();
        assert!(answer(SAMPLE, "192.0.2.1:1".parse().unwrap(), &mut buf));
        let view = View::parse(&buf).unwrap();
        assert_eq!((view.kind, view.fingerprint), (BINDING_ERROR, true));
        let all: Vec<_> = view.attributes().collect();
        assert_eq!(all[0], (ERROR_CODE, &b"\0\0\x04\x14Unknown Attribute"[..]));
        assert_eq!(all[1], (UNKNOWN_ATTRIBUTES, &b"\x00\x24"[..]));
        // One bit is enough to make it different.
        let mut wrong = SAMPLE.to_vec();
        wrong[30] ^= 1;
        assert!(!answer(&wrong, "192.0.2.1:1".parse().unwrap(), &mut buf));
    }

    #[test]
    fn sip_and_noise_are_not_answered() {
        let remote = "192.0.2.1:1".parse().unwrap();
        let mut buf = Vec::new();
        let mut success = Vec::new();
        header(&mut success, BINDING_SUCCESS, &ID);
        let mut indication = Vec::new();
        header(&mut indication, 0x0011, &ID);
        for bytes in [
            &b"INVITE sip:a@b SIP/2.0\r\n\r\n"[..],
            b"",
            b"\r\n\r\n",
            &SAMPLE[..40],
            &SAMPLE[..19],
            &success,
            &indication,
        ] {
            assert!(!answer(bytes, remote, &mut buf), "{bytes:?}");
        }
        assert!(buf.is_empty());
        assert!(!is_stun(b"INVITE sip:a@b SIP/2.0\r\n\r\n"));
    }

    proptest! {
        /// Any octets after the header, any address: no panic, and every response can be parsed.
        #[test]
        fn answers_can_be_read(
            tail in prop::collection::vec(any::<u8>(), 0..200),
            ip in any::<u128>(), v4 in any::<bool>(), port: u16, id: TransactionId,
        ) {
            let ip = if v4 { IpAddr::from((ip as u32).to_be_bytes()) } else { IpAddr::from(ip.to_be_bytes()) };
            let remote = SocketAddr::new(ip.to_canonical(), port);
            let mut bytes = Vec::new();
            request(&id, &mut bytes);
            let mut buf = Vec::new();
            prop_assert!(answer(&bytes, remote, &mut buf));
            prop_assert_eq!(mapped_address(&buf, &id), Ok(remote));
            bytes.extend(&tail);
            bytes[2..4].copy_from_slice(&(tail.len() as u16).to_be_bytes());
            buf.clear();
            if answer(&bytes, remote, &mut buf) {
                prop_assert!(View::parse(&buf).is_ok());
            }
        }
    }
}
