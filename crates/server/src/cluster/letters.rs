//! Messages between this node and others, which the database carries from channel to channel.
//!
//! Both tasks have connections of their own, so that registrations, reads and probes do not wait behind messages. What finds no
//! room is dropped: those who send repeat it. A node sends itself a message each second, which shows that they arrive.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::Value;
use redis::aio::MultiplexedConnection;
use ringway_cluster::{Letter, letter};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::Hub;
use super::database::{Database, Failure};
use super::driver::{COMMAND_LIMIT, SILENCE_LIMIT, SUBSCRIBE_PAUSE};
use crate::states::Run;
use crate::states::nodes::Outgoing;

/// Maximum number of messages in one command.
const MAX_BATCH: usize = 64;
/// Interval of messages of the node to itself.
const BEAT: Duration = Duration::from_secs(1);
/// Maximum pause after a command. Otherwise it is as long as the command has taken, so that a database that is slow has little to
/// do with messages.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Pause after the database has refused a channel.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// The code of an error of a server that does not permit something (ACL).
const REFUSED: &str = "NOPERM";

/// Why messages were not published.
struct Unsent {
    failure: Failure,
    /// Whether the database does not permit it.
    is_refused: bool,
}

impl From<Failure> for Unsent {
    fn from(failure: Failure) -> Self {
        Unsent { failure, is_refused: false }
    }
}

/// Sends messages of this node, as long as the server runs.
pub(super) async fn send(
    hub: Arc<Hub>,
    database: Arc<Database>,
    mut outgoing: mpsc::Receiver<Outgoing>,
) {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut connection: Option<MultiplexedConnection> = None;
    let (mut turn, mut batch) = (0, Vec::with_capacity(MAX_BATCH));
    loop {
        tokio::select! {
            count = outgoing.recv_many(&mut batch, MAX_BATCH) => if count == 0 { return },
            _ = beat.tick() => {
                let ((node, boot), _) = hub.runs();
                batch.push((Run { node, boot }, Box::default()));
            }
        }
        let began = Instant::now();
        let work = publish(&hub, &database, turn, connection.take(), &batch);
        let result = timeout(COMMAND_LIMIT, work).await;
        batch.clear();
        let mut pause = began.elapsed().min(MAX_PAUSE);
        match result {
            Ok(Ok(connected)) => connection = Some(connected),
            failed => {
                let unsent = match failed {
                    Ok(Err(unsent)) => unsent,
                    _ => Unsent::from("no answer".to_owned()),
                };
                debug!("messages to other nodes: {}", unsent.failure);
                turn += 1;
                pause = if unsent.is_refused { REFUSED_PAUSE } else { SUBSCRIBE_PAUSE };
                // What has waited meanwhile is old.
                while outgoing.try_recv().is_ok() {}
            }
        }
        sleep(pause).await;
    }
}

/// Publishes messages, each on the channel of its node.
async fn publish(
    hub: &Hub,
    database: &Database,
    turn: usize,
    connection: Option<MultiplexedConnection>,
    batch: &[Outgoing],
) -> Result<MultiplexedConnection, Unsent> {
    let ((from, boot), _) = hub.runs();
    let mut connection = match connection {
        Some(connection) => connection,
        None => database.connect_with_any(turn).await?,
    };
    let mut pipeline = redis::pipe();
    for (to, octets) in batch {
        let letter = Letter { from, boot, to: to.boot, octets: octets.clone() };
        pipeline.cmd("PUBLISH").arg(letter::channel(to.node)).arg(letter.to_bytes());
    }
    let answers = connection.send_packed_commands(&pipeline, 0, batch.len()).await;
    let answers = answers.map_err(|e| e.to_string())?;
    match answers.into_iter().find(|answer| matches!(answer, Value::ServerError(_))) {
        Some(Value::ServerError(e)) => {
            Err(Unsent { failure: e.to_string(), is_refused: e.code() == REFUSED })
        }
        _ => Ok(connection),
    }
}

/// Receives messages of other nodes, as long as the server runs.
pub(super) async fn receive(hub: Arc<Hub>, database: Arc<Database>) {
    let channel = letter::channel(hub.name());
    let (mut turn, mut was_refused) = (0, false);
    loop {
        turn += 1;
        let mut pause = SUBSCRIBE_PAUSE;
        match timeout(COMMAND_LIMIT, database.subscribe(turn, &channel)).await {
            Ok(Ok(subscription)) => {
                if std::mem::take(&mut was_refused) {
                    info!("the database of the cluster carries messages between nodes");
                }
                let states = hub.world().states();
                states.lost();
                let mut messages = subscription.into_on_message();
                // What comes from other nodes may come though what this node has sent itself does not.
                let mut silent = Instant::now() + SILENCE_LIMIT;
                while let Ok(Some(message)) = timeout_at(silent, messages.next()).await {
                    let Ok(letter) = Letter::parse(message.get_payload_bytes()) else { continue };
                    let Letter { from, boot, to, octets } = letter;
                    if from == hub.name() {
                        silent = Instant::now() + SILENCE_LIMIT;
                    } else if hub.takes_letters(from, boot, to) {
                        states.message(Run { node: from, boot }, octets);
                    }
                }
            }
            Ok(Err(e)) if e.code() == Some(REFUSED) => {
                pause = REFUSED_PAUSE;
                if !std::mem::replace(&mut was_refused, true) {
                    warn!(
                        "the database of the cluster refuses its user the channel {channel} ({e}): subscriptions to \
                         registrations, calls and presence see what happens at this node only; grant the user \
                         &ringway:to:* to have them see all nodes"
                    );
                }
            }
            Ok(Err(e)) => debug!("no messages of other nodes are received: {e}"),
            Err(_) => debug!("no messages of other nodes are received: no answer"),
        }
        sleep(pause).await;
    }
}
