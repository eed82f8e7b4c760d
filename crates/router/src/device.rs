//! The TUN device: where packets of hosts come from, and where they go.

use std::io;
use std::net::Ipv6Addr;

use ringway_mesh::Prefix;
use ringway_os::netlink::{Netlink, NetlinkError, Route};
use ringway_os::tun::TunQueue;
use ringway_os::{Watched, watch_tun_queue};

/// MTU of the device in octets: what passes a link of 1,500 octets by a route of 54 hops.
pub const MTU: u32 = 1_368;
/// All addresses of the mesh (RFC 4193 section 3.1).
const MESH: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0), 8);
/// Bits of a router's prefix.
pub(crate) const PREFIX: u8 = 64;
/// Bits of the router's address, where the prefix is on a LAN.
const ADDRESS: u8 = 128;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It cannot be opened.
    #[error("TUN device {name}: {error}; a router needs CAP_NET_ADMIN and /dev/net/tun")]
    Open {
        /// Which.
        name: String,
        /// What failed.
        error: io::Error,
    },
    /// It cannot be configured.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// Opens the device with the router's addresses and the route to the mesh. No program uses the second one as a source that
/// does not ask for it. The router's prefix is on the device, unless
/// it is on a LAN. To be called within a runtime.
///
/// # Errors
/// A [`DeviceError`] that says what failed; mostly the right to do it is missing.
pub fn open(
    name: &str,
    prefix: Prefix,
    has_lan: bool,
    netlink: &mut Netlink,
) -> Result<Watched<TunQueue>, DeviceError> {
    let fail = |error| DeviceError::Open { name: name.to_owned(), error };
    let mut queues = TunQueue::open(name, 1).map_err(fail)?;
    let tun = queues.pop().ok_or(io::ErrorKind::NotFound.into()).map_err(fail)?;
    let index = netlink.link(name)?.index;
    netlink.set_mtu(index, MTU)?;
    netlink.set_up(index)?;
    let length = if has_lan { ADDRESS } else { PREFIX };
    netlink.add_address(index, prefix.router(), length)?;
    netlink.add_spare_address(index, prefix.second(), ADDRESS)?;
    let (destination, prefix_length) = MESH;
    let route = Route { destination, prefix_length, interface: index, gateway: None, metric: 0 };
    netlink.add_route(&route)?;
    watch_tun_queue(tun).map_err(fail)
}
