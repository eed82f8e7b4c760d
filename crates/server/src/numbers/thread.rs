//! The thread of short numbers.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ringway_directory::Command;
use ringway_directory::Subject;
use ringway_directory::private::SERVICE_NUMBERS;
use ringway_mesh::NodeId;
use ringway_os::ChaCha;
use ringway_phonebook::numbers::state::Holder;
use ringway_phonebook::numbers::{AssignError, Event, Numbers, ShortNumber, Tag};
use ringway_sansio::Time;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::inbox::Received;
use super::orders::{Answer, Order, Waiting, view};
use super::peers::Peers;
use super::{Parts, Shared};

/// Pause after the state could not be stored, or the router had no room.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum time without a look at what is due.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// Time for which a repeated warning is not logged again.
const QUIET: Duration = Duration::from_secs(600);

/// The machine, and what it needs of the world.
pub(super) struct Thread {
    parts: Parts,
    shared: Arc<Shared>,
    random: ChaCha,
    machine: Numbers,
    peers: Peers,
    /// Users without a number, of which the machine does not know yet, and of which it does.
    unasked: BTreeSet<Box<str>>,
    asked: BTreeSet<Box<str>>,
    /// Users whose new number the router had no room for.
    unstated: BTreeSet<Box<str>>,
    /// When the state may be stored again after a failure, and what failed.
    save_due: Time,
    unsaved: Option<String>,
    dropped: u64,
    /// Operators who wait for an answer, and whether their orders were refused, or else have changed something.
    replies: Vec<(oneshot::Sender<Answer>, Result<bool, String>)>,
    /// How the latest census of this router has ended.
    found: Option<String>,
    /// When it was last warned that users wait, and that there are too many.
    warned: [Option<Time>; 2],
}

impl Thread {
    pub(super) fn new(parts: Parts, shared: Arc<Shared>) -> io::Result<Self> {
        let (now, mut random) = (parts.clock.now(), ChaCha::from_os()?);
        let machine = machine(&parts, now, &mut random);
        let peers = Peers::new(parts.id, now);
        let mut thread = Thread {
            parts,
            shared,
            random,
            machine,
            peers,
            unasked: BTreeSet::new(),
            asked: BTreeSet::new(),
            unstated: BTreeSet::new(),
            save_due: now,
            unsaved: None,
            dropped: 0,
            replies: Vec::new(),
            found: None,
            warned: [None; 2],
        };
        thread.compare(now);
        thread.count();
        Ok(thread)
    }

    /// Compares the numbers that are assigned with the users that there are: some may have gone meanwhile.
    fn compare(&mut self, now: Time) {
        let domain = &self.parts.domain;
        let users = self.parts.store.users().list().into_iter();
        let users = users.filter(|(_, realm)| **realm == **domain);
        let users: BTreeSet<Box<str>> =
            users.map(|(user, realm)| format!("{user}@{realm}").into()).collect();
        let state = self.machine.state();
        let holders = state.slots.values().filter_map(|holder| match holder {
            Holder::User(user) => Some(user),
            Holder::Nobody(_) => None,
        });
        let earlier = state.legacy.iter().flat_map(|legacy| legacy.users.values());
        let gone = holders.chain(earlier).filter(|user| !users.contains(&**user));
        let gone: Vec<Box<str>> = gone.cloned().collect();
        gone.iter().for_each(|user| self.machine.release(now, user));
        let mut known = self.shared.known();
        for user in users {
            match self.machine.number_of(&user) {
                Some(number) => _ = known.insert(user, text(number)),
                None => _ = self.unasked.insert(user),
            }
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let now = self.parts.clock.now();
            let sleep = self.due(now).since(now).min(MAX_SLEEP);
            let received = self.parts.inbox.wait(sleep);
            let (now, stop) = (self.parts.clock.now(), received.stop);
            self.receive(now, received);
            if self.machine.poll_timeout().is_some_and(|due| due <= now) {
                self.machine.handle_timeout(now, &mut self.random);
            }
            self.work(now);
            self.answer();
            self.list(now);
            self.count();
            if stop {
                return;
            }
        }
    }

    /// Returns when something is due.
    fn due(&self, now: Time) -> Time {
        let retry = !self.unstated.is_empty() || self.save_due > now;
        let due = self.machine.poll_timeout().into_iter().chain(retry.then_some(now + RETRY));
        due.fold(self.peers.list_due(), Time::min)
    }

    fn receive(&mut self, now: Time, mut received: Received) {
        let (messages, dropped) = received.messages.take();
        self.dropped += dropped;
        let has_peers = received.neighbours.is_some() || received.homes.is_some();
        if let Some(routers) = received.neighbours {
            self.peers.set_neighbours(routers);
        }
        if let Some((routers, users)) = received.homes {
            self.peers.set_homes(&routers);
            let has_network = self.machine.home().is_some();
            self.peers.listing(now, has_network, users, &mut self.random);
        }
        if has_peers {
            self.machine.set_peers(now, &self.peers.all());
        }
        for (router, octets) in messages {
            let malformed = self.machine.counters().malformed;
            self.machine.handle(now, router.raw(), &octets, &mut self.random);
            if self.machine.counters().malformed == malformed {
                self.peers.hear(router);
            }
        }
        for Waiting { order, reply } in received.orders {
            let changes = order != Order::Show;
            let done = self.obey(now, order);
            self.replies.push((reply, done.map(|()| changes)));
        }
        for (user, is_there) in received.users {
            if is_there {
                self.unasked.insert(user);
                continue;
            }
            self.unasked.remove(&user);
            self.asked.remove(&user);
            self.machine.release(now, &user);
            self.shared.known().remove(&user);
        }
    }

    /// Does what an operator asks.
    fn obey(&mut self, now: Time, order: Order) -> Result<(), String> {
        if order != Order::Show
            && let Some(failed) = &self.unsaved
        {
            // It would be found done, or not possible, by a state that a restart may lose.
            return Err(not_stored(failed));
        }
        match order {
            Order::Show => Ok(()),
            Order::Reclaim { lost, others, unchecked } => {
                let Thread { machine, random, .. } = self;
                let begun = machine.reclaim(now, &lost, &others, unchecked, random);
                begun.map_err(|error| error.to_string())?;
                self.found = None;
                Ok(())
            }
            Order::Retire { mark } => {
                let earlier = self.machine.state().legacy.iter().map(|legacy| legacy.tag);
                let marked: Vec<Tag> = earlier.filter(|tag| tag.mark() == mark).collect();
                if marked.is_empty() {
                    return Err(format!("expected the mark of an earlier network, got {mark:04}"));
                }
                marked.into_iter().for_each(|tag| self.machine.retire(tag));
                Ok(())
            }
        }
    }

    /// Answers operators, when what has followed from their orders is done.
    fn answer(&mut self) {
        let waiting = self.unasked.len() + self.asked.len();
        for (reply, done) in std::mem::take(&mut self.replies) {
            let answer = done.and_then(|changes| match &self.unsaved {
                Some(failed) if changes => Err(not_stored(failed)),
                _ => Ok(view(&self.machine, waiting, self.found.as_deref())),
            });
            // Whoever has asked may have gone.
            _ = reply.send(answer);
        }
    }

    /// Does what the machine asks for, until it has nothing more.
    fn work(&mut self, now: Time) {
        loop {
            self.assign(now);
            self.save(now);
            self.send();
            let mut any = false;
            while let Some(event) = self.machine.poll_event() {
                any = true;
                self.handle(now, event);
            }
            if !any {
                break;
            }
            // It assigns only so many before it is asked for events.
            self.machine.handle_timeout(now, &mut self.random);
        }
        self.state_again();
    }

    /// Has the machine know who waits for a number, as far as it has room.
    fn assign(&mut self, now: Time) {
        while let Some(user) = self.unasked.pop_first() {
            match self.machine.assign(now, &user, &mut self.random) {
                Ok(()) => _ = self.asked.insert(user),
                Err(AssignError::Waiting) => {
                    self.unasked.insert(user);
                    return;
                }
                Err(refused) => {
                    if self.may_warn(now, 0) {
                        warn!("{user} gets no short number: {refused}");
                    }
                }
            }
        }
    }

    /// Stores the state, if it has changed. Waits for the disk: nothing that follows from a change is sent or reported
    /// before.
    fn save(&mut self, now: Time) {
        if self.save_due > now {
            return;
        }
        let Some(save) = self.machine.poll_save() else { return };
        match self.parts.store.keep_numbers(self.parts.id.raw(), &save.octets) {
            Ok(()) => {
                self.machine.handle_saved(save.version);
                self.unsaved = None;
            }
            Err(failed) => {
                self.machine.handle_save_failed();
                self.save_due = now + RETRY;
                self.unsaved = Some(failed.to_string());
                if self.shared.counts.unsaved.fetch_add(1, Relaxed) == 0 {
                    error!(
                        "short numbers are not stored: {failed}; nothing is assigned until they are"
                    );
                }
            }
        }
    }

    fn send(&mut self) {
        while let Some(message) = self.machine.poll_transmit() {
            let (to, octets) = (NodeId::new(message.to), message.octets.into());
            let command = Command::Send { to, service: SERVICE_NUMBERS, octets };
            // What finds no room is repeated by the machine.
            if self.parts.commands.try_send(command).is_err() {
                self.shared.counts.unsent.fetch_add(1, Relaxed);
            }
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Assigned { user, number, before } => self.assigned(user, number, before),
            Event::NotAssigned { user } => {
                if self.asked.remove(&user) {
                    self.unasked.insert(user);
                }
                if self.may_warn(now, 1) {
                    let count = self.unasked.len() + self.asked.len();
                    warn!(
                        "{count} users wait for a short number: no router with free ones is reached"
                    );
                }
            }
            Event::Created(tag) => info!("a network of short numbers is created: {tag}"),
            Event::Moved { from, to, marked } => {
                if let Some(from) = from {
                    warn!(
                        "short numbers are of the older network {to} from now on, not of {from}: {marked} users get others"
                    );
                }
                self.drop_changed();
            }
            Event::Dropped { tag, users } => {
                warn!(
                    "the numbers of {users} users in the earlier network {tag} are not valid any more"
                );
            }
            Event::Conflict { giver } => error!(
                "router {} has handed over short numbers that are this router's: an old state was restored",
                NodeId::new(giver)
            ),
            Event::Reclaimed { blocks } => {
                let found = format!("{blocks} blocks of short numbers are reclaimed");
                info!("{found}");
                self.found = Some(found);
            }
            Event::ReclaimFailed(failure) => {
                let found = format!("no short numbers are reclaimed: {failure}");
                warn!("{found}");
                self.found = Some(found);
            }
            Event::Expelled { marked } => {
                error!(
                    "the short numbers of this router were reclaimed as those of a lost one: {marked} users get others"
                );
                self.drop_changed();
            }
            _ => {}
        }
    }

    fn assigned(&mut self, user: Box<str>, number: ShortNumber, before: Option<ShortNumber>) {
        self.asked.remove(&user);
        if self.machine.number_of(&user) != Some(number) {
            // The user was removed meanwhile, or the number is of another network now.
            return;
        }
        match before {
            None => info!("{user} has the number {}", number.number),
            Some(before) => {
                warn!("{user} has the number {} instead of {}", number.number, before.number);
            }
        }
        self.shared.known().insert(user.clone(), text(number));
        self.shared.changed.notify_all();
        self.state(user);
    }

    /// Ends the validity of numbers that are of another network now.
    fn drop_changed(&mut self) {
        let machine = &self.machine;
        let mut gone = Vec::new();
        self.shared.known().retain(|user, number| {
            let is_valid = machine.number_of(user).is_some_and(|now| text(now) == *number);
            if !is_valid {
                gone.push(user.clone());
            }
            is_valid
        });
        gone.into_iter().for_each(|user| self.state(user));
    }

    /// Has the mesh know the number of a user.
    fn state(&mut self, user: Box<str>) {
        let stated = user
            .rsplit_once('@')
            .is_none_or(|(user, realm)| self.parts.store.state_account(user, realm));
        if !stated {
            self.unstated.insert(user);
        }
    }

    fn state_again(&mut self) {
        for user in std::mem::take(&mut self.unstated) {
            self.state(user);
        }
    }

    /// Has users listed if it is time, to find routers that are not beside this one.
    fn list(&mut self, now: Time) {
        if self.peers.list_due() > now {
            return;
        }
        let has_network = self.machine.home().is_some();
        let users = self.parts.lists.accounts().len();
        let may_list = self.peers.may_list(now, has_network, users, &mut self.random);
        // Whoever has users has numbers; who has none needs none.
        if may_list && (!self.shared.known().is_empty() || !self.asked.is_empty()) {
            self.parts.lists.request(Subject::Accounts, now);
        }
    }

    fn may_warn(&mut self, now: Time, what: usize) -> bool {
        let may = self.warned[what].is_none_or(|at| now.since(at) >= QUIET);
        if may {
            self.warned[what] = Some(now);
        }
        may
    }

    fn count(&self) {
        let (counts, counters) = (&self.shared.counts, self.machine.counters());
        counts.assigned.store(self.shared.known().len() as u64, Relaxed);
        counts.waiting.store((self.unasked.len() + self.asked.len()) as u64, Relaxed);
        counts.free_blocks.store(self.machine.free_blocks(), Relaxed);
        let refused = counters.malformed + counters.policed + counters.foreign;
        let refused = refused + counters.conflicts + counters.stale + self.dropped;
        counts.refused.store(refused, Relaxed);
        self.shared.has_network.store(self.machine.home().is_some(), Relaxed);
    }
}

/// Returns the machine with the state that was kept.
fn machine(parts: &Parts, now: Time, random: &mut ChaCha) -> Numbers {
    let (config, id) = (parts.config, parts.id.raw());
    let Some(octets) = parts.store.numbers_kept(id) else {
        return Numbers::new(config, id, now, random);
    };
    match Numbers::restore(config, id, octets, now, random) {
        Ok(numbers) => numbers,
        // As after the loss of a disk: nobody else gets the numbers, and users get others.
        Err(fault) => {
            error!("the short numbers that were kept cannot be read: {fault}; users get others");
            Numbers::new(config, id, now, random)
        }
    }
}

/// Why an order is not reported as done.
fn not_stored(failed: &str) -> String {
    format!("expected that short numbers are stored, got: {failed}; that is tried again")
}

/// Returns a number as its users dial it.
fn text(number: ShortNumber) -> Box<str> {
    number.number.to_string().into()
}
