//! The SCTP stack of a process or of a worker.

use super::association::Association;
use super::carrier::{Carrier, DownAddresses, Traffic};
use super::config::{Config, Connect, Over};
use super::core::{AcceptQueue, Core, Handle, Shared};
use super::driver::Driver;
use super::error::Error;
use super::host_events::{read_icmp, watch_addresses};
use super::listener::Listener;
use super::locals::{Locals, check_scope};
use super::ports::Ports;
use super::sockets::StackSockets;
use super::tun::Packets;
use super::waiters::Waiters;
use super::{kernel, userspace};
use ringway_os::{ChaCha, Clock, NetworkMonitor, Tun};
use ringway_sctp::{AssocId, Counters, Limits, Sctp, Settings};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::runtime::Handle as Runtime;
use tokio::task::AbortHandle;

/// A running SCTP stack: a handle of its task, which runs in the runtime it was created in. Clones are
/// handles of the same stack. It ends when all handles, listeners and associations are dropped and the
/// last association has ended.
#[derive(Clone)]
pub struct Stack {
    /// `None` for the kernel's SCTP.
    handle: Option<Arc<Handle>>,
    /// The local UDP port, over UDP.
    udp_port: Option<u16>,
    over_ip: bool,
    settings: Settings,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("udp_port", &self.udp_port).finish_non_exhaustive()
    }
}

impl Stack {
    /// Opens the sockets and starts the task. To be called within a runtime that has its timers and
    /// sockets enabled.
    pub fn new(config: Config) -> Result<Stack, Error> {
        let opened = match config.over {
            Over::Udp { ref locals, port } => StackSockets::udp(locals, port)?,
            Over::Ip => StackSockets::raw()?,
            Over::Kernel => {
                kernel::check()?;
                return Ok(Stack {
                    handle: None,
                    udp_port: None,
                    over_ip: false,
                    settings: config.settings,
                });
            }
            Over::Tun { ref name } => {
                let failed = |error| Error::system(format!("sctp over the device {name}"), error);
                let carrier = Packets::new(Tun::open(name).map_err(failed)?).map_err(failed)?;
                let shared =
                    share(config.limits, config.settings, None, None, DownAddresses::default())?;
                return Ok(Stack::run(shared, carrier, Vec::new(), None, config.settings));
            }
        };
        Stack::start(opened, config.limits, config.settings)
    }

    /// Starts the task with open sockets. To be called within a runtime that has its timers and sockets enabled.
    pub fn start(opened: StackSockets, limits: Limits, settings: Settings) -> Result<Stack, Error> {
        let failed = |error| Error::system("sctp", error);
        let runtime =
            Runtime::try_current().map_err(|e| failed(io::Error::other(e.to_string())))?;
        let down = DownAddresses::default();
        let udp_port = opened.udp_port();
        let (sockets, ports, locals) = opened.register(down.clone()).map_err(failed)?;
        let shared = share(limits, settings, ports, locals, down)?;
        let mut tasks = Vec::new();
        for ear in sockets.error_sources().map_err(failed)? {
            tasks.push(runtime.spawn(read_icmp(shared.clone(), ear)).abort_handle());
        }
        // Where the system reports no changes of addresses, the heartbeats find them.
        if let Ok(monitor) = NetworkMonitor::open() {
            tasks.push(runtime.spawn(watch_addresses(shared.clone(), monitor)).abort_handle());
        }
        Ok(Stack::run(shared, sockets, tasks, udp_port, settings))
    }

    fn run(
        shared: Arc<Shared>,
        carrier: impl Carrier + Unpin + 'static,
        tasks: Vec<AbortHandle>,
        udp_port: Option<u16>,
        settings: Settings,
    ) -> Stack {
        tokio::spawn(Driver::new(shared.clone(), carrier, tasks));
        let over_ip = shared.with(|core| core.shares_ports());
        Stack { handle: Some(Arc::new(Handle { shared })), udp_port, over_ip, settings }
    }

    /// Listens for associations at `port` of any of `addresses`; each association uses all of them. With a
    /// wildcard, each association uses only the address that the peer sends its INIT to.
    pub fn listen(
        &self,
        addresses: &[IpAddr],
        port: u16,
        settings: Option<Settings>,
    ) -> Result<Listener, Error> {
        check_scope(addresses)?;
        let Some(handle) = &self.handle else {
            let settings = settings.unwrap_or(self.settings);
            let (listener, port) = kernel::Listener::new(addresses, port, &settings)?;
            return Ok(Listener::kernel(listener, port));
        };
        if self.over_ip {
            StackSockets::check(addresses)?;
        }
        let id = handle.shared.with(|core| {
            core.check()?;
            core.check_locals(addresses)?;
            core.hold_port(port)?;
            let id = match core.sctp.listen(addresses, port, settings) {
                Ok(id) => id,
                Err(error) => {
                    core.release_port(port);
                    return Err(error.into());
                }
            };
            let (queue, waiters) = (VecDeque::new(), Waiters::default());
            core.listeners.insert(id, AcceptQueue { port, queue, waiters });
            Ok::<_, Error>(id)
        })?;
        Ok(Listener::new(handle.clone(), id, port))
    }

    /// Has every association that is opened to one of these addresses at a listener with a wildcard use them all, in this
    /// order. The kernel's SCTP does so by itself.
    pub fn join_addresses(&self, addresses: &[IpAddr]) {
        self.query(|core| core.sctp.join_addresses(addresses));
    }

    /// Opens an association and waits until it is established.
    pub async fn connect(&self, connect: &Connect) -> Result<Association, Error> {
        let association = self.open(connect)?;
        association.established().await?;
        Ok(association)
    }

    /// Begins to open an association. Messages can be sent at once; the first of them travel with the
    /// handshake.
    pub fn open(&self, connect: &Connect) -> Result<Association, Error> {
        check_scope(&connect.locals)?;
        check_scope(&connect.remotes)?;
        let Some(handle) = &self.handle else {
            let settings = connect.settings.unwrap_or(self.settings);
            return kernel::connect(connect, &settings).map(Association::kernel);
        };
        let (key, id) = handle.shared.with(|core| {
            core.check()?;
            core.check_locals(&connect.locals)?;
            let udp_port = if self.udp_port.is_some() { connect.encapsulation } else { 0 };
            let settings = Settings { udp_port, ..connect.settings.unwrap_or(self.settings) };
            let id = match connect.local_port {
                0 if core.shares_ports() => from_any_port(core, connect, settings)?,
                port => from_port(core, connect, port, settings)?,
            };
            let key = core.insert(id);
            let port = core.sctp.ports(id).map_or(0, |(local, _)| local);
            core.release_port(port);
            core.kick();
            Ok::<_, Error>((key, id))
        })?;
        Ok(Association::userspace(userspace::Association::new(handle.clone(), key, id)))
    }

    /// Waits until all packets that are due now have been passed to the system. Messages and aborts are sent
    /// in the next turn of the stack's task; a runtime that ends before has not sent them.
    pub async fn flush(&self) {
        let Some(handle) = &self.handle else { return };
        let mut moment = None;
        poll_fn(|cx| handle.shared.with(|core| core.poll_emptied(&mut moment, cx))).await;
    }

    /// Returns the local UDP port, over UDP.
    pub fn udp_port(&self) -> Option<u16> {
        self.udp_port
    }

    /// Queries the protocol in user space. Returns the default for the kernel's SCTP.
    fn query<R: Default>(&self, query: impl FnOnce(&mut Core) -> R) -> R {
        self.handle.as_ref().map(|handle| handle.shared.with(query)).unwrap_or_default()
    }

    /// Returns the number of associations.
    pub fn associations(&self) -> usize {
        self.query(|core| core.sctp.len())
    }

    /// Returns the protocol's counters.
    pub fn counters(&self) -> Counters {
        self.query(|core| core.sctp.counters())
    }

    /// Returns the counters of packets and system calls.
    pub fn traffic(&self) -> Traffic {
        self.query(|core| core.traffic())
    }

    /// Returns the number of associations refused because the accept queue was full.
    pub fn refused(&self) -> u64 {
        self.query(|core| core.refused)
    }
}

/// Creates the protocol, with random numbers of its own, for users and driver to share.
fn share(
    limits: Limits,
    settings: Settings,
    ports: Option<Ports>,
    locals: Option<Locals>,
    down: DownAddresses,
) -> Result<Arc<Shared>, Error> {
    let random = ChaCha::from_os().map_err(|error| Error::system("sctp", error))?;
    let sctp = Sctp::new(limits, settings, Box::new(random))?;
    Ok(Shared::new(sctp, Clock::new(), ports, locals, down))
}

/// Opens an association from a port, which is then held until the association is inserted and holds it
/// too; 0 for any, where no other process has ports.
fn from_port(
    core: &mut Core,
    connect: &Connect,
    port: u16,
    settings: Settings,
) -> Result<AssocId, Error> {
    core.hold_port(port)?;
    let (locals, remotes) = (&connect.locals, &connect.remotes);
    let now = core.clock.now();
    let opened = core.sctp.connect(now, locals, port, remotes, connect.remote_port, Some(settings));
    if opened.is_err() {
        core.release_port(port);
    }
    Ok(opened?)
}

/// Opens an association from an ephemeral port that no other process holds.
fn from_any_port(core: &mut Core, connect: &Connect, settings: Settings) -> Result<AssocId, Error> {
    let mut attempts = 0;
    loop {
        let port = core.ephemeral_port(attempts)?;
        match from_port(core, connect, port, settings) {
            Err(Error::Refused(ringway_sctp::Error::InUse)) => attempts += 1,
            result => return result,
        }
    }
}
