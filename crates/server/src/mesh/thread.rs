//! The router, on a thread of its own.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ringway_directory::{Command, Report};
use ringway_net::Clock;
use ringway_onesip::Judge;
use ringway_router::settings::Settings;
use ringway_router::users::{Attachment, MAX_COMMANDS, Notice};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use super::exchange::{Channels, Exchange};
use crate::store::UserTable;

/// Time in which a router makes its identity and opens its device.
const START: Duration = Duration::from_secs(60);

/// The thread of a router.
pub struct MeshThread {
    exchange: Arc<Exchange>,
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
        settings: Settings,
        clock: Clock,
    ) -> Result<(Self, UsersSlot), String> {
        let (commands, commanded) = mpsc::channel(MAX_COMMANDS);
        let channels = Channels::new(domain, clock, commands.clone());
        let exchange = Arc::new(Exchange::new(domain, channels));
        let users: UsersSlot = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = sync_channel(2);
        let notify = receiver(exchange.clone(), commands, users.clone(), ready.clone());
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
        let mesh = MeshThread { exchange, stop: Some(stop), thread: Some(thread) };
        Ok((mesh, users))
    }

    /// Returns the connection of workers with the directory.
    pub fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
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

/// Returns the receiver of notices, which runs on the router's thread.
fn receiver(
    exchange: Arc<Exchange>,
    commands: mpsc::Sender<Command>,
    users: UsersSlot,
    ready: std::sync::mpsc::SyncSender<Result<(), String>>,
) -> Box<dyn FnMut(Notice) + Send> {
    let mut judge = Judge::default();
    let clock = exchange.world().clock();
    Box::new(move |notice| match notice {
        Notice::Ready { id, interface } => {
            exchange.set_id(id);
            exchange.world().set_interface(interface);
            let _ = ready.try_send(Ok(()));
        }
        Notice::Users(Report::Judge { id, router, check }) => {
            let table = users.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            let Some(table) = table else { return };
            let verdict = judge.judge(clock.now(), router, &check, &*table);
            // Without room the other router asks again.
            let _ = commands.try_send(Command::Judge { id, verdict });
        }
        Notice::Users(report) => exchange.handle(clock.now(), report),
    })
}
