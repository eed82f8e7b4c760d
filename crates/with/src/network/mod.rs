//! The network side of the broker: connections with the services that the user has named, whatever protocol carries
//! them. Nothing outside this module names a protocol.

mod alone;
mod associated;
mod below;
mod connecting;
mod datagrams;
mod listening;
mod locals;
mod opened;
mod pool;
mod sctp;
mod sharing;
mod tcp;
mod transport;
mod unread;

pub(crate) use connecting::Opening;
pub(crate) use datagrams::{Link, LinkListener};
pub(crate) use listening::{Acceptor, Beside};
pub(crate) use opened::{Information, Received};
pub(crate) use transport::{Connection, Observer, Transport};

use crate::locking::lock;
use crate::remembered;
use crate::services::{self, Services};
use ringway_os::Clock;
use ringway_services::{Availability, Memory, Protocol};
use sctp::Stacks;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

/// Connections of one broker, and what is remembered of their peers.
pub(crate) struct Network {
    services: Services,
    clock: Clock,
    /// What this host has for any peer.
    host: Availability,
    /// What it has for datagrams.
    datagram_host: Availability,
    memory: Mutex<Memory>,
    /// Where the memory is kept.
    file: Option<PathBuf>,
    stacks: Stacks,
}

/// Why there is no connection.
pub(crate) struct ConnectError {
    /// As a socket of TCP would report it.
    pub(crate) errno: i32,
    pub(crate) reason: String,
}

impl Network {
    /// Creates the network side, of connections alone or of datagrams, too. It opens no socket. What a file has of peers is
    /// remembered.
    pub(crate) fn new(services: Services, datagrams: bool, file: Option<PathBuf>) -> Network {
        let clock = Clock::new();
        let mut memory = Memory::new();
        if let Some(file) = &file {
            remembered::load(file, clock.now(), &mut memory);
        }
        let (mut host, mut datagram_host) = (services::host(), services::datagram_host());
        if !ringway_sctp_tokio::is_permitted() {
            let reason = "it takes CAP_NET_RAW and a kernel whose own SCTP is not loaded";
            host = host.without(Protocol::Sctp, reason);
            datagram_host = datagram_host.without(Protocol::Sctp, reason);
        }
        let (memory, stacks) = (Mutex::new(memory), Stacks::new(datagrams));
        Network { services, clock, host, datagram_host, memory, file, stacks }
    }

    /// Sends what is due and writes the memory.
    pub(crate) async fn close(&self) -> io::Result<()> {
        self.stacks.flush().await;
        match &self.file {
            Some(file) => remembered::save(file, self.clock.now(), &mut lock(&self.memory)),
            None => Ok(()),
        }
    }
}
