//! The next hop of a message: server location as far as it needs no question to the world.

use super::events::ResolveTarget;
use super::names::{is_sips, is_websocket, next_host};
use ringway_sansio::{Flow, FlowId, Hop, Target, Transport};
use ringway_sip::uri::{Scheme, Uri};
use std::net::SocketAddr;

/// The number of branches that may wait for server location. More are answered with 503.
pub const MAX_RESOLVING: usize = 10_000;

/// The interfaces of the world.
pub trait Paths: Send {
    /// Returns our address as a peer at `remote` can reach it over `transport`, never a wildcard. Returns
    /// `None` where nothing listens for its answers.
    fn local_for(&mut self, transport: Transport, remote: SocketAddr) -> Option<SocketAddr>;

    /// Returns the id of the datagram flows of this address of ours; `None` if it is ours no longer.
    fn datagrams_at(&mut self, local: SocketAddr) -> Option<FlowId>;
}

/// The destination of an attempt.
pub(super) struct Destination {
    pub target: Target,
    pub transport: Transport,
    /// Our address for this destination.
    pub local: SocketAddr,
    /// The flow, if one exists already.
    pub flow: Option<Flow>,
    /// Whether UDP is used for any size, because TCP has been refused by the server.
    pub any_size: bool,
    /// The id of the datagram flows of `local`, if a datagram is to be sent from there whatever the route.
    pub from: Option<FlowId>,
}

impl Destination {
    /// Returns the destination over a flow. The size of a message never changes its transport: the flow is known to
    /// work, and the TCP port of a phone may not exist.
    pub(super) fn over(flow: Flow) -> Destination {
        let Flow { transport, local, .. } = flow;
        Destination {
            target: Target::Flow(flow),
            transport,
            local,
            flow: Some(flow),
            any_size: true,
            from: None,
        }
    }

    /// Returns the target to send to.
    pub(super) fn into_target(self) -> Target {
        let Destination { target, transport, local, from, .. } = self;
        match from {
            Some(id) => Target::Flow(Flow { id, transport, local, remote: target.remote() }),
            None => target,
        }
    }
}

/// The result of a search for the next hop.
pub(super) enum Lookup {
    /// The destination.
    Destination(Destination),
    /// A host name, which the world must resolve.
    Name(ResolveTarget),
    /// No destination that can be reached.
    Unreachable,
}

impl From<Option<Destination>> for Lookup {
    fn from(destination: Option<Destination>) -> Lookup {
        destination.map_or(Lookup::Unreachable, Lookup::Destination)
    }
}

/// Finds destinations, and counts the open questions.
pub(super) struct Locator {
    paths: Box<dyn Paths>,
    open: usize,
}

impl Locator {
    pub(super) fn new(paths: Box<dyn Paths>) -> Locator {
        Locator { paths, open: 0 }
    }

    /// Returns the number of open questions.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Returns whether no more questions may be asked.
    pub(super) fn is_full(&self) -> bool {
        self.open >= MAX_RESOLVING
    }

    /// Opens a question; returns whether there was room for it.
    pub(super) fn ask(&mut self) -> bool {
        let fits = !self.is_full();
        self.open += usize::from(fits);
        fits
    }

    /// Records that a question has been answered.
    pub(super) fn answered(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Returns the destination of a located server.
    pub(super) fn destination_of(&mut self, hop: Hop) -> Option<Destination> {
        // A WebSocket client cannot be connected to (RFC 7118 section 5).
        if is_websocket(hop.transport) {
            return None;
        }
        let Hop { transport, addr: remote, name } = hop;
        let local = self.paths.local_for(transport, remote)?;
        let target = Target::Peer { transport, remote, name };
        Some(Destination { target, transport, local, flow: None, any_size: false, from: None })
    }

    /// Has a datagram sent from this address of ours, if it is ours still.
    pub(super) fn send_from(&mut self, destination: &mut Destination, local: SocketAddr) {
        if destination.local == local
            || destination.transport != Transport::Udp
            || destination.flow.is_some()
            || local.is_ipv4() != destination.target.remote().is_ipv4()
        {
            return;
        }
        if let Some(id) = self.paths.datagrams_at(local) {
            (destination.local, destination.from) = (local, Some(id));
        }
    }

    /// Locates a server (RFC 3263) as far as it needs no question to the world: literal addresses. `request_uri` is
    /// that of the request to be sent: if it is a `sips` URI, every URI is treated as one (RFC 3261 section 16.6 item
    /// 7).
    pub(super) fn locate(&mut self, uri: &Uri<'_>, request_uri: &[u8]) -> Lookup {
        if !uri.is_sip() {
            return Lookup::Unreachable;
        }
        let host = next_host(uri);
        let secure = uri.scheme == Scheme::Sips || is_sips(request_uri);
        let named = match (uri.param(b"transport"), uri.transport()) {
            (None, _) => None,
            (Some(_), Some(Transport::Tcp)) if secure => Some(Transport::Tls),
            (Some(_), Some(Transport::Sctp)) if secure => Some(Transport::TlsSctp),
            (Some(_), Some(t)) if t.is_secure() || !secure => Some(t),
            (Some(_), _) => return Lookup::Unreachable,
        };
        if let Some(ip) = crate::local_identity::parse_ip(host) {
            // RFC 3263 section 4.1 and 4.2: a literal address needs no look-up.
            let transport = named.unwrap_or(if secure { Transport::Tls } else { Transport::Udp });
            let addr = SocketAddr::new(ip, uri.port.unwrap_or(transport.default_port()));
            return self.destination_of(Hop { transport, addr, name: None }).into();
        }
        let Ok(host) = std::str::from_utf8(host) else { return Lookup::Unreachable };
        Lookup::Name(ResolveTarget { host: host.into(), port: uri.port, transport: named, secure })
    }
}
