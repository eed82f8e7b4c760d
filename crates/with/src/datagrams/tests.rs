use super::*;
use crate::services::Services;
use ringway_with_wire::datagrams::UNPRIVILEGED;
use ringway_with_wire::translation::EVERY_SOCKET;
use rustix::fs::fstat;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

fn network() -> Arc<Network> {
    let services = Services::read(&["multihoming".to_owned()]).unwrap();
    Arc::new(Network::new(services, true, None))
}

fn end() -> Arc<Datagrams> {
    Arc::new(Datagrams::new(network(), None).unwrap())
}

/// A socket as a program has it.
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A socket that keeps its port when it is disconnected (connect(2)).
fn socket_of_a_chosen_port() -> UdpSocket {
    let bound = |at: SocketAddr| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None);
        let socket = socket.unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.bind(&at.into()).unwrap();
        UdpSocket::from(socket)
    };
    // It shares the port with the one that has found it, until that is closed.
    let free = bound(([127, 0, 0, 1], 0).into());
    bound(free.local_addr().unwrap())
}

/// Reports a socket as the library does.
fn report(end: &Arc<Datagrams>, socket: &UdpSocket, usage: Usage) {
    let (inode, descriptor) = (fstat(socket).unwrap().st_ino, socket.as_raw_fd() as u32);
    let local = socket.local_addr().unwrap();
    let report = Report { inode, descriptor, local, usage };
    end.report(&report, std::process::id() as i32).unwrap();
}

/// Returns what the library finds.
fn target(end: &Datagrams, socket: u64, address: SocketAddr) -> Option<Option<SocketAddr>> {
    lock(&end.state).translations.target(&Key { socket, address })
}

/// Looks for sockets that are closed as often as it takes to believe it.
fn sweeps(end: &Arc<Datagrams>) {
    for _ in 0..sockets::MISSED {
        end.sweep_now(Instant::now());
    }
}

/// Waits until something is so.
async fn until<T>(mut is: impl FnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(value) = is() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("it is never so")
}

async fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut octets = vec![0; 70_000];
    let (length, from) = until(|| socket.recv_from(&mut octets).ok()).await;
    octets.truncate(length);
    (octets, from)
}

/// A client whose socket is connected to a server, with the ends that serve them, once messages carry its datagrams.
async fn connected() -> (Arc<Datagrams>, UdpSocket, Arc<Datagrams>, UdpSocket) {
    let (near, far, server, client) = (end(), end(), socket(), socket());
    report(&far, &server, Usage::Bound);
    let peer = server.local_addr().unwrap();
    client.connect(peer).unwrap();
    report(&near, &client, Usage::Connected { peer, answers: false });
    until(|| client.peer_addr().ok().filter(|at| at.ip() == flow::PROXIES)).await;
    (near, client, far, server)
}

#[tokio::test]
async fn datagrams_travel_whole_in_both_directions_and_show_their_peers() {
    let (near, client, far, server) = connected().await;
    let (from, to) = (client.local_addr().unwrap(), server.local_addr().unwrap());
    let inode = fstat(&server).unwrap().st_ino;
    for length in [8, 0, 60_000, 1] {
        let question = vec![7; length];
        assert_eq!(client.send(&question).unwrap(), length);
        let (octets, proxy) = received(&server).await;
        assert!(octets == question, "{length}");
        assert_eq!(target(&far, EVERY_SOCKET, proxy), Some(Some(from)));
        assert_eq!(target(&far, inode, from), Some(Some(proxy)));
        server.send_to(&octets, proxy).unwrap();
        let (octets, proxy) = received(&client).await;
        assert!(octets == question, "{length}");
        assert_eq!(target(&near, EVERY_SOCKET, proxy), Some(Some(to)));
    }
}

/// No datagram of UDP is larger than of IPv6 (RFC 768).
#[tokio::test]
async fn the_largest_datagram_is_not_cut() {
    let Ok(server) = UdpSocket::bind("[::1]:0") else { return }; // A host without IPv6.
    let client = UdpSocket::bind("[::1]:0").unwrap();
    for socket in [&server, &client] {
        socket.set_nonblocking(true).unwrap();
    }
    let (near, far, peer) = (end(), end(), server.local_addr().unwrap());
    report(&far, &server, Usage::Bound);
    client.connect(peer).unwrap();
    report(&near, &client, Usage::Connected { peer, answers: false });
    until(|| client.peer_addr().ok().filter(|at| *at != peer)).await;
    let largest: Vec<u8> = (0..65_527_u32).map(|octet| octet as u8).collect();
    assert_eq!(client.send(&largest).unwrap(), largest.len());
    let (octets, proxy) = received(&server).await;
    assert!(octets == largest, "got {} octets", octets.len());
    assert_eq!(target(&far, EVERY_SOCKET, proxy), Some(Some(client.local_addr().unwrap())));
}

#[tokio::test]
async fn what_is_not_of_the_programs_socket_is_not_sent() {
    let (_near, client, _far, server) = connected().await;
    let proxy = client.peer_addr().unwrap();
    socket().send_to(b"a stranger's", proxy).unwrap();
    client.send(b"the program's").unwrap();
    assert_eq!(received(&server).await.0, b"the program's");
}

#[tokio::test]
async fn what_the_peer_has_sent_by_udp_still_arrives() {
    let (_near, client, _far, server) = connected().await;
    server.send_to(b"late", client.local_addr().unwrap()).unwrap();
    assert_eq!(received(&client).await.0, b"late");
}

#[tokio::test]
async fn a_socket_goes_back_to_udp_when_that_of_the_peer_is_closed() {
    let (near, client, far, server) = connected().await;
    let (peer, proxy) = (server.local_addr().unwrap(), client.peer_addr().unwrap());
    drop(server);
    sweeps(&far);
    until(|| client.peer_addr().ok().filter(|at| *at == peer)).await;
    // A socket that could not be connected anew would send to what binds the proxy's port.
    near.sweep_now(Instant::now() + state::RETIRED - Duration::from_secs(1));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(UdpSocket::bind(proxy).is_err(), "its port is kept");
    near.sweep_now(Instant::now() + state::RETIRED);
    until(|| UdpSocket::bind(proxy).ok()).await;
    assert_eq!(target(&near, fstat(&client).unwrap().st_ino, peer), Some(None));
    assert!(lock(&far.state).flows.is_empty() && lock(&far.state).listeners.is_empty());
}

/// A datagram that this host cannot deliver at the socket's address any more is delivered at another that the socket has, or the
/// peer goes back to UDP.
#[tokio::test]
async fn an_address_that_is_gone_loses_no_flow() {
    let gone: std::net::IpAddr = "192.0.2.1".parse().unwrap();
    for bound in ["127.0.0.1:0", "0.0.0.0:0"] {
        let (near, far, server, client) = (end(), end(), UdpSocket::bind(bound).unwrap(), socket());
        server.set_nonblocking(true).unwrap();
        report(&far, &server, Usage::Bound);
        let peer =
            SocketAddr::new("127.0.0.1".parse().unwrap(), server.local_addr().unwrap().port());
        client.connect(peer).unwrap();
        report(&near, &client, Usage::Connected { peer, answers: false });
        until(|| client.peer_addr().ok().filter(|at| at.ip() == flow::PROXIES)).await;
        lock(&far.state).flows.values().for_each(|entry| entry.flow.deliver_to(gone));
        client.send(b"at the next address").unwrap();
        if bound.starts_with("0.0.0.0") {
            assert_eq!(received(&server).await.0, b"at the next address");
        } else {
            until(|| client.peer_addr().ok().filter(|at| *at == peer)).await;
            client.send(b"by UDP").unwrap();
            assert_eq!(received(&server).await.0, b"by UDP");
        }
    }
}

/// To an address of IPv6 that this host does not have any more the kernel sends without an error, wherever a route leads.
#[tokio::test]
async fn an_address_that_is_gone_is_noticed_without_an_error() {
    let (near, client, far, server) = connected().await;
    let peer = server.local_addr().unwrap();
    far.sweep_now(Instant::now());
    assert_eq!(lock(&far.state).flows.len(), 1, "its address is there");
    let gone = "192.0.2.1".parse().unwrap();
    lock(&far.state).flows.values().for_each(|entry| entry.flow.deliver_to(gone));
    far.sweep_now(Instant::now());
    assert!(lock(&far.state).flows.is_empty());
    until(|| client.peer_addr().ok().filter(|at| *at == peer)).await;
    drop(near);
}

/// A peer may open and close flows as fast as it likes.
#[tokio::test]
async fn proxies_that_are_kept_after_their_end_are_bounded() {
    let (far, server) = (end(), socket());
    report(&far, &server, Usage::Bound);
    let network = network();
    let ways = network.ways(server.local_addr().unwrap()).unwrap();
    let link = network.open_link(ways, None).await.unwrap();
    let mut messages = Vec::new();
    for port in 2_000..2_000 + 2 * state::MAX_RETIRED as u16 {
        link.report(Kind::Open, port);
        assert!(link.receive(&mut messages).await);
        link.report(Kind::Close, port);
    }
    assert!(messages.iter().all(|(kind, ..)| *kind == Kind::Open));
    until(|| lock(&far.state).flows.is_empty().then_some(())).await;
    assert_eq!(lock(&far.state).retired(), state::MAX_RETIRED);
}

#[tokio::test]
async fn a_socket_that_is_connected_once_more_receives() {
    let (near, client, far, server) = connected().await;
    let peer = server.local_addr().unwrap();
    client.connect(peer).unwrap();
    report(&near, &client, Usage::Connected { peer, answers: false });
    assert_eq!(client.peer_addr().unwrap().ip(), flow::PROXIES);
    client.send(b"question").unwrap();
    let (_, proxy) = received(&server).await;
    assert_eq!(target(&far, EVERY_SOCKET, proxy), Some(Some(client.local_addr().unwrap())));
    server.send_to(b"answer", proxy).unwrap();
    assert_eq!(received(&client).await.0, b"answer");
}

/// Connects a socket to nothing (connect(2)).
fn disconnect(socket: &UdpSocket) {
    rustix::net::connect_unspec(socket).unwrap();
}

#[tokio::test]
async fn a_socket_that_is_disconnected_is_carried_from_its_next_port() {
    let (near, client, far, server) = connected().await;
    let (peer, inode) = (server.local_addr().unwrap(), fstat(&client).unwrap().st_ino);
    disconnect(&client);
    report(&near, &client, Usage::Disconnected);
    assert_eq!(target(&near, inode, peer), None);
    assert!(lock(&near.state).flows.is_empty());
    // As the library does before it asks.
    client.send_to(b"by UDP", peer).unwrap();
    assert_eq!(received(&server).await.0, b"by UDP");
    report(&near, &client, Usage::Sends(peer));
    let proxy = target(&near, inode, peer).flatten().unwrap();
    client.send_to(b"carried", proxy).unwrap();
    let (octets, from) = received(&server).await;
    assert_eq!(octets, b"carried");
    assert_eq!(
        target(&far, EVERY_SOCKET, from).flatten().unwrap().port(),
        client.local_addr().unwrap().port()
    );
    // One that is not known is none of this program's.
    report(&near, &socket(), Usage::Disconnected);
}

/// As a server that talks to one client at a time (connect(2): a port that the program has chosen stays).
#[tokio::test]
async fn a_server_that_is_connected_for_a_while_is_carried_on() {
    let (near, far, client) = (end(), end(), socket());
    let server = socket_of_a_chosen_port();
    let chosen = server.local_addr().unwrap();
    report(&far, &server, Usage::Bound);
    client.connect(chosen).unwrap();
    report(&near, &client, Usage::Connected { peer: chosen, answers: false });
    until(|| client.peer_addr().ok().filter(|at| at.ip() == flow::PROXIES)).await;
    let (peer, inode) = (client.local_addr().unwrap(), fstat(&server).unwrap().st_ino);
    client.send(b"question").unwrap();
    assert_eq!(received(&server).await.0, b"question");
    server.connect(peer).unwrap();
    report(&far, &server, Usage::Connected { peer, answers: true });
    let proxy = server.peer_addr().unwrap();
    assert_eq!(proxy.ip(), flow::PROXIES);
    disconnect(&server);
    assert_eq!(server.local_addr().unwrap(), chosen);
    report(&far, &server, Usage::Disconnected);
    assert_eq!(target(&far, inode, peer), Some(Some(proxy)));
    client.send(b"and another").unwrap();
    assert_eq!(received(&server).await, (b"and another".to_vec(), proxy));
    server.send_to(b"answer", proxy).unwrap();
    assert_eq!(received(&client).await.0, b"answer");
}

#[tokio::test]
async fn a_socket_that_is_disconnected_before_the_peer_has_confirmed_is_carried() {
    let (near, network) = (end(), network());
    let (client, server) = (socket_of_a_chosen_port(), socket());
    let (peer, inode) = (server.local_addr().unwrap(), fstat(&client).unwrap().st_ino);
    let port = client.local_addr().unwrap().port();
    let (listeners, failures) = network.listen_for_datagrams(peer);
    assert!(failures.is_empty(), "{failures:?}");
    report(&near, &client, Usage::Bound);
    client.connect(peer).unwrap();
    report(&near, &client, Usage::Connected { peer, answers: false });
    let link = listeners[0].accept().await.unwrap();
    let mut messages = Vec::new();
    assert!(link.receive(&mut messages).await);
    assert_eq!(messages, [(Kind::Open, port, Bytes::new())]);
    disconnect(&client);
    report(&near, &client, Usage::Disconnected);
    assert_eq!(target(&near, inode, peer).flatten(), None);
    link.report(Kind::Open, port);
    until(|| target(&near, inode, peer).flatten()).await;
}

#[tokio::test]
async fn what_is_carried_stays_so_when_another_thread_asks() {
    let (near, client, _far, server) = connected().await;
    let (peer, inode) = (server.local_addr().unwrap(), fstat(&client).unwrap().st_ino);
    let carried = target(&near, inode, peer).flatten();
    assert!(carried.is_some());
    report(&near, &client, Usage::Sends(peer));
    assert_eq!(target(&near, inode, peer).flatten(), carried);
}

#[tokio::test]
async fn a_peer_that_takes_no_datagrams_of_a_port_is_not_tried_again() {
    let (near, client, far, server) = connected().await;
    let (peer, second) = (server.local_addr().unwrap(), socket());
    let inode = fstat(&second).unwrap().st_ino;
    let key = lock(&far.state).flows.keys().next().copied().unwrap();
    lock(&far.state).close(key.0, key.1, true);
    until(|| client.peer_addr().ok().filter(|at| *at == peer)).await;
    report(&near, &client, Usage::Sends(peer));
    assert_eq!(target(&near, fstat(&client).unwrap().st_ino, peer), Some(None));
    assert!(lock(&near.state).flows.is_empty(), "the peer is not asked again");
    // What the peer believes of no user need not be asked.
    let local = SocketAddr::new(peer.ip(), UNPRIVILEGED - 1);
    let report_of = |inode, usage| Report { inode, descriptor: 3, local, usage };
    assert_eq!(near.report(&report_of(1, Usage::Sends(peer)), 1), Ok(()));
    assert!(lock(&near.state).flows.is_empty(), "a port that takes a right");
    report(&near, &second, Usage::Sends(peer));
    assert!(target(&near, inode, peer).flatten().is_some(), "another port is another matter");
}

#[tokio::test]
async fn a_port_that_the_program_needs_itself_is_released() {
    let (_near, client, far, server) = connected().await;
    let peer = server.local_addr().unwrap();
    let wants = |port| {
        let local = SocketAddr::new(peer.ip(), port);
        let report = Report { inode: 1, descriptor: 3, local, usage: Usage::Wants };
        far.report(&report, 1)
    };
    let at = SocketAddr::new(peer.ip(), carrying(peer.port()));
    assert!(UdpSocket::bind(at).is_err());
    assert_eq!(wants(peer.port()), Err(libc::EADDRINUSE), "the program's own port");
    assert_eq!(wants(at.port()), Ok(()));
    let bound = until(|| UdpSocket::bind(at).ok()).await;
    until(|| client.peer_addr().ok().filter(|at| *at == peer)).await;
    client.send(b"by UDP").unwrap();
    assert_eq!(received(&server).await, (b"by UDP".to_vec(), client.local_addr().unwrap()));
    // Once the program does not need it any more, the broker has it again.
    far.sweep_now(Instant::now());
    assert_eq!(wants(at.port()), Err(libc::EADDRINUSE));
    drop(bound);
    far.sweep_now(Instant::now());
    assert!(UdpSocket::bind(at).is_err());
}

#[tokio::test]
async fn a_socket_without_a_port_is_not_served() {
    let near = end();
    let report = Report {
        inode: 1,
        descriptor: 3,
        local: "0.0.0.0:0".parse().unwrap(),
        usage: Usage::Bound,
    };
    assert_eq!(near.report(&report, 1), Err(libc::EINVAL));
    assert!(lock(&near.state).sockets.get(1).is_none());
}

#[tokio::test]
async fn a_second_socket_uses_the_association_from_its_first_datagram_on() {
    let (near, client, _far, server) = connected().await;
    let (second, peer) = (socket(), server.local_addr().unwrap());
    report(&near, &second, Usage::Sends(peer));
    let proxy = target(&near, fstat(&second).unwrap().st_ino, peer).flatten().unwrap();
    assert_ne!(proxy, client.peer_addr().unwrap());
    second.send_to(b"question", proxy).unwrap();
    assert_eq!(received(&server).await.0, b"question");
    assert_eq!(lock(&near.state).carriers.len(), 1);
}

#[tokio::test]
async fn a_peer_that_has_none_is_sent_udp_and_remembered() {
    let (near, client, server) = (end(), socket(), socket());
    let peer = server.local_addr().unwrap();
    report(&near, &client, Usage::Sends(peer));
    let inode = fstat(&client).unwrap().st_ino;
    assert_eq!(target(&near, inode, peer), Some(None), "nothing waits");
    until(|| lock(&near.state).routes.is_empty().then_some(())).await;
    assert_eq!(target(&near, inode, peer), Some(None));
    assert!(near.network.ways(peer).is_none());
}

#[tokio::test]
async fn a_peer_that_answers_decides() {
    let (near, client, server) = (end(), socket(), socket());
    let peer = server.local_addr().unwrap();
    client.connect(peer).unwrap();
    report(&near, &client, Usage::Connected { peer, answers: true });
    assert!(lock(&near.state).routes.is_empty());
}

#[tokio::test]
async fn a_privileged_port_is_not_believed_in_udp_and_a_stranger_is_closed() {
    let explained = Arc::new(Mutex::new(Vec::new()));
    let lines = explained.clone();
    let lines: Lines = Arc::new(move |line: &str| lock(&lines).push(line.to_owned()));
    let far = Arc::new(Datagrams::new(network(), Some(lines)).unwrap());
    let server = socket();
    report(&far, &server, Usage::Bound);
    let network = network();
    let ways = network.ways(server.local_addr().unwrap()).unwrap();
    let link = network.open_link(ways, None).await.unwrap();
    link.send(1_023, b"believe me");
    link.send(1_022, b"believe me, too");
    link.send(1_024, b"question");
    let mut messages = Vec::new();
    while messages.len() < 2 {
        assert!(link.receive(&mut messages).await);
    }
    messages.sort_by_key(|(_, port, _)| *port);
    let closed = |port| (Kind::Close, port, Bytes::new());
    assert_eq!(messages, [closed(1_022), closed(1_023)]);
    assert_eq!(received(&server).await.0, b"question");
    // A port that nobody has at this end.
    let flows: Vec<(u64, u16)> = lock(&far.state).flows.keys().copied().collect();
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].1, 1_024);
    // A peer may try as many ports as it likes.
    let explained = lock(&explained);
    let refusals = explained.iter().filter(|line| line.contains("below 1,024"));
    assert_eq!(refusals.count(), 1, "{explained:?}");
}

#[tokio::test]
async fn an_association_that_nothing_uses_ends_at_the_end_that_has_opened_it() {
    let (near, client, far, _server) = connected().await;
    let later = Instant::now() + Duration::from_secs(31);
    near.sweep_now(later);
    assert_eq!(lock(&near.state).routes.len(), 1, "it is used");
    drop(client);
    sweeps(&near);
    until(|| lock(&far.state).flows.is_empty().then_some(())).await;
    far.sweep_now(Instant::now() + Duration::from_secs(31));
    near.sweep_now(Instant::now() + Duration::from_secs(31));
    assert!(lock(&near.state).routes.is_empty(), "what begins now opens another one");
    until(|| lock(&near.state).carriers.is_empty().then_some(())).await;
    until(|| lock(&far.state).carriers.is_empty().then_some(())).await;
}

#[tokio::test]
async fn what_both_ends_open_at_once_carries_both_ways() {
    let (one, other) = (end(), end());
    let (here, there) = (socket(), socket());
    report(&one, &here, Usage::Bound);
    report(&other, &there, Usage::Bound);
    let (at, peer) = (here.local_addr().unwrap(), there.local_addr().unwrap());
    report(&one, &here, Usage::Sends(peer));
    report(&other, &there, Usage::Sends(at));
    let found = |end: &Datagrams, socket: &UdpSocket, address| {
        target(end, fstat(socket).unwrap().st_ino, address).flatten()
    };
    until(|| {
        Some(lock(&one.state).flows.len() + lock(&other.state).flows.len()).filter(|n| *n == 4)
    })
    .await;
    for _ in 0..2 {
        here.send_to(b"to there", found(&one, &here, peer).unwrap()).unwrap();
        let (octets, proxy) = received(&there).await;
        assert_eq!(octets, b"to there");
        assert_eq!(target(&other, EVERY_SOCKET, proxy), Some(Some(at)));
        there.send_to(b"to here", found(&other, &there, at).unwrap()).unwrap();
        assert_eq!(received(&here).await.0, b"to here");
        // When one of them ends, the other one goes on.
        let first = lock(&one.state).flows.keys().next().copied();
        if let Some((number, port)) = first
            && lock(&one.state).flows.len() == 2
        {
            lock(&one.state).close(number, port, true);
            until(|| (lock(&other.state).flows.len() == 1).then_some(())).await;
        }
    }
}

#[tokio::test]
async fn sockets_that_are_left_behind_go_on_by_udp() {
    let (near, client, _far, server) = connected().await;
    let peer = server.local_addr().unwrap();
    client.send(b"the last one").unwrap();
    near.close().await;
    assert_eq!(client.peer_addr().unwrap(), peer);
    assert_eq!(received(&server).await.0, b"the last one");
    client.send(b"by UDP").unwrap();
    let by_udp = received(&server).await;
    assert_eq!(by_udp, (b"by UDP".to_vec(), client.local_addr().unwrap()));
}
