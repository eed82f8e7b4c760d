//! A small world in virtual time around [`ringway_proxy::Core`].
//!
//! A test says who sends what and what must arrive where, in order; everything the proxy sends is
//! parsed, judged and logged, and a test that fails prints the ladder so far. What this world leaves
//! out: latency (a message is handled at once), loss, and sockets.

#![allow(dead_code, reason = "not every test binary uses everything")]

pub mod bind;
pub mod elsewhere;
pub mod msg;
pub mod ua;

pub use bind::bind;
pub use elsewhere::Asked;
pub use msg::Msg;
pub use ua::*;

use elsewhere::{Knowledge, People, Store};
use ringway_media::MediaRelay;
use ringway_proxy::config::{Auth, Config, Domain, Limits, Mode};
use ringway_proxy::keys::Secret;
use ringway_proxy::location::MemoryStore;
use ringway_proxy::{
    AuthFailure, CallEvent, Core, Event, LogLine, Paths, ResolveId, ResolveTarget,
    World as Surroundings,
};
use ringway_sansio::{
    Duration, Flow, FlowId, Hop, Listener, Outbox, Random, SplitMix, Target, Time, Transport,
};
use ringway_sip::digest::Algorithm;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

/// The domain that the proxy under test is responsible for.
pub const DOMAIN: &str = "example.org";

/// Everybody's password.
pub const PASSWORD: &str = "secret";

/// The address in the mesh of the proxy under test.
pub const MESH_ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 1);

/// The address of the proxy under test on the LAN of its phones, which every router has.
pub const LAN: Ipv4Addr = Ipv4Addr::new(10, 50, 60, 1);

/// The address that every router has for the hosts of its LAN.
pub const ANYCAST: Ipv6Addr = Ipv6Addr::new(0xfd72, 0x696e, 0x6777, 0x6179, 0, 0, 0, 1);

/// Where the proxy under test is reached over `transport` from `remote`.
pub fn local(transport: Transport, remote: SocketAddr) -> SocketAddr {
    let port = match transport {
        Transport::Tls | Transport::TlsSctp => 5061,
        Transport::Ws => 80,
        Transport::Wss => 443,
        _ => 5060,
    };
    match remote {
        SocketAddr::V6(v6) if v6.ip().octets()[0] == 0xfd => (MESH_ADDRESS, port).into(),
        SocketAddr::V6(_) => SocketAddr::new("2001:db8::1".parse().unwrap(), port),
        SocketAddr::V4(v4) if v4.ip().octets()[..3] == LAN.octets()[..3] => (LAN, port).into(),
        SocketAddr::V4(_) => ([192, 0, 2, 1], port).into(),
    }
}

/// A configuration: one domain, no digest, every transport.
pub fn config() -> Config {
    let transports = [
        Transport::Udp,
        Transport::Tcp,
        Transport::Tls,
        Transport::Ws,
        Transport::Wss,
        Transport::Sctp,
        Transport::TlsSctp,
    ];
    let addrs = ["192.0.2.9:1", "[2001:db8::9]:1"];
    let listeners = transports
        .iter()
        .flat_map(|&t| addrs.iter().map(move |a| (t, local(t, a.parse().unwrap()))))
        .map(|(transport, addr)| Listener { transport, addr })
        .collect();
    Config {
        domains: vec![Domain { name: DOMAIN.into(), aliases: vec![], mode: Mode::Proxy }],
        listeners,
        addresses: vec![],
        auth: Auth {
            enabled: false,
            algorithms: vec![Algorithm::Md5],
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

/// Addresses as a host with one has them.
struct Table {
    /// Transports without a listener.
    missing: Vec<Transport>,
    /// The address in the mesh.
    mesh: Ipv6Addr,
    worker: u8,
}

impl Paths for Table {
    fn local_for(&mut self, transport: Transport, remote: SocketAddr) -> Option<SocketAddr> {
        let mut addr = local(transport, remote);
        if addr.ip() == MESH_ADDRESS {
            addr.set_ip(self.mesh.into());
        }
        (!self.missing.contains(&transport)).then_some(addr)
    }

    fn datagrams_at(&mut self, local: SocketAddr) -> Option<FlowId> {
        let own = local.ip() == ANYCAST || local.ip() == self.mesh || local.ip() == LAN;
        own.then_some(FlowId::new(self.worker, 0))
    }
}

/// A message the proxy sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Time,
    pub worker: u8,
    pub to: Target,
    pub msg: Msg,
    pub report: u64,
}

/// An open question of the proxy.
pub struct Question {
    pub worker: u8,
    pub id: ResolveId,
    pub target: ResolveTarget,
}

/// Watchers and addresses-of-record.
type Changes = Arc<Mutex<VecDeque<(u8, Vec<u8>)>>>;

/// Which question [`World::expect`] found open, and everything that happened.
pub struct World {
    pub cores: Vec<Core>,
    pub store: Arc<MemoryStore>,
    pub now: Time,
    start: Time,
    out: Outbox,
    /// What was sent and not yet expected.
    pub sent: VecDeque<Sent>,
    /// Answers that name resolution gives at once.
    names: BTreeMap<String, Vec<Hop>>,
    pub questions: Vec<Question>,
    /// Questions about users of other servers.
    pub asks: Vec<Asked>,
    /// What the world knows about users of other servers.
    pub knowledge: Arc<Mutex<Knowledge>>,
    /// Addresses that cannot be reached, and flows that have closed.
    broken: Vec<(Transport, SocketAddr)>,
    closed: BTreeSet<u64>,
    /// The next hops of [`Event::Failed`].
    pub failed: Vec<SocketAddr>,
    pub lines: Vec<LogLine>,
    /// What the workers share.
    pub shared: Arc<ringway_proxy::shared::Shared>,
    /// Users whose state has changed, each with the worker that watches.
    changes: Changes,
    /// Whether the workers cannot be notified of these.
    pub is_full: Arc<Mutex<bool>>,
    /// What became of messages that were kept.
    pub delivered: Vec<(u64, u16)>,
    /// The steps of calls.
    pub calls: Vec<CallEvent>,
    /// Credentials that were refused.
    pub failures: Vec<AuthFailure>,
    pub handed_over: usize,
    /// What is sent need not be well-formed, because what comes in is not.
    pub lenient: bool,
    ladder: String,
    serial: u32,
}

impl World {
    /// One worker, the plain configuration.
    pub fn new() -> World {
        World::with(|_| {})
    }

    /// One worker, the configuration changed by `change`.
    pub fn with(change: impl FnOnce(&mut Config)) -> World {
        World::build(1, &[], change)
    }

    /// So many workers, without listeners for the transports in `missing`.
    pub fn build(workers: u8, missing: &[Transport], change: impl FnOnce(&mut Config)) -> World {
        World::over(MemoryStore::new([3; 16]), workers, missing, change)
    }

    /// With registrations in `store`.
    pub fn over(
        store: MemoryStore,
        workers: u8,
        missing: &[Transport],
        change: impl FnOnce(&mut Config),
    ) -> World {
        World::relaying(None, store, workers, missing, change)
    }

    /// With a relay of media, which all workers share.
    pub fn relaying(
        media: Option<Arc<dyn MediaRelay>>,
        store: MemoryStore,
        workers: u8,
        missing: &[Transport],
        change: impl FnOnce(&mut Config),
    ) -> World {
        let mut config = config();
        change(&mut config);
        let config = Arc::new(config);
        let (store, knowledge) = (Arc::new(store), Arc::<Mutex<Knowledge>>::default());
        let shared = Arc::new(ringway_proxy::shared::Shared::new(&config.secret));
        let changes = Changes::default();
        let is_full = Arc::<Mutex<bool>>::default();
        let (sink, full) = (changes.clone(), is_full.clone());
        shared.states.set_sink(Arc::new(move |worker, aor| {
            let has_room = !*full.lock().unwrap();
            if has_room {
                sink.lock().unwrap().push_back((worker, aor.to_vec()));
            }
            has_room
        }));
        let now = Time::from_secs(1_700_000_000);
        let mesh = config.mesh.map_or(MESH_ADDRESS, |mesh| mesh.address);
        let cores = (0..workers)
            .map(|worker| {
                let random = SplitMix::new(42 + u64::from(worker));
                let surroundings = Surroundings {
                    store: Arc::new(Store { local: store.clone(), knowledge: knowledge.clone() }),
                    users: Arc::new(People { knowledge: knowledge.clone() }),
                    random: Box::new(random) as Box<dyn Random + Send>,
                    paths: Box::new(Table { missing: missing.to_vec(), mesh, worker }),
                    workers,
                    shared: shared.clone(),
                    media: media.clone(),
                };
                Core::new(config.clone(), worker, surroundings, now)
            })
            .collect();
        World {
            cores,
            store,
            now,
            start: now,
            out: Outbox::new(),
            sent: VecDeque::new(),
            names: BTreeMap::new(),
            questions: Vec::new(),
            asks: Vec::new(),
            delivered: Vec::new(),
            knowledge,
            broken: Vec::new(),
            closed: BTreeSet::new(),
            failed: Vec::new(),
            lines: Vec::new(),
            shared,
            changes,
            is_full,
            calls: Vec::new(),
            failures: Vec::new(),
            handed_over: 0,
            lenient: false,
            ladder: String::new(),
            serial: 0,
        }
    }

    /// A name that resolution knows at once.
    pub fn name(&mut self, name: &str, hops: &[(Transport, &str)]) {
        let hops = hops
            .iter()
            .map(|&(transport, addr)| Hop { transport, addr: addr.parse().unwrap(), name: None })
            .collect();
        self.names.insert(name.into(), hops);
    }

    /// From now on nothing can be sent there: connections are refused, datagrams come back.
    pub fn break_way(&mut self, transport: Transport, addr: &str) {
        self.broken.push((transport, addr.parse().unwrap()));
    }

    /// The peer's connection closes.
    pub fn close(&mut self, peer: Peer) {
        let flow = peer.flow(0).id;
        self.closed.insert(flow.to_u64());
        for core in &mut self.cores {
            core.handle_flow_closed(self.now, flow);
        }
        self.note(&format!("the connection of {} closes", peer.name));
    }

    /// The peer's connection breaks, and the proxy has not noticed yet.
    pub fn break_flow(&mut self, peer: Peer) {
        self.closed.insert(peer.flow(0).id.to_u64());
    }

    /// Every way works again but for connections that have closed.
    pub fn mend(&mut self) {
        self.broken.clear();
    }

    /// A branch that was not there before.
    pub fn branch(&mut self) -> String {
        self.serial += 1;
        format!("z9hG4bKtest{}", self.serial)
    }

    /// A request outside a dialog as `me` makes it (RFC 3261 section 8.1.1): `line` is method and
    /// Request-URI.
    pub fn request(&mut self, me: Peer, line: &str) -> Msg {
        let (method, uri) = line.split_once(' ').expect("method and URI");
        let branch = self.branch();
        let to = uri.split([';', '?']).next().unwrap();
        Msg { start: format!("{line} SIP/2.0"), headers: vec![], body: String::new() }
            .add("Via", via(me, &branch))
            .add("From", format!("<sip:{}@{DOMAIN}>;tag=from-{}", me.name, self.serial))
            .add("To", format!("<{to}>"))
            .add("Call-ID", format!("call-{}@{}", self.serial, me.name))
            .add("CSeq", format!("1 {method}"))
            .add("Contact", format!("<{}>", me.contact()))
            .add("Max-Forwards", "70")
    }

    /// `me` sends a request made by [`World::request`]; gives the request back.
    pub fn call(&mut self, me: Peer, line: &str) -> Msg {
        let request = self.request(me, line);
        self.from(me, &request);
        request
    }

    /// `me` sends `msg`; it comes to the first worker.
    pub fn from(&mut self, me: Peer, msg: &Msg) {
        self.arrives(0, me, msg);
    }

    /// `me` sends `msg`; it comes to this worker.
    pub fn arrives(&mut self, worker: u8, me: Peer, msg: &Msg) {
        self.bytes_from(worker, me.flow(worker), &msg.bytes());
    }

    /// `me` sends bytes.
    pub fn bytes_from(&mut self, worker: u8, flow: Flow, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let line = text.lines().next().unwrap_or_default();
        self.note(&format!("{}/{} -> proxy[{worker}]   {line}", flow.remote, flow.transport));
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[worker as usize].handle_message(now, &flow, bytes, &mut out);
        self.out = out;
        self.pump(worker);
    }

    /// `me` answers a request it got; gives the response back.
    pub fn answer(&mut self, me: Peer, request: &Msg, status: u16) -> Msg {
        let response = response(me, request, status);
        self.from(me, &response);
        response
    }

    /// The next message to `peer` must be this one.
    pub fn expect(&mut self, peer: Peer, words: &str) -> Msg {
        self.expect_sent(peer, words).msg
    }

    /// As [`World::expect`], with how it was sent.
    pub fn expect_sent(&mut self, peer: Peer, words: &str) -> Sent {
        let at = self
            .sent
            .iter()
            .position(|s| s.to.remote() == peer.remote() && s.to.transport() == peer.transport);
        let Some(at) = at else {
            panic!("nothing was sent to {}, expected {words}\n{}", peer.name, self.ladder)
        };
        let sent = self.sent.remove(at).unwrap();
        if let Target::Flow(flow) = sent.to {
            assert_eq!(flow, peer.flow(flow.id.worker()), "another flow\n{}", self.ladder);
        }
        assert!(
            sent.msg.is(words),
            "expected {words} to {}, got {:?}\n{}",
            peer.name,
            sent.msg,
            self.ladder
        );
        sent
    }

    /// Nothing more has been sent to anybody.
    pub fn quiet(&self) {
        assert!(self.sent.is_empty(), "not expected: {:?}\n{}", self.sent, self.ladder);
    }

    /// What was sent and not expected is forgotten.
    pub fn ignore(&mut self) {
        self.sent.clear();
    }

    /// How many messages like this are waiting to be expected by `peer`; they are taken away.
    pub fn count(&mut self, peer: Peer, words: &str) -> usize {
        let before = self.sent.len();
        let fits = |s: &Sent| s.to.remote() == peer.remote() && s.msg.is(words);
        self.sent.retain(|s| !fits(s));
        before - self.sent.len()
    }

    /// Lets time pass; timers fire when they are due.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        let mut fired = 0;
        while let Some((next, worker)) = self.next_timeout().filter(|&(next, _)| next <= end) {
            fired = if next <= self.now { fired + 1 } else { 0 };
            assert!(fired < 1000, "timers do not advance\n{}", self.ladder);
            self.now = self.now.max(next);
            let (now, mut out) = (self.now, std::mem::take(&mut self.out));
            self.cores[worker].handle_timeout(now, &mut out);
            self.out = out;
            self.pump(worker as u8);
        }
        self.now = end;
    }

    pub fn pass_ms(&mut self, ms: u64) {
        self.pass(Duration::from_millis(ms));
    }

    pub fn pass_secs(&mut self, secs: u64) {
        self.pass(Duration::from_secs(secs));
    }

    fn next_timeout(&self) -> Option<(Time, usize)> {
        let timeouts = self.cores.iter().enumerate();
        timeouts.filter_map(|(i, core)| core.poll_timeout().map(|t| (t, i))).min()
    }

    /// The store has made the change of this number durable, or has failed to.
    pub fn committed(&mut self, worker: u8, id: u64, ok: bool) {
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[worker as usize].handle_committed(now, id, ok, &mut out);
        self.out = out;
        self.pump(worker);
    }

    /// Answers an open question of name resolution.
    pub fn resolved(&mut self, question: Question, hops: &[(Transport, &str)]) {
        let hops: Vec<Hop> = hops
            .iter()
            .map(|&(transport, addr)| Hop { transport, addr: addr.parse().unwrap(), name: None })
            .collect();
        self.note(&format!("{} is {hops:?}", question.target.host));
        self.resolve(question.worker, question.id, &hops);
        self.pump(question.worker);
    }

    fn resolve(&mut self, worker: u8, id: ResolveId, hops: &[Hop]) {
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[worker as usize].handle_resolved(now, id, hops, &mut out);
        self.out = out;
    }

    /// Reports that the message sent under this number has failed.
    pub fn not_sent(&mut self, worker: u8, report: u64) {
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[worker as usize].handle_not_sent(now, report, &mut out);
        self.out = out;
        self.pump(worker);
    }

    /// The connection by which this was sent has ended.
    pub fn cut_off(&mut self, sent: &Sent) {
        self.note(&format!("the connection to {} ends", sent.to.remote()));
        let (now, mut out) = (self.now, std::mem::take(&mut self.out));
        self.cores[sent.worker as usize].handle_cut_off(now, sent.report, &mut out);
        self.out = out;
        self.pump(sent.worker);
    }

    /// Takes away what a core wants sent and asks for, until there is nothing more.
    pub fn pump(&mut self, worker: u8) {
        for _ in 0..1000 {
            let mut reports = Vec::new();
            let out = std::mem::take(&mut self.out);
            for (send, bytes) in out.iter() {
                if self.deliver(worker, send, bytes) && send.report != 0 {
                    reports.push(send.report);
                }
            }
            self.out = out;
            self.out.clear();
            let mut idle = reports.is_empty();
            for report in reports {
                self.note("          could not be sent");
                let (now, mut out) = (self.now, std::mem::take(&mut self.out));
                self.cores[worker as usize].handle_not_sent(now, report, &mut out);
                self.out = out;
            }
            while let Some(event) = self.cores[worker as usize].poll_event() {
                idle = false;
                self.event(worker, event);
            }
            if idle && self.out.is_empty() {
                return self.pump_changes();
            }
        }
        panic!("sends for ever\n{}", self.ladder);
    }

    /// Notifies the workers of users whose state has changed.
    fn pump_changes(&mut self) {
        loop {
            let Some((worker, aor)) = self.changes.lock().unwrap().pop_front() else { return };
            let (now, mut out) = (self.now, std::mem::take(&mut self.out));
            if let Some(core) = self.cores.get_mut(usize::from(worker)) {
                core.handle_state_changed(now, &aor, &mut out);
                self.out = out;
                self.pump(worker);
            } else {
                self.out = out;
            }
        }
    }

    /// Notes one message; says whether it could not be sent.
    fn deliver(&mut self, worker: u8, send: &ringway_sansio::Send, bytes: &[u8]) -> bool {
        let parsed = ringway_sip::message::parse(bytes);
        // The answer to a malformed request repeats what was wrong.
        let lax = self.lenient || bytes.starts_with(b"SIP/2.0 400");
        if let Err(fault) = parsed.and_then(|m| if lax { Ok(()) } else { m.check() }) {
            panic!("malformed: {fault}\n{}\n{}", String::from_utf8_lossy(bytes), self.ladder);
        }
        let msg = if self.lenient { Msg::lossy(bytes) } else { Msg::parse(bytes) };
        let (transport, remote) = (send.to.transport(), send.to.remote());
        self.note(&format!("   proxy -> {remote}/{transport}   {}", msg.start));
        let gone = match &send.to {
            Target::Flow(flow) => self.closed.contains(&flow.id.to_u64()),
            Target::Peer { .. } => false,
        };
        if gone || self.broken.contains(&(transport, remote)) {
            return true;
        }
        let sent = Sent { at: self.now, worker, to: send.to.clone(), msg, report: send.report };
        self.sent.push_back(sent);
        false
    }

    fn event(&mut self, worker: u8, event: Event) {
        match event {
            Event::Resolve { id, target, .. } => match self.names.get(&*target.host).cloned() {
                Some(hops) => self.resolve(worker, id, &hops),
                None => self.questions.push(Question { worker, id, target }),
            },
            Event::Ask { id, question, source } => {
                self.asks.push(Asked { worker, id, question, source });
            }
            Event::HandOver { worker: to, flow, bytes } => {
                assert_ne!(to, worker, "handed to itself");
                self.handed_over += 1;
                let (now, mut out) = (self.now, Outbox::new());
                self.cores[to as usize].handle_handed_over(now, &flow, &bytes, &mut out);
                let before = std::mem::replace(&mut self.out, out);
                self.pump(to);
                self.out = before;
            }
            Event::Failed(_, addr) => self.failed.push(addr),
            Event::Delivered { id, status } => self.delivered.push((id, status)),
            Event::Alias(..) => {}
            Event::Log(line) => self.lines.push(line),
            Event::Call(call) => self.calls.push(*call),
            Event::AuthFailed(failure) => self.failures.push(*failure),
        }
    }

    fn note(&mut self, text: &str) {
        let at = self.now - self.start;
        self.ladder += &format!("{:>9.3} {text}\n", at.as_secs_f64());
    }

    /// The end of every test: nothing is left that was not expected, and five minutes later the
    /// proxy remembers nothing.
    pub fn finish(mut self) {
        self.quiet();
        self.pass_secs(300);
        self.quiet();
        self.forgets();
    }

    /// As [`World::finish`], for tests that end in the middle of retransmissions.
    pub fn finish_anyhow(mut self) {
        self.pass_secs(300);
        self.forgets();
    }

    /// Whether the first proxy could stop now.
    pub fn idle(&self) -> bool {
        self.cores[0].unanswered_for(self.now).is_none()
    }

    fn forgets(&self) {
        assert!(self.questions.is_empty(), "a question is open");
        assert!(self.asks.is_empty(), "a question about a user is open");
        for core in &self.cores {
            let tables = core.tables();
            assert_eq!(tables, Default::default(), "{}", self.ladder);
            assert_eq!(core.unanswered_for(self.now), None);
        }
    }

    /// Everything that happened, for a message of a test's own.
    pub fn ladder(&self) -> &str {
        &self.ladder
    }
}
