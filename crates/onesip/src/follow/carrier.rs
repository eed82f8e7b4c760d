//! [`Following`] between the tables of a server and its directory.

use std::sync::Arc;

use ringway_directory::private::SERVICE_STATES;
use ringway_directory::service::Command;
use ringway_mesh::NodeId;
use ringway_proxy::location::LocationStore;
use ringway_proxy::shared::Shared;
use ringway_proxy::states::OTHER_SERVERS;
use ringway_sansio::{Random, Time};

use super::{Counts, Event, Following};
use crate::broker::Send;

/// Carries states of users between the tables of a server and other routers. Its world passes it what the sinks of both
/// tables have for [`OTHER_SERVERS`], and what the directory reports.
pub struct Carrier {
    following: Following,
    shared: Arc<Shared>,
    location: Arc<dyn LocationStore>,
}

impl Carrier {
    /// For the users of a domain, at the router `id`, whose server has these tables.
    pub fn new(
        domain: &str,
        id: NodeId,
        shared: Arc<Shared>,
        location: Arc<dyn LocationStore>,
    ) -> Self {
        Carrier { following: Following::new(domain, id), shared, location }
    }

    /// Returns what is counted.
    pub fn counts(&self) -> Counts {
        self.following.counts()
    }

    /// Returns when [`Carrier::work`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.following.poll_timeout()
    }

    /// A user is watched here or not any more, or has changed here. Returns the user with its domain, and whether it is
    /// followed at other routers now.
    pub fn changed<'a>(&mut self, now: Time, aor: &'a [u8]) -> Option<(&'a str, bool)> {
        let name = std::str::from_utf8(aor.strip_prefix(b"sip:")?).ok()?;
        let is_watched = self.shared.states.is_watched(aor);
        if is_watched != self.following.is_watched(name) {
            self.following.set_watched(now, name, is_watched);
        }
        self.following.changed(now, name);
        Some((name, self.following.is_watched(name)))
    }

    /// The directory has found the routers at which a user is registered, or could not find out.
    pub fn located(&mut self, now: Time, name: &str, routers: Option<&[NodeId]>) {
        self.following.located(now, name, routers);
    }

    /// Another router has sent a message of [`SERVICE_STATES`].
    pub fn handle_message(&mut self, now: Time, from: NodeId, octets: &[u8]) {
        self.following.handle_message(now, from, octets);
    }

    /// Does what is due, and sends commands to the directory.
    pub fn work(&mut self, now: Time, random: &mut dyn Random, send: Send<'_>) {
        let Carrier { following, shared, location } = self;
        if following.poll_timeout().is_some_and(|due| due <= now) {
            let local = &mut |name: &str| {
                let aor = aor_of(name);
                let is_registered = location.lookup(&aor, now, &mut |_| {}) > 0;
                shared.states.local(now, &aor, is_registered)
            };
            following.handle_timeout(now, local, random);
        }
        while let Some(event) = self.following.poll_event() {
            self.handle(now, event, send);
        }
    }

    fn handle(&mut self, now: Time, event: Event, send: Send<'_>) {
        let Carrier { following, shared, location } = self;
        match event {
            // What finds no room is repeated.
            Event::Send { to, octets } => {
                send(Command::Send { to, service: SERVICE_STATES, octets });
            }
            Event::Locate { name } => {
                if !send(Command::Locate { name: name.clone() }) {
                    following.located(now, &name, None);
                }
            }
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
}

fn aor_of(name: &str) -> Vec<u8> {
    format!("sip:{name}").into_bytes()
}
