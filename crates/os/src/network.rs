//! Changes of the addresses that the host can send from.

use crate::netlink::{Address, Change, Monitor, Netlink};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::IpAddr;

/// Reports addresses of the host that are added or removed, or whose links go up or down.
pub struct NetworkMonitor {
    monitor: Monitor,
    netlink: Netlink,
    addresses: Addresses,
    /// Changes that are not reported yet.
    changes: VecDeque<(IpAddr, bool)>,
}

/// The addresses of the host by the index of their link, and the links that cannot carry packets now.
#[derive(Default)]
struct Addresses {
    present: HashSet<(u32, IpAddr)>,
    down: HashSet<u32>,
}

impl NetworkMonitor {
    /// Opens a monitor of the network namespace of the thread. To be called within a runtime.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn open() -> io::Result<NetworkMonitor> {
        let monitor = Monitor::open()?;
        let mut netlink = Netlink::open()?;
        let addresses = Addresses::read(&mut netlink)?;
        Ok(NetworkMonitor { monitor, netlink, addresses, changes: VecDeque::new() })
    }

    /// Returns the next address that became usable (`true`) or unusable. `None` when the kernel reports
    /// no more changes.
    pub async fn next(&mut self) -> Option<(IpAddr, bool)> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Some(change);
            }
            match self.monitor.next().await.ok()? {
                Change::Link(link) => {
                    self.changes.extend(self.addresses.link(link.index, link.is_running()));
                }
                Change::LinkRemoved(link) => {
                    self.changes.extend(self.addresses.link(link.index, false));
                    self.addresses.forget(link.index);
                }
                Change::Address(address) => {
                    self.changes.extend(self.addresses.address(&address, address.is_usable()));
                }
                Change::AddressRemoved(address) => {
                    self.changes.extend(self.addresses.address(&address, false));
                }
                Change::Lost => {
                    let now = Addresses::read(&mut self.netlink).ok()?;
                    let before = std::mem::replace(&mut self.addresses, now);
                    self.changes.extend(self.addresses.changes_since(&before));
                }
            }
        }
    }
}

impl Addresses {
    /// Reads the present state.
    fn read(netlink: &mut Netlink) -> io::Result<Addresses> {
        let links = netlink.links().map_err(io::Error::other)?;
        let addresses = netlink.addresses().map_err(io::Error::other)?;
        let usable = addresses.iter().filter(|address| address.is_usable());
        Ok(Addresses {
            present: usable.map(|address| (address.interface, address.ip)).collect(),
            down: links.iter().filter(|link| !link.is_running()).map(|link| link.index).collect(),
        })
    }

    /// Notes whether a link can carry packets. Returns the changes of its addresses.
    fn link(&mut self, index: u32, up: bool) -> Vec<(IpAddr, bool)> {
        let changed = if up { self.down.remove(&index) } else { self.down.insert(index) };
        let of_link = self.present.iter().filter(|(link, _)| changed && *link == index);
        of_link.map(|(_, ip)| (*ip, up)).collect()
    }

    /// Drops what is known of a link.
    fn forget(&mut self, index: u32) {
        self.down.remove(&index);
        self.present.retain(|(link, _)| *link != index);
    }

    /// Notes whether packets can be sent from an address, were its link up. Returns the change of the address.
    fn address(&mut self, address: &Address, usable: bool) -> Option<(IpAddr, bool)> {
        let key = (address.interface, address.ip);
        let changed = if usable { self.present.insert(key) } else { self.present.remove(&key) };
        (changed && !self.down.contains(&key.0)).then_some((key.1, usable))
    }

    /// Returns whether packets can be sent from an address of a link.
    fn is_usable(&self, key: &(u32, IpAddr)) -> bool {
        self.present.contains(key) && !self.down.contains(&key.0)
    }

    /// Returns the changes since an earlier state.
    fn changes_since(&self, before: &Addresses) -> Vec<(IpAddr, bool)> {
        let gone =
            before.present.iter().filter(|key| before.is_usable(key) && !self.is_usable(key));
        let come = self.present.iter().filter(|key| self.is_usable(key) && !before.is_usable(key));
        gone.map(|key| (key.1, false)).chain(come.map(|key| (key.1, true))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn address(interface: u32, last: u8) -> Address {
        Address { interface, ip: ip(last), prefix_length: 24, flags: 0 }
    }

    #[test]
    fn an_address_is_usable_while_its_link_is_up() {
        let mut addresses = Addresses::default();
        assert_eq!(addresses.address(&address(1, 1), true), Some((ip(1), true)));
        assert_eq!(addresses.address(&address(1, 1), true), None);
        assert_eq!(addresses.link(1, false), [(ip(1), false)]);
        assert_eq!(addresses.link(1, false), []);
        assert_eq!(addresses.address(&address(1, 2), true), None);
        assert_eq!(addresses.address(&address(1, 1), false), None);
        assert_eq!(addresses.link(1, true), [(ip(2), true)]);
        assert_eq!(addresses.link(1, false), [(ip(2), false)]);
        addresses.forget(1);
        assert_eq!(addresses.link(1, true), []);
    }

    #[test]
    fn a_later_state_is_compared_with_an_earlier_one() {
        let mut before = Addresses::default();
        before.address(&address(1, 1), true);
        before.address(&address(2, 2), true);
        let mut now = Addresses::default();
        now.address(&address(1, 1), true);
        now.address(&address(2, 2), true);
        now.address(&address(3, 3), true);
        assert_eq!(now.changes_since(&before), [(ip(3), true)]);
        now.link(3, false);
        assert_eq!(now.changes_since(&before), []);
        now.link(1, false);
        assert_eq!(now.changes_since(&before), [(ip(1), false)]);
        assert_eq!(before.changes_since(&now), [(ip(1), true)]);
    }
}
