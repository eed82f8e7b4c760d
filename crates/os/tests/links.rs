//! UDP on the links between two network namespaces of the test.
#![allow(clippy::unwrap_used)]

mod support;

use ringway_os::netlink::Netlink;
use ringway_os::udp::{LINK_HOP_LIMIT, LinkSocket, Sharing};
use ringway_os::{After, Datagram, ReceiveBatch, SendBatch, wait_readable};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use support::{Namespace, inside_a_namespace, ip};

const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0x5257, 1);
const PORT: u16 = 5_267;
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the index of a link of the thread's namespace and its link-local address, when it can be used.
fn link_local(name: &str) -> (u32, Ipv6Addr) {
    let mut netlink = Netlink::open().unwrap();
    let index = netlink.link(name).unwrap().index;
    let end = Instant::now() + LIMIT;
    loop {
        let addresses = netlink.addresses().unwrap();
        let found = addresses.iter().find_map(|address| match address.ip {
            IpAddr::V6(own) if address.interface == index && address.is_usable() => Some(own),
            _ => None,
        });
        // The route to the group comes with the address.
        if let Some(own) = found.filter(|_| ip("-6 route show table local").contains(name)) {
            return (index, own);
        }
        assert!(Instant::now() < end, "{addresses:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn on(interface: u32, ip: Ipv6Addr) -> SocketAddr {
    SocketAddrV6::new(ip, PORT, 0, interface).into()
}

fn send(socket: &LinkSocket, bytes: &[u8], to: SocketAddr) {
    let batch = [Datagram::new(bytes, to, None)];
    let sent = SendBatch::new().send(socket.as_fd(), &batch, |_, code| panic!("{code}"));
    assert_eq!(sent, 1);
}

/// What was received: the octets, the sender, the destination, the link and the hop limit.
type Heard = (Vec<u8>, SocketAddr, Option<IpAddr>, u32, Option<u8>);

fn receive(socket: &LinkSocket, limit: Duration) -> Option<Heard> {
    if !wait_readable([socket.as_fd()], Some(limit)).unwrap()[0] {
        return None;
    }
    let mut batch = ReceiveBatch::new();
    assert_eq!(batch.receive(socket.as_fd()).unwrap(), 1);
    let r = batch.get(0).unwrap();
    Some((r.bytes().to_vec(), r.remote, r.local, r.interface, r.hop_limit))
}

#[test]
fn neighbours_hear_each_other_on_the_right_link() {
    if !inside_a_namespace("neighbours_hear_each_other_on_the_right_link") {
        return;
    }
    let other = Namespace::new();
    other.connect("west", "east");
    other.connect("south", "north");
    let (west, south) = (link_local("west"), link_local("south"));
    let (east, north) = other.run(|| (link_local("east"), link_local("north")));
    let here = LinkSocket::bind(PORT, Sharing::Exclusive).unwrap();
    // Of several sockets with the port only those that joined hear the group.
    let shared = || LinkSocket::bind(PORT, Sharing::Port).unwrap();
    let [_, there, _] = other.run(move || [shared(), shared(), shared()]);
    for (own, remote) in [(west, east), (south, north)] {
        here.join(GROUP, own.0).unwrap();
        there.join(GROUP, remote.0).unwrap();
    }
    let hop_limit = Some(LINK_HOP_LIMIT);
    for (own, remote) in [(west, east), (south, north)] {
        // By multicast, from a socket that hears nothing of it itself.
        send(&here, b"hello", on(own.0, GROUP));
        let (bytes, from, to, link, hops) = receive(&there, LIMIT).unwrap();
        assert_eq!((bytes.as_slice(), from), (&b"hello"[..], on(remote.0, own.1)));
        assert_eq!((to, link, hops), (Some(GROUP.into()), remote.0, hop_limit));
        // The answer, to the address that it came from.
        send(&there, b"hello to you", from);
        let heard = receive(&here, LIMIT).unwrap();
        let expected =
            (b"hello to you".to_vec(), on(own.0, remote.1), Some(own.1.into()), own.0, hop_limit);
        assert_eq!(heard, expected);
    }
    // A group is joined on each link for itself.
    there.leave(GROUP, north.0).unwrap();
    send(&here, b"nobody", on(south.0, GROUP));
    send(&here, b"hello", on(west.0, GROUP));
    assert_eq!(receive(&there, LIMIT).unwrap().3, east.0);
    let quiet = Duration::from_millis(50);
    assert_eq!((receive(&there, quiet), receive(&here, quiet)), (None, None));
    assert_eq!(here.join(GROUP, 99).unwrap_err().raw_os_error(), Some(libc::ENODEV));
}

#[test]
fn a_refused_datagram_stops_no_other() {
    if !inside_a_namespace("a_refused_datagram_stops_no_other") {
        return;
    }
    let other = Namespace::new();
    other.connect("west", "east");
    ip("link add idle type veth peer name other");
    let (west, east) = (link_local("west"), other.run(|| link_local("east")));
    let idle = Netlink::open().unwrap().link("idle").unwrap().index;
    let here = LinkSocket::bind(PORT, Sharing::Exclusive).unwrap();
    let there = other.run(|| LinkSocket::bind(PORT, Sharing::Exclusive).unwrap());
    let to = on(west.0, east.1);
    let (small, large) = ([1; 1_000], [2; 1_453]);
    let all: Vec<u8> = (0..9_500u32).map(|i| i as u8).collect();
    let batch = [
        Datagram::new(&small, on(99, GROUP), None),
        Datagram::new(&small, on(idle, GROUP), None),
        // An octet more than the link's MTU.
        Datagram::new(&large, to, None),
        Datagram { segment: 1_453, ..Datagram::new(&all, to, None) },
        Datagram::new(&small, "[2001:db8::1]:5267".parse().unwrap(), None),
        Datagram { segment: 1_000, ..Datagram::new(&all, to, None) },
        Datagram::new(&large[..1_452], to, None),
    ];
    let mut errors = Vec::new();
    let sent = SendBatch::new().send(here.as_fd(), &batch, |i, code| {
        errors.push((i, io::Error::from_raw_os_error(code).to_string(), code));
        After::Skip
    });
    assert_eq!(sent, batch.len());
    let codes: Vec<_> = errors.iter().map(|(i, _, code)| (*i, *code)).collect();
    let (too_large, no_route) = (libc::EMSGSIZE, libc::ENETUNREACH);
    // Older kernels refuse a train with too large segments as invalid.
    let train = codes.iter().find(|(i, _)| *i == 3).map_or(0, |(_, code)| *code);
    assert!([too_large, libc::EINVAL].contains(&train), "{errors:?}");
    let expected = [(0, no_route), (1, no_route), (2, too_large), (3, train), (4, no_route)];
    assert_eq!(codes, expected, "{errors:?}");
    // The train arrives as one, in its datagrams.
    let mut buffers = ReceiveBatch::new();
    assert!(wait_readable([there.as_fd()], Some(LIMIT)).unwrap()[0]);
    assert_eq!(buffers.receive(there.as_fd()).unwrap(), 2);
    let train = buffers.get(0).unwrap();
    assert_eq!((train.interface, train.hop_limit), (east.0, Some(LINK_HOP_LIMIT)));
    assert_eq!(train.datagrams().collect::<Vec<_>>(), all.chunks(1_000).collect::<Vec<_>>());
    assert_eq!(buffers.get(1).unwrap().bytes().len(), 1_452);
}

#[test]
fn a_port_is_shared_only_by_those_that_ask() {
    if !inside_a_namespace("a_port_is_shared_only_by_those_that_ask") {
        return;
    }
    for (sharing, allowed) in
        [(Sharing::Exclusive, false), (Sharing::Address, true), (Sharing::Port, true)]
    {
        let first = LinkSocket::bind(0, sharing).unwrap();
        let port = first.port().unwrap();
        assert_eq!(LinkSocket::bind(port, sharing).is_ok(), allowed, "{sharing:?}");
        let error = LinkSocket::bind(port, Sharing::Exclusive).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}

/// RFC 4861: what a host asks is received, and it takes the answer. The advertisement gives a prefix, and with
/// RFC 4191 a route.
#[test]
fn a_host_asks_for_a_router_and_is_answered() {
    const SOLICITATION: u8 = 133;
    const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    const ADVERTISEMENT: [&[u8]; 5] = [
        &[134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[5, 1, 0, 0, 0, 0, 0x05, 0x58],
        &[3, 4, 64, 0xc0, 0, 0x01, 0x51, 0x80, 0, 0, 0x38, 0x40, 0, 0, 0, 0],
        &[0xfd, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0, 0, 0, 0, 0, 0, 0, 0],
        &[24, 2, 8, 0, 0, 0, 0x07, 0x08, 0xfd, 0, 0, 0, 0, 0, 0, 0],
    ];
    if !inside_a_namespace("a_host_asks_for_a_router_and_is_answered") {
        return;
    }
    let other = Namespace::new();
    ip(&format!("link add west type veth peer name east netns {}", other.thread));
    ip("link set west up");
    let index = Netlink::open().unwrap().link("west").unwrap().index;
    let router = LinkSocket::open_icmpv6(SOLICITATION).unwrap();
    router.join(ALL_ROUTERS, index).unwrap();
    other.run(|| {
        std::fs::write("/proc/sys/net/ipv6/conf/east/accept_ra_rt_info_max_plen", "64").unwrap();
        ip("link set east up");
    });
    let west = link_local("west");
    let (bytes, _, to, link, hops) = receive(&router, LIMIT).unwrap();
    assert_eq!((bytes[0], link, hops), (SOLICITATION, west.0, Some(LINK_HOP_LIMIT)));
    assert_eq!(to, Some(ALL_ROUTERS.into()));
    let to = SocketAddrV6::new(ALL_NODES, 0, 0, west.0).into();
    send(&router, &ADVERTISEMENT.concat(), to);
    let end = Instant::now() + LIMIT;
    loop {
        let (addresses, routes) =
            other.run(|| (ip("-6 address show dev east"), ip("-6 route show")));
        let route = format!("fd00::/8 via {} dev east proto ra", west.1);
        if addresses.contains("fd01:2345:6789:abcd:") && routes.contains(&route) {
            assert!(!routes.contains("default"), "{routes}");
            break;
        }
        assert!(Instant::now() < end, "{addresses} {routes}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_named_peer_may_have_an_ipv4_address() {
    let bind = || LinkSocket::bind(0, Sharing::Exclusive).unwrap();
    let (here, there) = (bind(), bind());
    let (own, remote) = (here.port().unwrap(), there.port().unwrap());
    for to in [format!("127.0.0.1:{remote}"), format!("[::ffff:127.0.0.1]:{remote}")] {
        send(&here, b"hello", to.parse().unwrap());
        let (bytes, from, to, link, hops) = receive(&there, LIMIT).unwrap();
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        assert_eq!((bytes.as_slice(), from), (&b"hello"[..], (mapped, own).into()));
        assert_eq!((to, link, hops), (Some(mapped.into()), 1, None));
        send(&there, b"hello to you", from);
        assert_eq!(receive(&here, LIMIT).unwrap().0, b"hello to you");
    }
}

/// RFC 4861 section 7.3.1: who is heard need not be asked.
#[test]
fn a_neighbour_that_is_heard_is_not_asked() {
    if !inside_a_namespace("a_neighbour_that_is_heard_is_not_asked") {
        return;
    }
    let other = Namespace::new();
    other.connect("west", "east");
    let (west, east) = (link_local("west"), other.run(|| link_local("east")));
    let here = LinkSocket::bind(PORT, Sharing::Exclusive).unwrap();
    // A neighbour counts as reachable for half a second at most, and is asked a second after it is used then.
    std::fs::write("/proc/sys/net/ipv6/neigh/west/base_reachable_time_ms", "300").unwrap();
    std::fs::write("/proc/sys/net/ipv6/neigh/west/delay_first_probe_time", "1").unwrap();
    let asked = || {
        let text = std::fs::read_to_string("/proc/self/net/snmp6").unwrap();
        let line = text.lines().find(|line| line.starts_with("Icmp6OutNeighborSolicits"));
        line.unwrap().split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    let batch = [Datagram::new(b"x", on(west.0, east.1), None)];
    let mut buffers = SendBatch::new();
    let mut send = |confirm: bool| {
        let before = asked();
        for _ in 0..25 {
            let refused = |_, code| panic!("{code}");
            match confirm {
                true => buffers.send_confirming(here.as_fd(), &batch, refused),
                false => buffers.send(here.as_fd(), &batch, refused),
            };
            std::thread::sleep(Duration::from_millis(100));
        }
        asked() - before
    };
    assert!(send(false) > 1);
    // A busy machine may pause the test for more than that second.
    assert!((0..5).any(|_| send(true) == 0));
}
