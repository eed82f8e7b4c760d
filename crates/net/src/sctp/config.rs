//! What a program says of a stack and of an association to open.

use super::opening::UDP_PORT;
use ringway_sctp::{Limits, Settings};
use std::net::IpAddr;

/// What carries SCTP's packets.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Over {
    /// UDP (RFC 6951).
    Udp {
        /// Our addresses, each with a socket of its own, to which [`Association::add_address`](super::Association::add_address) adds;
        /// or the wildcard of a family, which stands for all of that family, with one socket that
        /// is told for each packet which address to send from.
        locals: Vec<IpAddr>,
        /// Our UDP port, the same at each address; 0 for one that the system chooses.
        port: u16,
    },
    /// A TUN device of this name, beyond which the stack stands as a host of its own, with whatever
    /// addresses who listens and connects says. Needs CAP_NET_ADMIN, or a device made for the user;
    /// addresses and routes are given to it from outside. For one process, which has all its ports.
    Tun {
        /// The device's name, 1 to 15 bytes.
        name: String,
    },
    /// The kernel's SCTP, where it is loaded: the kernel then is the protocol, and limits, the
    /// counters of the stack and what of the settings it has no words for do not apply. In UDP it is
    /// not to be had.
    Kernel,
    /// IP itself, as protocol 132: needs CAP_NET_RAW, and a kernel whose own SCTP is not loaded.
    /// Which of the host's addresses are used is said by who listens and connects. Any number of
    /// processes share the protocol; each port is one process's at a time, in its whole network
    /// namespace.
    Ip,
}

impl Over {
    /// UDP at these addresses and the usual port.
    pub fn udp(locals: &[IpAddr]) -> Over {
        Over::Udp { locals: locals.to_vec(), port: UDP_PORT }
    }
}

/// How a stack is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// What carries its packets.
    pub over: Over,
    /// How much it holds.
    pub limits: Limits,
    /// How associations behave where nothing else is said.
    pub settings: Settings,
}

impl Config {
    /// With the usual limits and settings.
    pub fn new(over: Over) -> Config {
        Config { over, limits: Limits::default(), settings: Settings::default() }
    }
}

/// What to connect to, and from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// Our addresses, which the peer is told.
    pub locals: Vec<IpAddr>,
    /// Our port; 0 for any that is free.
    pub local_port: u16,
    /// The peer's addresses; the first is the primary path.
    pub remotes: Vec<IpAddr>,
    /// The peer's port.
    pub remote_port: u16,
    /// Over UDP: the peer's UDP port.
    pub encapsulation: u16,
    /// How the association behaves; `None` as the stack says.
    pub settings: Option<Settings>,
}

impl Connect {
    /// From one list of addresses to another, with the usual UDP port.
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
