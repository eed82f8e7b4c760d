//! The local address that the system uses to reach a peer.

use ringway_sansio::{Duration, Listener, Time, Transport};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Maximum number of cached source addresses, after which the cache is cleared.
const SOURCES_REMEMBERED: usize = 4096;
/// Lifetime of the cached source addresses, so that a change of routes or addresses is noticed.
const SOURCE_LIFETIME: Duration = Duration::from_secs(30);

/// Returns the source address of the system's route to `remote`, or `None` when there is no route. Sends
/// nothing.
pub fn source_for(remote: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match remote {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // The port does not matter: connecting a datagram socket only looks up the route.
    socket.connect((remote, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

/// Returns whether this host has an address. Sends nothing.
fn is_own(ip: IpAddr) -> bool {
    !ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok()
}

/// The local addresses as seen by a peer: the listener to use for it, and the address to write where that
/// listens on a wildcard. Caches the source addresses of routes, and which addresses the host has.
#[derive(Clone, Debug)]
pub struct LocalAddresses {
    listeners: Vec<Listener>,
    sources: HashMap<IpAddr, Option<IpAddr>>,
    /// Whether an address is one of this host.
    own: HashMap<IpAddr, bool>,
    clear_at: Time,
}

impl LocalAddresses {
    /// Creates the addresses of these listeners.
    pub fn new(listeners: &[Listener]) -> Self {
        LocalAddresses {
            listeners: listeners.to_vec(),
            sources: HashMap::new(),
            own: HashMap::new(),
            clear_at: Time::ZERO,
        }
    }

    /// Returns the local address that a peer at `remote` can reach over `transport`, never a wildcard. `None`
    /// when there is no listener of that transport and address family, or no route.
    pub fn local_addr_for(
        &mut self,
        now: Time,
        transport: Transport,
        remote: IpAddr,
    ) -> Option<SocketAddr> {
        let chosen = self.choose(now, transport, remote)?;
        let listener = self.listeners[chosen].addr;
        if listener.ip().is_unspecified() {
            let ip = self.source(now, remote)?;
            return Some(SocketAddr::new(ip, listener.port()));
        }
        Some(listener)
    }

    /// Returns the index of the listener to send from to `remote`, `None` where none fits: the only one of that transport and family,
    /// else the one bound to the route's source address, else a wildcard, else one that is a loopback address
    /// exactly when the peer's is, else the first.
    pub fn choose(&mut self, now: Time, transport: Transport, remote: IpAddr) -> Option<usize> {
        let fits = |l: &Listener| l.transport == transport && l.addr.is_ipv4() == remote.is_ipv4();
        let mut fitting = self.listeners.iter().enumerate().filter(|(_, l)| fits(l));
        let (first, _) = fitting.next()?;
        if fitting.next().is_none() {
            return Some(first);
        }
        let source = self.source(now, remote);
        let find = |test: &dyn Fn(&Listener) -> bool| {
            self.listeners.iter().position(|l| fits(l) && test(l))
        };
        find(&|l| Some(l.addr.ip()) == source)
            .or_else(|| find(&|l| l.addr.ip().is_unspecified()))
            .or_else(|| find(&|l| l.addr.ip().is_loopback() == remote.is_loopback()))
            .or(Some(first))
    }

    /// Returns the index of the listener that has a local address, bound to it or on a wildcard; `None` when there is
    /// none, or the host has the address no longer.
    pub fn listener_at(
        &mut self,
        now: Time,
        transport: Transport,
        addr: SocketAddr,
    ) -> Option<usize> {
        let find = |test: &dyn Fn(SocketAddr) -> bool| {
            self.listeners.iter().position(|l| l.transport == transport && test(l.addr))
        };
        if let Some(bound) = find(&|listener| listener == addr) {
            return Some(bound);
        }
        let wildcard = find(&|listener| {
            listener.ip().is_unspecified()
                && listener.port() == addr.port()
                && listener.is_ipv4() == addr.is_ipv4()
        })?;
        self.clear_old(now);
        let ip = addr.ip();
        let own = *self.own.entry(ip).or_insert_with(|| is_own(ip));
        own.then_some(wildcard)
    }

    /// Clears the caches when they are old or full.
    fn clear_old(&mut self, now: Time) {
        let full = self.sources.len().max(self.own.len()) >= SOURCES_REMEMBERED;
        if now >= self.clear_at || full {
            self.sources.clear();
            self.own.clear();
            self.clear_at = now + SOURCE_LIFETIME;
        }
    }

    fn source(&mut self, now: Time, remote: IpAddr) -> Option<IpAddr> {
        self.clear_old(now);
        *self.sources.entry(remote).or_insert_with(|| source_for(remote))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(addr: &str) -> Listener {
        Listener { transport: Transport::Udp, addr: addr.parse().unwrap() }
    }

    #[test]
    fn a_wildcard_is_written_as_a_real_address() {
        let mut local = LocalAddresses::new(&[udp("0.0.0.0:5060")]);
        let addr = local.local_addr_for(Time::ZERO, Transport::Udp, [127, 0, 0, 1].into());
        assert_eq!(addr, Some("127.0.0.1:5060".parse().unwrap()));
        assert_eq!(local.local_addr_for(Time::ZERO, Transport::Tcp, [127, 0, 0, 1].into()), None);
        assert_eq!(
            local.local_addr_for(Time::ZERO, Transport::Udp, Ipv6Addr::LOCALHOST.into()),
            None
        );
    }

    #[test]
    fn a_listener_has_the_addresses_of_the_host_only() {
        let mut local =
            LocalAddresses::new(&[udp("0.0.0.0:5060"), udp("192.0.2.1:5070"), udp("[::]:5060")]);
        let mut at =
            |addr: &str| local.listener_at(Time::ZERO, Transport::Udp, addr.parse().unwrap());
        assert_eq!(at("127.0.0.1:5060"), Some(0));
        assert_eq!(at("[::1]:5060"), Some(2));
        assert_eq!(at("192.0.2.1:5070"), Some(1), "bound to it");
        for other in ["192.0.2.1:5060", "127.0.0.1:5061", "0.0.0.0:5061", "[2001:db8::1]:5060"] {
            assert_eq!(at(other), None, "{other}");
        }
        assert_eq!(
            local.listener_at(Time::ZERO, Transport::Tcp, "127.0.0.1:5060".parse().unwrap()),
            None
        );
    }

    #[test]
    fn the_listener_on_the_route_is_chosen() {
        let mut local = LocalAddresses::new(&[
            udp("192.0.2.1:5060"),
            udp("127.0.0.1:5070"),
            udp("0.0.0.0:5080"),
        ]);
        assert_eq!(local.choose(Time::ZERO, Transport::Udp, [127, 0, 0, 1].into()), Some(1));
        let mut local = LocalAddresses::new(&[udp("192.0.2.1:5060"), udp("127.0.0.9:5070")]);
        assert_eq!(local.choose(Time::ZERO, Transport::Udp, [127, 0, 0, 1].into()), Some(1));
    }
}
