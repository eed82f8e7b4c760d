//! Where a message goes next: server location as far as it needs no question to the world.

use super::events::ResolveTarget;
use super::names::{is_sips, is_websocket, next_host};
use ringway_sansio::{Flow, Hop, Target, Transport};
use ringway_sip::uri::{Scheme, Uri};
use std::net::SocketAddr;

/// Branches that may wait for server location at one time; more are answered with 503.
pub const MAX_RESOLVING: usize = 10_000;

/// What the world knows of its interfaces.
pub trait Paths: Send {
    /// Returns our address as a peer at `remote` can reach it over `transport`, never a wildcard. Returns
    /// `None` where nothing listens for its answers.
    fn local_for(&mut self, transport: Transport, remote: SocketAddr) -> Option<SocketAddr>;
}

/// Where an attempt leads.
pub(super) struct Destination {
    pub target: Target,
    pub transport: Transport,
    /// Our address on it.
    pub local: SocketAddr,
    /// Over a flow that exists: what it is.
    pub flow: Option<Flow>,
    /// Over UDP however large, because TCP has been refused there.
    pub any_size: bool,
}

impl Destination {
    /// Over a flow. Its size never changes the transport: the flow is known to work, and the TCP port of a
    /// phone may not exist.
    pub(super) fn over(flow: Flow) -> Destination {
        let Flow { transport, local, .. } = flow;
        Destination {
            target: Target::Flow(flow),
            transport,
            local,
            flow: Some(flow),
            any_size: true,
        }
    }
}

/// What came of looking for the next hop.
pub(super) enum Lookup {
    /// Here.
    Destination(Destination),
    /// Behind a name: the world must be asked.
    Name(ResolveTarget),
    /// Nothing we could reach.
    Unreachable,
}

impl From<Option<Destination>> for Lookup {
    fn from(destination: Option<Destination>) -> Lookup {
        destination.map_or(Lookup::Unreachable, Lookup::Destination)
    }
}

/// Finds ways, and counts the questions that are open.
pub(super) struct Locator {
    paths: Box<dyn Paths>,
    open: usize,
}

impl Locator {
    pub(super) fn new(paths: Box<dyn Paths>) -> Locator {
        Locator { paths, open: 0 }
    }

    /// Questions that are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Whether no more questions may be asked.
    pub(super) fn is_full(&self) -> bool {
        self.open >= MAX_RESOLVING
    }

    /// Opens a question, if there is room for it.
    pub(super) fn ask(&mut self) -> bool {
        let fits = !self.is_full();
        self.open += usize::from(fits);
        fits
    }

    /// A question has been answered.
    pub(super) fn answered(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// The way to a server that has been located.
    pub(super) fn destination_of(&mut self, hop: Hop) -> Option<Destination> {
        // A WebSocket client cannot be connected to (RFC 7118 section 5).
        if is_websocket(hop.transport) {
            return None;
        }
        let Hop { transport, addr: remote, name } = hop;
        let local = self.paths.local_for(transport, remote)?;
        let target = Target::Peer { transport, remote, name };
        Some(Destination { target, transport, local, flow: None, any_size: false })
    }

    /// Server location (RFC 3263) as far as it needs no question to the world: literal addresses.
    /// `request_uri` is the one of the request to be sent: if that is a `sips` one, every URI is
    /// followed as if it were (RFC 3261 section 16.6 item 7).
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
        if let Some(ip) = crate::own::parse_ip(host) {
            // RFC 3263 section 4.1 and 4.2: a literal address needs no look-up.
            let transport = named.unwrap_or(if secure { Transport::Tls } else { Transport::Udp });
            let addr = SocketAddr::new(ip, uri.port.unwrap_or(transport.default_port()));
            return self.destination_of(Hop { transport, addr, name: None }).into();
        }
        let Ok(host) = std::str::from_utf8(host) else { return Lookup::Unreachable };
        Lookup::Name(ResolveTarget { host: host.into(), port: uri.port, transport: named, secure })
    }
}
