//! What a stack's users and its driver share: the protocol, and who waits for what. It is locked for
//! the moment of a call or of one train of packets, never while anybody waits; those who are to be
//! woken are woken after the lock is given back.

use super::carrier::{DownAddresses, Traffic};
use super::error::Error;
use super::limits::{ACCEPT_QUEUE, EVENT_QUEUE, LINGER};
use super::locals::Locals;
use super::message::Event;
use super::ports::Ports;
use super::waiters::{Wait, Waiters};
use crate::clock::Clock;
use bytes::Bytes;
use ringway_sansio::{Endpoint, Time};
use ringway_sctp::wire::cause::code::USER_ABORT;
use ringway_sctp::{AssocId, Close, ListenerId, Sctp};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What is told to the peer of an association that nobody accepts.
const NOT_TAKEN: &[u8] = b"nobody takes associations here now";

/// What is told to the peer of an association that was let go and does not come to its end.
const LET_GO: &[u8] = b"let go";

/// An association, as its users see it.
pub(super) struct Entry {
    pub(super) id: AssocId,
    /// Our port.
    port: u16,
    pub(super) up: bool,
    pub(super) closed: Option<Close>,
    /// Nobody holds it any more.
    pub(super) orphan: bool,
    /// That it is up is not told yet: of all events the one that most associations ever have, and that
    /// many users never take, so it takes no memory.
    untold: bool,
    pub(super) events: VecDeque<Event>,
    missed: u32,
    pub(super) readers: Waiters,
    pub(super) writers: Waiters,
    pub(super) watchers: Waiters,
}

impl Entry {
    fn new(id: AssocId, port: u16) -> Entry {
        Entry {
            id,
            port,
            up: false,
            closed: None,
            orphan: false,
            untold: false,
            events: VecDeque::new(),
            missed: 0,
            readers: Waiters::default(),
            writers: Waiters::default(),
            watchers: Waiters::default(),
        }
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= EVENT_QUEUE {
            self.events.pop_front();
            self.missed += 1;
        }
        self.events.push_back(event);
    }

    /// The next event; first of all that it is up, and that some were lost.
    pub(super) fn take_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.untold) {
            return Some(Event::Up);
        }
        if self.missed > 0 {
            return Some(Event::Missed(std::mem::take(&mut self.missed)));
        }
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        event
    }
}

/// A listener, as its user sees it.
pub(super) struct Accepting {
    pub(super) port: u16,
    pub(super) queue: VecDeque<usize>,
    pub(super) waiters: Waiters,
}

pub(super) struct Core {
    pub(super) sctp: Sctp,
    pub(super) clock: Clock,
    pub(super) entries: Slab<Entry>,
    pub(super) by_id: HashMap<AssocId, usize>,
    pub(super) listeners: HashMap<ListenerId, Accepting>,
    /// Associations let go, in the order of when their time is up.
    orphans: VecDeque<(Time, AssocId)>,
    /// Where what nobody wants to read goes.
    scratch: Vec<u8>,
    pub(super) driver: Option<Waker>,
    /// The driver has been woken and has not begun its turn.
    kicked: bool,
    /// Times that somebody had something for the driver to do; how many of them were before its turn
    /// began; and before the last turn that left nothing to send.
    kicks: u64,
    seen: u64,
    emptied: u64,
    /// Who waits for that.
    flushers: Waiters,
    /// No user has a hold on the stack any more.
    pub(super) deserted: bool,
    /// The driver has ended.
    pub(super) stopped: bool,
    /// Who is to be woken once the lock is given back.
    wakes: SmallVec<[Waker; 4]>,
    /// Associations refused because too many waited to be accepted.
    pub(super) refused: u64,
    /// Where processes share protocol 132: the ports held here.
    pub(super) ports: Option<Ports>,
    /// In UDP: the addresses that packets can leave from.
    pub(super) locals: Option<Locals>,
    /// Our addresses that cannot be used now.
    pub(super) down_addresses: DownAddresses,
    /// ICMP messages heard.
    pub(super) icmp: u64,
    /// What the carrier counted, as of the driver's last turn.
    pub(super) traffic: Traffic,
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
            deserted: false,
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

    /// Calls `f` under the lock, then wakes whom it told to wake.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        // A user that panicked under the lock left the protocol between two of its calls.
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

/// What all users of a stack share. When the last is down_addresses the stack ends as soon as all its
/// associations have.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(|core| {
            core.deserted = true;
            core.kick();
        });
    }
}

fn wake(wakes: &mut SmallVec<[Waker; 4]>, waiters: &mut Waiters) {
    wakes.extend(waiters.drain());
}

impl Core {
    /// Forgets a task among those that wait, and wakes it.
    pub(super) fn give_up(&mut self, key: usize, wait: Wait, waker: &Waker) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let waiters = match wait {
            Wait::Read => &mut entry.readers,
            Wait::Write => &mut entry.writers,
            Wait::Event => &mut entry.watchers,
        };
        self.wakes.extend(waiters.remove(waker));
    }

    /// Wakes those who wait to send on an association, or for its end.
    pub(super) fn wake_writers(&mut self, key: usize) {
        if let Some(entry) = self.entries.get_mut(key) {
            wake(&mut self.wakes, &mut entry.writers);
        }
    }

    /// Has the driver take a turn: there may be something to send.
    pub(super) fn kick(&mut self) {
        self.kicks += 1;
        if !std::mem::replace(&mut self.kicked, true)
            && let Some(driver) = &self.driver
        {
            self.wakes.push(driver.clone());
        }
    }

    /// The driver begins a turn.
    pub(super) fn turn(&mut self, cx: &Context<'_>) {
        self.kicked = false;
        self.seen = self.kicks;
        match &mut self.driver {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// The driver ends a turn, and all there was to send is with the system.
    pub(super) fn emptied(&mut self) {
        self.emptied = self.seen;
        wake(&mut self.wakes, &mut self.flushers);
    }

    /// Whether all is sent that was there at a moment: the first time asked, with `moment` empty.
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

    /// Enters an association; gives its place.
    pub(super) fn enter(&mut self, id: AssocId) -> usize {
        let port = self.sctp.ports(id).map_or(0, |(ours, _)| ours);
        let key = self.entries.insert(Entry::new(id, port));
        self.by_id.insert(id, key);
        if let Some(ports) = &mut self.ports {
            // It is held already: by the listener, or by who opened the association.
            let _ = ports.hold(port);
        }
        key
    }

    /// Passes on what the protocol tells.
    pub(super) fn hear(&mut self) {
        use ringway_sctp::Event as E;
        while let Some(event) = self.sctp.poll_event() {
            match event {
                E::Up { id, listener } => self.hear_up(id, listener),
                E::Readable(id) => self.hear_readable(id),
                E::Writable(id) => {
                    if let Some(entry) = by_id(&self.by_id, &mut self.entries, id) {
                        wake(&mut self.wakes, &mut entry.writers);
                    }
                }
                E::Restarted(id) => self.tell(id, Event::Restarted),
                E::PeerShutdown(id) => self.tell(id, Event::PeerShutdown),
                E::Path { id, remote, state } => self.tell(id, Event::Path { remote, state }),
                E::PeerError { id, code } => self.tell(id, Event::PeerError { code }),
                E::SendFailed { id, messages } => self.tell(id, Event::SendFailed { messages }),
                E::Changed { id, change } => self.tell(id, Event::Changed(change)),
                E::Closed(id, why) => self.hear_closed(id, why),
                _ => {}
            }
        }
    }

    fn tell(&mut self, id: AssocId, event: Event) {
        if let Some(entry) = by_id(&self.by_id, &mut self.entries, id) {
            entry.tell(event);
            wake(&mut self.wakes, &mut entry.watchers);
        }
    }

    fn hear_up(&mut self, id: AssocId, listener: Option<ListenerId>) {
        if let Some(&key) = self.by_id.get(&id) {
            let Some(entry) = self.entries.get_mut(key) else { return };
            entry.up = true;
            entry.untold = true;
            wake(&mut self.wakes, &mut entry.watchers);
            wake(&mut self.wakes, &mut entry.writers);
            return;
        }
        let room = listener
            .and_then(|listener| self.listeners.get(&listener))
            .is_some_and(|accepting| accepting.queue.len() < ACCEPT_QUEUE);
        if !room {
            self.refused += 1;
            // It is there: it was told just now.
            let _ = self.sctp.abort(id, NOT_TAKEN);
            return;
        }
        let key = self.enter(id);
        self.entries[key].up = true;
        if let Some(accepting) = listener.and_then(|l| self.listeners.get_mut(&l)) {
            accepting.queue.push_back(key);
            wake(&mut self.wakes, &mut accepting.waiters);
        }
    }

    fn hear_readable(&mut self, id: AssocId) {
        let Some(entry) = by_id(&self.by_id, &mut self.entries, id) else { return };
        if entry.orphan {
            self.discard(id);
        } else {
            wake(&mut self.wakes, &mut entry.readers);
        }
    }

    fn hear_closed(&mut self, id: AssocId, why: Close) {
        let Some(&key) = self.by_id.get(&id) else { return };
        let entry = &mut self.entries[key];
        entry.tell(Event::Closed(why.clone()));
        entry.closed = Some(why);
        for waiters in [&mut entry.readers, &mut entry.writers, &mut entry.watchers] {
            wake(&mut self.wakes, waiters);
        }
        let port = entry.port;
        if entry.orphan || self.is_nothing_to_accept(port, key, id) {
            self.forget(key);
        }
    }

    /// Takes what is over, and brought nothing, out of those that wait to be accepted: it would keep
    /// living ones out.
    fn is_nothing_to_accept(&mut self, port: u16, key: usize, id: AssocId) -> bool {
        let Some(accepting) = self.listeners.values_mut().find(|l| l.port == port) else {
            return false;
        };
        let Some(place) = accepting.queue.iter().position(|&waiting| waiting == key) else {
            return false;
        };
        let empty = self.sctp.snapshot(id).map_or(true, |now| now.unread == 0);
        if empty {
            accepting.queue.remove(place);
        }
        empty
    }

    /// Reads what nobody wants.
    fn discard(&mut self, id: AssocId) {
        while let Ok(Some(_)) = self.sctp.recv(id, &mut self.scratch) {
            self.scratch.clear();
        }
        self.scratch = Vec::new();
    }

    /// Takes an association out of the tables.
    fn forget(&mut self, key: usize) {
        let Some(entry) = self.entries.try_remove(key) else { return };
        self.by_id.remove(&entry.id);
        self.release_port(entry.port);
        // Read to its end, so that the protocol forgets it too.
        self.discard(entry.id);
    }

    pub(super) fn release_port(&mut self, port: u16) {
        if let Some(ports) = &mut self.ports {
            ports.release(port);
        }
    }

    /// Nobody holds the association any more: it ends in order, or at once if it has not even begun and
    /// there is nothing to deliver.
    pub(super) fn let_go(&mut self, key: usize) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.orphan = true;
        entry.events = VecDeque::new();
        let (id, closed, up) = (entry.id, entry.closed.is_some(), entry.up);
        if closed {
            self.forget(key);
            return;
        }
        if !up && self.sctp.snapshot(id).is_ok_and(|now| now.unacknowledged == 0) {
            let _ = self.sctp.abort(id, LET_GO);
            self.forget(key);
            self.hear();
            self.kick();
            return;
        }
        let now = self.clock.now();
        self.discard(id);
        if self.sctp.shutdown(now, id).is_err() {
            self.forget(key);
        }
        // Those that are over already need no watch.
        if self.orphans.len() > 2 * self.entries.len() + ACCEPT_QUEUE {
            self.orphans.retain(|(_, id)| self.by_id.contains_key(id));
        }
        self.orphans.push_back((now + LINGER, id));
        self.hear();
        self.kick();
    }

    /// Ends associations that were let go and did not come to their end.
    pub(super) fn end_orphans(&mut self, now: Time) {
        while let Some(&(at, id)) = self.orphans.front()
            && at <= now
        {
            self.orphans.pop_front();
            if let Some(&key) = self.by_id.get(&id) {
                let _ = self.sctp.abort(id, LET_GO);
                self.forget(key);
            }
        }
    }

    /// When the driver must be awake next.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let orphan = self.orphans.front().map(|(at, _)| *at);
        ringway_sansio::time::sooner(self.sctp.poll_timeout(), orphan)
    }

    /// Ends an association at once.
    pub(super) fn abort(&mut self, key: usize, reason: &[u8]) -> Result<(), Error> {
        self.check()?;
        let Some(entry) = self.entries.get(key) else { return Ok(()) };
        if entry.closed.is_some() {
            return Ok(());
        }
        let id = entry.id;
        self.sctp.abort(id, reason)?;
        let why = Close::Aborted { code: USER_ABORT, reason: Bytes::copy_from_slice(reason) };
        self.hear_closed(id, why);
        self.kick();
        Ok(())
    }

    /// Takes no more associations; those that wait to be accepted are refused.
    pub(super) fn unlisten(&mut self, listener: ListenerId) {
        let _ = self.sctp.unlisten(listener);
        let Some(accepting) = self.listeners.remove(&listener) else { return };
        for key in accepting.queue {
            let _ = self.abort(key, NOT_TAKEN);
            self.let_go(key);
        }
        self.release_port(accepting.port);
    }

    /// Whether the stack still runs.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.stopped { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Refuses addresses of ours that no packet can leave from.
    pub(super) fn check_locals(&self, addresses: &[IpAddr]) -> Result<(), Error> {
        self.locals.as_ref().map_or(Ok(()), |locals| locals.check(addresses))
    }

    /// The driver has ended: nothing moves any more.
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
