//! Notifications to the service manager (sd_notify(3)): the server listens, reloads, stops, and its
//! workers are alive. Without a service manager (no `NOTIFY_SOCKET`) these functions do nothing.

use crate::observe::{Board, Monitor};
use sd_notify::NotifyState;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tracing::warn;

/// Checks of the workers per watchdog interval: two may fail before the manager acts.
const CHECKS_PER_INTERVAL: u32 = 3;
/// Minimum pause between two checks, if the manager configures a shorter interval.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// Reports that the server listens on all its sockets and handles signals. Starts the watchdog
/// thread if the manager requests one.
///
/// # Errors
/// Fails when the thread cannot be started.
pub(crate) fn ready(monitor: &Arc<Monitor>) -> io::Result<()> {
    send(NotifyState::Ready);
    let Some(interval) = sd_notify::watchdog_enabled() else { return Ok(()) };
    let pause = (interval / CHECKS_PER_INTERVAL).max(MIN_PAUSE);
    let monitor = monitor.clone();
    thread::Builder::new().name("watchdog".into()).spawn(move || {
        let mut watchdog = Watchdog::new(&monitor.board);
        loop {
            (monitor.request_publish)();
            thread::sleep(pause);
            if watchdog.all_alive(&monitor.board) {
                send(NotifyState::Watchdog);
            }
        }
    })?;
    Ok(())
}

/// Reports that the configuration is being reloaded, until [`reloaded`] is called.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send_all(&[NotifyState::Reloading, now]),
        Err(_) => send(NotifyState::Reloading),
    }
}

/// Reports the end of a reload, successful or not.
pub(crate) fn reloaded() {
    send(NotifyState::Ready);
}

/// Reports that the server takes no new calls and ends when those in progress have ended.
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

/// Tracks which workers made progress since the last notification. A worker publishes its counters
/// from its own loop when asked, so one that hangs or starves does not.
struct Watchdog {
    seen: Vec<u64>,
}

impl Watchdog {
    fn new(board: &Board) -> Self {
        Watchdog { seen: board.generations() }
    }

    /// Returns whether every worker has published since this function last returned true.
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
    fn a_worker_that_hangs_stops_the_watchdog() {
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
