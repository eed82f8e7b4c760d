//! What a listener binds: the sockets of each protocol, and who has a UDP port.

use super::{Shared, tcp};
use crate::datagram;
use crate::dccp;
use crate::error::Error;
use crate::host;
use crate::options;
use crate::packets::PacketSocket;
use crate::quic;
use crate::sctp;
use crate::transport::{Established, Transport};
use ringway_os::IPPROTO_UDPLITE;
use ringway_sctp_tokio::Stack;
use ringway_services::framing::Side;
use ringway_services::{Candidate, Explanation, Preconnection as Policy, Protocol, Ranked};
use socket2::Type;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Candidates that share a socket.
#[derive(Clone)]
struct Part {
    candidates: Vec<Candidate>,
    interface: Option<String>,
    addresses: Vec<IpAddr>,
}

/// What is to be bound.
pub(crate) struct Plan {
    parts: Vec<Part>,
    pub(crate) explanation: Explanation,
}

/// What was bound.
pub(super) struct Bound {
    pub(super) port: u16,
    pub(super) parts: Vec<Socket>,
    pub(super) left_out: Vec<(Protocol, Arc<str>)>,
    /// Whether something was left out because the port is in use.
    pub(super) is_in_use: bool,
}

/// The sockets of one part.
pub(super) enum Socket {
    Tcp {
        listener: TcpListener,
        candidates: Vec<Candidate>,
    },
    Datagrams {
        socket: PacketSocket,
        candidate: Candidate,
    },
    Sctp {
        listener: ringway_sctp_tokio::Listener,
        /// Keeps the stack that the listener is of.
        _stack: Stack,
        candidate: Candidate,
        address: SocketAddr,
    },
    Quic {
        endpoint: quinn::Endpoint,
        candidates: Vec<Candidate>,
        address: SocketAddr,
    },
    Dccp {
        _listening: dccp::Listening,
        accepted: mpsc::Receiver<dccp::Accepted>,
        candidate: Candidate,
        address: SocketAddr,
    },
}

/// Returns whether two protocols can be distinguished at one socket: by what they begin with, or by what they negotiate.
fn share_a_socket(one: Protocol, other: Protocol) -> bool {
    let kind = |protocol| match protocol {
        Protocol::Tcp | Protocol::Tls | Protocol::Mptcp => 1,
        Protocol::Quic | Protocol::QuicDatagram => 2,
        _ => 0,
    };
    kind(one) != 0 && kind(one) == kind(other)
}

impl Plan {
    /// Returns the plan for candidates, in their order.
    pub(crate) fn new(policy: &Policy, ranked: Ranked) -> Plan {
        let mut parts: Vec<Part> = Vec::new();
        for candidate in ranked.candidates {
            let interface = candidate.interface.clone();
            let addresses = match candidate.local_address {
                Some(ip) if policy.local.addresses.is_empty() => vec![ip],
                _ if !policy.local.addresses.is_empty() => policy.local.addresses.clone(),
                _ => match &interface {
                    Some(name) if candidate.protocol.is_sctp() => host::addresses_of(name),
                    _ => vec![[0u8; 16].into(), [0u8; 4].into()],
                },
            };
            let beside = parts.iter_mut().find(|part| {
                part.interface == interface
                    && part.addresses == addresses
                    && share_a_socket(part.candidates[0].protocol, candidate.protocol)
            });
            match beside {
                Some(part) => part.candidates.push(candidate),
                None => parts.push(Part { candidates: vec![candidate], interface, addresses }),
            }
        }
        Plan { parts, explanation: ranked.explanation }
    }

    /// Returns a port that is free for the first part.
    pub(super) fn free_port(&self) -> Result<u16, Error> {
        let failed = |error| Error::system("bind", error);
        let protocol = self.parts.first().map(|part| part.candidates[0].protocol);
        let ip = self.parts.first().and_then(|part| part.addresses.last()).copied();
        let address = SocketAddr::new(ip.unwrap_or([0u8; 4].into()), 0);
        let kind = match protocol {
            Some(Protocol::Tcp | Protocol::Tls | Protocol::Mptcp) => Type::STREAM,
            _ => Type::DGRAM,
        };
        let number = if kind == Type::STREAM { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP };
        let socket = options::open(address, kind, number, None).map_err(failed)?;
        socket.bind(&address.into()).map_err(failed)?;
        let local = socket.local_addr().map_err(failed)?;
        Ok(local.as_socket().map_or(0, |local| local.port()))
    }

    /// Binds all parts at a port. A UDP port belongs to the first that wants it.
    pub(super) fn bind(&self, shared: &Shared, port: u16) -> Bound {
        let mut bound = Bound { port, parts: Vec::new(), left_out: Vec::new(), is_in_use: false };
        let mut owners: BTreeMap<u16, Protocol> = BTreeMap::new();
        for part in &self.parts {
            let protocol = part.candidates[0].protocol;
            let udp_port = shared.policy.local.udp_ports.of(protocol, port);
            let owner = udp_port.and_then(|udp| owners.get(&udp)).filter(|one| **one != protocol);
            if let (Some(owner), Some(udp)) = (owner, udp_port) {
                let reason = format!("UDP port {udp} belongs to {}", owner.title());
                bound.leave_out(part, reason.into());
                continue;
            }
            let before = bound.parts.len();
            for address in part.sockets() {
                let address = SocketAddr::new(address[0], udp_port.unwrap_or(port));
                if let Err(error) = part.bind(shared, address, port, &mut bound) {
                    // A host may lack a family.
                    let absent = address.ip().is_unspecified() && part.addresses.len() > 1;
                    if absent && error.kind() != io::ErrorKind::AddrInUse {
                        continue;
                    }
                    bound.is_in_use |= error.kind() == io::ErrorKind::AddrInUse;
                    bound.leave_out(part, error.to_string().into());
                }
            }
            if let Some(udp) = udp_port.filter(|_| bound.parts.len() > before) {
                owners.insert(udp, protocol);
            }
        }
        bound
    }
}

impl Bound {
    /// Returns it, unless nothing could be bound.
    pub(super) fn listening(self) -> Result<Bound, Error> {
        if self.parts.is_empty() { Err(Error::NotListening(self.left_out)) } else { Ok(self) }
    }

    fn leave_out(&mut self, part: &Part, reason: Arc<str>) {
        for candidate in &part.candidates {
            self.left_out.push((candidate.protocol, reason.clone()));
        }
    }
}

impl Part {
    /// Returns the addresses of each socket. SCTP has all in one.
    fn sockets(&self) -> Vec<Vec<IpAddr>> {
        if self.candidates[0].protocol.is_sctp() {
            return vec![self.addresses.clone()];
        }
        self.addresses.iter().map(|ip| vec![*ip]).collect()
    }

    /// Binds one socket; `address` has the UDP port where UDP carries the protocol.
    fn bind(
        &self,
        shared: &Shared,
        address: SocketAddr,
        port: u16,
        bound: &mut Bound,
    ) -> Result<(), Error> {
        let (resources, policy) = (shared.system.resources(), &shared.policy);
        let candidate = self.candidates[0].clone();
        let interface = self.interface.as_deref();
        let failed = |error| Error::system(format!("listen at {address}"), error);
        let socket = match candidate.protocol {
            Protocol::Tcp | Protocol::Tls | Protocol::Mptcp => {
                let candidates = self.candidates.clone();
                let listener = tcp::bind(&candidates, address, interface, false);
                Socket::Tcp { listener: listener.map_err(failed)?, candidates }
            }
            Protocol::Udp | Protocol::UdpLite => {
                let is_lite = candidate.protocol == Protocol::UdpLite;
                let number = if is_lite { IPPROTO_UDPLITE } else { libc::IPPROTO_UDP };
                let socket = PacketSocket::bind(address, number, interface).map_err(failed)?;
                Socket::Datagrams { socket, candidate }
            }
            Protocol::Sctp | Protocol::SctpUdp | Protocol::SctpKernel => {
                let udp = address.port();
                let (listener, _stack) = self.bind_sctp(shared, port, udp)?;
                Socket::Sctp { listener, _stack, candidate, address }
            }
            Protocol::Quic | Protocol::QuicDatagram => {
                let candidates = self.candidates.clone();
                let endpoint = quic::listen(resources, policy, &candidates, address, interface)?;
                Socket::Quic { endpoint, candidates, address }
            }
            Protocol::DccpUdp => {
                let at = SocketAddr::new(address.ip(), port);
                let udp = address.port();
                let listening = dccp::listen(policy, &resources.limits, at, udp, interface);
                let (_listening, accepted) = listening?;
                Socket::Dccp { _listening, accepted, candidate, address }
            }
        };
        bound.parts.push(socket);
        Ok(())
    }

    /// Listens with SCTP at all addresses, or at those of one family where the host has only one.
    fn bind_sctp(
        &self,
        shared: &Shared,
        port: u16,
        udp: u16,
    ) -> Result<(ringway_sctp_tokio::Listener, Stack), Error> {
        let listen = |addresses: &[IpAddr]| {
            let candidate = &self.candidates[0];
            sctp::listen(shared.system.resources(), &shared.policy, candidate, addresses, port, udp)
        };
        match listen(&self.addresses) {
            Err(error) if self.addresses.len() > 1 && error.kind() != io::ErrorKind::AddrInUse => {
                let v4: Vec<_> = self.addresses.iter().copied().filter(IpAddr::is_ipv4).collect();
                listen(&v4).map_err(|_| error)
            }
            result => result,
        }
    }
}

impl Socket {
    /// Returns each protocol with its address.
    pub(super) fn addresses(&self) -> Vec<(Protocol, SocketAddr)> {
        match self {
            Socket::Tcp { listener, candidates } => {
                let address = listener.local_addr().ok();
                let of = |one: &Candidate| address.map(|address| (one.protocol, address));
                candidates.iter().filter_map(of).collect()
            }
            Socket::Datagrams { socket, candidate } => vec![(candidate.protocol, socket.local())],
            Socket::Sctp { candidate, address, .. } | Socket::Dccp { candidate, address, .. } => {
                vec![(candidate.protocol, *address)]
            }
            Socket::Quic { candidates, address, .. } => {
                candidates.iter().map(|one| (one.protocol, *address)).collect()
            }
        }
    }

    /// Accepts until the listener is dropped.
    pub(super) async fn run(self, shared: Arc<Shared>) {
        match self {
            Socket::Tcp { listener, candidates } => tcp::run(shared, listener, candidates).await,
            Socket::Datagrams { socket, candidate } => {
                datagrams(shared, socket, candidate).await;
            }
            Socket::Sctp { listener, candidate, address, .. } => {
                while let Ok(association) = listener.accept().await {
                    accept_sctp(&shared, association, &candidate, address);
                }
            }
            Socket::Quic { endpoint, candidates, address } => {
                accept_quic(shared, endpoint, candidates, address.port()).await;
            }
            Socket::Dccp { mut accepted, candidate, _listening, .. } => {
                while let Some(dccp::Accepted { flow, local, remote }) = accepted.recv().await {
                    let Some(permit) = shared.admit(remote.ip()) else { continue };
                    let (transport, candidate) =
                        (Transport::Single(Box::new(flow)), candidate.clone());
                    let established = Established { transport, local, remote, candidate };
                    shared.accept(established, permit, Side::Responder);
                }
            }
        }
    }
}

/// Has the flows of a socket end before it does.
struct Closing(Arc<datagram::Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Accepts the peers of a socket. Those that were accepted are served by a task that goes on when the listener ends.
async fn datagrams(shared: Arc<Shared>, socket: PacketSocket, candidate: Candidate) {
    let is_lite = candidate.protocol == Protocol::UdpLite;
    let flows = datagram::Shared::new(socket, is_lite);
    let coverage = shared.policy.properties.connection.recv_checksum_len.0;
    // A socket that refuses it checks all octets.
    let _ = flows.set_receive_coverage(coverage);
    let _closing = Closing(flows.clone());
    tokio::spawn(async move {
        let permit = Mutex::new(None);
        let take = || permit.lock().unwrap_or_else(PoisonError::into_inner);
        let admit = |ip| {
            let admitted = shared.admit(ip);
            let is_admitted = admitted.is_some();
            *take() = admitted;
            is_admitted
        };
        let new = |flow: datagram::Flow| {
            let Some(permit) = take().take() else { return };
            let (local, remote, candidate) = (flow.local(), flow.remote(), candidate.clone());
            let transport = Transport::Single(Box::new(flow));
            let established = Established { transport, local, remote, candidate };
            shared.accept(established, permit, Side::Responder);
        };
        datagram::serve(flows, admit, new).await;
    });
    std::future::pending::<()>().await;
}

fn accept_sctp(
    shared: &Arc<Shared>,
    association: ringway_sctp_tokio::Association,
    candidate: &Candidate,
    address: SocketAddr,
) {
    let ends = association.paths().ok().and_then(|paths| {
        let path = paths.iter().find(|path| path.primary).or(paths.first())?;
        Some((path.local, path.remote))
    });
    let (local, remote) = ends.unwrap_or((address.ip(), address.ip()));
    let (local_port, remote_port) = association.ports().unwrap_or_default();
    let Some(permit) = shared.admit(remote) else {
        let _ = association.abort(b"too many connections wait");
        return;
    };
    let established = Established {
        transport: Transport::Sctp(association),
        local: SocketAddr::new(local, local_port),
        remote: SocketAddr::new(remote, remote_port),
        candidate: candidate.clone(),
    };
    shared.accept(established, permit, Side::Responder);
}

async fn accept_quic(
    shared: Arc<Shared>,
    endpoint: quinn::Endpoint,
    candidates: Vec<Candidate>,
    port: u16,
) {
    let mut handshakes = JoinSet::new();
    let candidates = Arc::new(candidates);
    while let Some(incoming) = endpoint.accept().await {
        while handshakes.try_join_next().is_some() {}
        let Some(permit) = shared.admit(incoming.remote_address().ip()) else {
            incoming.refuse();
            continue;
        };
        let (shared, candidates) = (shared.clone(), candidates.clone());
        handshakes.spawn(async move {
            let limits = shared.system.limits();
            let handshake =
                quic::accept_connection(incoming, port, &shared.policy, &candidates, limits);
            if let Ok(Ok(established)) = timeout(limits.handshake, handshake).await {
                shared.accept(established, permit, Side::Responder);
            }
        });
    }
}
