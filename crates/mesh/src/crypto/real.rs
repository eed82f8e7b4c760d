//! ed25519 (RFC 8032), X25519 (RFC 7748), ChaCha20-Poly1305 (RFC 8439), SHA-256 and the Noise framework.
//!
//! Noise's state machine is `snow`'s, without the cryptography it could bring: that would be second versions of what the
//! other rooms and the identities use. The keys of a handshake are split out of it, so that packets are encrypted without a copy.

use curve25519_dalek::MontgomeryPoint;
use ed25519_dalek::{Signature, Signer, VerifyingKey};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use sha2::{Digest, Sha256};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::{Builder, Error, HandshakeState, types};

use super::{
    CodeKey, Crypto, Domain, ENVELOPE, Established, HandshakeError, NetworkKey, Purpose, Role,
};
use crate::id::NodeId;
use crate::identity::{Identity, IdentityError, KEY, Proof};
use crate::wire::{SEAL, SIGNATURE};

/// The protocol of all handshakes.
const NOISE: &str = "Noise_XXpsk0_25519_ChaChaPoly_SHA256";
/// The protocol of what is sealed for somebody who is not asked (section 7.4 of the Noise framework).
const NOISE_ONE_WAY: &str = "Noise_N_25519_ChaChaPoly_SHA256";
/// The purpose of the latter.
const ENVELOPE_PROLOGUE: &[u8] = b"ringway mesh 1 envelope";

/// What routers use.
#[derive(Clone, Copy, Debug)]
pub struct Real;

/// The keys of both directions.
pub struct Keys {
    send: LessSafeKey,
    receive: LessSafeKey,
    codes: [CodeKey; 2],
}

impl core::fmt::Debug for Keys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Keys")
    }
}

impl Crypto for Real {
    type Handshake = HandshakeState;
    type Keys = Keys;

    fn sign(identity: &Identity, domain: Domain, bytes: &[u8]) -> [u8; SIGNATURE] {
        identity.signing_key().sign(&[domain.prefix(), bytes].concat()).to_bytes()
    }

    fn verify(key: &[u8; KEY], domain: Domain, bytes: &[u8], signature: &[u8; SIGNATURE]) -> bool {
        let message = [domain.prefix(), bytes].concat();
        let signature = Signature::from_bytes(signature);
        // Strict: one signature has one form, and keys of low order none (RFC 8032 section 8.9).
        VerifyingKey::from_bytes(key)
            .is_ok_and(|key| key.verify_strict(&message, &signature).is_ok())
    }

    fn verify_proof(proof: &Proof, bits: u8) -> Result<NodeId, IdentityError> {
        proof.verify(bits)
    }

    fn static_key(key: &[u8; KEY]) -> Option<[u8; KEY]> {
        VerifyingKey::from_bytes(key).ok().map(|key| key.to_montgomery().to_bytes())
    }

    fn begin(
        role: Role,
        purpose: Purpose,
        identity: &Identity,
        network: &NetworkKey,
        seed: [u8; 32],
    ) -> Result<HandshakeState, HandshakeError> {
        let secret = identity.signing_key().to_scalar_bytes();
        let builder = builder(NOISE, seed)
            .and_then(|builder| builder.psk(0, &network.0))
            .and_then(|builder| builder.prologue(purpose.prologue()))
            .and_then(|builder| builder.local_private_key(&secret));
        let built = builder.and_then(|builder| match role {
            Role::Initiator => builder.build_initiator(),
            Role::Responder => builder.build_responder(),
        });
        built.map_err(|_| HandshakeError::OutOfTurn)
    }

    fn write(
        handshake: &mut HandshakeState,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let start = out.len();
        // The longest message has two keys and two tags.
        out.resize(start + payload.len() + 2 * (KEY + SEAL), 0);
        let written = handshake.write_message(payload, &mut out[start..]);
        out.truncate(start + *written.as_ref().unwrap_or(&0));
        written.map(|_| ()).map_err(|_| HandshakeError::OutOfTurn)
    }

    fn read(
        handshake: &mut HandshakeState,
        message: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        if handshake.is_my_turn() || handshake.is_handshake_finished() {
            return Err(HandshakeError::OutOfTurn);
        }
        let start = payload.len();
        payload.resize(start + message.len(), 0);
        let read = handshake.read_message(message, &mut payload[start..]);
        payload.truncate(start + *read.as_ref().unwrap_or(&0));
        read.map(|_| ()).map_err(|_| HandshakeError::Refused)
    }

    fn finish(mut handshake: HandshakeState) -> Result<Established<Keys>, HandshakeError> {
        if !handshake.is_handshake_finished() {
            return Err(HandshakeError::OutOfTurn);
        }
        let mut peer = [0; KEY];
        match handshake.get_remote_static() {
            Some(key) if key.len() == KEY => peer.copy_from_slice(key),
            _ => return Err(HandshakeError::OutOfTurn),
        }
        let (from_initiator, from_responder) = handshake.dangerously_get_raw_split();
        let (send, receive) = if handshake.is_initiator() {
            (from_initiator, from_responder)
        } else {
            (from_responder, from_initiator)
        };
        let codes = [&send, &receive].map(code_key);
        let keys = Keys { send: aead(&send), receive: aead(&receive), codes };
        Ok(Established { keys, peer })
    }

    fn codes(keys: &Keys) -> [CodeKey; 2] {
        keys.codes
    }

    fn seal(keys: &Keys, counter: u64, header: &[u8], out: &mut Vec<u8>, start: usize) {
        let tag = seal_with(&keys.send, counter, header, &mut out[start..]);
        out.extend_from_slice(&tag);
    }

    fn open<'a>(
        keys: &Keys,
        counter: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        keys.receive.open_in_place(nonce(counter), Aad::from(header), sealed).ok()
    }

    fn seal_for(key: &[u8; KEY], seed: [u8; 32], bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let sealed = Real::static_key(key).and_then(|key| {
            let builder = builder(NOISE_ONE_WAY, seed).ok()?.prologue(ENVELOPE_PROLOGUE).ok()?;
            let mut handshake = builder.remote_public_key(&key).ok()?.build_initiator().ok()?;
            out.resize(start + bytes.len() + ENVELOPE, 0);
            handshake.write_message(bytes, &mut out[start..]).ok()
        });
        out.truncate(start + sealed.unwrap_or(0));
        sealed.is_some()
    }

    fn open_sealed(identity: &Identity, sealed: &[u8]) -> Option<Vec<u8>> {
        let secret = identity.signing_key().to_scalar_bytes();
        // The side that opens draws nothing.
        let builder = builder(NOISE_ONE_WAY, [0; 32]).ok()?.prologue(ENVELOPE_PROLOGUE).ok()?;
        let mut handshake = builder.local_private_key(&secret).ok()?.build_responder().ok()?;
        let mut bytes = vec![0; sealed.len()];
        let length = handshake.read_message(sealed, &mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }
}

/// Derives the key of the codes over headers from the key of a direction.
fn code_key(key: &[u8; KEY]) -> CodeKey {
    let derived = blake3::derive_key("ringway mesh 1 header code", key);
    CodeKey(core::array::from_fn(|at| derived[at]))
}

/// A builder with the cryptography below.
fn builder(noise: &str, seed: [u8; 32]) -> Result<Builder<'_>, Error> {
    Ok(Builder::with_resolver(noise.parse()?, Box::new(Resolver { seed })))
}

/// The nonce of ChaCha20-Poly1305 in Noise (section 12.3 of the Noise framework).
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[expect(clippy::expect_used, reason = "the key has the length that the algorithm names")]
fn aead(key: &[u8; KEY]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("a key of 32 octets"))
}

#[expect(clippy::expect_used, reason = "fails only above 256 GiB, and a packet has 64 KiB at most")]
fn seal_with(key: &LessSafeKey, counter: u64, header: &[u8], bytes: &mut [u8]) -> [u8; SEAL] {
    let tag = key.seal_in_place_separate_tag(nonce(counter), Aad::from(header), bytes);
    let mut octets = [0; SEAL];
    octets.copy_from_slice(tag.expect("a packet that fits").as_ref());
    octets
}

/// The cryptography that Noise's state machine is given.
struct Resolver {
    seed: [u8; 32],
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn types::Random>> {
        let mut hasher = blake3::Hasher::new_derive_key("ringway mesh 1 ephemeral keys");
        hasher.update(&self.seed);
        Some(Box::new(Seeded(hasher.finalize_xof())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn types::Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(X25519::default()) as Box<_>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn types::Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::new(Sha(Sha256::new())) as Box<_>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn types::Cipher>> {
        matches!(choice, CipherChoice::ChaChaPoly)
            .then(|| Box::new(Cipher(aead(&[0; KEY]))) as Box<_>)
    }
}

/// Ephemeral keys from a seed that the world has drawn, so that a handshake can be repeated octet for octet.
struct Seeded(blake3::OutputReader);

impl types::Random for Seeded {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        self.0.fill(dest);
        Ok(())
    }
}

#[derive(Default)]
struct X25519 {
    secret: [u8; KEY],
    public: [u8; KEY],
}

impl types::Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY
    }

    fn priv_len(&self) -> usize {
        KEY
    }

    fn set(&mut self, privkey: &[u8]) {
        self.secret.copy_from_slice(privkey);
        self.public = MontgomeryPoint::mul_base_clamped(self.secret).to_bytes();
    }

    fn generate(&mut self, rng: &mut dyn types::Random) -> Result<(), Error> {
        let mut secret = [0; KEY];
        rng.try_fill_bytes(&mut secret)?;
        self.set(&secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &self.secret
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let (Some(point), Some(out)) = (pubkey.first_chunk::<KEY>(), out.first_chunk_mut::<KEY>())
        else {
            return Err(Error::Dh);
        };
        *out = MontgomeryPoint(*point).mul_clamped(self.secret).to_bytes();
        // RFC 7748 section 6.1.
        if *out == [0; KEY] { Err(Error::Dh) } else { Ok(()) }
    }
}

struct Sha(Sha256);

impl types::Hash for Sha {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Sha256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&self.0.finalize_reset());
    }
}

struct Cipher(LessSafeKey);

impl types::Cipher for Cipher {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY]) {
        self.0 = aead(key);
    }

    fn encrypt(&self, counter: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (bytes, tag) = out.split_at_mut(plaintext.len());
        bytes.copy_from_slice(plaintext);
        tag[..SEAL].copy_from_slice(&seal_with(&self.0, counter, authtext, bytes));
        plaintext.len() + SEAL
    }

    fn decrypt(
        &self,
        counter: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        // The caller's buffer may have no room for the tag.
        let mut bytes = ciphertext.to_vec();
        let opened = self.0.open_in_place(nonce(counter), Aad::from(authtext), &mut bytes);
        let opened = opened.map_err(|_| Error::Decrypt)?;
        out.get_mut(..opened.len()).ok_or(Error::Decrypt)?.copy_from_slice(opened);
        Ok(opened.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(text: &str) -> Vec<u8> {
        let digits = text.as_bytes().chunks(2);
        digits
            .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn key(text: &str) -> [u8; KEY] {
        octets(text).try_into().unwrap()
    }

    /// The vector of the Noise implementation Cacophony for XXpsk3, which differs from XXpsk0 in when the key is mixed
    /// in: payload and message in turn, the last three after the handshake.
    #[test]
    fn messages_are_those_of_the_published_vector() {
        let psk = key("54686973206973206d7920417573747269616e20706572737065637469766521");
        let side = |secret: &str, ephemeral: &str| {
            let (secret, ephemeral) = (key(secret), key(ephemeral));
            let build = |initiator: bool| {
                let noise = builder("Noise_XXpsk3_25519_ChaChaPoly_SHA256", [0; 32]).unwrap();
                let noise = noise.psk(3, &psk).unwrap().prologue(b"John Galt").unwrap();
                let noise = noise.local_private_key(&secret).unwrap();
                let noise = noise.fixed_ephemeral_key_for_testing_only(&ephemeral);
                if initiator { noise.build_initiator() } else { noise.build_responder() }.unwrap()
            };
            (build(true), build(false))
        };
        let (initiator, _) = side(
            "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
            "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
        );
        let (_, responder) = side(
            "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
            "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
        );
        let mut sides = [initiator, responder];
        let messages = [
            (
                "4c756477696720766f6e204d69736573",
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944c9f5ff0e8079630cb7e270c20bbf\
                 480821b77a384a645c71a2fd9b3db1c16a5f",
            ),
            (
                "4d757272617920526f746862617264",
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843b123def17f71e6ae8e57e0e1dec5\
                 949c5f7415c6f33517398747d821a06dc23ad430aa1fd7381d46195c378a819fd574425462cbb2d4ca339e738a0b\
                 7001dc91423fbf55a99af0c6f1df21012ceb2f",
            ),
            (
                "462e20412e20486179656b",
                "52187316111b118d4c060364f7b975dc0809b2590779aff2d63113c564f11744493384db7bf32d5ae6686df6ab06\
                 d508d2e07caaf1d6afc010b978735fc78900e71ae1d314130d042e729a",
            ),
        ];
        for (at, (payload, message)) in messages.into_iter().enumerate() {
            let (mut out, mut read) = (Vec::new(), Vec::new());
            Real::write(&mut sides[at % 2], &octets(payload), &mut out).unwrap();
            assert_eq!(out, octets(message), "message {at}");
            Real::read(&mut sides[1 - at % 2], &out, &mut read).unwrap();
            assert_eq!(read, octets(payload), "payload {at}");
        }
        let [initiator, responder] = sides.map(|side| Real::finish(side).unwrap().keys);
        let mut out = octets("4361726c204d656e676572");
        Real::seal(&responder, 0, &[], &mut out, 0);
        assert_eq!(out, octets("eaedc672d4c21e0e2955758756fb98f194c4e90d5deb5b6cf30b27"));
        assert_eq!(
            Real::open(&initiator, 0, &[], &mut out).unwrap(),
            octets("4361726c204d656e676572")
        );
        let mut out = octets("4a65616e2d426170746973746520536179");
        Real::seal(&initiator, 0, &[], &mut out, 0);
        assert_eq!(
            out,
            octets("522d543c5fe799d09a3d9da7ff54d0dc03c8af1dc7751d2ff708339d2290943e98")
        );
    }

    /// SipHash-2-4, test vector of its authors: key 00 to 0f, message 00 to 0e.
    #[test]
    fn codes_are_those_of_the_published_vector() {
        let key = CodeKey(core::array::from_fn(|at| at as u8));
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(key.code(&message), 0xa129_ca61_49be_45e5_u64.to_be_bytes());
    }

    /// RFC 7748 section 6.1: both have the same secret, and a point of low order has none.
    #[test]
    fn two_keys_agree_and_a_point_of_low_order_is_refused() {
        use types::Dh;
        let [mut alice, mut bob] = [X25519::default(), X25519::default()];
        alice.set(&[5; KEY]);
        bob.set(&[7; KEY]);
        let (mut one, mut other) = ([0; KEY], [1; KEY]);
        alice.dh(bob.pubkey(), &mut one).unwrap();
        bob.dh(alice.pubkey(), &mut other).unwrap();
        assert_eq!(one, other);
        assert_eq!(alice.dh(&[0; KEY], &mut one), Err(Error::Dh));
        assert_eq!(alice.dh(&[0; 3], &mut one), Err(Error::Dh));
    }
}
