//! A router whose server is one with those of all others: the machines of `ringway serve --mesh`, in virtual time.
//!
//! What is left out: disk, threads and workers (there is one), and links between a router and its phones, which lose and
//! delay nothing. A SIP message between routers is a datagram in a session of the mesh.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_directory::private::SERVICE_STATES;
use ringway_directory::{
    Command, Delivery, DeliveryId, Directory, Located, Report, Service, Whereabouts,
};
use ringway_mesh::crypto::StandIn;
use ringway_mesh::router::{Closest, Event as MeshEvent, Refusal};
use ringway_mesh::{NodeId, Prefix};
use ringway_onesip::rules::shared_rules;
use ringway_onesip::{
    Event as Outcome, Exchange, Judge, MeshJournal, MeshLocation, MeshUsers, World, secret_of,
};
use ringway_onesip::{SIP_PORT, broker};
use ringway_proxy::auth::Users;
use ringway_proxy::config::{Auth, Config, Domain, Limits, MeshNetwork, Mode};
use ringway_proxy::keys::Secret;
use ringway_proxy::location::{LocationStore, MemoryStore};
use ringway_proxy::routes::{DomainMatch, NextHop, Rewrite, RouteTable, Rule, Share, UserMatch};
use ringway_proxy::shared::Shared;
use ringway_proxy::states::States;
use ringway_proxy::{Core, Event, KeptMessage, Paths, World as Surroundings};
use ringway_sansio::time::sooner;
use ringway_sansio::{
    Duration, Flow, FlowId, Listener, Outbox, Random, SplitMix, Target, Time, Transport,
};
use ringway_sim::graph::{Destination, GraphNode, Identities, MeshNode, node_random};
use ringway_sip::digest::Algorithm;

use super::hostile::{Attack, Hostile};
use super::phones::{self, PhoneTimes, Phones};
use super::states::StateCarrier;
use super::users::{DOMAIN, GATEWAY, HomeUsers, Roster, account, name};

/// The number of the DHT among the applications of the mesh.
const APPLICATION: u16 = 1;
/// UDP port of private messages between routers.
const PRIVATE_PORT: u16 = 5_268;
/// Commands that may wait for the directory.
const MAX_COMMANDS: usize = 4_096;
/// The size of the memories of a proxy, as a part of those of a server of its own.
const MEMORY_SHARE: usize = 128;
/// The flow of all datagrams.
const FLOW: FlowId = FlowId::new(0, 0);

/// What the exchange of a router has sent: the commands for the directory, and events for the proxy.
#[derive(Default)]
pub struct Queues {
    commands: Mutex<VecDeque<Command>>,
    events: Mutex<VecDeque<Outcome>>,
}

fn lock<T>(queue: &Mutex<T>) -> MutexGuard<'_, T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World for Queues {
    fn send(&self, command: Command) -> bool {
        let mut commands = lock(&self.commands);
        let fits = commands.len() < MAX_COMMANDS;
        if fits {
            commands.push_back(command);
        }
        fits
    }

    fn has_room(&self) -> bool {
        lock(&self.commands).len() < MAX_COMMANDS
    }

    fn carry(&self, event: Outcome) {
        lock(&self.events).push_back(event);
    }
}

/// The address of the router is that of its server, too.
struct OwnPath(SocketAddr);

impl Paths for OwnPath {
    fn local_for(&mut self, _: Transport, _: SocketAddr) -> Option<SocketAddr> {
        Some(self.0)
    }

    fn datagrams_at(&mut self, local: SocketAddr) -> Option<FlowId> {
        (local == self.0).then_some(FLOW)
    }
}

/// What routers of a network have in common.
#[derive(Clone)]
pub struct Makings {
    /// The mesh.
    pub mesh: ringway_mesh::config::Config,
    /// The directory, and the DHT below.
    pub directory: ringway_directory::Config,
    /// The phones.
    pub phones: PhoneTimes,
    /// Who routers are.
    pub identities: Arc<Identities>,
    /// Who users are.
    pub roster: Arc<Roster>,
    /// Which routers are hostile, and since when.
    pub attacks: Arc<(BTreeMap<u32, Attack>, Time)>,
    /// Which routers have a way to the other domain, and on what terms.
    pub gateways: Arc<BTreeMap<u32, Share>>,
    /// Where SIP messages are logged, if they are.
    pub log: Option<SipLog>,
    /// Of everything drawn.
    pub seed: u64,
}

/// A SIP message that a phone or a router has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SipStep {
    /// When, by the clock of its router.
    pub at: Time,
    /// Who has sent it.
    pub from: Ipv6Addr,
    /// To whom.
    pub to: Ipv6Addr,
    /// Its first line.
    pub line: String,
}

/// Messages of all routers.
pub type SipLog = Arc<Mutex<Vec<SipStep>>>;

/// What a router has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of the directory that the mesh has not sent, as its budget was used up.
    pub refused: u64,
    /// Names of users of this router that another home claims.
    pub contested: u64,
    /// Look-ups of users that have found their home.
    pub found: u64,
    /// Those that have ended without: nobody has answered in time, or all who have deny it.
    pub not_found: u64,
}

/// A router with its part of the directory, its server and its phones.
pub struct SipRouter {
    number: u32,
    started: Time,
    address: SocketAddrV6,
    mesh: MeshNode,
    directory: Directory<StandIn>,
    service: Service,
    exchange: Arc<Exchange<Queues>>,
    judge: Judge,
    users: Arc<HomeUsers>,
    core: Core,
    states: StateCarrier,
    phones: Phones,
    out: Outbox,
    random: SplitMix,
    hostile: Option<Hostile>,
    log: Option<SipLog>,
    /// What the directory last knew of the ring: changes of the contacts, and the other end of the line.
    seen: Option<(u64, Option<NodeId>)>,
    counts: Counts,
}

impl SipRouter {
    /// Starts a router in one of its lives, of which the first is 0. `None` if it has no identity.
    pub fn new(makings: &Makings, number: u32, life: u32, now: Time) -> Option<Self> {
        let Makings { identities, roster, seed, .. } = makings;
        let mesh = MeshNode::new(&makings.mesh, identities, number, life, *seed, now)?;
        let identity = identities.get(number)?.clone();
        let ip = identity.id().prefix().router();
        let address = SocketAddrV6::new(ip, SIP_PORT, 0, 0);
        let mut random = node_random(*seed ^ 0x51b, number, life);
        let exchange = Arc::new(Exchange::new(DOMAIN, Transport::Udp, Queues::default()));
        exchange.set_id(identity.id());
        let users = Arc::new(HomeUsers { roster: roster.clone(), router: number });
        let routes = makings.gateways.get(&number).map(|share| gateway(ip, *share));
        let routes = routes.unwrap_or_default();
        let shared = shared_rules(&routes.rules);
        let (core, states) =
            proxy((identity.id(), address), &exchange, &users, routes, &mut random, now);
        let phones = Phones::new(ip, makings.phones, SplitMix::new(random.next_u64()));
        let (attacks, from) = &*makings.attacks;
        let hostile =
            attacks.get(&number).map(|&attack| Hostile::new(attack, identity.clone(), *from));
        let mut router = SipRouter {
            number,
            started: now,
            address,
            mesh: mesh.with_datagrams(),
            directory: Directory::new(makings.directory, identity, now),
            service: Service::default(),
            exchange,
            judge: Judge::default(),
            users,
            core,
            states,
            phones,
            out: Outbox::new(),
            random,
            hostile,
            log: makings.log.clone(),
            seen: None,
            counts: Counts::default(),
        };
        if !shared.is_empty() {
            router.command(now, Command::ShareRules { domain: DOMAIN.into(), rules: shared });
        }
        for user in roster.of(number) {
            let secret = secret_of(&*router.users, &name(user), DOMAIN);
            let name = format!("{}@{DOMAIN}", name(user)).into();
            router.command(now, Command::SetAccount { name, account: account(), secret });
        }
        Some(router)
    }

    /// Returns its number in the graph.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns when it was started, by its clock.
    pub fn started(&self) -> Time {
        self.started
    }

    /// Returns the router of the mesh.
    pub fn mesh(&self) -> &MeshNode {
        &self.mesh
    }

    /// Returns its part of the directory.
    pub fn directory(&self) -> &Directory<StandIn> {
        &self.directory
    }

    /// Returns what stands between proxy and directory.
    pub fn exchange(&self) -> &Exchange<Queues> {
        &self.exchange
    }

    /// Returns the proxy.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Has something be done with what users do, and carries what follows.
    pub fn with_states<T>(&mut self, now: Time, act: impl FnOnce(&States) -> T) -> T {
        let result = act(self.states.states());
        self.settle(now);
        result
    }

    /// Returns its phones.
    pub fn phones(&self) -> &Phones {
        &self.phones
    }

    /// Returns what was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the counts, and begins again.
    pub fn take_counts(&mut self) -> Counts {
        core::mem::take(&mut self.counts)
    }

    /// Has the phones do something, and carries what they send.
    pub fn with_phones<T>(&mut self, now: Time, act: impl FnOnce(&mut Phones) -> T) -> T {
        let result = act(&mut self.phones);
        self.settle(now);
        result
    }

    /// Has the directory do something that no phone has asked for, unless too much waits for it.
    pub fn command(&mut self, now: Time, command: Command) {
        self.exchange.world().send(command);
        self.settle(now);
    }

    /// Sends a UDP datagram of this router.
    pub fn send_datagram(&mut self, now: Time, port: u16, to: SocketAddrV6, octets: &[u8]) {
        let from = SocketAddrV6::new(*self.address.ip(), port, 0, 0);
        self.mesh.send_datagram(now, from, to, octets);
        self.settle(now);
    }

    /// Carries what machines have for each other, until none has anything.
    fn settle(&mut self, now: Time) {
        loop {
            let mut is_done = !self.carry_mesh(now);
            is_done &= !self.carry_directory(now);
            is_done &= !self.carry_exchange(now);
            is_done &= !self.carry_states(now);
            is_done &= !self.carry_proxy(now);
            is_done &= !self.carry_phones(now);
            if is_done {
                return;
            }
        }
    }

    /// Hands what the mesh has brought to the directory and the proxy. Returns whether there was anything.
    fn carry_mesh(&mut self, now: Time) -> bool {
        let mut any = false;
        self.update_neighbours(now);
        while let Some(event) = self.mesh.poll_event() {
            if let MeshEvent::Closest { origin, application: APPLICATION, octets, .. } = event {
                self.hear(now, origin, &octets);
                any = true;
            }
        }
        while let Some(datagram) = self.mesh.poll_datagram() {
            any = true;
            let from = *datagram.from.ip();
            match datagram.to.port() {
                PRIVATE_PORT if broker::is_router(from) => {
                    let prefix = Prefix::of(&from);
                    if let Some(prefix) = prefix.filter(|_| datagram.from.port() == PRIVATE_PORT) {
                        self.hear_private(now, prefix, &datagram.octets);
                    }
                }
                SIP_PORT => self.receive(now, datagram.from.into(), &datagram.octets),
                _ => {}
            }
        }
        any
    }

    /// Hands a message of the directory to it, unless this router is hostile and does something else.
    fn hear(&mut self, now: Time, origin: NodeId, octets: &[u8]) {
        let leaves = self.directory.dht().neighbours().leaves();
        let lie = self.hostile.as_ref().and_then(|hostile| hostile.lie(octets, leaves));
        let hostile = &mut self.hostile;
        if let Some(lie) = lie {
            self.send_closest(now, origin, &lie);
        } else if hostile.as_mut().is_none_or(|hostile| hostile.hears(now, origin, octets)) {
            self.directory.handle(now, origin, octets, &mut self.random);
        }
    }

    /// Hands a private message to the directory, unless this router is hostile and answers something else.
    fn hear_private(&mut self, now: Time, from: Prefix, octets: &[u8]) {
        match self.hostile.as_ref().and_then(|hostile| hostile.betrays(now, octets)) {
            Some(answers) => {
                answers.iter().for_each(|octets| self.send_private(now, from, octets));
            }
            None => self.directory.handle_private(now, from, octets, &mut self.random),
        }
    }

    fn send_private(&mut self, now: Time, to: Prefix, octets: &[u8]) {
        let own = SocketAddrV6::new(*self.address.ip(), PRIVATE_PORT, 0, 0);
        let to = SocketAddrV6::new(to.router(), PRIVATE_PORT, 0, 0);
        self.mesh.send_datagram(now, own, to, octets);
    }

    /// Hands what the directory has to the mesh and the exchange. Returns whether there was anything.
    fn carry_directory(&mut self, now: Time) -> bool {
        let mut any = false;
        for message in self.directory.take_messages() {
            let closest = Closest {
                key: message.to,
                application: APPLICATION,
                octets: &message.octets,
                by_another: message.by_another,
            };
            let sent = self.mesh.send_closest(now, &closest);
            self.counts.refused += u64::from(sent == Err(Refusal::Budget));
            any = true;
        }
        for message in self.directory.take_private() {
            self.send_private(now, message.to, &message.octets);
            any = true;
        }
        while let Some(report) = self.service.poll_report(&mut self.directory) {
            self.report(now, report);
            any = true;
        }
        any
    }

    fn report(&mut self, now: Time, report: Report) {
        match report {
            Report::Judge { id, router, check, secret } => {
                let question = (&check, secret.as_ref());
                let verdict = self.judge.judge(now, router, question, &*self.users);
                self.directory.judge(now, id, verdict);
            }
            Report::Message { service: SERVICE_STATES, router, octets } => {
                self.states.carrier.handle_message(now, router, &octets);
            }
            report => {
                if let Report::Located { name, whereabouts } = &report {
                    self.located(now, name, whereabouts);
                }
                self.exchange.handle(now, report);
            }
        }
    }

    fn located(&mut self, now: Time, name: &str, whereabouts: &Whereabouts) {
        match whereabouts {
            Whereabouts::Found(Located { home: Some(_), .. }) => self.counts.found += 1,
            _ => self.counts.not_found += 1,
        }
        let routers = match whereabouts {
            Whereabouts::Found(Located { routers, .. }) => {
                Some(routers.iter().map(|&(router, _)| router).collect::<Vec<NodeId>>())
            }
            Whereabouts::Unavailable => None,
        };
        self.states.carrier.located(now, name, routers.as_deref());
    }

    /// Hands what carries the states of users to the directory. Returns whether there was anything.
    fn carry_states(&mut self, now: Time) -> bool {
        let commands = self.states.work(now, &mut self.random);
        let any = !commands.is_empty();
        // What finds no room is repeated.
        commands.into_iter().for_each(|command| _ = self.exchange.world().send(command));
        any
    }

    /// Hands what the exchange has to the directory and the proxy. Returns whether there was anything.
    fn carry_exchange(&mut self, now: Time) -> bool {
        let commands = core::mem::take(&mut *lock(&self.exchange.world().commands));
        let events = core::mem::take(&mut *lock(&self.exchange.world().events));
        let any = !commands.is_empty() || !events.is_empty();
        for command in commands {
            let SipRouter { service, directory, random, .. } = self;
            if let Some(report) = service.handle(now, command, directory, random) {
                self.report(now, report);
            }
        }
        for event in events {
            match event {
                Outcome::Answered { id, reply, .. } => {
                    self.core.handle_answered(now, id, reply, &mut self.out);
                }
                Outcome::Committed { tag, stored } => {
                    self.core.handle_committed(now, tag.id, stored, &mut self.out);
                }
                Outcome::Contested { .. } => self.counts.contested += 1,
                Outcome::Deliver(delivery) => self.deliver(now, &delivery),
                Outcome::Withdrawn { .. } | Outcome::Granted { .. } | Outcome::NotStated { .. } => {
                }
            }
        }
        any
    }

    fn deliver(&mut self, now: Time, delivery: &Delivery) {
        let aor = |name: &str| format!("sip:{name}").into_bytes();
        let (to, from) = (aor(&delivery.to), aor(&delivery.from));
        let kept = KeptMessage { to: &to, from: &from, octets: &delivery.octets };
        self.core.deliver(now, delivery.id.0, &kept, &mut self.out);
    }

    /// Hands what the proxy has to the exchange, the mesh and the phones. Returns whether there was anything.
    fn carry_proxy(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(event) = self.core.poll_event() {
            any = true;
            match event {
                Event::Ask { id, question, source } => {
                    if let Some(reply) = self.exchange.ask(0, id, question, source) {
                        self.core.handle_answered(now, id, reply, &mut self.out);
                    }
                }
                Event::Delivered { id, status } => self.exchange.delivered(DeliveryId(id), status),
                // All addresses are literal: there is nobody to ask for a name.
                Event::Resolve { id, .. } => {
                    self.core.handle_resolved(now, id, &[], &mut self.out);
                }
                _ => {}
            }
        }
        if self.out.is_empty() {
            return any;
        }
        let out = core::mem::take(&mut self.out);
        for (send, bytes) in out.iter() {
            let (Target::Flow(Flow { remote, .. }) | Target::Peer { remote, .. }) = send.to;
            let SocketAddr::V6(remote) = remote else { continue };
            self.note(now, *self.address.ip(), *remote.ip(), bytes);
            match Prefix::of(remote.ip()) == Prefix::of(self.address.ip()) {
                true => self.phones.receive(now, *remote.ip(), bytes),
                false => self.mesh.send_datagram(now, self.address, remote, bytes),
            }
        }
        self.out = out;
        self.out.clear();
        true
    }

    /// Hands what phones send to the proxy. Returns whether there was anything.
    fn carry_phones(&mut self, now: Time) -> bool {
        let sent = self.phones.take_sent();
        let any = !sent.is_empty();
        for (from, bytes) in sent {
            self.note(now, from, *self.address.ip(), &bytes);
            let from = SocketAddrV6::new(from, SIP_PORT, 0, 0);
            self.receive(now, from.into(), &bytes);
        }
        any
    }

    /// Logs a SIP message, if any is logged.
    fn note(&self, at: Time, from: Ipv6Addr, to: Ipv6Addr, bytes: &[u8]) {
        if let Some(log) = &self.log {
            let line = bytes.split(|octet| *octet == b'\r').next().unwrap_or_default();
            let line = String::from_utf8_lossy(line).into_owned();
            lock(log).push(SipStep { at, from, to, line });
        }
    }

    /// Hands a SIP message to the proxy.
    fn receive(&mut self, now: Time, remote: SocketAddr, bytes: &[u8]) {
        let local = self.address.into();
        let flow = Flow { id: FLOW, transport: Transport::Udp, local, remote };
        self.core.handle_message(now, &flow, bytes, &mut self.out);
    }

    /// A hostile router does what it is there for.
    fn act_hostile(&mut self, now: Time) {
        let Some(hostile) = &mut self.hostile else { return };
        let users = self.users.roster.len();
        let (commands, sent) = hostile.act(now, users, &mut self.random);
        commands.into_iter().for_each(|command| _ = self.exchange.world().send(command));
        sent.into_iter().for_each(|(key, octets)| self.send_closest(now, key, &octets));
    }

    /// Has a hostile router send what its directory does not. What its budget has no room for is not sent, as for others.
    fn send_closest(&mut self, now: Time, key: NodeId, octets: &[u8]) {
        let closest = Closest { key, application: APPLICATION, octets, by_another: false };
        _ = self.mesh.send_closest(now, &closest);
    }

    fn update_neighbours(&mut self, now: Time) {
        let overlay = self.mesh.router().overlay();
        let known = (overlay.contacts().changes(), overlay.partner());
        if self.seen.replace(known) != Some(known) {
            let near = overlay.contacts().near();
            self.directory.update_neighbours(now, near.into_iter(), known.1, &mut self.random);
        }
    }
}

/// Creates the proxy of a router, configured as `ringway serve --mesh` is without a file.
fn proxy(
    (id, address): (NodeId, SocketAddrV6),
    exchange: &Arc<Exchange<Queues>>,
    users: &Arc<HomeUsers>,
    routes: RouteTable,
    random: &mut SplitMix,
    now: Time,
) -> (Core, StateCarrier) {
    let mut key = [0; 16];
    random.fill(&mut key);
    let journal = MeshJournal { exchange: exchange.clone(), disk: None };
    let local = Arc::new(MemoryStore::with_journal(key, Box::new(journal)));
    let store = Arc::new(MeshLocation { local: local.clone(), exchange: exchange.clone() });
    let users = Arc::new(MeshUsers { local: users.clone(), domain: DOMAIN.into() });
    let mesh = Some(MeshNetwork { address: *address.ip() });
    let (core, shared) = core(address, mesh, (store, users), routes, random, now);
    (core, StateCarrier::new(id, shared, local))
}

/// Returns the rule of a router that has a way to other domains: the phone of [`GATEWAY`] there is their server.
fn gateway(router: Ipv6Addr, share: Share) -> RouteTable {
    let uri = format!("sip:[{}]:{SIP_PORT}", phones::address(&router, GATEWAY));
    let rule = Rule {
        domain: DomainMatch::Foreign,
        user: UserMatch::Any,
        rewrite: Rewrite::default(),
        next_hops: vec![NextHop { uri: uri.into(), priority: 0, weight: 1 }],
        reject: None,
        open: false,
        shared: Some(share),
    };
    RouteTable { rules: vec![rule] }
}

/// Creates a proxy with an address. Returns its shared tables, too.
pub(crate) fn core(
    address: SocketAddrV6,
    mesh: Option<MeshNetwork>,
    (store, users): (Arc<dyn LocationStore>, Arc<dyn Users>),
    routes: RouteTable,
    random: &mut SplitMix,
    now: Time,
) -> (Core, Arc<Shared>) {
    let mut octets = [0; 32];
    random.fill(&mut octets);
    let secret = Secret::new(&octets);
    let ip: Ipv6Addr = *address.ip();
    let config = Config {
        domains: vec![Domain { name: DOMAIN.into(), aliases: Vec::new(), mode: Mode::Proxy }],
        listeners: vec![Listener { transport: Transport::Udp, addr: address.into() }],
        addresses: vec![ip.into()],
        auth: Auth {
            enabled: true,
            algorithms: vec![Algorithm::Md5],
            auth_int: false,
            nonce_lifetime: Duration::from_secs(300),
            any_from: false,
        },
        trusted: Vec::new(),
        nodes: Default::default(),
        mesh,
        routes,
        record_route: true,
        timers: Default::default(),
        timer_c: Duration::from_secs(185),
        registrar: Default::default(),
        limits: Limits { requests_per_source: 1_000, requests: 0, max_forks: 10 },
        secret: secret.clone(),
    };
    let shared = Arc::new(Shared::with_share(&secret, MEMORY_SHARE));
    let surroundings = Surroundings {
        store,
        users,
        random: Box::new(SplitMix::new(random.next_u64())),
        paths: Box::new(OwnPath(address.into())),
        workers: 1,
        shared: shared.clone(),
        media: None,
    };
    (Core::new(Arc::new(config), 0, surroundings, now), shared)
}

impl GraphNode for SipRouter {
    fn handle_packet(&mut self, now: Time, from: u16, bytes: &mut [u8]) {
        self.mesh.handle_packet(now, from, bytes);
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        if is_due(self.mesh.poll_timeout()) {
            self.mesh.handle_timeout(now);
        }
        if is_due(self.directory.poll_timeout()) {
            self.directory.handle_timeout(now, &mut self.random);
        }
        if is_due(self.core.poll_timeout()) {
            self.core.handle_timeout(now, &mut self.out);
        }
        if is_due(self.phones.poll_timeout()) {
            self.phones.handle_timeout(now);
        }
        self.act_hostile(now);
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let act = self.hostile.as_ref().and_then(Hostile::poll_timeout);
        let sip = sooner(self.core.poll_timeout(), self.phones.poll_timeout());
        let sip = sooner(sip, act);
        let sip = sooner(sip, self.states.carrier.poll_timeout());
        sooner(sooner(self.mesh.poll_timeout(), self.directory.poll_timeout()), sip)
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        self.mesh.poll_transmit(now, bytes)
    }

    fn heap_bytes(&self) -> usize {
        self.mesh.heap_bytes()
    }
}
