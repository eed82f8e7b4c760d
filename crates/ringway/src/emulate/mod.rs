//! `ringway emulate`: a link between two interfaces in real time, and questions to one that runs.

mod text;

use crate::out::{self, CommandError};
use clap::{Args, Subcommand};
use ringway_emulate::control::{self, Answer, Question};
use ringway_emulate::parameters::Parameter;
use ringway_emulate::{Ended, Ends, Flags, Report, settings};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// Exit status of wrong usage.
const USAGE: u8 = 2;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Emulate {
    #[command(subcommand)]
    command: Option<EmulateCommand>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand)]
enum EmulateCommand {
    /// Changes parameters of a running emulation, such as: set delay 50ms back.rate 1mbit
    Set {
        /// Names and values, in turn; `there.` or `back.` before a name means one direction
        #[arg(required = true, num_args = 2.., value_names = ["NAME", "VALUE"])]
        parameters: Vec<String>,
        #[command(flatten)]
        running: Running,
    },
    /// Shows the state of a running emulation
    Status {
        #[command(flatten)]
        running: Running,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The emulation that a command addresses.
#[derive(Args)]
struct Running {
    /// Name of the emulation: that of its first interface or device, unless it was chosen [default: the only one]
    #[arg(long)]
    name: Option<String>,
}

#[derive(Args)]
struct Run {
    /// Ethernet interfaces between which the link is; waited for if they do not exist
    #[arg(long, num_args = 2, value_names = ["IF1", "IF2"], conflicts_with = "tun")]
    between: Option<Vec<String>>,
    /// TUN device behind which the link is; its other end is the device NAME-b, or a COMMAND in a network of its own
    #[arg(long, value_name = "NAME")]
    tun: Option<String>,
    /// Scenario (TOML) with the link, and the flags as keys of [emulate]; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the link, if the scenario has several
    #[arg(long, value_name = "NAME", requires = "config")]
    link: Option<String>,
    /// Name of the emulation, by which `set` and `status` find it [default: that of the first interface or device]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    parameters: Parameters,
    /// Trace of mahimahi: times in milliseconds, at each of which 1504 bytes pass; repeated
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The same for the direction back
    #[arg(long, value_name = "FILE")]
    trace_back: Option<PathBuf>,
    /// Seed of the random numbers [default: that of the scenario, or 12345]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// File for a line about each decision; that of the direction back has `.back` behind its name
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Print the last state as JSON, and nothing while it runs
    #[arg(long)]
    json: bool,
    /// Command that runs behind the TUN device; this host is $RINGWAY_HOST for it
    #[arg(last = true, value_name = "COMMAND")]
    behind: Vec<OsString>,
}

/// Parameters of the link in both directions.
#[derive(Args)]
struct Parameters {
    /// Time from one end to the other, such as 35ms
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// Scatter of the delay
    #[arg(long, value_name = "TIME")]
    jitter: Option<String>,
    /// Shape of the scatter: uniform, normal, pareto or pareto-normal [default: uniform]
    #[arg(long, value_name = "SHAPE")]
    distribution: Option<String>,
    /// Probability that a packet is lost, such as 1%
    #[arg(long, value_name = "CHANCE")]
    loss: Option<String>,
    /// Bit rate, such as 1mbit
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Bytes that each packet takes besides, such as 38B for Ethernet
    #[arg(long, value_name = "SIZE")]
    overhead: Option<String>,
    /// Queue: a limit in packets (50) or bytes (64KiB), or red, codel, pie, fq-codel [default: 1000]
    #[arg(long, value_name = "LIMIT")]
    queue: Option<String>,
    /// Probability that a packet comes twice
    #[arg(long, value_name = "CHANCE")]
    duplicate: Option<String>,
    /// Probability that a bit of a packet is inverted
    #[arg(long, value_name = "CHANCE")]
    corrupt: Option<String>,
    /// Probability that a packet overtakes those before it
    #[arg(long, value_name = "CHANCE")]
    reorder: Option<String>,
    /// Longest packet that passes, with the IP header
    #[arg(long, value_name = "SIZE")]
    mtu: Option<String>,
}

impl Parameters {
    fn given(self) -> Vec<Parameter> {
        let Parameters {
            delay,
            jitter,
            distribution,
            loss,
            rate,
            overhead,
            queue,
            duplicate,
            corrupt,
            reorder,
            mtu,
        } = self;
        let all = [
            ("delay", delay),
            ("jitter", jitter),
            ("distribution", distribution),
            ("loss", loss),
            ("rate", rate),
            ("overhead", overhead),
            ("queue", queue),
            ("duplicate", duplicate),
            ("corrupt", corrupt),
            ("reorder", reorder),
            ("mtu", mtu),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Runs a command and prints its result.
pub(crate) fn emulate(command: Emulate) -> ExitCode {
    let result = match command.command {
        None => return run(command.run),
        Some(EmulateCommand::Set { parameters, running }) => {
            if parameters.len() % 2 != 0 {
                let what = "expected a value after each name, such as: set delay 50ms loss 1%";
                out::errors(&[what.to_owned()]);
                return ExitCode::from(USAGE);
            }
            let pairs = parameters.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
            ask(&running, &Question::Set { parameters: pairs.collect() }).map(|_| ())
        }
        Some(EmulateCommand::Status { running, json }) => ask(&running, &Question::Status)
            .and_then(|answer| match answer {
                Answer::Status(report) if json => out::json(&report),
                Answer::Status(report) => out::text(&text::report(&report)),
                _ => Err(CommandError::from("expected a state as the answer".to_owned())),
            }),
    };
    crate::status(result)
}

fn runtime() -> Result<Runtime, CommandError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CommandError::from(error.to_string()))
}

/// Asks a running emulation.
fn ask(running: &Running, question: &Question) -> Result<Answer, CommandError> {
    let error = |error: control::ControlError| CommandError::from(error.to_string());
    if let Some(name) = &running.name {
        settings::check_name(name).map_err(CommandError)?;
    }
    let path = control::find(&settings::default_runtime(), running.name.as_deref());
    let path = path.map_err(error)?;
    match runtime()?.block_on(control::ask(&path, question)).map_err(error)? {
        Answer::Error(lines) => Err(CommandError(lines)),
        answer => Ok(answer),
    }
}

fn run(args: Run) -> ExitCode {
    let Run { between, tun, config, link, name, parameters, trace, trace_back, seed, log, .. } =
        args;
    let between = between.and_then(|names| <[String; 2]>::try_from(names).ok());
    let traces = [trace, trace_back];
    let parameters = parameters.given();
    let flags = Flags { config, between, tun, link, name, seed, log, traces, parameters };
    let settings = match settings::read(flags) {
        Ok(settings) => settings,
        Err(lines) => {
            out::errors(&lines);
            return ExitCode::from(USAGE);
        }
    };
    if let (Ends::Between(_), [_, ..]) = (&settings.ends, &args.behind[..]) {
        out::errors(&["a command runs behind a TUN device only: --tun NAME -- COMMAND".to_owned()]);
        return ExitCode::from(USAGE);
    }
    crate::status(watch(&settings, &args.behind, args.json))
}

/// Runs an emulation until a signal, or until the command behind it has ended.
fn watch(
    settings: &ringway_emulate::Settings,
    behind: &[OsString],
    json: bool,
) -> Result<(), CommandError> {
    let mut block = Block::default();
    // What a command prints is not to be mixed with it.
    let is_watched = !json && behind.is_empty() && io::stderr().is_terminal();
    let mut show = |report: &Report| block.show(report);
    let watch = is_watched.then_some(&mut show as &mut dyn FnMut(&Report));
    let ended = runtime()?.block_on(async {
        let stop = stop(behind.is_empty());
        let lines = Arc::new(|line: &str| out::note(line));
        ringway_emulate::run(settings, behind, lines, watch, stop).await
    });
    block.clear();
    let Ended { report, status } = ended.map_err(|error| CommandError::from(error.to_string()))?;
    if json { out::json(&report) } else { out::text(&text::report(&report)) }?;
    match status {
        Some(status) if !status.success() => {
            Err(CommandError::from(format!("the command has failed: {status}")))
        }
        _ => Ok(()),
    }
}

/// Waits for a signal to end. An interrupt from the terminal is for the command, if there is one.
async fn stop(by_interrupt: bool) {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = terminate.recv() => return,
            _ = interrupt.recv() => if by_interrupt {
                return;
            },
        }
    }
}

/// The block of lines on the terminal that shows the present state.
#[derive(Default)]
struct Block {
    lines: usize,
    before: Option<Report>,
}

impl Block {
    fn show(&mut self, report: &Report) {
        let colour = std::env::var_os("NO_COLOR").is_none();
        let text = text::live(report, self.before.as_ref(), colour);
        self.clear();
        // This error cannot be reported anywhere else.
        let _ = io::stderr().lock().write_all(text.as_bytes());
        self.lines = text.lines().count();
        self.before = Some(report.clone());
    }

    /// Removes the block.
    fn clear(&mut self) {
        if self.lines > 0 {
            // As above.
            let _ = write!(io::stderr().lock(), "\x1b[{}A\x1b[J", self.lines);
            self.lines = 0;
        }
    }
}
