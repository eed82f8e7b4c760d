//! What happens to that which was sent when its connection is closed.
#![allow(clippy::unwrap_used)]

mod support;

use ringway_services_tokio::properties::Timeout;
use ringway_services_tokio::{
    Connection, LINGER, Limits, LocalEndpoint, Protocol, System, TransportProperties,
};
use std::net::SocketAddr;
use std::time::Duration;
use support::{Pair, has, here, keyring, only_with, peer, properties, soon, system, until};
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
    assert_eq!(received_slowly(&server).await, sent, "{protocol}, framed: {framed}");
}

/// Reads until the end, and returns the number of octets.
async fn received_slowly(connection: &Connection) -> usize {
    let (mut received, mut paused) = (0, 0);
    while let Some(part) = soon(connection.receive_part()).await.unwrap() {
        received += part.len();
        while received - paused >= STEP {
            paused += STEP;
            sleep(PAUSE).await;
        }
    }
    received
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

#[tokio::test]
async fn a_slow_reader_of_tls_gets_all_that_was_sent() {
    read_slowly(Protocol::Tls, false).await;
}

#[tokio::test]
async fn a_slow_reader_of_framed_tls_gets_all_that_was_sent() {
    read_slowly(Protocol::Tls, true).await;
}

/// A message that takes longer than the timeout of the connection makes progress, too.
async fn one_message_read_slowly(protocol: Protocol) {
    let system = system();
    let (client, server) = opened(protocol, &system, true).await;
    let length = Limits::default().message;
    client.send(vec![0; length]).await.unwrap();
    drop(client);
    assert_eq!(received_slowly(&server).await, STEP + length, "{protocol}");
}

#[tokio::test]
async fn a_slow_reader_of_one_large_message_over_tcp_gets_it() {
    one_message_read_slowly(Protocol::Tcp).await;
}

#[tokio::test]
async fn a_slow_reader_of_one_large_message_over_tls_gets_it() {
    one_message_read_slowly(Protocol::Tls).await;
}

#[tokio::test]
async fn a_slow_reader_of_one_large_message_over_quic_gets_it() {
    one_message_read_slowly(Protocol::Quic).await;
}

#[tokio::test]
async fn a_slow_reader_of_one_large_message_over_sctp_gets_it() {
    one_message_read_slowly(Protocol::SctpUdp).await;
}

/// Octets that are sent at the end to a peer which does not read: more than the system holds of a connection.
const UNREAD: usize = 2_000_000;
/// Connections that one source has beyond its share.
const BEYOND: usize = 4;

/// One source has more closed connections that it does not read than its share: as many as that are left, and those of another
/// source are.
async fn a_source_keeps_its_share(protocol: Protocol, framed: bool) {
    let share = Limits::default().draining / 4;
    let serving = System::builder().keyring(keyring()).own_memory().build().unwrap();
    // One system opens at most 64 to one peer.
    let systems = [system(), system()];
    let mut wanted =
        if framed { properties(protocol) } else { TransportProperties::reliable_inorder_stream() };
    wanted.connection.isolate_session = true;
    let new = |system| {
        let new = only_with(system, protocol, wanted.clone());
        if framed { new } else { new.without_framing() }
    };
    let listener = new(&serving).from(here(0)).listen().await.unwrap();
    let to = |n: usize| new(&systems[n % systems.len()]).to(peer(listener.port()));
    let other = LocalEndpoint::address(SocketAddr::from(([127, 0, 0, 2], 0)));
    let unread = async |new: ringway_services_tokio::Preconnection| {
        let client = soon(new.initiate()).await.unwrap();
        client.send("first").await.unwrap();
        let server = soon(listener.accept()).await.unwrap();
        server.send(vec![0; UNREAD]).await.unwrap();
        client
    };
    let of_other = unread(to(0).from(other)).await;
    let mut of_source = Vec::new();
    for n in 0..share + BEYOND {
        of_source.push(unread(to(n)).await);
    }
    until(protocol.name(), || serving.drains_aborted() >= BEYOND as u64).await;
    assert_eq!(read_all(&of_other).await, Some(UNREAD), "{protocol}");
    let mut left = 0;
    for client in of_source {
        left += usize::from(read_all(&client).await == Some(UNREAD));
    }
    assert_eq!((left, serving.drains_aborted()), (share, BEYOND as u64), "{protocol}");
}

/// Reads until the end, and returns the number of octets; `None` if an error ends it.
async fn read_all(connection: &Connection) -> Option<usize> {
    let mut received = 0;
    while let Some(part) = soon(connection.receive_part()).await.ok()? {
        received += part.len();
    }
    Some(received)
}

#[tokio::test]
async fn a_source_keeps_its_share_of_closed_connections_over_tcp() {
    a_source_keeps_its_share(Protocol::Tcp, false).await;
}

#[tokio::test]
async fn a_source_keeps_its_share_of_closed_connections_over_framed_tcp() {
    a_source_keeps_its_share(Protocol::Tcp, true).await;
}

#[tokio::test]
async fn a_source_keeps_its_share_of_closed_connections_over_tls() {
    a_source_keeps_its_share(Protocol::Tls, false).await;
}

#[tokio::test]
async fn a_source_keeps_its_share_of_closed_connections_over_quic() {
    a_source_keeps_its_share(Protocol::Quic, false).await;
}

#[tokio::test]
async fn a_source_keeps_its_share_of_closed_connections_over_framed_quic() {
    a_source_keeps_its_share(Protocol::Quic, true).await;
}

#[tokio::test]
async fn a_source_keeps_its_share_of_closed_connections_over_sctp() {
    a_source_keeps_its_share(Protocol::SctpUdp, true).await;
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
