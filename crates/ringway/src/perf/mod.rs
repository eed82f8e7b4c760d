//! `ringway perf`: throughput and latency between two programs over a transport.
//!
//! A client sends messages of one size as fast as they are accepted for some time, then one at a
//! time and waits for each answer. The server counts, answers, and reports its counts and its
//! processor time. Read [`protocol`] for the messages and [`client`] for their sequence; `udp`,
//! `tcp` and `sctp` carry messages, `report` prints the result.

mod client;
mod location;
mod output;
mod protocol;
mod report;
mod sctp;
mod server;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use crate::out::{self, CommandError};
use clap::{Args, Subcommand, ValueEnum};
use location::Location;
use serde::Serialize;
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// Maximum size of a message, in bytes.
pub(crate) const MAX_SIZE: usize = 4 << 20;
/// Maximum number of streams; without streams in the transport, each is a connection.
const MAX_STREAMS: u16 = 1024;
/// Maximum duration of the measurement of one size, in seconds.
const MAX_SECONDS: f64 = 3600.0;
/// Default sizes: small and large signalling messages, a full packet, a file.
const SIZES: &str = "100,500,1024,16384";
/// Exit status of wrong usage.
const USAGE: u8 = 2;

/// Transport of the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
pub(crate) enum Transport {
    /// One message per datagram; losses are counted
    #[serde(rename = "udp")]
    Udp,
    /// Messages with their lengths; a connection for each stream
    #[serde(rename = "tcp")]
    Tcp,
    /// SCTP over IP, which needs the right to use raw sockets
    #[serde(rename = "sctp")]
    Sctp,
    /// SCTP over UDP
    #[value(name = "sctp+udp")]
    #[serde(rename = "sctp+udp")]
    SctpUdp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Sctp => "sctp",
            Transport::SctpUdp => "sctp+udp",
        })
    }
}

#[derive(Subcommand)]
pub(crate) enum Perf {
    /// Answers clients until it is stopped; prints a line for each measurement
    Server(Server),
    /// Measures throughput and latency by message size
    Client(Client),
}

#[derive(Args)]
pub(crate) struct Server {
    /// Transport of the messages
    #[arg(long, value_enum)]
    transport: Transport,
    /// Where to listen: HOST:PORT; with SCTP HOST,HOST..:PORT, and over UDP ?encap=PORT behind it
    /// [default: 127.0.0.1:7109, with ?encap=9899]
    #[arg(long, value_name = "PLACE")]
    listen: Option<Location>,
    /// Ends by itself after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    time: Option<Duration>,
    /// Prints a JSON object for each measurement
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct Client {
    /// Transport of the messages
    #[arg(long, value_enum)]
    transport: Transport,
    /// Where the server is: HOST:PORT; with SCTP HOST,HOST..:PORT, and over UDP ?encap=PORT behind
    /// it; a host is an address or a name [default: 127.0.0.1:7109, with ?encap=9899]
    #[arg(long, value_name = "PLACE")]
    to: Option<Location>,
    /// Addresses to send from, ADDR or ADDR,ADDR.. with SCTP [default: chosen by the route]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    from: Vec<std::net::IpAddr>,
    /// Sizes of messages: bytes, or with k (1000), KiB (1024), M or MiB behind the number
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = SIZES, value_parser = size)]
    size: Vec<usize>,
    /// Seconds for each size: two thirds for throughput, one third for latency
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    time: Duration,
    /// Streams with SCTP, which messages use in turn; connections with the others
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_STREAMS)))]
    streams: u16,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Units of a number of bytes, in lower case, and their factors: powers of ten as in the SI, powers
/// of two as in IEC 80000-13.
const UNITS: [(&str, usize); 10] = [
    ("", 1),
    ("b", 1),
    ("k", 1000),
    ("kb", 1000),
    ("ki", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("mi", 1 << 20),
    ("mib", 1 << 20),
];

/// Parses a size such as `100`, `1k`, `64KiB` or `1M`, in bytes.
fn size(text: &str) -> Result<usize, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let read = || number.parse::<usize>().ok()?.checked_mul(factor?);
    match read() {
        Some(size) if (1..=MAX_SIZE).contains(&size) => Ok(size),
        _ => Err(format!(
            "expected 1 to {MAX_SIZE} bytes, as a number with k, KiB, M, MiB or nothing behind it"
        )),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=MAX_SECONDS).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("expected 0.1 to {MAX_SECONDS}")),
    }
}

/// Reason why a measurement failed.
pub(crate) enum PerfError {
    /// Wrong usage.
    Usage(String),
    /// A failure at run time.
    Failed(String),
}

impl PerfError {
    /// Creates a failure of `what`.
    fn at(what: impl fmt::Display, error: impl fmt::Display) -> PerfError {
        PerfError::Failed(format!("{what}: {error}"))
    }

    /// Adds a context to a failure; wrong usage stays unchanged.
    fn within(self, what: impl fmt::Display) -> PerfError {
        match self {
            PerfError::Failed(text) => PerfError::at(what, text),
            usage => usage,
        }
    }
}

/// Time after which a server counts as silent: when it accepts no data, or sends no answer while
/// opening or echoing, over a reliable transport.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

fn silence_error() -> PerfError {
    PerfError::Failed("the server does not answer".to_owned())
}

impl From<CommandError> for PerfError {
    fn from(fail: CommandError) -> PerfError {
        PerfError::Failed(fail.0.join("; "))
    }
}

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
