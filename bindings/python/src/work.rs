//! Runs a command on threads of its own, while the caller's thread looks for signals.

use crate::failure::failed;
use pyo3::prelude::*;
use ringway_lab::watch::Watch;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Interval in which the caller's thread looks for signals and reports progress.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` on `threads` threads (0 for one per core) without Python's lock. `progress` is called by
/// the caller's thread, with the share that is done and a text, whenever they have changed. Its
/// exception, and that of a signal such as Ctrl-C, end the work and are raised once it has ended.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    threads: usize,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let watch = Watch::default();
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    let inner = watch.clone();
    let body = move || {
        // The caller waits until it has the result, or this thread has ended.
        let _ = sender.send(inner.run(threads, work));
    };
    let thread = std::thread::Builder::new().name("ringway".into()).spawn(body)?;
    let mut shown = None;
    let result = loop {
        let received = py.detach(|| match receiver.lock() {
            Ok(receiver) => receiver.recv_timeout(INTERVAL),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        });
        let done = match received {
            Ok(Ok(done)) => Some(Ok(done)),
            Ok(Err(error)) => break Err(failed(format!("cannot start threads: {error}"))),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                break Err(failed("a fault of Ringway: its thread panicked (see standard error)"));
            }
        };
        let now = if done.is_some() { (1.0, String::new()) } else { watch.progress() };
        let looked = py.check_signals().and_then(|()| report(progress, &mut shown, now));
        match (looked, done) {
            (Err(error), _) => break Err(error),
            (Ok(()), Some(done)) => break done,
            (Ok(()), None) => {}
        }
    };
    if result.is_err() {
        watch.interrupt();
    }
    // What it returns was received, or is the error above.
    let _ = py.detach(|| thread.join());
    result
}

/// Calls `progress` if there is something new.
fn report(
    progress: Option<&Bound<'_, PyAny>>,
    shown: &mut Option<(f64, String)>,
    now: (f64, String),
) -> PyResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    if shown.as_ref() != Some(&now) {
        progress.call1((now.0, now.1.as_str()))?;
        *shown = Some(now);
    }
    Ok(())
}
