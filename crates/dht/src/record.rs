//! Records: what routers keep for each other.
//!
//! | part | octets |
//! |---|---|
//! | kind | 1 |
//! | proof of the signer ([`Proof`]) | 48 |
//! | version: epoch, count | 4 + 4 |
//! | lifetime in seconds | 4 |
//! | length of the name | 1 |
//! | length of the value | 2 |
//! | name, value | |
//! | signature over all before | 64 |
//!
//! Records of one kind and name by different signers stand beside each other; of those by one signer the latest version
//! counts. A record without a value withdraws the one before it, and is kept as long as that would have been.

use core::fmt;
use std::sync::Arc;

use ringway_mesh::crypto::{Crypto, Domain};
use ringway_mesh::id::Sequence;
use ringway_mesh::wire::SIGNATURE;
use ringway_mesh::{Identity, NodeId, Proof};
use ringway_sansio::{Got, Malformed, Reader};

use crate::config::{MAX_LIFETIME, MAX_NAME, MAX_VALUE};

/// Length in octets of a record without name and value.
pub const OVERHEAD: usize = HEAD + SIGNATURE;
/// Maximum length in octets of a record.
pub const MAX_RECORD: usize = OVERHEAD + MAX_NAME + MAX_VALUE;

/// Octets before the name.
const HEAD: usize = VALUE_LENGTH + 2;
const VERSION: usize = 1 + Proof::LENGTH;
const LIFETIME: usize = VERSION + 8;
const NAME_LENGTH: usize = LIFETIME + 4;
const VALUE_LENGTH: usize = NAME_LENGTH + 1;

/// Why a record cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The name is empty or too long.
    #[error("a name has 1 to {MAX_NAME} octets, got {0}")]
    Name(usize),
    /// The value is too long.
    #[error("a value has at most {MAX_VALUE} octets, got {0}")]
    Value(usize),
    /// The lifetime is zero or too long.
    #[error("a lifetime is 1 to {MAX_LIFETIME} seconds, got {0}")]
    Lifetime(u32),
    /// The router has as many records as it may.
    #[error("a router has at most {0} records of its own")]
    Full(usize),
}

/// What a record states, unsigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draft<'a> {
    /// What it is about. The meaning of numbers is the application's.
    pub kind: u8,
    /// The name it is found by, 1 to [`MAX_NAME`] octets.
    pub name: &'a [u8],
    /// Its value, at most [`MAX_VALUE`] octets; none withdraws a record.
    pub value: &'a [u8],
    /// Time in seconds for which it is kept unless it is written again, 1 to [`MAX_LIFETIME`].
    pub lifetime: u32,
}

impl Draft<'_> {
    /// Checks the lengths and the lifetime.
    ///
    /// # Errors
    /// One of them is out of its range.
    pub fn check(&self) -> Result<(), RecordError> {
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            return Err(RecordError::Name(self.name.len()));
        }
        if self.value.len() > MAX_VALUE {
            return Err(RecordError::Value(self.value.len()));
        }
        if self.lifetime == 0 || self.lifetime > MAX_LIFETIME {
            return Err(RecordError::Lifetime(self.lifetime));
        }
        Ok(())
    }
}

/// Returns the position on the ring of the records of a kind and name.
pub fn key(kind: u8, name: &[u8]) -> NodeId {
    let mut hasher = blake3::Hasher::new_derive_key("ringway dht 1 key");
    hasher.update(&[kind]).update(name);
    NodeId::from_bytes(first_octets(&hasher.finalize()))
}

/// Returns the first octets of a hash.
pub(crate) fn first_octets(hash: &blake3::Hash) -> [u8; 8] {
    let [octets @ .., _, _, _, _, _, _, _, _] = hash.as_bytes();
    let [octets @ .., _, _, _, _, _, _, _, _] = octets;
    let [octets @ .., _, _, _, _, _, _, _, _] = octets;
    *octets
}

/// A record. Its octets are shared by its copies.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    octets: Arc<[u8]>,
}

impl Record {
    /// Signs what a draft states.
    ///
    /// # Errors
    /// The draft is not within its limits.
    pub fn sign<C: Crypto>(
        identity: &Identity,
        version: Sequence,
        draft: &Draft<'_>,
    ) -> Result<Record, RecordError> {
        draft.check()?;
        let mut octets = Vec::with_capacity(OVERHEAD + draft.name.len() + draft.value.len());
        octets.push(draft.kind);
        octets.extend(identity.proof().to_bytes());
        octets.extend(version.epoch.to_be_bytes());
        octets.extend(version.count.to_be_bytes());
        octets.extend(draft.lifetime.to_be_bytes());
        octets.push(draft.name.len() as u8);
        octets.extend((draft.value.len() as u16).to_be_bytes());
        octets.extend(draft.name);
        octets.extend(draft.value);
        let signature = C::sign(identity, Domain::Record, &octets);
        octets.extend(signature);
        Ok(Record { octets: octets.into() })
    }

    /// Parses a record and returns it, with nothing behind it. Its signature is not verified.
    ///
    /// # Errors
    /// A length that is not that of the octets, a name that is empty, or a lifetime out of its range.
    pub fn parse(octets: &[u8]) -> Result<Record, Malformed> {
        let mut reader = Reader::new("expected a whole record", octets);
        reader.take(LIFETIME)?;
        let lifetime = reader.u32()?;
        if lifetime == 0 || lifetime > MAX_LIFETIME {
            let got = Got::Number(lifetime.into());
            return Err(Malformed::bad("expected a lifetime of 1 to 86400 s", got, LIFETIME));
        }
        let name = usize::from(reader.u8()?);
        if name == 0 {
            return Err(reader.fault("expected a name"));
        }
        let value = usize::from(reader.u16()?);
        if value > MAX_VALUE {
            let got = Got::Number(value as u64);
            return Err(Malformed::bad("expected at most 512 octets of value", got, VALUE_LENGTH));
        }
        reader.take(name + value + SIGNATURE)?;
        reader.end()?;
        Ok(Record { octets: octets.into() })
    }

    /// Verifies the signer's proof, and the signature. Returns the signer.
    pub fn verify<C: Crypto>(&self, extension_bits: u8) -> Option<NodeId> {
        let proof = self.proof();
        let id = C::verify_proof(&proof, extension_bits).ok()?;
        let (signed, tail) = self.octets.split_at(self.octets.len() - SIGNATURE);
        let signature = tail.try_into().ok()?;
        C::verify(&proof.key, Domain::Record, signed, &signature).then_some(id)
    }

    /// Returns the octets.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Returns what it is about.
    pub fn kind(&self) -> u8 {
        self.octets[0]
    }

    /// Returns the name.
    pub fn name(&self) -> &[u8] {
        &self.octets[HEAD..HEAD + usize::from(self.octets[NAME_LENGTH])]
    }

    /// Returns the value.
    pub fn value(&self) -> &[u8] {
        let start = HEAD + usize::from(self.octets[NAME_LENGTH]);
        &self.octets[start..self.octets.len() - SIGNATURE]
    }

    /// Returns whether it only withdraws the record before it.
    pub fn is_withdrawal(&self) -> bool {
        self.value().is_empty()
    }

    /// Returns the lifetime in seconds.
    pub fn lifetime(&self) -> u32 {
        self.number(LIFETIME)
    }

    /// Returns the version.
    pub fn version(&self) -> Sequence {
        Sequence { epoch: self.number(VERSION), count: self.number(VERSION + 4) }
    }

    /// Returns the position on the ring.
    pub fn key(&self) -> NodeId {
        key(self.kind(), self.name())
    }

    /// Returns what its signer proves itself with, unverified.
    pub fn proof(&self) -> Proof {
        let mut octets = [0; Proof::LENGTH];
        octets.copy_from_slice(&self.octets[1..VERSION]);
        Proof::from_bytes(&octets)
    }

    /// Returns a number that differs from that of every other record, even from one that was made for the purpose with
    /// 2^32 attempts.
    pub fn mark(&self) -> u64 {
        u64::from_be_bytes(first_octets(&blake3::hash(&self.octets)))
    }

    fn number(&self, at: usize) -> u32 {
        let mut octets = [0; 4];
        octets.copy_from_slice(&self.octets[at..at + 4]);
        u32::from_be_bytes(octets)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, version) = (self.name().escape_ascii(), self.version());
        write!(f, "Record({} {name} {}.{}", self.kind(), version.epoch, version.count)?;
        write!(f, " of {:?})", self.proof())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_mesh::crypto::{Real, StandIn};
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    fn identity(seed: u64) -> Identity {
        Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap()
    }

    const ALICE: Draft<'_> = Draft { kind: 1, name: b"alice", value: b"here", lifetime: 600 };

    #[test]
    fn a_record_returns_what_was_signed() {
        let identity = identity(1);
        let version = Sequence { epoch: 7, count: 9 };
        let record = Record::sign::<Real>(&identity, version, &ALICE).unwrap();
        let parsed = Record::parse(record.octets()).unwrap();
        assert_eq!(parsed, record);
        assert_eq!(
            (parsed.kind(), parsed.name(), parsed.value()),
            (1, &b"alice"[..], &b"here"[..])
        );
        assert_eq!((parsed.lifetime(), parsed.version()), (600, version));
        assert_eq!(parsed.verify::<Real>(0), Some(identity.id()));
        assert_eq!(parsed.key(), key(1, b"alice"));
        assert_ne!(parsed.key(), key(2, b"alice"));
        assert!(!parsed.is_withdrawal());
    }

    #[test]
    fn whatever_is_changed_the_signature_is_refused() {
        let record = Record::sign::<Real>(&identity(1), Sequence::default(), &ALICE).unwrap();
        for at in 0..record.octets().len() {
            let mut octets = record.octets().to_vec();
            octets[at] ^= 1;
            let changed = Record::parse(&octets);
            assert!(changed.is_err() || changed.unwrap().verify::<Real>(0).is_none(), "octet {at}");
        }
        // One without the hash extension that others must have.
        assert_eq!(record.verify::<Real>(60), None);
    }

    #[test]
    fn what_is_too_long_is_refused_with_its_length() {
        let refused = |draft: Draft<'_>| draft.check().unwrap_err().to_string();
        assert_eq!(refused(Draft { name: b"", ..ALICE }), "a name has 1 to 255 octets, got 0");
        assert_eq!(
            refused(Draft { value: &[0; 513], ..ALICE }),
            "a value has at most 512 octets, got 513"
        );
        assert_eq!(
            refused(Draft { lifetime: 0, ..ALICE }),
            "a lifetime is 1 to 86400 seconds, got 0"
        );
        let longest = Draft { name: &[b'a'; 255], value: &[0; 512], ..ALICE };
        let record = Record::sign::<StandIn>(&identity(1), Sequence::default(), &longest).unwrap();
        assert_eq!(record.octets().len(), MAX_RECORD);
    }

    proptest! {
        #[test]
        fn octets_are_a_record_or_a_fault(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(record) = Record::parse(&octets) {
                prop_assert_eq!(record.octets(), &octets[..]);
                let _ = (record.name(), record.value(), record.verify::<StandIn>(0), record.mark());
            }
        }
    }
}
