//! The router, on a thread of its own.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_directory::private::{SERVICE_NUMBERS, SERVICE_STATES};
use ringway_directory::{Command, Report};
use ringway_mesh::NodeId;
use ringway_net::Clock;
use ringway_onesip::Judge;
use ringway_router::settings::Settings;
use ringway_router::users::{Attachment, MAX_COMMANDS, Notice};
use ringway_sansio::Transport;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use super::exchange::{Channels, Exchange};
use super::lists::Lists;
use crate::numbers::inbox::Inbox;
use crate::states;
use crate::store::UserTable;

/// Time in which a router makes its identity and opens its device.
const START: Duration = Duration::from_secs(60);

/// The thread of a router.
pub struct MeshThread {
    exchange: Arc<Exchange>,
    commands: mpsc::Sender<Command>,
    lists: Arc<Lists>,
    numbers: Arc<Inbox>,
    states: Arc<states::inbox::Inbox<NodeId>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Where the users are that other routers ask about; unknown until the store is open.
pub(crate) type UsersSlot = Arc<Mutex<Option<Arc<UserTable>>>>;

impl MeshThread {
    /// Starts a router and waits until its device has its address. Returns the thread, and where to put the users of this
    /// server.
    ///
    /// # Errors
    /// What makes a start impossible.
    pub(crate) fn start(
        domain: &str,
        transport: Transport,
        settings: Settings,
        clock: Clock,
    ) -> Result<(Self, UsersSlot), String> {
        let (commands, commanded) = mpsc::channel(MAX_COMMANDS);
        let channels = Channels::new(domain, clock, commands.clone());
        let exchange = Arc::new(Exchange::new(domain, transport, channels));
        let users: UsersSlot = Arc::default();
        let lists = Arc::new(Lists::new(commands.clone()));
        let numbers: Arc<Inbox> = Arc::default();
        let states: Arc<states::inbox::Inbox<NodeId>> = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = sync_channel(2);
        let notify = receiver(Receivers {
            exchange: exchange.clone(),
            commands: commands.clone(),
            users: users.clone(),
            lists: lists.clone(),
            numbers: numbers.clone(),
            states: states.clone(),
            ready: ready.clone(),
        });
        let attachment = Attachment { commands: commanded, notify };
        let work = move || {
            let result = run(&settings, stopped, attachment);
            if let Err(e) = &result {
                error!("the router of the mesh has ended: {e}");
            }
            // Nobody waits any more if it has been ready.
            let _ = ready.try_send(result);
        };
        let thread = std::thread::Builder::new().name("mesh".into()).spawn(work);
        let thread = thread.map_err(|e| e.to_string())?;
        match started.recv_timeout(START) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(format!("mesh: {e}")),
            Err(RecvTimeoutError::Timeout) => return Err("mesh: the router does not start".into()),
            Err(RecvTimeoutError::Disconnected) => return Err("mesh: the router has ended".into()),
        }
        let (stop, thread) = (Some(stop), Some(thread));
        let mesh = MeshThread { exchange, commands, lists, numbers, states, stop, thread };
        Ok((mesh, users))
    }

    /// Returns the connection of workers with the directory.
    pub fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Returns where commands of the router are taken.
    pub(crate) fn commands(&self) -> &mpsc::Sender<Command> {
        &self.commands
    }

    /// Returns the lists of who there is.
    pub(crate) fn lists(&self) -> &Arc<Lists> {
        &self.lists
    }

    /// Returns where what comes for short numbers waits.
    pub(crate) fn numbers(&self) -> &Arc<Inbox> {
        &self.numbers
    }

    /// Returns where what comes for the states of users waits.
    pub(crate) fn states(&self) -> &Arc<states::inbox::Inbox<NodeId>> {
        &self.states
    }

    /// Leaves the mesh.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // A router that has ended needs no notice.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for MeshThread {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(
    settings: &Settings,
    stopped: oneshot::Receiver<()>,
    attachment: Attachment,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e: io::Error| e.to_string())?;
    let log = |line: &str| info!(target: "mesh", "{line}");
    let shutdown = async {
        // The server has ended, or wants the router to.
        let _ = stopped.await;
    };
    let router = ringway_router::run_with(settings, &log, shutdown, Some(attachment));
    runtime.block_on(router).map_err(|e| e.to_string())
}

/// Who learns what of the router's notices.
struct Receivers {
    exchange: Arc<Exchange>,
    commands: mpsc::Sender<Command>,
    users: UsersSlot,
    lists: Arc<Lists>,
    numbers: Arc<Inbox>,
    states: Arc<states::inbox::Inbox<NodeId>>,
    ready: std::sync::mpsc::SyncSender<Result<(), String>>,
}

/// Returns the receiver of notices, which runs on the router's thread.
fn receiver(to: Receivers) -> Box<dyn FnMut(Notice) + Send> {
    let mut judge = Judge::default();
    let clock = to.exchange.world().clock();
    Box::new(move |notice| match notice {
        Notice::Ready { id, interface } => {
            to.exchange.set_id(id);
            to.exchange.world().set_interface(interface);
            let _ = to.ready.try_send(Ok(()));
        }
        Notice::Neighbours { routers } => to.numbers.neighbours(routers),
        Notice::Users(Report::Judge { id, router, check, secret }) => {
            let table = to.users.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            let Some(table) = table else { return };
            let verdict = judge.judge(clock.now(), router, (&check, secret.as_ref()), &*table);
            // Without room the other router asks again.
            let _ = to.commands.try_send(Command::Judge { id, verdict });
        }
        Notice::Users(Report::Message { service: SERVICE_NUMBERS, router, octets }) => {
            to.numbers.message(router, octets);
        }
        Notice::Users(Report::Message { service: SERVICE_STATES, router, octets }) => {
            to.states.message(router, octets);
        }
        // Of a service that this version does not know.
        Notice::Users(Report::Message { .. }) => {}
        Notice::Users(report @ (Report::Listed(_) | Report::ListEnded { .. })) => {
            to.lists.handle(report, clock.now());
        }
        Notice::Users(report) => {
            if let Report::Located { name, whereabouts } = &report {
                to.states.located(name, whereabouts);
            }
            to.exchange.handle(clock.now(), report);
        }
    })
}
