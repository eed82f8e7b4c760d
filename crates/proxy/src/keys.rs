//! The keys of a server, all derived from its one secret.
//!
//! Every MAC, keyed hash and cipher has a key of its own, so that the output of one reveals nothing about another. A
//! key is HKDF-Expand (RFC 5869 section 2.3) of the secret with the purpose as its `info`. The secret is random
//! already, so the extract step is omitted (section 3.3).

use hkdf::Hkdf;
use sha2::Sha256;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// The secret from which all keys of a server are derived. All workers have the same. It is stored over restarts, so
/// that tokens made with its keys stay valid.
#[derive(Clone)]
pub struct Secret(Hkdf<Sha256>);

/// The purpose of a key. The texts are part of the keys: another text invalidates all that was made before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// MACs of digest nonces.
    Nonces,
    /// To tags of responses without a transaction.
    Tags,
    /// Hashes for loop detection.
    Spirals,
    /// Branches of stateless forwarding.
    StatelessBranches,
    /// Index of server transactions.
    Transactions,
    /// MACs of flow tokens.
    FlowTokens,
    /// MACs of dialog marks.
    DialogMarks,
    /// Holders of the request budget.
    Holders,
    /// MACs of temporary GRUUs.
    GruuMac,
    /// Encryption of temporary GRUUs.
    GruuCipher,
    /// Ids in documents about registrations.
    RegistrationIds,
    /// The notifier's tables.
    NotifierTables,
    /// Requests in progress, in the memory that workers share.
    Requests,
    /// Failed next hops, in the same memory.
    FailedHops,
    /// Dialogs whose marks are revoked, in the same memory.
    RevokedMarks,
    /// Parties that have moved, in the same memory.
    MovedTargets,
    /// INVITEs whose ACK is awaited, in the same memory.
    AwaitedAcks,
    /// Addresses of gateways, in the same memory.
    Gateways,
    /// Wrong passwords, in the same memory.
    Guesses,
    /// Tables of the states of users.
    States,
}

impl Purpose {
    #[cfg(test)]
    const ALL: [Purpose; 20] = [
        Purpose::Nonces,
        Purpose::Tags,
        Purpose::Spirals,
        Purpose::StatelessBranches,
        Purpose::Transactions,
        Purpose::FlowTokens,
        Purpose::DialogMarks,
        Purpose::Holders,
        Purpose::GruuMac,
        Purpose::GruuCipher,
        Purpose::RegistrationIds,
        Purpose::NotifierTables,
        Purpose::Requests,
        Purpose::FailedHops,
        Purpose::RevokedMarks,
        Purpose::MovedTargets,
        Purpose::AwaitedAcks,
        Purpose::Gateways,
        Purpose::Guesses,
        Purpose::States,
    ];

    fn info(self) -> &'static [u8] {
        match self {
            Purpose::Nonces => b"ringway nonces",
            Purpose::Tags => b"ringway tags",
            Purpose::Spirals => b"ringway spirals",
            Purpose::StatelessBranches => b"ringway stateless branches",
            Purpose::Transactions => b"ringway transactions",
            Purpose::FlowTokens => b"ringway flow tokens",
            Purpose::DialogMarks => b"ringway dialog marks",
            Purpose::Holders => b"ringway holders",
            Purpose::GruuMac => b"ringway gruu mac",
            Purpose::GruuCipher => b"ringway gruu cipher",
            Purpose::RegistrationIds => b"ringway registration ids",
            Purpose::NotifierTables => b"ringway notifier tables",
            Purpose::Requests => b"ringway requests",
            Purpose::FailedHops => b"ringway failed hops",
            Purpose::RevokedMarks => b"ringway revoked marks",
            Purpose::MovedTargets => b"ringway moved targets",
            Purpose::AwaitedAcks => b"ringway awaited acks",
            Purpose::Gateways => b"ringway gateways",
            Purpose::Guesses => b"ringway guesses",
            Purpose::States => b"ringway states",
        }
    }
}

impl Secret {
    /// Returns a secret of 32 octets, which must be random and confidential.
    pub fn new(octets: &[u8; 32]) -> Secret {
        #[allow(clippy::expect_used, reason = "it fails for keys shorter than the hash only")]
        Secret(Hkdf::from_prk(octets).expect("32 octets are as long as a SHA-256"))
    }

    /// Returns the key for one purpose, of 16 octets for a keyed hash or 32 for an HMAC. A purpose has one length: the
    /// shorter key is the beginning of the longer.
    pub fn key<const N: usize>(&self, purpose: Purpose) -> [u8; N] {
        const { assert!(N == 16 || N == 32) };
        let mut key = [0; N];
        #[allow(clippy::expect_used, reason = "it fails for more than 255 times the hash only")]
        self.0.expand(purpose.info(), &mut key).expect("at most 32 octets");
        key
    }
}

/// Maximum number of secrets that servers share at a time: the one in use, the next, and those before.
pub const MAX_SHARED: usize = 4;

/// A secret that several servers share, of 32 random octets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedSecret(pub [u8; 32]);

impl std::fmt::Debug for SharedSecret {
    /// Hides the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSecret")
    }
}

/// Keys of tokens that come back: one for new tokens, and others with which tokens in use were made.
#[derive(Clone, Debug)]
pub struct Keyring<K> {
    /// The key of new tokens.
    pub new: K,
    /// Further keys of tokens that are read.
    pub others: SmallVec<[K; 1]>,
}

impl<K> Keyring<K> {
    /// Returns a ring of one key.
    pub fn of(key: K) -> Keyring<K> {
        Keyring { new: key, others: SmallVec::new() }
    }

    /// Returns what `f` makes of each key.
    pub fn map<T>(&self, f: impl Fn(&K) -> T) -> Keyring<T> {
        Keyring { new: f(&self.new), others: self.others.iter().map(&f).collect() }
    }

    /// Visits all keys, that of new tokens first.
    pub fn iter(&self) -> impl Iterator<Item = &K> {
        std::iter::once(&self.new).chain(&self.others)
    }
}

impl Keyring<Secret> {
    /// Returns the secrets of tokens at a server that shares the first [`MAX_SHARED`] of these with others, the one in use
    /// first. Without any, its `own` is in use; with some it is read only, since tokens may be older than what is shared.
    pub fn of_tokens(shared: &[SharedSecret], own: &Secret) -> Keyring<Secret> {
        let shared = shared.iter().take(MAX_SHARED).map(|secret| Secret::new(&secret.0));
        let mut all = shared.chain([own.clone()]);
        Keyring { new: all.next().unwrap_or_else(|| own.clone()), others: all.collect() }
    }
}

/// The keyed hash of tables whose keys come from the network.
#[derive(Clone, Debug)]
pub(crate) struct Keyed(SipHasher13);

impl Keyed {
    pub(crate) fn new(key: &[u8; 16]) -> Keyed {
        Keyed(SipHasher13::new_with_key(key))
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}

impl std::fmt::Debug for Secret {
    /// Hides the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_purposes_have_one_key() {
        let secret = Secret::new(&[7; 32]);
        let mut keys = Purpose::ALL.map(|purpose| secret.key::<16>(purpose));
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
        assert_ne!(keys, Purpose::ALL.map(|purpose| Secret::new(&[8; 32]).key::<16>(purpose)));
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    /// RFC 5869 section 2.3: T(1) is HMAC-Hash(PRK, info | 0x01).
    #[test]
    fn keys_are_those_of_hkdf() {
        use hmac::{Hmac, KeyInit, Mac};
        let mut mac = Hmac::<Sha256>::new_from_slice(&[7; 32]).unwrap();
        mac.update(b"ringway nonces\x01");
        let expected: [u8; 32] = mac.finalize().into_bytes().into();
        assert_eq!(Secret::new(&[7; 32]).key::<32>(Purpose::Nonces), expected);
    }
}
