//! What a program asks to listen on.

use ringway_sansio::Transport;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// What is to be listened on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bind {
    /// What is carried.
    pub transport: Transport,
    /// Where; port 0 lets the system choose one, the same for all workers.
    pub addr: SocketAddr,
    /// SCTP only: further addresses of every association (RFC 4168). None beside a wildcard.
    pub more: Vec<IpAddr>,
    /// SCTP only: our UDP port that carries it (RFC 6951); `None` for straight over IP.
    pub encapsulation: Option<u16>,
}

impl Bind {
    /// At one address.
    pub const fn at(transport: Transport, addr: SocketAddr) -> Bind {
        Bind { transport, addr, more: Vec::new(), encapsulation: None }
    }
}

/// As a URI: `sctp+udp://192.0.2.1,198.51.100.1:5060?encap=9899`.
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
