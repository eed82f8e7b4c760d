//! What the workers of one process share: mailboxes, the count of connections, and the directory of
//! connections that a worker may use although another owns them. Locks are taken when connections
//! come and go, and to look up a peer that the worker itself has no connection to; never for a
//! message on a known flow.

use crate::clock::Clock;
use crate::counters::Counters;
use crate::limits::Limits;
use crate::mailbox::Mailbox;
use crate::origin::Origins;
use crate::route::{Listener, LocalAddresses};
use crate::share::source_of;
use crate::tls::{TlsClient, TlsServer};
use crate::udp::Ledger;
use arc_swap::ArcSwap;
use ringway_sansio::{Flow, FlowId, Transport};
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::net::{IpAddr, SocketAddr};
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

/// Counts connections against the limits.
#[derive(Default)]
pub(crate) struct Admission {
    total: usize,
    sources: HashMap<IpAddr, u32>,
}

/// Why a connection is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Total,
    Source,
}

impl Admission {
    /// Counts a connection in; from a source when it is an accepted one.
    pub(crate) fn admit(&mut self, limits: &Limits, source: Option<IpAddr>) -> Result<(), Refused> {
        if self.total >= limits.connections {
            return Err(Refused::Total);
        }
        if let Some(source) = source {
            let count = self.sources.entry(source_of(source)).or_default();
            if *count as usize >= limits.connections_per_source {
                return Err(Refused::Source);
            }
            *count += 1;
        }
        self.total += 1;
        Ok(())
    }

    /// Counts it out again.
    pub(crate) fn release(&mut self, source: Option<IpAddr>) {
        self.total = self.total.saturating_sub(1);
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
        let ip = |s: &str| Some(s.parse::<IpAddr>().unwrap());
        assert_eq!(a.admit(&limits, ip("2001:db8::1")), Ok(()));
        assert_eq!(a.admit(&limits, ip("2001:db8::2")), Err(Refused::Source));
        assert_eq!(a.admit(&limits, ip("192.0.2.1")), Ok(()));
        assert_eq!(a.admit(&limits, None), Ok(()));
        assert_eq!(a.admit(&limits, ip("192.0.2.2")), Err(Refused::Total));
        a.release(ip("2001:db8::1"));
        assert_eq!(a.admit(&limits, ip("2001:db8::2")), Ok(()));
        a.release(ip("2001:db8::2"));
        a.release(ip("192.0.2.1"));
        a.release(None);
        assert!(a.total == 0 && a.sources.is_empty());
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
