//! What each source may have under way: a quarter of what is free, so that no source takes what others need.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The divisor of what is free.
const PART: usize = 4;
/// Bits of an IPv6 address that count as one source: a host has as many addresses in its network as it wants.
const NETWORK: u32 = 64;

/// Questions under way, by their source.
pub(super) struct Shares {
    max: usize,
    total: usize,
    held: BTreeMap<IpAddr, usize>,
}

impl Shares {
    /// At most `max` by all sources.
    pub(super) fn new(max: usize) -> Self {
        Shares { max, total: 0, held: BTreeMap::new() }
    }

    /// Takes one for a source. Returns whether it may have one more.
    pub(super) fn take(&mut self, source: IpAddr) -> bool {
        let free = self.max.saturating_sub(self.total);
        let held = self.held.entry(network(source)).or_default();
        let fits = *held < free.div_ceil(PART);
        if fits {
            *held += 1;
            self.total += 1;
        } else if *held == 0 {
            self.held.remove(&network(source));
        }
        fits
    }

    /// Releases one of a source.
    pub(super) fn release(&mut self, source: IpAddr) {
        if let Some(held) = self.held.get_mut(&network(source)) {
            *held -= 1;
            self.total -= 1;
            if *held == 0 {
                self.held.remove(&network(source));
            }
        }
    }
}

fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> NETWORK << NETWORK).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_leaves_room_for_others() {
        let mut shares = Shares::new(100);
        let hog = |host: u16| IpAddr::from([0xfd01, 0, 0, 0, 0, 0, 0, host]);
        let taken = (0..1_000).filter(|&host| shares.take(hog(host))).count();
        assert!((15..=25).contains(&taken), "{taken}");
        let other = IpAddr::from([192, 0, 2, 1]);
        assert!((0..10).all(|_| shares.take(other)));
        (0..taken).for_each(|_| shares.release(hog(7)));
        (0..10).for_each(|_| shares.release(other));
        assert!(shares.total == 0 && shares.held.is_empty());
        shares.release(other);
        assert_eq!(shares.total, 0);
    }
}
