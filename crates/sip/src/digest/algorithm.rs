//! Hash algorithms, and the hash of a password.

use crate::write;
use md5::Md5;
use sha2::{Digest, Sha256, Sha512_256};

/// A hash algorithm of the IANA registry that RFC 7616 set up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Algorithm {
    /// `SHA-512-256`.
    Sha512_256,
    /// `SHA-256`.
    Sha256,
    /// `MD5`: for clients that support nothing else.
    Md5,
}

/// Octets of the longest digest.
pub(super) const MAX_DIGEST: usize = 32;

/// A digest: its octets, of which the first [`Algorithm::octets`] count.
pub(super) type Octets = [u8; MAX_DIGEST];

impl Algorithm {
    /// All algorithms, strongest first.
    pub const ALL: [Algorithm; 3] = [Algorithm::Sha512_256, Algorithm::Sha256, Algorithm::Md5];

    /// Returns the token of the `algorithm` parameter.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Sha512_256 => "SHA-512-256",
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Md5 => "MD5",
        }
    }

    /// Returns the algorithm of a token, in any case.
    pub fn from_token(token: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name().as_bytes().eq_ignore_ascii_case(token))
    }

    /// Returns the octets of a digest; it has twice as many hexadecimal digits on the wire.
    pub const fn octets(self) -> usize {
        match self {
            Algorithm::Sha512_256 | Algorithm::Sha256 => 32,
            Algorithm::Md5 => 16,
        }
    }

    /// Returns the digest of `parts` with colons between them.
    pub(super) fn hash(self, parts: &[&[u8]]) -> Octets {
        fn run<D: Digest>(parts: &[&[u8]], out: &mut Octets) {
            let mut hash = D::new();
            for (i, part) in parts.iter().enumerate() {
                if i > 0 {
                    hash.update(b":");
                }
                hash.update(part);
            }
            let digest = hash.finalize();
            out[..digest.len()].copy_from_slice(&digest);
        }
        let mut out = [0; MAX_DIGEST];
        match self {
            Algorithm::Sha512_256 => run::<Sha512_256>(parts, &mut out),
            Algorithm::Sha256 => run::<Sha256>(parts, &mut out),
            Algorithm::Md5 => run::<Md5>(parts, &mut out),
        }
        out
    }
}

/// A digest in hexadecimal, as part of the input of the next one.
#[derive(Clone, Copy)]
pub(super) struct Hex {
    digits: [u8; 2 * MAX_DIGEST],
    len: usize,
}

impl Hex {
    pub(super) fn of(algorithm: Algorithm, octets: &Octets) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 2 * MAX_DIGEST];
        for (pair, octet) in digits.chunks_exact_mut(2).zip(octets) {
            pair[0] = DIGITS[(octet >> 4) as usize];
            pair[1] = DIGITS[(octet & 15) as usize];
        }
        Hex { digits, len: 2 * algorithm.octets() }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.digits[..self.len]
    }
}

/// The hash that a server stores instead of a password: the digest of user, realm and password (RFC 7616 section
/// 3.4.2). It is a secret, because it suffices to log in with its algorithm at its realm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ha1 {
    algorithm: Algorithm,
    octets: Octets,
}

impl Ha1 {
    /// Computes the hash from user name, realm and password as the user knows them: unescaped, UTF-8.
    pub fn new(algorithm: Algorithm, user: &[u8], realm: &[u8], password: &[u8]) -> Self {
        Ha1 { algorithm, octets: algorithm.hash(&[user, realm, password]) }
    }

    /// Parses the hexadecimal form; returns `None` if its length is not that of the algorithm, or it is not
    /// hexadecimal.
    pub fn from_hex(algorithm: Algorithm, hex: &[u8]) -> Option<Self> {
        Some(Ha1 { algorithm, octets: octets_from_hex(algorithm, hex)? })
    }

    /// Returns the hash of these octets; `None` if their number is not that of the algorithm.
    pub fn from_octets(algorithm: Algorithm, bytes: &[u8]) -> Option<Self> {
        let mut octets = Octets::default();
        if bytes.len() != algorithm.octets() {
            return None;
        }
        octets[..bytes.len()].copy_from_slice(bytes);
        Some(Ha1 { algorithm, octets })
    }

    /// Returns its octets, as many as the algorithm has.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.algorithm.octets()]
    }

    /// Returns the algorithm it was made with.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Appends its hexadecimal form.
    pub fn write_hex(&self, buf: &mut Vec<u8>) {
        write::hex(buf, self.octets());
    }

    pub(super) fn hex(&self) -> Hex {
        Hex::of(self.algorithm, &self.octets)
    }
}

impl core::fmt::Debug for Ha1 {
    /// Hides the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Ha1({})", self.algorithm.name())
    }
}

/// Returns the octets of as many hexadecimal digits as a digest of `algorithm` has.
pub(super) fn octets_from_hex(algorithm: Algorithm, hex: &[u8]) -> Option<Octets> {
    if hex.len() != 2 * algorithm.octets() {
        return None;
    }
    let mut octets = [0; MAX_DIGEST];
    for (octet, pair) in octets.iter_mut().zip(hex.chunks_exact(2)) {
        *octet = crate::syntax::hex(pair[0])? << 4 | crate::syntax::hex(pair[1])?;
    }
    Some(octets)
}
