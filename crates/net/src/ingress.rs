//! Which datagrams are dropped because their source address is not one that can be behind the interface they came by (the
//! ingress filtering of RFC 2827, at the host itself).
//!
//! Only datagrams need it: whoever opens a connection, or an association, has received an answer at its address.

use ringway_os::Reception;
use std::net::{IpAddr, Ipv6Addr};

/// Sources that are believed only where datagrams come by one interface.
#[derive(Clone, Copy, Debug)]
pub struct IngressFilter {
    /// Our addresses: datagrams to others are not filtered.
    pub locals: [Ipv6Addr; 2],
    /// The index of the interface by which guarded sources are reached.
    pub interface: u32,
    /// Returns whether a source is guarded.
    pub guards: fn(Ipv6Addr) -> bool,
}

impl IngressFilter {
    /// Returns whether a datagram claims a guarded source and has come by another interface.
    pub(crate) fn refuses(&self, reception: &Reception<'_>) -> bool {
        let (IpAddr::V6(source), local) = (reception.remote.ip(), reception.local) else {
            return false;
        };
        // A socket with one address reports the destination too; without a report nothing is believed.
        local.is_none_or(|local| self.locals.iter().any(|own| local == IpAddr::V6(*own)))
            && reception.interface != self.interface
            && !self.locals.contains(&source)
            && (self.guards)(source)
    }
}
