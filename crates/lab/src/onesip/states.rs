//! What users do at other routers: what `ringway serve --mesh` carries between routers, without its thread.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use ringway_directory::Command;
use ringway_mesh::NodeId;
use ringway_onesip::follow::{self, Carrier};
use ringway_proxy::location::MemoryStore;
use ringway_proxy::shared::Shared;
use ringway_proxy::states::{OTHER_SERVERS, States};
use ringway_sansio::{Random, Time};

use super::users::DOMAIN;

/// Addresses-of-record that have changed.
type Changed = Arc<Mutex<BTreeSet<Box<[u8]>>>>;

/// Carries the states of users between routers.
pub(super) struct StateCarrier {
    pub(super) carrier: Carrier,
    shared: Arc<Shared>,
    changed: Changed,
}

impl StateCarrier {
    /// Of the router `id`, whose proxy has these tables. Changes for workers are not reported to its one worker.
    pub(super) fn new(id: NodeId, shared: Arc<Shared>, location: Arc<MemoryStore>) -> Self {
        let changed = Changed::default();
        let put = |changed: &Changed, watcher: u8, aor: &[u8]| {
            if watcher == OTHER_SERVERS {
                changed.lock().unwrap_or_else(PoisonError::into_inner).insert(aor.into());
            }
        };
        let to = changed.clone();
        shared.states.set_sink(Arc::new(move |watcher, aor| {
            put(&to, watcher, aor);
            true
        }));
        let to = changed.clone();
        location.set_sink(Arc::new(move |watcher, aor, _| put(&to, watcher, aor)));
        StateCarrier {
            carrier: follow::carrier(DOMAIN, id, shared.clone(), location),
            shared,
            changed,
        }
    }

    /// Returns the states of users at this router.
    pub(super) fn states(&self) -> &States {
        &self.shared.states
    }

    /// Does what is due. Returns commands for the directory.
    pub(super) fn work(&mut self, now: Time, random: &mut dyn Random) -> Vec<Command> {
        let mut commands = Vec::new();
        let changed =
            std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
        for aor in &changed {
            self.carrier.changed(now, aor, None);
        }
        let mut send = |command| {
            commands.push(command);
            true
        };
        self.carrier.work(now, random, &mut follow::Router(&mut send));
        commands
    }
}
