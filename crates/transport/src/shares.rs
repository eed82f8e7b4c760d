//! Limits of which sources have shares, so that none takes what others need: of a rate, and of room.

use crate::{Keyed, number};
use ringway_sansio::{Duration, Time};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The period in which tokens are counted.
const PERIOD: Duration = Duration::from_secs(1);
/// The part of what is left that one source may have taken.
const PART: u32 = 4;
/// Counts of a row of [`Shares`], which has two.
const COUNTS: usize = 4096;
/// Bits of an IPv6 address that do not distinguish sources: a host has as many addresses in its network as it wants.
const HOST_BITS: u32 = 64;

/// So many tokens in each second for all sources. A source is refused when it has taken a quarter of what is left: alone
/// it gets a fifth of all, and the fewer tokens are left, the smaller is a share.
///
/// Sources are counted in a count-min sketch with a secret hash, so that forged sources take neither memory nor more time.
/// A source that has both of its counts in common with others is refused when they have taken its share.
#[derive(Clone, Debug)]
pub struct Shares {
    per_second: u32,
    left: u32,
    since: Time,
    hasher: Keyed,
    /// Tokens taken in this second.
    taken: Box<[u32]>,
}

impl Shares {
    /// Returns so many tokens a second; 0 for none. The hasher's numbers are random ones.
    pub fn new(per_second: u32, hasher: Keyed) -> Shares {
        let taken = vec![0; 2 * COUNTS].into();
        Shares { per_second, left: per_second, since: Time::ZERO, hasher, taken }
    }

    /// Takes a token for a source. Returns whether there was one for it.
    pub fn take(&mut self, now: Time, source: IpAddr) -> bool {
        if now.since(self.since) >= PERIOD {
            self.since = now;
            self.left = self.per_second;
            self.taken.fill(0);
        }
        let hash = self.hasher.number(network(source)) as usize;
        let counts = [hash % COUNTS, COUNTS + hash / COUNTS % COUNTS];
        let taken = counts.map(|index| self.taken[index]).into_iter().min().unwrap_or(0);
        let fits = taken < self.left.div_ceil(PART);
        if fits {
            self.left -= 1;
            counts.into_iter().for_each(|index| self.taken[index] += 1);
        }
        fits
    }
}

/// Room for so many things, which sources hold.
///
/// A part of the room is a reserve. A source may take what is free beyond the reserve. Of the reserve it gets no more when
/// it holds a quarter of what is free, so that it is for those who hold little.
#[derive(Clone, Debug)]
pub struct Holdings {
    max: usize,
    free: usize,
    reserve: usize,
    held: BTreeMap<u128, usize>,
}

impl Holdings {
    /// Returns room for so many, all of it reserve: alone a source holds a fifth at most.
    pub fn new(max: usize) -> Holdings {
        Holdings::with_reserve(max, max)
    }

    /// Returns room for so many with this reserve: alone a source holds all but the reserve, or a fifth if that is more.
    pub fn with_reserve(max: usize, reserve: usize) -> Holdings {
        Holdings { max, free: max, reserve, held: BTreeMap::new() }
    }

    /// Returns whether there is room for one more of a source.
    pub fn has_room(&self, source: IpAddr) -> bool {
        self.free > self.reserve || self.held(source) < self.free.div_ceil(PART as usize)
    }

    /// Takes room for one of a source. Returns whether there was some for it.
    pub fn take(&mut self, source: IpAddr) -> bool {
        let fits = self.has_room(source);
        if fits {
            self.free -= 1;
            *self.held.entry(network(source)).or_default() += 1;
        }
        fits
    }

    /// Releases the room of one of a source.
    pub fn release(&mut self, source: IpAddr) {
        let source = network(source);
        let Some(held) = self.held.get_mut(&source) else { return };
        *held -= 1;
        self.free += 1;
        if *held == 0 {
            self.held.remove(&source);
        }
    }

    /// Takes room for one of the local user, who may use all that is free. Returns whether there was some.
    pub fn take_local(&mut self) -> bool {
        let fits = self.free > 0;
        self.free -= usize::from(fits);
        fits
    }

    /// Releases the room of one of the local user.
    pub fn release_local(&mut self) {
        self.free = (self.free + 1).min(self.max);
    }

    /// Returns how many are held.
    pub fn taken(&self) -> usize {
        self.max - self.free
    }

    /// Returns how many a source holds.
    pub fn held(&self, source: IpAddr) -> usize {
        self.held.get(&network(source)).copied().unwrap_or(0)
    }
}

/// Returns what identifies a source.
fn network(source: IpAddr) -> u128 {
    match source.to_canonical() {
        v4 @ IpAddr::V4(_) => number(v4),
        v6 @ IpAddr::V6(_) => number(v6) >> HOST_BITS << HOST_BITS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::{Random, SplitMix};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn v4(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    fn shares(per_second: u32) -> Shares {
        Shares::new(per_second, Keyed(1, 2))
    }

    fn count(shares: &mut Shares, now: Time, source: IpAddr) -> usize {
        (0..5000).filter(|_| shares.take(now, source)).count()
    }

    #[test]
    fn one_source_takes_a_fifth() {
        let mut shares = shares(1000);
        let now = Time::from_secs(50);
        assert_eq!(count(&mut shares, now, v4(1)), 200);
        assert_eq!(count(&mut shares, now, v4(1)), 0);
        assert_eq!(count(&mut shares, now, v4(2)), 160);
        let later = now + (PERIOD - Duration::from_nanos(1));
        assert!(!shares.take(later, v4(1)));
        assert_eq!(count(&mut shares, now + PERIOD, v4(1)), 200);
    }

    #[test]
    fn several_sources_leave_something() {
        let mut shares = shares(1000);
        let now = Time::from_secs(50);
        // All at once, as floods are.
        for flooder in (0..20).cycle().take(100_000) {
            shares.take(now, v4(flooder));
        }
        assert_eq!(count(&mut shares, now, v4(99)), 33);
    }

    #[test]
    fn all_tokens_can_be_taken_by_many_sources() {
        let mut few = shares(100);
        let now = Time::from_secs(50);
        let taken = |few: &mut Shares, now| (0..10_000).filter(|n| few.take(now, v4(*n))).count();
        assert_eq!(taken(&mut few, now), 100);
        assert!(!few.take(now, v4(70_000)));
        assert_eq!(taken(&mut few, now + PERIOD), 100);
        assert!(!shares(0).take(now, v4(1)));
    }

    #[test]
    fn a_flood_leaves_a_share_to_every_other_source() {
        let mut shares = shares(100_000);
        let now = Time::from_secs(50);
        for flooder in (0..5).cycle().take(200_000) {
            shares.take(now, v4(flooder));
        }
        assert!((100..20_100).all(|source| shares.take(now, v4(source))));
    }

    /// An IPv4 address is one source in either of its forms, a network of IPv6 is one.
    #[test]
    fn addresses_of_one_host_are_one_source() {
        let mut shares = shares(1000);
        let now = Time::from_secs(50);
        assert_eq!(count(&mut shares, now, v4(1)), 200);
        let mapped = Ipv4Addr::from_bits(0x0a00_0001).to_ipv6_mapped();
        assert!(!shares.take(now, mapped.into()));
        let host = |n| IpAddr::from(Ipv6Addr::from_bits(0xfd01_u128 << 112 | n));
        assert_eq!((0..5000).filter(|n| shares.take(now, host(*n))).count(), 160);
        assert!(shares.take(now, host(1 << HOST_BITS)));
    }

    #[test]
    fn what_is_released_can_be_held_again() {
        let mut holdings = Holdings::new(100);
        let take = |holdings: &mut Holdings, source| {
            (0..1000).filter(|_| holdings.take(v4(source))).count()
        };
        assert_eq!((take(&mut holdings, 1), take(&mut holdings, 2)), (20, 16));
        assert!(!holdings.has_room(v4(1)) && holdings.has_room(v4(3)));
        (0..20).for_each(|_| holdings.release(v4(1)));
        holdings.release(v4(1));
        assert_eq!((holdings.free, holdings.held.len()), (84, 1));
        assert_eq!((3..1000).filter(|source| holdings.take(v4(*source))).count(), 84);
        assert!(!holdings.has_room(v4(5000)));
        assert!(!Holdings::new(0).take(v4(1)));
    }

    #[test]
    fn a_lone_source_uses_all_but_the_reserve() {
        let mut holdings = Holdings::with_reserve(1000, 125);
        assert_eq!((0..2000).filter(|_| holdings.take(v4(1))).count(), 875);
        assert!(!holdings.has_room(v4(1)));
        assert_eq!((0..2000).filter(|_| holdings.take(v4(2))).count(), 25);
        assert_eq!((3..2000).filter(|source| holdings.take(v4(*source))).count(), 100);
        holdings.release(v4(1));
        assert!(
            !holdings.has_room(v4(1)) && holdings.take(v4(5000)) && !holdings.has_room(v4(5001))
        );
        // What others leave beyond the reserve is free for all again.
        (0..126).for_each(|_| holdings.release(v4(1)));
        assert!(holdings.take(v4(1)) && !holdings.take(v4(1)));
    }

    #[test]
    fn the_local_user_takes_what_is_free() {
        let mut holdings = Holdings::with_reserve(8, 1);
        assert!((0..7).all(|_| holdings.take(v4(1))) && !holdings.take(v4(1)));
        assert!(holdings.take_local() && !holdings.take_local());
        assert_eq!((holdings.taken(), holdings.held(v4(1))), (8, 7));
        holdings.release_local();
        holdings.release(v4(2));
        assert_eq!(holdings.taken(), 7);
    }

    /// Whatever is taken and released in whatever order, as many are taken as are held, and nothing stays.
    #[test]
    fn no_count_is_left_behind() {
        for seed in 1..200u64 {
            let mut random = SplitMix::new(seed);
            let max = (random.next_u64() % 40) as usize;
            let mut holdings = Holdings::with_reserve(max, (random.next_u64() % 40) as usize);
            let mut held = Vec::new();
            for _ in 0..400 {
                let source = (random.next_u64() % 6) as u32;
                let local = source == 0;
                if random.next_u64().is_multiple_of(2) {
                    let fits =
                        if local { holdings.take_local() } else { holdings.take(v4(source)) };
                    held.extend(fits.then_some(source));
                } else if let Some(at) = held.iter().position(|holder| *holder == source) {
                    held.swap_remove(at);
                    if local {
                        holdings.release_local()
                    } else {
                        holdings.release(v4(source))
                    };
                }
                assert!(held.len() <= max);
                assert_eq!(holdings.taken(), held.len());
                for source in 1..6 {
                    let count = held.iter().filter(|holder| **holder == source).count();
                    assert_eq!(holdings.held(v4(source)), count, "seed {seed}");
                }
                // Who holds nothing gets in as long as anything is free.
                assert_eq!(holdings.has_room(v4(77)), held.len() < max);
            }
            for source in held {
                if source == 0 {
                    holdings.release_local()
                } else {
                    holdings.release(v4(source))
                };
            }
            assert_eq!((holdings.taken(), holdings.held.len()), (0, 0));
        }
    }
}
