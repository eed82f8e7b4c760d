//! What INIT and INIT ACK say of authenticated chunks (RFC 4895 section 3).

use super::parameter::kind;
use super::{WireError, put_tlv, u16_at};

/// Bytes of the random number (RFC 4895 section 6.1).
pub const RANDOM: usize = 32;
/// Chunk types named by a peer that are taken; there are no more than so many.
pub const MAX_CHUNK_TYPES: usize = 256;
/// HMAC identifiers named by a peer that are taken; a peer with more cannot authenticate.
pub const MAX_HMACS: usize = 16;

/// Identifiers of HMACs (RFC 4895 section 3.3).
pub mod hmac {
    #![allow(missing_docs)]
    pub const SHA1: u16 = 1;
    pub const SHA256: u16 = 3;
}

/// The parameters RANDOM, CHUNKS and HMAC-ALGO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthParameters {
    /// The random number.
    pub random: Vec<u8>,
    /// The chunk types that are taken only if authenticated; `None` if there is no such parameter.
    pub chunks: Option<Vec<u8>>,
    /// Identifiers of HMACs, the first liked best.
    pub hmacs: Vec<u16>,
}

fn unpadded(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let start = out.len();
    put_tlv(out, kind, &[value]);
    out.truncate(start + super::TLV_HEADER + value.len());
}

impl AuthParameters {
    /// Takes a parameter in; others are passed over.
    pub(super) fn read(&mut self, which: u16, value: &[u8]) -> Result<(), WireError> {
        match which {
            kind::RANDOM if value.len() != RANDOM => {
                let (what, got) = ("a random number", value.len());
                return Err(WireError::Length { what, expected: RANDOM, got });
            }
            kind::RANDOM => self.random = value.to_vec(),
            kind::CHUNK_LIST if value.len() <= MAX_CHUNK_TYPES => {
                self.chunks = Some(value.to_vec());
            }
            kind::REQUESTED_HMAC if value.len() <= 2 * MAX_HMACS => {
                self.hmacs = value.chunks_exact(2).map(|b| u16_at(b, 0)).collect();
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether what is needed is there.
    pub fn is_complete(&self) -> bool {
        self.random.len() == RANDOM && !self.hmacs.is_empty()
    }

    fn hmac_bytes(&self) -> Vec<u8> {
        self.hmacs.iter().flat_map(|id| id.to_be_bytes()).collect()
    }

    /// The key vector (section 6.1): the parameters without padding, one after the other.
    pub fn key_vector(&self) -> Vec<u8> {
        let mut out = Vec::new();
        unpadded(&mut out, kind::RANDOM, &self.random);
        if let Some(chunks) = &self.chunks {
            unpadded(&mut out, kind::CHUNK_LIST, chunks);
        }
        unpadded(&mut out, kind::REQUESTED_HMAC, &self.hmac_bytes());
        out
    }

    /// Appends the parameters.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        put_tlv(out, kind::RANDOM, &[&self.random]);
        if let Some(chunks) = &self.chunks {
            put_tlv(out, kind::CHUNK_LIST, &[chunks]);
        }
        put_tlv(out, kind::REQUESTED_HMAC, &[&self.hmac_bytes()]);
    }
}
