//! The addresses that a stack in UDP has sockets at, and how it gets one more while it runs.

use super::error::Error;
use super::limits::MAX_UDP_ADDRESSES;
use super::opening::{self, Bound};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Refuses addresses that say nothing without the interface they are meant on (RFC 4007 section 6):
/// neither SCTP's parameters nor this API tell one. And those of many hosts.
pub(crate) fn check_scope(addresses: &[IpAddr]) -> Result<(), Error> {
    let link_local = |ip: &&IpAddr| match ip {
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    let of_many = |ip: &&IpAddr| ip.is_multicast() || **ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    match (addresses.iter().find(link_local), addresses.iter().find(of_many)) {
        (Some(ip), _) => Err(Error::LinkLocal(*ip)),
        (None, Some(ip)) => Err(Error::NotOneHost(*ip)),
        (None, None) => Ok(()),
    }
}

/// The addresses of a stack in UDP.
pub(super) struct Locals {
    port: u16,
    addresses: Vec<IpAddr>,
    /// Opened, and not yet with the driver.
    fresh: Vec<Bound>,
}

impl Locals {
    /// Those it begins with.
    pub(super) fn new(addresses: Vec<IpAddr>, port: u16) -> Locals {
        Locals { port, addresses, fresh: Vec::new() }
    }

    /// Whether packets can leave from an address: it has a socket, or the wildcard of its family has.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        let wild = |own: &IpAddr| own.is_unspecified() && own.is_ipv4() == ip.is_ipv4();
        self.addresses.iter().any(|own| *own == ip || wild(own))
    }

    /// Refuses addresses that packets cannot leave from.
    pub(super) fn check(&self, addresses: &[IpAddr]) -> Result<(), Error> {
        let absent = addresses.iter().find(|ip| !self.has(**ip));
        absent.map_or(Ok(()), |ip| Err(Error::NotOurs(*ip)))
    }

    /// Opens a socket at an address that has none. `None` for one that has.
    pub(super) fn open(&self, ip: IpAddr) -> Result<Option<Bound>, Error> {
        if self.has(ip) {
            return Ok(None);
        }
        if self.addresses.len() >= MAX_UDP_ADDRESSES {
            return Err(Error::Addresses);
        }
        let addr = SocketAddr::new(ip, self.port);
        let failed = |error| Error::system(format!("sctp over udp at {addr}"), error);
        opening::udp(addr).map(|socket| Some((socket, addr))).map_err(failed)
    }

    /// Keeps a socket that was opened.
    pub(super) fn keep(&mut self, bound: Bound) {
        self.addresses.push(bound.1.ip());
        self.fresh.push(bound);
    }

    /// The sockets for the driver.
    pub(super) fn take(&mut self) -> Vec<Bound> {
        std::mem::take(&mut self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn link_local_addresses_are_refused_with_words() {
        let error = check_scope(&[ip("127.0.0.1"), ip("fe80::1")]).unwrap_err().to_string();
        assert!(error.starts_with("fe80::1: "), "{error}");
        assert!(check_scope(&[ip("169.254.0.1"), ip("::1"), ip("fec0::1")]).is_ok());
    }

    #[test]
    fn a_wildcard_has_all_of_its_family() {
        let locals = Locals::new(vec![ip("0.0.0.0"), ip("::1")], 9899);
        assert!(locals.check(&[ip("127.0.0.9"), ip("::1")]).is_ok());
        let error = locals.check(&[ip("::2")]).unwrap_err().to_string();
        assert!(error.starts_with("::2: "), "{error}");
        assert!(locals.open(ip("10.1.2.3")).unwrap().is_none());
    }

    #[test]
    fn addresses_are_bounded() {
        let many =
            (0..MAX_UDP_ADDRESSES as u32).map(|i| IpAddr::from((0x7f01_0000 + i).to_be_bytes()));
        let locals = Locals::new(many.collect(), 9899);
        assert!(matches!(locals.open(ip("127.0.0.1")), Err(Error::Addresses)));
    }
}
