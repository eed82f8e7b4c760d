//! What the workers of one process share: mailboxes, the count of connections, and the directory of
//! connections that a worker may use although another owns them. Locks are taken when connections
//! come and go, and to look up a peer that the worker itself has no connection to; never for a
//! message on a known flow.

use crate::clock::Clock;
use crate::counters::Counters;
use crate::limits::{Limits, reserved_files};
use crate::mailbox::Mailbox;
use crate::origin::Origins;
use crate::route::{Listener, LocalAddresses};
use crate::share::source_of;
use crate::sys::max_files;
use crate::tls::{TlsClient, TlsServer};
use crate::udp::Ledger;
use arc_swap::ArcSwap;
use ringway_sansio::{Flow, FlowId, Transport};
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Aliases one connection may have (RFC 5923): an honest peer has one for each of its listeners.
pub const ALIASES_PER_FLOW: usize = 8;

/// Addresses at which the peer of one association may be found, the first not counted: as many as an
/// association has.
const ADDRESSES_PER_FLOW: usize = 16;

pub(crate) struct Shared<P> {
    pub(crate) mailboxes: Vec<Mailbox<P>>,
    pub(crate) counters: Vec<Arc<Counters>>,
    /// One for each that was asked for, in order; then the further addresses of those over SCTP.
    pub(crate) listeners: Vec<Listener>,
    /// For each listener the place of the one that was asked for.
    pub(crate) places: Vec<usize>,
    /// For each that was asked for, the worker that alone serves it, if it is one alone.
    pub(crate) owners: Vec<Option<u8>>,
    /// Tells calls apart on the streams of SCTP.
    pub(crate) call_key: RandomState,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) tls_server: Option<Arc<TlsServer>>,
    pub(crate) tls_client: Option<Arc<TlsClient>>,
    pub(crate) stop: watch::Sender<Option<Duration>>,
    pub(crate) admission: Mutex<Admission>,
    pub(crate) files: Files,
    pub(crate) directory: Mutex<Directory>,
    /// The web pages that may open a WebSocket.
    pub(crate) origins: ArcSwap<Origins>,
    /// Which worker sent what an ICMP message quotes.
    pub(crate) ledger: Arc<Ledger>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A worker that panicked left nothing half done in these tables.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P> Shared<P> {
    pub(crate) fn admission(&self) -> MutexGuard<'_, Admission> {
        lock(&self.admission)
    }

    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        lock(&self.directory)
    }
}

/// What connections may take of the process's file descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files {
    /// The first descriptor that no connection takes. The system gives the lowest that is free, so when it
    /// gives this one, fewer than the reserved ones are left.
    pub(crate) end: usize,
    /// Connections there is room for.
    room: usize,
}

impl Files {
    /// For these limits, with so many descriptors open already.
    pub(crate) fn new(limits: &Limits, open: usize) -> Self {
        let files = limits.files.or_else(max_files).unwrap_or(usize::MAX);
        let end = files - reserved_files(files);
        Files { end, room: end.saturating_sub(open).max(1) }
    }

    /// Whether a connection may have this descriptor.
    pub(crate) fn permit(&self, fd: &impl AsRawFd) -> bool {
        usize::try_from(fd.as_raw_fd()).is_ok_and(|fd| fd < self.end)
    }
}

/// How many descriptors the process has open; 0 where the system does not tell.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Counts connections against the limits.
#[derive(Default)]
pub(crate) struct Admission {
    total: usize,
    /// Of these, associations of SCTP, which take no file descriptor each.
    associations: usize,
    sources: HashMap<IpAddr, u32>,
}

fn is_association(transport: Transport) -> bool {
    matches!(transport, Transport::Sctp | Transport::TlsSctp)
}

/// Why a connection is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Total,
    Source,
}

impl Admission {
    /// Counts a connection in; from a source when it is an accepted one. So that a few sources cannot shut
    /// out all others, each has a share of what there is, and a small one once half of it is taken.
    pub(crate) fn admit(
        &mut self,
        limits: &Limits,
        files: &Files,
        transport: Transport,
        source: Option<IpAddr>,
    ) -> Result<(), Refused> {
        let streams = !is_association(transport);
        let room = if streams { files.room } else { usize::MAX };
        let all = limits.connections.min(room);
        let used = self.total - if all < limits.connections { self.associations } else { 0 };
        let kept = if source.is_some() { all / 8 } else { 0 };
        if self.total >= limits.connections || used >= all - kept {
            return Err(Refused::Total);
        }
        if let Some(source) = source {
            let share = if used < all / 2 { all / 4 } else { all / 64 };
            let share = share.max(1).min(limits.connections_per_source);
            let count = self.sources.entry(source_of(source)).or_default();
            if *count as usize >= share {
                if *count == 0 {
                    self.sources.remove(&source_of(source));
                }
                return Err(Refused::Source);
            }
            *count += 1;
        }
        self.total += 1;
        self.associations += usize::from(!streams);
        Ok(())
    }

    /// Counts it out again.
    pub(crate) fn release(&mut self, transport: Transport, source: Option<IpAddr>) {
        self.total = self.total.saturating_sub(1);
        if is_association(transport) {
            self.associations = self.associations.saturating_sub(1);
        }
        if let Some(source) = source
            && let Entry::Occupied(mut count) = self.sources.entry(source_of(source))
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Where a message for an address may go although this worker opened no connection to it.
#[derive(Default)]
pub(crate) struct Directory {
    /// Accepted connections by the peer's address, and their aliases.
    entries: HashMap<(Transport, SocketAddr), Known>,
    /// For each connection in the directory, what to take out with it and who was proved.
    flows: HashMap<FlowId, Held>,
}

struct Known {
    flow: Flow,
    alias: bool,
}

struct Held {
    domains: Vec<Box<str>>,
    keys: Vec<SocketAddr>,
}

impl Directory {
    /// Enters an accepted connection.
    pub(crate) fn insert(&mut self, flow: Flow, domains: Vec<Box<str>>) {
        self.entries.insert((flow.transport, flow.remote), Known { flow, alias: false });
        self.flows.insert(flow.id, Held { domains, keys: vec![flow.remote] });
    }

    /// An association was found to reach its peer at a further address too. It never takes the place
    /// of another connection.
    pub(crate) fn reaches(&mut self, flow: &Flow, addr: SocketAddr) {
        let Some(held) = self.flows.get_mut(&flow.id) else { return };
        if held.keys.len() <= ADDRESSES_PER_FLOW
            && let Entry::Vacant(entry) = self.entries.entry((flow.transport, addr))
        {
            entry.insert(Known { flow: *flow, alias: false });
            held.keys.push(addr);
        }
    }

    /// Takes a connection out with all its aliases.
    pub(crate) fn remove(&mut self, flow: &Flow) {
        let Some(held) = self.flows.remove(&flow.id) else { return };
        for addr in held.keys {
            if let Entry::Occupied(entry) = self.entries.entry((flow.transport, addr))
                && entry.get().flow.id == flow.id
            {
                entry.remove();
            }
        }
    }

    /// RFC 5923 section 8.2: messages for `addr` may use this connection from now on. Only for TLS
    /// whose peer proved who it is (section 9.2), and never in the place of another connection.
    pub(crate) fn alias(&mut self, flow: &Flow, addr: SocketAddr) -> bool {
        let Some(held) = self.flows.get_mut(&flow.id) else { return false };
        if flow.transport != Transport::Tls || held.domains.is_empty() {
            return false;
        }
        match self.entries.entry((flow.transport, addr)) {
            Entry::Occupied(entry) => entry.get().flow.id == flow.id,
            Entry::Vacant(_) if held.keys.len() > ALIASES_PER_FLOW => false,
            Entry::Vacant(entry) => {
                entry.insert(Known { flow: *flow, alias: true });
                held.keys.push(addr);
                true
            }
        }
    }

    /// The connection to use for a peer, if there is one. An alias serves only a name that its peer
    /// proved (RFC 5923 section 8.2), and so does a secure connection when a name is asked for.
    pub(crate) fn find(
        &self,
        transport: Transport,
        remote: SocketAddr,
        name: Option<&str>,
    ) -> Option<Flow> {
        let known = self.entries.get(&(transport, remote))?;
        if transport.is_secure() {
            let proved = name.is_some_and(|name| {
                let domains = self.flows.get(&known.flow.id).map_or(&[][..], |h| &h.domains);
                domains.iter().any(|d| d.eq_ignore_ascii_case(name))
            });
            if !proved && (known.alias || name.is_some()) {
                return None;
            }
        }
        Some(known.flow)
    }
}

/// What may be asked of running endpoints from any thread. Cheap to copy.
pub struct Control<P>(pub(crate) Arc<Shared<P>>);

impl<P> Clone for Control<P> {
    fn clone(&self) -> Self {
        Control(self.0.clone())
    }
}

impl<P> Control<P> {
    /// The way to each worker, by its number.
    pub fn mailboxes(&self) -> &[Mailbox<P>] {
        &self.0.mailboxes
    }

    /// The counters of each worker, by its number.
    pub fn counters(&self) -> &[Arc<Counters>] {
        &self.0.counters
    }

    /// What is listened on, in the order it was asked for, with the ports the system chose; after
    /// that the further addresses of listeners that have several.
    pub fn listeners(&self) -> &[Listener] {
        &self.0.listeners
    }

    /// Our own addresses as peers see them, to keep where they are asked for often.
    pub fn local_addresses(&self) -> LocalAddresses {
        LocalAddresses::new(&self.0.listeners)
    }

    /// Lets messages for `addr`, over the flow's transport, use this accepted connection
    /// (RFC 5923): for a request that came over `flow` with `alias` in its top Via, `addr` is the
    /// source address of the flow with the port of sent-by or 5061. `false`, and nothing changed,
    /// unless the flow is TLS and its peer proved its names by a certificate. Takes a lock: ask only
    /// when a request says `alias`.
    pub fn alias(&self, flow: &Flow, addr: SocketAddr) -> bool {
        self.0.directory().alias(flow, addr)
    }

    /// Sets the web pages that may open a WebSocket from now on.
    pub fn set_origins(&self, origins: Origins) {
        self.0.origins.store(Arc::new(origins));
    }

    /// Tells every endpoint to stop: accept no more, write what is queued for at most `grace`, end.
    pub fn stop(&self, grace: Duration) {
        self.0.stop.send_replace(Some(grace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Transport = Transport::Tcp;

    fn flow(serial: u64, transport: Transport, remote: &str) -> Flow {
        Flow {
            id: FlowId::new(1, serial),
            transport,
            local: "127.0.0.1:5061".parse().unwrap(),
            remote: remote.parse().unwrap(),
        }
    }

    #[test]
    fn a_source_has_its_share_and_a_prefix_is_one_source() {
        let limits = Limits { connections: 3, connections_per_source: 1, ..Limits::default() };
        let mut a = Admission::default();
        let files = Files::new(&limits, 0);
        let ip = |s: &str| Some(s.parse::<IpAddr>().unwrap());
        assert_eq!(a.admit(&limits, &files, TCP, ip("2001:db8::1")), Ok(()));
        assert_eq!(a.admit(&limits, &files, TCP, ip("2001:db8::2")), Err(Refused::Source));
        assert_eq!(a.admit(&limits, &files, TCP, ip("192.0.2.1")), Ok(()));
        assert_eq!(a.admit(&limits, &files, TCP, None), Ok(()));
        assert_eq!(a.admit(&limits, &files, TCP, ip("192.0.2.2")), Err(Refused::Total));
        a.release(TCP, ip("2001:db8::1"));
        assert_eq!(a.admit(&limits, &files, TCP, ip("2001:db8::2")), Ok(()));
        a.release(TCP, ip("2001:db8::2"));
        a.release(TCP, ip("192.0.2.1"));
        a.release(TCP, None);
        assert!(a.total == 0 && a.sources.is_empty());
    }

    /// Admits as many as there may be from a source.
    fn fill(a: &mut Admission, limits: &Limits, files: &Files, source: u8) -> usize {
        let source = Some(IpAddr::from([192, 0, 2, source]));
        (0..).take_while(|_| a.admit(limits, files, TCP, source).is_ok()).count()
    }

    #[test]
    fn a_few_sources_take_half_and_leave_room_for_many() {
        let limits = Limits { connections: 640, connections_per_source: 999, ..Limits::default() };
        let files = Files::new(&Limits { files: Some(1 << 20), ..limits }, 0);
        let mut a = Admission::default();
        let taken: Vec<usize> = (0..4).map(|n| fill(&mut a, &limits, &files, n)).collect();
        assert_eq!(taken, [160, 160, 10, 10]);
        assert!((4..26).all(|n| fill(&mut a, &limits, &files, n) == 10));
        // All but an eighth, which is for those we open.
        assert_eq!((a.total, fill(&mut a, &limits, &files, 99)), (560, 0));
        assert_eq!((0..100).filter(|_| a.admit(&limits, &files, TCP, None).is_ok()).count(), 80);
    }

    #[test]
    fn few_files_are_shared_out_and_some_reserved() {
        let limits = Limits { files: Some(64), ..Limits::default() };
        let files = Files::new(&limits, 32);
        assert_eq!((files.end, files.room), (48, 16));
        let mut a = Admission::default();
        let taken: Vec<usize> = (0..9).map(|n| fill(&mut a, &limits, &files, n)).collect();
        assert_eq!(taken, [4, 4, 1, 1, 1, 1, 1, 1, 0]);
        // Associations take no file each, and take none from those that do.
        let sctp = Some(IpAddr::from([198, 51, 100, 1]));
        assert_eq!(a.admit(&limits, &files, Transport::Sctp, sctp), Ok(()));
        a.release(TCP, Some([192, 0, 2, 7].into()));
        assert_eq!(fill(&mut a, &limits, &files, 10), 1);
        a.release(Transport::Sctp, sctp);
        assert_eq!(a.associations, 0);
        assert_eq!(a.sources.len(), 8, "nothing is remembered of who was refused");
        let none = Files::new(&Limits { files: Some(10), ..limits }, 32);
        assert_eq!(fill(&mut Admission::default(), &limits, &none, 1), 1);
    }

    /// RFC 5923 sections 8.2 and 9.2.
    #[test]
    fn an_alias_needs_a_proved_name_and_serves_only_that_name() {
        let mut d = Directory::default();
        let (a, b) = (
            flow(1, Transport::Tls, "192.0.2.1:40000"),
            flow(2, Transport::Tls, "192.0.2.2:40000"),
        );
        let addr = "192.0.2.1:5061".parse().unwrap();
        d.insert(a, vec!["p1.example.com".into()]);
        d.insert(b, vec![]);
        assert!(!d.alias(&b, addr));
        assert!(d.alias(&a, addr));
        assert_eq!(d.find(Transport::Tls, addr, Some("P1.example.com")), Some(a));
        assert_eq!(d.find(Transport::Tls, addr, Some("p2.example.com")), None);
        assert_eq!(d.find(Transport::Tls, addr, None), None);
        assert_eq!(d.find(Transport::Tls, b.remote, None), Some(b));
        assert_eq!(d.find(Transport::Tls, b.remote, Some("p2.example.com")), None);
        d.remove(&a);
        assert_eq!(d.find(Transport::Tls, addr, Some("p1.example.com")), None);
        d.remove(&b);
        assert!(d.entries.is_empty() && d.flows.is_empty());
    }

    #[test]
    fn an_alias_never_takes_the_place_of_a_connection() {
        let mut d = Directory::default();
        let (a, b) =
            (flow(1, Transport::Tls, "192.0.2.1:40000"), flow(2, Transport::Tls, "192.0.2.1:5061"));
        d.insert(a, vec!["a.example".into()]);
        d.insert(b, vec![]);
        assert!(!d.alias(&a, b.remote));
        for port in 1..=ALIASES_PER_FLOW as u16 {
            assert!(d.alias(&a, SocketAddr::new(a.remote.ip(), port)));
        }
        assert!(!d.alias(&a, SocketAddr::new(a.remote.ip(), 999)));
        assert_eq!(d.find(Transport::Tcp, b.remote, None), None);
    }
}
