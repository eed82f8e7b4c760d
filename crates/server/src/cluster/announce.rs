//! What a node publishes when it starts: the registrations of its file.

use ringway_cluster::Presence;
use ringway_sansio::Time;

use super::Hub;
use crate::store::Store;

/// Has other nodes know who is registered here already, from the file.
pub(crate) fn announce_registered(store: &Store, hub: &Hub, now: Time) {
    let mut last: Option<(Vec<u8>, Presence)> = None;
    let mut cursor = None;
    let publish = |one: Option<(Vec<u8>, Presence)>| {
        if let Some((user, state)) = one {
            hub.changed(&user, Some(state), None);
        }
    };
    loop {
        cursor =
            store.location().list(
                cursor.as_ref(),
                1000,
                now,
                &mut |aor, binding| match &mut last {
                    Some((user, state)) if *user == aor => state.add(binding),
                    _ => publish(last.replace((aor.to_vec(), Presence::of(binding)))),
                },
            );
        if cursor.is_none() {
            break;
        }
    }
    publish(last);
}
