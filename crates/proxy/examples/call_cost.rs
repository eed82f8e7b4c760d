//! The cost of one proxied call in the core alone: no sockets, no system calls.
//!
//! `cargo run --release -p ringway-proxy --example call_cost [CALLS]` prints nanoseconds a call
//! (INVITE, 100, 180, 200, ACK, BYE, 200 with Record-Route: six messages in, seven out).
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use ringway_proxy::config::{Auth, Config, Domain, Limits, Mode};
use ringway_proxy::keys::Secret;
use ringway_proxy::location::{BindingView, CommitTag, LocationStore, MemoryStore};
use ringway_proxy::shared::Shared;
use ringway_proxy::{Core, Paths, World};
use ringway_sansio::{Duration, Flow, FlowId, Listener, Outbox, SplitMix, Time, Transport};
use ringway_sip::digest::{Algorithm, Ha1};
use std::net::SocketAddr;
use std::sync::Arc;

struct Nobody;

impl ringway_proxy::auth::Users for Nobody {
    fn ha1(&self, _: &[u8], _: &[u8], _: Algorithm) -> Option<Ha1> {
        None
    }
    fn exists(&self, _: &[u8], _: &[u8]) -> bool {
        false
    }
}

struct OneSocket(SocketAddr);

impl Paths for OneSocket {
    fn local_for(&mut self, _: Transport, _: SocketAddr) -> Option<SocketAddr> {
        Some(self.0)
    }
    fn datagrams_at(&mut self, local: SocketAddr) -> Option<FlowId> {
        (local == self.0).then_some(FlowId::new(0, 0))
    }
}

fn config(local: SocketAddr) -> Config {
    Config {
        domains: vec![Domain { name: "example.org".into(), aliases: vec![], mode: Mode::Proxy }],
        listeners: vec![Listener { transport: Transport::Udp, addr: local }],
        addresses: vec![],
        auth: Auth {
            enabled: false,
            algorithms: vec![],
            auth_int: false,
            nonce_lifetime: Duration::from_secs(300),
            any_from: false,
        },
        trusted: vec![],
        mesh: None,
        nodes: Default::default(),
        routes: Default::default(),
        record_route: true,
        timers: Default::default(),
        timer_c: Duration::from_secs(185),
        registrar: Default::default(),
        limits: Limits { requests_per_source: 0, requests: 0, max_forks: 10 },
        secret: Secret::new(&[7; 32]),
    }
}

/// Returns the value of the first header field with this name.
fn header<'a>(message: &'a str, name: &str) -> &'a str {
    let at = message.find(&format!("\r\n{name}: ")).unwrap() + name.len() + 4;
    &message[at..at + message[at..].find("\r\n").unwrap()]
}

fn vias(message: &str) -> String {
    message.split("\r\n").filter(|l| l.starts_with("Via: ")).map(|l| format!("{l}\r\n")).collect()
}

fn main() {
    let calls: u32 = std::env::args().nth(1).map_or(200_000, |a| a.parse().unwrap());
    let local: SocketAddr = "127.0.0.1:5060".parse().unwrap();
    let flow = |port| Flow {
        id: FlowId::new(0, 0),
        transport: Transport::Udp,
        local,
        remote: ([127, 0, 0, 1], port).into(),
    };
    let (alice, bob) = (flow(6000), flow(7000));
    let mut now = Time::from_secs(1_000_000);
    let random = SplitMix::new(1);
    let store = Arc::new(MemoryStore::new([3; 16]));
    store.update(b"sip:bob@example.org", now, CommitTag { worker: 0, id: 0 }, &mut |edit| {
        edit.put(&BindingView {
            contact: b"sip:bob@127.0.0.1:7000",
            params: b"",
            q: 1000,
            expires: now + Duration::from_secs(1_000_000),
            path: b"",
            instance: b"",
            reg_id: 0,
            flow: Some(bob),
            call_id: b"reg",
            cseq: 1,
            outbound: false,
            nat: false,
            epoch: 0,
            first_cseq: 0,
        })
        .unwrap();
        edit.commit();
    });
    let world = World {
        store,
        users: Arc::new(Nobody),
        random: Box::new(random),
        paths: Box::new(OneSocket(local)),
        workers: 1,
        shared: Arc::new(Shared::new(&Secret::new(&[7; 32]))),
        media: None,
    };
    let mut core = Core::new(Arc::new(config(local)), 0, world, now);
    let mut out = Outbox::new();
    let sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 6004 RTP/AVP 8\r\na=rtpmap:8 PCMA/8000\r\n";
    let mut spent = Duration::ZERO;
    let mut feed = |now: Time, flow: &Flow, text: &str| -> Vec<String> {
        out.clear();
        let begin = std::time::Instant::now();
        core.handle_message(now, flow, text.as_bytes(), &mut out);
        spent += begin.elapsed();
        out.iter().map(|(_, b)| String::from_utf8(b.to_vec()).unwrap()).collect()
    };
    for n in 0..calls {
        now += Duration::from_micros(100);
        let request = |method: &str, uri: &str, route: &str, body: &str| {
            format!(
                "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:6000;branch=z9hG4bK{method}{n};rport\r\n\
                 Max-Forwards: 70\r\nFrom: \"Alice\" <sip:alice@example.org>;tag=a{n}\r\nTo: <sip:bob@example.org>{}\r\n\
                 Call-ID: {n}-call@127.0.0.1\r\nCSeq: {} {method}\r\nContact: <sip:alice@127.0.0.1:6000>\r\n{route}\
                 User-Agent: example\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                if route.is_empty() { "" } else { ";tag=b" },
                if method == "BYE" { 2 } else { 1 },
                body.len(),
            )
        };
        let sent = feed(now, &alice, &request("INVITE", "sip:bob@example.org", "", sdp));
        assert_eq!(sent.len(), 2, "{sent:?}");
        let invite = &sent[1];
        let answer = |to: &str, status: &str, rr: bool| {
            format!(
                "SIP/2.0 {status}\r\n{}{}From: {}\r\nTo: <sip:bob@example.org>;tag=b\r\nCall-ID: {}\r\nCSeq: {}\r\n\
                 Contact: <sip:bob@127.0.0.1:7000>\r\nContent-Length: 0\r\n\r\n",
                vias(to),
                if rr {
                    format!("Record-Route: {}\r\n", header(to, "Record-Route"))
                } else {
                    String::new()
                },
                header(to, "From"),
                header(to, "Call-ID"),
                header(to, "CSeq"),
            )
        };
        assert_eq!(feed(now, &bob, &answer(invite, "180 Ringing", true)).len(), 1);
        let answered = feed(now, &bob, &answer(invite, "200 OK", true));
        assert_eq!(answered.len(), 1);
        let route = format!("Route: {}\r\n", header(&answered[0], "Record-Route"));
        assert_eq!(
            feed(now, &alice, &request("ACK", "sip:bob@127.0.0.1:7000", &route, "")).len(),
            1
        );
        let sent = feed(now, &alice, &request("BYE", "sip:bob@127.0.0.1:7000", &route, ""));
        assert_eq!(feed(now, &bob, &answer(&sent[0], "200 OK", false)).len(), 1);
    }
    let tables = core.tables();
    let mut timers = Duration::ZERO;
    for _ in 0..400 {
        now += Duration::from_millis(500);
        let mut out = Outbox::new();
        let begin = std::time::Instant::now();
        core.handle_timeout(now, &mut out);
        timers += begin.elapsed();
        assert!(out.is_empty());
    }
    println!("{calls} calls: {} ns a call", (spent + timers).as_nanos() / u128::from(calls));
    println!("of which timers {} ns", timers.as_nanos() / u128::from(calls));
    println!("at the end of the load: {tables:?}\nafterwards: {:?}", core.tables());
}
