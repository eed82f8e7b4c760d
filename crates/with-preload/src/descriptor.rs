//! Recognising a descriptor by the names of its socket.

use crate::address;
use crate::environment;
use crate::system;
use libc::c_int;
use ringway_with_wire::{Environment, Name, SocketId};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A socket that the broker serves.
pub(crate) struct Descriptor {
    pub(crate) broker: Environment,
    /// Whether it was created for IPv6, or accepted from one that was.
    pub(crate) ipv6: bool,
    pub(crate) id: SocketId,
    /// The peer's address and the local one, of a connection that was accepted.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
}

/// Returns the socket behind a descriptor, if the broker serves it.
pub(crate) fn recognise(fd: c_int) -> Option<Descriptor> {
    let broker = environment::get()?;
    let own = system::getsockname(fd).ok()?;
    let Name::Program { ipv6, id } = address::name(&own, broker.broker)? else { return None };
    let peer = system::getpeername(fd).ok().and_then(|peer| address::name(&peer, broker.broker));
    Some(match peer {
        Some(Name::Connection { id, peer, local }) => {
            Descriptor { broker, ipv6, id, ends: Some((peer, local)) }
        }
        _ => Descriptor { broker, ipv6, id, ends: None },
    })
}

/// Notes about descriptors of this process. One that was closed since may be something else, so that a note says only
/// what is worth a look: without it each end of a file would cost a system call, which a process in a sandbox may not be
/// allowed.
pub(crate) struct Notes([AtomicU64; Notes::DESCRIPTORS / 64]);

/// Descriptors that a socket was created at.
pub(crate) static CREATED: Notes = Notes::new();
/// Descriptors that were connected or accepted.
pub(crate) static OPENED: Notes = Notes::new();

impl Notes {
    /// Descriptors below this are noted, and none above.
    const DESCRIPTORS: usize = 1 << 16;

    const fn new() -> Notes {
        Notes([const { AtomicU64::new(0) }; Notes::DESCRIPTORS / 64])
    }

    fn bit(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / 64)?, 1 << (fd % 64)))
    }

    /// Notes a descriptor.
    pub(crate) fn add(&self, fd: c_int) {
        if let Some((word, bit)) = self.bit(fd) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Returns whether a descriptor is noted.
    pub(crate) fn has(&self, fd: c_int) -> bool {
        self.bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}
