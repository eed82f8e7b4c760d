//! Races: which protocol and address win, what becomes of the losers, and what is remembered.
#![allow(clippy::unwrap_used)]

mod support;

use ringway_services_tokio::properties::Preference;
use ringway_services_tokio::{
    Error, Preconnection, Protocol, RemoteEndpoint, SecurityParameters, Service, System,
    TransportProperties,
};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::time::Duration;
use support::{LOOPBACK, builder, here, peer, soon, system};
use tokio::io::AsyncWriteExt;

/// Messages over TCP or SCTP, SCTP first.
fn messages(system: &System) -> Preconnection {
    let properties = TransportProperties::reliable_message().prefer(Service::PartialByTime);
    let new = Preconnection::new(system, properties, SecurityParameters::disabled());
    new.without(Protocol::Sctp).without(Protocol::SctpKernel).without(Protocol::Mptcp)
}

#[tokio::test]
async fn a_peer_that_has_only_tcp_gets_tcp() {
    let system = system();
    let listener =
        messages(&system).without(Protocol::SctpUdp).from(here(0)).listen().await.unwrap();
    assert_eq!(listener.protocols(), [Protocol::Tcp]);
    let new = messages(&system).to(peer(listener.port()));
    assert_eq!(new.explain().unwrap().candidates[0].protocol, Protocol::SctpUdp);
    let (client, server) = tokio::join!(soon(new.initiate()), soon(listener.accept()));
    let (client, server) = (client.unwrap(), server.unwrap());
    assert_eq!((client.protocol(), server.protocol()), (Protocol::Tcp, Protocol::Tcp));
    let text = client.explain().to_string();
    assert!(text.contains("SCTP over UDP"), "{text}");
    // What failed is remembered: TCP comes first now.
    assert_eq!(new.explain().unwrap().candidates[0].protocol, Protocol::Tcp);
}

#[tokio::test]
async fn a_peer_that_has_both_gets_the_better_one() {
    let system = system();
    let listener = messages(&system).from(here(0)).listen().await.unwrap();
    assert_eq!(listener.protocols(), [Protocol::SctpUdp, Protocol::Tcp]);
    assert!(listener.left_out().is_empty());
    let new = messages(&system).to(peer(listener.port()));
    let client = soon(new.initiate()).await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    assert_eq!((client.protocol(), server.protocol()), (Protocol::SctpUdp, Protocol::SctpUdp));
    client.send("hello").await.unwrap();
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"hello");
    let text = client.explain().to_string();
    assert!(text.starts_with("SCTP over UDP is chosen"), "{text}");
}

/// RFC 8305 section 5: the next address is tried after a short delay.
#[tokio::test]
async fn an_address_that_swallows_everything_delays_little() {
    // A listener whose queue is full drops further requests to connect.
    let hole = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let at = SocketAddr::from(([127, 0, 0, 2], 0));
    hole.bind(&at.into()).unwrap();
    hole.listen(0).unwrap();
    let at = hole.local_addr().unwrap().as_socket().unwrap();
    let fill: Vec<_> = (0..3)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&at.into());
            socket
        })
        .collect();
    let system = system();
    let tcp = || {
        let new = messages(&system);
        new.without(Protocol::SctpUdp)
    };
    let listener = tcp().from(here(at.port())).listen().await.unwrap();
    let both = RemoteEndpoint::address(at).and_address(LOOPBACK);
    let client = soon(tcp().to(both).initiate()).await.unwrap();
    assert_eq!(client.remote_address().ip(), LOOPBACK);
    drop((fill, listener));
}

/// RFC 9622 section 6.2: the error says which requirement excludes what.
#[tokio::test]
async fn when_nothing_fits_the_error_names_the_requirements() {
    let properties = TransportProperties::new().require(Service::PartialByTime);
    let new = Preconnection::new(&system(), properties, SecurityParameters::new());
    let error = new.to(peer(9)).initiate().await.unwrap_err();
    assert!(matches!(error, Error::Unfit(_)));
    let text = error.to_string();
    assert!(text.contains("ringway.partialByTime"), "{text}");
    assert!(text.contains("ringway.security"), "{text}");
}

#[tokio::test]
async fn when_everything_fails_the_error_lists_each_attempt() {
    let system = system();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = soon(messages(&system).to(peer(port)).initiate()).await.unwrap_err();
    let Error::NotConnected(race) = &error else { panic!("{error}") };
    let protocols: Vec<_> = race.attempts.iter().map(|attempt| attempt.protocol).collect();
    assert_eq!(protocols, [Protocol::SctpUdp, Protocol::Tcp], "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn a_name_is_resolved_and_its_certificate_is_checked() {
    let system = system();
    let new = || {
        let properties = TransportProperties::reliable_message();
        let new = Preconnection::new(&system, properties, SecurityParameters::new());
        new.without(Protocol::Quic)
    };
    let listener = new().from(here(0)).listen().await.unwrap();
    assert_eq!(listener.protocols(), [Protocol::Tls]);
    let named = RemoteEndpoint::host("localhost", listener.port());
    let client = soon(new().to(named).initiate()).await.unwrap();
    assert_eq!(client.protocol(), Protocol::Tls);
    // An address that the certificate does not have.
    let other = SocketAddr::from(([127, 0, 0, 3], listener.port()));
    let listener = new().from(here(0)).listen().await.unwrap();
    drop(listener);
    let error = soon(new().to(RemoteEndpoint::address(other)).initiate()).await.unwrap_err();
    assert!(matches!(error, Error::NotConnected(_)), "{error}");
}

/// RFC 9623 section 9.2: outcomes are kept, also in a file.
#[tokio::test]
async fn what_worked_is_kept_in_a_file() {
    let file = std::env::temp_dir().join(format!("ringway-memory-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let first = builder().memory_file(&file).build().unwrap();
    let listener = messages(&first).without(Protocol::SctpUdp).from(here(0)).listen().await;
    let listener = listener.unwrap();
    let client = soon(messages(&first).to(peer(listener.port())).initiate()).await.unwrap();
    assert_eq!(client.protocol(), Protocol::Tcp);
    let written = async {
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("tcp")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(written).await;
    let second = builder().memory_file(&file).build().unwrap();
    let ranked = messages(&second).to(peer(listener.port())).explain().unwrap();
    assert_eq!(ranked.candidates[0].protocol, Protocol::Tcp);
    std::fs::remove_file(&file).unwrap();
}

/// Two programs ask for a connection at the same time, and one asks no longer.
#[tokio::test]
async fn connections_to_one_peer_share_what_is_being_opened() {
    let system = system();
    let listener = messages(&system).from(here(0)).listen().await.unwrap();
    let new = messages(&system).to(peer(listener.port()));
    let (first, second, third) = tokio::join!(
        soon(new.initiate()),
        soon(new.initiate()),
        tokio::time::timeout(Duration::ZERO, new.initiate()),
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(third.is_err());
    // One association here and one at the listener.
    assert_eq!(system.associations(), 2);
    first.send("first").await.unwrap();
    second.send("second").await.unwrap();
    let mut received = Vec::new();
    for _ in 0..2 {
        let accepted = soon(listener.accept()).await.unwrap();
        received.push(soon(accepted.receive()).await.unwrap().unwrap().to_vec());
    }
    received.sort();
    assert_eq!(received, [b"first".to_vec(), b"second".to_vec()]);
}

/// A listener for TCP and TLS distinguishes them by the peer's first octet.
#[tokio::test]
async fn tcp_and_tls_share_a_port() {
    let system = system();
    let new = |security| {
        let properties = TransportProperties::reliable_message();
        let new = Preconnection::new(&system, properties, security);
        let others = [Protocol::Quic, Protocol::Mptcp, Protocol::Sctp, Protocol::SctpUdp];
        others.into_iter().fold(new, Preconnection::without)
    };
    let listener = new(SecurityParameters::opportunistic()).from(here(0)).listen().await.unwrap();
    assert_eq!(listener.protocols(), [Protocol::Tls, Protocol::Tcp]);
    for (security, protocol) in [
        (SecurityParameters::new(), Protocol::Tls),
        (SecurityParameters::disabled(), Protocol::Tcp),
    ] {
        let client = soon(new(security).to(peer(listener.port())).initiate()).await.unwrap();
        let server = soon(listener.accept()).await.unwrap();
        assert_eq!((client.protocol(), server.protocol()), (protocol, protocol));
        assert_eq!(server.provides().has(Service::Security), protocol == Protocol::Tls);
    }
}

/// A UDP port belongs to one protocol; others need a port of their own.
#[tokio::test]
async fn a_udp_port_has_one_owner() {
    let system = system();
    let new = |properties: TransportProperties| {
        let new = Preconnection::new(&system, properties, SecurityParameters::disabled());
        new.without(Protocol::Sctp)
    };
    let any = || TransportProperties::unreliable_datagram();
    let listener = new(any()).from(here(0)).listen().await.unwrap();
    assert!(listener.protocols().contains(&Protocol::Udp), "{:?}", listener.protocols());
    let left_out: Vec<_> = listener.left_out().iter().map(|(protocol, _)| *protocol).collect();
    assert_eq!(left_out, [Protocol::SctpUdp, Protocol::DccpUdp], "{:?}", listener.left_out());
    assert!(listener.left_out()[0].1.contains("belongs to UDP"));

    let free = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ports =
        ringway_services_tokio::UdpPorts { dccp: Some(free()), sctp: Some(free()), quic: None };
    let listener = new(any()).from(here(0).with_udp_ports(ports)).listen().await.unwrap();
    assert!(listener.left_out().is_empty(), "{:?}", listener.left_out());
    for protocol in [Protocol::Udp, Protocol::UdpLite, Protocol::DccpUdp, Protocol::SctpUdp] {
        let endpoint = peer(listener.port()).with_udp_ports(ports).with_protocol(protocol);
        let client = soon(new(any()).to(endpoint).initiate()).await.unwrap();
        client.send(protocol.name()).await.unwrap();
        let server = soon(listener.accept()).await.unwrap();
        assert_eq!((client.protocol(), server.protocol()), (protocol, protocol));
        let message = soon(server.receive()).await.unwrap().unwrap();
        assert_eq!(&message[..], protocol.name().as_bytes());
    }
}

/// Who asks for security never gets a connection without it.
#[tokio::test]
async fn a_peer_without_tls_is_an_error_to_who_requires_security() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = server.accept().await.unwrap();
            let _ = stream.write_all(b"hello, this is not TLS at all").await;
        }
    });
    let system = system();
    let properties = TransportProperties::reliable_inorder_stream();
    let security = SecurityParameters::new();
    let new = Preconnection::new(&system, properties, security).without(Protocol::Quic);
    let error = soon(new.to(peer(port)).initiate()).await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    assert_eq!(Preference::Require, SecurityParameters::new().preference);
}
