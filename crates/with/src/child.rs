//! The program as a process: its signals, its end, and the processes that it leaves behind.

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{self, IsTerminal};
use std::process::Command;
use tokio::signal::unix::{self, SignalKind};

/// What a shell adds to the number of the signal that has ended a program.
const BY_SIGNAL: i32 = 128;

/// The program and its descendants. All of them become children of this process when their parents end, so that it
/// knows whether there are any.
pub(crate) struct Family {
    program: Pid,
    /// The program's exit status, as a shell reports it.
    pub(crate) status: Option<u8>,
    /// Whether there are descendants.
    pub(crate) has_members: bool,
}

impl Family {
    /// Starts the program.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(command: &mut Command) -> io::Result<Family> {
        prctl::set_child_subreaper(true)?;
        let child = command.spawn()?;
        let program = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Family { program, status: None, has_members: true })
    }

    /// Takes note of all processes that have ended.
    pub(crate) fn reap(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, status)) if pid == self.program => {
                    self.status = Some(status as u8);
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.program => {
                    self.status = Some((BY_SIGNAL + signal as i32) as u8);
                }
                Ok(WaitStatus::StillAlive) => return,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => {
                    self.has_members = false;
                    return;
                }
            }
        }
    }

    /// Passes a signal on to the program, while it runs.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // It may have ended just now.
            let _ = kill(self.program, signal);
        }
    }
}

/// The signals that are passed on.
pub(crate) struct Signals {
    ended: unix::Signal,
    others: Vec<(Signal, unix::Signal)>,
}

/// What has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    /// A process has ended.
    ChildEnded,
    /// A signal for the program.
    ForProgram(Signal),
}

impl Signals {
    /// Begins to receive signals. What the terminal sends goes to the program as well: it is in the same group.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn receive() -> io::Result<Signals> {
        use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
        let receive = |signal: Signal| unix::signal(SignalKind::from_raw(signal as i32));
        let mut others = Vec::new();
        for signal in [SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT, SIGQUIT] {
            others.push((signal, receive(signal)?));
        }
        Ok(Signals { ended: unix::signal(SignalKind::child())?, others })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Arrived {
        std::future::poll_fn(|cx| {
            if self.ended.poll_recv(cx).is_ready() {
                return std::task::Poll::Ready(Arrived::ChildEnded);
            }
            for (signal, source) in &mut self.others {
                if source.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(Arrived::ForProgram(*signal));
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// Returns whether a signal comes from the terminal, which sends it to the program too.
pub(crate) fn is_of_terminal(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && io::stdin().is_terminal()
}
