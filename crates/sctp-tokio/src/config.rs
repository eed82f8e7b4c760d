//! The configuration of a stack, and of an association to open.

use super::opening::UDP_PORT;
use ringway_sctp::{Limits, Settings};
use std::net::IpAddr;

/// The transport of SCTP packets.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Over {
    /// UDP (RFC 6951).
    Udp {
        /// The local addresses, each with its own socket; more can be added by
        /// [`Association::add_address`](super::Association::add_address). The wildcard of a family stands
        /// for all its addresses, with one socket that sends each packet from the right one.
        locals: Vec<IpAddr>,
        /// The local UDP port, the same at each address; 0 for one that the system chooses.
        port: u16,
    },
    /// A TUN device, behind which the stack is a host of its own, with the addresses that listeners and
    /// associations name. Needs CAP_NET_ADMIN, or a device created for the user; the device's addresses
    /// and routes are configured elsewhere. One process has all the ports.
    Tun {
        /// The device's name, 1 to 15 bytes.
        name: String,
    },
    /// The kernel's SCTP, where it is loaded. The limits, the counters of the stack and settings that the
    /// kernel has no option for do not apply. The kernel's SCTP is not available in UDP.
    Kernel,
    /// IP itself, as protocol 132. Needs CAP_NET_RAW, and a kernel whose own SCTP is not loaded. Listeners
    /// and associations name the host's addresses to use. Any number of processes share the protocol; a
    /// port belongs to one process of the network namespace at a time.
    Ip,
}

impl Over {
    /// Returns UDP at these addresses and the default port.
    pub fn udp(locals: &[IpAddr]) -> Over {
        Over::Udp { locals: locals.to_vec(), port: UDP_PORT }
    }
}

/// The configuration of a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The transport of its packets.
    pub over: Over,
    /// The limits of the protocol.
    pub limits: Limits,
    /// The settings of associations that have none of their own.
    pub settings: Settings,
}

impl Config {
    /// Creates a configuration with the default limits and settings.
    pub fn new(over: Over) -> Config {
        Config { over, limits: Limits::default(), settings: Settings::default() }
    }
}

/// The addresses and settings of an association to open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The local addresses, which are sent to the peer.
    pub locals: Vec<IpAddr>,
    /// The local port; 0 for any that is free.
    pub local_port: u16,
    /// The peer's addresses; the first is the primary path.
    pub remotes: Vec<IpAddr>,
    /// The peer's port.
    pub remote_port: u16,
    /// Over UDP: the peer's UDP port.
    pub encapsulation: u16,
    /// The settings of the association; `None` for those of the stack.
    pub settings: Option<Settings>,
}

impl Connect {
    /// Creates a request from one list of addresses to another, with the default UDP port.
    pub fn new(locals: &[IpAddr], remotes: &[IpAddr], remote_port: u16) -> Connect {
        Connect {
            locals: locals.to_vec(),
            local_port: 0,
            remotes: remotes.to_vec(),
            remote_port,
            encapsulation: UDP_PORT,
            settings: None,
        }
    }
}
