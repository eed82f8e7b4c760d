//! The loop: packets, time, interfaces and questions go to the router, and what it makes of them comes out.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ringway_mesh::config::Config;
use ringway_mesh::crypto::{NetworkKey, Real};
use ringway_mesh::identity::HASH_EXTENSION_BITS;
use ringway_mesh::link::{Discovery, InterfaceConfig, LinkAddress};
use ringway_mesh::router::Event;
use ringway_mesh::session::{ProbeId, ProbeOutcome, ProbeRefused};
use ringway_mesh::{Identity, LocalRouter, NodeId, Router};
use ringway_os::netlink::{self, Monitor, Netlink, NetlinkError};
use ringway_os::{Capability, ChaCha, Clock, drop_capabilities};
use ringway_sansio::Time;
use ringway_sansio::time::{Duration, sooner};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::control::{self, Asker, Request, View};
use crate::device::{self, DeviceError};
use crate::http;
use crate::interfaces::{Change, Interfaces};
use crate::lan::{self, Lan};
use crate::notify::{self, Watchdog};
use crate::settings::Settings;
use crate::socket::{self, NAMED};
use crate::state::{self, StateError};
use crate::status::{self, Counters, Surroundings};
use crate::traffic::{Ports, Traffic};
use crate::users::{APPLICATION, Attachment, PRIVATE_PORT, Users};

/// Largest UDP payload between named routers, of which nobody knows the way: IPv6 over Ethernet.
const NAMED_MTU: u16 = 1_452;
/// Time for which a repeated warning is not logged again.
const QUIET: Duration = Duration::from_secs(60);
/// Warnings that are remembered.
const MAX_WARNINGS: usize = 256;
/// Time for which the address of the device is waited for.
const LOCAL_WAIT: Duration = Duration::from_secs(5);
/// Shortest sleep.
const TICK: Duration = Duration::from_micros(200);
/// Requests of clients that wait.
const REQUESTS: usize = 16;

/// Why a router does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The identity or the network key.
    #[error(transparent)]
    State(#[from] StateError),
    /// The TUN device.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// The kernel's tables.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The UDP socket.
    #[error("UDP port {port}: {error}")]
    Socket {
        /// The port.
        port: u16,
        /// What failed.
        error: io::Error,
    },
    /// The control socket.
    #[error("control socket {path}: {error}")]
    Control {
        /// The socket.
        path: String,
        /// What failed.
        error: io::Error,
    },
    /// The address of metrics.
    #[error("metrics on {address}: {error}")]
    Http {
        /// The address.
        address: SocketAddr,
        /// What failed.
        error: io::Error,
    },
    /// The rights that are not needed.
    #[error("capabilities cannot be dropped: {0}")]
    Privileges(io::Error),
    /// The LAN.
    #[error("LAN {name}: {error}; it needs CAP_NET_RAW")]
    Lan {
        /// The interface.
        name: String,
        /// What failed.
        error: io::Error,
    },
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

struct Daemon<'a> {
    settings: &'a Settings,
    log: &'a dyn Fn(&str),
    clock: Clock,
    start: Time,
    traffic: Traffic,
    users: Users,
    ports: &'a Ports,
    netlink: Netlink,
    interfaces: Interfaces,
    /// When a warning was logged last.
    warned: BTreeMap<String, Time>,
    /// Where the outcomes of probes go.
    probes: BTreeMap<ProbeId, oneshot::Sender<Result<ProbeOutcome, ProbeRefused>>>,
    /// How many clients were refused because others ping or trace.
    refused: Arc<AtomicU64>,
    /// Counts of what is done here.
    counters: Counters,
}

/// Runs a router until `shutdown` ends. `log` gets lines for the operator. To be called within a runtime.
///
/// When its sockets and devices are open, the calling thread drops all capabilities but CAP_NET_ADMIN, which it keeps for
/// the address of a LAN that comes and goes, and CAP_NET_BIND_SERVICE if that has services. Threads that it starts afterwards have no more.
///
/// # Errors
/// Only what makes a start impossible; afterwards everything is a line.
pub async fn run(
    settings: &Settings,
    log: &dyn Fn(&str),
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    run_with(settings, log, shutdown, None).await
}

/// Runs a router as [`run`] does, with a SIP server in the same process.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    settings: &Settings,
    log: &dyn Fn(&str),
    shutdown: impl Future<Output = ()>,
    attachment: Option<Attachment>,
) -> Result<(), StartError> {
    let mut monitor = Monitor::open()?;
    let (clock, mut random) = (Clock::new(), ChaCha::from_os()?);
    let start = clock.now();
    let identity = identity(settings, log, &mut random)?;
    let router = router(settings, identity.clone(), start, &mut random)?;
    let users = Users::new(&identity, attachment, start)?;
    let (id, port) = (router.id(), settings.port);
    let path = control::path(&settings.state);
    let listener = control::listen(&path)
        .map_err(|error| StartError::Control { path: path.display().to_string(), error })?;
    let udp = socket::open(port).map_err(|error| StartError::Socket { port, error })?;
    let mut netlink = Netlink::open()?;
    let tun = device::open(&settings.tun, id.prefix(), settings.lan.is_some(), &mut netlink)?;
    let interface = netlink.link(&settings.tun)?.index;
    let mut lan = match &settings.lan {
        Some(name) => Some(open_lan(name, id, settings, clock, log)?),
        None => None,
    };
    let http = match settings.http {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    // Whenever the interface of a LAN comes up, its addresses are added, and its services open their ports. Nothing else
    // needs a right.
    let kept: &[Capability] = match (&lan, &settings.sip, settings.lan_ipv4) {
        (None, ..) => &[],
        (Some(_), None, None) => &[Capability::NetAdmin],
        (Some(_), ..) => &[Capability::NetAdmin, Capability::NetBindService],
    };
    drop_capabilities(kept).map_err(StartError::Privileges)?;
    let (requests, mut requested) = mpsc::channel(REQUESTS);
    let asker = Asker { requests, refused: Arc::default() };
    let refused = asker.refused.clone();
    let mut tasks = JoinSet::new();
    if let Some(http) = http {
        tasks.spawn(http::serve(http, asker.clone()));
    }
    tasks.spawn(control::serve(listener, asker));
    let ports = Ports::new(udp, tun);
    let mut daemon = Daemon {
        settings,
        log,
        clock,
        start,
        traffic: Traffic::new(router, random, port),
        users,
        ports: &ports,
        netlink,
        interfaces: Interfaces::new(&settings.interfaces),
        warned: BTreeMap::new(),
        probes: BTreeMap::new(),
        refused,
        counters: Counters::default(),
    };
    let address = id.prefix().router();
    if !is_local(&mut monitor, address).await {
        log(&format!("the address {address} is not in use after {} s", LOCAL_WAIT.as_secs()));
    }
    if let Err(error) = daemon.users.open(address, &settings.tun, interface) {
        log(&format!(
            "UDP port {PRIVATE_PORT} of {address}: {error}; no other router can be asked about its users"
        ));
    }
    daemon.read_interfaces();
    daemon.read_lan(&mut lan);
    log(&format!("ready: {address} on {}, router {id}", settings.tun));
    let mut watchdog = Watchdog::start(daemon.clock.now());
    daemon.serve(&mut monitor, &mut lan, &mut watchdog, &mut requested, shutdown).await;
    notify::stopping();
    if let Some(lan) = &mut lan {
        lan.leave(daemon.clock.now());
    }
    daemon.log_lan(&mut lan);
    drop(tasks);
    let _ = std::fs::remove_file(path);
    daemon.leave();
    Ok(())
}

/// Returns the identity of this host's router.
fn identity(
    settings: &Settings,
    log: &dyn Fn(&str),
    random: &mut ChaCha,
) -> Result<Arc<Identity>, StartError> {
    let identity = state::identity(&settings.state, random, || {
        log(&format!("a new identity is created in {}", settings.state.display()));
    })?;
    Ok(Arc::new(identity))
}

/// Returns the router of this host, which has no interfaces yet but the network between named routers.
fn router(
    settings: &Settings,
    identity: Arc<Identity>,
    start: Time,
    random: &mut ChaCha,
) -> Result<Router<Real>, StartError> {
    let network = match &settings.network_key {
        Some(path) => state::network_key(path)?,
        None => NetworkKey::OPEN,
    };
    let epoch = u32::try_from(start.as_secs()).unwrap_or(u32::MAX);
    let local = LocalRouter::new(identity, network, HASH_EXTENSION_BITS, epoch, random);
    let mut router = Router::new(&Config::default(), local, start, random);
    let named = InterfaceConfig {
        index: NAMED,
        discovery: Discovery::Named(settings.peers.clone()),
        mtu: NAMED_MTU,
    };
    router.add_interface(start, named, random);
    Ok(router)
}

/// Listens for scrapers of metrics.
async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| StartError::Http { address, error })
}

/// Opens what serves the hosts of a LAN.
fn open_lan(
    name: &str,
    router: NodeId,
    settings: &Settings,
    clock: Clock,
    log: &dyn Fn(&str),
) -> Result<Lan, StartError> {
    match lan::forward() {
        Ok(false) => {}
        Ok(true) => log("IPv6 forwarding was off and is on now, for hosts of the LAN"),
        Err(error) => log(&format!("IPv6 forwarding is not on, which a LAN needs: {error}")),
    }
    let lan = Lan::open(name, router, settings, clock);
    lan.map_err(|error| StartError::Lan { name: name.to_owned(), error })
}

/// Waits for what the hosts of a LAN ask for; for ever without a LAN.
async fn solicited(lan: &mut Option<Lan>, clock: &Clock) -> io::Result<()> {
    match lan {
        Some(lan) => lan.receive(|| clock.now()).await,
        None => std::future::pending().await,
    }
}

/// Waits until packets to an address that was added are received here. Returns whether they are.
async fn is_local(monitor: &mut Monitor, address: Ipv6Addr) -> bool {
    let reported = async {
        loop {
            match monitor.next().await {
                Ok(netlink::Change::Address(known)) if known.ip == address && known.is_usable() => {
                    return true;
                }
                // What was lost may have been the report.
                Ok(netlink::Change::Lost) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    };
    tokio::time::timeout(LOCAL_WAIT, reported).await.unwrap_or(false)
}

impl Daemon<'_> {
    async fn serve(
        &mut self,
        monitor: &mut Monitor,
        lan: &mut Option<Lan>,
        watchdog: &mut Watchdog,
        requested: &mut mpsc::Receiver<Request>,
        shutdown: impl Future<Output = ()>,
    ) {
        tokio::pin!(shutdown);
        let ports = self.ports;
        loop {
            self.flush();
            self.log_lan(lan);
            let now = self.clock.now();
            let due = self.traffic.router().poll_timeout();
            let due = sooner(due, lan.as_ref().and_then(Lan::poll_timeout));
            let due = sooner(due, watchdog.poll_timeout());
            let due = sooner(due, self.users.poll_timeout());
            let due = due.unwrap_or(now + Duration::from_secs(3_600));
            let sleep = self.clock.instant(due.max(now + TICK));
            tokio::select! {
                ready = ports.udp.readable() => match ready {
                    Ok(mut ready) if self.traffic.receive(ports, self.clock.now()) => {
                        ready.clear_ready();
                    }
                    // The runtime looks for other descriptors and timers only when it has nothing to run.
                    Ok(_) => tokio::task::yield_now().await,
                    Err(error) => self.warn("udp", &format!("the UDP socket fails: {error}")),
                },
                ready = ports.tun.readable() => match ready {
                    Ok(mut ready) if self.traffic.read_tun(ports, self.clock.now()) => {
                        ready.clear_ready();
                    }
                    Ok(_) => tokio::task::yield_now().await,
                    Err(error) => self.warn("tun", &format!("the TUN device fails: {error}")),
                },
                () = tokio::time::sleep_until(sleep.into()) => {
                    let now = self.clock.now();
                    watchdog.handle_timeout(now);
                    self.traffic.handle_timeout(now);
                    self.users.handle_timeout(now);
                    if let Some(lan) = lan {
                        lan.handle_timeout(now);
                    }
                }
                change = monitor.next() => match change {
                    Ok(_) => {
                        self.read_interfaces();
                        self.read_lan(lan);
                    }
                    Err(error) => {
                        self.warn("monitor", &format!("changes of interfaces are not reported: {error}"));
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        self.read_interfaces();
                    }
                },
                result = solicited(lan, &self.clock) => if let Err(error) = result {
                    self.warn("lan", &format!("hosts of the LAN are not answered: {error}"));
                    *lan = None;
                },
                Some(request) = requested.recv() => self.handle_request(request),
                () = self.users.next(|| self.clock.now()) => {
                    self.users.handle_waiting(self.clock.now());
                }
                () = &mut shutdown => return,
            }
        }
    }

    /// Sends what the router has to send, and logs what has happened.
    fn flush(&mut self) {
        let now = self.clock.now();
        self.handle_events(now);
        self.traffic.flush(self.ports, now);
        // What could not be sent is an event too.
        if self.handle_events(now) {
            self.traffic.flush(self.ports, now);
        }
    }

    /// Handles what has happened, and what follows from it. Returns whether anything has.
    fn handle_events(&mut self, now: Time) -> bool {
        let mut any = false;
        loop {
            while let Some(event) = self.traffic.poll_event() {
                any = true;
                match event {
                    Event::Closest { origin, application: APPLICATION, octets, .. } => {
                        self.users.handle_payload(now, origin, &octets);
                    }
                    event => self.report(&event),
                }
            }
            // What a router sends to itself comes back at once.
            if !self.users.settle(now, &mut self.traffic) {
                return any;
            }
            any = true;
        }
    }

    fn report(&mut self, event: &Event) {
        let names = self.interfaces.names();
        let name = |address: &LinkAddress| match names.get(&address.interface) {
            Some(name) => format!("{} on {name}", address.remote.ip()),
            None => address.remote.to_string(),
        };
        match event {
            Event::NeighbourUp(id) => (self.log)(&format!("neighbour {id} is up")),
            Event::NeighbourDown(id, reason) => {
                (self.log)(&format!("neighbour {id} is down: {reason}"));
            }
            Event::Refused(address, refused) => {
                let text = format!("link to {}: {refused}", name(address));
                self.warn(&text.clone(), &text);
            }
            Event::Closest { .. } => {}
            Event::Probe(id, outcome) => {
                if let Some(answer) = self.probes.remove(id) {
                    // Whoever has asked may have given up.
                    let _ = answer.send(Ok(*outcome));
                }
            }
            Event::DuplicateIdentity(address) => {
                let text = format!(
                    "another router at {} has this router's identity: was {} copied? \
                     Remove it on one of them",
                    name(address),
                    self.settings.state.display()
                );
                self.warn("duplicate", &text);
            }
        }
    }

    /// Logs a warning, unless the same was logged within a minute.
    fn warn(&mut self, key: &str, text: &str) {
        let now = self.clock.now();
        if self.warned.len() >= MAX_WARNINGS {
            self.warned.retain(|_, at| now.since(*at) < QUIET);
        }
        let is_new = self.warned.get(key).is_none_or(|&at| now.since(at) >= QUIET);
        if is_new && self.warned.len() < MAX_WARNINGS {
            self.warned.insert(key.to_owned(), now);
            (self.log)(text);
        } else if is_new {
            self.counters.warnings += 1;
        }
    }

    fn read_interfaces(&mut self) {
        let changes = match self.interfaces.read(&mut self.netlink) {
            Ok(changes) => changes,
            Err(error) => return self.warn("interfaces", &error.to_string()),
        };
        let now = self.clock.now();
        for change in changes {
            match change {
                Change::Missing(name) => {
                    (self.log)(&format!("interface {name} does not exist; waiting for it"));
                }
                Change::Up { name, index, mtu } => {
                    if let Err(error) = socket::join(self.ports.udp.get_ref(), index) {
                        self.warn(&name, &format!("interface {name}: {error}"));
                    }
                    (self.log)(&format!("interface {name} is used"));
                    let config = InterfaceConfig { index, discovery: Discovery::Multicast, mtu };
                    self.traffic.add_interface(now, config);
                }
                Change::Down { name, index } => {
                    (self.log)(&format!(
                        "interface {name} is not used any more: it is down or gone"
                    ));
                    socket::leave(self.ports.udp.get_ref(), index);
                    self.traffic.remove_interface(now, index);
                }
            }
        }
    }

    fn read_lan(&mut self, lan: &mut Option<Lan>) {
        let Some(lan) = lan else { return };
        match lan.read_interface(self.clock.now(), &mut self.netlink) {
            Ok(lines) => lines.iter().for_each(|line| (self.log)(line)),
            Err(error) => self.warn("lan", &error.to_string()),
        }
    }

    fn log_lan(&self, lan: &mut Option<Lan>) {
        let lines = lan.as_mut().map(Lan::take_lines);
        lines.iter().flatten().for_each(|line| (self.log)(line));
    }

    fn handle_request(&mut self, request: Request) {
        match request {
            // Whoever has asked may be gone.
            Request::Show(view, answer) => _ = answer.send(self.show(view)),
            Request::Probe { destination, hop_limit, answer } => {
                self.probes.retain(|_, answer| !answer.is_closed());
                match self.traffic.probe(self.clock.now(), destination, hop_limit) {
                    Ok(id) => _ = self.probes.insert(id, answer),
                    Err(refused) => {
                        self.counters.probes += u64::from(refused == ProbeRefused::Busy);
                        let _ = answer.send(Err(refused));
                    }
                }
            }
        }
    }

    fn show(&self, view: View) -> Value {
        let (now, router) = (self.clock.now(), self.traffic.router());
        let (tun, interfaces) = (self.settings.tun.as_str(), self.interfaces.names());
        let [directory_budget, directory_shares, directory_lists, directory_messages] =
            self.users.limits();
        let counters = Counters {
            directory_budget,
            directory_shares,
            directory_lists,
            directory_messages,
            tun_full: self.ports.tun_full(),
            warnings: self.counters.warnings,
            probes: self.counters.probes,
            probing: self.refused.load(Relaxed),
            ..self.traffic.counters()
        };
        let deputies = self.users.deputies();
        let around = Surroundings { tun, interfaces, start: self.start, deputies, counters };
        let value = match view {
            View::Status => serde_json::to_value(status::status(now, router, &around)),
            View::Peers => serde_json::to_value(status::peers(now, router, &around)),
            View::Ring => serde_json::to_value(status::ring(router)),
        };
        value.unwrap_or(Value::Null)
    }

    fn leave(&mut self) {
        self.users.leave(self.clock.now());
        self.flush();
        self.traffic.leave();
        self.flush();
        (self.log)("left the mesh");
    }
}

impl core::fmt::Debug for Daemon<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Daemon({})", self.traffic.router().id())
    }
}
