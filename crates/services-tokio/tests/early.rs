//! A first message before the end of the handshake (RFC 9622 section 6.2.5, RFC 9001 section 4.6).
#![allow(clippy::unwrap_used)]

mod support;

use ringway_services_tokio::{
    Connection, Listener, MessageProperties, Preconnection, Protocol, Service, System,
    TransportProperties,
};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use support::{here, only_with, peer, properties, soon, system, until};
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// Octets that do not fit into the first flight.
const LARGE: usize = 20_000;

/// What a relay has seen, and whether it holds what the server sends.
#[derive(Default)]
struct Seen {
    holds: AtomicBool,
    released: Notify,
    /// Datagrams of the client.
    of_client: Mutex<Vec<Vec<u8>>>,
    /// Number of datagrams that were passed to the client.
    to_client: AtomicUsize,
}

/// Carries the datagrams of one client to a server and back.
struct Relay {
    port: u16,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    async fn new(server: u16, holds: bool) -> Relay {
        let (front, back) =
            (UdpSocket::bind(LOOPBACK).await.unwrap(), UdpSocket::bind(LOOPBACK).await.unwrap());
        back.connect((Ipv4Addr::LOCALHOST, server)).await.unwrap();
        let port = front.local_addr().unwrap().port();
        let seen = Arc::<Seen>::default();
        seen.holds.store(holds, Ordering::Relaxed);
        let task = tokio::spawn(carry(front, back, seen.clone()));
        Relay { port, seen, task }
    }

    fn release(&self) {
        self.seen.holds.store(false, Ordering::Relaxed);
        self.seen.released.notify_one();
    }

    fn of_client(&self) -> Vec<Vec<u8>> {
        self.seen.of_client.lock().unwrap().clone()
    }

    /// Returns whether the client has sent data before the handshake.
    fn has_early_data(&self) -> bool {
        self.of_client().iter().any(|datagram| has_early_data(datagram).unwrap_or(false))
    }
}

async fn carry(front: UdpSocket, back: UdpSocket, seen: Arc<Seen>) {
    let (mut client, mut held) = (None, Vec::new());
    let (mut of_client, mut of_server) = ([0; 2_000], [0; 2_000]);
    loop {
        tokio::select! {
            received = front.recv_from(&mut of_client) => {
                let (length, from): (usize, SocketAddr) = received.unwrap();
                client = Some(from);
                seen.of_client.lock().unwrap().push(of_client[..length].to_vec());
                let _ = back.send(&of_client[..length]).await;
            }
            received = back.recv(&mut of_server) => {
                let Ok(length) = received else { continue };
                held.push(of_server[..length].to_vec());
            }
            () = seen.released.notified() => {}
        }
        if seen.holds.load(Ordering::Relaxed) {
            continue;
        }
        for datagram in held.drain(..) {
            seen.to_client.fetch_add(1, Ordering::Relaxed);
            let _ = front.send_to(&datagram, client.unwrap()).await;
        }
    }
}

/// Returns whether a packet of a datagram is a 0-RTT packet (RFC 9000 section 17.2); `None` if that cannot be read.
fn has_early_data(mut datagram: &[u8]) -> Option<bool> {
    fn number(octets: &mut &[u8]) -> Option<usize> {
        let length = 1 << (octets.first()? >> 6);
        let (number, rest) = octets.split_at_checked(length)?;
        *octets = rest;
        let first = usize::from(number[0] & 0x3f);
        Some(number[1..].iter().fold(first, |sum, octet| sum << 8 | usize::from(*octet)))
    }
    loop {
        let (first, mut rest) = (*datagram.first()?, datagram.get(5..)?);
        if first & 0x80 == 0 {
            return Some(false);
        }
        for _ in 0..2 {
            let length = usize::from(*rest.first()?);
            rest = rest.get(1 + length..)?;
        }
        match first >> 4 & 0b11 {
            0 => {
                let token = number(&mut rest)?;
                rest = rest.get(token..)?;
            }
            1 => return Some(true),
            _ => {}
        }
        let length = number(&mut rest)?;
        datagram = rest.get(length..)?;
    }
}

fn wanted(framed: bool) -> TransportProperties {
    let wanted = if framed {
        properties(Protocol::Quic)
    } else {
        TransportProperties::reliable_inorder_stream()
    };
    wanted.prefer(Service::ZeroRttMsg)
}

fn new(system: &System, framed: bool) -> Preconnection {
    let new = only_with(system, Protocol::Quic, wanted(framed));
    if framed { new } else { new.without_framing() }
}

fn safe(safely_replayable: bool) -> MessageProperties {
    MessageProperties { safely_replayable, ..MessageProperties::default() }
}

/// Opens a connection and ends it, after which the client has a session.
async fn visit(client: &System, listener: &Listener, framed: bool) {
    let to = new(client, framed).to(peer(listener.port()));
    let client = soon(to.initiate_with_send("hello", &safe(false))).await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    let message = soon(server.receive()).await.unwrap().unwrap();
    assert_eq!((&message[..], message.is_early), (&b"hello"[..], false));
    reply(&server, &client).await;
}

async fn reply(server: &Connection, client: &Connection) {
    server.send("reply").await.unwrap();
    assert_eq!(&soon(client.receive()).await.unwrap().unwrap()[..], b"reply");
}

/// A message behind the first, which shows that the first came once.
async fn continues(client: &Connection, server: &Connection) {
    reply(server, client).await;
    client.send("later").await.unwrap();
    let message = soon(server.receive()).await.unwrap().unwrap();
    assert_eq!((&message[..], message.is_early), (&b"later"[..], false));
}

fn is_pending(future: impl Future) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    matches!(pin!(future).poll(&mut cx), Poll::Pending)
}

type Opening = JoinHandle<Result<Connection, ringway_services_tokio::Error>>;

fn open(system: &System, framed: bool, port: u16, message: Vec<u8>, is_safe: bool) -> Opening {
    let to = new(system, framed).to(peer(port));
    tokio::spawn(async move { to.initiate_with_send(message, &safe(is_safe)).await })
}

/// The server has the message although nothing that it sends reaches the client.
async fn the_first_flight_has_the_message(framed: bool) {
    let (client, server) = (system(), system());
    let listener = new(&server, framed).from(here(0)).listen().await.unwrap();
    visit(&client, &listener, framed).await;
    let relay = Relay::new(listener.port(), true).await;
    let opening = open(&client, framed, relay.port, b"early".to_vec(), true);
    let server = soon(listener.accept()).await.unwrap();
    let message = soon(server.receive()).await.unwrap().unwrap();
    assert_eq!((&message[..], message.is_early), (&b"early"[..], true));
    assert_eq!(relay.seen.to_client.load(Ordering::Relaxed), 0);
    assert!(relay.has_early_data());
    // The race waits for the handshake.
    assert!(!opening.is_finished());
    relay.release();
    let client = soon(opening).await.unwrap().unwrap();
    assert!(client.provides().has(Service::ZeroRttMsg));
    continues(&client, &server).await;
}

#[tokio::test]
async fn a_message_that_may_be_repeated_is_in_the_first_flight() {
    the_first_flight_has_the_message(true).await;
}

#[tokio::test]
async fn octets_without_framing_are_in_the_first_flight() {
    the_first_flight_has_the_message(false).await;
}

/// RFC 9622 section 9.1.3.4: without `safelyReplayable` a message waits for the handshake, as does a large one.
async fn the_message_waits(message: Vec<u8>, is_safe: bool) {
    let (client, server) = (system(), system());
    let listener = new(&server, true).from(here(0)).listen().await.unwrap();
    visit(&client, &listener, true).await;
    let relay = Relay::new(listener.port(), true).await;
    let opening = open(&client, true, relay.port, message.clone(), is_safe);
    // The flight, and what the client repeats of it.
    until("the client waits", || relay.of_client().len() >= 3).await;
    assert!(is_pending(listener.accept()) && !relay.has_early_data());
    relay.release();
    let client = soon(opening).await.unwrap().unwrap();
    let server = soon(listener.accept()).await.unwrap();
    let received = soon(server.receive()).await.unwrap().unwrap();
    assert!(received[..] == message[..] && !received.is_early);
    continues(&client, &server).await;
}

#[tokio::test]
async fn a_message_that_must_not_be_repeated_waits_for_the_handshake() {
    the_message_waits(b"once".to_vec(), false).await;
}

#[tokio::test]
async fn a_message_larger_than_the_first_flight_waits_for_the_handshake() {
    the_message_waits(vec![7; LARGE], true).await;
}

/// A server that knows no session of the client, or accepts no early data, has the message once, behind the handshake.
#[tokio::test]
async fn a_rejected_message_is_sent_again() {
    let (client, server) = (system(), system());
    let listener = new(&server, true).from(here(0)).listen().await.unwrap();
    let strict = only_with(&server, Protocol::Quic, properties(Protocol::Quic));
    for refusing in [new(&server, true), strict] {
        visit(&client, &listener, true).await;
        let refusing = refusing.from(here(0)).listen().await.unwrap();
        let relay = Relay::new(refusing.port(), false).await;
        let opening = open(&client, true, relay.port, b"early".to_vec(), true);
        let client = soon(opening).await.unwrap().unwrap();
        assert!(relay.has_early_data());
        let server = soon(refusing.accept()).await.unwrap();
        let message = soon(server.receive()).await.unwrap().unwrap();
        assert_eq!((&message[..], message.is_early), (&b"early"[..], false));
        continues(&client, &server).await;
        assert!(is_pending(refusing.accept()));
    }
}

/// RFC 8446 section 8.1: a session is used once, so that its first flight, sent again by another host, has no effect.
#[tokio::test]
async fn a_copy_of_the_first_flight_is_not_received() {
    let (client, server) = (system(), system());
    let listener = new(&server, true).from(here(0)).listen().await.unwrap();
    visit(&client, &listener, true).await;
    let relay = Relay::new(listener.port(), false).await;
    let opened = soon(open(&client, true, relay.port, b"early".to_vec(), true)).await.unwrap();
    let accepted = soon(listener.accept()).await.unwrap();
    assert_eq!(&soon(accepted.receive()).await.unwrap().unwrap()[..], b"early");
    assert!(relay.has_early_data());
    let flight = relay.of_client();
    drop((opened, accepted, relay));
    until("the connections end", || client.associations() + server.associations() == 0).await;

    let thief = UdpSocket::bind(LOOPBACK).await.unwrap();
    let answered = async {
        let mut answer = [0; 2_000];
        loop {
            for datagram in &flight {
                thief.send_to(datagram, (Ipv4Addr::LOCALHOST, listener.port())).await.unwrap();
            }
            let received = thief.recv_from(&mut answer);
            let pause = std::time::Duration::from_millis(200);
            // A handshake, not the end of the one before.
            if let Ok(Ok((length, _))) = tokio::time::timeout(pause, received).await
                && length >= 1_000
            {
                return;
            }
        }
    };
    soon(answered).await;
    // What is accepted next is not the copy.
    visit(&client, &listener, true).await;
    assert!(is_pending(listener.accept()));
}

/// What speaks QUIC and cannot resume is refused with the reason, and a preference does not count what is not carried out.
#[tokio::test]
async fn early_data_is_of_quic() {
    let system = system();
    let security = ringway_services_tokio::SecurityParameters::new;
    let wanted = properties(Protocol::Quic).require(Service::ZeroRttMsg);
    let ranked = Preconnection::new(&system, wanted, security()).to(peer(9)).explain().unwrap();
    let protocols: Vec<_> = ranked.candidates.iter().map(|one| one.protocol).collect();
    assert_eq!(protocols, [Protocol::Quic]);
    assert!(ranked.explanation.to_string().contains("0-RTT data is not carried over it"));
    let preferred = properties(Protocol::Quic).prefer(Service::ZeroRttMsg);
    let ranked = Preconnection::new(&system, preferred, security()).to(peer(9)).explain().unwrap();
    assert_eq!(ranked.candidates[0].protocol, Protocol::Quic);
}

/// Early data opens nothing for longer than a handshake may take.
#[tokio::test]
async fn a_connection_without_the_end_of_its_handshake_ends() {
    let mut limits = support::limits();
    limits.handshake = std::time::Duration::from_secs(1);
    let (client, server) = (system(), support::builder().limits(limits).build().unwrap());
    let listener = new(&server, true).from(here(0)).listen().await.unwrap();
    visit(&client, &listener, true).await;
    let relay = Relay::new(listener.port(), true).await;
    let opening = open(&client, true, relay.port, b"early".to_vec(), true);
    let accepted = soon(listener.accept()).await.unwrap();
    assert!(soon(accepted.receive()).await.unwrap().unwrap().is_early);
    assert!(soon(accepted.receive()).await.is_err());
    opening.abort();
}

/// An attempt that has sent its message and is no longer wanted ends at once, for the peer, too.
#[tokio::test]
async fn an_attempt_that_is_cancelled_leaves_nothing() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (client, server) = (system(), system());
    let listener = new(&server, true).from(here(0)).listen().await.unwrap();
    let listening = alive();
    visit(&client, &listener, true).await;
    let relay = Relay::new(listener.port(), true).await;
    let opening = open(&client, true, relay.port, b"early".to_vec(), true);
    let accepted = soon(listener.accept()).await.unwrap();
    assert!(soon(accepted.receive()).await.unwrap().unwrap().is_early);
    opening.abort();
    assert!(soon(accepted.receive()).await.is_err());
    drop((accepted, relay));
    until("all tasks end", || alive() <= listening).await;
}
