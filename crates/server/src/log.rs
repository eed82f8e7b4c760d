//! Log lines that never delay a call.
//!
//! Whoever logs formats a line and appends it to a bounded buffer; one thread writes the buffer to
//! standard error. When the reader of the log is slower than the server, lines are dropped and
//! counted, and a line says how many once there is room again.

use crate::config::{LogFormat, LogLevel, LogSettings};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// Bytes of log lines that may wait for their reader.
pub const MAX_WAITING: usize = 4 << 20;
/// How long the end of the process waits for the last lines to be read.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Lines dropped since the last one that was kept.
    dropped: u64,
    stop: bool,
    /// The thread has written everything and ended.
    done: bool,
}

#[derive(Default)]
struct Lines {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    dropped: AtomicU64,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes.len() + line.len() > MAX_WAITING {
            waiting.dropped += 1;
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        let first = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        if first {
            self.wake.notify_all();
        }
    }

    /// Writes what comes until told to stop.
    fn run(&self, mut out: impl Write) {
        let mut bytes = Vec::new();
        loop {
            let mut waiting = self.lock();
            while waiting.bytes.is_empty() && !waiting.stop {
                waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut waiting.bytes, &mut bytes);
            let dropped = std::mem::take(&mut waiting.dropped);
            let stop = waiting.stop;
            drop(waiting);
            // Nobody can be told that standard error is gone.
            let _ = out.write_all(&bytes);
            if dropped > 0 {
                let _ = writeln!(out, "{dropped} log lines dropped: their reader is too slow");
            }
            let _ = out.flush();
            bytes.clear();
            if stop && self.lock().bytes.is_empty() {
                self.lock().done = true;
                self.wake.notify_all();
                return;
            }
        }
    }
}

/// One event's writer; `tracing` hands it a whole line at once.
struct Line<'a>(&'a Lines);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.append(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Sink(Arc<Lines>);

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

/// The process's log. Dropped, it writes what waits, within a second.
pub struct Log {
    lines: Arc<Lines>,
    level: reload::Handle<Targets, tracing_subscriber::Registry>,
    thread: Option<JoinHandle<()>>,
}

fn targets(level: LogLevel) -> Targets {
    let ours = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Libraries are heard when they complain, and in full only when everything is asked for.
    let others = if level == LogLevel::Trace { ours } else { ours.min(LevelFilter::WARN) };
    Targets::new().with_default(others).with_target("ringway", ours)
}

impl Log {
    /// Starts logging to standard error. Once a process.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(settings: LogSettings) -> io::Result<Self> {
        let lines = Arc::new(Lines::default());
        let mine = lines.clone();
        let thread =
            std::thread::Builder::new().name("log".into()).spawn(move || mine.run(io::stderr()))?;
        let (filter, level) = reload::Layer::new(targets(settings.level));
        let layer = tracing_subscriber::fmt::layer().with_writer(Sink(lines.clone()));
        let registry = tracing_subscriber::registry().with(filter);
        match settings.format {
            LogFormat::Text => {
                let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
                registry.with(layer.with_target(false).with_ansi(colour)).try_init()
            }
            LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
        }
        .map_err(io::Error::other)?;
        Ok(Log { lines, level, thread: Some(thread) })
    }

    /// Changes which lines are written.
    pub fn set_level(&self, level: LogLevel) {
        // Fails only when the subscriber is gone, and it lives as long as the process.
        let _ = self.level.reload(targets(level));
    }

    /// Reads how many lines were dropped so far.
    pub fn dropped(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let lines = self.lines.clone();
        move || lines.dropped.load(Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines.lock().stop = true;
        self.lines.wake.notify_all();
        let until = Instant::now() + FLUSH_WITHIN;
        let mut waiting = self.lines.lock();
        while !waiting.done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The reader has stopped reading; the thread ends with the process.
                self.thread = None;
                return;
            }
            waiting = self
                .lines
                .wake
                .wait_timeout(waiting, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        drop(waiting);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A reader that takes a line only when told to.
    struct Slow(Receiver<()>, Sender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_costs_lines_not_time() {
        let lines = Arc::new(Lines::default());
        let (go, wait) = channel();
        let (out, written) = channel();
        let mine = lines.clone();
        let thread = std::thread::spawn(move || mine.run(Slow(wait, out)));
        lines.append(b"first\n");
        while !lines.lock().bytes.is_empty() {
            std::thread::yield_now();
        }
        let line = vec![b'x'; 1 << 16];
        let began = Instant::now();
        for _ in 0..100 {
            lines.append(&line);
        }
        assert!(began.elapsed() < Duration::from_secs(1));
        let kept = MAX_WAITING / line.len();
        assert_eq!(lines.dropped.load(Relaxed), 100 - kept as u64);
        lines.lock().stop = true;
        drop(go);
        thread.join().unwrap();
        let all: Vec<u8> = written.iter().flatten().collect();
        assert!(all.starts_with(b"first\nxxx"));
        assert!(all.ends_with(b"36 log lines dropped: their reader is too slow\n"));
    }

    #[test]
    fn libraries_are_heard_when_they_complain() {
        let t = targets(LogLevel::Info);
        assert!(t.would_enable("ringway_server::serve", &tracing::Level::INFO));
        assert!(!t.would_enable("ringway_server", &tracing::Level::DEBUG));
        assert!(!t.would_enable("hickory_resolver", &tracing::Level::INFO));
        assert!(t.would_enable("rustls", &tracing::Level::WARN));
        assert!(targets(LogLevel::Trace).would_enable("rustls", &tracing::Level::TRACE));
    }
}
