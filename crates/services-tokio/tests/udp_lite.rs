//! Partial checksums against the kernel: which damage a receiver sees (RFC 3828).
#![allow(clippy::unwrap_used)]

#[path = "../../os/tests/support/mod.rs"]
mod os;
mod support;

use ringway_os::IPPROTO_UDPLITE;
use ringway_services_tokio::properties::Coverage;
use ringway_services_tokio::{MessageProperties, Protocol, Service, TransportProperties};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::time::Duration;
use support::{has, here, only_with, peer, soon, system};
use tokio::time::timeout;

/// Octets of the payload that the checksum covers.
const COVERED: u32 = 4;

fn checksum(words: impl Iterator<Item = u8>) -> u16 {
    let octets: Vec<u8> = words.collect();
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    let sum: u32 = octets.chunks(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// Returns a datagram whose checksum covers the header and four octets of its payload (RFC 3828 section 3.1).
fn datagram(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes(), [0, 8 + COVERED as u8], [0, 0]].concat();
    bytes.extend_from_slice(payload);
    let length = (bytes.len() as u16).to_be_bytes();
    let pseudo = [&[127, 0, 0, 1, 127, 0, 0, 1, 0, IPPROTO_UDPLITE as u8][..], &length].concat();
    let covered = &bytes[..8 + COVERED as usize];
    let sum = checksum(pseudo.iter().chain(covered).copied());
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn properties() -> TransportProperties {
    let mut properties = TransportProperties::unreliable_datagram()
        .avoid(Service::FullChecksumSend)
        .avoid(Service::FullChecksumRecv);
    properties.connection.recv_checksum_len = Coverage(Some(COVERED));
    properties
}

/// RFC 9622 sections 8.1.1 and 9.1.3.6, RFC 3828 section 3.1.
#[test]
fn damage_behind_the_coverage_arrives_and_damage_within_it_does_not() {
    let name = "damage_behind_the_coverage_arrives_and_damage_within_it_does_not";
    if !has(Protocol::UdpLite) || !os::inside_a_namespace(name) {
        return;
    }
    os::ip("link set lo up");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(damage());
}

async fn damage() {
    let system = system();
    let new = || only_with(&system, Protocol::UdpLite, properties());
    let listener = new().from(here(0)).listen().await.unwrap();
    let client = new().to(peer(listener.port())).initiate().await.unwrap();
    let brief = MessageProperties {
        msg_checksum_len: Coverage(Some(COVERED)),
        ..client.message_defaults()
    };
    client.send_with("head and tail", &brief).await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"head and tail");

    // The same datagram once more, as a network might have damaged it.
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(IPPROTO_UDPLITE.into())).unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], listener.port()));
    let whole = datagram(client.local_address().port(), listener.port(), b"head and tail");
    let send = |damaged: Option<usize>| {
        let mut bytes = whole.clone();
        if let Some(index) = damaged {
            bytes[8 + index] ^= 0x20;
        }
        raw.send_to(&bytes, &to.into()).unwrap();
    };
    send(None);
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"head and tail");
    send(Some(0));
    send(Some(12));
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"head and taiL");
    assert!(timeout(Duration::from_millis(200), server.receive()).await.is_err());

    // A receiver that demands more than the sender covers receives nothing.
    let mut strict = properties();
    strict.connection.recv_checksum_len = Coverage(None);
    let new = || only_with(&system, Protocol::UdpLite, strict.clone());
    let listener = new().from(here(0)).listen().await.unwrap();
    let client = new().to(peer(listener.port())).initiate().await.unwrap();
    client.send_with("covered in part", &brief).await.unwrap();
    client.send("covered whole").await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"covered whole");
}
