//! The location of a server: addresses, a port, and the UDP port that carries SCTP.

use super::error::PerfError;
use super::transport::Transport;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Default port of a server.
pub(crate) const PORT: u16 = 7109;
/// UDP port of SCTP over UDP (RFC 6951 section 1).
pub(crate) const ENCAP: u16 = 9899;
/// Maximum number of addresses of one side, the limit of SCTP.
const MAX_ADDRESSES: usize = 16;

/// Maximum length of a host name (RFC 1035 section 2.3.4), in characters.
const MAX_NAME: usize = 253;

/// An address, or a name for the system's resolver.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Host {
    Address(IpAddr),
    Name(String),
}

impl Host {
    /// Parses an IPv4 address, an IPv6 address in brackets, or a name.
    fn parse(text: &str) -> Option<Host> {
        if let Some(rest) = text.strip_prefix('[') {
            return rest.strip_suffix(']')?.parse().map(|ip| Host::Address(IpAddr::V6(ip))).ok();
        }
        if let Ok(ip) = text.parse() {
            return Some(Host::Address(IpAddr::V4(ip)));
        }
        let is_name = (1..=MAX_NAME).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            // Digits alone are a mistyped address, which some resolvers interpret as another one.
            && text.bytes().any(|b| b.is_ascii_alphabetic());
        is_name.then(|| Host::Name(text.to_owned()))
    }
}

/// A location as text: `HOST[,HOST..]:PORT[?encap=PORT]`, IPv6 addresses in brackets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    hosts: Vec<Host>,
    port: u16,
    encap: Option<u16>,
}

impl Default for Location {
    fn default() -> Location {
        let hosts = vec![Host::Address(Ipv4Addr::LOCALHOST.into())];
        Location { hosts, port: PORT, encap: None }
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Location, String> {
        let form = || format!("expected HOST[,HOST..]:PORT[?encap=PORT], got {text:?}");
        let (ends, encap) = match text.split_once("?encap=") {
            Some((ends, port)) => (ends, Some(port.parse().map_err(|_| form())?)),
            None => (text, None),
        };
        let (list, port) = ends.rsplit_once(':').ok_or_else(form)?;
        let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(form)?;
        let hosts: Option<Vec<Host>> = list.split(',').map(Host::parse).collect();
        match hosts {
            Some(hosts) if hosts.len() <= MAX_ADDRESSES => Ok(Location { hosts, port, encap }),
            _ => Err(form()),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, host) in self.hosts.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match host {
                Host::Address(IpAddr::V6(address)) => write!(f, "{comma}[{address}]")?,
                Host::Address(address) => write!(f, "{comma}{address}")?,
                Host::Name(name) => write!(f, "{comma}{name}")?,
            }
        }
        write!(f, ":{}", self.port)?;
        match self.encap {
            Some(port) => write!(f, "?encap={port}"),
            None => Ok(()),
        }
    }
}

impl Location {
    /// Resolves the names. A name stands for its first IPv4 address, or for its first IPv6 address
    /// if it has no other; with `from`, for the first address of the same family.
    pub(crate) async fn resolve(&self, from: &[IpAddr]) -> Result<ResolvedLocation, PerfError> {
        let mut addresses = Vec::with_capacity(self.hosts.len());
        for host in &self.hosts {
            addresses.push(match host {
                Host::Address(address) => *address,
                Host::Name(name) => resolve_name(name, from.first()).await?,
            });
        }
        Ok(ResolvedLocation { addresses, port: self.port, encap: self.encap })
    }
}

/// Returns the address that a name stands for; see [`Location::resolve`].
async fn resolve_name(name: &str, from: Option<&IpAddr>) -> Result<IpAddr, PerfError> {
    let found = tokio::net::lookup_host((name, 0)).await;
    let found: Vec<IpAddr> = found.map_err(|e| PerfError::at(name, e))?.map(|a| a.ip()).collect();
    let same_family = |ip: &&IpAddr| from.is_none_or(|from| from.is_ipv4() == ip.is_ipv4());
    let of_family = found.iter().filter(same_family);
    match of_family.min_by_key(|ip| ip.is_ipv6()) {
        Some(ip) => Ok(*ip),
        None => Err(PerfError::Failed(format!("{name} has no address of the family of --from"))),
    }
}

/// A location with resolved addresses: addresses, a port, and for SCTP over UDP the UDP port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ResolvedLocation {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    pub(crate) encap: Option<u16>,
}

impl ResolvedLocation {
    /// Returns the address for a transport that supports only one.
    pub(crate) fn single(&self, transport: Transport) -> Result<SocketAddr, PerfError> {
        match (&self.addresses[..], self.encap) {
            ([address], None) => Ok(SocketAddr::new(*address, self.port)),
            _ => Err(PerfError::Usage(format!("{transport} takes ADDR:PORT, got {self}"))),
        }
    }

    /// Sets the UDP port that SCTP over this transport needs.
    pub(crate) fn for_sctp(mut self, transport: Transport) -> Result<ResolvedLocation, PerfError> {
        match (transport, self.encap) {
            (Transport::SctpUdp, _) => self.encap = Some(self.encap.unwrap_or(ENCAP)),
            (_, None) => {}
            _ => return Err(PerfError::Usage(format!("{transport} has no UDP port, got {self}"))),
        }
        Ok(self)
    }
}

impl fmt::Display for ResolvedLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.addresses.iter().map(|&address| Host::Address(address)).collect();
        Location { hosts, port: self.port, encap: self.encap }.fmt(f)
    }
}
