//! Ringway's side of the checks against SCTPs that others wrote, over real sockets.
//!
//! `peer` is one association that sends and checks the pattern that the C peers do (`../peer.h`);
//! `relay` is a bad link between two UDP ports; `idle` opens many associations; `talk` is one
//! association with any program; `flood` sends forged packets to a host in virtual time; `kernel` checks
//! the kernel's SCTP against the API of Ringway's. The cases are in `../cases.py`; the checks in virtual time, against `dcsctp` and `sctp-proto`, in `../tests`.

mod flood;
mod idle;
mod kernel;
mod pattern;
mod peer;
mod relay;
mod talk;

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
enum Command {
    /// One association
    Peer(peer::Options),
    /// A link between two UDP ports
    Relay(relay::Options),
    /// Many associations that do nothing
    Idle(idle::Options),
    /// One association with a program that knows nothing of the pattern
    Talk(talk::Options),
    /// Forged packets against one host, in virtual time
    Flood(flood::Options),
    /// The kernel's SCTP behind the API of Ringway's
    Kernel,
}

fn main() -> ExitCode {
    let command = Command::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(async {
            match command {
                Command::Peer(options) => peer::run(options).await,
                Command::Relay(options) => relay::run(options).await,
                Command::Idle(options) => idle::run(options).await,
                Command::Talk(options) => talk::run(options).await,
                Command::Flood(options) => Ok(flood::run(&options)),
                Command::Kernel => kernel::run().await,
            }
        }),
        Err(error) => Err(error.to_string()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line at once. Whoever reads has gone away: then nobody needs it.
fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Processor time of this process so far, in seconds.
fn cpu() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0.0, |u| seconds(u.user_time()) + seconds(u.system_time()))
}
