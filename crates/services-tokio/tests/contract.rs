//! What a program may rely on, over every protocol.
#![allow(clippy::unwrap_used)]

mod support;

use ringway_services_tokio::{Error, MessageProperties, Protocol, Service};
use std::time::Duration;
use support::{Pair, failing_after, has, is_datagram, only, peer, soon, system};
use tokio::time::timeout;

/// A time that is long for what must not happen to happen.
const SHORT: Duration = Duration::from_millis(300);

async fn messages_are_echoed_in_order(protocol: Protocol) {
    let Pair { client, server, .. } = Pair::new(protocol).await;
    for round in 0..20u8 {
        let messages: Vec<Vec<u8>> =
            (0..4u8).map(|n| vec![round ^ n; 1 + usize::from(n) * 300]).collect();
        for message in &messages {
            client.send(message.clone()).await.unwrap();
        }
        for message in &messages {
            let received = soon(server.receive()).await.unwrap().unwrap();
            assert!(received.is_end && received.bytes == *message);
            server.send(received.bytes).await.unwrap();
        }
        for message in &messages {
            assert_eq!(soon(client.receive()).await.unwrap().unwrap().bytes, *message);
        }
    }
}

async fn an_empty_message_is_a_message(protocol: Protocol) {
    let Pair { client, server, .. } = Pair::new(protocol).await;
    client.send("").await.unwrap();
    client.send("behind it").await.unwrap();
    assert!(soon(server.receive()).await.unwrap().unwrap().is_empty());
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"behind it");
}

async fn the_largest_message_arrives_and_a_larger_one_is_refused(protocol: Protocol) {
    let Pair { client, server, .. } = Pair::new(protocol).await;
    let max = client.message_limits().send_msg_max_len.unwrap() as usize;
    let message: Vec<u8> = (0..max).map(|n| (n % 251) as u8).collect();
    let (sent, received) = tokio::join!(client.send(message.clone()), soon(server.receive()));
    sent.unwrap();
    let received = received.unwrap().unwrap();
    assert!(received.bytes == message, "{} octets of {max}", received.len());
    // The limit of a packet grows with what is known of the path.
    let error = client.send(vec![0; max + 70_000]).await.unwrap_err();
    assert!(matches!(error, Error::Message(_)), "{error}");
    client.send("and more").await.unwrap();
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"and more");
}

/// RFC 9622 section 7.4.
async fn a_group_has_several_connections_and_one_that_ends_leaves_the_others(protocol: Protocol) {
    let Pair { client, server, listener, .. } = Pair::new(protocol).await;
    let is_oriented = client.provides().has(Service::ConnectionOriented);
    let mut clones = Vec::new();
    for n in 0..5u8 {
        let clone = soon(client.clone()).await.unwrap();
        clone.send(vec![n]).await.unwrap();
        let other = soon(listener.accept()).await.unwrap();
        assert_eq!(soon(other.receive()).await.unwrap().unwrap()[..], [n]);
        clones.push((clone, other));
    }
    let (first, of_first) = clones.remove(0);
    first.close().await.unwrap();
    if is_oriented {
        assert_eq!(soon(of_first.receive()).await.unwrap(), None);
    }
    let (second, of_second) = clones.remove(0);
    second.abort();
    if is_oriented && !matches!(protocol, Protocol::DccpUdp | Protocol::QuicDatagram) {
        let error = soon(of_second.receive()).await.unwrap_err();
        assert!(matches!(error, Error::Aborted { .. } | Error::Lost(_)), "{error}");
    }
    for (clone, other) in &clones {
        clone.send("still here").await.unwrap();
        assert_eq!(&soon(other.receive()).await.unwrap().unwrap()[..], b"still here");
        other.send("and here").await.unwrap();
        assert_eq!(&soon(clone.receive()).await.unwrap().unwrap()[..], b"and here");
    }
    client.send("too").await.unwrap();
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"too");
}

/// RFC 9622 section 9.1.3.5.
async fn after_the_last_message_the_other_direction_goes_on(protocol: Protocol) {
    let Pair { client, server, .. } = Pair::new(protocol).await;
    client.send("first").await.unwrap();
    client.send_final("last").await.unwrap();
    assert!(client.send("too late").await.is_err());
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"first");
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"last");
    if is_datagram(protocol) {
        return;
    }
    assert_eq!(soon(server.receive()).await.unwrap(), None);
    server.send("answer").await.unwrap();
    server.send_final("bye").await.unwrap();
    assert_eq!(&soon(client.receive()).await.unwrap().unwrap()[..], b"answer");
    assert_eq!(&soon(client.receive()).await.unwrap().unwrap()[..], b"bye");
    assert_eq!(soon(client.receive()).await.unwrap(), None);
}

async fn what_was_sent_before_the_end_arrives(protocol: Protocol) {
    let Pair { client, server, .. } = Pair::new(protocol).await;
    let count = if is_datagram(protocol) { 5 } else { 200 };
    for n in 0..count {
        client.send(vec![n as u8; 1_000]).await.unwrap();
    }
    drop(client);
    for n in 0..count {
        let message = soon(server.receive()).await.unwrap().unwrap();
        assert_eq!((message.len(), message[0]), (1_000, n as u8));
    }
    if server.provides().has(Service::ConnectionOriented) {
        assert_eq!(soon(server.receive()).await.unwrap(), None);
    }
}

async fn an_aborted_connection_is_an_error_to_the_peer(protocol: Protocol) {
    let Pair { client, server, .. } = Pair::new(protocol).await;
    client.abort();
    assert!(matches!(client.send("x").await, Err(Error::Closed)));
    assert!(matches!(client.receive().await, Err(Error::Closed)));
    if server.provides().has(Service::ConnectionOriented) {
        let error = soon(server.receive()).await.unwrap_err();
        assert!(matches!(error, Error::Aborted { .. } | Error::Lost(_)), "{error}");
    }
}

async fn a_peer_that_goes_away_is_noticed(protocol: Protocol) {
    // The peer has a runtime of its own, which ends without a word.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kept = runtime.block_on(async {
            let system = system();
            let listener = only(&system, protocol).from(support::here(0)).listen().await.unwrap();
            sender.send(listener.port()).unwrap();
            let accepted = listener.accept().await.unwrap();
            accepted.receive().await.unwrap();
            stopped.await.unwrap();
            (accepted, listener, system)
        });
        runtime.shutdown_background();
        drop(kept);
    });
    let port = receiver.await.unwrap();
    let properties = failing_after(protocol, Duration::from_secs(2));
    let system = system();
    let new = support::only_with(&system, protocol, properties).to(peer(port));
    let client = soon(new.initiate()).await.unwrap();
    client.send("hello").await.unwrap();
    // The peer has read it before it goes.
    tokio::time::sleep(Duration::from_millis(50)).await;
    stop.send(()).unwrap();
    thread.join().unwrap();
    let noticed = async {
        loop {
            // Without packets there is nothing to notice it by.
            if client.send("anybody?").await.is_err() {
                return;
            }
            match timeout(Duration::from_millis(100), client.receive()).await {
                Ok(Ok(Some(_))) | Err(_) => {}
                Ok(Ok(None) | Err(_)) => return,
            }
        }
    };
    soon(noticed).await;
}

async fn ipv6_carries_it(protocol: Protocol) {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return;
    }
    let system = system();
    let at = |port| std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
    let local = ringway_services_tokio::LocalEndpoint::address(at(0));
    let listener = only(&system, protocol).from(local).listen().await.unwrap();
    let remote = ringway_services_tokio::RemoteEndpoint::address(at(listener.port()));
    let client = soon(only(&system, protocol).to(remote).initiate()).await.unwrap();
    assert_eq!(client.remote_address(), at(listener.port()));
    client.send("over IPv6").await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    assert!(server.remote_address().is_ipv6() && client.local_address().is_ipv6());
    let message = soon(server.receive()).await.unwrap().unwrap();
    assert_eq!(&message[..], b"over IPv6");
    server.send(message.bytes).await.unwrap();
    assert_eq!(&soon(client.receive()).await.unwrap().unwrap()[..], b"over IPv6");
}

/// A peer that stops reading causes back-pressure, and no growth of memory.
async fn a_peer_that_does_not_read_slows_the_sender(protocol: Protocol) {
    let Pair { client, server, .. } = Pair::new(protocol).await;
    if !client.provides().has(Service::FlowControl) {
        // Nothing is kept: the program sends, and the network drops.
        let sends = async {
            for _ in 0..2_000 {
                client.send(vec![0; 1_000]).await.unwrap();
            }
        };
        if client.provides().has(Service::CongestionControl) {
            let _ = timeout(SHORT, sends).await;
        } else {
            soon(sends).await;
        }
        return;
    }
    let mut sent = 0u32;
    while timeout(SHORT, client.send(vec![(sent % 251) as u8; 10_000])).await.is_ok() {
        sent += 1;
        assert!(sent < 5_000, "50 MB went somewhere");
    }
    for n in 0..sent {
        let message = soon(server.receive()).await.unwrap().unwrap();
        assert_eq!((message.len(), message[0]), (10_000, (n % 251) as u8));
    }
    soon(client.send("again")).await.unwrap();
}

async fn nobody_answers(protocol: Protocol) {
    // A port that was just free.
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut limits = support::limits();
    limits.race.attempt_timeout = Duration::from_secs(2);
    let system = support::builder().limits(limits).build().unwrap();
    let result = soon(only(&system, protocol).to(peer(port)).initiate()).await;
    let Ok(client) = result else {
        let error = result.unwrap_err();
        let Error::NotConnected(race) = &error else { panic!("{error}") };
        assert_eq!((race.attempts.len(), race.attempts[0].protocol), (1, protocol));
        assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
        return;
    };
    assert!(!client.provides().has(Service::ConnectionOriented));
    client.send("anybody?").await.unwrap();
    let error = soon(client.receive()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// RFC 9622 section 9.1.3.1: what has waited for too long is not sent.
async fn a_message_expires(protocol: Protocol) {
    let Pair { client, server, .. } = Pair::new(protocol).await;
    if !client.provides().has(Service::FlowControl) {
        return;
    }
    while timeout(SHORT, client.send(vec![1; 10_000])).await.is_ok() {}
    let lifetime = ringway_services_tokio::properties::Lifetime(Some(Duration::from_millis(50)));
    let brief = MessageProperties { msg_lifetime: lifetime, ..client.message_defaults() };
    let result = soon(client.send_with(vec![2; 10_000], &brief)).await;
    assert!(matches!(result, Err(Error::Expired)), "{result:?}");
    // A small one finds room and expires while it waits for the transport.
    client.send_with("late", &brief).await.unwrap();
    let event = soon(client.event()).await;
    assert_eq!(event, ringway_services_tokio::Event::Expired { messages: 1 });
    drop(server);
}

async fn nothing_is_left_running(protocol: Protocol) {
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    {
        let system = system();
        let Pair { client, server, listener, .. } =
            Pair::with(protocol, &system, support::properties(protocol)).await;
        client.send("x").await.unwrap();
        soon(server.receive()).await.unwrap();
        drop((client, server, listener));
    }
    let ended = async {
        while tokio::runtime::Handle::current().metrics().num_alive_tasks() > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(ended).await;
}

macro_rules! contract {
    ($($module:ident = $protocol:expr;)+) => {
        $(mod $module {
            use super::*;
            contract!(@tests $protocol;
                messages_are_echoed_in_order,
                an_empty_message_is_a_message,
                the_largest_message_arrives_and_a_larger_one_is_refused,
                a_group_has_several_connections_and_one_that_ends_leaves_the_others,
                after_the_last_message_the_other_direction_goes_on,
                what_was_sent_before_the_end_arrives,
                an_aborted_connection_is_an_error_to_the_peer,
                a_peer_that_goes_away_is_noticed,
                a_peer_that_does_not_read_slows_the_sender,
                nobody_answers,
                a_message_expires,
                nothing_is_left_running,
                ipv6_carries_it,
            );
        })+
    };
    (@tests $protocol:expr; $($test:ident,)+) => {
        $(#[tokio::test]
        async fn $test() {
            if has($protocol) {
                super::$test($protocol).await;
            }
        })+
    };
}

contract! {
    tcp = Protocol::Tcp;
    tls = Protocol::Tls;
    mptcp = Protocol::Mptcp;
    quic = Protocol::Quic;
    quic_datagram = Protocol::QuicDatagram;
    udp = Protocol::Udp;
    udp_lite = Protocol::UdpLite;
    sctp = Protocol::Sctp;
    sctp_udp = Protocol::SctpUdp;
    sctp_kernel = Protocol::SctpKernel;
    dccp_udp = Protocol::DccpUdp;
}
