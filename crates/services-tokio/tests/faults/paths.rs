//! Paths that come and go, and several of them.

use crate::os::{self, Namespace};
use crate::server::Server;
use crate::support::{all, failing_after, is_datagram, only, only_with, soon, system};
use ringway_services_tokio::{Connection, Event, LocalEndpoint, Protocol, RemoteEndpoint, Service};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 1));
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 2));

/// Messages of a transfer over a path that flaps, one each tenth of a second.
const MESSAGES: u8 = 60;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// All arrives, in order.
async fn transfers(protocol: Protocol, client: Connection) {
    let sending = async {
        for n in 0..MESSAGES {
            soon(client.send(vec![n; 2_000])).await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
    };
    let receiving = async {
        for n in 0..MESSAGES {
            let message = soon(client.receive()).await;
            let message = message.unwrap_or_else(|error| panic!("{protocol}: {error}")).unwrap();
            assert!(message.len() == 2_000 && message[0] == n, "{protocol}: message {n}");
        }
    };
    tokio::join!(sending, receiving);
}

/// Messages may be lost; when the path is back they arrive again.
async fn recovers(protocol: Protocol, client: Connection, steady: Arc<AtomicBool>) {
    while !steady.load(Ordering::Relaxed) {
        let _ = client.send(vec![0; 100]).await;
        // Both calls may return an error at once.
        sleep(Duration::from_millis(20)).await;
        let _ = timeout(Duration::from_millis(50), client.receive()).await;
    }
    let back = async {
        loop {
            let _ = client.send("back").await;
            sleep(Duration::from_millis(20)).await;
            let received = timeout(Duration::from_millis(200), client.receive()).await;
            if received.is_ok_and(|one| one.is_ok_and(|one| one.is_some_and(|m| m[..] == *b"back")))
            {
                return;
            }
        }
    };
    assert!(timeout(Duration::from_secs(60), back).await.is_ok(), "{protocol}");
}

#[test]
fn a_path_that_flaps_ends_no_connection() {
    if !os::inside_a_namespace("paths::a_path_that_flaps_ends_no_connection") {
        return;
    }
    os::ip("link set lo up");
    let other = Namespace::new();
    other.connect("va", "vb");
    os::ip("address add 10.1.0.1/24 dev va");
    other.run(|| os::ip("link set lo up"));
    other.run(|| os::ip("address add 10.1.0.2/24 dev vb"));
    let servers: Vec<(Protocol, Server)> = all()
        .into_iter()
        .map(|protocol| (protocol, other.run(move || Server::start(protocol, THERE))))
        .collect();
    runtime().block_on(async {
        let steady = Arc::new(AtomicBool::new(false));
        let system = system();
        let mut tasks = JoinSet::new();
        for (protocol, server) in &servers {
            let remote = RemoteEndpoint::address(server.address);
            let client = soon(only(&system, *protocol).to(remote).initiate()).await.unwrap();
            assert_eq!(client.local_address().ip(), HERE, "{protocol}");
            if is_datagram(*protocol) {
                tasks.spawn(recovers(*protocol, client, steady.clone()));
            } else {
                tasks.spawn(transfers(*protocol, client));
            }
        }
        // This end goes down, so that sending is an error; then the other end, so that packets vanish.
        for round in 0..4 {
            sleep(Duration::from_secs(1)).await;
            let set = |state: &'static str| match round % 2 {
                0 => os::ip(&format!("link set va {state}")),
                _ => other.run(move || os::ip(&format!("link set vb {state}"))),
            };
            set("down");
            sleep(Duration::from_secs(1)).await;
            set("up");
        }
        steady.store(true, Ordering::Relaxed);
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    });
}

/// RFC 9260 section 8.2: with several addresses a path that fails is replaced, and the program learns of it.
#[test]
fn with_several_addresses_a_path_that_dies_is_reported_and_replaced() {
    let name = "paths::with_several_addresses_a_path_that_dies_is_reported_and_replaced";
    crate::alone(name, || async {
        for (port, protocol) in [(7001, Protocol::SctpUdp), (7002, Protocol::Sctp)] {
            if crate::support::has(protocol) {
                path_dies(protocol, port).await;
            }
        }
    });
}

async fn path_dies(protocol: Protocol, port: u16) {
    let [first, second]: [IpAddr; 2] = [[127, 0, 0, 3].into(), [127, 0, 0, 1].into()];
    let system = system();
    let properties = failing_after(protocol, Duration::from_secs(30)).require(Service::Multihoming);
    let new = || only_with(&system, protocol, properties.clone());
    let mut local = LocalEndpoint::address(SocketAddr::new(first, port));
    local.addresses.push(second);
    let listener = new().from(local).listen().await.unwrap();
    let remote = RemoteEndpoint::address(SocketAddr::new(first, port)).and_address(second);
    let client = soon(new().to(remote).initiate()).await.unwrap();
    client.send(vec![0; 1_000]).await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    soon(server.receive()).await.unwrap();
    let remotes: Vec<IpAddr> = client.paths().iter().map(|path| path.remote.ip()).collect();
    assert!(remotes.contains(&first) && remotes.contains(&second), "{protocol}: {remotes:?}");
    let primary = client.paths().iter().find(|path| path.is_primary).unwrap().remote.ip();
    assert_eq!(primary, first, "{protocol}");

    let sending = async {
        for n in 0..100u8 {
            if n == 20 {
                // More specific than the addresses of the loopback interface.
                os::ip(&format!("route add blackhole {first}/32 table local"));
            }
            soon(client.send(vec![n; 1_000])).await.unwrap();
            sleep(Duration::from_millis(10)).await;
        }
    };
    let receiving = async {
        for n in 0..100u8 {
            let message = soon(server.receive()).await.unwrap().unwrap();
            assert!(message.len() == 1_000 && message[0] == n, "{protocol}: message {n}");
        }
    };
    tokio::join!(sending, receiving);
    let event = async {
        loop {
            if let Event::Path { remote, works: false } = client.event().await {
                return remote;
            }
        }
    };
    assert_eq!(soon(event).await, SocketAddr::new(first, port), "{protocol}");
    let works = |ip| client.paths().iter().any(|path| path.remote.ip() == ip && path.works);
    assert!(works(second) && !works(first), "{protocol}: {:?}", client.paths());
    os::ip(&format!("route del blackhole {first}/32 table local"));
}
