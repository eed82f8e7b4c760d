//! `ringway perf`: throughput and latency between two programs over a transport.
//!
//! A client sends messages of one size as fast as they are accepted for some time, then one at a
//! time and waits for each answer. The server counts, answers, and reports its counts and its
//! processor time. Read [`protocol`] for the messages and [`client`] for their sequence; `udp`,
//! `tcp` and `sctp` carry messages, `report` prints the result.

mod args;
mod client;
mod error;
mod location;
mod output;
mod protocol;
mod report;
mod sctp;
mod server;
mod tcp;
#[cfg(test)]
mod tests;
mod transport;
mod udp;

pub(crate) use args::Perf;

use crate::out;
use error::PerfError;
use std::process::ExitCode;

/// Exit status of wrong usage.
const USAGE: u8 = 2;

/// Runs a command.
pub(crate) fn perf(command: Perf) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Err(error) => Err(PerfError::at("no runtime", error)),
        Ok(runtime) => runtime.block_on(async {
            match command {
                Perf::Server(args) => server::run(args).await,
                Perf::Client(args) => client::run(args).await,
            }
        }),
    };
    let (status, line) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(PerfError::Usage(line)) => (ExitCode::from(USAGE), line),
        Err(PerfError::Failed(line)) => (ExitCode::FAILURE, line),
    };
    out::errors(&[line]);
    status
}
