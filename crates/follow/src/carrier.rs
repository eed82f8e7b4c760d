//! [`Following`] between the tables of a server and its world.

use std::sync::Arc;

use ringway_proxy::location::{Change, LocationStore};
use ringway_proxy::shared::Shared;
use ringway_proxy::states::OTHER_SERVERS;
use ringway_sansio::{Random, Time};

use super::{Counts, Event, Following, IsOurs, ServerId};

/// Where a user is registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts<I> {
    /// At these servers.
    At(Vec<I>),
    /// That cannot be found out now.
    Unknown,
    /// [`Carrier::located`] follows.
    Asked,
}

/// What carries messages and knows where users are. Nothing of it may wait.
pub trait World<I> {
    /// Sends a message, which may be lost.
    fn send(&mut self, to: I, octets: Box<[u8]>);

    /// Asks where a user is registered.
    fn locate(&mut self, name: &str) -> Whereabouts<I>;
}

/// Carries states of users between the tables of a server and other servers. Its world passes it what the sinks of both
/// tables have for [`OTHER_SERVERS`], and where users are.
pub struct Carrier<I> {
    following: Following<I>,
    /// Returns the number by which a server is known in the table of states.
    number: fn(I) -> u64,
    shared: Arc<Shared>,
    location: Arc<dyn LocationStore>,
}

impl<I: ServerId> Carrier<I> {
    /// For the server `id`, which has these tables. `number` distinguishes servers.
    pub fn new(
        (id, number): (I, fn(I) -> u64),
        is_ours: IsOurs,
        shared: Arc<Shared>,
        location: Arc<dyn LocationStore>,
    ) -> Self {
        Carrier { following: Following::new(id, is_ours), number, shared, location }
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
    /// followed at other servers now.
    pub fn changed<'a>(&mut self, now: Time, aor: &'a [u8]) -> Option<(&'a str, bool)> {
        let name = std::str::from_utf8(aor.strip_prefix(b"sip:")?).ok()?;
        let is_watched = self.shared.states.is_watched(aor);
        if is_watched != self.following.is_watched(name) {
            self.following.set_watched(now, name, is_watched);
        }
        self.following.changed(now, name);
        Some((name, self.following.is_watched(name)))
    }

    /// These are the servers at which a user is registered; `None` if that could not be found out. It need not have been
    /// asked for.
    pub fn located(&mut self, now: Time, name: &str, servers: Option<&[I]>) {
        self.following.located(now, name, servers);
    }

    /// Another server has sent a message.
    pub fn handle_message(&mut self, now: Time, from: I, octets: &[u8]) {
        self.following.handle_message(now, from, octets);
    }

    /// Does what is due.
    pub fn work(&mut self, now: Time, random: &mut dyn Random, world: &mut dyn World<I>) {
        let Carrier { following, shared, location, .. } = self;
        if following.poll_timeout().is_some_and(|due| due <= now) {
            let local = &mut |name: &str| {
                let aor = aor_of(name);
                let is_registered = location.lookup(&aor, now, &mut |_| {}) > 0;
                shared.states.local(now, &aor, is_registered)
            };
            following.handle_timeout(now, local, random);
        }
        while let Some(event) = self.following.poll_event() {
            self.handle(now, event, world);
        }
    }

    fn handle(&mut self, now: Time, event: Event<I>, world: &mut dyn World<I>) {
        let Carrier { following, number, shared, location } = self;
        match event {
            // What finds no room is repeated.
            Event::Send { to, octets } => world.send(to, octets),
            Event::Locate { name } => match world.locate(&name) {
                Whereabouts::At(servers) => following.located(now, &name, Some(&servers)),
                Whereabouts::Unknown => following.located(now, &name, None),
                Whereabouts::Asked => {}
            },
            Event::Report { name, server, state } => {
                let (aor, server) = (aor_of(&name), number(server));
                match state {
                    Some((state, expires)) => {
                        shared.states.set_elsewhere(&aor, server, state.into(), expires);
                    }
                    None => shared.states.end_elsewhere(&aor, server, Change::Updated),
                }
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
