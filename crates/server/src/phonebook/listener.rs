//! The sockets of the phonebook, and how many connections each source has.
//!
//! Anybody on a LAN may connect, and hold a connection. So a source has at most a quarter of all, and when all are in use,
//! the oldest of the source with most of them makes room for the next one.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::PhonebookCounts;
use super::endpoint::BookEndpoint;

/// The maximum number of connections of one listener.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Connections of one source.
const MAX_OF_SOURCE: usize = MAX_CONNECTIONS / 4;
/// Bits of an IPv6 address that count as one source where strangers connect: a host has as many addresses in its network
/// as it wants. On a LAN they would make all hosts one source.
const NETWORK: u32 = 64;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Interval at which the interface of a LAN is looked for.
const LOOK: Duration = Duration::from_secs(2);
/// Pause after a connection could not be accepted for a reason that lies with the system.
const PAUSE: Duration = Duration::from_millis(50);

/// Connections that are open.
struct Open {
    by_network: bool,
    list: Vec<(IpAddr, AbortHandle)>,
}

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    /// It is served; another one was closed for it or not.
    Served { displaced: bool },
    /// Its source has too many.
    Refused,
}

impl Open {
    fn source(&self, ip: IpAddr) -> IpAddr {
        match ip.to_canonical() {
            IpAddr::V6(ip) if self.by_network => {
                Ipv6Addr::from_bits(ip.to_bits() >> NETWORK << NETWORK).into()
            }
            ip => ip,
        }
    }

    fn count(&self, source: IpAddr) -> usize {
        self.list.iter().filter(|(of, _)| *of == source).count()
    }

    /// Takes a connection, of which `serve` makes a task.
    fn admit(&mut self, ip: IpAddr, serve: impl FnOnce() -> AbortHandle) -> Admission {
        self.list.retain(|(_, task)| !task.is_finished());
        let source = self.source(ip);
        if self.count(source) >= MAX_OF_SOURCE {
            return Admission::Refused;
        }
        let displaced = self.list.len() >= MAX_CONNECTIONS;
        if displaced {
            let max = self.list.iter().map(|(of, _)| self.count(*of)).max();
            let oldest = self.list.iter().position(|(of, _)| Some(self.count(*of)) == max);
            let (_, task) = self.list.remove(oldest.unwrap_or(0));
            task.abort();
        }
        self.list.push((source, serve()));
        Admission::Served { displaced }
    }
}

/// An endpoint where one protocol is served.
pub(super) struct PhonebookListener {
    name: &'static str,
    endpoint: BookEndpoint,
    listener: Option<TcpListener>,
    counts: Arc<PhonebookCounts>,
}

impl PhonebookListener {
    /// A listener at an endpoint; at an address its socket is open already.
    pub(super) fn new(
        name: &'static str,
        endpoint: BookEndpoint,
        listener: Option<TcpListener>,
        counts: Arc<PhonebookCounts>,
    ) -> Self {
        PhonebookListener { name, endpoint, listener, counts }
    }

    /// Serves each connection by `serve` until the process ends.
    pub(super) async fn serve<F>(mut self, serve: impl Fn(TcpStream) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let by_network = matches!(self.endpoint, BookEndpoint::At(_));
        let mut open = Open { by_network, list: Vec::new() };
        let (interface, port) = match self.endpoint.clone() {
            BookEndpoint::At(_) => {
                let Some(listener) = self.listener.take().and_then(listening) else { return };
                return self.accept(&listener, &mut open, &serve).await;
            }
            BookEndpoint::Lan { interface, port } => (interface, port),
        };
        let mut failed = String::new();
        loop {
            // One that is removed and made again has another number, and its sockets are gone.
            let index = index_of(&interface);
            if let Some(index) = index {
                match on_interface(&interface, port).map(listening) {
                    Ok(Some(listener)) => {
                        info!(
                            "the phonebook is served by {} on {interface}, port {port}",
                            self.name
                        );
                        failed.clear();
                        tokio::select! {
                            () = self.accept(&listener, &mut open, &serve) => {}
                            () = gone(&interface, index) => {}
                        }
                        continue;
                    }
                    Ok(None) => {}
                    Err(error) if error.to_string() != failed => {
                        failed = error.to_string();
                        warn!(
                            "the phonebook is not served by {} on {interface}, port {port}: {error}",
                            self.name
                        );
                    }
                    Err(_) => {}
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn accept<F>(
        &self,
        listener: &tokio::net::TcpListener,
        open: &mut Open,
        serve: &impl Fn(TcpStream) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let admission = open.admit(from.ip(), || tokio::spawn(serve(stream)).abort_handle());
            match admission {
                Admission::Served { displaced } => {
                    self.counts.displaced.fetch_add(displaced.into(), Relaxed);
                }
                Admission::Refused => _ = self.counts.refused.fetch_add(1, Relaxed),
            }
        }
    }
}

fn listening(listener: TcpListener) -> Option<tokio::net::TcpListener> {
    listener.set_nonblocking(true).ok()?;
    tokio::net::TcpListener::from_std(listener).ok()
}

fn index_of(interface: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(interface).ok()
}

/// Waits until there is no such interface any more.
async fn gone(interface: &str, index: u32) {
    while index_of(interface) == Some(index) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Listens for what comes by one interface, in both families.
fn on_interface(interface: &str, port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_only_v6(false)?;
    socket.set_reuse_address(true)?;
    // Before it listens: the kernel refuses what comes by another interface, whatever address it is for.
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(network: u16, host: u16) -> IpAddr {
        IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host])
    }

    fn served(open: &mut Open, ip: IpAddr) -> Admission {
        open.admit(ip, || tokio::spawn(std::future::pending::<()>()).abort_handle())
    }

    #[tokio::test]
    async fn a_source_has_a_quarter_and_loses_first_when_all_are_in_use() {
        let mut open = Open { by_network: false, list: Vec::new() };
        let (hog, phone) = (v6(0, 1), v6(0, 2));
        let count = (0..1_000)
            .filter(|_| served(&mut open, hog) == Admission::Served { displaced: false })
            .count();
        assert_eq!(count, MAX_OF_SOURCE);
        assert_eq!(served(&mut open, phone), Admission::Served { displaced: false });
        // One with many addresses fills the rest, and then displaces its own and the other's, not the phone's.
        for host in 3..1_000 {
            assert_ne!(served(&mut open, v6(0, host)), Admission::Refused);
            assert!(open.list.len() <= MAX_CONNECTIONS);
            tokio::task::yield_now().await;
            if open.count(hog) <= 1 {
                break;
            }
            assert_eq!(open.count(phone), 1);
        }
        assert_eq!(
            served(&mut open, IpAddr::from([192, 0, 2, 1])),
            Admission::Served { displaced: true }
        );
    }

    #[tokio::test]
    async fn a_network_of_strangers_is_one_source_and_hosts_of_a_lan_are_not() {
        for (by_network, expected) in [(true, MAX_OF_SOURCE), (false, 40)] {
            let mut open = Open { by_network, list: Vec::new() };
            let all = (0..40).filter(|&host| served(&mut open, v6(1, host)) != Admission::Refused);
            assert_eq!(all.count(), expected);
            assert_ne!(served(&mut open, v6(2, 1)), Admission::Refused);
        }
    }

    #[tokio::test]
    async fn connections_that_have_ended_make_room() {
        let mut open = Open { by_network: false, list: Vec::new() };
        for _ in 0..10 * MAX_CONNECTIONS {
            let admission = open.admit(v6(0, 1), || tokio::spawn(async {}).abort_handle());
            assert_eq!(admission, Admission::Served { displaced: false });
            tokio::task::yield_now().await;
        }
    }
}
