//! The keys of a server, all from its one secret.
//!
//! Every MAC, keyed hash and cipher has a key of its own, so that what is shown under one tells nothing of
//! another. A key is HKDF-Expand (RFC 5869 section 2.3) of the secret with the purpose as its `info`; the
//! secret is random already, so that the extract step is left out (section 3.3).

use hkdf::Hkdf;
use sha2::Sha256;

/// The secret from which all keys of a server are derived. All workers have the same; it is kept over
/// restarts, so that what was given out under its keys stays good.
#[derive(Clone)]
pub struct Secret(Hkdf<Sha256>);

/// What a key is for. The texts are part of the keys: another text makes void what was given out before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// MACs of digest nonces.
    Nonces,
    /// To tags of answers without a transaction.
    Tags,
    /// Hashes for loop detection.
    Spirals,
    /// Branches of stateless forwarding.
    StatelessBranches,
    /// Look-up of server transactions.
    Transactions,
    /// MACs of flow tokens.
    FlowTokens,
    /// MACs of dialog marks.
    DialogMarks,
    /// Holders of kept requests.
    Holders,
    /// MACs of temporary GRUUs.
    GruuMac,
    /// Encryption of temporary GRUUs.
    GruuCipher,
    /// Ids in documents about registrations.
    RegistrationIds,
    /// The notifier's tables.
    NotifierTables,
    /// Requests under way, in the memory that workers share.
    Requests,
    /// Next hops that failed, there.
    FailedHops,
    /// Dialogs whose marks are void, there.
    RevokedMarks,
    /// Parties that moved, there.
    MovedTargets,
    /// Addresses of gateways, there.
    Gateways,
    /// Wrong passwords, there.
    Guesses,
}

impl Purpose {
    #[cfg(test)]
    const ALL: [Purpose; 18] = [
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
        Purpose::Gateways,
        Purpose::Guesses,
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
            Purpose::Gateways => b"ringway gateways",
            Purpose::Guesses => b"ringway guesses",
        }
    }
}

impl Secret {
    /// A secret of 32 octets, which must be random and kept from everybody.
    pub fn new(octets: &[u8; 32]) -> Secret {
        #[allow(clippy::expect_used, reason = "it fails for keys shorter than the hash only")]
        Secret(Hkdf::from_prk(octets).expect("32 octets are as long as a SHA-256"))
    }

    /// The key for one purpose, of 16 octets for a keyed hash or 32 for an HMAC. A purpose has one length:
    /// the shorter key is the beginning of the longer.
    pub fn key<const N: usize>(&self, purpose: Purpose) -> [u8; N] {
        const { assert!(N == 16 || N == 32) };
        let mut key = [0; N];
        #[allow(clippy::expect_used, reason = "it fails for more than 255 times the hash only")]
        self.0.expand(purpose.info(), &mut key).expect("at most 32 octets");
        key
    }
}

impl std::fmt::Debug for Secret {
    /// Shows nothing of it.
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
