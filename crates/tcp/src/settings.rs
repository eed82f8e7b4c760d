//! Settings of a connection and limits of a host.

use crate::congestion::{Congestion, Cubic, NewReno};
use ringway_sansio::Duration;

/// Minimum MTU, in bytes: one byte of data must fit beside the longest headers.
pub const MIN_MTU: u16 = 128;
/// Maximum buffer in either direction, in bytes: the largest window of RFC 7323 section 2.3.
pub const MAX_BUFFER: usize = 1 << 30;
/// Minimum buffer in either direction, in bytes.
pub const MIN_BUFFER: usize = 2048;
/// Maximum delay of an acknowledgment (RFC 9293 section 3.8.6.3).
pub const MAX_DELAYED_ACK: Duration = Duration::from_millis(500);

/// The congestion control algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
}

impl Algorithm {
    /// Creates a controller of this kind.
    pub(crate) fn make(self) -> Box<dyn Congestion> {
        match self {
            Algorithm::NewReno => Box::new(NewReno::default()),
            Algorithm::Cubic => Box::new(Cubic::default()),
        }
    }
}

/// Loss detection when the peer sends SACK blocks. Without them it is always by NewReno's three
/// duplicate acknowledgments (RFC 6582).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Detection {
    /// By time, with tail loss probes (RFC 8985).
    #[default]
    RackTlp,
    /// By counting the segments that arrived above (RFC 6675).
    Sack,
}

/// Keep-alive (RFC 9293 section 3.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Silence before the first probe. RFC 9293 requires a default of two hours or more.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Number of unanswered probes after which the connection ends.
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// Settings of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Maximum length of an IP packet in bytes. The maximum segment size and the MSS option follow from
    /// it.
    pub mtu: u16,
    /// Maximum number of bytes written and not acknowledged. Memory is allocated as needed.
    pub send_buffer: usize,
    /// Maximum number of bytes received and not read; also the largest window. Memory is allocated as
    /// needed.
    pub receive_buffer: usize,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Loss detection.
    pub detection: Detection,
    /// Whether selective acknowledgments are offered and accepted (RFC 2018).
    pub sack: bool,
    /// Whether timestamps are offered and accepted (RFC 7323 section 3).
    pub timestamps: bool,
    /// Whether window scaling is offered and accepted (RFC 7323 section 2).
    pub window_scaling: bool,
    /// Whether explicit congestion notification is offered and accepted (RFC 3168).
    pub ecn: bool,
    /// Whether small segments wait while data is in flight (Nagle, RFC 9293 section 3.7.4).
    pub nagle: bool,
    /// Time that an acknowledgment may wait for a second segment; zero sends each at once.
    pub delayed_ack: Duration,
    /// Initial window in segments (RFC 6928).
    pub initial_window: u32,
    /// Minimum retransmission timeout (RFC 6298 section 2.4 recommends one second).
    pub min_rto: Duration,
    /// Maximum retransmission timeout, at least 60 s by RFC 6298 section 2.5.
    pub max_rto: Duration,
    /// Time that data may stay unacknowledged before the connection ends.
    pub user_timeout: Duration,
    /// Maximum duration of a handshake.
    pub handshake_timeout: Duration,
    /// Keep-alive; off by default.
    pub keep_alive: Option<KeepAlive>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mtu: 1500,
            send_buffer: 1 << 20,
            receive_buffer: 1 << 20,
            algorithm: Algorithm::default(),
            detection: Detection::default(),
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: false,
            nagle: true,
            delayed_ack: Duration::from_millis(40),
            initial_window: 10,
            min_rto: Duration::from_secs(1),
            max_rto: Duration::from_secs(60),
            user_timeout: Duration::from_secs(300),
            handshake_timeout: Duration::from_secs(180),
            keep_alive: None,
        }
    }
}

/// Limits of a host's TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of connections in any state.
    pub connections: usize,
    /// Maximum number of handshakes in progress on one listener. More SYNs are dropped.
    pub half_open: usize,
    /// Maximum number of 4-tuples in TIME-WAIT. The oldest is evicted.
    pub time_wait: usize,
    /// Time that a 4-tuple stays in TIME-WAIT: twice the maximum segment lifetime (RFC 9293 section
    /// 3.4.2).
    pub time_wait_for: Duration,
    /// Maximum number of listeners.
    pub listeners: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 65_536,
            half_open: 256,
            time_wait: 32_768,
            time_wait_for: Duration::from_secs(240),
            listeners: 1024,
        }
    }
}

/// The reason why a call was refused. Each is caused by the caller or by the state of the connection;
/// none is a fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection does not exist or no longer exists.
    #[error("no connection has this id")]
    NoConnection,
    /// The listener does not exist or no longer exists.
    #[error("no listener has this id")]
    NoListener,
    /// The call is not possible in this state, such as writing after `shutdown`.
    #[error("the connection is closing and accepts no more data")]
    Closing,
    /// A limit is reached.
    #[error("the limit of {limit} {what} is reached")]
    Full {
        /// The items that are limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The address or the pair of addresses is in use.
    #[error("the address and port are already in use")]
    InUse,
    /// No ephemeral port is free for this pair of addresses.
    #[error("no ephemeral port is free")]
    NoPort,
    /// The addresses cannot be used, alone or together.
    #[error("expected two unicast addresses of one family and a remote port, got others")]
    Address,
    /// A setting is out of its bounds.
    #[error("expected {what} of {low} to {high}, got {got}")]
    Setting {
        /// The setting.
        what: &'static str,
        /// Minimum value.
        low: u64,
        /// Maximum value.
        high: u64,
        /// The value given.
        got: u64,
    },
}

impl Settings {
    /// Checks that every value is within its bounds.
    pub fn check(&self) -> Result<(), Error> {
        let ms = |d: Duration| d.as_millis().min(u128::from(u64::MAX)) as u64;
        let (min, max) = (MIN_BUFFER as u64, MAX_BUFFER as u64);
        let keep_alive = self.keep_alive.unwrap_or_default();
        for (what, low, high, got) in [
            ("an MTU", u64::from(MIN_MTU), u64::from(u16::MAX), u64::from(self.mtu)),
            ("a send buffer", min, max, self.send_buffer as u64),
            ("a receive buffer", min, max, self.receive_buffer as u64),
            ("an acknowledgment delay in ms", 0, ms(MAX_DELAYED_ACK), ms(self.delayed_ack)),
            ("an initial window", 1, 1024, u64::from(self.initial_window)),
            ("a minimum RTO in ms", 1, ms(self.max_rto), ms(self.min_rto)),
            ("a maximum RTO in ms", 1, 1 << 32, ms(self.max_rto)),
            ("a user timeout in ms", 1, 1 << 40, ms(self.user_timeout)),
            ("a handshake timeout in ms", 1, 1 << 40, ms(self.handshake_timeout)),
            ("a keep-alive interval in ms", 1, 1 << 40, ms(keep_alive.interval)),
            ("a keep-alive idle time in ms", 1, 1 << 40, ms(keep_alive.idle)),
        ] {
            if !(low..=high).contains(&got) {
                return Err(Error::Setting { what, low, high, got });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_bounds_is_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        let wrong = Settings { mtu: 60, ..Settings::default() };
        assert_eq!(
            wrong.check().map_err(|e| e.to_string()),
            Err("expected an MTU of 128 to 65535, got 60".to_owned())
        );
    }
}
