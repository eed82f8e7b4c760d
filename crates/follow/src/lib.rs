//! What users do at other servers, for those who watch them at this one, and the other way round: the servers are the routers
//! of a mesh, or the nodes of a cluster.
//!
//! A server *follows* the users that are watched at it: it asks where each is registered, and has these servers report what the
//! user does there. It *reports* to others what the users do that they follow. [`Following`] does both. It sends and receives
//! messages, which may be lost, and whose sender is known. Nothing here knows how they travel, nor how a user is located.
//!
//! | module | what it does |
//! |---|---|
//! | [`wire`] | the messages |
//! | `names` | the names that are watched here, and when each is located |
//! | `locals` | the names that others follow here |
//! | `peer` | what one other server has sent and is to be sent |
//! | [`Carrier`] | the same, between the tables of a server and its world |
//! | `agenda` | times, and paces |
//! | `server` | what names a server |
//! | `limits` | intervals and bounds |
//!
//! What is handled is answered by [`Following::handle_timeout`], which is due at once then.

#![forbid(unsafe_code)]

mod agenda;
mod carrier;
mod limits;
mod locals;
mod names;
mod peer;
mod server;
pub mod wire;

pub use carrier::{Carrier, Whereabouts, World};
pub use limits::*;
pub use server::ServerId;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use ringway_proxy::location::Change;
use ringway_proxy::states::{Clock, Report};
use ringway_sansio::time::sooner;
use ringway_sansio::{Malformed, Random, Time};

use agenda::Agenda;
use locals::Locals;
use names::{Name, Names};
use peer::{Heard, Peer};
use wire::{Item, Message};

/// Returns whether a domain is one of this server.
pub type IsOurs = Box<dyn Fn(&str) -> bool + Send>;

/// Returns what this server reports of a user, and the time at which that changes by itself.
pub type Local<'a> = &'a mut dyn FnMut(&str) -> (Report, Option<Time>);

/// What the world is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<I> {
    /// Sends a message, which may be lost.
    Send {
        /// The server.
        to: I,
        /// The message, of at most [`Config::max_message`] octets.
        octets: Box<[u8]>,
    },
    /// Asks where a user is: [`Following::located`] follows.
    Locate {
        /// The user.
        name: Box<str>,
    },
    /// A server has reported what a user does there.
    Report {
        /// The user.
        name: Box<str>,
        /// The server.
        server: I,
        /// The report.
        report: Report,
        /// When it ends.
        expires: Time,
    },
    /// A report ends later.
    Renew {
        /// The user.
        name: Box<str>,
        /// The server.
        server: I,
        /// When it ends.
        expires: Time,
    },
    /// A report ends now.
    End {
        /// The user.
        name: Box<str>,
        /// The server.
        server: I,
        /// Why.
        why: Change,
    },
    /// Other servers follow a user from now on: each change calls [`Following::changed`]. It is called once now, too, as
    /// there may have been one meanwhile.
    Watch {
        /// The user.
        name: Box<str>,
    },
    /// No other server follows a user any more.
    Unwatch {
        /// The user.
        name: Box<str>,
    },
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Names that are followed at other servers.
    pub names: usize,
    /// Followers of all names here.
    pub followers: usize,
    /// Messages that were malformed.
    pub malformed: u64,
    /// Names that found no room, watched here or followed by other servers, and reports whose contacts found none.
    pub refused: u64,
}

/// What a server follows, and what it reports.
pub struct Following<I> {
    config: Config,
    is_ours: IsOurs,
    own: I,
    names: Names<I>,
    locals: Locals<I>,
    peers: BTreeMap<I, Peer>,
    /// When each peer has something to do.
    due: Agenda<I>,
    events: VecDeque<Event<I>>,
    malformed: u64,
    refused: u64,
}

impl<I: ServerId> Following<I> {
    /// A server that follows nobody yet. Names are those of users of its domains, with the domain.
    pub fn new(config: Config, own: I, is_ours: IsOurs) -> Self {
        Following {
            names: Names::new(config.locating),
            config,
            is_ours,
            own,
            locals: Locals::default(),
            peers: BTreeMap::new(),
            due: Agenda::default(),
            events: VecDeque::new(),
            malformed: 0,
            refused: 0,
        }
    }

    /// Returns what is counted.
    pub fn counts(&self) -> Counts {
        Counts {
            names: self.names.len(),
            followers: self.locals.total(),
            malformed: self.malformed,
            refused: self.refused,
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event<I>> {
        self.events.pop_front()
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let own = sooner(self.names.poll_timeout(), self.locals.poll_timeout());
        sooner(own, self.due.first())
    }

    /// A name is watched here, or is not any more.
    pub fn set_watched(&mut self, now: Time, name: &str, is_watched: bool) {
        if is_watched {
            if self.is_ours(name) {
                self.refused += u64::from(!self.names.add(now, name));
            }
            return;
        }
        let Some((name, servers)) = self.names.remove(name) else { return };
        servers.into_iter().for_each(|server| self.unfollow(now, &name, server, Change::Updated));
    }

    /// Returns whether a name is watched here.
    pub fn is_watched(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// What a user does here may have changed.
    pub fn changed(&mut self, now: Time, name: &str) {
        self.locals.changed(now, name);
    }

    /// Takes the servers at which a user is registered; `None` if that could not be found out. It need not have been asked
    /// for.
    pub fn located(&mut self, now: Time, name: &str, servers: Option<&[I]>) {
        let Some((name, moved)) = self.names.located(name, servers, self.own) else { return };
        moved
            .removed
            .into_iter()
            .for_each(|server| self.unfollow(now, &name, server, Change::Updated));
        let mut is_settled = servers.is_some_and(|servers| !servers.is_empty());
        for server in self.names.servers(&name) {
            let is_new = moved.added.contains(&server);
            is_settled &= is_new || self.peers.get(&server).is_some_and(|of| of.is_settled(&name));
        }
        for server in moved.added {
            let config = &self.config;
            let peer = self.peers.entry(server).or_insert_with(|| Peer::new(config));
            peer.follow(now, &name);
            self.due.sooner(&server, now);
        }
        self.names.settle(now, &name, is_settled);
    }

    fn unfollow(&mut self, now: Time, name: &Name, server: I, why: Change) {
        let Some(peer) = self.peers.get_mut(&server) else { return };
        if peer.unfollow(name) {
            self.end(name, server, why);
        }
        self.due.sooner(&server, now);
    }

    fn end(&mut self, name: &str, server: I, why: Change) {
        self.events.push_back(Event::End { name: name.into(), server, why });
    }

    /// A user who is watched here has moved, as somebody reports: the user is located soon.
    pub fn moved(&mut self, now: Time, name: &str) {
        self.names.moved(now, name);
    }

    /// What was found out of users may be old: all who are watched here are located again.
    pub fn may_have_moved(&mut self, now: Time) {
        self.names.may_have_moved(now);
    }

    /// Messages may have been lost: all servers are asked again at once for what is followed there.
    pub fn renew(&mut self, now: Time) {
        for (server, peer) in &mut self.peers {
            peer.renew(now);
            self.due.sooner(server, now);
        }
    }

    /// Drops the servers that are gone: what they have reported ends, and so does what they follow. Their users are located
    /// again.
    pub fn retain(&mut self, now: Time, is_alive: &dyn Fn(I) -> bool) {
        let gone: Vec<I> = self.peers.keys().copied().filter(|server| !is_alive(*server)).collect();
        for server in gone {
            let Some(peer) = self.peers.remove(&server) else { continue };
            self.due.set(&server, None);
            let (reports, followers) = peer.end_all();
            for (name, was_reported) in reports {
                if was_reported {
                    self.end(&name, server, Change::ServerGone);
                }
                self.names.drop_server(&name, server);
                self.names.locate_soon(now, &name);
            }
            followers.iter().for_each(|name| self.drop_local(name, server));
        }
    }

    /// Returns whether others follow a name here.
    pub fn is_followed(&self, name: &str) -> bool {
        self.locals.contains(name)
    }

    /// Handles a message of another server.
    pub fn handle_message(&mut self, now: Time, from: I, octets: &[u8]) {
        if from == self.own {
            return;
        }
        if self.receive(now, from, octets).is_err() {
            self.malformed += 1;
        }
        if self.peers.contains_key(&from) {
            self.due.sooner(&from, now);
        }
    }

    fn receive(&mut self, now: Time, from: I, octets: &[u8]) -> Result<(), Malformed> {
        let Message { sent, items } = self.config.format().parse(octets)?;
        for item in items {
            match item {
                Item::Follow { lifetime: 0, name, .. } => self.drop_follower(from, name),
                Item::Follow { lifetime, version, name } => {
                    self.add_follower(now, from, name, lifetime, version);
                }
                Item::Followed { version, name } => {
                    let Some(peer) = self.peers.get_mut(&from) else { continue };
                    let heard = peer.followed(now, name, version);
                    self.heard(now, from, name, heard);
                }
                Item::State { version, name, state } => {
                    let clock = Clock { sent, received: now };
                    let report = Report::parse(state, self.config.form, clock)?;
                    let config = &self.config;
                    let peer = self.peers.entry(from).or_insert_with(|| Peer::new(config));
                    let heard = peer.state(now, name, version, report);
                    self.heard(now, from, name, heard);
                }
                Item::Ack { version, name } => {
                    let present = self.locals.get(name).map(|(version, _)| version);
                    if let (Some(peer), Some(present)) = (self.peers.get_mut(&from), present) {
                        peer.acknowledged(name, version, present);
                    }
                }
            }
        }
        Ok(())
    }

    fn heard(&mut self, now: Time, from: I, name: &str, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Report(report, expires) => {
                let (name, server) = (name.into(), from);
                self.events.push_back(Event::Report { name, server, report, expires });
            }
            Heard::Renew(expires) => {
                let (name, server) = (name.into(), from);
                self.events.push_back(Event::Renew { name, server, expires });
            }
            Heard::Absent(had_report, why) => {
                if had_report {
                    self.end(name, from, why);
                }
                self.names.locate_soon(now, &name.into());
            }
        }
    }

    /// Returns whether a name is one of a domain of this server.
    fn is_ours(&self, name: &str) -> bool {
        name.len() <= MAX_NAME
            && name
                .rsplit_once('@')
                .is_some_and(|(user, domain)| !user.is_empty() && (self.is_ours)(domain))
    }

    fn add_follower(&mut self, now: Time, from: I, name: &str, lifetime: u16, version: u64) {
        let is_known = self.peers.get(&from).is_some_and(|peer| peer.is_follower(name));
        if !(is_known || self.is_ours(name) && self.has_room_for(from)) {
            self.refused += 1;
            return;
        }
        let present = self.locals.get(name).map(|(version, _)| version);
        let (name, is_first) = self.locals.add(now, name, from);
        if is_first {
            self.events.push_back(Event::Watch { name: (&*name).into() });
        }
        let config = &self.config;
        let peer = self.peers.entry(from).or_insert_with(|| Peer::new(config));
        peer.follows(now, name, lifetime, (version, present));
    }

    /// Returns whether a server may follow one more name here, and makes room for it.
    fn has_room_for(&mut self, server: I) -> bool {
        let held = self.peers.get(&server).map_or(0, Peer::followers);
        if held >= self.config.max_of_server {
            return false;
        }
        if self.locals.total() < self.config.max_followers {
            return true;
        }
        let most = self.peers.iter_mut().max_by_key(|(_, peer)| peer.followers());
        let Some((&most, peer)) = most.filter(|(_, peer)| peer.followers() > held + 1) else {
            return false;
        };
        let evicted = peer.drop_any_follower();
        evicted.iter().for_each(|name| self.drop_local(name, most));
        true
    }

    fn drop_follower(&mut self, from: I, name: &str) {
        let dropped = self.peers.get_mut(&from).and_then(|peer| peer.drop_follower(name));
        dropped.iter().for_each(|name| self.drop_local(name, from));
    }

    fn drop_local(&mut self, name: &Name, server: I) {
        if self.locals.remove(name, server) {
            self.events.push_back(Event::Unwatch { name: (&**name).into() });
        }
    }

    /// Does what is due: reads states of this server that may have changed, locates names, and sends.
    pub fn handle_timeout(&mut self, now: Time, local: Local<'_>, random: &mut dyn Random) {
        while let Some(name) = self.locals.poll_check(now) {
            let followers = self.locals.set(now, &name, local(&name), self.config.form, random);
            let version = self.locals.get(&name).map_or(0, |(version, _)| version);
            for server in followers {
                if let Some(peer) = self.peers.get_mut(&server) {
                    peer.changed(now, &name, version);
                    self.due.sooner(&server, now);
                }
            }
        }
        while let Some(server) = self.due.pop(now) {
            self.serve(now, server);
        }
        while let Some(name) = self.names.poll_locate(now) {
            self.events.push_back(Event::Locate { name: (&*name).into() });
        }
    }

    /// Does what is due for one server.
    fn serve(&mut self, now: Time, server: I) {
        let Some(peer) = self.peers.get_mut(&server) else { return };
        let ended = peer.expire(now);
        for octets in peer.transmit(now, &self.locals, self.config.format()) {
            self.events.push_back(Event::Send { to: server, octets: octets.into() });
        }
        if peer.is_idle(now) {
            self.peers.remove(&server);
        } else {
            let due = peer.poll_timeout(now);
            self.due.set(&server, due);
        }
        ended.followers.iter().for_each(|name| self.drop_local(name, server));
        ended.reports.iter().for_each(|name| self.end(name, server, Change::ServerGone));
        ended.silent.iter().for_each(|name| self.names.locate_soon(now, name));
    }
}
