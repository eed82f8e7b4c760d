//! Server location for workers: queries [`ringway_net::locate`], which never waits, and posts
//! results that arrive later.

use crate::post::{Post, post_with_retry_async};
use ringway_net::locate::{self, LocateCounts, LocatorConfig, Query};
use ringway_net::{Clock, Control};
use ringway_proxy::{ResolveId, ResolveTarget};
use ringway_sansio::{Hop, Transport};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;

/// Transports used where the URI and DNS do not decide, in order of preference: those that every
/// SIP element supports come first (RFC 3261 section 18).
const PREFERRED: [Transport; 5] =
    [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Sctp, Transport::TlsSctp];

/// Finds servers for all workers. Clones are cheap and share the same state.
#[derive(Clone)]
pub struct Locator {
    inner: Arc<locate::Locator>,
    control: Control<Post>,
}

impl Locator {
    /// Starts the thread that queries the DNS; it runs until the process ends.
    ///
    /// # Errors
    /// Fails when the thread cannot be started, or the system's name servers cannot be read.
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

    /// Returns the servers of `target` if they are known. Otherwise they are posted later as
    /// [`Post::Resolved`] with this `id`. `source` is the address whose budget pays for the query;
    /// `seed` decides between servers of equal priority.
    pub fn locate(
        &self,
        worker: u8,
        id: ResolveId,
        target: ResolveTarget,
        source: IpAddr,
        seed: u64,
    ) -> Option<Vec<Hop>> {
        let ResolveTarget { host, port, transport, secure } = target;
        let control = self.control.clone();
        let done = move |hops: Vec<Hop>| {
            let Some(mailbox) = control.mailboxes().get(usize::from(worker)) else { return };
            if !mailbox.try_post(Post::Resolved(id, hops.clone())) {
                let later = post_with_retry_async(mailbox.clone(), move || {
                    Post::Resolved(id, hops.clone())
                });
                // This closure runs on the thread of the locator's runtime.
                tokio::spawn(later);
            }
        };
        self.inner.locate(Query { host, port, transport, secure }, source, seed, done)
    }

    /// Notes that a server did not answer: for some time it is tried last.
    pub fn failed(&self, transport: Transport, addr: SocketAddr) {
        self.inner.failed(transport, addr, None);
    }

    /// Returns the counters since the start.
    pub fn counts(&self) -> LocateCounts {
        self.inner.counts()
    }

    /// Returns the numbers of cached queries, of queries in progress, and of servers that count as
    /// failed.
    pub fn sizes(&self) -> (usize, usize, usize) {
        self.inner.sizes()
    }
}
