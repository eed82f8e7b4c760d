//! The command line: parses arguments, calls [`ringway_server`], [`ringway_router`], [`ringway_emulate`],
//! [`ringway_with`] or the laboratory, prints the result.
//!
//! [`command`] describes it; man pages and completions are derived from that. Exit status 0 means
//! success, 1 failure, 2 wrong usage. Results are printed to standard output, everything else to
//! standard error; `--json` output is stable.
//!
//! The features `server`, `mesh`, `emulate`, `with` and `lab` choose the commands. All are on by default.

#[cfg(not(any(
    feature = "server",
    feature = "mesh",
    feature = "emulate",
    feature = "with",
    feature = "lab"
)))]
compile_error!(
    "expected at least one of the features `server`, `mesh`, `emulate`, `with` and `lab`"
);

#[cfg(feature = "server")]
mod address;
#[cfg(feature = "emulate")]
mod emulate;
#[cfg(feature = "server")]
mod import;
#[cfg(feature = "lab")]
mod lab;
#[cfg(not(feature = "lab"))]
#[path = "lab_absent.rs"]
mod lab;
#[cfg(feature = "server")]
mod live;
#[cfg(feature = "mesh")]
mod mesh;
#[cfg(feature = "server")]
mod numbers;
// `ringway with` alone prints what the program prints.
#[cfg_attr(
    not(any(feature = "server", feature = "mesh", feature = "emulate", feature = "lab")),
    allow(dead_code)
)]
mod out;
#[cfg(feature = "server")]
mod perf;
#[cfg(feature = "lab")]
mod python;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "with")]
mod with;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// SIP without a centre.
#[derive(Parser)]
#[command(name = "ringway", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "server")]
    #[command(flatten)]
    Server(server::Server),
    /// Joins the host to a mesh of routers
    #[cfg(feature = "mesh")]
    #[command(subcommand)]
    Mesh(mesh::Mesh),
    /// Emulates a link between two interfaces in real time: delay, loss, rate, queues
    #[cfg(feature = "emulate")]
    Emulate(Box<emulate::Emulate>),
    /// Runs an unmodified program over another transport: its TCP sockets move to the services that are named
    #[cfg(feature = "with")]
    With(with::With),
    /// Runs networks in virtual time: scenarios, campaigns, the papers' tables
    #[cfg_attr(feature = "lab", command(subcommand))]
    Lab(lab::Lab),
    /// Measures throughput and latency by message size over UDP, TCP and SCTP
    #[cfg(feature = "server")]
    #[command(subcommand)]
    Perf(perf::Perf),
}

/// Returns the description of the whole command line.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command in the arguments of the process; returns its exit status.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        #[cfg(feature = "server")]
        Command::Server(command) => status(server::server(command)),
        #[cfg(feature = "mesh")]
        Command::Mesh(command) => status(mesh::mesh(command)),
        #[cfg(feature = "emulate")]
        Command::Emulate(command) => emulate::emulate(*command),
        #[cfg(feature = "with")]
        Command::With(command) => with::with(command),
        Command::Lab(command) => lab::lab(command),
        #[cfg(feature = "server")]
        Command::Perf(command) => perf::perf(command),
    }
}

/// Prints the reason of a failure. Returns the exit status.
#[cfg(any(feature = "server", feature = "mesh", feature = "emulate"))]
fn status(result: Result<(), out::CommandError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(out::CommandError(lines)) => {
            out::errors(&lines);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_described() {
        let command = command();
        command.clone().debug_assert();
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some(), "{} has no description", sub.get_name());
        }
    }
}
