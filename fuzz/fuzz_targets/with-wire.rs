//! Octets at the broker's socket, as names of sockets, as the environment, and as deliveries of an association: each is
//! read or refused, what is read is written as it was, and a stream has one end, after which nothing is taken.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_with_wire::datagrams::Kind;
use ringway_with_wire::name::MAX_NAME;
use ringway_with_wire::request::{MAX_REPLY, MAX_REQUEST, read_addresses, write_addresses};
use ringway_with_wire::stream::{DATA, Delivery, FIN, Piece, Receiving};
use ringway_with_wire::{BrokerId, Environment, Name, Reply, Request};

fn requests(octets: &[u8]) {
    if let Ok(request) = Request::read(octets) {
        let mut out = [0; MAX_REQUEST];
        let length = request.write(0, &mut out).expect("what is read has room");
        assert_eq!(Request::read(&out[..length]), Ok(request));
        assert_eq!(Request::length(&out[..length]), Ok(length));
    }
    if let Ok(reply) = Reply::read(octets) {
        let mut out = [0; MAX_REPLY];
        if let Ok(length) = reply.write(&mut out) {
            assert_eq!(Reply::read(&out[..length]), Ok(reply));
        }
    }
    if let Ok((local, peer)) = read_addresses(octets) {
        let again = write_addresses(&local, peer.as_ref());
        assert_eq!(read_addresses(&again), Ok((local, peer)));
    }
}

fn identifiers(octets: &[u8]) {
    for octets in octets.chunks_exact(4) {
        let ppid = octets.iter().fold(0, |ppid, octet| ppid << 8 | u32::from(*octet));
        if let Some((kind, port)) = Kind::read(ppid) {
            assert_eq!(kind.ppid(port), ppid);
        }
    }
}

fn names(octets: &[u8]) {
    let broker = BrokerId(*b"a broker");
    let mut own = b"ringwaya broker".to_vec();
    own.extend_from_slice(octets);
    for octets in [octets, &own] {
        if let Some(name) = Name::read(broker, octets) {
            let mut out = [0; MAX_NAME];
            let length = name.write(broker, &mut out).expect("what is read has room");
            assert_eq!(Name::read(broker, &out[..length]), Some(name));
        }
    }
    if let Some(environment) = Environment::read(octets) {
        assert_eq!(environment.write(), octets);
    }
}

fn stream(octets: &[u8]) {
    let mut receiving = Receiving::default();
    let (mut ended, mut kept) = (false, 0);
    for octets in octets.chunks_exact(2) {
        let delivery = Delivery {
            stream: u16::from(octets[0] >> 6),
            ppid: [0, DATA, FIN, u32::from(octets[1])][usize::from(octets[0] & 3)],
            unordered: octets[0] & 4 != 0,
            cut: octets[0] & 8 != 0,
            length: usize::from(octets[1]),
        };
        match receiving.take(&delivery) {
            Ok(piece) => {
                assert!(!ended && delivery.stream == 0 && !delivery.unordered && !delivery.cut);
                ended = piece == Piece::End;
                kept += if ended { 0 } else { delivery.length };
            }
            Err(violation) => assert!(!violation.to_string().is_empty()),
        }
        assert_eq!(receiving.is_ended(), ended);
    }
    assert!(kept <= octets.len() * 255);
}

fuzz_target!(|octets: &[u8]| {
    requests(octets);
    names(octets);
    identifiers(octets);
    stream(octets);
});
