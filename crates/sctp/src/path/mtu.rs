//! The maximum packet size of a path, and when it is suspected to be too large.

use crate::pmtu::{BASE, Pmtu};
use crate::settings::{MIN_MTU, Settings};
use ringway_sansio::Time;
use std::net::IpAddr;

/// Length in bytes of a UDP header.
const UDP_HEADER: u32 = 8;

/// Returns the length of the headers before a packet to `address`, in UDP where a port is given.
const fn headers(address: IpAddr, udp_port: u16) -> u32 {
    let ip = match address {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    };
    if udp_port == 0 { ip } else { ip + UDP_HEADER }
}

/// The maximum size of packets, and the search for it.
#[derive(Debug)]
pub(super) struct PathMtu {
    /// Maximum length of an IP packet, including a UDP header.
    ip: u32,
    /// Maximum length of a packet from the common header on.
    packet: u32,
    /// Whether a packet larger than the minimum MTU allows has arrived.
    large: bool,
    /// The search.
    search: Option<Box<Pmtu>>,
}

impl PathMtu {
    /// Returns the configured size, with a search if one is configured.
    pub(super) fn new(settings: &Settings, remote: IpAddr, udp_port: u16) -> PathMtu {
        let ip = u32::from(settings.mtu);
        let packet = ip - headers(remote, udp_port);
        PathMtu { ip, packet, large: false, search: Pmtu::new(settings) }
    }

    /// Returns the maximum length of an IP packet.
    #[inline]
    pub(super) fn ip(&self) -> usize {
        self.ip as usize
    }

    /// Returns the maximum length of a packet from the common header on.
    #[inline]
    pub(super) fn packet(&self) -> usize {
        self.packet as usize
    }

    /// Sets the maximum length of an IP packet, at least [`MIN_MTU`].
    pub(super) fn set(&mut self, ip: usize, remote: IpAddr, udp_port: u16) {
        self.ip = u32::try_from(ip).unwrap_or(u32::MAX).max(u32::from(MIN_MTU));
        self.packet = self.ip - headers(remote, udp_port);
    }

    /// Handles the expiry of a timer for a number of bytes after some errors in a row, which may be caused by packets that
    /// are too large. After the second timeout in a row the packets become smaller and the MTU is searched from there. If a
    /// search is configured and no large packet has ever arrived, the first timeout is enough (RFC 8899 section 4.3).
    /// Returns the size that the path falls to.
    pub(super) fn suspect(&mut self, now: Time, lost: usize, errors: u32) -> Option<usize> {
        let ip = self.ip();
        let large = lost > BASE && ip > BASE;
        let search = match &mut self.search {
            None if large && errors > 0 => self.search.insert(Pmtu::up_to(ip)),
            None => return None,
            Some(search) => search,
        };
        if large && (errors > 0 || !self.large) {
            search.suspect();
        }
        search.data_lost(now, ip)
    }

    /// Notes that a packet with `size` bytes has arrived.
    #[inline]
    pub(super) fn arrived(&mut self, size: usize) {
        self.large |= size > BASE;
    }

    /// Notes that data was acknowledged.
    #[inline]
    pub(super) fn data_acknowledged(&mut self) {
        if let Some(search) = &mut self.search {
            search.data_arrived();
        }
    }

    #[inline]
    pub(super) fn search(&self) -> Option<&Pmtu> {
        self.search.as_deref()
    }

    #[inline]
    pub(super) fn search_mut(&mut self) -> Option<&mut Pmtu> {
        self.search.as_deref_mut()
    }

    /// Ends the search.
    pub(super) fn end_search(&mut self) {
        self.search = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    /// RFC 8899 section 4.3.
    #[test]
    fn large_packets_are_suspected_at_the_second_timeout() {
        let now = Time::from_secs(1);
        let mut mtu = PathMtu::new(&Settings { mtu: 1500, ..Settings::default() }, A, 0);
        assert_eq!((mtu.ip(), mtu.packet()), (1500, 1480));
        assert_eq!(mtu.suspect(now, 1400, 0), None);
        assert_eq!(mtu.suspect(now, 1400, 1), Some(BASE));
        mtu.set(BASE, A, 9899);
        assert_eq!((mtu.ip(), mtu.packet()), (BASE, BASE - 28));
    }
}
