//! Frames between two interfaces of the test.
#![allow(clippy::unwrap_used)]

mod support;

use ringway_os::tun::{Checksum, VnetHeader};
use ringway_os::{FrameBatch, PacketSocket, wait_readable};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};
use support::{inside_a_namespace, ip};

const LIMIT: Duration = Duration::from_secs(60);
/// A station that is none of these interfaces, and a type that no kernel handles (IEEE 802: for experiments).
const ADDRESSES: [u8; 14] = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5];

fn frame(number: u8, length: usize) -> Vec<u8> {
    let header = VnetHeader { checksum: Checksum::Complete, segmentation: None };
    let mut frame = header.to_bytes().to_vec();
    frame.extend(ADDRESSES);
    frame.resize(frame.len() + length, number);
    frame
}

/// Returns the numbers and the lengths of this test's frames that have come, and their tags.
fn heard(socket: &PacketSocket, count: usize) -> Vec<(u8, usize, Option<[u8; 4]>)> {
    let mut batch = FrameBatch::new();
    let mut all = Vec::new();
    while all.len() < count {
        assert!(wait_readable([socket.as_fd()], Some(LIMIT)).unwrap()[0], "{all:?}");
        batch.receive(socket).unwrap();
        for frame in batch.frames().map(Option::unwrap).filter(|f| f.bytes[..6] == ADDRESSES[..6]) {
            assert_eq!(frame.header, VnetHeader::default());
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let age = now.checked_sub(frame.received.unwrap()).unwrap_or_default();
            assert!(age < LIMIT, "{age:?}");
            let number = frame.bytes.last().copied().unwrap();
            all.push((number, frame.bytes.len(), frame.tag));
        }
    }
    all
}

#[test]
fn frames_pass_in_batches_and_come_back_to_nobody() {
    if !inside_a_namespace("frames_pass_in_batches_and_come_back_to_nobody") {
        return;
    }
    ip("link add west type veth peer name east");
    ip("link set west up");
    ip("link set east up");
    let (west, east) = (PacketSocket::open("west").unwrap(), PacketSocket::open("east").unwrap());
    let frames: Vec<_> = (1..=5).map(|n| frame(n, 100 * usize::from(n))).collect();
    let sent = west.send(frames.iter().map(Vec::as_slice), |_, error| panic!("{error}"));
    assert_eq!(sent, 5);
    let expected: Vec<_> = (1..=5).map(|n| (n, 14 + 100 * usize::from(n), None)).collect();
    assert_eq!(heard(&east, 5), expected);
    // The sender hears what the other end sends, and nothing of its own.
    east.send([frame(7, 50).as_slice()].into_iter(), |_, error| panic!("{error}"));
    assert_eq!(heard(&west, 1), [(7, 64, None)]);
    // Longer than the interface may send.
    let mut refused = Vec::new();
    let long = [frame(8, 2_000), frame(9, 60)];
    let done =
        west.send(long.iter().map(Vec::as_slice), |i, e| refused.push((i, e.raw_os_error())));
    assert_eq!((done, refused), (2, vec![(0, Some(libc::EMSGSIZE))]));
    assert_eq!(heard(&east, 1), [(9, 74, None)]);
}

#[test]
fn a_tag_is_reported_and_a_lost_interface_too() {
    if !inside_a_namespace("a_tag_is_reported_and_a_lost_interface_too") {
        return;
    }
    ip("link add west type veth peer name east");
    ip("link set west up");
    ip("link set east up");
    let (west, east) = (PacketSocket::open("west").unwrap(), PacketSocket::open("east").unwrap());
    // The kernel takes the tag out before it looks for receivers.
    let mut tagged = frame(1, 80);
    let behind_addresses = tagged.len() - 80 - 2;
    tagged.splice(behind_addresses..behind_addresses, [0x81, 0, 0, 5]);
    west.send([tagged.as_slice()].into_iter(), |_, error| panic!("{error}"));
    assert_eq!(heard(&east, 1), [(1, 94, Some([0x81, 0, 0, 5]))]);
    ip("link set east down");
    let mut batch = FrameBatch::new();
    let error = loop {
        match batch.receive(&east) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
            _ => {}
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
}

#[test]
fn an_interface_that_is_not_ethernet_is_refused() {
    if !inside_a_namespace("an_interface_that_is_not_ethernet_is_refused") {
        return;
    }
    let error = PacketSocket::open("lo").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
