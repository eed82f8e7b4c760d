//! The listeners that a program requests.

use ringway_sansio::Transport;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A listener to open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bind {
    /// The transport.
    pub transport: Transport,
    /// The address; port 0 means one that the system chooses, the same for all workers.
    pub addr: SocketAddr,
    /// SCTP only: further addresses of every association (RFC 4168). Empty with a wildcard.
    pub more: Vec<IpAddr>,
    /// SCTP only: the local UDP port that carries it (RFC 6951); `None` for directly over IP.
    pub encapsulation: Option<u16>,
}

impl Bind {
    /// Creates a listener at one address.
    pub const fn at(transport: Transport, addr: SocketAddr) -> Bind {
        Bind { transport, addr, more: Vec::new(), encapsulation: None }
    }
}

/// Prints a URI: `sctp+udp://192.0.2.1,198.51.100.1:5060?encap=9899`.
impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = |f: &mut fmt::Formatter<'_>, ip: IpAddr| match ip {
            IpAddr::V4(ip) => write!(f, "{ip}"),
            IpAddr::V6(ip) => write!(f, "[{ip}]"),
        };
        let udp = if self.encapsulation.is_some() { "+udp" } else { "" };
        write!(f, "{}{udp}://", self.transport.uri())?;
        bracketed(f, self.addr.ip())?;
        for ip in &self.more {
            f.write_str(",")?;
            bracketed(f, *ip)?;
        }
        write!(f, ":{}", self.addr.port())?;
        match self.encapsulation {
            Some(port) => write!(f, "?encap={port}"),
            None => Ok(()),
        }
    }
}

impl From<(Transport, SocketAddr)> for Bind {
    fn from((transport, addr): (Transport, SocketAddr)) -> Bind {
        Bind::at(transport, addr)
    }
}
