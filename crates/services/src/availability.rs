//! What the host has: protocols, interfaces and addresses. The caller finds out; nothing here asks the system.

use crate::endpoint::Family;
use crate::properties::Service;
use crate::protocol::Protocol;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Interfaces that are considered.
pub const MAX_PATHS: usize = 32;

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// Whether it is a temporary one (RFC 8981).
    pub temporary: bool,
}

/// An interface, which is a path to the network behind it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its type, such as `wifi`; empty if unknown.
    pub kind: String,
    /// The network behind it, as attempts are remembered by; empty if unknown.
    pub network: String,
    /// Its addresses; empty if unknown, and then any family may be used.
    pub addresses: Vec<LocalAddress>,
}

impl Interface {
    /// Returns an interface with one name, type and network.
    pub fn new(name: &str, kind: &str, network: &str) -> Self {
        Interface {
            name: name.to_string(),
            kind: kind.to_string(),
            network: network.to_string(),
            addresses: Vec::new(),
        }
    }

    /// Returns the interface with another address.
    #[must_use]
    pub fn with_address(mut self, ip: IpAddr, temporary: bool) -> Self {
        self.addresses.push(LocalAddress { ip, temporary });
        self
    }

    /// Returns whether its name or its type is this one.
    pub fn is(&self, selector: &str) -> bool {
        self.name == selector || (!self.kind.is_empty() && self.kind.eq_ignore_ascii_case(selector))
    }

    /// Returns whether a peer of a family can be reached from it.
    pub fn has(&self, family: Family) -> bool {
        self.addresses.is_empty()
            || self.addresses.iter().any(|address| Family::of(address.ip) == family)
    }
}

/// What the host has.
///
/// ```
/// use ringway_services::{Availability, Protocol};
///
/// let availability = Availability::all().without(Protocol::Mptcp, "the kernel has no MPTCP");
/// assert_eq!(availability.missing(Protocol::Mptcp), Some("the kernel has no MPTCP"));
/// assert_eq!(availability.missing(Protocol::Tcp), None);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Availability {
    /// Protocols that the host lacks, with the reason.
    missing: BTreeMap<Protocol, String>,
    /// Services that protocols could provide and do not here, with the reason.
    lacking: BTreeMap<Protocol, Vec<(Service, String)>>,
    /// Interfaces in the order of the system's preference; empty for one path that the system chooses. Of more than
    /// [`MAX_PATHS`] the first are considered.
    pub interfaces: Vec<Interface>,
}

impl Availability {
    /// Returns a host with all protocols, whose system chooses the path.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns the host without a protocol, for this reason.
    #[must_use]
    pub fn without(mut self, protocol: Protocol, reason: &str) -> Self {
        self.missing.insert(protocol, reason.to_string());
        self
    }

    /// Returns the host with a protocol that does not provide a service here, although it could. A requirement excludes it for
    /// this reason, and it ranks as without the service.
    #[must_use]
    pub fn without_service(mut self, protocol: Protocol, service: Service, reason: &str) -> Self {
        self.lacking.entry(protocol).or_default().push((service, reason.to_string()));
        self
    }

    /// Returns the services that a protocol does not provide here, with the reasons.
    pub(crate) fn lacking(&self, protocol: Protocol) -> &[(Service, String)] {
        self.lacking.get(&protocol).map_or(&[], Vec::as_slice)
    }

    /// Returns the host with another interface.
    #[must_use]
    pub fn with_interface(mut self, interface: Interface) -> Self {
        self.interfaces.push(interface);
        self
    }

    /// Returns why a protocol is missing; `None` if it is there.
    pub fn missing(&self, protocol: Protocol) -> Option<&str> {
        self.missing.get(&protocol).map(String::as_str)
    }
}
