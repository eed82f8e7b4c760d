//! `ringway serve`: start, reload and end of the process.
//!
//! ```text
//! read configuration -> log -> certificates -> bind -> open store -> workers -> management
//!                                                 SIGHUP: new rules, certificates, log level
//!                                 SIGTERM, SIGINT: no new calls -> wait for calls to end -> stop -> store
//! ```
//! A failure before the workers run ends the process with status 1 and one line that names the
//! cause.

use crate::calls::{Calls, Cdr};
use crate::cluster::announce::announce_registered;
use crate::cluster::{ClusterThread, Hub, moving};
use crate::config::{Settings, StoreKind};
use crate::first_run;
use crate::following::{self, Changes};
use crate::host;
use crate::locate::Locator;
use crate::log::Log;
use crate::media::Media;
use crate::mesh::exchange::{announce, shared_by};
use crate::mesh::{Exchange, MeshThread};
use crate::notify;
use crate::numbers::{self, ShortNumbers};
use crate::observe::control::{self, ControlDirectory, ControlSocket};
use crate::observe::{Board, Monitor, Phase, http};
use crate::phonebook;
use crate::post::{Post, post_with_retry};
use crate::prepare::Resources;
use crate::setup::{self, Sources, Tls};
use crate::signals::{SignalAction, Signals};
use crate::states::UserStates;
use crate::store::Store;
use crate::users::UsersThread;
use crate::users::source as users;
use crate::worker::{Worker, WorkerParts};
use ringway_cluster::ClusterLocation;
use ringway_net::{Clock, Endpoint};
use ringway_onesip::{MeshLocation, MeshUsers, World};
use ringway_proxy::auth::Users;
use ringway_proxy::config::{ClusterNodes, Config, MeshNetwork};
use ringway_proxy::location::LocationStore;
use ringway_proxy::shared::Shared;
use ringway_proxy::states::OTHER_SERVERS;
use ringway_sansio::Random as _;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Time that connections have to write queued data when the process stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Time in which the answers to requests that have waited in vain are sent: one retransmission of each (T1).
const END_TIME: Duration = Duration::from_millis(600);
/// With fewer connections than this a warning is logged, if more are configured.
const FEW_CONNECTIONS: usize = 1000;
/// Interval at which a draining server checks whether transactions are in progress.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Reasons why the process could not start or had to end, one per line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub Vec<String>);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(e: E) -> Self {
        Failure(vec![e.to_string()])
    }
}

/// Runs the server until a signal stops it.
///
/// # Errors
/// One line for each problem.
pub fn serve(sources: &Sources) -> Result<(), Failure> {
    ringway_os::limit_memory_retention();
    let settings = sources.read().map_err(Failure)?;
    let log = Log::start(settings.log)?;
    let mut server = Server::start(sources, settings, log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The signal handlers are installed before the server reports that it runs.
    let signals = runtime.block_on(async { Signals::new() })?;
    server.announce()?;
    notify::ready(&server.monitor)?;
    runtime.block_on(server.run(signals))?;
    server.stop()
}

struct Server {
    sources: Sources,
    settings: Settings,
    kind: StoreKind,
    clock: Clock,
    config: Arc<Config>,
    tls: Tls,
    store: Arc<Store>,
    monitor: Arc<Monitor>,
    control: ringway_net::Control<Post>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    /// Receives the index of each worker that ends.
    ended: tokio::sync::mpsc::UnboundedReceiver<usize>,
    /// Set when no worker reads its mailbox any more.
    workers_ended: Arc<AtomicBool>,
    first_run: first_run::FirstUsers,
    /// Maximum number of open connections.
    connections: usize,
    management: Management,
    log: Log,
    mesh: Option<MeshThread>,
    cluster: Option<ClusterThread>,
    /// Reads the users, if a database has them.
    users: Option<UsersThread>,
    /// Carries what users do between servers.
    states: Option<UserStates>,
    /// Forwards media until it is dropped.
    media: Option<Media>,
}

/// Sockets of management: prepared at first, then listening.
struct Management {
    pages: Option<TcpListener>,
    directory: Option<ControlDirectory>,
    /// Removes the socket when it is dropped.
    _socket: Option<ControlSocket>,
}

impl Server {
    fn start(sources: &Sources, settings: Settings, log: Log) -> Result<Self, Failure> {
        let resources = Resources::new(&settings).map_err(Failure)?;
        let Resources { kind, clock, tls, pages, phonebook, listen, endpoints, net, .. } =
            resources;
        let Resources { connections, locator, mut store, directory, mesh, cluster, .. } = resources;
        setup::warn_of_open_rules(&settings);
        let workers = net.mailboxes().len();
        if let (None, Some(name)) = (store.domain(), setup::default_domain(&settings)) {
            store.set_domain(&name.0)?;
        }
        let exchange = mesh.as_ref().map(|mesh| mesh.exchange().clone());
        let mut config =
            setup::proxy(&settings, store.domain(), net.listeners(), workers, &store.secret());
        config.mesh = mesh_network(exchange.as_ref());
        let config = Arc::new(config);
        let store = Arc::new(store);
        let users = UsersThread::of(&settings, &config, &store, clock)?;
        let first_run = first_run::create(sources, &settings, &config, &store)?;
        net.set_origins(setup::origins(&settings, &config));
        let workers_ended = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared::new(&config.secret));
        let changed = following::changes(mesh.as_ref(), cluster.as_ref());
        connect_store(&store, &net, &workers_ended, exchange.as_ref(), changed.clone());
        connect_states(&shared, &net, changed);
        if let Some(mesh) = &mesh {
            start_numbers(&settings, mesh, &store, clock)?;
        }
        let states = following::start(mesh.as_ref(), cluster.as_ref(), (&store, &shared), clock)?;
        if let Some(exchange) = &exchange {
            exchange.world().set_mailboxes(net.mailboxes().to_vec());
            announce_users(&store, exchange, clock.now());
            for command in shared_by(exchange.domain(), &settings, None) {
                exchange.world().send_at_start(command);
            }
            let keeper = store.clone();
            exchange
                .world()
                .set_keeper(Box::new(move |name, octets| keeper.keep_grant(name, octets)));
        }
        if let Some(hub) = store.hub() {
            hub.world().set_mailboxes(net.mailboxes().to_vec());
            announce_registered(&store, hub, clock.now());
        }
        let media = start_media(&settings, exchange.as_ref(), clock)?;
        let board = Arc::new(Board::new(workers));
        let listening = setup::listening(&listen, net.listeners());
        let facts = setup::facts(&config, listening, &kind);
        let calls = Calls::start(Cdr::start(settings.cdr.clone())?, move || clock.now())?;
        calls.set_ends_seen(config.record_route);
        let mut monitor = new_monitor(&board, &net, &locator, &store, calls, &log, facts);
        monitor.media = media.as_ref().map(Media::relay);
        monitor.states = states.as_ref().map(|states| states.counts().clone());
        let domain = config.domains.first().map_or("", |domain| &domain.name).to_owned();
        let of_mesh = mesh.as_ref().map(|mesh| (mesh.exchange().clone(), mesh.lists().clone()));
        let of = phonebook::Sources { domain, store: store.clone(), mesh: of_mesh, clock };
        phonebook::start(phonebook, of, monitor.phonebook.clone())?;
        let monitor = Arc::new(monitor);
        let mut server = Server {
            sources: sources.clone(),
            settings,
            kind,
            clock,
            config,
            tls,
            store,
            monitor,
            control: net,
            workers: Vec::new(),
            ended: tokio::sync::mpsc::unbounded_channel().1,
            workers_ended,
            first_run,
            connections,
            management: Management { pages, directory, _socket: None },
            log,
            mesh,
            cluster,
            users,
            states,
            media,
        };
        server.start_workers(endpoints, &locator, &board, clock, &shared)?;
        Ok(server)
    }

    fn start_workers(
        &mut self,
        endpoints: Vec<Endpoint<Post>>,
        locator: &Locator,
        board: &Arc<Board>,
        clock: Clock,
        shared: &Arc<Shared>,
    ) -> io::Result<()> {
        let (sender, ended) = tokio::sync::mpsc::unbounded_channel();
        self.ended = ended;
        let exchange = self.mesh.as_ref().map(|mesh| mesh.exchange().clone());
        let hub = self.store.hub().cloned();
        let (location, users) =
            resources_of(&self.store, exchange.as_ref(), hub.as_ref(), endpoints.len());
        for (index, endpoint) in endpoints.into_iter().enumerate() {
            let worker = Worker::new(WorkerParts {
                index: endpoint.worker(),
                config: self.config.clone(),
                store: location.clone(),
                users: users.clone(),
                control: self.control.clone(),
                locator: locator.clone(),
                exchange: exchange.clone(),
                hub: hub.clone(),
                board: board.clone(),
                calls: self.monitor.calls.clone(),
                clock,
                shared: shared.clone(),
                media: self.media.as_ref().map(|media| media.relay() as _),
            })?;
            let sender = sender.clone();
            let thread =
                thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                    // Sent when the worker ends, even by a panic.
                    let _notice = EndNotice(sender, index);
                    ringway_os::trim_memory();
                    endpoint.run(worker).map(drop)
                })?;
            self.workers.push(thread);
        }
        Ok(())
    }

    /// Serves the pages and the control socket on a separate thread.
    fn start_management(&mut self) -> Result<(), Failure> {
        let mut control = None;
        if let Some(directory) = self.management.directory.take() {
            let listening = directory.listen().map_err(|e| format!("control socket: {e}"))?;
            control = Some(listening.0);
            self.management._socket = Some(listening.1);
        }
        let pages = self.management.pages.take();
        let (monitor, clock) = (self.monitor.clone(), self.clock);
        thread::Builder::new().name("management".into()).spawn(move || {
            if let Err(e) = http::serve(pages, control, monitor, Box::new(move || clock.now())) {
                error!("management has ended: {e}");
            }
        })?;
        Ok(())
    }

    /// Starts management, so that a client that reaches it finds a server that listens and handles
    /// signals. Then logs that the server runs: whoever has waited for that can use
    /// management. Prints the settings of a phone if users were created.
    fn announce(&mut self) -> Result<(), Failure> {
        self.start_management()?;
        let loaded = self.store.load_summary();
        info!(
            listen = self.monitor.facts.load().listen.join(" "),
            domain = %self.config.domains.first().map_or("", |d| &d.name),
            workers = self.workers.len(),
            store = %self.kind,
            users = self.store.users().len(),
            contacts = loaded.contacts,
            connections = self.connections,
            "serving"
        );
        if self.connections < FEW_CONNECTIONS.min(self.settings.limits.connections) {
            warn!(
                "at most {} connections: the process may open few files (ulimit -n)",
                self.connections
            );
        }
        if loaded.corrupt > 0 {
            warn!("{} records of the store could not be read and were ignored", loaded.corrupt);
        }
        if loaded.shortened > 0 {
            warn!(
                "{} contacts of the store were registered for longer than registrar.expires_max \
                 and were shortened: was the clock wrong?",
                loaded.shortened
            );
        }
        let beside = control::directory_of(&self.kind)?;
        let numbers = self.store.numbers().map(|numbers| numbers.all());
        self.first_run.print(&self.config, &flags(&self.sources), &beside, numbers.as_ref())?;
        Ok(())
    }

    /// Serves until the process must stop: after a drain, on a second signal, or because a worker
    /// ended.
    async fn run(&mut self, mut signals: Signals) -> Result<(), Failure> {
        let mut nodes = self.cluster.as_ref().map(ClusterThread::nodes);
        loop {
            tokio::select! {
                nodes = next_nodes(&mut nodes) => self.set_nodes(nodes),
                action = signals.next() => match action {
                    SignalAction::Reload => {
                        notify::reloading();
                        self.reload();
                        notify::reloaded();
                    }
                    SignalAction::Stop => break,
                },
                Some(index) = self.ended.recv() => return Err(self.worker_ended(index)),
            }
        }
        let (monitor, limit) = (self.monitor.clone(), self.settings.limits.drain);
        notify::stopping();
        monitor.set_phase(Phase::Draining);
        let Some(left) = self.leave(&mut signals, &mut nodes, limit).await? else { return Ok(()) };
        info!(deadline = ?left, "stopping: no new calls are taken");
        self.post(|| Post::Drain);
        tokio::select! {
            idle = drained(&monitor, left) => {
                if !idle {
                    warn!("stopping with transactions in progress: the deadline was reached");
                    self.post(|| Post::EndRequests);
                    tokio::time::sleep(END_TIME).await;
                }
            }
            () = signals.stop() => info!("stopping at once"),
            Some(index) = self.ended.recv() => return Err(self.worker_ended(index)),
        }
        Ok(())
    }

    /// Leaves the cluster, if the server is a node of one: its phones move to other nodes first. Returns the time that is left
    /// then to wait for requests, or `None` on a second signal.
    async fn leave(
        &mut self,
        signals: &mut Signals,
        nodes: &mut Option<Nodes>,
        limit: Duration,
    ) -> Result<Option<Duration>, Failure> {
        let Some(hub) = self.cluster.as_ref().map(ClusterThread::hub).cloned() else {
            return Ok(Some(limit));
        };
        let (monitor, store) = (self.monitor.clone(), self.store.location().clone());
        let began = Instant::now();
        let others = !self.config.nodes.addresses().is_empty();
        if others && !limit.is_zero() {
            let mailboxes = self.control.mailboxes().to_vec();
            let stopping = moving::Stopping { hub: &hub, store: &store, mailboxes, limit };
            let mut moved = pin!(stopping.move_phones(&monitor));
            loop {
                tokio::select! {
                    () = &mut moved => break,
                    nodes = next_nodes(nodes) => self.set_nodes(nodes),
                    () = signals.stop() => {
                        info!("stopping at once");
                        return Ok(None);
                    }
                    Some(index) = self.ended.recv() => return Err(self.worker_ended(index)),
                }
            }
        }
        // Other nodes call the phones where they register next, and send no call here to have it refused.
        hub.leave();
        let left = limit.saturating_sub(began.elapsed());
        let some_stay = others && store.contacts() > 0;
        Ok(Some(if some_stay { left.min(moving::AWAY_TIME) } else { left }))
    }

    /// Has the workers know the other nodes of the cluster.
    fn set_nodes(&mut self, nodes: ClusterNodes) {
        let config = Arc::new(Config { nodes, ..(*self.config).clone() });
        self.post(|| Post::Configured(config.clone()));
        self.config = config;
    }

    fn worker_ended(&mut self, index: usize) -> Failure {
        let why = match self.workers.drain(..).nth(index).map(JoinHandle::join) {
            Some(Ok(Err(e))) => e.to_string(),
            _ => "it ended unexpectedly".to_owned(),
        };
        Failure(vec![format!("worker {index}: {why}")])
    }

    fn post(&self, make: impl Fn() -> Post) {
        for (index, mailbox) in self.control.mailboxes().iter().enumerate() {
            if !post_with_retry(mailbox, &make) {
                error!("worker {index}: a message was not delivered: the mailbox is full");
            }
        }
    }

    /// Stops the workers, then the store, which writes its queued changes.
    fn stop(mut self) -> Result<(), Failure> {
        self.control.stop(STOP_GRACE);
        let mut failures = Vec::new();
        for (index, thread) in self.workers.drain(..).enumerate() {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(e)) => failures.push(format!("worker {index}: {e}")),
                Err(_) => failures.push(format!("worker {index}: it ended unexpectedly")),
            }
        }
        self.workers_ended.store(true, Relaxed);
        if let Some(numbers) = self.store.numbers() {
            numbers.stop();
        }
        if let Some(states) = &self.states {
            states.stop();
        }
        // What is registered here is withdrawn before the links are closed.
        if let Some(mesh) = &mut self.mesh {
            mesh.stop();
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.stop();
        }
        if let Some(users) = &mut self.users {
            users.stop();
        }
        self.monitor.calls.stop();
        self.store.flush();
        info!("stopped");
        if failures.is_empty() { Ok(()) } else { Err(Failure(failures)) }
    }

    /// Applies the configuration changes that are possible while calls are in progress. If there is
    /// any problem, nothing changes.
    fn reload(&mut self) {
        match self.try_reload() {
            Ok(()) => {
                self.monitor.reloads.0.fetch_add(1, Relaxed);
                info!("configuration reloaded");
            }
            Err(failure) => {
                self.monitor.reloads.1.fetch_add(1, Relaxed);
                for line in failure.0 {
                    error!("{line}");
                }
                error!("configuration not reloaded: everything stays as it was");
            }
        }
    }

    /// Refuses a file that looks truncated or like another file. A restart accepts it.
    fn refuse_lost_domains(&self, new: &Settings) -> Result<(), Failure> {
        let file = self.sources.config.as_ref().map_or(String::new(), |p| p.display().to_string());
        if new.is_empty && !self.settings.is_empty {
            return Err(Failure(vec![format!("{file}: is empty")]));
        }
        let lost = setup::lost_domains(&self.settings, new, self.store.domain());
        if lost.is_empty() {
            return Ok(());
        }
        let what = format!("{file}: no longer has the domain {}", lost.join(", "));
        Err(Failure(vec![format!("{what}; a restart is needed to remove a domain")]))
    }

    fn try_reload(&mut self) -> Result<(), Failure> {
        let settings = self.sources.read().map_err(Failure)?;
        self.refuse_lost_domains(&settings)?;
        for what in needs_restart(&self.settings, &settings) {
            warn!("{what} has changed: it takes effect at the next start");
        }
        let mut config = setup::proxy(
            &settings,
            self.store.domain(),
            self.control.listeners(),
            self.workers.len(),
            &self.store.secret(),
        );
        config.mesh = mesh_network(self.mesh.as_ref().map(MeshThread::exchange));
        config.nodes.clone_from(&self.config.nodes);
        let config = Arc::new(config);
        self.tls.reload(&settings.tls).map_err(Failure)?;
        self.control.set_origins(setup::origins(&settings, &config));
        setup::warn_of_open_rules(&settings);
        self.log.set_level(settings.log.level);
        self.monitor.calls.cdr().reopen(settings.cdr.clone());
        self.monitor.calls.set_ends_seen(config.record_route);
        let listening = self.monitor.facts.load().listen.clone();
        self.monitor.facts.store(Arc::new(setup::facts(&config, listening, &self.kind)));
        self.post(|| Post::Configured(config.clone()));
        if let Some(exchange) = self.mesh.as_ref().map(MeshThread::exchange) {
            let changes = shared_by(exchange.domain(), &settings, Some(&self.settings));
            if !changes.into_iter().all(|change| exchange.world().send(change)) {
                error!("the mesh does not take what is shared; reload once more");
            }
        }
        if let Some(shared) = self.store.shared() {
            shared.set_domains(users::domains(&config.domains));
        }
        self.config = config;
        // These settings cannot change while the process runs.
        self.settings = Settings {
            listen: std::mem::take(&mut self.settings.listen),
            store: self.settings.store.take(),
            cluster: self.settings.cluster.clone(),
            users: self.settings.users.clone(),
            workers: self.settings.workers,
            http: self.settings.http,
            media: self.settings.media.clone(),
            phonebook: self.settings.phonebook,
            ..settings
        };
        Ok(())
    }
}

/// Returns the arguments by which other commands find this server.
fn flags(sources: &Sources) -> String {
    let config = sources.config.iter().map(|path| format!(" --config {}", path.display()));
    let store = sources.overrides.store.iter().map(|kind| format!(" --store {kind}"));
    config.chain(store).collect()
}

/// The other nodes of the cluster, and their changes.
type Nodes = tokio::sync::watch::Receiver<ClusterNodes>;

/// Waits until the other nodes of the cluster are others than before; for ever without a cluster.
async fn next_nodes(nodes: &mut Option<Nodes>) -> ClusterNodes {
    if let Some(nodes) = nodes
        && nodes.changed().await.is_ok()
    {
        return nodes.borrow_and_update().clone();
    }
    std::future::pending().await
}

/// Waits until no transaction is in progress that a peer waits for. Returns false after `limit`.
async fn drained(monitor: &Monitor, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let snapshots = monitor.board.refresh(|| (monitor.request_publish)()).await;
        let is_idle = snapshots.iter().all(|s| s.unanswered_for.is_none());
        if is_idle || Instant::now() >= until {
            return is_idle;
        }
        tokio::time::sleep(DRAIN_CHECK_INTERVAL).await;
    }
}

/// Returns the changed settings that take effect only after a restart.
fn needs_restart(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let (a, b) = (&old.limits, &new.limits);
    let connections = (a.connections, a.connections_per_source, a.idle, a.handshake)
        != (b.connections, b.connections_per_source, b.idle, b.handshake);
    [
        (old.listen != new.listen, "listen"),
        (old.store != new.store, "store"),
        (old.cluster != new.cluster, "cluster"),
        (old.users != new.users, "users"),
        (old.workers != new.workers, "workers"),
        (old.http != new.http, "http"),
        (old.log.format != new.log.format, "log.format"),
        (old.media != new.media, "media"),
        (old.phonebook != new.phonebook, "phonebook"),
        (old.sctp != new.sctp, "sctp.profile"),
        (connections, "a limit of connections"),
        (old.tls.default.is_some() != new.tls.default.is_some(), "whether there is a certificate"),
    ]
    .into_iter()
    .filter_map(|(differs, what)| differs.then_some(what))
    .collect()
}

struct EndNotice(tokio::sync::mpsc::UnboundedSender<usize>, usize);

impl Drop for EndNotice {
    fn drop(&mut self) {
        // The receiver no longer exists when the process stops.
        let _ = self.0.send(self.1);
    }
}

/// Connects the store to the workers: it reports which changes are durable, and changes of watched
/// registrations.
/// Starts the relay of media, if media is relayed.
fn start_media(
    settings: &Settings,
    exchange: Option<&Arc<Exchange>>,
    clock: Clock,
) -> io::Result<Option<Media>> {
    if !settings.relays_media() {
        return Ok(None);
    }
    let address = exchange.and_then(|exchange| exchange.address());
    let config = setup::media(settings, address, host::raise_open_files());
    let mut key = [0; 16];
    ringway_os::ChaCha::from_os()?.fill(&mut key);
    Media::start(config, key, clock).map(Some)
}

/// Returns what the proxy knows of the mesh.
fn mesh_network(exchange: Option<&Arc<Exchange>>) -> Option<MeshNetwork> {
    exchange?.address().map(|address| MeshNetwork { address })
}

/// Returns the location service and the users of the workers.
fn resources_of(
    store: &Store,
    exchange: Option<&Arc<Exchange>>,
    hub: Option<&Arc<Hub>>,
    workers: usize,
) -> (Arc<dyn LocationStore>, Arc<dyn Users>) {
    let (local, users) = (store.location().clone(), store.users().clone());
    match (exchange, hub) {
        (Some(exchange), _) => {
            let domain = exchange.domain().into();
            let exchange = exchange.clone();
            (
                Arc::new(MeshLocation { local, exchange }),
                Arc::new(MeshUsers { local: users, domain }),
            )
        }
        (None, Some(hub)) => {
            (Arc::new(ClusterLocation { local, hub: hub.clone(), workers }), users)
        }
        (None, None) => (local, users),
    }
}

/// Starts what gives the users of a mesh short numbers, unless they are to have none.
fn start_numbers(
    settings: &Settings,
    mesh: &MeshThread,
    store: &Arc<Store>,
    clock: Clock,
) -> io::Result<()> {
    let is_off = settings.mesh.as_ref().is_some_and(|mesh| mesh.numbers == Some(false));
    let Some(id) = mesh.exchange().id().filter(|_| !is_off) else { return Ok(()) };
    mesh.lists().set_homes(mesh.numbers().clone());
    let numbers = ShortNumbers::start(numbers::Parts {
        config: numbers::Config::default(),
        id,
        domain: mesh.exchange().domain().into(),
        store: store.clone(),
        commands: mesh.commands().clone(),
        lists: mesh.lists().clone(),
        inbox: mesh.numbers().clone(),
        clock,
    })?;
    store.set_numbers(numbers);
    Ok(())
}

/// Has the mesh know the users of this server, and who is registered already.
fn announce_users(store: &Store, exchange: &Exchange, now: ringway_sansio::Time) {
    for (user, realm, account) in store.accounts() {
        exchange.world().announce_account(&user, &realm, account);
    }
    for (name, octets) in store.grants() {
        if !exchange.world().announce_grant(name, octets, now) {
            store.keep_grant(name, None);
        }
    }
    store.each_registered(now, &mut |aor| announce(exchange, aor));
}

fn connect_store(
    store: &Store,
    control: &ringway_net::Control<Post>,
    ended: &Arc<AtomicBool>,
    exchange: Option<&Arc<Exchange>>,
    changed: Option<Changes>,
) {
    let (exchange, hub) = (exchange.cloned(), store.hub().cloned());
    let mailboxes = control.mailboxes().to_vec();
    let ended = ended.clone();
    store.set_commit_sink(Arc::new(move |worker, ids, ok| {
        let over = match (&exchange, &hub) {
            (Some(exchange), _) => Some(exchange.disk(worker, ids, ok)),
            (None, Some(hub)) => Some(hub.on_disk(worker, ids, ok)),
            (None, None) => None,
        };
        let ids = over.as_deref().unwrap_or(ids);
        if ids.is_empty() {
            return;
        }
        // A REGISTER waits for this report, so it must be delivered: the store waits for a slow
        // worker.
        if let (Some(mailbox), false) = (mailboxes.get(usize::from(worker)), ended.load(Relaxed)) {
            post_with_retry(mailbox, || Post::Committed(ids.into(), ok));
        }
    }));
    let mailboxes = control.mailboxes().to_vec();
    store.location().set_sink(Arc::new(move |worker, aor, why| {
        if let (OTHER_SERVERS, Some(changed)) = (worker, &changed) {
            changed(aor, Some(why));
        } else if let Some(mailbox) = mailboxes.get(usize::from(worker)) {
            mailbox.try_post(Post::Changed(aor.into(), why));
        }
    }));
}

/// Connects the states of users to those who watch them: workers, and other servers.
fn connect_states(shared: &Shared, control: &ringway_net::Control<Post>, changed: Option<Changes>) {
    let mailboxes = control.mailboxes().to_vec();
    shared.states.set_sink(Arc::new(move |watcher, aor| {
        if let (OTHER_SERVERS, Some(changed)) = (watcher, &changed) {
            changed(aor, None);
            return true;
        }
        // Nothing else watches.
        let mailbox = mailboxes.get(usize::from(watcher));
        mailbox.is_none_or(|mailbox| mailbox.try_post(Post::StateChanged(aor.into())))
    }));
}

fn new_monitor(
    board: &Arc<Board>,
    control: &ringway_net::Control<Post>,
    locator: &Locator,
    store: &Arc<Store>,
    calls: Calls,
    log: &Log,
    facts: crate::observe::Facts,
) -> Monitor {
    let mailboxes = control.mailboxes().to_vec();
    let request_publish = move || {
        for mailbox in &mailboxes {
            mailbox.try_post(Post::Publish);
        }
    };
    let locator = locator.clone();
    let located = locator.clone();
    let counters = control.counters().to_vec();
    let net = move |worker: usize, visit: &mut dyn FnMut(&'static str, &'static str, u64)| {
        if let Some(counters) = counters.get(worker) {
            counters.visit(visit);
        }
        // All workers share one locator.
        let counts = if worker == 0 { located.counts() } else { Default::default() };
        counts.visit(visit);
    };
    Monitor::new(
        board.clone(),
        Box::new(request_publish),
        Box::new(net),
        Box::new(move || locator.sizes()),
        store.clone(),
        calls,
        Box::new(log.dropped()),
        facts,
    )
}
