//! What the connections of a program share: memory, pool, keys, limits.

mod memory;
mod opening;

use crate::carrier::Carrier;
use crate::draining::Draining;
use crate::error::Error;
use crate::group::Group;
use crate::keyring::Keyring;
use crate::limits::Limits;
use crate::quic::Sessions;
use crate::sctp::Stacks;
use crate::transport::{Request, Resources};
use memory::Remembered;
use ringway_os::Clock;
use ringway_os::netlink::{Netlink, NetlinkError};
use ringway_sansio::Time;
use ringway_services::pool::{AssociationId, Close, Pool};
use ringway_services::queue::ConnectionId;
use ringway_services::{
    Availability, Interface, Preconnection as Policy, Preference, Protocol, Ranked, Role, Service,
    Unfit,
};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

/// The time for which the number of an SCTP stream rests that both ends have ended.
const STREAM_REST: Duration = Duration::from_secs(2);

/// The state that is shared.
pub(crate) struct Inner {
    resources: Arc<Resources>,
    memory: Remembered,
    state: Mutex<State>,
    lacking: HashMap<Protocol, String>,
}

struct State {
    pool: Pool,
    groups: HashMap<AssociationId, Arc<Group>>,
    /// Connections that wait for an association to be opened.
    pending: HashMap<ConnectionId, Pending>,
    /// The tasks that open associations.
    openings: HashMap<AssociationId, AbortHandle>,
    /// The task that closes idle associations.
    timer: Option<AbortHandle>,
    /// The tasks that wait until the number of a stream has rested. They end with the system.
    resting: JoinSet<()>,
}

/// What a connection that waits for its association gets.
type Outcome = Result<(Arc<Group>, Box<dyn Carrier>), Error>;

/// A connection that waits for its association to be opened.
struct Pending {
    request: Request,
    sender: oneshot::Sender<Outcome>,
}

/// The transport services of a program. Clones are handles of the same system. Connections of one system share transport
/// connections, and all systems of a process share the memory of what worked.
#[derive(Clone)]
pub struct System(Arc<Inner>);

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("limits", self.limits()).finish_non_exhaustive()
    }
}

/// Settings of a system.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    limits: Limits,
    keyring: Keyring,
    file: Option<PathBuf>,
    forgets: bool,
    without: Vec<(Protocol, String)>,
}

impl Builder {
    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets certificates, keys and trust.
    #[must_use]
    pub fn keyring(mut self, keyring: Keyring) -> Self {
        self.keyring = keyring;
        self
    }

    /// Has the memory of what worked read from a file, and written to it after each race.
    #[must_use]
    pub fn memory_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Gives the system a memory of its own, which begins empty, instead of that of the process.
    #[must_use]
    pub fn own_memory(mut self) -> Self {
        self.forgets = true;
        self
    }

    /// Has the system do without a protocol, for this reason.
    #[must_use]
    pub fn without(mut self, protocol: Protocol, reason: &str) -> Self {
        self.without.push((protocol, reason.to_string()));
        self
    }

    /// Returns the system. It finds out what the host has; it opens nothing that stays open.
    ///
    /// # Errors
    /// The file of the memory cannot be read.
    pub fn build(self) -> Result<System, Error> {
        let clock = Clock::new();
        let memory = Remembered::new(self.file, self.forgets, clock.now())?;
        let mut lacking: HashMap<Protocol, String> = crate::host::lacking();
        lacking.extend(self.without);
        Ok(System(Arc::new(Inner {
            resources: Arc::new(Resources {
                limits: self.limits,
                keyring: self.keyring,
                clock,
                stacks: Stacks::default(),
                draining: Draining::new(self.limits.draining),
                sessions: Sessions::default(),
            }),
            memory,
            state: Mutex::new(State {
                pool: Pool::new(self.limits.pool),
                groups: HashMap::new(),
                pending: HashMap::new(),
                openings: HashMap::new(),
                timer: None,
                resting: JoinSet::new(),
            }),
            lacking,
        })))
    }
}

impl System {
    /// Returns a system with the default limits, an empty keyring and the memory of the process.
    pub fn new() -> System {
        // Without a file nothing is read that could fail.
        Builder::default().build().unwrap_or_else(|_| unreachable!("no file of a memory was named"))
    }

    /// Returns the settings of a system to come.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Limits {
        &self.0.resources.limits
    }

    /// Returns the number of closed connections that were aborted although their peer read, because its source had more than
    /// its share of [`Limits::draining`].
    pub fn drains_aborted(&self) -> u64 {
        self.0.resources.draining.evicted()
    }

    pub(crate) fn resources(&self) -> &Resources {
        &self.0.resources
    }

    pub(crate) fn now(&self) -> Time {
        self.0.resources.clock.now()
    }

    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> System {
        System(inner)
    }

    /// Returns the number of a new connection, which no other system of the process uses.
    pub(crate) fn next_id() -> ConnectionId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the host has for a preconnection.
    pub(crate) fn availability(&self, policy: &Policy, role: Role) -> Availability {
        let mut availability = Availability::all();
        for (protocol, reason) in &self.0.lacking {
            availability = availability.without(*protocol, reason);
        }
        let insecure = match role {
            Role::Listen => self.0.resources.keyring.lacks_identity(),
            Role::Initiate | Role::Rendezvous => self.0.resources.keyring.lacks_trust(),
        };
        for protocol in [Protocol::Tls, Protocol::Quic, Protocol::QuicDatagram] {
            if let Some(reason) = insecure {
                availability = availability.without(protocol, reason);
            }
        }
        availability = crate::host::carried(availability);
        if role == Role::Rendezvous {
            let both = [Protocol::Tcp, Protocol::Mptcp, Protocol::Udp, Protocol::UdpLite];
            for protocol in Protocol::ALL.iter().filter(|protocol| !both.contains(protocol)) {
                availability = availability.without(*protocol, "its ends have different roles");
            }
        }
        if needs_interfaces(policy) {
            match interfaces() {
                Ok(interfaces) => availability.interfaces = interfaces,
                // What is demanded must not seem to be met.
                Err(error) if demands_interface(policy) => {
                    let reason = format!("the interfaces of the host are not known: {error}");
                    for protocol in Protocol::ALL {
                        availability = availability.without(*protocol, &reason);
                    }
                }
                Err(_) => {}
            }
        }
        availability
    }

    /// Returns the candidates of a connection to open.
    pub(crate) fn candidates(&self, policy: &Policy) -> Result<Ranked, Unfit> {
        let now = self.now();
        let availability = self.availability(policy, Role::Initiate);
        self.0.memory.with(|memory| policy.candidates(now, &availability, memory))
    }

    /// Counts a connection that the peer has added. Returns whether the limits allow it.
    pub(crate) fn peer_opened(
        &self,
        association: AssociationId,
        stream: u32,
        connection: ConnectionId,
    ) -> bool {
        self.lock().pool.peer_opened(association, stream, connection).is_ok()
    }

    /// Reports that both ends have ended a stream. Its number is used again a while later, so that at the peer the end of
    /// one connection is read before the beginning of the next.
    pub(crate) fn released(&self, association: AssociationId, stream: u32) {
        let system = self.downgrade();
        let mut state = self.lock();
        while state.resting.try_join_next().is_some() {}
        state.resting.spawn(async move {
            tokio::time::sleep(STREAM_REST).await;
            if let Some(system) = system.upgrade().map(System) {
                system.lock().pool.released(association, stream);
            }
        });
    }

    /// Reports that an association has ended.
    pub(crate) fn ended(&self, association: AssociationId) {
        let mut state = self.lock();
        state.pool.ended(association);
        let group = state.groups.remove(&association);
        drop(state);
        drop(group);
    }

    /// Removes a connection that was closed, and closes its association if nothing else needs it.
    pub(crate) fn release(&self, group: &Group, connection: ConnectionId) {
        if self.remove(group, connection) {
            group.close();
        }
    }

    /// Removes a connection that was aborted, and aborts its association if nothing else may use it.
    pub(crate) fn release_aborted(&self, group: &Group, connection: ConnectionId) {
        if self.remove(group, connection) {
            group.abort();
        }
    }

    /// Removes a connection. Returns whether its association is to be ended.
    fn remove(&self, group: &Group, connection: ConnectionId) -> bool {
        let now = self.now();
        let mut state = self.lock();
        match state.pool.close(now, connection) {
            Some(Close::Association(association)) => {
                let group = state.groups.remove(&association);
                drop(state);
                drop(group);
                true
            }
            Some(Close::Stream(association, stream)) => {
                if !group.reuses_streams() {
                    state.pool.released(association, stream);
                }
                self.start_timer(&mut state);
                drop(state);
                group.forget(stream);
                false
            }
            None => false,
        }
    }

    /// Starts the task that closes idle associations, if there are any and it does not run. Without a runtime, which may
    /// have ended before the connection, its sockets have been closed already.
    fn start_timer(&self, state: &mut State) {
        let runs = state.timer.as_ref().is_some_and(|timer| !timer.is_finished());
        if runs || state.pool.poll_timeout().is_none() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let system = self.downgrade();
        state.timer = Some(runtime.spawn(close_idle(system)).abort_handle());
    }

    /// Closes what has been idle for too long, and returns when something else will have been.
    fn expire(&self) -> Option<std::time::Instant> {
        let now = self.now();
        let mut state = self.lock();
        let idle = state.pool.handle_timeout(now);
        let groups: Vec<_> = idle.iter().filter_map(|id| state.groups.remove(id)).collect();
        let next = state.pool.poll_timeout();
        if next.is_none() {
            state.timer = None;
        }
        drop(state);
        groups.iter().for_each(|group| group.close());
        next.map(|at| self.0.resources.clock.instant(at))
    }

    /// Returns the number of transport connections that are open.
    pub fn associations(&self) -> usize {
        self.lock().groups.len()
    }
}

impl Default for System {
    fn default() -> Self {
        Self::new()
    }
}

async fn close_idle(system: Weak<Inner>) {
    loop {
        let Some(next) = system.upgrade().map(System).and_then(|system| system.expire()) else {
            return;
        };
        tokio::time::sleep_until(next.into()).await;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(timer) = state.timer.take() {
            timer.abort();
        }
        state.openings.values().for_each(AbortHandle::abort);
        state.groups.values().for_each(|group| group.close());
    }
}

/// Returns whether a preconnection names interfaces or the kind of its local address, so that the host's must be known.
fn needs_interfaces(policy: &Policy) -> bool {
    let selection = &policy.properties.selection;
    let temporary = selection.stated(Service::UseTemporaryLocalAddress);
    !selection.interface.0.is_empty()
        || policy.local.interface.is_some()
        || temporary.is_some_and(|preference| preference != Preference::NoPreference)
}

/// Returns whether a preconnection requires or prohibits an interface.
fn demands_interface(policy: &Policy) -> bool {
    let is_demand = |preference| matches!(preference, Preference::Require | Preference::Prohibit);
    let mut selectors = policy.properties.selection.interface.0.iter();
    policy.local.interface.is_some() || selectors.any(|(preference, _)| is_demand(*preference))
}

/// Returns the host's interfaces with their usable addresses, in the order of their numbers.
fn interfaces() -> Result<Vec<Interface>, io::Error> {
    let mut netlink = Netlink::open()?;
    let failed = |error: NetlinkError| error.cause;
    let links = netlink.links().map_err(failed)?;
    let addresses = netlink.addresses().map_err(failed)?;
    let mut interfaces = Vec::new();
    for link in links.iter().filter(|link| link.is_up()) {
        let kind = if link.is_loopback() { "loopback" } else { "" };
        let mut interface = Interface::new(&link.name, kind, &link.name);
        let own = addresses.iter().filter(|one| one.interface == link.index && one.is_usable());
        for address in own {
            // IFA_F_TEMPORARY means something else for IPv4 (rtnetlink(7)).
            let temporary = address.ip.is_ipv6() && address.flags & libc::IFA_F_TEMPORARY != 0;
            interface = interface.with_address(address.ip, temporary);
        }
        interfaces.push(interface);
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_that_rests_does_not_outlive_the_system() {
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let system = System::builder().own_memory().build().unwrap();
        for stream in 0..10 {
            system.released(AssociationId(1), stream);
        }
        assert_eq!(alive(), 10);
        drop(system);
        // The runtime drops what was aborted in its next turns.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(alive(), 0);
    }
}
