//! What looks like cryptography and is none: octets of the same lengths, computed by a fast hash.
//!
//! It refuses what the real one refuses, as long as nobody computes what is not theirs: another network key, another
//! purpose, changed octets, a signature over something else. Who simulates an attacker that forges signatures must use
//! the real one.

use core::hash::Hasher;

use rustc_hash::FxHasher;

use super::{CodeKey, Crypto, Domain, Established, HandshakeError, NetworkKey, Purpose, Role};
use crate::id::NodeId;
use crate::identity::{Identity, IdentityError, KEY, Proof};
use crate::wire::{SEAL, SIGNATURE};

/// What tells the tag of something that is sealed for somebody from others.
const ENVELOPE_HEADER: &[u8] = b"envelope";

/// Stands in for [`Real`](super::Real) in simulations of very many routers.
#[derive(Clone, Copy, Debug)]
pub struct StandIn;

/// A handshake: who has said what.
#[derive(Clone, Debug)]
pub struct Handshake {
    role: Role,
    own: [u8; KEY],
    peer: [u8; KEY],
    ephemeral: [u8; KEY],
    /// Hash of network key, purpose and all messages.
    state: u64,
    /// Messages that were written or read.
    step: u8,
}

/// One key for each direction: what the initiator sends, what the responder sends.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    send: u64,
    receive: u64,
}

/// Returns a hash of all `parts` in order.
fn hash(key: u64, parts: &[&[u8]]) -> u64 {
    let mut hasher = FxHasher::with_seed(key as usize);
    for part in parts {
        hasher.write(part);
        hasher.write_usize(part.len());
    }
    hasher.finish()
}

fn tag(key: u64, counter: u64, header: &[u8], bytes: &[u8]) -> [u8; SEAL] {
    let half = hash(key, &[&counter.to_le_bytes(), header, bytes]);
    let mut tag = [0; SEAL];
    tag[..8].copy_from_slice(&half.to_le_bytes());
    tag[8..].copy_from_slice(&(!half).to_le_bytes());
    tag
}

impl Handshake {
    /// Whether the next message is ours.
    fn is_own_turn(&self) -> bool {
        self.step.is_multiple_of(2) == (self.role == Role::Initiator)
    }

    /// Length in octets of what precedes the payload in the next message: ephemeral key, static key and its tag.
    fn head(&self) -> usize {
        [KEY, 2 * KEY + SEAL, KEY + SEAL][usize::from(self.step)]
    }
}

impl Crypto for StandIn {
    type Handshake = Handshake;
    type Keys = Keys;

    fn sign(identity: &Identity, domain: Domain, bytes: &[u8]) -> [u8; SIGNATURE] {
        signature(&identity.proof().key, domain, bytes)
    }

    fn verify(key: &[u8; KEY], domain: Domain, bytes: &[u8], given: &[u8; SIGNATURE]) -> bool {
        signature(key, domain, bytes) == *given
    }

    /// Every key is one.
    fn verify_proof(proof: &Proof, bits: u8) -> Result<NodeId, IdentityError> {
        proof.verify_extension(bits)
    }

    fn static_key(key: &[u8; KEY]) -> Option<[u8; KEY]> {
        Some(*key)
    }

    fn begin(
        role: Role,
        purpose: Purpose,
        identity: &Identity,
        network: &NetworkKey,
        seed: [u8; 32],
    ) -> Result<Handshake, HandshakeError> {
        let state = hash(0, &[&network.0, purpose.prologue()]);
        let (own, peer) = (identity.proof().key, [0; KEY]);
        Ok(Handshake { role, own, peer, ephemeral: seed, state, step: 0 })
    }

    fn write(
        handshake: &mut Handshake,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        if handshake.step > 2 || !handshake.is_own_turn() {
            return Err(HandshakeError::OutOfTurn);
        }
        let start = out.len();
        if handshake.step < 2 {
            out.extend_from_slice(&handshake.ephemeral);
        }
        if handshake.step > 0 {
            out.extend_from_slice(&handshake.own);
            out.extend_from_slice(&[0; SEAL]);
        }
        out.extend_from_slice(payload);
        let tag = tag(handshake.state, handshake.step.into(), &[], &out[start..]);
        out.extend_from_slice(&tag);
        handshake.state = hash(handshake.state, &[&out[start..]]);
        handshake.step += 1;
        Ok(())
    }

    fn read(
        handshake: &mut Handshake,
        message: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        if handshake.step > 2 || handshake.is_own_turn() {
            return Err(HandshakeError::OutOfTurn);
        }
        let end = message.len().checked_sub(SEAL).filter(|&end| end >= handshake.head());
        let (bytes, given) = message.split_at(end.ok_or(HandshakeError::Refused)?);
        if tag(handshake.state, handshake.step.into(), &[], bytes) != given {
            return Err(HandshakeError::Refused);
        }
        if handshake.step > 0 {
            let start = handshake.head() - KEY - SEAL;
            handshake.peer.copy_from_slice(&bytes[start..start + KEY]);
        }
        payload.extend_from_slice(&bytes[handshake.head()..]);
        handshake.state = hash(handshake.state, &[message]);
        handshake.step += 1;
        Ok(())
    }

    fn finish(handshake: Handshake) -> Result<Established<Keys>, HandshakeError> {
        if handshake.step < 3 {
            return Err(HandshakeError::OutOfTurn);
        }
        let [first, second] =
            [b"initiator", b"responder"].map(|side| hash(handshake.state, &[side]));
        let keys = match handshake.role {
            Role::Initiator => Keys { send: first, receive: second },
            Role::Responder => Keys { send: second, receive: first },
        };
        Ok(Established { keys, peer: handshake.peer })
    }

    fn codes(keys: &Keys) -> [CodeKey; 2] {
        [keys.send, keys.receive].map(|key| {
            let mut code = [0; 16];
            code[..8].copy_from_slice(&key.to_le_bytes());
            CodeKey(code)
        })
    }

    fn seal(keys: &Keys, counter: u64, header: &[u8], out: &mut Vec<u8>, start: usize) {
        let tag = tag(keys.send, counter, header, &out[start..]);
        out.extend_from_slice(&tag);
    }

    fn open<'a>(
        keys: &Keys,
        counter: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let end = sealed.len().checked_sub(SEAL)?;
        let (bytes, given) = sealed.split_at_mut(end);
        (tag(keys.receive, counter, header, bytes) == *given).then_some(bytes)
    }

    /// Not encrypted: the ephemeral key, the octets and a tag that depends on who may open them.
    fn seal_for(key: &[u8; KEY], seed: [u8; 32], bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.extend_from_slice(&seed);
        out.extend_from_slice(bytes);
        let tag = tag(hash(0, &[key]), 0, ENVELOPE_HEADER, &out[start..]);
        out.extend_from_slice(&tag);
        true
    }

    fn open_sealed(identity: &Identity, sealed: &[u8]) -> Option<Vec<u8>> {
        let end = sealed.len().checked_sub(SEAL).filter(|&end| end >= KEY)?;
        let (bytes, given) = sealed.split_at(end);
        let own = hash(0, &[&identity.proof().key]);
        (tag(own, 0, ENVELOPE_HEADER, bytes) == given).then(|| bytes[KEY..].to_vec())
    }
}

fn signature(key: &[u8; KEY], domain: Domain, bytes: &[u8]) -> [u8; SIGNATURE] {
    let half = hash(0, &[key, domain.prefix(), bytes]).to_le_bytes();
    core::array::from_fn(|at| half[at % half.len()])
}
