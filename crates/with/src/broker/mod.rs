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

use crate::locking::lock;
use crate::network::Network;
use crate::run::Lines;
use arrivals::Groups;
use ringway_with_wire::Environment;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use table::Table;
use tokio::net::UnixStream;

/// What all tasks of the broker share.
pub(crate) struct Broker {
    pub(crate) environment: Environment,
    pub(crate) network: Arc<Network>,
    table: Mutex<Table>,
    groups: Mutex<Groups>,
    /// Lines for the user, if connections are to be explained.
    explain: Option<Lines>,
}

impl Broker {
    /// Creates a broker that serves processes that know its environment.
    pub(crate) fn new(
        environment: Environment,
        network: Network,
        explain: Option<Lines>,
    ) -> Broker {
        Broker {
            environment,
            network: Arc::new(network),
            table: Mutex::default(),
            groups: Mutex::default(),
            explain,
        }
    }

    /// Explains something about a connection, if that is wanted.
    fn explain(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.explain {
            lines(&line());
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
