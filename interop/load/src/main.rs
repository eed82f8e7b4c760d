//! `ringway-load` plays telephones: both ends of many calls, and registrations, through a SIP
//! server, and measures what the server adds, loses and costs. It is a measuring instrument, not a
//! user agent: it has one call flow, keeps no media and forgives nothing. It shares no code with
//! the server, so that a fault in one is not hidden by the same fault in the other.
//!
//! Read next: `drive.rs`, the loop of a worker; `call.rs`, the two ends of a call; `tally.rs`,
//! what counts as a failure. `floor.rs` is the other program in here: the least a server can do.

mod call;
mod calls;
mod clock;
mod compose;
mod digest;
mod drive;
mod error;
mod floor;
mod message;
mod port;
mod register;
mod registration;
mod report;
mod secure;
mod tally;
mod target;
mod udp;
mod watch;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::calls::Manner;
use crate::drive::Plan;
use crate::register::Judgement;
use crate::target::Target;

/// SIP load generator and datagram floor. Exit status: 0 done and clean, 1 not clean, 2 usage.
#[derive(Parser)]
#[command(name = "ringway-load", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Calls at a fixed rate through the server: INVITE, 100, 180, 200, ACK, BYE, 200.
    Calls {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        manner: Manner,
        #[command(flatten)]
        time: Time,
        /// Calls begun each second, evenly spaced.
        #[arg(long, value_name = "PER_SECOND")]
        rate: f64,
    },
    /// Calls at multiples of a capacity, with retransmission, and the goodput of each.
    Overload {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        manner: Manner,
        #[command(flatten)]
        time: Time,
        /// Measured capacity of the server, calls each second.
        #[arg(long, value_name = "PER_SECOND")]
        capacity: f64,
        /// Loads to try, in this order.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_name = "X,...")]
        multiples: Vec<f64>,
    },
    /// Refreshes of registrations at a fixed rate.
    Register {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        judgement: Judgement,
        #[command(flatten)]
        time: Time,
        /// REGISTERs each second, evenly spaced.
        #[arg(long, value_name = "PER_SECOND")]
        rate: f64,
    },
    /// Registers every user once, each at a contact of its own, as fast as the server answers.
    Fill {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        judgement: Judgement,
        /// REGISTERs under way at a time.
        #[arg(long, default_value_t = 256, value_name = "N")]
        window: usize,
    },
    /// The least a server can do: takes and sends as many datagrams as a proxy would.
    Floor {
        /// Address to listen at.
        #[arg(long, value_name = "IP:PORT")]
        listen: SocketAddr,
        /// Threads, each with a socket of its own at the same address.
        #[arg(long, default_value_t = 1)]
        workers: usize,
    },
}

/// Length of a run.
#[derive(Clone, Copy, clap::Args)]
struct Time {
    /// Length of the measured window, seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Time under the same load before the window, seconds.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    warm_up: f64,
}

impl Time {
    fn plan(self, rate: f64) -> Result<Plan, error::Error> {
        let Self { seconds, warm_up } = self;
        let sane = |x: f64, most: f64| x.is_finite() && x > 0.0 && x <= most;
        if sane(rate, 1e7) && sane(seconds, 1e6) && (warm_up == 0.0 || sane(warm_up, 1e6)) {
            return Ok(Plan { rate, warm_up, seconds });
        }
        Err(error::Error::Usage(format!(
            "rate must be above 0 and at most 10000000, times above 0 and at most 1000000 s; \
             got {rate}/s for {seconds} s after {warm_up} s"
        )))
    }
}

fn run(command: &Command) -> Result<bool, error::Error> {
    match command {
        Command::Calls { target, manner, time, rate } => {
            target.check()?;
            calls::calls(target, *manner, time.plan(*rate)?)
        }
        Command::Overload { target, manner, time, capacity, multiples } => {
            target.check()?;
            for multiple in multiples {
                time.plan(capacity * multiple)?;
            }
            calls::overload(target, *manner, *capacity, multiples, time.plan(*capacity)?)
        }
        Command::Register { target, judgement, time, rate } => {
            target.check()?;
            register::register(target, *judgement, time.plan(*rate)?)
        }
        Command::Fill { target, judgement, window } => {
            target.check()?;
            register::fill(target, *judgement, *window)
        }
        Command::Floor { listen, workers } => floor::run(*listen, *workers).map(|()| true),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("ringway-load: {error}");
            ExitCode::from(if matches!(error, error::Error::Usage(_)) { 2 } else { 1 })
        }
    }
}
