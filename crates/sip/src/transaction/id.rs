//! Ids and keys of transactions.
//!
//! A client transaction is identified by the branch in our own Via. It contains the worker, the slot in the worker's
//! table and 56 random bits. So a response is matched without a look-up, and cannot be forged without knowledge of the
//! request (RFC 3261 sections 8.1.1.7 and 19.3). A server transaction is found by a keyed 128-bit hash of the fields of
//! RFC 3261 section 17.2.3.

use crate::header::Via;
use crate::message::Message;
use crate::method::Method;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// Every branch of an RFC 3261 element begins with this (section 8.1.1.7).
pub const MAGIC_COOKIE: &[u8; 7] = b"z9hG4bK";

/// The digits of our branches that identify the transaction: 96 bits.
const NAME_LEN: usize = 20;

/// The digits of the hash for loop detection.
const SPIRAL_LEN: usize = 13;

/// The length of our branches: a dot separates id and hash.
const BRANCH_LEN: usize = MAGIC_COOKIE.len() + NAME_LEN + 1 + SPIRAL_LEN;

/// The bits of a nonce.
const NONCE: u64 = (1 << 56) - 1;

/// Identifies a client transaction of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ClientId {
    pub(super) index: u32,
    /// 56 random bits.
    pub(super) nonce: u64,
}

impl ClientId {
    /// Returns the random part of the id, 56 bits, which distinguishes transactions of all workers.
    pub const fn nonce(self) -> u64 {
        self.nonce
    }
}

/// Identifies a server transaction of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ServerId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// The key that matches a request to its server transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ServerKey(pub(super) u128);

impl ServerKey {
    /// Returns a part of the key, to distinguish transactions of several workers with one secret.
    pub const fn to_u64(self) -> u64 {
        self.0 as u64
    }
}

/// A parsed branch of ours.
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
    /// Appends the branch as a token for the Via. It is base32, because a token compares without regard to case (RFC
    /// 3261 section 7.3.1), so a peer may change its case.
    pub fn write(&self, buf: &mut Vec<u8>) {
        let name = u128::from(self.worker) << 88
            | u128::from(self.client.index) << 56
            | u128::from(self.client.nonce & NONCE);
        let mut text = [b'.'; BRANCH_LEN];
        text[..MAGIC_COOKIE.len()].copy_from_slice(MAGIC_COOKIE);
        encode(name, &mut text[MAGIC_COOKIE.len()..][..NAME_LEN]);
        encode(self.spiral.into(), &mut text[BRANCH_LEN - SPIRAL_LEN..]);
        buf.extend_from_slice(&text);
    }

    /// Parses a branch; returns `None` if it does not have the form of ours.
    pub fn parse(branch: &[u8]) -> Option<Branch> {
        let (cookie, rest) = branch.split_at_checked(MAGIC_COOKIE.len())?;
        let (name, rest) = rest.split_at_checked(NAME_LEN)?;
        let spiral = rest.strip_prefix(b".").filter(|spiral| spiral.len() == SPIRAL_LEN)?;
        if !cookie.eq_ignore_ascii_case(MAGIC_COOKIE) {
            return None;
        }
        let name = decode(name).filter(|name| name >> 96 == 0)?;
        let client = ClientId { index: (name >> 56) as u32, nonce: name as u64 & NONCE };
        let spiral = u64::try_from(decode(spiral)?).ok()?;
        Some(Branch { worker: (name >> 88) as u8, client, spiral })
    }
}

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The value of each digit in either case; [`NO_DIGIT`] for other octets.
static VALUES: [u8; 256] = values();

const NO_DIGIT: u8 = 32;

const fn values() -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        values[ALPHABET[value] as usize] = value as u8;
        values[ALPHABET[value].to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    values
}

/// Writes the lowest bits of a number as digits of base32.
fn encode(mut number: u128, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[number as usize & 31];
        number >>= 5;
    }
}

fn decode(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, &digit| match VALUES[digit as usize] {
        NO_DIGIT => None,
        value => Some(number << 5 | u128::from(value)),
    })
}

/// Returns the key of the transaction of `request` as if its method were `method`: an ACK or a CANCEL is matched to its
/// INVITE (RFC 3261 sections 17.2.3 and 9.2).
pub fn server_key(
    secret: &[u8; 16],
    request: &Message<'_>,
    via: &Via<'_>,
    method: Method<'_>,
) -> ServerKey {
    let mut h = SipHasher13::new_with_key(secret);
    // Each field is ended by a byte that it cannot contain, so that no two keys merge.
    let mut field = |bytes: &[u8]| {
        h.write(bytes);
        h.write_u8(b'\n');
    };
    field(method.as_bytes());
    if via.branch.len() > MAGIC_COOKIE.len()
        && via.branch[..MAGIC_COOKIE.len()].eq_ignore_ascii_case(MAGIC_COOKIE)
    {
        // Branch and the host of sent-by compare without regard to case (RFC 3261 section 7.3.1).
        for part in [via.branch, via.host] {
            let mut lower = [0u8; 256];
            for chunk in part.chunks(lower.len()) {
                let lower = &mut lower[..chunk.len()];
                lower.copy_from_slice(chunk);
                lower.make_ascii_lowercase();
                field(lower);
            }
            field(b"");
        }
        field(&via.port.unwrap_or(0).to_be_bytes());
    } else {
        // RFC 2543 matching, RFC 3261 section 17.2.3. The To tag is left out of the key: an INVITE has none and its ACK
        // does, and the other fields distinguish transactions.
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

        /// RFC 3261 section 7.3.1: tokens compare without regard to case.
        #[test]
        fn a_branch_reads_back_in_capitals(worker: u8, index: u32, nonce in 0u64..(1 << 56), spiral: u64) {
            let branch = Branch { worker, client: ClientId { index, nonce }, spiral };
            let mut text = Vec::new();
            branch.write(&mut text);
            prop_assert_eq!(Branch::parse(&text.to_ascii_uppercase()), Some(branch));
        }

        #[test]
        fn a_strange_branch_is_not_ours(bytes: Vec<u8>) {
            prop_assert!(Branch::parse(&bytes).is_none() || bytes.starts_with(MAGIC_COOKIE));
        }
    }
}
