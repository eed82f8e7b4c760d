//! The proxy as a program of the virtual world.

use ringway_proxy::auth::Users;
use ringway_proxy::config::{Auth, Config, Domain, Limits, Mode};
use ringway_proxy::keys::Secret;
use ringway_proxy::location::MemoryStore;
use ringway_proxy::shared::Shared;
use ringway_proxy::{Core, Event, Paths, World as Surroundings};
use ringway_sansio::{
    CloseReason, Duration, Flow, FlowId, Hop, Listener, Malformed, Outbox, Program, Random, Time,
    Transport,
};
use ringway_sip::digest::{Algorithm, Ha1};
use std::net::SocketAddr;
use std::sync::Arc;

/// The domain of a proxy that is alone.
pub(super) const DOMAIN: &str = "example.org";

/// One worker of the proxy.
pub(super) struct Proxy {
    core: Core,
    /// The server of all other domains.
    other: Option<Hop>,
}

impl Proxy {
    /// Creates a proxy and registrar without authentication that stays in the path of dialogs. Requests to other domains go
    /// to `other`.
    pub(super) fn new(
        local: SocketAddr,
        transport: Transport,
        domain: &str,
        other: Option<SocketAddr>,
        mut random: impl Random + Send + 'static,
    ) -> Self {
        let mut octets = [0; 32];
        random.fill(&mut octets);
        let secret = Secret::new(&octets);
        let mut key = [0; 16];
        random.fill(&mut key);
        let config = Config {
            domains: vec![Domain { name: domain.into(), aliases: Vec::new(), mode: Mode::Proxy }],
            listeners: vec![Listener { transport, addr: local }],
            addresses: Vec::new(),
            auth: Auth {
                enabled: false,
                algorithms: vec![Algorithm::Md5],
                auth_int: false,
                nonce_lifetime: Duration::from_secs(300),
                any_from: false,
            },
            trusted: Vec::new(),
            mesh: None,
            nodes: Default::default(),
            routes: Default::default(),
            record_route: true,
            timers: Default::default(),
            timer_c: Duration::from_secs(185),
            registrar: Default::default(),
            limits: Limits { requests_per_source: 0, requests: 0, max_forks: 10 },
            secret: secret.clone(),
        };
        let surroundings = Surroundings {
            store: Arc::new(MemoryStore::new(key)),
            users: Arc::new(NoUsers),
            random: Box::new(random),
            paths: Box::new(HostPath(local)),
            workers: 1,
            shared: Arc::new(Shared::new(&secret)),
            media: None,
        };
        let other = other.map(|addr| Hop { transport, addr, name: None });
        Proxy { core: Core::new(Arc::new(config), 0, surroundings, Time::ZERO), other }
    }

    /// Carries out the requests of the core. All addresses are literal, and there is one other domain at most.
    fn answer(&mut self, now: Time, out: &mut Outbox) {
        while let Some(event) = self.core.poll_event() {
            if let Event::Resolve { id, .. } = event {
                self.core.handle_resolved(now, id, self.other.as_slice(), out);
            }
        }
    }
}

impl Program for Proxy {
    fn message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        self.core.handle_message(now, flow, bytes, out);
        self.answer(now, out);
    }

    fn malformed(
        &mut self,
        now: Time,
        flow: &Flow,
        head: &[u8],
        error: &Malformed,
        out: &mut Outbox,
    ) {
        self.core.handle_malformed(now, flow, head, error.status, error.reason, out);
        self.answer(now, out);
    }

    fn closed(&mut self, now: Time, flow: &Flow, _: CloseReason, out: &mut Outbox) {
        self.core.handle_flow_closed(now, flow.id);
        self.answer(now, out);
    }

    fn not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        self.core.handle_not_sent(now, report, out);
        self.answer(now, out);
    }

    fn cut_off(&mut self, now: Time, report: u64, out: &mut Outbox) {
        self.core.handle_cut_off(now, report, out);
        self.answer(now, out);
    }

    fn timeout(&mut self, now: Time, out: &mut Outbox) {
        self.core.handle_timeout(now, out);
        self.answer(now, out);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout()
    }
}

/// The network path of a host with one address.
struct HostPath(SocketAddr);

impl Paths for HostPath {
    fn local_for(&mut self, _: Transport, _: SocketAddr) -> Option<SocketAddr> {
        Some(self.0)
    }

    fn datagrams_at(&mut self, local: SocketAddr) -> Option<FlowId> {
        (local == self.0).then_some(FlowId::new(0, 0))
    }
}

/// An empty table of users: no request is authenticated.
struct NoUsers;

impl Users for NoUsers {
    fn ha1(&self, _: &[u8], _: &[u8], _: Algorithm) -> Option<Ha1> {
        None
    }

    fn exists(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}
