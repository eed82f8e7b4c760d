//! [`Following`] between the tables of a server and its world.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringway_proxy::location::Change as Why;
use ringway_proxy::location::LocationStore;
use ringway_proxy::shared::Shared;
use ringway_proxy::states::{Form, OTHER_SERVERS, Report, ServerContact};
use ringway_sansio::time::sooner;
use ringway_sansio::{Random, Time};

use super::{Config, Counts, Event, Following, IsOurs, ServerId};

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
    form: Form,
    /// Why users whom others follow have changed last.
    reasons: BTreeMap<Box<str>, Why>,
    shared: Arc<Shared>,
    location: Arc<dyn LocationStore>,
}

impl<I: ServerId> Carrier<I> {
    /// For the server `id`, which has these tables. `number` distinguishes servers.
    pub fn new(
        config: Config,
        (id, number): (I, fn(I) -> u64),
        is_ours: IsOurs,
        shared: Arc<Shared>,
        location: Arc<dyn LocationStore>,
    ) -> Self {
        let form = config.form;
        if form == Form::Contacts {
            shared.states.share_contacts();
        }
        let following = Following::new(config, id, is_ours);
        Carrier { following, number, form, reasons: BTreeMap::new(), shared, location }
    }

    /// Returns what is counted.
    pub fn counts(&self) -> Counts {
        let counts = self.following.counts();
        Counts { refused: counts.refused + self.shared.states.without_room(), ..counts }
    }

    /// Returns when [`Carrier::work`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.following.poll_timeout()
    }

    /// A user is watched here or not any more, or has changed here, for a reason if the registrations have. Returns the user
    /// with its domain, and whether it is followed at other servers now.
    pub fn changed<'a>(
        &mut self,
        now: Time,
        aor: &'a [u8],
        why: Option<Why>,
    ) -> Option<(&'a str, bool)> {
        let name = std::str::from_utf8(aor.strip_prefix(b"sip:")?).ok()?;
        let is_watched = self.shared.states.is_watched(aor);
        if is_watched != self.following.is_watched(name) {
            self.following.set_watched(now, name, is_watched);
        }
        if let Some(why) = why.filter(|_| self.following.is_followed(name)) {
            self.reasons.insert(name.into(), why);
        }
        self.following.changed(now, name);
        Some((name, self.following.is_watched(name)))
    }

    /// These are the servers at which a user is registered; `None` if that could not be found out. It need not have been
    /// asked for.
    pub fn located(&mut self, now: Time, name: &str, servers: Option<&[I]>) {
        self.following.located(now, name, servers);
    }

    /// A user who is watched here has moved, as for [`Following::moved`].
    pub fn moved(&mut self, now: Time, aor: &[u8]) {
        let name = aor.strip_prefix(b"sip:").and_then(|name| std::str::from_utf8(name).ok());
        name.into_iter().for_each(|name| self.following.moved(now, name));
    }

    /// All users may have moved, as for [`Following::may_have_moved`].
    pub fn may_have_moved(&mut self, now: Time) {
        self.following.may_have_moved(now);
    }

    /// Messages may have been lost, as for [`Following::renew`].
    pub fn renew(&mut self, now: Time) {
        self.following.renew(now);
    }

    /// Servers may be gone, as for [`Following::retain`].
    pub fn retain(&mut self, now: Time, is_alive: &dyn Fn(I) -> bool) {
        self.following.retain(now, is_alive);
    }

    /// Another server has sent a message.
    pub fn handle_message(&mut self, now: Time, from: I, octets: &[u8]) {
        self.following.handle_message(now, from, octets);
    }

    /// Does what is due.
    pub fn work(&mut self, now: Time, random: &mut dyn Random, world: &mut dyn World<I>) {
        let Carrier { following, shared, location, form, reasons, .. } = self;
        if following.poll_timeout().is_some_and(|due| due <= now) {
            let local = &mut |name: &str| {
                let aor = aor_of(name);
                let (mut report, mut next) = (Report::default(), None);
                let count = location.lookup(&aor, now, &mut |binding| {
                    if *form == Form::Contacts {
                        next = sooner(next, Some(binding.expires));
                        ServerContact::new(binding).into_iter().for_each(|of| report.add(of));
                    }
                });
                let (state, changes) = shared.states.local(now, &aor, count > 0);
                report.state = state;
                if let Some(why) = reasons.get(name) {
                    report.ended = *why;
                }
                (report, sooner(next, changes))
            };
            following.handle_timeout(now, local, random);
        }
        while let Some(event) = self.following.poll_event() {
            self.handle(now, event, world);
        }
    }

    fn handle(&mut self, now: Time, event: Event<I>, world: &mut dyn World<I>) {
        let Carrier { following, number, shared, location, reasons, .. } = self;
        match event {
            // What finds no room is repeated.
            Event::Send { to, octets } => world.send(to, octets),
            Event::Locate { name } => match world.locate(&name) {
                Whereabouts::At(servers) => following.located(now, &name, Some(&servers)),
                Whereabouts::Unknown => following.located(now, &name, None),
                Whereabouts::Asked => {}
            },
            Event::Report { name, server, report, expires } => {
                shared.states.set_elsewhere(&aor_of(&name), number(server), report, expires);
            }
            Event::Renew { name, server, expires } => {
                shared.states.renew_elsewhere(&aor_of(&name), number(server), expires);
            }
            Event::End { name, server, why } => {
                shared.states.end_elsewhere(&aor_of(&name), number(server), why);
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
                reasons.remove(&name);
            }
        }
    }
}

fn aor_of(name: &str) -> Vec<u8> {
    format!("sip:{name}").into_bytes()
}
