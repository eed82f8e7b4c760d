//! What a router knows of itself.

use std::sync::Arc;

use ringway_sansio::Random;

use crate::crypto::NetworkKey;
use crate::id::{Instance, NodeId, Sequence};
use crate::identity::Identity;

/// The identity of the local router, its network, and its start.
#[derive(Clone, Debug)]
pub struct LocalRouter {
    /// Who it is.
    pub identity: Arc<Identity>,
    /// The key of its network.
    pub network: NetworkKey,
    /// Zero bits that hash extensions must have.
    pub extension_bits: u8,
    /// Its start.
    pub instance: Instance,
    sequence: Sequence,
}

impl LocalRouter {
    /// A router that starts now, `epoch` seconds after 1970.
    pub fn new(
        identity: impl Into<Arc<Identity>>,
        network: NetworkKey,
        extension_bits: u8,
        epoch: u32,
        random: &mut dyn Random,
    ) -> LocalRouter {
        let instance = Instance(random.next_u64() as u32);
        let sequence = Sequence { epoch, count: 0 };
        let identity = identity.into();
        LocalRouter { identity, network, extension_bits, instance, sequence }
    }

    /// Returns its id.
    pub fn id(&self) -> NodeId {
        self.identity.id()
    }

    /// Returns the number of its next statement about itself.
    pub(crate) fn next_sequence(&mut self) -> Sequence {
        self.sequence.count = self.sequence.count.saturating_add(1);
        self.sequence
    }
}
