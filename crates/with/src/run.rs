//! A program with its broker, from its start to the end of all that it has opened.

use crate::broker::{self, Broker};
use crate::child::{Arrived, Family, Signals, is_of_terminal};
use crate::lines::Lines;
use crate::network::Network;
use crate::program::{self, ProgramError};
use crate::remembered;
use crate::services::Services;
use crate::{LIBRARY, LIBRARY_VARIABLE};
use nix::sys::signal::Signal;
use ringway_with_wire::environment::VARIABLE;
use ringway_with_wire::{BrokerId, Environment, Secret};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// The variable that names libraries to the dynamic linker (ld.so(8)).
const PRELOAD: &str = "LD_PRELOAD";
/// Time between two looks for sockets that the program has closed.
const SWEEP: Duration = Duration::from_millis(50);
/// Time within which processes that the program has left behind may open a socket: a server that goes into the
/// background may listen after its parent has ended.
const GRACE: Duration = Duration::from_secs(2);

/// What to run.
pub struct With {
    /// The services of its connections.
    pub services: Services,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Whether each connection is explained.
    pub explain: bool,
    /// Whether the program's sockets of UDP are served, too.
    pub datagrams: bool,
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The program cannot be served.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The library is not where it should be.
    #[error(
        "expected the library {LIBRARY} beside this program, in ../lib/ringway, or as ${LIBRARY_VARIABLE}; found none"
    )]
    NoLibrary,
    /// The dynamic linker cannot load it by that name.
    #[error("{}: expected a library in a path without spaces and colons", .0.display())]
    LibraryPath(PathBuf),
    /// The program was not started.
    #[error("{path}: {error}", path = .path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The system.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl RunError {
    /// Returns the exit status by which a shell reports it.
    pub fn status(&self) -> u8 {
        match self {
            RunError::Program(error) => error.status(),
            RunError::Start { .. } => 126,
            _ => 1,
        }
    }
}

/// Runs a program until it has ended and nothing is left of its connections. Returns its exit status as a shell does: 128
/// and the number of the signal that has ended it.
///
/// # Errors
/// It was not started.
pub fn run(with: &With, lines: Lines) -> Result<u8, RunError> {
    let [name, arguments @ ..] = &with.program[..] else {
        return Err(ProgramError::NotFound(OsString::new()).into());
    };
    let path = program::check(name)?;
    let library = library()?;
    let environment = draw(with.datagrams)?;
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    command.env(PRELOAD, preload(&library, env::var_os(PRELOAD).as_deref()));
    command.env(VARIABLE, OsStr::from_bytes(&environment.write()));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let network = Network::new(with.services.clone(), with.datagrams, remembered::file());
        let broker = Broker::new(environment, network, lines.clone(), with.explain)?;
        let broker = Arc::new(broker);
        let listener = broker::bind(&environment)?;
        let mut signals = Signals::receive()?;
        let family = Family::start(&mut command);
        let mut family = family.map_err(|error| RunError::Start { path, error })?;
        let status = tokio::select! {
            () = broker.serve(listener) => 1,
            status = watch(&broker, &mut family, &mut signals, &lines) => status,
        };
        if let Some(datagrams) = &broker.datagrams {
            datagrams.close().await;
        }
        if let Err(error) = broker.network.close().await {
            lines(&format!("what peers have is not remembered: {error}"));
        }
        Ok(status)
    })
}

/// Waits for the end of the program, and for that of its connections and of those of processes that it has left behind.
async fn watch(broker: &Broker, family: &mut Family, signals: &mut Signals, lines: &Lines) -> u8 {
    let mut sweep = tokio::time::interval(SWEEP);
    let mut ended: Option<Instant> = None;
    let mut is_told = false;
    loop {
        tokio::select! {
            arrived = signals.next() => match arrived {
                Arrived::ChildEnded => family.reap(),
                Arrived::ForProgram(signal) => {
                    // Nobody is left to pass it on to.
                    if family.status.is_some() && signal != Signal::SIGHUP {
                        return family.status.unwrap_or(1);
                    }
                    if !is_of_terminal(signal) {
                        family.signal(signal);
                    }
                }
            },
            _ = sweep.tick() => broker.sweep(),
        }
        let Some(status) = family.status else { continue };
        let ended = *ended.get_or_insert_with(Instant::now);
        // What it had open when it ended may not have been looked at.
        let bound = broker.datagrams.as_ref().filter(|_| family.has_members);
        let sockets = broker.sockets() + bound.map_or(0, |datagrams| datagrams.sockets());
        if sockets == 0 && (!family.has_members || ended.elapsed() >= GRACE) {
            return status;
        }
        if !is_told && family.has_members && sockets > 0 && ended.elapsed() >= GRACE {
            is_told = true;
            lines(
                "the program has ended; sockets of processes that it has left behind are served until they end",
            );
        }
    }
}

/// Draws what nobody else can know.
fn draw(datagrams: bool) -> io::Result<Environment> {
    let (mut broker, mut secret) = ([0; 8], [0; 16]);
    getrandom::fill(&mut broker).map_err(io::Error::other)?;
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    let user = nix::unistd::geteuid().as_raw();
    Ok(Environment { broker: BrokerId(broker), secret: Secret(secret), user, datagrams })
}

/// Returns the library.
fn library() -> Result<PathBuf, RunError> {
    let program = env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let named = env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    let candidates = [
        Some(folder.join(LIBRARY)),
        folder.parent().map(|folder| folder.join("lib/ringway").join(LIBRARY)),
        named,
    ];
    let found = candidates.into_iter().flatten().find(|path| path.is_file());
    let found = found.ok_or(RunError::NoLibrary)?.canonicalize()?;
    let separates = |octet: &u8| matches!(octet, b' ' | b':');
    if found.as_os_str().as_bytes().iter().any(separates) {
        return Err(RunError::LibraryPath(found));
    }
    Ok(found)
}

/// Returns the value of LD_PRELOAD: the library before those that the user has named.
fn preload(library: &Path, named: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        value.push(" ");
        value.push(named);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_before_those_of_the_user() {
        let library = Path::new("/usr/lib/ringway/libringway_with.so");
        let value = |named: Option<&str>| preload(library, named.map(OsStr::new));
        assert_eq!(value(None), library.as_os_str());
        assert_eq!(value(Some("")), library.as_os_str());
        assert_eq!(value(Some("a.so")), "/usr/lib/ringway/libringway_with.so a.so");
    }
}
