//! `ringway lab`: parses arguments, calls [`ringway_lab::commands`], prints the result.

use crate::out::{self, CommandError};
use crate::python;
use clap::{Args, Subcommand};
use ringway_lab::commands::{self, Answer, Failure, PaperArgs, RunArgs, SweepArgs, ViewArgs};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit status if an argument names something that does not exist.
const USAGE: u8 = 2;

#[derive(Subcommand)]
pub(crate) enum Lab {
    /// Lists the built-in scenarios, campaigns and papers
    List(OutputArgs),
    /// Runs a scenario: a built-in name, or a TOML file
    Run {
        /// Name or file
        scenario: String,
        #[command(flatten)]
        common: Common,
    },
    /// Runs a campaign or a search and keeps its results; run again, it resumes
    Sweep {
        /// Name or file
        file: String,
        #[command(flatten)]
        common: Common,
        /// Threads, or an engine's workers [default: one a processor]
        #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
        threads: u16,
        /// Makes the runs on a cluster: ray, ray://HOST:PORT, dask, dask://HOST:PORT or slurm; --out may
        /// be a URL of fsspec. Needs the Python package ringway
        #[arg(long, value_name = "ENGINE")]
        on: Option<String>,
    },
    /// Reproduces a paper's experiments and compares its figures; without a name, lists the papers
    Paper {
        /// Name, or all
        name: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Draws the figures and the page of a folder again, and shows its tables
    Report {
        /// What run, sweep or paper has written
        dir: PathBuf,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Makes a page of a run: an animation of its packets, and plots of its flows
    View {
        /// What run has written
        dir: PathBuf,
        /// The page [default: view.html in the folder]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
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
    output: OutputArgs,
}

#[derive(Args)]
pub(crate) struct OutputArgs {
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Runs a command and prints its result.
pub(crate) fn lab(command: Lab) -> ExitCode {
    let (answer, json) = match command {
        Lab::List(output) => (commands::list(), output.json),
        Lab::Run { scenario, common } => {
            let Common { out, seed, reps, output } = common;
            (
                commands::run(&RunArgs { scenario, out, seed, reps, ..RunArgs::default() }),
                output.json,
            )
        }
        Lab::Sweep { file, common, threads, on: Some(engine) } => {
            let json = common.output.json;
            (Err(on(&file, &engine, &common, threads)), json)
        }
        Lab::Sweep { file, common, threads, on: None } => {
            let Common { out, seed, reps, output } = common;
            let threads = threads.into();
            let args =
                SweepArgs { campaign: file, out, seed, reps, threads, ..SweepArgs::default() };
            (commands::sweep(&args), output.json)
        }
        Lab::Paper { name, common } => {
            let Common { out, seed, reps, output } = common;
            (commands::paper(&PaperArgs { name, out, seed, reps, tables: false }), output.json)
        }
        Lab::Report { dir, output } => (commands::report(&dir), output.json),
        Lab::View { dir, out, output } => {
            let hook = std::panic::take_hook();
            let name = dir.display().to_string();
            // What reads tables panics at some damaged ones, which ends the program where panics do not unwind.
            std::panic::set_hook(Box::new(move |panic| {
                out::errors(&[format!(
                    "{name}: expected the tables of a run, got damaged ones: {panic}"
                )]);
                std::process::exit(1);
            }));
            let answer = commands::view(&ViewArgs { dir, out });
            std::panic::set_hook(hook);
            (answer, output.json)
        }
    };
    match answer.map(|answer| show(&answer, json)) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(CommandError(lines))) | Err(Failure::Failed(lines)) => {
            out::errors(&lines);
            ExitCode::FAILURE
        }
        Err(Failure::Usage(lines)) => {
            out::errors(&lines);
            ExitCode::from(USAGE)
        }
    }
}

/// Runs a campaign on a cluster; returns only if it cannot.
fn on(file: &str, engine: &str, common: &Common, threads: u16) -> Failure {
    let workers = threads.to_string();
    let seed = common.seed.map(|seed| seed.to_string());
    let reps = common.reps.map(|reps| reps.to_string());
    let mut arguments: Vec<&OsStr> = vec!["--on".as_ref(), engine.as_ref()];
    arguments.extend(["--workers".as_ref(), OsStr::new(&workers)]);
    for (name, value) in [
        ("--out", common.out.as_ref().map(|out| out.as_os_str())),
        ("--seed", seed.as_ref().map(OsStr::new)),
        ("--reps", reps.as_ref().map(OsStr::new)),
    ] {
        arguments.extend(value.into_iter().flat_map(|value| [OsStr::new(name), value]));
    }
    if common.output.json {
        arguments.push("--json".as_ref());
    }
    // What follows is no option, however it begins.
    arguments.extend(["--".as_ref(), OsStr::new(file)]);
    python::sweep(&arguments)
}

/// Prints the answer; returns whether it has no faults.
fn show(answer: &Answer, json: bool) -> Result<bool, CommandError> {
    if json { out::json(&answer.json) } else { out::text(&answer.text) }?;
    out::errors(&answer.faults);
    Ok(answer.faults.is_empty())
}
