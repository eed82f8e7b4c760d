//! What starts the thread that carries what users do between servers, of a mesh or a cluster.

use std::io;
use std::sync::Arc;

use ringway_net::Clock;
use ringway_onesip::follow;
use ringway_proxy::location::Change;
use ringway_proxy::shared::Shared;

use crate::cluster::ClusterThread;
use crate::mesh::MeshThread;
use crate::states::{self, UserStates};
use crate::store::Store;

/// Takes changes of users who are followed at other servers, or whom these follow.
pub(crate) type Changes = Arc<dyn Fn(&[u8], Option<Change>) + Send + Sync>;

/// Returns what takes changes for other servers, if there are any.
pub(crate) fn changes(
    mesh: Option<&MeshThread>,
    cluster: Option<&ClusterThread>,
) -> Option<Changes> {
    if let Some(inbox) = mesh.map(|mesh| mesh.states().clone()) {
        return Some(Arc::new(move |aor, why| inbox.changed(aor, why)));
    }
    let inbox = cluster?.hub().world().states().clone();
    Some(Arc::new(move |aor, why| inbox.changed(aor, why)))
}

/// Starts what carries the states of users between servers.
pub(crate) fn start(
    mesh: Option<&MeshThread>,
    cluster: Option<&ClusterThread>,
    (store, shared): (&Store, &Arc<Shared>),
    clock: Clock,
) -> io::Result<Option<UserStates>> {
    let (shared, location) = (shared.clone(), store.location().clone());
    if let Some(mesh) = mesh {
        let Some(id) = mesh.exchange().id() else { return Ok(None) };
        let carrier = follow::carrier(mesh.exchange().domain(), id, shared, location);
        let (commands, inbox) = (mesh.commands().clone(), mesh.states().clone());
        let link = states::routers::Routers { commands, inbox: inbox.clone() };
        return UserStates::start(carrier, link, inbox, clock).map(Some);
    }
    let Some(cluster) = cluster else { return Ok(None) };
    let carrier = states::nodes::carrier(cluster.hub(), shared, location);
    let inbox = cluster.hub().world().states().clone();
    let link = states::nodes::Nodes::new(cluster.hub().clone(), cluster.letters().clone());
    UserStates::start(carrier, link, inbox, clock).map(Some)
}
