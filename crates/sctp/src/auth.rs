//! Authenticated chunks (RFC 4895): the key of an association and the MACs made with it.
//!
//! The key comes from what both ends said in INIT and INIT ACK; there are no keys that users share
//! beforehand, so it protects from whoever has not seen the handshake.

use crate::wire::TLV_HEADER;
use crate::wire::auth::{AuthParameters, RANDOM, hmac};
use crate::wire::chunk::{self, kind};
use ::hmac::{Hmac, KeyInit, Mac};
use ringway_sansio::Random;
use sha1::Sha1;
use sha2::Sha256;

/// Bytes of the MACs.
const SHA1: usize = 20;
const SHA256: usize = 32;
/// Bytes of an AUTH chunk before its MAC.
const HEADER: usize = TLV_HEADER + 4;
/// Most bytes of an AUTH chunk.
pub(crate) const AUTH_CHUNK: usize = HEADER + SHA256;

/// The chunk types that we take only if authenticated (RFC 5061 section 4.2.7).
pub(crate) const REQUIRED: [u8; 2] = [kind::ASCONF, kind::ASCONF_ACK];

/// What we say of ourselves.
pub(crate) fn own(random: &mut dyn Random) -> AuthParameters {
    let mut bytes = vec![0; RANDOM];
    random.fill(&mut bytes);
    let hmacs = vec![hmac::SHA256, hmac::SHA1];
    AuthParameters { random: bytes, chunks: Some(REQUIRED.to_vec()), hmacs }
}

/// What two ends have agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// The association shared key (section 6.1).
    pub(crate) key: Vec<u8>,
    /// The HMAC that the peer likes best of those we know.
    pub(crate) hmac: u16,
    /// The chunk types that the peer takes only if authenticated.
    pub(crate) chunks: Vec<u8>,
}

fn mac(which: u16, key: &[u8], parts: &[&[u8]]) -> Option<Vec<u8>> {
    fn run<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Option<Vec<u8>> {
        let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
        for part in parts {
            mac.update(part);
        }
        Some(mac.finalize().into_bytes().to_vec())
    }
    match which {
        hmac::SHA1 => run::<Hmac<Sha1>>(key, parts),
        hmac::SHA256 => run::<Hmac<Sha256>>(key, parts),
        _ => None,
    }
}

fn mac_len(which: u16) -> usize {
    if which == hmac::SHA1 { SHA1 } else { SHA256 }
}

/// Whether two MACs are equal, in a time that does not tell where they differ.
fn equal(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().zip(two).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl Agreed {
    /// What follows from the parameters of both ends; `None` if they have no HMAC in common.
    pub(crate) fn new(own: &AuthParameters, peer: &AuthParameters) -> Option<Agreed> {
        if !peer.is_whole() {
            return None;
        }
        let hmac = *peer.hmacs.iter().find(|id| own.hmacs.contains(id))?;
        let (one, two) = (own.key_vector(), peer.key_vector());
        // Section 6.1: the smaller number first. Both begin with a type that is not 0, so that of
        // two vectors the shorter is the smaller number.
        let (first, second) =
            if (one.len(), &one) <= (two.len(), &two) { (one, two) } else { (two, one) };
        let mut chunks = peer.chunks.clone().unwrap_or_default();
        // Section 3.2: these are never authenticated.
        let never = [kind::INIT, kind::INIT_ACK, kind::SHUTDOWN_COMPLETE, kind::AUTH];
        chunks.retain(|chunk| !never.contains(chunk));
        Some(Agreed { key: [first, second].concat(), hmac, chunks })
    }

    /// Whether the peer takes chunks of this type only if authenticated.
    pub(crate) fn requires(&self, chunk: u8) -> bool {
        self.chunks.contains(&chunk)
    }

    /// Whether it asks that of more than address changes: then every packet is authenticated.
    pub(crate) fn requires_more(&self) -> bool {
        self.chunks.iter().any(|chunk| !REQUIRED.contains(chunk))
    }

    /// Appends an AUTH chunk without its MAC.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        let zeros = [0; SHA256];
        let mac = &zeros[..mac_len(self.hmac)];
        chunk::put(out, kind::AUTH, 0, &[&[0, 0], &self.hmac.to_be_bytes(), mac]);
    }

    /// Fills in the MAC of the AUTH chunk with which `bytes` begins, over all that follows.
    pub(crate) fn finish(&self, bytes: &mut [u8]) {
        if let Some(made) = mac(self.hmac, &self.key, &[bytes])
            && let Some(place) = bytes.get_mut(HEADER..HEADER + made.len())
        {
            place.copy_from_slice(&made);
        }
    }

    /// Whether an AUTH chunk vouches for the `rest` of its packet (section 6.3).
    pub(crate) fn vouches(&self, whole: &[u8], rest: &[u8]) -> bool {
        let Some((head, sent)) = whole.split_at_checked(HEADER) else { return false };
        let which = u16::from_be_bytes([head[6], head[7]]);
        let keyed = head[4..6] == [0, 0];
        if !keyed || ![hmac::SHA1, hmac::SHA256].contains(&which) || sent.len() != mac_len(which) {
            return false;
        }
        // MACs are multiples of four bytes long: there is no padding.
        let zeros = [0; SHA256];
        mac(which, &self.key, &[head, &zeros[..sent.len()], rest])
            .is_some_and(|made| equal(&made, sent))
    }
}

/// Whether an AUTH chunk names an HMAC that we did not offer (section 6.3).
pub(crate) fn names_unknown_hmac(which: u16) -> bool {
    ![hmac::SHA1, hmac::SHA256].contains(&which)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;

    fn pair(hmacs: Vec<u16>) -> (Agreed, Agreed) {
        let (mut one, two) = (own(&mut SplitMix::new(1)), own(&mut SplitMix::new(2)));
        one.hmacs = hmacs;
        (Agreed::new(&one, &two).unwrap(), Agreed::new(&two, &one).unwrap())
    }

    /// RFC 4895 section 6.1: both ends have the same key; the vectors without padding, the smaller
    /// first.
    #[test]
    fn both_ends_have_one_key() {
        for hmacs in [vec![1], vec![3, 1], vec![2, 1]] {
            let (one, two) = pair(hmacs.clone());
            assert_eq!(one.key, two.key);
            assert_eq!(two.hmac, *hmacs.iter().find(|id| **id != 2).unwrap());
        }
        let few = AuthParameters { random: vec![1; 32], chunks: None, hmacs: vec![1] };
        let vector = few.key_vector();
        assert_eq!(vector[..4], [0x80, 2, 0, 36]);
        assert_eq!(vector[36..], [0x80, 4, 0, 6, 0, 1]);
        let more = AuthParameters { chunks: Some(vec![5]), ..few.clone() };
        let agreed = Agreed::new(&more, &few).unwrap();
        assert_eq!(agreed.key, [vector, more.key_vector()].concat());
        let none = AuthParameters { hmacs: vec![2], ..few.clone() };
        assert_eq!(Agreed::new(&few, &none), None);
    }

    /// RFC 2202 section 3 and RFC 4231 section 4.3: "Jefe".
    #[test]
    fn the_macs_are_hmac() {
        let text: &[u8] = b"what do ya want for nothing?";
        let sha1 = mac(hmac::SHA1, b"Jefe", &[text]).unwrap();
        assert_eq!(sha1[..4], [0xef, 0xfc, 0xdf, 0x6a]);
        let sha256 = mac(hmac::SHA256, b"Jefe", &[text]).unwrap();
        assert_eq!(sha256[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }

    proptest! {
        /// RFC 4895 sections 6.2 and 6.3: what one end vouches for the other takes, and nothing that
        /// differs in a bit.
        #[test]
        fn a_changed_bit_is_found(
            rest in proptest::collection::vec(any::<u8>(), 0..80), bit in any::<usize>(),
            old in any::<bool>(),
        ) {
            let (one, two) = pair(if old { vec![1] } else { vec![3, 1] });
            let mut out = Vec::new();
            two.begin(&mut out);
            let length = out.len();
            out.extend_from_slice(&rest);
            two.finish(&mut out);
            prop_assert!(one.vouches(&out[..length], &out[length..]));
            let bit = 32 + bit % (out.len() * 8 - 32);
            out[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!one.vouches(&out[..length], &out[length..]));
        }

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(!pair(vec![3]).0.vouches(&bytes, &[]));
        }
    }
}
