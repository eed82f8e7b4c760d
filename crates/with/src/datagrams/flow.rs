//! The datagrams between sockets of the program and one port of a peer, through a proxy for that peer.

use super::state::Route;
use crate::locking::lock;
use crate::network::Link;
use libc::{EADDRNOTAVAIL, EINVAL, ENETUNREACH};
use ringway_with_wire::datagrams::{MAX_DATAGRAM, UNPRIVILEGED};
use rustix::net::{RecvFlags, recvfrom};
use socket2::SockRef;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// The address of proxies for peers of IPv4, by which the library notices them.
pub(super) const PROXIES: Ipv4Addr = Ipv4Addr::new(127, 82, 0, 1);
/// Octets that wait at a proxy until the broker reads them.
const BUFFER: usize = 4 << 20;
/// Time for which datagrams of a peer that travel by UDP are expected beside its messages.
const STAND_IN: Duration = Duration::from_millis(500);
/// Pause after an error of a socket, which is about a datagram that it has sent.
const PAUSE: Duration = Duration::from_millis(1);

/// An association with what it is used for.
pub(super) struct Carrier {
    pub(super) number: u64,
    pub(super) link: Link,
    /// What it was opened for; `None` if the peer has opened it.
    pub(super) route: Option<Route>,
    /// The UDP port that it stands for: the peer's, if it was opened here, or that of the program.
    pub(super) port: u16,
    pub(super) since: Instant,
    /// Since when it has no flows.
    idle: Mutex<Instant>,
    /// Whether it has had a flow.
    has_flowed: AtomicBool,
    /// Whether a flow that the peer has begun was refused.
    has_refused: AtomicBool,
    /// The ports whose datagrams the peer does not take.
    refused: Mutex<BTreeSet<u16>>,
    /// Datagrams.
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

impl Carrier {
    pub(super) fn new(number: u64, link: Link, route: Option<Route>, port: u16) -> Carrier {
        let now = Instant::now();
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        Carrier {
            number,
            link,
            route,
            port,
            since: now,
            idle: Mutex::new(now),
            has_flowed: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
            refused: Mutex::default(),
            sent,
            received,
        }
    }

    /// Returns whether the receiver believes that datagrams are of this port of the end that has opened the association: a
    /// port below 1,024 takes a right, and so does SCTP over IP, but not SCTP in UDP.
    pub(super) fn believes(&self, port: u16) -> bool {
        port >= UNPRIVILEGED || self.link.is_over_ip()
    }

    /// Notes that the peer takes no datagrams of a port, or no more.
    pub(super) fn note_refusal(&self, port: u16) {
        if self.route.is_some() {
            lock(&self.refused).insert(port);
        }
    }

    /// Returns whether the peer takes no datagrams of a port.
    pub(super) fn has_refused(&self, port: u16) -> bool {
        lock(&self.refused).contains(&port)
    }

    /// Returns whether no flow was refused before, and takes note of one.
    pub(super) fn is_first_refusal(&self) -> bool {
        !self.has_refused.swap(true, Ordering::Relaxed)
    }

    /// Returns whether there was no flow before, and takes note of one.
    pub(super) fn is_first_flow(&self) -> bool {
        !self.has_flowed.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_idle_now(&self) {
        *lock(&self.idle) = Instant::now();
    }

    pub(super) fn idle_since(&self) -> Instant {
        *lock(&self.idle)
    }

    /// Returns what it carries, in words.
    pub(super) fn title(&self) -> String {
        match self.route {
            Some((peer, _)) => format!("datagrams to {peer} by {}", self.link.title()),
            None => {
                let (peer, port) = (self.link.peer.ip(), self.port);
                format!("datagrams from {peer} to port {port} by {}", self.link.title())
            }
        }
    }
}

/// One flow.
pub(super) struct Flow {
    pub(super) carrier: Arc<Carrier>,
    /// The port of the end that has opened the association.
    pub(super) port: u16,
    /// The port of the program's sockets.
    own: u16,
    /// The peer as the program knows it.
    pub(super) peer: SocketAddr,
    /// Shared with [`State`](super::state::State), which keeps the port for a while after the flow's end.
    pub(super) proxy: Arc<UdpSocket>,
    /// The proxy's address.
    pub(super) at: SocketAddr,
    /// Where the program's sockets receive.
    deliver: Mutex<SocketAddr>,
    /// The local addresses of the program's sockets; the wildcard for all.
    sources: Mutex<BTreeSet<IpAddr>>,
    /// Whether the peer receives what is sent, and sends by messages. Until then, sockets that are connected stay so.
    is_confirmed: AtomicBool,
}

impl Flow {
    /// Opens a proxy.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(carrier: &Arc<Carrier>, port: u16) -> io::Result<Flow> {
        // One that was opened here has many ports here, one that has arrived many at the peer.
        let (own, peer) = match carrier.route {
            Some((peer, _)) => (port, peer),
            None => (carrier.port, SocketAddr::new(carrier.link.peer.ip(), port)),
        };
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => PROXIES.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let socket = socket2::Socket::from(std::net::UdpSocket::bind((any, 0))?);
        socket.set_nonblocking(true)?;
        ringway_os::enlarge_buffers(&socket, BUFFER)?;
        let deliver = Mutex::new(SocketAddr::new(carrier.link.local.ip(), own));
        let proxy = Arc::new(UdpSocket::from_std(socket.into())?);
        let at = proxy.local_addr()?;
        let is_confirmed = AtomicBool::new(carrier.route.is_none());
        let carrier = carrier.clone();
        let sources = Mutex::default();
        Ok(Flow { carrier, port, own, peer, proxy, at, deliver, sources, is_confirmed })
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    /// Notes that the peer has confirmed the flow. Returns whether that is new.
    pub(super) fn confirm(&self) -> bool {
        !self.is_confirmed.swap(true, Ordering::Relaxed)
    }

    pub(super) fn key(&self) -> (u64, u16) {
        (self.carrier.number, self.port)
    }

    /// Takes what comes to the proxy from a local address of the program.
    pub(super) fn take_from(&self, ip: IpAddr) {
        lock(&self.sources).insert(ip);
    }

    /// Has what comes from the peer delivered to another local address.
    pub(super) fn deliver_to(&self, ip: IpAddr) {
        lock(&self.deliver).set_ip(ip);
    }

    /// Hands a datagram of the peer to the program. One that its socket has no room for is lost. Returns `false` if no
    /// datagram reaches the program any more, because this host does not have its address now.
    pub(super) fn deliver(&self, datagram: &[u8]) -> bool {
        let to = *lock(&self.deliver);
        // As by UDP, nobody learns whether it has arrived.
        let Err(error) = SockRef::from(&*self.proxy).send_to(datagram, &to.into()) else {
            return true;
        };
        if !matches!(error.raw_os_error(), Some(EINVAL | EADDRNOTAVAIL | ENETUNREACH)) {
            return true;
        }
        self.leave(to.ip()) && self.deliver(datagram)
    }

    /// Has datagrams delivered at the loopback address instead of one that is gone. Returns `false` if the program's sockets
    /// do not have it.
    fn leave(&self, gone: IpAddr) -> bool {
        let has_all = lock(&self.sources).iter().any(IpAddr::is_unspecified);
        if gone.is_loopback() || !has_all {
            return false;
        }
        self.deliver_to(match gone {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
        true
    }

    /// Leaves the address to deliver at if this host does not have it any more: to one of IPv6 the kernel sends without an
    /// error, wherever a route leads. Returns `false` if no datagram reaches the program any more.
    pub(super) fn follow_address(&self) -> bool {
        let ip = lock(&self.deliver).ip();
        let gone = std::net::UdpSocket::bind((ip, 0))
            .is_err_and(|error| error.raw_os_error() == Some(EADDRNOTAVAIL));
        !gone || self.leave(ip)
    }

    /// Sends a datagram that has come to the proxy. What is not of the program's sockets is dropped.
    fn forward(&self, from: SocketAddr, datagram: &[u8]) {
        let sources = lock(&self.sources);
        let is_own = sources.iter().any(|ip| ip.is_unspecified() || *ip == from.ip());
        drop(sources);
        if is_own && from.port() == self.own {
            self.carrier.sent.fetch_add(1, Ordering::Relaxed);
            self.carrier.link.send(self.port, datagram);
        }
    }

    /// Sends what waits at the proxy.
    pub(super) fn drain(&self) {
        let mut datagram = vec![0; MAX_DATAGRAM];
        // The runtime may not have learned yet that there is something.
        while let Ok((length, _, Some(from))) =
            recvfrom(&*self.proxy, &mut datagram[..], RecvFlags::DONTWAIT)
        {
            if let Ok(from) = SocketAddr::try_from(from) {
                self.forward(from, &datagram[..length]);
            }
        }
    }
}

/// Delivers what comes from the peer by UDP for a while: what it has sent before it learned of the flow.
pub(super) async fn read_stand_in(stand_in: UdpSocket, flow: Arc<Flow>) {
    let mut datagram = vec![0; MAX_DATAGRAM];
    let all = async {
        loop {
            match stand_in.recv(&mut datagram).await {
                Ok(length) => {
                    flow.deliver(&datagram[..length]);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    // The program may want the address for another socket soon.
    let _ = tokio::time::timeout(STAND_IN, all).await;
}

/// Sends what comes to a proxy, until it is stopped.
pub(super) async fn read_proxy(flow: Arc<Flow>) {
    let mut datagram = vec![0; MAX_DATAGRAM];
    loop {
        match flow.proxy.recv_from(&mut datagram).await {
            Ok((length, from)) => flow.forward(from, &datagram[..length]),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
