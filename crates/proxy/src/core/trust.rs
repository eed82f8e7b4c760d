//! Trusted peers, routers of the mesh, and what is hidden from others.

use super::request::IncomingRequest;
use crate::config::{ClusterNodes, Config, MeshNetwork, Network};
use ringway_sansio::Flow;
use ringway_sip::header::HeaderId;
use ringway_sip::message::Message;
use ringway_sip::transaction::table::MAX_AMPLIFICATION;
use std::net::IpAddr;

/// The trusted peers, the routers of the mesh, and whether all others must authenticate.
pub(super) struct Trust {
    digest: bool,
    networks: Vec<Network>,
    mesh: Option<MeshNetwork>,
    nodes: ClusterNodes,
}

impl Trust {
    pub(super) fn new(config: &Config) -> Trust {
        let (digest, networks) = (config.auth.enabled, config.trusted.clone());
        Trust { digest, networks, mesh: config.mesh, nodes: config.nodes.clone() }
    }

    /// Returns whether users must authenticate.
    pub(super) fn asks_for_proof(&self) -> bool {
        self.digest
    }

    /// Returns whether an address belongs to a trusted peer.
    pub(super) fn is_trusted(&self, ip: IpAddr) -> bool {
        self.networks.iter().any(|n| n.contains(ip))
    }

    /// Returns whether a message comes from a trusted peer. A router of the mesh is none, even if its address is in a
    /// trusted network: it sends for its own users.
    pub(super) fn trusts(&self, flow: &Flow) -> bool {
        self.is_trusted(flow.remote.ip()) && self.router(flow).is_none()
    }

    /// Returns the address of the router of the mesh, or of the node of the cluster, that a message has come from by its
    /// address, which proves no node: for rates, and for what a router has less right to than others.
    pub(super) fn router(&self, flow: &Flow) -> Option<IpAddr> {
        self.mesh.and_then(|mesh| mesh.router(flow)).or_else(|| self.nodes.node(flow))
    }

    /// Returns the address of the router of the mesh, or of the node of the cluster, that has sent a request and vouches
    /// for its users.
    pub(super) fn sender(&self, incoming: &IncomingRequest<'_>) -> Option<IpAddr> {
        let router = self.mesh.and_then(|mesh| mesh.router(incoming.flow));
        router.or_else(|| self.node(incoming))
    }

    /// Returns the address of the node of the cluster that has sent a request.
    pub(super) fn node(&self, incoming: &IncomingRequest<'_>) -> Option<IpAddr> {
        self.nodes.node(incoming.flow).filter(|_| self.nodes.is_proved(incoming.msg))
    }

    /// Returns whether a request has the key of this node, and has not come from a node that is known to live. Its sender may be
    /// one whose lease was read by none of the others yet, or has been lost.
    pub(super) fn is_unknown_node(&self, incoming: &IncomingRequest<'_>) -> bool {
        self.nodes.is_proved(incoming.msg) && self.nodes.node(incoming.flow).is_none()
    }

    /// Returns whether asserted identities are removed from a message: it comes from a peer that is not trusted, or
    /// asks for privacy and goes to one (RFC 3325 sections 5 and 7).
    pub(super) fn strips_identity(&self, from: &Flow, to: IpAddr, msg: &Message<'_>) -> bool {
        if !self.digest {
            return false;
        }
        let private = || {
            let values = msg.first(HeaderId::Privacy).unwrap_or_default();
            values.split(|&b| b == b';').any(|v| v.trim_ascii().eq_ignore_ascii_case(b"id"))
        };
        !self.trusts(from) || private() && !self.is_trusted(to)
    }

    /// Returns the number of octets that may be sent in answer to a request of `octets` before its sender has proved
    /// anything; [`u32::MAX`] if there is no limit. The mesh proves the address of a router.
    pub(super) fn repeat_credit(&self, flow: &Flow, octets: usize) -> u32 {
        if !flow.transport.is_datagram()
            || !self.digest
            || self.is_trusted(flow.remote.ip())
            || self.router(flow).is_some()
        {
            return u32::MAX;
        }
        (octets as u32).saturating_mul(MAX_AMPLIFICATION)
    }
}
