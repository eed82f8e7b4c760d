//! The routers of a mesh, for the thread of states.

use std::sync::Arc;

use ringway_directory::Command;
use ringway_follow::{Whereabouts, World};
use ringway_mesh::NodeId;
use ringway_onesip::follow::Router;
use ringway_sansio::Time;
use tokio::sync::mpsc;

use super::Link;
use super::inbox::Inbox;

/// The directory of a router.
pub(crate) struct Routers {
    /// The router's.
    pub(crate) commands: mpsc::Sender<Command>,
    /// What comes from the router and the workers.
    pub(crate) inbox: Arc<Inbox<NodeId>>,
}

impl Link for Routers {
    type Id = NodeId;

    fn send(&mut self, to: NodeId, octets: Box<[u8]>) -> bool {
        let mut is_sent = true;
        let mut send = |command| {
            is_sent = self.commands.try_send(command).is_ok();
            is_sent
        };
        Router(&mut send).send(to, octets);
        is_sent
    }

    fn locate(&mut self, _now: Time, name: &str) -> Whereabouts<NodeId> {
        Router(&mut |command| self.commands.try_send(command).is_ok()).locate(name)
    }

    fn set_followed(&mut self, name: &str, is_followed: bool) {
        self.inbox.follow(name, is_followed);
    }
}
