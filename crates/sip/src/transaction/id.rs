//! How transactions are named and found.
//!
//! A client transaction is named by the branch we write into our own Via: it carries the worker, the
//! place in the worker's table and 56 random bits, so a response is matched without a look-up and
//! cannot be forged by who has not seen the request (RFC 3261 sections 8.1.1.7 and 19.3). A server
//! transaction is found by a keyed 128-bit hash over the fields of RFC 3261 section 17.2.3.

use crate::header::Via;
use crate::message::{Message, Method};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// Every branch of an RFC 3261 element begins with this (section 8.1.1.7).
pub const MAGIC_COOKIE: &[u8; 7] = b"z9hG4bK";

/// Length of the part of our branches that names the transaction.
const NAME_LEN: usize = 16;

/// Names a client transaction of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ClientId {
    pub(super) index: u32,
    /// 56 random bits.
    pub(super) nonce: u64,
}

/// Names a server transaction of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ServerId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// What a request is matched to its server transaction by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ServerKey(pub(super) u128);

/// A branch of ours, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// The worker that holds the client transaction.
    pub worker: u8,
    /// The client transaction there.
    pub client: ClientId,
    /// The hash for loop detection (RFC 5393 section 4.2).
    pub spiral: u64,
}

impl Branch {
    /// Appends the branch as the token that goes into the Via.
    pub fn write(&self, buf: &mut Vec<u8>) {
        let mut raw = [0u8; 20];
        raw[0] = self.worker;
        raw[1..5].copy_from_slice(&self.client.index.to_be_bytes());
        raw[5..12].copy_from_slice(&self.client.nonce.to_be_bytes()[1..]);
        let mut text = [0u8; NAME_LEN];
        encode(&raw[..12], &mut text);
        buf.extend_from_slice(MAGIC_COOKIE);
        buf.extend_from_slice(&text);
        buf.push(b'.');
        let mut text = [0u8; 11];
        encode(&self.spiral.to_be_bytes(), &mut text);
        buf.extend_from_slice(&text);
    }

    /// Reads a branch; `None` if it is not one of ours by its shape.
    pub fn parse(branch: &[u8]) -> Option<Branch> {
        let rest = branch.strip_prefix(MAGIC_COOKIE.as_slice())?;
        if rest.len() != NAME_LEN + 1 + 11 || rest[NAME_LEN] != b'.' {
            return None;
        }
        let mut raw = [0u8; 12];
        URL_SAFE_NO_PAD.decode_slice(&rest[..NAME_LEN], &mut raw).ok()?;
        let mut spiral = [0u8; 8];
        URL_SAFE_NO_PAD.decode_slice(&rest[NAME_LEN + 1..], &mut spiral).ok()?;
        let mut nonce = [0u8; 8];
        nonce[1..].copy_from_slice(&raw[5..12]);
        Some(Branch {
            worker: raw[0],
            client: ClientId {
                index: u32::from_be_bytes([raw[1], raw[2], raw[3], raw[4]]),
                nonce: u64::from_be_bytes(nonce),
            },
            spiral: u64::from_be_bytes(spiral),
        })
    }
}

fn encode(raw: &[u8], text: &mut [u8]) {
    // The slice has exactly the length that unpadded base64 of `raw` has, so this cannot fail; were
    // it to, the branch would match nothing and the transaction would time out.
    let _ = URL_SAFE_NO_PAD.encode_slice(raw, text);
}

/// The key of the transaction that `request` belongs to, taken as if its method were `method`: an
/// ACK looks for its INVITE, and so does a CANCEL (RFC 3261 sections 17.2.3 and 9.2).
pub fn server_key(
    secret: &[u8; 16],
    request: &Message<'_>,
    via: &Via<'_>,
    method: Method<'_>,
) -> ServerKey {
    let mut h = SipHasher13::new_with_key(secret);
    // Each field is ended by a byte that cannot stand in it, so that no two keys run together.
    let mut field = |bytes: &[u8]| {
        h.write(bytes);
        h.write_u8(b'\n');
    };
    field(method.as_bytes());
    if via.branch.len() > MAGIC_COOKIE.len()
        && via.branch[..MAGIC_COOKIE.len()].eq_ignore_ascii_case(MAGIC_COOKIE)
    {
        field(via.branch);
        // The host of sent-by is compared without regard to case (RFC 3261 section 7.3.1).
        let mut host = [0u8; 256];
        let n = via.host.len().min(host.len());
        host[..n].copy_from_slice(&via.host[..n]);
        host[..n].make_ascii_lowercase();
        field(&host[..n]);
        field(&via.port.unwrap_or(0).to_be_bytes());
    } else {
        // RFC 2543 matching, RFC 3261 section 17.2.3. The To tag is left out of the key: an INVITE
        // has none and its ACK does, and the other fields tell transactions apart.
        field(b"2543");
        field(request.request_uri());
        field(request.from().ok().and_then(|f| f.tag()).unwrap_or_default());
        field(request.call_id());
        field(&request.cseq().map_or(0, |c| c.seq).to_be_bytes());
        field(via.element);
    }
    ServerKey(h.finish128().as_u128())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_branch_reads_back(worker: u8, index: u32, nonce in 0u64..(1 << 56), spiral: u64) {
            let branch = Branch { worker, client: ClientId { index, nonce }, spiral };
            let mut text = Vec::new();
            branch.write(&mut text);
            prop_assert_eq!(Branch::parse(&text), Some(branch));
        }

        #[test]
        fn a_strange_branch_is_not_ours(bytes: Vec<u8>) {
            prop_assert!(Branch::parse(&bytes).is_none() || bytes.starts_with(MAGIC_COOKIE));
        }
    }
}
