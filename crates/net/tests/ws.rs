//! WebSockets over loopback (RFC 7118), against the client of another library.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use futures_util::{SinkExt, StreamExt};
use ringway_net::{ClientCertificates, Identity, Limits, Origins, TlsServer};
use ringway_sansio::{CloseReason, Target, Transport};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use support::{PATIENCE, Server, listen, request, sip};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("in time") })
}

fn start(limits: Limits) -> Server {
    let mut config = listen(&[(Transport::Ws, "127.0.0.1:0")]);
    config.limits = limits;
    Server::start(config)
}

async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    protocol: Option<&'static str>,
) -> Result<WebSocketStream<S>, Error> {
    let mut request = "ws://server.example/any/path?x=y".into_client_request().unwrap();
    if let Some(protocol) = protocol {
        let value = protocol.parse().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", value);
    }
    let (socket, response) = client_async(request, stream).await?;
    assert_eq!(response.headers()["Sec-WebSocket-Protocol"], "sip");
    Ok(socket)
}

async fn connect(addr: SocketAddr) -> WebSocketStream<tokio::net::TcpStream> {
    upgrade(tokio::net::TcpStream::connect(addr).await.unwrap(), Some("sip")).await.unwrap()
}

#[test]
fn one_message_a_frame_text_or_binary() {
    let server = start(Limits::default());
    block_on(async {
        let mut socket = connect(server.addr(0)).await;
        let (flow, _) = server.wait_opened();
        assert_eq!(flow.transport, Transport::Ws);
        let text = String::from_utf8(sip("text", 9)).unwrap();
        socket.send(Message::text(text.clone())).await.unwrap();
        assert_eq!(server.wait_message(), (0, flow, text.clone().into_bytes()));
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
        // Not UTF-8: returned as a binary message. RFC 7118 section 5 needs no Content-Length.
        let binary = b"MESSAGE sip:a@b SIP/2.0\r\n\r\n\xff\xfe".to_vec();
        socket.send(Message::binary(binary.clone())).await.unwrap();
        assert_eq!(server.wait_message().2, binary);
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary(binary));
        let large = sip("large", 60_000);
        socket.send(Message::binary(large.clone())).await.unwrap();
        let echoed = socket.next().await.unwrap().unwrap();
        assert_eq!(echoed.into_data(), Bytes::from(large));
        server.send(0, Target::Flow(flow), 0, b"first");
        server.send(0, Target::Flow(flow), 0, b"second");
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("first"));
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("second"));
        socket.close(None).await.unwrap();
        while socket.next().await.is_some_and(|m| m.is_ok()) {}
        assert_eq!(server.wait_closed(), (flow, CloseReason::Peer));
    });
}

/// RFC 7118 section 6.
#[test]
fn keep_alives_of_both_kinds_are_answered() {
    let server = start(Limits::default());
    block_on(async {
        let mut socket = connect(server.addr(0)).await;
        socket.send(Message::Ping(Bytes::from_static(b"p"))).await.unwrap();
        let pong = socket.next().await.unwrap().unwrap();
        assert_eq!(pong, Message::Pong(Bytes::from_static(b"p")));
        socket.send(Message::text("\r\n\r\n")).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("\r\n"));
    });
}

/// RFC 7118 section 4.1.
#[test]
fn the_subprotocol_is_required() {
    let server = start(Limits::default());
    block_on(async {
        for protocol in [None, Some("chat")] {
            let stream = tokio::net::TcpStream::connect(server.addr(0)).await.unwrap();
            match upgrade(stream, protocol).await {
                Err(Error::Http(response)) => {
                    assert_eq!(response.status(), 400);
                    assert_eq!(response.headers()["Sec-WebSocket-Protocol"], "sip");
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

/// RFC 6455 sections 4.2.2 and 10.2: a browser names the origin of the page that opens a WebSocket.
#[test]
fn a_page_of_another_origin_is_refused() {
    let mut config = listen(&[(Transport::Ws, "127.0.0.1:0")]);
    config.origins = Origins::OfHosts(vec!["example.com".into()]);
    let server = Server::start(config);
    let status = |origin: &str| {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: sip\r\n{origin}\r\n"
        );
        let mut stream = ask(server.addr(0), request.as_bytes());
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8(answer[9..].to_vec()).unwrap()
    };
    // Another origin, a rebound name (DNS rebinding), an opaque origin, and two origins.
    for refused in [
        "Origin: https://other.example\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: https://example.com\r\nOrigin: https://other.example\r\n",
    ] {
        assert_eq!(status(refused), "403", "{refused}");
    }
    server.wait_count("refused_origin", 4);
    for allowed in ["", "Origin: https://phone.example.com\r\n", "Origin: http://localhost:80\r\n"]
    {
        assert_eq!(status(allowed), "101", "{allowed}");
    }
    server.control.set_origins(Origins::Listed(vec!["null".parse().unwrap()]));
    assert_eq!(status("Origin: null\r\n"), "101");
    assert_eq!(status("Origin: https://phone.example.com\r\n"), "403");
    assert_eq!(status(""), "101");
}

fn http(addr: SocketAddr, request: &[u8]) -> String {
    answer(ask(addr, request))
}

fn ask(addr: SocketAddr, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_is_no_upgrade_gets_a_clear_answer() {
    let server = start(Limits::default());
    let get = http(server.addr(0), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(get.starts_with("HTTP/1.1 426 Upgrade Required\r\n"), "{get}");
    assert!(get.ends_with("\r\n\r\nThis is a WebSocket for SIP.\r\n"), "{get}");
    let sip = http(server.addr(0), b"OPTIONS sip:a@b SIP/2.0\r\nVia: x\r\n\r\n");
    assert!(sip.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{sip}");
    let mut long = b"GET / HTTP/1.1\r\nX: ".to_vec();
    long.resize(20_000, b'x');
    let long = http(server.addr(0), &long);
    assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
    server.wait_count("handshake_failed", 3);
}

#[test]
fn a_handshake_that_does_not_come_is_ended() {
    let limits = Limits { handshake: Duration::from_millis(250), ..Limits::default() };
    let server = start(limits);
    // When it is accepted, part of a request is already in the receive buffer.
    let held = server.hold(0);
    let asked = ask(server.addr(0), b"GET / HTTP/1.1\r\n");
    drop(held);
    assert_eq!(answer(asked), "");
    server.wait_count("closed_half_open", 1);
}

/// RFC 7118 section 5: each WebSocket message is one SIP message, so a malformed one affects no other.
#[test]
fn a_malformed_message_is_answered_and_the_connection_serves_on() {
    let server = start(Limits::default());
    block_on(async {
        let mut socket = connect(server.addr(0)).await;
        let large = format!("BYE sip:a SIP/2.0\r\n\r\n{}", "x".repeat(100_000));
        for (bad, status) in [("INVITE sip:a@b\r\nVia: x\r\n\r\n", 400), (&large, 513)] {
            socket.send(Message::text(bad)).await.unwrap();
            let good = String::from_utf8(sip("good", 9)).unwrap();
            socket.send(Message::text(good.clone())).await.unwrap();
            let answer = format!("SIP/2.0 {status} No\r\n\r\n");
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(answer));
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(good));
        }
        server.wait_count("stream_malformed", 2);
        assert_eq!(server.count("closed_malformed"), 0);
    });
}

#[test]
fn a_message_too_large_ends_the_connection() {
    let server = start(Limits::default());
    block_on(async {
        let mut socket = connect(server.addr(0)).await;
        // The server may close the connection before everything is written.
        let _ = socket.send(Message::binary(vec![b'x'; 200_000])).await;
        while socket.next().await.is_some_and(|m| m.is_ok()) {}
        assert_eq!(server.wait_closed().1, CloseReason::Malformed);
    });
}

#[test]
fn a_frame_that_comes_too_slowly_ends_the_connection() {
    let limits = Limits { partial: Duration::from_millis(250), ..Limits::default() };
    let server = start(limits);
    block_on(async {
        let mut socket = connect(server.addr(0)).await;
        socket.send(Message::text("whole")).await.unwrap();
        socket.next().await.unwrap().unwrap();
        // The header of a masked text frame of 100 bytes, and its first bytes.
        let stream = socket.get_mut();
        stream.write_all(&[0x81, 0x80 | 100, 1, 2, 3, 4, 0, 0, 0]).await.unwrap();
        while socket.next().await.is_some_and(|m| m.is_ok()) {}
        drop(socket);
        assert_eq!(server.wait_closed().1, CloseReason::Slow);
    });
}

#[test]
fn a_slow_reader_is_cut_off() {
    let server = start(Limits { write_queue: 200_000, ..Limits::default() });
    block_on(async {
        let socket = connect(server.addr(0)).await;
        let (flow, _) = server.wait_opened();
        let message = request("BYE", "large", 50_000);
        for report in 1..=2_000 {
            server.send(0, Target::Flow(flow), report, &message);
            if server.count("closed_slow_reader") > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        assert_eq!(server.wait_closed(), (flow, CloseReason::SlowReader));
        drop(socket);
    });
}

#[test]
fn a_secure_websocket() {
    let made = rcgen::generate_simple_self_signed(vec!["ws.example".to_owned()]).unwrap();
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let identity = Identity::from_pem(cert.as_bytes(), key.as_bytes(), "test").unwrap();
    let tls = TlsServer::new(&[identity], &ClientCertificates::NotAsked).unwrap();
    let mut config = listen(&[(Transport::Wss, "127.0.0.1:0")]);
    config.tls_server = Some(Arc::new(tls));
    let server = Server::start(config);
    block_on(async {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = tokio::net::TcpStream::connect(server.addr(0)).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("ws.example").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let mut socket = upgrade(stream, Some("sip")).await.unwrap();
        let text = String::from_utf8(sip("secure", 20)).unwrap();
        socket.send(Message::text(text.clone())).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
        assert_eq!(server.wait_message().1.transport, Transport::Wss);
    });
}
