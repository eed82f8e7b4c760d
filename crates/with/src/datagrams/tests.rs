use super::*;
use crate::services::Services;
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

/// Waits until something is so.
async fn until<T>(mut is: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(value) = is() {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
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
    let peer = server.local_addr().unwrap();
    drop(server);
    far.sweep_now(Instant::now());
    until(|| client.peer_addr().ok().filter(|at| *at == peer)).await;
    assert_eq!(target(&near, fstat(&client).unwrap().st_ino, peer), Some(None));
    assert!(lock(&far.state).flows.is_empty() && lock(&far.state).listeners.is_empty());
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
    let (far, server) = (end(), socket());
    report(&far, &server, Usage::Bound);
    let network = network();
    let ways = network.ways(server.local_addr().unwrap()).unwrap();
    let link = network.open_link(ways, None).await.unwrap();
    link.send(1_023, b"believe me");
    link.send(1_024, b"question");
    let mut messages = Vec::new();
    assert!(link.receive(&mut messages).await);
    assert_eq!(messages, [(Kind::Close, 1_023, Bytes::new())]);
    assert_eq!(received(&server).await.0, b"question");
    // A port that nobody has at this end.
    let flows: Vec<(u64, u16)> = lock(&far.state).flows.keys().copied().collect();
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].1, 1_024);
}

#[tokio::test]
async fn an_association_that_nothing_uses_ends_at_the_end_that_has_opened_it() {
    let (near, client, far, _server) = connected().await;
    let later = Instant::now() + Duration::from_secs(31);
    near.sweep_now(later);
    assert_eq!(lock(&near.state).carriers.len(), 1, "it is used");
    drop(client);
    near.sweep_now(Instant::now());
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
