//! `ringway lab`: words in, one call into [`ringway_lab::commands`], words out.

use crate::out::{self, Fail};
use clap::{Args, Subcommand};
use ringway_lab::commands::{self, Answer, Failure, PaperArgs, RunArgs, SweepArgs};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit status of a command that was asked for something that there is not.
const USAGE: u8 = 2;

#[derive(Subcommand)]
pub(crate) enum Lab {
    /// Lists the scenarios, campaigns and papers that are part of the program
    List(Shown),
    /// Runs a scenario: a built-in name, or a TOML file
    Run {
        /// Name or file
        scenario: String,
        #[command(flatten)]
        common: Common,
    },
    /// Runs a campaign or a search and keeps its results; run again, it goes on where it was
    Sweep {
        /// Name or file
        file: String,
        #[command(flatten)]
        common: Common,
        /// Threads [default: one a processor]
        #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
        threads: u16,
    },
    /// Runs a paper's experiments again and shows its figures beside ours; without a name, lists them
    Paper {
        /// Name, or all
        name: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Draws the figures and the page of a folder again
    Report {
        /// What run, sweep or paper has written
        dir: PathBuf,
        #[command(flatten)]
        shown: Shown,
    },
    /// Shows the tables of a folder, and where its page is
    View {
        /// What run, sweep or paper has written
        dir: PathBuf,
        #[command(flatten)]
        shown: Shown,
    },
}

#[derive(Args)]
pub(crate) struct Common {
    /// Writes tables, figures and a report into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Another seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Another number of replications
    #[arg(long, value_name = "N")]
    reps: Option<u64>,
    #[command(flatten)]
    shown: Shown,
}

#[derive(Args)]
pub(crate) struct Shown {
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Does what was asked and shows the answer.
pub(crate) fn lab(command: Lab) -> ExitCode {
    let (answer, json) = match command {
        Lab::List(shown) => (commands::list(), shown.json),
        Lab::Run { scenario, common } => {
            let Common { out, seed, reps, shown } = common;
            (commands::run(&RunArgs { what: scenario, out, seed, reps }), shown.json)
        }
        Lab::Sweep { file, common, threads } => {
            let Common { out, seed, reps, shown } = common;
            let args = SweepArgs { what: file, out, seed, reps, threads: threads.into() };
            (commands::sweep(&args), shown.json)
        }
        Lab::Paper { name, common } => {
            let Common { out, seed, reps, shown } = common;
            (commands::paper(&PaperArgs { name, out, seed, reps }), shown.json)
        }
        Lab::Report { dir, shown } => (commands::report(&dir), shown.json),
        Lab::View { dir, shown } => (commands::view(&dir), shown.json),
    };
    match answer.map(|answer| show(&answer, json)) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(Fail(lines))) | Err(Failure::Failed(lines)) => {
            out::errors(&lines);
            ExitCode::FAILURE
        }
        Err(Failure::Usage(lines)) => {
            out::errors(&lines);
            ExitCode::from(USAGE)
        }
    }
}

/// Whether all went well.
fn show(answer: &Answer, json: bool) -> Result<bool, Fail> {
    if json { out::json(&answer.json) } else { out::text(&answer.text) }?;
    out::errors(&answer.faults);
    Ok(answer.faults.is_empty())
}
