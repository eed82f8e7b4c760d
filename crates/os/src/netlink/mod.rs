//! Links, addresses and routes of the host, over netlink (rtnetlink(7)).
//!
//! [`Netlink`] lists and changes them, one request at a time. [`Monitor`] reports changes that anybody makes. Both are
//! of the network namespace of the thread that opens them.
//!
//! This is not a library of netlink: it has the requests that a router on a mesh makes, and no others. The `rtnetlink`
//! crate offers the same and all the rest, and its decoders of every message of the kernel are linked whole: a program
//! with an empty tokio runtime of 410 kB grows by 841 kB with it, by 540 kB with `netlink-packet-route` alone, and by
//! 23 kB with this module (release, `opt-level = "s"`, LTO). A router has 4 MB of flash for the whole program.

mod message;
mod monitor;
mod request;
mod socket;

pub use monitor::{Change, Monitor};
pub use request::{Netlink, NetlinkError, Route};

use std::net::IpAddr;

/// Flags of a link that can carry packets now.
const RUNNING: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
/// Flags of an address that may belong to another host.
const TENTATIVE: u32 = libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED;

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The index, which the system never assigns to another interface while this one exists.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The size of the largest IP packet, in octets.
    pub mtu: u32,
    /// The flags (`IFF_UP` and others of netdevice(7)).
    pub flags: u32,
}

impl Link {
    /// Returns whether the interface is configured to be up.
    pub fn is_up(&self) -> bool {
        self.has(libc::IFF_UP)
    }

    /// Returns whether the interface is up and can carry packets now: its cable is plugged in, say.
    pub fn is_running(&self) -> bool {
        self.flags & RUNNING == RUNNING
    }

    /// Returns whether the interface is a loopback one.
    pub fn is_loopback(&self) -> bool {
        self.has(libc::IFF_LOOPBACK)
    }

    /// Returns whether the interface can send to multicast groups.
    pub fn has_multicast(&self) -> bool {
        self.has(libc::IFF_MULTICAST)
    }

    fn has(&self, flag: libc::c_int) -> bool {
        self.flags & flag as u32 != 0
    }
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The index of the interface.
    pub interface: u32,
    /// The address.
    pub ip: IpAddr,
    /// The number of bits of the address that name the network.
    pub prefix_length: u8,
    /// The flags (`IFA_F_NODAD` and others of linux/if_addr.h).
    pub flags: u32,
}

impl Address {
    /// Returns whether packets may be sent from the address: no duplicate address detection is under way, and none
    /// has failed (RFC 4862 section 5.4).
    pub fn is_usable(&self) -> bool {
        self.flags & TENTATIVE == 0
    }
}
