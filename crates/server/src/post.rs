//! What other threads send to a worker.

use ringway_directory::Delivery;
use ringway_net::Mailbox;
use ringway_proxy::config::Config;
use ringway_proxy::location::Change;
use ringway_proxy::{AskId, Reply, ResolveId};
use ringway_sansio::{Flow, Hop};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Messages of other threads to a worker.
pub enum Post {
    /// A message that another worker received and that belongs to this one.
    HandedOver(Flow, Vec<u8>),
    /// The changes with these numbers are durable, or have failed.
    Committed(Box<[u64]>, bool),
    /// A watched registration has changed.
    Changed(Box<[u8]>, Change),
    /// The state of a user whom the worker watches has changed.
    StateChanged(Box<[u8]>),
    /// Server location found these servers, best first, or none.
    Resolved(ResolveId, Vec<Hop>),
    /// A new configuration of the proxy.
    Configured(Arc<Config>),
    /// The reply to a question about users of other servers.
    Answered(AskId, Reply),
    /// A message that was kept for a user, who is registered now.
    Deliver(Box<Delivery>),
    /// These nodes of the cluster are gone.
    NodesGone(Arc<[SocketAddr]>),
    /// Close some of the connections of phones, and all within this number of posts.
    MovePhones(usize),
    /// Accept no new calls.
    Drain,
    /// Answer all requests that are not answered yet: the server ends.
    EndRequests,
    /// Publish the counters on the board.
    Publish,
}

/// Number of attempts to deliver a post while the mailbox is full, and the pause between them.
const POST_ATTEMPTS: u32 = 200;
const POST_PAUSE: Duration = Duration::from_millis(10);

/// Delivers a post that must arrive: waits up to two seconds for a slow worker. Must not be called
/// on a worker. Returns false if the worker has ended or its mailbox stays full.
pub fn post_with_retry(mailbox: &Mailbox<Post>, make: impl Fn() -> Post) -> bool {
    (0..POST_ATTEMPTS).any(|tries| {
        if tries > 0 {
            std::thread::sleep(POST_PAUSE);
        }
        mailbox.try_post(make())
    })
}

/// Delivers a post as [`post_with_retry`] does, without blocking other tasks.
pub async fn post_with_retry_async(mailbox: Mailbox<Post>, make: impl Fn() -> Post) {
    for _ in 0..POST_ATTEMPTS {
        tokio::time::sleep(POST_PAUSE).await;
        if mailbox.try_post(make()) {
            return;
        }
    }
}

/// Reports what has become of a registration, from a task of a runtime. The REGISTER waits for it, but packets of others must
/// not wait for a slow worker.
pub fn post_committed(mailbox: &Mailbox<Post>, id: u64, stored: bool) {
    let make = move || Post::Committed([id].into(), stored);
    if !mailbox.try_post(make())
        && let Ok(runtime) = tokio::runtime::Handle::try_current()
    {
        runtime.spawn(post_with_retry_async(mailbox.clone(), make));
    }
}
