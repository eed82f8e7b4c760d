//! What the signals of the operating system ask of the server.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the server acts upon.
pub(crate) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers. Must be called in a runtime.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.hangup.recv() => SignalAction::Reload,
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
        }
    }

    /// Waits for one to stop.
    pub(crate) async fn stop(&mut self) {
        while self.next().await != SignalAction::Stop {}
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// Read the configuration again.
    Reload,
    /// Stop, after what is in progress.
    Stop,
}
