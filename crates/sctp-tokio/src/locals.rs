//! The local addresses of a stack in UDP, and opening a socket at another one while it runs.

use super::error::{AddAddressError, SystemError, UnusableAddress};
use super::limits::MAX_UDP_ADDRESSES;
use super::opening::{self, BoundSocket};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Refuses addresses that need an interface to be unambiguous (RFC 4007 section 6), which neither SCTP's
/// parameters nor this API carry, and multicast and broadcast addresses.
pub(crate) fn check_scope(addresses: &[IpAddr]) -> Result<(), UnusableAddress> {
    let link_local = |ip: &&IpAddr| match ip {
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    let multi_host = |ip: &&IpAddr| ip.is_multicast() || **ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    match (addresses.iter().find(link_local), addresses.iter().find(multi_host)) {
        (Some(ip), _) => Err(UnusableAddress::LinkLocal(*ip)),
        (None, Some(ip)) => Err(UnusableAddress::NotUnicast(*ip)),
        (None, None) => Ok(()),
    }
}

/// The addresses of a stack in UDP.
pub(super) struct Locals {
    port: u16,
    addresses: Vec<IpAddr>,
}

impl Locals {
    /// Creates the table with its first addresses.
    pub(super) fn new(addresses: Vec<IpAddr>, port: u16) -> Locals {
        Locals { port, addresses }
    }

    /// Returns whether packets can be sent from an address: it has a socket, or the wildcard of its family
    /// has one.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        let wild = |local: &IpAddr| local.is_unspecified() && local.is_ipv4() == ip.is_ipv4();
        self.addresses.iter().any(|local| *local == ip || wild(local))
    }

    /// Refuses addresses from which no packet can be sent.
    pub(super) fn check(&self, addresses: &[IpAddr]) -> Result<(), UnusableAddress> {
        let absent = addresses.iter().find(|ip| !self.has(**ip));
        absent.map_or(Ok(()), |ip| Err(UnusableAddress::NotLocal(*ip)))
    }

    /// Opens sockets at an address, one for each driver. Returns none if it has them already.
    pub(super) fn open(
        &self,
        ip: IpAddr,
        drivers: usize,
    ) -> Result<Vec<BoundSocket>, AddAddressError> {
        if self.has(ip) {
            return Ok(Vec::new());
        }
        if self.addresses.len() >= MAX_UDP_ADDRESSES {
            return Err(AddAddressError::TooManyAddresses);
        }
        let addr = SocketAddr::new(ip, self.port);
        let failed = |error| SystemError::new(format!("sctp over udp at {addr}"), error);
        let first = opening::udp(addr).map_err(failed)?;
        let group = opening::udp_group(first, addr, drivers).map_err(failed)?;
        Ok(group.into_iter().map(|socket| (socket, addr)).collect())
    }

    /// Adds an address with open sockets.
    pub(super) fn keep(&mut self, ip: IpAddr) {
        self.addresses.push(ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn link_local_addresses_are_refused() {
        let error = check_scope(&[ip("127.0.0.1"), ip("fe80::1")]).unwrap_err().to_string();
        assert!(error.starts_with("fe80::1: "), "{error}");
        assert!(check_scope(&[ip("169.254.0.1"), ip("::1"), ip("fec0::1")]).is_ok());
    }

    #[test]
    fn a_wildcard_covers_its_family() {
        let locals = Locals::new(vec![ip("0.0.0.0"), ip("::1")], 9899);
        assert!(locals.check(&[ip("127.0.0.9"), ip("::1")]).is_ok());
        let error = locals.check(&[ip("::2")]).unwrap_err().to_string();
        assert!(error.starts_with("::2: "), "{error}");
        assert!(locals.open(ip("10.1.2.3"), 1).unwrap().is_empty());
    }

    #[test]
    fn addresses_are_bounded() {
        let many =
            (0..MAX_UDP_ADDRESSES as u32).map(|i| IpAddr::from((0x7f01_0000 + i).to_be_bytes()));
        let locals = Locals::new(many.collect(), 9899);
        assert!(matches!(locals.open(ip("127.0.0.1"), 2), Err(AddAddressError::TooManyAddresses)));
    }
}
