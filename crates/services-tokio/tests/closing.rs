//! What happens to that which was sent when its connection is closed.
#![allow(clippy::unwrap_used)]

mod support;

use ringway_services_tokio::properties::Timeout;
use ringway_services_tokio::{Connection, LINGER, Protocol, System, TransportProperties};
use std::time::Duration;
use support::{Pair, has, here, only_with, peer, properties, soon, system};
use tokio::time::{sleep, timeout};

/// Octets that are sent before the end: many times what the peer's windows admit.
const SENT: usize = 3_000_000;
/// Octets that the peer reads between two pauses.
const STEP: usize = 64_000;
/// The pause: the peer reads for longer than [`LINGER`] and the timeout of the connection.
const PAUSE: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(4);

/// Opens a connection with framing, or one that is a byte stream.
async fn opened(protocol: Protocol, system: &System, framed: bool) -> (Connection, Connection) {
    let mut wanted =
        if framed { properties(protocol) } else { TransportProperties::reliable_inorder_stream() };
    wanted.connection.conn_timeout = Timeout(Some(TIMEOUT));
    let new = || {
        let new = only_with(system, protocol, wanted.clone());
        if framed { new } else { new.without_framing() }
    };
    let listener = new().from(here(0)).listen().await.unwrap();
    let client = soon(new().to(peer(listener.port())).initiate()).await.unwrap();
    client.send(vec![0; STEP]).await.unwrap();
    (client, soon(listener.accept()).await.unwrap())
}

async fn read_slowly(protocol: Protocol, framed: bool) {
    let system = system();
    let (client, server) = opened(protocol, &system, framed).await;
    let mut sent = STEP;
    while sent < SENT {
        client.send(vec![0; STEP]).await.unwrap();
        sent += STEP;
    }
    drop(client);
    let (mut received, mut paused) = (0, 0);
    while let Some(message) = soon(server.receive()).await.unwrap() {
        received += message.len();
        if received - paused >= STEP {
            paused = received;
            sleep(PAUSE).await;
        }
    }
    assert_eq!(received, sent, "{protocol}, framed: {framed}");
}

/// The time in which a peer must read ends only when it reads nothing.
#[tokio::test]
async fn a_slow_reader_of_quic_gets_all_that_was_sent() {
    read_slowly(Protocol::Quic, false).await;
}

#[tokio::test]
async fn a_slow_reader_of_framed_quic_gets_all_that_was_sent() {
    read_slowly(Protocol::Quic, true).await;
}

#[tokio::test]
async fn a_slow_reader_of_framed_tcp_gets_all_that_was_sent() {
    read_slowly(Protocol::Tcp, true).await;
}

#[tokio::test]
async fn a_slow_reader_of_sctp_gets_all_that_was_sent() {
    read_slowly(Protocol::SctpUdp, true).await;
}

/// QUIC sends datagrams at once: the end does not wait for longer than that.
#[tokio::test]
async fn a_connection_of_datagrams_ends_when_they_are_sent() {
    if !has(Protocol::QuicDatagram) {
        return;
    }
    let Pair { client, server, .. } = Pair::new(Protocol::QuicDatagram).await;
    client.send("last").await.unwrap();
    drop(client);
    let end = timeout(LINGER - Duration::from_secs(1), async {
        assert_eq!(&server.receive().await.unwrap().unwrap()[..], b"last");
        server.receive().await
    });
    assert_eq!(end.await.expect("the end comes before the time for it is over").unwrap(), None);
}
