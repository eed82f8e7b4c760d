//! Two ends on one host, for every protocol.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use ringway_services_tokio::properties::{Multipath, Timeout};
use ringway_services_tokio::{
    Builder, Connection, Keyring, Limits, Listener, LocalEndpoint, Preconnection, Protocol,
    RemoteEndpoint, SecurityParameters, Service, System, TransportProperties,
};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

/// How long a test waits for what must happen.
pub const LONG: Duration = Duration::from_secs(60);

pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Certificate and key of the tests, in PEM.
fn pem() -> &'static (String, String) {
    static PEM: OnceLock<(String, String)> = OnceLock::new();
    PEM.get_or_init(|| {
        let names = ["localhost", "127.0.0.1", "::1", "10.1.0.2"].map(String::from);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    })
}

pub fn keyring() -> Keyring {
    let (chain, key) = pem();
    let keyring = Keyring::new().with_identity("server", chain.as_bytes(), key.as_bytes()).unwrap();
    keyring.with_roots(chain.as_bytes()).unwrap()
}

pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.pool.idle = Duration::from_millis(200);
    limits
}

pub fn builder() -> Builder {
    System::builder().keyring(keyring()).limits(limits()).own_memory()
}

pub fn system() -> System {
    builder().build().unwrap()
}

pub fn is_datagram(protocol: Protocol) -> bool {
    use Protocol::{DccpUdp, QuicDatagram, Udp, UdpLite};
    matches!(protocol, Udp | UdpLite | DccpUdp | QuicDatagram)
}

pub fn is_secure(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Tls | Protocol::Quic | Protocol::QuicDatagram)
}

/// Returns properties that a protocol has.
pub fn properties(protocol: Protocol) -> TransportProperties {
    if is_datagram(protocol) {
        return TransportProperties::unreliable_datagram();
    }
    let mut properties = TransportProperties::reliable_message();
    if protocol == Protocol::Mptcp {
        properties.selection.multipath = Some(Multipath::Active);
    }
    properties
}

pub fn security(protocol: Protocol) -> SecurityParameters {
    if is_secure(protocol) { SecurityParameters::new() } else { SecurityParameters::disabled() }
}

/// Returns a preconnection for one protocol.
pub fn only(system: &System, protocol: Protocol) -> Preconnection {
    only_with(system, protocol, properties(protocol))
}

pub fn only_with(
    system: &System,
    protocol: Protocol,
    properties: TransportProperties,
) -> Preconnection {
    let new = Preconnection::new(system, properties, security(protocol));
    let others = Protocol::ALL.iter().filter(|other| **other != protocol);
    others.fold(new, |preconnection, other| preconnection.without(*other))
}

pub fn here(port: u16) -> LocalEndpoint {
    LocalEndpoint::address(SocketAddr::new(LOOPBACK, port))
}

pub fn peer(port: u16) -> RemoteEndpoint {
    RemoteEndpoint::address(SocketAddr::new(LOOPBACK, port))
}

/// Returns whether the host has a protocol, and prints why not.
pub fn has(protocol: Protocol) -> bool {
    let explained = only(&system(), protocol).to(peer(9)).explain();
    if let Err(unfit) = &explained {
        eprintln!("{protocol} is not tested: {unfit}");
    }
    explained.is_ok()
}

/// Waits for what must happen.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it takes too long")
}

/// Waits until something is so.
pub async fn until(what: &str, is: impl Fn() -> bool) {
    let waited = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, waited).await.is_ok(), "{what}: it takes too long");
}

/// What a process has at one time, within a runtime: open descriptors and tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    pub descriptors: usize,
    pub tasks: usize,
}

impl Held {
    pub fn now() -> Held {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        Held { descriptors, tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks() }
    }

    /// Waits until nothing is held that was not held at this time.
    pub async fn again(self, what: &str) {
        let is_more = || {
            let now = Held::now();
            now.descriptors > self.descriptors || now.tasks > self.tasks
        };
        let waited = async {
            while is_more() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(LONG, waited).await;
        assert!(waited.is_ok(), "{what}: {:?}, expected {self:?}", Held::now());
    }
}

/// Returns all protocols that the host has.
pub fn all() -> Vec<Protocol> {
    Protocol::ALL.iter().copied().filter(|protocol| has(*protocol)).collect()
}

/// Two ends and a connection between them.
pub struct Pair {
    pub listener: Listener,
    pub client: Connection,
    pub server: Connection,
    pub protocol: Protocol,
}

impl Pair {
    pub async fn new(protocol: Protocol) -> Pair {
        Pair::with(protocol, &system(), properties(protocol)).await
    }

    pub async fn with(
        protocol: Protocol,
        system: &System,
        properties: TransportProperties,
    ) -> Pair {
        let new = || only_with(system, protocol, properties.clone());
        let listener = new().from(here(0)).listen().await.unwrap();
        let client = soon(new().to(peer(listener.port())).initiate()).await.unwrap();
        if !client.provides().has(Service::ConnectionOriented) {
            // The peer learns of it by a message.
            client.send("hello").await.unwrap();
        }
        let server = soon(listener.accept()).await.unwrap();
        if !client.provides().has(Service::ConnectionOriented) {
            assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"hello");
        }
        assert_eq!((client.protocol(), server.protocol()), (protocol, protocol));
        Pair { listener, client, server, protocol }
    }
}

/// Returns the properties with a timeout of the connection.
pub fn failing_after(protocol: Protocol, timeout: Duration) -> TransportProperties {
    let mut properties = properties(protocol);
    properties.connection.conn_timeout = Timeout(Some(timeout));
    properties
}
