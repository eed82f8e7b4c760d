//! Connections over SCTP, in UDP or directly over IP: streams of one association for those to the same port of a peer
//! (`sharing`), or an association for each, if the peer does not share (`alone`).
//!
//! A listener of port N has SCTP port N, and in UDP also UDP port N, so that a peer who knows the port of TCP knows the
//! others.

use super::alone::AloneTransport;
use super::associated::{SctpTransport, first};
use super::below::{Below, addresses, failed, shares};
use super::locals;
use super::opened::{Information, Opened};
use super::pool::{Acquired, Pool};
use super::sharing::{Arrivals, Hub, SharedTransport};
use super::unread::Unread;
use crate::locking::lock;
use ringway_sansio::Duration;
use ringway_sctp_tokio::{
    Association, Close, Config, Connect, ConnectError, Listener, Over, Scheduling, Settings, Stack,
};
use ringway_with_wire::datagrams;
use ringway_with_wire::sharing::STREAMS;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::task::Poll;
use tokio::sync::mpsc;

/// Time between two looks at the addresses of the host.
const REFRESH: Duration = Duration::from_secs(3);
/// Octets that SCTP adds to a segment: headers of IPv4 or IPv6, UDP, SCTP and a chunk.
const HEADERS: usize = 40 + 8 + 12 + 16;

/// The stacks that all connections share; each is opened when it is first needed.
#[derive(Default)]
pub(super) struct Stacks {
    /// Whether the program's datagrams are carried, so that UDP ports of the numbers that it names are its own.
    datagrams: bool,
    /// For connections that are opened here, at any UDP port.
    udp: Mutex<Option<Stack>>,
    ip: Mutex<Option<Stack>>,
    /// Associations that connections may share.
    pool: Pool,
    /// Room for what these have not read.
    unread: Unread,
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

/// As [`failed`], for an association that never stood: an ABORT is a refusal then.
fn not_opened(error: ConnectError) -> io::Error {
    match error {
        ConnectError::Closed(Close::Aborted { .. }) => {
            io::Error::from_raw_os_error(libc::ECONNREFUSED)
        }
        error => failed(error),
    }
}

/// The settings for datagrams.
pub(super) fn datagram_settings() -> Settings {
    Settings {
        outbound_streams: 1,
        inbound_streams: 1,
        max_inbound_streams: 1,
        // A peer that is gone may be one that has UDP only by now.
        association_max_retrans: 5,
        path_max_retrans: 2,
        rto_max: Duration::from_secs(3),
        ..settings()
    }
}

/// What an association is to be opened with.
pub(super) struct Associate {
    pub(super) below: Below,
    /// The peer, with its SCTP port.
    pub(super) peer: SocketAddr,
    /// The peer's UDP port.
    pub(super) encapsulation: u16,
    pub(super) bound: Option<SocketAddr>,
    /// Whether all addresses of this host are used.
    pub(super) several: bool,
    pub(super) settings: Settings,
}

impl Stacks {
    /// Creates none yet; for programs whose datagrams are carried, too, or not.
    pub(super) fn new(datagrams: bool) -> Stacks {
        Stacks { datagrams, ..Stacks::default() }
    }

    /// Returns the UDP port for the SCTP of connections to a port.
    fn encapsulation(&self, port: u16) -> u16 {
        let beside = datagrams::beside(port);
        if self.datagrams && datagrams::is_usable(beside) { beside } else { port }
    }

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
        let encapsulation = self.encapsulation(peer.port());
        let settings = settings();
        let request = Associate { below, peer, encapsulation, bound, several, settings };
        if bound.is_some() {
            let association = self.associate(&request).await?;
            return first(association, below, &self.unread).await.map(|(opened, _)| opened);
        }
        let entry = self.pool.entry(below, peer);
        loop {
            let associate = self.associate(&request);
            let (hub, transport) = match entry.acquire(associate, below, &self.unread).await? {
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
    pub(super) async fn associate(&self, request: &Associate) -> io::Result<Association> {
        let &Associate { below, peer, encapsulation, bound, several, settings } = request;
        let named = bound.map(|bound| bound.ip()).filter(|ip| !ip.is_unspecified());
        let from = match named {
            Some(ip) => vec![ip],
            None => locals::towards(peer.ip(), several)
                .ok_or_else(|| io::Error::from_raw_os_error(libc::ENETUNREACH))?,
        };
        let connect = Connect {
            local_port: bound.map_or(0, |bound| bound.port()),
            encapsulation,
            settings: Some(settings),
            ..Connect::new(&from, &[peer.ip()], peer.port())
        };
        let stack = self.outgoing(below)?;
        stack.connect(&connect).await.map_err(not_opened)
    }

    /// Listens at an address for connections.
    pub(super) fn listen(
        &self,
        below: Below,
        local: SocketAddr,
        dual: bool,
    ) -> io::Result<SctpListener> {
        let encapsulation = self.encapsulation(local.port());
        let associations = self.listen_for(below, local, dual, encapsulation, settings())?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let arrivals = (sender, tokio::sync::Mutex::new(receiver));
        let unread = self.unread.clone();
        Ok(SctpListener { associations, below, unread, arrivals })
    }

    /// Listens at an SCTP port, and in UDP at this port of UDP.
    pub(super) fn listen_for(
        &self,
        below: Below,
        local: SocketAddr,
        dual: bool,
        encapsulation: u16,
        settings: Settings,
    ) -> io::Result<Associations> {
        let wild = local.ip().is_unspecified();
        let mut addresses = vec![local.ip()];
        if dual && wild && local.is_ipv6() {
            addresses.push(Ipv4Addr::UNSPECIFIED.into());
        }
        let port = local.port();
        let stack = match below {
            Below::Ip => self.outgoing(Below::Ip)?,
            Below::Udp => {
                let over = Over::Udp { locals: addresses.clone(), port: encapsulation };
                let config = Config { settings, ..Config::new(over) };
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
        let listen = |ip: &IpAddr| stack.listen(&[*ip], port, Some(settings)).map_err(failed);
        let listeners = addresses.iter().map(listen).collect::<io::Result<_>>()?;
        Ok(Associations { listeners, joined })
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
pub(super) struct Associations {
    listeners: Vec<Listener>,
    /// At wildcards.
    joined: Option<Joined>,
}

/// Accepts connections.
pub(crate) struct SctpListener {
    associations: Associations,
    below: Below,
    unread: Unread,
    /// Connections that begin in associations which they share. Their number is bounded by that of an association's.
    arrivals: (Arrivals, tokio::sync::Mutex<mpsc::UnboundedReceiver<Opened<SharedTransport>>>),
}

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
                accepted = self.associations.next() => accepted?,
                Some(Opened { transport, local, peer }) = arrivals.recv() => {
                    let transport = SctpTransport::Shared(transport);
                    return Ok(Opened { transport, local, peer });
                }
            };
            // One that has ended again has no paths.
            let Ok((local, peer)) = addresses(&accepted) else { continue };
            if shares(&accepted) {
                Hub::accepted(accepted, self.below, &self.unread, self.arrivals.0.clone());
            } else {
                let transport = SctpTransport::Alone(AloneTransport::new(accepted, self.below));
                return Ok(Opened { transport, local, peer });
            }
        }
    }
}

impl Associations {
    /// Waits for the next association at any of the listeners.
    pub(super) async fn next(&self) -> io::Result<Association> {
        loop {
            let accepted = poll_fn(|cx| {
                let mut accepted = self.listeners.iter().map(|listener| listener.poll_accept(cx));
                accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
            });
            tokio::select! {
                accepted = accepted => return accepted.map_err(failed),
                () = tokio::time::sleep(REFRESH) => {
                    if let Some(joined) = &self.joined {
                        joined.refresh();
                    }
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::opened::Received;
    use ringway_sctp_tokio::SendOptions;
    use ringway_with_wire::stream::{DATA, FIN, FIN_PAYLOAD};

    /// A stack of a peer that knows no sharing, at a UDP port.
    fn old_peer() -> (Stack, u16) {
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let over = Over::Udp { locals: vec![Ipv4Addr::LOCALHOST.into()], port };
        let settings = Settings { outbound_streams: 1, inbound_streams: 1, ..settings() };
        (Stack::new(Config { settings, ..Config::new(over) }).unwrap(), port)
    }

    /// Who has a port below 1,024 is trusted for it: 8,245 would be the 53 of DNS.
    #[test]
    fn connections_in_udp_keep_away_from_the_programs_port_and_from_those_below_1024() {
        let stacks = Stacks::new(true);
        assert_eq!(
            [53, 8_191, 8_192, 8_245, 9_215, 9_216].map(|port| stacks.encapsulation(port)),
            [8_245, 16_383, 8_192, 8_245, 9_215, 1_024]
        );
        assert_eq!(Stacks::new(false).encapsulation(53), 53);
    }

    fn options(ppid: u32) -> SendOptions {
        SendOptions { ppid, ..SendOptions::default() }
    }

    async fn reads(transport: &SctpTransport, expected: &[u8]) {
        let mut got = Vec::new();
        while transport.receive(&mut got).await.unwrap() != Received::End {}
        assert_eq!(got, expected);
    }

    #[tokio::test]
    async fn a_peer_that_does_not_share_gets_an_association_for_each_connection() {
        let (stack, port) = old_peer();
        let peer = SocketAddr::from(([127, 0, 0, 1], port));
        let listener = stack.listen(&[peer.ip()], port, None).unwrap();
        let stacks = Stacks::default();
        let mut ports = Vec::new();
        for _ in 0..2 {
            let opened = stacks.connect(Below::Udp, peer, None, false, || Some(1)).await.unwrap();
            assert!(matches!(opened.transport, SctpTransport::Alone(_)));
            ports.push(opened.local.port());
            let association = listener.accept().await.unwrap();
            opened.transport.send("question".into()).await.unwrap();
            opened.transport.finish().await.unwrap();
            let message = association.recv().await.unwrap().unwrap();
            assert_eq!(
                (message.stream, message.ppid, &message.bytes[..]),
                (0, DATA, &b"question"[..])
            );
            association.send(&b"answer"[..], &options(DATA)).await.unwrap();
            association.send(FIN_PAYLOAD, &options(FIN)).await.unwrap();
            reads(&opened.transport, b"answer").await;
        }
        assert_ne!(ports[0], ports[1]);
    }

    #[tokio::test]
    async fn a_connection_of_a_peer_that_does_not_share_is_accepted() {
        let (stack, port) = old_peer();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let free = std::net::UdpSocket::bind(local).unwrap().local_addr().unwrap();
        let stacks = Stacks::default();
        let listener = stacks.listen(Below::Udp, free, false).unwrap();
        let connect = Connect {
            encapsulation: free.port(),
            ..Connect::new(&[free.ip()], &[free.ip()], free.port())
        };
        let (association, accepted) = tokio::join!(stack.connect(&connect), listener.accept());
        let (association, accepted) = (association.unwrap(), accepted.unwrap());
        assert!(matches!(accepted.transport, SctpTransport::Alone(_)), "port {port}");
        association.send(&b"question"[..], &options(DATA)).await.unwrap();
        association.send(FIN_PAYLOAD, &options(FIN)).await.unwrap();
        reads(&accepted.transport, b"question").await;
    }

    /// A program that does not read holds so much of what its peers send; beyond it the connection is reset, and no other.
    #[tokio::test]
    async fn a_connection_beyond_the_room_for_what_is_unread_is_reset() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let free = std::net::UdpSocket::bind(local).unwrap().local_addr().unwrap();
        let server = Stacks { unread: Unread::new(1 << 20), ..Stacks::default() };
        let listener = server.listen(Below::Udp, free, false).unwrap();
        let client = Stacks::default();
        let connect = || client.connect(Below::Udp, free, None, false, || Some(1));
        let (opened, accepted) = tokio::join!(connect(), listener.accept());
        let (large, unread) = (opened.unwrap().transport, accepted.unwrap().transport);
        let (opened, accepted) = tokio::join!(connect(), listener.accept());
        let (small, read) = (opened.unwrap().transport, accepted.unwrap().transport);
        assert!(matches!(large, SctpTransport::Shared(_)));

        // It fits into the window of the connection.
        large.send(vec![1; 1 << 20].into()).await.unwrap();
        let error = large.receive(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        let error = unread.receive(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        small.send("question".into()).await.unwrap();
        small.finish().await.unwrap();
        reads(&read, b"question").await;
    }
}
