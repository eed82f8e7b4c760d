//! Who may begin how many relayed streams.
//!
//! A budget is a share of its source: one phone, one network and all routers together each have their own, so none of them
//! can use what others need. Dialogs that nobody has answered, which cost their sender least, have a share too.

use crate::command::Family;
use crate::config::{Limits, prefix};
use crate::reach::Leg;
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Prefix lengths of what counts as one network.
const NETWORK_V4: u8 = 24;
const NETWORK_V6: u8 = 64;

/// The source of a dialog: the peer that began it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    address: IpAddr,
    network: IpAddr,
    many: bool,
}

impl Source {
    pub(crate) fn of(leg: &Leg) -> Source {
        let address = leg.remote;
        let bits = match Family::of(address) {
            Family::V4 => NETWORK_V4,
            Family::V6 => NETWORK_V6,
        };
        Source { address, network: prefix(address, bits), many: leg.many }
    }
}

/// Streams in use, by source.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    streams: usize,
    of_many: usize,
    unanswered: usize,
    networks: BTreeMap<IpAddr, usize>,
    addresses: BTreeMap<IpAddr, usize>,
}

impl Shares {
    /// Takes so many streams for a source.
    ///
    /// # Errors
    /// The limit that they would exceed. Then nothing is taken.
    pub(crate) fn take(
        &mut self,
        limits: &Limits,
        source: &Source,
        count: usize,
        unanswered: bool,
    ) -> Result<(), Refusal> {
        let held = |map: &BTreeMap<IpAddr, usize>, ip| map.get(&ip).copied().unwrap_or(0) + count;
        if self.streams + count > limits.streams {
            return Err(Refusal::Full);
        }
        let of_source = held(&self.networks, source.network) > limits.of_network
            || source.many && self.of_many + count > limits.of_many
            || !source.many && held(&self.addresses, source.address) > limits.of_address;
        if of_source {
            return Err(Refusal::Share);
        }
        if unanswered && self.unanswered + count > limits.unanswered {
            return Err(Refusal::Unanswered);
        }
        self.streams += count;
        self.unanswered += if unanswered { count } else { 0 };
        *self.networks.entry(source.network).or_default() += count;
        if source.many {
            self.of_many += count;
        } else {
            *self.addresses.entry(source.address).or_default() += count;
        }
        Ok(())
    }

    /// Records that the dialog of so many streams has been answered.
    pub(crate) fn answered(&mut self, count: usize) {
        self.unanswered = self.unanswered.saturating_sub(count);
    }

    /// Returns what [`Shares::take`] took.
    pub(crate) fn release(&mut self, source: &Source, count: usize, unanswered: bool) {
        self.streams = self.streams.saturating_sub(count);
        if unanswered {
            self.answered(count);
        }
        remove(&mut self.networks, source.network, count);
        if source.many {
            self.of_many = self.of_many.saturating_sub(count);
        } else {
            remove(&mut self.addresses, source.address, count);
        }
    }

    /// Returns the number of streams in use.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    /// Returns whether nothing is in use.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty()
            && self.addresses.is_empty()
            && (self.streams, self.of_many, self.unanswered) == (0, 0, 0)
    }
}

fn remove(map: &mut BTreeMap<IpAddr, usize>, ip: IpAddr, count: usize) {
    if let Some(held) = map.get_mut(&ip) {
        *held = held.saturating_sub(count);
        if *held == 0 {
            map.remove(&ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { streams: 21, of_many: 12, of_network: 8, of_address: 3, unanswered: 15 };

    fn source(remote: &str, many: bool) -> Source {
        let remote = remote.parse().unwrap();
        Source::of(&Leg { local: "::".parse().unwrap(), remote, many })
    }

    #[test]
    fn each_source_has_a_share() {
        let mut shares = Shares::default();
        let mut take = |source: &Source, unanswered| {
            (0..).find_map(|n| shares.take(&LIMITS, source, 1, unanswered).err().map(|e| (n, e)))
        };
        let phones = ["10.50.60.7", "10.50.60.8", "10.50.60.9"].map(|ip| source(ip, false));
        assert_eq!(take(&phones[0], false), Some((3, Refusal::Share)), "an address");
        assert_eq!(take(&phones[1], false), Some((3, Refusal::Share)));
        assert_eq!(take(&phones[2], false), Some((2, Refusal::Share)), "the network");
        let routers = ["fd01::1", "fd02::1"].map(|ip| source(ip, true));
        assert_eq!(take(&routers[0], true), Some((8, Refusal::Share)));
        assert_eq!(take(&source("fd01::77", false), false), Some((0, Refusal::Share)));
        assert_eq!(take(&routers[1], true), Some((4, Refusal::Share)), "all routers");
        assert_eq!(take(&source("192.0.2.1", false), true), Some((1, Refusal::Full)));
    }

    #[test]
    fn the_unanswered_have_a_share_and_what_is_released_is_free() {
        let mut shares = Shares::default();
        let limits = Limits { unanswered: 2, ..LIMITS };
        let phone = source("10.50.60.7", false);
        assert_eq!(shares.take(&limits, &phone, 2, true), Ok(()));
        assert_eq!(shares.take(&limits, &phone, 1, true), Err(Refusal::Unanswered));
        assert_eq!(shares.take(&limits, &phone, 1, false), Ok(()));
        shares.answered(2);
        shares.release(&phone, 2, false);
        assert_eq!(shares.take(&limits, &phone, 2, true), Ok(()));
        shares.release(&phone, 2, true);
        shares.release(&phone, 1, false);
        assert!(shares.is_empty());
    }
}
