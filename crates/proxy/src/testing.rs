//! Helpers that the tests of this crate share.

use crate::config::{Auth, Config, Domain, Limits, Mode};
use crate::keys::Secret;
use ringway_sansio::{Duration, Flow, FlowId, Listener, Transport};

/// Returns a configuration: one domain, example.org, without digest.
pub(crate) fn config() -> Config {
    let listener = |transport, port| Listener { transport, addr: ([192, 0, 2, 1], port).into() };
    Config {
        domains: vec![Domain { name: "example.org".into(), aliases: vec![], mode: Mode::Proxy }],
        listeners: vec![listener(Transport::Udp, 5060), listener(Transport::Tcp, 5060)],
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

/// Returns the flow of a phone at 198.51.100.7:5060 over UDP.
pub(crate) fn flow() -> Flow {
    Flow {
        id: FlowId::new(0, 0),
        transport: Transport::Udp,
        local: ([192, 0, 2, 1], 5060).into(),
        remote: ([198, 51, 100, 7], 5060).into(),
    }
}

/// Returns a plain request from alice to bob at example.org.
pub(crate) fn request(method: &str) -> String {
    format!(
        "{method} sip:bob@example.org SIP/2.0\r\n\
         Via: SIP/2.0/UDP 198.51.100.7:5060;branch=z9hG4bKabc\r\n\
         From: <sip:alice@example.org>;tag=a\r\n\
         To: <sip:bob@example.org>\r\n\
         Call-ID: call-1\r\n\
         CSeq: 1 {method}\r\n\
         Contact: <sip:alice@198.51.100.7:5060>\r\n\
         Max-Forwards: 70\r\n\
         Content-Length: 0\r\n\r\n"
    )
}
