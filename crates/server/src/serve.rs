//! `ringway serve`: how the process begins, is reloaded and ends.
//!
//! ```text
//! read configuration -> log -> certificates -> bind -> open store -> workers
//!                                                 SIGHUP: new rules, certificates, log level
//!                                 SIGTERM, SIGINT: no new calls -> what runs ends -> stop -> store
//! ```
//! Whatever fails before the workers run is one line that says what and where, and exit status 1.

use crate::config::{Settings, StoreKind};
use crate::first_run;
use crate::host;
use crate::locate::Locator;
use crate::log::Log;
use crate::observe::{Board, Control, Observed, Phase, control, http};
use crate::setup::{self, Sources, Tls};
use crate::store::Store;
use crate::worker::{Parts, Post, Worker, post_surely};
use ringway_net::{Clock, Endpoint};
use ringway_proxy::config::Config;
use ringway_proxy::shared::Shared;
use ringway_sansio::{Flow, FlowId, Transport};
use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

/// How long connections may take to write what is queued once the process stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
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
    host::raise_open_files();
    let mut server = Server::start(sources, settings, log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The signals are taken over before anyone is told that the server runs.
    let signals = runtime.block_on(async { Signals::new() })?;
    server.greet()?;
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
    /// How management is reached.
    management: Option<Control>,
    control_file: Option<control::ControlFile>,
    log: Log,
}

impl Server {
    fn start(sources: &Sources, settings: Settings, log: Log) -> Result<Self, Failure> {
        let kind = setup::store(&settings)?;
        let workers = setup::workers(&settings);
        let clock = Clock::new();
        let tls = Tls::load(&settings.tls)?;
        setup::warn_of_open_rules(&settings);
        let management = bind_management(&settings)?;
        let listen = setup::listen(&settings);
        let endpoints = ringway_net::bind::<Post>(ringway_net::Config {
            workers,
            listen: listen.iter().cloned().map(setup::bind).collect(),
            limits: setup::net_limits(&settings),
            clock,
            tls_server: tls.server.clone(),
            tls_client: tls.client.clone(),
            udp_receive_buffer: ringway_net::limits::UDP_RECEIVE_BUFFER,
            sctp: setup::sctp(&settings),
            origins: Default::default(),
        })?;
        let control = match endpoints.first() {
            Some(endpoint) => endpoint.control(),
            None => return Err(Failure(vec!["workers: expected at least 1, got 0".to_owned()])),
        };
        let (store, config, first_run) = open_store(&settings, &kind, clock, &control)?;
        control.set_origins(setup::origins(&settings, &config));
        let store = Arc::new(store);
        let workers_ended = Arc::new(AtomicBool::new(false));
        wire(&store, &control, &workers_ended);
        let locator = Locator::start(control.clone(), clock)?;
        let board = Arc::new(Board::new(workers));
        let listening = setup::listening(&listen, control.listeners());
        let facts = setup::facts(&config, listening, &kind);
        let observed = observe(&board, &control, &locator, &store, &log, facts);
        let mut server = Server {
            sources: sources.clone(),
            settings,
            kind,
            config,
            tls,
            store,
            observed,
            control,
            workers: Vec::new(),
            ended: tokio::sync::mpsc::unbounded_channel().1,
            workers_ended,
            first_run,
            management: None,
            control_file: None,
            log,
        };
        server.start_workers(endpoints, &locator, &board, clock)?;
        if let Some(listener) = management {
            server.start_management(listener, clock)?;
        }
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

    fn start_management(&mut self, listener: TcpListener, clock: Clock) -> Result<(), Failure> {
        let control = Control::new(listener.local_addr()?)?;
        self.management = Some(control.clone());
        let observed = self.observed.clone();
        thread::Builder::new().name("http".into()).spawn(move || {
            if let Err(e) = http::serve(listener, observed, control, Box::new(move || clock.now()))
            {
                error!("management has ended: {e}");
            }
        })?;
        Ok(())
    }

    /// Says that the server runs, and what to type into a phone when users are new. The control file
    /// comes last: who sees it finds a server that listens and heeds signals.
    fn greet(&mut self) -> Result<(), Failure> {
        let loaded = self.store.loaded();
        info!(
            listen = self.observed.facts.load().listen.join(" "),
            domain = %self.config.domains.first().map_or("", |d| &d.name),
            workers = self.workers.len(),
            store = %self.kind,
            users = self.store.users().len(),
            contacts = loaded.contacts,
            "serving"
        );
        if loaded.corrupt > 0 {
            warn!("{} records of the store could not be read and were left out", loaded.corrupt);
        }
        let text = self.first_run.text(&self.config);
        if !text.is_empty() {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        if let Some(control) = &self.management {
            let path = control::path_of(&self.kind)?;
            let file = control.write(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            self.control_file = Some(file);
        }
        Ok(())
    }

    /// Serves until it is time to stop: after a drain, on a second signal, or because a worker ended.
    async fn run(&mut self, mut signals: Signals) -> Result<(), Failure> {
        loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Reload => self.reload(),
                    Asked::Stop => break,
                },
                Some(index) = self.ended.recv() => return Err(self.worker_ended(index)),
            }
        }
        info!(deadline = ?self.settings.limits.drain, "stopping: no new calls are taken");
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

    fn try_reload(&mut self) -> Result<(), Failure> {
        let settings = self.sources.read().map_err(Failure)?;
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
        self.tls.reload(&settings.tls)?;
        self.control.set_origins(setup::origins(&settings, &config));
        setup::warn_of_open_rules(&settings);
        self.log.set_level(settings.log.level);
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

fn bind_management(settings: &Settings) -> Result<Option<TcpListener>, Failure> {
    let Some(addr) = settings.http.0 else { return Ok(None) };
    TcpListener::bind(addr).map(Some).map_err(|e| {
        let what = match e.kind() {
            io::ErrorKind::AddrInUse => "address in use".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => e.to_string(),
        };
        Failure(vec![format!("http://{addr}: {what}")])
    })
}

fn open_store(
    settings: &Settings,
    kind: &StoreKind,
    clock: Clock,
    control: &ringway_net::Control<Post>,
) -> Result<(Store, Arc<Config>, first_run::Users), Failure> {
    let listeners = control.listeners();
    let workers = control.mailboxes().len();
    let revive = &mut |flow: &Flow| revive(flow, listeners, workers);
    let mut store = Store::open(kind, clock.now(), revive)?;
    if let (None, Some(name)) = (store.domain(), setup::default_domain(settings)) {
        store.set_domain(&name.0)?;
    }
    let config =
        Arc::new(setup::proxy(settings, store.domain(), listeners, workers, store.secret()));
    let users = first_run::users(settings, &config, &store)?;
    Ok((store, config, users))
}

/// The flow of an earlier process in this one: datagrams came to a socket that listens again, if
/// one does; a connection is gone.
fn revive(flow: &Flow, listeners: &[ringway_net::Listener], workers: usize) -> Option<Flow> {
    if flow.transport != Transport::Udp {
        return None;
    }
    let place = listeners.iter().position(|l| {
        let same = l.addr.ip() == flow.local.ip()
            || (l.addr.ip().is_unspecified() && l.addr.is_ipv4() == flow.local.is_ipv4());
        l.transport == flow.transport && l.addr.port() == flow.local.port() && same
    })?;
    let worker = usize::from(flow.id.worker()) % workers;
    Some(Flow { id: FlowId::new(worker as u8, place as u64), ..*flow })
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
        Box::new(log.dropped()),
        facts,
    ))
}
