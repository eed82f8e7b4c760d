//! The loop: packets, time, interfaces and questions go to the router, and what it makes of them comes out.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use ringway_mesh::config::Config;
use ringway_mesh::crypto::{NetworkKey, Real};
use ringway_mesh::identity::HASH_EXTENSION_BITS;
use ringway_mesh::link::{Discovery, InterfaceConfig, LinkAddress};
use ringway_mesh::router::Event;
use ringway_mesh::{LocalRouter, Router};
use ringway_os::netlink::{Monitor, Netlink, NetlinkError};
use ringway_os::{
    After, ChaCha, Clock, Datagram, ReceiveBatch, SEND_BATCH, SendBatch, Tun, Watched,
};
use ringway_sansio::Time;
use ringway_sansio::time::Duration;
use serde_json::Value;
use socket2::Socket;
use tokio::sync::mpsc;

use crate::control::{self, Asked, Question};
use crate::device::{self, DeviceError};
use crate::interfaces::{Change, Interfaces};
use crate::settings::Settings;
use crate::socket::{self, NAMED};
use crate::state::{self, StateError};
use crate::status::{self, Surroundings};

/// Packets of hosts that are read before anything else has its turn.
const TUN_BATCH: usize = 64;
/// Longest packet of a host in octets.
const MAX_PACKET: usize = 65_536;
/// Largest UDP payload between named routers, of which nobody knows the way: IPv6 over Ethernet.
const NAMED_MTU: u16 = 1_452;
/// Time for which a repeated warning is not logged again.
const QUIET: Duration = Duration::from_secs(60);
/// Warnings that are remembered.
const MAX_WARNINGS: usize = 256;
/// Shortest sleep.
const TICK: Duration = Duration::from_micros(200);
/// Questions that wait.
const QUESTIONS: usize = 16;

/// Why a router does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The identity or the network key.
    #[error(transparent)]
    State(#[from] StateError),
    /// The TUN device.
    #[error("{0}; a router needs CAP_NET_ADMIN and /dev/net/tun")]
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
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

struct Daemon<'a> {
    settings: &'a Settings,
    log: &'a dyn Fn(&str),
    clock: Clock,
    start: Time,
    random: ChaCha,
    router: Router<Real>,
    udp: Watched<Socket>,
    tun: Watched<Tun>,
    netlink: Netlink,
    interfaces: Interfaces,
    received: ReceiveBatch,
    sending: SendBatch,
    /// When a warning was logged last.
    warned: BTreeMap<String, Time>,
    buffer: Vec<u8>,
}

/// Runs a router until `shutdown` ends. `log` gets lines for the operator. To be called within a runtime.
///
/// # Errors
/// Only what makes a start impossible; afterwards everything is a line.
pub async fn run(
    settings: &Settings,
    log: &dyn Fn(&str),
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let mut daemon = Daemon::start(settings, log)?;
    let path = control::path(&settings.tun);
    let listener = control::listen(&path)
        .map_err(|error| StartError::Control { path: path.display().to_string(), error })?;
    let (sender, mut questions) = mpsc::channel(QUESTIONS);
    let control = tokio::spawn(control::serve(listener, sender));
    let mut monitor = Monitor::open()?;
    daemon.read_interfaces();
    let id = daemon.router.id();
    log(&format!("ready: {} on {}, router {id}", id.prefix().router(), settings.tun));
    daemon.serve(&mut monitor, &mut questions, shutdown).await;
    control.abort();
    let _ = std::fs::remove_file(path);
    daemon.leave();
    Ok(())
}

impl<'a> Daemon<'a> {
    fn start(settings: &'a Settings, log: &'a dyn Fn(&str)) -> Result<Self, StartError> {
        let (clock, mut random) = (Clock::new(), ChaCha::from_os()?);
        let start = clock.now();
        let identity = state::identity(&settings.state, &mut random, || {
            log(&format!("a new identity is created in {}", settings.state.display()));
        })?;
        let network = match &settings.network_key {
            Some(path) => state::network_key(path)?,
            None => NetworkKey::OPEN,
        };
        let epoch = u32::try_from(start.as_secs()).unwrap_or(u32::MAX);
        let local = LocalRouter::new(identity, network, HASH_EXTENSION_BITS, epoch, &mut random);
        let prefix = local.id().prefix();
        let mut router = Router::new(&Config::default(), local, start, &mut random);
        let named = InterfaceConfig {
            index: NAMED,
            discovery: Discovery::Named(settings.peers.clone()),
            mtu: NAMED_MTU,
        };
        router.add_interface(start, named, &mut random);
        let port = settings.port;
        let udp = socket::open(port).map_err(|error| StartError::Socket { port, error })?;
        let mut netlink = Netlink::open()?;
        let tun = device::open(&settings.tun, prefix, &mut netlink)?;
        Ok(Daemon {
            settings,
            log,
            clock,
            start,
            random,
            router,
            udp,
            tun,
            netlink,
            interfaces: Interfaces::new(&settings.interfaces),
            received: ReceiveBatch::new(),
            sending: SendBatch::new(),
            warned: BTreeMap::new(),
            buffer: vec![0; MAX_PACKET],
        })
    }

    async fn serve(
        &mut self,
        monitor: &mut Monitor,
        questions: &mut mpsc::Receiver<Asked>,
        shutdown: impl Future<Output = ()>,
    ) {
        tokio::pin!(shutdown);
        loop {
            self.flush();
            let now = self.clock.now();
            let due = self.router.poll_timeout().unwrap_or(now + Duration::from_secs(3_600));
            let sleep = self.clock.instant(due.max(now + TICK));
            tokio::select! {
                ready = self.udp.readable() => match ready {
                    Ok(mut ready) => {
                        ready.clear_ready();
                        drop(ready);
                        self.receive();
                    }
                    Err(error) => self.warn("udp", &format!("the UDP socket fails: {error}")),
                },
                ready = self.tun.readable() => match ready {
                    Ok(mut ready) => {
                        ready.clear_ready();
                        drop(ready);
                        self.read_tun();
                    }
                    Err(error) => self.warn("tun", &format!("the TUN device fails: {error}")),
                },
                () = tokio::time::sleep_until(sleep.into()) => {
                    let now = self.clock.now();
                    self.router.handle_timeout(now, &mut self.random);
                }
                change = monitor.next() => match change {
                    Ok(_) => self.read_interfaces(),
                    Err(error) => {
                        self.warn("monitor", &format!("changes of interfaces are not reported: {error}"));
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        self.read_interfaces();
                    }
                },
                Some(asked) = questions.recv() => {
                    // Whoever has asked may be gone.
                    let _ = asked.answer.send(self.answer(&asked.question));
                }
                () = &mut shutdown => return,
            }
        }
    }

    /// Reads datagrams until there are none, or others are to have their turn.
    fn receive(&mut self) {
        let now = self.clock.now();
        loop {
            let fd = self.udp.get_ref().as_fd();
            let Ok(count) = self.received.receive(fd) else { return };
            let mut packet = core::mem::take(&mut self.buffer);
            for at in 0..count {
                let Some(reception) = self.received.get(at) else { continue };
                let from = socket::source(reception.remote);
                for datagram in reception.datagrams() {
                    let Some(bytes) = packet.get_mut(..datagram.len()) else { continue };
                    bytes.copy_from_slice(datagram);
                    let opened = self.router.handle_packet(now, from, bytes, &mut self.random);
                    if let Some(packet) = opened.and_then(|range| bytes.get(range)) {
                        // A full queue of the kernel is loss as on any link.
                        let _ = self.tun.get_ref().write(packet);
                    }
                }
            }
            self.buffer = packet;
            self.flush();
            if count < ringway_os::RECEIVE_BATCH {
                return;
            }
        }
    }

    /// Reads packets of hosts.
    fn read_tun(&mut self) {
        let now = self.clock.now();
        let mut packet = core::mem::take(&mut self.buffer);
        for _ in 0..TUN_BATCH {
            let Ok(length) = self.tun.get_ref().read(&mut packet) else { break };
            let Some(packet) = packet.get(..length) else { continue };
            self.router.handle_local(now, packet, &mut self.random);
        }
        self.buffer = packet;
    }

    /// Sends what the router has to send, and logs what has happened.
    fn flush(&mut self) {
        while let Some(error) = self.router.poll_error() {
            let _ = self.tun.get_ref().write(&error);
        }
        let mut failed = Vec::new();
        let port = self.settings.port;
        let mut packets: Vec<(u32, SocketAddr, Vec<u8>)> = Vec::new();
        while let Some(packet) = self.router.poll_transmit() {
            let to = socket::destination(packet.interface, packet.to, port);
            packets.push((packet.interface, to, packet.bytes.to_vec()));
        }
        for batch in packets.chunks(SEND_BATCH) {
            let datagrams: Vec<Datagram<'_>> =
                batch.iter().map(|(_, to, bytes)| Datagram::new(bytes, *to, None)).collect();
            let fd = self.udp.get_ref().as_fd();
            self.sending.send(fd, &datagrams, |at, _| {
                failed.push((batch[at].0, batch[at].1));
                After::Skip
            });
        }
        let now = self.clock.now();
        for (interface, remote) in failed {
            let to = LinkAddress { interface, remote };
            self.router.send_failed(now, to, &mut self.random);
        }
        while let Some(event) = self.router.poll_event() {
            self.report(&event);
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
                    if let Err(error) = socket::join(self.udp.get_ref(), index) {
                        self.warn(&name, &format!("interface {name}: {error}"));
                    }
                    (self.log)(&format!("interface {name} is used"));
                    let config = InterfaceConfig { index, discovery: Discovery::Multicast, mtu };
                    self.router.add_interface(now, config, &mut self.random);
                }
                Change::Down { name, index } => {
                    (self.log)(&format!(
                        "interface {name} is not used any more: it is down or gone"
                    ));
                    socket::leave(self.udp.get_ref(), index);
                    self.router.remove_interface(now, index, &mut self.random);
                }
            }
        }
    }

    fn answer(&self, question: &Question) -> Value {
        let now = self.clock.now();
        let (tun, interfaces) = (self.settings.tun.as_str(), self.interfaces.names());
        let around = Surroundings { tun, interfaces, start: self.start };
        let value = match question {
            Question::Status => serde_json::to_value(status::status(now, &self.router, &around)),
            Question::Peers => serde_json::to_value(status::peers(now, &self.router, &around)),
            Question::Ring => serde_json::to_value(status::ring(&self.router)),
        };
        value.unwrap_or(Value::Null)
    }

    fn leave(&mut self) {
        let now = self.clock.now();
        self.router.leave(now, &mut self.random);
        self.flush();
        (self.log)("left the mesh");
    }
}

impl core::fmt::Debug for Daemon<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Daemon({})", self.router.id())
    }
}
