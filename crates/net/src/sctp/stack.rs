//! The SCTP of a process or of a worker.

use super::association::Association;
use super::carrier::{Carrier, DownAddresses, Traffic};
use super::config::{Config, Connect, Over};
use super::core::{Accepting, Core, Handle, Shared};
use super::driver::Driver;
use super::error::Error;
use super::hearing::{hear, watch};
use super::listener::Listener;
use super::locals::{Locals, check_scope};
use super::ports::Ports;
use super::sockets::Opened;
use super::tun::Packets;
use super::waiters::Waiters;
use super::{kernel, own};
use crate::clock::Clock;
use crate::random::ChaCha;
use crate::sys::NetworkMonitor;
use crate::tun::Tun;
use ringway_sctp::{AssocId, Counters, Limits, Sctp, Settings};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::runtime::Handle as Runtime;
use tokio::task::AbortHandle;

/// An SCTP that runs: a task of the runtime it was made in, and what it is asked by. Clones are
/// handles of the same one. It ends when all handles, listeners and associations are dropped and
/// the last association has come to its end.
#[derive(Clone)]
pub struct Stack {
    /// `None` for the kernel's.
    handle: Option<Arc<Handle>>,
    /// Our UDP port, over UDP.
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
            Over::Udp { ref locals, port } => Opened::udp(locals, port)?,
            Over::Ip => Opened::raw()?,
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

    /// Starts the task over sockets that are open. To be called within a runtime.
    pub(crate) fn start(
        opened: Opened,
        limits: Limits,
        settings: Settings,
    ) -> Result<Stack, Error> {
        let failed = |error| Error::system("sctp", error);
        let runtime =
            Runtime::try_current().map_err(|e| failed(io::Error::other(e.to_string())))?;
        let down = DownAddresses::default();
        let udp_port = opened.udp_port;
        let (sockets, ports, locals) = opened.watch(down.clone()).map_err(failed)?;
        let shared = share(limits, settings, ports, locals, down)?;
        let mut tasks = Vec::new();
        for ear in sockets.error_sources().map_err(failed)? {
            tasks.push(runtime.spawn(hear(shared.clone(), ear)).abort_handle());
        }
        // Where the system tells no news, the heartbeats find out.
        if let Ok(news) = NetworkMonitor::open() {
            tasks.push(runtime.spawn(watch(shared.clone(), news)).abort_handle());
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
        let over_ip = shared.with(|core| core.ports.is_some());
        Stack { handle: Some(Arc::new(Handle { shared })), udp_port, over_ip, settings }
    }

    /// Takes associations to any of `addresses` at `port`; all the addresses belong to each of them.
    /// One wildcard stands for the address that a peer writes to, and that one alone.
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
            Opened::check(addresses)?;
        }
        let id = handle.shared.with(|core| {
            core.check()?;
            core.check_locals(addresses)?;
            if let Some(ports) = &mut core.ports {
                ports.hold(port).map_err(|e| Error::system(format!("sctp port {port}"), e))?;
            }
            let id = match core.sctp.listen(addresses, port, settings) {
                Ok(id) => id,
                Err(error) => {
                    core.release_port(port);
                    return Err(error.into());
                }
            };
            let (queue, waiters) = (VecDeque::new(), Waiters::default());
            core.listeners.insert(id, Accepting { port, queue, waiters });
            Ok::<_, Error>(id)
        })?;
        Ok(Listener::new(handle.clone(), id, port))
    }

    /// Opens an association and waits until it is established.
    pub async fn connect(&self, connect: &Connect) -> Result<Association, Error> {
        let association = self.open(connect)?;
        association.established().await?;
        Ok(association)
    }

    /// Begins to open an association. Messages can be given at once; the first of them travel with
    /// the handshake.
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
                0 if core.ports.is_some() => from_any_port(core, connect, settings)?,
                port => from_port(core, connect, port, settings)?,
            };
            let key = core.enter(id);
            let port = core.sctp.ports(id).map_or(0, |(ours, _)| ours);
            core.release_port(port);
            core.kick();
            Ok::<_, Error>((key, id))
        })?;
        Ok(Association::own(own::Association::new(handle.clone(), key, id)))
    }

    /// Waits until all that is to be sent now is with the system. What is given to an association,
    /// an abort too, leaves with the next turn of the stack's task; a runtime that ends before has
    /// not sent it.
    pub async fn flush(&self) {
        let Some(handle) = &self.handle else { return };
        let mut moment = None;
        poll_fn(|cx| handle.shared.with(|core| core.poll_emptied(&mut moment, cx))).await;
    }

    /// Our UDP port, over UDP.
    pub fn udp_port(&self) -> Option<u16> {
        self.udp_port
    }

    /// What our own protocol says; of the kernel's nothing is known here.
    fn ask<R: Default>(&self, what: impl FnOnce(&mut Core) -> R) -> R {
        self.handle.as_ref().map(|handle| handle.shared.with(what)).unwrap_or_default()
    }

    /// Associations there are.
    pub fn associations(&self) -> usize {
        self.ask(|core| core.sctp.len())
    }

    /// What the protocol counted.
    pub fn counters(&self) -> Counters {
        self.ask(|core| core.sctp.counters())
    }

    /// What was counted of packets and calls to the system.
    pub fn traffic(&self) -> Traffic {
        self.ask(|core| core.traffic)
    }

    /// Associations refused because too many waited to be accepted.
    pub fn refused(&self) -> u64 {
        self.ask(|core| core.refused)
    }
}

/// A protocol of its own randomness, to be shared by users and driver.
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

/// Opens an association from a port, which is held then until the association is entered and holds it
/// too; 0 for any, where no others need be heeded.
fn from_port(
    core: &mut Core,
    connect: &Connect,
    port: u16,
    settings: Settings,
) -> Result<AssocId, Error> {
    if let Some(ports) = &mut core.ports {
        ports.hold(port).map_err(|e| Error::system(format!("sctp port {port}"), e))?;
    }
    let (locals, remotes) = (&connect.locals, &connect.remotes);
    let now = core.clock.now();
    let opened = core.sctp.connect(now, locals, port, remotes, connect.remote_port, Some(settings));
    if opened.is_err() {
        core.release_port(port);
    }
    Ok(opened?)
}

/// Opens an association from one of the ephemeral ports that no other process has.
fn from_any_port(core: &mut Core, connect: &Connect, settings: Settings) -> Result<AssocId, Error> {
    let mut tries = 0;
    loop {
        let Some(ports) = &mut core.ports else { return Err(Error::Stopped) };
        let another = tries > 0 && tries >= ports.ephemeral_held();
        let Some(port) = ports.ephemeral(another) else {
            return Err(ringway_sctp::Error::NoPort.into());
        };
        match from_port(core, connect, port, settings) {
            Err(Error::Refused(ringway_sctp::Error::InUse)) => tries += 1,
            result => return result,
        }
    }
}
