//! What the service manager is notified of (sd_notify(3)): that the server listens, reads its
//! configuration anew, stops, and that its workers are alive. Without a service manager (no
//! `NOTIFY_SOCKET`) all of it does nothing.

use crate::observe::{Board, Observed};
use sd_notify::NotifyState;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tracing::warn;

/// Looks at the workers within one watchdog interval: two may fail before the manager acts.
const LOOKS_PER_INTERVAL: u32 = 3;
/// Shortest pause between two looks: a manager that asks for more is answered this often.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// The server listens on all its sockets and heeds signals. Starts the watchdog's thread where the
/// manager asks for one.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn ready(observed: &Arc<Observed>) -> io::Result<()> {
    send(NotifyState::Ready);
    let Some(interval) = sd_notify::watchdog_enabled() else { return Ok(()) };
    let pause = (interval / LOOKS_PER_INTERVAL).max(SHORTEST_PAUSE);
    let observed = observed.clone();
    thread::Builder::new().name("watchdog".into()).spawn(move || {
        let mut watchdog = Watchdog::new(&observed.board);
        loop {
            (observed.ask)();
            thread::sleep(pause);
            if watchdog.all_alive(&observed.board) {
                send(NotifyState::Watchdog);
            }
        }
    })?;
    Ok(())
}

/// The configuration is being read anew; [`reloaded`] ends it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send_all(&[NotifyState::Reloading, now]),
        Err(_) => send(NotifyState::Reloading),
    }
}

/// The configuration has been read, or was refused: the server serves as before.
pub(crate) fn reloaded() {
    send(NotifyState::Ready);
}

/// The server takes no new calls and ends when what is under way has ended.
pub(crate) fn stopping() {
    send(NotifyState::Stopping);
}

fn send(state: NotifyState<'_>) {
    send_all(&[state]);
}

fn send_all(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("the service manager cannot be notified: {error}");
    }
}

/// Which workers have done something since the manager was last notified. A worker publishes its
/// counters from its own loop when asked, so one that hangs or starves does not.
struct Watchdog {
    seen: Vec<u64>,
}

impl Watchdog {
    fn new(board: &Board) -> Self {
        Watchdog { seen: board.generations() }
    }

    /// Whether every worker has published since this was last true.
    fn all_alive(&mut self, board: &Board) -> bool {
        let now = board.generations();
        let alive = now.iter().zip(&self.seen).all(|(now, seen)| now > seen);
        if alive {
            self.seen = now;
        }
        alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Snapshot;

    #[test]
    fn one_worker_that_hangs_stops_the_watchdog() {
        let board = Board::new(2);
        let mut watchdog = Watchdog::new(&board);
        assert!(!watchdog.all_alive(&board), "nobody has answered yet");
        board.publish(0, Snapshot::default());
        board.publish(0, Snapshot::default());
        assert!(!watchdog.all_alive(&board), "the second worker hangs");
        board.publish(1, Snapshot::default());
        assert!(watchdog.all_alive(&board));
        assert!(!watchdog.all_alive(&board), "each has to answer again");
    }
}
