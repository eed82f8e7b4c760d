//! The record of a home's deputies, and how the key of its delegate is cut into shares.
//!
//! It is the value of a record of [`KIND_DEPUTIES`](crate::config::KIND_DEPUTIES), named by the 8 octets of the home's id:
//!
//! | part | octets |
//! |---|---|
//! | version, 1 | 1 |
//! | public key of the delegate | 32 |
//! | deputies: each its id, its share, sealed for it | 8 + 81 |
//!
//! A share is its number, from 1, and 32 octets: a point of the polynomials over GF(256) whose values at 0 are the secret key.

use core::convert::Infallible;

use blahaj::Sharks;
use rand_core::{TryCryptoRng, TryRng};
use ringway_mesh::crypto::{Crypto, ENVELOPE};
use ringway_mesh::identity::KEY;
use ringway_mesh::{Identity, NodeId, Proof};
use ringway_sansio::{Malformed, Random, Reader};

/// Maximum number of deputies.
pub const MAX_DEPUTIES: usize = 5;
/// Minimum number of deputies: one alone would learn everything.
pub const MIN_DEPUTIES: usize = 2;
/// Shares that make up the key, if there are so many deputies.
const THRESHOLD: usize = 3;
/// Length in octets of a share.
pub const SHARE: usize = 1 + KEY;
/// The same, sealed.
pub const SEALED_SHARE: usize = SHARE + ENVELOPE;

const VERSION: u8 = 1;

/// A share of the key of a delegate.
pub type Share = [u8; SHARE];

/// Returns how many shares of so many deputies make up the key.
pub const fn threshold(deputies: usize) -> usize {
    if deputies < THRESHOLD { deputies } else { THRESHOLD }
}

/// What a home states of its deputies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deputies {
    /// The public key of the delegate.
    pub key: [u8; KEY],
    /// The deputies, each with its share, sealed for it.
    pub each: Vec<(NodeId, [u8; SEALED_SHARE])>,
}

impl Deputies {
    /// Cuts the key of a delegate into shares for these routers, at most [`MAX_DEPUTIES`]. Returns `None` if there are too few,
    /// or one has no key that something can be sealed for.
    pub fn appoint<C: Crypto>(
        delegate: &Identity,
        routers: &[Proof],
        random: &mut dyn Random,
    ) -> Option<Deputies> {
        let routers = &routers[..routers.len().min(MAX_DEPUTIES)];
        if routers.len() < MIN_DEPUTIES {
            return None;
        }
        let mut each = Vec::with_capacity(routers.len());
        for (router, share) in routers.iter().zip(split(delegate, routers.len(), random)) {
            let (mut seed, mut sealed) = ([0; 32], Vec::with_capacity(SEALED_SHARE));
            random.fill(&mut seed);
            if !C::seal_for(&router.key, seed, &share, &mut sealed) {
                return None;
            }
            each.push((router.id(), sealed.try_into().ok()?));
        }
        Some(Deputies { key: delegate.proof().key, each })
    }

    /// Returns whether a router is a deputy.
    pub fn has(&self, router: NodeId) -> bool {
        self.each.iter().any(|(id, _)| *id == router)
    }

    /// Opens the share of a deputy.
    pub fn open<C: Crypto>(&self, deputy: &Identity) -> Option<Share> {
        let at = self.each.iter().position(|(id, _)| *id == deputy.id())?;
        let share: Share = C::open_sealed(deputy, &self.each[at].1)?.try_into().ok()?;
        self.is_of(deputy.id(), &share).then_some(share)
    }

    /// Returns whether a share has the number of this deputy.
    pub fn is_of(&self, deputy: NodeId, share: &Share) -> bool {
        let at = self.each.iter().position(|(id, _)| *id == deputy);
        at.is_some_and(|at| usize::from(share[0]) == at + 1)
    }

    /// Puts the key of the delegate together. Some of the shares, which are of different deputies, may be wrong.
    pub fn combine(&self, shares: &[Share]) -> Option<Identity> {
        let count = threshold(self.each.len());
        let subsets = 0_u32..1 << shares.len().min(MAX_DEPUTIES);
        subsets.filter(|subset| subset.count_ones() as usize == count).find_map(|subset| {
            let chosen = shares.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1);
            let chosen: Option<Vec<blahaj::Share>> =
                chosen.map(|(_, share)| blahaj::Share::try_from(&share[..]).ok()).collect();
            let secret = Sharks(count as u8).recover(&chosen?).ok()?;
            let delegate = Identity::of_secret(&secret.try_into().ok()?);
            (delegate.proof().key == self.key).then_some(delegate)
        })
    }

    /// Returns the octets of the record.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.key);
        for (id, sealed) in &self.each {
            out.extend(id.to_bytes());
            out.extend(sealed);
        }
        out
    }

    /// Parses a record.
    ///
    /// # Errors
    /// Octets that are no record, or too few or too many deputies, or one twice.
    pub fn parse(octets: &[u8]) -> Result<Deputies, Malformed> {
        let mut reader = Reader::new("expected a whole record of deputies", octets);
        if reader.u8()? != VERSION {
            return Err(reader.fault("expected version 1"));
        }
        let mut deputies = Deputies { key: reader.array()?, each: Vec::new() };
        while !reader.is_at_end() {
            let (id, sealed) = (NodeId::new(reader.u64()?), reader.array()?);
            if deputies.each.len() >= MAX_DEPUTIES || deputies.has(id) {
                return Err(reader.fault("expected at most 5 deputies, each once"));
            }
            deputies.each.push((id, sealed));
        }
        match deputies.each.len() {
            0..MIN_DEPUTIES => Err(reader.fault("expected at least 2 deputies")),
            _ => Ok(deputies),
        }
    }
}

/// Cuts the secret key into so many shares.
fn split(delegate: &Identity, count: usize, random: &mut dyn Random) -> Vec<Share> {
    let secret = delegate.signing_key().to_bytes();
    let sharks = Sharks(threshold(count) as u8);
    let mut source = Source(random);
    let shares = sharks.dealer_rng(&secret, &mut source).take(count);
    shares.filter_map(|share| Vec::from(&share).try_into().ok()).collect()
}

/// The world's random source as the library wants it.
struct Source<'a>(&'a mut dyn Random);

impl TryRng for Source<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.next_u64() as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(out);
        Ok(())
    }
}

/// The random source of a router is a cryptographic one, except in virtual time.
impl TryCryptoRng for Source<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_mesh::crypto::Real;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    fn identity(seed: u64) -> Identity {
        Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap()
    }

    fn appointed(count: u64) -> (Identity, Vec<Identity>, Deputies) {
        let delegate = identity(100);
        let routers: Vec<Identity> = (1..=count).map(identity).collect();
        let proofs: Vec<Proof> = routers.iter().map(|router| *router.proof()).collect();
        let deputies = Deputies::appoint::<Real>(&delegate, &proofs, &mut SplitMix::new(7));
        (delegate, routers, deputies.unwrap())
    }

    #[test]
    fn each_deputy_opens_its_share_and_any_three_have_the_key() {
        let (delegate, routers, deputies) = appointed(5);
        let octets = deputies.to_octets();
        assert!(octets.len() <= ringway_dht::config::MAX_VALUE);
        assert_eq!(Deputies::parse(&octets), Ok(deputies.clone()));
        let shares: Vec<Share> =
            routers.iter().map(|router| deputies.open::<Real>(router).unwrap()).collect();
        assert_eq!(deputies.open::<Real>(&identity(50)), None);
        for subset in 0_u32..32 {
            let chosen = shares.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1);
            let chosen: Vec<Share> = chosen.map(|(_, share)| *share).collect();
            let key = deputies.combine(&chosen).map(|key| key.signing_key().to_bytes());
            let expected = (chosen.len() >= 3).then(|| delegate.signing_key().to_bytes());
            assert_eq!(key, expected, "{subset:05b}");
        }
    }

    /// Two shares fit every key equally: with any third octet for one more share there is another key.
    #[test]
    fn two_of_five_shares_fit_every_key() {
        let (_, routers, deputies) = appointed(5);
        let mut shares: Vec<Share> =
            routers[..3].iter().map(|router| deputies.open::<Real>(router).unwrap()).collect();
        let mut seen = std::collections::BTreeSet::new();
        for octet in 0..=255 {
            shares[2][1] = octet;
            let shares = shares.iter().map(|share| blahaj::Share::try_from(&share[..]).unwrap());
            seen.insert(Sharks(3).recover(&shares.collect::<Vec<_>>()).unwrap()[0]);
        }
        assert_eq!(seen.len(), 256);
    }

    #[test]
    fn wrong_shares_are_left_out() {
        let (delegate, routers, deputies) = appointed(5);
        let mut shares: Vec<Share> =
            routers.iter().map(|router| deputies.open::<Real>(router).unwrap()).collect();
        shares[0][9] ^= 1;
        shares[3] = [0; SHARE];
        let key = deputies.combine(&shares).map(|key| key.signing_key().to_bytes());
        assert_eq!(key, Some(delegate.signing_key().to_bytes()));
        assert!(!deputies.is_of(routers[3].id(), &shares[3]));
        shares[1] = shares[2];
        assert!(deputies.combine(&shares).is_none());
    }

    #[test]
    fn small_networks_need_all_of_two() {
        let (_, routers, deputies) = appointed(2);
        let shares: Vec<Share> =
            routers.iter().map(|router| deputies.open::<Real>(router).unwrap()).collect();
        assert!(deputies.combine(&shares[..1]).is_none() && deputies.combine(&shares).is_some());
        let alone = [*routers[0].proof()];
        assert_eq!(Deputies::appoint::<Real>(&identity(1), &alone, &mut SplitMix::new(1)), None);
    }

    proptest! {
        #[test]
        fn octets_are_a_record_or_a_fault(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(deputies) = Deputies::parse(&octets) {
                prop_assert_eq!(deputies.to_octets(), octets);
            }
        }
    }
}
