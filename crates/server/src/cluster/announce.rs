//! What a node publishes when it starts: the registrations of its file.

use ringway_sansio::Time;

use super::Hub;
use crate::store::Store;

/// Has other nodes know who is registered here already, from the file.
pub(crate) fn announce_registered(store: &Store, hub: &Hub, now: Time) {
    let mut last: Option<(Vec<u8>, (u16, Time))> = None;
    let mut cursor = None;
    let publish = |one: Option<(Vec<u8>, (u16, Time))>| {
        if let Some((user, state)) = one {
            hub.changed(&user, Some(state), None);
        }
    };
    loop {
        cursor = store.location().list(cursor.as_ref(), 1000, now, &mut |aor, binding| {
            let (q, ends) = (binding.q, binding.expires);
            match &mut last {
                Some((user, state)) if *user == aor => {
                    *state = (state.0.max(q), state.1.max(ends));
                }
                _ => publish(last.replace((aor.to_vec(), (q, ends)))),
            }
        });
        if cursor.is_none() {
            break;
        }
    }
    publish(last);
}
