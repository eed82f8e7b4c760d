//! What users do at other routers: the machine of `ringway serve --mesh`, and what it needs of a router.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use ringway_directory::Command;
use ringway_directory::private::SERVICE_STATES;
use ringway_mesh::NodeId;
use ringway_onesip::Following;
use ringway_onesip::follow::Event;
use ringway_proxy::location::{LocationStore, MemoryStore};
use ringway_proxy::shared::Shared;
use ringway_proxy::states::{OTHER_SERVERS, States};
use ringway_sansio::{Random, Time};

use super::users::DOMAIN;

/// Addresses-of-record that have changed.
type Changed = Arc<Mutex<BTreeSet<Box<[u8]>>>>;

/// Carries the states of users between routers.
pub(super) struct StateCarrier {
    pub(super) following: Following,
    shared: Arc<Shared>,
    location: Arc<MemoryStore>,
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
        shared.states.set_sink(Arc::new(move |watcher, aor| put(&to, watcher, aor)));
        let to = changed.clone();
        location.set_sink(Arc::new(move |watcher, aor, _| put(&to, watcher, aor)));
        StateCarrier { following: Following::new(DOMAIN, id), shared, location, changed }
    }

    /// Returns the states of users at this router.
    pub(super) fn states(&self) -> &States {
        &self.shared.states
    }

    /// Does what is due. Returns commands for the directory.
    pub(super) fn work(&mut self, now: Time, random: &mut dyn Random) -> Vec<Command> {
        let StateCarrier { following, shared, location, changed } = self;
        let mut commands = Vec::new();
        let changed = std::mem::take(&mut *changed.lock().unwrap_or_else(PoisonError::into_inner));
        for aor in &changed {
            let name = aor.strip_prefix(b"sip:").and_then(|name| std::str::from_utf8(name).ok());
            if let Some(name) = name {
                following.set_watched(now, name, shared.states.is_watched(aor));
                following.changed(now, name);
            }
        }
        if following.poll_timeout().is_some_and(|due| due <= now) {
            let local = &mut |name: &str| {
                let aor = aor_of(name);
                let is_registered = location.lookup(&aor, now, &mut |_| {}) > 0;
                shared.states.local(now, &aor, is_registered)
            };
            following.handle_timeout(now, local, random);
        }
        while let Some(event) = following.poll_event() {
            match event {
                Event::Send { to, octets } => {
                    commands.push(Command::Send { to, service: SERVICE_STATES, octets });
                }
                Event::Locate { name } => commands.push(Command::Locate { name }),
                Event::Report { name, router, state } => {
                    shared.states.set_elsewhere(&aor_of(&name), router.raw(), state);
                }
                Event::Watch { name } => {
                    let aor = aor_of(&name);
                    shared.states.watch(&aor, OTHER_SERVERS);
                    location.watch(&aor, OTHER_SERVERS);
                    following.changed(now, &name);
                }
                Event::Unwatch { name } => {
                    let aor = aor_of(&name);
                    shared.states.unwatch(&aor, OTHER_SERVERS);
                    location.unwatch(&aor, OTHER_SERVERS);
                }
            }
        }
        commands
    }
}

fn aor_of(name: &str) -> Vec<u8> {
    format!("sip:{name}").into_bytes()
}
