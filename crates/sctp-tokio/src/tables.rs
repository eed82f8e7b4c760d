//! What the associations of a stack share, behind one lock: the endpoint, which finds them, the listeners, the ports, and
//! the local addresses.
//!
//! An association that is established carries messages without this lock, see `runner`. It is held for packets that open
//! an association or belong to none, for the calls of a stack and of a listener, and when an association ends.

use super::carrier::DownAddresses;
use super::config::Connect;
use super::error::{
    AddAddressError, CallError, ConnectError, ListenError, Stopped, SystemError, UnusableAddress,
};
use super::inbox::Inbox;
use super::limits::{ACCEPT_QUEUE, ACCEPT_RESERVE};
use super::locals::Locals;
use super::member::{Member, MemberState};
use super::opening::BoundSocket;
use super::ports::Ports;
use super::waiters::{Waiters, Wakes};
use ringway_sansio::{Addressing, Icmp, Time};
use ringway_sctp::{
    self as refusal, AssocId, Association, Associations, Counters, Endpoint, ListenerId, Settings,
    Settled,
};
use ringway_transport::Holdings;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The abort reason of an association that no program accepts.
const NOT_ACCEPTED: &[u8] = b"no program accepts associations here now";

/// The associations of an endpoint, each behind its lock.
struct Members {
    by_id: HashMap<AssocId, Arc<Member>>,
    inboxes: Arc<[Arc<Inbox>]>,
    /// Those that the endpoint has called since they were settled last, and those that it has inserted.
    called: Vec<AssocId>,
    inserted: Vec<Arc<Member>>,
}

impl Associations for Members {
    fn insert(&mut self, id: AssocId, association: Association) {
        // The kernel divides the packets among the sockets of the drivers in the same way.
        let driver = association.tag() as usize % self.inboxes.len();
        let member = Member::new(id, association, (driver, self.inboxes[driver].clone()));
        self.by_id.insert(id, member.clone());
        self.inserted.push(member);
        self.called.push(id);
    }

    fn with<R>(&mut self, id: AssocId, call: impl FnOnce(&mut Association) -> R) -> Option<R> {
        let result = call(&mut self.by_id.get(&id)?.lock().association);
        if self.called.last() != Some(&id) {
            self.called.push(id);
        }
        Some(result)
    }

    fn read<R>(&self, id: AssocId, call: impl FnOnce(&Association) -> R) -> Option<R> {
        Some(call(&self.by_id.get(&id)?.lock().association))
    }
}

/// The users' view of a listener.
struct AcceptQueue {
    port: u16,
    /// The associations that wait to be accepted, with the sources that opened them.
    queue: VecDeque<(IpAddr, Arc<Member>)>,
    /// The room in the queue, which the sources hold.
    room: Holdings,
    waiters: Waiters,
}

impl AcceptQueue {
    fn new(port: u16) -> AcceptQueue {
        let room = Holdings::with_reserve(ACCEPT_QUEUE, ACCEPT_RESERVE);
        AcceptQueue { port, queue: VecDeque::new(), room, waiters: Waiters::default() }
    }

    /// Adds an association, if there is room for one more of its source.
    fn push(&mut self, source: IpAddr, member: &Arc<Member>) -> bool {
        let fits = self.room.take(source);
        if fits {
            self.queue.push_back((source, member.clone()));
        }
        fits
    }

    /// Removes and returns the association at an index.
    fn remove(&mut self, index: usize) -> Option<Arc<Member>> {
        let (source, member) = self.queue.remove(index)?;
        self.room.release(source);
        Some(member)
    }
}

/// See the module.
pub(super) struct Tables {
    endpoint: Endpoint,
    members: Members,
    listeners: HashMap<ListenerId, AcceptQueue>,
    /// Associations refused because the accept queue, or the share of their source, was full.
    refused: u64,
    /// Directly over IP: the ports that this stack holds.
    ports: Option<Ports>,
    /// In UDP: the local addresses.
    locals: Option<Locals>,
    /// Local addresses that cannot be used now.
    down_addresses: DownAddresses,
    /// ICMP messages received.
    icmp: u64,
    /// The last handle of the stack was dropped.
    closing: bool,
    /// Set when it was and the last association has ended, for the drivers to end too.
    over: Arc<AtomicBool>,
    wakes: Wakes,
}

impl Tables {
    pub(super) fn new(
        mut endpoint: Endpoint,
        inboxes: Arc<[Arc<Inbox>]>,
        ports: Option<Ports>,
        locals: Option<Locals>,
        down_addresses: DownAddresses,
    ) -> Tables {
        endpoint.spread_tags(inboxes.len() as u32);
        let (by_id, called, inserted) = (HashMap::new(), Vec::new(), Vec::new());
        Tables {
            endpoint,
            members: Members { by_id, inboxes, called, inserted },
            listeners: HashMap::new(),
            refused: 0,
            ports,
            locals,
            down_addresses,
            icmp: 0,
            closing: false,
            over: Arc::default(),
            wakes: Wakes::new(),
        }
    }

    /// Removes and returns the tasks to wake once the lock is released.
    pub(super) fn take_wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    /// Returns what is set once the drivers are to end.
    pub(super) fn over(&self) -> Arc<AtomicBool> {
        self.over.clone()
    }

    /// Returns the association whose packets have a tag.
    pub(super) fn find(&self, tag: u32) -> Option<Arc<Member>> {
        self.members.by_id.get(&self.endpoint.find(tag)?).cloned()
    }

    /// Handles a packet of no association, or one that opens an association.
    pub(super) fn handle_packet(&mut self, now: Time, addressing: &Addressing, packet: &[u8]) {
        self.endpoint.handle_packet(now, &mut self.members, addressing, packet);
        self.settle_called();
    }

    /// Handles an ICMP message about a packet that was sent.
    pub(super) fn handle_icmp(&mut self, now: Time, sent: &Addressing, icmp: Icmp, quoted: &[u8]) {
        self.icmp += 1;
        self.endpoint.handle_icmp(now, &mut self.members, sent, icmp, quoted);
        self.settle_called();
    }

    /// Appends the next packet that belongs to no association to `out`, and returns its addressing.
    pub(super) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Addressing> {
        self.endpoint.poll_transmit(out)
    }

    /// Settles the associations that the endpoint has called.
    fn settle_called(&mut self) {
        while let Some(member) = self.members.inserted.pop() {
            self.admit(&member);
        }
        while let Some(id) = self.members.called.pop() {
            if let Some(member) = self.members.by_id.get(&id).cloned() {
                self.settle(&member);
            }
        }
    }

    /// Holds the port of an association that was inserted, and passes one that a peer has opened to its listener.
    fn admit(&mut self, member: &Arc<Member>) {
        // It is held already, by the listener or by the call that opened the association.
        let _ = self.hold_port(member.port);
        let Some((listener, source)) = self.endpoint.accepted(member.id) else { return };
        let accepting = self.listeners.get_mut(&listener);
        let queued = accepting.and_then(|l| l.push(source, member).then_some(l));
        let Some(accepting) = queued else {
            self.refused += 1;
            return self.abort(member, NOT_ACCEPTED);
        };
        self.wakes.extend(accepting.waiters.drain());
        member.lock().wait_at(listener);
    }

    /// Updates the tables after calls of an association.
    pub(super) fn settle(&mut self, member: &Arc<Member>) {
        self.settle_locked(member, &mut member.lock());
    }

    /// As [`Tables::settle`], for an association that is locked.
    fn settle_locked(&mut self, member: &Arc<Member>, state: &mut MemberState) {
        state.dispatch();
        if state.view.closed().is_some() && self.remove_unaccepted(member, state) {
            state.abandon();
        }
        let settled = self.endpoint.settle(member.id, &mut state.association);
        self.finish(member, state, settled == Settled::Released);
    }

    /// Notes that an association is settled, and has its driver look at it.
    fn finish(&mut self, member: &Arc<Member>, state: &mut MemberState, released: bool) {
        if released && !state.is_released() {
            self.members.by_id.remove(&member.id);
            self.release_port(member.port);
            self.check_over();
        }
        state.settled(released);
        if state.view.closed().is_some() {
            // The final chunk comes after what the association has sent.
            self.wakes.extend(member.inbox.push_replies());
        }
        member.queue(state);
        self.wakes.extend(state.take_wakes());
    }

    /// Removes an association that has ended without unread data from the accept queue, where it would
    /// take the slot of a live one. Returns whether it did.
    fn remove_unaccepted(&mut self, member: &Arc<Member>, state: &mut MemberState) -> bool {
        let accepting = state.listener().and_then(|listener| self.listeners.get_mut(&listener));
        let Some(accepting) = accepting.filter(|_| state.association.is_spent()) else {
            return false;
        };
        let index = accepting.queue.iter().position(|(_, waiting)| Arc::ptr_eq(waiting, member));
        index.and_then(|index| accepting.remove(index)).is_some()
    }

    /// Calls an association unless it has ended, and settles it.
    pub(super) fn call<R, E: std::error::Error + 'static>(
        &mut self,
        member: &Arc<Member>,
        call: impl FnOnce(&mut MemberState) -> Result<R, E>,
    ) -> Result<R, CallError<E>> {
        let mut state = member.lock();
        state.check_open()?;
        let result = call(&mut state).map_err(CallError::Refused)?;
        self.settle_locked(member, &mut state);
        Ok(result)
    }

    /// Aborts an association, unless it has ended.
    pub(super) fn abort(&mut self, member: &Arc<Member>, reason: &[u8]) {
        let mut state = member.lock();
        if state.view.closed().is_some() {
            return self.settle_locked(member, &mut state);
        }
        state.abort(reason);
        self.remove_unaccepted(member, &mut state);
        self.endpoint.remove(member.id, &mut state.association);
        self.finish(member, &mut state, true);
    }

    /// Listens, see [`Stack::listen`](super::Stack::listen).
    pub(super) fn listen(
        &mut self,
        addresses: &[IpAddr],
        port: u16,
        settings: Option<Settings>,
    ) -> Result<ListenerId, ListenError> {
        self.check_locals(addresses)?;
        self.hold_port(port)?;
        let listening = self.endpoint.listen(addresses, port, settings);
        let id = listening.inspect_err(|_| self.release_port(port))?;
        self.listeners.insert(id, AcceptQueue::new(port));
        Ok(id)
    }

    /// Closes a listener; the associations in its queue are aborted.
    pub(super) fn unlisten(&mut self, listener: ListenerId) {
        let _ = self.endpoint.unlisten(listener);
        let Some(accepting) = self.listeners.remove(&listener) else { return };
        for (_, member) in accepting.queue {
            member.lock().abandon();
            self.abort(&member, NOT_ACCEPTED);
        }
        self.release_port(accepting.port);
    }

    /// Removes and returns the next association from a listener's queue. If there is none, `wait` adds a task to those
    /// that wait.
    pub(super) fn accept(
        &mut self,
        listener: ListenerId,
        wait: impl FnOnce(&mut Waiters),
    ) -> Result<Option<Arc<Member>>, Stopped> {
        let accepting = self.listeners.get_mut(&listener).ok_or(Stopped)?;
        let Some(member) = accepting.remove(0) else {
            wait(&mut accepting.waiters);
            return Ok(None);
        };
        member.lock().leave_listener();
        Ok(Some(member))
    }

    /// Opens an association, see [`Stack::open`](super::Stack::open).
    pub(super) fn connect(
        &mut self,
        now: Time,
        connect: &Connect,
        settings: Settings,
    ) -> Result<Arc<Member>, ConnectError> {
        self.check_locals(&connect.locals)?;
        match connect.local_port {
            0 if self.ports.is_some() => self.connect_from_any_port(now, connect, settings),
            port => self.connect_from(now, connect, port, settings),
        }
    }

    /// Opens an association from a port; 0 for any, where no other process has ports.
    fn connect_from(
        &mut self,
        now: Time,
        connect: &Connect,
        port: u16,
        settings: Settings,
    ) -> Result<Arc<Member>, ConnectError> {
        self.hold_port(port)?;
        let Connect { locals, remotes, remote_port, .. } = connect;
        let (to, settings) = (*remote_port, Some(settings));
        let opened =
            self.endpoint.connect(now, &mut self.members, locals, port, remotes, to, settings);
        self.settle_called();
        // The association holds it too.
        self.release_port(port);
        Ok(self.members.by_id.get(&opened?).cloned().ok_or(Stopped)?)
    }

    /// Opens an association from an ephemeral port that no other process holds.
    fn connect_from_any_port(
        &mut self,
        now: Time,
        connect: &Connect,
        settings: Settings,
    ) -> Result<Arc<Member>, ConnectError> {
        let mut attempts = 0;
        loop {
            let port = self.ephemeral_port(attempts)?;
            match self.connect_from(now, connect, port, settings) {
                Err(ConnectError::Refused(refusal::ConnectError::InUse)) => attempts += 1,
                result => return result,
            }
        }
    }

    /// Holds a port against other processes, until [`Tables::release_port`] is called as often. In UDP there is none.
    fn hold_port(&mut self, port: u16) -> Result<(), SystemError> {
        let Some(ports) = &mut self.ports else { return Ok(()) };
        ports.hold(port).map_err(|e| SystemError::new(format!("sctp port {port}"), e))
    }

    /// Returns an ephemeral port to hold: one that is held already for the first `attempts`, then another.
    fn ephemeral_port(&mut self, attempts: usize) -> Result<u16, refusal::ConnectError> {
        // Without ports to share, the protocol chooses.
        let Some(ports) = &mut self.ports else { return Ok(0) };
        let another = attempts > 0 && attempts >= ports.ephemeral_held();
        ports.ephemeral(another).ok_or(refusal::ConnectError::NoPort)
    }

    fn release_port(&mut self, port: u16) {
        if let Some(ports) = &mut self.ports {
            ports.release(port);
        }
    }

    /// See [`Stack::join_addresses`](super::Stack::join_addresses).
    pub(super) fn join_addresses(&mut self, addresses: &[IpAddr]) {
        self.endpoint.join_addresses(addresses);
    }

    /// Opens sockets at a local address, one for each driver, unless there are some or the stack is not in UDP.
    pub(super) fn open_local(&self, local: IpAddr) -> Result<Vec<BoundSocket>, AddAddressError> {
        let drivers = self.members.inboxes.len();
        self.locals.as_ref().map_or(Ok(Vec::new()), |locals| locals.open(local, drivers))
    }

    /// Passes sockets to the drivers.
    pub(super) fn keep_local(&mut self, bound: Vec<BoundSocket>) {
        if let (Some(locals), Some((_, addr))) = (&mut self.locals, bound.first()) {
            locals.keep(addr.ip());
        }
        for (inbox, bound) in self.members.inboxes.iter().zip(bound) {
            self.wakes.extend(inbox.push_socket(bound));
        }
    }

    /// Refuses local addresses from which no packet can be sent.
    fn check_locals(&self, addresses: &[IpAddr]) -> Result<(), UnusableAddress> {
        self.locals.as_ref().map_or(Ok(()), |locals| locals.check(addresses))
    }

    /// Handles a local address that became unusable, or usable again. The paths from it are probed at once.
    /// Sending from an unusable address fails, and thereby the path.
    pub(super) fn address_changed(&mut self, address: IpAddr, usable: bool) {
        let mut down = self.down_addresses.load().as_ref().clone();
        down.retain(|ip| *ip != address);
        if !usable {
            down.push(address);
        }
        self.down_addresses.store(Arc::new(down));
        for member in self.members.by_id.values() {
            let mut state = member.lock();
            if !state.association.addresses().0.contains(&address) {
                continue;
            }
            let paths = state.association.snapshot().paths;
            for path in paths.iter().filter(|path| path.local == address) {
                let _ = state.association.request_heartbeat(path.remote);
            }
            state.dispatch();
            member.queue(&mut state);
            self.wakes.extend(state.take_wakes());
        }
    }

    /// Returns the number of associations, of which those that have ended have unread messages.
    pub(super) fn len(&self) -> usize {
        self.endpoint.len()
    }

    /// Returns the counters of the endpoint.
    pub(super) fn counters(&self) -> Counters {
        self.endpoint.counters()
    }

    /// Returns the number of associations refused because the accept queue was full.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the number of ICMP messages received.
    pub(super) fn icmp(&self) -> u64 {
        self.icmp
    }

    /// Notes that the last handle of the stack was dropped.
    pub(super) fn close(&mut self) {
        self.closing = true;
        self.check_over();
    }

    /// Has the drivers end if nobody uses the stack and the last association has ended.
    fn check_over(&mut self) {
        if self.closing && self.endpoint.is_empty() {
            self.over.store(true, Ordering::Release);
            for inbox in self.members.inboxes.iter() {
                self.wakes.extend(inbox.kick());
            }
        }
    }

    /// Wakes all tasks, because the stack has stopped.
    pub(super) fn wake_all(&mut self) {
        for member in self.members.by_id.values() {
            let mut state = member.lock();
            state.wake_all();
            self.wakes.extend(state.take_wakes());
        }
        for accepting in self.listeners.values_mut() {
            self.wakes.extend(accepting.waiters.take());
        }
    }
}
