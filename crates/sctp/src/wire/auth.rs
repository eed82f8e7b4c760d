//! The authentication parameters of INIT and INIT ACK (RFC 4895 section 3).

use super::parameter::kind;
use super::{WireError, put_tlv, u16_at};

/// Length in bytes of the random number (RFC 4895 section 6.1).
pub const RANDOM: usize = 32;
/// Maximum number of chunk types accepted from a peer, which is all there are.
pub const MAX_CHUNK_TYPES: usize = 256;
/// Maximum number of HMAC identifiers accepted from a peer. A peer with more cannot authenticate.
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
    /// The chunk types that must be authenticated; `None` if the parameter is missing.
    pub chunks: Option<Vec<u8>>,
    /// Identifiers of HMACs, the preferred one first.
    pub hmacs: Vec<u16>,
}

fn unpadded(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let start = out.len();
    put_tlv(out, kind, &[value]);
    out.truncate(start + super::TLV_HEADER + value.len());
}

impl AuthParameters {
    /// Reads one of the parameters. Others are ignored.
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

    /// Returns whether all required parameters are present.
    pub fn is_complete(&self) -> bool {
        self.random.len() == RANDOM && !self.hmacs.is_empty()
    }

    fn hmac_bytes(&self) -> Vec<u8> {
        self.hmacs.iter().flat_map(|id| id.to_be_bytes()).collect()
    }

    /// Returns the key vector (section 6.1): the parameters without padding, concatenated.
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
