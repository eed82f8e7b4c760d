//! Connections over SCTP, in UDP or directly over IP: streams of one association for those to the same port of a peer
//! (`sharing`), or an association for each, if the peer does not share (`alone`).
//!
//! A listener of port N has SCTP port N, and in UDP also UDP port N, so that a peer who knows the port of TCP knows the
//! others.

use super::alone::AloneTransport;
use super::locals;
use super::opened::{Information, Opened, Received};
use super::pool::{Acquired, Pool};
use super::sharing::{Hub, SharedTransport};
use crate::locking::lock;
use bytes::Bytes;
use ringway_sansio::Duration;
use ringway_sctp_tokio::{
    AcceptError, Association, Close, Config, Connect, ConnectError, Listener, Over, Scheduling,
    Settings, Stack,
};
use ringway_with_wire::sharing::STREAMS;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::sync::mpsc;

/// Messages that are taken at once.
pub(super) const MAX_TAKEN: usize = 64;
/// Time that an orderly end may take.
pub(super) const CLOSE: Duration = Duration::from_secs(60);
/// Time between two looks at the addresses of the host.
const REFRESH: Duration = Duration::from_secs(3);
/// Octets that SCTP adds to a segment: headers of IPv4 or IPv6, UDP, SCTP and a chunk.
const HEADERS: usize = 40 + 8 + 12 + 16;

/// How packets travel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Below {
    Udp,
    Ip,
}

impl Below {
    pub(super) fn title(self) -> &'static str {
        match self {
            Below::Udp => "SCTP in UDP",
            Below::Ip => "SCTP over IP",
        }
    }

    /// Returns how an association travels, with the number of its paths.
    pub(super) fn title_of(self, association: &Association) -> String {
        let title = self.title();
        match association.paths().map_or(0, |paths| paths.len()) {
            0 => title.to_owned(),
            1 => format!("{title}, 1 path"),
            paths => format!("{title}, {paths} paths"),
        }
    }
}

/// The stacks that all connections share; each is opened when it is first needed.
#[derive(Default)]
pub(super) struct Stacks {
    /// For connections that are opened here, at any UDP port.
    udp: Mutex<Option<Stack>>,
    ip: Mutex<Option<Stack>>,
    /// Associations that connections may share.
    pool: Pool,
}

fn settings() -> Settings {
    Settings {
        outbound_streams: STREAMS,
        inbound_streams: STREAMS,
        max_inbound_streams: STREAMS,
        scheduling: Scheduling::RoundRobin,
        receive_buffer: 2 << 20,
        send_buffer: 2 << 20,
        // What was lost with a path arrives by another at once.
        rack: true,
        probe_elsewhere: true,
        heartbeat_interval: Some(Duration::from_secs(5)),
        ..Settings::default()
    }
}

/// Returns an error with the number that the system would have for it.
pub(super) fn failed(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    if error.raw_os_error().is_some() {
        return error;
    }
    match error.kind() {
        io::ErrorKind::TimedOut => io::Error::from_raw_os_error(libc::ETIMEDOUT),
        io::ErrorKind::AddrNotAvailable => io::Error::from_raw_os_error(libc::EADDRNOTAVAIL),
        // However an association has ended.
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected
        | io::ErrorKind::ResourceBusy => io::Error::from_raw_os_error(libc::ECONNRESET),
        _ => error,
    }
}

/// As [`failed`], for an association that never stood: an ABORT is a refusal then.
fn not_opened(error: ConnectError) -> io::Error {
    match error {
        ConnectError::Closed(Close::Aborted { .. }) => {
            io::Error::from_raw_os_error(libc::ECONNREFUSED)
        }
        error => failed(error),
    }
}

impl Stacks {
    /// Returns the stack for connections that are opened here.
    fn outgoing(&self, below: Below) -> io::Result<Stack> {
        let (slot, over) = match below {
            Below::Udp => (&self.udp, Over::Udp { locals: wildcards(), port: 0 }),
            Below::Ip => (&self.ip, Over::Ip),
        };
        let mut slot = lock(slot);
        if let Some(stack) = &*slot {
            return Ok(stack.clone());
        }
        let config = Config { settings: settings(), ..Config::new(over) };
        let stack = Stack::new(config).map_err(failed)?;
        Ok(slot.insert(stack).clone())
    }

    /// Waits until what is due has been sent.
    pub(super) async fn flush(&self) {
        let stacks = [lock(&self.udp).clone(), lock(&self.ip).clone()];
        for stack in stacks.into_iter().flatten() {
            stack.flush().await;
        }
    }

    /// Opens a connection from one of several local addresses, or from the one that the program has bound. One that it
    /// has not bound may share an association, and has the port then that is reserved for it.
    pub(super) async fn connect(
        &self,
        below: Below,
        peer: SocketAddr,
        bound: Option<SocketAddr>,
        several: bool,
        reserve: impl Fn() -> Option<u16>,
    ) -> io::Result<Opened<SctpTransport>> {
        if bound.is_some() {
            let association = self.associate(below, peer, bound, several).await?;
            return first(association, below).await.map(|(opened, _)| opened);
        }
        let entry = self.pool.entry(below, peer);
        loop {
            let associate = self.associate(below, peer, None, several);
            let (hub, transport) = match entry.acquire(associate, below).await? {
                Acquired::Association(opened) => return Ok(opened),
                Acquired::Stream(hub, transport) => (hub, transport),
            };
            let Ok((local, remote)) = addresses(transport.association()) else {
                hub.retire();
                continue;
            };
            let local = SocketAddr::new(local.ip(), reserve().unwrap_or(local.port()));
            match transport.open(local.port()).await {
                Ok(()) => {
                    let transport = SctpTransport::Shared(transport);
                    return Ok(Opened { transport, local, peer: remote });
                }
                // Nobody listens there any more, or the association is about to fail.
                Err(_) => hub.retire(),
            }
        }
    }

    /// Opens an association.
    async fn associate(
        &self,
        below: Below,
        peer: SocketAddr,
        bound: Option<SocketAddr>,
        several: bool,
    ) -> io::Result<Association> {
        let named = bound.map(|bound| bound.ip()).filter(|ip| !ip.is_unspecified());
        let from = match named {
            Some(ip) => vec![ip],
            None => locals::towards(peer.ip(), several)
                .ok_or_else(|| io::Error::from_raw_os_error(libc::ENETUNREACH))?,
        };
        let connect = Connect {
            local_port: bound.map_or(0, |bound| bound.port()),
            encapsulation: peer.port(),
            ..Connect::new(&from, &[peer.ip()], peer.port())
        };
        let stack = self.outgoing(below)?;
        stack.connect(&connect).await.map_err(not_opened)
    }

    /// Listens at an address.
    pub(super) fn listen(
        &self,
        below: Below,
        local: SocketAddr,
        dual: bool,
    ) -> io::Result<SctpListener> {
        let wild = local.ip().is_unspecified();
        let mut addresses = vec![local.ip()];
        if dual && wild && local.is_ipv6() {
            addresses.push(Ipv4Addr::UNSPECIFIED.into());
        }
        let port = local.port();
        let stack = match below {
            Below::Ip => self.outgoing(Below::Ip)?,
            Below::Udp => {
                let over = Over::Udp { locals: addresses.clone(), port };
                let config = Config { settings: settings(), ..Config::new(over) };
                Stack::new(config).map_err(failed)?
            }
        };
        let joined = wild.then(|| Joined {
            stack: stack.clone(),
            ipv4: below == Below::Ip || addresses.iter().any(IpAddr::is_ipv4),
            ipv6: below == Below::Ip || addresses.iter().any(IpAddr::is_ipv6),
        });
        if let Some(joined) = &joined {
            joined.refresh();
        }
        let listen = |ip: &IpAddr| stack.listen(&[*ip], port, None).map_err(failed);
        let listeners = addresses.iter().map(listen).collect::<io::Result<_>>()?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let arrivals = (sender, tokio::sync::Mutex::new(receiver));
        Ok(SctpListener { listeners, below, joined, arrivals })
    }
}

/// Returns the wildcards of the families that the host has.
fn wildcards() -> Vec<IpAddr> {
    let mut wildcards = vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    if std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok() {
        wildcards.push(Ipv6Addr::UNSPECIFIED.into());
    }
    wildcards
}

/// Listeners at the same port, one for each family.
pub(crate) struct SctpListener {
    listeners: Vec<Listener>,
    below: Below,
    /// At wildcards.
    joined: Option<Joined>,
    /// Connections that begin in associations which they share. Their number is bounded by that of an association's.
    arrivals: (Arrivals, tokio::sync::Mutex<mpsc::UnboundedReceiver<Opened<SctpTransport>>>),
}

/// Where connections go that begin in an association.
pub(super) type Arrivals = mpsc::UnboundedSender<Opened<SctpTransport>>;

/// A stack whose associations use all addresses that the host has. In UDP another stack, of another listener, may have the
/// port of the other family.
struct Joined {
    stack: Stack,
    ipv4: bool,
    ipv6: bool,
}

impl Joined {
    fn refresh(&self) {
        let has = |ip: &IpAddr| if ip.is_ipv4() { self.ipv4 } else { self.ipv6 };
        let addresses: Vec<IpAddr> = locals::all().into_iter().filter(has).collect();
        self.stack.join_addresses(&addresses);
    }
}

impl SctpListener {
    pub(super) async fn accept(&self) -> io::Result<Opened<SctpTransport>> {
        let mut arrivals = self.arrivals.1.lock().await;
        loop {
            let accepted = tokio::select! {
                accepted = self.next() => accepted.map_err(failed)?,
                Some(opened) = arrivals.recv() => return Ok(opened),
                () = tokio::time::sleep(REFRESH) => {
                    if let Some(joined) = &self.joined {
                        joined.refresh();
                    }
                    continue;
                }
            };
            // One that has ended again has no paths.
            let Ok((local, peer)) = addresses(&accepted) else { continue };
            if shares(&accepted) {
                Hub::accepted(accepted, self.below, self.arrivals.0.clone());
            } else {
                let transport = SctpTransport::Alone(AloneTransport::new(accepted, self.below));
                return Ok(Opened { transport, local, peer });
            }
        }
    }

    /// Waits for the next association at any of the listeners.
    async fn next(&self) -> Result<Association, AcceptError> {
        poll_fn(|cx| {
            let mut accepted = self.listeners.iter().map(|listener| listener.poll_accept(cx));
            accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }
}

/// Returns the addresses of an association: the local one and the peer's.
pub(super) fn addresses(association: &Association) -> io::Result<(SocketAddr, SocketAddr)> {
    let paths = association.paths().map_err(failed)?;
    let (local, remote) = association.ports().map_err(failed)?;
    let primary = paths.iter().find(|path| path.primary).or(paths.first());
    let primary = primary.ok_or(io::ErrorKind::NotConnected)?;
    Ok(((primary.local, local).into(), (primary.remote, remote).into()))
}

/// Returns whether the peer shares the association among connections.
fn shares(association: &Association) -> bool {
    association.statistics().is_ok_and(|snapshot| snapshot.streams == (STREAMS, STREAMS))
}

/// Returns the connection that an association was opened for. If others may share that, the association, too.
pub(super) async fn first(
    association: Association,
    below: Below,
) -> io::Result<(Opened<SctpTransport>, Option<Arc<Hub>>)> {
    let (local, peer) = addresses(&association)?;
    if !shares(&association) {
        let transport = SctpTransport::Alone(AloneTransport::new(association, below));
        return Ok((Opened { transport, local, peer }, None));
    }
    let (hub, transport) = Hub::opened(association, below).ok_or(io::ErrorKind::NotConnected)?;
    transport.begin(local.port()).await?;
    Ok((Opened { transport: SctpTransport::Shared(transport), local, peer }, Some(hub)))
}

/// A connection over SCTP.
pub(crate) enum SctpTransport {
    Alone(AloneTransport),
    Shared(SharedTransport),
}

impl SctpTransport {
    pub(super) fn association(&self) -> &Association {
        match self {
            SctpTransport::Alone(alone) => alone.association(),
            SctpTransport::Shared(shared) => shared.association(),
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            SctpTransport::Alone(alone) => alone.title(),
            SctpTransport::Shared(shared) => shared.title(),
        }
    }

    pub(super) async fn send(&self, bytes: Bytes) -> io::Result<()> {
        match self {
            SctpTransport::Alone(alone) => alone.send(bytes).await,
            SctpTransport::Shared(shared) => shared.send(bytes).await,
        }
    }

    pub(super) async fn finish(&self) -> io::Result<()> {
        match self {
            SctpTransport::Alone(alone) => alone.finish().await,
            SctpTransport::Shared(shared) => shared.finish().await,
        }
    }

    pub(super) async fn receive(&self, out: &mut Vec<u8>) -> io::Result<Received> {
        match self {
            SctpTransport::Alone(alone) => alone.receive(out).await,
            SctpTransport::Shared(shared) => shared.receive(out).await,
        }
    }

    pub(super) fn abort(&self) {
        match self {
            SctpTransport::Alone(alone) => alone.abort(),
            SctpTransport::Shared(shared) => shared.abort(),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            SctpTransport::Alone(alone) => alone.close().await,
            SctpTransport::Shared(shared) => shared.close().await,
        }
    }
}

/// Returns the state of an association in terms of TCP.
pub(super) fn information(association: &Association) -> Information {
    let Ok(snapshot) = association.statistics() else { return Information::default() };
    let primary = snapshot.paths.iter().find(|path| path.primary).or(snapshot.paths.first());
    let Some(path) = primary else { return Information::default() };
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let mss = number(path.mtu.saturating_sub(HEADERS).max(1));
    Information {
        rtt: path.srtt.unwrap_or_default(),
        rto: path.rto,
        mss,
        mtu: number(path.mtu),
        cwnd: path.cwnd / mss,
        ssthresh: path.ssthresh / mss,
        unacknowledged: number(snapshot.unacknowledged),
        retransmissions: u32::try_from(snapshot.totals.retransmits).unwrap_or(u32::MAX),
    }
}
