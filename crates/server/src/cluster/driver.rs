//! The thread of the database: commands go out on a connection for each lane, and reports come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use ringway_cluster::record::{self, Message};
use ringway_cluster::{Command, Probed, Report, Shard};
use ringway_net::Clock;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::debug;

use super::Hub;
use super::database::{Database, Done, Session};
use super::letters;
use super::topology;
use crate::states::nodes::Outgoing;

/// Time that a command has, with the connection for it. Longer than what the node waits for it.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_millis(1500);
/// Time after which a subscription without a message counts as lost: this node's own lease is heard every second.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// Pause before a lost subscription is tried again.
pub(super) const SUBSCRIBE_PAUSE: Duration = Duration::from_millis(500);
/// Number of reports that wait.
const REPORTS: usize = 4096;
/// Time that the end of the lease has when the server stops.
const LEAVE_LIMIT: Duration = Duration::from_millis(500);
/// Time without a command after which the connection of a lane with one primary of many is closed.
const LANE_IDLE: Duration = Duration::from_secs(60);
/// Longest time without a turn.
const IDLE: Duration = Duration::from_secs(1);

/// Runs until the server stops.
pub(super) async fn drive(
    hub: Arc<Hub>,
    database: Database,
    clock: Clock,
    (mut stopped, outgoing): (oneshot::Receiver<()>, mpsc::Receiver<Outgoing>),
) {
    let database = Arc::new(database);
    let (sender, mut reports) = mpsc::channel(REPORTS);
    let mut lanes = Lanes {
        hub: hub.clone(),
        database: database.clone(),
        reports: sender.clone(),
        lanes: BTreeMap::new(),
    };
    if database.is_sharded() {
        tokio::spawn(topology::watch(hub.clone(), database.clone(), sender.clone()));
    }
    tokio::spawn(subscribe(database.clone(), sender));
    tokio::spawn(letters::send(hub.clone(), database.clone(), outgoing));
    tokio::spawn(letters::receive(hub.clone(), database.clone()));
    let mut arrived = Vec::new();
    let mut end = None;
    while end.is_none_or(|end| Instant::now() < end && !hub.has_left()) {
        let (commands, next) = hub.turn(clock.now(), arrived.drain(..));
        for command in commands {
            lanes.send(command);
        }
        let wait = next.map_or(IDLE, |next| next.since(clock.now()).min(IDLE));
        let wake = (Instant::now() + wait).min(end.unwrap_or_else(|| Instant::now() + IDLE));
        tokio::select! {
            () = hub.world().wake.notified() => {}
            _ = reports.recv_many(&mut arrived, REPORTS) => {}
            () = sleep_until(wake) => {}
            _ = &mut stopped, if end.is_none() => {
                hub.leave();
                end = Some(Instant::now() + LEAVE_LIMIT);
            }
        }
    }
    if !hub.has_left() {
        debug!("the lease ends by itself");
    }
}

/// The lanes: for each shard one for each kind of command. A lane begins with its first command.
struct Lanes {
    hub: Arc<Hub>,
    database: Arc<Database>,
    reports: mpsc::Sender<Report>,
    lanes: BTreeMap<(Shard, u8), mpsc::Sender<Command>>,
}

impl Lanes {
    fn send(&mut self, command: Command) {
        let lane = (command.shard().clone(), lane_of(&command));
        let command = match self.lanes.get(&lane) {
            None => command,
            // A lane has one command under way, so there is room, or it has ended.
            Some(commands) => match commands.try_send(command) {
                Ok(()) => return,
                Err(e) => e.into_inner(),
            },
        };
        self.lanes.retain(|_, commands| !commands.is_closed());
        let (commands, receiver) = mpsc::channel(1);
        let (hub, database) = (self.hub.clone(), self.database.clone());
        let shard = lane.0.clone();
        tokio::spawn(run_lane(hub, database, shard, receiver, self.reports.clone()));
        let _ = commands.try_send(command);
        self.lanes.insert(lane, commands);
    }
}

fn lane_of(command: &Command) -> u8 {
    match command {
        Command::Renew { .. } | Command::Leave { .. } => 0,
        Command::Publish { .. } => 1,
        Command::Read { .. } => 2,
        Command::Probe { .. } => 3,
        Command::Share { .. } => 4,
    }
}

/// Returns the next command of a lane. A lane of one shard of many ends when there has been none for a while.
async fn next(shard: &Shard, commands: &mut mpsc::Receiver<Command>) -> Option<Command> {
    if let Ok(command) = timeout(LANE_IDLE, commands.recv()).await {
        return command;
    }
    if !shard.is_whole() {
        // One that was sent meanwhile is received all the same.
        commands.close();
    }
    commands.recv().await
}

/// Carries out the commands of one lane. A connection on which something has failed is not used again.
async fn run_lane(
    hub: Arc<Hub>,
    database: Arc<Database>,
    shard: Shard,
    mut commands: mpsc::Receiver<Command>,
    reports: mpsc::Sender<Report>,
) {
    let mut session: Option<Session> = None;
    while let Some(command) = next(&shard, &mut commands).await {
        let work = async {
            if let Some(mut connected) = session.take() {
                let done = database.carry_out(&mut connected, &command).await;
                if let Ok(done) = done {
                    return Ok((connected, done));
                }
                // The database may have started again, or another server has become the primary. Each command may be
                // carried out twice.
                let mut connected = database.connect(&shard).await?;
                // It is received before the answer.
                let _ = reports.send(Report::Reconnected(shard.clone())).await;
                let done = database.carry_out(&mut connected, &command).await?;
                return Ok((connected, done));
            }
            let mut connected = database.connect(&shard).await?;
            let done = database.carry_out(&mut connected, &command).await?;
            Ok::<_, String>((connected, done))
        };
        let (report, failure) = match timeout(COMMAND_LIMIT, work).await {
            Ok(Ok((connected, Done { report, refused: None }))) => {
                session = Some(connected);
                (report, None)
            }
            Ok(Ok((_, Done { report, refused }))) => (report, refused),
            Ok(Err(e)) => (failed(&command), Some(e)),
            Err(_) => (failed(&command), Some(format!("no answer within {COMMAND_LIMIT:?}"))),
        };
        if let Some(failure) = failure {
            debug!("the database: {failure}");
            hub.world().set_why(&shard, Some(failure));
            database.stale.notify_one();
        }
        if reports.send(report).await.is_err() {
            return;
        }
    }
}

fn failed(command: &Command) -> Report {
    match command {
        Command::Renew { .. } => Report::Renewed(None),
        Command::Leave { .. } => Report::Left(false),
        Command::Publish { shard, .. } => Report::Published(shard.clone(), Vec::new()),
        Command::Read { shard, .. } => Report::Read(shard.clone(), Vec::new()),
        Command::Share { .. } => Report::Shared(None),
        Command::Probe { shard, .. } => Report::Probed(shard.clone(), Probed::Failed),
    }
}

/// Reports changes, and when they are not reported.
async fn subscribe(database: Arc<Database>, reports: mpsc::Sender<Report>) {
    let mut turn = 0;
    loop {
        turn += 1;
        match timeout(COMMAND_LIMIT, database.subscribe(turn, record::CHANNEL)).await {
            Ok(Ok(subscription)) => {
                if reports.send(Report::Subscribed).await.is_err() {
                    return;
                }
                let mut messages = subscription.into_on_message();
                // What other servers of the database report may still come when this node's lease does not.
                let mut silent = Instant::now() + SILENCE_LIMIT;
                while let Ok(Some(message)) = timeout_at(silent, messages.next()).await {
                    let Ok(message) = Message::parse(message.get_payload_bytes()) else { continue };
                    if matches!(message, Message::Renewed { .. }) {
                        silent = Instant::now() + SILENCE_LIMIT;
                    }
                    if reports.send(Report::Heard(message)).await.is_err() {
                        return;
                    }
                }
                if reports.send(Report::Unsubscribed).await.is_err() {
                    return;
                }
            }
            Ok(Err(e)) => debug!("no changes are reported: {e}"),
            Err(_) => debug!("no changes are reported: no answer"),
        }
        sleep(SUBSCRIBE_PAUSE).await;
    }
}
