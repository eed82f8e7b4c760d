//! Children that have the descriptors of their parent.

use crate::alone;
use crate::os::Child;
use crate::server::Server;
use crate::support::{Held, LOOPBACK, all, here, is_datagram, only, only_with, peer, soon, system};
use ringway_services_tokio::{Error, Protocol, RemoteEndpoint, TransportProperties};
use std::time::Duration;

/// Messages of a transfer.
const MESSAGES: u32 = 400;

async fn transferred_beside_children(protocol: Protocol) {
    let server = Server::start(protocol, LOOPBACK);
    let before = Held::now();
    {
        let system = system();
        let new = only(&system, protocol).to(RemoteEndpoint::address(server.address));
        let client = soon(new.initiate()).await.unwrap();
        let child = Child::fork(600);
        for n in 0..MESSAGES {
            // Others come and go.
            if n % 50 == 20 {
                Child::fork(0).wait();
            }
            let message = vec![n as u8; 1_000];
            client.send(message.clone()).await.unwrap();
            let received = soon(client.receive()).await.unwrap().unwrap();
            assert!(received[..] == message, "{protocol}: message {n}");
        }
        if !is_datagram(protocol) {
            // The peer sees the end, although the child has the descriptors still.
            client.send_final("last").await.unwrap();
            assert_eq!(&soon(client.receive()).await.unwrap().unwrap()[..], b"last");
            assert_eq!(soon(client.receive()).await.unwrap(), None, "{protocol}");
        }
        drop(client);
        // A preconnection is a handle of its system, which keeps the stack of SCTP.
        drop((new, system));
        before.again(protocol.name()).await;
        drop(child);
    }
    drop(server);
}

#[test]
fn a_child_with_the_descriptors_does_not_disturb_its_parent() {
    alone("forks::a_child_with_the_descriptors_does_not_disturb_its_parent", || async {
        for protocol in all() {
            transferred_beside_children(protocol).await;
        }
    });
}

/// RFC 9293 section 3.9.1.6: an abort is a reset now, not when the last process closes the socket.
#[test]
fn an_abort_reaches_the_peer_although_a_child_has_the_descriptor() {
    alone("forks::an_abort_reaches_the_peer_although_a_child_has_the_descriptor", || async {
        for protocol in [Protocol::Tcp, Protocol::Tls, Protocol::Mptcp] {
            if !crate::support::has(protocol) {
                continue;
            }
            let system = system();
            let mut stream = TransportProperties::reliable_inorder_stream();
            stream.selection.multipath = crate::support::properties(protocol).selection.multipath;
            let new = || only_with(&system, protocol, stream.clone()).without_framing();
            let listener = new().from(here(0)).listen().await.unwrap();
            let client = soon(new().to(peer(listener.port())).initiate()).await.unwrap();
            let server = soon(listener.accept()).await.unwrap();
            client.send("x").await.unwrap();
            soon(server.receive()).await.unwrap();
            let child = Child::fork(600);
            client.abort();
            let end = tokio::time::timeout(Duration::from_secs(10), server.receive()).await;
            let end = end.expect("the peer learns of it while the child lives");
            assert!(
                matches!(end, Err(Error::Lost(_) | Error::Aborted { .. })),
                "{protocol}: {end:?}"
            );
            drop(child);
        }
    });
}
