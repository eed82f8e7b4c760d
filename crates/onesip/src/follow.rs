//! What users do at other routers, for those who watch them at this one: [`ringway_follow`] with the messages of a mesh and
//! its directory.

use std::sync::Arc;

use ringway_directory::private::SERVICE_STATES;
use ringway_directory::service::Command;
use ringway_follow::{Config, MAX_NAME, Whereabouts, World};
use ringway_mesh::NodeId;
use ringway_proxy::location::LocationStore;
use ringway_proxy::shared::Shared;

use crate::broker::Send;

const _: () = assert!(MAX_NAME == ringway_directory::config::MAX_NAME);

/// Carries states of users between the tables of a server and other routers.
pub type Carrier = ringway_follow::Carrier<NodeId>;

/// Returns what carries states for the users of a domain, at the router `id`, whose server has these tables.
pub fn carrier(
    domain: &str,
    id: NodeId,
    shared: Arc<Shared>,
    location: Arc<dyn LocationStore>,
) -> Carrier {
    let domain: Box<str> = domain.into();
    let is_ours = Box::new(move |of: &str| *of == *domain);
    Carrier::new(Config::of_router(), (id, |id| id.raw()), is_ours, shared, location)
}

/// The router, which takes commands.
pub struct Router<'a>(pub Send<'a>);

impl World<NodeId> for Router<'_> {
    fn send(&mut self, to: NodeId, octets: Box<[u8]>) {
        // What finds no room is repeated.
        (self.0)(Command::Send { to, service: SERVICE_STATES, octets });
    }

    fn locate(&mut self, name: &str) -> Whereabouts<NodeId> {
        match (self.0)(Command::Locate { name: name.into() }) {
            true => Whereabouts::Asked,
            false => Whereabouts::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_a_service() {
        let max = ringway_directory::private::MAX_SERVICE;
        assert_eq!(Config::of_router().max_message, max);
    }
}
