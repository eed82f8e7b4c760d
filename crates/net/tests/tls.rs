//! TLS over loopback (RFC 3261 section 26, RFC 5922, RFC 5923).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use ringway_net::{ClientCertificates, Config, Limits, TlsClient, TlsServer};
use ringway_sansio::{CloseReason, Target, Transport};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use support::authority::{Authority, tls_server};
use support::{PATIENCE, Server, listen, sip};

fn server(tls: &Arc<TlsServer>, limits: Limits) -> Config {
    let mut config = listen(&[(Transport::Tls, "127.0.0.1:0")]);
    config.tls_server = Some(tls.clone());
    config.limits = limits;
    config
}

fn caller(client: Arc<TlsClient>) -> Server {
    let mut config = listen(&[(Transport::Udp, "127.0.0.1:0")]);
    config.tls_client = Some(client);
    Server::start_with(config, |p| p.echo = false)
}

fn to(remote: SocketAddr, name: Option<&str>) -> Target {
    Target::Peer { transport: Transport::Tls, remote, name: name.map(Into::into) }
}

#[test]
fn messages_pass_and_a_wrong_name_is_refused() {
    let ca = Authority::new();
    let answering =
        Server::start(server(&tls_server(&ca.identity("a.example")), Limits::default()));
    let calling = caller(ca.client(None));
    let remote = answering.addr(0);
    let large = sip("large", 50_000);
    for message in [sip("one", 3), large] {
        calling.send(0, to(remote, Some("a.example")), 1, &message);
        assert_eq!(answering.wait_message().2, message);
        assert_eq!(calling.wait_message().2, message);
    }
    calling.wait_count("connected", 1);
    // The open connection was verified for another name and is not used for this one.
    calling.send(0, to(remote, Some("b.example")), 2, &sip("two", 3));
    assert_eq!(calling.wait_not_sent(), 2);
    calling.send(0, to(remote, None), 3, &sip("three", 3));
    assert_eq!(calling.wait_not_sent(), 3);
    calling.wait_count("connected", 1);
    calling.wait_count("connect_failed", 2);
}

#[test]
fn the_peers_domains_are_told() {
    let ca = Authority::new();
    let answering =
        Server::start(server(&tls_server(&ca.identity("a.example")), Limits::default()));
    let calling = caller(ca.client(None));
    calling.send(0, to(answering.addr(0), Some("A.example")), 1, &sip("one", 3));
    let (flow, peer) = calling.wait_opened();
    assert_eq!((&*peer.domains, peer.inbound), (&["a.example".into()][..], false));
    assert_eq!(flow.transport, Transport::Tls);
    let (_, peer) = answering.wait_opened();
    assert_eq!((peer.domains.len(), peer.inbound), (0, true));
}

#[test]
fn an_address_in_the_certificate_will_do_where_no_name_is_known() {
    let ca = Authority::new();
    let answering =
        Server::start(server(&tls_server(&ca.identity("127.0.0.1")), Limits::default()));
    let calling = caller(ca.client(None));
    calling.send(0, to(answering.addr(0), None), 1, &sip("one", 3));
    assert_eq!(answering.wait_message().2, sip("one", 3));
}

#[test]
fn certificates_change_while_running() {
    let ca = Authority::new();
    let tls = tls_server(&ca.identity("old.example"));
    let answering = Server::start(server(&tls, Limits::default()));
    let calling = caller(ca.client(None));
    let remote = answering.addr(0);
    calling.send(0, to(remote, Some("old.example")), 1, &sip("a", 1));
    assert_eq!(answering.wait_message().2, sip("a", 1));
    tls.replace(&[ca.identity("new.example")], &ClientCertificates::NotAsked).unwrap();
    // The open connection stays; a new one presents the new certificate.
    calling.send(0, to(remote, Some("old.example")), 1, &sip("b", 1));
    assert_eq!(answering.wait_message().2, sip("b", 1));
    calling.send(0, to(remote, Some("new.example")), 1, &sip("c", 1));
    assert_eq!(answering.wait_message().2, sip("c", 1));
    calling.wait_count("connected", 2);
    assert!(tls.replace(&[], &ClientCertificates::NotAsked).is_err());
    // Trusted roots are replaced in the same way.
    let other = Authority::new();
    tls.replace(&[other.identity("third.example")], &ClientCertificates::NotAsked).unwrap();
    calling.send(0, to(remote, Some("third.example")), 7, &sip("d", 1));
    assert_eq!(calling.wait_not_sent(), 7);
}

/// RFC 5923 sections 5 and 8.2.
#[test]
fn an_alias_turns_a_proved_connection_round() {
    let ca = Authority::new();
    let tls = TlsServer::new(
        &[ca.identity("p2.example")],
        &ClientCertificates::Optional(ca.roots.clone()),
    );
    let mut config = server(&Arc::new(tls.unwrap()), Limits::default());
    config.workers = 2;
    config.tls_client = Some(ca.client(None));
    let p2 = Server::start_with(config, |p| p.echo = false);
    let p1 = caller(ca.client(Some(&ca.identity("p1.example"))));
    p1.send(0, to(p2.addr(0), Some("p2.example")), 1, &sip("invite", 1));
    let (worker, flow, _) = p2.wait_message();
    // As the top Via would name: the flow's address, and the port at which p1 listens.
    let advertised = SocketAddr::new(flow.remote.ip(), 5061);
    assert!(p2.control.alias(&flow, advertised));
    for worker in [worker, 1 - worker] {
        p2.send(worker as usize, to(advertised, Some("p1.example")), 2, &sip("back", 1));
        assert_eq!(p1.wait_message().2, sip("back", 1));
    }
    p2.wait_count("connected", 0);
    // A name that the certificate does not prove needs a separate connection.
    p2.send(0, to(advertised, Some("p3.example")), 3, &sip("no", 1));
    assert_eq!(p2.wait_not_sent(), 3);
    // A peer without a certificate gets no alias.
    let anonymous = caller(ca.client(None));
    anonymous.send(0, to(p2.addr(0), Some("p2.example")), 1, &sip("anon", 1));
    let (_, flow, _) = p2.wait_message();
    assert!(!p2.control.alias(&flow, SocketAddr::new(flow.remote.ip(), 5099)));
}

#[test]
fn a_required_certificate_keeps_others_out() {
    let ca = Authority::new();
    let tls = TlsServer::new(
        &[ca.identity("a.example")],
        &ClientCertificates::Required(ca.roots.clone()),
    );
    let answering = Server::start(server(&Arc::new(tls.unwrap()), Limits::default()));
    let anonymous = caller(ca.client(None));
    anonymous.send(0, to(answering.addr(0), Some("a.example")), 1, &sip("x", 1));
    // With TLS 1.3 the client finishes before the server has checked its (missing) certificate.
    let (_, reason) = anonymous.wait_closed();
    assert!(matches!(reason, CloseReason::Peer | CloseReason::Broken), "{reason:?}");
    let known = caller(ca.client(Some(&ca.identity("b.example"))));
    known.send(0, to(answering.addr(0), Some("a.example")), 1, &sip("x", 1));
    let (_, peer) = answering.wait_opened();
    assert_eq!(&*peer.domains, &["b.example".into()]);
    assert_eq!(answering.wait_message().2, sip("x", 1));
}

#[test]
fn a_handshake_that_does_not_come_is_ended() {
    let ca = Authority::new();
    let limits = Limits { handshake: Duration::from_millis(250), ..Limits::default() };
    let server = Server::start(server(&tls_server(&ca.identity("a.example")), limits));
    let mut silent = TcpStream::connect(server.addr(0)).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 10]).unwrap(), 0);
    server.wait_count("closed_half_open", 1);
    server.wait_count("connections", 0);
}
