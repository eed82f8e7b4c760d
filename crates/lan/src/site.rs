//! What one router's LAN is: its addresses, its domain, and the SIP server that phones are to find.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use hickory_proto::rr::Name;
use ringway_mesh::{NodeId, Prefix};

/// The IPv6 address of the SIP server, the same at every router: `fd`, "ringway" in ASCII, and 1. A host that sends to
/// it reaches the router it is behind, and keeps the address when it moves to another.
pub const ANYCAST: Ipv6Addr = Ipv6Addr::new(0xfd72, 0x696e, 0x6777, 0x6179, 0, 0, 0, 1);
/// The domain of the mesh if none is configured.
pub const DOMAIN: &str = "mesh";
/// The port of SIP (RFC 3261 section 19.1.2).
pub const SIP_PORT: u16 = 5060;
/// Longest domain in octets, as text. With it every answer of DHCP fits into 576 octets.
pub const MAX_DOMAIN: usize = 64;

/// Shortest and longest prefix of an IPv4 network on a LAN: it needs a reverse zone and two hosts.
const PREFIX_LENGTHS: core::ops::RangeInclusive<u8> = 8..=29;

/// A SIP server that is announced on a LAN: its domain, and the port of each transport that it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SipService {
    /// The domain of the users, such as `mesh`.
    pub domain: String,
    /// Port of SIP over UDP.
    pub udp: u16,
    /// Port of SIP over TCP.
    pub tcp: u16,
    /// Port of SIP over SCTP (RFC 4168).
    pub sctp: Option<u16>,
    /// Port of SIP over TLS.
    pub tls: Option<u16>,
}

impl Default for SipService {
    fn default() -> Self {
        SipService {
            domain: DOMAIN.to_owned(),
            udp: SIP_PORT,
            tcp: SIP_PORT,
            sctp: None,
            tls: None,
        }
    }
}

/// The router's IPv4 address on a LAN, and the length of the network's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Lan {
    address: Ipv4Addr,
    length: u8,
}

impl Ipv4Lan {
    /// The network 10.50.60.0/24 with the router at 10.50.60.1.
    pub const DEFAULT: Ipv4Lan = Ipv4Lan { address: Ipv4Addr::new(10, 50, 60, 1), length: 24 };

    /// Returns the router's address with a prefix of 8 to 29 bits.
    ///
    /// # Errors
    /// Another length; an address that is no private one (RFC 1918), or the network's own or its broadcast address.
    pub fn new(address: Ipv4Addr, length: u8) -> Result<Ipv4Lan, SiteError> {
        if !PREFIX_LENGTHS.contains(&length) {
            return Err(SiteError::PrefixLength(length));
        }
        let lan = Ipv4Lan { address, length };
        if !address.is_private() || address == lan.network() || address == lan.broadcast() {
            return Err(SiteError::Address(lan));
        }
        Ok(lan)
    }

    /// Returns the router's address.
    pub const fn address(self) -> Ipv4Addr {
        self.address
    }

    /// Returns the number of bits of the prefix.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Returns the mask of the network.
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(self.length)))
    }

    /// Returns the first address of the network.
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() & self.mask().to_bits())
    }

    /// Returns the last address of the network.
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !self.mask().to_bits())
    }

    /// Returns whether an address is in the network.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask().to_bits() == self.network().to_bits()
    }

    /// Returns whether an address may be leased: it is in the network, and neither the router's nor one of the two
    /// that mean all hosts.
    pub fn is_host(self, address: Ipv4Addr) -> bool {
        self.contains(address)
            && ![self.address, self.network(), self.broadcast()].contains(&address)
    }
}

impl Default for Ipv4Lan {
    fn default() -> Self {
        Ipv4Lan::DEFAULT
    }
}

impl fmt::Display for Ipv4Lan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Ipv4Lan {
    type Err = SiteError;

    fn from_str(text: &str) -> Result<Ipv4Lan, SiteError> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(ip, length)| Some((ip.parse().ok()?, length.parse().ok()?)));
        let (address, length) = parsed.ok_or_else(|| SiteError::Text(text.to_owned()))?;
        Ipv4Lan::new(address, length)
    }
}

/// Why a LAN cannot be served as configured.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// No address with a prefix length.
    #[error("expected an address as in 10.50.60.1/24, got {0:?}")]
    Text(String),
    /// A prefix that is too short or too long.
    #[error("expected a prefix of 8 to 29 bits, got {0}")]
    PrefixLength(u8),
    /// An address that the router cannot have.
    #[error("expected a private address of a host (RFC 1918), got {0}")]
    Address(Ipv4Lan),
    /// No name of a domain.
    #[error(
        "expected a domain of at most {MAX_DOMAIN} letters, digits, hyphens and dots, got {0:?}"
    )]
    Domain(String),
}

/// The LAN of one router.
#[derive(Clone, Debug)]
pub struct Site {
    router: NodeId,
    sip: SipService,
    domain: Name,
    ipv4: Option<Ipv4Lan>,
}

impl Site {
    /// The LAN of `router` with the SIP server `sip`, and IPv4 if there is an address for it.
    ///
    /// # Errors
    /// A domain that is none, or that multicast DNS has (RFC 6762 section 3).
    pub fn new(router: NodeId, sip: SipService, ipv4: Option<Ipv4Lan>) -> Result<Site, SiteError> {
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let labels = || sip.domain.split('.');
        let is_local = labels().next_back().is_some_and(|last| last.eq_ignore_ascii_case("local"));
        let fault = || SiteError::Domain(sip.domain.clone());
        if sip.domain.len() > MAX_DOMAIN || !labels().all(is_label) || is_local {
            return Err(fault());
        }
        let domain = Name::from_ascii(format!("{}.", sip.domain.to_ascii_lowercase()));
        let domain = domain.map_err(|_| fault())?;
        Ok(Site { router, sip, domain, ipv4 })
    }

    /// Returns the router's id.
    pub fn router(&self) -> NodeId {
        self.router
    }

    /// Returns the SIP server.
    pub fn sip(&self) -> &SipService {
        &self.sip
    }

    /// Returns the domain as a name of the DNS.
    pub fn domain(&self) -> &Name {
        &self.domain
    }

    /// Returns the router's address and network of IPv4.
    pub fn ipv4(&self) -> Option<Ipv4Lan> {
        self.ipv4
    }

    /// Returns whether an address is one of a host of the LAN: link-local, in the router's /64, or in its network of
    /// IPv4. Nothing is sent to any other.
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(ip) => self.ipv4.is_some_and(|lan| lan.is_host(ip)),
            IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
                Some(ip) => self.is_on_link(ip.into()),
                None => ip.is_unicast_link_local() || Prefix::of(&ip) == Some(self.router.prefix()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_written_as_the_address_of_its_router() {
        let lan: Ipv4Lan = "10.50.60.1/24".parse().unwrap();
        assert_eq!(lan, Ipv4Lan::DEFAULT);
        assert_eq!(lan.to_string(), "10.50.60.1/24");
        assert_eq!(lan.mask(), Ipv4Addr::new(255, 255, 255, 0));
        assert_eq!(
            (lan.network(), lan.broadcast()),
            ([10, 50, 60, 0].into(), [10, 50, 60, 255].into())
        );
        for (address, is_host) in [
            ([10, 50, 60, 2], true),
            ([10, 50, 60, 254], true),
            ([10, 50, 60, 1], false),
            ([10, 50, 60, 0], false),
            ([10, 50, 60, 255], false),
            ([10, 50, 61, 2], false),
        ] {
            assert_eq!(lan.is_host(address.into()), is_host, "{address:?}");
        }
        for text in [
            "",
            "10.50.60.1",
            "10.50.60.1/7",
            "10.50.60.1/30",
            "10.50.60.0/24",
            "10.50.60.255/24",
            "192.0.2.1/24",
            "10.50.60/24",
            "10.50.60.1/x",
        ] {
            assert!(text.parse::<Ipv4Lan>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_domain_is_checked() {
        let site = |domain: &str| {
            let sip = SipService { domain: domain.to_owned(), ..SipService::default() };
            Site::new(NodeId::new(1), sip, None)
        };
        for domain in ["mesh", "Phones.Example-1.org"] {
            assert!(site(domain).is_ok(), "{domain}");
        }
        assert_eq!(site("Mesh").unwrap().domain().to_ascii(), "mesh.");
        let long = vec!["a".repeat(32); 2].join(".");
        for domain in [
            "",
            ".",
            "mesh.",
            "a b",
            "-a",
            "a-",
            "local",
            "my.local",
            "a..b",
            &"a".repeat(64),
            &long,
        ] {
            assert!(site(domain).is_err(), "{domain}");
        }
    }

    #[test]
    fn only_hosts_of_the_lan_are_on_the_link() {
        let router = NodeId::new(0x0123_4567_89ab_cdef);
        let site = Site::new(router, SipService::default(), Some(Ipv4Lan::DEFAULT)).unwrap();
        for (address, expected) in [
            ("fe80::1", true),
            ("fd01:2345:6789:abcd::7", true),
            ("fd01:2345:6789:abce::7", false),
            ("2001:db8::1", false),
            ("10.50.60.9", true),
            ("::ffff:10.50.60.9", true),
            ("10.50.61.9", false),
            ("10.50.60.255", false),
            ("0.0.0.0", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(site.is_on_link(address.parse().unwrap()), expected, "{address}");
        }
        let without = Site::new(router, SipService::default(), None).unwrap();
        assert!(!without.is_on_link("10.50.60.9".parse().unwrap()));
    }
}
