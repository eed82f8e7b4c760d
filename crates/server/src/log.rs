//! Log lines that never delay a call.
//!
//! The caller formats a line and appends it to a bounded buffer; one thread writes the buffer to
//! standard error. When the reader of the log is slower than the server, lines are dropped and
//! counted, and a line reports their number once there is room again.

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

/// Maximum size of the log lines that wait to be written, in bytes.
pub const MAX_BUFFERED_BYTES: usize = 4 << 20;
/// Maximum time that the end of the process waits for the last lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Lines dropped since the last line that was appended.
    dropped: u64,
    stop: bool,
    /// Whether the thread has written everything and ended.
    done: bool,
}

#[derive(Default)]
struct SharedBuffer {
    buffer: Mutex<Buffer>,
    wake: Condvar,
    dropped: AtomicU64,
}

impl SharedBuffer {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, line: &[u8]) {
        let mut buffer = self.lock();
        if buffer.bytes.len() + line.len() > MAX_BUFFERED_BYTES {
            buffer.dropped += 1;
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        let first = buffer.bytes.is_empty();
        buffer.bytes.extend_from_slice(line);
        drop(buffer);
        if first {
            self.wake.notify_all();
        }
    }

    /// Writes lines until the log is stopped.
    fn run(&self, mut out: impl Write) {
        let mut bytes = Vec::new();
        loop {
            let mut buffer = self.lock();
            while buffer.bytes.is_empty() && !buffer.stop {
                buffer = self.wake.wait(buffer).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut buffer.bytes, &mut bytes);
            let dropped = std::mem::take(&mut buffer.dropped);
            let stop = buffer.stop;
            drop(buffer);
            // There is no way to report that standard error is gone.
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

/// The writer of one event; `tracing` passes a whole line at once.
struct Line<'a>(&'a SharedBuffer);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.append(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Sink(Arc<SharedBuffer>);

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

/// The log of the process. Dropping it writes the remaining lines, within one second.
pub struct Log {
    lines: Arc<SharedBuffer>,
    level: reload::Handle<Targets, tracing_subscriber::Registry>,
    thread: Option<JoinHandle<()>>,
}

fn targets(level: LogLevel) -> Targets {
    let own = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Other crates log at most warnings and errors, and everything only at level `trace`.
    let others = if level == LogLevel::Trace { own } else { own.min(LevelFilter::WARN) };
    Targets::new().with_default(others).with_target("ringway", own)
}

impl Log {
    /// Starts logging to standard error. May be called once per process.
    ///
    /// # Errors
    /// Fails when the thread cannot be started.
    pub fn start(settings: LogSettings) -> io::Result<Self> {
        let lines = Arc::new(SharedBuffer::default());
        let thread_lines = lines.clone();
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || thread_lines.run(io::stderr()))?;
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

    /// Changes the level of the lines that are written.
    pub fn set_level(&self, level: LogLevel) {
        // Fails only without a subscriber, and the subscriber lives as long as the process.
        let _ = self.level.reload(targets(level));
    }

    /// Returns a function that reads the number of lines dropped so far.
    pub fn dropped(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let lines = self.lines.clone();
        move || lines.dropped.load(Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines.lock().stop = true;
        self.lines.wake.notify_all();
        let until = Instant::now() + FLUSH_TIMEOUT;
        let mut buffer = self.lines.lock();
        while !buffer.done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The reader no longer reads; the thread ends with the process.
                self.thread = None;
                return;
            }
            buffer = self
                .lines
                .wake
                .wait_timeout(buffer, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        drop(buffer);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A reader that accepts a line only on request.
    struct SlowReader(Receiver<()>, Sender<Vec<u8>>);

    impl Write for SlowReader {
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
    fn lines_are_dropped_when_the_reader_is_slow() {
        let lines = Arc::new(SharedBuffer::default());
        let (go, wait) = channel();
        let (out, written) = channel();
        let thread_lines = lines.clone();
        let thread = std::thread::spawn(move || thread_lines.run(SlowReader(wait, out)));
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
        let accepted = MAX_BUFFERED_BYTES / line.len();
        assert_eq!(lines.dropped.load(Relaxed), 100 - accepted as u64);
        lines.lock().stop = true;
        drop(go);
        thread.join().unwrap();
        let all: Vec<u8> = written.iter().flatten().collect();
        assert!(all.starts_with(b"first\nxxx"));
        assert!(all.ends_with(b"36 log lines dropped: their reader is too slow\n"));
    }

    #[test]
    fn libraries_log_warnings() {
        let t = targets(LogLevel::Info);
        assert!(t.would_enable("ringway_server::serve", &tracing::Level::INFO));
        assert!(!t.would_enable("ringway_server", &tracing::Level::DEBUG));
        assert!(!t.would_enable("hickory_resolver", &tracing::Level::INFO));
        assert!(t.would_enable("rustls", &tracing::Level::WARN));
        assert!(targets(LogLevel::Trace).would_enable("rustls", &tracing::Level::TRACE));
    }
}
