//! Server location for workers: asks [`ringway_net::locate`], which never waits, and posts what is
//! found later.

use crate::worker::{Post, post_surely_later};
use ringway_net::locate::{self, LocateCounts, LocatorConfig, Query};
use ringway_net::{Clock, Control};
use ringway_proxy::ResolveTarget;
use ringway_sansio::{Hop, Transport};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;

/// The transports a request is sent over where the URI and DNS leave it open, the best first: what
/// every SIP element speaks comes first (RFC 3261 section 18).
const PREFERRED: [Transport; 5] =
    [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Sctp, Transport::TlsSctp];

/// Finds servers for all workers. Cheap to copy.
#[derive(Clone)]
pub struct Locator {
    inner: Arc<locate::Locator>,
    control: Control<Post>,
}

impl Locator {
    /// Starts the thread that asks the DNS; it lives as long as the process.
    ///
    /// # Errors
    /// When it cannot be started, or the system's name servers cannot be read.
    pub fn start(control: Control<Post>, clock: Clock) -> Result<Self, String> {
        let listeners = control.listeners();
        let speaks = |t: &Transport| listeners.iter().any(|l| l.transport == *t);
        let config = LocatorConfig {
            servers: Vec::new(),
            transports: PREFERRED.into_iter().filter(speaks).collect(),
            ipv4: listeners.iter().any(|l| l.addr.is_ipv4()),
            ipv6: listeners.iter().any(|l| l.addr.is_ipv6()),
            ..LocatorConfig::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let inner = locate::Locator::new(config, clock, runtime.handle().clone())
            .map_err(|e| e.to_string())?;
        thread::Builder::new()
            .name("locate".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .map_err(|e| e.to_string())?;
        Ok(Locator { inner, control })
    }

    /// The servers of `target`, if they are known already; otherwise they come as
    /// [`Post::Resolved`] with this `id`. `source` is who is to be charged for the question; `seed`
    /// decides between servers of equal standing.
    pub fn locate(
        &self,
        worker: u8,
        id: u64,
        target: ResolveTarget,
        source: IpAddr,
        seed: u64,
    ) -> Option<Vec<Hop>> {
        let ResolveTarget { host, port, transport, secure } = target;
        let control = self.control.clone();
        let done = move |hops: Vec<Hop>| {
            let Some(mailbox) = control.mailboxes().get(usize::from(worker)) else { return };
            if !mailbox.try_post(Post::Resolved(id, hops.clone())) {
                let later =
                    post_surely_later(mailbox.clone(), move || Post::Resolved(id, hops.clone()));
                // This runs on the runtime's thread.
                tokio::spawn(later);
            }
        };
        self.inner.locate(Query { host, port, transport, secure }, source, seed, done)
    }

    /// A server did not answer: for a while it is tried last.
    pub fn failed(&self, transport: Transport, addr: SocketAddr) {
        self.inner.failed(transport, addr, None);
    }

    /// What has been counted since the start.
    pub fn counts(&self) -> LocateCounts {
        self.inner.counts()
    }

    /// How many queries are remembered and under way, and how many servers count as failed.
    pub fn sizes(&self) -> (usize, usize, usize) {
        self.inner.sizes()
    }
}
