//! The SCTP stack of a process or of a worker.

use super::association::Association;
use super::carrier::{Carrier, DownAddresses, ErrorSource, Traffic};
use super::config::{Config, Connect, Over};
use super::core::{Handle, Shared};
use super::driver::Driver;
use super::error::{ConnectError, ListenError, OpenError, SystemError};
use super::host_events::{read_icmp, watch_addresses};
use super::inbox::Inbox;
use super::limits::MAX_DRIVERS;
use super::listener::Listener;
use super::locals::{Locals, check_scope};
use super::ports::Ports;
use super::sockets::{DividedSockets, Sockets, StackSockets, check_host};
use super::tables::Tables;
use super::tun::Packets;
use super::{kernel, userspace};
use ringway_os::{ChaCha, Clock, NetworkMonitor, Tun};
use ringway_sctp::{Counters, Endpoint, Limits, Settings};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::runtime::Handle as Runtime;
use tokio::task::AbortHandle;

/// A running SCTP stack: a handle of its tasks, which run in the runtime it was created in. In UDP there is one for each
/// of the runtime's threads, at most [`MAX_DRIVERS`], and the associations are divided among them. Clones are
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
    /// Opens the sockets and starts the tasks. To be called within a runtime that has its timers and
    /// sockets enabled.
    pub fn new(config: Config) -> Result<Stack, OpenError> {
        let opened = match config.over {
            Over::Udp { ref locals, port } => StackSockets::udp(locals, port)?,
            Over::Ip => StackSockets::raw()?,
            Over::Kernel => StackSockets::kernel()?,
            Over::Tun { ref name } => {
                let failed =
                    |error| SystemError::new(format!("sctp over the device {name}"), error);
                let carrier = Packets::new(Tun::open(name).map_err(failed)?).map_err(failed)?;
                let Config { limits, settings, .. } = config;
                let parts = Parts { limits, settings, ..Parts::default() };
                return Stack::run(parts, vec![(carrier, Vec::new())]);
            }
        };
        Stack::start(opened, config.limits, config.settings)
    }

    /// Starts the tasks with open sockets. To be called within a runtime that has its timers and sockets enabled.
    pub fn start(
        opened: StackSockets,
        limits: Limits,
        settings: Settings,
    ) -> Result<Stack, OpenError> {
        if opened.is_kernels() {
            return Ok(Stack { handle: None, udp_port: None, over_ip: false, settings });
        }
        let failed = |error| SystemError::new("sctp", error);
        let runtime =
            Runtime::try_current().map_err(|e| failed(io::Error::other(e.to_string())))?;
        let down = DownAddresses::default();
        let udp_port = opened.udp_port();
        let drivers = runtime.metrics().num_workers().clamp(1, MAX_DRIVERS);
        let DividedSockets { drivers: sockets, ports, locals } =
            opened.divide(drivers).map_err(failed)?;
        let mut carriers = Vec::with_capacity(sockets.len());
        for sockets in sockets {
            let held = ports.as_ref().map(Ports::held);
            let carrier = Sockets::new(sockets, held, down.clone()).map_err(failed)?;
            let sources = carrier.error_sources().map_err(failed)?;
            carriers.push((carrier, sources));
        }
        Stack::run(Parts { limits, settings, ports, locals, down, udp_port }, carriers)
    }

    /// Starts a task for each carrier.
    fn run<C: Carrier + Unpin + 'static>(
        parts: Parts,
        carriers: Vec<(C, Vec<ErrorSource>)>,
    ) -> Result<Stack, OpenError> {
        let failed = |error| SystemError::new("sctp", error);
        let random = || ChaCha::from_os().map_err(failed);
        let Parts { limits, settings, ports, locals, down, udp_port } = parts;
        let over_ip = ports.is_some();
        let inboxes: Arc<[Arc<Inbox>]> = carriers.iter().map(|_| Arc::default()).collect();
        let endpoint = Endpoint::new(limits, settings, Box::new(random()?))?;
        let tables = Tables::new(endpoint, inboxes.clone(), ports, locals, down);
        let shared = Shared::new(tables, inboxes, random()?, Clock::new());
        let mut drivers = Vec::with_capacity(carriers.len());
        for (number, (carrier, sources)) in carriers.into_iter().enumerate() {
            let watch = |source| tokio::spawn(read_icmp(shared.clone(), source)).abort_handle();
            let mut tasks: Vec<AbortHandle> = sources.into_iter().map(watch).collect();
            // Where the system reports no changes of addresses, the heartbeats find them.
            if number == 0
                && !tasks.is_empty()
                && let Ok(monitor) = NetworkMonitor::open()
            {
                let watching = watch_addresses(shared.clone(), monitor);
                tasks.push(tokio::spawn(watching).abort_handle());
            }
            drivers.push(Driver::new(shared.clone(), number, carrier, random()?, tasks));
        }
        drivers.into_iter().for_each(|driver| drop(tokio::spawn(driver)));
        Ok(Stack { handle: Some(Arc::new(Handle { shared })), udp_port, over_ip, settings })
    }

    /// Listens for associations at `port` of any of `addresses`; each association uses all of them. With a
    /// wildcard, each association uses only the address that the peer sends its INIT to.
    pub fn listen(
        &self,
        addresses: &[IpAddr],
        port: u16,
        settings: Option<Settings>,
    ) -> Result<Listener, ListenError> {
        check_scope(addresses)?;
        let Some(handle) = &self.handle else {
            let settings = settings.unwrap_or(self.settings);
            let (listener, port) = kernel::Listener::new(addresses, port, &settings)?;
            return Ok(Listener::kernel(listener, port));
        };
        if self.over_ip {
            check_host(addresses)?;
        }
        handle.shared.check()?;
        let id = handle.shared.tables(|tables| tables.listen(addresses, port, settings))?;
        Ok(Listener::new(handle.clone(), id, port))
    }

    /// Has every association that is opened to one of these addresses at a listener with a wildcard use them all, in this
    /// order. The kernel's SCTP does so by itself.
    pub fn join_addresses(&self, addresses: &[IpAddr]) {
        self.query(|shared| shared.tables(|tables| tables.join_addresses(addresses)));
    }

    /// Opens an association and waits until it is established.
    pub async fn connect(&self, connect: &Connect) -> Result<Association, ConnectError> {
        let association = self.open(connect)?;
        association.established().await?;
        Ok(association)
    }

    /// Begins to open an association. Messages can be sent at once; the first of them travel with the
    /// handshake.
    pub fn open(&self, connect: &Connect) -> Result<Association, ConnectError> {
        check_scope(&connect.locals)?;
        check_scope(&connect.remotes)?;
        let Some(handle) = &self.handle else {
            let settings = connect.settings.unwrap_or(self.settings);
            return kernel::connect(connect, &settings).map(Association::kernel);
        };
        let Handle { shared } = &**handle;
        shared.check()?;
        let udp_port = if self.udp_port.is_some() { connect.encapsulation } else { 0 };
        let settings = Settings { udp_port, ..connect.settings.unwrap_or(self.settings) };
        let now = shared.clock.now();
        let member = shared.tables(|tables| tables.connect(now, connect, settings))?;
        Ok(Association::userspace(userspace::Association::new(handle.clone(), member)))
    }

    /// Waits until all packets that are due now have been passed to the system. Messages and aborts are sent
    /// in the next turn of the stack's tasks; a runtime that ends before has not sent them.
    pub async fn flush(&self) {
        let Some(handle) = &self.handle else { return };
        let mut moments = Vec::new();
        poll_fn(|cx| handle.shared.poll_emptied(&mut moments, cx)).await;
    }

    /// Returns the local UDP port, over UDP.
    pub fn udp_port(&self) -> Option<u16> {
        self.udp_port
    }

    /// Queries the protocol in user space. Returns the default for the kernel's SCTP.
    fn query<R: Default>(&self, query: impl FnOnce(&Shared) -> R) -> R {
        self.handle.as_ref().map(|handle| query(&handle.shared)).unwrap_or_default()
    }

    /// Returns the number of associations.
    pub fn associations(&self) -> usize {
        self.query(|shared| shared.tables(|tables| tables.len()))
    }

    /// Returns the protocol's counters. Packets of the turn that runs now may be missing.
    pub fn counters(&self) -> Counters {
        self.query(Shared::counters)
    }

    /// Returns the counters of packets and system calls.
    pub fn traffic(&self) -> Traffic {
        self.query(Shared::traffic)
    }

    /// Returns the number of associations refused because the accept queue was full.
    pub fn refused(&self) -> u64 {
        self.query(|shared| shared.tables(|tables| tables.refused()))
    }
}

/// What a stack runs with, except for its carriers.
#[derive(Default)]
struct Parts {
    limits: Limits,
    settings: Settings,
    ports: Option<Ports>,
    locals: Option<Locals>,
    down: DownAddresses,
    udp_port: Option<u16>,
}
