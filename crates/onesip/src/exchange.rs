//! The broker of all workers of a server, which call from their threads and never wait.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_directory::{DeliveryId, Report, service::Command};
use ringway_mesh::NodeId;
use ringway_proxy::location::CommitTag;
use ringway_proxy::routes::RouteTable;
use ringway_proxy::{AskId, Question, Reply};
use ringway_sansio::{Time, Transport};

use crate::broker::{Broker, Counts, Event, name_of};

/// What carries commands to the directory, and events to the workers. Nothing of it may wait, or call the exchange.
pub trait World: Send + Sync {
    /// Takes a command. Returns whether there was room.
    fn send(&self, command: Command) -> bool;

    /// Returns whether commands find room.
    fn has_room(&self) -> bool;

    /// Carries an event to where it belongs.
    fn carry(&self, event: Event);
}

/// The connection of all workers with the directory.
pub struct Exchange<W> {
    domain: Box<str>,
    transport: Transport,
    world: W,
    broker: Mutex<Broker>,
}

impl<W: World> Exchange<W> {
    /// An exchange for the users of a domain, whose routers are reached by a transport: UDP, TCP or SCTP.
    pub fn new(domain: &str, transport: Transport, world: W) -> Self {
        let broker = Mutex::new(Broker::new(domain, transport));
        Exchange { domain: domain.into(), transport, world, broker }
    }

    /// Returns the transport by which other routers are reached.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns what carries commands and events.
    pub fn world(&self) -> &W {
        &self.world
    }

    /// Returns what is counted.
    pub fn counts(&self) -> Counts {
        self.lock().counts()
    }

    /// The router has its identity.
    pub fn set_id(&self, id: NodeId) {
        self.lock().set_id(id);
    }

    /// Returns the id of this router, once it is known.
    pub fn id(&self) -> Option<NodeId> {
        self.lock().id()
    }

    /// Returns the address of this router in the mesh, once it is known.
    pub fn address(&self) -> Option<Ipv6Addr> {
        self.lock().id().map(|id| id.prefix().router())
    }

    /// Returns the address-of-record of a user of this server that is named with the mark of this router, as
    /// [`Broker::unmarked`] does.
    pub fn unmarked(&self, aor: &[u8]) -> Option<Vec<u8>> {
        // Few names have a mark, and this is asked for every call.
        aor.contains(&b'~').then(|| self.lock().unmarked(aor))?
    }

    /// Returns the user of an address-of-record of the domain, with the domain.
    pub fn name_of<'a>(&self, aor: &'a [u8]) -> Option<&'a str> {
        name_of(&self.domain, aor)
    }

    /// Answers a question of a worker for a request from `source` now, or later by [`Event::Answered`].
    pub fn ask(&self, worker: u8, id: AskId, question: Question, source: IpAddr) -> Option<Reply> {
        self.turn(|broker, send| broker.ask((worker, id), question, source, send))
    }

    /// Visits the routers other than this one at which a user is registered, as [`Broker::visit`] does.
    pub fn visit(
        &self,
        name: &str,
        now: Time,
        visit: &mut dyn FnMut(Ipv6Addr, u16),
    ) -> Option<bool> {
        self.lock().visit(name, now, visit)
    }

    /// Visits the users that a name stands for, as [`Broker::aliases`] does.
    pub fn aliases(&self, name: &str, now: Time, visit: &mut dyn FnMut(&str, u16)) {
        self.lock().aliases(name, now, visit);
    }

    /// Returns the rules that other routers share; `None` if they must be asked for.
    pub fn shared_rules(&self, now: Time) -> Option<Arc<RouteTable>> {
        self.lock().shared_rules(now)
    }

    /// Returns whether a router may send as a user; `None` if that must be asked for.
    pub fn speaks_for(&self, router: IpAddr, name: &str, now: Time) -> Option<bool> {
        self.lock().speaks_for(router, name, now)
    }

    /// Returns whether a router is the home of a user; `None` if that must be asked for.
    pub fn is_home(&self, router: IpAddr, name: &str, now: Time) -> Option<bool> {
        self.lock().is_home(router, name, now)
    }

    /// A message of [`Event::Deliver`] was answered with this status.
    pub fn delivered(&self, id: DeliveryId, status: u16) {
        self.turn(|broker, send| broker.delivered(id, status, send));
    }

    /// Handles what the directory reports.
    pub fn handle(&self, now: Time, report: Report) {
        self.turn(|broker, send| broker.handle(now, report, send));
    }

    /// A user was registered here before the start. Returns the command for the directory.
    pub fn announce(&self, aor: &[u8]) -> Option<Command> {
        self.lock().announce(aor)
    }

    /// The registrations of a user have changed. Returns whether the change must wait, as [`Broker::changed`] does.
    pub fn changed(&self, name: &str, is_present: bool, tag: Option<CommitTag>) -> bool {
        self.turn(|broker, send| broker.changed(name, is_present, tag, send))
    }

    /// The disk has changes, or has refused them. Returns those that wait for nothing any more.
    pub fn disk(&self, worker: u8, ids: &[u64], ok: bool) -> Vec<u64> {
        let mut broker = self.lock();
        let is_over = |id: &&u64| broker.disk(CommitTag { worker, id: **id }, ok);
        ids.iter().filter(is_over).copied().collect()
    }

    /// A change that was announced by [`Exchange::changed`] is not made.
    pub fn cancel(&self, tag: CommitTag) {
        self.lock().cancel(tag);
    }

    fn lock(&self) -> MutexGuard<'_, Broker> {
        // Each change of the tables is complete before anything that could panic.
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the broker, and carries its events when its lock is free again.
    fn turn<T>(&self, call: impl FnOnce(&mut Broker, &mut dyn FnMut(Command) -> bool) -> T) -> T {
        let mut broker = self.lock();
        let result = call(&mut broker, &mut |command| self.world.send(command));
        let events: Vec<Event> = std::iter::from_fn(|| broker.poll_event()).collect();
        drop(broker);
        events.into_iter().for_each(|event| self.world.carry(event));
        result
    }
}
