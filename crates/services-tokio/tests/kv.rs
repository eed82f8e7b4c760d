//! The key-value service of the examples, over every protocol.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)]

#[path = "../examples/kv/client.rs"]
mod client;
#[path = "../examples/kv/protocol.rs"]
mod protocol;
#[path = "../examples/kv/server.rs"]
mod server;
mod support;

use client::Client;
use ringway_services_tokio::Protocol;
use support::{has, here, only, peer, soon, system};

async fn serve_and_ask(protocol: Protocol) {
    let system = system();
    let listener = only(&system, protocol).from(here(0)).listen().await.unwrap();
    let port = listener.port();
    let server = tokio::spawn(server::serve(listener));
    let client = soon(Client::open(&only(&system, protocol).to(peer(port)))).await.unwrap();
    assert_eq!(soon(client.get("colour")).await.unwrap(), None);
    soon(client.put("colour", b"blue")).await.unwrap();
    assert_eq!(soon(client.get("colour")).await.unwrap().unwrap(), "blue");

    let watch = soon(client.watch()).await.unwrap();
    let cancelled = soon(client.watch()).await.unwrap();
    soon(client.put("shape", b"round")).await.unwrap();
    let change = soon(watch.next()).await.unwrap().unwrap();
    assert_eq!((change.0.as_str(), &change.1[..]), ("shape", &b"round"[..]));
    // A watch that is cancelled leaves the other one and the requests.
    cancelled.cancel();
    soon(client.put("size", &[7; 1_000])).await.unwrap();
    assert_eq!(soon(watch.next()).await.unwrap().unwrap().0, "size");
    assert_eq!(soon(client.get("size")).await.unwrap().unwrap().len(), 1_000);
    assert!(client.get(&"k".repeat(256)).await.is_err());
    server.abort();
}

#[tokio::test]
async fn the_service_runs_over_every_protocol() {
    for protocol in Protocol::ALL.iter().copied().filter(|protocol| has(*protocol)) {
        eprintln!("{protocol}");
        serve_and_ask(protocol).await;
    }
}

/// Without naming a protocol.
#[tokio::test]
async fn the_service_runs_over_what_fits_best() {
    use ringway_services_tokio::{Preconnection, SecurityParameters, TransportProperties};
    let system = system();
    let new = || {
        let properties = TransportProperties::reliable_message();
        Preconnection::new(&system, properties, SecurityParameters::opportunistic())
    };
    let listener = new().from(here(0)).listen().await.unwrap();
    let to = peer(listener.port());
    let server = tokio::spawn(server::serve(listener));
    let client = soon(Client::open(&new().to(to))).await.unwrap();
    soon(client.put("a", b"b")).await.unwrap();
    assert_eq!(soon(client.get("a")).await.unwrap().unwrap(), "b");
    server.abort();
}
