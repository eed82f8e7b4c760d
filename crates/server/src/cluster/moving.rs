//! Before a node stops, its phones move to other nodes, flow by flow (RFC 5626 section 4.2).

use std::sync::Arc;
use std::time::Duration;

use ringway_net::Mailbox;
use ringway_proxy::location::{LocationStore, MemoryStore};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::Hub;
use crate::post::Post;

/// Time within which all connections of phones are closed. Other nodes get the registrations of all of them meanwhile.
const MOVE_TIME: Duration = Duration::from_secs(10);
/// Interval at which some of them are closed.
const MOVE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of intervals after which it is checked whether any are left.
const CHECK: usize = 5;

/// Closes the connections over which phones are registered, a few at a time. Until its connection is closed a phone is called as
/// before; one that a request waits on is among the last. Registrations are refused meanwhile. Returns when none is left, or
/// after `limit` or [`MOVE_TIME`].
pub(crate) async fn move_phones(
    hub: Arc<Hub>,
    store: Arc<MemoryStore>,
    mailboxes: Vec<Mailbox<Post>>,
    limit: Duration,
) {
    let count = || {
        let mut connections = 0;
        for worker in 0..mailboxes.len() {
            // No more workers than an identifier of 8 bits has room for.
            store.connections(worker as u8, &mut |_| connections += 1);
        }
        connections
    };
    let connections = count();
    if connections == 0 || limit.is_zero() {
        return;
    }
    info!(connections, "moving phones to other nodes");
    hub.move_phones();
    let began = Instant::now();
    let steps = (limit.min(MOVE_TIME).as_millis() / MOVE_INTERVAL.as_millis()) as usize;
    for left in (1..=steps).rev() {
        for mailbox in &mailboxes {
            // What is not delivered is done by the next.
            mailbox.try_post(Post::MovePhones(left));
        }
        sleep(MOVE_INTERVAL).await;
        if left % CHECK == 0 && count() == 0 {
            break;
        }
    }
    info!(
        connections = count(),
        seconds = began.elapsed().as_secs_f32(),
        "phones have moved; left here"
    );
}
