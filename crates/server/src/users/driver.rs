//! The thread of the database of users: one connection reads, and each change has one of its own.

use super::apply::Applier;
use super::session::Session;
use super::shared::{Change, Changed, Failure, READ_LIMIT, Request, Shared};
use super::source::Source;
use crate::store::Store;
use ringway_net::Clock;
use ringway_sansio::Time;
use ringway_users::mirror::Next;
use ringway_users::{Mirror, Position, Step};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

/// Time in which a connection for reading is there, with its schema.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time in which a connection for a change is there.
const WRITE_CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Time that a change which the database has waits until it is known here.
const KNOWN_LIMIT: Duration = Duration::from_secs(1);
/// Pause before the file is tried again.
const SAVE_PAUSE: Duration = Duration::from_secs(2);
/// Time that the end waits for the file.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Runs until the server stops.
pub(super) async fn drive(
    source: Source,
    shared: Arc<Shared>,
    store: Arc<Store>,
    clock: Clock,
    requests: mpsc::Receiver<Request>,
    stopped: oneshot::Receiver<()>,
) {
    if matches!(&source, Source::Postgres(server) if server.is_exposed()) {
        warn!("users.source: hashes of passwords travel in clear text (sslmode=disable): {source}");
    }
    let source = Arc::new(source);
    let (positions, known) = watch::channel(Position::MIN);
    let (prune, prunes) = mpsc::channel(1);
    let mut reader = Reader {
        source: source.clone(),
        mirror: Mirror::new(source.follow(), clock.now()),
        applier: Applier::new(store, shared.clone(), clock),
        shared,
        clock,
        session: None,
        positions,
        prunes,
        confirmed: Confirmed::default(),
        save_again: None,
    };
    tokio::select! {
        () = reader.run() => {}
        () = write(source, requests, known, prune) => {}
        // The sender may be gone: then the server has ended, too.
        _ = stopped => {}
    }
    // Otherwise a user who was just removed would be known again after a start without the database.
    if timeout(FLUSH_LIMIT, reader.applier.flush()).await.is_err() {
        warn!("changed users are not in the file yet");
    }
}

/// Someone who waits until everything was read with a confirmation.
type Prune = oneshot::Sender<Result<(), String>>;

/// Those who wait for the next read of everything.
#[derive(Default)]
struct Confirmed(Vec<Prune>);

impl Confirmed {
    /// Returns whether somebody waits. Those who do not any more were answered that nobody was removed.
    fn is_waited_for(&mut self) -> bool {
        self.0.retain(|waits| !waits.is_closed());
        !self.0.is_empty()
    }

    fn answer(&mut self, result: &Result<(), String>) {
        for waits in self.0.drain(..) {
            let _ = waits.send(result.clone());
        }
    }
}

struct Reader {
    source: Arc<Source>,
    shared: Arc<Shared>,
    mirror: Mirror,
    applier: Applier,
    clock: Clock,
    /// The connection, and its reports.
    session: Option<(Session, mpsc::Receiver<()>)>,
    /// The last change that is known here.
    positions: watch::Sender<Position>,
    prunes: mpsc::Receiver<Prune>,
    confirmed: Confirmed,
    /// When the file is tried again.
    save_again: Option<Time>,
}

impl Reader {
    async fn run(&mut self) {
        loop {
            match self.mirror.next(self.clock.now()) {
                Next::Do(step) => {
                    let result = self.carry_out(step).await;
                    if let Err(why) = &result {
                        self.fail(why);
                    }
                    self.end_step(&result);
                }
                Next::Wait(until) => self.wait(until).await,
            }
        }
    }

    async fn carry_out(&mut self, step: Step) -> Result<(), String> {
        if step == Step::Connect {
            let (sender, heard) = mpsc::channel(1);
            let connected = within(CONNECT_LIMIT, Session::connect(&self.source, sender)).await;
            self.session = Some((connected?, heard));
            self.mirror.connected();
            return Ok(());
        }
        let Some((session, _)) = &mut self.session else {
            return Err("there is no connection".to_owned());
        };
        self.mirror.begin();
        let position = match step {
            Step::Connect => return Ok(()),
            Step::ReadAll => {
                let domains = self.shared.domains();
                self.applier.begin();
                let read = session.read_all(&domains, &mut self.applier);
                let complete = within(READ_LIMIT, read).await?;
                self.applier.finish(&complete, self.confirmed.is_waited_for());
                self.mirror.read_all(self.clock.now(), complete.position);
                complete.position
            }
            Step::ReadChanges(after) => {
                let read = session.read_changes(after).await?;
                self.applier.changes(read.changes);
                self.mirror.read_changes(self.clock.now(), read.position, read.more);
                read.position
            }
        };
        self.positions.send_replace(position);
        self.save();
        Ok(())
    }

    /// Reports the end of a step to those who wait for it.
    fn end_step(&mut self, result: &Result<(), String>) {
        let mut numbers = self.shared.numbers();
        let was_present = std::mem::replace(&mut numbers.present, self.mirror.is_present());
        numbers.refreshed = self.mirror.refreshed();
        numbers.outages = self.mirror.outages();
        let is_back = numbers.present && !was_present && !numbers.why.is_empty();
        if numbers.present {
            numbers.why.clear();
        }
        drop(numbers);
        if is_back {
            info!("the database of users answers again");
        }
        if self.mirror.is_present() || result.is_err() {
            self.shared.end_first();
            self.confirmed.answer(result);
        }
    }

    /// Drops the connection. The log says so once for each reason.
    fn fail(&mut self, why: &str) {
        self.session = None;
        let became_absent = self.mirror.failed(self.clock.now());
        let is_same = std::mem::replace(&mut self.shared.numbers().why, why.to_owned()) == why;
        if became_absent || !is_same {
            error!(
                "the database of users cannot be read ({why}): users stay as they are known here, {}",
                self.shared.name
            );
        } else {
            debug!("the database of users: {why}");
        }
    }

    /// Begins to write into the file what is not in it yet, unless that has just failed.
    fn save(&mut self) {
        if self.save_again.is_none_or(|again| again <= self.clock.now()) {
            self.save_again = None;
            self.applier.save();
        }
    }

    async fn wait(&mut self, until: Time) {
        let until = self.save_again.map_or(until, |again| again.min(until));
        let pause = until.since(self.clock.now());
        let heard = async {
            match &mut self.session {
                Some((_, heard)) => heard.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep(pause) => self.save(),
            report = heard => match report {
                Some(()) => self.mirror.report(),
                None => {
                    self.fail("the connection was closed");
                    self.end_step(&Ok(()));
                }
            },
            () = self.shared.ask.notified() => self.mirror.ask(),
            Some(prune) = self.prunes.recv() => {
                self.confirmed.0.push(prune);
                self.mirror.ask();
            }
            is_saved = self.applier.saved() => {
                self.save_again = (!is_saved).then(|| self.clock.now() + SAVE_PAUSE);
                self.save();
            }
        }
    }
}

/// Carries out changes, each on a connection of its own.
async fn write(
    source: Arc<Source>,
    mut requests: mpsc::Receiver<Request>,
    known: watch::Receiver<Position>,
    prune: mpsc::Sender<Prune>,
) {
    while let Some(Request { change, reply }) = requests.recv().await {
        let (source, known, prune) = (source.clone(), known.clone(), prune.clone());
        tokio::spawn(async move {
            let result = match change {
                Change::Prune => pruned(prune).await,
                change => carry_out(&source, &change, known).await,
            };
            // The caller may have stopped waiting.
            let _ = reply.try_send(result);
        });
    }
    // There are no callers any more: the server stops.
    std::future::pending().await
}

async fn carry_out(
    source: &Source,
    change: &Change,
    mut known: watch::Receiver<Position>,
) -> Result<Changed, String> {
    let changed = change_once(source, change).await?;
    if let Changed::Done(position) = changed {
        // Otherwise it becomes known with the next read.
        let _ = timeout(KNOWN_LIMIT, known.wait_for(|known| *known >= position)).await;
    }
    Ok(changed)
}

/// Carries out a change on a connection of its own.
///
/// # Errors
/// Says whether the change may have been made.
pub(super) async fn change_once(source: &Source, change: &Change) -> Result<Changed, String> {
    let absent = |why: String| {
        format!("the database of users cannot be reached ({why}): nothing was changed")
    };
    let connect = Session::connect_to_write(source);
    let mut session = within(WRITE_CONNECT_LIMIT, connect).await.map_err(absent)?;
    let limit = change.limit();
    let late = |_| Err(Failure::Unknown(format!("no answer within {} s", limit.as_secs())));
    let result = timeout(limit, session.write(change)).await.unwrap_or_else(late);
    result.map_err(|failure| failure.to_string())
}

async fn pruned(prune: mpsc::Sender<Prune>) -> Result<Changed, String> {
    let (reply, answer) = oneshot::channel();
    let busy = |_| "the server removes missing users already".to_owned();
    prune.try_send(reply).map_err(busy)?;
    let limit = Change::Prune.limit();
    match timeout(limit, answer).await {
        Ok(Ok(Ok(()))) => Ok(Changed::Done(0)),
        Ok(Ok(Err(why))) => {
            Err(format!("the database of users cannot be read ({why}): no user was removed"))
        }
        Ok(Err(_)) => Err("the server ends: no user was removed".to_owned()),
        // The receiver is gone now, so that the read which goes on confirms nothing.
        Err(_) => Err(format!(
            "the database of users was not read within {} s: no user was removed",
            limit.as_secs()
        )),
    }
}

/// Waits for an answer, but not for long.
async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    match timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_counts_while_somebody_waits() {
        let mut confirmed = Confirmed::default();
        assert!(!confirmed.is_waited_for());
        let (prune, mut answer) = oneshot::channel();
        confirmed.0.push(prune);
        assert!(confirmed.is_waited_for());
        confirmed.answer(&Ok(()));
        assert_eq!(answer.try_recv(), Ok(Ok(())));
        let (prune, answer) = oneshot::channel();
        confirmed.0.push(prune);
        drop(answer);
        assert!(!confirmed.is_waited_for());
    }
}
