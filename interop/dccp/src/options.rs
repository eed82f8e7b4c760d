//! What is asked for on the command line.

use clap::Parser;
use ringway_dccp::{Ccid, Limits, Settings};
use ringway_sansio::Duration;
use std::net::{IpAddr, SocketAddr};

#[derive(Parser, Debug)]
pub(crate) struct Options {
    /// This end's address.
    #[arg(long)]
    pub(crate) local: IpAddr,
    /// This end's port; 0 chooses one where it connects.
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Connect to this address. Without it this end listens.
    #[arg(long)]
    pub(crate) connect: Option<SocketAddr>,
    /// The service code.
    #[arg(long, default_value_t = 1)]
    pub(crate) service: u32,
    /// The preferred congestion control.
    #[arg(long, default_value_t = 2)]
    ccid: u64,
    /// Refuse a peer without it.
    #[arg(long)]
    ccid_mandatory: bool,
    /// Number of messages to send.
    #[arg(long, default_value_t = 0)]
    pub(crate) send: u32,
    /// Length of a message in bytes.
    #[arg(long, default_value_t = 100)]
    pub(crate) size: usize,
    /// Microseconds between messages.
    #[arg(long, default_value_t = 0)]
    pub(crate) pace: u64,
    /// Close after all is sent and nothing has happened for `idle`.
    #[arg(long)]
    pub(crate) close: bool,
    /// Reset instead.
    #[arg(long)]
    pub(crate) abort: bool,
    /// Milliseconds.
    #[arg(long, default_value_t = 700)]
    pub(crate) idle: u64,
    /// How it may end: `finished`, `reset:CODE`, ...
    #[arg(long, default_value = "finished", value_delimiter = ',')]
    pub(crate) end: Vec<String>,
    /// Give up after so many seconds.
    #[arg(long, default_value_t = 30)]
    pub(crate) limit: u64,
    /// The MTU.
    #[arg(long, default_value_t = 1500)]
    mtu: u16,
    /// Short sequence numbers.
    #[arg(long)]
    short: bool,
    /// NDP Counts.
    #[arg(long)]
    ndp: bool,
    /// Checksum Coverage of sent data, and the minimum that is accepted.
    #[arg(long, default_value_t = 0)]
    coverage: u8,
    /// Data Checksums.
    #[arg(long)]
    data_checksum: bool,
    /// Loss Event Rates.
    #[arg(long)]
    loss_event_rate: bool,
    /// Without ECN.
    #[arg(long)]
    no_ecn: bool,
    /// Sequence Window.
    #[arg(long, default_value_t = 100)]
    window: u64,
    /// Number of handshakes that are kept; 0 answers each with an Init Cookie.
    #[arg(long, default_value_t = 256)]
    half_open: usize,
}

impl Options {
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            mtu: self.mtu,
            ccid: Ccid::from_number(self.ccid).unwrap_or_default(),
            ccid_mandatory: self.ccid_mandatory,
            sequence_window: self.window,
            short_seqnos: self.short,
            ecn: !self.no_ecn,
            ndp_count: self.ndp,
            coverage: self.coverage,
            min_coverage: self.coverage,
            data_checksum: self.data_checksum,
            loss_event_rate: self.loss_event_rate,
            handshake_timeout: Duration::from_secs(self.limit),
            ..Settings::default()
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { half_open: self.half_open, ..Limits::default() }
    }
}
