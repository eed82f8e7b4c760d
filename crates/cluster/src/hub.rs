//! The machine, shared by threads: workers call it and never wait.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ringway_proxy::config::NodeKey;
use ringway_proxy::location::CommitTag;
use ringway_proxy::{AskId, Question, Reply};
use ringway_sansio::Time;

use crate::cache::Server;
use crate::exchange::{Command, Counts, Event, Report};
use crate::machine::Machine;
use crate::presence::Presence;
use crate::record::NodeName;

/// What carries events to the server. Nothing of it may wait, or call the hub.
pub trait World: Send + Sync {
    /// Has the thread of the database call [`Hub::turn`].
    fn wake(&self);

    /// Carries an event to where it belongs.
    fn carry(&self, event: Event);
}

/// The connection of all workers with the database.
pub struct Hub<W> {
    machine: Mutex<Machine>,
    world: W,
}

impl<W: World> Hub<W> {
    /// Returns the connection of a node.
    pub fn new(machine: Machine, world: W) -> Self {
        Hub { machine: Mutex::new(machine), world }
    }

    /// Returns what carries events.
    pub fn world(&self) -> &W {
        &self.world
    }

    /// Returns the name of this node.
    pub fn name(&self) -> NodeName {
        self.lock().config().name
    }

    /// Returns the secret by which this run recognises requests of other nodes.
    pub fn key(&self) -> NodeKey {
        self.lock().config().key
    }

    /// Returns what is counted.
    pub fn counts(&self) -> Counts {
        self.lock().counts()
    }

    /// Processes reports of the database, and what is due. Returns the commands for it, and the time of the next call.
    pub fn turn(
        &self,
        now: Time,
        reports: impl IntoIterator<Item = Report>,
    ) -> (Vec<Command>, Option<Time>) {
        let mut machine = self.lock();
        for report in reports {
            machine.handle(now, report);
        }
        machine.handle_timeout(now);
        let commands = std::iter::from_fn(|| machine.poll_command()).collect();
        let events: Vec<Event> = std::iter::from_fn(|| machine.poll_event()).collect();
        let next = machine.poll_timeout();
        drop(machine);
        for event in events {
            self.world.carry(event);
        }
        (commands, next)
    }

    /// Answers a question of a worker now, or later by [`Event::Answered`].
    pub fn ask(&self, now: Time, worker: u8, id: AskId, question: &Question) -> Option<Reply> {
        let Question::Location { aor } = question else { return Some(Reply::Unavailable) };
        let reply = self.lock().ask(now, aor, worker, id);
        if reply.is_none() {
            self.world.wake();
        }
        reply
    }

    /// The disk has registrations of a worker, or has failed to take them. Returns those that are over.
    pub fn on_disk(&self, worker: u8, ids: &[u64], ok: bool) -> Vec<u64> {
        let mut machine = self.lock();
        let is_over = |id: &u64| machine.on_disk(CommitTag { worker, id: *id }, ok);
        ids.iter().copied().filter(is_over).collect()
    }

    /// Visits the other nodes at which a user is registered, as [`Machine::visit`] does.
    pub fn visit(
        &self,
        user: &[u8],
        now: Time,
        visit: &mut dyn FnMut(&Server, NodeKey),
    ) -> Option<bool> {
        self.lock().visit(user, now, visit)
    }

    /// Returns the runs at which a user is registered, as [`Machine::registered_at`] does.
    pub fn registered_at(&self, user: &[u8], now: Time) -> Option<Vec<(NodeName, u64)>> {
        self.lock().registered_at(user, now)
    }

    /// Has changes of a user be reported, as for [`Machine::follow`].
    pub fn follow(&self, user: &[u8], is_followed: bool) {
        self.lock().follow(user, is_followed);
    }

    /// Returns the runs that live, as [`Machine::runs`] does.
    pub fn runs(&self) -> ((NodeName, u64), Vec<(NodeName, u64)>) {
        self.lock().runs()
    }

    /// Returns whether a message is taken: it is for this run, and comes from a run of another node that lives.
    pub fn takes_letters(&self, from: NodeName, boot: u64, to: u64) -> bool {
        let machine = self.lock();
        machine.config().boot == to && machine.lives(from, boot)
    }

    /// Returns whether this run of another node lives.
    pub fn lives(&self, node: NodeName, boot: u64) -> bool {
        self.lock().lives(node, boot)
    }

    /// A registration of a user may be taken, as [`Machine::takes_registrations`] decides.
    pub fn takes_registrations(&self, user: &[u8]) -> bool {
        self.lock().takes_registrations(user)
    }

    /// The phones of this node are moved to others, as for [`Machine::move_phones`].
    pub fn move_phones(&self) {
        self.lock().move_phones();
    }

    /// The node is about to stop, as for [`Machine::leave`].
    pub fn leave(&self) {
        self.lock().leave();
        self.world.wake();
    }

    /// Returns whether the lease has ended for good.
    pub fn has_left(&self) -> bool {
        self.lock().has_left()
    }

    /// A user has changed here, as for [`Machine::changed`].
    pub fn changed(
        &self,
        user: &[u8],
        state: Option<Presence>,
        waits: Option<CommitTag>,
    ) -> Option<Presence> {
        let before = self.lock().changed(user, state, waits);
        self.world.wake();
        before
    }

    /// A registration was refused by the disk, as for [`Machine::cancel`].
    pub fn cancel(&self, user: &[u8], before: Option<Presence>, tag: CommitTag) {
        self.lock().cancel(user, before, tag);
        self.world.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        // Each call leaves the machine whole, or has panicked where it touches nothing else.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
