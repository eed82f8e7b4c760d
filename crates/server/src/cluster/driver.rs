//! The thread of the database: commands go out on a connection for each lane, and reports come back.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use ringway_cluster::record::Message;
use ringway_cluster::{Command, Report};
use ringway_net::Clock;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use super::Hub;
use super::database::{Database, Session};

/// Time that a command has, with the connection for it. Longer than what the node waits for it.
const COMMAND_LIMIT: Duration = Duration::from_millis(1500);
/// Time after which a subscription without a message counts as lost: this node's own lease is heard every second.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// Pause before a lost subscription is tried again.
const SUBSCRIBE_PAUSE: Duration = Duration::from_millis(500);
/// Number of reports that wait.
const REPORTS: usize = 4096;
/// Time that the end of the lease has when the server stops.
const LEAVE_LIMIT: Duration = Duration::from_millis(500);
/// Longest time without a turn.
const IDLE: Duration = Duration::from_secs(1);

/// Runs until the server stops.
pub(super) async fn drive(
    hub: Arc<Hub>,
    database: Database,
    clock: Clock,
    mut stopped: oneshot::Receiver<()>,
) {
    let database = Arc::new(database);
    let (sender, mut reports) = mpsc::channel(REPORTS);
    let lanes: [mpsc::Sender<Command>; 3] = std::array::from_fn(|_| {
        let (commands, lane) = mpsc::channel(1);
        tokio::spawn(run_lane(hub.clone(), database.clone(), lane, sender.clone()));
        commands
    });
    tokio::spawn(subscribe(database.clone(), sender));
    let mut arrived = Vec::new();
    let mut end = None;
    while end.is_none_or(|end| Instant::now() < end && !hub.has_left()) {
        let (commands, next) = hub.turn(clock.now(), arrived.drain(..));
        for command in commands {
            // A lane has one command under way, so there is room.
            let _ = lanes[lane_of(&command)].try_send(command);
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

fn lane_of(command: &Command) -> usize {
    match command {
        Command::Renew { .. } | Command::Leave { .. } => 0,
        Command::Publish { .. } => 1,
        Command::Read(_) => 2,
    }
}

/// Carries out the commands of one lane. A connection on which something has failed is not used again.
async fn run_lane(
    hub: Arc<Hub>,
    database: Arc<Database>,
    mut commands: mpsc::Receiver<Command>,
    reports: mpsc::Sender<Report>,
) {
    let mut session: Option<Session> = None;
    while let Some(command) = commands.recv().await {
        let work = async {
            if let Some(mut connected) = session.take() {
                let done = database.carry_out(&mut connected, &command).await;
                if let Ok(done) = done {
                    return Ok((connected, done));
                }
                // The database may have started again, or another server has become the primary. Each command may be
                // carried out twice.
                let mut connected = database.connect().await?;
                // It is received before the answer.
                let _ = reports.send(Report::Reconnected).await;
                let done = database.carry_out(&mut connected, &command).await?;
                return Ok((connected, done));
            }
            let mut connected = database.connect().await?;
            let done = database.carry_out(&mut connected, &command).await?;
            Ok::<_, String>((connected, done))
        };
        let (report, failure) = match timeout(COMMAND_LIMIT, work).await {
            Ok(Ok((connected, (report, None)))) => {
                session = Some(connected);
                (report, None)
            }
            Ok(Ok((_, (report, refused)))) => (report, refused),
            Ok(Err(e)) => (failed(&command), Some(e)),
            Err(_) => (failed(&command), Some(format!("no answer within {COMMAND_LIMIT:?}"))),
        };
        if let Some(failure) = failure {
            debug!("the database: {failure}");
            *hub.world().why.lock().unwrap_or_else(PoisonError::into_inner) = failure;
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
        Command::Publish { .. } => Report::Published(Vec::new()),
        Command::Read(_) => Report::Read(Vec::new()),
    }
}

/// Reports changes, and when they are not reported.
async fn subscribe(database: Arc<Database>, reports: mpsc::Sender<Report>) {
    loop {
        match timeout(COMMAND_LIMIT, database.subscribe()).await {
            Ok(Ok(subscription)) => {
                if reports.send(Report::Subscribed).await.is_err() {
                    return;
                }
                let mut messages = subscription.into_on_message();
                while let Ok(Some(message)) = timeout(SILENCE_LIMIT, messages.next()).await {
                    let Ok(message) = Message::parse(message.get_payload_bytes()) else { continue };
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
