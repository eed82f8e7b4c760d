//! The rest of the API: byte streams, framers, properties, priorities, rendezvous, limits of a listener, threads.
#![allow(clippy::unwrap_used)]

mod support;

use bytes::{Bytes, BytesMut};
use ringway_services_tokio::properties::{ConnectionState, Inherited, Preference, Scheduler};
use ringway_services_tokio::{
    Error, Framer, Limits, MessageProperties, Preconnection, Protocol, SecurityParameters, Service,
    TransportProperties, blocking,
};
use std::time::Duration;
use support::{Pair, has, here, only_with, peer, properties, soon, system};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const STREAMS: [Protocol; 4] = [Protocol::Tcp, Protocol::Tls, Protocol::Mptcp, Protocol::Quic];

/// A stack of SCTP holds blocks of ports, so that a port that is free for UDP may not be for SCTP.
#[tokio::test]
async fn a_port_that_another_stack_holds_is_not_the_end_of_listening() {
    if !has(Protocol::Sctp) {
        return;
    }
    let mut held = Vec::new();
    for _ in 0..40 {
        let system = system();
        let new = only_with(&system, Protocol::Sctp, properties(Protocol::Sctp)).from(here(0));
        held.push(new.listen().await.unwrap());
    }
}

/// RFC 9622 section 9.3.2.2.
#[tokio::test]
async fn without_framing_octets_flow_in_both_directions() {
    for protocol in STREAMS.into_iter().filter(|one| has(*one)) {
        let system = system();
        let mut stream = TransportProperties::reliable_inorder_stream();
        stream.selection.multipath = properties(protocol).selection.multipath;
        let new = || only_with(&system, protocol, stream.clone()).without_framing();
        let listener = new().from(here(0)).listen().await.unwrap();
        let client = soon(new().to(peer(listener.port())).initiate()).await.unwrap();
        let data: Vec<u8> = (0..1_000_000u32).map(|n| (n % 253) as u8).collect();
        let sending = async {
            client.send(data.clone()).await.unwrap();
            client.send_final("end").await.unwrap();
        };
        let receiving = async {
            let server = soon(listener.accept()).await.unwrap();
            assert!(!server.provides().has(Service::PreserveMsgBoundaries), "{protocol}");
            let mut all = Vec::new();
            while let Some(part) = soon(server.receive()).await.unwrap() {
                assert!(!part.is_end);
                all.extend_from_slice(&part);
            }
            server.send_final("answer").await.unwrap();
            all
        };
        let ((), received) = tokio::join!(sending, receiving);
        assert!(received[..data.len()] == data && received.ends_with(b"end"), "{protocol}");
        let mut answer = Vec::new();
        while let Some(part) = soon(client.receive()).await.unwrap() {
            answer.extend_from_slice(&part);
        }
        assert_eq!(answer, b"answer", "{protocol}");
    }
}

/// A peer that is no program of this project.
#[tokio::test]
async fn a_foreign_peer_speaks_tcp() {
    let foreign = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = foreign.local_addr().unwrap().port();
    let stream = TransportProperties::reliable_inorder_stream();
    let system = system();
    let new = only_with(&system, Protocol::Tcp, stream).without_framing().to(peer(port));
    let (client, accepted) = tokio::join!(new.initiate(), foreign.accept());
    let (client, (mut accepted, _)) = (client.unwrap(), accepted.unwrap());
    client.send("GET").await.unwrap();
    let mut got = [0; 3];
    accepted.read_exact(&mut got).await.unwrap();
    accepted.write_all(b"200").await.unwrap();
    drop(accepted);
    assert_eq!(
        (&got[..], &soon(client.receive()).await.unwrap().unwrap()[..]),
        (&b"GET"[..], &b"200"[..])
    );
    assert_eq!(soon(client.receive()).await.unwrap(), None);
}

struct Lines;

impl Framer for Lines {
    fn encode(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        if message.contains(&b'\n') {
            return Err("a line has no line feed".into());
        }
        out.extend_from_slice(message);
        out.push(b'\n');
        Ok(())
    }

    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, String> {
        let Some(end) = input.iter().position(|octet| *octet == b'\n') else { return Ok(None) };
        Ok(Some(input.split_to(end + 1).freeze().slice(..end)))
    }
}

/// RFC 9622 section 9.1.2.
#[tokio::test]
async fn a_framer_of_the_program_makes_messages() {
    let system = system();
    let new = || only_with(&system, Protocol::Tcp, properties(Protocol::Tcp)).with_framer(|| Lines);
    let listener = new().from(here(0)).listen().await.unwrap();
    let client = new().to(peer(listener.port())).initiate().await.unwrap();
    let server = soon(listener.accept()).await.unwrap();
    for line in ["one", "", "three"] {
        client.send(line).await.unwrap();
    }
    assert!(client.send("no\nline").await.is_err());
    for line in ["one", "", "three"] {
        let message = soon(server.receive()).await.unwrap().unwrap();
        assert_eq!((&message[..], message.is_end), (line.as_bytes(), true));
    }
    client.close().await.unwrap();
    assert_eq!(soon(server.receive()).await.unwrap(), None);
}

/// RFC 9622 section 8: what was asked for is what is read, by name.
#[tokio::test]
async fn properties_are_readable_after_connecting() {
    let Pair { client, .. } = Pair::new(Protocol::Tcp).await;
    assert_eq!(client.property("reliability").as_deref(), Some("true"));
    assert_eq!(client.property("connPriority").as_deref(), Some("100"));
    client.set_priority(7);
    assert_eq!(client.property("connPriority").as_deref(), Some("7"));
    assert_eq!(client.property("colour"), None);
    assert_eq!(client.state(), ConnectionState::Established);
    assert_eq!(client.paths().len(), 1);
    client.close().await.unwrap();
    assert_eq!(client.state(), ConnectionState::Closed);
    assert!(matches!(client.close().await, Err(Error::Closed)));
}

/// RFC 9622 section 8.1.2: with the scheduler of priorities, what is urgent overtakes what waits.
#[tokio::test]
async fn an_urgent_connection_overtakes_the_others_of_its_group() {
    for protocol in [Protocol::Tcp, Protocol::SctpUdp] {
        let mut properties = properties(protocol);
        properties.connection.conn_scheduler = Scheduler::Priority;
        let system = system();
        let Pair { client, server, listener, .. } = Pair::with(protocol, &system, properties).await;
        let urgent = client.clone().await.unwrap();
        urgent.set_priority(1);
        urgent.send("first").await.unwrap();
        let of_urgent = soon(listener.accept()).await.unwrap();
        soon(of_urgent.receive()).await.unwrap();
        // Nobody reads, until more waits than the transport takes.
        let mut sent = 0;
        while timeout(Duration::from_millis(100), client.send(vec![0; 10_000])).await.is_ok() {
            sent += 1;
        }
        let (result, position) = tokio::join!(urgent.send("urgent"), async {
            let mut before = 0;
            let overtaken = async {
                while soon(server.receive()).await.unwrap().is_some() {
                    before += 1;
                }
            };
            tokio::select! {
                message = of_urgent.receive() => assert_eq!(&message.unwrap().unwrap()[..], b"urgent"),
                () = overtaken => {}
            }
            before
        });
        result.unwrap();
        assert!(position < sent, "{protocol}: behind {position} of {sent}");
    }
}

/// RFC 9622 section 9.1.3.7: over QUIC a message that need not arrive travels in a datagram.
#[tokio::test]
async fn a_message_may_do_without_reliability() {
    for protocol in [Protocol::Quic, Protocol::SctpUdp] {
        let properties = properties(protocol).prefer(Service::PerMsgReliability);
        let Pair { client, server, .. } = Pair::with(protocol, &system(), properties).await;
        let loose = MessageProperties {
            msg_reliable: Inherited(Some(false)),
            msg_ordered: Inherited(Some(false)),
            ..client.message_defaults()
        };
        client.send_with("perhaps", &loose).await.unwrap();
        assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"perhaps", "{protocol}");
        client.send("surely").await.unwrap();
        assert_eq!(&soon(server.receive()).await.unwrap().unwrap()[..], b"surely", "{protocol}");
    }
}

/// RFC 9622 section 7.3.
#[tokio::test]
async fn both_ends_open_one_connection_at_once() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let free =
            || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (one, other) = (free(), free());
        let system = system();
        let new = |from, to| {
            let new = only_with(&system, protocol, properties(protocol));
            new.from(here(from)).to(peer(to))
        };
        let (a, b) = (new(one, other), new(other, one));
        let (a, b) = tokio::join!(soon(a.rendezvous()), soon(b.rendezvous()));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(a.remote_address(), b.local_address());
        a.send("from a").await.unwrap();
        b.send("from b").await.unwrap();
        assert_eq!(&soon(b.receive()).await.unwrap().unwrap()[..], b"from a", "{protocol}");
        assert_eq!(&soon(a.receive()).await.unwrap().unwrap()[..], b"from b", "{protocol}");
    }
}

/// The passive end adds a connection to the group, too (RFC 9622 section 7.4).
#[tokio::test]
async fn the_end_that_accepted_adds_connections() {
    for protocol in [Protocol::Tcp, Protocol::Quic, Protocol::SctpUdp] {
        let Pair { client, server, .. } = Pair::new(protocol).await;
        let added = soon(server.clone()).await.unwrap();
        added.send("from the server").await.unwrap();
        let accepted = soon(client.accept()).await.unwrap();
        let message = soon(accepted.receive()).await.unwrap().unwrap();
        assert_eq!(&message[..], b"from the server", "{protocol}");
        accepted.send("to the server").await.unwrap();
        let message = soon(added.receive()).await.unwrap().unwrap();
        assert_eq!(&message[..], b"to the server", "{protocol}");
        assert!(matches!(server.accept().await, Err(Error::Unsupported { .. })));
    }
}

/// One source has a share of what may wait.
#[tokio::test]
async fn connections_that_nobody_accepts_are_bounded() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let limits = Limits { waiting: 8, ..support::limits() };
        let system = support::builder().limits(limits).build().unwrap();
        let mut properties = properties(protocol);
        properties.connection.isolate_session = true;
        let new = || only_with(&system, protocol, properties.clone());
        let listener = new().from(here(0)).listen().await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..5 {
            let client = new().to(peer(listener.port())).initiate().await.unwrap();
            let _ = client.send("x").await;
            clients.push(client);
        }
        let refused = async {
            while listener.refused() < 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(refused).await;
        // Those that were admitted are accepted, and then there is room again.
        for _ in 0..2 {
            soon(listener.accept()).await.unwrap();
        }
        let client = new().to(peer(listener.port())).initiate().await.unwrap();
        client.send("y").await.unwrap();
        soon(listener.accept()).await.unwrap();
    }
}

/// A group whose one connection is not read leaves the others alone, where the protocol has windows for each.
#[tokio::test]
async fn a_connection_that_is_not_read_delays_no_other() {
    for protocol in [Protocol::Tcp, Protocol::Quic] {
        let Pair { client, server, listener, .. } = Pair::new(protocol).await;
        let other = soon(client.clone()).await.unwrap();
        other.send("open").await.unwrap();
        let of_other = soon(listener.accept()).await.unwrap();
        soon(of_other.receive()).await.unwrap();
        while timeout(Duration::from_millis(200), client.send(vec![0; 50_000])).await.is_ok() {}
        for n in 0..100u8 {
            soon(other.send(vec![n; 1_000])).await.unwrap();
            assert_eq!(soon(of_other.receive()).await.unwrap().unwrap()[0], n, "{protocol}");
        }
        drop(server);
    }
}

#[test]
fn a_thread_without_a_runtime_has_the_same_calls() {
    let system = blocking::System::of(support::builder()).unwrap();
    let new = || {
        let properties = TransportProperties::reliable_message();
        blocking::Preconnection::new(&system, properties, SecurityParameters::disabled())
    };
    let listener = new().from(here(0)).listen().unwrap();
    let port = listener.port();
    let echo = std::thread::spawn(move || {
        let accepted = listener.accept().unwrap();
        while let Some(message) = accepted.receive().unwrap() {
            accepted.send(message.bytes).unwrap();
        }
        accepted.protocol()
    });
    let client = new().to(peer(port)).initiate().unwrap();
    for n in 0..100u8 {
        client.send(vec![n; 2_000]).unwrap();
        assert_eq!(client.receive().unwrap().unwrap()[0], n);
    }
    let protocol = client.protocol();
    client.close().unwrap();
    drop(client);
    assert_eq!(echo.join().unwrap(), protocol);
}

/// Tasks on several threads use connections of one group, each from both of its ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_threads_share_a_group() {
    for protocol in Protocol::ALL.iter().copied().filter(|one| has(*one)) {
        let Pair { client, listener, .. } = Pair::new(protocol).await;
        let echo = tokio::spawn(async move {
            loop {
                let accepted = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    while let Ok(Some(message)) = accepted.receive().await {
                        if accepted.send(message.bytes).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let mut tasks = Vec::new();
        for n in 0..6u8 {
            let one = soon(client.clone()).await.unwrap();
            tasks.push(tokio::spawn(async move {
                for round in 0..100u8 {
                    one.send(vec![n ^ round; 700]).await.unwrap();
                    let message = soon(one.receive()).await.unwrap().unwrap();
                    assert!(message.len() == 700 && message[0] == n ^ round);
                }
                one.close().await.unwrap();
            }));
        }
        for task in tasks {
            soon(task).await.unwrap();
        }
        echo.abort();
    }
}

/// What could be provided and is not carried out is no service, and excludes who requires it.
#[tokio::test]
async fn what_is_not_carried_out_is_not_promised() {
    let wants = properties(Protocol::Tcp).prefer(Service::ZeroRttMsg);
    let Pair { client, .. } = Pair::with(Protocol::Tcp, &system(), wants).await;
    assert!(!client.provides().has(Service::ZeroRttMsg));
    let demands = properties(Protocol::Tcp).require(Service::ZeroRttMsg);
    let new = only_with(&system(), Protocol::Tcp, demands).to(peer(9));
    let text = new.initiate().await.unwrap_err().to_string();
    assert!(text.contains("0-RTT data is not carried"), "{text}");
}

/// What a keyring lacks excludes what needs it, and the error says so.
#[tokio::test]
async fn without_trust_nothing_secure_fits() {
    let system = ringway_services_tokio::System::new();
    let properties = TransportProperties::reliable_message();
    let security = SecurityParameters::new();
    assert_eq!(security.preference, Preference::Require);
    let error = Preconnection::new(&system, properties, security).to(peer(9)).initiate().await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("the keyring has no trust anchor"), "{text}");
}
