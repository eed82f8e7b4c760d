//! An emulation from its start to its end.

use crate::control;
use crate::interfaces::Watch;
use crate::lane::Lane;
use crate::log;
use crate::namespace::{self, Behind, NamespaceError};
use crate::ports::{self, Port};
use crate::realtime::{self, About, Lines};
use crate::report::{InterfaceReport, Report};
use crate::settings::{Ends, Settings};
use crate::ways::Way;
use ringway_link::ConfigError;
use ringway_os::Clock;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Child;

/// Time between two reports for an operator who watches.
const WATCH: Duration = Duration::from_millis(500);

/// Why an emulation does not start, or ends early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The parameters.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An interface.
    #[error("interface {name}: {error}; it takes CAP_NET_RAW")]
    Interface {
        /// Which.
        name: String,
        /// What failed.
        error: io::Error,
    },
    /// A TUN device, or the command behind it.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The control socket.
    #[error("control socket {path}: {error}", path = .path.display())]
    Control {
        /// Which.
        path: PathBuf,
        /// What failed.
        error: io::Error,
    },
    /// The log.
    #[error("log {path}: {error}", path = .path.display())]
    Log {
        /// Which.
        path: PathBuf,
        /// What failed.
        error: io::Error,
    },
    /// A command needs a TUN device.
    #[error("a command runs behind a TUN device only (--tun NAME -- COMMAND)")]
    CommandBetween,
    /// The system.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// What was at the end.
#[derive(Debug)]
pub struct Ended {
    /// The last state.
    pub report: Report,
    /// How the command ended, if there was one.
    pub status: Option<ExitStatus>,
}

/// Runs an emulation until `stop`, or until the command behind it has ended. To be called within a runtime.
///
/// `lines` are for the operator; `watch` receives the state twice a second.
///
/// # Errors
/// A [`RunError`] that says what failed.
pub async fn run(
    settings: &Settings,
    command: &[OsString],
    lines: Lines,
    mut watch: Option<&mut dyn FnMut(&Report)>,
    stop: impl Future<Output = ()>,
) -> Result<Ended, RunError> {
    let runtime = &settings.runtime;
    let socket = control::listen(runtime, &settings.name).map_err(|error| RunError::Control {
        path: control::path(runtime, &settings.name),
        error,
    })?;
    let clock = Clock::new();
    let start = clock.now();
    let directions = settings.link.clone().directions(&settings.streams(), start)?;
    let logs = match &settings.log {
        Some(path) => {
            let fail = |error| RunError::Log { path: path.clone(), error };
            log::create(path).map_err(fail)?.map(Some)
        }
        None => [None, None],
    };
    let mut interfaces = match &settings.ends {
        Ends::Between(names) => Some(Watch::open(names)?),
        Ends::Tun(_) => None,
    };
    let ([one, other], mut child) = open(&settings.ends, command, &lines)?;
    let across = [(one.source, other.sink), (other.source, one.sink)];
    let parts = Way::BOTH.into_iter().zip(directions).zip(across).zip(logs);
    let lanes = parts.map(|(((way, direction), (source, sink)), log)| {
        Lane::new(way, direction, source, sink, log)
    });
    let (name, ends, seed) = (settings.name.clone(), settings.ends.names(), settings.seed);
    let about = About { name, ends, seed, clock, start, interfaces: Default::default() };
    let (asker, mut outcomes) =
        realtime::start(lanes.collect(), realtime::threads(), about, &lines)?;
    if let Some(watch) = &mut interfaces {
        watch.first_lines().iter().for_each(|line| lines(line));
        asker.look(watch.states());
    }
    let serve = control::serve(&socket, &asker);
    tokio::pin!(stop, serve);
    let mut ticks = tokio::time::interval(WATCH);
    let mut status = None;
    let ended = loop {
        tokio::select! {
            () = &mut stop => break None,
            ended = outcomes.next() => break Some(ended),
            exited = exit(&mut child) => {
                status = Some(exited?);
                break None;
            }
            () = &mut serve => {}
            changed = next(&mut interfaces) => {
                let (changed, states) = changed?;
                changed.iter().for_each(|line| lines(line));
                asker.look(states);
            }
            _ = ticks.tick(), if watch.is_some() => {
                if let (Some(report), Some(watch)) = (asker.report().await, &mut watch) {
                    watch(&report);
                }
            }
        }
    };
    let report = outcomes.finish(&asker, ended).await?;
    Ok(Ended { report, status })
}

/// Opens both ends, and starts the command if there is one.
fn open(
    ends: &Ends,
    command: &[OsString],
    lines: &Lines,
) -> Result<([Port; 2], Option<Child>), RunError> {
    match ends {
        Ends::Between(_) if !command.is_empty() => Err(RunError::CommandBetween),
        Ends::Between([one, other]) => {
            let open = |name: &String| {
                ports::interface(name)
                    .map_err(|error| RunError::Interface { name: name.clone(), error })
            };
            Ok(([open(one)?, open(other)?], None))
        }
        Ends::Tun(_) if command.is_empty() => {
            let [one, other] = ends.names();
            Ok(([ports::tun(namespace::open(&one)?), ports::tun(namespace::open(&other)?)], None))
        }
        Ends::Tun(_) => {
            let Behind { queues, child, subnet } = namespace::run_behind(&ends.names(), command)?;
            let [(here, _), (there, _)] = [1, 2].map(|end| subnet.addresses(end));
            lines(&format!("this host is {here} behind the link, the command is {there}"));
            Ok((queues.map(ports::tun), Some(child)))
        }
    }
}

/// Waits until an interface has changed. Returns lines about it, and the states.
async fn next(interfaces: &mut Option<Watch>) -> io::Result<(Vec<String>, &[InterfaceReport; 2])> {
    match interfaces {
        Some(watch) => Ok((watch.next().await?, watch.states())),
        None => std::future::pending().await,
    }
}

/// Waits until the command has ended; for ever without one.
async fn exit(child: &mut Option<Child>) -> io::Result<ExitStatus> {
    match child {
        Some(child) => child.wait().await,
        None => std::future::pending().await,
    }
}
