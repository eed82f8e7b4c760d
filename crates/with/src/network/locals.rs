//! The addresses of this host that a connection may use.

use ringway_os::netlink::Netlink;
use std::net::IpAddr;

/// Addresses of one connection. More paths are of no use, and each costs heartbeats.
const MAX_LOCALS: usize = 8;

/// Returns whether an address means the same on other hosts.
pub(super) fn is_global(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

/// Returns the addresses that other hosts can be reached from, in the order of their interfaces: those of interfaces
/// that run.
pub(super) fn all() -> Vec<IpAddr> {
    let read = || {
        let mut netlink = Netlink::open().ok()?;
        Some((netlink.links().ok()?, netlink.addresses().ok()?))
    };
    let Some((links, addresses)) = read() else { return Vec::new() };
    let runs = |index| links.iter().any(|link| link.index == index && link.is_running());
    let usable = addresses.iter().filter(|address| address.is_usable() && runs(address.interface));
    let mut all: Vec<IpAddr> =
        usable.map(|address| address.ip).filter(|ip| is_global(*ip)).collect();
    all.truncate(MAX_LOCALS);
    all
}

/// Returns the addresses for a connection to a peer: that of the route to it first, and if several are wanted the others.
/// Loopback addresses and others are not mixed. `None` without a route.
pub(super) fn towards(peer: IpAddr, several: bool) -> Option<Vec<IpAddr>> {
    let source = ringway_os::source_for(peer)?;
    let mut locals = vec![source];
    if several && is_global(source) {
        locals.extend(all().into_iter().filter(|ip| *ip != source));
        locals.truncate(MAX_LOCALS);
    }
    Some(locals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_stays_alone() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(towards(loopback, true), Some(vec![loopback]));
        assert!(all().iter().all(|ip| is_global(*ip)));
    }
}
