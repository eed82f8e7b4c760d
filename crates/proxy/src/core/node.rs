//! The identity of this server: its names and addresses, its rules, and the keys of its tokens and tags. Only a new
//! configuration changes its own state. The facts of all workers are in `shared`.

use super::dialogs::Dialogs;
use super::gateways::Gateways;
use super::locator::Destination;
use super::media::Media;
use super::names::{default_port, plain_user, same_user};
use super::request::IncomingRequest;
use super::target::RequestTarget;
use super::trust::Trust;
use crate::config::{Config, Domain};
use crate::gruu::Gruus;
use crate::keys::{Purpose, Secret};
use crate::local_identity::{LocalIdentity, TAG_LEN, parse_ip};
use crate::mark::Marks;
use crate::outbound::FlowTokens;
use crate::shared::Shared;
use ringway_sansio::{Flow, FlowId, Time, Transport};
use ringway_sip::header::Via;
use ringway_sip::message::Message;
use ringway_sip::uri::{self, Scheme, Uri};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// An address-of-record.
pub(super) type Aor = SmallVec<[u8; 96]>;

/// Returns the marks of a server.
fn marks(config: &Config) -> Marks {
    let key = |secret: &Secret| secret.key(Purpose::DialogMarks);
    Marks::new(config.token_secrets().map(key), key(&config.secret))
}

/// The server as one worker sees it.
pub(super) struct Node {
    pub config: Arc<Config>,
    pub identity: LocalIdentity,
    pub trust: Trust,
    pub gateways: Gateways,
    pub dialogs: Dialogs,
    pub tokens: FlowTokens,
    pub gruus: Gruus,
    pub shared: Arc<Shared>,
    pub media: Media,
    pub worker: u8,
    pub workers: u8,
    spirals: [u8; 16],
}

impl Node {
    pub(super) fn new(
        config: Arc<Config>,
        worker: u8,
        workers: u8,
        shared: Arc<Shared>,
        media: Media,
    ) -> Node {
        let secret = &config.secret;
        let tokens = config.token_secrets();
        Node {
            identity: LocalIdentity::new(&config),
            trust: Trust::new(&config),
            gateways: Gateways::new(&config, shared.clone()),
            dialogs: Dialogs::new(marks(&config), shared.clone()),
            tokens: FlowTokens::new(tokens.map(|secret| secret.key(Purpose::FlowTokens))),
            gruus: Gruus::new(&tokens, config.mesh),
            spirals: secret.key(Purpose::Spirals),
            shared,
            media,
            worker,
            workers,
            config,
        }
    }

    /// Replaces the configuration.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        self.identity = LocalIdentity::new(&config);
        self.trust = Trust::new(&config);
        self.gateways = Gateways::new(&config, self.shared.clone());
        let tokens = config.token_secrets();
        self.dialogs.set_marks(marks(&config));
        self.tokens = FlowTokens::new(tokens.map(|secret| secret.key(Purpose::FlowTokens)));
        self.gruus = Gruus::new(&tokens, config.mesh);
        self.config = config;
    }

    /// Returns a domain of ours by its index.
    pub(super) fn domain(&self, index: usize) -> &Domain {
        &self.config.domains[index]
    }

    /// Returns the hasher for loop detection.
    pub(super) fn spiral(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.spirals)
    }

    /// Returns the domain of ours that a Request-URI names. A number without a domain (RFC 3966) belongs to the first.
    /// A literal address counts only with a port that this server listens on: a phone may be on the same host.
    pub(super) fn own_domain(&self, uri: &Uri<'_>, flow: &Flow, in_dialog: bool) -> Option<usize> {
        if uri.scheme == Scheme::Tel {
            return Some(0);
        }
        if !uri.is_sip() {
            return None;
        }
        let domain = self.identity.domain(uri.host).or_else(|| {
            let ip = parse_ip(uri.host)?;
            (ip == flow.local.ip()).then_some(0)
        })?;
        let listens = |port| port == flow.local.port() || self.identity.listens_on(port);
        let ours = match uri.port {
            Some(port) => listens(port),
            // Within a dialog a literal address is the Contact of some phone, and may be on our host. A name without a
            // port is the domain, whatever port SRV records lead to.
            None if in_dialog && parse_ip(uri.host).is_some() => listens(default_port(uri)),
            None => true,
        };
        ours.then_some(domain)
    }

    /// Returns the address-of-record of a user at a domain of ours (RFC 3261 section 10.3 item 5).
    pub(super) fn aor(&self, user: &[u8], domain: usize) -> Aor {
        let mut aor = Aor::from_slice(b"sip:");
        if user.contains(&b'%') {
            let mut escaped = Vec::with_capacity(user.len());
            uri::escape_into(&plain_user(user), &mut escaped);
            aor.extend_from_slice(&escaped);
        } else {
            aor.extend_from_slice(user);
        }
        aor.push(b'@');
        aor.extend_from_slice(self.domain(domain).name.as_bytes());
        aor
    }

    /// Returns whether the host and port of a URI are this server's.
    pub(super) fn is_local(&self, uri: &Uri<'_>, flow: &Flow) -> bool {
        self.identity.is_local(uri.host, uri.port, default_port(uri), flow.local)
    }

    /// Returns whether From names the user of this address-of-record.
    pub(super) fn is_from(&self, msg: &Message<'_>, aor: &[u8]) -> bool {
        let Ok(from) = msg.from() else { return false };
        let (Ok(from), Ok(aor)) = (Uri::parse(from.uri), Uri::parse(aor)) else { return false };
        let plain = plain_user(aor.user.unwrap_or_default());
        self.identity.domain(from.host) == self.identity.domain(aor.host)
            && from.user.is_some_and(|user| same_user(user, &plain))
    }

    /// Returns whether the request comes from a trusted peer. A request that this server has sent itself, and that has
    /// returned to its own address, proves nothing: it belongs to its first sender.
    pub(super) fn is_trusted(&self, incoming: &IncomingRequest<'_>) -> bool {
        let Via { host, port, .. } = *incoming.via;
        let default = incoming.flow.transport.default_port();
        self.trust.trusts(incoming.flow)
            && !self.identity.is_local(host, port, default, incoming.flow.local)
    }

    /// Returns the To tag of responses sent without a transaction.
    pub(super) fn tag(&self, msg: &Message<'_>) -> [u8; TAG_LEN] {
        self.identity.tag(msg.call_id())
    }

    /// Returns whether an ACK is for a response sent without a transaction.
    pub(super) fn is_own_tag(&self, msg: &Message<'_>) -> bool {
        msg.to().ok().and_then(|to| to.tag()).is_some_and(|t| t == self.tag(msg))
    }

    /// Returns the flow that a response takes (RFC 3261 section 18.2.2, RFC 3581 section 4), and the port for a new
    /// connection if the flow has closed.
    ///
    /// An `maddr` sends the response to a third party. So it is followed only for a multicast group, and where a
    /// trusted peer has written it.
    pub(super) fn reply_to(&self, flow: &Flow, via: &Via<'_>) -> (Flow, u16) {
        let port = via.port.unwrap_or(flow.transport.default_port());
        if !flow.transport.is_datagram() {
            return (*flow, port);
        }
        let obeyed = |ip: &IpAddr| ip.is_multicast() || self.trust.trusts(flow);
        let maddr = via.maddr.and_then(parse_ip).filter(obeyed);
        let remote = if let Some(maddr) = maddr {
            SocketAddr::new(maddr, port)
        } else if via.rport.is_some() {
            flow.remote
        } else {
            SocketAddr::new(flow.remote.ip(), port)
        };
        (Flow { remote, ..*flow }, port)
    }

    /// Returns the flow that requests of this server itself seem to come on.
    pub(super) fn inside(&self) -> Flow {
        let mesh = self.config.mesh.map(|mesh| mesh.address.into());
        let listener = self.config.listeners.iter().find(|l| l.transport == Transport::Udp);
        let bound = listener.map(|l| l.addr.ip()).filter(|ip| !ip.is_unspecified());
        let ip = mesh.or(bound).or(self.config.addresses.first().copied());
        let port = listener.map_or(Transport::Udp.default_port(), |l| l.addr.port());
        let local = SocketAddr::new(ip.unwrap_or(Ipv4Addr::LOCALHOST.into()), port);
        let id = FlowId::new(self.worker, 0);
        Flow { id, transport: Transport::Udp, local, remote: local }
    }

    /// Returns a datagram flow of another worker as one of this worker's own socket on the same address.
    pub(super) fn own_socket(&self, flow: Flow) -> Flow {
        own_socket(flow, self.worker)
    }

    /// Returns whether a target must not be sent to this destination; see [`Gateways::forbids`].
    pub(super) fn forbids(
        &self,
        now: Time,
        target: &RequestTarget,
        privileged: bool,
        destination: &Destination,
    ) -> bool {
        self.gateways.forbids(now, &self.identity, &self.trust, target, privileged, destination)
    }

    /// Returns whether a target must not be sent to this host name.
    pub(super) fn forbids_name(
        &self,
        target: &RequestTarget,
        privileged: bool,
        host: &str,
    ) -> bool {
        self.gateways.forbids_name(&self.trust, target, privileged, host)
    }
}

/// Returns a datagram flow as one of `worker`'s own socket on the same address.
pub(super) fn own_socket(flow: Flow, worker: u8) -> Flow {
    if !flow.transport.is_datagram() {
        return flow;
    }
    let serial = flow.id.to_u64() & 0x00ff_ffff_ffff_ffff;
    Flow { id: FlowId::new(worker, serial), ..flow }
}
