//! The arguments of the commands, and their limits.

use super::location::Location;
use super::protocol::MAX_SIZE;
use super::transport::Transport;
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::time::Duration;

/// Maximum number of streams; without streams in the transport, each is a connection.
const MAX_STREAMS: u16 = 1024;
/// Maximum duration of the measurement of one size, in seconds.
const MAX_SECONDS: f64 = 3600.0;
/// Default sizes: small and large signalling messages, a full packet, a file.
const SIZES: &str = "100,500,1024,16384";

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
    pub(super) transport: Transport,
    /// Where to listen: HOST:PORT; with SCTP HOST,HOST..:PORT, and over UDP ?encap=PORT behind it
    /// [default: 127.0.0.1:7109, with ?encap=9899]
    #[arg(long, value_name = "PLACE")]
    pub(super) listen: Option<Location>,
    /// Ends by itself after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(super) time: Option<Duration>,
    /// Prints a JSON object for each measurement
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(crate) struct Client {
    /// Transport of the messages
    #[arg(long, value_enum)]
    pub(super) transport: Transport,
    /// Where the server is: HOST:PORT; with SCTP HOST,HOST..:PORT, and over UDP ?encap=PORT behind
    /// it; a host is an address or a name [default: 127.0.0.1:7109, with ?encap=9899]
    #[arg(long, value_name = "PLACE")]
    pub(super) to: Option<Location>,
    /// Addresses to send from, ADDR or ADDR,ADDR.. with SCTP [default: chosen by the route]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub(super) from: Vec<IpAddr>,
    /// Sizes of messages: bytes, or with k (1000), KiB (1024), M or MiB behind the number
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = SIZES, value_parser = size)]
    pub(super) size: Vec<usize>,
    /// Seconds for each size: two thirds for throughput, one third for latency
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    pub(super) time: Duration,
    /// Streams with SCTP, which messages use in turn; connections with the others
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_STREAMS)))]
    pub(super) streams: u16,
    /// Prints JSON
    #[arg(long)]
    pub(super) json: bool,
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
pub(super) fn size(text: &str) -> Result<usize, String> {
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
