//! Peers that are not there.

use crate::support::{Held, all, builder, limits, only, peer, soon};
use crate::{alone, os};
use ringway_services_tokio::{Error, Protocol, RemoteEndpoint, Service, System};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

fn system() -> System {
    let mut limits = limits();
    limits.race.attempt_timeout = Duration::from_millis(500);
    builder().limits(limits).build().unwrap()
}

async fn fails(protocol: Protocol, remote: SocketAddr) {
    let system = system();
    let new = only(&system, protocol).to(RemoteEndpoint::address(remote));
    match soon(new.initiate()).await {
        // Without a handshake nothing is known of the peer.
        Ok(client) => {
            assert!(!client.provides().has(Service::ConnectionOriented), "{protocol}");
            let _ = client.send("anybody?").await;
        }
        Err(error) => {
            assert!(matches!(error, Error::NotConnected(_)), "{protocol}: {error}");
            assert!(error.to_string().contains(&remote.to_string()), "{protocol}: {error}");
            assert_eq!(system.associations(), 0, "{protocol}");
        }
    }
    // A caller that no longer waits.
    let _ = timeout(Duration::from_millis(20), new.initiate()).await;
}

#[test]
fn connecting_to_a_closed_port_fails_and_leaves_nothing() {
    alone("connecting::connecting_to_a_closed_port_fails_and_leaves_nothing", || async {
        for protocol in all() {
            let before = Held::now();
            fails(protocol, SocketAddr::from(([127, 0, 0, 1], 9))).await;
            before.again(protocol.name()).await;
        }
    });
}

#[test]
fn connecting_to_a_black_hole_fails_in_time_and_leaves_nothing() {
    alone("connecting::connecting_to_a_black_hole_fails_in_time_and_leaves_nothing", || async {
        if !os::relay::has_tun() {
            return;
        }
        // Nobody reads what is sent to this device.
        os::ip("tuntap add mode tun hole");
        os::ip("address add 10.9.0.1/24 dev hole");
        os::ip("link set hole up");
        for protocol in all() {
            let before = Held::now();
            fails(protocol, SocketAddr::from(([10, 9, 0, 2], 9))).await;
            before.again(protocol.name()).await;
        }
    });
}

/// RFC 9622 section 6.2.11: what is required is named by the error.
#[tokio::test]
async fn an_interface_is_forced_and_one_that_does_not_exist_is_an_error() {
    use ringway_services_tokio::properties::Preference::{Prohibit, Require};
    for protocol in all() {
        let with = |preference, name: &str| {
            let mut properties = crate::support::properties(protocol);
            properties.selection.interface.0.push((preference, name.to_string()));
            properties
        };
        let ends = crate::support::system();
        let pair = crate::support::Pair::with(protocol, &ends, with(Require, "lo"));
        let pair = soon(pair).await;
        assert_eq!(pair.client.candidate().interface.as_deref(), Some("lo"), "{protocol}");
        pair.client.send("over lo").await.unwrap();
        assert_eq!(&soon(pair.server.receive()).await.unwrap().unwrap()[..], b"over lo");

        let system = system();
        let new = |properties| crate::support::only_with(&system, protocol, properties);
        let error = new(with(Require, "nosuch0")).to(peer(9)).initiate().await.unwrap_err();
        assert!(matches!(error, Error::Unfit(_)), "{protocol}: {error}");
        assert!(error.to_string().contains("require:nosuch0"), "{protocol}: {error}");
        let error = new(with(Require, "nosuch0")).from(crate::support::here(0)).listen().await;
        assert!(error.unwrap_err().to_string().contains("require:nosuch0"), "{protocol}");
        let ranked = new(with(Prohibit, "lo")).to(peer(9)).explain();
        let on_lo =
            |one: &ringway_services_tokio::Candidate| one.interface.as_deref() == Some("lo");
        assert!(!ranked.is_ok_and(|ranked| ranked.candidates.iter().any(on_lo)), "{protocol}");
    }
}
