//! Messages that wait to be sent.

use ringway_mesh::NodeId;

use crate::wire::Packet;

/// A message to send to whoever is responsible for a position. A router is responsible for its own id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The position.
    pub to: NodeId,
    /// The octets, for a PAYLOAD of the mesh.
    pub octets: Vec<u8>,
    /// The best way there seems to have failed.
    pub by_another: bool,
}

impl Message {
    /// A message by the best way.
    pub(crate) fn to(to: NodeId, packet: &Packet<'_>) -> Message {
        Message { to, octets: packet.to_octets(), by_another: false }
    }
}
