//! The state that a stack's users and its driver share: the protocol, and the tasks that wait. It is
//! locked for the duration of one call or of one train of packets, never while a task waits. Tasks are
//! woken after the lock is released.

use super::carrier::{DownAddresses, Traffic};
use super::error::Error;
use super::limits::{ACCEPT_QUEUE, EVENT_QUEUE, LINGER, RETURNED_BYTES};
use super::locals::Locals;
use super::message::Event;
use super::opening::BoundSocket;
use super::ports::Ports;
use super::waiters::{Wait, Waiters};
use bytes::Bytes;
use ringway_os::Clock;
use ringway_sansio::{Endpoint, Time};
use ringway_sctp::wire::cause::code::USER_ABORT;
use ringway_sctp::{AssocId, Close, ListenerId, Sctp};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The abort reason of an association that no program accepts.
const NOT_ACCEPTED: &[u8] = b"no program accepts associations here now";

/// The abort reason of an association whose handles were dropped and whose shutdown does not complete.
const RELEASED: &[u8] = b"released by the program";

/// The users' view of an association.
pub(super) struct Entry {
    pub(super) id: AssocId,
    /// The local port.
    port: u16,
    pub(super) up: bool,
    pub(super) closed: Option<Close>,
    /// The last handle was dropped.
    pub(super) orphan: bool,
    /// [`Event::Up`] is not read yet. Most associations have no other event, and many users never read it,
    /// so it needs no queue.
    unread_up: bool,
    pub(super) events: VecDeque<Event>,
    missed: u32,
    /// Bytes of the messages in `events` that were returned.
    returned_bytes: usize,
    readers: Waiters,
    writers: Waiters,
    watchers: Waiters,
}

impl Entry {
    fn new(id: AssocId, port: u16) -> Entry {
        Entry {
            id,
            port,
            up: false,
            closed: None,
            orphan: false,
            unread_up: false,
            events: VecDeque::new(),
            missed: 0,
            returned_bytes: 0,
            readers: Waiters::default(),
            writers: Waiters::default(),
            watchers: Waiters::default(),
        }
    }

    fn push_event(&mut self, event: Event) {
        self.returned_bytes += returned_bytes(&event);
        self.events.push_back(event);
        if self.events.len() > EVENT_QUEUE {
            self.drop_event(0);
        }
        while self.returned_bytes > RETURNED_BYTES
            && let Some(index) = self.events.iter().position(|event| returned_bytes(event) > 0)
        {
            self.drop_event(index);
        }
    }

    fn drop_event(&mut self, index: usize) {
        if let Some(event) = self.events.remove(index) {
            self.returned_bytes -= returned_bytes(&event);
            self.missed += 1;
        }
    }

    /// Adds a task to those that wait.
    pub(super) fn add_waiter(&mut self, wait: Wait, cx: &mut Context<'_>) {
        self.waiters(wait).add(cx);
    }

    fn waiters(&mut self, wait: Wait) -> &mut Waiters {
        match wait {
            Wait::Read => &mut self.readers,
            Wait::Write => &mut self.writers,
            Wait::Event => &mut self.watchers,
        }
    }

    /// Removes and returns the next event; first [`Event::Up`], then [`Event::Missed`].
    pub(super) fn take_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.unread_up) {
            return Some(Event::Up);
        }
        if self.missed > 0 {
            return Some(Event::Missed(std::mem::take(&mut self.missed)));
        }
        let event = self.events.pop_front();
        self.returned_bytes -= event.as_ref().map_or(0, returned_bytes);
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        event
    }
}

/// Returns the bytes that an event holds of a returned message.
fn returned_bytes(event: &Event) -> usize {
    if let Event::Returned(message) = event { message.data.len() } else { 0 }
}

/// The users' view of a listener.
pub(super) struct AcceptQueue {
    pub(super) port: u16,
    pub(super) queue: VecDeque<usize>,
    pub(super) waiters: Waiters,
}

pub(super) struct Core {
    pub(super) sctp: Sctp,
    pub(super) clock: Clock,
    pub(super) entries: Slab<Entry>,
    pub(super) by_id: HashMap<AssocId, usize>,
    pub(super) listeners: HashMap<ListenerId, AcceptQueue>,
    /// Associations whose handles were dropped, ordered by the end of [`LINGER`].
    orphans: VecDeque<(Time, AssocId)>,
    /// Buffer for discarded messages.
    scratch: Vec<u8>,
    pub(super) driver: Option<Waker>,
    /// The driver was woken and has not begun its turn.
    kicked: bool,
    /// The number of calls of [`Core::kick`]; their number when the driver's turn began; and when the last
    /// turn began that sent everything.
    kicks: u64,
    seen: u64,
    emptied: u64,
    /// Tasks that wait until everything is sent.
    flushers: Waiters,
    /// The last handle of the stack was dropped.
    pub(super) released: bool,
    /// The driver has ended.
    pub(super) stopped: bool,
    /// Tasks to wake once the lock is released.
    wakes: SmallVec<[Waker; 4]>,
    /// Associations refused because the accept queue was full.
    pub(super) refused: u64,
    /// Directly over IP: the ports that this stack holds.
    ports: Option<Ports>,
    /// In UDP: the local addresses.
    locals: Option<Locals>,
    /// Local addresses that cannot be used now.
    pub(super) down_addresses: DownAddresses,
    /// ICMP messages received.
    icmp: u64,
    /// The carrier's counters as of the driver's last turn.
    traffic: Traffic,
}

/// [`Core`] behind its lock.
pub(super) struct Shared(Mutex<Core>);

impl Shared {
    pub(super) fn new(
        sctp: Sctp,
        clock: Clock,
        ports: Option<Ports>,
        locals: Option<Locals>,
        down_addresses: DownAddresses,
    ) -> Arc<Shared> {
        Arc::new(Shared(Mutex::new(Core {
            sctp,
            clock,
            entries: Slab::new(),
            by_id: HashMap::new(),
            listeners: HashMap::new(),
            orphans: VecDeque::new(),
            scratch: Vec::new(),
            driver: None,
            kicked: false,
            kicks: 0,
            seen: 0,
            emptied: 0,
            flushers: Waiters::default(),
            released: false,
            stopped: false,
            wakes: SmallVec::new(),
            refused: 0,
            ports,
            locals,
            down_addresses,
            icmp: 0,
            traffic: Traffic::default(),
        })))
    }

    /// Calls `f` under the lock, then wakes the tasks that it put into [`Core::wakes`].
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        // A panic under the lock leaves the protocol between two calls, which is a valid state.
        let mut core: MutexGuard<'_, Core> = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut core);
        if core.wakes.is_empty() {
            return result;
        }
        let wakes = std::mem::take(&mut core.wakes);
        drop(core);
        wakes.into_iter().for_each(Waker::wake);
        result
    }
}

/// The handle that all users of a stack share. When the last is dropped, the stack ends as soon as all its
/// associations have ended.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(|core| {
            core.released = true;
            core.kick();
        });
    }
}

fn wake(wakes: &mut SmallVec<[Waker; 4]>, waiters: &mut Waiters) {
    wakes.extend(waiters.drain());
}

impl Core {
    /// Removes a task from those that wait, and wakes it.
    pub(super) fn cancel_wait(&mut self, key: usize, wait: Wait, waker: &Waker) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.wakes.extend(entry.waiters(wait).remove(waker));
    }

    /// Wakes the tasks that wait to send on an association, or for its end.
    pub(super) fn wake_writers(&mut self, key: usize) {
        if let Some(entry) = self.entries.get_mut(key) {
            wake(&mut self.wakes, &mut entry.writers);
        }
    }

    /// Wakes the driver, because there may be something to send.
    pub(super) fn kick(&mut self) {
        self.kicks += 1;
        if !std::mem::replace(&mut self.kicked, true)
            && let Some(driver) = &self.driver
        {
            self.wakes.push(driver.clone());
        }
    }

    /// Begins a turn of the driver.
    pub(super) fn begin_turn(&mut self, cx: &Context<'_>) {
        self.kicked = false;
        self.seen = self.kicks;
        match &mut self.driver {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// Ends a turn of the driver in which everything was passed to the system.
    pub(super) fn emptied(&mut self) {
        self.emptied = self.seen;
        wake(&mut self.wakes, &mut self.flushers);
    }

    /// Waits until everything is sent that was to be sent at the first call, for which `moment` is `None`.
    pub(super) fn poll_emptied(&mut self, moment: &mut Option<u64>, cx: &Context<'_>) -> Poll<()> {
        let moment = *moment.get_or_insert_with(|| {
            self.kick();
            self.kicks
        });
        if self.emptied >= moment || self.stopped {
            return Poll::Ready(());
        }
        self.flushers.add(cx);
        Poll::Pending
    }

    /// Inserts an association. Returns its key.
    pub(super) fn insert(&mut self, id: AssocId) -> usize {
        let port = self.sctp.ports(id).map_or(0, |(local, _)| local);
        let key = self.entries.insert(Entry::new(id, port));
        self.by_id.insert(id, key);
        if let Some(ports) = &mut self.ports {
            // It is held already, by the listener or by the call that opened the association.
            let _ = ports.hold(port);
        }
        key
    }

    /// Dispatches the protocol's events to the users.
    pub(super) fn dispatch(&mut self) {
        use ringway_sctp::Event as E;
        while let Some(event) = self.sctp.poll_event() {
            match event {
                E::Up { id, listener } => self.on_up(id, listener),
                E::Readable(id) => self.on_readable(id),
                E::Writable(id) => {
                    if let Some(entry) = by_id(&self.by_id, &mut self.entries, id) {
                        wake(&mut self.wakes, &mut entry.writers);
                    }
                }
                E::Restarted(id) => self.report(id, Event::Restarted),
                E::PeerShutdown(id) => self.report(id, Event::PeerShutdown),
                E::Path { id, remote, state } => self.report(id, Event::Path { remote, state }),
                E::PeerError { id, code } => self.report(id, Event::PeerError { code }),
                E::Returned { id, message } => self.report(id, Event::Returned(message)),
                E::SendFailed { id, messages } => self.report(id, Event::SendFailed { messages }),
                E::Changed { id, change } => self.report(id, Event::Changed(change)),
                E::Closed(id, why) => self.on_closed(id, why),
                _ => {}
            }
        }
    }

    fn report(&mut self, id: AssocId, event: Event) {
        if let Some(entry) = by_id(&self.by_id, &mut self.entries, id) {
            entry.push_event(event);
            wake(&mut self.wakes, &mut entry.watchers);
        }
    }

    fn on_up(&mut self, id: AssocId, listener: Option<ListenerId>) {
        if let Some(&key) = self.by_id.get(&id) {
            let Some(entry) = self.entries.get_mut(key) else { return };
            entry.up = true;
            entry.unread_up = true;
            wake(&mut self.wakes, &mut entry.watchers);
            wake(&mut self.wakes, &mut entry.writers);
            return;
        }
        let room = listener
            .and_then(|listener| self.listeners.get(&listener))
            .is_some_and(|accepting| accepting.queue.len() < ACCEPT_QUEUE);
        if !room {
            self.refused += 1;
            // It exists: its event has just been read.
            let _ = self.sctp.abort(id, NOT_ACCEPTED);
            return;
        }
        let key = self.insert(id);
        self.entries[key].up = true;
        if let Some(accepting) = listener.and_then(|l| self.listeners.get_mut(&l)) {
            accepting.queue.push_back(key);
            wake(&mut self.wakes, &mut accepting.waiters);
        }
    }

    fn on_readable(&mut self, id: AssocId) {
        let Some(entry) = by_id(&self.by_id, &mut self.entries, id) else { return };
        if entry.orphan {
            self.discard(id);
        } else {
            wake(&mut self.wakes, &mut entry.readers);
        }
    }

    fn on_closed(&mut self, id: AssocId, why: Close) {
        let Some(&key) = self.by_id.get(&id) else { return };
        let entry = &mut self.entries[key];
        entry.push_event(Event::Closed(why.clone()));
        entry.closed = Some(why);
        for waiters in [&mut entry.readers, &mut entry.writers, &mut entry.watchers] {
            wake(&mut self.wakes, waiters);
        }
        let port = entry.port;
        if entry.orphan || self.remove_unaccepted(port, key, id) {
            self.remove(key);
        }
    }

    /// Removes an association that has ended without unread data from the accept queue, where it would
    /// take the slot of a live one. Returns whether it did.
    fn remove_unaccepted(&mut self, port: u16, key: usize, id: AssocId) -> bool {
        let Some(accepting) = self.listeners.values_mut().find(|l| l.port == port) else {
            return false;
        };
        let Some(index) = accepting.queue.iter().position(|&waiting| waiting == key) else {
            return false;
        };
        let empty = self.sctp.snapshot(id).map_or(true, |now| now.unread == 0);
        if empty {
            accepting.queue.remove(index);
        }
        empty
    }

    /// Reads and drops the messages of an association.
    fn discard(&mut self, id: AssocId) {
        while let Ok(Some(_)) = self.sctp.recv(id, &mut self.scratch) {
            self.scratch.clear();
        }
        self.scratch = Vec::new();
    }

    /// Removes an association from the tables.
    fn remove(&mut self, key: usize) {
        let Some(entry) = self.entries.try_remove(key) else { return };
        self.by_id.remove(&entry.id);
        self.release_port(entry.port);
        // Once everything is read, the protocol removes it too.
        self.discard(entry.id);
    }

    /// Whether the stack runs directly over IP, where it shares the ports with other processes.
    pub(super) fn shares_ports(&self) -> bool {
        self.ports.is_some()
    }

    /// Holds a port against other processes, until [`Core::release_port`] is called as often. In UDP there is none.
    pub(super) fn hold_port(&mut self, port: u16) -> Result<(), Error> {
        let Some(ports) = &mut self.ports else { return Ok(()) };
        ports.hold(port).map_err(|e| Error::system(format!("sctp port {port}"), e))
    }

    /// Returns an ephemeral port to hold: one that is held already for the first `attempts`, then another.
    pub(super) fn ephemeral_port(&mut self, attempts: usize) -> Result<u16, Error> {
        let Some(ports) = &mut self.ports else { return Err(Error::Stopped) };
        let another = attempts > 0 && attempts >= ports.ephemeral_held();
        ports.ephemeral(another).ok_or(Error::Refused(ringway_sctp::Error::NoPort))
    }

    pub(super) fn release_port(&mut self, port: u16) {
        if let Some(ports) = &mut self.ports {
            ports.release(port);
        }
    }

    /// Handles the drop of an association's last handle: shuts it down, or aborts it if it is not
    /// established and has nothing to deliver.
    pub(super) fn release(&mut self, key: usize) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.orphan = true;
        entry.events = VecDeque::new();
        entry.returned_bytes = 0;
        let (id, closed, up) = (entry.id, entry.closed.is_some(), entry.up);
        if closed {
            self.remove(key);
            return;
        }
        if !up && self.sctp.snapshot(id).is_ok_and(|now| now.unacknowledged == 0) {
            let _ = self.sctp.abort(id, RELEASED);
            self.remove(key);
            self.dispatch();
            self.kick();
            return;
        }
        let now = self.clock.now();
        self.discard(id);
        if self.sctp.shutdown(now, id).is_err() {
            self.remove(key);
        }
        // Associations that have ended need no timer.
        if self.orphans.len() > 2 * self.entries.len() + ACCEPT_QUEUE {
            self.orphans.retain(|(_, id)| self.by_id.contains_key(id));
        }
        self.orphans.push_back((now + LINGER, id));
        self.dispatch();
        self.kick();
    }

    /// Aborts associations whose handles were dropped and whose shutdown takes longer than [`LINGER`].
    pub(super) fn end_orphans(&mut self, now: Time) {
        while let Some(&(at, id)) = self.orphans.front()
            && at <= now
        {
            self.orphans.pop_front();
            if let Some(&key) = self.by_id.get(&id) {
                let _ = self.sctp.abort(id, RELEASED);
                self.remove(key);
            }
        }
    }

    /// Returns the driver's next deadline.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let orphan = self.orphans.front().map(|(at, _)| *at);
        ringway_sansio::time::sooner(self.sctp.poll_timeout(), orphan)
    }

    /// Aborts an association.
    pub(super) fn abort(&mut self, key: usize, reason: &[u8]) -> Result<(), Error> {
        self.check()?;
        let Some(entry) = self.entries.get(key) else { return Ok(()) };
        if entry.closed.is_some() {
            return Ok(());
        }
        let id = entry.id;
        self.sctp.abort(id, reason)?;
        let why = Close::Aborted { code: USER_ABORT, reason: Bytes::copy_from_slice(reason) };
        self.on_closed(id, why);
        self.kick();
        Ok(())
    }

    /// Closes a listener; the associations in its queue are aborted.
    pub(super) fn unlisten(&mut self, listener: ListenerId) {
        let _ = self.sctp.unlisten(listener);
        let Some(accepting) = self.listeners.remove(&listener) else { return };
        for key in accepting.queue {
            let _ = self.abort(key, NOT_ACCEPTED);
            self.release(key);
        }
        self.release_port(accepting.port);
    }

    /// Opens a socket at a local address, unless there is one or the stack is not in UDP.
    pub(super) fn open_local(&self, local: IpAddr) -> Result<Option<BoundSocket>, Error> {
        self.locals.as_ref().map_or(Ok(None), |locals| locals.open(local))
    }

    /// Keeps a socket for the driver's next turn.
    pub(super) fn keep_local(&mut self, bound: Option<BoundSocket>) {
        if let (Some(locals), Some(bound)) = (&mut self.locals, bound) {
            locals.keep(bound);
        }
    }

    /// Removes and returns the sockets that were opened since the last call.
    pub(super) fn take_locals(&mut self) -> Vec<BoundSocket> {
        self.locals.as_mut().map(Locals::take).unwrap_or_default()
    }

    /// Counts an ICMP message.
    pub(super) fn count_icmp(&mut self) {
        self.icmp += 1;
    }

    /// Returns the carrier's counters as of the driver's last turn.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Keeps the carrier's counters.
    pub(super) fn set_traffic(&mut self, traffic: Traffic) {
        self.traffic = Traffic { icmp: self.icmp, ..traffic };
    }

    /// Returns an error if the stack has stopped.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.stopped { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Refuses local addresses from which no packet can be sent.
    pub(super) fn check_locals(&self, addresses: &[IpAddr]) -> Result<(), Error> {
        self.locals.as_ref().map_or(Ok(()), |locals| locals.check(addresses))
    }

    /// Marks the stack as stopped, because the driver has ended, and wakes all tasks.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.driver = None;
        for (_, entry) in &mut self.entries {
            for waiters in [&mut entry.readers, &mut entry.writers, &mut entry.watchers] {
                wake(&mut self.wakes, waiters);
            }
        }
        for accepting in self.listeners.values_mut() {
            wake(&mut self.wakes, &mut accepting.waiters);
        }
        wake(&mut self.wakes, &mut self.flushers);
    }
}

fn by_id<'a>(
    by_id: &HashMap<AssocId, usize>,
    entries: &'a mut Slab<Entry>,
    id: AssocId,
) -> Option<&'a mut Entry> {
    entries.get_mut(*by_id.get(&id)?)
}
