//! Before a node stops, its phones move to other nodes, flow by flow (RFC 5626 section 4.2).

use std::time::Duration;

use ringway_net::Mailbox;
use ringway_proxy::location::{LocationStore, MemoryStore};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::Hub;
use crate::observe::Monitor;
use crate::post::Post;

/// Time within which all connections of phones are closed. Other nodes get the registrations of all of them meanwhile.
const MOVE_TIME: Duration = Duration::from_secs(10);
/// Interval at which some of them are closed.
const MOVE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of intervals after which it is checked whether any are left.
const CHECK: usize = 5;
/// Time for which a node without a lease waits for its calls, if it has phones that have not moved: nobody calls them until it
/// has started again. Calls for them wait for it for 8 s ([`ringway_cluster::config`]), of which its start takes one or two.
pub(crate) const AWAY_TIME: Duration = Duration::from_secs(5);

/// A node that is to stop.
pub(crate) struct Stopping<'a> {
    pub hub: &'a Hub,
    pub store: &'a MemoryStore,
    pub mailboxes: Vec<Mailbox<Post>>,
    /// Time after which it ends in any case.
    pub limit: Duration,
}

impl Stopping<'_> {
    /// Closes the connections over which phones are registered, a few at a time, and refuses registrations. Until its
    /// connection is closed a phone is called as before; one that a request waits on is among the last. Phones without
    /// a connection are called as before, too, until what was not answered when the node began to stop is answered: so
    /// little is waited for when the lease has ended.
    ///
    /// Returns when that is so, or as long before the limit as calls may take without a lease.
    pub(crate) async fn move_phones(self, monitor: &Monitor) {
        info!(connections = self.connections(), "moving phones to other nodes");
        self.hub.move_phones();
        let began = Instant::now();
        let steps = (self.limit.min(MOVE_TIME).as_millis() / MOVE_INTERVAL.as_millis()) as usize;
        for step in 0.. {
            let is_moved = || step >= steps || self.connections() == 0;
            if step % CHECK == 0 && is_moved() && self.is_answered(monitor, began).await {
                break;
            }
            for mailbox in &self.mailboxes {
                // What is not delivered is done by the next.
                mailbox.try_post(Post::MovePhones(steps.saturating_sub(step)));
            }
            sleep(MOVE_INTERVAL).await;
        }
        let seconds = began.elapsed().as_secs_f32();
        info!(connections = self.connections(), seconds, "phones have moved; left here");
    }

    /// Returns the number of connections over which phones are registered.
    fn connections(&self) -> usize {
        let mut connections = 0;
        for worker in 0..self.mailboxes.len() {
            // No more workers than an identifier of 8 bits has room for.
            self.store.connections(worker as u8, &mut |_| connections += 1);
        }
        connections
    }

    /// Returns whether all requests that came before a time are answered, or it is too late to wait for them.
    async fn is_answered(&self, monitor: &Monitor, began: Instant) -> bool {
        // Taken before the workers look, so that none counts as younger than it is.
        let elapsed = began.elapsed();
        if elapsed >= self.limit.saturating_sub(AWAY_TIME) {
            return true;
        }
        let snapshots = monitor.board.refresh(|| (monitor.request_publish)()).await;
        let unanswered_for = snapshots.iter().filter_map(|s| s.unanswered_for).max();
        unanswered_for.is_none_or(|longest| longest < elapsed)
    }
}
