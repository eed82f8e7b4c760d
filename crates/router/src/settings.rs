//! What an operator chooses.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::path::PathBuf;

pub use ringway_lan::{Ipv4Lan, SipService};

/// UDP port of the mesh.
pub const PORT: u16 = 5267;
/// Name of the TUN device.
pub const TUN: &str = "mesh0";

/// The settings of a router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Names of the interfaces on which routers are discovered. One that does not exist is waited for.
    pub interfaces: Vec<String>,
    /// Routers that are reached through the network between.
    pub peers: Vec<SocketAddr>,
    /// Name of the interface of a LAN whose hosts get addresses of this router. One that does not exist is waited for.
    pub lan: Option<String>,
    /// The router's address on the LAN, and the network whose addresses it leases there by DHCP. `None`: no IPv4.
    pub lan_ipv4: Option<Ipv4Lan>,
    /// The SIP server of this host, which the hosts of the LAN find by DNS, multicast DNS and DHCP. `None`: they get
    /// addresses only.
    pub sip: Option<SipService>,
    /// Name of the TUN device.
    pub tun: String,
    /// File with the key of the network; without one, everybody may join.
    pub network_key: Option<PathBuf>,
    /// Directory of the identity and of the control socket.
    pub state: PathBuf,
    /// UDP port of this router and of the routers that are discovered.
    pub port: u16,
    /// Address at which metrics are served.
    pub http: Option<SocketAddr>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            interfaces: Vec::new(),
            peers: Vec::new(),
            lan: None,
            lan_ipv4: None,
            sip: None,
            tun: TUN.to_owned(),
            network_key: None,
            state: default_state(),
            port: PORT,
            http: None,
        }
    }
}

/// Returns the directory of the identity if none is configured: systemd's, root's, or the user's.
pub fn default_state() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directory) = variable("STATE_DIRECTORY") {
        return directory.into();
    }
    if let Some(directory) = variable("XDG_STATE_HOME") {
        return PathBuf::from(directory).join("ringway-mesh");
    }
    match variable("HOME").filter(|home| home != "/root") {
        Some(home) => PathBuf::from(home).join(".local/state/ringway-mesh"),
        None => PathBuf::from("/var/lib/ringway-mesh"),
    }
}

/// Returns the address of a router named as `udp://HOST[:PORT]`.
///
/// # Errors
/// A text that is not such a name, or that cannot be resolved.
pub fn parse_peer(text: &str) -> Result<SocketAddr, String> {
    let Some(authority) = text.strip_prefix("udp://") else {
        return Err(format!("expected udp://HOST[:PORT], got {text:?}"));
    };
    let with_port = |host: &str| match host.parse::<IpAddr>() {
        Ok(ip) => Ok(SocketAddr::new(ip, PORT)),
        Err(_) => first(text, (host, PORT)),
    };
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return Ok(mapped(address));
    }
    let bare = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match (bare, authority.rsplit_once(':')) {
        (Some(host), _) => with_port(host),
        (None, Some((host, port))) if !host.contains(':') => match port.parse() {
            Ok(port) => first(text, (host, port)),
            Err(_) => Err(format!("expected a port from 1 to 65535 in {text:?}, got {port:?}")),
        },
        _ => with_port(authority),
    };
    address.map(mapped)
}

fn first(text: &str, host: (&str, u16)) -> Result<SocketAddr, String> {
    let addresses = host.to_socket_addrs();
    let mut addresses = addresses.map_err(|error| format!("{text}: {error}"))?;
    addresses.next().ok_or(format!("{text}: the name has no address"))
}

/// Returns an address as the socket of both families knows it (RFC 4291 section 2.5.5.2).
fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        v6 @ SocketAddr::V6(_) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_with_or_without_a_port() {
        for (text, expected) in [
            ("udp://192.0.2.1", "[::ffff:192.0.2.1]:5267"),
            ("udp://192.0.2.1:99", "[::ffff:192.0.2.1]:99"),
            ("udp://[2001:db8::1]", "[2001:db8::1]:5267"),
            ("udp://[2001:db8::1]:99", "[2001:db8::1]:99"),
            ("udp://2001:db8::1", "[2001:db8::1]:5267"),
        ] {
            assert_eq!(
                parse_peer(text).map(|peer| peer.to_string()),
                Ok(expected.to_owned()),
                "{text}"
            );
        }
        for text in
            ["192.0.2.1", "tcp://192.0.2.1", "udp://192.0.2.1:x", "udp://192.0.2.1:70000", "udp://"]
        {
            assert!(parse_peer(text).is_err(), "{text}");
        }
    }
}
