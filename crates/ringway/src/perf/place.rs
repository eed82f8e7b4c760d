//! Where a server is: addresses, a port, and the UDP port that SCTP is carried over.

use super::{Transport, Trouble};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Port of a server that was given none.
pub(crate) const PORT: u16 = 7109;
/// RFC 6951 section 1: the port for SCTP over UDP.
pub(crate) const ENCAP: u16 = 9899;
/// Most addresses of one side, as SCTP takes.
const MAX_ADDRESSES: usize = 16;

/// `ADDR[,ADDR..]:PORT[?encap=PORT]`, IPv6 addresses in brackets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    pub(crate) encap: Option<u16>,
}

impl Default for Place {
    fn default() -> Place {
        Place { addresses: vec![Ipv4Addr::LOCALHOST.into()], port: PORT, encap: None }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let form = || format!("expected ADDR[,ADDR..]:PORT[?encap=PORT], got {text:?}");
        let (ends, encap) = match text.split_once("?encap=") {
            Some((ends, port)) => (ends, Some(port.parse().map_err(|_| form())?)),
            None => (text, None),
        };
        let (list, port) = ends.rsplit_once(':').ok_or_else(form)?;
        let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(form)?;
        let address = |text: &str| match text.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?.parse().map(IpAddr::V6).ok(),
            None => text.parse().map(IpAddr::V4).ok(),
        };
        let addresses: Option<Vec<IpAddr>> = list.split(',').map(address).collect();
        match addresses {
            Some(addresses) if addresses.len() <= MAX_ADDRESSES => {
                Ok(Place { addresses, port, encap })
            }
            _ => Err(form()),
        }
    }
}

impl Place {
    /// The one address of a transport that knows of one only.
    pub(crate) fn single(&self, transport: Transport) -> Result<SocketAddr, Trouble> {
        match (&self.addresses[..], self.encap) {
            ([address], None) => Ok(SocketAddr::new(*address, self.port)),
            _ => Err(Trouble::Usage(format!("{transport} takes ADDR:PORT, got {self}"))),
        }
    }

    /// The same as SCTP over the transport needs it.
    pub(crate) fn for_sctp(mut self, transport: Transport) -> Result<Place, Trouble> {
        match (transport, self.encap) {
            (Transport::SctpUdp, _) => self.encap = Some(self.encap.unwrap_or(ENCAP)),
            (_, None) => {}
            _ => return Err(Trouble::Usage(format!("{transport} has no UDP port, got {self}"))),
        }
        Ok(self)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, address) in self.addresses.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match address {
                IpAddr::V4(address) => write!(f, "{comma}{address}")?,
                IpAddr::V6(address) => write!(f, "{comma}[{address}]")?,
            }
        }
        write!(f, ":{}", self.port)?;
        match self.encap {
            Some(port) => write!(f, "?encap={port}"),
            None => Ok(()),
        }
    }
}
