//! Shows the progress of a long command on standard error, if that is a terminal, or to the thread's
//! [`Watch`].

use crate::watch::Watch;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A command that takes less than this shows no progress.
const SHOW_AFTER: Duration = Duration::from_secs(2);
/// Interval between two updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);
/// Resolution of the stored share: its value for 1.
const RESOLUTION: f64 = 1e9;

#[derive(Debug, Default)]
pub(crate) struct Shared {
    done: AtomicU64,
    finished: AtomicBool,
    text: Mutex<String>,
}

impl Shared {
    /// Returns the share that is done, and the description of the current work.
    pub(crate) fn get(&self) -> (f64, String) {
        let done = self.done.load(Ordering::Relaxed) as f64 / RESOLUTION;
        (done.min(1.0), self.text.lock().map_or(String::new(), |text| text.clone()))
    }
}

/// A line that shows progress and the remaining time until it is dropped.
#[derive(Debug)]
pub struct Progress {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts the display if standard error is a terminal; under a watch there is none.
    pub fn start() -> Self {
        if let Some(watch) = Watch::current() {
            return Progress { shared: watch.shared(), thread: None };
        }
        let shared = Arc::new(Shared::default());
        let shown = std::io::stderr().is_terminal();
        let thread = shown.then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || show(&shared))
        });
        Progress { shared, thread }
    }

    /// Sets the share that is done, from 0 to 1.
    pub fn set(&self, share: f64) {
        self.shared.done.store((share.clamp(0.0, 1.0) * RESOLUTION) as u64, Ordering::Relaxed);
    }

    /// Adds to the share that is done.
    pub fn add(&self, share: f64) {
        self.shared.done.fetch_add((share.clamp(0.0, 1.0) * RESOLUTION) as u64, Ordering::Relaxed);
    }

    /// Sets the description of the current work.
    pub fn set_text(&self, text: impl Into<String>) {
        if let Ok(mut stored) = self.shared.text.lock() {
            *stored = text.into();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.finished.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread cannot fail.
            let _ = thread.join();
        }
    }
}

fn show(shared: &Shared) {
    let began = Instant::now();
    let mut shown = false;
    while !shared.finished.load(Ordering::Relaxed) {
        std::thread::park_timeout(UPDATE_INTERVAL);
        let passed = began.elapsed();
        if passed < SHOW_AFTER || shared.finished.load(Ordering::Relaxed) {
            continue;
        }
        let (done, text) = shared.get();
        let left = match done > 0.0 {
            true => duration(passed.as_secs_f64() * (1.0 - done) / done),
            false => "?".into(),
        };
        let mut out = std::io::stderr().lock();
        // An error cannot be reported anywhere else.
        let _ = write!(out, "\r\x1b[K{:3.0} %  {left} left  {text}", done * 100.0);
        let _ = out.flush();
        shown = true;
    }
    if shown {
        let mut out = std::io::stderr().lock();
        let _ = write!(out, "\r\x1b[K");
        let _ = out.flush();
    }
}

/// Formats a duration: `12 s`, `3 min 20 s`, `2 h 5 min`.
fn duration(seconds: f64) -> String {
    let seconds = seconds.clamp(0.0, 1e9).round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted() {
        for (seconds, text) in [(12.4, "12 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min")] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn shares_add_up() {
        let progress = Progress::start();
        progress.set(0.25);
        progress.add(0.5);
        assert_eq!(progress.shared.done.load(Ordering::Relaxed), 750_000_000);
    }
}
