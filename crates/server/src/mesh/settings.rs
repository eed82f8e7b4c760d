//! `[mesh]`: which interfaces, which network.

use std::net::SocketAddr;
use std::path::PathBuf;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use ringway_lan::{Ipv4Lan, SipService};
use ringway_router::settings::{PORT, Settings, TUN};
use ringway_sansio::Transport;

use crate::config::Listen;
use crate::host;

pub use ringway_lan::{ANYCAST, DOMAIN};

/// Other name of the domain, which the routers' name servers know.
pub const SERVER_NAME: &str = "sip.mesh";
pub use ringway_onesip::SIP_PORT;

/// The router of this server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeshSettings {
    /// Names of the interfaces on which routers are discovered; all that there are if empty and there are no peers.
    pub interfaces: Vec<String>,
    /// Routers that are reached through the network between.
    pub peers: Vec<SocketAddr>,
    /// Interface of a LAN whose hosts get addresses of this router.
    pub lan: Option<String>,
    /// The IPv4 subnet of the LAN, whose hosts get addresses by DHCP; none without.
    pub lan_ipv4: Option<Ipv4Lan>,
    /// Name of the TUN device.
    pub tun: Option<String>,
    /// File with the key of the network; without one, everybody may join.
    pub network_key: Option<PathBuf>,
    /// Directory of the router's identity.
    pub state: Option<PathBuf>,
    /// UDP port of the mesh.
    pub port: Option<u16>,
    /// Numbers that users of this server answer for, together with those of other routers.
    pub services: Vec<(String, Vec<String>)>,
    /// Whether users have short numbers; they have unless it is `false`.
    pub numbers: Option<bool>,
    /// Transport of SIP to other routers; UDP without.
    pub transport: Option<Transport>,
}

impl MeshSettings {
    /// Replaces what flags of the command line set.
    pub fn override_by(&mut self, flags: &MeshSettings) {
        if !flags.interfaces.is_empty() {
            self.interfaces.clone_from(&flags.interfaces);
        }
        if !flags.peers.is_empty() {
            self.peers.clone_from(&flags.peers);
        }
        let flags = flags.clone();
        self.lan = flags.lan.or(self.lan.take());
        self.lan_ipv4 = flags.lan_ipv4.or(self.lan_ipv4);
        self.tun = flags.tun.or(self.tun.take());
        self.network_key = flags.network_key.or(self.network_key.take());
        self.state = flags.state.or(self.state.take());
        self.port = flags.port.or(self.port);
        self.numbers = flags.numbers.or(self.numbers);
        self.transport = flags.transport.or(self.transport);
    }

    /// Returns the settings of the router of a server of `domain` that listens so.
    ///
    /// # Errors
    /// There is no directory for its identity.
    pub fn router(&self, domain: &str, listen: &[Listen]) -> std::io::Result<Settings> {
        let tun = self.tun.clone().unwrap_or_else(|| TUN.to_owned());
        let interfaces = match self.interfaces.is_empty() && self.peers.is_empty() {
            true => all_interfaces(&tun, self.lan.as_deref()),
            false => self.interfaces.clone(),
        };
        let state = match &self.state {
            Some(state) => state.clone(),
            None => host::state_directory()?.join("mesh"),
        };
        Ok(Settings {
            interfaces,
            peers: self.peers.clone(),
            lan: self.lan.clone(),
            lan_ipv4: self.lan_ipv4,
            sip: Some(service(domain, listen)),
            tun,
            network_key: self.network_key.clone(),
            state,
            port: self.port.unwrap_or(PORT),
            ..Settings::default()
        })
    }
}

/// Returns what hosts of the LAN are to know of the server.
fn service(domain: &str, listen: &[Listen]) -> SipService {
    let port = |transport: Transport| {
        let is_it = |l: &&Listen| l.transport == transport && l.encapsulation.is_none();
        listen.iter().find(is_it).map(|l| l.addr.port())
    };
    SipService {
        domain: domain.to_owned(),
        udp: port(Transport::Udp).unwrap_or(SIP_PORT),
        tcp: port(Transport::Tcp).unwrap_or(SIP_PORT),
        sctp: port(Transport::Sctp),
        tls: port(Transport::Tls),
    }
}

/// Returns the names of all interfaces on which other routers may be, in order.
fn all_interfaces(tun: &str, lan: Option<&str>) -> Vec<String> {
    let wanted = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_MULTICAST;
    let unwanted = InterfaceFlags::IFF_LOOPBACK | InterfaceFlags::IFF_POINTOPOINT;
    let interfaces = getifaddrs().into_iter().flatten();
    let mut names: Vec<String> = interfaces
        .filter(|i| i.flags.contains(wanted) && !i.flags.intersects(unwanted))
        .map(|i| i.interface_name)
        .filter(|name| name != tun && Some(&**name) != lan)
        .collect();
    names.sort();
    names.dedup();
    names
}
