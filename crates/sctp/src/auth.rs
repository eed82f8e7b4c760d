//! Authenticated chunks (RFC 4895): the key of an association and the MACs made with it.
//!
//! The association shared key is made of the random numbers in INIT and INIT ACK, which protects from
//! an attacker that has not seen the handshake. A secret that the users of both endpoints set protects
//! from every attacker that does not know it.

use crate::error::{KeyError, SetKeyError};
use crate::wire::TLV_HEADER;
use crate::wire::auth::{AuthParameters, RANDOM, hmac};
use crate::wire::chunk::{self, kind};
use ::hmac::{Hmac, KeyInit, Mac};
use ringway_sansio::Random;
use sha1::Sha1;
use sha2::Sha256;
use std::borrow::Cow;

/// Maximum number of endpoint pair shared keys of an association.
pub(crate) const MAX_KEYS: usize = 16;

/// Lengths in bytes of the MACs.
const SHA1: usize = 20;
const SHA256: usize = 32;
/// Length in bytes of an AUTH chunk before its MAC.
const HEADER: usize = TLV_HEADER + 4;
/// Maximum length in bytes of an AUTH chunk.
pub(crate) const AUTH_CHUNK: usize = HEADER + SHA256;

/// The chunk types that must be authenticated here (RFC 5061 section 4.2.7).
pub(crate) const REQUIRED: [u8; 2] = [kind::ASCONF, kind::ASCONF_ACK];

/// Returns the local authentication parameters.
pub(crate) fn local_parameters(random: &mut dyn Random) -> AuthParameters {
    let mut bytes = vec![0; RANDOM];
    random.fill(&mut bytes);
    let hmacs = vec![hmac::SHA256, hmac::SHA1];
    AuthParameters { random: bytes, chunks: Some(REQUIRED.to_vec()), hmacs }
}

/// The negotiated authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// The association shared key (section 6.1).
    pub(crate) key: Vec<u8>,
    /// The HMAC that the peer prefers of those supported here.
    pub(crate) hmac: u16,
    /// The chunk types that the peer requires to be authenticated.
    pub(crate) chunks: Vec<u8>,
    /// Endpoint pair shared keys, and the identifier of the one used to send. Identifier 0 is an empty
    /// key unless it is set.
    pub(crate) shared: Vec<Shared>,
    pub(crate) active: u16,
}

/// An endpoint pair shared key (section 4.1).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Shared {
    id: u16,
    secret: Box<[u8]>,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Shared({})", self.id)
    }
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

/// Returns whether two MACs are equal, in constant time.
fn equal(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().zip(two).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl Agreed {
    /// Returns the result of both endpoints' parameters; `None` if they have no HMAC in common.
    pub(crate) fn new(local_parameters: &AuthParameters, peer: &AuthParameters) -> Option<Agreed> {
        if !peer.is_complete() {
            return None;
        }
        let hmac = *peer.hmacs.iter().find(|id| local_parameters.hmacs.contains(id))?;
        let (one, two) = (local_parameters.key_vector(), peer.key_vector());
        // Section 6.1: the smaller number first. Both begin with a type that is not 0, so that of
        // two vectors the shorter is the smaller number.
        let (first, second) =
            if (one.len(), &one) <= (two.len(), &two) { (one, two) } else { (two, one) };
        let mut chunks = peer.chunks.clone().unwrap_or_default();
        // Section 3.2: these are never authenticated.
        let never = [kind::INIT, kind::INIT_ACK, kind::SHUTDOWN_COMPLETE, kind::AUTH];
        chunks.retain(|chunk| !never.contains(chunk));
        Some(Agreed::from_parts([first, second].concat(), hmac, chunks))
    }

    pub(crate) fn from_parts(key: Vec<u8>, hmac: u16, chunks: Vec<u8>) -> Agreed {
        Agreed { key, hmac, chunks, shared: Vec::new(), active: 0 }
    }

    /// Returns the association shared key with an endpoint pair shared key, which comes first (section
    /// 6.1).
    fn key_of(&self, id: u16) -> Option<Cow<'_, [u8]>> {
        match self.shared.iter().find(|shared| shared.id == id) {
            Some(shared) => Some([&shared.secret[..], &self.key[..]].concat().into()),
            None => (id == 0).then(|| Cow::from(&self.key)),
        }
    }

    /// Sets an endpoint pair shared key.
    pub(crate) fn set_key(&mut self, id: u16, secret: &[u8]) -> Result<(), SetKeyError> {
        let secret = secret.into();
        if let Some(shared) = self.shared.iter_mut().find(|shared| shared.id == id) {
            shared.secret = secret;
        } else if self.shared.len() >= MAX_KEYS {
            return Err(SetKeyError::Full { limit: MAX_KEYS });
        } else {
            self.shared.push(Shared { id, secret });
        }
        Ok(())
    }

    /// Uses a key to send from now on. Every key that is set is accepted.
    pub(crate) fn use_key(&mut self, id: u16) -> Result<(), KeyError> {
        if self.key_of(id).is_none() {
            return Err(KeyError::Key { got: id });
        }
        self.active = id;
        Ok(())
    }

    /// Deletes a key that is not used to send.
    pub(crate) fn delete_key(&mut self, id: u16) -> Result<(), KeyError> {
        let at = self.shared.iter().position(|shared| shared.id == id);
        let Some(at) = at.filter(|_| id != self.active) else {
            return Err(KeyError::Key { got: id });
        };
        self.shared.swap_remove(at);
        Ok(())
    }

    /// Returns whether the peer requires chunks of this type to be authenticated.
    pub(crate) fn requires(&self, chunk: u8) -> bool {
        self.chunks.contains(&chunk)
    }

    /// Returns whether the peer requires it for more than address changes, so that every packet is
    /// authenticated.
    pub(crate) fn requires_more(&self) -> bool {
        self.chunks.iter().any(|chunk| !REQUIRED.contains(chunk))
    }

    /// Appends an AUTH chunk without its MAC.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        let zeros = [0; SHA256];
        let mac = &zeros[..mac_len(self.hmac)];
        let (id, hmac) = (self.active.to_be_bytes(), self.hmac.to_be_bytes());
        chunk::put(out, kind::AUTH, 0, &[&id, &hmac, mac]);
    }

    /// Fills in the MAC of the AUTH chunk with which `bytes` begins, over all that follows.
    pub(crate) fn finish(&self, bytes: &mut [u8]) {
        if let Some(key) = self.key_of(self.active)
            && let Some(made) = mac(self.hmac, &key, &[bytes])
            && let Some(position) = bytes.get_mut(HEADER..HEADER + made.len())
        {
            position.copy_from_slice(&made);
        }
    }

    /// Returns whether an AUTH chunk authenticates the `rest` of its packet (section 6.3).
    pub(crate) fn vouches(&self, whole: &[u8], rest: &[u8]) -> bool {
        let Some((head, sent)) = whole.split_at_checked(HEADER) else { return false };
        let which = u16::from_be_bytes([head[6], head[7]]);
        let Some(key) = self.key_of(u16::from_be_bytes([head[4], head[5]])) else { return false };
        if ![hmac::SHA1, hmac::SHA256].contains(&which) || sent.len() != mac_len(which) {
            return false;
        }
        // MACs are multiples of four bytes long: there is no padding.
        let zeros = [0; SHA256];
        mac(which, &key, &[head, &zeros[..sent.len()], rest]).is_some_and(|made| equal(&made, sent))
    }
}

/// Returns whether an AUTH chunk names an HMAC that was not offered (section 6.3).
pub(crate) fn names_unknown_hmac(which: u16) -> bool {
    ![hmac::SHA1, hmac::SHA256].contains(&which)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;

    fn pair(hmacs: Vec<u16>) -> (Agreed, Agreed) {
        let (mut one, two) =
            (local_parameters(&mut SplitMix::new(1)), local_parameters(&mut SplitMix::new(2)));
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

    /// RFC 4895 sections 4.1, 6.1 and 6.3: a secret that both endpoints set makes another key; without
    /// it, or with another, nothing is authenticated.
    #[test]
    fn secrets_make_keys() {
        let (mut one, mut two) = pair(vec![3]);
        let made = |by: &Agreed| {
            let mut out = Vec::new();
            by.begin(&mut out);
            by.finish(&mut out);
            out
        };
        assert_eq!(two.use_key(7), Err(KeyError::Key { got: 7 }));
        two.set_key(7, b"secret").unwrap();
        two.use_key(7).unwrap();
        let sealed = made(&two);
        assert_eq!(sealed[4..6], [0, 7]);
        assert!(!one.vouches(&sealed, &[]), "no such key");
        one.set_key(7, b"Secret").unwrap();
        assert!(!one.vouches(&sealed, &[]), "another secret");
        one.set_key(7, b"secret").unwrap();
        assert!(one.vouches(&sealed, &[]) && two.vouches(&made(&one), &[]));
        assert_eq!(two.delete_key(7), Err(KeyError::Key { got: 7 }), "in use");
        two.use_key(0).unwrap();
        two.delete_key(7).unwrap();
        assert!(one.vouches(&made(&two), &[]) && !two.vouches(&sealed, &[]));
        for id in 1..=MAX_KEYS as u16 {
            two.set_key(id, b"").unwrap();
        }
        assert_eq!(two.set_key(100, b""), Err(SetKeyError::Full { limit: MAX_KEYS }));
    }

    proptest! {
        /// RFC 4895 sections 6.2 and 6.3: a chunk that one endpoint authenticates is accepted by the
        /// other, and nothing that differs in a bit is.
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
