//! What the workers of one process share besides their flows: mailboxes, listeners, keys, file descriptors.

use crate::ingress::IngressFilter;
use crate::mailbox::Mailbox;
use crate::origin::Origins;
use crate::tls::{TlsClient, TlsServer};
use crate::udp::Ledger;
use arc_swap::ArcSwap;
use ringway_flow::limits::reserved_files;
use ringway_flow::{Common, Counters, Limits};
use ringway_os::{Clock, LocalAddresses, max_files};
use ringway_sansio::{Flow, Listener};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub(crate) struct Shared<P> {
    pub(crate) common: Arc<Common>,
    pub(crate) mailboxes: Vec<Mailbox<P>>,
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) listening: Listening,
    pub(crate) clock: Clock,
    pub(crate) tls_server: Option<Arc<TlsServer>>,
    pub(crate) tls_client: Option<Arc<TlsClient>>,
    pub(crate) stop: watch::Sender<Option<Duration>>,
    pub(crate) files: Files,
    /// The web pages that may open a WebSocket.
    pub(crate) origins: ArcSwap<Origins>,
    pub(crate) ingress: Option<IngressFilter>,
    /// The worker that sent what an ICMP message quotes.
    pub(crate) ledger: Arc<Ledger>,
}

/// The addresses that are listened on.
pub(crate) struct Listening {
    /// One for each that was configured, in order; then the further addresses of those over SCTP.
    listeners: Vec<Listener>,
    /// For each of these, the index of the configured one.
    configured: Vec<usize>,
    /// For each configured one, the worker that alone serves it, if one alone does.
    owners: Vec<Option<u8>>,
}

impl Listening {
    pub(crate) fn new(
        listeners: Vec<Listener>,
        configured: Vec<usize>,
        owners: Vec<Option<u8>>,
    ) -> Self {
        Listening { listeners, configured, owners }
    }

    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Returns the index of the configured listener that has the address of this one.
    pub(crate) fn configured(&self, listener: usize) -> Option<usize> {
        self.configured.get(listener).copied()
    }

    /// Returns the worker that alone serves a listener, if one alone does.
    pub(crate) fn owner(&self, listener: usize) -> Option<u8> {
        *self.owners.get(self.configured(listener)?)?
    }
}

/// The file descriptors of the process that connections may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files {
    /// The first descriptor that no connection takes. The system returns the lowest that is free, so when it
    /// returns this one, fewer than the reserved ones are left.
    end: usize,
    /// Number of connections for which there are descriptors.
    pub(crate) room: usize,
}

impl Files {
    /// Returns what there is under these limits, with so many descriptors open already.
    pub(crate) fn new(limits: &Limits, open: usize) -> Self {
        let files = limits.files.or_else(max_files).unwrap_or(usize::MAX);
        let end = files - reserved_files(files);
        Files { end, room: end.saturating_sub(open).max(1) }
    }

    /// Whether a connection may have this descriptor.
    pub(crate) fn permit(&self, fd: &impl AsRawFd) -> bool {
        usize::try_from(fd.as_raw_fd()).is_ok_and(|fd| fd < self.end)
    }
}

/// Returns how many descriptors the process has open; 0 where the system does not tell.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// What may be asked of running endpoints from any thread. Cheap to copy.
pub struct Control<P>(pub(crate) Arc<Shared<P>>);

impl<P> Clone for Control<P> {
    fn clone(&self) -> Self {
        Control(self.0.clone())
    }
}

impl<P> Control<P> {
    /// The way to each worker, by its number.
    pub fn mailboxes(&self) -> &[Mailbox<P>] {
        &self.0.mailboxes
    }

    /// The counters of each worker, by its number.
    pub fn counters(&self) -> &[Arc<Counters>] {
        &self.0.counters
    }

    /// What is listened on, in the order it was asked for, with the ports the system chose; after
    /// that the further addresses of listeners that have several.
    pub fn listeners(&self) -> &[Listener] {
        self.0.listening.listeners()
    }

    /// Our own addresses as peers see them, to keep where they are asked for often.
    pub fn local_addresses(&self) -> LocalAddresses {
        LocalAddresses::new(self.0.listening.listeners())
    }

    /// Lets messages for `addr` use this accepted connection; see [`Common::alias`]. Takes a lock: only for a
    /// request that says `alias`.
    pub fn alias(&self, flow: &Flow, addr: SocketAddr) -> bool {
        self.0.common.alias(flow, addr)
    }

    /// Sets the web pages that may open a WebSocket from now on.
    pub fn set_origins(&self, origins: Origins) {
        self.0.origins.store(Arc::new(origins));
    }

    /// Tells every endpoint to stop: accept no more, write what is queued for at most `grace`, end.
    pub fn stop(&self, grace: Duration) {
        self.0.stop.send_replace(Some(grace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_few_files_are_reserved() {
        let files =
            |files, open| Files::new(&Limits { files: Some(files), ..Limits::default() }, open);
        assert_eq!((files(64, 32).end, files(64, 32).room), (48, 16));
        assert_eq!(files(10, 32).room, 1);
    }
}
