//! What authenticates and what encrypts, behind a trait.
//!
//! [`Real`] is what routers use. [`StandIn`] has the same sizes and the same refusals at a fraction of the cost, protects
//! nothing, and is for simulations of very many routers, which say so.
//!
//! Links and sessions begin with one handshake, the Noise pattern XXpsk0 over X25519, ChaCha20-Poly1305 and SHA-256: both
//! sides prove a static key, nobody else learns it, and without the network key not even the first message can be read.
//! The static key is the ed25519 key of the identity in Montgomery form (RFC 7748 section 4.1), so that a router has one
//! key. Signatures, and the two purposes of handshakes, are kept apart by domains and prologues.
//!
//! What others keep for a router is sealed for it by the one-way Noise pattern N, of the same algorithms: anybody can seal,
//! only the router can open, and nothing shows who has sealed.

pub mod real;
pub mod stand_in;

pub use real::Real;
pub use stand_in::StandIn;

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::id::NodeId;
use crate::identity::{Identity, IdentityError, KEY, Proof};
use crate::wire::{MAC, SEAL, SIGNATURE};

/// The key of a network, or zeros if everybody may join. The handshake mixes it into its first message.
#[derive(Clone)]
pub struct NetworkKey([u8; KEY]);

impl NetworkKey {
    /// The key of a network that everybody may join.
    pub const OPEN: NetworkKey = NetworkKey([0; KEY]);

    /// Returns whether everybody may join.
    pub fn is_open(&self) -> bool {
        self.0 == [0; KEY]
    }

    /// Derives the key from what an operator has written into a file.
    pub fn derive(secret: &[u8]) -> NetworkKey {
        NetworkKey(blake3::derive_key("ringway mesh 1 network key", secret))
    }
}

impl core::fmt::Debug for NetworkKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("NetworkKey")
    }
}

/// A key that two routers share, for short codes over what they send each other: HELLOs and headers of data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CodeKey(pub [u8; 16]);

impl CodeKey {
    /// Returns the code over `bytes` (SipHash-2-4).
    pub fn code(&self, bytes: &[u8]) -> [u8; MAC] {
        self.code_parts(&[bytes])
    }

    /// Returns the code over all `parts` in order.
    pub fn code_parts(&self, parts: &[&[u8]]) -> [u8; MAC] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish().to_be_bytes()
    }
}

impl core::fmt::Debug for CodeKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("CodeKey")
    }
}

/// What a signature is for. One for a purpose is none for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// A message between routers.
    Message,
    /// Octets of an application.
    Payload,
    /// A record that other routers keep.
    Record,
    /// The permission of a user's home for another router.
    Grant,
}

impl Domain {
    const fn prefix(self) -> &'static [u8] {
        match self {
            Domain::Message => b"ringway mesh 1 message\0",
            Domain::Payload => b"ringway mesh 1 payload\0",
            Domain::Record => b"ringway mesh 1 record\0",
            Domain::Grant => b"ringway mesh 1 grant\0",
        }
    }
}

/// What a handshake is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A link between neighbours.
    Link,
    /// A session between the routers of two hosts.
    Session,
}

impl Purpose {
    const fn prologue(self) -> &'static [u8] {
        match self {
            Purpose::Link => b"ringway mesh 1 link",
            Purpose::Session => b"ringway mesh 1 session",
        }
    }
}

/// A side of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Sends the first message.
    Initiator,
    /// Sends the second.
    Responder,
}

/// Why a handshake ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// A message cannot be opened: it is forged, or the network keys differ.
    #[error("expected a handshake message sealed with the network's key, got another")]
    Refused,
    /// A message is read or written out of turn; a fault of the caller.
    #[error("expected the handshake's next step, got another")]
    OutOfTurn,
}

/// The result of a handshake.
#[derive(Debug)]
pub struct Established<K> {
    /// The keys of both directions.
    pub keys: K,
    /// The peer's static key. It is the peer's identity only if [`Crypto::static_key`] of the key in its proof equals it.
    pub peer: [u8; KEY],
}

/// Signatures, handshakes and seals.
pub trait Crypto: 'static {
    /// A handshake under way.
    type Handshake;
    /// The keys of a link or a session.
    type Keys;

    /// Signs `bytes`.
    fn sign(identity: &Identity, domain: Domain, bytes: &[u8]) -> [u8; SIGNATURE];

    /// Returns whether `signature` over `bytes` is by the holder of the public key `key`.
    fn verify(key: &[u8; KEY], domain: Domain, bytes: &[u8], signature: &[u8; SIGNATURE]) -> bool;

    /// Checks a proof, and returns the id.
    fn verify_proof(proof: &Proof, bits: u8) -> Result<NodeId, IdentityError>;

    /// Returns the static key that the holder of the public key `key` proves in a handshake.
    fn static_key(key: &[u8; KEY]) -> Option<[u8; KEY]>;

    /// Begins a handshake. `seed` must be random, and different for each.
    fn begin(
        role: Role,
        purpose: Purpose,
        identity: &Identity,
        network: &NetworkKey,
        seed: [u8; 32],
    ) -> Result<Self::Handshake, HandshakeError>;

    /// Appends the next message with `payload` sealed in it.
    fn write(
        handshake: &mut Self::Handshake,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), HandshakeError>;

    /// Opens the peer's next message and appends its payload.
    fn read(
        handshake: &mut Self::Handshake,
        message: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<(), HandshakeError>;

    /// Ends the handshake after its third message.
    fn finish(handshake: Self::Handshake) -> Result<Established<Self::Keys>, HandshakeError>;

    /// Returns the keys of short codes over the headers of data: of what is sent, and of what is received.
    fn codes(keys: &Self::Keys) -> [CodeKey; 2];

    /// Encrypts the octets of `out` from `start` on without a copy, and appends their tag, which covers `header` too. A counter
    /// must not be used twice.
    fn seal(keys: &Self::Keys, counter: u64, header: &[u8], out: &mut Vec<u8>, start: usize);

    /// Decrypts octets and tag without a copy. Returns the octets, or `None` if anything has been changed.
    fn open<'a>(
        keys: &Self::Keys,
        counter: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]>;

    /// Seals `bytes` so that only the holder of the public key `key` can open them, and appends the result, which is
    /// [`ENVELOPE`] octets longer. It does not show who has sealed them. `seed` must be random, and different for each.
    /// Returns whether `key` is a key; if not, nothing is appended.
    fn seal_for(key: &[u8; KEY], seed: [u8; 32], bytes: &[u8], out: &mut Vec<u8>) -> bool;

    /// Opens what was sealed for this identity; `None` if it was sealed for another, or has been changed.
    fn open_sealed(identity: &Identity, sealed: &[u8]) -> Option<Vec<u8>>;
}

/// Octets by which what is sealed for somebody is longer: an ephemeral key and a tag.
pub const ENVELOPE: usize = KEY + SEAL;

#[cfg(test)]
mod tests;
