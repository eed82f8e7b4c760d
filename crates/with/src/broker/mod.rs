//! The broker: it answers the library and joins the program's sockets with connections.
//!
//! One listening socket takes all requests (`requests`). A socket of the program's is known by its id (`table`); the
//! options and the local address of one are those of a socket of TCP that the broker has for it (`socket`).

mod arrivals;
mod opening;
mod options;
mod requests;
mod socket;
mod table;

pub(crate) use requests::bind;

use crate::datagrams::Datagrams;
use crate::lines::Lines;
use crate::locking::lock;
use crate::network::Network;
use arrivals::Groups;
use ringway_with_wire::Environment;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use table::Table;
use tokio::net::UnixStream;

/// Programs that cannot be served of which each is reported.
const MAX_UNSERVED: usize = 64;

/// What all tasks of the broker share.
pub(crate) struct Broker {
    pub(crate) environment: Environment,
    pub(crate) network: Arc<Network>,
    /// The program's sockets of UDP, if they are served.
    pub(crate) datagrams: Option<Arc<Datagrams>>,
    table: Mutex<Table>,
    groups: Mutex<Groups>,
    /// Lines for the user.
    lines: Lines,
    /// Whether connections are to be explained.
    explains: bool,
    /// What was reported of programs that cannot be served.
    unserved: Mutex<BTreeSet<String>>,
}

impl Broker {
    /// Creates a broker that serves processes that know its environment.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(
        environment: Environment,
        network: Network,
        lines: Lines,
        explains: bool,
    ) -> io::Result<Broker> {
        let network = Arc::new(network);
        let explanations = explains.then(|| lines.clone());
        let datagrams = || Datagrams::new(network.clone(), explanations).map(Arc::new);
        let datagrams = environment.datagrams.then(datagrams).transpose()?;
        Ok(Broker {
            environment,
            network,
            datagrams,
            table: Mutex::default(),
            groups: Mutex::default(),
            lines,
            explains,
            unserved: Mutex::default(),
        })
    }

    /// Explains something about a connection, if that is wanted.
    fn explain(&self, line: impl FnOnce() -> String) {
        if self.explains {
            (self.lines)(&line());
        }
    }

    /// Reports a program that a process executes and that cannot be served, once.
    fn report_unserved(&self, program: &str) {
        let mut reported = lock(&self.unserved);
        if reported.len() < MAX_UNSERVED && reported.insert(program.to_owned()) {
            let program = program.escape_debug();
            (self.lines)(&format!("{program}: its sockets stay those of TCP"));
        }
    }

    /// Returns the number of sockets that exist, and connections that are not yet at their end.
    pub(crate) fn sockets(&self) -> usize {
        lock(&self.table).len()
    }

    /// Drops what belongs to sockets that the program has closed: a part of the table at each call.
    pub(crate) fn sweep(&self) {
        let gone = lock(&self.table).sweep(self.environment.broker);
        for id in gone {
            self.remove(id);
        }
        if let Some(datagrams) = &self.datagrams {
            datagrams.sweep();
        }
    }

    /// Drops a socket.
    fn remove(&self, id: ringway_with_wire::SocketId) {
        lock(&self.table).remove(id);
        lock(&self.groups).leave(id);
    }
}

/// Waits until the other end of a socket is closed.
async fn closed(stream: &UnixStream) {
    const LOOK: std::time::Duration = std::time::Duration::from_millis(100);
    while !ringway_os::has_hung_up(stream.as_fd()) {
        tokio::time::sleep(LOOK).await;
    }
}
