//! Notifications to the service manager (sd_notify(3)). Without one nothing happens.

use ringway_sansio::Time;
use ringway_sansio::time::Duration;
use sd_notify::NotifyState;

/// Notifications of the watchdog in its interval: two may be late before the manager acts.
const TIMES_PER_INTERVAL: u32 = 3;

/// Reports to the service manager that the router works, while it does.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// Time between two notifications, and the next; `None` if the manager does not ask for them.
    due: Option<(Duration, Time)>,
}

impl Watchdog {
    /// Reports that the router is ready, and begins to report that it works.
    pub(crate) fn start(now: Time) -> Watchdog {
        send(NotifyState::Ready);
        let interval = sd_notify::watchdog_enabled().map(|interval| interval / TIMES_PER_INTERVAL);
        Watchdog { due: interval.map(|interval| (interval, now)) }
    }

    /// Returns when a notification is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.due.map(|(_, at)| at)
    }

    /// Sends a notification if one is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if let Some((interval, at)) = &mut self.due
            && *at <= now
        {
            *at = now + *interval;
            send(NotifyState::Watchdog);
        }
    }
}

/// Reports that the router ends.
pub(crate) fn stopping() {
    send(NotifyState::Stopping);
}

/// A manager that does not listen starts the router again in time.
fn send(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}
