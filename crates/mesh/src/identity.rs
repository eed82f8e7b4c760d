//! Who a router is: an ed25519 key (RFC 8032), and an id that is a hash of it.
//!
//! The id is too short to resist a search for a second key with the same id, so each identity carries a *hash
//! extension* (the idea of RFC 3972 section 7.2): another hash of the same key must begin with
//! [`HASH_EXTENSION_BITS`] zero bits. A *modifier* of 16 octets is varied until it does. Making one identity then costs
//! 2^20 hashes, and a second identity with a given prefix 2^76.

use core::fmt;

use ed25519_dalek::{SigningKey, VerifyingKey};
use ringway_sansio::Random;

use crate::id::NodeId;

/// Zero bits that the hash extension of every identity begins with. It is part of the protocol's version: a router
/// cannot choose less.
pub const HASH_EXTENSION_BITS: u8 = 20;

/// Length in octets of a public or secret key.
pub const KEY: usize = 32;
/// Length in octets of a modifier.
pub const MODIFIER: usize = 16;

/// Purposes of the two hashes (BLAKE3's key derivation keeps them apart).
const ID_CONTEXT: &str = "ringway mesh 1 id";
const EXTENSION_CONTEXT: &str = "ringway mesh 1 hash extension";
/// Purpose of keys that follow from an identity.
const DELEGATE_CONTEXT: &str = "ringway mesh 1 delegate";

/// The first line of an identity file.
const FILE_HEADER: &str = "ringway mesh identity 1";
/// Maximum length in octets of an identity file.
pub const MAX_FILE: usize = 1_024;

/// What shows that an id belongs to a key: both inputs of the hashes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// The public key.
    pub key: [u8; KEY],
    /// The modifier that was searched for.
    pub modifier: [u8; MODIFIER],
}

impl Proof {
    /// Length in octets on the wire.
    pub const LENGTH: usize = KEY + MODIFIER;

    /// Returns the octets on the wire.
    pub fn to_bytes(&self) -> [u8; Proof::LENGTH] {
        let mut bytes = [0; Proof::LENGTH];
        bytes[..KEY].copy_from_slice(&self.key);
        bytes[KEY..].copy_from_slice(&self.modifier);
        bytes
    }

    /// Returns the proof in these octets, unverified.
    pub fn from_bytes(bytes: &[u8; Proof::LENGTH]) -> Proof {
        let (mut key, mut modifier) = ([0; KEY], [0; MODIFIER]);
        key.copy_from_slice(&bytes[..KEY]);
        modifier.copy_from_slice(&bytes[KEY..]);
        Proof { key, modifier }
    }

    /// Returns the id of this key, which nothing has been proved about.
    pub fn id(&self) -> NodeId {
        let digest = self.hash(ID_CONTEXT);
        let mut bytes = [0; NodeId::LENGTH];
        bytes.copy_from_slice(&digest.as_bytes()[..NodeId::LENGTH]);
        NodeId::from_bytes(bytes)
    }

    /// Checks the key, and the hash extension of `bits` zero bits, and returns the id.
    pub fn verify(&self, bits: u8) -> Result<NodeId, IdentityError> {
        let id = self.verify_extension(bits)?;
        match VerifyingKey::from_bytes(&self.key) {
            // A key of low order has signatures that fit every message (RFC 8032 section 8.9).
            Ok(key) if !key.is_weak() => Ok(id),
            _ => Err(IdentityError::Key),
        }
    }

    /// Checks the hash extension of `bits` zero bits, and returns the id of a key that is not looked at.
    pub(crate) fn verify_extension(&self, bits: u8) -> Result<NodeId, IdentityError> {
        let got = leading_zeros(&self.hash(EXTENSION_CONTEXT));
        if got < u32::from(bits) {
            return Err(IdentityError::Extension { expected: bits, got });
        }
        Ok(self.id())
    }

    fn hash(&self, context: &str) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(&self.key).update(&self.modifier);
        hasher.finalize()
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proof({})", self.id())
    }
}

fn leading_zeros(digest: &blake3::Hash) -> u32 {
    let [head @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *digest.as_bytes();
    u128::from_be_bytes(head).leading_zeros()
}

/// Why an identity or a proof is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The hash extension is too short: the modifier was not searched for.
    #[error("expected a hash extension of {expected} zero bits, got {got}")]
    Extension {
        /// Bits that the version of the protocol asks for.
        expected: u8,
        /// Zero bits that there are.
        got: u32,
    },
    /// The octets are not a public key, or one of low order.
    #[error("expected an ed25519 public key of full order, got other octets")]
    Key,
    /// The file is longer than any identity.
    #[error("expected an identity file of at most {MAX_FILE} octets, got {0}")]
    Long(usize),
    /// A line of the file is not what it must be.
    #[error("line {line} of the identity file: expected {expected}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What must be there.
        expected: &'static str,
    },
}

/// A router's own identity: its secret key, and what it proves itself with.
#[derive(Clone)]
pub struct Identity {
    key: SigningKey,
    proof: Proof,
    id: NodeId,
}

impl Identity {
    /// Returns the id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns what others verify the id by.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Returns the key that signs.
    pub fn signing_key(&self) -> &SigningKey {
        &self.key
    }

    /// The holder of a secret key that is no router: its id has no hash extension, so that no router takes it for one.
    pub fn of_secret(secret: &[u8; KEY]) -> Identity {
        let key = SigningKey::from_bytes(secret);
        let proof = Proof { key: key.verifying_key().to_bytes(), modifier: [0; MODIFIER] };
        Identity { key, proof, id: proof.id() }
    }

    /// Returns a key that follows from this one and a number, as its holder alone can compute it. It is no router.
    pub fn delegate(&self, number: u64) -> Identity {
        let mut hasher = blake3::Hasher::new_derive_key(DELEGATE_CONTEXT);
        hasher.update(self.key.as_bytes()).update(&number.to_be_bytes());
        Identity::of_secret(hasher.finalize().as_bytes())
    }

    /// Returns the text of an identity file. It holds the secret key.
    pub fn to_file(&self) -> String {
        let (secret, modifier) = (hex(self.key.as_bytes()), hex(&self.proof.modifier));
        format!("{FILE_HEADER}\nsecret {secret}\nmodifier {modifier}\n")
    }

    /// Parses the text of an identity file. Empty lines and lines that begin with `#` are skipped.
    pub fn from_file(text: &str, bits: u8) -> Result<Identity, IdentityError> {
        if text.len() > MAX_FILE {
            return Err(IdentityError::Long(text.len()));
        }
        let mut lines = Lines { lines: text.lines().enumerate(), last: 0 };
        if lines.next().map(|(_, text)| text) != Some(FILE_HEADER) {
            return Err(lines.expected("\"ringway mesh identity 1\""));
        }
        let key = lines.octets::<KEY>("secret", "\"secret\" and 64 hexadecimal digits")?;
        let modifier = lines.octets("modifier", "\"modifier\" and 32 hexadecimal digits")?;
        if lines.next().is_some() {
            return Err(lines.expected("the end"));
        }
        let key = SigningKey::from_bytes(&key);
        let proof = Proof { key: key.verifying_key().to_bytes(), modifier };
        let id = proof.verify(bits)?;
        Ok(Identity { key, proof, id })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.id)
    }
}

/// The lines of an identity file that say something.
struct Lines<'a> {
    lines: core::iter::Enumerate<core::str::Lines<'a>>,
    last: usize,
}

impl<'a> Lines<'a> {
    fn expected(&self, expected: &'static str) -> IdentityError {
        IdentityError::Line { line: self.last, expected }
    }

    fn octets<const N: usize>(
        &mut self,
        name: &str,
        expected: &'static str,
    ) -> Result<[u8; N], IdentityError> {
        let text = self.next().and_then(|(_, text)| text.strip_prefix(name)).map(str::trim);
        text.and_then(from_hex).ok_or_else(|| self.expected(expected))
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (index, text) = match self.lines.next() {
                Some((index, text)) => (index + 1, text.trim()),
                None => {
                    self.last += 1;
                    return None;
                }
            };
            self.last = index;
            if !text.is_empty() && !text.starts_with('#') {
                return Some((index, text));
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

/// The search for a modifier, in slices, so that a program can show its progress and stay responsive.
pub struct Search {
    key: SigningKey,
    bits: u8,
    /// The hash of the extension, with the key in it.
    hasher: blake3::Hasher,
    modifier: u128,
}

impl Search {
    /// Draws a key. The random source must be a cryptographic one, except in virtual time.
    pub fn new(bits: u8, random: &mut dyn Random) -> Search {
        let (mut secret, mut modifier) = ([0; KEY], [0; MODIFIER]);
        random.fill(&mut secret);
        random.fill(&mut modifier);
        let key = SigningKey::from_bytes(&secret);
        let mut hasher = blake3::Hasher::new_derive_key(EXTENSION_CONTEXT);
        hasher.update(key.verifying_key().as_bytes());
        Search { key, bits, hasher, modifier: u128::from_be_bytes(modifier) }
    }

    /// Tries `tries` modifiers. Returns the identity when one fits; on average `2^bits` must be tried.
    pub fn step(&mut self, tries: u32) -> Option<Identity> {
        for _ in 0..tries {
            self.modifier = self.modifier.wrapping_add(1);
            let modifier = self.modifier.to_be_bytes();
            if leading_zeros(&self.hasher.clone().update(&modifier).finalize()) >= self.bits.into()
            {
                let proof = Proof { key: self.key.verifying_key().to_bytes(), modifier };
                return Some(Identity { key: self.key.clone(), proof, id: proof.id() });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;

    fn identity(bits: u8, seed: u64) -> Identity {
        let mut search = Search::new(bits, &mut SplitMix::new(seed));
        search.step(u32::MAX).unwrap()
    }

    #[test]
    fn a_proof_is_verified_and_an_identity_without_extension_is_refused() {
        let identity = identity(8, 1);
        assert_eq!(identity.proof().verify(8), Ok(identity.id()));
        let mut other = *identity.proof();
        other.modifier[0] ^= 1;
        let refused = other.verify(8);
        assert!(
            matches!(refused, Err(IdentityError::Extension { expected: 8, .. })),
            "{refused:?}"
        );
        assert_ne!(other.id(), identity.id());
    }

    #[test]
    fn a_key_of_low_order_is_refused() {
        let mut key = [0; KEY];
        key[0] = 1; // The neutral element.
        assert_eq!(Proof { key, modifier: [0; MODIFIER] }.verify(0), Err(IdentityError::Key));
    }

    #[test]
    fn a_file_is_read_back() {
        let identity = identity(8, 2);
        let text = format!("# a comment\n\n{}", identity.to_file());
        let read = Identity::from_file(&text, 8).unwrap();
        assert_eq!((read.id(), read.proof()), (identity.id(), identity.proof()));
        assert!(!format!("{read:?}").contains(&hex(read.signing_key().as_bytes())));
    }

    #[test]
    fn a_faulty_file_names_its_line() {
        let good = identity(8, 3).to_file();
        let cut = good.replace("modifier ", "modifier 0");
        let line = |line, expected| Err(IdentityError::Line { line, expected });
        let read = |text: &str| Identity::from_file(text, 8).map(|identity| identity.id());
        assert_eq!(read(""), line(1, "\"ringway mesh identity 1\""));
        assert_eq!(read(&cut), line(3, "\"modifier\" and 32 hexadecimal digits"));
        assert_eq!(read(FILE_HEADER), line(2, "\"secret\" and 64 hexadecimal digits"));
        assert_eq!(read(&format!("{good}x")), line(4, "the end"));
        assert_eq!(read(&"#".repeat(MAX_FILE + 1)), Err(IdentityError::Long(MAX_FILE + 1)));
    }

    #[test]
    fn ids_are_spread_evenly() {
        // 1,000 ids in 10 parts: 100 in each, 30 is three standard deviations.
        let mut parts = [0u32; 10];
        for seed in 0..1_000 {
            let id = identity(0, seed).id();
            parts[((u128::from(id.raw()) * 10) >> 64) as usize] += 1;
        }
        assert!(parts.iter().all(|part| (70..130).contains(part)), "{parts:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_refused_without_a_panic(text in "\\PC{0,200}") {
            let _ = Identity::from_file(&text, 8);
            let file = format!("{FILE_HEADER}\nsecret {text}");
            prop_assert!(Identity::from_file(&file, 8).is_err());
        }

        #[test]
        fn a_proof_comes_back(bytes: [[u8; 24]; 2]) {
            let mut all = [0; Proof::LENGTH];
            all[..24].copy_from_slice(&bytes[0]);
            all[24..].copy_from_slice(&bytes[1]);
            prop_assert_eq!(Proof::from_bytes(&all).to_bytes(), all);
            prop_assert!(Proof::from_bytes(&all).verify(20).is_err());
        }
    }
}
