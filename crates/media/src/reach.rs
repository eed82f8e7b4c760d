//! Which addresses a peer reaches, and which of them media may be sent to.

use crate::config::{Config, MIN_PORT, prefix};
use std::net::{IpAddr, SocketAddr};

/// One side of a dialog, as its signalling shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg {
    /// Our address on this side, never a wildcard.
    pub local: IpAddr,
    /// The address of the peer.
    pub remote: IpAddr,
    /// Whether the peer stands for many users, as a router of the mesh or a trusted gateway does.
    pub many: bool,
}

impl Leg {
    /// Returns the leg with IPv4-mapped addresses as IPv4.
    pub(crate) fn canonical(self) -> Leg {
        Leg { local: self.local.to_canonical(), remote: self.remote.to_canonical(), ..self }
    }

    /// Returns whether its addresses are IPv4.
    pub(crate) fn is_ipv4(&self) -> bool {
        self.remote.is_ipv4()
    }
}

impl Config {
    /// Returns the index of the local network of an address.
    fn local_network(&self, ip: IpAddr) -> Option<usize> {
        self.local_networks.iter().position(|network| network.contains(ip))
    }

    /// Returns whether media of the peers of two legs must be relayed whatever addresses they give.
    pub(crate) fn are_apart(&self, one: &Leg, other: &Leg) -> bool {
        one.is_ipv4() != other.is_ipv4()
            || self.local_network(one.remote) != self.local_network(other.remote)
    }

    /// Returns whether the peer of a leg reaches an address.
    pub(crate) fn reaches(&self, leg: &Leg, ip: IpAddr) -> bool {
        leg.is_ipv4() == ip.is_ipv4()
            && (self.local_network(ip).is_none()
                || self.local_network(ip) == self.local_network(leg.remote))
    }

    /// Returns our address for the media of a leg.
    pub(crate) fn media_address(&self, leg: &Leg) -> IpAddr {
        match self.ipv6 {
            Some(ip) if !leg.is_ipv4() => ip.into(),
            _ => leg.local,
        }
    }

    /// Returns whether media may be sent to an address that the peer of a leg gives. A description is a claim; without a
    /// limit it would direct the media of others to anybody (RFC 5245 section 18.5.1).
    pub(crate) fn may_send_to(&self, leg: &Leg, to: SocketAddr) -> bool {
        let ip = to.ip();
        let near = |bits| prefix(ip, bits) == prefix(leg.remote, bits);
        let is_near = ip == leg.remote
            || self.any_address
            || match (ip, self.local_network(ip)) {
                (_, Some(network)) => self.local_network(leg.remote) == Some(network),
                (IpAddr::V4(_), None) => leg.is_ipv4() && near(24),
                (IpAddr::V6(_), None) => !leg.is_ipv4() && near(64),
            };
        let is_host = match ip {
            IpAddr::V4(ip) => !ip.is_broadcast() && !ip.is_multicast() && !ip.is_unspecified(),
            IpAddr::V6(ip) => !ip.is_multicast() && !ip.is_unspecified(),
        };
        // A relay that sent to its own ports could send in a circle.
        let is_own = self.ports.contains(&to.port())
            && (ip == leg.local || self.ipv6.is_some_and(|own| ip == IpAddr::V6(own)));
        is_host && is_near && !is_own && to.port() >= MIN_PORT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(local: &str, remote: &str) -> Leg {
        Leg { local: local.parse().unwrap(), remote: remote.parse().unwrap(), many: false }
    }

    #[test]
    fn peers_are_apart_by_family_and_by_local_network() {
        let config = Config::default();
        let phone = leg("10.50.60.1", "10.50.60.7");
        let mesh = leg("fd01::1", "fd02::1");
        assert!(config.are_apart(&phone, &mesh));
        assert!(!config.are_apart(&phone, &leg("10.50.60.1", "10.50.60.8")));
        assert!(config.are_apart(&phone, &leg("192.0.2.1", "192.0.2.7")));
        assert!(!config.are_apart(&mesh, &leg("fd01::1", "fd01::77")));
        assert!(config.reaches(&mesh, "fd09::1".parse().unwrap()));
        assert!(!config.reaches(&mesh, "10.50.60.8".parse().unwrap()));
        assert!(!config.reaches(&leg("192.0.2.1", "192.0.2.7"), "10.50.60.8".parse().unwrap()));
    }

    #[test]
    fn media_goes_only_near_where_signalling_comes_from() {
        let config = Config { ipv6: Some("fd01::1".parse().unwrap()), ..Config::default() };
        let may = |leg: &Leg, to: &str| config.may_send_to(leg, to.parse().unwrap());
        let phone = leg("10.50.60.1", "10.50.60.7");
        assert!(may(&phone, "10.50.60.7:4000"));
        assert!(may(&phone, "10.50.60.9:4000"));
        assert!(may(&phone, "10.50.60.1:4000"), "a program on the router");
        for to in [
            "10.50.60.1:20000",
            "10.50.60.7:53",
            "192.0.2.9:4000",
            "255.255.255.255:4000",
            "127.0.0.1:4000",
            "[fd01::7]:4000",
        ] {
            assert!(!may(&phone, to), "{to}");
        }
        let router = leg("fd01::1", "fd02::1");
        assert!(may(&router, "[fd02::77]:4000"));
        for to in
            ["[fd03::1]:4000", "[fd01::1]:20001", "10.50.60.7:4000", "[ff02::1]:4000", "[::1]:4000"]
        {
            assert!(!may(&router, to), "{to}");
        }
        let any = Config { any_address: true, ..config.clone() };
        assert!(any.may_send_to(&router, "[fd03::1]:4000".parse().unwrap()));
        assert!(!any.may_send_to(&router, "[fd01::1]:20000".parse().unwrap()));
        assert!(!any.may_send_to(&phone, "224.0.0.1:4000".parse().unwrap()));
    }
}
