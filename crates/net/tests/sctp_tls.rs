//! SIP over TLS over SCTP (RFC 3436, RFC 4168 section 4): endpoints against each other, through a relay, and
//! against a TLS client that is part of the test.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use ringway_net::{Bind, ClientCertificates, Config, Identity, TlsServer, sctp_settings};
use ringway_sansio::{CloseReason, Target, Transport};
use ringway_sctp_tokio::{
    Association, Config as StackConfig, Connect, EndedError, Over, SendOptions, Settings, Stack,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::authority::{Authority, tls_server};
use support::{PATIENCE, Server, sip};

const PORT: u16 = 5061;

/// No stream.
const NONE: u32 = u32::MAX;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn at(last: u8) -> SocketAddr {
    SocketAddr::new(ip(last), PORT)
}

/// A UDP port that all hosts of one test use, and no other test: it is reserved at this address.
fn udp_port() -> u16 {
    let held = UdpSocket::bind("127.0.0.250:0").unwrap();
    let port = held.local_addr().unwrap().port();
    std::mem::forget(held);
    port
}

fn config(udp: u16, last: u8, ca: &Authority, identity: &Identity) -> Config {
    let mut config = Config::new([Bind {
        transport: Transport::TlsSctp,
        addr: at(last),
        more: Vec::new(),
        encapsulation: Some(udp),
    }]);
    config.tls_server = Some(tls_server(identity));
    config.tls_client = Some(ca.client(Some(identity)));
    config
}

fn to(last: u8, name: &str) -> Target {
    let name = Some(name.into());
    Target::Peer { transport: Transport::TlsSctp, remote: at(last), name }
}

/// Returns a message of a call.
fn of_call(call: &str, n: usize) -> Vec<u8> {
    let head = format!("MESSAGE sip:a@b SIP/2.0\r\nCall-ID: {call}\r\nContent-Length: {n}\r\n\r\n");
    let mut message = head.into_bytes();
    message.resize(message.len() + n, b'x');
    message
}

/// Waits for a condition.
fn until(happens: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !happens() {
        assert!(std::time::Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the streams of the DATA chunks in a packet (RFC 9260 section 3.3.1).
fn streams(packet: &[u8]) -> Vec<u16> {
    let (mut at, mut streams) = (12, Vec::new());
    while let Some(&[kind, _, a, b]) = packet.get(at..at + 4) {
        if kind == 0 {
            streams.push(u16::from_be_bytes([packet[at + 8], packet[at + 9]]));
        }
        at += usize::from(u16::from_be_bytes([a, b])).max(4).next_multiple_of(4);
    }
    streams
}

/// A relay between two hosts; each has the relay's address as its peer's.
struct Relay {
    /// Packets from the first host with data of this stream are dropped.
    lost: Arc<AtomicU32>,
    /// Packets from the first host that are longer than this are dropped.
    largest: Arc<AtomicU32>,
    /// Number of packets dropped.
    count: Arc<AtomicU32>,
    /// The streams used by packets that were forwarded, by sender.
    used: Arc<Mutex<BTreeMap<u8, BTreeSet<u16>>>>,
    over: Arc<AtomicBool>,
}

impl Relay {
    fn new(udp: u16, last: u8, hosts: [u8; 2]) -> Relay {
        let socket = UdpSocket::bind((ip(last), udp)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let relay = Relay {
            lost: Arc::new(AtomicU32::new(NONE)),
            largest: Arc::new(AtomicU32::new(u32::MAX)),
            count: Arc::default(),
            used: Arc::default(),
            over: Arc::default(),
        };
        let (lost, count, over) = (relay.lost.clone(), relay.count.clone(), relay.over.clone());
        let (largest, used) = (relay.largest.clone(), relay.used.clone());
        std::thread::spawn(move || {
            let mut packet = [0; 65_535];
            while !over.load(Ordering::Acquire) {
                let Ok((length, from)) = socket.recv_from(&mut packet) else { continue };
                let from = if from.ip() == ip(hosts[0]) { 0 } else { 1 };
                let streams = streams(&packet[..length]);
                let lost = lost.load(Ordering::Acquire);
                let large = length > largest.load(Ordering::Acquire) as usize;
                if from == 0 && (large || streams.iter().any(|stream| u32::from(*stream) == lost)) {
                    count.fetch_add(1, Ordering::AcqRel);
                    continue;
                }
                used.lock().unwrap().entry(hosts[from]).or_default().extend(&streams);
                let there = (ip(hosts[1 - from]), udp);
                let _ = socket.send_to(&packet[..length], there);
            }
        });
        relay
    }

    /// Returns the streams that a host used since the last call.
    fn take_used(&self, last: u8) -> BTreeSet<u16> {
        self.used.lock().unwrap().remove(&last).unwrap_or_default()
    }

    /// Returns the one stream that a host uses when it sends. On a busy machine an earlier message may be
    /// retransmitted in between; then it is repeated.
    fn only_stream(&self, last: u8, send: impl Fn()) -> u16 {
        let found = (0..10).find_map(|_| {
            self.take_used(last);
            send();
            let used = self.take_used(last);
            used.first().copied().filter(|_| used.len() == 1)
        });
        found.expect("one call, one stream")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// RFC 3436 section 5: each pair of streams has a TLS connection, so the loss of a packet on one does not delay
/// another.
#[test]
fn a_lost_packet_of_one_call_holds_up_no_other() {
    let (ca, udp) = (Authority::new(), udp_port());
    let (a, b) = (ca.identity("a.example"), ca.identity("b.example"));
    let relay = Relay::new(udp, 3, [1, 2]);
    let calling = Server::start_with(config(udp, 1, &ca, &a), |p| p.echo = false);
    let answering = Server::start_with(config(udp, 2, &ca, &b), |p| p.echo = false);
    let send = |bytes: &[u8]| calling.send(0, to(3, "b.example"), 1, bytes);
    // Calls that have different pairs of streams.
    let mut by_stream = BTreeMap::new();
    for n in 0.. {
        let call = format!("call-{n}");
        send(&of_call(&call, 10));
        assert_eq!(answering.wait_message().2, of_call(&call, 10));
        let stream = relay.only_stream(1, || {
            send(&of_call(&call, 20));
            answering.wait_message();
        });
        by_stream.insert(stream, call);
        if by_stream.len() == 3 {
            break;
        }
    }
    calling.wait_count("connected", 1);
    answering.wait_count("accepted", 1);
    let calls: Vec<(u16, String)> = by_stream.into_iter().collect();
    relay.lost.store(calls[1].0.into(), Ordering::Release);
    send(&of_call(&calls[1].1, 500));
    until(|| relay.count.load(Ordering::Acquire) > 0);
    for (_, call) in [&calls[0], &calls[2]] {
        send(&of_call(call, 30));
        assert_eq!(answering.wait_message().2, of_call(call, 30));
    }
    relay.lost.store(NONE, Ordering::Release);
    assert_eq!(answering.wait_message().2, of_call(&calls[1].1, 500));
    calling.stop(PATIENCE);
    assert_eq!(answering.wait_closed().1, CloseReason::Peer);
}

/// RFC 9260 section 9.2: messages sent before the shutdown are delivered. By RFC 3436 section 5 each pair of
/// streams is closed separately, and the close of one may arrive before earlier messages of another.
#[test]
fn the_end_of_the_first_pair_is_not_the_end_of_all() {
    let (udp, ca) = (udp_port(), Authority::new());
    let (a, b) = (ca.identity("a.example"), ca.identity("b.example"));
    let relay = Relay::new(udp, 17, [15, 16]);
    let calling = Server::start_with(config(udp, 15, &ca, &a), |p| p.echo = false);
    let answering = Server::start_with(config(udp, 16, &ca, &b), |p| p.echo = false);
    let send = |call: &str| {
        let message = of_call(call, 500);
        calling.send(0, to(17, "b.example"), 1, &message);
        message
    };
    // A call whose stream is not the first.
    let call = (0..100).map(|n| format!("call-{n}")).find(|call| {
        assert_eq!(send(call), answering.wait_message().2);
        0 != relay.only_stream(15, || assert_eq!(send(call), answering.wait_message().2))
    });
    let call = call.unwrap();
    relay.largest.store(400, Ordering::Release);
    let messages: Vec<_> = (0..5).map(|_| send(&call)).collect();
    until(|| relay.count.load(Ordering::Acquire) > 0);
    relay.take_used(15);
    let stopped = std::thread::spawn(move || calling.stop(PATIENCE));
    until(|| relay.take_used(15).contains(&0));
    // Long enough for a premature close to take effect.
    std::thread::sleep(Duration::from_millis(100));
    relay.largest.store(u32::MAX, Ordering::Release);
    for message in messages {
        assert_eq!(answering.wait_message().2, message);
    }
    answering.wait_closed();
    stopped.join().unwrap();
}

/// The side that accepted the association cannot start TLS on a stream: its calls begin on the first stream, and
/// the other side then starts TLS on the streams of later calls.
#[test]
fn calls_of_the_accepting_side_come_to_streams_of_their_own() {
    let (ca, udp) = (Authority::new(), udp_port());
    let (a, b) = (ca.identity("a.example"), ca.identity("b.example"));
    let relay = Relay::new(udp, 3, [1, 2]);
    let calling = Server::start_with(config(udp, 1, &ca, &a), |p| p.echo = false);
    let answering = Server::start_with(config(udp, 2, &ca, &b), |p| p.echo = false);
    calling.send(0, to(3, "b.example"), 1, &sip("first", 3));
    let (_, flow, _) = answering.wait_message();
    let mut used = BTreeSet::new();
    for round in 0..2 {
        for n in 0..40 {
            let message = of_call(&format!("call-{round}-{n}"), 10);
            answering.send(0, Target::Flow(flow), 1, &message);
            assert_eq!(calling.wait_message().2, message);
            // The handshake that it triggered is complete when the next request has been answered.
            calling.send(0, to(3, "b.example"), 1, &message);
            assert_eq!(answering.wait_message().2, message);
        }
        used = relay.take_used(2);
    }
    assert!(used.len() > 8, "{used:?}");
    // A call that began on the first stream stays on it.
    let stream = relay.only_stream(2, || {
        answering.send(0, Target::Flow(flow), 1, &of_call("call-0-0", 11));
        assert_eq!(calling.wait_message().2, of_call("call-0-0", 11));
    });
    assert_eq!(stream, 0);
    calling.wait_count("connected", 1);
    answering.wait_count("accepted", 1);
}

/// A client that is part of the test: a TLS connection on any stream, with any certificate.
struct Client {
    association: Association,
    lines: BTreeMap<u16, ClientConnection>,
}

impl Client {
    async fn connect(udp: u16, last: u8, remote: u8) -> Client {
        Client::with(udp, last, remote, sctp_settings(Settings::default())).await
    }

    async fn with(udp: u16, last: u8, remote: u8, settings: Settings) -> Client {
        let over = Over::Udp { locals: vec![ip(last)], port: udp };
        let stack = Stack::new(StackConfig { settings, ..StackConfig::new(over) }).unwrap();
        let connect =
            Connect { encapsulation: udp, ..Connect::new(&[ip(last)], &[ip(remote)], PORT) };
        let association = stack.connect(&connect).await.unwrap();
        Client { association, lines: BTreeMap::new() }
    }

    /// Sends the pending TLS records of a stream.
    async fn flush(&mut self, stream: u16) {
        let line = self.lines.get_mut(&stream).unwrap();
        while line.wants_write() {
            let mut records = Vec::new();
            line.write_tls(&mut records).unwrap();
            let options = SendOptions { stream, ..SendOptions::default() };
            self.association.send(records, &options).await.unwrap();
        }
    }

    /// Receives one message of SCTP. Returns its stream, the decrypted bytes, and whether the stream is closed.
    async fn take(&mut self) -> Result<Option<(u16, Vec<u8>, bool)>, EndedError> {
        let Some(message) = self.association.recv().await? else { return Ok(None) };
        let line = self.lines.get_mut(&message.stream).unwrap();
        line.read_tls(&mut &message.bytes[..]).unwrap();
        let Ok(state) = line.process_new_packets() else {
            return Ok(Some((message.stream, Vec::new(), true)));
        };
        let mut bytes = vec![0; state.plaintext_bytes_to_read()];
        line.reader().read_exact(&mut bytes).unwrap();
        Ok(Some((message.stream, bytes, state.peer_has_closed())))
    }

    async fn handshake(&mut self, stream: u16, config: &Arc<ClientConfig>) {
        let name = ServerName::try_from("b.example").unwrap();
        self.lines.insert(stream, ClientConnection::new(config.clone(), name).unwrap());
        while self.lines[&stream].is_handshaking() {
            self.flush(stream).await;
            self.take().await.unwrap().unwrap();
        }
        self.flush(stream).await;
    }

    /// Sends a message. Returns its echo, or `None` if the peer closes the stream's connection.
    async fn exchange(&mut self, stream: u16, message: &[u8]) -> Option<Vec<u8>> {
        self.lines.get_mut(&stream).unwrap().writer().write_all(message).unwrap();
        self.flush(stream).await;
        let mut got = Vec::new();
        loop {
            let (on, bytes, end) = self.take().await.unwrap().unwrap();
            if on == stream && end {
                return None;
            }
            got.extend(bytes);
            if got.len() >= message.len() {
                return Some(got);
            }
        }
    }
}

fn client_config(ca: &Authority, name: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate.clone()).unwrap();
    let (chain, key) = ca.shown(name);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap())
}

/// A stream with a different certificate is refused, and the others continue.
#[test]
fn another_certificate_on_another_stream_is_refused() {
    let (ca, udp) = (Authority::new(), udp_port());
    let identity = ca.identity("b.example");
    let mut config = config(udp, 2, &ca, &identity);
    let clients = ClientCertificates::Required(ca.roots.clone());
    config.tls_server = Some(Arc::new(TlsServer::new(&[identity], &clients).unwrap()));
    let server = Server::start(config);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let work = async {
        let (right, other) = (client_config(&ca, "a.example"), client_config(&ca, "c.example"));
        let again = client_config(&ca, "a.example");
        let mut client = Client::connect(udp, 1, 2).await;
        client.handshake(0, &right).await;
        let message = sip("one", 100);
        assert_eq!(client.exchange(0, &message).await.as_ref(), Some(&message));
        assert_eq!(server.wait_opened().1.domains[..], ["a.example".into()]);
        assert_eq!(server.wait_message().2, message);
        client.handshake(3, &other).await;
        assert_eq!(client.exchange(3, &message).await, None);
        // A different certificate for the same name is the same peer.
        client.handshake(4, &again).await;
        client
            .association
            .send("no TLS", &SendOptions { stream: 7, ..SendOptions::default() })
            .await
            .unwrap();
        for stream in [4, 0] {
            let message = sip("two", 200 + usize::from(stream));
            client.lines.get_mut(&stream).unwrap().writer().write_all(&message).unwrap();
            client.flush(stream).await;
            assert_eq!(server.wait_message().2.len(), message.len());
        }
        client.association.shutdown().await
    };
    let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await });
    done.expect("in time").unwrap();
    assert_eq!(server.wait_closed().1, CloseReason::Peer);
}

/// RFC 3436 section 5: there are as many connections as pairs of streams, at most the number that is served.
/// Invalid TLS ends the connection of its stream and no other (section 6.2), and a stream without a counterpart
/// carries none (section 7).
#[test]
fn a_peer_has_no_streams_but_those_that_carry_tls() {
    let (ca, udp) = (Authority::new(), udp_port());
    let server = Server::start(config(udp, 2, &ca, &ca.identity("b.example")));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let work = async {
        let right = client_config(&ca, "a.example");
        let mut client = Client::connect(udp, 1, 2).await;
        client.handshake(0, &right).await;
        assert_eq!(client.association.statistics()?.streams, (16, 16));
        let on = |stream| SendOptions { stream, ..SendOptions::default() };
        assert!(client.association.send("one more", &on(16)).await.is_err());
        for stream in [3, 15] {
            client.handshake(stream, &right).await;
        }
        let unordered = SendOptions { unordered: true, ..on(3) };
        client.association.send("unordered", &unordered).await.unwrap();
        // Other streams may carry session tickets.
        while !matches!(client.take().await?.unwrap(), (3, _, true)) {}
        for stream in [15, 0] {
            let message = sip("whole", 100 + usize::from(stream));
            assert_eq!(client.exchange(stream, &message).await.as_ref(), Some(&message));
        }
        client.association.shutdown().await?;
        let few = Settings { inbound_streams: 4, ..sctp_settings(Settings::default()) };
        let mut client = Client::with(udp, 3, 2, few).await;
        client.handshake(0, &right).await;
        assert_eq!(client.association.statistics()?.streams, (16, 4));
        client.association.send("no pair's", &on(4)).await.unwrap();
        client.handshake(1, &right).await;
        for stream in [1, 0] {
            let message = sip("whole", 100 + usize::from(stream));
            assert_eq!(client.exchange(stream, &message).await.as_ref(), Some(&message));
        }
        client.association.shutdown().await
    };
    let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await });
    done.expect("in time").unwrap();
    for _ in 0..2 {
        assert_eq!(server.wait_closed().1, CloseReason::Peer);
    }
}

/// RFC 4168 and RFC 3436: TLS over SCTP, with the names of certificates as over TCP.
#[test]
fn messages_pass_over_sctp_and_a_wrong_name_is_refused() {
    let (ca, udp) = (Authority::new(), udp_port());
    let start = |last: u8, name: &str, echo: bool| {
        let mut config = config(udp, last, &ca, &ca.identity(name));
        config.listen[0].more = vec![ip(last + 10)];
        Server::start_with(config, |p| p.echo = echo)
    };
    let (calling, answering) = (start(1, "a.example", false), start(2, "b.example", true));
    let to = |name: &str| Target::Peer {
        transport: Transport::TlsSctp,
        remote: answering.addr(0),
        name: Some(name.into()),
    };
    calling.send(0, to("b.example"), 1, &sip("zero", 3));
    let (flow, peer) = calling.wait_opened();
    assert_eq!(
        (flow.transport, &peer.domains[..]),
        (Transport::TlsSctp, &["b.example".into()][..])
    );
    assert_eq!(calling.wait_message().2, sip("zero", 3));
    answering.wait_message();
    for message in [sip("one", 3), sip("large", 50_000), sip("two", 3)] {
        calling.send(0, to("b.example"), 1, &message);
        assert_eq!(answering.wait_message().2, message);
        assert_eq!(calling.wait_message().2, message);
    }
    calling.wait_count("connected", 1);
    answering.wait_count("accepted", 1);
    calling.send(0, to("c.example"), 7, &sip("three", 3));
    assert_eq!(calling.wait_not_sent(), 7);
    calling.wait_count("connect_failed", 1);
    calling.stop(PATIENCE);
    answering.wait_closed();
}
