//! `ringway perf`: how much and how quickly two programs can talk over a transport.
//!
//! A client sends messages of one size for a while as fast as they are taken, then one at a time and
//! waits for each answer; the server counts, answers, and tells what it counted and the processor
//! time it took. Read [`protocol`] for what they say to each other and [`client`] for the order of
//! things; `udp`, `tcp` and `sctp` carry messages, `report` shows the result.

mod client;
mod output;
mod place;
mod protocol;
mod report;
mod sctp;
mod server;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use crate::out::{self, Fail};
use clap::{Args, Subcommand, ValueEnum};
use place::Location;
use serde::Serialize;
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// Largest message, in bytes.
pub(crate) const MAX_SIZE: usize = 4 << 20;
/// Most streams; each is a connection where the transport has no streams.
const MAX_STREAMS: u16 = 1024;
/// Longest measurement of one size, in seconds.
const MAX_SECONDS: f64 = 3600.0;
/// What is measured when no size is given: small and large for signalling, a full packet, a file.
const SIZES: &str = "100,500,1024,16384";
/// Exit status of a command that was asked for something that there is not.
const USAGE: u8 = 2;

/// What carries messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
pub(crate) enum Transport {
    /// A message a datagram; what is lost is counted
    #[serde(rename = "udp")]
    Udp,
    /// Messages with their lengths, a connection for each stream
    #[serde(rename = "tcp")]
    Tcp,
    /// SCTP over IP, which takes the right to use raw sockets
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
    /// What carries the messages
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
    /// What carries the messages
    #[arg(long, value_enum)]
    transport: Transport,
    /// Where the server is: HOST:PORT; with SCTP HOST,HOST..:PORT, and over UDP ?encap=PORT behind
    /// it; a host is an address or a name [default: 127.0.0.1:7109, with ?encap=9899]
    #[arg(long, value_name = "PLACE")]
    to: Option<Location>,
    /// Addresses to send from, ADDR or ADDR,ADDR.. with SCTP [default: what leads to the server]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    from: Vec<std::net::IpAddr>,
    /// Sizes of messages: bytes, or with k (1000), KiB (1024), M or MiB behind the number
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = SIZES, value_parser = size)]
    size: Vec<usize>,
    /// Seconds for each size: two thirds for throughput, one third for latency
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    time: Duration,
    /// Streams with SCTP, which messages take in turn; connections with the others
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_STREAMS)))]
    streams: u16,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// What may stand behind a number of bytes, in lower case, and what it multiplies by: powers of ten as in
/// the SI, powers of two as in IEC 80000-13.
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

/// Reads a size such as `100`, `1k`, `64KiB` or `1M`, in bytes.
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

/// Why nothing was measured.
pub(crate) enum Trouble {
    /// Something was asked for that cannot be.
    Usage(String),
    /// It did not work.
    Failed(String),
}

impl Trouble {
    /// `what` did not work.
    fn at(what: impl fmt::Display, error: impl fmt::Display) -> Trouble {
        Trouble::Failed(format!("{what}: {error}"))
    }

    /// Says where what failed, unless it is the usage that is wrong.
    fn within(self, what: impl fmt::Display) -> Trouble {
        match self {
            Trouble::Failed(text) => Trouble::at(what, text),
            usage => usage,
        }
    }
}

/// How long a server may take nothing, or say nothing when opening or echoing, over a transport that
/// loses nothing.
const SILENCE: Duration = Duration::from_secs(10);

fn silent() -> Trouble {
    Trouble::Failed("the server does not answer".to_owned())
}

impl From<Fail> for Trouble {
    fn from(fail: Fail) -> Trouble {
        Trouble::Failed(fail.0.join("; "))
    }
}

/// Does what was asked.
pub(crate) fn perf(command: Perf) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Err(error) => Err(Trouble::at("no runtime", error)),
        Ok(runtime) => runtime.block_on(async {
            match command {
                Perf::Server(args) => server::run(args).await,
                Perf::Client(args) => client::run(args).await,
            }
        }),
    };
    let (status, line) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Trouble::Usage(line)) => (ExitCode::from(USAGE), line),
        Err(Trouble::Failed(line)) => (ExitCode::FAILURE, line),
    };
    out::errors(&[line]);
    status
}
