//! A worker's core and what the world does to it, step by step: messages on several flows, answers
//! to what was sent, lost connections, late names, time. It must not panic, must send nothing that
//! is not SIP, and must forget every transaction in the end.
//!
//! A step is an octet that says what happens, one that says to which, a length in two octets, high
//! one first, and so many octets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_proxy::auth::Users;
use ringway_proxy::config::{Auth, Config, Domain, Limits, Mode, Network};
use ringway_proxy::keys::Secret;
use ringway_proxy::location::{BindingView, CommitTag, LocationStore, MemoryStore};
use ringway_proxy::routes::{DomainMatch, NextHop, Rewrite, RouteTable, Rule, UserMatch};
use ringway_proxy::shared::Shared;
use ringway_proxy::{Core, Event, KeptMessage, Paths, ResolveId, World};
use ringway_sansio::{Duration, Flow, FlowId, Hop, Listener, Outbox, SplitMix, Time, Transport};
use ringway_sip::digest::{Algorithm, Ha1};
use ringway_sip::{message, write};
use std::net::SocketAddr;
use std::sync::Arc;

/// Steps of one run.
const MAX_STEPS: usize = 64;

/// Sent messages that can be answered or reported as failed.
const MAX_SENT: usize = 64;

/// Everybody there is: transport, port, serial of the connection. The second is a trusted peer.
const FLOWS: [(Transport, [u8; 4], u16, u64); 6] = [
    (Transport::Udp, [198, 51, 100, 1], 5060, 0),
    (Transport::Udp, [192, 0, 2, 50], 5060, 0),
    (Transport::Udp, [203, 0, 113, 2], 5060, 0),
    (Transport::Tcp, [198, 51, 100, 30], 40_001, 30),
    (Transport::Ws, [198, 51, 100, 40], 40_002, 40),
    (Transport::Tls, [198, 51, 100, 41], 40_003, 41),
];

fn flow(i: u8) -> Flow {
    let (transport, ip, port, serial) = FLOWS[i as usize % FLOWS.len()];
    let id = FlowId::new(0, serial);
    Flow { id, transport, local: local(transport), remote: (ip, port).into() }
}

fn local(transport: Transport) -> SocketAddr {
    ([192, 0, 2, 1], transport.default_port()).into()
}

struct Ways;

impl Paths for Ways {
    fn local_for(&mut self, transport: Transport, _remote: SocketAddr) -> Option<SocketAddr> {
        (transport != Transport::Sctp).then(|| local(transport))
    }
    fn datagrams_at(&mut self, ours: SocketAddr) -> Option<FlowId> {
        (ours == local(Transport::Udp)).then(|| FlowId::new(0, 0))
    }
}

struct Alice;

impl Users for Alice {
    fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
        self.exists(user, realm).then(|| Ha1::new(algorithm, user, realm, b"secret"))
    }
    fn exists(&self, user: &[u8], _realm: &[u8]) -> bool {
        user == b"alice" || user == b"bob"
    }
}

fn config() -> Config {
    let domain = |name: &str, mode| Domain { name: name.into(), aliases: vec![], mode };
    let transports = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws];
    let listener = |transport| Listener { transport, addr: local(transport) };
    Config {
        domains: vec![
            domain("example.org", Mode::Proxy),
            domain("stateless.example.org", Mode::Stateless),
            domain("redirect.example.org", Mode::Redirect),
        ],
        listeners: transports.into_iter().map(listener).collect(),
        addresses: vec![],
        auth: Auth {
            enabled: true,
            algorithms: vec![Algorithm::Md5, Algorithm::Sha256],
            auth_int: true,
            nonce_lifetime: Duration::from_secs(300),
            any_from: false,
        },
        trusted: vec![Network { addr: [192, 0, 2, 50].into(), prefix: 32 }],
        mesh: None,
        nodes: Default::default(),
        routes: RouteTable {
            rules: vec![Rule {
                domain: DomainMatch::Own,
                user: UserMatch::Pattern("0ZX.".into()),
                rewrite: Rewrite { strip: 1, prepend: "+49".into(), domain: None },
                next_hops: ["sip:192.0.2.60", "sip:gateway.example.net"]
                    .map(|uri| NextHop { uri: uri.into(), priority: 1, weight: 1 })
                    .into(),
                reject: None,
                open: false,
                shared: None,
            }],
        },
        record_route: true,
        timers: Default::default(),
        timer_c: Duration::from_secs(185),
        registrar: Default::default(),
        limits: Limits { requests_per_source: 0, requests: 0, max_forks: 4 },
        secret: Secret::new(&[7; 32]),
    }
}

/// Bob has three phones, one of them behind two flows, one behind a name.
fn bind(store: &MemoryStore, now: Time) {
    for domain in ["example.org", "stateless.example.org", "redirect.example.org"] {
        let base = BindingView {
            contact: b"sip:bob@203.0.113.2:5060",
            params: b"",
            q: 1000,
            expires: now + Duration::from_secs(3600),
            path: b"",
            instance: b"",
            reg_id: 0,
            flow: None,
            call_id: b"r",
            cseq: 1,
            outbound: false,
            nat: false,
            epoch: 0,
            first_cseq: 0,
        };
        let (instance, outbound) = (&b"urn:uuid:1"[..], true);
        let (tcp, ws) = (Some(flow(3)), Some(flow(4)));
        let bindings = [
            base,
            BindingView { contact: b"sip:bob@phone.example.net", q: 500, ..base },
            BindingView {
                contact: b"sip:b@10.0.0.7",
                instance,
                reg_id: 1,
                flow: tcp,
                outbound,
                ..base
            },
            BindingView {
                contact: b"sip:b@10.0.0.8",
                instance,
                reg_id: 2,
                flow: ws,
                outbound,
                ..base
            },
        ];
        let aor = format!("sip:bob@{domain}");
        let tag = CommitTag { worker: 0, id: 0 };
        store.update(aor.as_bytes(), now, tag, &mut |edit| {
            for binding in &bindings {
                edit.put(binding).expect("a small record");
            }
            edit.commit();
        });
    }
}

struct Run {
    core: Core,
    now: Time,
    out: Outbox,
    /// What was sent last: to which flow's peer, under which number, and the message.
    sent: Vec<(Flow, u64, Vec<u8>)>,
    open: Vec<ResolveId>,
}

impl Run {
    fn step(&mut self, what: u8, which: u8, bytes: &[u8]) {
        match what % 8 {
            0..=2 => self.core.handle_message(self.now, &flow(which), bytes, &mut self.out),
            3 => self.answer(which, bytes),
            4 => self.pass(Duration::from_millis(bytes.len() as u64 * 37 + u64::from(which))),
            5 => {
                if let Some(&(_, report, _)) = self.sent.iter().rev().nth(which as usize % 8) {
                    self.core.handle_not_sent(self.now, report, &mut self.out);
                }
            }
            6 if !self.open.is_empty() => {
                let id = self.open.remove(which as usize % self.open.len());
                self.resolve(id, bytes.len() % 3);
            }
            6 => self.core.handle_flow_closed(self.now, flow(which).id),
            7 if which >= 128 => {
                let (to, from) = (b"sip:bob@example.org", b"sip:alice@example.org");
                let kept = KeptMessage { to, from, octets: bytes };
                self.core.deliver(self.now, which.into(), &kept, &mut self.out);
            }
            _ => {
                let flow = flow(which);
                self.core.handle_handed_over(self.now, &flow, bytes, &mut self.out);
            }
        }
        self.collect();
    }

    /// Answers one of the requests sent last. The first octet says with what status; the others are
    /// put among the header fields as they are.
    fn answer(&mut self, which: u8, bytes: &[u8]) {
        const STATUSES: [u16; 16] =
            [100, 180, 183, 199, 200, 202, 302, 401, 407, 408, 430, 486, 487, 503, 600, 603];
        let Some((flow, _, request)) = self.sent.iter().rev().nth(which as usize % 8).cloned()
        else {
            return;
        };
        let (first, extra) = bytes.split_first().unwrap_or((&0, &[]));
        let Ok(request) = message::parse(&request) else { return };
        let mut buf = Vec::new();
        let status = STATUSES[*first as usize % 16];
        write::response(&mut buf, &request, None, status, "", Some(b"t"), extra, b"");
        self.core.handle_message(self.now, &flow, &buf, &mut self.out);
    }

    fn resolve(&mut self, id: ResolveId, count: usize) {
        let hop =
            |transport, port| Hop { transport, addr: ([203, 0, 113, 9], port).into(), name: None };
        let hops = [hop(Transport::Udp, 5060), hop(Transport::Tcp, 5070)];
        self.core.handle_resolved(self.now, id, &hops[..count], &mut self.out);
    }

    fn is_idle(&self) -> bool {
        let t = self.core.tables();
        t.server_transactions + t.client_transactions + t.contexts + t.resolving == 0
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        let mut stuck = 0;
        while let Some(next) = self.core.poll_timeout().filter(|&next| next <= end) {
            stuck = if next <= self.now { stuck + 1 } else { 0 };
            assert!(stuck < 1000, "the timers stand still");
            self.now = self.now.max(next);
            self.core.handle_timeout(self.now, &mut self.out);
            self.collect();
        }
        self.now = end;
    }

    fn collect(&mut self) {
        for (send, bytes) in self.out.iter() {
            message::parse(bytes).expect("what is sent is SIP");
            let (transport, remote) = (send.to.transport(), send.to.remote());
            let id = FlowId::new(0, u64::from(!transport.is_datagram()) * 99);
            let flow = Flow { id, transport, local: local(transport), remote };
            self.sent.push((flow, send.report, bytes.to_vec()));
        }
        self.out.clear();
        let old = self.sent.len().saturating_sub(MAX_SENT);
        self.sent.drain(..old);
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Resolve { id, .. } => self.open.push(id),
                Event::HandOver { worker, .. } => assert_ne!(worker, 0, "handed to itself"),
                _ => {}
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let now = Time::from_secs(1_700_000_000);
    let store = Arc::new(MemoryStore::new([3; 16]));
    bind(&store, now);
    let world = World {
        store,
        users: Arc::new(Alice),
        random: Box::new(SplitMix::new(1)),
        paths: Box::new(Ways),
        workers: 2,
        shared: Arc::new(Shared::new(&Secret::new(&[7; 32]))),
        media: None,
    };
    let core = Core::new(Arc::new(config()), 0, world, now);
    let mut run = Run { core, now, out: Outbox::new(), sent: Vec::new(), open: Vec::new() };
    let mut rest = data;
    for _ in 0..MAX_STEPS {
        let [what, which, high, low, tail @ ..] = rest else { break };
        let length = (usize::from(*high) << 8 | usize::from(*low)).min(tail.len());
        run.step(*what, *which, &tail[..length]);
        rest = &tail[length..];
    }
    // Timer C, its CANCEL, and every hop that may still be tried after them.
    for _ in 0..300 {
        while let Some(id) = run.open.pop() {
            run.resolve(id, 0);
            run.collect();
        }
        if run.is_idle() {
            return;
        }
        run.pass(Duration::from_secs(10));
    }
    panic!("not everything is forgotten: {:?}", run.core.tables());
});
