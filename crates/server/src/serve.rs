//! `ringway serve`: how the process begins, is reloaded and ends.
//!
//! ```text
//! read configuration -> log -> certificates -> bind -> open store -> workers -> management
//!                                                 SIGHUP: new rules, certificates, log level
//!                                 SIGTERM, SIGINT: no new calls -> what runs ends -> stop -> store
//! ```
//! Whatever fails before the workers run is one line that says what and where, and exit status 1.

use crate::calls::{Calls, Cdr};
use crate::config::{Settings, StoreKind};
use crate::first_run;
use crate::locate::Locator;
use crate::log::Log;
use crate::notify;
use crate::observe::control::{self, ControlDirectory, ControlSocket};
use crate::observe::{Board, Observed, Phase, http};
use crate::prepare::Prepared;
use crate::setup::{self, Sources, Tls};
use crate::store::Store;
use crate::worker::{Parts, Post, Worker, post_surely};
use ringway_net::{Clock, Endpoint};
use ringway_proxy::config::Config;
use ringway_proxy::shared::Shared;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

/// How long connections may take to write what is queued once the process stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Fewer connections than this are worth a warning where more are configured.
const FEW_CONNECTIONS: usize = 1000;
/// How often a draining server looks whether anything is still under way.
const DRAIN_LOOK: Duration = Duration::from_millis(100);

/// Why the process could not begin or had to end: a line each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub Vec<String>);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(e: E) -> Self {
        Failure(vec![e.to_string()])
    }
}

/// Runs the server until it is told to stop.
///
/// # Errors
/// What is wrong, a line each.
pub fn serve(sources: &Sources) -> Result<(), Failure> {
    ringway_net::keep_memory_small();
    let settings = sources.read().map_err(Failure)?;
    let log = Log::start(settings.log)?;
    let mut server = Server::start(sources, settings, log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The signals are taken over before anyone is told that the server runs.
    let signals = runtime.block_on(async { Signals::new() })?;
    server.greet()?;
    notify::ready(&server.observed)?;
    runtime.block_on(server.run(signals))?;
    server.stop()
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.hangup.recv() => Asked::Reload,
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
        }
    }

    async fn stop(&mut self) {
        while self.next().await != Asked::Stop {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Reload,
    Stop,
}

struct Server {
    sources: Sources,
    settings: Settings,
    kind: StoreKind,
    clock: Clock,
    config: Arc<Config>,
    tls: Tls,
    store: Arc<Store>,
    observed: Arc<Observed>,
    control: ringway_net::Control<Post>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    /// Told by each worker as it ends.
    ended: tokio::sync::mpsc::UnboundedReceiver<usize>,
    /// Nobody reads the mailboxes any more.
    workers_ended: Arc<AtomicBool>,
    first_run: first_run::Users,
    /// Connections that may be open.
    connections: usize,
    management: Management,
    log: Log,
}

/// How management is reached: what it will listen on, and what it listens on.
struct Management {
    pages: Option<TcpListener>,
    directory: Option<ControlDirectory>,
    /// Removes the socket when the server ends.
    _socket: Option<ControlSocket>,
}

impl Server {
    fn start(sources: &Sources, settings: Settings, log: Log) -> Result<Self, Failure> {
        let prepared = Prepared::new(&settings).map_err(Failure)?;
        let Prepared { kind, clock, tls, pages, listen, endpoints, net, .. } = prepared;
        let Prepared { connections, locator, mut store, directory, .. } = prepared;
        setup::warn_of_open_rules(&settings);
        let workers = net.mailboxes().len();
        if let (None, Some(name)) = (store.domain(), setup::default_domain(&settings)) {
            store.set_domain(&name.0)?;
        }
        let config =
            setup::proxy(&settings, store.domain(), net.listeners(), workers, store.secret());
        let config = Arc::new(config);
        let first_run = first_run::users(sources, &settings, &config, &store)?;
        net.set_origins(setup::origins(&settings, &config));
        let store = Arc::new(store);
        let workers_ended = Arc::new(AtomicBool::new(false));
        wire(&store, &net, &workers_ended);
        let board = Arc::new(Board::new(workers));
        let listening = setup::listening(&listen, net.listeners());
        let facts = setup::facts(&config, listening, &kind);
        let calls = Calls::start(Cdr::start(settings.cdr.clone())?, move || clock.now())?;
        calls.set_ends_seen(config.record_route);
        let observed = observe(&board, &net, &locator, &store, calls, &log, facts);
        let mut server = Server {
            sources: sources.clone(),
            settings,
            kind,
            clock,
            config,
            tls,
            store,
            observed,
            control: net,
            workers: Vec::new(),
            ended: tokio::sync::mpsc::unbounded_channel().1,
            workers_ended,
            first_run,
            connections,
            management: Management { pages, directory, _socket: None },
            log,
        };
        server.start_workers(endpoints, &locator, &board, clock)?;
        Ok(server)
    }

    fn start_workers(
        &mut self,
        endpoints: Vec<Endpoint<Post>>,
        locator: &Locator,
        board: &Arc<Board>,
        clock: Clock,
    ) -> io::Result<()> {
        let (tell, ended) = tokio::sync::mpsc::unbounded_channel();
        self.ended = ended;
        let shared = Arc::new(Shared::new(&self.config.secret));
        for (index, endpoint) in endpoints.into_iter().enumerate() {
            let worker = Worker::new(Parts {
                index: endpoint.worker(),
                config: self.config.clone(),
                store: self.store.location().clone(),
                users: self.store.users().clone(),
                control: self.control.clone(),
                locator: locator.clone(),
                board: board.clone(),
                calls: self.observed.calls.clone(),
                clock,
                shared: shared.clone(),
            })?;
            let tell = tell.clone();
            let thread =
                thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                    // Told however the worker ends.
                    let _told = Told(tell, index);
                    ringway_net::give_memory_back();
                    endpoint.run(worker).map(drop)
                })?;
            self.workers.push(thread);
        }
        Ok(())
    }

    /// Serves pages and the control socket, on a thread of their own.
    fn start_management(&mut self) -> Result<(), Failure> {
        let mut control = None;
        if let Some(directory) = self.management.directory.take() {
            let listening = directory.listen().map_err(|e| format!("control socket: {e}"))?;
            control = Some(listening.0);
            self.management._socket = Some(listening.1);
        }
        let pages = self.management.pages.take();
        let (observed, clock) = (self.observed.clone(), self.clock);
        thread::Builder::new().name("management".into()).spawn(move || {
            if let Err(e) = http::serve(pages, control, observed, Box::new(move || clock.now())) {
                error!("management has ended: {e}");
            }
        })?;
        Ok(())
    }

    /// Logs that the server runs, and prints what to type into a phone when users are new. Management
    /// comes last: whoever reaches it finds a server that listens and heeds signals.
    fn greet(&mut self) -> Result<(), Failure> {
        let loaded = self.store.loaded();
        info!(
            listen = self.observed.facts.load().listen.join(" "),
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
            warn!("{} records of the store could not be read and were left out", loaded.corrupt);
        }
        if loaded.shortened > 0 {
            warn!(
                "{} contacts of the store were registered for longer than registrar.expires_max \
                 and were shortened: was the clock wrong?",
                loaded.shortened
            );
        }
        let beside = control::directory_of(&self.kind)?;
        self.first_run.print(&self.config, &which(&self.sources), &beside)?;
        self.start_management()
    }

    /// Serves until it is time to stop: after a drain, on a second signal, or because a worker ended.
    async fn run(&mut self, mut signals: Signals) -> Result<(), Failure> {
        loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Reload => {
                        notify::reloading();
                        self.reload();
                        notify::reloaded();
                    }
                    Asked::Stop => break,
                },
                Some(index) = self.ended.recv() => return Err(self.worker_ended(index)),
            }
        }
        info!(deadline = ?self.settings.limits.drain, "stopping: no new calls are taken");
        notify::stopping();
        self.observed.set_phase(Phase::Draining);
        self.post(|| Post::Drain);
        let (observed, limit) = (self.observed.clone(), self.settings.limits.drain);
        tokio::select! {
            idle = drained(&observed, limit) => {
                if !idle {
                    warn!("stopping with transactions under way: the deadline has come");
                }
            }
            () = signals.stop() => info!("stopping at once"),
            Some(index) = self.ended.recv() => return Err(self.worker_ended(index)),
        }
        Ok(())
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
            if !post_surely(mailbox, &make) {
                error!("worker {index} does not take its mail");
            }
        }
    }

    /// Ends workers, then the store, which writes what waits.
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
        self.observed.calls.stop();
        self.store.flush();
        info!("stopped");
        if failures.is_empty() { Ok(()) } else { Err(Failure(failures)) }
    }

    /// Takes over what may change while calls go on. A mistake anywhere changes nothing.
    fn reload(&mut self) {
        match self.try_reload() {
            Ok(()) => {
                self.observed.reloads.0.fetch_add(1, Relaxed);
                info!("configuration reloaded");
            }
            Err(failure) => {
                self.observed.reloads.1.fetch_add(1, Relaxed);
                for line in failure.0 {
                    error!("{line}");
                }
                error!("configuration not reloaded: everything stays as it was");
            }
        }
    }

    /// Refuses what looks like a file cut short or mistaken for another. Whoever means it restarts.
    fn refuse_loss(&self, new: &Settings) -> Result<(), Failure> {
        let file = self.sources.config.as_ref().map_or(String::new(), |p| p.display().to_string());
        if new.is_empty && !self.settings.is_empty {
            return Err(Failure(vec![format!("{file}: is empty")]));
        }
        let lost = setup::lost_domains(&self.settings, new, self.store.domain());
        if lost.is_empty() {
            return Ok(());
        }
        let what = format!("{file}: no longer has the domain {}", lost.join(", "));
        Err(Failure(vec![format!("{what}; a domain is taken away by a restart")]))
    }

    fn try_reload(&mut self) -> Result<(), Failure> {
        let settings = self.sources.read().map_err(Failure)?;
        self.refuse_loss(&settings)?;
        for what in needs_restart(&self.settings, &settings) {
            warn!("{what} has changed: it takes effect at the next start");
        }
        let config = Arc::new(setup::proxy(
            &settings,
            self.store.domain(),
            self.control.listeners(),
            self.workers.len(),
            self.store.secret(),
        ));
        self.tls.reload(&settings.tls).map_err(Failure)?;
        self.control.set_origins(setup::origins(&settings, &config));
        setup::warn_of_open_rules(&settings);
        self.log.set_level(settings.log.level);
        self.observed.calls.cdr().reopen(settings.cdr.clone());
        self.observed.calls.set_ends_seen(settings.record_route);
        let listening = self.observed.facts.load().listen.clone();
        self.observed.facts.store(Arc::new(setup::facts(&config, listening, &self.kind)));
        self.post(|| Post::Configured(config.clone()));
        self.config = config;
        // What was decided at the start stays decided.
        self.settings = Settings {
            listen: std::mem::take(&mut self.settings.listen),
            store: self.settings.store.take(),
            workers: self.settings.workers,
            http: self.settings.http,
            ..settings
        };
        Ok(())
    }
}

/// The flags by which other commands find this server.
fn which(sources: &Sources) -> String {
    let config = sources.config.iter().map(|path| format!(" --config {}", path.display()));
    let store = sources.overrides.store.iter().map(|kind| format!(" --store {kind}"));
    config.chain(store).collect()
}

/// Waits until nothing is under way that a peer waits for; false when it takes longer than `limit`.
async fn drained(observed: &Observed, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        let snapshots = observed.board.refresh(|| (observed.ask)()).await;
        if snapshots.iter().all(|s| s.idle) {
            return true;
        }
        tokio::time::sleep(DRAIN_LOOK).await;
    }
    false
}

/// What differs and cannot change while the server runs.
fn needs_restart(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let (a, b) = (&old.limits, &new.limits);
    let connections = (a.connections, a.connections_per_source, a.idle, a.handshake)
        != (b.connections, b.connections_per_source, b.idle, b.handshake);
    [
        (old.listen != new.listen, "listen"),
        (old.store != new.store, "store"),
        (old.workers != new.workers, "workers"),
        (old.http != new.http, "http"),
        (old.log.format != new.log.format, "log.format"),
        (old.sctp != new.sctp, "sctp.profile"),
        (connections, "a limit of connections"),
        (old.tls.default.is_some() != new.tls.default.is_some(), "whether there is a certificate"),
    ]
    .into_iter()
    .filter_map(|(differs, what)| differs.then_some(what))
    .collect()
}

struct Told(tokio::sync::mpsc::UnboundedSender<usize>, usize);

impl Drop for Told {
    fn drop(&mut self) {
        // Nobody listens any more once the process stops.
        let _ = self.0.send(self.1);
    }
}

/// Lets the store tell workers what has become durable, and of changes they watch.
fn wire(store: &Store, control: &ringway_net::Control<Post>, ended: &Arc<AtomicBool>) {
    let mailboxes = control.mailboxes().to_vec();
    let ended = ended.clone();
    store.set_commit_sink(Arc::new(move |worker, ids, ok| {
        // A REGISTER waits for this: the store rather waits for a worker that is behind.
        if let (Some(mailbox), false) = (mailboxes.get(usize::from(worker)), ended.load(Relaxed)) {
            post_surely(mailbox, || Post::Committed(ids.into(), ok));
        }
    }));
    let mailboxes = control.mailboxes().to_vec();
    store.location().set_sink(Arc::new(move |worker, aor, why| {
        if let Some(mailbox) = mailboxes.get(usize::from(worker)) {
            mailbox.try_post(Post::Changed(aor.into(), why));
        }
    }));
}

fn observe(
    board: &Arc<Board>,
    control: &ringway_net::Control<Post>,
    locator: &Locator,
    store: &Arc<Store>,
    calls: Calls,
    log: &Log,
    facts: crate::observe::Facts,
) -> Arc<Observed> {
    let mailboxes = control.mailboxes().to_vec();
    let ask = move || {
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
        // One locator serves all workers.
        let counts = if worker == 0 { located.counts() } else { Default::default() };
        counts.visit(visit);
    };
    Arc::new(Observed::new(
        board.clone(),
        Box::new(ask),
        Box::new(net),
        Box::new(move || locator.sizes()),
        store.clone(),
        calls,
        Box::new(log.dropped()),
        facts,
    ))
}
