//! No descriptors left: an error or a pause, and everything goes on when there are some again.

use crate::alone;
use crate::support::{Held, Pair, all, here, only, only_with, peer, properties, soon, system};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ringway_services_tokio::{Error, Protocol, TransportProperties};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::time::timeout;

/// As long as it lives, no descriptor is left.
struct Exhausted {
    soft: u64,
    hard: u64,
}

impl Exhausted {
    fn new() -> Exhausted {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // The lowest number that is free is beyond the limit.
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
        setrlimit(Resource::RLIMIT_NOFILE, next, hard).unwrap();
        Exhausted { soft, hard }
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard).unwrap();
    }
}

#[test]
fn without_descriptors_nothing_is_opened_and_afterwards_all_is_as_before() {
    let name = "exhaustion::without_descriptors_nothing_is_opened_and_afterwards_all_is_as_before";
    alone(name, || async {
        for protocol in all() {
            let held = Held::now();
            let system = system();
            let listener = only(&system, protocol).from(here(0)).listen().await.unwrap();
            let clients = crate::support::system();
            let new = only(&clients, protocol).to(peer(listener.port()));
            let standing = Pair::new(protocol).await;
            let before = new.explain().unwrap().to_string();
            {
                let _exhausted = Exhausted::new();
                let error = new.initiate().await.unwrap_err();
                assert!(matches!(error, Error::NotConnected(_)), "{protocol}: {error}");
                assert!(error.to_string().contains("Too many open files"), "{protocol}: {error}");
                // What stands goes on.
                standing.client.send("still here").await.unwrap();
                assert_eq!(
                    &soon(standing.server.receive()).await.unwrap().unwrap()[..],
                    b"still here"
                );
            }
            // It was no fault of the peer.
            assert_eq!(new.explain().unwrap().to_string(), before, "{protocol}");
            assert!(!new.explain().unwrap().candidates[0].last_resort, "{protocol}");
            let client = soon(new.initiate()).await.unwrap();
            client.send("again").await.unwrap();
            let server = soon(listener.accept()).await.unwrap();
            assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"again", "{protocol}");
            // A descriptor that is closed later would be one more for the next protocol.
            drop((server, client, standing, listener, new, clients, system));
            held.again(protocol.name()).await;
        }
    });
}

/// A system that is made in this moment has all protocols later.
#[test]
fn a_system_made_without_descriptors_lacks_no_protocol_afterwards() {
    alone("exhaustion::a_system_made_without_descriptors_lacks_no_protocol_afterwards", || async {
        let protocols = all();
        let late = {
            let _exhausted = Exhausted::new();
            system()
        };
        for protocol in protocols {
            let fits = only(&late, protocol).to(peer(9)).explain();
            assert!(fits.is_ok(), "{protocol}: {}", fits.unwrap_err());
        }
    });
}

#[test]
fn a_listener_accepts_again_when_there_are_descriptors() {
    alone("exhaustion::a_listener_accepts_again_when_there_are_descriptors", || async {
        for protocol in [Protocol::Tcp, Protocol::Mptcp] {
            if !crate::support::has(protocol) {
                continue;
            }
            let before = Held::now();
            let system = system();
            let mut stream = TransportProperties::reliable_inorder_stream();
            stream.selection.multipath = properties(protocol).selection.multipath;
            let new = only_with(&system, protocol, stream).without_framing();
            let listener = new.from(here(0)).listen().await.unwrap();
            // The system completes the connection; nobody has accepted it yet.
            let mut client = std::net::TcpStream::connect(("127.0.0.1", listener.port())).unwrap();
            {
                let _exhausted = Exhausted::new();
                let accepted = timeout(Duration::from_millis(300), listener.accept()).await;
                assert!(accepted.is_err(), "{protocol}");
            }
            let server = soon(listener.accept()).await.unwrap();
            client.write_all(b"late").unwrap();
            assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"late", "{protocol}");
            drop((server, listener, client, system));
            before.again(protocol.name()).await;
        }
    });
}
