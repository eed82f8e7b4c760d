//! What the workers of one endpoint share: the limits, the count of connections, and the directory of those
//! that a worker may use although another owns them.
//!
//! Locks are taken when connections open and close, and to look up a peer to which the worker itself opened
//! no connection; never for a message on a known flow.

use crate::admission::{Admission, Refusal};
use crate::call::CallStreams;
use crate::directory::Directory;
use crate::limits::Limits;
use ringway_sansio::{Flow, Transport};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the workers of one endpoint share.
#[derive(Debug)]
pub struct Common {
    limits: Limits,
    calls: CallStreams,
    admission: Mutex<Admission>,
    directory: Mutex<Directory>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A worker that panicked left nothing half done in these tables.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Common {
    /// Returns what is shared at the start: no connection, and file descriptors for `files` of them.
    /// `call_key` is secret; see [`CallStreams::new`].
    pub fn new(limits: Limits, files: usize, call_key: &[u8; 16]) -> Self {
        Common {
            limits,
            calls: CallStreams::new(call_key),
            admission: Mutex::new(Admission::new(files)),
            directory: Mutex::default(),
        }
    }

    /// Returns the bounds on connections.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the choice of streams for calls.
    pub fn calls(&self) -> CallStreams {
        self.calls
    }

    /// Lets messages for `addr`, over the flow's transport, use this accepted connection (RFC 5923): for a
    /// request that came over `flow` with `alias` in its top Via, `addr` is the source address of the flow
    /// with the port of sent-by or 5061. Returns `false`, and changes nothing, unless the flow is TLS and its
    /// peer proved its names by a certificate.
    pub fn alias(&self, flow: &Flow, addr: SocketAddr) -> bool {
        self.directory().alias(flow, addr)
    }

    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        lock(&self.directory)
    }

    pub(crate) fn admit(
        &self,
        transport: Transport,
        source: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        lock(&self.admission).admit(&self.limits, transport, source)
    }

    pub(crate) fn release(&self, transport: Transport, source: Option<IpAddr>) {
        lock(&self.admission).release(transport, source);
    }
}
