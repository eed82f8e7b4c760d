//! Which of the configured interfaces there are now.
//!
//! An interface is used while it is up and has a link-local address that may be used: before, a HELLO cannot be sent.

use std::collections::BTreeMap;

use ringway_os::netlink::{Address, Link, Netlink, NetlinkError};

/// Octets of IPv6 and UDP headers.
const HEADERS: u32 = 48;
/// Longest UDP payload that is used.
const MAX_PAYLOAD: u32 = 9_000 - HEADERS;

/// A change for the router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The interface can be used.
    Up {
        /// Its name.
        name: String,
        /// Its number.
        index: u32,
        /// Largest UDP payload in octets.
        mtu: u16,
    },
    /// The interface cannot be used any more.
    Down {
        /// Its name.
        name: String,
        /// Its number.
        index: u32,
    },
    /// The interface does not exist yet; reported once.
    Missing(String),
}

/// The configured interfaces.
#[derive(Clone, Debug)]
pub struct Interfaces {
    names: Vec<String>,
    /// Those in use: number and largest payload by name.
    used: BTreeMap<String, (u32, u16)>,
    missing: Vec<String>,
}

impl Interfaces {
    /// The interfaces of these names, none of which is in use.
    pub fn new(names: &[String]) -> Interfaces {
        Interfaces { names: names.to_vec(), used: BTreeMap::new(), missing: Vec::new() }
    }

    /// Returns the names of the interfaces in use by number.
    pub fn names(&self) -> BTreeMap<u32, String> {
        self.used.iter().map(|(name, &(index, _))| (index, name.clone())).collect()
    }

    /// Reads all interfaces and returns what has changed since.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn read(&mut self, netlink: &mut Netlink) -> Result<Vec<Change>, NetlinkError> {
        let (links, addresses) = (netlink.links()?, netlink.addresses()?);
        Ok(self.compare(&links, &addresses))
    }

    fn compare(&mut self, links: &[Link], addresses: &[Address]) -> Vec<Change> {
        let mut changes = Vec::new();
        for name in &self.names {
            let link = links.iter().find(|link| link.name == *name);
            if link.is_none() && !self.used.contains_key(name) && !self.missing.contains(name) {
                changes.push(Change::Missing(name.clone()));
                self.missing.push(name.clone());
            }
            let now = link.filter(|link| is_usable(link, addresses)).map(|link| {
                let payload = link.mtu.saturating_sub(HEADERS).min(MAX_PAYLOAD);
                (link.index, payload as u16)
            });
            let before = self.used.get(name).copied();
            if before == now {
                continue;
            }
            if let Some((index, _)) = before {
                self.used.remove(name);
                changes.push(Change::Down { name: name.clone(), index });
            }
            if let Some((index, mtu)) = now {
                self.used.insert(name.clone(), (index, mtu));
                self.missing.retain(|missing| missing != name);
                changes.push(Change::Up { name: name.clone(), index, mtu });
            }
        }
        changes
    }
}

fn is_usable(link: &Link, addresses: &[Address]) -> bool {
    let is_link_local = |address: &Address| match address.ip {
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
        std::net::IpAddr::V4(_) => false,
    };
    let mut own = addresses.iter().filter(|address| address.interface == link.index);
    link.is_running() && own.any(|address| is_link_local(address) && address.is_usable())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, flags: u32) -> Link {
        Link { index, name: name.to_owned(), mtu: 1_500, flags }
    }

    fn address(interface: u32, flags: u32) -> Address {
        Address { interface, ip: "fe80::1".parse().unwrap(), prefix_length: 64, flags }
    }

    // IFF_UP and IFF_RUNNING; IFA_F_TENTATIVE.
    const RUNNING: u32 = 0x41;
    const TENTATIVE: u32 = 0x40;

    #[test]
    fn an_interface_is_used_from_its_address_on_until_it_vanishes() {
        let mut interfaces = Interfaces::new(&["eth0".to_owned()]);
        let missing = Change::Missing("eth0".to_owned());
        assert_eq!(interfaces.compare(&[], &[]), [missing]);
        assert_eq!(interfaces.compare(&[link(7, "eth1", RUNNING)], &[]), []);
        let links = [link(7, "eth0", RUNNING)];
        assert_eq!(interfaces.compare(&links, &[address(7, TENTATIVE)]), []);
        let up = Change::Up { name: "eth0".to_owned(), index: 7, mtu: 1_452 };
        assert_eq!(interfaces.compare(&links, &[address(7, 0)]), [up]);
        assert_eq!(interfaces.names().get(&7).map(String::as_str), Some("eth0"));
        let down = Change::Down { name: "eth0".to_owned(), index: 7 };
        assert_eq!(interfaces.compare(&[link(7, "eth0", 0x1)], &[address(7, 0)]), [down]);
        assert_eq!(interfaces.compare(&[], &[]), [Change::Missing("eth0".to_owned())]);
    }
}
