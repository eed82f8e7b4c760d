//! UDP over an interface with a small MTU, in a network namespace of the test.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use ringway_sansio::Transport;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{SocketAddr, UdpSocket};
use support::namespace::{inside_a_namespace, loopback};
use support::{PATIENCE, Server, listen, peer};

fn receiver(addr: &str) -> UdpSocket {
    let socket = UdpSocket::bind(addr).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends datagrams of these sizes in one batch, and receives them.
fn carry(server: &Server, to: &UdpSocket, sizes: &'static [usize]) {
    let addr = to.local_addr().unwrap();
    server.post(0, move |_, _, out| {
        for size in sizes {
            out.push(peer(Transport::Udp, addr), 9, |b| b.resize(b.len() + size, 7));
        }
    });
    let mut buffer = vec![0; 70_000];
    for size in sizes {
        assert_eq!(to.recv(&mut buffer).unwrap(), *size);
    }
}

/// RFC 3261 section 18.1.1: datagrams up to the maximum size of UDP are carried at any MTU.
#[test]
fn any_datagram_passes_a_narrow_interface() {
    if !inside_a_namespace("any_datagram_passes_a_narrow_interface") {
        return;
    }
    // The minimum MTU of IPv6 (RFC 8200 section 5), then less.
    for (mtu, addr) in [(1_280, "[::1]:0"), (1_280, "127.0.0.1:0"), (600, "127.0.0.1:0")] {
        loopback(mtu);
        let server = Server::start(listen(&[(Transport::Udp, addr)]));
        let receiver = receiver(addr);
        carry(&server, &receiver, &[700]);
        carry(&server, &receiver, &[10, 1_200, 1_230, 20_000, 1_250, 10]);
        for _ in 0..40 {
            carry(&server, &receiver, &[1_199]);
        }
        assert_eq!(server.count("udp_not_sent"), 0, "{mtu} {addr}");
    }
}

/// RFC 6864 section 4.1: a datagram that is not fragmented and has DF set needs no identification.
#[test]
fn small_datagrams_leave_with_df_and_large_ones_without() {
    if !inside_a_namespace("small_datagrams_leave_with_df_and_large_ones_without") {
        return;
    }
    loopback(1_500);
    let server = Server::start(listen(&[(Transport::Udp, "127.0.0.1:0")]));
    let raw = Type::from(libc::SOCK_RAW);
    let raw: UdpSocket = Socket::new(Domain::IPV4, raw, Some(Protocol::UDP)).unwrap().into();
    raw.set_read_timeout(Some(PATIENCE)).unwrap();
    let receiver = receiver("127.0.0.1:0");
    let to: SocketAddr = receiver.local_addr().unwrap();
    let mut header = [0; 2_000];
    for (size, df) in [(100, true), (1_200, true), (1_201, false)] {
        server.post(0, move |_, _, out| {
            out.push(peer(Transport::Udp, to), 0, |b| b.resize(b.len() + size, 7));
        });
        // The IP header has 20 bytes, the UDP header 8.
        assert_eq!(raw.recv(&mut header).unwrap(), size + 28);
        assert_eq!(header[6] & 0x40 != 0, df, "{size}");
        assert_eq!(header[4..6] == [0, 0], df, "{size}");
    }
}
