//! Which addresses an association can have, and which local address goes with which of the peer.

use std::net::IpAddr;

/// Returns whether an address can be an endpoint of an association.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || broadcast)
}

/// Returns the local address for the `nth` address of the peer of its family. The lists are matched
/// index by index, so that two links make two paths and not four.
pub(super) fn beside(locals: &[IpAddr], remote: IpAddr, nth: usize) -> Option<IpAddr> {
    let same = || locals.iter().filter(|local| local.is_ipv4() == remote.is_ipv4());
    let count = same().count();
    same().nth(nth.checked_rem(count)?).copied()
}

/// Returns whether every remote address has a local one of its family.
pub(crate) fn families_match(locals: &[IpAddr], remotes: &[IpAddr]) -> bool {
    remotes.iter().all(|&remote| beside(locals, remote, 0).is_some())
}
