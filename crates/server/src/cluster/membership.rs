//! The node that a server is, and its database.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ringway_cluster::NodeName;
use ringway_sansio::Transport;

use crate::config::{DatabaseUri, Listen, Settings, StoreKind};
use crate::host;

/// A node and its database.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The database.
    pub database: DatabaseUri,
    /// Its trust anchors, in PEM.
    pub roots: Option<Vec<u8>>,
    /// The name of the node.
    pub name: NodeName,
    /// Number of replicas that must have a registration.
    pub replicas: u32,
}

impl Membership {
    /// Returns the node that a server with these settings and listeners is, if it is one.
    ///
    /// # Errors
    /// One line that says what is missing or contradicts.
    pub fn of(settings: &Settings, listen: &[Listen]) -> Result<Option<Membership>, String> {
        let Some(StoreKind::Redis(database)) = &settings.store else { return Ok(None) };
        let cluster = &settings.cluster;
        if settings.mesh.is_some() {
            return Err(format!("store {database}: a router of a mesh finds others by the mesh"));
        }
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|e| format!("cluster.roots: {}: {e}", path.display()))
        };
        let addresses = host::addresses();
        let name = name(cluster.address.as_ref(), listen, host::address_for_phones(&addresses))?;
        Ok(Some(Membership {
            database: (**database).clone(),
            roots: cluster.roots.as_ref().map(read).transpose()?,
            name,
            replicas: cluster.replicas,
        }))
    }
}

/// Returns the name of a node. A wildcard stands for the host's address.
fn name(address: Option<&Listen>, listen: &[Listen], host: IpAddr) -> Result<NodeName, String> {
    let usable = |l: &&Listen| matches!(l.transport, Transport::Udp | Transport::Tcp);
    let first = || {
        let of = |transport| listen.iter().find(move |l| l.transport == transport);
        of(Transport::Udp).or_else(|| of(Transport::Tcp))
    };
    let Some(at) = address.or_else(first).filter(usable) else {
        return Err("cluster.address: nodes need a listener for UDP or TCP".to_owned());
    };
    let ip = if at.addr.ip().is_unspecified() { host } else { at.addr.ip() };
    let address = SocketAddr::new(ip, at.addr.port());
    Ok(NodeName { address, tcp: at.transport == Transport::Tcp })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_by_its_address_or_its_first_listener() {
        let listen: Vec<Listen> =
            ["tls://192.0.2.1:5061", "tcp://192.0.2.1:5060", "udp://0.0.0.0:5070"]
                .map(|text| text.parse().unwrap())
                .into();
        let host = IpAddr::from([192, 0, 2, 9]);
        let of = |address: Option<&str>, listen: &[Listen]| {
            let address = address.map(|text| text.parse::<Listen>().unwrap());
            name(address.as_ref(), listen, host).map(|name| name.to_string())
        };
        assert_eq!(of(None, &listen).unwrap(), "sip:192.0.2.9:5070");
        assert_eq!(of(None, &listen[..2]).unwrap(), "sip:192.0.2.1:5060;transport=tcp");
        assert_eq!(of(Some("udp://192.0.2.3:5080"), &listen).unwrap(), "sip:192.0.2.3:5080");
        assert!(of(None, &listen[..1]).unwrap_err().contains("UDP or TCP"));
    }
}
