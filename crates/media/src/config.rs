//! Every limit and interval by name. Each limit has a counter where it is enforced.

use ringway_sansio::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// Relayed streams of one dialog.
pub const MAX_STREAMS: usize = 8;
/// The lowest port that media is sent to. Below it are services, which answer (RFC 6335 section 6).
pub const MIN_PORT: u16 = 1_024;
/// The time for which a dialog may still be relayed after its BYE: a transaction (RFC 3261 section 17.1.2.2).
pub const GRACE: Duration = Duration::from_secs(32);
/// The time for which ports are not used again, so that late packets of one call do not come into another.
pub const REST: Duration = Duration::from_secs(30);
/// The silence after which another source at the same address may replace the first one.
pub const SILENCE: Duration = Duration::from_secs(3);
/// Pairs of ports of each family that are bound ahead of use.
pub const SPARE_PAIRS: usize = 64;

/// A network in CIDR notation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// First address.
    pub addr: IpAddr,
    /// Bits of the prefix: at most 32 for IPv4 and 128 for IPv6.
    pub prefix: u8,
}

impl Network {
    /// Returns whether `ip` is in the network. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.addr.is_ipv4()
            && prefix(ip, self.prefix) == prefix(self.addr, self.prefix)
    }
}

/// Returns an address with all bits behind a prefix cleared.
pub(crate) fn prefix(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            Ipv4Addr::from(u32::from(ip) & keep).into()
        }
        IpAddr::V6(ip) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            Ipv6Addr::from(u128::from(ip) & keep).into()
        }
    }
}

/// Numbers of relayed streams. A dialog without a stream yet counts as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// In total.
    pub streams: usize,
    /// Of dialogs that peers with many users began, together: the rest is for local phones.
    pub of_many: usize,
    /// Of dialogs begun from one network: a /24 of IPv4, a /64 of IPv6, which is that of one router.
    pub of_network: usize,
    /// Of dialogs begun from one address, unless it stands for many users.
    pub of_address: usize,
    /// Of dialogs that nobody has answered yet.
    pub unanswered: usize,
}

/// The rate of one direction of a stream. As much as comes in a second may come at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Packets a second.
    pub packets: u32,
    /// Octets of payload a second.
    pub octets: u32,
}

/// The configuration of a relay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The ports that media is received at, in both families. Pairs begin with an even one.
    pub ports: RangeInclusive<u16>,
    /// Our address for IPv6 peers. Unset: the one at which their signalling is received. An address that other hosts have
    /// too (anycast) must not be used for media.
    pub ipv6: Option<Ipv6Addr>,
    /// Networks whose addresses have no meaning outside: what is in one is reached only by hosts that are in it too.
    pub local_networks: Vec<Network>,
    /// Whether media may come from the address that signalling comes from, when the description has another one, as behind
    /// a NAT. It is then sent back to there.
    pub latch: bool,
    /// Whether media may be sent to any address. Unset, it must be the address that signalling comes from, or in the same
    /// local network, the same /24 of IPv4 or the same /64 of IPv6.
    pub any_address: bool,
    /// The time without media and signalling after which an answered dialog is released.
    pub idle: Duration,
    /// The time without signalling after which an unanswered dialog is released.
    pub unanswered: Duration,
    /// Numbers of streams.
    pub limits: Limits,
    /// The rate of each direction of a stream.
    pub rate: Rate,
}

impl Default for Config {
    fn default() -> Self {
        let network = |addr: IpAddr, prefix| Network { addr, prefix };
        Config {
            ports: 20_000..=29_999,
            ipv6: None,
            local_networks: vec![
                network(Ipv4Addr::new(10, 50, 60, 0).into(), 24),
                network(Ipv4Addr::new(127, 0, 0, 0).into(), 8),
                network(Ipv4Addr::new(169, 254, 0, 0).into(), 16),
                network(Ipv6Addr::LOCALHOST.into(), 128),
                network(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10),
            ],
            latch: true,
            any_address: false,
            idle: Duration::from_secs(600),
            unanswered: Duration::from_secs(300),
            limits: Limits {
                streams: 1_024,
                of_many: 768,
                of_network: 256,
                of_address: 16,
                unanswered: 256,
            },
            rate: Rate { packets: 1_000, octets: 1_000_000 },
        }
    }
}
