//! Descriptors: that none is left over, and what happens when there are no more. One test, because the count is the
//! process's.
#![allow(clippy::unwrap_used)]

mod support;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ringway_services_tokio::{Error, Protocol};
use std::os::fd::AsRawFd;
use std::time::Duration;
use support::{Pair, has, only, peer, properties, soon, system};

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn nothing_is_left_open(protocol: Protocol) {
    let before = open();
    {
        let system = system();
        let pair = Pair::with(protocol, &system, properties(protocol)).await;
        pair.client.send("x").await.unwrap();
        soon(pair.server.receive()).await.unwrap();
    }
    let closed = async {
        while open() > before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let closed = tokio::time::timeout(support::LONG, closed).await;
    assert!(closed.is_ok(), "{protocol}: {} descriptors, expected {before}", open());
}

async fn no_descriptor_is_left(protocol: Protocol, port: u16) {
    let system = system();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // The lowest number that is free is beyond the limit.
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, next, hard).unwrap();
    let result = only(&system, protocol).to(peer(port)).initiate().await;
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    let error = result.unwrap_err();
    assert!(matches!(error, Error::NotConnected(_)), "{error}");
    assert!(error.to_string().contains("Too many open files"), "{error}");
}

#[tokio::test]
async fn descriptors_are_returned_and_their_end_is_reported() {
    let all: Vec<_> = Protocol::ALL.iter().copied().filter(|protocol| has(*protocol)).collect();
    // What is opened once for the process.
    Pair::new(Protocol::Tcp).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    for protocol in &all {
        nothing_is_left_open(*protocol).await;
    }
    for protocol in all {
        no_descriptor_is_left(protocol, 9).await;
    }
}
