//! The thread of the library: it has the transports, and the other ends of all descriptors.

use crate::control::{self, Command, Question, Reply};
use crate::end::End;
use crate::fault::Fault;
use crate::table::{self, Kind};
use crate::world::World;
use crate::{connection, listener, system};
use ringway_services_tokio::LINGER;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::runtime::{Builder, Handle};

/// Runs until the process ends. Reports through `ready` whether the thread can.
pub(crate) fn run(socket: OwnedFd, ready: SyncSender<Result<(), Errno>>) {
    if let Err(error) = system::own_descriptors(socket.as_fd()) {
        let _ = ready.send(Err(error));
        return;
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    // The descriptors are the thread's own by now, so that the starter closes its copy in any case.
    let _ = ready.send(Ok(()));
    if let Ok(runtime) = runtime {
        runtime.block_on(serve(socket));
    }
}

async fn serve(socket: OwnedFd) {
    let Ok(socket) = system::register(socket) else { return };
    let world = Arc::new(World::new());
    let take = |socket: &OwnedFd| Ok(control::take(socket.as_fd())?);
    while let Ok(Some((command, end))) = socket.async_io(Interest::READABLE, take).await {
        if matches!(command, Command::Exit) {
            break;
        }
        carry_out(&world, command, end);
    }
    world.exit();
    rest(|| !world.is_empty()).await;
    // Transports that have their own timers go on for a while.
    drop(world);
    rest(|| Handle::current().metrics().num_alive_tasks() > 0).await;
}

/// Waits while something is to be done, at most for [`LINGER`].
async fn rest(goes_on: impl Fn() -> bool) {
    let end = Instant::now() + LINGER;
    while goes_on() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the other end of a descriptor, as it came with a command.
fn opened(key: u64, end: Option<OwnedFd>, kind: Kind) -> Option<End> {
    let opened = end.ok_or_else(|| std::io::Error::from(Errno::MFILE));
    let opened = opened.and_then(|end| End::new(end, kind));
    opened
        .inspect_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            table::failed(key, Fault::new(errno, format!("the thread of the library: {error}")));
        })
        .ok()
}

fn answer<T>(reply: &Reply<T>, answer: Result<T, Fault>) {
    // Whoever asked waits for it.
    let _ = reply.send(answer);
}

fn carry_out(world: &Arc<World>, command: Command, end: Option<OwnedFd>) {
    match command {
        Command::Connect { key, kind, request } => {
            let Some(end) = opened(key, end, kind) else { return };
            match world.preconnection(&request) {
                Ok(new) => {
                    let connecting = async move { new.initiate().await };
                    tokio::spawn(connection::open(world.clone(), key, end, connecting));
                }
                Err(fault) => connection::refuse(key, &end, fault),
            }
        }
        Command::Stream { of, key, kind } => {
            let Some(end) = opened(key, end, kind) else { return };
            match world.link(of) {
                Ok(link) => {
                    let connecting = async move { link.connection.clone().await };
                    tokio::spawn(connection::open(world.clone(), key, end, connecting));
                }
                Err(fault) => connection::refuse(key, &end, fault),
            }
        }
        Command::Listen { key, kind, request, reply } => {
            let Some(end) = opened(key, end, kind) else { return };
            match world.preconnection(&request) {
                Ok(new) => {
                    tokio::spawn(listener::open(world.clone(), key, end, new, reply));
                }
                Err(fault) => answer(&reply, Err(fault)),
            }
        }
        Command::Set { key, name, value, reply } => {
            answer(&reply, world.link(key).and_then(|link| link.set(&name, &value)));
        }
        Command::Get { key, name, reply } => {
            let found = world.link(key).and_then(|link| match name {
                Question::Explanation => Ok(link.connection.explain().to_string()),
                Question::Property(name) => link.property(&name),
            });
            answer(&reply, found);
        }
        Command::Abort { key, reply } => {
            answer(&reply, world.link(key).map(|link| link.abort.notify_one()));
        }
        // `serve` does it.
        Command::Exit => {}
    }
}
