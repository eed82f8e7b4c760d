//! Peers that stop reading.

use crate::alone;
use crate::server::{STALL, Server};
use crate::support::{
    Held, LOOPBACK, all, failing_after, has, is_datagram, only_with, soon, system, until,
};
use ringway_services_tokio::{Connection, Preconnection, Protocol, RemoteEndpoint};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(300);
/// The timeout of the connections.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a connection on a transport connection of its own.
async fn isolated(new: &Preconnection) -> Connection {
    soon(new.initiate()).await.unwrap()
}

/// Sends until nothing more is taken, which must be soon.
async fn fill(connection: &Connection) {
    connection.send(STALL).await.unwrap();
    let mut sent = 0;
    while timeout(SHORT, connection.send(vec![0; 10_000])).await.is_ok() {
        sent += 1;
        assert!(sent < 5_000, "50 MB went somewhere");
    }
}

async fn stalled(protocol: Protocol) {
    let server = Server::start(protocol, LOOPBACK);
    let before = Held::now();
    {
        let system = system();
        let mut properties = failing_after(protocol, TIMEOUT);
        properties.connection.isolate_session = true;
        let new = only_with(&system, protocol, properties);
        let new = new.to(RemoteEndpoint::address(server.address));
        let (aborted, dropped) = (isolated(&new).await, isolated(&new).await);
        tokio::join!(fill(&aborted), fill(&dropped));

        // Another connection is not delayed.
        let other = isolated(&new).await;
        for n in 0..100u8 {
            soon(other.send(vec![n; 1_000])).await.unwrap();
            let message = soon(other.receive()).await.unwrap().unwrap();
            assert_eq!((message.len(), message[0]), (1_000, n), "{protocol}");
        }
        // Who waits for the end is woken by an abort.
        let (closed, ()) = tokio::join!(soon(aborted.close()), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            aborted.abort();
        });
        assert!(closed.is_err(), "{protocol}");
        drop((aborted, dropped));
        until(protocol.name(), || system.associations() == 1).await;
    }
    // The peer is still there and does not read.
    before.again(protocol.name()).await;
    drop(server);
}

/// The sender is held back, others proceed, and what is closed or aborted leaves nothing within the connection's timeout.
#[test]
fn a_peer_that_stops_reading_holds_up_nothing_else() {
    alone("stalls::a_peer_that_stops_reading_holds_up_nothing_else", || async {
        for protocol in all().into_iter().filter(|protocol| !is_datagram(*protocol)) {
            stalled(protocol).await;
        }
    });
}

/// A connection that is aborted while its peer does not read ends for the peer, too, as soon as that reads.
#[test]
fn an_abort_behind_a_full_window_arrives() {
    alone("stalls::an_abort_behind_a_full_window_arrives", || async {
        let mut tasks = JoinSet::new();
        for protocol in [Protocol::Tcp, Protocol::Quic, Protocol::SctpUdp] {
            if has(protocol) {
                tasks.spawn(aborted(protocol));
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    });
}

async fn aborted(protocol: Protocol) {
    let pair = crate::support::Pair::new(protocol).await;
    let mut sent = 0;
    while timeout(SHORT, pair.client.send(vec![0; 10_000])).await.is_ok() {
        sent += 1;
    }
    pair.client.abort();
    let mut received = 0;
    let end = async {
        loop {
            match pair.server.receive().await {
                Ok(Some(_)) => received += 1,
                other => return other,
            }
        }
    };
    let end = soon(end).await;
    assert!(end.is_err(), "{protocol}: {end:?}");
    assert!(received <= sent, "{protocol}");
}
