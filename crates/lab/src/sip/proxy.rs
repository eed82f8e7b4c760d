//! The proxy as a program of the virtual world.

use ringway_proxy::auth::Users;
use ringway_proxy::config::{Auth, Config, Domain, Limits, Listener, Mode};
use ringway_proxy::location::MemoryStore;
use ringway_proxy::shared::Shared;
use ringway_proxy::{Core, Event, Path, Paths, World as Surroundings};
use ringway_sansio::{Duration, Flow, FlowId, Outbox, Random, Time, Transport};
use ringway_sim::flows::Program;
use ringway_sip::digest::{Algorithm, Ha1};
use std::net::SocketAddr;
use std::sync::Arc;

/// The domain of the proxy.
pub(super) const DOMAIN: &str = "example.org";

/// One worker of the proxy.
pub(super) struct Proxy {
    core: Core,
}

impl Proxy {
    /// Creates a proxy and registrar without authentication that stays in the path of dialogs.
    pub(super) fn new(
        local: SocketAddr,
        transport: Transport,
        mut random: impl Random + Send + 'static,
    ) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        let mut key = [0; 16];
        random.fill(&mut key);
        let config = Config {
            domains: vec![Domain { name: DOMAIN.into(), aliases: Vec::new(), mode: Mode::Proxy }],
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
            routes: Default::default(),
            record_route: true,
            timers: Default::default(),
            timer_c: Duration::from_secs(185),
            registrar: Default::default(),
            limits: Limits { requests_per_source: 0, requests: 0, max_forks: 10 },
            secret,
        };
        let surroundings = Surroundings {
            store: Arc::new(MemoryStore::new(key)),
            users: Arc::new(NoUsers),
            random: Box::new(random),
            paths: Box::new(HostPath(local)),
            workers: 1,
            shared: Arc::new(Shared::new(&secret)),
        };
        Proxy { core: Core::new(Arc::new(config), 0, surroundings, Time::ZERO) }
    }

    /// Carries out the requests of the core. Names are never resolved: all addresses are literal.
    fn answer(&mut self, now: Time, out: &mut Outbox) {
        while let Some(event) = self.core.poll_event() {
            if let Event::Resolve { id, .. } = event {
                self.core.handle_resolved(now, id, &[], out);
            }
        }
    }
}

impl Program for Proxy {
    fn handle_message(&mut self, now: Time, flow: &Flow, bytes: &[u8], out: &mut Outbox) {
        self.core.handle_message(now, flow, bytes, out);
        self.answer(now, out);
    }

    fn handle_not_sent(&mut self, now: Time, report: u64, out: &mut Outbox) {
        self.core.handle_not_sent(now, report, out);
        self.answer(now, out);
    }

    fn handle_flow_closed(&mut self, now: Time, flow: FlowId) {
        self.core.handle_flow_closed(now, flow);
    }

    fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
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
    fn path(&mut self, transport: Transport, _: SocketAddr) -> Option<Path> {
        let flow = transport.is_datagram().then(|| FlowId::new(0, 0));
        Some(Path { flow, local: self.0 })
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
